//! The end whose memory it is: publishes, waits for the last write, verifies, withdraws.
//!
//! # Safety
//!
//! The bytes are touched here only before the view is told to the visitor, and after its last write has come.
#![allow(unsafe_code)]

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use bareverbs_core::verbs::AccessFlags;
use bareverbs_core::verbs::device::AtomicCap;
use bareverbs_examples::say;
use bareverbs_shell::exchange::{self, Listener};
use bareverbs_shell::memory::HostDomain;
use bareverbs_shell::objects::DeviceContext;
use bareverbs_shell::one_sided::Event;

use crate::{DONE, Options, Report, STEP, WORD_BYTES, WORD_START, pattern, word_after};

pub fn serve(options: &Options, device: &Arc<DeviceContext>, listener: &Listener) -> anyhow::Result<Report> {
    let mut end = options.end(device, "the visitor")?;
    let met = exchange::accept(listener, &mut end, &options.terms())?;

    let memory = options.memory()?;
    // SAFETY: nobody else knows the bytes yet.
    unsafe { memory.write_at(0, &WORD_START.to_ne_bytes()) }?;
    let domain = end.domain().expect("it is not closed");
    // Atomics only where the device has them: others refuse to register for them.
    let atomic = if end.atomics() == AtomicCap::NONE { AccessFlags::empty() } else { AccessFlags::REMOTE_ATOMIC };
    let view = HostDomain::new(domain)?.access(HostDomain::ACCESS | atomic).register(&memory)?;
    // From here on the visitor may be at it. It says when it is done: until then the lease and this stay.
    let lease = view.publish()?;
    let acknowledgement = lease.acknowledgement();
    let mut stream = met.channel.stream();
    stream.set_write_timeout(Some(options.patience()))?;
    stream.write_all(&lease.remote().encode())?;
    say!("owner: published {}", lease.remote());

    hear_out(options, stream)?;
    // It said so after its last write: that has come.
    let mut arrival = None;
    while arrival.is_none() {
        end.wait(&options.wait(), |event| {
            if let Event::Arrived(came) = event {
                arrival = Some(came);
            }
        })?;
    }
    let came = arrival.expect("it was waited for");
    ensure!(came.immediate == options.rounds, "the visitor made {} rounds: give both ends the same", came.immediate);

    let mut report = Report { operations: 1, bytes: options.data_bytes() as u64, wrong: 0 };
    let (mut word, mut data) = ([0; WORD_BYTES], vec![0; options.data_bytes()]);
    // SAFETY: the visitor's last write has come, and it makes no other.
    unsafe { memory.read_at(0, &mut word) }?;
    // SAFETY: as above.
    unsafe { memory.read_at(WORD_BYTES, &mut data) }?;
    let wanted = if end.atomics() == AtomicCap::NONE { WORD_START } else { word_after(options.rounds) };
    report.wrong += u64::from(u64::from_ne_bytes(word) != wanted);
    report.wrong += u64::from(data != pattern(options.rounds, data.len()));

    // Withdrawn here, and the visitor is done with it: when the last view goes, so does the key.
    lease.withdraw();
    acknowledgement.came();
    met.channel.leave(options.patience())?;
    end.close()?;
    Ok(report)
}

/// Waits until the visitor says that it is done, with patience for each of its words.
fn hear_out(options: &Options, mut stream: &TcpStream) -> anyhow::Result<()> {
    stream.set_read_timeout(Some(options.patience()))?;
    let mut steps = 0;
    loop {
        // One by one: what follows the last is the exchange's.
        let mut word = [0];
        match stream.read(&mut word) {
            Ok(0) => bail!("the visitor went after {steps} steps, before it was done"),
            Ok(_) if word == [DONE] => return Ok(()),
            Ok(_) if word == [STEP] => steps += 1,
            Ok(_) => bail!("the visitor said {word:?}, which is no word"),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                bail!("no word of the visitor in {} s, after {steps} steps", options.patience)
            }
            Err(error) => return Err(error).context("the visitor's words"),
        }
    }
}
