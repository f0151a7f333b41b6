//! The allocator's steps, and what each is held to.

use std::collections::BTreeSet;

use anyhow::Context;
use bareverbs_examples::say;
use bareverbs_shell::segments::SegmentStatistics;

use crate::Run;
use crate::peer::Versions;
use crate::promises::{Count, DeviceCalls, has_room, most_entries, most_registered, tail_regions};
use crate::scene::Scene;
use crate::tensor::{Tensor, content, differing};

/// A segment that grows, with the tensors in it that are written.
pub struct Grown {
    pub base: u64,
    pub tensors: Vec<Tensor>,
    total_bytes: u64,
    last_number: u64,
    /// The key that the last growth gave the segment.
    pub key: u32,
    /// Registered so far, where it can be counted.
    registered_bytes: u64,
    /// The last step for which regions were registered anew.
    last_merge: Option<u64>,
}

/// How many places for tensors the first step has, so that those of several generations do not overlap.
const PLACES: u64 = 64;

/// Grows a segment to its full size.
pub fn grow(run: &mut Run<'_>) -> anyhow::Result<Grown> {
    let (options, scene) = (run.options, run.scene);
    let base = scene.cuda.reserve(0, options.steps * options.step_bytes());
    say!("{} steps of {} MiB at {base:#x}; tensors of {} bytes", options.steps, options.step_mib, options.tensor_bytes);
    // What was called so far made the two ends and what the peer writes from, and is none of the segment's.
    run.peer.rest()?;
    scene.device_calls();
    let mut grown = Grown {
        base,
        tensors: Vec::new(),
        total_bytes: 0,
        last_number: 0,
        key: 0,
        registered_bytes: 0,
        last_merge: None,
    };
    for step in 0..options.steps {
        grown.step(run, step)?;
    }
    let (registered, most) = (grown.registered_bytes, most_registered(grown.total_bytes, options.step_bytes()));
    say!("grown: {} bytes, {registered} registered in all, of at most {most}", grown.total_bytes);
    run.report.hold(registered <= most, format_args!("{registered} bytes registered"));
    Ok(grown)
}

impl Grown {
    fn step(&mut self, run: &mut Run<'_>, step: u64) -> anyhow::Result<()> {
        let scene = run.scene;
        let before = scene.segments.statistics();
        // The peer writes all the time.
        scene.cuda.map(self.base + self.total_bytes, run.options.step_bytes());
        self.total_bytes += run.options.step_bytes();
        let fresh = self.register(run, step).context("the step's tensors")?;
        let after = scene.segments.statistics();
        let calls = scene.device_calls();
        run.peer.write(&fresh)?;
        self.key = fresh.first().map_or(0, Tensor::key);
        self.tensors.extend(fresh);
        let versions = run.peer.rest()?;
        run.report.wrong += wrong_on_the_gpu(scene, &self.tensors, &versions);

        let (mib, key, most) = (self.total_bytes >> 20, self.key, most_entries(self.total_bytes));
        say!("step {step}: {mib} MiB behind key {key:#x}, {} of at most {most}", Count(after.regions, "region"));
        run.report.hold(after.regions <= most, format_args!("{}", Count(after.regions, "region")));
        run.report.hold((after.segments, after.keys) == (1, 1), format_args!("{} served", Count(after.keys, "key")));
        self.hold_cost(run, step, before, after, calls);
        self.let_go(run, step)
    }

    /// What the step cost, beside what is promised.
    fn hold_cost(
        &mut self,
        run: &mut Run<'_>,
        step: u64,
        before: SegmentStatistics,
        after: SegmentStatistics,
        calls: Option<DeviceCalls>,
    ) {
        let from_bytes = self.total_bytes - run.options.step_bytes();
        let tail = tail_regions(from_bytes, self.total_bytes);
        let (registered, bound) = (after.registrations - before.registrations, after.binds - before.binds);
        let (made, keys) = (Count(registered, "region"), Count(bound, "key"));
        let entries_free = has_room(before.regions, from_bytes, self.total_bytes);
        if entries_free {
            say!("  made {made} (promised {tail}) and {keys} (1)");
            run.report.hold(registered == tail, format_args!("{made} made"));
            run.report.hold(after.regions == before.regions + tail, format_args!("old regions were touched"));
        } else {
            self.last_merge = Some(step);
            say!("  made {made} (entries run short: neighbours became one) and {keys} (1)");
            run.report.hold(after.regions < before.regions + tail, format_args!("no entry was won"));
        }
        run.report.hold(bound == 1, format_args!("{keys} bound"));
        let Some(calls) = calls else { return };
        self.registered_bytes += calls.registered_bytes;
        // The old key went with the growth only where no view held it; a region that was deregistered went with it.
        let gone = u64::from(run.options.keep == 0 && step > 0);
        let promised = DeviceCalls { registered, keys: 1, bound: 1, keys_destroyed: gone, ..calls };
        say!("  device calls: {calls}; promised: {promised}");
        run.report.hold(calls == promised, format_args!("{calls}"));
        run.report.hold(gone > 0 || calls.deregistered == 0, format_args!("regions of a key that is held went"));
    }

    /// Registers the step's tensors: in the new memory, across the seam to the old, in the first step.
    fn register(&mut self, run: &Run<'_>, step: u64) -> anyhow::Result<Vec<Tensor>> {
        let len_bytes = run.options.tensor_bytes;
        let new = self.base + step * run.options.step_bytes();
        let seam = (step > 0).then_some(new - len_bytes / 2);
        let places = [Some(new + len_bytes), seam, Some(self.base + (4 + step % PLACES) * len_bytes)];
        places.into_iter().flatten().map(|addr| self.tensor(run, addr, step)).collect()
    }

    /// Registers one tensor.
    pub fn tensor(&mut self, run: &Run<'_>, addr: u64, generation: u64) -> anyhow::Result<Tensor> {
        let lease = run.scene.segments.register(addr, run.options.tensor_bytes)?.publish()?;
        self.last_number += 1;
        Ok(Tensor::new(self.last_number, addr, generation, lease))
    }

    /// Takes the views of the oldest generation back, whose key must go with them. The peer goes on with the others.
    fn let_go(&mut self, run: &mut Run<'_>, step: u64) -> anyhow::Result<()> {
        let oldest = (step + 1).saturating_sub(run.options.keep);
        let (old, kept): (Vec<_>, _) =
            std::mem::take(&mut self.tensors).into_iter().partition(|tensor| tensor.generation < oldest);
        self.tensors = kept;
        run.peer.forget(&old)?;
        old.into_iter().for_each(Tensor::withdraw);
        let held: BTreeSet<u32> = self.tensors.iter().map(Tensor::key).chain([self.key]).collect();
        if let Some((regions, keys)) = run.scene.live() {
            let (served, held) = (run.scene.segments.statistics().regions, held.len() as u64);
            let (alive, with) = (Count(keys, "key"), Count(regions, "region"));
            say!("  alive: {alive} (served or held by views: {held}), {with}");
            run.report.hold(keys == held, format_args!("alive: {alive}"));
            // Regions in whose place there is one now live with the keys that present them.
            let are_shared = self.last_merge.is_none_or(|merge| merge <= oldest);
            let holds = if are_shared { regions == served } else { regions > served };
            run.report.hold(holds, format_args!("alive: {with}, and {served} served"));
        }
        // What went with the views is none of the next step's.
        run.scene.device_calls();
        Ok(())
    }
}

/// How many bytes of the tensors the GPU sees otherwise than the peer wrote them last. The peer rests.
pub fn wrong_on_the_gpu(scene: &Scene, tensors: &[Tensor], versions: &Versions) -> u64 {
    let wrong = |tensor: &Tensor| {
        let version = versions.get(&tensor.number).copied().unwrap_or(0);
        let seen = scene.cuda.read(tensor.addr, tensor.len_bytes() as usize);
        differing(&seen, &content(tensor.number, version, tensor.len_bytes()))
    };
    tensors.iter().filter(|tensor| !tensor.stale).map(wrong).sum()
}
