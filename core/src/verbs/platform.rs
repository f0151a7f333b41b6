//! What moves by platform: whatever follows a `pthread_mutex_t` in a C struct.
//!
//! A shared mirror stops before a mutex. The few fields that are needed beyond one are stated as on x86_64 glibc, and
//! [`Platform::past_mutex`] moves them by what the mutex is longer elsewhere: one table, a size per platform. On a
//! platform that nobody has looked at there is no offset, and what needs one is unsupported there.

use crate::layout::{FieldRow, Growth};

/// A platform whose `pthread_mutex_t` is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    /// Linux with glibc on x86_64: everything is measured here.
    GlibcX86_64,
    /// Linux with glibc on aarch64: measured with a cross compiler and the headers of rdma-core 55.
    GlibcAarch64,
    /// macOS on Apple silicon: worked out from its `pthread_mutex_t`; its verbs header is not published.
    DarwinAarch64,
}

impl Platform {
    /// The platform this is built for, if it is a known one.
    pub const THIS: Option<Self> =
        if cfg!(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64", target_pointer_width = "64")) {
            Some(Self::GlibcX86_64)
        } else if cfg!(all(
            target_os = "linux",
            target_env = "gnu",
            target_arch = "aarch64",
            target_pointer_width = "64",
            target_endian = "little"
        )) {
            Some(Self::GlibcAarch64)
        } else if cfg!(all(target_os = "macos", target_arch = "aarch64")) {
            Some(Self::DarwinAarch64)
        } else {
            None
        };

    /// `sizeof(pthread_mutex_t)`.
    pub const fn mutex_bytes(self) -> usize {
        match self {
            Self::GlibcX86_64 => 40,
            Self::GlibcAarch64 => 48,
            Self::DarwinAarch64 => 64,
        }
    }

    /// Where a field (or a struct's end) behind one mutex lies here, given where it lies on x86_64 glibc. A condition
    /// variable between them changes nothing: it has 48 bytes on all three.
    pub const fn past_mutex(self, on_glibc_x86_64_bytes: usize) -> usize {
        on_glibc_x86_64_bytes - Self::GlibcX86_64.mutex_bytes() + self.mutex_bytes()
    }
}

/// What follows the mutex of a C struct, up to the struct's end.
#[derive(Clone, Copy, Debug)]
pub struct TailTable {
    /// The type as C spells it.
    pub c_type: &'static str,
    /// The platforms where [`Platform::past_mutex`] was measured or worked out to be right for this struct.
    pub platforms: &'static [Platform],
    /// Size of the newest C struct, in bytes, on x86_64 glibc.
    pub size_bytes: usize,
    /// Alignment in bytes.
    pub align_bytes: usize,
    /// Members that later headers added, each with the struct's size in headers that lack it, oldest first, on x86_64
    /// glibc.
    pub grew: &'static [Growth],
    /// Every member from the first that is needed to the end, in order of the header, with offsets on x86_64 glibc.
    pub fields: &'static [FieldRow],
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::TARGET_OFFSETS;

    #[test]
    fn only_what_a_longer_mutex_moves_is_moved() {
        assert_eq!(Platform::GlibcX86_64.past_mutex(320), 320);
        assert_eq!(Platform::GlibcAarch64.past_mutex(320), 328);
        assert_eq!(Platform::DarwinAarch64.past_mutex(320), 344);
    }

    #[test]
    fn no_tail_starts_before_a_mutex_could_end() {
        for tail in TARGET_OFFSETS {
            assert!(tail.fields.iter().all(|row| row.offset_bytes >= Platform::GlibcX86_64.mutex_bytes()), "{tail:?}");
        }
    }
}
