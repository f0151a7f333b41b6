//! A fabric's table with functions of the test in front: objects that are laid out wrongly, posts that are watched, polls
//! that answer as a test says.
//!
//! What to do is the thread's own, so that tests run beside each other: the wrapped table is for the thread that made it.
//!
//! # Safety
//!
//! The functions here pass on what they are given, to the table that they stand in front of; what they write lies in objects
//! that this table has just made.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use bareverbs_core::verbs::event::EventElement;
use bareverbs_core::verbs::{
    AsyncEvent, Be32, CompChannel, Context, ContextOps, Cq, Device, EventType, Mr, Pd, Qp, QpAttr, QpInitAttr, QpState,
    QpType, RecvWr, SendFlags, SendWr, Wc, WcStatus,
};
use bareverbs_shell::symbols::{SymbolTable, Symbols};

/// What a library of another layout would make of an object: the field that is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoiled {
    CqContext,
    QpContext,
    QpPd,
    QpSendCq,
    QpRecvCq,
    QpNumber,
    QpState,
    QpType,
    /// The completion queue says that it has one entry less than was asked for, or fewer than none.
    CqOneLess,
    CqNegative,
    /// The queue pair says that it takes 16 inline bytes.
    InlineOf16,
    MrContext,
    MrPd,
    MrAddr,
    MrLength,
    /// The provider lacks one of the four inline operations.
    NoPollCq,
    NoReqNotifyCq,
    NoPostSend,
    NoPostRecv,
    /// A completion queue holds two entries, whatever was asked for.
    SmallQueue,
    /// Every queue pair has this number.
    Numbered(u32),
}

/// A request as it was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    pub wr_id: u64,
    /// The immediate's four bytes, as they lie in memory.
    pub immediate: [u8; 4],
    pub inline: bool,
    pub signalled: bool,
}

thread_local! {
    static REAL: RefCell<Option<Arc<Symbols>>> = const { RefCell::new(None) };
    static OPERATIONS: Cell<ContextOps> = const { Cell::new(ContextOps::EMPTY) };
    static SPOILED: Cell<Option<Spoiled>> = const { Cell::new(None) };
    static SENDS: RefCell<Vec<Posted>> = const { RefCell::new(Vec::new()) };
    static RECEIVES: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    static EVENTS: RefCell<VecDeque<EventType>> = const { RefCell::new(VecDeque::new()) };
    static ENDLESS_EVENTS: Cell<Option<EventType>> = const { Cell::new(None) };
    /// Scripted events that were taken: each is acknowledged before the next one is taken.
    static TO_ACKNOWLEDGE: Cell<u32> = const { Cell::new(0) };
    static EMPTY_EVENT: Cell<bool> = const { Cell::new(false) };
    static EMPTY_COMPLETION_EVENT: Cell<bool> = const { Cell::new(false) };
    static MADE_UP: Cell<u32> = const { Cell::new(0) };
    static LAST_QUEUE: Cell<*mut Cq> = const { Cell::new(std::ptr::null_mut()) };
    static ON_QUEUE: RefCell<Option<Box<dyn Fn()>>> = const { RefCell::new(None) };
    static ON_ARMING: RefCell<Option<Box<dyn Fn()>>> = const { RefCell::new(None) };
    static LAST_PAIR: Cell<*mut Qp> = const { Cell::new(std::ptr::null_mut()) };
    static POLLS: RefCell<VecDeque<Vec<Wc>>> = const { RefCell::new(VecDeque::new()) };
}

/// The table, with this thread's functions in front.
pub fn wrap(real: Arc<Symbols>, spoiled: Option<Spoiled>) -> Arc<Symbols> {
    SPOILED.set(spoiled);
    let wrapped = SymbolTable {
        open_device,
        create_cq,
        create_qp,
        reg_mr,
        query_qp: real.table().query_qp.map(|_| query_qp as _),
        get_async_event: real.table().get_async_event.map(|_| get_async_event as _),
        ack_async_event: Some(ack_async_event),
        get_cq_event: Some(get_cq_event),
        ack_cq_events: Some(ack_cq_events),
        ..real.table().clone()
    };
    REAL.set(Some(real));
    // SAFETY: the functions in front pass on what they are given; what they spoil is what the shell must notice.
    Arc::new(unsafe { Symbols::new(wrapped) })
}

/// The table, with words of its own for every completion's status; null for success.
pub fn worded(real: Arc<Symbols>) -> Arc<Symbols> {
    let worded = SymbolTable { wc_status_str: Some(wc_status_str), ..real.table().clone() };
    // SAFETY: the others are the fabric's own; this one answers null or a static C string.
    Arc::new(unsafe { Symbols::new(worded) })
}

extern "C" fn wc_status_str(status: WcStatus) -> *const c_char {
    if status == WcStatus::SUCCESS { std::ptr::null() } else { c"words of the library's".as_ptr() }
}

/// The next event of the device's is none: the call answers 0 and fills nothing in.
pub fn script_empty_event() {
    EMPTY_EVENT.set(true);
}

/// The next event of a completion queue's is none: the call answers 0 and fills nothing in.
pub fn script_empty_completion_event() {
    EMPTY_COMPLETION_EVENT.set(true);
}

/// From now on, what is made is spoiled like this.
pub fn spoil(what: Option<Spoiled>) {
    SPOILED.set(what);
}

/// The device reports this: about the queue pair or completion queue made last, where it is of one, else about nobody.
pub fn script_event(event: EventType) {
    EVENTS.with_borrow_mut(|events| events.push_back(event));
}

/// The device reports this again and again, of nobody: for good, with `None` no more.
pub fn script_endless_events(event: Option<EventType>) {
    ENDLESS_EVENTS.set(event);
}

/// So many times, fetching from a completion channel answers that the queue made last has something.
pub fn script_made_up_completion_events(count: u32) {
    MADE_UP.set(count);
}

/// How many of those are left.
pub fn made_up_completion_events() -> u32 {
    MADE_UP.get()
}

/// What happens in the midst of making a completion queue, when the library has made it.
pub fn on_making_a_queue(then: Option<Box<dyn Fn()>>) {
    ON_QUEUE.set(then);
}

/// What happens between a call that arms a completion queue and the arming.
pub fn on_arming(then: Option<Box<dyn Fn()>>) {
    ON_ARMING.set(then);
}

/// The next poll answers with these entries and asks nobody.
pub fn script_poll(entries: Vec<Wc>) {
    POLLS.with_borrow_mut(|polls| polls.push_back(entries));
}

/// Sends that this thread posted.
pub fn sends() -> Vec<Posted> {
    SENDS.with_borrow(Clone::clone)
}

/// Numbers of the receives that this thread posted.
pub fn receives() -> Vec<u64> {
    RECEIVES.with_borrow(Clone::clone)
}

/// Four bytes as the word that they are in memory.
pub fn raw_word(bytes: [u8; 4]) -> Be32 {
    // SAFETY: the word is four plain bytes.
    unsafe { std::mem::transmute::<[u8; 4], Be32>(bytes) }
}

fn real() -> Arc<Symbols> {
    REAL.with_borrow(|real| Arc::clone(real.as_ref().expect("wrapped on this thread")))
}

fn is_spoiled(what: Spoiled) -> bool {
    SPOILED.get() == Some(what)
}

/// An address that is none of the objects'.
fn elsewhere<T>() -> *mut T {
    std::ptr::without_provenance_mut(0xdead_0000)
}

unsafe extern "C" fn open_device(device: *mut Device) -> *mut Context {
    // SAFETY: passed on.
    let context = unsafe { (real().open_device)(device) };
    if context.is_null() {
        return context;
    }
    // SAFETY: just made; its table is the provider's to write, and nobody reads it yet.
    let ops = unsafe { &mut (*context).ops };
    OPERATIONS.set(*ops);
    *ops = ContextOps {
        poll_cq: (!is_spoiled(Spoiled::NoPollCq)).then_some(poll_cq),
        post_send: (!is_spoiled(Spoiled::NoPostSend)).then_some(post_send),
        post_recv: (!is_spoiled(Spoiled::NoPostRecv)).then_some(post_recv),
        req_notify_cq: ops.req_notify_cq.filter(|_| !is_spoiled(Spoiled::NoReqNotifyCq)).map(|_| req_notify_cq as _),
        ..*ops
    };
    context
}

unsafe extern "C" fn create_cq(
    context: *mut Context,
    entries: c_int,
    word: *mut c_void,
    channel: *mut CompChannel,
    vector: c_int,
) -> *mut Cq {
    let asked = entries;
    let entries = if is_spoiled(Spoiled::SmallQueue) { 2 } else { entries };
    // SAFETY: passed on.
    let queue = unsafe { (real().create_cq)(context, entries, word, channel, vector) };
    LAST_QUEUE.set(queue);
    ON_QUEUE.with_borrow(|then| then.iter().for_each(|then| then()));
    // SAFETY: null, or just made, and nobody reads it yet.
    if let Some(queue) = unsafe { queue.as_mut() } {
        match SPOILED.get() {
            Some(Spoiled::CqContext) => queue.context = elsewhere(),
            Some(Spoiled::CqOneLess) => queue.cqe = entries - 1,
            Some(Spoiled::CqNegative) => queue.cqe = -1,
            // Nor does it say so.
            Some(Spoiled::SmallQueue) => queue.cqe = asked,
            _ => {}
        }
    }
    queue
}

unsafe extern "C" fn create_qp(pd: *mut Pd, init: *mut QpInitAttr) -> *mut Qp {
    // SAFETY: passed on.
    let pair = unsafe { (real().create_qp)(pd, init) };
    LAST_PAIR.set(pair);
    if !pair.is_null() && is_spoiled(Spoiled::InlineOf16) {
        // SAFETY: the caller's attributes, which the call writes its sizes to.
        unsafe { (*init).cap.max_inline_data = 16 };
    }
    // SAFETY: null, or just made, and nobody reads it yet.
    if let Some(pair) = unsafe { pair.as_mut() } {
        match SPOILED.get() {
            Some(Spoiled::QpContext) => pair.context = elsewhere(),
            Some(Spoiled::QpPd) => pair.pd = elsewhere(),
            Some(Spoiled::QpSendCq) => pair.send_cq = elsewhere(),
            Some(Spoiled::QpRecvCq) => pair.recv_cq = elsewhere(),
            Some(Spoiled::QpNumber) => pair.qp_num |= 1 << 24,
            Some(Spoiled::Numbered(number)) => pair.qp_num = number,
            Some(Spoiled::QpState) => pair.state = QpState::RTS,
            Some(Spoiled::QpType) => pair.qp_type = QpType::RC,
            _ => {}
        }
    }
    pair
}

unsafe extern "C" fn query_qp(pair: *mut Qp, attr: *mut QpAttr, mask: c_int, init: *mut QpInitAttr) -> c_int {
    let query = real().query_qp.expect("the fabric has it");
    // SAFETY: passed on.
    let returned = unsafe { query(pair, attr, mask, init) };
    if is_spoiled(Spoiled::InlineOf16) {
        // SAFETY: the caller's storage, which was just filled.
        unsafe { (*attr).cap.max_inline_data = 16 };
    }
    returned
}

unsafe extern "C" fn reg_mr(pd: *mut Pd, addr: *mut c_void, length: usize, access: c_int) -> *mut Mr {
    // SAFETY: passed on.
    let region = unsafe { (real().reg_mr)(pd, addr, length, access) };
    // SAFETY: null, or just made, and nobody reads it yet.
    if let Some(region) = unsafe { region.as_mut() } {
        match SPOILED.get() {
            Some(Spoiled::MrContext) => region.context = elsewhere(),
            Some(Spoiled::MrPd) => region.pd = elsewhere(),
            Some(Spoiled::MrAddr) => region.addr = elsewhere(),
            Some(Spoiled::MrLength) => region.length += 1,
            _ => {}
        }
    }
    region
}

unsafe extern "C" fn get_async_event(context: *mut Context, event: *mut AsyncEvent) -> c_int {
    if EMPTY_EVENT.replace(false) {
        return 0;
    }
    let next = EVENTS.with_borrow_mut(VecDeque::pop_front);
    match next.or(ENDLESS_EVENTS.get()) {
        Some(event_type) => {
            let element = match event_type {
                EventType::QP_FATAL | EventType::QP_REQ_ERR | EventType::QP_ACCESS_ERR => {
                    EventElement { qp: LAST_PAIR.get() }
                }
                EventType::CQ_ERR => EventElement { cq: LAST_QUEUE.get() },
                _ => EventElement { port_num: 1 },
            };
            TO_ACKNOWLEDGE.set(TO_ACKNOWLEDGE.get() + 1);
            // SAFETY: the caller's storage is an event.
            unsafe { event.write(AsyncEvent { element, event_type }) };
            0
        }
        None => {
            let get = real().get_async_event.expect("the fabric has events");
            // SAFETY: passed on.
            unsafe { get(context, event) }
        }
    }
}

unsafe extern "C" fn ack_async_event(event: *mut AsyncEvent) {
    match TO_ACKNOWLEDGE.get() {
        0 => {
            let acknowledge = real().ack_async_event.expect("the fabric has events");
            // SAFETY: passed on.
            unsafe { acknowledge(event) };
        }
        // Scripted ones are nobody's.
        scripted => TO_ACKNOWLEDGE.set(scripted - 1),
    }
}

unsafe extern "C" fn get_cq_event(channel: *mut CompChannel, queue: *mut *mut Cq, word: *mut *mut c_void) -> c_int {
    if EMPTY_COMPLETION_EVENT.replace(false) {
        return 0;
    }
    if MADE_UP.get() > 0 {
        MADE_UP.set(MADE_UP.get() - 1);
        TO_ACKNOWLEDGE.set(TO_ACKNOWLEDGE.get() + 1);
        // SAFETY: the caller's storage is a queue's address.
        unsafe { queue.write(LAST_QUEUE.get()) };
        return 0;
    }
    let get = real().get_cq_event.expect("the fabric has channels");
    // SAFETY: passed on.
    unsafe { get(channel, queue, word) }
}

unsafe extern "C" fn ack_cq_events(queue: *mut Cq, count: c_uint) {
    match TO_ACKNOWLEDGE.get() {
        0 => {
            let acknowledge = real().ack_cq_events.expect("the fabric has channels");
            // SAFETY: passed on.
            unsafe { acknowledge(queue, count) };
        }
        scripted => TO_ACKNOWLEDGE.set(scripted - 1),
    }
}

unsafe extern "C" fn req_notify_cq(queue: *mut Cq, solicited_only: c_int) -> c_int {
    ON_ARMING.with_borrow(|then| then.iter().for_each(|then| then()));
    let arm = OPERATIONS.get().req_notify_cq.expect("the provider's own");
    // SAFETY: passed on.
    unsafe { arm(queue, solicited_only) }
}

unsafe extern "C" fn post_send(pair: *mut Qp, chain: *mut SendWr, bad: *mut *mut SendWr) -> c_int {
    let mut next = chain;
    // SAFETY: null, which ends the chain, or a request that is valid for the call.
    while let Some(request) = unsafe { next.as_ref() } {
        // SAFETY: four plain bytes of the request.
        let immediate = unsafe { (&raw const request.imm_data).cast::<[u8; 4]>().read() };
        let inline = request.send_flags.contains(SendFlags::INLINE);
        let signalled = request.send_flags.contains(SendFlags::SIGNALED);
        SENDS.with_borrow_mut(|sends| sends.push(Posted { wr_id: request.wr_id, immediate, inline, signalled }));
        next = request.next;
    }
    let post = OPERATIONS.get().post_send.expect("the provider's own");
    // SAFETY: passed on.
    unsafe { post(pair, chain, bad) }
}

unsafe extern "C" fn post_recv(pair: *mut Qp, chain: *mut RecvWr, bad: *mut *mut RecvWr) -> c_int {
    let mut next = chain;
    // SAFETY: null, which ends the chain, or a request that is valid for the call.
    while let Some(request) = unsafe { next.as_ref() } {
        RECEIVES.with_borrow_mut(|receives| receives.push(request.wr_id));
        next = request.next;
    }
    let post = OPERATIONS.get().post_recv.expect("the provider's own");
    // SAFETY: passed on.
    unsafe { post(pair, chain, bad) }
}

unsafe extern "C" fn poll_cq(queue: *mut Cq, most: c_int, room: *mut Wc) -> c_int {
    let Some(entries) = POLLS.with_borrow_mut(VecDeque::pop_front) else {
        let poll = OPERATIONS.get().poll_cq.expect("the provider's own");
        // SAFETY: passed on.
        return unsafe { poll(queue, most, room) };
    };
    assert!(entries.len() <= most as usize, "the script fits one poll");
    // SAFETY: no more than `most` entries, for which there is room; the script is elsewhere.
    unsafe { entries.as_ptr().copy_to_nonoverlapping(room, entries.len()) };
    entries.len() as c_int
}
