//! Where endpoints are opened: the system's library, or the software fabric. Chosen at run time.

use std::fmt;
use std::sync::Arc;

use bareverbs_core::verbs::PortState;

use crate::error::Error;
use crate::objects::device::{DeviceContext, DeviceEntry, list_devices};
use crate::objects::fork;
use crate::soft::{SoftConfig, SoftFabric};
use crate::symbols::{Mlx5Symbols, Symbols, mlx5_system, system};

/// What kind of fabric it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FabricKind {
    /// The system's RDMA library.
    System,
    /// The embedded software fabric: this process only.
    Soft,
}

impl fmt::Display for FabricKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::System => "system",
            Self::Soft => "soft",
        })
    }
}

/// Where the mlx5 provider beside a table comes from.
#[derive(Clone, Debug)]
enum Mlx5 {
    /// There is none.
    None,
    /// The system's, loaded when it is asked for.
    System,
    Given(Arc<Mlx5Symbols>),
}

/// Where endpoints are opened.
///
/// ```
/// use bareverbs_shell::Fabric;
///
/// let fabric = Fabric::soft()?;
/// let names: Vec<String> = fabric.devices()?.into_iter().map(|device| device.name).collect();
/// assert_eq!(names, ["soft0"]);
/// # Ok::<(), bareverbs_shell::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Fabric {
    symbols: Arc<Symbols>,
    mlx5: Mlx5,
    kind: FabricKind,
    reason: String,
}

impl Fabric {
    /// The system's RDMA library: `libibverbs.so.1`, `librdma.dylib`, or what `BAREVERBS_LIBRARY` names.
    ///
    /// # Errors
    /// [`Error::Load`] if it cannot be loaded. That there is no device shows when one is listed or opened.
    pub fn system() -> Result<Self, Error> {
        let symbols = system::load()?;
        Ok(Self { mlx5: Mlx5::System, ..Self::with_symbols(symbols, FabricKind::System) })
    }

    /// The software fabric, with one device, `soft0`.
    ///
    /// # Errors
    /// [`Error::Soft`] if the process has too many of them.
    pub fn soft() -> Result<Self, Error> {
        let fabric = SoftFabric::new(SoftConfig::default()).map_err(|error| Error::Soft(error.to_string()))?;
        Ok(Self::of_soft(&fabric))
    }

    /// A software fabric of one's own configuration, with its mlx5 provider.
    pub fn of_soft(fabric: &SoftFabric) -> Self {
        Self::with_symbols(fabric.symbols(), FabricKind::Soft).with_mlx5(fabric.mlx5_symbols())
    }

    /// The system's library when it has a device with an active port, else the software fabric. [`reason`](Self::reason)
    /// says why.
    ///
    /// # Errors
    /// [`Error::Soft`] if the process has too many software fabrics.
    pub fn best() -> Result<Self, Error> {
        let why_not = match Self::system() {
            Ok(system) => match system.active_device() {
                Ok(name) => return Ok(Self { reason: format!("device {name} has an active port"), ..system }),
                Err(why_not) => why_not,
            },
            Err(error) => error.to_string(),
        };
        Ok(Self { reason: why_not, ..Self::soft()? })
    }

    /// A fabric over a table of entry points: a [`SoftFabric`]'s, or a wrapped library. It has no mlx5 provider unless
    /// [one is given](Self::with_mlx5).
    pub fn with_symbols(symbols: Arc<Symbols>, kind: FabricKind) -> Self {
        Self { symbols, mlx5: Mlx5::None, kind, reason: "asked for".into() }
    }

    /// With this provider of mlx5's own calls beside the table.
    #[must_use]
    pub fn with_mlx5(self, mlx5: Arc<Mlx5Symbols>) -> Self {
        Self { mlx5: Mlx5::Given(mlx5), ..self }
    }

    /// The mlx5 provider's own calls, where there are any that go with this fabric's library. The system's is loaded at the
    /// first asking; [`mlx5_system::load`] tells why it is not there.
    ///
    /// That there is a provider does not say that a device is one of its own: [`Binder::new`](crate::segments::Binder::new)
    /// asks that.
    pub fn mlx5(&self) -> Option<Arc<Mlx5Symbols>> {
        let found = match &self.mlx5 {
            Mlx5::None => None,
            Mlx5::System => mlx5_system::load().ok(),
            Mlx5::Given(given) => Some(Arc::clone(given)),
        };
        found.filter(|mlx5| mlx5.goes_with(&self.symbols))
    }

    /// The kind that was picked.
    pub fn kind(&self) -> FabricKind {
        self.kind
    }

    /// Why this kind was picked.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The entry points.
    pub fn symbols(&self) -> &Arc<Symbols> {
        &self.symbols
    }

    /// Makes `fork` safe for registered memory on kernels before 5.12 (`ibv_fork_init`): to be called before the first
    /// registration. Set `RDMAV_HUGEPAGES_SAFE=1` in the environment too where huge pages are registered. It costs a system
    /// call for each registration; newer kernels need neither, and there it does nothing.
    ///
    /// A forked child may not use this process's handles, whatever this answers.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a library without the call; [`Error::Call`] with EINVAL after the first registration.
    #[doc(alias = "ibv_fork_init")]
    pub fn prepare_for_fork(&self) -> Result<(), Error> {
        fork::prepare(&self.symbols)
    }

    /// The devices there are, each with its own error if it cannot be opened.
    ///
    /// # Errors
    /// [`Error::NoKernelRdma`] if the kernel has no RDMA; [`Error::Call`] if listing fails otherwise.
    pub fn devices(&self) -> Result<Vec<DeviceEntry>, Error> {
        list_devices(&self.symbols)
    }

    /// Opens a device by name; without a name, the first with an active port, else the first.
    ///
    /// # Errors
    /// As [`DeviceContext::open`].
    pub fn open(&self, device: Option<&str>) -> Result<Arc<DeviceContext>, Error> {
        DeviceContext::open(&self.symbols, device)
    }

    /// The first device with an active port, or why there is none.
    fn active_device(&self) -> Result<String, String> {
        let devices = self.devices().map_err(|error| error.to_string())?;
        let active = devices.iter().find(|device| {
            let ports = device.ports.iter().flatten();
            ports.into_iter().any(|port| port.info.state() == PortState::ACTIVE)
        });
        match active {
            Some(device) => Ok(device.name.clone()),
            None if devices.is_empty() => Err(format!("{} has no device", self.symbols.library)),
            None => {
                let names: Vec<_> = devices.iter().map(|device| device.name.as_str()).collect();
                Err(format!("no port of {} is active", names.join(", ")))
            }
        }
    }
}
