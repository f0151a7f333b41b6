//! Whatever an endpoint's user posts with, an error names peer, device, errno and what to do.

use bareverbs_core::link::{Fault, Immediate, LinkError, ReceiveError, SendError};
use bareverbs_shell::endpoint::{Endpoint, EndpointError, EndpointErrorKind, Event};
use bareverbs_shell::errno::{self, Errno};
use bareverbs_shell::soft::{Answer, BadWr, Mode, SoftConfig, SoftDevice, SoftFabric};

use crate::world::{World, let_sends_complete, patiently, without_credits};

type End = Endpoint<Immediate, 4, 4>;

/// Two connected ends on a device of this name.
fn world(device: &str) -> (World, End, End) {
    let config_of_fabric = SoftConfig::default().devices(vec![SoftDevice::new(device)]).mode(Mode::Prompt);
    let world = World::of_config(config_of_fabric, device);
    let (a, b) = world.pair(Immediate, &without_credits());
    (world, a, b)
}

fn soft(world: &World) -> &SoftFabric {
    world.soft.as_ref().expect("a software fabric")
}

/// A way to post; `Ok` where nothing refused.
type Way = (&'static str, &'static str, fn(&mut End) -> Result<(), EndpointError>);

/// Every way to post through an endpoint, with the call that it ends in.
const WAYS: &[Way] = &[
    ("send", "ibv_post_send", |end| end.send(1, |_| ()).map(drop)),
    ("frame", "ibv_post_send", |end| end.next_frame()?.post(1).map(drop)),
    ("frame of many", "ibv_post_send", |end| end.next_frame()?.post_more(1).map(drop)),
    ("chain", "ibv_post_send", |end| {
        let mut chain = end.chain()?;
        chain.next_frame()?.stage(1)?;
        chain.post().map(drop)
    }),
    ("receives", "ibv_post_recv", |end| {
        // One place is free: a message came, and its frame was not posted again.
        receive(end, false)?;
        end.post_receives(1).map(drop)
    }),
    ("repost", "ibv_post_recv", |end| receive(end, true)),
];

/// Takes one message, and posts its frame again or not.
fn receive(end: &mut End, repost: bool) -> Result<(), EndpointError> {
    let mut outcome = Ok(());
    end.wait(&patiently(), |event| {
        if let Event::Received(frame) = event
            && repost
        {
            outcome = frame.repost();
        }
    })?;
    outcome
}

/// The error of a post in this way, of which the provider answers so.
fn refused(way: &Way, device: &str, answer: Answer) -> EndpointError {
    let (_, symbol, post) = way;
    let (world, mut a, mut b) = world(device);
    b.send(1, |_| ()).expect("a healthy link");
    let_sends_complete(&mut b);
    soft(&world).fail(symbol, 1, answer);
    // What an earlier call left must not be shown.
    errno::set(libc::EPROTO);
    let error = post(&mut a).expect_err("refused");
    drop((a, b));
    world.assert_clean();
    error
}

fn errno_of(error: &EndpointError) -> Option<Errno> {
    match error.kind {
        EndpointErrorKind::Send(SendError::Refused { .. } | SendError::Broken { .. }, errno)
        | EndpointErrorKind::Receive(ReceiveError::Refused { .. } | ReceiveError::Broken { .. }, errno) => errno,
        ref other => panic!("{other:?}"),
    }
}

fn assert_says(error: &EndpointError, device: &str, words: &[&str]) {
    assert_eq!((&*error.peer, &*error.device), ("the other end", device), "{error}");
    let text = error.to_string();
    for word in [&["the other end", device], words].concat() {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn every_way_to_post_names_peer_device_errno_and_remedy() {
    for way in WAYS {
        for answer in [Answer::returned(12), Answer::returned(-12), Answer::minus_one(12)] {
            let error = refused(way, "named0", answer);
            assert_eq!(errno_of(&error), Some(Errno(12)), "{}, {answer:?}", way.0);
            assert_says(&error, "named0", &["errno 12 (ENOMEM)", "take completions"]);
        }
        let error = refused(way, "named1", Answer::minus_one(0));
        assert_eq!(errno_of(&error), None, "{}: a stale errno", way.0);
        let error = refused(way, "named2", Answer::minus_one(5).bad_wr(BadWr::NullNoneAccepted));
        assert_eq!(errno_of(&error), Some(Errno(5)), "{}", way.0);
        assert_says(&error, "named2", &["errno 5 (EIO)", "make the link anew"]);
    }
}

#[test]
fn refusals_without_a_call_name_peer_and_device_and_no_errno() {
    let (world, mut a, b) = world("uncalled");
    errno::set(libc::EPROTO);
    let too_long = a.next_frame().expect("a free frame").post(1025).expect_err("1 KiB frames");
    assert_says(&too_long, "uncalled", &["1025 bytes", "room for 1024"]);
    let too_long = a.next_frame().expect("a free frame").post_more(1025).expect_err("1 KiB frames");
    assert_says(&too_long, "uncalled", &["1025 bytes", "room for 1024"]);
    let mut chain = a.chain().expect("connected");
    let too_long = chain.next_frame().expect("a free frame").stage(1025).expect_err("1 KiB frames");
    assert_says(&too_long, "uncalled", &["1025 bytes", "room for 1024"]);
    for _ in 0..4 {
        chain.next_frame().expect("a free frame").stage(0).expect("it fits");
    }
    let full = chain.next_frame().err().expect("four frames");
    assert_says(&full, "uncalled", &["all 4 sends", "take completions"]);
    assert_eq!(chain.post().expect("a healthy link").count, 4);
    let full = a.next_frame().err().expect("four frames");
    assert_eq!(full.kind, EndpointErrorKind::Send(SendError::Full { depth: 4 }, None));
    assert_says(&full, "uncalled", &["all 4 sends", "take completions"]);
    drop((a, b));
    world.assert_clean();
}

#[test]
fn a_link_that_broke_long_ago_shows_no_errno_of_something_else() {
    let (world, mut a, b) = world("longago");
    soft(&world).fail("ibv_post_send", 1, Answer::minus_one(5).bad_wr(BadWr::NullNoneAccepted));
    let broke = a.send(1, |_| ()).expect_err("unknown");
    let EndpointErrorKind::Send(SendError::Broken { cause: cause @ Fault::PostUnknown { .. } }, Some(Errno(5))) =
        broke.kind
    else {
        panic!("{broke}");
    };
    for way in WAYS {
        errno::set(libc::EPROTO);
        let error = (way.2)(&mut a).expect_err("broken");
        match error.kind {
            EndpointErrorKind::Send(SendError::Broken { cause: why }, None) => assert_eq!(why, cause, "{}", way.0),
            EndpointErrorKind::Link(LinkError::Broken { cause: why }) => assert_eq!(why, cause, "{}", way.0),
            other => panic!("{}: {other:?}", way.0),
        }
    }
    errno::set(libc::EPROTO);
    let error = a.post_receives(1).expect_err("broken");
    assert_eq!(error.kind, EndpointErrorKind::Receive(ReceiveError::Broken { cause }, None));
    assert_says(&error, "longago", &["make the link anew"]);
    drop((a, b));
    world.assert_clean();
}
