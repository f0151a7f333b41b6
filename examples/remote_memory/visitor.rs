//! The end that operates on the owner's memory, and verifies what comes back.
//!
//! # Safety
//!
//! The bytes are touched here only while no operation on them is outstanding: `perform` waits for each.
#![allow(unsafe_code)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use bareverbs_core::one_sided::OperationId;
use bareverbs_core::verbs::device::AtomicCap;
use bareverbs_core::view::{REMOTE_VIEW_BYTES, RemoteView};
use bareverbs_shell::exchange;
use bareverbs_shell::memory::{HostDomain, LocalMemory, View};
use bareverbs_shell::objects::DeviceContext;
use bareverbs_shell::one_sided::{Event, TransferError};

use crate::{DONE, End, Options, Report, STEP, WORD_BYTES, pattern, word_after};

pub fn visit(options: &Options, device: &Arc<DeviceContext>, servers: &[SocketAddr]) -> anyhow::Result<Report> {
    let mut end = options.end(device, "the owner")?;
    let met = exchange::connect(servers, &mut end, &options.terms())?;
    let mut wire = [0; REMOTE_VIEW_BYTES];
    let mut stream = met.channel.stream();
    stream.set_read_timeout(Some(options.patience()))?;
    stream.set_write_timeout(Some(options.patience()))?;
    stream.read_exact(&mut wire).context("the owner's view")?;
    let remote = RemoteView::decode(&wire)?;
    ensure!(remote.len_bytes() == options.size, "the owner has {remote}: give both ends the same --size");

    // What is written from, and what is read into.
    let (source, landing) = (options.memory()?, options.memory()?);
    let domain = HostDomain::new(end.domain().expect("it is not closed"))?;
    let (from, into) = (domain.register(&source)?, domain.register(&landing)?);
    let has_atomics = end.atomics() != AtomicCap::NONE;
    let mut visit = Visit { options, stream, end, remote, source, landing, from, into, report: Report::default() };
    for round in 0..options.rounds {
        visit.write_and_read_back(round)?;
        if has_atomics {
            visit.add_and_swap(word_after(round))?;
        }
    }
    visit.say_done()?;
    let Visit { end, report, .. } = visit;
    met.channel.leave(options.patience())?;
    end.close()?;
    Ok(report)
}

struct Visit<'visit> {
    options: &'visit Options,
    /// For a word to the owner after each step.
    stream: &'visit TcpStream,
    end: End,
    remote: RemoteView,
    source: LocalMemory,
    landing: LocalMemory,
    from: View,
    into: View,
    report: Report,
}

impl Visit<'_> {
    /// The views of what follows the counter: here to write from, here to read into, there.
    fn data(&self) -> anyhow::Result<(View, View, RemoteView)> {
        let (offset, len) = (WORD_BYTES as u64, self.options.data_bytes() as u64);
        Ok((self.from.part(offset, len)?, self.into.part(offset, len)?, self.remote.part(offset, len)?))
    }

    fn write_and_read_back(&mut self, round: u32) -> anyhow::Result<()> {
        let (from, into, there) = self.data()?;
        let wanted = pattern(round, self.options.data_bytes());
        // SAFETY: no operation on them is outstanding.
        unsafe { self.source.write_at(WORD_BYTES, &wanted) }?;
        {
            // A write reads its local bytes: others may read them too.
            let source = self.source.clone();
            let _reading = source.access_lock().read()?;
            self.perform(wanted.len(), |end| end.write(&from, &there))?;
        }
        {
            // A read writes its local bytes: nobody else may touch them.
            let landing = self.landing.clone();
            let _writing = landing.access_lock().exclusive();
            self.perform(wanted.len(), |end| end.read(&into, &there))?;
        }
        let mut came = vec![0; wanted.len()];
        // SAFETY: as above.
        unsafe { self.landing.read_at(WORD_BYTES, &mut came) }?;
        self.report.wrong += u64::from(came != wanted);
        Ok(())
    }

    /// Adds 3 to the counter, swaps in 1000 more, and fails to swap where another value is expected. Each brings what was
    /// there.
    fn add_and_swap(&mut self, was: u64) -> anyhow::Result<()> {
        let (answer, word) = (self.into.part(0, 8)?, self.remote.part(0, 8)?);
        self.perform(WORD_BYTES, |end| end.fetch_add(&answer, &word, 3))?;
        self.expect(was)?;
        let (now, then) = (was.wrapping_add(3), was.wrapping_add(1003));
        self.perform(WORD_BYTES, |end| end.compare_swap(&answer, &word, now, then))?;
        self.expect(now)?;
        self.perform(WORD_BYTES, |end| end.compare_swap(&answer, &word, now, 0))?;
        self.expect(then)
    }

    fn expect(&mut self, wanted: u64) -> anyhow::Result<()> {
        let mut came = [0; WORD_BYTES];
        // SAFETY: no operation on them is outstanding.
        unsafe { self.landing.read_at(0, &mut came) }?;
        self.report.wrong += u64::from(u64::from_ne_bytes(came) != wanted);
        Ok(())
    }

    /// The last write: its immediate data are the number of rounds.
    fn say_done(&mut self) -> anyhow::Result<()> {
        let (from, _, there) = self.data()?;
        let rounds = self.options.rounds;
        // SAFETY: no operation on them is outstanding.
        unsafe { self.source.write_at(WORD_BYTES, &pattern(rounds, self.options.data_bytes())) }?;
        self.perform(self.options.data_bytes(), |end| end.write_with_imm(&from, &there, rounds))?;
        self.say(DONE)
    }

    fn say(&mut self, word: u8) -> anyhow::Result<()> {
        self.stream.write_all(&[word]).context("a word to the owner")
    }

    /// Begins one operation and waits for its end; the owner is told that it goes on.
    fn perform(
        &mut self,
        bytes: usize,
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
        result.with_context(|| format!("{operation} on {}", self.remote))?;
        self.report.operations += 1;
        self.report.bytes += bytes as u64;
        self.say(STEP)
    }
}
