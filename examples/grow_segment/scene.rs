//! What there is: a fabric and its device, a GPU in software, a domain that serves its memory, and a peer connected to it.

use std::sync::Arc;

use anyhow::{Context, ensure};
use bareverbs_core::segments::{LengthSum, Ordinal};
use bareverbs_examples::say;
use bareverbs_shell::Fabric;
use bareverbs_shell::cuda::CudaDriver;
use bareverbs_shell::objects::{DeviceContext, ProtectionDomain};
use bareverbs_shell::one_sided::{Transfers, TransfersConfig, connect_pair};
use bareverbs_shell::segments::{BinderConfig, DriverScanner, SegmentDomain, SegmentDomainConfig};
use bareverbs_shell::soft::cuda::{CudaConfig, SoftCuda};
use bareverbs_shell::soft::{LiveCounts, Record, SoftConfig, SoftDevice, SoftFabric};

use crate::promises::DeviceCalls;
use crate::{Choice, Options};

/// An end for one-sided operations; the peer has one on its way at a time.
pub type End = Transfers<2>;

pub struct Scene {
    pub segments: SegmentDomain,
    pub cuda: SoftCuda,
    /// The end in the domain's protection domain, at whose memory the peer writes. It does nothing itself.
    here: End,
    domain: Arc<ProtectionDomain>,
    device: Arc<DeviceContext>,
    soft: Option<SoftFabric>,
    /// What there was before anything was bound.
    before: LiveCounts,
}

impl Scene {
    /// Makes it, and the end that the peer uses.
    pub fn new(options: &Options) -> anyhow::Result<(Self, End)> {
        let (fabric, soft) = match options.fabric {
            Choice::System => (Fabric::system()?, None),
            Choice::Soft => {
                let config = SoftConfig::default().devices(vec![SoftDevice::mlx5("mlx5_0")]);
                let soft = SoftFabric::new(config.record(Record::Control(4096)))?;
                (Fabric::of_soft(&soft), Some(soft))
            }
        };
        let device = fabric.open(options.device.as_deref())?;
        say!("fabric {}, device {}, and a GPU in software", fabric.kind(), device.name());
        let mlx5 = fabric.mlx5();
        let sums_64_bits = mlx5.as_ref().is_none_or(|mlx5| mlx5.length_sum() == LengthSum::Bits64);
        let total_bytes = options.steps * options.step_bytes();
        ensure!(sums_64_bits || total_bytes < 2 << 30, "this mlx5 provider's keys end at 2 GiB: grow less");

        let cuda = SoftCuda::new(CudaConfig::default())?;
        let driver = CudaDriver::with_symbols(cuda.symbols());
        let domain = ProtectionDomain::new(&device, options.ib_port)?;
        let binder = BinderConfig::default().port(options.ib_port).gid(options.gid());
        let config = SegmentDomainConfig::default().given([Ordinal(0)]).binder(binder).deadline(options.patience());
        let segments = SegmentDomain::new(&domain, driver.clone(), mlx5, config)?;
        segments.set_scanner(Some(Arc::new(DriverScanner::new(driver))));

        let end = |peer| {
            let mut config = TransfersConfig::new(peer).depths(8, 1).timeout(options.timeout);
            config.queue_pair = config.queue_pair.port(options.ib_port);
            if options.gid_index.is_some() { config.gid(options.gid()) } else { config }
        };
        let mut here = End::in_domain(&domain, end("the peer"))?;
        let mut there = End::new(&fabric.open(Some(device.name()))?, end("the owner"))?;
        connect_pair(&mut here, &mut there).context("the two ends")?;
        let before = soft.as_ref().map(SoftFabric::live).unwrap_or_default();
        Ok((Self { segments, cuda, here, domain, device, soft, before }, there))
    }

    /// Device calls since the last time that this was asked, where they can be counted.
    pub fn device_calls(&self) -> Option<DeviceCalls> {
        let soft = self.soft.as_ref()?;
        let calls = DeviceCalls::of(&soft.record());
        soft.clear_record();
        Some(calls)
    }

    /// Regions of the segments and keys that live now, those that only views hold among them, where they can be counted.
    pub fn live(&self) -> Option<(u64, u64)> {
        let live = self.soft.as_ref()?.live();
        // The peer's two regions are the others; it has made them by the time that it wrote anything.
        let others = self.before.mrs + 2;
        Some(((live.mrs.saturating_sub(others)) as u64, (live.keys - self.before.keys) as u64))
    }

    /// Ends everything; what is left after that: objects of the device, bytes of the GPU.
    pub fn close(self) -> anyhow::Result<u64> {
        let Self { segments, cuda, here, domain, device, soft, before: _ } = self;
        here.close()?;
        drop((segments, domain, device));
        let left = soft.map(|soft| soft.live()).unwrap_or_default();
        let LiveCounts { contexts, pds, mrs, cqs, qps, channels, keys, .. } = left;
        let objects = contexts + pds + mrs + cqs + qps + channels + keys;
        Ok(objects as u64 + cuda.used_bytes(0))
    }
}
