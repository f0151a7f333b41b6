//! The slow, obvious access lock: a list of holders and a list of waiters.

use bareverbs_core::access::Mode;

pub type Actor = usize;

/// Who holds and who waits, and of each waiter what it has seen run before it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Twin {
    /// Sorted; an actor that holds twice stands twice.
    holders: Vec<(Actor, Mode)>,
    /// In order of arrival.
    queue: Vec<Waiter>,
}

/// A waiter, and what may still run before it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Waiter {
    actor: Actor,
    mode: Mode,
    exclusive_before: Vec<Actor>,
    reads_seen: u32,
    disjoints_seen: u32,
}

impl Twin {
    pub fn holds(&self, actor: Actor) -> Option<Mode> {
        self.holders.iter().find(|held| held.0 == actor).map(|held| held.1)
    }

    pub fn times_held(&self, actor: Actor) -> usize {
        self.holders.iter().filter(|held| held.0 == actor).count()
    }

    pub fn waits(&self, actor: Actor) -> bool {
        self.queue.iter().any(|waiter| waiter.actor == actor)
    }

    pub fn holders(&self) -> usize {
        self.holders.len()
    }

    pub fn running(&self) -> Option<Mode> {
        self.holders.first().map(|held| held.1)
    }

    pub fn waiting(&self, mode: Mode) -> usize {
        self.queue.iter().filter(|waiter| waiter.mode == mode).count()
    }

    pub fn queue_is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Enters if nobody waits and all that hold are of the same shared mode.
    pub fn try_enter(&mut self, actor: Actor, mode: Mode) -> bool {
        let free = self.holders.is_empty() || (mode.is_shared() && self.running() == Some(mode));
        let enters = free && self.queue.is_empty();
        if enters {
            self.enter(actor, mode);
        }
        enters
    }

    /// Enters a running phase of readers past all waiters.
    pub fn join(&mut self, actor: Actor) -> bool {
        let enters = self.running() == Some(Mode::Read);
        if enters {
            self.enter(actor, Mode::Read);
        }
        enters
    }

    pub fn wait(&mut self, actor: Actor, mode: Mode) {
        let exclusive = |waiter: &&Waiter| waiter.mode == Mode::Exclusive;
        let exclusive_before = self.queue.iter().filter(exclusive).map(|waiter| waiter.actor).collect();
        self.queue.push(Waiter { actor, mode, exclusive_before, reads_seen: 0, disjoints_seen: 0 });
    }

    /// Leaves once; gives those who enter by it.
    pub fn leave(&mut self, actor: Actor) -> Vec<Actor> {
        let at = self.holders.iter().position(|held| held.0 == actor).expect("holds");
        self.holders.remove(at);
        self.settle()
    }

    /// Gives up waiting; gives those who enter by it. Where places are `inherited`, the next waiter of the same shared mode
    /// moves up to the place that comes free; else it stays where it came.
    pub fn give_up(&mut self, actor: Actor, inherited: bool) -> Vec<Actor> {
        let at = self.queue.iter().position(|waiter| waiter.actor == actor).expect("waits");
        let left = self.queue.remove(at);
        let next = self.queue[at..].iter().position(|waiter| waiter.mode == left.mode);
        if let (true, true, Some(next)) = (inherited, left.mode.is_shared(), next) {
            let heir = self.queue.remove(at + next);
            self.queue.insert(at, heir);
        }
        for waiter in &mut self.queue {
            waiter.exclusive_before.retain(|before| *before != actor);
        }
        self.settle()
    }

    /// The first waiter enters if it can, and all of its shared mode with it.
    fn settle(&mut self) -> Vec<Actor> {
        let Some(first) = self.queue.first().cloned() else {
            return Vec::new();
        };
        let running = self.running();
        let joins = first.mode.is_shared() && running == Some(first.mode);
        if running.is_some() && !joins {
            return Vec::new();
        }
        let enters = |waiter: &Waiter| {
            if first.mode.is_shared() { waiter.mode == first.mode } else { waiter.actor == first.actor }
        };
        let entering: Vec<Waiter> = self.queue.iter().filter(|waiter| enters(waiter)).cloned().collect();
        self.queue.retain(|waiter| !enters(waiter));
        if running.is_none() {
            self.phase_starts(&first);
        }
        for waiter in &entering {
            self.enter(waiter.actor, waiter.mode);
        }
        entering.into_iter().map(|waiter| waiter.actor).collect()
    }

    /// The bound of fairness, asserted for each that still waits as a phase starts without it.
    fn phase_starts(&mut self, first: &Waiter) {
        for waiter in &mut self.queue {
            match first.mode {
                Mode::Exclusive => {
                    let at = waiter.exclusive_before.iter().position(|actor| *actor == first.actor);
                    let at = at.unwrap_or_else(|| panic!("{first:?} came later and ran before {waiter:?}"));
                    waiter.exclusive_before.remove(at);
                }
                shared => {
                    assert_ne!(waiter.mode, shared, "a phase of its mode ran without {waiter:?}");
                    let seen = if shared == Mode::Read { &mut waiter.reads_seen } else { &mut waiter.disjoints_seen };
                    *seen += 1;
                    assert!(*seen <= 1, "a second phase of {shared:?} ran before {waiter:?}");
                }
            }
        }
    }

    fn enter(&mut self, actor: Actor, mode: Mode) {
        assert!(self.holders.iter().all(|held| held.1 == mode && mode.is_shared()), "two modes overlap: {self:?}");
        self.holders.push((actor, mode));
        self.holders.sort_unstable();
    }
}
