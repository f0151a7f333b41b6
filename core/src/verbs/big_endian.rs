//! Integers that travel big-endian: only conversion gives the number.
//!
//! The header calls them `__be32` and `__be64`. Immediate data, GUIDs and the halves of a GID are such words.

macro_rules! big_endian {
    ($name:ident, $repr:ty, $c:literal) => {
        #[doc = concat!("`", $c, "`: a word that is big-endian in memory, whatever the machine is.")]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        #[repr(transparent)]
        pub struct $name($repr);

        impl $name {
            /// The word that carries `number`.
            #[inline]
            pub const fn new(number: $repr) -> Self {
                Self(number.to_be())
            }

            /// The number it carries.
            #[inline]
            pub const fn get(self) -> $repr {
                <$repr>::from_be(self.0)
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, "be({:#x})", self.get())
            }
        }
    };
}

big_endian!(Be32, u32, "__be32");
big_endian!(Be64, u64, "__be64");
