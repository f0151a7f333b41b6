//! Regions, queues and parents: sizes that cannot be, access bits that a library may not know, objects of two contexts.

use std::sync::Arc;

use bareverbs_core::connect::QueuePairConfig;
use bareverbs_core::link::{FrameStorage, Immediate, LinkSetupError};
use bareverbs_core::verbs::{AccessFlags, QpAttrMask, QpState};
use bareverbs_shell::Error;
use bareverbs_shell::endpoint::{Endpoint, EndpointConfig, Frames};
use bareverbs_shell::errno::{self, Errno};
use bareverbs_shell::memory::pages::{PAGE_BYTES, Pages};
use bareverbs_shell::objects::{CompletionQueue, DeviceContext, MemoryRegion, ProtectionDomain, QueuePair};
use bareverbs_shell::soft::{Answer, Detail, LiveCounts, Record, SoftConfig, SoftFabric};

use crate::ledger::{Ledger, calls_of};
use crate::world::config;

fn recorded(config: SoftConfig) -> (SoftFabric, Arc<DeviceContext>) {
    let soft = SoftFabric::new(config.record(Record::Bounded(1000))).expect("a free slot");
    let context = DeviceContext::open(&soft.symbols(), None).expect("the device");
    (soft, context)
}

fn register(domain: &Arc<ProtectionDomain>, len_bytes: usize, access: AccessFlags) -> Result<MemoryRegion, Error> {
    let pages = Arc::new(Pages::new(PAGE_BYTES).expect("a page"));
    assert!(len_bytes <= pages.len_bytes());
    let start = pages.start().addr().get();
    #[allow(unsafe_code)]
    // SAFETY: 1: the keeper holds the pages, which are longer. 2: only their address is known.
    unsafe {
        MemoryRegion::register(domain, start, len_bytes, access, Some(pages))
    }
}

#[test]
fn a_region_of_nothing_is_refused_before_any_call_and_one_of_a_byte_is_not() {
    let (soft, context) = recorded(SoftConfig::default());
    let domain = ProtectionDomain::new(&context, 1).expect("a domain");
    let error = register(&domain, 0, AccessFlags::LOCAL_WRITE).expect_err("nothing");
    assert_eq!(error, Error::Size { what: "a memory region", got: 0 });
    assert_eq!(calls_of(&soft.record(), "ibv_reg_mr"), 0);
    assert_eq!(register(&domain, 1, AccessFlags::LOCAL_WRITE).expect("a byte").len_bytes(), 1);
}

#[test]
fn completion_queues_of_no_or_too_many_entries_are_refused_before_any_call() {
    let (soft, context) = recorded(SoftConfig::default());
    for entries in [0, 1 << 31, u32::MAX] {
        let error = CompletionQueue::new(&context, entries).expect_err("not an int above 0");
        assert_eq!(error, Error::Size { what: "a completion queue", got: entries.into() });
    }
    assert_eq!(calls_of(&soft.record(), "ibv_create_cq"), 0);
    // The first that the library itself refuses.
    let Err(Error::Call(error)) = CompletionQueue::new(&context, (1 << 31) - 1) else { panic!("it has no room") };
    assert_eq!((error.call, error.errno), ("ibv_create_cq", Some(Errno(libc::EINVAL))));
    assert!(CompletionQueue::new(&context, 1).is_ok());
}

#[test]
fn optional_access_bits_go_by_the_newer_call_with_the_regions_own_address() {
    let (soft, context) = recorded(SoftConfig::default());
    let domain = ProtectionDomain::new(&context, 1).expect("a domain");
    let optional = AccessFlags::LOCAL_WRITE | AccessFlags::RELAXED_ORDERING;
    for (access, newer) in
        [(AccessFlags::LOCAL_WRITE, 0), (optional, 1), (AccessFlags::from_bits_retain(1 << 29 | 1), 1)]
    {
        soft.clear_record();
        let region = register(&domain, 64, access).expect("the fabric knows them");
        let record = soft.record();
        assert_eq!(calls_of(&record, "ibv_reg_mr_iova2"), newer, "{access:?}");
        assert_eq!(calls_of(&record, "ibv_reg_mr"), 1 - newer, "{access:?}");
        let Detail::Register { address, length_bytes, access: asked } = record[0].detail else { panic!("{record:?}") };
        assert_eq!((address, length_bytes, asked), (region.addr(), 64, access));
    }
    // A refusal names the call that was really made.
    soft.fail("ibv_reg_mr_iova2", 1, Answer::null(libc::EOPNOTSUPP));
    let Err(Error::Call(error)) = register(&domain, 64, optional) else { panic!("it was to fail") };
    assert_eq!((error.call, error.errno), ("ibv_reg_mr_iova2", Some(Errno(libc::EOPNOTSUPP))));
    assert!(error.to_string().contains("64 bytes"), "{error}");
}

#[test]
fn optional_access_bits_are_refused_by_name_where_the_newer_call_is_absent() {
    let (soft, context) = recorded(SoftConfig::default().without("ibv_reg_mr_iova2"));
    let domain = ProtectionDomain::new(&context, 1).expect("a domain");
    // The ends of the optional range, and just below it.
    for bit in [20, 29] {
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::from_bits_retain(1 << bit);
        let error = register(&domain, 64, access).expect_err("no such call");
        assert_eq!(error, Error::Unsupported { symbol: "ibv_reg_mr_iova2", library: Arc::from("software fabric") });
        assert!(error.to_string().contains("ibv_reg_mr_iova2"), "{error}");
    }
    assert_eq!(calls_of(&soft.record(), "ibv_reg_mr"), 0, "the bits are never dropped in silence");
    for bit in [19, 30] {
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::from_bits_retain(1 << bit);
        let Err(Error::Call(error)) = register(&domain, 64, access) else { panic!("bit {bit} is nobody's") };
        assert_eq!(error.call, "ibv_reg_mr", "bit {bit} is not optional");
    }
    assert!(register(&domain, 64, AccessFlags::LOCAL_WRITE).is_ok());
}

#[test]
fn objects_of_two_contexts_are_not_put_together() {
    let (soft, one) = recorded(SoftConfig::default());
    let other = DeviceContext::open(&soft.symbols(), None).expect("the device, once more");
    let domain = ProtectionDomain::new(&one, 1).expect("a domain");
    let ours = CompletionQueue::new(&one, 8).expect("a queue");
    let theirs = CompletionQueue::new(&other, 8).expect("a queue");
    let config = QueuePairConfig::uc().depths(2, 2);
    for (send, recv) in [(&theirs, &ours), (&ours, &theirs), (&theirs, &theirs)] {
        let error = QueuePair::new(&domain, send, recv, &config).map(drop).expect_err("two contexts");
        assert_eq!(error, Error::ForeignContext { device: Arc::from("soft0"), making: "a queue pair" });
    }
    assert_eq!(calls_of(&soft.record(), "ibv_create_qp"), 0, "the kernel would not catch it");
    assert!(QueuePair::new(&domain, &ours, &ours, &config).is_ok());
}

/// What is left when each call that makes something fails with that answer, an old error lying in `errno`.
fn errno_shown(symbol: &str, answer: Answer) -> Option<Errno> {
    let (soft, context) = recorded(SoftConfig::default());
    soft.fail(symbol, 1, answer);
    errno::set(libc::EPROTO);
    let made = Endpoint::<_, 2, 2>::new(&context, Immediate, config(), Frames::Owned);
    let Err(Error::Call(error)) = made else { panic!("{symbol}: {made:?}") };
    assert_eq!(error.call, symbol);
    drop(context);
    assert_eq!(soft.live(), LiveCounts::default());
    Ledger::replay(&soft.record()).assert_all_gone();
    error.errno
}

#[test]
fn an_errno_that_a_call_did_not_set_is_never_shown() {
    for symbol in ["ibv_alloc_pd", "ibv_create_cq", "ibv_create_qp", "ibv_reg_mr"] {
        assert_eq!(errno_shown(symbol, Answer::returned(-1)), None, "{symbol}: null, and errno is untouched");
        assert_eq!(errno_shown(symbol, Answer::null(0)), None, "{symbol}: null, and errno is 0");
        assert_eq!(errno_shown(symbol, Answer::null(libc::ENODEV)), Some(Errno(libc::ENODEV)), "{symbol}");
    }
    for symbol in ["ibv_modify_qp", "ibv_query_port"] {
        assert_eq!(errno_shown(symbol, Answer::returned(-1)), None, "{symbol}: -1, and errno is untouched");
        assert_eq!(errno_shown(symbol, Answer::minus_one(libc::ENODEV)), Some(Errno(libc::ENODEV)), "{symbol}");
        assert_eq!(errno_shown(symbol, Answer::returned(libc::ENODEV)), Some(Errno(libc::ENODEV)), "{symbol}");
        assert_eq!(errno_shown(symbol, Answer::returned(-libc::ENODEV)), Some(Errno(libc::ENODEV)), "{symbol}");
    }
}

#[test]
fn frames_that_cannot_be_are_refused_and_what_was_made_is_destroyed() {
    for (frame_bytes, wanted) in [
        (0, None),
        (63, Some(LinkSetupError::FrameSize { got_bytes: 63, multiple_of_bytes: 64 })),
        (65, Some(LinkSetupError::FrameSize { got_bytes: 65, multiple_of_bytes: 64 })),
    ] {
        let (soft, context) = recorded(SoftConfig::default());
        let config = config().frame_bytes(frame_bytes);
        let error = Endpoint::<_, 2, 2>::new(&context, Immediate, config, Frames::Owned).expect_err("no such frame");
        match wanted {
            Some(wanted) => assert_eq!(error, Error::Link(wanted)),
            None => assert!(matches!(error, Error::Size { got: 0, .. }), "{error}"),
        }
        drop(context);
        Ledger::replay(&soft.record()).assert_all_gone();
        assert_eq!(soft.live(), LiveCounts::default());
    }
    // Storage that is a frame too small.
    static SMALL: FrameStorage<{ 3 * 1024 }> = FrameStorage::new();
    let (soft, context) = recorded(SoftConfig::default());
    let small = SMALL.claim().expect("nobody else has it");
    let error = Endpoint::<_, 2, 2>::new(&context, Immediate, config(), small).expect_err("too small");
    assert!(
        matches!(error, Error::Link(LinkSetupError::MemoryTooSmall { got_bytes: 3072, need_bytes: 4096 })),
        "{error}"
    );
    drop(context);
    assert_eq!(soft.live(), LiveCounts::default());
    assert!(SMALL.claim().is_some(), "an endpoint that could not be made gives it back");
}

#[test]
fn the_jaccl_presets_queue_pair_permits_remote_access_and_its_frames_region_does_not() {
    let preset = |config: EndpointConfig| {
        let (soft, context) = recorded(SoftConfig::default());
        let mut end = Endpoint::<_, 32, 32>::new(&context, Immediate, config, Frames::Owned).expect("an endpoint");
        let itself = end.destination();
        end.agree_credits(end.recv_depth()).expect("nothing was sent");
        end.connect(&itself, end.path_mtu()).expect("it is in INIT");
        let (mut pairs, mut regions, mut psns) = (Vec::new(), Vec::new(), Vec::new());
        for call in soft.record() {
            match call.detail {
                Detail::Modify { attr, mask } if mask.contains(QpAttrMask::ACCESS_FLAGS) => {
                    assert_eq!(attr.qp_state, QpState::INIT);
                    pairs.push(attr.qp_access_flags);
                }
                Detail::Modify { attr, mask } if mask.contains(QpAttrMask::RQ_PSN) => psns.push(attr.rq_psn),
                Detail::Register { access, .. } => regions.push(access),
                _ => {}
            }
        }
        (pairs, regions, psns)
    };
    let local = AccessFlags::LOCAL_WRITE;
    let (pairs, regions, psns) = preset(EndpointConfig::jaccl("rank 1"));
    assert_eq!(pairs, [local | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ]);
    // A peer that could write into the frames would write under the slices that are handed out of them.
    assert_eq!(regions, [local]);
    assert_eq!(psns, [7]);
    // Without it, neither does.
    let (pairs, regions, _) = preset(EndpointConfig::uc("rank 1"));
    assert_eq!((pairs, regions), (vec![local], vec![local]));
}
