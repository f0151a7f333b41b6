//! RDMA writes and reads over one reliable connection between two queue pairs of this process, one after the other: post, poll
//! until it is done. The other side of `benches/c/one_sided.c`; `benches/one-sided` runs both in turns.
//!
//! `one_sided DEVICE GID_INDEX write|read BYTES ITERATIONS`

use std::time::{Duration, Instant};

use bareverbs_core::view::RemoteView;
use bareverbs_shell::memory::pages::Pages;
use bareverbs_shell::memory::{HostDomain, LocalMemory, View};
use bareverbs_shell::objects::gid::GidPolicy;
use bareverbs_shell::one_sided::{Event, Transfers, TransfersConfig, connect_pair};
use bareverbs_shell::{Fabric, Relax, Wait};

type End = Transfers<8>;
type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [device, gid_index, operation, bytes, iterations] = &arguments[..] else {
        return Err("DEVICE GID_INDEX write|read BYTES ITERATIONS".into());
    };
    let reads = operation == "read";
    let (bytes, iterations): (usize, u32) = (bytes.parse()?, iterations.parse()?);
    let fabric = Fabric::system()?;
    let config = TransfersConfig::new("the other end").depths(64, 4).timeout(18);
    let config = config.gid(GidPolicy::Index(gid_index.parse()?));
    let end = || -> Outcome<End> { Ok(Transfers::new(&fabric.open(Some(device))?, config.clone())?) };
    let (mut a, mut b) = (end()?, end()?);
    connect_pair(&mut a, &mut b)?;
    let (local, remote) = (registered(&a, bytes)?, registered(&b, bytes)?);
    let lease = remote.publish()?;
    for _ in 0..iterations / 10 + 1 {
        perform(&mut a, &local, lease.remote(), reads)?;
    }
    let from = Instant::now();
    for _ in 0..iterations {
        perform(&mut a, &local, lease.remote(), reads)?;
    }
    let mean_us = from.elapsed().as_secs_f64() * 1e6 / f64::from(iterations);
    println!("mean_us={mean_us:.3}");
    Ok(())
}

fn registered(end: &End, bytes: usize) -> Outcome<View> {
    let pages = Pages::new(bytes).ok_or("no memory")?;
    let memory = LocalMemory::new(pages)?;
    let whole = HostDomain::new(end.domain().ok_or("closed")?)?.register(&memory)?;
    Ok(whole.part(0, bytes as u64)?)
}

fn perform(end: &mut End, local: &View, remote: &RemoteView, reads: bool) -> Outcome<()> {
    let operation = if reads { end.read(local, remote)? } else { end.write(local, remote)? };
    let mut outcome = None;
    end.wait_for_all(&Wait::at_most(Duration::from_secs(60)).relax(Relax::Busy), |event| {
        if let Event::Ended(ended) = event
            && ended.operation == operation
        {
            outcome = Some(ended.result);
        }
    })?;
    Ok(outcome.ok_or("it did not end")??)
}
