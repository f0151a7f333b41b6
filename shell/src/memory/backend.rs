//! Kinds of registration.

use std::any::TypeId;
use std::fmt;

/// A type that stands for a kind of registration: whoever registers memory in a way of its own declares one.
///
/// ```
/// use bareverbs_shell::memory::{Backend, BackendKind};
///
/// enum Striped {}
/// impl BackendKind for Striped {
///     const NAME: &'static str = "striped";
/// }
/// assert_ne!(Backend::of::<Striped>(), Backend::VERBS);
/// ```
pub trait BackendKind: 'static {
    /// What it is called in texts.
    const NAME: &'static str;
}

/// A kind of registration: plain verbs, or another's own. Two are the same if their types are, whatever they are called.
#[derive(Clone, Copy)]
pub struct Backend {
    id: TypeId,
    name: &'static str,
}

/// Plain memory regions.
enum Verbs {}

impl BackendKind for Verbs {
    const NAME: &'static str = "verbs";
}

impl Backend {
    /// Plain memory regions, as `ibv_reg_mr` makes them.
    pub const VERBS: Self = Self::of::<Verbs>();

    /// The kind that a type stands for.
    pub const fn of<Kind: BackendKind>() -> Self {
        Self { id: TypeId::of::<Kind>(), name: Kind::NAME }
    }

    /// What it is called.
    pub const fn name(self) -> &'static str {
        self.name
    }
}

impl PartialEq for Backend {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Backend {}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Backend({})", self.name)
    }
}
