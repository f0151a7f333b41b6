//! The books: which frames were sent, which arrived, and what became of the others.
//!
//! The program's last line is made of these numbers, so they must not be able to flatter: a frame that was sent, was not
//! handed out in its turn and lies behind no reported fault is *undetected*; a frame that was handed out and is not the
//! next one, byte for byte, is *delivered bad*.

use std::fmt;

/// The books of a stream over many links, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ledger {
    delivered: u64,
    /// Frames delivered when this link was made.
    delivered_before_link: u64,
    /// One past the last frame sent on this link.
    sent_to: u64,
    /// Whether this link broke and said so: then it vouches for nothing after what it delivered.
    reported: bool,
    faults: u64,
    undetected: u64,
    delivered_bad: u64,
    links: u64,
}

impl Ledger {
    /// The next frame to be delivered, counted from 0: so many were.
    pub(crate) const fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Frames delivered when this link was made.
    pub(crate) const fn delivered_before_link(&self) -> u64 {
        self.delivered_before_link
    }

    /// Links made so far.
    pub(crate) const fn links(&self) -> u64 {
        self.links
    }

    /// The next frame to be sent.
    pub(crate) const fn next_to_send(&self) -> u64 {
        self.sent_to
    }

    /// A fresh link goes on where the last one stopped delivering.
    pub(crate) const fn link_made(&mut self) {
        self.links += 1;
        self.delivered_before_link = self.delivered;
        self.sent_to = self.delivered;
        self.reported = false;
    }

    /// The next frame was sent.
    pub(crate) const fn frame_sent(&mut self) {
        self.sent_to += 1;
    }

    /// A frame was handed out; `is_the_next` if it was found to be that, byte for byte. A link that has reported a fault
    /// must hand out nothing.
    pub(crate) const fn frame_handed_out(&mut self, is_the_next: bool) {
        if is_the_next && !self.reported && self.delivered < self.sent_to {
            self.delivered += 1;
        } else {
            self.delivered_bad += 1;
        }
    }

    /// The link reported a fault.
    pub(crate) const fn fault_reported(&mut self) {
        self.faults += 1;
        self.reported = true;
    }

    /// The link is not looked at any more.
    pub(crate) const fn link_ended(&mut self) {
        if !self.reported {
            self.undetected += self.sent_to - self.delivered;
        }
        self.sent_to = self.delivered;
    }

    /// Whether everything was delivered right or reported.
    pub(crate) const fn is_clean(&self) -> bool {
        self.undetected == 0 && self.delivered_bad == 0
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { delivered, faults, undetected, delivered_bad, links, .. } = self;
        let reconnects = links.saturating_sub(1);
        write!(
            f,
            "frames={delivered} faults={faults} undetected={undetected} delivered_bad={delivered_bad} reconnects={reconnects}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(sent: u64, good: u64) -> Ledger {
        let mut ledger = Ledger::default();
        ledger.link_made();
        (0..sent).for_each(|_| ledger.frame_sent());
        (0..good).for_each(|_| ledger.frame_handed_out(true));
        ledger
    }

    #[test]
    fn a_stream_that_all_arrived_is_clean() {
        let mut ledger = after(3, 3);
        ledger.link_ended();
        assert_eq!(ledger.to_string(), "frames=3 faults=0 undetected=0 delivered_bad=0 reconnects=0");
        assert!(ledger.is_clean());
    }

    #[test]
    fn what_was_sent_and_neither_arrived_nor_was_reported_is_undetected() {
        let mut ledger = after(5, 3);
        ledger.link_ended();
        assert_eq!(ledger.to_string(), "frames=3 faults=0 undetected=2 delivered_bad=0 reconnects=0");
        assert!(!ledger.is_clean());
    }

    #[test]
    fn what_lies_behind_a_report_is_detected_and_sent_again() {
        let mut ledger = after(5, 3);
        ledger.fault_reported();
        ledger.link_ended();
        ledger.link_made();
        assert_eq!(ledger.next_to_send(), 3);
        (0..2).for_each(|_| ledger.frame_sent());
        (0..2).for_each(|_| ledger.frame_handed_out(true));
        ledger.link_ended();
        assert_eq!(ledger.to_string(), "frames=5 faults=1 undetected=0 delivered_bad=0 reconnects=1");
        assert!(ledger.is_clean());
    }

    #[test]
    fn a_frame_that_is_not_the_next_one_is_delivered_bad_and_counts_for_nothing() {
        let mut ledger = after(2, 1);
        ledger.frame_handed_out(false);
        ledger.link_ended();
        assert_eq!(ledger.to_string(), "frames=1 faults=0 undetected=1 delivered_bad=1 reconnects=0");
        assert!(!ledger.is_clean());
    }

    #[test]
    fn a_frame_after_the_fault_is_bad_however_good_it_looks() {
        let mut ledger = after(2, 1);
        ledger.fault_reported();
        ledger.frame_handed_out(true);
        ledger.link_ended();
        assert_eq!(ledger.to_string(), "frames=1 faults=1 undetected=0 delivered_bad=1 reconnects=0");
    }

    #[test]
    fn a_frame_that_nobody_sent_is_bad() {
        let mut ledger = after(1, 1);
        ledger.frame_handed_out(true);
        assert_eq!((ledger.delivered(), ledger.is_clean()), (1, false));
    }

    #[test]
    fn the_next_links_report_does_not_cover_an_earlier_link() {
        let mut ledger = after(2, 1);
        ledger.link_ended();
        ledger.link_made();
        ledger.frame_sent();
        ledger.fault_reported();
        ledger.link_ended();
        assert_eq!(ledger.to_string(), "frames=1 faults=1 undetected=1 delivered_bad=0 reconnects=1");
    }
}
