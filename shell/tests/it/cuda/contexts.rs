//! The context that owns an address, current for a while: whose it is, and what is left afterwards.

use bareverbs_core::cuda::CuResult;
use bareverbs_shell::cuda::CudaError;
use bareverbs_shell::objects::report::DropFailure;
use bareverbs_shell::soft::cuda::CudaConfig;

use super::{MIB, World, gpus, world};
use crate::drop_log;

/// The contexts that are current while memory at an address is reached, and (retained, released) of device 1 after it.
fn during(world: &World, address: u64) -> (usize, (u64, u64)) {
    let guard = world.cuda.make_current(address).expect("a context");
    let current = world.raw.current().expect("it can be asked");
    drop(guard);
    (current, world.soft.retained_and_released(1))
}

#[test]
fn d1_a_thread_without_a_context_has_one_for_a_while() {
    let world = world(CudaConfig::default());
    let address = world.soft.allocate(0, 4 * MIB);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(world.raw.range(address).err(), Some(CuResult::INVALID_CONTEXT));
            let guard = world.cuda.make_current(address).expect("a context");
            assert_eq!(world.raw.current(), Ok(world.soft.primary_context(0)));
            assert!(world.raw.range(address).is_ok());
            drop(guard);
            assert_eq!(world.kept(), (0, (0, 0)), "its own context needs no retain");
        });
    });
}

#[test]
fn d1_what_cannot_be_made_current_is_released_and_the_former_one_stands() {
    let world = world(CudaConfig::default());
    let (growing, plain) = (world.segment(0, &[2]), world.soft.allocate(0, 64));
    let former = world.soft.create_context(0);
    world.raw.set_current(former).expect("made");
    world.soft.fail("cuCtxSetCurrent", 1, CuResult::INVALID_CONTEXT);
    let error = world.cuda.make_current(growing).expect_err("refused");
    assert_eq!(error.result(), Some(CuResult::INVALID_CONTEXT));
    assert!(error.to_string().contains("cuCtxSetCurrent answered 201 (CUDA_ERROR_INVALID_CONTEXT)"), "{error}");
    assert_eq!(world.kept(), (former, (1, 1)));
    world.soft.fail("cuCtxSetCurrent", 1, CuResult::INVALID_CONTEXT);
    assert!(world.cuda.make_current(plain).is_err());
    assert_eq!(world.kept(), (former, (1, 1)), "a context of its own was not retained");
}

#[test]
fn d2_memory_of_another_context_is_reached_in_that_one() {
    let world = world(gpus(2));
    let other = world.soft.create_context(1);
    let address = world.soft.allocate_in(other, 4096);
    assert_eq!(during(&world, address), (other, (0, 0)), "the primary one is never retained");
    assert_eq!(world.raw.current(), Ok(0));
}

#[test]
fn d2_memory_without_a_context_is_reached_in_its_devices_primary_one() {
    let world = world(gpus(2));
    let former = world.soft.create_context(0);
    world.raw.set_current(former).expect("made");
    let primary = world.soft.primary_context(1);
    for (turn, address) in [world.soft.allocate_from_pool(1, 4096), world.segment(1, &[2])].into_iter().enumerate() {
        let times = turn as u64 + 1;
        assert_eq!(during(&world, address), (primary, (times, times)));
    }
    // The driver does not tell the context, and tells the device.
    let plain = world.soft.allocate(1, 4096);
    world.soft.fail("cuPointerGetAttribute", 1, CuResult::INVALID_VALUE);
    assert_eq!(during(&world, plain), (primary, (3, 3)));
    assert_eq!(world.raw.current(), Ok(former));
    assert_eq!(world.soft.retained_and_released(0), (0, 0));
}

#[test]
fn d2_an_unknown_device_is_an_error_and_nothing_is_retained() {
    let world = world(gpus(2));
    let growing = world.segment(1, &[2]);
    let former = world.soft.create_context(0);
    world.raw.set_current(former).expect("made");
    let before = world.soft.record().len();
    world.soft.fail("cuPointerGetAttribute", 2, CuResult::INVALID_VALUE);
    let error = world.cuda.make_current(growing).expect_err("no device is told");
    assert_eq!(error.result(), Some(CuResult::INVALID_VALUE));
    assert_eq!(world.calls(before), ["cuPointerGetAttribute"; 2], "nothing but questions");
    // A device that the process does not see.
    world.soft.fail("cuDevicePrimaryCtxRetain", 1, CuResult::INVALID_DEVICE);
    let error = world.cuda.make_current(growing).expect_err("no such device");
    assert!(error.to_string().contains("device 1") && error.to_string().contains("CUDA_VISIBLE_DEVICES"), "{error}");
    let host = world.cuda.make_current(0x1234).expect_err("not the driver's");
    assert!(host.to_string().contains("was freed"), "{host}");
    assert_eq!((world.raw.current(), world.soft.retained_and_released(1)), (Ok(former), (0, 0)));
}

#[test]
fn a_context_that_is_current_already_is_left_alone() {
    let world = world(CudaConfig::default());
    let address = world.soft.allocate(0, 64);
    world.raw.retain_primary(0).and_then(|context| world.raw.set_current(context)).expect("a context");
    let before = world.soft.record().len();
    drop(world.cuda.make_current(address).expect("a context"));
    assert_eq!(world.calls(before), ["cuPointerGetAttribute", "cuCtxGetCurrent"]);
    let growing = world.segment(0, &[2]);
    let before = world.soft.record().len();
    drop(world.cuda.make_current(growing).expect("a context"));
    assert!(!world.calls(before).contains(&"cuCtxSetCurrent"));
    assert_eq!(world.soft.retained_and_released(0), (2, 1), "the test's own is left");
}

#[test]
fn guards_within_each_other_restore_step_by_step() {
    let world = world(gpus(2));
    let other = world.soft.create_context(0);
    let (one, two) = (world.soft.allocate_in(other, 64), world.segment(1, &[2]));
    let outer = world.cuda.make_current(one).expect("a context");
    let inner = world.cuda.make_current(two).expect("a context");
    assert_eq!(world.raw.current(), Ok(world.soft.primary_context(1)));
    drop(inner);
    assert_eq!(world.raw.current(), Ok(other));
    drop(outer);
    assert_eq!(world.raw.current(), Ok(0));
    assert_eq!(world.soft.retained_and_released(1), (1, 1));
}

#[test]
fn a_former_context_that_cannot_be_restored_is_reported_and_what_was_retained_is_released() {
    drop_log::keep();
    let world = world(CudaConfig::default());
    let former = world.soft.create_context(0);
    world.raw.set_current(former).expect("made");
    // An address that no other test's report can be of.
    let address = world.segment(0, &[2]) + 0x1357;
    let guard = world.cuda.make_current(address).expect("a context");
    world.soft.destroy_context(former);
    drop(guard);
    assert_eq!(world.soft.retained_and_released(0), (1, 1));
    let [DropFailure::Context { reason, .. }] = &drop_log::take_contexts(address)[..] else { panic!("one report") };
    assert!(reason.contains("cuCtxSetCurrent answered 201"), "{reason}");
    // Both, and each is told.
    world.raw.set_current(0).expect("none");
    let guard = world.cuda.make_current(address).expect("a context");
    world.soft.fail("cuCtxSetCurrent", 1, CuResult::UNKNOWN);
    world.soft.fail("cuDevicePrimaryCtxRelease_v2", 1, CuResult::UNKNOWN);
    drop(guard);
    let reasons: Vec<_> = drop_log::take_contexts(address).iter().map(ToString::to_string).collect();
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    assert!(reasons[0].contains("cuCtxSetCurrent answered 999"), "{reasons:?}");
    assert!(reasons[1].contains("cuDevicePrimaryCtxRelease_v2 answered 999"), "{reasons:?}");
    world.raw.release_primary(0).expect("it was not");
    // While a panic is on its way.
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _guard = world.cuda.make_current(address).expect("a context");
        world.soft.shut_down();
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(unwound.is_err());
    let reports = drop_log::take_contexts(address);
    assert_eq!(reports.len(), 1, "primary was current, so only the release fails: {reports:?}");
    assert!(reports[0].to_string().contains("cuDevicePrimaryCtxRelease_v2 answered 4"), "{}", reports[0]);
}

#[test]
fn what_could_not_be_released_is_not_retained() {
    let world = world(CudaConfig::default().without("cuDevicePrimaryCtxRelease_v2"));
    let address = world.segment(0, &[2]);
    let error = world.cuda.make_current(address).expect_err("it could not be given back");
    assert!(matches!(error, CudaError::Unsupported { symbol: "cuDevicePrimaryCtxRelease_v2", .. }), "{error}");
    assert_eq!(world.kept(), (0, (0, 0)));
}
