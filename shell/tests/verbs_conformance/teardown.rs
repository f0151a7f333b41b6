//! Destroying: what is refused while what is alive, and what outlives what.

use bareverbs_core::verbs::QpState;

use crate::raw::{CAP, End, Env, pair, statuses, uc};
use crate::{EBUSY, FLUSHED, OK};

pub fn parents_with_live_children_are_busy_and_work_on(env: &Env) {
    let (one, other) = pair(env);
    assert_eq!(env.destroy_cq(one.cq), EBUSY);
    assert_eq!(env.dealloc_pd(one.pd), EBUSY);
    other.post_receive(1, 0, 64);
    one.post_send(2, 0, 64);
    assert_eq!(statuses(&one.poll(1)), [(2, OK)]);
    assert_eq!(env.destroy_qp(one.qp), 0);
    assert_eq!(env.dealloc_pd(one.pd), EBUSY, "the region is left");
    assert_eq!([env.destroy_cq(one.cq), env.dereg_mr(one.mr), env.dealloc_pd(one.pd), env.close(one.context)], [0; 4]);
    other.tear_down();
}

pub fn a_region_may_go_while_receives_are_posted_on_it(env: &Env) {
    let one = End::new(env);
    one.to_init();
    one.post_receive(1, 0, 64);
    one.tear_down();
}

pub fn objects_point_back_to_their_parents(env: &Env) {
    let end = End::new(env);
    crate::raw::check_back_pointers(&end);
    end.tear_down();
}

pub fn completions_outlive_their_queue_pair(env: &Env) {
    let (one, other) = pair(env);
    // One completion is polled, so that the other, which came before or with it, is in the queue.
    other.post_receive(1, 0, 64);
    other.post_receive(2, 0, 64);
    let number = other.number();
    assert_eq!(env.move_to(other.qp, QpState::ERR), 0);
    let first = other.poll(1);
    assert_eq!(env.destroy_qp(other.qp), 0);
    let left = env.drain(other.cq);
    assert!(first.iter().chain(&left).all(|wc| wc.qp_num == number && wc.status == FLUSHED));
    assert_eq!([env.destroy_cq(other.cq), env.dereg_mr(other.mr), env.dealloc_pd(other.pd)], [0; 3]);
    assert_eq!(env.close(other.context), 0);
    one.tear_down();
}

pub fn a_domain_is_busy_while_a_queue_pair_or_a_region_is_left(env: &Env) {
    let (one, other) = (End::new(env), End::new(env));
    assert_eq!([env.dereg_mr(one.mr), env.dealloc_pd(one.pd), env.destroy_cq(one.cq)], [0, EBUSY, EBUSY]);
    assert_eq!(
        [env.destroy_qp(one.qp), env.dealloc_pd(one.pd), env.destroy_cq(one.cq), env.close(one.context)],
        [0; 4]
    );
    assert_eq!([env.destroy_qp(other.qp), env.dealloc_pd(other.pd)], [0, EBUSY]);
    assert_eq!([env.dereg_mr(other.mr), env.dealloc_pd(other.pd)], [0; 2]);
    assert_eq!([env.destroy_cq(other.cq), env.close(other.context)], [0; 2]);
}

/// The objects stay behind; so does the memory, which the region still names.
pub fn a_device_with_live_objects_is_closed_without_a_word(env: &Env) {
    let one = End::new(env);
    assert_eq!(env.close(one.context), 0);
}

/// The kernel looks the queue up in the domain's context, where the number may be another queue's or nobody's.
pub fn a_queue_pair_of_two_contexts_is_made(env: &Env) {
    let (one, other) = (End::new(env), End::new(env));
    let qp = env.create_qp(one.pd, &mut uc(other.cq, CAP));
    assert!(!qp.is_null());
    assert_eq!(env.destroy_qp(qp), 0);
    one.tear_down();
    other.tear_down();
}
