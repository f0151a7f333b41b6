//! What is told to peers, and until when it holds.
//!
//! A peer holds no guard of ours. What it was told is usable as long as the registration lives, so a remote view comes only
//! with a lease on that.

use std::fmt;

use bareverbs_core::verbs::AccessFlags;
use bareverbs_core::view::{DeviceName, RemoteView};

use super::view::View;

/// A published view: keeps it registered until the lease is withdrawn, by [`withdraw`](Self::withdraw) or by drop, and every
/// [acknowledgement](Self::acknowledgement) that was asked for has come.
///
/// Withdrawing does not take a key back from a peer that has it: [a key](View#keys) works until its region is deregistered,
/// which is when the last view, lease and acknowledgement of it are gone, **and the last
/// [`LocalMemory`](super::LocalMemory) handle**: handles hold the view that is in force. What a peer does after that fails at
/// its end, or, if the device has given the number to another region by then, reaches that. Where it matters, have peers acknowledge.
///
/// ```no_run
/// # fn send(_: &[u8]) {}
/// # fn wait_for_the_peer() {}
/// # fn example(view: bareverbs_shell::memory::View) -> Result<(), Box<dyn std::error::Error>> {
/// let lease = view.publish()?;
/// let acknowledgement = lease.acknowledgement();
/// send(&lease.remote().encode());
/// // ... the peer reads and writes ...
/// lease.withdraw(); // still registered: the peer may be at it
/// wait_for_the_peer();
/// acknowledgement.came();
/// # Ok(()) }
/// ```
#[must_use = "dropping the lease withdraws it"]
#[derive(Debug)]
pub struct Lease {
    view: View,
    remote: RemoteView,
}

/// A peer's word that it will not use a view any more, which is still to come; the view stays registered until then.
///
/// Dropping it says that no word will come: the peer is gone.
#[must_use = "dropping it says that the peer is gone"]
#[derive(Debug)]
pub struct Acknowledgement {
    #[expect(dead_code, reason = "held, not read: it keeps the keys in force")]
    view: View,
}

/// Why a view cannot be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PublishError {
    /// The device gave no key for others: its number is 0.
    NoRemoteKey {
        /// The device.
        device: DeviceName,
    },
    /// It was registered with no access for others.
    NothingPermitted {
        /// The device.
        device: DeviceName,
        /// What its keys permit.
        access: AccessFlags,
    },
}

/// What lets others do anything.
const FOR_OTHERS: AccessFlags =
    AccessFlags::REMOTE_WRITE.union(AccessFlags::REMOTE_READ).union(AccessFlags::REMOTE_ATOMIC);

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRemoteKey { device } => {
                write!(f, "device {device} gave no key for others (rkey 0): it has no one-sided operations")
            }
            Self::NothingPermitted { device, access } => write!(
                f,
                "on device {device} it was registered with {access:?}, which lets others do nothing: register it with \
                 REMOTE_WRITE, REMOTE_READ or REMOTE_ATOMIC"
            ),
        }
    }
}

impl std::error::Error for PublishError {}

impl Lease {
    pub(super) fn of(view: &View) -> Result<Self, PublishError> {
        let device = *view.device();
        if let Some(access) = view.access()
            && !access.intersects(FOR_OTHERS)
        {
            return Err(PublishError::NothingPermitted { device, access });
        }
        match RemoteView::new(view.key_addr(), view.len_bytes(), view.rkey(), device) {
            Ok(remote) if view.rkey() != 0 => Ok(Self { view: view.clone(), remote }),
            // A view's numbers make a remote view; its key may not be one.
            _ => Err(PublishError::NoRemoteKey { device }),
        }
    }

    /// What to tell the peer.
    pub const fn remote(&self) -> &RemoteView {
        &self.remote
    }

    /// The view that was published.
    pub const fn view(&self) -> &View {
        &self.view
    }

    /// Keeps the view registered beyond the lease, until a peer has said that it will not use it any more.
    pub fn acknowledgement(&self) -> Acknowledgement {
        Acknowledgement { view: self.view.clone() }
    }

    /// Ends the lease: the application has told its peers, or does not care.
    pub fn withdraw(self) {}
}

impl Acknowledgement {
    /// The peer's word came.
    pub fn came(self) {}
}
