//! What one step of growth costs in calls of the library, of a segment of 100 GiB.

use super::domain_scene::{M, Scene, seen};

const SIZE: u64 = 100 << 30;
const STEP: u64 = 20 << 20;

/// Calls of the library since its record was cleared, by name, in order.
fn calls(scene: &Scene) -> Vec<&'static str> {
    scene.soft.record().iter().map(|call| call.symbol).collect()
}

#[test]
fn a_step_of_20_mib_of_100_gib_takes_a_region_a_key_and_a_binding_and_touches_nothing_old() {
    const GROWTH: [&str; 5] =
        ["ibv_reg_dmabuf_mr", "mlx5dv_create_mkey", "ibv_wr_start", "mlx5dv_wr_mr_list", "ibv_wr_complete"];
    let scene = Scene::new();
    let base = scene.segment(SIZE);
    scene.scanner.shows(&[seen(base, SIZE)]);
    drop(scene.view(base, M));
    let mut held = None;
    for step in 0..10 {
        let end = base + SIZE + step * STEP;
        scene.cuda.map(end, STEP);
        scene.scanner.shows(&[seen(base, SIZE + (step + 1) * STEP)]);
        let (regions, keys) = scene.live();
        let exported = scene.exported().len();
        scene.soft.clear_record();
        let view = scene.view(end, STEP);
        // The key that the step before gave the last window goes if no view holds it. The first step opens that window.
        let goes = step > 0 && held.is_none();
        let wanted: Vec<_> = GROWTH.into_iter().chain(goes.then_some("mlx5dv_destroy_mkey")).collect();
        assert_eq!(calls(&scene), wanted, "step {step}");
        assert_eq!(scene.exported()[exported..], [(end, STEP)], "the tail, and nothing else");
        assert_eq!(scene.live(), (regions + 1, keys + usize::from(!goes)), "step {step}");
        held = (step % 3 != 2).then_some(view);
    }
    drop(held);
    scene.assert_all_goes();
}
