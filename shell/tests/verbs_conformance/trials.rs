//! Which cases run where.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bareverbs_shell::soft::{GidSlot, LiveCounts, SoftConfig, SoftDevice, SoftFabric};
use bareverbs_shell::symbols::{Symbols, mlx5_system, system};
use libtest_mimic::{Failed, Trial};

use crate::Case;
use crate::differences::{self, Side};
use crate::raw::on_soft::{env, modes};
use crate::raw::{Env, device_names, keys};

/// How long nothing is to be seen on a device before nothing comes: an emulated guest is slow.
const QUIET: Duration = Duration::from_millis(150);

/// The trials of all cases, and the sides that they run on.
pub fn all(cases: &'static [Case]) -> (Vec<Trial>, Vec<Side>) {
    let device = device();
    let mut trials = vec![Trial::test("the documentation has this table of differences", differences::are_documented)];
    // Beside a device fewer adversaries: the machine may be an emulated one.
    let ways = if matches!(device, Device::None(_)) { usize::MAX } else { 4 };
    let mlx5 = is_mlx5(&device);
    if matches!(device, Device::Found { .. }) && !mlx5 {
        eprintln!("cases of indirect keys are ignored on the device: the provider says that it is no mlx5");
    }
    for case in cases {
        trials.push(Trial::test(format!("soft::{}", case.name), move || on_soft(case, ways)));
        let found = device.clone();
        let ignored = matches!(found, Device::None(_)) || (case.mlx5 && !mlx5);
        let trial = Trial::test(format!("device::{}", case.name), move || on_device(case, found));
        trials.push(trial.with_ignored_flag(ignored));
    }
    match device {
        Device::None(why) => {
            eprintln!("cases on a device are ignored: {why}");
            (trials, vec![Side::Soft])
        }
        _ => (trials, vec![Side::Soft, Side::Device]),
    }
}

fn on_soft(case: &Case, ways: usize) -> Result<(), Failed> {
    for mode in modes().take(ways) {
        let fabric = SoftFabric::new(SoftConfig::default().devices(vec![soft_device(case)]).mode(mode))?;
        (case.run)(&env(&fabric, "soft0"));
        if case.misuse {
            assert_ne!(fabric.misuse(), Vec::<String>::new(), "{mode:?}");
            continue;
        }
        assert_eq!(fabric.live(), LiveCounts::default(), "{mode:?}");
        assert_eq!(fabric.misuse(), Vec::<String>::new(), "{mode:?}");
    }
    Ok(())
}

fn soft_device(case: &Case) -> SoftDevice {
    let device = if case.mlx5 { SoftDevice::mlx5("soft0") } else { SoftDevice::new("soft0") };
    device.gids(vec![GidSlot::link_local(1), GidSlot::ipv4([127, 0, 0, 1]), GidSlot::Empty])
}

/// Whether the provider takes the device for its own.
fn is_mlx5(device: &Device) -> bool {
    match (device, mlx5_system::load()) {
        (Device::Found { symbols, name }, Ok(mlx5)) => keys::is_supported(symbols, &mlx5, name),
        _ => false,
    }
}

/// One case after the other: events of a port are seen by all who watch it, and an emulated guest is slow.
fn on_device(case: &Case, device: Device) -> Result<(), Failed> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    match device {
        Device::Found { symbols, name } => {
            (case.run)(&Env { symbols, mlx5: mlx5_system::load().ok(), device: name, strict: false, quiet: QUIET });
            Ok(())
        }
        Device::Unusable(why) | Device::None(why) => Err(why.into()),
    }
}

#[derive(Clone)]
enum Device {
    Found {
        symbols: Arc<Symbols>,
        name: &'static str,
    },
    /// The kernel has one that cannot be used: that is a failure.
    Unusable(String),
    None(String),
}

/// The first device of the system's library.
fn device() -> Device {
    let entries = Path::new("/sys/class/infiniband").read_dir().map_or(0, Iterator::count);
    if entries == 0 {
        return Device::None("the kernel has no RDMA device (/sys/class/infiniband)".into());
    }
    match system::load() {
        Err(error) => Device::Unusable(error.to_string()),
        Ok(symbols) => match device_names(&symbols).into_iter().next() {
            None => Device::Unusable("the library lists no device, though the kernel has one".into()),
            Some(name) => Device::Found { symbols, name: name.leak() },
        },
    }
}
