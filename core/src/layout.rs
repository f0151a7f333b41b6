//! One table per C struct, one list per C enum: asserted here by rustc, exported for the C compiler.
//!
//! A mirror of a C struct is followed at once by its `layout!` table. The table states size, alignment and every
//! field's offset and size as literals taken from the header (rdma-core 44.0, x86_64 glibc, unless the field says since
//! which release it is there). Three things come from it:
//!
//! - a compile-time assertion that rustc lays the mirror out that way, on 64-bit targets;
//! - a compile-time destructuring, so that a field that the table forgot does not compile;
//! - a [`StructTable`] in [`STRUCTS`](crate::verbs::STRUCTS), which the layout tests turn into assertions for the C
//!   compiler.
//!
//! Constants go the same way: `open_enum!` and `flag_word!` make the type and a [`ConstantTable`] in
//! [`CONSTANTS`](crate::verbs::CONSTANTS).
//!
//! This file knows no struct. It leaves to the files of [`crate::verbs`] what the words mean.

/// One field of a C struct, as the C compiler must see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldRow {
    /// The member as C spells it, nested members with dots (`wr.rdma.rkey`).
    pub c_name: &'static str,
    /// Offset from the start of the struct, in bytes.
    pub offset_bytes: usize,
    /// Size of the member, in bytes.
    pub size_bytes: usize,
    /// The first rdma-core release whose header has the member; `None` where every header that was looked at has it.
    pub since: Option<u16>,
}

/// The layout of one C struct.
#[derive(Clone, Copy, Debug)]
pub struct StructTable {
    /// The mirror's name in Rust.
    pub rust_name: &'static str,
    /// The type as C spells it (`struct ibv_sge`); for an inner struct that has no name in C, the way to it
    /// (`struct ibv_send_wr.wr.rdma`).
    pub c_type: &'static str,
    /// Size of the mirror, in bytes; for a whole mirror also the size of the newest C struct.
    pub size_bytes: usize,
    /// Alignment in bytes.
    pub align_bytes: usize,
    /// Whether the mirror is the whole C struct (`false`: only its start, up to a mutex or to what is needed).
    pub whole: bool,
    /// Members that later headers added, each with the struct's size in headers that lack it, oldest first.
    pub grew: &'static [Growth],
    /// Every member, in order of the header; after them those of inner unions.
    pub fields: &'static [FieldRow],
}

/// A struct that grew: what it measured before a member came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// The member that came.
    pub c_name: &'static str,
    /// The struct's size, in bytes, in headers without it.
    pub size_before_bytes: usize,
}

/// One C constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConstantRow {
    /// The constant as C spells it.
    pub c_name: &'static str,
    /// Its value.
    pub value: i64,
    /// The first rdma-core release whose header has it; `None` where every header that was looked at has it.
    pub since: Option<u16>,
}

/// The constants of one C enum or flag word.
#[derive(Clone, Copy, Debug)]
pub struct ConstantTable {
    /// The newtype's name in Rust.
    pub rust_name: &'static str,
    /// The constants, in order of the header.
    pub rows: &'static [ConstantRow],
}

/// A C struct that has a table.
pub trait Mirror {
    /// Its table.
    const TABLE: StructTable;
}

/// Size of a field, worked out from a projection to it.
#[doc(hidden)]
pub const fn size_of_field<S, F>(_: fn(&S) -> &F) -> usize {
    core::mem::size_of::<F>()
}

/// States the layout of a mirror: see the [module](self).
///
/// `Name: "C type", whole SIZE align ALIGN { field OFFSET SIZE; ... }`, or `start SIZE` for a mirror of a struct's
/// beginning. `field as "c.name"` gives another C name; `since 49` after the numbers marks a member that headers before
/// rdma-core 49 lack. `inner` lists members of inner unions by path; `alias` names what C has and the mirror reads through
/// another field, which only the C compiler can assert. `grew { "member" SIZE_BEFORE; }` lists older sizes.
macro_rules! layout {
    (
        $ty:ident: $c_type:literal, $extent:ident $size:literal align $align:literal
        { $( $field:ident $(as $c:literal)? $offset:literal $fsize:literal $(since $since:literal)? ; )* }
        $( inner { $( $head:ident $(. $tail:ident)* $(as $ic:literal)? $ioffset:literal $isize:literal ; )* } )?
        $( alias { $( $aname:literal $aoffset:literal $asize:literal ; )* } )?
        $( grew { $( $gname:literal $gsize:literal ; )* } )?
    ) => {
        #[cfg(target_pointer_width = "64")]
        const _: () = {
            static_assertions::const_assert_eq!(core::mem::size_of::<$ty>(), $size);
            static_assertions::const_assert_eq!(core::mem::align_of::<$ty>(), $align);
            $(
                static_assertions::const_assert_eq!(core::mem::offset_of!($ty, $field), $offset);
                static_assertions::const_assert_eq!(
                    $crate::layout::size_of_field::<$ty, _>(|s| &s.$field), $fsize);
            )*
            $($( static_assertions::const_assert_eq!(core::mem::offset_of!($ty, $head $(. $tail)*), $ioffset); )*)?
        };
        // A field that the table forgot is an error here ("pattern requires `..`").
        const _: fn($ty) = |mirror| { let $ty { $( $field: _, )* } = mirror; };
        impl $crate::layout::Mirror for $ty {
            const TABLE: $crate::layout::StructTable = $crate::layout::StructTable {
                rust_name: stringify!($ty),
                c_type: $c_type,
                size_bytes: $size,
                align_bytes: $align,
                whole: $crate::layout::layout!(@whole $extent),
                grew: &[ $($( $crate::layout::Growth { c_name: $gname, size_before_bytes: $gsize } ),*)? ],
                fields: &[
                    $( $crate::layout::FieldRow {
                        c_name: $crate::layout::layout!(@name $field $($c)?),
                        offset_bytes: $offset,
                        size_bytes: $fsize,
                        since: $crate::layout::layout!(@since $($since)?),
                    }, )*
                    $($( $crate::layout::FieldRow {
                        c_name: $crate::layout::layout!(@path $head $(. $tail)* $(as $ic)?),
                        offset_bytes: $ioffset,
                        size_bytes: $isize,
                        since: None,
                    }, )*)?
                    $($( $crate::layout::FieldRow {
                        c_name: $aname,
                        offset_bytes: $aoffset,
                        size_bytes: $asize,
                        since: None,
                    }, )*)?
                ],
            };
        }
    };
    (@whole whole) => { true };
    (@whole start) => { false };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $c:literal) => { $c };
    (@path $head:ident $(. $tail:ident)* as $c:literal) => { $c };
    (@path $head:ident $(. $tail:ident)*) => { concat!(stringify!($head) $(, ".", stringify!($tail))*) };
    (@since) => { None };
    (@since $since:literal) => { Some($since) };
}
pub(crate) use layout;

/// An open integer that C declares as an enum: any value can come from a device, the known ones have names.
macro_rules! open_enum {
    (
        $(#[$meta:meta])*
        $name:ident: $repr:ty { $( $(#[$vmeta:meta])* $value_name:ident = $value:literal, $c:literal $(since $since:literal)? ; )* }
    ) => {
        $(#[$meta])*
        ///
        /// An open integer: a device may answer a value that nobody knew when this was written.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        #[repr(transparent)]
        pub struct $name(pub $repr);

        impl $name {
            $(
                #[doc = concat!("`", $c, "` (", stringify!($value), ").")]
                $(#[$vmeta])*
                pub const $value_name: Self = Self($value);
            )*

            /// The constant's name in C, if the value is known.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 { $( $value => Some($c), )* _ => None }
            }
        }

        impl $crate::layout::Constants for $name {
            const TABLE: $crate::layout::ConstantTable = $crate::layout::ConstantTable {
                rust_name: stringify!($name),
                rows: &[ $( $crate::layout::ConstantRow {
                    c_name: $c,
                    value: $value as i64,
                    since: $crate::layout::layout!(@since $($since)?),
                }, )* ],
            };
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => write!(f, "{name} ({})", self.0),
                    None => write!(f, concat!(stringify!($name), "({})"), self.0),
                }
            }
        }
    };
}
pub(crate) use open_enum;

/// A word of flags that C declares as an enum or as plain `int`: unknown bits are kept.
macro_rules! flag_word {
    (
        $(#[$meta:meta])*
        $name:ident: $repr:ty { $( $(#[$vmeta:meta])* $value_name:ident = $value:literal, $c:literal $(since $since:literal)? ; )* }
    ) => {
        bitflags::bitflags! {
            $(#[$meta])*
            ///
            /// Bits that nobody named are kept as they came.
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
            #[repr(transparent)]
            pub struct $name: $repr {
                $(
                    #[doc = concat!("`", $c, "` (", stringify!($value), ").")]
                    $(#[$vmeta])*
                    const $value_name = $value;
                )*
                const _ = !0;
            }
        }

        impl $crate::layout::Constants for $name {
            const TABLE: $crate::layout::ConstantTable = $crate::layout::ConstantTable {
                rust_name: stringify!($name),
                rows: &[ $( $crate::layout::ConstantRow {
                    c_name: $c,
                    value: $value as i64,
                    since: $crate::layout::layout!(@since $($since)?),
                }, )* ],
            };
        }

        #[cfg(feature = "defmt")]
        impl defmt::Format for $name {
            fn format(&self, f: defmt::Formatter<'_>) {
                defmt::write!(f, "{}({})", stringify!($name), self.bits());
            }
        }
    };
}
pub(crate) use flag_word;

/// A newtype of C constants.
pub trait Constants {
    /// Its constants.
    const TABLE: ConstantTable;
}
