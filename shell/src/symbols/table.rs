//! How a table of C entry points is stated: once, name by name, with its signature.
//!
//! # Safety
//!
//! This file guarantees that a pointer becomes a function only with the signature that the table states beside its name.
#![allow(unsafe_code)]

/// States a table: the struct, the names in C, and its filling by a look-up.
macro_rules! symbol_table {
    (
        $(#[$meta:meta])*
        $table:ident
        required { $( $(#[$rmeta:meta])* $rname:ident = $rc:literal: fn($($rarg:ty),*) $(-> $rret:ty)?; )* }
        optional { $( $(#[$ometa:meta])* $oname:ident = $oc:literal: fn($($oarg:ty),*) $(-> $oret:ty)?; )* }
    ) => {
        $(#[$meta])*
        ///
        /// The required ones are present by type; an optional one that a library lacks is `None`, and using it is a typed
        /// error, never a call through null.
        #[derive(Clone, Debug)]
        pub struct $table {
            /// What filled the table: a library's name, or the software's. For error messages.
            pub library: std::sync::Arc<str>,
            $(
                #[doc = concat!("`", $rc, "`")]
                $(#[$rmeta])*
                pub $rname: unsafe extern "C" fn($($rarg),*) $(-> $rret)?,
            )*
            $(
                #[doc = concat!("`", $oc, "`, where the library has it.")]
                $(#[$ometa])*
                pub $oname: Option<unsafe extern "C" fn($($oarg),*) $(-> $oret)?>,
            )*
        }

        /// Names of the entry points without which a library is of no use, in C.
        pub const REQUIRED: &[&str] = &[$($rc),*];
        /// Names of the entry points that a library may lack, in C.
        pub const OPTIONAL: &[&str] = &[$($oc),*];

        impl $table {
            /// Fills the table by asking `find` for each name.
            ///
            /// # Errors
            /// The C name of the first required entry point for which `find` answers null.
            ///
            /// # Safety
            /// 1. What `find` returns for a name is null or the function of that name with the header's signature.
            /// 2. It stays callable for as long as the process runs.
            pub(crate) unsafe fn from_lookup(
                library: std::sync::Arc<str>,
                mut find: impl FnMut(&'static str) -> *mut std::ffi::c_void,
            ) -> Result<Self, &'static str> {
                $(
                    let $rname = find($rc);
                    if $rname.is_null() {
                        return Err($rc);
                    }
                )*
                $( let $oname = find($oc); )*
                Ok(Self {
                    library,
                    $(
                        // SAFETY: not null, and by 1 a function of this signature; by 2 it stays one.
                        $rname: unsafe {
                            std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($rarg),*) $(-> $rret)?>($rname)
                        },
                    )*
                    $(
                        // SAFETY: null, which is `None`, or by 1 a function of this signature; by 2 it stays one.
                        $oname: unsafe {
                            std::mem::transmute::<*mut std::ffi::c_void, Option<unsafe extern "C" fn($($oarg),*) $(-> $oret)?>>(
                                $oname,
                            )
                        },
                    )*
                })
            }
        }
    };
}
pub(super) use symbol_table;
