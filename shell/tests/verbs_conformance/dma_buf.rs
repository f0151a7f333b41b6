//! Regions over dma-buf files, and what the mlx5 provider says of a device.

use bareverbs_core::verbs::AccessFlags;

use crate::differences::Difference;
use crate::raw::dma_buf::{MemFile, reg_dmabuf};
use crate::raw::{End, Env, clear_errno, errno, keys};

/// soft-RoCE answers before it looks at anything.
const EOPNOTSUPP: i32 = 95;

pub fn a_file_is_registered_or_not_as_the_device_says(env: &Env) {
    let end = End::new(env);
    let file = MemFile::new(8192);
    clear_errno();
    let mr = reg_dmabuf(&end, 0, 8192, 0, file.fd(), AccessFlags::LOCAL_WRITE);
    let answer = if mr.is_null() { errno() } else { 0 };
    assert_eq!(answer, Difference::DmaBuf.by_side(env, 0, EOPNOTSUPP));
    if !mr.is_null() {
        assert_eq!(env.dereg_mr(mr), 0);
    }
    end.tear_down();
}

/// Where the provider is installed; soft-RoCE's device is none of its own.
pub fn the_provider_says_whether_it_is_an_mlx5(env: &Env) {
    match &env.mlx5 {
        Some(mlx5) => {
            let is_mlx5 = env.device.starts_with("mlx5");
            assert_eq!(keys::is_supported(&env.symbols, mlx5, env.device), is_mlx5, "{}", env.device);
        }
        None => eprintln!("skipped: the system has no libmlx5.so.1"),
    }
}
