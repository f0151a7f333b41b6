//! What can be told to fail, and how.

use bareverbs_core::cuda::CuResult;
use bareverbs_core::verbs::WcStatus;
use bareverbs_shell::soft::{Answer, BindingFault};

use super::steps::Fault;

/// A fault as the stand-ins are told of it.
pub enum Planned {
    Fabric(&'static str, Answer, u64),
    /// The n-th dma-buf is none that the device supports, and a plain region of GPU memory neither.
    NoDmaBuf(u64),
    Cuda(&'static str, CuResult, u64, bool),
    Binding(BindingFault),
}

const UNSUPPORTED: Answer = Answer::null(libc::EOPNOTSUPP);

/// Calls of the library, and how they fail.
const CALLS: &[(&str, Answer)] = &[
    ("ibv_reg_dmabuf_mr", Answer::null(libc::ENOMEM)),
    ("ibv_reg_dmabuf_mr", Answer::null(libc::EINVAL)),
    ("ibv_reg_dmabuf_mr", UNSUPPORTED),
    ("mlx5dv_create_mkey", Answer::null(libc::ENOMEM)),
    ("mlx5dv_create_mkey", Answer::null(libc::EREMOTEIO)),
    ("mlx5dv_create_qp", Answer::null(libc::ENOMEM)),
    ("ibv_create_cq", Answer::null(libc::ENOMEM)),
    ("ibv_modify_qp", Answer::returned(libc::EINVAL)),
    ("mlx5dv_wr_mr_list", Answer::returned(libc::EINVAL)),
    ("ibv_wr_complete", Answer::returned(libc::ENOMEM)),
    ("ibv_poll_cq", Answer::returned(-2)),
    ("ibv_query_device", Answer::returned(libc::EIO)),
];

/// Calls of the driver.
const DRIVER: &[&str] = &[
    "cuPointerGetAttribute",
    "cuPointerGetAttribute",
    "cuMemGetAddressRange_v2",
    "cuMemGetHandleForAddressRange",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
];

const ANSWERS: &[CuResult] = &[
    CuResult::INVALID_VALUE,
    CuResult::OUT_OF_MEMORY,
    CuResult::NOT_INITIALIZED,
    CuResult::DEINITIALIZED,
    CuResult::INVALID_CONTEXT,
    CuResult::NOT_FOUND,
    CuResult::NOT_PERMITTED,
    CuResult::NOT_SUPPORTED,
    CuResult::UNKNOWN,
];

/// What a fault comes to; with `patient` set, none that is waited for until a deadline.
pub fn of(fault: Fault, patient: bool) -> Planned {
    match fault {
        Fault::Fabric { which, nth } => {
            let (symbol, answer) = CALLS[usize::from(which) % CALLS.len()];
            match answer == UNSUPPORTED {
                true => Planned::NoDmaBuf(nth.into()),
                false => Planned::Fabric(symbol, answer, nth.into()),
            }
        }
        Fault::Cuda { which, answer, nth, for_good } => {
            let symbol = DRIVER[usize::from(which) % DRIVER.len()];
            Planned::Cuda(symbol, ANSWERS[usize::from(answer) % ANSWERS.len()], nth.into(), for_good)
        }
        Fault::Binding(which) => Planned::Binding(match which % 4 {
            0 if !patient => BindingFault::Lost,
            1 => BindingFault::Late { polls: 3 },
            2 => BindingFault::Fails(WcStatus::WR_FLUSH_ERR),
            _ => BindingFault::Fails(WcStatus::MW_BIND_ERR),
        }),
    }
}
