//! Tests that need something which a machine may lack: an RDMA device, a C compiler. The harness knows at the start what
//! there is; a test without what it needs counts as ignored, and says why.
//!
//! Every case of endpoints runs on the software fabric, promptly and by adversaries, and, where the system's library has a
//! device with an active port, on that: one source, the same assertions. In the soft-RoCE guest that is a real kernel's
//! verbs. (Verbs without endpoints have a suite of their own, `verbs_conformance`.)

mod credits;
mod endpoints;
mod leaving;
mod one_sided;
#[path = "../it/own_process.rs"]
mod own_process;
mod picking;
#[path = "../it/one_sided_scene.rs"]
mod scene;
mod segments;
mod sleeping;
mod standin;
mod standin_cases;
#[path = "../it/world.rs"]
mod world;

use std::process::ExitCode;

use bareverbs_shell::soft::Mode;
use libtest_mimic::{Arguments, Failed, Trial};
use world::World;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let system = World::system().map(drop).map_err(told("no RDMA device"));
    let compiler = standin::compiler().map_err(told("no C compiler"));
    let mut trials = Vec::new();
    let of_endpoints = endpoints::cases().into_iter().chain(credits::cases()).chain(leaving::cases());
    let of_endpoints = of_endpoints.chain(sleeping::cases()).map(|(name, case)| ("endpoints", name, case));
    let of_one_sided = one_sided::cases().into_iter().map(|(name, case)| ("one_sided", name, case));
    let of_segments = segments::cases().into_iter().map(|(name, case)| ("segments", name, case));
    for (group, name, case) in of_endpoints.chain(of_one_sided).chain(of_segments) {
        for mode in modes() {
            trials.push(trial(&label(group, &mode, name), &Ok(()), move || on(&World::soft(mode), case)));
        }
        let on_system = move || on(&World::system().expect("it was there at the start"), case);
        trials.push(trial(&format!("{group}::system::{name}"), &system, on_system));
    }
    trials.extend(picking::cases().into_iter().map(|case| {
        let needs = if case.needs_device { &system } else { &Ok(()) };
        trial(case.name, needs, case.run)
    }));
    trials.extend(standin_cases::cases().into_iter().map(|(name, case)| trial(name, &compiler, case)));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Says once why something is missing; what is missing then stands beside every test that needs it.
fn told(missing: &'static str) -> impl FnOnce(String) -> &'static str {
    move |why| {
        eprintln!("{missing}, the tests that need one are ignored: {why}");
        missing
    }
}

/// The ways in which the software fabric runs each case.
fn modes() -> Vec<Mode> {
    std::iter::once(Mode::Prompt).chain((1..=4).map(|seed| Mode::Adversarial { seed })).collect()
}

fn label(group: &str, mode: &Mode, name: &str) -> String {
    match mode {
        Mode::Prompt => format!("{group}::soft::{name}"),
        Mode::Adversarial { seed } => format!("{group}::adversary_{seed}::{name}"),
        other => panic!("a mode without a name: {other:?}"),
    }
}

fn on(world: &World, case: fn(&World)) {
    case(world);
    world.assert_clean();
}

/// A test; where what it needs is not there it is ignored, with the reason beside its name.
fn trial(name: &str, needs: &Result<(), &'static str>, run: impl FnOnce() + Send + 'static) -> Trial {
    let run = move || -> Result<(), Failed> {
        run();
        Ok(())
    };
    match needs {
        Ok(()) => Trial::test(name, run),
        Err(why) => Trial::test(name, run).with_kind(*why).with_ignored_flag(true),
    }
}
