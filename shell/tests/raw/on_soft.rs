//! What raw tests on the software fabric run on.

use std::time::Duration;

use bareverbs_shell::soft::{Mode, SoftFabric};

use super::Env;

/// The ways that a test of the software fabric runs in: promptly, and with several adversaries.
pub fn modes() -> impl Iterator<Item = Mode> {
    std::iter::once(Mode::Prompt).chain((1..=24).map(|seed| Mode::Adversarial { seed }))
}

/// A device of a software fabric.
pub fn env(fabric: &SoftFabric, device: &'static str) -> Env {
    Env { symbols: fabric.symbols(), mlx5: Some(fabric.mlx5_symbols()), device, strict: true, quiet: Duration::ZERO }
}
