//! What an end is known by, and its moves from INIT to RTS: the same for every kind of end.
//!
//! The rules this file protects: **a GID that changed since it was published is never used by its old index**, and receives are
//! posted between RTR and RTS, so that the other end's first request finds one.

use std::sync::Arc;

use bareverbs_core::connect::{ConnectParams, Destination, Psn, QueuePairConfig, Transition};
use bareverbs_core::verbs::{Gid, Mtu};

use crate::endpoint::teardown::Plumbing;
use crate::errno::Errno;
use crate::error::Error;
use crate::objects::gid::{self, GidInfo};
use crate::objects::port::PortInfo;

/// What an end is known by, and connects with.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    pub(crate) port: PortInfo,
    pub(crate) gid: Option<GidInfo>,
    pub(crate) qp_num: u32,
    pub(crate) psn: Psn,
}

impl Local {
    /// What the other end must know to connect.
    pub(crate) fn destination(&self) -> Destination {
        let gid = self.gid.map_or(Gid::ZERO, |found| found.gid);
        Destination { lid: self.port.lid(), qp_num: self.qp_num, psn: self.psn, gid }
    }

    /// RTR, receives, RTS. `post_receives` answers the errno of a receive that was refused.
    pub(crate) fn connect(
        &self,
        plumbing: &mut Plumbing,
        config: QueuePairConfig,
        remote: &Destination,
        path_mtu: Mtu,
        post_receives: impl FnOnce() -> Result<(), Option<Errno>>,
    ) -> Result<(), Error> {
        self.check_gid(plumbing)?;
        let params = ConnectParams {
            config,
            link_layer: self.port.link_layer(),
            path_mtu,
            psn: self.psn,
            sgid_index: self.gid.map(|found| found.index),
            remote: *remote,
        };
        let to_rtr = Transition::to_rtr(&params).map_err(Error::Route)?;
        plumbing.queue_pair()?.modify(&to_rtr)?;
        self.check_gid(plumbing)?;
        if let Err(errno) = post_receives() {
            return Err(plumbing.context()?.call_error("ibv_post_recv", errno, Some(self.port.number)).into());
        }
        plumbing.queue_pair()?.modify(&Transition::to_rts(&params))
    }

    /// That the GID published is still at its index.
    fn check_gid(&self, plumbing: &Plumbing) -> Result<(), Error> {
        let Some(published) = self.gid else { return Ok(()) };
        let context = plumbing.context()?;
        context.check_use()?;
        match gid::read(context, self.port.number, published.index) {
            Some(now) if now.gid == published.gid => Ok(()),
            _ => Err(Error::GidChanged { device: Arc::clone(&plumbing.device), index: published.index }),
        }
    }
}
