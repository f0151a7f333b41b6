//! What is mapped side by side, case by case; the model has the rest.

use bareverbs_core::cuda::CuResult;
use bareverbs_core::segments::Ordinal;
use bareverbs_shell::cuda::{CudaError, Edge, Extent};
use bareverbs_shell::soft::cuda::CudaConfig;

use super::{MIB, World, gpus, range, world};

fn found(extent: Extent) -> (u64, u64, bool, [Edge; 2]) {
    (extent.range.base(), extent.range.len_bytes(), extent.expandable, [extent.below, extent.above])
}

fn ids(world: &World, base: u64, len_bytes: u64) -> Result<Vec<(u64, u64)>, CudaError> {
    let mut all = Vec::new();
    world.cuda.mappings(range(base, len_bytes), |mapping| all.push((mapping.range.base(), mapping.buffer_id)))?;
    Ok(all)
}

#[test]
fn a_growing_segment_is_found_from_any_address_in_it() {
    let world = world(CudaConfig::default());
    let base = world.segment(0, &[20; 10]);
    for offset in [0, 1, 20 * MIB - 1, 20 * MIB, 117 * MIB + 5, 200 * MIB - 1] {
        let extent = world.cuda.extent(base + offset).expect("mapped");
        assert_eq!(found(extent), (base, 200 * MIB, true, [Edge::Unmapped; 2]), "{offset}");
        assert_eq!(extent.ordinal, Ordinal(0));
        let mapping = world.cuda.allocation(base + offset).expect("mapped");
        assert_eq!((mapping.base(), mapping.len_bytes()), (base + offset / (20 * MIB) * 20 * MIB, 20 * MIB));
    }
    assert_eq!(world.cuda.extent(base + 200 * MIB), Err(CudaError::NotDevice { address: base + 200 * MIB }));
}

#[test]
fn a_hole_parts_a_segment_and_growth_joins_it() {
    let world = world(CudaConfig::default());
    let base = world.segment(0, &[2, 20, 4]);
    world.soft.unmap(base + 2 * MIB);
    assert_eq!(world.cuda.extent(base).map(found), Ok((base, 2 * MIB, true, [Edge::Unmapped; 2])));
    let above = world.cuda.extent(base + 23 * MIB).map(found);
    assert_eq!(above, Ok((base + 22 * MIB, 4 * MIB, true, [Edge::Unmapped; 2])));
    world.soft.map(base + 2 * MIB, 20 * MIB);
    assert_eq!(world.cuda.extent(base).map(|extent| extent.range), Ok(range(base, 26 * MIB)));
}

#[test]
fn an_allocation_is_its_own_extent_whatever_is_beside_it() {
    let world = world(CudaConfig::default());
    let base = world.soft.allocate(0, 2 * MIB);
    world.soft.allocate_at(0, base + 2 * MIB, 2 * MIB);
    world.soft.allocate_at(0, base + 4 * MIB, 15);
    let pool = [world.soft.allocate_from_pool(0, 2 * MIB), world.soft.allocate_from_pool(0, 2 * MIB)];
    assert_eq!(pool[0] + 2 * MIB, pool[1], "side by side");
    for (base, len_bytes) in
        [(base, 2 * MIB), (base + 2 * MIB, 2 * MIB), (base + 4 * MIB, 15), (pool[0], 2 * MIB), (pool[1], 2 * MIB)]
    {
        let extent = world.cuda.extent(base + len_bytes - 1).map(found);
        assert_eq!(extent, Ok((base, len_bytes, false, [Edge::Allocation; 2])));
    }
}

#[test]
fn a_walk_ends_at_another_device_and_at_memory_of_another_kind() {
    let world = world(gpus(2));
    let first = world.soft.reserve(0, 4 * MIB);
    let second = world.soft.reserve(1, 4 * MIB);
    let pool = world.soft.allocate_from_pool(1, 2 * MIB);
    assert_eq!([second - first, pool - second], [4 * MIB; 2], "side by side");
    world.soft.map(first, 2 * MIB);
    world.soft.map(first + 2 * MIB, 2 * MIB);
    world.soft.map(second, 4 * MIB);
    let extent = world.cuda.extent(first).map(found);
    assert_eq!(extent, Ok((first, 4 * MIB, true, [Edge::Unmapped, Edge::OtherDevice])));
    let extent = world.cuda.extent(second).map(found);
    assert_eq!(extent, Ok((second, 4 * MIB, true, [Edge::OtherDevice, Edge::OtherKind])));
}

#[test]
fn a_walk_takes_as_many_mappings_as_it_may_and_says_so() {
    let world = world(CudaConfig::default());
    let base = world.segment(0, &[2; 8]);
    let at = base + 8 * MIB;
    let run = |mappings| world.cuda.extent_of_at_most(at, mappings).map(found);
    for none in [0, 1] {
        assert_eq!(run(none), Ok((at, 2 * MIB, true, [Edge::Limit; 2])), "the one that holds the address is");
    }
    assert_eq!(run(3), Ok((at, 6 * MIB, true, [Edge::Limit; 2])));
    assert_eq!(run(5), Ok((at - 2 * MIB, 10 * MIB, true, [Edge::Limit, Edge::Unmapped])));
    assert_eq!(run(7), Ok((base + 2 * MIB, 14 * MIB, true, [Edge::Limit, Edge::Unmapped])));
    assert_eq!(run(8), Ok((base, 16 * MIB, true, [Edge::Limit, Edge::Unmapped])), "nothing more was asked");
    assert_eq!(run(9), Ok((base, 16 * MIB, true, [Edge::Unmapped; 2])));
}

#[test]
fn what_goes_while_a_walk_asks_about_it_is_not_there() {
    let world = world(CudaConfig::default());
    let base = world.segment(0, &[2, 2]);
    let before = world.soft.record().len();
    let whole = world.cuda.extent(base).map(found);
    assert_eq!(whole, Ok((base, 4 * MIB, true, [Edge::Unmapped; 2])));
    let record = world.soft.record();
    let asked: Vec<_> = record[before..].iter().filter(|call| call.symbol == "cuPointerGetAttribute").collect();
    // Every question about the second mapping.
    for (at, call) in asked.iter().enumerate().filter(|(_, call)| call.subject == base + 2 * MIB) {
        world.soft.fail("cuPointerGetAttribute", at as u64 + 1, CuResult::INVALID_VALUE);
        let extent = world.cuda.extent(base).expect("the first is there");
        assert_eq!(extent.range, range(base, 2 * MIB), "attribute {}", call.size);
        world.soft.clear_plan();
    }
    // Another failure is no edge.
    world.soft.fail("cuMemGetAddressRange_v2", 2, CuResult::UNKNOWN);
    assert_eq!(world.cuda.extent(base).err().and_then(|error| error.result()), Some(CuResult::UNKNOWN));
}

#[test]
fn f5_every_mapping_that_a_range_touches_tells_its_id() {
    let world = world(CudaConfig::default());
    let base = world.segment(0, &[20, 20, 20]);
    let before = ids(&world, base, 60 * MIB).expect("mapped");
    assert_eq!(before.iter().map(|(base, _)| *base).collect::<Vec<_>>(), [0, 20, 40].map(|at| base + at * MIB));
    assert_eq!(ids(&world, base + 20 * MIB - 1, 2), Ok(before[..2].to_vec()));
    assert_eq!(ids(&world, base + 20 * MIB, 20 * MIB), Ok(before[1..2].to_vec()));
    assert_eq!(ids(&world, base + 5, 0), Ok(vec![]));
    world.soft.unmap(base + 20 * MIB);
    let hole = CudaError::Hole { range: range(base, 60 * MIB), address: base + 20 * MIB };
    assert_eq!(ids(&world, base, 60 * MIB), Err(hole));
    world.soft.map(base + 20 * MIB, 20 * MIB);
    let after = ids(&world, base, 60 * MIB).expect("mapped");
    assert_eq!((after[0], after[2]), (before[0], before[2]));
    assert!(after[1].1 != before[1].1, "the middle one is another");
    let mid = world.cuda.buffer_id(base + 33 * MIB);
    assert_eq!(mid, Ok(Some(after[1].1)), "one for the whole mapping");
}

#[test]
fn an_id_is_one_question_and_needs_no_context() {
    let world = world(CudaConfig::default());
    let base = world.segment(0, &[20]);
    let before = world.soft.record().len();
    assert!(world.cuda.buffer_id(base + 5).is_ok_and(|id| id.is_some()));
    assert_eq!(world.calls(before), ["cuPointerGetAttribute"]);
}
