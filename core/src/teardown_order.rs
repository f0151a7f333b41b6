//! The order in which what hangs on a device is taken down, as data.
//!
//! Within one owner (an endpoint, a domain) the order is total: [`teardown_order`]. Across handles that safe code drops
//! independently only the dependencies order them: [`DEPENDENCIES`]. The shell's owners follow it by the order of their
//! fields; its tests compare what really happened with this list.
//!
//! ```
//! use bareverbs_core::teardown_order::{Quiesced, Step, teardown_order};
//!
//! let order = teardown_order(Quiesced::Yes);
//! assert_eq!(order.first(), Some(&Step::Quiesce));
//! assert_eq!(order.last(), Some(&Step::DeviceContext));
//! ```

/// One step of a teardown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Step {
    /// A queue pair with work outstanding is moved to the error state and drained by one marker on each of its queues.
    Quiesce,
    /// Indirect keys are destroyed, each before the regions it names.
    IndirectKey,
    /// Memory regions are deregistered, each before the memory it covers is released.
    MemoryRegion,
    /// Queue pairs are destroyed.
    QueuePair,
    /// Completion queues are destroyed, each after the last queue pair that uses it, with all its events acknowledged.
    CompletionQueue,
    /// Completion channels are destroyed, each after the last completion queue on it.
    CompletionChannel,
    /// Protection domains are deallocated.
    ProtectionDomain,
    /// Device contexts are closed.
    DeviceContext,
}

/// Whether a queue pair's outstanding work is known to have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Quiesced {
    /// Nothing was outstanding, or both markers were polled.
    Yes,
    /// The move to the error state, a marker's post or its completion failed: the device may still use the memory.
    No,
}

/// The total order within one owner.
///
/// When a queue pair could not be quiesced, it goes before any region: destroying it is then the only thing that ends the
/// device's use of the memory.
pub const fn teardown_order(quiesced: Quiesced) -> &'static [Step; 8] {
    match quiesced {
        Quiesced::Yes => &[
            Step::Quiesce,
            Step::IndirectKey,
            Step::MemoryRegion,
            Step::QueuePair,
            Step::CompletionQueue,
            Step::CompletionChannel,
            Step::ProtectionDomain,
            Step::DeviceContext,
        ],
        Quiesced::No => &[
            Step::Quiesce,
            Step::QueuePair,
            Step::IndirectKey,
            Step::MemoryRegion,
            Step::CompletionQueue,
            Step::CompletionChannel,
            Step::ProtectionDomain,
            Step::DeviceContext,
        ],
    }
}

/// What must go before what, whoever owns it: the first of each pair before the second.
pub const DEPENDENCIES: &[(Step, Step)] = &[
    (Step::IndirectKey, Step::MemoryRegion),
    (Step::IndirectKey, Step::ProtectionDomain),
    (Step::MemoryRegion, Step::ProtectionDomain),
    (Step::QueuePair, Step::CompletionQueue),
    (Step::QueuePair, Step::ProtectionDomain),
    (Step::CompletionQueue, Step::CompletionChannel),
    (Step::CompletionQueue, Step::DeviceContext),
    (Step::CompletionChannel, Step::DeviceContext),
    (Step::ProtectionDomain, Step::DeviceContext),
];

/// Two steps that happened the wrong way round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct OutOfOrder {
    /// What happened first.
    pub happened: Step,
    /// What should have happened before it, and came after.
    pub came_after: Step,
}

impl core::fmt::Display for OutOfOrder {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "teardown out of order: {:?} happened before {:?}", self.happened, self.came_after)
    }
}

impl core::error::Error for OutOfOrder {}

/// Holds what happened within one owner against the total order. A step may happen any number of times, also never.
///
/// # Errors
/// [`OutOfOrder`] with the first two neighbours that stand the wrong way round.
pub fn check(quiesced: Quiesced, happened: impl IntoIterator<Item = Step>) -> Result<(), OutOfOrder> {
    let order = teardown_order(quiesced);
    let place = |step: Step| order.iter().position(|&other| other == step);
    let mut last: Option<Step> = None;
    for step in happened {
        if let Some(before) = last
            && place(before) > place(step)
        {
            return Err(OutOfOrder { happened: before, came_after: step });
        }
        last = Some(step);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_orders_hold_every_step_once_and_keep_every_dependency() {
        for quiesced in [Quiesced::Yes, Quiesced::No] {
            let order = teardown_order(quiesced);
            let place = |step| order.iter().position(|&other| other == step).expect("every step has a place");
            for (before, after) in DEPENDENCIES {
                assert!(place(*before) < place(*after), "{before:?} before {after:?} when quiesced: {quiesced:?}");
            }
            for (index, step) in order.iter().enumerate() {
                assert_eq!(place(*step), index, "{step:?} stands twice");
            }
        }
    }

    #[test]
    fn a_queue_pair_that_was_not_quiesced_goes_before_any_region() {
        let order = teardown_order(Quiesced::No);
        let place = |step| order.iter().position(|&other| other == step);
        assert!(place(Step::QueuePair) < place(Step::MemoryRegion));
        assert!(check(Quiesced::No, [Step::QueuePair, Step::MemoryRegion]).is_ok());
        assert!(check(Quiesced::Yes, [Step::MemoryRegion, Step::QueuePair]).is_ok());
    }

    #[test]
    fn the_first_wrong_neighbours_are_named() {
        let wrong = check(Quiesced::Yes, [Step::MemoryRegion, Step::CompletionQueue, Step::QueuePair]);
        assert_eq!(wrong, Err(OutOfOrder { happened: Step::CompletionQueue, came_after: Step::QueuePair }));
        assert_eq!(check(Quiesced::Yes, []), Ok(()));
        assert_eq!(check(Quiesced::Yes, [Step::MemoryRegion, Step::MemoryRegion]), Ok(()));
    }
}
