//! Requests that name local memory keep it: case H3, as far as views go.
//!
//! # Safety
//!
//! What is posted names memory whose view the test keeps until the queue pair is gone.
#![allow(unsafe_code)]

use std::sync::{Arc, Mutex};

use bareverbs_core::verbs::Sge;
use bareverbs_shell::memory::{HostDomain, Keepalive, LocalMemory, OwnedBytes, View};
use bareverbs_shell::objects::{DeviceContext, ProtectionDomain};
use bareverbs_shell::soft::{Answer, LiveCounts, MessageFault, Mode, Record, SoftConfig, SoftDevice, SoftFabric};

use crate::drop_log;
use crate::ledger::position;
use crate::soft::raw::on_soft::{env, modes};
use crate::soft::raw::{CAP, End, post_recv, post_send, receive, send, uc};

/// An owner that notes at its end how many regions there are.
struct Noting {
    bytes: OwnedBytes,
    ended: Arc<Mutex<Vec<usize>>>,
    soft: SoftFabric,
}

// SAFETY: 1 to 4 are its bytes' own.
unsafe impl Keepalive for Noting {
    fn addr(&self) -> usize {
        self.bytes.addr()
    }

    fn size(&self) -> usize {
        self.bytes.size()
    }
}

impl Drop for Noting {
    fn drop(&mut self) {
        self.ended.lock().expect("no panic").push(self.soft.live().mrs);
    }
}

/// A queue pair with two receives and a send outstanding in local memory, of which the test holds the requests' view and no
/// handle; a message for it is held by the fabric.
struct Scene {
    soft: SoftFabric,
    sender: End,
    receiver: End,
    view: View,
    ended: Arc<Mutex<Vec<usize>>>,
}

const FRAME: u32 = 4096;

impl Scene {
    fn new(device: &'static str, mode: Mode) -> Self {
        let devices = vec![SoftDevice::new(device)];
        let config = SoftConfig::default().devices(devices).mode(mode).record(Record::Bounded(10_000));
        let soft = SoftFabric::new(config).expect("a free slot");
        let env = env(&soft, device);
        let context = DeviceContext::open(&soft.symbols(), Some(device)).expect("the device");
        let domain = ProtectionDomain::new(&context, 1).expect("a domain");
        let host = HostDomain::new(&domain).expect("the device can be asked");
        let ended = Arc::default();
        let bytes = OwnedBytes::from(vec![0; 3 * FRAME as usize]);
        let owner = Noting { bytes, ended: Arc::clone(&ended), soft: soft.clone() };
        let memory = LocalMemory::new(owner).expect("host memory");
        let view = host.register(&memory).expect("the library takes it");

        let sender = End::new(&env);
        // An end in the domain of the view.
        let cq = env.create_cq(context.as_ptr(), 64);
        let qp = env.create_qp(domain.as_ptr(), &mut uc(cq, CAP));
        assert!(!cq.is_null() && !qp.is_null());
        let nothing = std::ptr::slice_from_raw_parts_mut(std::ptr::null_mut(), 0);
        let (context, pd) = (context.as_ptr(), domain.as_ptr());
        let receiver = End { env, context, pd, cq, qp, mr: std::ptr::null_mut(), memory: nothing };
        for (end, peer) in [(&sender, &receiver), (&receiver, &sender)] {
            end.to_init();
            assert_eq!(end.to_rtr(peer), 0);
            end.to_rts();
        }
        let frame = |at: u64| {
            let part = view.part(at * u64::from(FRAME), FRAME.into()).expect("inside");
            Sge { addr: part.key_addr(), length: FRAME, lkey: part.lkey() }
        };
        for at in [0, 1] {
            assert_eq!(post_recv(qp, &mut [receive(at, frame(at))]), (0, None));
        }
        soft.message_fault(1, MessageFault::Hold);
        sender.write(0, b"too late");
        sender.post_send(7, 0, 8);
        sender.poll(1);
        assert_eq!(post_send(qp, &mut [send(9, frame(2))]), (0, None));
        soft.clear_record();
        Self { soft, sender, receiver, view, ended }
    }

    fn ended(&self) -> Vec<usize> {
        self.ended.lock().expect("no panic").clone()
    }
}

#[test]
fn h3_memory_that_a_request_names_outlives_its_handles_and_the_region_goes_after_the_queue_pair() {
    for mode in modes() {
        for late in [false, true] {
            let Scene { soft, sender, receiver, view, ended } = Scene::new("h3view", mode);
            let noted = || ended.lock().expect("no panic").clone();
            // Handle, host domain, domain and context are dropped by now; the requests' view is left.
            assert_eq!((noted(), soft.live().mrs), (vec![], 2));
            if late {
                assert_eq!(soft.release_held(), 1, "{mode:?}: it lands in memory that is there");
            }
            let env = receiver.env.clone();
            assert_eq!((env.destroy_qp(receiver.qp), env.destroy_cq(receiver.cq)), (0, 0));
            if !late {
                assert_eq!(soft.release_held(), 0, "{mode:?}: it found a receive");
            }
            drop(view);
            assert_eq!(noted(), [1], "{mode:?}: its region is gone, the sender's is there");
            let record = soft.record();
            assert!(position(&record, "ibv_destroy_qp") < position(&record, "ibv_dereg_mr"), "{mode:?}");
            sender.tear_down();
            assert_eq!((soft.live(), soft.misuse()), (LiveCounts::default(), Vec::<String>::new()));
        }
    }
}

#[test]
fn h3_a_forgotten_view_keeps_region_and_memory_for_ever() {
    let scene = Scene::new("h3forget", Mode::Prompt);
    std::mem::forget(scene.view.clone());
    let Scene { soft, sender, receiver, view, ended } = scene;
    drop(view);
    assert_eq!((ended.lock().expect("no panic").len(), soft.live().mrs), (0, 2));
    assert_eq!(soft.release_held(), 1, "it lands in memory that is there");
    let env = receiver.env.clone();
    assert_eq!((env.destroy_qp(receiver.qp), env.destroy_cq(receiver.cq)), (0, 0));
    sender.tear_down();
    assert_eq!((ended.lock().expect("no panic").len(), soft.live().mrs), (0, 1));
}

#[test]
fn h3_where_queue_pair_and_region_cannot_be_taken_down_the_memory_is_kept() {
    drop_log::keep();
    let scene = Scene::new("h3refuses", Mode::Prompt);
    scene.soft.fail_from("ibv_dereg_mr", 1, Answer::returned(libc::EBUSY));
    assert_eq!(scene.ended(), []);
    let Scene { soft, view, ended, .. } = scene;
    drop(view);
    soft.clear_plan();
    assert_eq!(drop_log::take("h3refuses").len(), 1);
    assert_eq!((ended.lock().expect("no panic").len(), soft.live().mrs), (0, 2));
    assert_eq!(soft.release_held(), 1, "it lands in memory that is there");
}
