//! Every call of library and driver refused in turn, in the life of a domain: an error or a region of its own, never a panic,
//! never a wrong byte, and nothing is left.

use bareverbs_core::cuda::CuResult;
use bareverbs_shell::soft::Answer;

use super::domain_scene::{M, Making, Scene, on_device, range, seen};
use crate::drop_log;
use bareverbs_shell::soft::SoftDevice;

fn scene(device: &str) -> Scene {
    Making { fabric: on_device(SoftDevice::mlx5(device)), ..Making::default() }.scene()
}

/// Binds, grows, straddles nothing, rebinds, falls back, prunes. What was served, with views of it, in order.
fn live(scene: &Scene) -> usize {
    let base = scene.segment(M);
    let mut served = Vec::new();
    let mut ask = |addr, size| served.extend(scene.register(addr, size));
    scene.scanner.shows(&[seen(base, M)]);
    ask(base + 64, 4096);
    scene.cuda.map(base + M, M);
    scene.scanner.shows(&[seen(base, 2 * M)]);
    ask(base + M, 4096);
    scene.cuda.unmap(base + M);
    scene.cuda.map(base + M, M);
    ask(base, 2 * M);
    let plain = scene.cuda.allocate(0, 12345);
    ask(plain + 7, 100);
    ask(base + 64, 4096);
    // A view is of what is mapped there now, or of what was when it was made: the last is of what is.
    for (at, view) in served.iter().enumerate() {
        assert!(view.len_bytes() > 0, "{at}");
    }
    let count = served.len();
    scene.cuda.unmap(base);
    scene.cuda.unmap(base + M);
    scene.cuda.free(plain);
    scene.scanner.shows(&[]);
    let _ = scene.domain.prune();
    scene.domain.invalidate(range(0, u64::MAX));
    drop(served);
    count
}

#[test]
fn with_nothing_refused_all_five_requests_are_served() {
    let scene = scene("mlx5_0");
    assert_eq!(live(&scene), 5);
    assert_eq!(scene.live(), (0, 0));
    scene.assert_all_goes();
}

#[test]
fn each_call_of_the_library_refused_in_turn_leaves_nothing_and_the_domain_usable() {
    drop_log::keep();
    let counted = scene("mlx5_f0");
    live(&counted);
    let mut counts = std::collections::BTreeMap::<&str, u64>::new();
    for call in counted.soft.record() {
        *counts.entry(call.symbol).or_default() += 1;
    }
    counted.assert_all_goes();
    // What cannot be destroyed stays, with what it needs: see the binding's tests.
    counts.retain(|symbol, _| !symbol.contains("destroy") && !symbol.contains("dereg") && !symbol.contains("ack"));
    assert!(counts.len() >= 6, "{counts:?}");
    for (symbol, count) in counts {
        for nth in 1..=count {
            let scene = scene("mlx5_f1");
            let is_object = symbol.contains("create") || symbol.contains("reg_") || symbol.contains("open");
            scene.soft.fail(symbol, nth, if is_object { Answer::null(12) } else { Answer::returned(5) });
            assert!(live(&scene) >= 3, "{symbol} {nth}: one refusal costs one request, or two");
            scene.soft.clear_plan();
            assert_eq!(live(&scene), 5, "{symbol} {nth}: and it is over with it");
            assert_eq!(scene.live(), (0, 0), "{symbol} {nth}");
            scene.assert_all_goes();
        }
    }
}

#[test]
fn each_call_of_the_driver_refused_in_turn_leaves_nothing_and_the_domain_usable() {
    let counted = scene("mlx5_0");
    live(&counted);
    let mut counts = std::collections::BTreeMap::<&str, u64>::new();
    for call in counted.cuda.record() {
        *counts.entry(call.symbol).or_default() += 1;
    }
    counted.assert_all_goes();
    assert!(counts.contains_key("cuPointerGetAttribute") && counts.contains_key("cuMemGetHandleForAddressRange"));
    for (symbol, count) in counts {
        for nth in 1..=count {
            for answer in [CuResult::INVALID_VALUE, CuResult::DEINITIALIZED] {
                let scene = scene("mlx5_0");
                scene.cuda.fail(symbol, nth, answer);
                live(&scene);
                scene.cuda.clear_plan();
                assert_eq!(live(&scene), 5, "{symbol} {nth} {answer:?}");
                assert_eq!(scene.live(), (0, 0), "{symbol} {nth} {answer:?}");
                scene.assert_in_use(0);
                scene.assert_all_goes();
            }
        }
    }
}
