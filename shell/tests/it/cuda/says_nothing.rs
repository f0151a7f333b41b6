//! A driver whose calls succeed and write nothing, or write what cannot be: what was in an output before must not count.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_ulonglong, c_void};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bareverbs_core::cuda::{CuDevicePtr, CuResult, MemoryType, PointerAttribute, RangeHandleType};
use bareverbs_shell::cuda::{CudaDriver, CudaError, Edge};
use bareverbs_shell::memory::Location;
use bareverbs_shell::soft::cuda::CudaConfig;
use bareverbs_shell::symbols::{CudaSymbols, CudaTable};

use super::{MIB, World, range, world};

unsafe extern "C" fn no_attribute(_: *mut c_void, _: PointerAttribute, _: CuDevicePtr) -> CuResult {
    CuResult::SUCCESS
}

/// Writes 4 bytes: a type that nobody knows.
unsafe extern "C" fn another_type(to: *mut c_void, attribute: PointerAttribute, _: CuDevicePtr) -> CuResult {
    if attribute == PointerAttribute::MEMORY_TYPE {
        // SAFETY: the caller's output is as wide as the attribute.
        unsafe { to.cast::<u32>().write(4) };
    }
    CuResult::SUCCESS
}

/// Device memory of the device -2, which the header calls invalid.
unsafe extern "C" fn no_device(to: *mut c_void, attribute: PointerAttribute, _: CuDevicePtr) -> CuResult {
    let value = match attribute {
        PointerAttribute::MEMORY_TYPE => MemoryType::DEVICE.0.cast_signed(),
        PointerAttribute::DEVICE_ORDINAL => -2,
        _ => return CuResult::SUCCESS,
    };
    // SAFETY: the caller's output is as wide as the attribute.
    unsafe { to.cast::<i32>().write(value) };
    CuResult::SUCCESS
}

/// Managed memory that is the host's at the moment.
unsafe extern "C" fn managed_on_host(to: *mut c_void, attribute: PointerAttribute, _: CuDevicePtr) -> CuResult {
    let value = u32::from(attribute == PointerAttribute::MEMORY_TYPE || attribute == PointerAttribute::IS_MANAGED);
    // SAFETY: the caller's output is as wide as the attribute, 4 bytes at least.
    unsafe { to.cast::<u32>().write(value) };
    CuResult::SUCCESS
}

unsafe extern "C" fn no_range(_: *mut CuDevicePtr, _: *mut usize, _: CuDevicePtr) -> CuResult {
    CuResult::SUCCESS
}

/// Everything is one mapping that ends above the address space.
unsafe extern "C" fn too_long(base: *mut CuDevicePtr, size: *mut usize, address: CuDevicePtr) -> CuResult {
    // SAFETY: the caller's output.
    unsafe { base.write(address - 1) };
    // SAFETY: the caller's output.
    unsafe { size.write(usize::MAX) };
    CuResult::SUCCESS
}

/// Every address is the last of a mapping of 4 MiB: mappings that overlap.
unsafe extern "C" fn overlapping(base: *mut CuDevicePtr, size: *mut usize, address: CuDevicePtr) -> CuResult {
    let granule = 2 * MIB;
    // SAFETY: the caller's output.
    unsafe { base.write(address / granule * granule - granule) };
    // SAFETY: the caller's output.
    unsafe { size.write(2 * granule as usize) };
    CuResult::SUCCESS
}

/// All addresses are growing memory of device 0.
unsafe extern "C" fn growing_everywhere(to: *mut c_void, attribute: PointerAttribute, _: CuDevicePtr) -> CuResult {
    let wide =
        matches!(attribute, PointerAttribute::CONTEXT | PointerAttribute::MEMPOOL_HANDLE | PointerAttribute::BUFFER_ID);
    if wide {
        // SAFETY: the caller's output is as wide as the attribute.
        unsafe { to.cast::<u64>().write(u64::from(attribute == PointerAttribute::BUFFER_ID)) };
        return CuResult::SUCCESS;
    }
    let value = if attribute == PointerAttribute::MEMORY_TYPE { MemoryType::DEVICE.0 } else { 0 };
    // SAFETY: the caller's output is as wide as the attribute, 4 bytes at least.
    unsafe { to.cast::<u32>().write(value) };
    CuResult::SUCCESS
}

/// The lower half of all addresses is one mapping, and the upper half is another.
unsafe extern "C" fn halves(base: *mut CuDevicePtr, size: *mut usize, address: CuDevicePtr) -> CuResult {
    // SAFETY: the caller's output.
    unsafe { base.write(address & HALF) };
    // SAFETY: the caller's output.
    unsafe { size.write(HALF as usize) };
    CuResult::SUCCESS
}

const HALF: u64 = 1 << 63;

/// Where a mapping starts of which `odd` says that it is 15 bytes long, and what it asks about all others.
static ODD: AtomicU64 = AtomicU64::new(0);
static REAL: Mutex<Option<Arc<CudaSymbols>>> = Mutex::new(None);

unsafe extern "C" fn odd(base: *mut CuDevicePtr, size: *mut usize, address: CuDevicePtr) -> CuResult {
    let real = REAL.lock().expect("no test panics with it").clone().and_then(|table| table.mem_get_address_range);
    // SAFETY: the caller's outputs, to the stand-in's function.
    let answer = unsafe { real.expect("it was set")(base, size, address) };
    // SAFETY: the caller's output.
    if answer == CuResult::SUCCESS && unsafe { base.read() } == ODD.load(Relaxed) {
        // SAFETY: the caller's output.
        unsafe { size.write(15) };
    }
    answer
}

unsafe extern "C" fn no_file(_: *mut c_void, _: CuDevicePtr, _: usize, _: RangeHandleType, _: c_ulonglong) -> CuResult {
    CuResult::SUCCESS
}

unsafe extern "C" fn bad_file(
    to: *mut c_void,
    _: CuDevicePtr,
    _: usize,
    _: RangeHandleType,
    _: c_ulonglong,
) -> CuResult {
    // SAFETY: the caller's output, an `int`.
    unsafe { to.cast::<c_int>().write(-7) };
    CuResult::SUCCESS
}

fn with(world: &World, change: impl FnOnce(&mut CudaTable)) -> CudaDriver {
    let mut table = world.soft.symbols().table().clone();
    change(&mut table);
    // SAFETY: 1: what was put in takes the same arguments, keeps to the outputs it is given, and says what it should not: that
    // is the test. 2: functions of this program.
    CudaDriver::with_symbols(Arc::new(unsafe { CudaSymbols::new(table) }))
}

#[test]
fn attributes_that_were_not_written_are_zero_and_zero_is_the_hosts() {
    let world = world(CudaConfig::default());
    let address = world.soft.allocate(0, 64);
    let driver = with(&world, |table| table.pointer_get_attribute = Some(no_attribute));
    for _ in 0..3 {
        assert_eq!(driver.location(address), Ok(Location::Host { numa: None }));
        assert_eq!(driver.buffer_id(address), Ok(None));
    }
}

#[test]
fn a_kind_of_memory_or_a_device_that_cannot_be_is_an_error_of_its_own() {
    let world = world(CudaConfig::default());
    let driver = with(&world, |table| table.pointer_get_attribute = Some(another_type));
    assert_eq!(driver.location(64), Err(CudaError::MemoryType { address: 64, got: MemoryType(4) }));
    let driver = with(&world, |table| table.pointer_get_attribute = Some(no_device));
    let refused = CudaError::Ordinal { address: 64, got: -2 };
    assert_eq!(driver.location(64), Err(refused.clone()));
    assert_eq!(driver.make_current(64).map(drop), Err(refused.clone()));
    assert_eq!(driver.extent(64), Err(refused));
    assert_eq!(world.kept(), (0, (0, 0)));
}

#[test]
fn d4_managed_memory_is_managed_whichever_side_touched_it_last() {
    let world = world(CudaConfig::default());
    let driver = with(&world, |table| table.pointer_get_attribute = Some(managed_on_host));
    assert_eq!(driver.location(0x7f40_0000_0000), Ok(Location::Managed));
}

#[test]
fn a_mapping_that_cannot_be_is_an_error_and_a_walk_ends() {
    let world = world(CudaConfig::default());
    let base = world.segment(0, &[2, 2, 2]);
    let address = base + 2 * MIB + 5;
    let driver = with(&world, |table| table.mem_get_address_range = Some(no_range));
    assert_eq!(driver.allocation(address), Err(CudaError::Mapping { address, base: 0, len_bytes: 0 }));
    let driver = with(&world, |table| table.mem_get_address_range = Some(too_long));
    let refused = CudaError::Mapping { address, base: address - 1, len_bytes: usize::MAX as u64 };
    assert_eq!(driver.extent(address), Err(refused.clone()));
    assert_eq!(driver.export(range(address, 5)).map(drop), Err(refused));
    let driver = with(&world, |table| table.mem_get_address_range = Some(overlapping));
    let misfit = |answer: Result<(), CudaError>| {
        assert!(matches!(answer, Err(CudaError::Mapping { .. })), "{answer:?}");
    };
    misfit(driver.extent(address).map(drop));
    misfit(driver.mappings(range(address, 4 * MIB), |_| {}));
    misfit(driver.export(range(address, 3 * MIB)).map(drop));
    let (current, (retained, released)) = world.kept();
    assert_eq!((current, retained), (0, released));
}

#[test]
fn mappings_that_make_up_all_addresses_are_an_error_and_no_range_of_none() {
    let world = world(CudaConfig::default());
    let driver = with(&world, |table| {
        table.mem_get_address_range = Some(halves);
        table.pointer_get_attribute = Some(growing_everywhere);
    });
    let too_many = |at| CudaError::Mapping { address: at, base: at, len_bytes: HALF };
    assert_eq!(driver.extent(5), Err(too_many(HALF)), "upwards");
    assert_eq!(driver.extent(u64::MAX), Err(too_many(0)), "downwards");
    assert_eq!(driver.export(range(HALF - 1, 2)).map(drop), Err(too_many(HALF)));
    let (current, (retained, released)) = world.kept();
    assert_eq!((current, retained), (0, released));
}

#[test]
fn e4_a_file_that_was_not_made_is_neither_handed_out_nor_closed() {
    let world = world(CudaConfig::default());
    let whole = range(world.soft.allocate(0, 2 * MIB), 2 * MIB);
    let driver = with(&world, |table| table.mem_get_handle_for_address_range = Some(no_file));
    assert_eq!(driver.export(whole).map(drop), Err(CudaError::NoFile { range: whole, got: -1 }));
    let driver = with(&world, |table| table.mem_get_handle_for_address_range = Some(bad_file));
    assert_eq!(driver.export(whole).map(drop), Err(CudaError::NoFile { range: whole, got: -7 }));
}

#[test]
fn a_mapping_that_is_no_multiple_of_2_mib_is_no_part_of_a_segment() {
    let world = world(CudaConfig::default());
    let base = world.segment(0, &[2, 2, 2, 2]);
    *REAL.lock().expect("no test panics with it") = Some(world.soft.symbols());
    ODD.store(base + 6 * MIB, Relaxed);
    let driver = with(&world, |table| table.mem_get_address_range = Some(odd));
    let extent = driver.extent(base + 3 * MIB).expect("mapped");
    assert_eq!((extent.range, extent.above), (range(base, 6 * MIB), Edge::OddMapping));
    let odd = driver.extent(base + 6 * MIB + 14).expect("mapped");
    assert_eq!((odd.range, odd.expandable), (range(base + 6 * MIB, 15), false));
    *REAL.lock().expect("no test panics with it") = None;
}
