//! A link and a device that does anything: completes what it has and what it has not, writes what it likes into frames, refuses
//! posts in each way, answers polls with nonsense.
//!
//! The judge is what the device has: a request in flight is one that it was given and has not given back.
#![allow(
    unsafe_code,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    reason = "the provider of core's own tests: it plays a provider and its device"
)]

#[allow(dead_code, unused_macros, unused_imports, reason = "core's tests ask more of it")]
#[path = "../../../core/tests/it/link/provider.rs"]
pub(crate) mod provider;

use std::ptr::NonNull;

use bareverbs_core::link::{
    ByteLen, Carrier, Direction, Event, Fault, FrameMemory, Header, Immediate, LinkError, LinkRules, Outstanding, Raw,
    ReceiveError, SendError, Sequence, WorkId,
};
use bareverbs_core::verbs::{Be32, LinkLayer, SendFlags, Wc, WcFlags, WcOpcode, WcStatus};

use crate::reader::Reader;
use provider::{Answer, Device, FRAME_BYTES, QP_NUM, Rig, Wishes, World, leaked_bytes};

const DEPTH: usize = 4;

/// Whatever a device does, the link hands out the next message whole or breaks for good, and ends no request that is not in
/// flight.
///
/// Bytes: carrier, rules and first number; then one step after the other.
pub fn link(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    let (carrier, byte_len) = (reader.below(5), reader.flag());
    let signal_every = reader.below(4) as u32 + 1;
    let byte_len = if byte_len { ByteLen::Unknown } else { ByteLen::Trusted };
    let rules = LinkRules { signal_every, byte_len, ..LinkRules::for_link_layer(LinkLayer::ETHERNET) };
    let wishes = Wishes { rules, start: reader.u32(), ..Wishes::default() };
    match carrier {
        0 => play(Header::<64>::new(), wishes, reader),
        1 => play(Header::<64>::with_checksum(), wishes, reader),
        2 => play(Raw, wishes, reader),
        _ => play(Immediate, wishes, reader),
    }
}

fn play<C: Carrier>(carrier: C, wishes: Wishes, mut reader: Reader<'_>) {
    let mut judge = Judge::new(carrier, wishes);
    for _ in 0..200 {
        if reader.is_empty() {
            break;
        }
        judge.step(&mut reader);
        judge.check();
    }
}

/// One device and its memory for all links of a thread, one after the other: what is leaked is leaked once.
fn device_and_memory() -> (Device, FrameMemory) {
    const BYTES: usize = 2 * DEPTH * FRAME_BYTES as usize;
    thread_local! {
        static ONE: (Device, NonNull<u8>) = (Device::new(QP_NUM), leaked_bytes(BYTES));
    }
    let (mut device, base) = ONE.with(Clone::clone);
    *device.world() = World::default();
    // SAFETY: never freed; the link before this one is gone, and so is all that its device held.
    (device, unsafe { FrameMemory::from_raw_parts(base, BYTES) })
}

/// A link, its device, and what must be true of them.
struct Judge<C: Carrier> {
    rig: Rig<C, DEPTH, DEPTH>,
    carrier: C,
    rules: LinkRules,
    /// The first cause, once there is one.
    cause: Option<Fault>,
    next: Sequence,
    expected: Sequence,
    markers: [bool; 2],
    past: Vec<u64>,
}

/// Of a link that a completion must leave as it was.
#[derive(Debug, PartialEq)]
struct Books {
    outstanding: Outstanding,
    cause: Option<Fault>,
    next: Sequence,
    expected: Sequence,
}

/// What a completion must come to.
#[derive(Debug, PartialEq)]
enum Due {
    Sent(u32),
    Received { payload: Vec<u8>, sequence: Option<Sequence> },
    Drained(Direction),
    Error(LinkError),
}

impl<C: Carrier> Judge<C> {
    fn new(carrier: C, wishes: Wishes) -> Self {
        let (device, memory) = device_and_memory();
        let (rules, start) = (wishes.rules, Sequence::new(wishes.start));
        let rig = Rig::over(carrier, wishes, device, memory).unwrap();
        Self { rig, carrier, rules, cause: None, next: start, expected: start, markers: [false; 2], past: Vec::new() }
    }

    fn books(&self) -> Books {
        let link = &self.rig.link;
        Books {
            outstanding: link.outstanding(),
            cause: link.cause(),
            next: link.next_sequence(),
            expected: link.expected_sequence(),
        }
    }

    fn world(&mut self) -> &mut World {
        self.rig.device.world()
    }

    fn step(&mut self, reader: &mut Reader<'_>) {
        match reader.below(12) {
            0 | 1 => self.send(reader),
            2 => self.chain(reader),
            3 => self.post_receives(reader.below(7) as usize),
            4 => self.complete_honestly(),
            5 => self.arrive_honestly(reader),
            6 | 7 => self.complete_as_it_likes(reader),
            8 => self.poll_fails(reader),
            9 => self.answer_next_post(reader),
            10 => self.post_marker(reader),
            _ => match reader.below(8) {
                0 => self.broken_by(Fault::Abandoned, |link| link.abandon()),
                _ => self.complete_as_it_likes(reader),
            },
        }
    }

    /// What is true at any time.
    fn check(&mut self) {
        let books = self.books();
        assert_eq!(books.cause, self.cause, "the first cause stays");
        assert_eq!((books.next, books.expected), (self.next, self.expected));
        let Some(cause) = self.cause else {
            let world = self.rig.device.world();
            let has = Outstanding { sends: world.sends.len() as u32, receives: world.receives.len() as u32 };
            assert_eq!(books.outstanding, has);
            return;
        };
        assert!(!cause.to_string().is_empty());
        assert_eq!(self.rig.link.next_frame().err(), Some(SendError::Broken { cause }));
        assert_eq!(self.rig.link.post_receives(1).err(), Some(ReceiveError::Broken { cause }));
        assert_eq!(self.rig.link.outstanding(), books.outstanding);
    }

    fn broken_by(&mut self, fault: Fault, act: impl FnOnce(&mut bareverbs_core::link::Link<C, DEPTH, DEPTH>)) {
        act(&mut self.rig.link);
        self.cause.get_or_insert(fault);
    }

    fn send(&mut self, reader: &mut Reader<'_>) {
        let (fill, len) = (reader.byte(), reader.byte() as usize + reader.below(2) as usize);
        let in_flight = self.world().sends.len();
        let room = self.rig.link.payload_room_bytes() as usize;
        let mut frame = match self.rig.link.next_frame() {
            Ok(frame) => frame,
            Err(SendError::Full { depth }) => return assert_eq!((in_flight, depth), (DEPTH, DEPTH as u32)),
            Err(error) => return assert!(matches!(error, SendError::Broken { .. }), "{error}"),
        };
        frame.payload_mut().fill(fill);
        let posted = if fill & 1 == 0 { frame.post(len) } else { frame.post_more(len) };
        match posted {
            Ok(number) => {
                assert!(len <= room);
                assert_eq!(number, self.next);
                self.next = number.next();
            }
            Err(error) => self.post_failed(error, len > room),
        }
    }

    fn chain(&mut self, reader: &mut Reader<'_>) {
        let mut chain = self.rig.link.chain();
        for _ in 0..reader.below(6) {
            match chain.next_frame() {
                Ok(frame) => drop(frame.stage(usize::from(reader.byte()))),
                Err(error) => assert!(matches!(error, SendError::Full { .. } | SendError::Broken { .. }), "{error}"),
            }
        }
        match chain.post() {
            Ok(posted) => self.next = self.next.plus(posted.count),
            Err(error) => self.post_failed(error, false),
        }
    }

    /// A post that failed: what was accepted has its number, or the link breaks.
    fn post_failed(&mut self, error: SendError, too_long: bool) {
        assert!(!error.to_string().is_empty());
        match error {
            SendError::TooLong { .. } => assert!(too_long),
            SendError::Refused { accepted, .. } => self.next = self.next.plus(accepted),
            SendError::Broken { cause } => self.breaks_by_post(cause),
            error => panic!("{error}"),
        }
    }

    fn breaks_by_post(&mut self, cause: Fault) {
        if self.cause.is_none() {
            assert!(matches!(cause, Fault::PostUnknown { .. }), "{cause}");
            self.cause = Some(cause);
            // How many numbers are used up nobody knows.
            self.next = self.rig.link.next_sequence();
        }
        assert_eq!(self.cause, Some(cause));
    }

    fn post_receives(&mut self, max: usize) {
        match self.rig.link.post_receives(max) {
            Ok(count) => assert!(count <= max.min(DEPTH)),
            Err(ReceiveError::Broken { cause }) => self.breaks_by_post(cause),
            Err(error) => assert!(matches!(error, ReceiveError::Refused { .. }), "{error}"),
        }
    }

    fn answer_next_post(&mut self, reader: &mut Reader<'_>) {
        let accepted = reader.below(5) as usize;
        let returned = match reader.u32() as i32 {
            0 => -1,
            other => other,
        };
        let answer = match reader.below(6) {
            0 => Answer::Silent { accepted, returned },
            1 => Answer::Nonsense { returned },
            _ => Answer::Refuse { accepted, returned },
        };
        self.world().answers.push_back(answer);
    }

    fn post_marker(&mut self, reader: &mut Reader<'_>) {
        // Links that live are the more interesting.
        if reader.below(4) != 0 {
            return;
        }
        let direction = if reader.flag() { Direction::Send } else { Direction::Receive };
        let posted = self.rig.link.post_marker(direction);
        self.cause.get_or_insert(Fault::Teardown { direction });
        self.markers[direction as usize] |= posted.is_ok();
    }

    fn poll_fails(&mut self, reader: &mut Reader<'_>) {
        let mut room = [Wc::default(); 3];
        let returned = match reader.u32() as i32 {
            honest @ 0..=3 => -honest - 1,
            nonsense => nonsense,
        };
        self.world().poll_returns = Some(returned);
        let error = self.rig.queue.poll(&mut room).map(drop).expect_err("a poll that failed");
        assert!(error.to_string().contains(&returned.to_string()));
        self.broken_by(Fault::Poll(error), |link| link.break_with(error));
    }

    fn complete_honestly(&mut self) {
        let signalled =
            |world: &World| world.sends.iter().position(|send| send.wr.send_flags.contains(SendFlags::SIGNALED));
        match signalled(self.world()) {
            Some(at) => {
                let wr_id = self.world().sends[at].wr.wr_id;
                self.complete(Wc { wr_id, qp_num: QP_NUM, ..Wc::default() });
            }
            None => assert!(self.world().sends.len() < DEPTH, "a full ring has a signalled send"),
        }
    }

    fn arrive_honestly(&mut self, reader: &mut Reader<'_>) {
        let Some(wr_id) = self.world().receives.front().map(|receive| receive.wr.wr_id) else { return };
        let mut frame = [0; FRAME_BYTES as usize];
        let byte_len = self.honest_message(&mut frame, reader);
        self.write_frame(0, &frame);
        let immediate = (C::CARRIER == Immediate::CARRIER).then_some(self.expected.number());
        self.complete(received(wr_id, byte_len, immediate));
    }

    /// Writes the next message, as this carrier's sender would; answers its length.
    fn honest_message(&self, frame: &mut [u8], reader: &mut Reader<'_>) -> u32 {
        let payload = reader.slice(usize::from(self.carrier_room_bytes() / 2));
        let room = C::ROOM_BYTES as usize;
        frame[room..room + payload.len()].copy_from_slice(payload);
        if C::CARRIER == Header::<64>::CARRIER {
            let header = Header::<64> { checksum: self.carrier.checksum() };
            header.encode(frame, self.expected, payload.len() as u32);
        }
        (room + payload.len()) as u32
    }

    fn carrier_room_bytes(&self) -> u8 {
        u8::try_from(FRAME_BYTES - C::ROOM_BYTES).unwrap_or(u8::MAX)
    }

    /// The device writes into a frame that it has.
    fn write_frame(&mut self, receive: usize, bytes: &[u8]) {
        let Some(entry) = self.world().receives.get(receive).map(|receive| receive.sge) else { return };
        let length = bytes.len().min(entry.length as usize);
        let target = std::ptr::with_exposed_provenance_mut::<u8>(entry.addr as usize);
        // SAFETY: the frame is the device's, and the device is we.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, length) };
    }

    fn frame(&mut self, receive: usize) -> Vec<u8> {
        let entry = self.world().receives[receive].sge;
        let source = std::ptr::with_exposed_provenance::<u8>(entry.addr as usize);
        // SAFETY: the frame is the device's, and the device is we.
        unsafe { std::slice::from_raw_parts(source, entry.length as usize) }.to_vec()
    }

    /// A completion of this or that, with this or that in it.
    fn complete_as_it_likes(&mut self, reader: &mut Reader<'_>) {
        let which = reader.below(4) as usize;
        let world = self.rig.device.world();
        let wr_id = match reader.below(8) {
            0 => reader.u64(),
            1 => WorkId::SEND_MARKER.raw(),
            2 => WorkId::RECV_MARKER.raw(),
            3 => self.past.get(which).copied().unwrap_or_default(),
            4 => world.sends.get(which).map_or(0, |send| send.wr.wr_id),
            _ => world.receives.get(which & 1).map_or(0, |receive| receive.wr.wr_id),
        };
        let mut frame = [0; FRAME_BYTES as usize];
        let byte_len = self.honest_message(&mut frame, reader);
        let odd = reader.byte();
        if odd & 1 != 0 {
            frame[usize::from(reader.byte())] ^= reader.byte();
        }
        self.write_frame(which & 1, &frame);
        let number = if odd & 2 != 0 { Some(reader.u32()) } else { Some(self.expected.number()) };
        let mut wc = received(wr_id, byte_len, number.filter(|_| odd & 4 == 0));
        if odd & 8 != 0 {
            wc.status = WcStatus(reader.u32() & 0xff);
        }
        if odd & 16 != 0 {
            wc.opcode = WcOpcode(reader.u32());
        }
        if odd & 32 != 0 {
            wc.byte_len = reader.u32();
        }
        if odd & 64 != 0 {
            wc.qp_num = reader.u32();
        }
        if odd & 128 != 0 {
            wc.wc_flags = WcFlags::from_bits_retain(reader.u32());
        }
        self.complete(wc);
    }

    /// Gives a completion to the link and judges what comes of it.
    fn complete(&mut self, wc: Wc) {
        let (before, due) = (self.books(), self.due(&wc));
        let polled_answers = self.world().answers.len();
        self.world().completions.push_back(wc);
        let mut room = [Wc::default()];
        let completion = self.rig.queue.poll(&mut room).unwrap().next().unwrap();
        let got = match self.rig.link.accept(&completion) {
            Ok(Event::Sent { released }) => Due::Sent(released),
            Ok(Event::Received(message)) => {
                assert_eq!(message.wr_id().raw(), wc.wr_id);
                Due::Received { payload: message.payload().to_vec(), sequence: message.sequence() }
            }
            Ok(Event::Granted { .. }) => panic!("the link has no credits"),
            Ok(Event::Drained(direction)) => Due::Drained(direction),
            Err(error) => {
                assert!(!error.to_string().is_empty());
                Due::Error(error)
            }
        };
        assert_eq!(got, due, "{wc:?}");
        assert_eq!(self.world().answers.len(), polled_answers, "a completion posts nothing");
        let after = self.books();
        assert!(after.outstanding.sends <= before.outstanding.sends);
        assert!(after.outstanding.receives <= before.outstanding.receives);
        if matches!(due, Due::Error(LinkError::ForeignQueuePair { .. })) {
            assert_eq!(after, before);
        }
        self.settle(&wc, &due);
    }

    /// The device no longer has what it completed.
    fn settle(&mut self, wc: &Wc, due: &Due) {
        self.past.insert(0, wc.wr_id);
        self.past.truncate(4);
        match due {
            Due::Sent(released) => drop(self.world().sends.drain(..*released as usize)),
            Due::Received { sequence, .. } => {
                self.world().receives.pop_front();
                // Without numbers none is waited for.
                if sequence.is_some() {
                    self.expected = self.expected.next();
                }
            }
            Due::Error(LinkError::Fault(fault)) => self.cause = Some(*fault),
            Due::Error(_) | Due::Drained(_) => {}
        }
    }

    /// What a completion must come to, by what the device has.
    fn due(&mut self, wc: &Wc) -> Due {
        let wr_id = wc.wr_id;
        if wc.qp_num != QP_NUM {
            return Due::Error(LinkError::ForeignQueuePair { expected: QP_NUM, got: wc.qp_num });
        }
        for direction in [Direction::Send, Direction::Receive] {
            if wr_id == WorkId::marker_of(direction).raw() && self.markers[direction as usize] {
                return Due::Drained(direction);
            }
        }
        if let Some(cause) = self.cause {
            return Due::Error(LinkError::Broken { cause });
        }
        let at_once = self.rules.signal_every.clamp(1, DEPTH as u32 / 2);
        let world = self.rig.device.world();
        let send = world.sends.iter().position(|send| send.wr.wr_id == wr_id);
        let receive = world.receives.iter().position(|receive| receive.wr.wr_id == wr_id);
        let (before, at_once) = match (send, receive) {
            (Some(before), _) => (before as u32, at_once),
            (_, Some(before)) => (before as u32, 1),
            (None, None) => return fault(Fault::UnknownId { wr_id }),
        };
        if before >= at_once {
            return fault(Fault::Skipped { wr_id, skipped: before });
        }
        match wc.outcome() {
            Err(failed) => fault(Fault::Failed(failed)),
            Ok(_) if send.is_some() => Due::Sent(before + 1),
            Ok(wc) => self.due_message(wc),
        }
    }

    /// What the oldest receive must come to, which succeeded.
    fn due_message(&mut self, wc: &Wc) -> Due {
        use bareverbs_core::link::CarrierError as Why;
        let (wr_id, frame, room_bytes) = (wc.wr_id, self.frame(0), FRAME_BYTES);
        let unreadable = |error| fault(Fault::Unreadable { wr_id, error });
        if wc.opcode != WcOpcode::RECV {
            return unreadable(Why::Opcode { got: wc.opcode });
        }
        let immediate = wc.wc_flags.contains(WcFlags::WITH_IMM).then(|| Sequence::new(wc.imm_data.get()));
        if C::CARRIER == Immediate::CARRIER && immediate.is_none() {
            return unreadable(Why::NoImmediate);
        }
        let trusted = self.rules.byte_len == ByteLen::Trusted;
        let came = if trusted { wc.byte_len } else { FRAME_BYTES };
        if came > room_bytes {
            return unreadable(Why::TooLong { got_bytes: came, room_bytes });
        }
        let (payload, sequence) = if C::CARRIER == Raw::CARRIER {
            (frame[..came as usize].to_vec(), None)
        } else if C::CARRIER == Immediate::CARRIER {
            (frame[..came as usize].to_vec(), immediate)
        } else {
            let header = Header::<64> { checksum: self.carrier.checksum() };
            let fields = match header.decode(&frame[..came as usize]) {
                Ok(fields) => fields,
                Err(error) => return unreadable(Why::Header(error)),
            };
            let expected_bytes = 64 + fields.payload_bytes;
            if trusted && came != expected_bytes {
                return unreadable(Why::Length { expected_bytes, got_bytes: came });
            }
            (frame[64..expected_bytes as usize].to_vec(), Some(fields.sequence))
        };
        let expected = self.expected;
        match sequence.map(|got| (got, got.number().wrapping_sub(expected.number()))) {
            None | Some((_, 0)) => Due::Received { payload, sequence },
            Some((got, missing @ ..0x8000_0000)) => fault(Fault::Gap { wr_id, expected, got, missing }),
            Some((got, ahead)) => fault(Fault::Old { wr_id, expected, got, behind: ahead.wrapping_neg() }),
        }
    }
}

const fn fault(fault: Fault) -> Due {
    Due::Error(LinkError::Fault(fault))
}

fn received(wr_id: u64, byte_len: u32, immediate: Option<u32>) -> Wc {
    let (imm_data, wc_flags) = match immediate {
        Some(number) => (Be32::new(number), WcFlags::WITH_IMM),
        None => (Be32::new(0), WcFlags::empty()),
    };
    Wc { wr_id, byte_len, imm_data, wc_flags, opcode: WcOpcode::RECV, qp_num: QP_NUM, ..Wc::default() }
}
