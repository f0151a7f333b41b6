//! Holds the tables of [`bareverbs_core::verbs`] against the C compiler and the headers that it finds.
//!
//! A table is a list of literals beside a Rust mirror. rustc asserts that the mirror is laid out so; what C thinks is the
//! business of this package. It turns the tables into `_Static_assert`s ([`claims`], [`assertions`]), compiles them with
//! the installed headers ([`headers`]), and reads the compiler's debug information to learn whether a struct has a member
//! that no table lists ([`members`], [`completeness`]). [`check()`] puts them together and answers with findings that
//! name the struct, the member, what was expected and what C has.
//!
//! # What is held against what
//!
//! | headers | found by | what may be missing there |
//! |---|---|---|
//! | the system's `<infiniband/verbs.h>`, `<infiniband/mlx5dv.h>` | a probe compile | names *since* a later release |
//! | rdma-core 55's | the published crate `ibverbs-sys`, whose files are read and never built | nothing |
//! | the same, for aarch64 glibc | `aarch64-linux-gnu-gcc` | nothing |
//! | Apple's | `BAREVERBS_SDK`, or `xcrun --show-sdk-path` | anything, and it is listed; what is there must agree |
//! | none: the tables alone | always | - |
//!
//! Where there is no C compiler or no header, the tests count as ignored and say why ([`layers`]). A header's release is
//! not written in it. It is bracketed by the names that are there; a name *since* 45 beside the lack of one *since* 44
//! means that a table is wrong. Where the release is known from elsewhere, presence must follow from it exactly.
//!
//! What it does not show: that a library behaves as its header says. The shell's self-check compares live objects.

pub mod assertions;
pub mod check;
pub mod claims;
pub mod compiler;
pub mod completeness;
pub mod consistency;
pub mod finding;
pub mod headers;
pub mod layers;
pub mod members;
pub mod registered;
pub mod tables;

pub use check::{Report, check};
pub use finding::Finding;
pub use tables::Tables;
