//! INIT, RTR, RTS as values: what to set, and which of it counts.
//!
//! | step | UC | RC adds |
//! |---|---|---|
//! | INIT | STATE, PKEY_INDEX, PORT, ACCESS_FLAGS | - |
//! | RTR | STATE, AV, PATH_MTU, DEST_QPN, RQ_PSN | MAX_DEST_RD_ATOMIC, MIN_RNR_TIMER |
//! | RTS | STATE, SQ_PSN | TIMEOUT, RETRY_CNT, RNR_RETRY, MAX_QP_RD_ATOMIC |
//!
//! (`ibv_modify_qp(3)`; anything else is refused with EINVAL.) `rq_psn` is the other end's first packet sequence number,
//! `sq_psn` our own.

use crate::connect::config::{GlobalRouting, QueuePairConfig, Service};
use crate::connect::destination::{Destination, Psn};
use crate::verbs::port::{LinkLayer, Mtu};
use crate::verbs::{AhAttr, GlobalRoute, QpAttr, QpAttrMask, QpState};

/// One move of a queue pair: the attributes, and which of them count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The attributes; fields that `mask` does not name are zero.
    pub attr: QpAttr,
    /// Which of them count.
    pub mask: QpAttrMask,
}

impl Transition {
    /// The state to be entered.
    pub const fn state(&self) -> QpState {
        self.attr.qp_state
    }

    /// RESET to INIT. Regions of the endpoint's own frames are registered before it: Apple's devices require that.
    pub fn to_init(config: &QueuePairConfig) -> Self {
        Self {
            attr: QpAttr {
                qp_state: QpState::INIT,
                pkey_index: config.pkey_index,
                port_num: config.port,
                qp_access_flags: config.access,
                ..QpAttr::default()
            },
            mask: QpAttrMask::STATE | QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::ACCESS_FLAGS,
        }
    }

    /// INIT to RTR. A queue pair whose move fails is to be destroyed, not moved again.
    ///
    /// # Errors
    /// [`RouteError`] if the link needs a global route and there is no GID at one end.
    pub fn to_rtr(params: &ConnectParams) -> Result<Self, RouteError> {
        let config = &params.config;
        let mut attr = QpAttr {
            qp_state: QpState::RTR,
            ah_attr: params.address()?,
            path_mtu: params.path_mtu,
            dest_qp_num: params.remote.qp_num,
            rq_psn: params.remote.psn.get(),
            ..QpAttr::default()
        };
        let mut mask =
            QpAttrMask::STATE | QpAttrMask::AV | QpAttrMask::PATH_MTU | QpAttrMask::DEST_QPN | QpAttrMask::RQ_PSN;
        if config.service == Service::Rc {
            attr.max_dest_rd_atomic = config.max_rd_atomic;
            attr.min_rnr_timer = config.min_rnr_timer;
            mask |= QpAttrMask::MAX_DEST_RD_ATOMIC | QpAttrMask::MIN_RNR_TIMER;
        }
        Ok(Self { attr, mask })
    }

    /// RTR to RTS.
    pub fn to_rts(params: &ConnectParams) -> Self {
        let config = &params.config;
        let mut attr = QpAttr { qp_state: QpState::RTS, sq_psn: params.psn.get(), ..QpAttr::default() };
        let mut mask = QpAttrMask::STATE | QpAttrMask::SQ_PSN;
        if config.service == Service::Rc {
            attr.timeout = config.timeout;
            attr.retry_cnt = config.retry_cnt;
            attr.rnr_retry = config.rnr_retry;
            attr.max_rd_atomic = config.max_rd_atomic;
            mask |= QpAttrMask::TIMEOUT | QpAttrMask::RETRY_CNT | QpAttrMask::RNR_RETRY | QpAttrMask::MAX_QP_RD_ATOMIC;
        }
        Self { attr, mask }
    }

    /// Any state to ERR: what is posted is flushed.
    pub fn to_error() -> Self {
        Self { attr: QpAttr { qp_state: QpState::ERR, ..QpAttr::default() }, mask: QpAttrMask::STATE }
    }
}

/// What connecting needs beside the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectParams {
    /// How the queue pair was asked for.
    pub config: QueuePairConfig,
    /// The port's link layer.
    pub link_layer: LinkLayer,
    /// Path MTU that both ends agreed on.
    pub path_mtu: Mtu,
    /// Our own first packet sequence number.
    pub psn: Psn,
    /// Index of our own GID in the port's table, as found; `None` where the address has no GID.
    pub sgid_index: Option<u8>,
    /// The other end.
    pub remote: Destination,
}

/// Why no address can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum RouteError {
    /// The link layer needs a global route, and our port has no GID.
    NoLocalGid {
        /// The link layer.
        link_layer: LinkLayer,
    },
    /// The link layer needs a global route, and the other end gave no GID.
    NoRemoteGid {
        /// The link layer.
        link_layer: LinkLayer,
    },
}

impl core::fmt::Display for RouteError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NoLocalGid { link_layer } => {
                write!(f, "{link_layer:?} needs a global route, and our port has no GID to send from")
            }
            Self::NoRemoteGid { link_layer } => {
                write!(f, "{link_layer:?} needs a global route, and the other end gave an all-zero GID")
            }
        }
    }
}

impl core::error::Error for RouteError {}

impl ConnectParams {
    fn address(&self) -> Result<AhAttr, RouteError> {
        let link_layer = self.link_layer;
        let plain = AhAttr { dlid: self.remote.lid, port_num: self.config.port, ..AhAttr::default() };
        let needed = link_layer.needs_global_route();
        let wished = self.config.global_routing == GlobalRouting::Always;
        if !needed && !wished {
            return Ok(plain);
        }
        let (sgid_index, dgid) = match (self.sgid_index, self.remote.gid) {
            (Some(index), gid) if !gid.is_zero() => (index, gid),
            _ if !needed => return Ok(plain),
            (None, _) => return Err(RouteError::NoLocalGid { link_layer }),
            (Some(_), _) => return Err(RouteError::NoRemoteGid { link_layer }),
        };
        let hop_limit = match self.config.hop_limit {
            Some(limit) => limit,
            None if link_layer == LinkLayer::THUNDERBOLT => 1,
            None => 255,
        };
        let traffic_class = self.config.traffic_class;
        let grh = GlobalRoute { dgid, sgid_index, hop_limit, traffic_class, flow_label: 0 };
        Ok(AhAttr { is_global: 1, grh, ..plain })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::{AccessFlags, Gid};

    fn params(config: QueuePairConfig, link_layer: LinkLayer) -> ConnectParams {
        ConnectParams {
            config,
            link_layer,
            path_mtu: Mtu::B1024,
            psn: Psn::new(0x33).expect("24 bits"),
            sgid_index: Some(2),
            remote: Destination {
                lid: 9,
                qp_num: 0x44,
                psn: Psn::new(0x55).expect("24 bits"),
                gid: Gid::new([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2]),
            },
        }
    }

    #[test]
    fn uc_sets_exactly_the_bits_that_uc_takes() {
        let params = params(QueuePairConfig::uc(), LinkLayer::ETHERNET);
        let init = Transition::to_init(&params.config);
        // Literals from the kernel's table of moves: STATE 0, ACCESS_FLAGS 3, PKEY_INDEX 4, PORT 5.
        assert_eq!(init.mask.bits(), 1 | 1 << 3 | 1 << 4 | 1 << 5);
        assert_eq!(init.attr.qp_access_flags, AccessFlags::LOCAL_WRITE);
        let rtr = Transition::to_rtr(&params).expect("both GIDs are there");
        assert_eq!(rtr.mask.bits(), 1 | 1 << 7 | 1 << 8 | 1 << 12 | 1 << 20);
        assert_eq!(Transition::to_rts(&params).mask.bits(), 1 | 1 << 16);
    }

    #[test]
    fn port_and_pkey_index_are_those_of_the_configuration_in_every_move_that_sets_them() {
        for (port, pkey_index) in [(1, 0), (2, 0), (2, 3), (255, 0xffff)] {
            for config in [QueuePairConfig::uc(), QueuePairConfig::rc()] {
                let params = params(QueuePairConfig { port, pkey_index, ..config }, LinkLayer::ETHERNET);
                let init = Transition::to_init(&params.config).attr;
                assert_eq!((init.port_num, init.pkey_index), (port, pkey_index));
                let rtr = Transition::to_rtr(&params).expect("both GIDs are there").attr;
                assert_eq!((rtr.ah_attr.port_num, rtr.pkey_index), (port, 0), "the index is not set again");
            }
        }
    }

    #[test]
    fn rc_adds_its_own_bits_and_values() {
        let params = params(QueuePairConfig::rc(), LinkLayer::ETHERNET);
        let rtr = Transition::to_rtr(&params).expect("both GIDs are there");
        assert_eq!(rtr.mask.bits(), 1 | 1 << 7 | 1 << 8 | 1 << 12 | 1 << 20 | 1 << 15 | 1 << 17);
        assert_eq!((rtr.attr.max_dest_rd_atomic, rtr.attr.min_rnr_timer), (16, 12));
        let rts = Transition::to_rts(&params);
        assert_eq!(rts.mask.bits(), 1 | 1 << 16 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 13);
        let attr = rts.attr;
        assert_eq!((attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.max_rd_atomic), (14, 7, 7, 16));
    }

    #[test]
    fn the_peers_psn_is_received_and_our_own_is_sent() {
        let params = params(QueuePairConfig::uc(), LinkLayer::ETHERNET);
        let rtr = Transition::to_rtr(&params).expect("both GIDs are there");
        assert_eq!((rtr.attr.rq_psn, rtr.attr.sq_psn, rtr.attr.dest_qp_num), (0x55, 0, 0x44));
        assert_eq!(Transition::to_rts(&params).attr.sq_psn, 0x33);
    }

    #[test]
    fn ethernet_and_thunderbolt_always_carry_a_global_route_with_the_index_found() {
        for (link_layer, hop_limit) in [(LinkLayer::ETHERNET, 255), (LinkLayer::THUNDERBOLT, 1)] {
            let params = params(QueuePairConfig::uc(), link_layer);
            let address = Transition::to_rtr(&params).expect("both GIDs are there").attr.ah_attr;
            assert_eq!((address.is_global, address.grh.sgid_index, address.grh.hop_limit), (1, 2, hop_limit));
            assert_eq!(address.grh.dgid, params.remote.gid);
            assert_eq!((address.dlid, address.port_num), (9, 1));
        }
        let settable = params(QueuePairConfig::uc().hop_limit(3).traffic_class(96), LinkLayer::ETHERNET);
        let grh = Transition::to_rtr(&settable).expect("both GIDs are there").attr.ah_attr.grh;
        assert_eq!((grh.hop_limit, grh.traffic_class), (3, 96));
    }

    #[test]
    fn infiniband_goes_by_lid_unless_a_gid_is_set_and_asked_for() {
        let by_lid = params(QueuePairConfig::uc(), LinkLayer::INFINIBAND);
        assert_eq!(Transition::to_rtr(&by_lid).expect("a LID is enough").attr.ah_attr.is_global, 0);
        let mut wished = by_lid;
        wished.config.global_routing = GlobalRouting::Always;
        assert_eq!(Transition::to_rtr(&wished).expect("both GIDs are there").attr.ah_attr.is_global, 1);
        wished.remote.gid = Gid::ZERO;
        assert_eq!(Transition::to_rtr(&wished).expect("a LID is enough").attr.ah_attr.is_global, 0);
    }

    #[test]
    fn a_missing_gid_where_one_is_needed_is_refused_before_any_call() {
        let mut params = params(QueuePairConfig::uc(), LinkLayer::ETHERNET);
        params.remote.gid = Gid::ZERO;
        let link_layer = LinkLayer::ETHERNET;
        assert_eq!(Transition::to_rtr(&params), Err(RouteError::NoRemoteGid { link_layer }));
        params.sgid_index = None;
        assert_eq!(Transition::to_rtr(&params), Err(RouteError::NoLocalGid { link_layer }));
    }

    #[test]
    fn defaults_are_those_of_jaccl_links_for_uc_and_of_wide_queues_for_rc() {
        let uc = QueuePairConfig::uc();
        assert_eq!((uc.send_depth, uc.recv_depth, uc.max_sge, uc.port, uc.pkey_index), (32, 32, 1, 1, 0));
        assert_eq!(uc.path_mtu_on(Mtu::B4096), Mtu::B1024);
        let rc = QueuePairConfig::rc();
        assert_eq!((rc.send_depth, rc.recv_depth, rc.access), (512, 512, AccessFlags::LOCAL_WRITE));
        assert_eq!(rc.path_mtu_on(Mtu::B2048), Mtu::B2048);
        assert_eq!(rc.path_mtu_on(Mtu(6)), Mtu::B4096);
        let jaccl = QueuePairConfig::jaccl();
        assert_eq!(jaccl.access.bits(), 1 | 2 | 4);
        assert_eq!(jaccl.psn.choose(LinkLayer::ETHERNET, 0x1234_5678), Psn::JACCL);
        assert_eq!(uc.psn.choose(LinkLayer::THUNDERBOLT, 0x1234_5678), Psn::JACCL);
        assert_eq!(uc.psn.choose(LinkLayer::ETHERNET, 0x1234_5678).get(), 0x34_5678);
    }

    #[test]
    fn fields_outside_the_mask_are_zero() {
        let params = params(QueuePairConfig::uc(), LinkLayer::ETHERNET);
        let attr = Transition::to_rts(&params).attr;
        assert_eq!(QpAttr { qp_state: QpState::default(), sq_psn: 0, ..attr }, QpAttr::default());
        assert_eq!(Transition::to_error().attr, QpAttr { qp_state: QpState::ERR, ..QpAttr::default() });
    }
}
