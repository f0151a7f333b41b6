//! C's loops, as `c/loops.c` has them: once for counting instructions, once for taking time.
//!
//! # Safety
//!
//! This file alone guarantees that C's books are used by one thread at a time: a [`CSide`] is handed out once.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

/// C's books: reached through C's own functions only.
#[repr(C)]
struct Twin {
    _opaque: [u8; 0],
}

type Loop = unsafe extern "C" fn(*mut Twin, u64, usize) -> u64;

/// The table at the end of `c/loops.c`.
#[repr(C)]
struct CLoops {
    twin: *mut Twin,
    start: unsafe extern "C" fn(*mut Twin),
    loops: [Loop; WORKS],
}

// SAFETY: it is constant data; what its first field points to is used through the one `CSide` only.
unsafe impl Sync for CLoops {}

unsafe extern "C" {
    static counted_c_loops: CLoops;
    static timed_c_loops: CLoops;
}

const WORKS: usize = 11;

/// What a loop does with each round, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A prepared request, patched and posted, without books.
    Raw,
    /// A request filled in and posted, without books.
    FillAndPost,
    /// 16 requests filled in, linked and posted at once, without books.
    FillAndPostChain,
    /// One send, signalled, with the books of a link.
    Post,
    /// One send of many, with the books of a link.
    PostMore,
    /// A chain of 16, with the books of a link.
    Chain,
    /// One receive, with the books of a link.
    PostReceive,
    /// 16 send completions polled and checked.
    PollSends,
    /// 16 receive completions polled and checked, sequence included.
    PollReceives,
    /// The same, each frame posted again.
    PollAndRepost,
    /// A poll that finds nothing.
    PollEmpty,
}

/// Which compilation of C's loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compiled {
    /// What valgrind can run.
    Counted,
    /// `-O3 -march=native`.
    Timed,
}

/// C's side: its books and its loops.
#[derive(Debug)]
pub struct CSide {
    compiled: Compiled,
}

static TAKEN: AtomicBool = AtomicBool::new(false);

impl CSide {
    /// C's side, for the first who asks.
    pub fn take(compiled: Compiled) -> Option<Self> {
        if TAKEN.swap(true, Ordering::AcqRel) { None } else { Some(Self { compiled }) }
    }

    /// Starts anew: nothing in flight, the numbers at their beginning. To be called after the provider's own start.
    pub fn start(&mut self) {
        let table = self.table();
        // SAFETY: the function and its books are of one table; `&mut self` makes it one thread at a time.
        unsafe { (table.start)(table.twin) }
    }

    /// Does `which` `n` times, with `bytes` of payload; answers what came of it, 0 if anything was at fault.
    #[inline]
    pub fn run(&mut self, which: Work, n: u64, bytes: usize) -> u64 {
        let table = self.table();
        // SAFETY: as in `start`; the loops take any numbers.
        unsafe { (table.loops[which as usize])(table.twin, n, bytes) }
    }

    fn table(&self) -> &'static CLoops {
        match self.compiled {
            // SAFETY: constant data of c/loops.c, laid out as `CLoops` is.
            Compiled::Counted => unsafe { &counted_c_loops },
            // SAFETY: as before.
            Compiled::Timed => unsafe { &timed_c_loops },
        }
    }
}
