//! Seeded randomness: SplitMix64, so that a run can be told by its seed.

/// A generator of numbers that look random and are the same for the same seed.
#[derive(Clone, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub(super) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `bound`; 0 where the bound is 0. Its bias is 2^-32 of the bound at most, which nobody here minds.
    pub(super) const fn below(&mut self, bound: u32) -> u32 {
        (((self.next() >> 32) * bound as u64) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_tells_the_whole_sequence() {
        let (mut one, mut other) = (Rng::new(7), Rng::new(7));
        assert!((0..100).all(|_| one.next() == other.next()));
        assert_ne!(Rng::new(7).next(), Rng::new(8).next());
    }

    #[test]
    fn below_reaches_every_number_under_the_bound_and_none_at_it() {
        let mut rng = Rng::new(1);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[rng.below(5) as usize] = true;
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!(rng.below(0), 0);
    }
}
