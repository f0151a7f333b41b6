//! Every call on the way to a bound segment refused in turn, and registrations that fall back.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use bareverbs_core::range::AddressRange;
use bareverbs_core::segments::Ordinal;
use bareverbs_shell::memory::pages::Pages;
use bareverbs_shell::objects::report::DropFailure;
use bareverbs_shell::objects::{DeviceContext, MemoryRegion, ProtectionDomain};
use bareverbs_shell::segments::{Binder, bind_segment, grow};
use bareverbs_shell::soft::{Answer, Call, Detail, SoftConfig, SoftDevice, SoftFabric};
use bareverbs_shell::{Error, Fabric};

use super::binding_scene::{BASE, Bench, Gpu, M, MAX, Segment, calls, config, mlx5, range};
use crate::drop_log;
use crate::ledger::Ledger;
use crate::scene::ALL;
use bareverbs_core::teardown_order::Step;

const DEVICE: &str = "bindlife";

/// A segment that is bound, grown and viewed, and goes.
fn live(soft: &SoftFabric, gpu: &Gpu) -> Result<(), Box<dyn std::error::Error>> {
    let fabric = Fabric::of_soft(soft);
    let domain = ProtectionDomain::new(&fabric.open(Some(DEVICE))?, 1)?;
    let binder = Binder::new(&domain, fabric.mlx5().ok_or("no provider")?, config())?;
    let register = |range: AddressRange| {
        let file = gpu.export(range);
        #[allow(unsafe_code)]
        // SAFETY: 1: the export is of that range. 2: it is memory of a GPU, of which there are no references.
        unsafe {
            MemoryRegion::of_dma_buf(&domain, file.as_fd(), range, ALL)
        }
    };
    let plan = Segment::plan_bind(range(BASE, MAX + M), binder.limits()?)?;
    let windows = bind_segment(&binder, ALL, &plan, &register)?;
    let segment = Segment::new(plan, Ordinal(0), ());
    let view = windows.all()[0].view(range(BASE, 64)).ok_or("not within")?;
    let plan = segment.plan_growth(range(BASE, MAX + 2 * M))?.ok_or("it is longer")?;
    let grown = grow(&binder, ALL, &plan, &windows, &register)?;
    drop(windows);
    drop((view, grown));
    Ok(())
}

fn refusals(symbol: &str) -> Vec<Answer> {
    match symbol {
        "ibv_free_device_list" => Vec::new(),
        "ibv_poll_cq" => [-1, 17].map(Answer::returned).to_vec(),
        _ => vec![Answer::returned(5), Answer::minus_one(22)],
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
fn live_and_check(soft: &SoftFabric, gpu: &Gpu, what: &str) -> Result<(), String> {
    let lived = live(soft, gpu).map_err(|error| error.to_string());
    let record = soft.record();
    soft.clear_plan();
    let dropped = drop_log::take(DEVICE);
    let ledger = Ledger::replay(&record);
    // A key that stays keeps its regions, which the record does not say of it.
    ledger.assert_only_refused_stay(ledger.refused.iter().any(|refused| refused.1 == Step::IndirectKey));
    ledger.assert_counts(&soft.live());
    assert_eq!(soft.misuse(), Vec::<String>::new(), "{what}");
    let destroys = dropped.iter().filter(|failure| matches!(failure, DropFailure::Destroy(_))).count();
    assert_eq!(destroys, ledger.refused.len(), "{what}: each refused destroy is told once: {dropped:?}");
    ledger.sweep(soft);
    soft.clear_record();
    lived
}

/// What may be refused without an end of it: what destroys, which the drop hook is told of, and what can be done without.
fn may_succeed(symbol: &str) -> bool {
    let by_drops = ["ibv_destroy", "ibv_dereg", "ibv_dealloc", "ibv_close", "mlx5dv_destroy"];
    let optional = ["ibv_query_qp", "_ibv_query_gid_ex", "ibv_query_gid", "ibv_wr_abort"];
    by_drops.iter().any(|start| symbol.starts_with(start)) || optional.contains(&symbol)
}

#[test]
fn each_call_refused_leaves_nothing_but_what_could_not_be_destroyed() {
    drop_log::keep();
    let soft = SoftFabric::new(mlx5(DEVICE)).expect("a free slot");
    let gpu = Gpu::new(2 * MAX);
    live(&soft, &gpu).expect("nothing is refused");
    let mut undisturbed = counts(&soft.record());
    soft.clear_record();
    // Polls are not in the record.
    undisturbed.insert("ibv_poll_cq", 2);
    for symbol in
        ["ibv_reg_dmabuf_mr", "mlx5dv_create_qp", "mlx5dv_create_mkey", "mlx5dv_wr_mr_list", "ibv_wr_complete"]
    {
        assert!(undisturbed.contains_key(symbol), "{symbol}: {undisturbed:?}");
    }
    for (symbol, calls) in undisturbed {
        for nth in 1..=calls.min(12) {
            for answer in refusals(symbol) {
                let what = format!("call {nth} of {symbol}, {answer:?}");
                soft.fail(symbol, nth, answer);
                let lived = live_and_check(&soft, &gpu, &what);
                // A queue pair that is refused for its size is asked for smaller.
                let asked_again = symbol == "mlx5dv_create_qp" && answer == Answer::minus_one(22);
                assert!(lived.is_err() || may_succeed(symbol) || asked_again, "{what}: nobody was told");
                soft.fail_from(symbol, nth, answer);
                let _ = live_and_check(&soft, &gpu, &format!("from {what}"));
            }
        }
    }
}

#[test]
fn a_queue_pair_is_asked_for_smaller_only_when_its_size_was_refused() {
    for (errno, tries) in [(22, 8), (12, 1), (95, 1), (1, 1)] {
        let bench = Bench::new(mlx5("sizes"), M);
        bench.soft.fail_from("mlx5dv_create_qp", 1, Answer::null(errno));
        let error = bench.binder.limits().expect_err("refused").to_string();
        assert!(error.contains("mlx5dv_create_qp on device sizes") && error.contains(&errno.to_string()), "{error}");
        assert_eq!(calls(&bench.soft, "mlx5dv_create_qp"), tries, "{errno}: 32 entries downwards by 4");
        bench.soft.clear_plan();
        assert_eq!(bench.binder.limits().map(|limits| limits.cap().entries()), Ok(30), "not for good");
        bench.assert_all_goes();
    }
}

/// A device, and memory that is a file and mapped pages.
struct Plain {
    soft: SoftFabric,
    domain: Arc<ProtectionDomain>,
    pages: Arc<Pages>,
    range: AddressRange,
    file: File,
}

impl Plain {
    fn new(config: SoftConfig) -> Self {
        let soft = SoftFabric::new(config.record(bareverbs_shell::soft::Record::Control(1000))).expect("a free slot");
        let context = DeviceContext::open(&soft.symbols(), None).expect("a device");
        let domain = ProtectionDomain::new(&context, 1).expect("a domain");
        let pages = Arc::new(Pages::new(8192).expect("pages"));
        let range = range(pages.start().as_ptr().expose_provenance() as u64, 8192);
        let file = tempfile::tempfile().expect("a file");
        file.set_len(8192).expect("a size");
        soft.clear_record();
        Self { soft, domain, pages, range, file }
    }

    fn register(&self) -> Result<MemoryRegion, Error> {
        let keeper = Some(Arc::clone(&self.pages) as _);
        #[allow(unsafe_code)]
        // SAFETY: 1: nothing is written or read here. 2: the keeper keeps the pages, of which there are no references.
        unsafe {
            MemoryRegion::of_dma_buf_or_plain(&self.domain, self.file.as_fd(), self.range, ALL, keeper)
        }
    }
}

#[test]
fn e5_where_dma_bufs_are_not_supported_the_plain_range_is_registered_once() {
    for errno in [95, 93, 524, libc::ENOSYS] {
        let plain = Plain::new(SoftConfig::default());
        plain.soft.fail("ibv_reg_dmabuf_mr", 1, Answer::null(errno));
        let region = plain.register().expect("registered plainly");
        assert_eq!((region.key_base(), region.range()), (plain.range.base(), plain.range), "{errno}");
        let registered = plain.soft.record().into_iter().find(|call| call.symbol == "ibv_reg_mr").expect("tried");
        let Detail::Register { address, length_bytes, access } = registered.detail else { panic!("{registered:?}") };
        assert_eq!((address as u64, length_bytes, access), (plain.range.base(), 8192, ALL), "the original range");
        assert_eq!(calls(&plain.soft, "ibv_reg_mr"), 1);
        drop(region);
        // Both fail: one error carries both, and a number without a name is told as a number.
        plain.soft.fail("ibv_reg_dmabuf_mr", 1, Answer::null(errno));
        plain.soft.fail("ibv_reg_mr", 1, Answer::null(14));
        let error = plain.register().expect_err("neither");
        let Error::NeitherRegistration { dma_buf, plain: second } = &error else { panic!("{error:?}") };
        assert!(dma_buf.is_unsupported() && !second.is_unsupported() && !error.is_unsupported());
        let text = error.to_string();
        assert!(text.contains(&format!("errno {errno}")) && text.contains("errno 14 (EFAULT)"), "{text}");
    }
}

#[test]
fn e5_a_refused_argument_is_no_lack_of_support() {
    let plain = Plain::new(SoftConfig::default());
    for errno in [22, 9, 12] {
        plain.soft.fail("ibv_reg_dmabuf_mr", 1, Answer::null(errno));
        let error = plain.register().expect_err("refused");
        assert!(!error.is_unsupported(), "{error}");
        assert!(matches!(&error, Error::Call(call) if call.errno.is_some_and(|got| got.0 == errno)), "{error:?}");
    }
    assert_eq!(calls(&plain.soft, "ibv_reg_mr"), 0, "nothing else is tried");
}

#[test]
fn e5_a_library_without_the_call_counts_as_not_supporting_it() {
    let plain = Plain::new(SoftConfig::default().without("ibv_reg_dmabuf_mr"));
    assert_eq!(plain.register().expect("registered plainly").key_base(), plain.range.base());
}

#[test]
fn a_dma_bufs_region_starts_at_0_and_its_file_stays_the_callers() {
    let plain = Plain::new(SoftConfig::default().devices(vec![SoftDevice::new("files")]));
    let region = plain.register().expect("a region");
    assert_eq!((region.key_base(), region.range(), region.addr()), (0, plain.range, plain.range.base() as usize));
    let detail = plain.soft.record().last().expect("registered").detail;
    let Detail::RegisterDmaBuf { fd, offset_bytes, iova, length_bytes, .. } = detail else { panic!("{detail:?}") };
    assert_eq!((fd, offset_bytes, iova, length_bytes), (plain.file.as_raw_fd(), 0, 0, 8192));
    plain.soft.fail("ibv_reg_dmabuf_mr", 1, Answer::null(22));
    plain.register().expect_err("refused");
    assert_eq!(plain.file.metadata().expect("open, after success and failure").len(), 8192);
    let empty = AddressRange::new(plain.range.base(), 0).expect("a range");
    #[allow(unsafe_code)]
    // SAFETY: nothing is registered.
    let refused = unsafe { MemoryRegion::of_dma_buf(&plain.domain, plain.file.as_fd(), empty, ALL) };
    assert_eq!(refused.map(|_| ()), Err(Error::Size { what: "a memory region", got: 0 }));
}
