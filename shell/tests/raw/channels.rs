//! Completion channels and asynchronous events, called raw.
#![allow(unsafe_code)]
#![allow(clippy::undocumented_unsafe_blocks, reason = "every block calls the table with handles that the test owns")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]

use std::ffi::{c_int, c_uint, c_void};

use bareverbs_core::verbs::{AsyncEvent, CompChannel, Context, Cq, EventType, QpType};

use super::calls::{Env, errno};
use super::ends::{CAP, End};

/// A channel, and an end whose completion queue reports to it.
pub struct Told {
    pub channel: *mut CompChannel,
    pub end: End,
}

impl Told {
    /// A channel that does not block, and an end on it.
    pub fn new(env: &Env, kind: QpType, entries: c_int) -> Self {
        let context = env.open();
        let channel = env.create_channel(context);
        let cq = env.create_cq_on(context, entries, channel, std::ptr::without_provenance_mut(77));
        assert!(!cq.is_null(), "errno {}", errno());
        Self { channel, end: End::on(env, context, cq, CAP, |init| init.qp_type = kind) }
    }

    /// Fetches an event and acknowledges it; whether there was one.
    pub fn woken(&self) -> bool {
        let Ok((cq, word)) = self.end.env.cq_event(self.channel) else { return false };
        assert_eq!((cq, word.addr()), (self.end.cq, 77));
        self.end.env.ack_cq(cq, 1);
        true
    }

    pub fn tear_down(self) {
        let Self { channel, end } = self;
        let (env, context) = (end.env.clone(), end.context);
        end.tear_down_to_context();
        assert_eq!([env.destroy_channel(channel), env.close(context)], [0; 2]);
    }
}

/// Keeps a file from blocking.
pub fn do_not_block(fd: c_int) {
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        assert!(flags >= 0);
        assert_eq!(libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK), 0);
    }
}

/// Lets a file block.
pub fn block(fd: c_int) {
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        assert_eq!(libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_NONBLOCK), 0);
    }
}

/// Whether a file can be read.
pub fn readable(fd: c_int) -> bool {
    let mut file = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    unsafe { libc::poll(&mut file, 1, 0) == 1 }
}

impl Env {
    /// A channel whose file does not block.
    pub fn create_channel(&self, context: *mut Context) -> *mut CompChannel {
        let channel = unsafe { (self.symbols.create_comp_channel.expect("it is there"))(context) };
        assert!(!channel.is_null(), "errno {}", errno());
        do_not_block(channel_fd(channel));
        channel
    }

    pub fn destroy_channel(&self, channel: *mut CompChannel) -> c_int {
        unsafe { (self.symbols.destroy_comp_channel.expect("it is there"))(channel) }
    }

    pub fn create_cq_on(
        &self,
        context: *mut Context,
        entries: c_int,
        to: *mut CompChannel,
        word: *mut c_void,
    ) -> *mut Cq {
        unsafe { (self.symbols.create_cq)(context, entries, word, to, 0) }
    }

    /// Fetches an event; the errno where there is none.
    pub fn cq_event(&self, channel: *mut CompChannel) -> Result<(*mut Cq, *mut c_void), c_int> {
        let (mut cq, mut word) = (std::ptr::null_mut(), std::ptr::null_mut());
        match unsafe { (self.symbols.get_cq_event.expect("it is there"))(channel, &mut cq, &mut word) } {
            0 => Ok((cq, word)),
            -1 => Err(errno()),
            other => panic!("{other}"),
        }
    }

    pub fn ack_cq(&self, cq: *mut Cq, count: c_uint) {
        unsafe { (self.symbols.ack_cq_events.expect("it is there"))(cq, count) }
    }

    pub fn arm(&self, cq: *mut Cq, solicited_only: bool) -> c_int {
        unsafe { ((*(*cq).context).ops.req_notify_cq.unwrap())(cq, solicited_only.into()) }
    }

    /// Fetches an asynchronous event: its type, and the address or the port that it is about. It is not acknowledged.
    pub fn async_event(&self, context: *mut Context) -> Result<AsyncEvent, c_int> {
        let mut event: AsyncEvent = unsafe { std::mem::zeroed() };
        match unsafe { (self.symbols.get_async_event.expect("it is there"))(context, &mut event) } {
            0 => Ok(event),
            -1 => Err(errno()),
            other => panic!("{other}"),
        }
    }

    pub fn ack_async(&self, mut event: AsyncEvent) {
        unsafe { (self.symbols.ack_async_event.expect("it is there"))(&mut event) }
    }

    /// Waits for an event of a type, acknowledges it and all others; what it is about, as a number.
    pub fn wait_for(&self, context: *mut Context, wanted: EventType) -> usize {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        loop {
            assert!(std::time::Instant::now() < deadline, "no {wanted:?} came");
            let Ok(event) = self.async_event(context) else {
                std::thread::yield_now();
                continue;
            };
            self.ack_async(event);
            if event.event_type == wanted {
                return match wanted {
                    EventType::CQ_ERR => unsafe { event.element.cq }.addr(),
                    EventType::QP_FATAL | EventType::SQ_DRAINED => unsafe { event.element.qp }.addr(),
                    _ => (unsafe { event.element.port_num }) as usize,
                };
            }
        }
    }
}

pub fn channel_fd(channel: *mut CompChannel) -> c_int {
    unsafe { (*channel).fd }
}
