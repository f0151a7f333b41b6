//! Refusals: sizes, registrations, full queues.

use bareverbs_core::verbs::{AccessFlags, QpCap, SendFlags};

use crate::differences::Difference;
use crate::raw::{CAP, End, Env, clear_errno, errno, pair, post_recv, post_send, receive, send, statuses, uc};
use crate::{EINVAL, ENOMEM, OK};

pub fn oversize_inline_is_refused(env: &Env) {
    let context = env.open();
    let (pd, cq) = (env.alloc_pd(context), env.create_cq(context, 8));
    clear_errno();
    let refused = env.create_qp(pd, &mut uc(cq, QpCap { max_inline_data: 900, ..CAP }));
    assert!(refused.is_null());
    assert_eq!(errno(), EINVAL);
    assert_eq!([env.destroy_cq(cq), env.dealloc_pd(pd), env.close(context)], [0; 3]);

    let (one, other) = crate::raw::connect(End::with(env, QpCap { max_inline_data: 64, ..CAP }, |_| ()), End::new(env));
    let mut request = send(1, one.sge(0, 4096));
    request.send_flags = SendFlags::SIGNALED | SendFlags::INLINE;
    assert_eq!(post_send(one.qp, &mut [request]), (EINVAL, Some(0)));
    one.tear_down();
    other.tear_down();
}

pub fn a_full_receive_queue_answers_enomem_and_names_the_request(env: &Env) {
    let one = End::new(env);
    one.to_init();
    let mut posted = 0;
    let refusal = loop {
        let answer = post_recv(one.qp, &mut [receive(posted, one.sge(0, 64))]);
        if answer.0 != 0 {
            break answer;
        }
        posted += 1;
        assert!(posted < 10_000, "it never fills");
    };
    assert_eq!(refusal, (ENOMEM, Some(0)));
    let exactly = posted == u64::from(CAP.max_recv_wr);
    assert!(posted >= u64::from(CAP.max_recv_wr), "{posted}");
    assert_eq!(exactly, Difference::ReceiveDepth.by_side(env, true, false), "{posted}");
    one.tear_down();
}

pub fn a_refused_request_of_a_chain_is_named_and_those_before_it_are_accepted(env: &Env) {
    let (one, other) = pair(env);
    for id in 0..3 {
        other.post_receive(id, 0, 64);
    }
    let mut chain = [1, 2, 3].map(|id| send(id, one.sge(0, 64)));
    chain[1].num_sge = 100;
    assert_eq!(post_send(one.qp, &mut chain), (EINVAL, Some(1)));
    assert_eq!(statuses(&env.drain(one.cq)), [(1, OK)]);
    assert_eq!(statuses(&env.drain(other.cq)), [(0, OK)]);
    one.tear_down();
    other.tear_down();
}

pub fn registrations_are_checked(env: &Env) {
    let context = env.open();
    let pd = env.alloc_pd(context);
    let mut memory = vec![0_u8; 2 * 4096];
    let refused = |memory: *mut [u8], access, why: &str| {
        clear_errno();
        assert!(env.reg_mr(pd, memory, access).is_null(), "{why}");
        errno()
    };
    let whole: *mut [u8] = memory.as_mut_slice();
    let of = std::ptr::slice_from_raw_parts_mut::<u8>;
    // Within a page: the kernel counts the pages that the range touches, and finds one.
    let start = whole.cast::<u8>().map_addr(|address| address.next_multiple_of(4096));
    assert_eq!(refused(of(start, 0), AccessFlags::LOCAL_WRITE, "empty, at a page's start"), EINVAL);
    let empty = env.reg_mr(pd, of(start.wrapping_add(64), 0), AccessFlags::LOCAL_WRITE);
    assert_eq!(empty.is_null(), Difference::EmptyRegion.by_side(env, true, false));
    if !empty.is_null() {
        assert_eq!(env.dereg_mr(empty), 0);
    }
    assert_eq!(refused(of(std::ptr::null_mut(), 64), AccessFlags::LOCAL_WRITE, "null"), 14);
    assert_eq!(refused(whole, AccessFlags::REMOTE_WRITE, "remote write only"), EINVAL);
    assert_eq!(refused(whole, AccessFlags::ON_DEMAND | AccessFlags::LOCAL_WRITE, "on demand"), EINVAL);
    assert_eq!([env.dealloc_pd(pd), env.close(context)], [0; 2]);
}

pub fn completion_queue_sizes_are_checked(env: &Env) {
    let context = env.open();
    for entries in [0, -1, 40_000] {
        clear_errno();
        assert!(env.create_cq(context, entries).is_null());
        assert_eq!(errno(), EINVAL, "{entries}");
    }
    let cq = env.create_cq(context, 1);
    assert!(!cq.is_null());
    assert_eq!([env.destroy_cq(cq), env.close(context)], [0; 2]);
}

pub fn sizes_of_queues_are_granted_up_to_the_device_limits(env: &Env) {
    let context = env.open();
    let limits = crate::raw::device_attributes(env, context);
    let pd = env.alloc_pd(context);
    let refused = env.create_cq(context, limits.max_cqe + 1);
    assert!(refused.is_null());
    let cq = env.create_cq(context, limits.max_cqe);
    assert!(!cq.is_null());
    for (good, bad) in [
        (
            QpCap { max_send_sge: limits.max_sge as u32, ..CAP },
            QpCap { max_send_sge: limits.max_sge as u32 + 1, ..CAP },
        ),
        (
            QpCap { max_recv_sge: limits.max_sge as u32, ..CAP },
            QpCap { max_recv_sge: limits.max_sge as u32 + 1, ..CAP },
        ),
        (QpCap { max_inline_data: 512, ..CAP }, QpCap { max_inline_data: 513, ..CAP }),
        (CAP, QpCap { max_send_wr: limits.max_qp_wr as u32 + 1, ..CAP }),
        (CAP, QpCap { max_recv_wr: limits.max_qp_wr as u32 + 1, ..CAP }),
    ] {
        clear_errno();
        assert!(env.create_qp(pd, &mut uc(cq, bad)).is_null(), "{bad:?}");
        assert_eq!(errno(), EINVAL, "{bad:?}");
        let qp = env.create_qp(pd, &mut uc(cq, good));
        assert!(!qp.is_null(), "{good:?}");
        assert_eq!(env.destroy_qp(qp), 0);
    }
    assert_eq!([env.destroy_cq(cq), env.dealloc_pd(pd), env.close(context)], [0; 3]);
}

pub fn a_queue_whose_sends_are_never_signalled_fills_up(env: &Env) {
    const MANY: u32 = 200;
    let (one, other) = pair(env);
    let mut request = [send(1, one.sge(0, 64))];
    request[0].send_flags = SendFlags::empty();
    let mut posted = 0;
    let mut refusals = 0;
    while posted < MANY && refusals < 10_000 {
        match post_send(one.qp, &mut request) {
            (0, None) => (posted, refusals) = (posted + 1, 0),
            (ENOMEM, Some(0)) => refusals += 1,
            other => panic!("{other:?}"),
        }
        assert_eq!(env.poll_once(one.cq).map(|wc| wc.status), None);
        std::thread::yield_now();
    }
    assert_eq!(posted, Difference::Unsignalled.by_side(env, CAP.max_send_wr, MANY));
    one.tear_down();
    other.tear_down();
}
