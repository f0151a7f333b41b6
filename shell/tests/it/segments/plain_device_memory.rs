//! Device memory where nothing reaches it but dma-bufs.

use bareverbs_shell::errno::Errno;
use bareverbs_shell::segments::SegmentErrorKind;
use bareverbs_shell::soft::Answer;

use super::domain_scene::{M, Making, Scene};

#[test]
fn a_gpus_addresses_are_none_of_the_process_so_a_plain_region_over_them_is_refused_and_not_written_through() {
    for provider in [false, true] {
        let scene: Scene = Making { provider, ..Making::default() }.scene();
        let base = scene.segment(2 * M);
        if process_has(base) {
            eprintln!("skipped: the process has pages at {base:#x}, as AddressSanitizer's shadow");
            return;
        }
        scene.scanner.shows(&[super::domain_scene::seen(base, 2 * M)]);
        scene.soft.fail_from("ibv_reg_dmabuf_mr", 1, Answer::null(libc::EOPNOTSUPP));
        let error = scene.register(base + 4096, 4096).expect_err("no device reaches it");
        assert_eq!(error.errno(), Some(Errno(libc::EFAULT)), "{error}");
        let is_known = matches!(error.kind, SegmentErrorKind::Region { .. } | SegmentErrorKind::NotBound { .. });
        assert!(is_known, "{error}");
        assert_eq!((scene.calls("ibv_reg_mr"), scene.live()), (1, (0, 0)));
        scene.assert_all_goes();
    }
}

fn process_has(address: u64) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let number = |text| u64::from_str_radix(text, 16).unwrap_or(0);
    let ranges = maps.lines().filter_map(|line| line.split(' ').next()?.split_once('-'));
    ranges.into_iter().any(|(from, to)| (number(from)..number(to)).contains(&address))
}
