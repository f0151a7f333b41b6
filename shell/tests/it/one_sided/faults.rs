//! Every call of an end's life refused in turn: whatever is refused, what was made is destroyed once and in order, and what
//! could not be destroyed stays with what it needs.

use std::collections::BTreeMap;
use std::time::Duration;

use bareverbs_shell::memory::{HostDomain, LocalMemory, OwnedBytes};
use bareverbs_shell::objects::report::DropFailure;
use bareverbs_shell::one_sided::{Transfers, TransfersConfig};
use bareverbs_shell::soft::{Answer, BadWr, Call, Mode, Record, SoftConfig, SoftDevice, SoftFabric};
use bareverbs_shell::{Fabric, FabricKind, Wait};

use crate::drop_log;
use crate::ledger::Ledger;

const DEVICE: &str = "transferlife";

/// An end that is connected to itself: writes, reads and adds in its own memory, and goes with operations outstanding.
fn live(soft: &SoftFabric) -> Result<(), Box<dyn std::error::Error>> {
    let context = Fabric::with_symbols(soft.symbols(), FabricKind::Soft).open(Some(DEVICE))?;
    let config = TransfersConfig::new("itself").depths(8, 2).drain_limit(Duration::ZERO);
    let mut end = Transfers::<4>::new(&context, config)?;
    drop(context);
    let (itself, path_mtu, reads) = (end.destination(), end.path_mtu(), end.max_rd_atomic());
    end.connect(&itself, path_mtu, reads)?;
    let domain = HostDomain::new(end.domain().ok_or("gone")?)?;
    let domain = domain.access(crate::scene::ALL);
    let (here, there) = (memory()?, memory()?);
    let (local, lease) = (domain.register(&here)?, domain.register(&there)?.publish()?);
    let (word, remote_word) = (local.part(0, 8)?, lease.remote().part(0, 8)?);
    let wait = Wait::at_most(Duration::from_secs(5));
    end.write_with_imm(&local, lease.remote(), 7)?;
    end.read(&local, lease.remote())?;
    end.fetch_add(&word, &remote_word, 1)?;
    let mut failed = None;
    end.wait_for_all(&wait, |event| {
        if let bareverbs_shell::one_sided::Event::Ended(ended) = event {
            failed = failed.or(ended.result.err());
        }
    })?;
    if let Some(failed) = failed {
        return Err(failed.into());
    }
    end.write(&local, lease.remote())?;
    Ok(())
}

fn memory() -> Result<LocalMemory, Box<dyn std::error::Error>> {
    Ok(LocalMemory::new(OwnedBytes::from(vec![0; 64]))?)
}

fn refusals(symbol: &str) -> Vec<Answer> {
    match symbol {
        "ibv_free_device_list" => Vec::new(),
        "ibv_post_send" | "ibv_post_recv" => {
            let named = [BadWr::Named, BadWr::NullNoneAccepted, BadWr::NullAllAccepted, BadWr::StrayAllAccepted];
            named.map(|named| Answer::returned(12).bad_wr(named)).to_vec()
        }
        "ibv_poll_cq" => [-1, 17].map(Answer::returned).to_vec(),
        _ => vec![Answer::returned(5), Answer::minus_one(5)],
    }
}

fn counts(calls: &[Call]) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for call in calls {
        *counts.entry(call.symbol).or_default() += 1;
    }
    counts
}

/// Lives once, and holds what was left against the record.
fn live_and_check(soft: &SoftFabric, what: &str) -> Result<(), String> {
    let lived = live(soft).map_err(|error| error.to_string());
    let record = soft.record();
    soft.clear_plan();
    let dropped = drop_log::take(DEVICE);
    assert!(record.len() < 10_000, "{what}: it went on and on");
    let ledger = Ledger::replay(&record);
    ledger.assert_only_refused_stay(dropped.iter().any(|failure| matches!(failure, DropFailure::Leaked { .. })));
    ledger.assert_counts(&soft.live());
    assert_eq!(soft.misuse(), Vec::<String>::new(), "{what}");
    let destroys = dropped.iter().filter(|failure| matches!(failure, DropFailure::Destroy(_))).count();
    assert_eq!(destroys, ledger.refused.len(), "{what}: each refused destroy is told once: {dropped:?}");
    if ledger.refused.is_empty() {
        ledger.assert_all_gone();
    }
    ledger.sweep(soft);
    soft.clear_record();
    lived
}

#[test]
fn each_call_refused_leaves_nothing_but_what_could_not_be_destroyed() {
    drop_log::keep();
    for mode in [Mode::Prompt, Mode::Adversarial { seed: 3 }] {
        let config = SoftConfig::default().devices(vec![SoftDevice::new(DEVICE)]).record(Record::Bounded(10_000));
        let soft = SoftFabric::new(config.mode(mode)).expect("a free slot");
        live(&soft).expect("nothing is refused");
        let undisturbed = counts(&soft.record());
        soft.clear_record();
        for symbol in ["ibv_reg_mr", "ibv_create_qp", "ibv_post_send", "ibv_post_recv", "ibv_poll_cq", "ibv_dereg_mr"] {
            assert!(undisturbed.contains_key(symbol), "{symbol}");
        }
        for (symbol, calls) in undisturbed {
            for nth in 1..=calls.min(12) {
                for answer in refusals(symbol) {
                    let what = format!("call {nth} of {symbol}, {answer:?}");
                    soft.fail(symbol, nth, answer);
                    let lived = live_and_check(&soft, &what);
                    if let ("ibv_reg_mr" | "ibv_create_qp" | "ibv_create_cq" | "ibv_alloc_pd", Ok(())) =
                        (symbol, &lived)
                    {
                        panic!("{what}: nobody was told");
                    }
                    soft.fail_from(symbol, nth, answer);
                    let _ = live_and_check(&soft, &format!("from {what}"));
                }
            }
        }
    }
}
