//! A link that broke says so, and why, at every poll and wait from then on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use bareverbs_core::link::{Fault, Immediate, LinkError};
use bareverbs_shell::endpoint::{Endpoint, EndpointConfig, EndpointErrorKind, Frames, connect_pair};
use bareverbs_shell::{Fabric, Wait};

#[test]
fn a_panic_of_the_callers_code_in_the_middle_of_a_batch_breaks_the_link() {
    let device = Fabric::soft().expect("a fabric").open(None).expect("a device");
    let end = |peer| Endpoint::<_, 8, 8>::new(&device, Immediate, EndpointConfig::uc(peer), Frames::Owned);
    let (mut a, mut b) = (end("b").expect("an end"), end("a").expect("an end"));
    connect_pair(&mut a, &mut b).expect("they connect");
    for _ in 0..3 {
        a.send(1, |_| {}).expect("room");
    }
    assert!(catch_unwind(AssertUnwindSafe(|| b.poll(|_| panic!("the caller's code")))).is_err());
    let cause = Fault::Abandoned;
    let broken = EndpointErrorKind::Link(LinkError::Broken { cause });
    assert_eq!(b.poll(|_| {}).expect_err("messages were lost").kind, broken);
    // A wait does not go to its deadline to blame the peer.
    let waited = b.wait(&Wait::at_most(Duration::from_secs(3600)), |_| {});
    assert_eq!(waited.expect_err("messages were lost").kind, broken);
}
