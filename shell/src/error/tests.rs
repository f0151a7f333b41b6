//! One text says all of an error: whoever prints the chain reads nothing twice, and whoever prints the error misses nothing.

use std::collections::BTreeSet;
use std::mem::{Discriminant, discriminant};
use std::time::Duration;

use bareverbs_core::connect::{HelloError, Mismatch, Reason, Refusal, RouteError, Service, Step, StepError};
use bareverbs_core::link::{
    AgreeError, Fault, LinkError, LinkSetupError, Outstanding, ReceiveError, SendError, Sequence,
};
use bareverbs_core::verbs::LinkLayer;
use bareverbs_core::verbs::inline_calls::{PollError, RawErrno};
use bareverbs_core::view::DeviceNameError;

use super::*;
use crate::endpoint::{EndpointError, EndpointErrorKind};
use crate::exchange::{ExchangeError, ExchangeErrorKind, Phase, SocketError};
use crate::objects::gid::GidPolicy;

fn device() -> Arc<str> {
    "dev0".into()
}

/// One of each, but for [`Error::MissingSlot`], which only an opened device makes. The match makes a new variant known here:
/// it does not compile without it.
fn errors() -> Vec<Error> {
    let (device, library) = (device(), Arc::from("libverbs"));
    let route = RouteError::NoLocalGid { link_layer: LinkLayer::ETHERNET };
    let setup = LinkSetupError::FrameSize { got_bytes: 1, multiple_of_bytes: 64 };
    let gid = GidError {
        device: Arc::clone(&device),
        port: 1,
        link_layer: LinkLayer::ETHERNET,
        state: PortState::ACTIVE,
        policy: GidPolicy::Ipv4Mapped,
        found: Vec::new(),
    };
    let of = |error: Error| match error {
        Error::Load(_)
        | Error::NoKernelRdma { .. }
        | Error::NoDevice { .. }
        | Error::Call(_)
        | Error::Unsupported { .. }
        | Error::NeitherRegistration { .. }
        | Error::MissingSlot { .. }
        | Error::Layout { .. }
        | Error::ForeignContext { .. }
        | Error::DeviceName { .. }
        | Error::Gid(_)
        | Error::GidChanged { .. }
        | Error::Route(_)
        | Error::Poll(_)
        | Error::Size { .. }
        | Error::Granted { .. }
        | Error::Forked { .. }
        | Error::SecondThread { .. }
        | Error::Link(_)
        | Error::Credits(_)
        | Error::State { .. }
        | Error::Soft(_) => error,
    };
    [
        Error::Load(LoadError::BadName { library: "a\0b".into() }),
        Error::NoKernelRdma { library: Arc::clone(&library) },
        Error::NoDevice { wanted: None, available: vec!["dev1".into()], library: Arc::clone(&library) },
        Error::Call(CallError::new("ibv_alloc_pd", &device, Some(Errno(12)))),
        Error::Unsupported { symbol: "ibv_fork_init", library },
        Error::NeitherRegistration {
            dma_buf: Box::new(CallError::new("ibv_reg_dmabuf_mr", &device, Some(Errno(524))).into()),
            plain: Box::new(CallError::new("ibv_reg_mr", &device, Some(Errno(14))).into()),
        },
        Error::Layout { device: Arc::clone(&device), field: "ibv_qp.state", expected: 1, got: 2 },
        Error::ForeignContext { device: Arc::clone(&device), making: "a queue pair" },
        Error::DeviceName { device: Arc::clone(&device), error: DeviceNameError::Length { got_bytes: 64 } },
        Error::Gid(gid),
        Error::GidChanged { device: Arc::clone(&device), index: 3 },
        Error::Route(route),
        Error::Poll(PollError::Negative { returned: -2 }),
        Error::Size { what: "a completion queue", got: 0 },
        Error::Granted { device: Arc::clone(&device), what: "entries", asked: 10, granted: 9 },
        Error::Forked { device: Arc::clone(&device) },
        Error::SecondThread { device: Arc::clone(&device) },
        Error::Link(setup),
        Error::Credits(AgreeError::AlreadyStarted),
        Error::State { device, what: "it is not so far" },
        Error::Soft("too many".into()),
    ]
    .map(of)
    .into()
}

fn endpoint_errors() -> Vec<EndpointError> {
    let cause = Fault::Abandoned;
    let of = |kind: EndpointErrorKind| match kind {
        EndpointErrorKind::Send(..)
        | EndpointErrorKind::Receive(..)
        | EndpointErrorKind::Link(_)
        | EndpointErrorKind::Poll(_)
        | EndpointErrorKind::Timeout { .. }
        | EndpointErrorKind::Cancelled
        | EndpointErrorKind::Sleep(_)
        | EndpointErrorKind::NotConnected
        | EndpointErrorKind::SecondThread => EndpointError { peer: "b".into(), device: device(), kind },
    };
    [
        EndpointErrorKind::Send(SendError::Refused { accepted: 0, raw: RawErrno(12) }, Some(Errno(12))),
        EndpointErrorKind::Receive(ReceiveError::Broken { cause }, None),
        EndpointErrorKind::Link(LinkError::Broken { cause }),
        EndpointErrorKind::Poll(PollError::Negative { returned: -2 }),
        EndpointErrorKind::Timeout {
            waited: Duration::from_millis(3),
            outstanding: Outstanding::default(),
            no_credit: Some(Sequence::new(3)),
            pending: vec![7],
            service: Service::Uc,
        },
        EndpointErrorKind::Cancelled,
        EndpointErrorKind::Sleep(Box::new(Error::Forked { device: device() })),
        EndpointErrorKind::NotConnected,
        EndpointErrorKind::SecondThread,
    ]
    .map(of)
    .into()
}

fn exchange_errors() -> Vec<ExchangeError> {
    let (during, waited) = (Phase::Hello, Duration::from_millis(3));
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 7));
    let error = SocketError { kind: std::io::ErrorKind::ConnectionRefused, errno: Some(Errno(111)) };
    let of = |kind: ExchangeErrorKind| match kind {
        ExchangeErrorKind::NotLoopback { .. }
        | ExchangeErrorKind::Listen { .. }
        | ExchangeErrorKind::NobodyCame { .. }
        | ExchangeErrorKind::Unreachable { .. }
        | ExchangeErrorKind::Timeout { .. }
        | ExchangeErrorKind::PeerClosed { .. }
        | ExchangeErrorKind::Io { .. }
        | ExchangeErrorKind::Hello(_)
        | ExchangeErrorKind::Step { .. }
        | ExchangeErrorKind::OutOfTurn { .. }
        | ExchangeErrorKind::Mismatch(_)
        | ExchangeErrorKind::Refused { .. }
        | ExchangeErrorKind::Endpoint(_) => ExchangeError { peer: "b".into(), address: Some(address), kind },
    };
    [
        ExchangeErrorKind::NotLoopback { address },
        ExchangeErrorKind::Listen { address, error },
        ExchangeErrorKind::NobodyCame { waited },
        ExchangeErrorKind::Unreachable { tries: 2, last: Some(error), waited },
        ExchangeErrorKind::Timeout { during, got_bytes: 1, need_bytes: 2 },
        ExchangeErrorKind::PeerClosed { during, got_bytes: 1, need_bytes: 2 },
        ExchangeErrorKind::Io { during, error },
        ExchangeErrorKind::Hello(HelloError::Length { got_bytes: 3 }),
        ExchangeErrorKind::Step { during, error: StepError::Magic { got: [0; 4] } },
        ExchangeErrorKind::OutOfTurn { during, got: Step::Ready },
        ExchangeErrorKind::Mismatch(Mismatch::OwnHello),
        ExchangeErrorKind::Refused { during, refusal: Refusal { reason: Reason::Mismatch, errno: 0 } },
        ExchangeErrorKind::Endpoint(Box::new(Error::Forked { device: device() })),
    ]
    .map(of)
    .into()
}

/// That no line of the chain says what another does.
fn assert_nothing_twice(error: impl std::error::Error + Send + Sync + 'static) {
    let chain: Vec<String> = anyhow::Error::new(error).chain().map(ToString::to_string).collect();
    for (at, line) in chain.iter().enumerate() {
        assert!(!line.is_empty());
        let elsewhere = chain.iter().enumerate().any(|(other, text)| other != at && text.contains(line.as_str()));
        assert!(!elsewhere, "{chain:#?}");
    }
}

fn kinds<T>(all: &[T]) -> usize {
    let mut kinds: Vec<Discriminant<T>> = Vec::new();
    for kind in all.iter().map(discriminant) {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds.len()
}

#[test]
fn no_error_says_anything_twice_when_its_chain_is_printed() {
    let (errors, endpoint, exchange) = (errors(), endpoint_errors(), exchange_errors());
    let of_endpoint: Vec<_> = endpoint.iter().map(|error| error.kind.clone()).collect();
    let of_exchange: Vec<_> = exchange.iter().map(|error| error.kind.clone()).collect();
    assert_eq!([kinds(&errors), kinds(&of_endpoint), kinds(&of_exchange)], [21, 9, 13], "one of each");
    errors.into_iter().for_each(assert_nothing_twice);
    endpoint.into_iter().for_each(assert_nothing_twice);
    exchange.into_iter().for_each(assert_nothing_twice);
}

#[test]
fn an_error_within_another_is_told_in_the_text_of_the_outer_one() {
    let inner = Error::Forked { device: device() };
    let slept = endpoint_errors().remove(6);
    assert!(slept.to_string().contains(&inner.to_string()), "{slept}");
    let failed = exchange_errors().pop().expect("the last one");
    assert!(failed.to_string().contains(&inner.to_string()), "{failed}");
    let texts: BTreeSet<String> = errors().iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 21, "each has a text of its own");
}

#[test]
fn a_wait_in_vain_is_told_as_its_service_has_it() {
    let said = |service| {
        let outstanding = Outstanding::default();
        let kind = EndpointErrorKind::Timeout {
            waited: Duration::from_millis(3),
            outstanding,
            no_credit: None,
            pending: vec![],
            service,
        };
        EndpointError { peer: "b".into(), device: device(), kind }.to_string()
    };
    let (unreliable, reliable) = (said(Service::Uc), said(Service::Rc));
    assert!(unreliable.ends_with("; an unreliable queue pair does not tell that its peer is gone: make the link anew"));
    assert!(!reliable.contains("unreliable"), "{reliable}");
    for words in ["a reliable queue pair", "retries", "`timeout`", "rnr_retry", "make the link anew"] {
        assert!(reliable.contains(words), "{words}: {reliable}");
    }
}
