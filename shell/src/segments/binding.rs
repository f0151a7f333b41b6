//! Gives keys their regions.
//!
//! A key gets its regions by a request, posted on a queue pair that is connected to itself; when its completion was seen, and
//! was seen to be that request's, the key is bound. The queue pair is made when the first key is to be bound, and serves all of
//! its protection domain.
//!
//! The rule this file protects: **a key is handed out only after its own binding was seen to succeed, and no failure is for
//! good**. Whatever goes wrong, the queue pair is thrown away, with the key if its binding may still be in flight, and the next
//! need makes another.
//!
//! Nothing of the caller's runs under the lock: regions, and with them what keeps their memory, are let go after it was given
//! back, and what could not be destroyed is told then. Both may ask the binder something.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::{CapReports, ChunkLimits, EntryCap, MAX_KEY_ENTRIES, WindowLimits};
use bareverbs_core::verbs::{AccessFlags, Sge, Wc, WcOpcode};
use bareverbs_core::view::DeviceName;

use crate::error::Error;
use crate::objects::gid::GidPolicy;
use crate::objects::indirect_key::IndirectKey;
use crate::objects::list_queue_pair::{ListQueuePair, NoListQueuePair};
use crate::objects::report;
use crate::objects::{MemoryRegion, ProtectionDomain};
use crate::segments::{BindError, BoundWindow};
use crate::symbols::Mlx5Symbols;
use crate::wait::{Ended, Wait};

/// The access that a binding can give; the provider refuses everything else, relaxed ordering too.
pub const BINDABLE_ACCESS: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC);

/// How keys are to be bound.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct BinderConfig {
    /// The port that the queue pair is on, counted from 1.
    pub port: u8,
    /// Which of its GIDs; on InfiniBand none is used.
    pub gid: GidPolicy,
    /// How long a binding may take.
    pub deadline: Duration,
    /// How regions are cut.
    pub chunk: ChunkLimits,
    /// How many entries a key may have, whatever device and queue pair could carry.
    pub max_entries: EntryCap,
}

impl Default for BinderConfig {
    /// Port 1, a routable GID of RoCE v2, 5 seconds, GPU pages, no bound on entries but the device's.
    fn default() -> Self {
        Self {
            port: 1,
            gid: GidPolicy::RoceV2Global,
            deadline: Duration::from_secs(5),
            chunk: ChunkLimits::GPU,
            max_entries: EntryCap::MAX,
        }
    }
}

impl BinderConfig {
    /// On that port.
    #[must_use]
    pub const fn port(self, port: u8) -> Self {
        Self { port, ..self }
    }

    /// With such a GID.
    #[must_use]
    pub const fn gid(self, gid: GidPolicy) -> Self {
        Self { gid, ..self }
    }

    /// A binding may take that long.
    #[must_use]
    pub const fn deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Regions are cut so.
    #[must_use]
    pub const fn chunk(self, chunk: ChunkLimits) -> Self {
        Self { chunk, ..self }
    }

    /// A key has at most so many entries.
    #[must_use]
    pub const fn max_entries(self, max_entries: EntryCap) -> Self {
        Self { max_entries, ..self }
    }
}

/// Binds keys of one protection domain.
///
/// ```
/// use bareverbs_shell::objects::{DeviceContext, ProtectionDomain};
/// use bareverbs_shell::segments::{Binder, BinderConfig};
/// use bareverbs_shell::soft::{SoftConfig, SoftDevice, SoftFabric};
///
/// let fabric = SoftFabric::new(SoftConfig::default().devices(vec![SoftDevice::mlx5("mlx5_0")]))?;
/// let domain = ProtectionDomain::new(&DeviceContext::open(&fabric.symbols(), None)?, 1)?;
/// let binder = Binder::new(&domain, fabric.mlx5_symbols(), BinderConfig::default())?;
/// assert_eq!(binder.limits()?.cap().entries(), 30);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Binder {
    state: Mutex<State>,
    domain: Arc<ProtectionDomain>,
    mlx5: Arc<Mlx5Symbols>,
    config: BinderConfig,
    device: DeviceName,
}

#[derive(Debug, Default)]
struct State {
    ready: Option<Ready>,
    /// Numbers of bindings are not used twice, over all queue pairs.
    next_wr_id: u64,
}

/// A queue pair in working order, and how many entries go over it.
#[derive(Debug)]
struct Ready {
    pair: ListQueuePair,
    cap: EntryCap,
}

impl Binder {
    /// For keys of that domain, by that provider. Only whether the provider supports the device is asked.
    ///
    /// # Errors
    /// [`BindError::OtherLibrary`]; [`BindError::Unsupported`]; [`BindError::Shell`] if the device's name cannot be told.
    pub fn new(
        domain: &Arc<ProtectionDomain>,
        mlx5: Arc<Mlx5Symbols>,
        config: BinderConfig,
    ) -> Result<Self, BindError> {
        let context = domain.context();
        let (symbols, name) = (context.symbols(), context.name());
        if !mlx5.goes_with(symbols) {
            let (mlx5, verbs) = (Arc::clone(&mlx5.library), Arc::clone(&symbols.library));
            return Err(BindError::OtherLibrary { mlx5, verbs });
        }
        if !context.is_supported_by(&mlx5)? {
            return Err(BindError::Unsupported { device: Arc::clone(name) });
        }
        let device =
            DeviceName::new(name.as_bytes()).map_err(|error| Error::DeviceName { device: Arc::clone(name), error })?;
        Ok(Self { state: Mutex::default(), domain: Arc::clone(domain), mlx5, config, device })
    }

    /// The protection domain.
    pub fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.domain
    }

    /// The device's name.
    pub fn device(&self) -> &DeviceName {
        &self.device
    }

    /// What a window may be: for plans. The queue pair is made if there is none, since what it carries bounds a key's entries.
    ///
    /// # Errors
    /// [`BindError`]: no queue pair can be made, or it leaves no entry.
    pub fn limits(&self) -> Result<WindowLimits, BindError> {
        self.domain.context().check_use()?;
        // Before the lock is taken, so that it goes after it.
        let _told_later = report::later();
        let mut state = self.state();
        let ready = self.ready(&mut state)?;
        let limits = WindowLimits::new(self.config.chunk, ready.cap, self.mlx5.length_sum());
        state.ready = Some(ready);
        limits.map_err(|error| BindError::Limits { device: self.name(), error })
    }

    /// Makes a key for these regions and binds them to it, each whole and one after the other: they make up `range`.
    ///
    /// The key permits `access`, which each region must permit. Waits for the device, up to the configured deadline. One binding of a domain is under way at a time.
    ///
    /// # Errors
    /// [`BindError`]. There is then no key; the regions go with their last owner, but for those of a binding that may still be
    /// in flight on a queue pair that cannot be destroyed, which stay for ever.
    pub fn bind(
        &self,
        access: AccessFlags,
        parts: Vec<Arc<MemoryRegion>>,
        range: AddressRange,
    ) -> Result<Arc<BoundWindow>, BindError> {
        if !BINDABLE_ACCESS.contains(access) {
            return Err(BindError::Access { device: self.name(), got: access });
        }
        let entries = self.entries(&parts, range, access)?;
        // Before the lock, which a forked child may find held for ever.
        self.domain.context().check_use()?;
        // What is declared before the lock goes after it was given back, a panic's way out too: the regions, and a queue pair
        // on which a binding failed. What cannot be destroyed meanwhile is told last.
        let _told_later = report::later();
        let _kept = parts.clone();
        let mut taken = None;
        let mut state = self.state();
        // Taken out: whatever goes wrong from here on, a panic too, the next need makes another.
        let ready = taken.insert(self.ready(&mut state)?);
        let made = self
            .check_cap(parts.len(), ready.cap)
            .and_then(|()| Ok(IndirectKey::new(&self.domain, &self.mlx5, parts)?));
        let key = match made {
            Ok(key) => key,
            Err(error) => {
                // Nothing was posted: the queue pair is as it was.
                state.ready = taken.take();
                return Err(error);
            }
        };
        let wr_id = state.next_wr_id;
        state.next_wr_id = wr_id.wrapping_add(1);
        let key = self.bind_key(&mut ready.pair, (wr_id, access), key, &entries)?;
        state.ready = taken.take();
        Ok(Arc::new(BoundWindow::new(key, range, access, self.device)))
    }

    /// That keys with so many entries can be bound now: before anything is registered for them.
    pub(super) fn check_entries(&self, most: usize) -> Result<(), BindError> {
        let cap = self.limits()?.cap();
        self.check_cap(most, cap)
    }

    fn check_cap(&self, got: usize, cap: EntryCap) -> Result<(), BindError> {
        if got > cap.entries().into() {
            return Err(BindError::Entries { device: self.name(), got, cap: cap.entries() });
        }
        Ok(())
    }

    /// Posts the binding of a key and waits for it. On any error the key is left where the queue pair keeps it.
    fn bind_key(
        &self,
        pair: &mut ListQueuePair,
        (wr_id, access): (u64, AccessFlags),
        key: IndirectKey,
        entries: &[Sge],
    ) -> Result<IndirectKey, BindError> {
        let device = || self.name();
        pair.post(wr_id, access, key, entries).map_err(|errno| BindError::Refused {
            device: device(),
            errno,
            entries: entries.len(),
        })?;
        let mut waiting = Wait::at_most(self.config.deadline).begin();
        loop {
            let number = pair.qp_num();
            let mut room = [Wc::default()];
            // First the sign of what the poll returned, then what came.
            let polled = pair.poll(&mut room).map_err(|error| BindError::Poll { device: device(), error })?;
            let Some(completion) = { polled }.next() else {
                if let Err(Ended::Deadline { waited }) = waiting.idle() {
                    return Err(BindError::Late { device: device(), waited });
                }
                continue;
            };
            let done = completion.outcome().map_err(|error| BindError::Status { device: device(), error })?;
            if (done.wr_id, done.opcode, done.qp_num) != (wr_id, WcOpcode::DRIVER1, number) {
                let (came, opcode) = (done.wr_id, done.opcode);
                return Err(BindError::Unexpected { device: device(), expected_wr_id: wr_id, wr_id: came, opcode });
            }
            let gone = Error::State { device: device(), what: "the key that was posted is gone" };
            return pair.take_key().ok_or(BindError::Shell(gone));
        }
    }

    /// The list for the regions, after a look that they make up `range`, permit what the key is to permit, and can be counted.
    fn entries(
        &self,
        parts: &[Arc<MemoryRegion>],
        range: AddressRange,
        access: AccessFlags,
    ) -> Result<Vec<Sge>, BindError> {
        let missing = |at| BindError::Parts { device: self.name(), range, at };
        let limit_bytes = self.mlx5.length_sum().max_bytes();
        if range.len_bytes() > limit_bytes {
            return Err(BindError::Length { device: self.name(), got_bytes: range.len_bytes(), limit_bytes });
        }
        if parts.is_empty() {
            return Err(missing(range.base()));
        }
        let mut covered_bytes = 0_u64;
        let mut entries = Vec::with_capacity(parts.len());
        for part in parts {
            if !Arc::ptr_eq(part.domain(), &self.domain) {
                return Err(BindError::ForeignDomain { device: self.name() });
            }
            let (at, got_bytes) = (range.base().wrapping_add(covered_bytes), part.range().len_bytes());
            if part.range().base() != at || !range.covers(part.range()) {
                return Err(missing(at));
            }
            if !part.access().contains(access) {
                let (device, range, has) = (self.name(), part.range(), part.access());
                return Err(BindError::RegionAccess { device, range, access: has, got: access });
            }
            let too_long = |_| BindError::Length { device: self.name(), got_bytes, limit_bytes: u32::MAX.into() };
            let length = u32::try_from(got_bytes).map_err(too_long)?;
            entries.push(Sge { addr: part.key_base(), length, lkey: part.lkey() });
            // Within the range, so the sum fits.
            covered_bytes += got_bytes;
        }
        if covered_bytes != range.len_bytes() {
            return Err(missing(range.base().wrapping_add(covered_bytes)));
        }
        Ok(entries)
    }

    /// The queue pair, taken out, or a new one. To be put back by who has used it without a failure.
    fn ready(&self, state: &mut State) -> Result<Ready, BindError> {
        state.ready.take().map_or_else(|| self.make_ready(), Ok)
    }

    fn make_ready(&self) -> Result<Ready, BindError> {
        let cap_error = |error| BindError::Cap { device: self.name(), error };
        let reports = CapReports {
            device_max_sge: self.domain.context().attributes()?.orig_attr.max_sge,
            key_max_entries: MAX_KEY_ENTRIES,
            max_inline_bytes: u32::MAX,
        };
        let wished = EntryCap::least_of(reports).map_err(cap_error)?.min(self.config.max_entries);
        let port = (self.config.port, self.config.gid);
        let mut refused = None;
        for inline_bytes in wished.inline_wishes() {
            match ListQueuePair::new(&self.domain, &self.mlx5, port, inline_bytes) {
                Ok(pair) => {
                    let reports = CapReports { max_inline_bytes: pair.inline_bytes(), ..reports };
                    let cap = EntryCap::least_of(reports).map_err(cap_error)?;
                    // What it carries may be more than was wished for.
                    return Ok(Ready { pair, cap: cap.min(wished) });
                }
                Err(error) if is_too_large(&error) => refused = Some(error),
                Err(error) => return Err(BindError::of_queue_pair(self.context_name(), error)),
            }
        }
        // Not reached with none refused: a cap has at least one wish.
        let none = || NoListQueuePair::Shell(Error::Size { what: "a queue pair for bindings", got: 0 });
        Err(BindError::of_queue_pair(self.context_name(), refused.unwrap_or_else(none)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What a panic left behind is whole: the queue pair in use was taken out.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn context_name(&self) -> &Arc<str> {
        self.domain.context().name()
    }

    fn name(&self) -> Arc<str> {
        Arc::clone(self.context_name())
    }
}

/// Whether a queue pair was refused for its size: then a smaller one is asked for.
fn is_too_large(error: &NoListQueuePair) -> bool {
    matches!(error, NoListQueuePair::Shell(Error::Call(call))
        if call.call == "mlx5dv_create_qp" && call.errno.is_some_and(|errno| errno.0 == libc::EINVAL))
}
