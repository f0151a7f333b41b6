//! Where memory is: only what the driver calls a device's, with success and not managed, is a device's.

use bareverbs_core::cuda::CuResult;
use bareverbs_shell::cuda::{CudaDriver, CudaError, Subject, is_device_ptr};
use bareverbs_shell::memory::{Location, MemoryDriver};
use bareverbs_shell::soft::cuda::{CudaConfig, HostAnswer};
use bareverbs_shell::symbols::cuda_system::CudaAbsent;

use super::{MIB, gpus, range, world};

const HOST: Location = Location::Host { numa: None };

fn device(ordinal: u32) -> Location {
    Location::Device { ordinal: Some(ordinal) }
}

#[test]
fn each_kind_of_memory_is_where_it_is() {
    let world = world(gpus(2));
    let local = 0_u8;
    let other = world.soft.create_context(1);
    for (address, location) in [
        (world.soft.allocate(0, 2 * MIB), device(0)),
        (world.soft.allocate_in(other, 64), device(1)),
        (world.segment(1, &[20, 20]) + 21 * MIB, device(1)),
        (world.soft.allocate_from_pool(1, 4096), device(1)),
        (world.soft.allocate_pinned(0, 4096), HOST),
        (world.soft.allocate_managed(1, 4096), Location::Managed),
        ((&raw const local).addr() as u64, HOST),
        (0, HOST),
        (u64::MAX, HOST),
    ] {
        assert_eq!(world.cuda.location(address), Ok(location), "{address:#x}");
        assert_eq!(world.cuda.is_device_ptr(address), matches!(location, Location::Device { .. }));
    }
    assert_eq!(world.raw.current(), Ok(0), "no context is needed");
}

#[test]
fn pageable_memory_is_the_hosts_in_both_ways_of_saying_so() {
    for answer in [HostAnswer::InvalidValue, HostAnswer::Zero] {
        let world = world(CudaConfig::default().host_answer(answer));
        assert_eq!(world.cuda.location(0x1234), Ok(HOST), "{answer:?}");
        assert_eq!(world.cuda.buffer_id(0x1234), Ok(None), "{answer:?}");
        assert_eq!(world.cuda.allocation(0x1234), Err(CudaError::Unmapped { address: 0x1234 }), "{answer:?}");
        let (retained, released) = world.soft.retained_and_released(0);
        assert_eq!(retained, released);
    }
}

#[test]
fn freed_memory_is_not_a_devices() {
    let world = world(CudaConfig::default());
    let address = world.soft.allocate(0, 2 * MIB);
    assert!(world.cuda.is_device_ptr(address) && world.cuda.buffer_id(address).is_ok_and(|id| id.is_some()));
    world.soft.free(address);
    assert!(!world.cuda.is_device_ptr(address));
    assert_eq!((world.cuda.location(address), world.cuda.buffer_id(address)), (Ok(HOST), Ok(None)));
    assert_eq!(world.cuda.extent(address), Err(CudaError::NotDevice { address }));
}

#[test]
fn before_initialisation_all_memory_is_the_hosts_and_that_is_not_remembered() {
    let world = world(CudaConfig::default().not_initialised());
    let address = world.soft.allocate(0, 2 * MIB);
    assert_eq!(world.cuda.location(address), Ok(HOST));
    assert!(!world.cuda.is_device_ptr(address));
    assert_eq!(world.cuda.init(), Ok(()));
    assert_eq!(world.cuda.location(address), Ok(device(0)));
}

#[test]
fn any_other_failure_is_an_error_and_never_the_hosts() {
    let world = world(CudaConfig::default());
    let address = world.soft.allocate(0, 2 * MIB);
    let others = [CuResult::OUT_OF_MEMORY, CuResult::DEINITIALIZED, CuResult::INVALID_CONTEXT, CuResult(12345)];
    for answer in others.into_iter().chain([CuResult::NOT_FOUND, CuResult::UNKNOWN]) {
        // The type, whether it is managed, the device.
        for nth in 1..=3 {
            world.soft.fail("cuPointerGetAttribute", nth, answer);
            let error = world.cuda.location(address).expect_err("it failed");
            assert_eq!(error.result(), Some(answer));
            let text = error.to_string();
            let named = [answer.0.to_string(), format!("{address:#x}"), "cuPointerGetAttribute".into()];
            assert!(named.iter().all(|part| text.contains(part)), "{text}");
            world.soft.fail("cuPointerGetAttribute", nth, answer);
            assert!(!world.cuda.is_device_ptr(address));
        }
    }
    // What was known a moment ago, and is not now, is no host memory either.
    for nth in 2..=3 {
        world.soft.fail("cuPointerGetAttribute", nth, CuResult::INVALID_VALUE);
        assert_eq!(world.cuda.location(address).err().and_then(|error| error.result()), Some(CuResult::INVALID_VALUE));
    }
    world.soft.shut_down();
    let Err(CudaError::Call(error)) = world.cuda.location(address) else { panic!("the driver is gone") };
    assert_eq!((error.result, &*error.name), (CuResult::DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED"));
    assert!(matches!(error.subject, Subject::Attribute(_, at) if at == address), "{error:?}");
}

#[test]
fn d4_managed_memory_is_no_device_memory_and_is_refused_by_name() {
    let world = world(CudaConfig::default());
    let address = world.soft.allocate_managed(0, 2 * MIB);
    assert!(!world.cuda.is_device_ptr(address));
    let refused = CudaError::Managed { address };
    assert_eq!(world.cuda.export(range(address, 2 * MIB)).map(drop), Err(refused.clone()));
    assert_eq!(world.cuda.extent(address), Err(refused.clone()));
    assert_eq!(world.cuda.device_of(address), Err(refused.clone()));
    assert!(refused.to_string().contains("managed memory"), "{refused}");
    assert!(!world.calls(0).contains(&"cuMemGetHandleForAddressRange"), "no export was tried");
}

#[test]
fn without_the_entry_point_a_query_is_unsupported_by_name() {
    let world = world(CudaConfig::default().without("cuPointerGetAttribute"));
    let address = world.soft.allocate(0, 64);
    let error = world.cuda.location(address).expect_err("it cannot be asked");
    assert!(matches!(error, CudaError::Unsupported { symbol: "cuPointerGetAttribute", .. }), "{error}");
    assert!(error.to_string().contains("CUDA in software"), "{error}");
    assert!(!world.cuda.is_device_ptr(address));
}

#[test]
fn without_a_driver_nothing_is_a_devices() {
    // Where tests run, nobody has loaded CUDA's driver.
    match CudaDriver::adopt() {
        Ok(driver) => eprintln!("skipped: this process has {driver:?}"),
        Err(error) => {
            assert!(matches!(error, CudaAbsent::NotLoaded { .. }), "{error}");
            assert!(!is_device_ptr(0x10_0000_0000) && !is_device_ptr(0));
        }
    }
}

#[test]
fn memory_is_placed_by_its_first_and_its_last_byte() {
    let world = world(gpus(2));
    let on_device = world.soft.allocate(1, 2 * MIB);
    let placement = world.cuda.place(range(on_device, 2 * MIB)).expect("it can be told");
    assert_eq!((placement.location, placement.host_bytes_per_s), (device(1), None));
    assert!(placement.device_bytes_per_s.is_some());
    let managed = world.cuda.place(range(world.soft.allocate_managed(0, 64), 64)).expect("it can be told");
    assert!(managed.host_bytes_per_s.is_some() && managed.device_bytes_per_s.is_some());
    let error = world.cuda.place(range(on_device, 2 * MIB + 1)).expect_err("the last byte is not there");
    assert!(error.text.contains("memory of device 1") && error.text.contains("host memory"), "{error}");
}
