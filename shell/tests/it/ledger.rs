//! A fabric's record held against the teardown order: what was made, what was destroyed, in which order.
//!
//! # Safety
//!
//! This file destroys only what a record says is alive, and what nobody can reach any more ([`Ledger::sweep`]).
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ptr::with_exposed_provenance_mut as pointer;

use bareverbs_core::teardown_order::{DEPENDENCIES, Quiesced, Step, check, teardown_order};
use bareverbs_core::verbs::QpState;
use bareverbs_shell::soft::{Call, Detail, LiveCounts, SoftFabric};

/// What is known after all calls of a record.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Objects that are alive, with their kind and parents.
    pub alive: BTreeMap<usize, (Step, Vec<usize>)>,
    /// Destroys that were refused: handle and what was returned.
    pub refused: Vec<(usize, Step, i32)>,
    /// Steps that succeeded since a device was last opened, in order; moves to the error state are the quiescing.
    pub steps: Vec<Step>,
}

impl Ledger {
    /// Replays a record.
    ///
    /// # Panics
    /// If something was destroyed twice, destroyed again after a refusal, or before what depends on it.
    pub fn replay(calls: &[Call]) -> Self {
        let mut ledger = Self::default();
        for call in calls {
            ledger.enter(call);
        }
        ledger
    }

    /// Destroys what was left behind for good, so that the fabric can serve again.
    #[allow(clippy::multiple_unsafe_ops_per_block, reason = "one of seven is called")]
    pub fn sweep(self, soft: &SoftFabric) {
        let symbols = soft.symbols();
        let children_first = teardown_order(Quiesced::No);
        let mut alive: Vec<_> = self.alive.into_iter().map(|(handle, made)| (made.0, handle)).collect();
        alive.sort_by_key(|(step, _)| children_first.iter().position(|other| other == step));
        for (step, handle) in alive {
            // SAFETY: alive, and its owner was told that destroying it failed, and does not do it again.
            let returned = unsafe {
                match step {
                    Step::IndirectKey => (soft.mlx5_symbols().destroy_mkey)(pointer(handle)),
                    Step::QueuePair => (symbols.destroy_qp)(pointer(handle)),
                    Step::MemoryRegion => (symbols.dereg_mr)(pointer(handle)),
                    Step::CompletionQueue => (symbols.destroy_cq)(pointer(handle)),
                    Step::CompletionChannel => (symbols.destroy_comp_channel.expect("it made one"))(pointer(handle)),
                    Step::ProtectionDomain => (symbols.dealloc_pd)(pointer(handle)),
                    _ => (symbols.close_device)(pointer(handle)),
                }
            };
            assert_eq!(returned, 0, "{step:?}");
        }
        assert_eq!(soft.live(), LiveCounts::default());
    }

    /// The steps of a record that begins after everything was made.
    pub fn teardown_steps(calls: &[Call]) -> Vec<Step> {
        let done = calls.iter().filter(|call| call.returned == 0);
        done.filter_map(|call| if is_quiesce(call) { Some(Step::Quiesce) } else { destroyed_by(call.symbol) }).collect()
    }

    fn enter(&mut self, call: &Call) {
        if let Some(step) = made_by(call.symbol) {
            if call.returned == 0 {
                let parents: Vec<usize> = call.parents.into_iter().filter(|parent| *parent != 0).collect();
                for (_, parent) in parents.iter().filter_map(|parent| self.alive.get_key_value(parent)) {
                    assert!(DEPENDENCIES.contains(&(step, parent.0)), "no dependency {step:?} on {:?}", parent.0);
                }
                if step == Step::DeviceContext {
                    self.steps.clear();
                }
                assert!(self.alive.insert(call.handle, (step, parents)).is_none(), "one handle, two objects: {call:?}");
            }
        } else if let Some(step) = destroyed_by(call.symbol) {
            self.destroy(call, step);
        } else if is_quiesce(call) && call.returned == 0 {
            self.steps.push(Step::Quiesce);
        }
    }

    fn destroy(&mut self, call: &Call, step: Step) {
        assert!(self.refused.iter().all(|refused| refused.0 != call.handle), "tried again after a refusal: {call:?}");
        if call.returned != 0 {
            self.refused.push((call.handle, step, call.returned));
            return;
        }
        assert!(self.alive.remove(&call.handle).is_some(), "destroyed twice, or never made: {call:?}");
        let child = self.alive.values().find(|(_, parents)| parents.contains(&call.handle));
        assert_eq!(child, None, "destroyed before what depends on it: {call:?}");
        self.steps.push(step);
    }

    /// Holds the steps of one owner against the total order.
    pub fn assert_in_order(&self, quiesced: Quiesced) {
        assert_eq!(check(quiesced, self.steps.iter().copied()), Ok(()), "{:?}", self.steps);
    }

    /// That everything is gone and no destroy was refused.
    pub fn assert_all_gone(&self) {
        assert_eq!(self.refused, []);
        assert_eq!(self.alive, BTreeMap::new());
    }

    /// That what is alive is what could not be destroyed, and what that needs; `leaked` regions besides.
    pub fn assert_only_refused_stay(&self, leaked: bool) {
        let mut kept: Vec<usize> = self.refused.iter().map(|refused| refused.0).collect();
        if leaked {
            kept.extend(self.alive.iter().filter(|(_, made)| made.0 == Step::MemoryRegion).map(|(handle, _)| *handle));
        }
        let mut next = 0;
        while next < kept.len() {
            let parents = self.alive.get(&kept[next]).map(|made| made.1.clone()).unwrap_or_default();
            kept.extend(parents.into_iter().filter(|parent| self.alive.contains_key(parent)));
            next += 1;
        }
        let stays: Vec<_> = self.alive.keys().copied().collect();
        kept.sort_unstable();
        kept.dedup();
        assert_eq!(stays, kept, "{self:#?}");
    }

    /// How many of each kind are alive, to be compared with the fabric's own count.
    pub fn count(&self, step: Step) -> usize {
        self.alive.values().filter(|made| made.0 == step).count()
    }

    /// That the fabric counts as we do.
    pub fn assert_counts(&self, live: &LiveCounts) {
        let counted = [
            (Step::DeviceContext, live.contexts),
            (Step::ProtectionDomain, live.pds),
            (Step::MemoryRegion, live.mrs),
            (Step::CompletionQueue, live.cqs),
            (Step::CompletionChannel, live.channels),
            (Step::QueuePair, live.qps),
            (Step::IndirectKey, live.keys),
        ];
        for (step, count) in counted {
            assert_eq!(self.count(step), count, "{step:?}");
        }
    }
}

/// How often a call was made.
pub fn calls_of(calls: &[Call], symbol: &str) -> usize {
    calls.iter().filter(|call| call.symbol == symbol).count()
}

/// Where a call of that name stands first.
pub fn position(calls: &[Call], symbol: &str) -> Option<usize> {
    calls.iter().position(|call| call.symbol == symbol)
}

/// Whether it is a move to the error state.
pub fn is_quiesce(call: &Call) -> bool {
    matches!(call.detail, Detail::Modify { attr, .. } if attr.qp_state == QpState::ERR)
}

fn made_by(symbol: &str) -> Option<Step> {
    Some(match symbol {
        "ibv_open_device" => Step::DeviceContext,
        "ibv_alloc_pd" => Step::ProtectionDomain,
        "ibv_reg_mr" | "ibv_reg_mr_iova2" | "ibv_reg_dmabuf_mr" => Step::MemoryRegion,
        "mlx5dv_create_mkey" => Step::IndirectKey,
        "ibv_create_cq" => Step::CompletionQueue,
        "ibv_create_comp_channel" => Step::CompletionChannel,
        "ibv_create_qp" | "mlx5dv_create_qp" => Step::QueuePair,
        _ => return None,
    })
}

fn destroyed_by(symbol: &str) -> Option<Step> {
    Some(match symbol {
        "ibv_close_device" => Step::DeviceContext,
        "ibv_dealloc_pd" => Step::ProtectionDomain,
        "ibv_dereg_mr" => Step::MemoryRegion,
        "mlx5dv_destroy_mkey" => Step::IndirectKey,
        "ibv_destroy_cq" => Step::CompletionQueue,
        "ibv_destroy_comp_channel" => Step::CompletionChannel,
        "ibv_destroy_qp" => Step::QueuePair,
        _ => return None,
    })
}
