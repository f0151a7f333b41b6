//! The peer: a thread that writes every tensor that it knows and reads it back, over and over, until it is told to rest.
//!
//! # Safety
//!
//! The bytes are touched here only while no operation on them is outstanding: `perform` waits for each.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use bareverbs_core::one_sided::OperationId;
use bareverbs_shell::memory::{HostDomain, LocalMemory, OwnedBytes, View};
use bareverbs_shell::one_sided::{Event, TransferError};

use crate::scene::End;
use crate::tensor::{Target, Tensor, content, differing};
use crate::{Options, Report};

/// What each tensor was written last, by number.
pub type Versions = BTreeMap<u64, u64>;

/// What the owner tells the peer.
pub enum Order {
    /// Write these, too.
    Write(Vec<Target>),
    /// Write these no more.
    Forget(Vec<u64>),
    /// Write each of all tensors once more, say what was written, and rest until the next order.
    Rest(SyncSender<Versions>),
}

pub fn orders() -> (Sender<Order>, Receiver<Order>) {
    mpsc::channel()
}

/// The owner's side of it. Without it the thread ends.
pub struct Peer {
    orders: Sender<Order>,
    patience: Duration,
}

impl Peer {
    pub fn new(orders: Sender<Order>, options: &Options) -> Self {
        Self { orders, patience: options.patience() }
    }

    pub fn write<'a>(&self, tensors: impl IntoIterator<Item = &'a Tensor>) -> anyhow::Result<()> {
        self.order(Order::Write(tensors.into_iter().map(Tensor::target).collect()))
    }

    pub fn forget<'a>(&self, tensors: impl IntoIterator<Item = &'a Tensor>) -> anyhow::Result<()> {
        self.order(Order::Forget(tensors.into_iter().map(|tensor| tensor.number).collect()))
    }

    /// Waits until every tensor was written once more and nothing is on its way.
    pub fn rest(&self) -> anyhow::Result<Versions> {
        let (answer, versions) = mpsc::sync_channel(1);
        self.order(Order::Rest(answer))?;
        versions.recv_timeout(self.patience).map_err(|_| anyhow!("the peer does not come to rest"))
    }

    fn order(&self, order: Order) -> anyhow::Result<()> {
        self.orders.send(order).map_err(|_| anyhow!("the peer is gone"))
    }
}

/// What the thread does.
pub fn write(options: &Options, end: End, incoming: Receiver<Order>) -> anyhow::Result<Report> {
    let memory = || LocalMemory::new(OwnedBytes::from(vec![0; options.tensor_bytes as usize]));
    let (source, landing) = (memory()?, memory()?);
    let domain = HostDomain::new(end.domain().expect("it is not closed"))?;
    let (from, into) = (domain.register(&source)?, domain.register(&landing)?);
    let (targets, versions) = (Vec::new(), Versions::new());
    let mut writer = Writer { options, end, source, landing, from, into, targets, versions, report: Report::default() };
    let mut next = 0;
    loop {
        let order = match incoming.try_recv() {
            Ok(order) => Some(order),
            Err(mpsc::TryRecvError::Disconnected) => break,
            Err(mpsc::TryRecvError::Empty) if writer.targets.is_empty() => match incoming.recv() {
                Ok(order) => Some(order),
                Err(_) => break,
            },
            Err(mpsc::TryRecvError::Empty) => None,
        };
        let mut resting = writer.take(order)?;
        while resting {
            let Ok(order) = incoming.recv() else { return writer.close() };
            resting = writer.take(Some(order))?;
        }
        if let Some(target) = writer.targets.get(next % writer.targets.len().max(1)).copied() {
            writer.write_and_read_back(target)?;
            next += 1;
        }
    }
    writer.close()
}

struct Writer<'options> {
    options: &'options Options,
    end: End,
    source: LocalMemory,
    landing: LocalMemory,
    from: View,
    into: View,
    targets: Vec<Target>,
    versions: Versions,
    report: Report,
}

impl Writer<'_> {
    /// Does as it is told; whether to rest now.
    fn take(&mut self, order: Option<Order>) -> anyhow::Result<bool> {
        match order {
            None => {}
            Some(Order::Write(targets)) => self.targets.extend(targets),
            Some(Order::Forget(numbers)) => {
                self.targets.retain(|target| !numbers.contains(&target.number));
                self.versions.retain(|number, _| !numbers.contains(number));
            }
            Some(Order::Rest(answer)) => {
                for target in self.targets.clone() {
                    self.write_and_read_back(target)?;
                }
                // Whoever asked may have given up.
                let _ = answer.send(self.versions.clone());
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn write_and_read_back(&mut self, target: Target) -> anyhow::Result<()> {
        let version = self.versions.get(&target.number).map_or(1, |version| version + 1);
        let len_bytes = target.remote.len_bytes();
        let wanted = content(target.number, version, len_bytes);
        let (from, into) = (self.from.part(0, len_bytes)?, self.into.part(0, len_bytes)?);
        // SAFETY: no operation on them is outstanding.
        unsafe { self.source.write_at(0, &wanted) }?;
        self.perform(target, |end| end.write(&from, &target.remote))?;
        self.perform(target, |end| end.read(&into, &target.remote))?;
        let mut came = vec![0; wanted.len()];
        // SAFETY: as above.
        unsafe { self.landing.read_at(0, &mut came) }?;
        self.report.wrong += differing(&came, &wanted);
        self.report.bytes += len_bytes;
        self.versions.insert(target.number, version);
        Ok(())
    }

    /// Begins one operation and waits for its end.
    fn perform(
        &mut self,
        target: Target,
        begin: impl FnOnce(&mut End) -> Result<OperationId, TransferError>,
    ) -> anyhow::Result<()> {
        let operation = begin(&mut self.end)?;
        let mut outcome = None;
        self.end.wait_for_all(&self.options.wait(), |event| {
            if let Event::Ended(ended) = event
                && ended.operation == operation
            {
                outcome = Some(ended.result);
            }
        })?;
        let Some(result) = outcome else { bail!("{operation} did not end") };
        result.with_context(|| format!("{operation} on tensor {}, {}", target.number, target.remote))
    }

    fn close(self) -> anyhow::Result<Report> {
        drop((self.from, self.into));
        self.end.close()?;
        Ok(self.report)
    }
}
