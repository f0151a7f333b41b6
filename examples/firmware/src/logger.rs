//! Where `defmt` frames go: to the host's standard error, for `defmt-print`.
//!
//! # Safety
//!
//! This file guarantees that nobody else reaches the encoder while a frame is open: the program logs from its one thread only,
//! never from an interrupt.
#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bareverbs_core::connect::{Destination, Psn};
use bareverbs_core::link::{Fault, LinkError, Sequence};
use bareverbs_core::verbs::Gid;
use cortex_m_semihosting::hio;

use crate::Check;

pub const CHECKS: &[Check] = &[("values and errors of core are logged with defmt", logs)];

#[defmt::global_logger]
struct Logger;

struct Encoder(UnsafeCell<defmt::Encoder>);

// SAFETY: it is reached between `acquire` and `release` only, and `OPEN` lets one in.
unsafe impl Sync for Encoder {}

static ENCODER: Encoder = Encoder(UnsafeCell::new(defmt::Encoder::new()));
static OPEN: AtomicBool = AtomicBool::new(false);
static WRITTEN_BYTES: AtomicUsize = AtomicUsize::new(0);

fn write(bytes: &[u8]) {
    if let Ok(mut host) = hio::hstderr() {
        let _ = host.write_all(bytes);
    }
    // A load and a store: one thread logs.
    WRITTEN_BYTES.store(WRITTEN_BYTES.load(Ordering::Relaxed) + bytes.len(), Ordering::Relaxed);
}

// SAFETY: `acquire` panics where it is called twice, so that what is between it and `release` is alone.
unsafe impl defmt::Logger for Logger {
    fn acquire() {
        assert!(!OPEN.load(Ordering::Relaxed), "logging within logging");
        OPEN.store(true, Ordering::Relaxed);
        // SAFETY: nobody else has it until `release`.
        unsafe { &mut *ENCODER.0.get() }.start_frame(write);
    }

    unsafe fn flush() {}

    unsafe fn release() {
        // SAFETY: called after `acquire`, which let nobody else in.
        unsafe { &mut *ENCODER.0.get() }.end_frame(write);
        OPEN.store(false, Ordering::Relaxed);
    }

    unsafe fn write(bytes: &[u8]) {
        // SAFETY: called between `acquire` and `release`, alone.
        unsafe { &mut *ENCODER.0.get() }.write(bytes, write);
    }
}

fn logs() {
    let written = || WRITTEN_BYTES.load(Ordering::Relaxed);
    let before = written();
    let there = Destination { lid: 1, qp_num: 17, psn: Psn::JACCL, gid: Gid::new([7; 16]) };
    defmt::info!("the other end is {}", there);
    // The GID alone has 16 bytes.
    assert!(written() > before + 16);
    let before = written();
    let expected = Sequence::new(1);
    defmt::error!("{}", LinkError::Fault(Fault::Gap { wr_id: 3, expected, got: Sequence::new(4), missing: 3 }));
    assert!(written() > before + 16);
}
