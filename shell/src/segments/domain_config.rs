//! What a domain serves, and how.

use std::time::Duration;

use bareverbs_core::segments::Ordinal;
use bareverbs_core::verbs::AccessFlags;

use super::BinderConfig;
use crate::memory::HostDomain;

/// Whether a request asks the driver if the memory is still what was bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IdentityPolicy {
    /// Each request asks for each mapping that it touches: below 100 ns each on an H200.
    #[default]
    Verify,
    /// No request asks: the caller promises to [invalidate](super::SegmentDomain::invalidate) what it frees, after it is freed and
    /// before its address is used again. Binding and scans ask all the same.
    Trust,
}

/// What a domain serves, and how.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SegmentDomainConfig {
    /// The devices whose memory is served since this is the best NIC for them.
    pub given: Vec<Ordinal>,
    /// The devices whose memory is served whatever the topology says.
    pub pinned: Vec<Ordinal>,
    /// Whether requests ask for the memory's identity.
    pub identity: IdentityPolicy,
    /// What is permitted; see [`BINDABLE_ACCESS`](super::BINDABLE_ACCESS).
    pub access: AccessFlags,
    /// How long a request waits for another caller's scan and the bindings after it; after that it gets a region of its own.
    pub patience: Duration,
    /// How keys are bound.
    pub binder: BinderConfig,
}

impl Default for SegmentDomainConfig {
    /// No ordinals; identities verified; local write, remote write and remote read; a second of patience.
    fn default() -> Self {
        Self {
            given: Vec::new(),
            pinned: Vec::new(),
            identity: IdentityPolicy::Verify,
            access: HostDomain::ACCESS,
            patience: Duration::from_secs(1),
            binder: BinderConfig::default(),
        }
    }
}

impl SegmentDomainConfig {
    /// Serves the memory of these devices.
    #[must_use]
    pub fn given(mut self, ordinals: impl IntoIterator<Item = Ordinal>) -> Self {
        self.given = ordinals.into_iter().collect();
        self
    }

    /// Serves the memory of these devices, too, whatever the topology says.
    #[must_use]
    pub fn pinned(mut self, ordinals: impl IntoIterator<Item = Ordinal>) -> Self {
        self.pinned = ordinals.into_iter().collect();
        self
    }

    /// Sets whether requests ask for the memory's identity.
    #[must_use]
    pub fn identity(self, identity: IdentityPolicy) -> Self {
        Self { identity, ..self }
    }

    /// Sets what is permitted.
    #[must_use]
    pub fn access(self, access: AccessFlags) -> Self {
        Self { access, ..self }
    }

    /// Sets how long a request waits for another caller's scan and bindings.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Sets how keys are bound.
    #[must_use]
    pub fn binder(self, binder: BinderConfig) -> Self {
        Self { binder, ..self }
    }

    /// Sets how long the binding of a key may take.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.binder = self.binder.deadline(deadline);
        self
    }
}
