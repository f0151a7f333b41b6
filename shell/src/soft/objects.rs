//! Making and destroying objects: limits, parents, and what may go while what is alive.
//!
//! What each call refuses, and with which number, is what soft-RoCE and the kernel answer. An error of 0 means: refused
//! with nothing said in `errno`.

use std::ffi::{c_int, c_void};
use std::ptr::with_exposed_provenance_mut;

use bareverbs_core::verbs::context::{ABI_COMPAT_OFFSET, QUERY_DEVICE_EX, QUERY_PORT, VERBS_CONTEXT_SZ};
use bareverbs_core::verbs::{AccessFlags, Context, ContextOps, Cq, Mr, Pd, PortState};

use crate::soft::async_events::{AsyncEvents, Subject};
use crate::soft::bytes::RegisteredMemory;
use crate::soft::c_objects::{VerbsContext, WholeCq};
use crate::soft::completion::CompletionQueue;
use crate::soft::dma_buf::Attached;
use crate::soft::entry;
use crate::soft::handles::{self, Kind, Place};
use crate::soft::indirect_keys::BINDABLE;
use crate::soft::mapping::{is_mapped, page_bytes};
use crate::soft::regions::{Region, check_access};
use crate::soft::signal::Signal;
use crate::soft::state::{ContextState, DeviceState, DomainState, State};

/// Completion vectors of a context.
const VECTORS: c_int = 1;

/// A region's addresses and its memory lie alike within pages of so many bytes.
const PAGE_BYTES: u64 = 4096;

/// Memory to be registered, and how.
pub(super) struct Registration {
    pub address: usize,
    pub length_bytes: usize,
    pub iova: u64,
    pub access: AccessFlags,
}

impl State {
    pub(super) fn place(&self, index: u32) -> Place {
        Place { slot: self.slot, index }
    }

    /// The device of a context.
    pub(super) fn device_of(&self, context: u32) -> Option<&DeviceState> {
        self.devices.get(self.contexts.get(context)?.device as usize)
    }

    pub(super) fn open(&mut self, device: u32) -> Result<usize, c_int> {
        let place = self.place(self.contexts.next_index());
        let state = self.devices.get_mut(device as usize).ok_or(libc::ENODEV)?;
        let events = if state.profile.has_events() { Some(Signal::new()?) } else { None };
        state.references += 1;
        let head = Context {
            device: with_exposed_provenance_mut(state.handle),
            ops: operations(&self.missing),
            cmd_fd: -1,
            async_fd: events.as_ref().map_or(-1, Signal::fd),
            num_comp_vectors: VECTORS,
        };
        let body = if state.profile.has_extended_context() && ABI_COMPAT_OFFSET.is_some() {
            let size = std::ptr::without_provenance_mut(size_of::<VerbsContext>());
            VerbsContext::extended(
                head,
                &[
                    (VERBS_CONTEXT_SZ.distance_bytes, size),
                    (QUERY_PORT.distance_bytes, entry::queries::query_port_with_length as *mut c_void),
                    (QUERY_DEVICE_EX.distance_bytes, entry::queries::query_device_ex as *mut c_void),
                ],
            )
        } else {
            VerbsContext::plain(head)
        };
        let handle = handles::create(place, body);
        self.contexts.insert(ContextState {
            handle,
            device,
            closed: false,
            children: 0,
            events: events.map(AsyncEvents::new),
        });
        Ok(handle)
    }

    /// Closes a context: always granted. What is alive on it stays behind and can be neither used nor destroyed.
    pub(super) fn close(&mut self, index: u32) -> Result<(), c_int> {
        let context = self.contexts.get_mut(index).ok_or(libc::EINVAL)?;
        let (handle, device, children) = (context.handle, context.device, context.children);
        context.closed = true;
        if children == 0 {
            self.contexts.remove(index);
        } else {
            self.blame(format!("ibv_close_device: context {handle:#x} has {children} live objects"));
        }
        if let Some(device) = self.devices.get_mut(device as usize) {
            device.references -= 1;
        }
        self.bury(Kind::Context, handle);
        Ok(())
    }

    pub(super) fn adopt(&mut self, context: u32, children: i32) {
        if let Some(context) = self.contexts.get_mut(context) {
            context.children = context.children.saturating_add_signed(children);
        }
    }

    pub(super) fn allocate_domain(&mut self, context: u32) -> Result<usize, c_int> {
        let device = self.device_of(context).ok_or(libc::EINVAL)?;
        let active = device.ports.iter().any(|port| port.state == PortState::ACTIVE);
        if device.profile.domain_needs_active_port() && !active {
            return Err(0);
        }
        let index = self.domains.next_index();
        let parent = self.context_pointer(context);
        let handle = handles::create(self.place(index), Pd { context: parent, handle: index });
        self.domains.insert(DomainState { handle, context, children: 0 });
        self.adopt(context, 1);
        Ok(handle)
    }

    pub(super) fn deallocate_domain(&mut self, index: u32) -> Result<(), c_int> {
        let domain = self.domains.get(index).ok_or(libc::EINVAL)?;
        if domain.children > 0 {
            return Err(libc::EBUSY);
        }
        let (handle, context) = (domain.handle, domain.context);
        self.domains.remove(index);
        self.adopt(context, -1);
        self.bury(Kind::Domain, handle);
        Ok(())
    }

    /// Checks a registration before its memory is believed in.
    pub(super) fn check_registration(&self, domain: u32, asked: &Registration) -> Result<(), c_int> {
        let device = self.domains.get(domain).and_then(|domain| self.device_of(domain.context)).ok_or(libc::EINVAL)?;
        if asked.length_bytes == 0 || asked.length_bytes as u64 > device.limits.region_bytes {
            return Err(libc::EINVAL);
        }
        if asked.address == 0 {
            return Err(libc::EFAULT);
        }
        if asked.address.checked_add(asked.length_bytes).is_none()
            || asked.iova.checked_add(asked.length_bytes as u64).is_none()
        {
            return Err(libc::EINVAL);
        }
        if !(asked.iova ^ asked.address as u64).is_multiple_of(PAGE_BYTES) {
            return Err(libc::EINVAL);
        }
        if asked.iova != asked.address as u64 && !device.profile.takes_iova() {
            return Err(device.profile.unsupported());
        }
        check_access(asked.access)?;
        if device.regions >= device.limits.regions {
            return Err(libc::ENOMEM);
        }
        // A GPU's memory, say, which a plain registration does not reach.
        if is_mapped(asked.address, asked.length_bytes) { Ok(()) } else { Err(libc::EFAULT) }
    }

    /// Checks a registration of a dma-buf before its memory is attached; `asked.address` is the offset in it.
    pub(super) fn check_dma_buf(&self, domain: u32, asked: &Registration) -> Result<(), c_int> {
        let device = self.domains.get(domain).and_then(|domain| self.device_of(domain.context)).ok_or(libc::EINVAL)?;
        if !device.profile.takes_iova() {
            return Err(device.profile.unsupported());
        }
        // Within a page both count alike: pages are translated, not bytes.
        let page = page_bytes();
        if asked.address as u64 % page != asked.iova % page
            || asked.iova.checked_add(asked.length_bytes as u64).is_none()
            || asked.length_bytes as u64 > device.limits.region_bytes
            || !(BINDABLE | AccessFlags::RELAXED_ORDERING).contains(asked.access)
        {
            return Err(libc::EINVAL);
        }
        check_access(asked.access)?;
        if device.regions >= device.limits.regions { Err(libc::ENOMEM) } else { Ok(()) }
    }

    /// Registers memory that passed [`State::check_registration`].
    pub(super) fn register(
        &mut self,
        domain: u32,
        asked: &Registration,
        memory: RegisteredMemory,
        attached: Option<Attached>,
    ) -> Result<usize, c_int> {
        let (index, key) = self.regions.next();
        let context = self.domains.get(domain).ok_or(libc::EINVAL)?.context;
        let body = Mr {
            context: self.context_pointer(context),
            pd: with_exposed_provenance_mut(self.domains.get(domain).map_or(0, |domain| domain.handle)),
            addr: with_exposed_provenance_mut(asked.address),
            length: asked.length_bytes,
            handle: index,
            lkey: key,
            rkey: key,
        };
        let handle = handles::create(self.place(index), body);
        let born = self.next_event();
        let (iova, access) = (asked.iova, asked.access);
        self.regions.insert(Region { handle, domain, iova, memory, lkey: key, access, born, _attached: attached });
        self.count_region(domain, 1);
        Ok(handle)
    }

    pub(super) fn deregister(&mut self, index: u32) -> Result<(), c_int> {
        let region = self.regions.remove(index).ok_or(libc::EINVAL)?;
        self.count_region(region.domain, -1);
        handles::scrub_region(region.handle);
        self.bury(Kind::Region, region.handle);
        Ok(())
    }

    fn count_region(&mut self, domain: u32, by: i32) {
        let Some(domain) = self.domains.get_mut(domain) else { return };
        domain.children = domain.children.saturating_add_signed(by);
        let context = domain.context;
        self.adopt(context, by);
        let Some(device) = self.contexts.get(context).map(|context| context.device) else { return };
        if let Some(device) = self.devices.get_mut(device as usize) {
            device.regions = device.regions.saturating_add_signed(by);
        }
    }

    /// Counts a queue pair with its parents.
    pub(super) fn count_pair(&mut self, domain: u32, queues: [u32; 2], by: i32) {
        for queue in queues {
            if let Some(queue) = self.queues.get_mut(queue) {
                queue.users = queue.users.saturating_add_signed(by);
            }
        }
        let Some(domain) = self.domains.get_mut(domain) else { return };
        domain.children = domain.children.saturating_add_signed(by);
        let context = domain.context;
        self.adopt(context, by);
        let Some(device) = self.contexts.get(context).map(|context| context.device) else { return };
        if let Some(device) = self.devices.get_mut(device as usize) {
            device.queue_pairs = device.queue_pairs.saturating_add_signed(by);
        }
    }

    pub(super) fn create_queue(
        &mut self,
        context: u32,
        entries: c_int,
        own_word: *mut c_void,
        vector: c_int,
        channel: Option<u32>,
    ) -> Result<usize, c_int> {
        let limit = self.device_of(context).ok_or(libc::EINVAL)?.limits.completion_entries;
        let capacity =
            u32::try_from(entries).ok().filter(|entries| (1..=limit).contains(entries)).ok_or(libc::EINVAL)?;
        if !(0..VECTORS).contains(&vector) {
            return Err(libc::EINVAL);
        }
        let index = self.queues.next_index();
        let channel_handle = match channel.and_then(|channel| self.channels.get_mut(channel)) {
            None => std::ptr::null_mut(),
            Some(channel) => {
                channel.users += 1;
                with_exposed_provenance_mut(channel.handle)
            }
        };
        let head = Cq {
            context: self.context_pointer(context),
            channel: channel_handle,
            cq_context: own_word,
            handle: index,
            cqe: entries,
        };
        let handle = handles::create(self.place(index), WholeCq::new(head));
        let mut queue = CompletionQueue::new(handle, context, capacity as usize);
        (queue.channel, queue.word) = (channel, own_word.expose_provenance());
        self.queues.insert(queue);
        self.adopt(context, 1);
        Ok(handle)
    }

    pub(super) fn destroy_queue(&mut self, index: u32) -> Result<(), c_int> {
        let queue = self.queues.get(index).ok_or(libc::EINVAL)?;
        if queue.users > 0 {
            return Err(libc::EBUSY);
        }
        let (handle, context, channel, events) = (queue.handle, queue.context, queue.channel, queue.events);
        self.refuse_unacknowledged("ibv_destroy_cq", handle, events)?;
        self.queues.remove(index);
        self.forget_events(context, Subject::Queue, index);
        if let Some(channel) = channel {
            self.leave_channel(index, channel);
        }
        self.adopt(context, -1);
        self.bury(Kind::CompletionQueue, handle);
        Ok(())
    }

    pub(super) fn context_pointer(&self, context: u32) -> *mut Context {
        with_exposed_provenance_mut(self.contexts.get(context).map_or(0, |context| context.handle))
    }
}

/// The table of inline operations of every context, without those that are to be missing.
fn operations(missing: &[&str]) -> ContextOps {
    let has = |name: &str| !missing.contains(&name);
    ContextOps {
        poll_cq: has("ibv_poll_cq").then_some(entry::data_path::poll_cq),
        req_notify_cq: has("ibv_req_notify_cq").then_some(entry::data_path::req_notify_cq),
        post_send: has("ibv_post_send").then_some(entry::data_path::post_send),
        post_recv: has("ibv_post_recv").then_some(entry::data_path::post_recv),
        ..ContextOps::EMPTY
    }
}
