//! What allocators do besides: shrink, leave a hole, free all, and map other memory at the same addresses.

use anyhow::{Context, ensure};
use bareverbs_examples::say;
use bareverbs_shell::segments::SegmentErrorKind;

use crate::Run;
use crate::growth::{Grown, wrong_on_the_gpu};
use crate::tensor::{Tensor, differing};

/// Shrinks, cuts, frees and reuses the segment.
pub fn reuse(run: &mut Run<'_>, grown: Grown) -> anyhow::Result<()> {
    let mut life = Life { run, grown };
    life.shrink().context("the segment shrinks")?;
    life.cut().context("the segment gets a hole")?;
    life.free().context("the segment is freed")?;
    life.map_other_memory().context("other memory comes to its addresses")
}

struct Life<'a, 'r> {
    run: &'a mut Run<'r>,
    grown: Grown,
}

impl Life<'_, '_> {
    /// The last step goes: what is left is bound anew, and what went is refused.
    fn shrink(&mut self) -> anyhow::Result<()> {
        let last = self.run.options.steps - 1;
        self.unmap(last);
        self.refuses(self.step(last), "in what went");
        self.refuses(self.step(last) - 8, "across the new end");
        let fresh = self.tensor(self.step(last) - self.run.options.tensor_bytes)?;
        self.run.report.hold(fresh.key() != self.grown.key, format_args!("the segment was not bound anew"));
        self.served(1, "of a segment that shrank");
        self.write_and_verify("shrunk", [fresh])
    }

    /// A step in the middle goes: what is before and what is behind have keys of their own.
    fn cut(&mut self) -> anyhow::Result<()> {
        let hole = self.hole();
        self.unmap(hole);
        self.refuses(self.step(hole), "in the hole");
        self.refuses(self.step(hole) - 8, "into the hole");
        let before = self.tensor(self.step(hole) - self.run.options.tensor_bytes)?;
        let behind = self.tensor(self.step(hole + 1))?;
        self.run.report.hold(before.key() != behind.key(), format_args!("one key over a hole"));
        self.served(2, "of a segment with a hole");
        self.write_and_verify("cut", [before, behind])
    }

    /// All goes: nothing is served, and only views hold keys.
    fn free(&mut self) -> anyhow::Result<()> {
        let hole = self.hole();
        (0..self.run.options.steps - 1).filter(|step| *step != hole).for_each(|step| self.unmap(step));
        self.refuses(self.grown.base, "in a segment that was freed");
        // Without a request that meets it, what is gone is found by pruning.
        self.run.scene.segments.prune()?;
        self.served(0, "of a segment that was freed");
        self.write_and_verify("freed", [])
    }

    /// Other memory comes to the same addresses: views of the old do not reach it, and it gets a key of its own.
    fn map_other_memory(&mut self) -> anyhow::Result<()> {
        let (base, options) = (self.grown.base, self.run.options);
        self.run.scene.cuda.map(base, options.steps * options.step_bytes());
        let untouched: Vec<_> = self.grown.tensors.iter().map(|stale| (stale.addr, stale.len_bytes())).collect();
        let reused = self.tensor(base)?;
        let stale_keys: Vec<_> = self.grown.tensors.iter().map(Tensor::key).collect();
        let is_fresh = !stale_keys.contains(&reused.key());
        self.run.report.hold(is_fresh, format_args!("new memory under an old key"));
        self.write_and_verify("reused", [reused])?;
        for (addr, len_bytes) in untouched {
            let seen = self.run.scene.cuda.read(addr, len_bytes as usize);
            // The one fresh tensor is at the base, and no other ever was there.
            self.run.report.wrong += differing(&seen, &vec![0; len_bytes as usize]);
        }
        let tensors = std::mem::take(&mut self.grown.tensors);
        self.run.peer.rest()?;
        self.run.peer.forget(&tensors)?;
        tensors.into_iter().for_each(Tensor::withdraw);
        if let Some((regions, keys)) = self.run.scene.live() {
            let held = self.run.scene.segments.statistics();
            let same = (regions, keys) == (held.regions, held.keys) && keys == 1;
            self.run.report.hold(same, format_args!("alive: keys {keys}, regions {regions}, and no view"));
        }
        self.run.scene.cuda.unmap(base);
        self.run.scene.segments.prune()?;
        let left = self.run.scene.live().unwrap_or_default();
        self.run.report.hold(left == (0, 0), format_args!("regions {}, keys {} after all was freed", left.0, left.1));
        Ok(())
    }

    /// The step in the middle of those that are left when the last has gone.
    fn hole(&self) -> u64 {
        (self.run.options.steps - 1) / 2
    }

    fn step(&self, step: u64) -> u64 {
        self.grown.base + step * self.run.options.step_bytes()
    }

    /// Unmaps a step. Tensors in it are written all the same, to memory that only their views hold.
    fn unmap(&mut self, step: u64) {
        let (start, end) = (self.step(step), self.step(step + 1));
        self.run.scene.cuda.unmap(start);
        for tensor in &mut self.grown.tensors {
            tensor.stale |= tensor.addr < end && start < tensor.addr + tensor.len_bytes();
        }
    }

    fn tensor(&mut self, addr: u64) -> anyhow::Result<Tensor> {
        self.grown.tensor(self.run, addr, self.run.options.steps)
    }

    /// That a request there is refused since nothing is mapped.
    fn refuses(&mut self, addr: u64, what: &str) {
        match self.run.scene.segments.register(addr, self.run.options.tensor_bytes.max(16)) {
            Ok(view) => self.run.report.hold(false, format_args!("{view:?} {what}")),
            Err(error) => {
                let is_said = matches!(error.kind, SegmentErrorKind::NotCovered | SegmentErrorKind::Export { .. });
                self.run.report.hold(is_said, format_args!("{what}: {error}"));
            }
        }
    }

    /// That so many segments are served, each by one key.
    fn served(&mut self, segments: u64, what: &str) {
        let statistics = self.run.scene.segments.statistics();
        let (got, keys) = (statistics.segments, statistics.keys);
        self.run.report.hold((got, keys) == (segments, segments), format_args!("segments {got}, keys {keys} {what}"));
    }

    /// Lets the peer write all, those whose memory is gone too, and verifies what the GPU still sees.
    fn write_and_verify(&mut self, what: &str, fresh: impl IntoIterator<Item = Tensor>) -> anyhow::Result<()> {
        let fresh: Vec<Tensor> = fresh.into_iter().collect();
        self.run.peer.write(&fresh)?;
        self.grown.tensors.extend(fresh);
        let versions = self.run.peer.rest()?;
        self.run.report.wrong += wrong_on_the_gpu(self.run.scene, &self.grown.tensors, &versions);
        let stale = self.grown.tensors.iter().filter(|tensor| tensor.stale).count();
        ensure!(!versions.is_empty(), "the peer wrote nothing");
        say!("{what}: {} tensors verified, {stale} of them in memory that only views hold", self.grown.tensors.len());
        Ok(())
    }
}
