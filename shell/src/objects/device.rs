//! Devices: listed without failing as a whole, opened, closed last.
//!
//! # Safety
//!
//! This file guarantees that a device list is freed once on every path, that a device is opened from a list that is still
//! there, and that a context is closed after everything made from it (children hold it by `Arc`).
#![allow(unsafe_code)]

use std::borrow::Cow;
use std::ffi::{CStr, c_int};
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread::ThreadId;

use bareverbs_core::verbs::inline_calls::{CheckedContext, QueueId};
use bareverbs_core::verbs::{Context, Device, DeviceAttrEx, EventType, NodeType, PortState, TransportType, WcStatus};

use crate::errno;
use crate::error::{CallError, Error};
use crate::objects::events::{DeviceEvent, Events};
use crate::objects::extended;
use crate::objects::gid::{self, GidInfo};
use crate::objects::handle::{Handle, Object, Origin};
use crate::objects::port::{self, PortInfo};
use crate::objects::status;
use crate::symbols::{Mlx5Symbols, Symbols};

/// A device of a list, and what it says of itself.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceEntry {
    /// Its name (`mlx5_0`, `rxe0`, `rdma_en2`).
    pub name: String,
    /// GUID of the node, where the library can tell.
    pub guid: Option<u64>,
    /// Kind of node.
    pub node_type: NodeType,
    /// Transport.
    pub transport: TransportType,
    /// Its ports, or why it could not be opened and asked.
    pub ports: Result<Vec<PortEntry>, Error>,
}

/// A port of a listed device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PortEntry {
    /// Its attributes.
    pub info: PortInfo,
    /// Its GIDs, without empty slots.
    pub gids: Vec<GidInfo>,
}

/// Lists the devices of a library. A device that cannot be opened or asked is listed all the same, with its error.
///
/// # Errors
/// [`Error::NoKernelRdma`] if the kernel has no RDMA; [`Error::Call`] if listing fails otherwise. An empty list is
/// `Ok(empty)`.
#[doc(alias = "ibv_get_device_list")]
pub fn list_devices(symbols: &Arc<Symbols>) -> Result<Vec<DeviceEntry>, Error> {
    let list = DeviceList::new(symbols)?;
    Ok(list.iter().map(|device| list.entry(device)).collect())
}

/// A device list, freed when dropped.
struct DeviceList<'symbols> {
    symbols: &'symbols Arc<Symbols>,
    list: NonNull<*mut Device>,
    len: usize,
}

impl<'symbols> DeviceList<'symbols> {
    fn new(symbols: &'symbols Arc<Symbols>) -> Result<Self, Error> {
        let mut len: c_int = 0;
        errno::clear();
        // SAFETY: the count's storage is ours.
        let list = unsafe { (symbols.get_device_list)(&raw mut len) };
        match NonNull::new(list) {
            Some(list) => Ok(Self { symbols, list, len: usize::try_from(len).unwrap_or(0) }),
            None => match errno::last() {
                Some(errno) if errno.0 == libc::ENOSYS => {
                    Err(Error::NoKernelRdma { library: Arc::clone(&symbols.library) })
                }
                errno => Err(CallError::new("ibv_get_device_list", &Arc::from(""), errno).into()),
            },
        }
    }

    fn iter(&self) -> impl Iterator<Item = NonNull<Device>> {
        (0..self.len).filter_map(|index| {
            // SAFETY: the list has `len` entries and is freed only when `self` is dropped.
            let entry = unsafe { self.list.as_ptr().add(index) };
            // SAFETY: in bounds, as said.
            NonNull::new(unsafe { entry.read() })
        })
    }

    fn name(&self, device: NonNull<Device>) -> String {
        // SAFETY: the device is of this list, which is not freed yet.
        let name = unsafe { (self.symbols.get_device_name)(device.as_ptr()) };
        if name.is_null() {
            return String::new();
        }
        // SAFETY: not null; a C string inside the device.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }

    fn names(&self) -> Vec<String> {
        self.iter().map(|device| self.name(device)).collect()
    }

    fn entry(&self, device: NonNull<Device>) -> DeviceEntry {
        let name = self.name(device);
        let guid = self.symbols.get_device_guid.map(|call| {
            // SAFETY: the device is of this list, which is not freed yet.
            u64::from_be(unsafe { call(device.as_ptr()) })
        });
        // SAFETY: as before; the field is set when the list is made.
        let node_type = unsafe { (*device.as_ptr()).node_type };
        // SAFETY: as before.
        let transport = unsafe { (*device.as_ptr()).transport_type };
        let ports = self.open(device, &name).and_then(|context| context.port_entries());
        DeviceEntry { name, guid, node_type, transport, ports }
    }

    fn open(&self, device: NonNull<Device>, name: &str) -> Result<Arc<DeviceContext>, Error> {
        let origin = Origin { symbols: Arc::clone(self.symbols), device: Arc::from(name), process: std::process::id() };
        // SAFETY: as before; the field is set when the list is made.
        let transport = unsafe { (*device.as_ptr()).transport_type };
        errno::clear();
        // SAFETY: the device is of this list, which is not freed yet; the context keeps what it needs of it.
        let raw = unsafe { (self.symbols.open_device)(device.as_ptr()) };
        // SAFETY: just returned by this library, or null; errno was cleared.
        let handle: Handle<Context> = unsafe { Handle::adopt(raw, origin, "ibv_open_device") }?;
        // SAFETY: 1: the context is live, and what is made from it holds it by Arc; 2: a provider sets its operations when
        // it opens the context.
        let checked = unsafe { CheckedContext::new(handle.raw()) }
            .map_err(|slot| Error::MissingSlot { device: Arc::clone(&handle.origin().device), slot })?;
        let single_threaded = std::env::var_os("MLX5_SINGLE_THREADED").is_some_and(|value| value == "1");
        let only_thread = single_threaded.then(|| std::thread::current().id());
        // SAFETY: the context is live; its start is the same in every library.
        let async_fd = unsafe { (*handle.as_ptr()).async_fd };
        let events = Events::new(self.symbols, async_fd);
        Ok(Arc::new(DeviceContext { handle, checked, transport, only_thread, events }))
    }
}

impl Drop for DeviceList<'_> {
    fn drop(&mut self) {
        // SAFETY: made by this library, freed once.
        unsafe { (self.symbols.free_device_list)(self.list.as_ptr()) };
    }
}

impl Object for Context {
    type Parents = Origin;
    const DESTROY: &'static str = "ibv_close_device";

    fn destroy(parents: &Origin) -> unsafe extern "C" fn(*mut Self) -> c_int {
        Self::origin(parents).symbols.close_device
    }

    fn origin(parents: &Origin) -> &Origin {
        parents
    }
}

/// An opened device. Everything made from it holds it, so it is closed last.
#[derive(Debug)]
pub struct DeviceContext {
    handle: Handle<Context>,
    checked: CheckedContext,
    transport: TransportType,
    only_thread: Option<ThreadId>,
    events: Events,
}

// SAFETY: the checked context is an address and a proof; calls on a context are safe from any thread (the library locks).
unsafe impl Send for DeviceContext {}
// SAFETY: as above; through a shared context only fields that do not change after opening are read.
unsafe impl Sync for DeviceContext {}

impl DeviceContext {
    /// Opens a device by name; without a name, the first with an active port, else the first.
    ///
    /// # Errors
    /// [`Error::NoDevice`] with the names there are; [`Error::NoKernelRdma`]; [`Error::Call`] if opening fails;
    /// [`Error::MissingSlot`] if the provider lacks an inline operation.
    #[doc(alias = "ibv_open_device")]
    pub fn open(symbols: &Arc<Symbols>, name: Option<&str>) -> Result<Arc<Self>, Error> {
        let list = DeviceList::new(symbols)?;
        let none = || Error::NoDevice {
            wanted: name.map(str::to_owned),
            available: list.names(),
            library: Arc::clone(&symbols.library),
        };
        match name {
            Some(name) => {
                let device = list.iter().find(|device| list.name(*device) == name).ok_or_else(none)?;
                list.open(device, name)
            }
            None => {
                let mut first = None;
                for device in list.iter() {
                    let opened = list.open(device, &list.name(device));
                    match opened {
                        Ok(context) if context.has_active_port() => return Ok(context),
                        other => first = first.or(Some(other)),
                    }
                }
                first.unwrap_or_else(|| Err(none()))
            }
        }
    }

    /// The device's name.
    pub fn name(&self) -> &Arc<str> {
        &self.handle.origin().device
    }

    /// The library that opened it.
    pub fn symbols(&self) -> &Arc<Symbols> {
        &self.handle.origin().symbols
    }

    /// The device's transport.
    pub fn transport(&self) -> TransportType {
        self.transport
    }

    /// The C context, for calls that this crate does not wrap. It is live as long as `self`.
    pub fn as_ptr(&self) -> *mut Context {
        self.handle.as_ptr()
    }

    /// Its proof of inline operations.
    pub fn checked(&self) -> CheckedContext {
        self.checked
    }

    /// Attributes of a port, counted from 1.
    ///
    /// # Errors
    /// [`Error::Call`] if the library refuses the port.
    pub fn port(&self, port: u8) -> Result<PortInfo, Error> {
        self.check_use()?;
        port::query(self, port)
    }

    /// GIDs of a port without empty slots, each with its index in the port's table.
    ///
    /// # Errors
    /// [`Error::Call`] if the port cannot be asked. A slot that cannot be read is skipped.
    pub fn gids(&self, port: u8) -> Result<Vec<GidInfo>, Error> {
        Ok(gid::table(self, &self.port(port)?))
    }

    /// Attributes of the device. What an old library or provider cannot tell is 0.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without `ibv_query_device`; [`Error::Call`] if the library refuses.
    #[doc(alias = "ibv_query_device", alias = "ibv_query_device_ex")]
    pub fn attributes(&self) -> Result<DeviceAttrEx, Error> {
        self.check_use()?;
        extended::device_attributes(self)
    }

    /// Whether an mlx5 provider takes the device for its own, which is not yet that keys can be made on it. The provider must
    /// go with the library that opened the device.
    #[doc(alias = "mlx5dv_is_supported")]
    pub(crate) fn is_supported_by(&self, mlx5: &Mlx5Symbols) -> Result<bool, Error> {
        self.check_use()?;
        // SAFETY: the context is live, and this field of it the same in every library.
        let device = unsafe { (*self.as_ptr()).device };
        // SAFETY: the device is of the library that the provider serves, and lives as long as its context.
        Ok(mlx5.goes_with(self.symbols()) && unsafe { (mlx5.is_supported)(device) })
    }

    /// Number of ports; 1 where the library cannot be asked.
    pub fn port_count(&self) -> u8 {
        self.attributes().map_or(1, |attr| attr.orig_attr.phys_port_cnt.max(1))
    }

    /// A completion's status in the library's words, or in [`WcStatus::text`]'s where it has none.
    #[doc(alias = "ibv_wc_status_str")]
    pub fn status_text(&self, status: WcStatus) -> Cow<'static, str> {
        status::in_words(self.symbols(), status)
    }

    /// Closes the device if nothing else holds it; else it goes with its last owner.
    pub(crate) fn close_if_last(self: Arc<Self>) -> Option<Result<(), CallError>> {
        Arc::into_inner(self).map(|this| this.handle.close())
    }

    /// Takes what the device has reported on its own, and acknowledges it. Fatal events break the links that they concern.
    /// At most 64 are taken; ask again where so many came.
    ///
    /// Nobody else may take events of this context. A library without events has none: where it is so, as on Apple's
    /// systems, a device that fails is seen by what its calls answer, or by the deadline of a wait.
    ///
    /// # Errors
    /// [`Error::Call`] if an event cannot be taken.
    #[doc(alias = "ibv_get_async_event")]
    pub fn take_events(&self) -> Result<Vec<DeviceEvent>, Error> {
        let mut taken = Vec::new();
        self.each_event(|event| taken.push(event))?;
        Ok(taken)
    }

    /// As [`take_events`](Self::take_events), giving each to `on`; answers how many.
    pub(crate) fn each_event(&self, on: impl FnMut(DeviceEvent)) -> Result<usize, Error> {
        self.check_use()?;
        Ok(self.events.take(self.as_ptr(), self.name(), on)?)
    }

    /// What is readable while an event waits to be taken, where there are events.
    pub(crate) fn event_file(&self) -> Option<c_int> {
        self.events.file()
    }

    pub(super) fn events(&self) -> &Events {
        &self.events
    }

    /// How many fatal events were taken: when it did not change, nothing broke.
    pub(crate) fn fatal_count(&self) -> u32 {
        self.events.fatal_count()
    }

    /// The fatal event that concerns this queue pair or completion queue, if one was taken.
    pub(crate) fn fault_of(&self, qp_num: u32, queue: QueueId) -> Option<EventType> {
        self.events.fault_of(qp_num, queue)
    }

    /// That this process and this thread may use the device.
    pub(crate) fn check_use(&self) -> Result<(), Error> {
        self.origin().check_process()?;
        match self.only_thread {
            Some(only) if only != std::thread::current().id() => {
                Err(Error::SecondThread { device: Arc::clone(self.name()) })
            }
            _ => Ok(()),
        }
    }

    /// That this process opened it.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        self.origin().check_process()
    }

    /// Whether only the thread that opened it may use it.
    pub(crate) fn is_for_one_thread(&self) -> bool {
        self.only_thread.is_some()
    }

    pub(super) fn origin(&self) -> &Origin {
        self.handle.origin()
    }

    fn has_active_port(&self) -> bool {
        (1..=self.port_count()).any(|port| self.port(port).is_ok_and(|info| info.state() == PortState::ACTIVE))
    }

    fn port_entries(&self) -> Result<Vec<PortEntry>, Error> {
        (1..=self.port_count())
            .map(|port| {
                let info = self.port(port)?;
                Ok(PortEntry { gids: gid::table(self, &info), info })
            })
            .collect()
    }

    /// Whether this process opened it.
    pub(crate) fn is_ours(&self) -> bool {
        self.origin().is_ours()
    }

    /// A failure of `call` on this device, with what its port says.
    pub(crate) fn call_error(&self, call: &'static str, errno: Option<errno::Errno>, port: Option<u8>) -> CallError {
        let state = port.and_then(|port| Some((port, port::query(self, port).ok()?.state())));
        CallError { port: state, ..CallError::new(call, self.name(), errno) }
    }
}
