//! A tensor in GPU memory: where it is, how a peer reaches it, and what it must hold.

use bareverbs_core::view::RemoteView;
use bareverbs_shell::memory::Lease;

/// A tensor that is registered, as its owner sees it.
pub struct Tensor {
    pub number: u64,
    pub addr: u64,
    /// The growth after which it was registered.
    pub generation: u64,
    /// Whether its address is still its own: other memory, or none, may be there.
    pub stale: bool,
    /// It holds the view, and so the key.
    lease: Lease,
}

/// The same, as the peer sees it.
#[derive(Clone, Copy)]
pub struct Target {
    pub number: u64,
    pub remote: RemoteView,
}

impl Tensor {
    pub fn new(number: u64, addr: u64, generation: u64, lease: Lease) -> Self {
        Self { number, addr, generation, stale: false, lease }
    }

    pub fn target(&self) -> Target {
        Target { number: self.number, remote: *self.lease.remote() }
    }

    pub fn len_bytes(&self) -> u64 {
        self.lease.remote().len_bytes()
    }

    /// The key that the peer has for it.
    pub fn key(&self) -> u32 {
        self.lease.remote().rkey()
    }

    /// Takes the view back. The peer was told before, and has nothing on its way.
    pub fn withdraw(self) {
        self.lease.withdraw();
    }
}

/// What a tensor holds after being written that often: no two have much in common at one place.
pub fn content(number: u64, version: u64, len_bytes: u64) -> Vec<u8> {
    let mut word = (number << 32 | version).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let next = |_| {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        word.to_ne_bytes()
    };
    let mut bytes: Vec<u8> = (0..len_bytes.div_ceil(8)).flat_map(next).collect();
    bytes.truncate(len_bytes as usize);
    bytes
}

/// How many bytes differ.
pub fn differing(got: &[u8], wanted: &[u8]) -> u64 {
    let differing = got.iter().zip(wanted).filter(|(got, wanted)| got != wanted).count();
    (differing + got.len().abs_diff(wanted.len())) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_as_long_as_asked_and_differ_by_number_and_version() {
        let first = content(1, 1, 4097);
        assert_eq!((first.len(), differing(&first, &content(1, 1, 4097))), (4097, 0));
        for other in [content(1, 2, 4097), content(2, 1, 4097), vec![0; 4097]] {
            assert!(differing(&first, &other) > 4000);
        }
    }

    #[test]
    fn what_is_too_short_differs_by_what_it_lacks() {
        assert_eq!(differing(&[1, 2], &[1, 3, 4]), 2);
    }
}
