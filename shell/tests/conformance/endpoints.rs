//! What endpoints do on every fabric: stream, check, refuse.

use std::time::Duration;

use bareverbs_core::connect::{Destination, QueuePairConfig};
use bareverbs_core::link::{
    Carrier, Checksum, Fault, FrameStorage, Header, Immediate, LinkError, Raw, SendError, Sequence,
};
use bareverbs_core::verbs::{Gid, Mtu, QpState};
use bareverbs_shell::Error;
use bareverbs_shell::endpoint::{Endpoint, EndpointErrorKind, Event, Frames, connect_pair};
use bareverbs_shell::error::Doing;
use bareverbs_shell::wait::{Relax, Wait};

use crate::world::{World, config, fill, let_sends_complete, payload_len, send_next, stream, take, without_credits};

/// A name, and what is to hold on every world.
pub type Case = (&'static str, fn(&World));

macro_rules! cases {
    ($($name:ident)*) => {
        pub fn cases() -> Vec<Case> {
            vec![$((stringify!($name), $name)),*]
        }
    };
}

cases! {
    frames_stream_both_ways_with_immediates
    frames_stream_both_ways_with_headers
    frames_stream_both_ways_with_checksums
    frames_stream_both_ways_raw
    every_window_streams
    every_signalling_period_streams
    unsignalled_sends_tell_nothing_before_a_signalled_one
    chains_of_every_length_stream
    short_messages_go_inline
    numbers_go_on_through_the_wrap
    static_frames_stream_and_serve_the_next_link
    a_send_without_a_peer_is_refused_and_the_endpoint_can_still_connect
    a_full_ring_refuses_and_takes_the_same_message_later
    a_payload_that_does_not_fit_is_refused_and_uses_up_no_number
    b4_a_message_that_found_no_receive_breaks_the_link_at_the_next
    b6_a_peer_that_is_gone_is_a_timeout
    an_mtu_that_cannot_be_fails_the_move_to_rtr
    an_unreachable_peer_fails_the_move_to_rtr
    an_endpoint_connects_once
    the_gid_published_is_the_one_in_use
}

const FIRST: Option<Sequence> = Some(Sequence::new(0));

fn stream_with<C: Carrier>(world: &World, carrier: C, first: Option<Sequence>) {
    let (mut a, mut b) = world.pair::<C, 8, 8>(carrier, &config());
    let room = 1024 - C::ROOM_BYTES as usize;
    stream(&mut a, &mut b, 100, 8, room, first);
    let told = a.close().expect("nothing refuses");
    assert_eq!(bareverbs_core::teardown_order::check(told.quiesced, told.done()), Ok(()));
    drop(b);
}

fn frames_stream_both_ways_with_immediates(world: &World) {
    stream_with(world, Immediate, FIRST);
}

fn frames_stream_both_ways_with_headers(world: &World) {
    stream_with(world, Header::<64>::default(), FIRST);
}

fn frames_stream_both_ways_with_checksums(world: &World) {
    stream_with(world, Header::<64> { checksum: Checksum::Crc32c }, FIRST);
}

fn frames_stream_both_ways_raw(world: &World) {
    stream_with(world, Raw, None);
}

fn every_window_streams(world: &World) {
    for window in [1, 2, 3, 7, 8] {
        let (mut a, mut b) = world.pair::<_, 8, 8>(Header::<64>::default(), &config());
        stream(&mut a, &mut b, 20, window, 1024 - 64, FIRST);
    }
}

fn every_signalling_period_streams(world: &World) {
    // A ring of 8 takes at most 4; what is more is cut.
    for signal_every in [1, 2, 3, 4, 5, 8, u32::MAX] {
        let (mut a, mut b) = world.pair::<_, 8, 8>(Immediate, &config().signal_every(signal_every));
        stream(&mut a, &mut b, 20, 8, 1024, FIRST);
    }
}

fn unsignalled_sends_tell_nothing_before_a_signalled_one(world: &World) {
    let (mut a, _b) = world.pair::<_, 8, 8>(Immediate, &without_credits().signal_every(4));
    for _ in 0..3 {
        a.next_frame().expect("a free frame").post_more(10).expect("a healthy link");
    }
    world.settle();
    for _ in 0..200 {
        assert_eq!(a.poll(|_| panic!("nothing was to be told")).expect("a healthy link"), 0);
    }
    assert_eq!(a.outstanding().sends, 3);
    a.next_frame().expect("a free frame").post_more(10).expect("a healthy link");
    let mut released = 0;
    wait_until(|| {
        a.poll(|event| match event {
            Event::Sent { released: now } => released += now,
            _ => panic!("nothing was sent to it"),
        })
        .expect("a healthy link");
        released > 0
    });
    assert_eq!((released, a.outstanding().sends), (4, 0), "the fourth tells of all");
}

fn chains_of_every_length_stream(world: &World) {
    for signal_every in [1, 3] {
        let (mut a, mut b) = world.pair::<_, 8, 8>(Immediate, &without_credits().signal_every(signal_every));
        let (mut sent, mut taken) = (0, 0);
        for length in 1..=8 {
            let mut chain = a.chain().expect("connected");
            for _ in 0..length {
                let mut frame = chain.next_frame().expect("a free frame");
                fill(frame.payload_mut(), sent, 1);
                assert_eq!(frame.stage(payload_len(sent, 1024)), Ok(Sequence::new(sent as u32)));
                sent += 1;
            }
            let posted = chain.post().expect("a healthy link");
            assert_eq!((posted.first, posted.count), (Sequence::new((sent - length) as u32), length as u32));
            wait_until(|| {
                taken = take(&mut b, taken, 1024, 1, FIRST);
                taken == sent
            });
            let_sends_complete(&mut a);
        }
        // A chain that is dropped has posted nothing and used up no number.
        a.chain().expect("connected").next_frame().expect("a free frame").stage(3).expect("it fits");
        assert_eq!(a.send(0, |_| ()).expect("a healthy link"), Sequence::new(sent as u32));
        // Nine do not fit: the ninth is refused, and the eight go.
        let_sends_complete(&mut a);
        let mut chain = a.chain().expect("connected");
        for _ in 0..8 {
            chain.next_frame().expect("a free frame").stage(0).expect("it fits");
        }
        let full = EndpointErrorKind::Send(SendError::Full { depth: 8 }, None);
        assert_eq!(chain.next_frame().err().map(|error| error.kind), Some(full));
        assert_eq!(chain.staged(), 8);
    }
}

fn short_messages_go_inline(world: &World) {
    let config = config().queue_pair(QueuePairConfig::uc().inline_bytes(64));
    let (mut a, mut b) = world.pair::<_, 8, 8>(Immediate, &config);
    // Around the limit: 0, 64 and 65 bytes are among them.
    let (mut sent, mut taken) = (0, 0);
    for length in [0, 1, 63, 64, 65, 128] {
        a.send(length, |payload| fill(payload, sent, 1)).expect("a healthy link");
        let mut came = None;
        wait_until(|| {
            b.poll(|event| {
                if let Event::Received(frame) = event {
                    assert!(crate::world::is_filled(frame.payload(), sent, 1));
                    came = Some(frame.payload().len());
                    taken += 1;
                    frame.repost().expect("its place is free");
                }
            })
            .expect("a healthy link");
            came.is_some()
        });
        assert_eq!(came, Some(length));
        sent += 1;
    }
    assert_eq!(taken, 6);
}

fn numbers_go_on_through_the_wrap(world: &World) {
    let first = Sequence::new(0xFFFF_FFFE);
    let config = config().sequences(first, first);
    let (mut a, mut b) = world.pair::<_, 4, 4>(Immediate, &config);
    stream(&mut a, &mut b, 5, 2, 100, Some(first));
    let (mut a, mut b) = world.pair::<_, 4, 4>(Header::<64>::default(), &config);
    stream(&mut a, &mut b, 5, 2, 100, Some(first));
}

fn static_frames_stream_and_serve_the_next_link(world: &World) {
    // Of each world its own: they run beside each other.
    let storage: &'static [FrameStorage<{ 8 * 1024 }>; 2] = Box::leak(Box::new([const { FrameStorage::new() }; 2]));
    let end = |at: usize| {
        let memory = storage[at].claim().expect("nobody else has it");
        Endpoint::<_, 4, 4>::new(&world.open(), Immediate, config(), memory).expect("an endpoint")
    };
    for _ in 0..2 {
        let (mut a, mut b) = (end(0), end(1));
        assert!(storage[0].claim().is_none());
        connect_pair(&mut a, &mut b).expect("both are in INIT");
        stream(&mut a, &mut b, 20, 4, 1024, FIRST);
        drop((a, b));
    }
}

fn a_send_without_a_peer_is_refused_and_the_endpoint_can_still_connect(world: &World) {
    let (mut a, mut b) = world.ends::<_, 4, 4>(Immediate, &config());
    let refused = a.send(1, |_| panic!("the frame is not asked for")).expect_err("nobody is there");
    assert_eq!(refused.kind, EndpointErrorKind::NotConnected);
    assert_eq!(a.next_frame().err().map(|error| error.kind), Some(EndpointErrorKind::NotConnected));
    assert_eq!(a.chain().err().map(|error| error.kind), Some(EndpointErrorKind::NotConnected));
    let text = refused.to_string();
    assert!(
        text.contains("the other end") && text.contains(world.device()) && text.contains("connect first"),
        "{text}"
    );
    connect_pair(&mut a, &mut b).expect("a refusal changed nothing");
    stream(&mut a, &mut b, 10, 4, 1024, FIRST);
}

fn a_full_ring_refuses_and_takes_the_same_message_later(world: &World) {
    let (mut a, mut b) = world.pair::<_, 4, 8>(Immediate, &without_credits());
    let mut sent = 0;
    // Nothing is polled: the frames do not come back.
    while send_next(&mut a, sent, 1024, 1) {
        sent += 1;
    }
    assert_eq!((sent, a.outstanding().sends), (4, 4));
    let error = a.send(1, |_| ()).expect_err("full");
    assert_eq!(error.kind, EndpointErrorKind::Send(SendError::Full { depth: 4 }, None));
    assert!(error.is_queue_full());
    let_sends_complete(&mut a);
    assert!(send_next(&mut a, sent, 1024, 1));
    let mut taken = 0;
    wait_until(|| {
        taken = take(&mut b, taken, 1024, 1, FIRST);
        taken == 5
    });
}

fn a_payload_that_does_not_fit_is_refused_and_uses_up_no_number(world: &World) {
    let (mut a, mut b) = world.pair::<_, 4, 4>(Header::<64>::default(), &config());
    let room = 1024 - 64;
    let error = a.send(room + 1, |_| ()).expect_err("one byte too many");
    let too_long = SendError::TooLong { got_bytes: room as u64 + 1, room_bytes: room as u32 };
    assert_eq!(error.kind, EndpointErrorKind::Send(too_long, None));
    assert_eq!(a.outstanding().sends, 0, "refused before posting");
    assert_eq!(a.send(room, |payload| payload.fill(9)).expect("it fits"), Sequence::new(0));
    let mut came = Vec::new();
    wait_until(|| {
        b.poll(|event| {
            if let Event::Received(frame) = event {
                came.extend_from_slice(frame.payload());
            }
        })
        .expect("a healthy link");
        !came.is_empty()
    });
    assert_eq!(came, vec![9; room]);
}

fn b4_a_message_that_found_no_receive_breaks_the_link_at_the_next(world: &World) {
    let (mut a, mut b) = world.pair::<_, 8, 4>(Immediate, &without_credits());
    let mut taken = Vec::new();
    // Four find a receive, which is not posted again; the fifth finds none.
    for number in 0..5 {
        assert!(send_next(&mut a, number, 64, 1));
        let_sends_complete(&mut a);
    }
    world.settle();
    wait_until(|| {
        b.poll(|event| {
            if let Event::Received(frame) = event {
                taken.extend(frame.sequence().map(Sequence::number));
            }
        })
        .expect("four good messages");
        taken.len() == 4
    });
    assert_eq!(taken, [0, 1, 2, 3]);
    assert_eq!(b.post_receives(4).expect("four frames are free"), 4);
    assert!(send_next(&mut a, 5, 64, 1) && send_next(&mut a, 6, 64, 1));
    let mut broken = None;
    wait_until(|| {
        let outcome = b.poll(|event| assert!(!matches!(event, Event::Received(_)), "handed out as good"));
        broken = outcome.err();
        broken.is_some()
    });
    let error = broken.expect("it ended so");
    let EndpointErrorKind::Link(LinkError::Fault(cause @ Fault::Gap { expected, got, missing, .. })) = error.kind
    else {
        panic!("{error}");
    };
    assert_eq!((expected.number(), got.number(), missing), (4, 5, 1));
    // For good: message 6 is not the start of something new.
    let refused = b.send(1, |_| ()).expect_err("broken");
    assert_eq!(refused.kind, EndpointErrorKind::Send(SendError::Broken { cause }, None));
    world.settle();
    for _ in 0..20 {
        match b.poll(|_| panic!("handed out after the break")) {
            Ok(count) => assert_eq!(count, 0),
            Err(error) => assert_eq!(error.kind, EndpointErrorKind::Link(LinkError::Broken { cause })),
        }
    }
}

fn b6_a_peer_that_is_gone_is_a_timeout(world: &World) {
    let (mut a, b) = world.pair::<_, 4, 4>(Immediate, &config());
    drop(b);
    let limit = Duration::from_millis(50);
    let error = a.wait(&Wait::at_most(limit).relax(Relax::Yield), |_| ()).expect_err("nobody is there");
    let EndpointErrorKind::Timeout { waited, outstanding, no_credit: None, pending, .. } = &error.kind else {
        panic!("{error}")
    };
    assert!(*waited >= limit);
    assert_eq!((outstanding.sends, outstanding.receives, pending.len()), (0, 4, 4));
    assert!(error.to_string().contains("the other end"), "{error}");
}

/// That a connect failed while entering RTR, and left no queue pair but an endpoint that can be taken down.
fn assert_failed_at_rtr(world: &World, mut end: Endpoint<Immediate, 4, 4>, to: &Destination, mtu: Mtu, errnos: &[i32]) {
    let error = end.connect(to, mtu).expect_err("RTR is refused");
    let Error::Call(call) = &error else { panic!("{error}") };
    assert_eq!((call.call, &*call.device), ("ibv_modify_qp", world.device()));
    assert!(call.errno.is_some_and(|errno| errnos.contains(&errno.0)), "{error}");
    let Some(Doing::Enter { state: QpState::RTR, attributes }) = &call.doing else { panic!("{error}") };
    assert!(attributes.contains(&format!("queue pair {}", to.qp_num)), "{attributes}");
    // It is not moved again.
    assert!(matches!(end.connect(to, Mtu::B1024), Err(Error::State { .. })));
    assert_eq!(end.send(1, |_| ()).expect_err("not connected").kind, EndpointErrorKind::NotConnected);
    if let Some(soft) = &world.soft {
        assert_eq!(soft.live().qps, 1, "only the other end's is left");
    }
    let told = end.close().expect("nothing refuses");
    assert_eq!(bareverbs_core::teardown_order::check(told.quiesced, told.done()), Ok(()));
}

fn an_mtu_that_cannot_be_fails_the_move_to_rtr(world: &World) {
    let (a, b) = world.ends::<_, 4, 4>(Immediate, &config());
    assert_failed_at_rtr(world, a, &b.destination(), Mtu(9), &[libc::EINVAL]);
}

fn an_unreachable_peer_fails_the_move_to_rtr(world: &World) {
    let (a, b) = world.ends::<_, 4, 4>(Immediate, &config());
    // 203.0.113.9: an address for documentation.
    let gid = Gid::new([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 203, 0, 113, 9]);
    // A kernel without any route there says so at once.
    let errnos = if world.soft.is_some() { &[libc::ETIMEDOUT][..] } else { &[libc::ETIMEDOUT, libc::ENODEV] };
    let nowhere = Destination { gid, ..b.destination() };
    assert_failed_at_rtr(world, a, &nowhere, Mtu::B1024, errnos);
}

fn an_endpoint_connects_once(world: &World) {
    let (mut a, mut b) = world.pair::<_, 4, 4>(Immediate, &config());
    let (to_b, mtu) = (b.destination(), a.path_mtu());
    let error = a.connect(&to_b, mtu).expect_err("it is connected");
    assert!(matches!(error, Error::State { .. }), "{error}");
    stream(&mut a, &mut b, 10, 4, 1024, FIRST);
}

fn the_gid_published_is_the_one_in_use(world: &World) {
    let (a, b) = world.ends::<_, 4, 4>(Immediate, &config());
    let context = world.open();
    let table = context.gids(1).expect("a table");
    for end in [&a, &b] {
        let used = end.gid().expect("Ethernet has one");
        assert_eq!(end.destination().gid, used.gid);
        assert!(table.contains(&used) && used.gid.ipv4().is_some(), "{used}");
    }
    let again = Endpoint::<_, 4, 4>::new(&context, Immediate, config(), Frames::Owned).expect("an endpoint");
    assert_ne!(again.qp_num(), a.qp_num());
}

/// Tries until it is so, or for long.
pub fn wait_until(mut so: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + crate::world::PATIENCE;
    while !so() {
        assert!(std::time::Instant::now() < deadline, "it never came to that");
        std::thread::yield_now();
    }
}
