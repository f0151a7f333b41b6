//! What went wrong: which call, on which device, with which errno, and what to do.
//!
//! Every error of the shell is a typed enum that a caller can match on, and turns into an `anyhow::Error` by itself. The
//! text is for an engineer at three in the morning: it names the device, the call, the errno by number and by this
//! system's name, and the remedy where one is known. It is all in the one text: no error has a source, so that printing an
//! error and printing its chain say the same.

use std::fmt;
use std::sync::Arc;

use bareverbs_core::verbs::inline_calls::MissingSlot;
use bareverbs_core::verbs::{AccessFlags, PortState, QpState};

use crate::errno::Errno;
use crate::objects::gid::GidError;
use crate::symbols::system::LoadError;

/// A verbs call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallError {
    /// The call, as C names it.
    pub call: &'static str,
    /// The device; empty where no device is concerned yet.
    pub device: Arc<str>,
    /// The error's number; `None` where the call returned null or -1 and left `errno` at 0.
    pub errno: Option<Errno>,
    /// The port and its state as last read, where that can be the reason.
    pub port: Option<(u8, PortState)>,
    /// What the call was to do, where the name does not say it.
    pub doing: Option<Doing>,
}

/// What a failed call was to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doing {
    /// Move a queue pair.
    Enter {
        /// The state to be entered.
        state: QpState,
        /// The attributes, in words.
        attributes: String,
    },
    /// Register memory.
    Register {
        /// Where it starts.
        addr: usize,
        /// How long it is.
        len_bytes: usize,
        /// What it should permit.
        access: AccessFlags,
    },
    /// Create something of a size, in words.
    Create(String),
    /// Ask for something by number, in words.
    Query(String),
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enter { state, attributes } => write!(f, "entering {state:?} with {attributes}"),
            Self::Register { addr, len_bytes, access } => {
                write!(f, "registering {len_bytes} bytes at {addr:#x} with access {:#x}", access.bits())
            }
            Self::Create(what) => write!(f, "creating {what}"),
            Self::Query(what) => write!(f, "asking for {what}"),
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.call)?;
        if !self.device.is_empty() {
            write!(f, " on device {}", self.device)?;
        }
        match self.errno {
            Some(errno) => write!(f, " failed: {errno}")?,
            None => f.write_str(" failed and errno was not set")?,
        }
        if let Some(doing) = &self.doing {
            write!(f, ", {doing}")?;
        }
        if let Some((port, state)) = self.port {
            write!(f, "; port {port} is {state:?}")?;
            if state != PortState::ACTIVE {
                f.write_str(": bring the link up first")?;
            }
        }
        if let Some(remedy) = self.remedy() {
            write!(f, " ({remedy})")?;
        }
        Ok(())
    }
}

impl std::error::Error for CallError {}

/// The kernel's own number for "not supported", which has no name outside of it and which some drivers let out.
const ENOTSUPP: i32 = 524;

impl CallError {
    /// A failure with nothing known but the call, the device and the number.
    pub fn new(call: &'static str, device: &Arc<str>, errno: Option<Errno>) -> Self {
        Self { call, device: Arc::clone(device), errno, port: None, doing: None }
    }

    pub(crate) fn doing(self, doing: Doing) -> Self {
        Self { doing: Some(doing), ..self }
    }

    /// Whether it says that device, driver or kernel cannot do this at all, whatever the arguments.
    ///
    /// Errno 22 is about the arguments, and no such answer.
    pub fn is_unsupported(&self) -> bool {
        let numbers = [libc::EOPNOTSUPP, libc::EPROTONOSUPPORT, ENOTSUPP, libc::ENOSYS];
        self.errno.is_some_and(|errno| numbers.contains(&errno.0))
    }

    fn remedy(&self) -> Option<String> {
        let errno = self.errno?;
        match (self.call, errno.0) {
            ("ibv_create_qp", libc::EBUSY) => {
                Some("the device has no queue pair left; Apple's devices have 10; waiting does not help".into())
            }
            ("ibv_reg_dmabuf_mr", libc::EOPNOTSUPP | libc::EPROTONOSUPPORT | ENOTSUPP | libc::ENOSYS) => {
                Some("device, driver or kernel takes no dma-buf".into())
            }
            ("ibv_reg_mr" | "ibv_reg_mr_iova2", libc::ENOMEM) => Some(format!(
                "out of regions, which are 100 on Apple's devices, or above the locked-memory limit, now {}; \
                 see ulimit -l",
                crate::errno::locked_memory_limit()
            )),
            _ => None,
        }
    }
}

/// Why something of the shell could not be done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The RDMA library could not be loaded.
    Load(LoadError),
    /// The library is there, the kernel's RDMA is not (`ibv_get_device_list` answered errno 38).
    NoKernelRdma {
        /// The library that said so.
        library: Arc<str>,
    },
    /// No device of that name, or none at all.
    NoDevice {
        /// The name asked for; `None` for any.
        wanted: Option<String>,
        /// The names there are.
        available: Vec<String>,
        /// The library that was asked.
        library: Arc<str>,
    },
    /// A call failed.
    Call(CallError),
    /// The library lacks an optional entry point that is needed.
    Unsupported {
        /// Its name in C.
        symbol: &'static str,
        /// The library.
        library: Arc<str>,
    },
    /// A dma-buf could not be registered, and then not the plain range either.
    NeitherRegistration {
        /// Why not the dma-buf.
        dma_buf: Box<Self>,
        /// Why not the range that it was exported from.
        plain: Box<Self>,
    },
    /// The provider lacks an inline operation.
    MissingSlot {
        /// The device.
        device: Arc<str>,
        /// Which one.
        slot: MissingSlot,
    },
    /// The library's structs are not laid out as its header says: it must not be used.
    Layout {
        /// The device.
        device: Arc<str>,
        /// The field, in C.
        field: &'static str,
        /// What it should hold.
        expected: u64,
        /// What it holds.
        got: u64,
    },
    /// Objects of two device contexts were to be put together, which the kernel does not catch.
    ForeignContext {
        /// The device of the one.
        device: Arc<str>,
        /// What was to be made.
        making: &'static str,
    },
    /// A device whose name cannot be told to peers.
    DeviceName {
        /// The name.
        device: Arc<str>,
        /// What is wrong with it.
        error: bareverbs_core::view::DeviceNameError,
    },
    /// No GID is as it should be.
    Gid(GidError),
    /// The GID changed while connecting.
    GidChanged {
        /// The device.
        device: Arc<str>,
        /// Its index in the port's table.
        index: u8,
    },
    /// No address can be made of what the two ends have.
    Route(bareverbs_core::connect::RouteError),
    /// A size of 0, or one that the machine cannot express.
    Size {
        /// What it is the size of.
        what: &'static str,
        /// The size.
        got: u64,
    },
    /// The provider made something smaller than it was asked for.
    Granted {
        /// The device.
        device: Arc<str>,
        /// What.
        what: &'static str,
        /// How much was asked for.
        asked: u32,
        /// How much there is, as the provider says.
        granted: i32,
    },
    /// A handle was used in a child process after `fork`: verbs objects belong to the process that made them.
    Forked {
        /// The device.
        device: Arc<str>,
    },
    /// `MLX5_SINGLE_THREADED=1` takes the provider's locks away, and another thread than the device's first came.
    SecondThread {
        /// The device.
        device: Arc<str>,
    },
    /// A completion queue's poll failed: completions were lost.
    Poll(bareverbs_core::verbs::inline_calls::PollError),
    /// The message link could not be set up.
    Link(bareverbs_core::link::LinkSetupError),
    /// What the other end posts makes no link with credits.
    Credits(bareverbs_core::link::AgreeError),
    /// The endpoint is not in the state for that.
    State {
        /// The device.
        device: Arc<str>,
        /// What was asked, and what would have had to come before.
        what: &'static str,
    },
    /// The software fabric could not be made.
    Soft(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error) => error.fmt(f),
            Self::NoKernelRdma { library } => write!(
                f,
                "{library} is there, but this kernel has no RDMA (no /sys/class/infiniband): load the device's module \
                 or rdma_rxe, or use the software fabric"
            ),
            Self::NoDevice { wanted, available, library } => {
                match wanted {
                    Some(name) => write!(f, "no device {name} in {library}")?,
                    None => write!(f, "no usable RDMA device in {library}")?,
                }
                if available.is_empty() {
                    f.write_str("; there is none at all (on a Mac: Thunderbolt 5 and RDMA enabled are needed)")
                } else {
                    write!(f, "; there are: {}", available.join(", "))
                }
            }
            Self::Call(error) => error.fmt(f),
            Self::Unsupported { symbol, library } => write!(f, "{library} has no {symbol}: a newer library is needed"),
            Self::NeitherRegistration { dma_buf, plain } => write!(f, "{dma_buf}; and as a plain range: {plain}"),
            Self::MissingSlot { device, slot } => write!(f, "device {device}: {slot}"),
            Self::Layout { device, field, expected, got } => write!(
                f,
                "device {device}: the library's layout is not the header's: {field} should be {expected:#x} and reads \
                 {got:#x}; the library is refused"
            ),
            Self::ForeignContext { device, making } => {
                write!(f, "{making} on device {device} from objects of two opened devices")
            }
            Self::DeviceName { device, error } => write!(f, "device {device:?}: {error}"),
            Self::Gid(error) => error.fmt(f),
            Self::GidChanged { device, index } => {
                write!(f, "device {device}: the GID at index {index} changed while connecting: connect again")
            }
            Self::Route(error) => error.fmt(f),
            Self::Poll(error) => error.fmt(f),
            Self::Size { what, got } => write!(f, "{what} of {got} is not possible"),
            Self::Granted { device, what, asked, granted } => write!(
                f,
                "device {device}: {what} are {granted}, and {asked} were asked for: ask for no more than the device has"
            ),
            Self::Forked { device } => {
                write!(f, "device {device} was opened by the parent process; open it again in this one")
            }
            Self::SecondThread { device } => write!(
                f,
                "device {device}: MLX5_SINGLE_THREADED=1 is set, and this is not the thread that opened it; unset it, or \
                 stay on one thread"
            ),
            Self::Link(error) => error.fmt(f),
            Self::Credits(error) => error.fmt(f),
            Self::State { device, what } => write!(f, "endpoint on device {device}: {what}"),
            Self::Soft(error) => f.write_str(error),
        }
    }
}

// Its text is whole by itself, and its parts can be matched on: a source would be told twice by who prints the chain.
impl std::error::Error for Error {}

impl Error {
    /// Whether library, device, driver or kernel cannot do this at all, whatever the arguments.
    pub fn is_unsupported(&self) -> bool {
        match self {
            Self::Unsupported { .. } => true,
            Self::Call(call) => call.is_unsupported(),
            _ => false,
        }
    }
}

impl From<LoadError> for Error {
    fn from(error: LoadError) -> Self {
        Self::Load(error)
    }
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl From<GidError> for Error {
    fn from(error: GidError) -> Self {
        Self::Gid(error)
    }
}

#[cfg(test)]
mod tests;
