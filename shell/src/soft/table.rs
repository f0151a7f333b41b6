//! The table of entry points that a fabric supplies.
//!
//! # Safety
//!
//! This file guarantees that each entry point of the table is the software fabric's own for that name.
#![allow(unsafe_code)]

use std::ffi::c_char;
use std::sync::Arc;

use bareverbs_core::verbs::WcStatus;

use crate::soft::entry::slots::{SlotEntries, entries};
use crate::soft::entry::{devices, events, memory, mlx5, queries, queues};
use crate::soft::mlx5::{CURRENT_PROVIDER, OLD_PROVIDER};
use crate::symbols::{Mlx5Symbols, Mlx5Table, SymbolTable, Symbols};

/// The table of the fabric in a slot, without the optional entry points named in `missing`.
///
/// Of the extended work request interface there is what binding an mlx5 key takes.
pub(super) fn symbols(slot: u32, library: Arc<str>, missing: &[&str]) -> Symbols {
    let SlotEntries { get_device_list, free_device_list, fork_init } = entries(slot);
    let has = |name: &str| !missing.contains(&name);
    let table = SymbolTable {
        library,
        get_device_list,
        free_device_list,
        get_device_name: devices::get_device_name,
        open_device: devices::open_device,
        close_device: devices::close_device,
        alloc_pd: memory::alloc_pd,
        dealloc_pd: memory::dealloc_pd,
        reg_mr: memory::reg_mr,
        dereg_mr: memory::dereg_mr,
        create_cq: queues::create_cq,
        destroy_cq: queues::destroy_cq,
        create_qp: queues::create_qp,
        modify_qp: queues::modify_qp,
        destroy_qp: queues::destroy_qp,
        query_port: queries::query_port,
        query_gid: queries::query_gid,
        wc_status_str: has("ibv_wc_status_str").then_some(wc_status_str),
        query_device: has("ibv_query_device").then_some(queries::query_device),
        query_qp: has("ibv_query_qp").then_some(queues::query_qp),
        reg_mr_iova2: has("ibv_reg_mr_iova2").then_some(memory::reg_mr_iova2),
        reg_dmabuf_mr: has("ibv_reg_dmabuf_mr").then_some(memory::reg_dmabuf_mr),
        qp_to_qp_ex: has("ibv_qp_to_qp_ex").then_some(mlx5::qp_to_qp_ex),
        create_comp_channel: has("ibv_create_comp_channel").then_some(events::create_comp_channel),
        destroy_comp_channel: has("ibv_destroy_comp_channel").then_some(events::destroy_comp_channel),
        get_cq_event: has("ibv_get_cq_event").then_some(events::get_cq_event),
        ack_cq_events: has("ibv_ack_cq_events").then_some(events::ack_cq_events),
        get_async_event: has("ibv_get_async_event").then_some(events::get_async_event),
        ack_async_event: has("ibv_ack_async_event").then_some(events::ack_async_event),
        get_device_guid: has("ibv_get_device_guid").then_some(devices::get_device_guid),
        fork_init: has("ibv_fork_init").then_some(fork_init),
        query_gid_ex: has("_ibv_query_gid_ex").then_some(queries::query_gid_ex),
    };
    // SAFETY: 1: each answers as the header says, whatever handle it is given. 2: they are functions of this program.
    unsafe { Symbols::new(table) }
}

/// The table of mlx5dv entry points; they find their fabric by the handles that they are given.
pub(super) fn mlx5_symbols(library: Arc<str>, old: bool) -> Mlx5Symbols {
    let table = Mlx5Table {
        library,
        is_supported: mlx5::is_supported,
        create_qp: mlx5::create_qp,
        qp_ex_from_ibv_qp_ex: mlx5::qp_ex_from_ibv_qp_ex,
        create_mkey: mlx5::create_mkey,
        destroy_mkey: mlx5::destroy_mkey,
    };
    let (file_name, release) = if old { OLD_PROVIDER } else { CURRENT_PROVIDER };
    // SAFETY: 1: each answers as the header says, whatever handle it is given. 2: they are functions of this program. 3: the
    // fabric sums in 64 bits unless it is to be old.
    unsafe { Mlx5Symbols::new(table, Some(release), Some(file_name.into())) }
}

extern "C" fn wc_status_str(status: WcStatus) -> *const c_char {
    const TEXTS: [&std::ffi::CStr; 24] = [
        c"success",
        c"local length error",
        c"local QP operation error",
        c"local EE context operation error",
        c"local protection error",
        c"Work Request Flushed Error",
        c"memory management operation error",
        c"bad response error",
        c"local access error",
        c"remote invalid request error",
        c"remote access error",
        c"remote operation error",
        c"transport retry counter exceeded",
        c"RNR retry counter exceeded",
        c"local RDD violation error",
        c"remote invalid RD request",
        c"aborted error",
        c"invalid EE context number",
        c"invalid EE context state",
        c"fatal error",
        c"response timeout error",
        c"general error",
        c"TM error",
        c"TM software rendezvous",
    ];
    TEXTS.get(status.0 as usize).copied().unwrap_or(c"unknown").as_ptr()
}

#[cfg(test)]
#[allow(unsafe_code, reason = "to read a C string")]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_the_words_that_core_knows_them_by() {
        for number in 0..=24 {
            // SAFETY: a C string that lives as long as the process.
            let text = unsafe { std::ffi::CStr::from_ptr(wc_status_str(WcStatus(number))) };
            assert_eq!(text.to_str(), Ok(WcStatus(number).text()));
        }
    }
}
