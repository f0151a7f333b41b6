//! Memory of this process that transfers use: whose it is, where it is, who may touch it now, where it is registered.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bareverbs_core::range::{AddressRange, RangeError};

use super::access_lock::AccessLock;
use super::backend::Backend;
use super::keepalive::{Keepalive, WeakKeepalive};
use super::location::{DriverError, HostOnly, Location, MemoryDriver, Placement};
use super::registrations::{Failures, Registrations, Views};
use super::slots::Slots;

/// Memory that transfers use, kept mapped by its owner.
///
/// Clones share registrations and [access lock](Self::access_lock). Two handles that were built separately share nothing,
/// even over the same memory.
///
/// ```
/// use bareverbs_shell::memory::{LocalMemory, OwnedBytes};
///
/// let memory = LocalMemory::new(OwnedBytes::from(vec![1, 2, 3, 4, 5]))?;
/// let mut middle = [0; 3];
/// // SAFETY: nobody else knows the bytes.
/// unsafe { memory.read_at(1, &mut middle) }?;
/// assert_eq!(middle, [2, 3, 4]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct LocalMemory {
    hold: Arc<Hold>,
}

/// What is kept as long as a handle lives.
struct Hold {
    // Field order is drop order: what is registered goes before what keeps it mapped. Guards hold the owner of their memory
    // themselves where they are this library's; a view of somebody else's may not.
    views: Views,
    shared: Arc<Shared>,
    keepalive: Arc<dyn Keepalive>,
}

/// What handles and weak handles share.
struct Shared {
    bytes: AddressRange,
    placement: Placement,
    failures: Failures,
    lock: AccessLock,
    driver: Arc<dyn MemoryDriver>,
    /// What the handles hold, if there are any: so that a weak handle finds their registrations.
    current: Mutex<Weak<Hold>>,
}

/// Why there is no handle for some memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LocalMemoryError {
    /// The owner's address and size wrap around the address space.
    Range(RangeError),
    /// The driver cannot tell where it is.
    Location {
        /// Which bytes.
        bytes: AddressRange,
        /// What the driver said.
        error: DriverError,
    },
}

impl fmt::Display for LocalMemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range(error) => error.fmt(f),
            Self::Location { bytes, error } => {
                let (base, len_bytes) = (bytes.base(), bytes.len_bytes());
                write!(f, "where {len_bytes} bytes at {base:#x} are cannot be told: {error}")
            }
        }
    }
}

impl std::error::Error for LocalMemoryError {}

impl LocalMemory {
    /// A handle for host memory.
    ///
    /// # Errors
    /// [`LocalMemoryError::Range`].
    pub fn new(keepalive: impl Keepalive + 'static) -> Result<Self, LocalMemoryError> {
        Self::with_driver(Arc::new(keepalive), Arc::new(HostOnly))
    }

    /// A handle for memory of which `driver` knows where it is. It is asked once, now.
    ///
    /// # Errors
    /// [`LocalMemoryError`].
    pub fn with_driver(keepalive: Arc<dyn Keepalive>, driver: Arc<dyn MemoryDriver>) -> Result<Self, LocalMemoryError> {
        let (addr, size) = (keepalive.addr() as u64, keepalive.size() as u64);
        let bytes = AddressRange::new(addr, size).map_err(LocalMemoryError::Range)?;
        let placement = driver.place(bytes).map_err(|error| LocalMemoryError::Location { bytes, error })?;
        let failures = Slots::new();
        let (lock, current) = (AccessLock::new(), Mutex::default());
        Ok(Self::hold(Arc::new(Shared { bytes, placement, failures, lock, driver, current }), keepalive))
    }

    /// The handle that holds `keepalive`, which `shared` has then for its current one.
    fn hold(shared: Arc<Shared>, keepalive: Arc<dyn Keepalive>) -> Self {
        let mut current = shared.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hold) = current.upgrade() {
            return Self { hold };
        }
        let hold = Arc::new(Hold { views: Slots::new(), shared: Arc::clone(&shared), keepalive });
        *current = Arc::downgrade(&hold);
        Self { hold }
    }

    /// Where it starts.
    pub fn addr(&self) -> usize {
        self.hold.shared.bytes.base() as usize
    }

    /// How long it is, bytes.
    pub fn size(&self) -> usize {
        self.hold.shared.bytes.len_bytes() as usize
    }

    /// Where it starts and how long it is.
    pub fn bytes(&self) -> AddressRange {
        self.hold.shared.bytes
    }

    /// Where it is, as was told when the handle was built.
    pub fn location(&self) -> Location {
        self.hold.shared.placement.location
    }

    /// Where it is and who reaches it directly.
    pub fn placement(&self) -> Placement {
        self.hold.shared.placement
    }

    /// Who may touch the bytes now: for those who reach them otherwise than by this handle's copies, which take it themselves.
    pub fn access_lock(&self) -> &AccessLock {
        &self.hold.shared.lock
    }

    /// What is registered in that way.
    #[inline]
    pub fn registrations(&self, backend: Backend) -> Registrations<'_> {
        let Hold { views, shared, .. } = &*self.hold;
        Registrations { backend, bytes: shared.bytes, views, failures: &shared.failures }
    }

    /// The owner of the memory.
    pub fn keepalive(&self) -> &Arc<dyn Keepalive> {
        &self.hold.keepalive
    }

    /// A handle that does not keep the memory mapped; `None` if its owner has no weak form.
    pub fn downgrade(&self) -> Option<WeakLocalMemory> {
        let owner = self.hold.keepalive.downgrade()?;
        Some(WeakLocalMemory { shared: Arc::clone(&self.hold.shared), owner })
    }

    pub(super) fn driver(&self) -> &dyn MemoryDriver {
        &*self.hold.shared.driver
    }
}

impl fmt::Debug for LocalMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hold.shared.fmt(f, "LocalMemory")
    }
}

impl Shared {
    /// All but the owner, of which nothing is known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        let Placement { location, host_bytes_per_s, device_bytes_per_s } = self.placement;
        f.debug_struct(name)
            .field("addr", &format_args!("{:#x}", self.bytes.base()))
            .field("size", &self.bytes.len_bytes())
            .field("location", &location)
            .field("host_bytes_per_s", &host_bytes_per_s)
            .field("device_bytes_per_s", &device_bytes_per_s)
            .finish_non_exhaustive()
    }
}

/// A [`LocalMemory`] that does not keep its memory mapped.
///
/// It shares the access lock and what failed. Views are in force as long as a handle lives, since they keep the memory mapped:
/// when the last handle goes they are given back, and the next upgrade begins without.
#[derive(Clone)]
pub struct WeakLocalMemory {
    shared: Arc<Shared>,
    owner: Arc<dyn WeakKeepalive>,
}

/// Why a weak handle finds its memory no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UpgradeError {
    /// Its owner is gone.
    Gone,
    /// Its owner has another address now.
    Moved {
        /// The address that the handle was built with.
        was: usize,
        /// The owner's address now.
        now: usize,
    },
    /// Its owner has another size now.
    Resized {
        /// The size that the handle was built with, bytes.
        was: usize,
        /// The owner's size now, bytes.
        now: usize,
    },
}

impl fmt::Display for UpgradeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("the owner of the memory is gone"),
            Self::Moved { was, now } => write!(f, "the memory was at {was:#x}, and its owner is at {now:#x} now"),
            Self::Resized { was, now } => write!(f, "the memory was {was} bytes long, and its owner has {now} now"),
        }
    }
}

impl std::error::Error for UpgradeError {}

impl WeakLocalMemory {
    /// The memory, if its owner lives and is where and as long as it was.
    ///
    /// # Errors
    /// [`UpgradeError`] says which of the three does not hold.
    pub fn upgrade(&self) -> Result<LocalMemory, UpgradeError> {
        let owner = self.owner.upgrade().ok_or(UpgradeError::Gone)?;
        let (was, now) = (self.shared.bytes.base() as usize, owner.addr());
        if was != now {
            return Err(UpgradeError::Moved { was, now });
        }
        let (was, now) = (self.shared.bytes.len_bytes() as usize, owner.size());
        if was != now {
            return Err(UpgradeError::Resized { was, now });
        }
        Ok(LocalMemory::hold(Arc::clone(&self.shared), owner))
    }
}

impl fmt::Debug for WeakLocalMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.fmt(f, "WeakLocalMemory")
    }
}
