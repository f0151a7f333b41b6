//! What was called, in order.

use std::collections::VecDeque;
use std::ffi::c_int;

use bareverbs_core::verbs::{AccessFlags, QpAttr, QpAttrMask};

use crate::soft::config::Record;

/// One call and its answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call {
    /// Its number in the fabric's life, counted from 0 over all calls that the record takes.
    pub number: u64,
    /// The entry point's name in C.
    pub symbol: &'static str,
    /// What it was called on, or what it made; 0 where it made nothing.
    pub handle: usize,
    /// What a call that makes something was given: device, context, context and channel, domain, or domain,
    /// send queue and receive queue.
    pub parents: [usize; 3],
    /// What else it was given.
    pub detail: Detail,
    /// What it returned; of a call that makes something, 0 for success and -1 for null.
    pub returned: c_int,
    /// The errno that it left, if it left one.
    pub errno: Option<c_int>,
}

/// What a call was given besides handles.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Detail {
    /// Nothing of interest.
    None,
    /// `ibv_modify_qp`
    Modify {
        /// The attributes.
        attr: QpAttr,
        /// Which of them count.
        mask: QpAttrMask,
    },
    /// `ibv_reg_mr` and its kin.
    Register {
        /// Where the memory starts.
        address: usize,
        /// How long it is, bytes.
        length_bytes: usize,
        /// What is permitted.
        access: AccessFlags,
    },
    /// `ibv_reg_dmabuf_mr`
    RegisterDmaBuf {
        /// The file.
        fd: c_int,
        /// Where in the file the memory starts, bytes.
        offset_bytes: u64,
        /// How long it is, bytes.
        length_bytes: usize,
        /// What requests' addresses count from.
        iova: u64,
        /// What is permitted.
        access: AccessFlags,
    },
    /// `mlx5dv_wr_mr_list`
    Bind {
        /// The key.
        key: usize,
        /// Regions in its list.
        entries: u32,
        /// What it permits.
        access: AccessFlags,
    },
    /// `ibv_post_send`, `ibv_post_recv`
    Post {
        /// The first request's word.
        first_wr_id: u64,
        /// Requests accepted.
        accepted: u32,
    },
}

/// A record of calls, bounded.
#[derive(Debug)]
pub(super) struct CallRecord {
    kept: VecDeque<Call>,
    bound: usize,
    data_path: bool,
    next: u64,
}

impl CallRecord {
    pub(super) fn new(record: Record) -> Self {
        let (bound, data_path) = match record {
            Record::Off => (0, false),
            Record::Bounded(bound) => (bound, true),
            Record::Control(bound) => (bound, false),
        };
        Self { kept: VecDeque::with_capacity(bound), bound, data_path: data_path && bound > 0, next: 0 }
    }

    /// Whether posts and polls are recorded.
    #[inline]
    pub(super) const fn takes_data_path(&self) -> bool {
        self.data_path
    }

    /// Adds a call, whose number is given here; the oldest makes room.
    pub(super) fn add(&mut self, mut call: Call) {
        if self.bound == 0 {
            return;
        }
        if self.kept.len() == self.bound {
            self.kept.pop_front();
        }
        call.number = self.next;
        self.next += 1;
        self.kept.push_back(call);
    }

    pub(super) fn calls(&self) -> Vec<Call> {
        self.kept.iter().copied().collect()
    }

    pub(super) fn clear(&mut self) {
        self.kept.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(handle: usize) -> Call {
        Call { number: 0, symbol: "x", handle, parents: [0; 3], detail: Detail::None, returned: 0, errno: None }
    }

    #[test]
    fn the_latest_calls_are_kept_with_their_numbers() {
        let mut record = CallRecord::new(Record::Bounded(2));
        (0..3).for_each(|handle| record.add(call(handle)));
        assert_eq!(record.calls().iter().map(|call| (call.number, call.handle)).collect::<Vec<_>>(), [(1, 1), (2, 2)]);
    }

    #[test]
    fn off_keeps_nothing_and_control_leaves_the_data_path_out() {
        let mut record = CallRecord::new(Record::Off);
        record.add(call(1));
        assert_eq!(record.calls(), []);
        assert!(!CallRecord::new(Record::Control(4)).takes_data_path());
        assert!(CallRecord::new(Record::Bounded(4)).takes_data_path());
    }
}
