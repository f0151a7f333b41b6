//! What a step of growth may cost, and what it cost.

use std::fmt;

use bareverbs_core::segments::ChunkLimits;
use bareverbs_shell::soft::{Call, Detail};

/// Calls of the library by which regions and keys come, are bound, and go. Queries and the binding queue pair are not among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCalls {
    pub registered: u64,
    pub registered_bytes: u64,
    pub keys: u64,
    pub bound: u64,
    pub keys_destroyed: u64,
    pub deregistered: u64,
}

impl DeviceCalls {
    pub fn of(record: &[Call]) -> Self {
        let of = |symbol| record.iter().filter(|call| call.symbol == symbol).count() as u64;
        let registered_bytes = record.iter().filter(|call| call.returned == 0).map(|call| match call.detail {
            Detail::RegisterDmaBuf { length_bytes, .. } | Detail::Register { length_bytes, .. } => length_bytes as u64,
            _ => 0,
        });
        Self {
            registered: of("ibv_reg_dmabuf_mr") + of("ibv_reg_mr"),
            registered_bytes: registered_bytes.sum(),
            keys: of("mlx5dv_create_mkey"),
            bound: of("mlx5dv_wr_mr_list"),
            keys_destroyed: of("mlx5dv_destroy_mkey"),
            deregistered: of("ibv_dereg_mr"),
        }
    }
}

impl fmt::Display for DeviceCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { registered, registered_bytes: _, keys, bound, keys_destroyed, deregistered } = self;
        write!(
            f,
            "{}, {}, {} made; {}, {} gone",
            Count(*registered, "region"),
            Count(*keys, "key"),
            Count(*bound, "binding"),
            Count(*keys_destroyed, "key"),
            Count(*deregistered, "region")
        )
    }
}

/// So many of something, in words.
pub struct Count(pub u64, pub &'static str);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(number, one) = self;
        write!(f, "{number} {one}{}", if *number == 1 { "" } else { "s" })
    }
}

/// The levels between the shortest region and the longest.
const LEVELS: u64 = 11;

/// How many entries a key for so many bytes has at most.
pub fn most_entries(total_bytes: u64) -> u64 {
    total_bytes.div_ceil(max_bytes()) + LEVELS
}

/// How many bytes are registered at most while a segment grows to its size in such steps: a byte is registered anew once for
/// each level that its region rises, and starts at its step's.
pub fn most_registered(total_bytes: u64, step_bytes: u64) -> u64 {
    let times = if step_bytes < 20 << 20 { LEVELS + 1 } else { 9 };
    times * total_bytes
}

/// How many regions are made of the bytes between: none goes over a multiple of the longest.
pub fn tail_regions(from_bytes: u64, to_bytes: u64) -> u64 {
    to_bytes.div_ceil(max_bytes()) - from_bytes / max_bytes()
}

/// Whether entries are free for the tail of a segment that grows so.
pub fn has_room(regions: u64, from_bytes: u64, to_bytes: u64) -> bool {
    regions + tail_regions(from_bytes, to_bytes) <= most_entries(to_bytes)
}

/// How long a region is at most.
fn max_bytes() -> u64 {
    ChunkLimits::GPU.max_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: u64 = 2 << 20;

    #[test]
    fn one_is_said_as_one() {
        let said = [0, 1, 2].map(|number| Count(number, "key").to_string());
        assert_eq!(said, ["0 keys", "1 key", "2 keys"]);
        let calls = DeviceCalls { registered: 1, keys: 1, bound: 1, keys_destroyed: 1, ..DeviceCalls::default() };
        assert_eq!(calls.to_string(), "1 region, 1 key, 1 binding made; 1 key, 0 regions gone");
    }

    #[test]
    fn a_tail_is_cut_where_the_longest_regions_end() {
        let max = max_bytes();
        assert_eq!([tail_regions(0, M), tail_regions(M, 2 * M), tail_regions(0, max)], [1, 1, 1]);
        assert_eq!([tail_regions(max - M, max), tail_regions(max, max + M)], [1, 1]);
        assert_eq!([tail_regions(max - M, max + M), tail_regions(0, max + M), tail_regions(M, 3 * max)], [2, 2, 3]);
    }

    #[test]
    fn below_the_longest_region_the_thirteenth_entry_is_not_free() {
        assert!(has_room(11, 11 * M, 12 * M));
        assert!(!has_room(12, 12 * M, 13 * M));
        assert_eq!([most_entries(M), most_entries(max_bytes()), most_entries(max_bytes() + M)], [12, 12, 13]);
    }
}
