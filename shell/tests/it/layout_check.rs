//! A library whose structs are not laid out as its header says is refused, by the field that shows it, before the first
//! post; so is a provider without an inline operation.

use bareverbs_core::connect::QueuePairConfig;
use bareverbs_core::link::Immediate;
use bareverbs_shell::endpoint::{Endpoint, Event, Frames, connect_pair};
use bareverbs_shell::objects::DeviceContext;
use bareverbs_shell::soft::{Call, LiveCounts, Record, SoftConfig, SoftFabric};
use bareverbs_shell::{Error, errno};

use crate::ledger::{Ledger, calls_of};
use crate::world::{config, patiently};
use crate::wrapped::{Spoiled, sends, wrap};

/// Makes an endpoint over a library with that flaw: the error, and all that was called.
fn refusal(spoiled: Spoiled) -> (Error, Vec<Call>) {
    let soft = SoftFabric::new(SoftConfig::default().record(Record::Bounded(1000))).expect("a free slot");
    let symbols = wrap(soft.symbols(), Some(spoiled));
    let made = DeviceContext::open(&symbols, Some("soft0"))
        .and_then(|context| Endpoint::<_, 4, 4>::new(&context, Immediate, config(), Frames::Owned));
    let error = made.expect_err("the library is refused");
    assert_eq!(soft.live(), LiveCounts::default(), "{spoiled:?}");
    assert_eq!(soft.misuse(), Vec::<String>::new(), "{spoiled:?}");
    (error, soft.record())
}

#[test]
fn objects_with_wrong_back_pointers_are_refused_by_field_and_destroyed() {
    for (spoiled, wanted) in [
        (Spoiled::CqContext, "ibv_cq.context"),
        (Spoiled::QpContext, "ibv_qp.context"),
        (Spoiled::QpPd, "ibv_qp.pd"),
        (Spoiled::QpSendCq, "ibv_qp.send_cq"),
        (Spoiled::QpRecvCq, "ibv_qp.recv_cq"),
        (Spoiled::QpNumber, "ibv_qp.qp_num, top byte"),
        (Spoiled::QpState, "ibv_qp.state"),
        (Spoiled::QpType, "ibv_qp.qp_type"),
        (Spoiled::MrContext, "ibv_mr.context"),
        (Spoiled::MrPd, "ibv_mr.pd"),
        (Spoiled::MrAddr, "ibv_mr.addr"),
        (Spoiled::MrLength, "ibv_mr.length"),
    ] {
        let (error, record) = refusal(spoiled);
        let Error::Layout { device, field, expected, got } = &error else { panic!("{spoiled:?}: {error}") };
        assert_eq!((&**device, *field), ("soft0", wanted));
        assert_ne!(expected, got);
        assert!(error.to_string().contains(wanted), "{error}");
        Ledger::replay(&record).assert_all_gone();
        assert_eq!(calls_of(&record, "ibv_post_recv") + calls_of(&record, "ibv_post_send"), 0, "{spoiled:?}");
    }
}

#[test]
fn a_provider_without_an_inline_operation_is_refused_when_it_is_opened() {
    for (spoiled, name, number) in [
        (Spoiled::NoPollCq, "poll_cq", 11),
        (Spoiled::NoReqNotifyCq, "req_notify_cq", 12),
        (Spoiled::NoPostSend, "post_send", 25),
        (Spoiled::NoPostRecv, "post_recv", 26),
    ] {
        let (error, record) = refusal(spoiled);
        let Error::MissingSlot { device, slot } = &error else { panic!("{spoiled:?}: {error}") };
        assert_eq!((&**device, slot.name, slot.slot), ("soft0", name, number));
        assert_eq!(calls_of(&record, "ibv_close_device"), 1);
        assert_eq!(calls_of(&record, "ibv_alloc_pd"), 0);
    }
}

#[test]
fn a_library_laid_out_right_passes_the_same_checks() {
    errno::set(libc::EPROTO);
    let soft = SoftFabric::new(SoftConfig::default()).expect("a free slot");
    let context = DeviceContext::open(&wrap(soft.symbols(), None), Some("soft0")).expect("the device");
    let end = Endpoint::<_, 4, 4>::new(&context, Immediate, config(), Frames::Owned);
    end.expect("nothing is wrong with it").close().expect("a teardown in order");
}

#[test]
fn a_completion_queue_smaller_than_was_asked_for_is_refused_with_both_numbers_and_destroyed() {
    for (spoiled, less) in [(Spoiled::CqOneLess, 9), (Spoiled::CqNegative, -1)] {
        let (error, record) = refusal(spoiled);
        // Four sends, four receives and a marker for each queue.
        let wanted =
            Error::Granted { device: "soft0".into(), what: "a completion queue's entries", asked: 10, granted: less };
        assert_eq!(error, wanted);
        let text = error.to_string();
        assert!(text.contains("10") && text.contains(&less.to_string()) && text.contains("soft0"), "{text}");
        Ledger::replay(&record).assert_all_gone();
        assert_eq!(calls_of(&record, "ibv_create_qp"), 0);
    }
}

#[test]
fn what_goes_inline_is_what_was_asked_for_and_was_granted() {
    // As the library reads it back, and as its creation wrote it where it cannot be asked.
    let configs = [SoftConfig::default(), SoftConfig::default().without("ibv_query_qp")];
    let granted =
        [(None, 64, 64), (Some(Spoiled::InlineOf16), 64, 16), (Some(Spoiled::InlineOf16), 8, 8), (None, 0, 0)];
    for ((spoiled, asked, longest), fabric) in
        granted.iter().flat_map(|each| configs.clone().map(|fabric| (*each, fabric)))
    {
        let soft = SoftFabric::new(fabric).expect("a free slot");
        let context = DeviceContext::open(&wrap(soft.symbols(), spoiled), Some("soft0")).expect("the device");
        let config = config().queue_pair(QueuePairConfig::uc().inline_bytes(asked));
        let end = || Endpoint::<_, 4, 4>::new(&context, Immediate, config.clone(), Frames::Owned).expect("an end");
        let (mut a, mut b) = (end(), end());
        connect_pair(&mut a, &mut b).expect("they connect");
        for bytes in [1, longest.max(1), longest + 1] {
            let before = sends().len();
            a.send(bytes, |payload| payload[..bytes].fill(7)).expect("room");
            let inline = sends()[before].inline;
            assert_eq!(inline, bytes <= longest, "{bytes} bytes, asked for {asked}, {spoiled:?}");
            let mut came = Vec::new();
            let on = |event: Event<'_, 4>| {
                if let Event::Received(frame) = event {
                    came.extend_from_slice(frame.payload());
                }
            };
            b.wait(&patiently(), on).expect("it comes");
            assert_eq!(came, vec![7; bytes]);
        }
    }
}
