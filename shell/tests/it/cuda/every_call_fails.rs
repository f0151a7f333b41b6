//! Every call that is made, failing in turn: a typed error that names it or the same answer by another way; never anything
//! retained, never another context current, never a file left open.

use bareverbs_core::cuda::CuResult;
use bareverbs_core::range::AddressRange;
use bareverbs_shell::cuda::{CudaDriver, CudaError};
use bareverbs_shell::memory::{DriverError, MemoryDriver};
use bareverbs_shell::objects::report::DropFailure;

use super::{MIB, World, gpus, range, world};
use crate::drop_log;

/// What an operation answers, in words; or its error in words.
type Said = Result<String, String>;
type Operation = (&'static str, fn(&CudaDriver, AddressRange) -> Said);

fn said<T: std::fmt::Debug>(answer: Result<T, CudaError>) -> Said {
    answer.map(|value| format!("{value:?}")).map_err(|error| error.to_string())
}

fn copied<T: std::fmt::Debug>(answer: Result<T, DriverError>) -> Said {
    answer.map(|value| format!("{value:?}")).map_err(|error| error.to_string())
}

const OPERATIONS: [Operation; 10] = [
    ("location", |cuda, range| said(cuda.location(range.base()))),
    ("buffer_id", |cuda, range| said(cuda.buffer_id(range.base()))),
    ("allocation", |cuda, range| said(cuda.allocation(range.base()))),
    ("extent", |cuda, range| said(cuda.extent(range.base()))),
    ("mappings", |cuda, range| {
        let mut all = Vec::new();
        said(cuda.mappings(range, |mapping| all.push(mapping)).map(|()| all))
    }),
    ("export", |cuda, range| said(cuda.export(range).map(|export| (export.range(), export.offset_bytes())))),
    ("make_current", |cuda, range| said(cuda.make_current(range.base()).map(drop))),
    ("place", |cuda, range| copied(cuda.place(range))),
    ("copy_out", |cuda, range| {
        let mut bytes = [0; 16];
        #[allow(unsafe_code)]
        // SAFETY: 1: the memory is mapped, and the test's alone.
        let answer = unsafe { cuda.copy_out(range.base() as usize, &mut bytes) };
        copied(answer.map(|()| bytes))
    }),
    ("copy_in", |cuda, range| {
        #[allow(unsafe_code)]
        // SAFETY: 1: the memory is mapped, and the test's alone.
        let answer = unsafe { cuda.copy_in(range.base() as usize, &[3; 16]) };
        copied(answer)
    }),
];

/// Ranges of device memory of each kind, and one that touches two mappings.
fn ranges(world: &World) -> Vec<AddressRange> {
    let other = world.soft.create_context(1);
    let growing = world.segment(0, &[2, 4, 2]);
    // Addresses that no other test's reports are of.
    vec![
        range(world.soft.allocate(0, 2 * MIB) + 0x2468, 4096),
        range(world.soft.allocate_in(other, 2 * MIB) + 0x2468, 4096),
        range(world.soft.allocate_from_pool(1, 2 * MIB) + 0x2468, 4096),
        range(growing + 2 * MIB - 0x468, 4096),
    ]
}

/// (Retained, released) of each device.
fn counts(world: &World) -> [(u64, u64); 2] {
    [0, 1].map(|ordinal| world.soft.retained_and_released(ordinal))
}

#[test]
fn each_failing_call_is_named_or_made_up_for_and_leaves_nothing_behind() {
    drop_log::keep();
    let (mut failures, mut made_up_for, mut reported) = (0, 0, 0);
    for answer in [CuResult::UNKNOWN, CuResult::DEINITIALIZED, CuResult(4711)] {
        let world = world(gpus(2));
        let former = world.soft.create_context(0);
        world.raw.set_current(former).expect("made");
        for asked in ranges(&world) {
            for (name, operation) in OPERATIONS {
                let before = world.soft.record().len();
                let right = operation(&world.cuda, asked).unwrap_or_else(|error| panic!("{name}: {error}"));
                for (at, symbol) in world.calls(before).into_iter().enumerate() {
                    let nth = world.calls(before)[..=at].iter().filter(|call| **call == symbol).count();
                    world.soft.fail(symbol, nth as u64, answer);
                    let got = operation(&world.cuda, asked);
                    let reports = drop_log::take_contexts(asked.base());
                    let what = format!("{name} of {asked} with {symbol} {nth}: {got:?} {reports:?}");
                    failures += 1;
                    match (got, &reports[..]) {
                        (Err(error), []) => {
                            assert!(error.contains(symbol) && error.contains(&answer.0.to_string()), "{what}");
                        }
                        // Which context owns the memory was not told; its device's will do.
                        (Ok(value), []) if symbol == "cuPointerGetAttribute" => {
                            assert_eq!(value, right, "{what}");
                            made_up_for += 1;
                        }
                        (Ok(value), [DropFailure::Context { reason, .. }]) => {
                            assert!(value == right && reason.contains(symbol), "{what}");
                            reported += 1;
                            undo(&world, symbol, former);
                        }
                        _ => panic!("{what}"),
                    }
                    assert_eq!(world.raw.current(), Ok(former), "{what}");
                    let missing = counts(&world).map(|(retained, released)| retained - released);
                    assert_eq!(missing, [0, 0], "{what}");
                    world.soft.clear_plan();
                }
            }
        }
    }
    assert!(failures > 300 && made_up_for > 30 && reported > 30, "{failures} {made_up_for} {reported}");
}

/// Undoes by hand what a drop could not undo.
fn undo(world: &World, symbol: &str, former: usize) {
    world.soft.clear_plan();
    match symbol {
        "cuCtxSetCurrent" => world.raw.set_current(former).expect("it lives"),
        "cuDevicePrimaryCtxRelease_v2" => {
            let held = (0..2).find(|ordinal| {
                let (retained, released) = world.soft.retained_and_released(*ordinal);
                retained != released
            });
            world.raw.release_primary(held.expect("one is held")).expect("it is held");
        }
        other => panic!("{other} undoes nothing"),
    }
}

#[test]
fn each_missing_entry_point_is_unsupported_by_name_or_not_needed() {
    for symbol in bareverbs_shell::symbols::cuda::OPTIONAL {
        let config = gpus(2).without(symbol);
        let world = world(config);
        for asked in ranges(&world) {
            for (name, operation) in OPERATIONS {
                if let Err(error) = operation(&world.cuda, asked) {
                    assert!(error.contains(symbol) && error.contains("newer driver"), "{name}: {error}");
                }
            }
        }
        if *symbol != "cuCtxGetCurrent" {
            assert_eq!(world.raw.current(), Ok(0));
        }
        for (retained, released) in counts(&world) {
            assert_eq!(retained, released, "{symbol}");
        }
    }
}
