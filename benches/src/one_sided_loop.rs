//! One-sided operations over a provider that does nothing: a queue pair of the software fabric, whose posts and polls are taken
//! over. A post keeps the last number, and a poll completes it.
//!
//! # Safety
//!
//! The functions here follow no address but those that they are called with. One thread calls them.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bareverbs_core::verbs::{Context, ContextOps, Cq, Device, Qp, SendWr, Wc};
use bareverbs_core::view::RemoteView;
use bareverbs_shell::memory::{HostDomain, LocalMemory, OwnedBytes, View};
use bareverbs_shell::one_sided::{Transfers, TransfersConfig, connect_pair};
use bareverbs_shell::soft::{SoftConfig, SoftFabric};
use bareverbs_shell::symbols::{SymbolTable, Symbols};
use bareverbs_shell::{Fabric, FabricKind, Relax, Wait};

static REAL: OnceLock<Arc<Symbols>> = OnceLock::new();

thread_local! {
    /// What was posted and not yet polled: number and queue pair.
    static POSTED: Cell<Option<(u64, u32)>> = const { Cell::new(None) };
}

unsafe extern "C" fn open_device(device: *mut Device) -> *mut Context {
    let open = REAL.get().expect("set before").open_device;
    // SAFETY: passed on.
    let context = unsafe { open(device) };
    // SAFETY: null, or just made: its table is the provider's to write, and nobody reads it yet.
    if let Some(context) = unsafe { context.as_mut() } {
        context.ops = ContextOps { post_send: Some(post_send), poll_cq: Some(poll_cq), ..context.ops };
    }
    context
}

unsafe extern "C" fn post_send(pair: *mut Qp, request: *mut SendWr, _: *mut *mut SendWr) -> c_int {
    // SAFETY: a request that is valid for the call.
    let wr_id = unsafe { (*request).wr_id };
    // SAFETY: a live queue pair.
    let qp_num = unsafe { (*pair).qp_num };
    POSTED.set(Some((wr_id, qp_num)));
    0
}

unsafe extern "C" fn poll_cq(_: *mut Cq, most: c_int, room: *mut Wc) -> c_int {
    let Some((wr_id, qp_num)) = POSTED.take().filter(|_| most > 0) else { return 0 };
    // SAFETY: there is room for one.
    unsafe { room.write(Wc { wr_id, qp_num, ..Wc::default() }) };
    1
}

/// Two ends, and memory at each, all for the life of the process.
struct Scene {
    end: Transfers<8>,
    local: View,
    remote: RemoteView,
}

impl Scene {
    fn new() -> Self {
        let soft = SoftFabric::new(SoftConfig::default()).expect("a free slot");
        let real = REAL.get_or_init(|| soft.symbols());
        let table = SymbolTable { open_device, ..real.table().clone() };
        // SAFETY: the function in front passes on what it is given; posts and polls answer as a provider may.
        let symbols = Arc::new(unsafe { Symbols::new(table) });
        let fabric = Fabric::with_symbols(symbols, FabricKind::Soft);
        let device = fabric.open(None).expect("the device");
        let end =
            || Transfers::new(&device, TransfersConfig::new("the other end").depths(64, 4)).expect("a queue pair");
        let (mut a, mut b): (Transfers<8>, Transfers<8>) = (end(), end());
        connect_pair(&mut a, &mut b).expect("both are in INIT");
        let registered = |end: &Transfers<8>| {
            let memory = LocalMemory::new(OwnedBytes::from(vec![0; 64])).expect("host memory");
            let domain = HostDomain::new(end.domain().expect("not closed")).expect("the device can be asked");
            domain.register(&memory).expect("registered")
        };
        let (local, there) = (registered(&a), registered(&b));
        let remote = *there.publish().expect("a key").remote();
        // What polls would complete at a teardown never comes.
        std::mem::forget((b, there, soft));
        Self { end: a, local, remote }
    }
}

/// `n` times a write, and a poll that finds it done.
pub fn writes_and_polls(n: u64) -> u64 {
    let Scene { mut end, local, remote } = Scene::new();
    let mut done = 0;
    for _ in 0..n {
        end.write(&local, &remote).expect("room");
        done += end.poll(|_| ()).expect("nothing fails") as u64;
    }
    std::mem::forget(end);
    done
}

/// `n` times a read, and a wait that finds it done at its first poll.
pub fn reads_and_waits(n: u64) -> u64 {
    let Scene { mut end, local, remote } = Scene::new();
    let wait = Wait::at_most(Duration::from_secs(60)).relax(Relax::Spin);
    let mut done = 0;
    for _ in 0..n {
        end.read(&local, &remote).expect("room");
        done += end.wait_for_all(&wait, |_| ()).expect("nothing fails") as u64;
    }
    std::mem::forget(end);
    done
}

/// `n` polls that find nothing.
pub fn empty_polls(n: u64) -> u64 {
    let Scene { mut end, .. } = Scene::new();
    let found: usize = (0..n).map(|_| end.poll(|_| ()).expect("nothing fails")).sum();
    std::mem::forget(end);
    n - found as u64
}
