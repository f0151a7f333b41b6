//! Every entry point that an endpoint's life calls, every call of it, refused in turn, in every way that libraries refuse.
//!
//! Whatever is refused: nothing panics, the error names call and device, what was made is destroyed once and in order, and
//! what could not be destroyed stays with what it needs.

use std::collections::BTreeMap;
use std::rc::Rc;

use bareverbs_core::teardown_order::Quiesced;
use bareverbs_shell::Error;
use bareverbs_shell::endpoint::Waking;
use bareverbs_shell::objects::report::DropFailure;
use bareverbs_shell::soft::{Answer, BadWr, Call};

use crate::ledger::Ledger;
use crate::life::{Bench, Ending, Failed, Lived};

/// What the shell can do without; a GID that cannot be read is skipped, and need not be the one that is wanted.
const TOLERATED: &[&str] =
    &["ibv_get_device_guid", "ibv_query_device", "ibv_query_gid", "ibv_query_qp", "_ibv_query_gid_ex"];

/// The ways in which a call of this name can fail.
fn refusals(symbol: &str) -> Vec<Answer> {
    match symbol {
        // They return nothing, and a library cannot refuse them.
        "ibv_free_device_list" | "ibv_ack_cq_events" | "ibv_ack_async_event" => Vec::new(),
        "ibv_post_send" | "ibv_post_recv" => {
            let returned = [Answer::returned(12), Answer::returned(-12), Answer::minus_one(12), Answer::minus_one(0)];
            let named = [BadWr::Named, BadWr::NullNoneAccepted, BadWr::NullAllAccepted, BadWr::StrayAllAccepted];
            returned.iter().flat_map(|answer| named.map(|named| answer.bad_wr(named))).collect()
        }
        "ibv_poll_cq" => {
            let lies = [Answer::returned(3), Answer::returned(16), Answer::returned(17), Answer::returned(i32::MAX)];
            let negative = [Answer::returned(-1), Answer::returned(-2), Answer::returned(i32::MIN), Answer::nothing()];
            [lies, negative].concat()
        }
        _ => vec![Answer::returned(5), Answer::returned(-5), Answer::minus_one(5), Answer::minus_one(0), {
            // Null, or -1, and `errno` is not touched.
            Answer::returned(-1)
        }],
    }
}

/// Both ways of waiting, both ways of ending.
fn lives() -> impl Iterator<Item = (Rc<Bench>, Ending)> {
    let benches = [Waking::Polling, Waking::Events].map(|waking| Rc::new(Bench::new(waking)));
    benches.into_iter().flat_map(|bench| [Ending::Drop, Ending::Close].map(|ending| (Rc::clone(&bench), ending)))
}

fn counts(calls: &[Call]) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for call in calls {
        *counts.entry(call.symbol).or_default() += 1;
    }
    counts
}

/// What holds whatever was refused.
fn assert_sound(lived: &Lived, what: &str) {
    assert!(lived.record.len() < 10_000, "{what}: it went on and on");
    let ledger = Ledger::replay(&lived.record);
    ledger.assert_in_order(lived.quiesced());
    ledger.assert_only_refused_stay(lived.leaked());
    ledger.assert_counts(&lived.soft.live());
    assert_eq!(lived.soft.misuse(), Vec::<String>::new(), "{what}");
    let destroys = lived.dropped.iter().filter(|failure| matches!(failure, DropFailure::Destroy(_))).count();
    let told = destroys
        + usize::from(matches!(&lived.outcome, Err(Failed::Shell(Error::Call(call)))
        if ledger.refused.iter().any(|refused| destroy_of(refused.1) == call.call)));
    assert_eq!(told, ledger.refused.len(), "{what}: each refused destroy is told once: {:?}", lived.dropped);
    ledger.sweep(&lived.soft);
}

fn destroy_of(step: bareverbs_core::teardown_order::Step) -> &'static str {
    use bareverbs_core::teardown_order::Step;
    match step {
        Step::MemoryRegion => "ibv_dereg_mr",
        Step::QueuePair => "ibv_destroy_qp",
        Step::CompletionQueue => "ibv_destroy_cq",
        Step::CompletionChannel => "ibv_destroy_comp_channel",
        Step::ProtectionDomain => "ibv_dealloc_pd",
        Step::DeviceContext => "ibv_close_device",
        other => panic!("nothing here destroys a {other:?}"),
    }
}

/// That a refusal in the middle of a life shows as an error that names it.
fn assert_named(lived: &Lived, symbol: &str, what: &str) {
    match &lived.outcome {
        Ok(()) => assert!(TOLERATED.contains(&symbol) || symbol == "ibv_poll_cq", "{what}: nobody was told"),
        Err(Failed::Shell(Error::Call(call))) => {
            assert_eq!(call.call, symbol, "{what}: {call}");
            assert_eq!(*call.device, *lived.device, "{what}");
        }
        // What a query answers decides what there is: the error is then about that.
        Err(Failed::Shell(error)) => {
            let queries = ["ibv_query_gid", "ibv_get_device_name", "ibv_get_device_list"];
            assert!(queries.contains(&symbol), "{what}: {error}");
            assert!(error.to_string().contains(&lived.device), "{what}: {error}");
        }
        Err(Failed::Endpoint(error)) => {
            assert_eq!(*error.device, *lived.device, "{what}");
            let data_path = [
                "ibv_post_send",
                "ibv_post_recv",
                "ibv_poll_cq",
                "ibv_req_notify_cq",
                "ibv_get_cq_event",
                "ibv_get_async_event",
            ];
            assert!(data_path.contains(&symbol), "{what}: {error}");
        }
    }
}

/// That a refusal while an endpoint ends is told: by the close, or to the drop hook.
fn assert_end_told(lived: &Lived, symbol: &str, ending: Ending, what: &str) {
    match symbol {
        "ibv_dereg_mr"
        | "ibv_destroy_qp"
        | "ibv_destroy_cq"
        | "ibv_destroy_comp_channel"
        | "ibv_dealloc_pd"
        | "ibv_close_device" => {
            let told = match (ending, &lived.outcome) {
                (Ending::Close, Err(Failed::Shell(Error::Call(call)))) => call.clone(),
                (Ending::Drop, Ok(())) => match &lived.dropped[..] {
                    [DropFailure::Destroy(call)] => call.clone(),
                    other => panic!("{what}: {other:?}"),
                },
                (_, other) => panic!("{what}: {other:?}"),
            };
            assert_eq!((told.call, &*told.device), (symbol, lived.device.as_str()), "{what}");
        }
        // The drain had to be given up, or found another way.
        _ => assert!(lived.outcome.is_ok(), "{what}: {}", lived.outcome.as_ref().unwrap_err()),
    }
}

#[test]
fn an_undisturbed_life_calls_everything_and_leaves_nothing() {
    for (bench, ending) in lives() {
        let lived = bench.live(ending, |_| ());
        assert!(lived.outcome.is_ok(), "{:?}", lived.outcome.err());
        assert_sound(&lived, "nothing refused");
        Ledger::replay(&lived.record).assert_all_gone();
        assert_eq!(lived.quiesced(), Quiesced::Yes);
        let called = counts(&lived.record);
        for symbol in [
            "ibv_get_device_list",
            "ibv_free_device_list",
            "ibv_get_device_name",
            "ibv_open_device",
            "ibv_alloc_pd",
            "ibv_reg_mr",
            "ibv_create_cq",
            "ibv_create_qp",
            "ibv_modify_qp",
            "ibv_query_port",
            "ibv_query_gid",
            "ibv_query_device",
            "ibv_query_qp",
            "ibv_post_send",
            "ibv_post_recv",
            "ibv_poll_cq",
            "ibv_get_async_event",
            "ibv_dereg_mr",
            "ibv_destroy_qp",
            "ibv_destroy_cq",
            "ibv_dealloc_pd",
            "ibv_close_device",
        ] {
            assert!(called.contains_key(symbol), "{symbol} is not called: {called:?}");
        }
        for symbol in [
            "ibv_create_comp_channel",
            "ibv_destroy_comp_channel",
            "ibv_req_notify_cq",
            "ibv_get_cq_event",
            "ibv_ack_cq_events",
        ] {
            assert_eq!(called.contains_key(symbol), bench.sleeps(), "{symbol}: {called:?}");
        }
    }
}

#[test]
fn each_call_refused_once_ends_in_a_named_error_and_a_teardown_in_order() {
    for (bench, ending) in lives() {
        let undisturbed = bench.live(ending, |_| ());
        let listed = counts(&undisturbed.record[..undisturbed.listed]);
        let before_end = counts(&undisturbed.record[..undisturbed.ended]);
        for (symbol, calls) in counts(&undisturbed.record) {
            for nth in 1..=calls {
                for answer in refusals(symbol) {
                    let what = format!("{ending:?}, call {nth} of {symbol}, {answer:?}");
                    let lived = bench.live(ending, |soft| soft.fail(symbol, nth, answer));
                    assert_sound(&lived, &what);
                    let phase = |counts: &BTreeMap<_, u64>| nth <= counts.get(symbol).copied().unwrap_or(0);
                    if phase(&listed) && symbol != "ibv_get_device_list" {
                        // A device that could not be asked, or closed, is that entry's matter.
                        assert!(lived.outcome.is_ok(), "{what}: {}", lived.outcome.as_ref().unwrap_err());
                    } else if phase(&before_end) {
                        if symbol != "ibv_get_device_list" {
                            assert_named(&lived, symbol, &what);
                        }
                    } else {
                        assert_end_told(&lived, symbol, ending, &what);
                    }
                }
            }
        }
    }
}

#[test]
fn each_call_refused_for_good_ends_in_a_teardown_in_order() {
    for (bench, ending) in lives() {
        for (symbol, calls) in counts(&bench.live(ending, |_| ()).record) {
            for nth in 1..=calls {
                for answer in refusals(symbol) {
                    let what = format!("{ending:?}, calls of {symbol} from {nth}, {answer:?}");
                    assert_sound(&bench.live(ending, |soft| soft.fail_from(symbol, nth, answer)), &what);
                }
            }
        }
    }
}

#[test]
fn a_list_that_cannot_be_had_names_the_call_and_is_never_freed() {
    let bench = Bench::new(Waking::Polling);
    for answer in refusals("ibv_get_device_list") {
        let lived = bench.live(Ending::Drop, |soft| soft.fail("ibv_get_device_list", 1, answer));
        let Err(Failed::Shell(Error::Call(call))) = &lived.outcome else { panic!("{:?}", lived.outcome) };
        assert_eq!(call.call, "ibv_get_device_list");
        assert_eq!(lived.record.len(), 1, "{:?}", lived.record);
    }
}

#[test]
fn two_calls_refused_together_still_end_in_a_teardown_in_order() {
    let endings = ["ibv_modify_qp", "ibv_post_send", "ibv_post_recv", "ibv_poll_cq"];
    let destroys = [
        "ibv_dereg_mr",
        "ibv_destroy_qp",
        "ibv_destroy_cq",
        "ibv_destroy_comp_channel",
        "ibv_dealloc_pd",
        "ibv_close_device",
    ];
    for (bench, ending) in lives() {
        let undisturbed = bench.live(ending, |_| ());
        let before_end = counts(&undisturbed.record[..undisturbed.ended]);
        for first in endings.iter().chain(&destroys) {
            for second in destroys {
                let nth = |symbol: &str| before_end.get(symbol).copied().unwrap_or(0) + 1;
                let lived = bench.live(ending, |soft| {
                    soft.fail_from(first, nth(first), Answer::returned(-5));
                    soft.fail_from(second, nth(second), Answer::returned(16));
                });
                assert_sound(&lived, &format!("{ending:?}, {first} and {second}"));
            }
        }
    }
}
