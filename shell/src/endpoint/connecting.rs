//! How an endpoint connects: what it says of itself, and the moves from INIT to RTS.

use std::sync::Arc;

use bareverbs_core::connect::{Agreement, CreditMode, Destination, Hello};
use bareverbs_core::link::Carrier;
use bareverbs_core::verbs::Mtu;

use crate::endpoint::local::Local;
use crate::endpoint::{Endpoint, Stage, error};
use crate::errno;
use crate::error::Error;

impl<C: Carrier, const SEND: usize, const RECV: usize> Endpoint<C, SEND, RECV> {
    /// What the other end must know to connect.
    pub fn destination(&self) -> Destination {
        self.local().destination()
    }

    /// What this end tells the other before either connects. The nonce is the caller's: an end with another one is refused.
    pub fn hello(&self, nonce: u64) -> Hello {
        Hello {
            destination: self.destination(),
            service: self.config.queue_pair.service,
            link_layer: self.port.link_layer(),
            path_mtu: self.path_mtu(),
            frame_bytes: self.config.frame_bytes,
            carrier: C::CARRIER,
            // A header's room is 4096 bytes at most.
            header_room_bytes: C::ROOM_BYTES as u16,
            checksum: self.link.checksum(),
            credits: self.link.credit_mode(),
            max_rd_atomic: 0,
            recv_depth: self.link.recv_depth(),
            first_sequence: self.first_sequence,
            nonce,
        }
    }

    /// Says how many receives the other end posts before the first message; to be called before
    /// [`connect`](Self::connect) where the link carries credits, and of no effect where it does not.
    ///
    /// # Errors
    /// [`Error::Credits`] if no link with credits can be made of so many, or messages were sent.
    pub fn agree_credits(&mut self, peer_receives: u32) -> Result<(), Error> {
        self.link.agree_credits(peer_receives).map_err(Error::Credits)
    }

    /// The path MTU that this end can have; both ends take the lower.
    pub fn path_mtu(&self) -> Mtu {
        self.config.queue_pair.path_mtu_on(self.port.active_mtu())
    }

    /// Connects to the other end as both have agreed: the path MTU and the first numbers are those of the agreement.
    /// Otherwise as [`connect`](Self::connect).
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_as_agreed(&mut self, agreement: &Agreement) -> Result<(), Error> {
        self.check_fresh()?;
        let set = self.link.set_starts(agreement.tx_start, agreement.rx_start);
        set.map_err(|_| self.connected_before())?;
        self.agree_credits(agreement.remote_recv_depth)?;
        self.connect(&agreement.remote, agreement.path_mtu)
    }

    /// Connects to the other end: RTR, receives posted, RTS. What both ends must have alike was compared by the caller;
    /// the first numbers are those of the configuration, and with credits [`agree_credits`](Self::agree_credits) came
    /// before.
    ///
    /// The GID is read again before RTR and after it: one that changed meanwhile is an error, never used by its old index.
    /// When a step fails the queue pair is destroyed, not moved again; make the endpoint anew.
    ///
    /// # Errors
    /// [`Error`] of the step that failed; [`Error::State`] if the endpoint was connected before, or has credits and was
    /// not told what the other end posts.
    pub fn connect(&mut self, remote: &Destination, path_mtu: Mtu) -> Result<(), Error> {
        self.check_fresh()?;
        if self.link.credit_mode() == CreditMode::On && self.link.credits_left() == 0 {
            let device = Arc::clone(&self.plumbing.device);
            return Err(Error::State { device, what: "it has credits: say first what the other end posts" });
        }
        let connected = self.try_connect(remote, path_mtu);
        match connected {
            Ok(()) => self.stage = Stage::Connected,
            Err(_) => self.abandon(),
        }
        connected
    }

    /// Ends the link for good: its queue pair is destroyed, and every later call says that it is not connected. What else
    /// there is goes when the endpoint is closed or dropped, and that tells of the queue pair too. In a forked child nothing
    /// is destroyed.
    pub fn abandon(&mut self) {
        // First, so that nothing of the link's is called from here on.
        self.stage = Stage::Failed;
        self.plumbing.abandon_queue_pair();
    }

    fn check_fresh(&self) -> Result<(), Error> {
        if self.stage == Stage::Fresh { Ok(()) } else { Err(self.connected_before()) }
    }

    #[cold]
    fn connected_before(&self) -> Error {
        let device = Arc::clone(&self.plumbing.device);
        Error::State { device, what: "it was connected before: make a new endpoint for a new link" }
    }

    fn try_connect(&mut self, remote: &Destination, path_mtu: Mtu) -> Result<(), Error> {
        let (local, config) = (self.local(), self.config.queue_pair);
        let Self { link, plumbing, .. } = self;
        local.connect(plumbing, config, remote, path_mtu, || {
            errno::clear();
            link.post_receives(RECV).map(drop).map_err(|refused| error::errno_of_receive(&refused))
        })
    }

    fn local(&self) -> Local {
        Local { port: self.port, gid: self.gid, qp_num: self.qp_num, psn: self.psn }
    }
}
