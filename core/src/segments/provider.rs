//! Which release of rdma-core an mlx5 provider is of, told by its file's name.
//!
//! Protects: a key's length cannot be read back, so a provider that sums it in too few bits must be known beforehand; one whose
//! release is not known counts as old. Finding the file is the caller's.

use super::windows::LengthSum;

/// The first release whose provider sums a key's length in 64 bits.
const FIRST_64_BIT: u16 = 61;

/// The first release that exports `ibv_query_port_speed`: of a provider beside it that much is known, and no more.
pub const PORT_SPEED_RELEASE: u16 = 62;

/// The rdma-core release in the file name of `libmlx5.so.1`, links followed: `libmlx5.so.1.24.44.0` is of 44.
///
/// The second number counts the provider's own interface, the third is the release. `None` for any other name.
///
/// ```
/// use bareverbs_core::segments::provider_release;
///
/// assert_eq!(provider_release("libmlx5.so.1.24.44.0"), Some(44));
/// assert_eq!(provider_release("libmlx5.so.1"), None);
/// ```
pub fn provider_release(file_name: &str) -> Option<u16> {
    let mut numbers = file_name.strip_prefix("libmlx5.so.1.")?.split('.');
    let [Some(interface), Some(release), Some(patch), None] = [(); 4].map(|()| numbers.next()) else { return None };
    let [_, release, _] = [number(interface)?, number(release)?, number(patch)?];
    Some(release)
}

/// Digits only: no sign, no space.
fn number(text: &str) -> Option<u16> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

impl LengthSum {
    /// How the provider of a release sums; a release that is not known counts as old.
    #[inline]
    pub const fn of_release(release: Option<u16>) -> Self {
        match release {
            Some(release) if release >= FIRST_64_BIT => Self::Bits64,
            _ => Self::Signed32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_the_third_number_of_the_file_name() {
        assert_eq!(provider_release("libmlx5.so.1.24.44.0"), Some(44));
        assert_eq!(provider_release("libmlx5.so.1.25.61.0"), Some(61));
    }

    #[test]
    fn a_name_of_another_form_tells_nothing() {
        for name in [
            "",
            "libmlx5.so",
            "libmlx5.so.1",
            "libmlx5.so.1.24",
            "libmlx5.so.1.24.44",
            "libmlx5.so.1.24.44.0.1",
            "libmlx5.so.1.24.+44.0",
            "libmlx5.so.1.24.x.0",
            "libmlx5.so.1.24.99999.0",
            "libmlx5.so.1.24..0",
            "libmlx4.so.1.0.44.0",
            "libmlx5-rdmav34.so",
        ] {
            assert_eq!(provider_release(name), None, "{name}");
        }
    }

    #[test]
    fn releases_before_61_and_unknown_ones_sum_in_32_bits() {
        for (release, sum) in [
            (None, LengthSum::Signed32),
            (Some(44), LengthSum::Signed32),
            (Some(60), LengthSum::Signed32),
            (Some(61), LengthSum::Bits64),
            (Some(PORT_SPEED_RELEASE), LengthSum::Bits64),
        ] {
            assert_eq!(LengthSum::of_release(release), sum, "{release:?}");
        }
    }
}
