//! How a queue pair for one-sided operations connects: as an endpoint does, with a hello of its own.
//!
//! A hello with frames of 0 bytes is one of these, so that no endpoint of messages connects to it. It says how many reads and
//! atomics this end can have under way; the lower number is agreed on.

use std::sync::Arc;

use bareverbs_core::connect::{Agreement, CreditMode, Destination, Hello};
use bareverbs_core::link::{CarrierKind, Checksum};
use bareverbs_core::verbs::Mtu;

use crate::endpoint::local::Local;
use crate::endpoint::random_bits;
use crate::errno;
use crate::error::Error;
use crate::exchange::Connect;
use crate::one_sided::{Stage, Transfers, posting};

impl<const N: usize> Transfers<N> {
    /// What the other end must know to connect.
    pub fn destination(&self) -> Destination {
        self.local().destination()
    }

    /// The path MTU that this end can have; both ends take the lower.
    pub fn path_mtu(&self) -> Mtu {
        self.config.queue_pair.path_mtu_on(self.port.active_mtu())
    }

    /// Reads and atomics that this end can have under way, as initiator and as responder; both ends take the lower number.
    pub fn max_rd_atomic(&self) -> u8 {
        self.limits.max_rd_atomic
    }

    /// Connects to the other end: RTR, receives posted, RTS. What both ends must have alike was compared by the caller.
    ///
    /// As [`Endpoint::connect`](crate::endpoint::Endpoint::connect) the GID is read again, and when a step fails the queue pair
    /// is destroyed.
    ///
    /// # Errors
    /// [`Error`] of the step that failed; [`Error::State`] if it was connected before.
    pub fn connect(&mut self, remote: &Destination, path_mtu: Mtu, max_rd_atomic: u8) -> Result<(), Error> {
        if self.stage != Stage::Fresh {
            let device = Arc::clone(&self.plumbing.device);
            return Err(Error::State { device, what: "it was connected before: make a new queue pair" });
        }
        self.limits.max_rd_atomic = self.limits.max_rd_atomic.min(max_rd_atomic);
        let connected = self.try_connect(remote, path_mtu);
        match connected {
            Ok(()) => self.stage = Stage::Connected,
            Err(_) => self.abandon(),
        }
        connected
    }

    /// Ends it for good: the queue pair is destroyed, operations end with it without a word, views in use are given back, and
    /// every later call says that it is gone. What else there is goes when this value is closed or dropped.
    pub fn abandon(&mut self) {
        // First, so that nothing is called on the queue pair from here on.
        self.stage = Stage::Failed;
        self.plumbing.abandon_queue_pair();
        // Where it could not be destroyed, or not by this process, operations stay outstanding and views in use; the teardown
        // tells of that.
        if self.plumbing.is_abandoned() {
            self.books.queue_pair_gone();
            self.held.give_back_all();
        }
    }

    fn try_connect(&mut self, remote: &Destination, path_mtu: Mtu) -> Result<(), Error> {
        let (local, mut config, recv_depth) = (self.local(), self.config.queue_pair, self.recv_depth);
        config.max_rd_atomic = self.limits.max_rd_atomic;
        let Self { calls, books, plumbing, .. } = self;
        local.connect(plumbing, config, remote, path_mtu, || {
            for _ in 0..recv_depth {
                // Numbers that are used up have no errno.
                let wr_id = books.next_receive().ok_or(None)?;
                errno::clear();
                posting::post_receive(calls, wr_id).map_err(|refused| errno::of_return(refused.raw()))?;
                books.receive_posted();
            }
            Ok(())
        })
    }

    fn local(&self) -> Local {
        Local { port: self.port, gid: self.gid, qp_num: self.qp_num, psn: self.psn }
    }
}

impl<const N: usize> Connect for Transfers<N> {
    fn peer(&self) -> &Arc<str> {
        Transfers::peer(self)
    }

    fn hello(&self, nonce: u64) -> Hello {
        Hello {
            destination: self.destination(),
            service: self.config.queue_pair.service,
            link_layer: self.port.link_layer(),
            path_mtu: self.path_mtu(),
            frame_bytes: 0,
            carrier: CarrierKind::Raw,
            header_room_bytes: 0,
            checksum: Checksum::Off,
            credits: CreditMode::Off,
            max_rd_atomic: self.limits.max_rd_atomic,
            recv_depth: self.recv_depth,
            first_sequence: bareverbs_core::link::Sequence::new(random_bits()),
            nonce,
        }
    }

    fn connect_as_agreed(&mut self, agreement: &Agreement) -> Result<(), Error> {
        self.connect(&agreement.remote, agreement.path_mtu, agreement.max_rd_atomic)
    }

    fn abandon(&mut self) {
        Transfers::abandon(self);
    }
}

/// Connects two queue pairs of one process to each other: the lower path MTU and the lower number of reads win.
///
/// # Errors
/// As [`Transfers::connect`].
pub fn connect_pair<const A: usize, const B: usize>(a: &mut Transfers<A>, b: &mut Transfers<B>) -> Result<(), Error> {
    let path_mtu = a.path_mtu().min(b.path_mtu());
    let reads = a.max_rd_atomic().min(b.max_rd_atomic());
    let (to_a, to_b) = (a.destination(), b.destination());
    a.connect(&to_b, path_mtu, reads)?;
    b.connect(&to_a, path_mtu, reads)
}
