//! Handles after their destruction: caught and told, whatever is done with them.

use bareverbs_core::verbs::{AccessFlags, LinkLayer, QpState, Wc};
use bareverbs_shell::soft::{LiveCounts, SoftConfig, SoftDevice, SoftFabric, stray_misuse};

use super::raw::on_soft::{env, modes};
use super::raw::{CAP, End, clear_errno, errno, pair, poll_raw, post_recv, post_send, receive, send, uc};

const EINVAL: i32 = 22;

fn fabric() -> SoftFabric {
    SoftFabric::new(SoftConfig::default()).expect("a free slot")
}

#[test]
fn h4_every_second_destruction_is_refused_and_noted() {
    for mode in modes() {
        let fabric = SoftFabric::new(SoftConfig::default().mode(mode)).expect("a free slot");
        let env = env(&fabric, "soft0");
        let one = End::new(&env);
        let (mr, qp, cq, pd, context) = (one.mr, one.qp, one.cq, one.pd, one.context);
        one.tear_down();
        let again = [env.dereg_mr(mr), env.destroy_qp(qp), env.destroy_cq(cq), env.dealloc_pd(pd), env.close(context)];
        assert_eq!(again, [EINVAL; 5]);
        let told = fabric.misuse();
        let words = ["ibv_dereg_mr", "ibv_destroy_qp", "ibv_destroy_cq", "ibv_dealloc_pd", "ibv_close_device"];
        assert_eq!(told.len(), 5);
        for (told, word) in told.iter().zip(words) {
            assert!(told.starts_with(word), "{told}");
        }
        assert_eq!(fabric.live(), LiveCounts::default());
    }
}

#[test]
fn every_use_of_a_destroyed_handle_is_refused_and_noted() {
    let fabric = fabric();
    let env = env(&fabric, "soft0");
    let one = End::new(&env);
    let (qp, cq, pd, context, entry) = (one.qp, one.cq, one.pd, one.context, one.sge(0, 64));
    one.tear_down();
    let mut uses = 0;
    let mut noted = |what: &str| {
        uses += 1;
        assert_eq!(fabric.misuse().len(), uses, "{what}: {:?}", fabric.misuse().last());
    };
    assert_eq!(post_send(qp, &mut [send(1, entry)]), (EINVAL, Some(0)));
    noted("post_send");
    assert_eq!(post_recv(qp, &mut [receive(1, entry)]), (EINVAL, Some(0)));
    noted("post_recv");
    assert_eq!(poll_raw(cq, &mut [Wc::default()]), -EINVAL);
    noted("poll_cq");
    assert_eq!(env.move_to(qp, QpState::ERR), EINVAL);
    noted("modify_qp");
    clear_errno();
    assert!(env.create_qp(pd, &mut uc(cq, CAP)).is_null());
    assert_eq!(errno(), EINVAL);
    noted("create_qp");
    assert!(env.create_cq(context, 8).is_null());
    noted("create_cq");
    assert!(env.alloc_pd(context).is_null());
    noted("alloc_pd");
    let mut memory = [0_u8; 64];
    assert!(env.reg_mr(pd, &raw mut memory, AccessFlags::LOCAL_WRITE).is_null());
    noted("reg_mr");
    assert_eq!(super::raw::port_answer(&env, context), EINVAL);
    noted("query_port");
}

#[test]
fn a_queue_pair_made_on_a_destroyed_completion_queue_is_refused() {
    let fabric = fabric();
    let env = env(&fabric, "soft0");
    let one = End::new(&env);
    let dead = env.create_cq(one.context, 8);
    assert_eq!(env.destroy_cq(dead), 0);
    assert!(env.create_qp(one.pd, &mut uc(dead, CAP)).is_null());
    assert_eq!(fabric.misuse().len(), 1);
    one.tear_down();
}

#[test]
fn handles_that_never_were_any_are_caught_before_they_are_followed() {
    let fabric = fabric();
    let env = env(&fabric, "soft0");
    let one = End::new(&env);
    let nonsense = std::ptr::without_provenance_mut::<u8>(0xdead_beef_0000);
    assert_eq!(env.dealloc_pd(nonsense.cast()), EINVAL);
    assert_eq!(env.destroy_qp(nonsense.cast()), EINVAL);
    assert_eq!(env.destroy_cq(std::ptr::null_mut()), EINVAL);
    assert_eq!(env.close(std::ptr::null_mut()), EINVAL);
    assert_eq!(env.destroy_cq(one.qp.cast()), EINVAL, "another kind of handle");
    assert_eq!(env.dereg_mr(one.pd.cast()), EINVAL);
    assert!(stray_misuse().iter().any(|told| told == "ibv_dealloc_pd: 0xdeadbeef0000 never was a protection domain"));
    one.tear_down();
}

#[test]
fn a_context_closed_early_strands_its_children() {
    let fabric = fabric();
    let env = env(&fabric, "soft0");
    let one = End::new(&env);
    assert_eq!(env.close(one.context), 0, "always granted");
    assert_eq!(fabric.misuse().len(), 1);
    let live = fabric.live();
    assert_eq!((live.contexts, live.pds, live.mrs, live.cqs, live.qps), (0, 1, 1, 1, 1));
    assert_eq!([env.destroy_qp(one.qp), env.destroy_cq(one.cq), env.dereg_mr(one.mr)], [EINVAL; 3]);
    assert_eq!(poll_raw(one.cq, &mut [Wc::default()]), -EINVAL);
    assert_eq!(fabric.live().qps, 1, "they stay until the process ends");
}

#[test]
fn a_device_must_not_be_used_when_its_list_is_freed() {
    let fabric = fabric();
    let symbols = fabric.symbols();
    super::raw::use_device_after_free(&symbols);
    let told = fabric.misuse();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told[0].starts_with("ibv_get_device_name") && told[1].starts_with("ibv_open_device"), "{told:?}");
    assert!(told[2].starts_with("ibv_free_device_list"), "{told:?}");
}

#[test]
fn queues_of_another_context_are_taken_and_noted() {
    let fabric = fabric();
    let env = env(&fabric, "soft0");
    let (one, other) = (End::new(&env), End::new(&env));
    let mixed = env.create_qp(one.pd, &mut uc(other.cq, CAP));
    assert!(!mixed.is_null(), "the kernel does not catch it");
    assert!(fabric.misuse()[0].contains("of another context"));
    assert_eq!(env.destroy_cq(other.cq), 16);
    assert_eq!(env.destroy_qp(mixed), 0);
    one.tear_down();
    other.tear_down();
}

#[test]
fn keys_of_a_destroyed_region_are_scrubbed() {
    let fabric = fabric();
    let env = env(&fabric, "soft0");
    let (one, other) = pair(&env);
    let key = one.lkey();
    assert_eq!(env.dereg_mr(one.mr), 0);
    assert_ne!(one.lkey(), key);
    assert_eq!(fabric.live().mrs, 1);
    other.tear_down();
}

#[test]
fn limits_are_met_exactly() {
    use bareverbs_shell::soft::Limits;
    let limits = Limits { queue_pairs: 2, regions: 2, completion_entries: 8, ..Limits::default() };
    let config = SoftConfig::default().devices(vec![SoftDevice::new("soft0").limits(limits)]);
    let fabric = SoftFabric::new(config).expect("a free slot");
    let env = env(&fabric, "soft0");
    let context = env.open();
    let pd = env.alloc_pd(context);
    let cq = env.create_cq(context, 8);
    assert!(!cq.is_null() && env.create_cq(context, 9).is_null());
    let pairs = [0; 2].map(|_| env.create_qp(pd, &mut uc(cq, CAP)));
    clear_errno();
    assert!(pairs.iter().all(|qp| !qp.is_null()) && env.create_qp(pd, &mut uc(cq, CAP)).is_null());
    assert_eq!(errno(), 12);
    let mut memory = [0_u8; 64];
    let whole = &raw mut memory;
    let regions = [0; 2].map(|_| env.reg_mr(pd, whole, AccessFlags::LOCAL_WRITE));
    assert!(regions.iter().all(|mr| !mr.is_null()) && env.reg_mr(pd, whole, AccessFlags::LOCAL_WRITE).is_null());
    assert_eq!(regions.map(|mr| env.dereg_mr(mr)), [0; 2]);
    assert_eq!(pairs.map(|qp| env.destroy_qp(qp)), [0; 2]);
    assert_eq!([env.destroy_cq(cq), env.dealloc_pd(pd)], [0; 2]);
    assert_eq!(super::raw::link_layer(&env, context), LinkLayer::ETHERNET);
    assert_eq!(env.close(context), 0);
}

#[test]
fn the_first_misuses_are_kept_and_no_more() {
    let fabric = fabric();
    let env = env(&fabric, "soft0");
    let context = env.open();
    let cq = env.create_cq(context, 8);
    assert_eq!(env.destroy_cq(cq), 0);
    for _ in 0..2000 {
        assert_eq!(poll_raw(cq, &mut [Wc::default()]), -EINVAL);
    }
    assert_eq!(fabric.misuse().len(), 1024);
    assert_eq!(env.close(context), 0);
}
