//! Asynchronous events of a device.

use core::ffi::c_void;

use crate::layout::{layout, open_enum};
use crate::verbs::completion::Cq;
use crate::verbs::queue_pair::Qp;

open_enum! {
    /// `enum ibv_event_type`
    EventType: u32 {
        CQ_ERR = 0, "IBV_EVENT_CQ_ERR";
        QP_FATAL = 1, "IBV_EVENT_QP_FATAL";
        QP_REQ_ERR = 2, "IBV_EVENT_QP_REQ_ERR";
        QP_ACCESS_ERR = 3, "IBV_EVENT_QP_ACCESS_ERR";
        COMM_EST = 4, "IBV_EVENT_COMM_EST";
        SQ_DRAINED = 5, "IBV_EVENT_SQ_DRAINED";
        PATH_MIG = 6, "IBV_EVENT_PATH_MIG";
        PATH_MIG_ERR = 7, "IBV_EVENT_PATH_MIG_ERR";
        DEVICE_FATAL = 8, "IBV_EVENT_DEVICE_FATAL";
        PORT_ACTIVE = 9, "IBV_EVENT_PORT_ACTIVE";
        PORT_ERR = 10, "IBV_EVENT_PORT_ERR";
        LID_CHANGE = 11, "IBV_EVENT_LID_CHANGE";
        PKEY_CHANGE = 12, "IBV_EVENT_PKEY_CHANGE";
        SM_CHANGE = 13, "IBV_EVENT_SM_CHANGE";
        SRQ_ERR = 14, "IBV_EVENT_SRQ_ERR";
        SRQ_LIMIT_REACHED = 15, "IBV_EVENT_SRQ_LIMIT_REACHED";
        QP_LAST_WQE_REACHED = 16, "IBV_EVENT_QP_LAST_WQE_REACHED";
        CLIENT_REREGISTER = 17, "IBV_EVENT_CLIENT_REREGISTER";
        GID_CHANGE = 18, "IBV_EVENT_GID_CHANGE";
        WQ_FATAL = 19, "IBV_EVENT_WQ_FATAL";
    }
}

/// `ibv_async_event.element`: which member counts depends on the event.
#[derive(Clone, Copy)]
#[repr(C)]
pub union EventElement {
    /// The completion queue.
    pub cq: *mut Cq,
    /// The queue pair.
    pub qp: *mut Qp,
    /// `struct ibv_srq`.
    pub srq: *mut c_void,
    /// `struct ibv_wq`.
    pub wq: *mut c_void,
    /// The port, counted from 1.
    pub port_num: i32,
}

/// `struct ibv_async_event`
#[derive(Clone, Copy)]
#[repr(C)]
pub struct AsyncEvent {
    /// Whom it concerns.
    pub element: EventElement,
    /// What happened.
    pub event_type: EventType,
}

layout! {
    AsyncEvent: "struct ibv_async_event", whole 16 align 8 { element 0 8; event_type 8 4; }
    inner { element.cq 0 8; element.qp 0 8; element.srq 0 8; element.wq 0 8; element.port_num 0 4; }
}
