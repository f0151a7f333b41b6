//! What a CUDA stand-in is to be like.

use bareverbs_core::cuda::DeviceAttribute;

/// A GPU.
#[derive(Clone, Debug)]
pub struct SoftGpu {
    pub(super) pci: [u32; 3],
    pub(super) memory_bytes: u64,
    pub(super) attributes: Vec<(DeviceAttribute, i32)>,
}

impl Default for SoftGpu {
    /// At 0000:4e:00.0, with the attributes of an H200 and 1 TiB of memory, of which only what is written exists.
    fn default() -> Self {
        Self { pci: [0, 0x4e, 0], memory_bytes: 1 << 40, attributes: Vec::new() }
    }
}

impl SoftGpu {
    /// Sets where it is: domain, bus and device.
    #[must_use]
    pub const fn pci(mut self, domain: u32, bus: u32, device: u32) -> Self {
        self.pci = [domain, bus, device];
        self
    }

    /// Sets how much memory it has, bytes.
    #[must_use]
    pub const fn memory_bytes(mut self, bytes: u64) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// Sets what an attribute is answered.
    #[must_use]
    pub fn attribute(mut self, attribute: DeviceAttribute, value: i32) -> Self {
        self.attributes.push((attribute, value));
        self
    }

    /// What an attribute is answered; `None` for one that the stand-in does not know.
    pub(super) fn value(&self, asked: DeviceAttribute) -> Option<i32> {
        let set = self.attributes.iter().rev().find(|(attribute, _)| *attribute == asked);
        let [domain, bus, device] = self.pci.map(u32::cast_signed);
        set.map(|(_, value)| *value).or(match asked {
            DeviceAttribute::PCI_DOMAIN_ID => Some(domain),
            DeviceAttribute::PCI_BUS_ID => Some(bus),
            DeviceAttribute::PCI_DEVICE_ID => Some(device),
            DeviceAttribute::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
            | DeviceAttribute::GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
            | DeviceAttribute::GPU_DIRECT_RDMA_SUPPORTED
            | DeviceAttribute::GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS
            | DeviceAttribute::DMA_BUF_SUPPORTED => Some(1),
            DeviceAttribute::GPU_DIRECT_RDMA_WRITES_ORDERING => Some(100),
            _ => None,
        })
    }
}

/// What is said of memory that the driver does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostAnswer {
    /// Error 1, invalid value: as measured.
    #[default]
    InvalidValue,
    /// Success, and zero: as some drivers do.
    Zero,
}

/// The description of a stand-in, built up call by call.
#[derive(Clone, Debug)]
pub struct CudaConfig {
    pub(super) gpus: Vec<SoftGpu>,
    pub(super) page_bytes: u64,
    pub(super) host: HostAnswer,
    pub(super) initialised: bool,
    pub(super) lazy: bool,
    pub(super) record: usize,
    pub(super) missing: Vec<&'static str>,
}

impl Default for CudaConfig {
    /// One GPU, initialised, pages of 4 KiB, nothing recorded.
    fn default() -> Self {
        Self {
            gpus: vec![SoftGpu::default()],
            page_bytes: 4096,
            host: HostAnswer::InvalidValue,
            initialised: true,
            lazy: false,
            record: 0,
            missing: Vec::new(),
        }
    }
}

impl CudaConfig {
    /// Replaces the GPUs.
    #[must_use]
    pub fn gpus(mut self, gpus: Vec<SoftGpu>) -> Self {
        self.gpus = gpus;
        self
    }

    /// Sets the host's page, which exports must be aligned to: 4096, or 65 536 as on some aarch64 machines.
    ///
    /// # Panics
    /// If it is no power of two, or less than 4096.
    #[must_use]
    pub const fn page_bytes(mut self, bytes: u64) -> Self {
        assert!(bytes.is_power_of_two() && bytes >= 4096, "a page is a power of two, 4096 at least");
        self.page_bytes = bytes;
        self
    }

    /// Sets what is said of memory that the driver does not know.
    #[must_use]
    pub const fn host_answer(mut self, answer: HostAnswer) -> Self {
        self.host = answer;
        self
    }

    /// Leaves `cuInit` to the program: until then calls answer 3.
    #[must_use]
    pub const fn not_initialised(mut self) -> Self {
        self.initialised = false;
        self
    }

    /// Lets what is copied to a device arrive as late as it may: when a stream or a context is synchronised, or a later
    /// copy reads it.
    #[must_use]
    pub const fn lazy_copies(mut self) -> Self {
        self.lazy = true;
        self
    }

    /// Remembers the latest so many calls.
    #[must_use]
    pub const fn record(mut self, calls: usize) -> Self {
        self.record = calls;
        self
    }

    /// Takes an entry point away, by its C name.
    ///
    /// # Panics
    /// If no entry point has that name.
    #[must_use]
    pub fn without(mut self, symbol: &str) -> Self {
        let name = crate::symbols::cuda::OPTIONAL.iter().find(|name| **name == symbol);
        self.missing.push(name.unwrap_or_else(|| panic!("{symbol} is not an entry point")));
        self
    }
}

/// Why a stand-in cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CudaError {
    /// As many stand-ins are in use as one process can have.
    TooMany {
        /// How many that is.
        limit: usize,
    },
    /// The system has no file of memory, or no addresses, for a GPU.
    NoMemory {
        /// Its errno.
        errno: i32,
    },
}

impl std::fmt::Display for CudaError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooMany { limit } => {
                write!(f, "all {limit} CUDA stand-ins of this process are in use: drop one, and its table")
            }
            Self::NoMemory { errno } => write!(f, "no memory for a GPU: errno {errno}"),
        }
    }
}

impl std::error::Error for CudaError {}
