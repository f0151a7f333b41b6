//! Indirect keys of the software fabric: what it can be told, and what it is stricter in than a device may be.
//!
//! What any mlx5 device must do is in the binary `verbs_conformance`.

use bareverbs_core::segments::LengthSum;
use bareverbs_core::verbs::mlx5dv::{MkeyFlags, Mlx5QpInitAttr, Mlx5SendOps, qp_ex};
use bareverbs_core::verbs::{
    AccessFlags, CreateQpMask, Qp, QpCap, QpInitAttrEx, QpState, QpType, SendOpsFlags, Sge, WcStatus,
};
use bareverbs_shell::soft::{
    Answer, BindingFault, Detail, LiveCounts, Mode, Record, SoftConfig, SoftDevice, SoftFabric,
};
use bareverbs_shell::symbols::mr_list::{MrListBuilder, NoBuilder};

use super::raw::keys::{
    BINDER_CAP, Binder, LISTS, at, create_key, create_mlx5_qp, destroy_key, extended, is_supported, key, listed, lkey,
    provider,
};
use super::raw::on_soft::{env, modes};
use super::raw::one_sided::{ALL, RELIABLE, Scene, write};
use super::raw::{End, Env, clear_errno, errno, post_send, send, uc};

const OK: WcStatus = WcStatus::SUCCESS;
const REMOTE: WcStatus = WcStatus::REM_ACCESS_ERR;

fn config() -> SoftConfig {
    SoftConfig::default().devices(vec![SoftDevice::mlx5("mlx5_0")])
}

fn fabric(config: SoftConfig) -> (SoftFabric, Env) {
    let fabric = SoftFabric::new(config).expect("a free slot");
    let env = env(&fabric, "mlx5_0");
    (fabric, env)
}

/// Binds one key over one region of an end, and tears all but the end down.
fn bind_once(end: &End, binder: &mut Binder) -> WcStatus {
    let (mr, key) = (end.register(ALL), key(end, 1));
    let status = binder.bind(key, ALL, &[listed(mr)]).status;
    assert_eq!([destroy_key(&end.env, key), end.env.dereg_mr(mr)], [0; 2]);
    status
}

#[test]
fn only_an_mlx5_device_is_supported() {
    let devices = vec![SoftDevice::new("soft0"), SoftDevice::mlx5("mlx5_0")];
    let fabric = SoftFabric::new(SoftConfig::default().devices(devices)).expect("a free slot");
    let (symbols, mlx5) = (fabric.symbols(), fabric.mlx5_symbols());
    assert!(is_supported(&symbols, &mlx5, "mlx5_0"));
    assert!(!is_supported(&symbols, &mlx5, "soft0"));
    fabric.fail("mlx5dv_is_supported", 1, Answer::returned(1));
    assert!(!is_supported(&symbols, &mlx5, "mlx5_0"));
    let end = End::new(&env(&fabric, "soft0"));
    clear_errno();
    assert!(create_key(&end, MkeyFlags::INDIRECT, 4).0.is_null());
    assert_eq!(errno(), 95);
    let mut attr = extended(&end, end.cq, BINDER_CAP);
    clear_errno();
    assert!(create_mlx5_qp(&end, &mut attr, Some(LISTS)).is_null());
    assert_eq!(errno(), 95);
    end.tear_down();
}

#[test]
fn a_providers_age_shows_in_its_file_name() {
    let current = fabric(config()).0.mlx5_symbols();
    assert_eq!((current.length_sum(), current.release()), (LengthSum::Bits64, Some(61)));
    let old = fabric(config().old_mlx5_provider()).0.mlx5_symbols();
    assert_eq!((old.length_sum(), old.file_name()), (LengthSum::Signed32, Some("libmlx5.so.1.24.44.0")));
}

#[test]
fn f4_a_key_of_an_old_provider_is_cut_short_or_reaches_nothing() {
    // A sparse region of 1 GiB + 2 MiB, listed twice and once more: 3 GiB + 6 MiB in all.
    for (times, offset, current, old) in [
        (1_u64, 0, OK, OK),
        (2, (1 << 31) + (4 << 20) - 8, OK, REMOTE),
        (3, 0x6600_0000, OK, REMOTE),
        (4, (1 << 32) + 64, OK, REMOTE),
        (4, (8 << 20) - 8, OK, OK),
    ] {
        for (config, expected) in [(config(), current), (config().old_mlx5_provider(), old)] {
            let (_fabric, env) = fabric(config);
            let scene = Scene::new(&env, RELIABLE);
            let mut binder = Binder::new(&scene.other);
            let file = super::raw::dma_buf::MemFile::new((1 << 30) + (2 << 20));
            let length = (1 << 30) + (2 << 20);
            let mr = super::raw::dma_buf::reg_dmabuf(&scene.other, 0, length, 0, file.fd(), ALL);
            let key = key(&scene.other, 4);
            assert_eq!(binder.bind(key, ALL, &vec![listed(mr); times as usize]).status, OK);
            scene.post(write(1, scene.one.sge(0, 8), at(key, offset)));
            assert_eq!(scene.one.poll(1)[0].status, expected, "{times} {offset:#x}");
            assert_eq!([destroy_key(&env, key), env.dereg_mr(mr)], [0; 2]);
            binder.tear_down();
            scene.tear_down();
        }
    }
}

#[test]
fn a_key_dies_with_its_regions_part_by_part() {
    for mode in modes() {
        let (_fabric, env) = fabric(config().mode(mode));
        for (offset, status) in [(0, OK), (4096, REMOTE), (4092, REMOTE)] {
            let scene = Scene::new(&env, RELIABLE);
            let mut binder = Binder::new(&scene.other);
            let page = |at: usize| {
                let start = scene.other.memory.cast::<u8>().wrapping_add(at);
                env.reg_mr(scene.other.pd, std::ptr::slice_from_raw_parts_mut(start, 4096), ALL)
            };
            let (first, second, key) = (page(0), page(4096), key(&scene.other, 4));
            assert_eq!(binder.bind(key, ALL, &[listed(first), listed(second)]).status, OK);
            assert_eq!(env.dereg_mr(second), 0, "a key does not hold its regions");
            scene.one.write(0, &[1; 8]);
            scene.post(write(1, scene.one.sge(0, 8), at(key, offset)));
            assert_eq!(scene.one.poll(1)[0].status, status, "{mode:?} {offset}");
            assert_eq!(scene.other.read(4092, 4), [0; 4], "nothing lands where a part is refused");
            assert_eq!([destroy_key(&env, key), env.dereg_mr(first)], [0; 2]);
            binder.tear_down();
            scene.tear_down();
        }
    }
}

#[test]
fn f2_entries_beyond_the_devices_limit_are_out_of_reach() {
    let (_fabric, env) = fabric(config());
    for (offset, status) in [(30 * 64 - 8, OK), (30 * 64, REMOTE), (30 * 64 - 4, REMOTE)] {
        let scene = Scene::new(&env, RELIABLE);
        let mut binder = Binder::new(&scene.other);
        let start = scene.other.memory.cast::<u8>();
        let mr = env.reg_mr(scene.other.pd, std::ptr::slice_from_raw_parts_mut(start, 64), ALL);
        let key = key(&scene.other, 32);
        assert_eq!(binder.bind(key, ALL, &[listed(mr); 32]).status, OK, "the provider takes them");
        scene.post(write(1, scene.one.sge(0, 8), at(key, offset)));
        assert_eq!(scene.one.poll(1)[0].status, status, "{offset}");
        assert_eq!([destroy_key(&env, key), env.dereg_mr(mr)], [0; 2]);
        binder.tear_down();
        scene.tear_down();
    }
}

#[test]
fn a_region_may_permit_less_than_its_key_and_a_key_in_a_key_is_out_of_reach() {
    let (_fabric, env) = fabric(config());
    let scene = Scene::new(&env, RELIABLE);
    let mut binder = Binder::new(&scene.other);
    let read_only = scene.other.register(AccessFlags::REMOTE_READ);
    let (outer, inner) = (key(&scene.other, 4), key(&scene.other, 4));
    assert_eq!(binder.bind(inner, ALL, &[listed(scene.exposed)]).status, OK);
    let nested = Sge { addr: 0, length: 64, lkey: lkey(inner) };
    assert_eq!(binder.bind(outer, ALL, &[listed(read_only), nested]).status, OK);
    scene.post(super::raw::one_sided::read(1, scene.one.sge(0, 8), at(outer, 0)));
    assert_eq!(scene.one.poll(1)[0].status, OK);
    scene.post(write(1, scene.one.sge(0, 8), at(outer, 0)));
    assert_eq!(scene.one.poll(1)[0].status, REMOTE);
    assert_eq!([destroy_key(&env, outer), destroy_key(&env, inner), env.dereg_mr(read_only)], [0; 3]);
    binder.tear_down();
    scene.tear_down();
    let scene = Scene::new(&env, RELIABLE);
    let mut binder = Binder::new(&scene.other);
    let (outer, inner) = (key(&scene.other, 4), key(&scene.other, 4));
    assert_eq!(binder.bind(inner, ALL, &[listed(scene.exposed)]).status, OK);
    let nested = Sge { addr: 0, length: 64, lkey: lkey(inner) };
    assert_eq!(binder.bind(outer, ALL, &[nested]).status, OK);
    scene.post(super::raw::one_sided::read(1, scene.one.sge(0, 8), at(outer, 0)));
    assert_eq!(scene.one.poll(1)[0].status, REMOTE);
    assert_eq!([destroy_key(&env, outer), destroy_key(&env, inner)], [0; 2]);
    binder.tear_down();
    scene.tear_down();
}

#[test]
fn a_word_in_two_regions_is_no_word() {
    let (_fabric, env) = fabric(config());
    let scene = Scene::new(&env, RELIABLE);
    let mut binder = Binder::new(&scene.other);
    let start = scene.other.memory.cast::<u8>();
    let mr = env.reg_mr(scene.other.pd, std::ptr::slice_from_raw_parts_mut(start, 12), ALL);
    let key = key(&scene.other, 4);
    assert_eq!(binder.bind(key, ALL, &[listed(mr); 2]).status, OK);
    scene.post(super::raw::one_sided::fetch_add(1, scene.one.sge(0, 8), at(key, 8), 1));
    assert_eq!(scene.one.poll(1)[0].status, WcStatus::REM_INV_REQ_ERR);
    assert_eq!(scene.other.read(0, 12), [0; 12]);
    assert_eq!([destroy_key(&env, key), env.dereg_mr(mr)], [0; 2]);
    binder.tear_down();
    scene.tear_down();
}

#[test]
fn parents_are_busy_while_keys_live_and_regions_are_not() {
    let (fabric, env) = fabric(config());
    let end = End::new(&env);
    let key = key(&end, 4);
    assert_eq!(fabric.live().keys, 1);
    assert_eq!([env.dereg_mr(end.mr), env.destroy_qp(end.qp), env.destroy_cq(end.cq)], [0; 3]);
    assert_eq!(env.dealloc_pd(end.pd), 16);
    assert_eq!([destroy_key(&env, key), env.dealloc_pd(end.pd), env.close(end.context)], [0; 3]);
    assert_eq!(destroy_key(&env, key), 22);
    assert_eq!(fabric.misuse().len(), 1, "a second destruction is noted: {:?}", fabric.misuse());
    assert_eq!(fabric.live(), LiveCounts::default());
    end.free_memory();
}

#[test]
fn a_key_that_a_binding_in_flight_names_is_busy() {
    let (fabric, env) = fabric(config().mode(Mode::Stepped));
    let end = End::new(&env);
    let mut binder = Binder::new(&end);
    let (mr, key) = (end.register(ALL), key(&end, 4));
    assert_eq!(binder.post(1, key, ALL, &[listed(mr)]), Ok(()));
    assert_eq!(destroy_key(&env, key), 16);
    assert_eq!(fabric.misuse().len(), 1, "{:?}", fabric.misuse());
    fabric.run_freely();
    assert_eq!(env.poll(binder.cq, 1)[0].status, OK);
    assert_eq!([destroy_key(&env, key), env.dereg_mr(mr)], [0; 2]);
    binder.tear_down();
    end.tear_down();
}

#[test]
fn a_binding_may_be_late_lost_or_fail() {
    for mode in modes() {
        let (fabric, env) = fabric(config().mode(mode));
        let end = End::new(&env);
        let mut binder = Binder::new(&end);
        let mr = end.register(ALL);
        // Late: nothing for so many polls, then it is there.
        fabric.binding_fault(1, BindingFault::Late { polls: 5 });
        let late = key(&end, 1);
        assert_eq!(binder.post(1, late, ALL, &[listed(mr)]), Ok(()));
        assert_eq!(destroy_key(&env, late), 16, "in flight");
        assert!((0..4).all(|_| env.poll_once(binder.cq).is_none()), "{mode:?}");
        assert_eq!(env.poll(binder.cq, 1)[0].wr_id, 1);
        assert_eq!(destroy_key(&env, late), 0);
        // Lost: it took effect and nobody hears of it; the next one is heard of.
        fabric.binding_fault(1, BindingFault::Lost);
        let lost = key(&end, 1);
        assert_eq!(binder.post(2, lost, ALL, &[listed(mr)]), Ok(()));
        let next = key(&end, 1);
        assert_eq!(binder.post(3, next, ALL, &[listed(mr)]), Ok(()));
        assert_eq!(env.poll(binder.cq, 1)[0].wr_id, 3, "{mode:?}");
        assert_eq!([destroy_key(&env, lost), destroy_key(&env, next)], [0; 2]);
        // Failed: the queue pair is in error, and what follows is flushed.
        fabric.binding_fault(2, BindingFault::Fails(WcStatus::LOC_QP_OP_ERR));
        assert_eq!(bind_once(&end, &mut binder), OK);
        assert_eq!(bind_once(&end, &mut binder), WcStatus::LOC_QP_OP_ERR, "{mode:?}");
        assert_eq!(bind_once(&end, &mut binder), WcStatus::WR_FLUSH_ERR);
        assert_eq!(env.dereg_mr(mr), 0);
        binder.tear_down();
        end.tear_down();
    }
}

#[test]
fn a_binding_that_never_completes_goes_with_its_queue_pair() {
    let (fabric, env) = fabric(config());
    let end = End::new(&env);
    for reset in [false, true] {
        let mut binder = Binder::new(&end);
        fabric.binding_fault(1, BindingFault::Late { polls: u64::MAX });
        let (mr, key) = (end.register(ALL), key(&end, 1));
        assert_eq!(binder.post(1, key, ALL, &[listed(mr)]), Ok(()));
        assert_eq!(env.drain(binder.cq).len(), 0);
        if reset {
            assert_eq!(env.move_to(binder.qp, QpState::RESET), 0);
            assert_eq!(destroy_key(&env, key), 0);
            binder.tear_down();
        } else {
            binder.tear_down();
            assert_eq!(destroy_key(&env, key), 0);
        }
        assert_eq!(env.dereg_mr(mr), 0);
    }
    end.tear_down();
    assert_eq!((fabric.live(), fabric.misuse()), (LiveCounts::default(), vec![]));
}

#[test]
fn every_new_call_fails_on_demand() {
    let (fabric, env) = fabric(config().record(Record::Control(256)));
    let end = End::new(&env);
    fabric.fail("mlx5dv_create_mkey", 1, Answer::null(1));
    clear_errno();
    assert!(create_key(&end, MkeyFlags::INDIRECT, 4).0.is_null());
    assert_eq!(errno(), 1);
    fabric.fail("mlx5dv_create_qp", 1, Answer::null(12));
    clear_errno();
    assert!(create_mlx5_qp(&end, &mut extended(&end, end.cq, BINDER_CAP), Some(LISTS)).is_null());
    assert_eq!(errno(), 12);
    let mut binder = Binder::new(&end);
    let (mr, key) = (end.register(ALL), key(&end, 4));
    for symbol in ["ibv_wr_start", "mlx5dv_wr_mr_list", "ibv_wr_complete"] {
        fabric.fail(symbol, 1, Answer::returned(5));
        assert_eq!(binder.post(1, key, ALL, &[listed(mr)]), Err(5), "{symbol}");
        assert_eq!(env.drain(binder.cq).len(), 0);
    }
    fabric.fail("ibv_wr_complete", 1, Answer::minus_one(12));
    assert_eq!(binder.post(1, key, ALL, &[listed(mr)]), Err(-1));
    assert_eq!(binder.bind(key, ALL, &[listed(mr)]).status, OK, "each refusal was rolled back");
    for symbol in ["ibv_qp_to_qp_ex", "mlx5dv_qp_ex_from_ibv_qp_ex"] {
        fabric.fail(symbol, 1, Answer::null(0));
        #[allow(unsafe_code)]
        // SAFETY: the test's own queue pair and tables.
        let builder = unsafe { MrListBuilder::of(&env.symbols, provider(&env), binder.qp) };
        assert_eq!(builder.err(), Some(NoBuilder::NotExtended));
    }
    fabric.fail("mlx5dv_destroy_mkey", 1, Answer::returned(16));
    assert_eq!([destroy_key(&env, key), destroy_key(&env, key), env.dereg_mr(mr)], [16, 0, 0]);
    binder.tear_down();
    end.tear_down();
    let binds: Vec<_> = fabric.record().into_iter().filter(|call| call.symbol == "mlx5dv_wr_mr_list").collect();
    assert_eq!(binds.last().map(|call| call.detail), Some(Detail::Bind { key: key.addr(), entries: 1, access: ALL }));
    assert_eq!(fabric.misuse(), Vec::<String>::new());
}

#[test]
fn a_tag_in_a_keys_low_byte_is_not_supported() {
    let (_fabric, env) = fabric(config());
    let end = End::new(&env);
    let mut binder = Binder::new(&end);
    let (mr, key) = (end.register(ALL), key(&end, 4));
    #[allow(unsafe_code)]
    // SAFETY: the test's own key.
    unsafe {
        (*key).lkey |= 1;
    }
    assert_eq!(binder.post(1, key, ALL, &[listed(mr)]), Err(95));
    assert_eq!([destroy_key(&env, key), env.dereg_mr(mr)], [0; 2]);
    binder.tear_down();
    end.tear_down();
}

#[test]
fn a_queue_pair_for_keys_is_asked_for_as_the_provider_wants_it() {
    let (_fabric, env) = fabric(config());
    let end = End::new(&env);
    let plain = extended(&end, end.cq, BINDER_CAP);
    let ops = |ops| Mlx5QpInitAttr { send_ops_flags: ops, ..LISTS };
    for (refused, (mut attr, mlx5, number)) in [
        (QpInitAttrEx { comp_mask: CreateQpMask::PD, ..plain }, Some(LISTS), 22),
        (QpInitAttrEx { comp_mask: CreateQpMask::SEND_OPS_FLAGS, ..plain }, Some(LISTS), 22),
        (plain, Some(ops(LISTS.send_ops_flags | Mlx5SendOps::RAW_WQE)), 95),
        (QpInitAttrEx { qp_type: QpType::UC, ..plain }, Some(LISTS), 95),
        (extended(&end, end.cq, QpCap { max_inline_data: 829, ..BINDER_CAP }), Some(LISTS), 22),
    ]
    .into_iter()
    .enumerate()
    {
        clear_errno();
        assert!(create_mlx5_qp(&end, &mut attr, mlx5).is_null());
        assert_eq!(errno(), number, "{refused}");
    }
    let mut largest = extended(&end, end.cq, QpCap { max_inline_data: 828, ..BINDER_CAP });
    let qp = create_mlx5_qp(&end, &mut largest, Some(LISTS));
    assert_eq!((qp.is_null(), largest.cap.max_inline_data), (false, 828), "what is granted is written back");
    assert_eq!(env.destroy_qp(qp), 0);
    let mut attr = QpInitAttrEx { send_ops_flags: SendOpsFlags::SEND, ..plain };
    let qp = create_mlx5_qp(&end, &mut attr, None);
    #[allow(unsafe_code)]
    // SAFETY: the test's own queue pair and tables.
    let builder = unsafe { MrListBuilder::of(&env.symbols, provider(&env), qp) };
    assert_eq!(builder.err(), Some(NoBuilder::Missing { member: "wr_start" }));
    #[allow(unsafe_code)]
    // SAFETY: as above.
    let builder = unsafe { MrListBuilder::of(&env.symbols, provider(&env), end.qp) };
    assert_eq!(builder.err(), Some(NoBuilder::NotExtended), "a plain queue pair");
    assert_eq!(env.destroy_qp(qp), 0);
    let mut init = uc(end.cq, super::raw::CAP);
    init.qp_type = QpType::RC;
    let qp = env.create_qp(end.pd, &mut init);
    assert_eq!(env.destroy_qp(qp), 0);
    end.tear_down();
}

#[test]
fn a_binding_before_the_queue_pair_can_send_is_refused() {
    let (_fabric, env) = fabric(config());
    let end = End::new(&env);
    let mut binder = Binder::new(&end);
    let (mr, key) = (end.register(ALL), key(&end, 4));
    assert_eq!(env.move_to(binder.qp, QpState::RESET), 0);
    assert_eq!(binder.post(1, key, ALL, &[listed(mr)]), Err(22));
    binder.connect(&end);
    assert_eq!(binder.bind(key, ALL, &[listed(mr)]).status, OK);
    assert_eq!([destroy_key(&env, key), env.dereg_mr(mr)], [0; 2]);
    binder.tear_down();
    end.tear_down();
}

#[test]
fn a_full_queue_refuses_a_binding() {
    let (fabric, env) = fabric(config().mode(Mode::Stepped));
    let end = End::new(&env);
    let mut binder = Binder::with(&end, QpCap { max_send_wr: 2, ..BINDER_CAP });
    let mr = end.register(ALL);
    let keys: Vec<_> = (0..3).map(|_| key(&end, 1)).collect();
    let answers: Vec<_> = keys.iter().map(|key| binder.post(1, *key, ALL, &[listed(mr)])).collect();
    assert_eq!(answers, [Ok(()), Ok(()), Err(12)]);
    fabric.run_freely();
    assert_eq!(env.poll(binder.cq, 2).len(), 2);
    assert!(keys.iter().all(|key| destroy_key(&env, *key) == 0));
    assert_eq!(env.dereg_mr(mr), 0);
    binder.tear_down();
    end.tear_down();
}

#[test]
fn runs_of_builders_are_paired_and_hold_the_queue() {
    let (fabric, env) = fabric(config());
    let end = End::new(&env);
    let binder = Binder::new(&end);
    let at = |offset: Option<usize>| binder.qp.wrapping_byte_add(offset.expect("known here"));
    #[allow(unsafe_code)]
    // SAFETY: the fabric's own entry points, found where C finds them.
    let [start, abort] =
        [qp_ex::WR_START, qp_ex::WR_ABORT].map(|offset| unsafe { at(offset).cast::<extern "C" fn(*mut Qp)>().read() });
    #[allow(unsafe_code)]
    // SAFETY: as above.
    let complete = unsafe { at(qp_ex::WR_COMPLETE).cast::<extern "C" fn(*mut Qp) -> i32>().read() };
    assert_eq!(complete(binder.qp), 22);
    abort(binder.qp);
    assert_eq!(fabric.misuse().len(), 2, "neither was started");
    start(binder.qp);
    assert_eq!(post_send(binder.qp, &mut [send(1, end.sge(0, 8))]).0, 22, "a provider would wait for its own lock");
    start(binder.qp);
    abort(binder.qp);
    assert_eq!(fabric.misuse().len(), 4, "{:?}", fabric.misuse());
    start(binder.qp);
    assert_eq!(complete(binder.qp), 0, "an empty run posts nothing");
    assert_eq!(fabric.misuse().len(), 4);
    binder.tear_down();
    end.tear_down();
}
