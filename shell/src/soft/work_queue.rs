//! A queue of posted requests, from its post to the moment its slot is free again.
//!
//! A request passes four marks, in order: *posted*; *done* (a send was read, a receive was written, or either failed);
//! *reported* (its completion is in the completion queue, or it was found to need none); *recycled* (that completion, or a
//! later one of the queue, was polled). Only then its slot is free. So a queue whose sends are never signalled fills up, as
//! on hardware.

use bareverbs_core::verbs::Sge;

/// What a queue must know of a request.
pub(super) trait Request: Copy + Default {
    /// Slots of the queue that it takes.
    fn slots(&self) -> u32;
    /// Scatter/gather entries that it has.
    fn entries(&self) -> usize;
}

/// The queue has no room for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// Requests of one direction of one queue pair. Allocates when made and never again.
#[derive(Debug)]
pub(super) struct WorkQueue<R> {
    ring: Box<[R]>,
    entries: Box<[Sge]>,
    entries_each: usize,
    capacity_slots: u32,
    used_slots: u32,
    posted: u64,
    done: u64,
    reported: u64,
    recycled: u64,
}

impl<R: Request> WorkQueue<R> {
    pub(super) fn new(capacity_slots: u32, entries_each: u32) -> Self {
        let (length, entries_each) = ((capacity_slots as usize).next_power_of_two(), entries_each as usize);
        Self {
            ring: vec![R::default(); length].into(),
            entries: vec![Sge::default(); length * entries_each].into(),
            entries_each,
            capacity_slots,
            used_slots: 0,
            posted: 0,
            done: 0,
            reported: 0,
            recycled: 0,
        }
    }

    /// Forgets all requests.
    pub(super) const fn clear(&mut self) {
        self.used_slots = 0;
        self.posted = 0;
        self.done = 0;
        self.reported = 0;
        self.recycled = 0;
    }

    /// Where in the ring the request with this number is.
    #[inline]
    pub(super) const fn place(&self, number: u64) -> usize {
        number as usize & (self.ring.len() - 1)
    }

    /// Whether a request of so many slots fits, and the place that it would take.
    #[inline]
    pub(super) const fn room(&self, slots: u32) -> Result<usize, Full> {
        if self.used_slots.saturating_add(slots) > self.capacity_slots {
            Err(Full)
        } else {
            Ok(self.place(self.posted))
        }
    }

    #[inline]
    pub(super) fn push(&mut self, request: R, entries: &[Sge]) -> Result<(), Full> {
        let place = self.room(request.slots())?;
        self.used_slots += request.slots();
        self.ring[place] = request;
        let start = place * self.entries_each;
        self.entries[start..start + entries.len()].copy_from_slice(entries);
        self.posted += 1;
        Ok(())
    }

    /// The request that is to be done next, and its place.
    #[inline]
    pub(super) fn to_do(&self) -> Option<(usize, &R)> {
        if self.done == self.posted {
            return None;
        }
        let place = self.place(self.done);
        Some((place, &self.ring[place]))
    }

    /// Requests that are posted and not done.
    pub(super) const fn waiting(&self) -> u64 {
        self.posted - self.done
    }

    /// The `ahead`-th request after the next to be done, with its entries.
    pub(super) fn waiting_entries(&self, ahead: u64) -> &[Sge] {
        let place = self.place(self.done + ahead);
        &self.entries[place * self.entries_each..][..self.ring[place].entries()]
    }

    /// The request that was done last.
    pub(super) fn last_done(&self) -> Option<&R> {
        Some(&self.ring[self.place(self.done.checked_sub(1)?)])
    }

    /// Marks the next request done, after `change` wrote into it how it went.
    #[inline]
    pub(super) fn mark_done(&mut self, change: impl FnOnce(&mut R)) {
        let place = self.place(self.done);
        change(&mut self.ring[place]);
        self.done += 1;
    }

    /// Whether a request is done and not reported.
    pub(super) const fn can_report(&self) -> bool {
        self.reported < self.done
    }

    /// The next request that is done and not reported.
    pub(super) fn to_report(&self) -> Option<&R> {
        self.can_report().then(|| &self.ring[self.place(self.reported)])
    }

    /// Marks the next request that is done reported; its number and the request.
    #[inline]
    pub(super) fn report(&mut self) -> Option<(u64, &R)> {
        if self.reported == self.done {
            return None;
        }
        let number = self.reported;
        self.reported += 1;
        Some((number, &self.ring[self.place(number)]))
    }

    /// Frees the slots of the request with this number and of all before it.
    #[inline]
    pub(super) fn recycle_through(&mut self, number: u64) {
        while self.recycled <= number && self.recycled < self.reported {
            self.used_slots -= self.ring[self.place(self.recycled)].slots();
            self.recycled += 1;
        }
    }

    /// Takes the entries out, so that the rest of the fabric can be changed while they are read; [`WorkQueue::restore`]
    /// puts them back.
    #[inline]
    pub(super) fn take_entries(&mut self) -> Box<[Sge]> {
        std::mem::take(&mut self.entries)
    }

    #[inline]
    pub(super) fn restore(&mut self, entries: Box<[Sge]>) {
        self.entries = entries;
    }

    /// Of entries taken out, those of the request at `place`.
    #[inline]
    pub(super) fn of_request<'entries>(&self, entries: &'entries [Sge], place: usize) -> &'entries [Sge] {
        &entries[place * self.entries_each..][..self.ring[place].entries()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    struct Slots(u32);

    impl Request for Slots {
        fn slots(&self) -> u32 {
            self.0
        }
        fn entries(&self) -> usize {
            0
        }
    }

    #[test]
    fn a_queue_holds_its_capacity_and_a_refusal_changes_nothing() {
        let mut queue = WorkQueue::new(3, 0);
        assert_eq!((0..4).map(|_| queue.push(Slots(1), &[])).collect::<Vec<_>>(), [Ok(()), Ok(()), Ok(()), Err(Full)]);
        assert_eq!((queue.waiting(), queue.used_slots), (3, 3));
    }

    #[test]
    fn slots_are_free_only_after_a_later_request_was_recycled() {
        let mut queue = WorkQueue::new(2, 0);
        for _ in 0..2 {
            queue.push(Slots(1), &[]).expect("room");
            queue.mark_done(|_| ());
            queue.report();
        }
        assert_eq!(queue.push(Slots(1), &[]), Err(Full));
        queue.recycle_through(1);
        assert_eq!(queue.used_slots, 0);
    }

    #[test]
    fn a_request_may_take_several_slots() {
        let mut queue = WorkQueue::new(4, 0);
        assert_eq!(queue.push(Slots(3), &[]), Ok(()));
        assert_eq!(queue.push(Slots(2), &[]), Err(Full));
        assert_eq!(queue.push(Slots(1), &[]), Ok(()));
    }

    #[test]
    fn what_was_not_reported_cannot_be_recycled() {
        let mut queue = WorkQueue::new(2, 0);
        queue.push(Slots(1), &[]).expect("room");
        queue.recycle_through(u64::MAX);
        assert_eq!(queue.used_slots, 1);
    }

    /// The slow twin: requests in a list, each with the mark that it has passed.
    #[derive(Debug, Default)]
    struct Twin(Vec<(u32, u8)>);

    impl Twin {
        fn advance(&mut self, from: u8) {
            if let Some(request) = self.0.iter_mut().find(|request| request.1 == from) {
                request.1 += 1;
            }
        }

        fn used(&self) -> u32 {
            self.0.iter().filter(|request| request.1 < 3).map(|request| request.0).sum()
        }
    }

    proptest::proptest! {
        #[test]
        fn it_agrees_with_its_slow_twin(steps in proptest::collection::vec((0..4_u8, 1..4_u32, 0..20_u64), 0..200)) {
            let (mut queue, mut twin) = (WorkQueue::new(7, 0), Twin::default());
            for (step, slots, number) in steps {
                match step {
                    0 => {
                        let fits = twin.used() + slots <= 7;
                        assert_eq!(queue.push(Slots(slots), &[]).is_ok(), fits);
                        if fits {
                            twin.0.push((slots, 0));
                        }
                    }
                    1 if queue.waiting() > 0 => {
                        queue.mark_done(|_| ());
                        twin.advance(0);
                    }
                    2 => {
                        assert_eq!(queue.report().is_some(), twin.0.iter().any(|request| request.1 == 1));
                        twin.advance(1);
                    }
                    _ => {
                        queue.recycle_through(number);
                        for request in twin.0.iter_mut().take(number as usize + 1).filter(|request| request.1 == 2) {
                            request.1 = 3;
                        }
                    }
                }
                assert_eq!(queue.used_slots, twin.used());
                assert_eq!(queue.waiting(), twin.0.iter().filter(|request| request.1 == 0).count() as u64);
            }
        }
    }
}
