//! What an endpoint owns, and how it goes.
//!
//! The rule this file protects: **the order of [`teardown_order`](bareverbs_core::teardown_order)**, by an explicit close
//! or by drop, with work in flight, and when any call fails. What could not be destroyed stays, with everything that it
//! needs; memory that the device may still write is never freed.

use std::sync::Arc;
use std::time::Duration;

use bareverbs_core::teardown_order::{Quiesced, Step};
use bareverbs_core::verbs::inline_calls::Notify;

use crate::error::{CallError, Error};
use crate::objects::report::{DropFailure, report};
use crate::objects::{CompletionChannel, CompletionQueue, DeviceContext, MemoryRegion, ProtectionDomain, QueuePair};

/// What happened at a teardown, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Teardown {
    /// Whether the device is known to have ended before the queue pair went: not where the endpoint was abandoned.
    pub quiesced: Quiesced,
    /// Each step that was taken, with its outcome.
    pub steps: Vec<(Step, Result<(), CallError>)>,
    /// Why the queue pair could not be drained.
    pub not_drained: Option<String>,
}

impl Teardown {
    /// The steps that succeeded, for [`check`](bareverbs_core::teardown_order::check).
    pub fn done(&self) -> impl Iterator<Item = Step> {
        self.steps.iter().filter(|(_, outcome)| outcome.is_ok()).map(|(step, _)| *step)
    }

    /// The first call that failed.
    pub fn failure(&self) -> Option<&CallError> {
        self.steps.iter().find_map(|(_, outcome)| outcome.as_ref().err())
    }
}

/// The objects of one endpoint.
#[derive(Debug)]
pub(crate) struct Plumbing {
    pub(crate) region: Option<MemoryRegion>,
    pub(crate) queue_pair: Option<QueuePair>,
    pub(crate) queue: Option<CompletionQueue>,
    pub(crate) channel: Option<Arc<CompletionChannel>>,
    pub(crate) domain: Option<Arc<ProtectionDomain>>,
    pub(crate) context: Option<Arc<DeviceContext>>,
    pub(crate) device: Arc<str>,
    /// What became of a queue pair that was destroyed before the endpoint's end.
    pub(crate) abandoned: Option<Result<(), CallError>>,
}

impl Plumbing {
    /// That this process made it all.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        self.context.as_ref().map_or(Ok(()), |context| context.check_process())
    }

    /// Whether the queue pair is known to be gone, and all that it had with it.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned == Some(Ok(()))
    }

    /// The queue pair.
    pub(crate) fn queue_pair(&mut self) -> Result<&mut QueuePair, Error> {
        let device = &self.device;
        let gone = || Error::State { device: Arc::clone(device), what: "its queue pair is gone" };
        self.queue_pair.as_mut().ok_or_else(gone)
    }

    /// The device.
    pub(crate) fn context(&self) -> Result<&Arc<DeviceContext>, Error> {
        let gone = || Error::State { device: Arc::clone(&self.device), what: "its device is closed" };
        self.context.as_ref().ok_or_else(gone)
    }

    /// Asks for an event at the next completion.
    pub(crate) fn arm(&mut self) -> Result<(), Error> {
        self.queue.as_mut().map_or(Ok(()), |queue| queue.arm(Notify::Any))
    }

    /// Sleeps until something completes or the device reports something, at most `limit`.
    pub(crate) fn sleep(&self, limit: Duration) -> Result<(), Error> {
        self.channel.as_ref().map_or(Ok(()), |channel| channel.wait_or_event(limit).map(drop))
    }

    /// Takes everything down that is there. `drain` ends what the queue pair has outstanding; it is asked only when there
    /// is a queue pair.
    pub(crate) fn take_down(
        &mut self,
        drain: impl FnOnce(&mut QueuePair, &mut CompletionQueue) -> Option<Result<(), String>>,
    ) -> Teardown {
        let mut done = Teardown { quiesced: Quiesced::Yes, steps: Vec::new(), not_drained: None };
        if let Some(outcome) = self.abandoned.take() {
            done.quiesced = Quiesced::No;
            done.steps.push((Step::QueuePair, outcome));
        }
        if let (Some(queue_pair), Some(queue)) = (&mut self.queue_pair, &mut self.queue) {
            match drain(queue_pair, queue) {
                None => {}
                Some(Ok(())) => done.steps.push((Step::Quiesce, Ok(()))),
                Some(Err(reason)) => {
                    done.quiesced = Quiesced::No;
                    done.not_drained = Some(reason);
                }
            }
        }
        if done.not_drained.is_some() {
            // Destroying the queue pair is all that ends the device's use of the memory now.
            self.close_queue_pair(&mut done);
            if done.failure().is_some() {
                self.leak_region();
            }
        }
        if let Some(region) = self.region.take() {
            done.steps.push((Step::MemoryRegion, region.destroy()));
        }
        self.close_queue_pair(&mut done);
        // Whatever somebody else still holds goes with its last owner.
        if let Some(outcome) = self.queue.take().and_then(CompletionQueue::close_if_last) {
            done.steps.push((Step::CompletionQueue, outcome));
        }
        if let Some(outcome) = self.channel.take().and_then(CompletionChannel::close_if_last) {
            done.steps.push((Step::CompletionChannel, outcome));
        }
        if let Some(outcome) = self.domain.take().and_then(ProtectionDomain::close_if_last) {
            done.steps.push((Step::ProtectionDomain, outcome));
        }
        if let Some(outcome) = self.context.take().and_then(DeviceContext::close_if_last) {
            done.steps.push((Step::DeviceContext, outcome));
        }
        done
    }

    /// Destroys a queue pair that must not be used again. Work that it had ends with it. What became of it is told with the
    /// teardown.
    pub(crate) fn abandon_queue_pair(&mut self) {
        let Some(queue_pair) = self.queue_pair.take() else { return };
        let ours = self.check_process().is_ok();
        let destroyed = queue_pair.destroy();
        if destroyed.is_err() {
            self.leak_region();
        }
        self.abandoned = ours.then_some(destroyed);
    }

    fn close_queue_pair(&mut self, done: &mut Teardown) {
        if let Some(queue_pair) = self.queue_pair.take() {
            done.steps.push((Step::QueuePair, queue_pair.destroy()));
        }
    }

    /// Leaves region and memory in place for ever: the device may still write.
    fn leak_region(&mut self) {
        if let Some(region) = self.region.take() {
            report(&DropFailure::Leaked { device: Arc::clone(&self.device), len_bytes: region.len_bytes() });
            std::mem::forget(region);
        }
    }
}

/// Reports what a drop could not do.
pub(crate) fn report_failures(done: &Teardown, device: &Arc<str>, qp_num: u32) {
    if let Some(reason) = &done.not_drained {
        report(&DropFailure::Quiesce { device: Arc::clone(device), qp_num, reason: reason.clone() });
    }
    for error in done.steps.iter().filter_map(|(_, outcome)| outcome.as_ref().err()) {
        report(&DropFailure::Destroy(error.clone()));
    }
}

/// The outcome of an explicit close: what happened, or the first call that was refused. An error has room for one call only:
/// whatever else could not be done is reported as a drop would.
pub(crate) fn outcome(mut done: Teardown, device: &Arc<str>, qp_num: u32) -> Result<Teardown, Error> {
    let Some(first) = done.steps.iter().position(|(_, outcome)| outcome.is_err()) else { return Ok(done) };
    let (_, refused) = done.steps.remove(first);
    report_failures(&done, device, qp_num);
    match refused {
        Err(error) => Err(Error::Call(error)),
        // Not reached: it was an error.
        Ok(()) => Ok(done),
    }
}
