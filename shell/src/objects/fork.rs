//! Registered memory and `fork`.
//!
//! # Safety
//!
//! This file guarantees nothing beyond a call without arguments.
#![allow(unsafe_code)]

use std::sync::Arc;

use bareverbs_core::verbs::inline_calls::RawErrno;

use crate::errno;
use crate::error::{CallError, Error};
use crate::symbols::Symbols;

/// Calls `ibv_fork_init`.
pub(crate) fn prepare(symbols: &Arc<Symbols>) -> Result<(), Error> {
    let call = symbols
        .fork_init
        .ok_or_else(|| Error::Unsupported { symbol: "ibv_fork_init", library: Arc::clone(&symbols.library) })?;
    errno::clear();
    // SAFETY: no argument; callable at any time, and it says so when it comes too late.
    match unsafe { call() } {
        0 => Ok(()),
        returned => {
            let errno = errno::of_return(RawErrno(returned));
            Err(CallError::new("ibv_fork_init", &Arc::from(""), errno).into())
        }
    }
}
