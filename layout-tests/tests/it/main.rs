//! The tables against every header that this machine has, and doctored tables against the check.
//!
//! The harness knows at the start which headers there are: a test whose header is not there counts as ignored, and its
//! layer says why.

mod doctored;
mod forgotten;
mod grown;
mod header;
mod layer;
mod recorded;

use std::process::ExitCode;
use std::sync::Arc;

use bareverbs_layout_tests::headers::{Found, HeaderSet};
use layer::Layer;

fn main() -> ExitCode {
    let arguments = libtest_mimic::Arguments::from_args();
    let system = HeaderSet::of_this_system().map(Arc::new);
    let of_55 = HeaderSet::of_rdma_core_55().map(Arc::new);
    let mut layers = [
        recorded::layer(),
        header::layer("layouts: headers of this system", &system),
        header::layer("layouts: headers of rdma-core 55", &of_55),
        header::layer("layouts: headers of rdma-core 55, aarch64", &shared(HeaderSet::of_rdma_core_55_for_aarch64())),
        header::layer("layouts: headers of the macOS SDK", &shared(HeaderSet::of_macos_sdk())),
        grown::layer(),
        // The release of these is known, so that a wrong one in a table shows.
        doctored::layer(&of_55),
    ];
    let tests = layers.iter_mut().flat_map(Layer::take_tests).collect();
    let listing = arguments.list;
    let conclusion = libtest_mimic::run(&arguments, tests);
    let reported = if listing { Ok(()) } else { layers.iter().try_for_each(Layer::report) };
    match reported {
        Ok(()) => conclusion.exit_code(),
        Err(error) => {
            eprintln!("the layers cannot be written: {error}");
            ExitCode::FAILURE
        }
    }
}

fn shared(found: Found) -> Result<Arc<HeaderSet>, String> {
    found.map(Arc::new)
}
