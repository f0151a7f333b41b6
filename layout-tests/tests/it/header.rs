//! The tables of `core` against one set of headers.

use std::sync::Arc;

use bareverbs_layout_tests::finding::listed;
use bareverbs_layout_tests::headers::{HeaderSet, Maker};
use bareverbs_layout_tests::members::DebugInfo;
use bareverbs_layout_tests::{Tables, check, completeness};

use crate::layer::Layer;

/// Fewer assertions than this mean that the check lost its object.
const LEAST_ASSERTED: usize = 1000;
const LEAST_MEMBERS: usize = 350;

pub fn layer(name: &'static str, found: &Result<Arc<HeaderSet>, String>) -> Layer {
    let skipped = found.as_ref().err().map(|why| format!("{why}: checked against recorded tables only"));
    let mut layer = Layer::new(name, skipped);
    let headers = found.as_ref().ok().cloned();

    let of = headers.clone();
    layer.test("every number agrees", move || {
        let headers = of.ok_or("no headers")?;
        let report = check(&Tables::of_core(), &headers);
        if !report.absent.is_empty() {
            println!("{} lack: {}", headers.name, report.absent.join(", "));
        }
        if !report.findings.is_empty() {
            return Err(format!("{}:\n{}", headers.name, listed(&report.findings)).into());
        }
        // Apple's headers lack much; what of them there was is in the list above.
        let least = if headers.maker == Maker::Apple { LEAST_ASSERTED / 2 } else { LEAST_ASSERTED };
        if report.asserted < least {
            return Err(format!("only {} assertions were made", report.asserted).into());
        }
        Ok(())
    });

    let of = headers.clone();
    layer.test("port attributes are as long as their newest member says", move || {
        let headers = of.ok_or("no headers")?;
        let has_speed = headers.accepts("int at = offsetof(struct ibv_port_attr, active_speed_ex);\n").is_ok();
        let bytes = if has_speed { 56 } else { 52 };
        let assertions = format!(
            "_Static_assert(sizeof(struct ibv_port_attr) == {bytes}, \"size\");\n\
             _Static_assert(offsetof(struct ibv_port_attr, port_cap_flags2) == 48, \"offset\");\n"
        );
        headers.accepts(&assertions).map_err(Into::into)
    });

    let unreadable = headers.as_ref().and_then(|headers| DebugInfo::of(headers, &["struct ibv_sge"]).err());
    layer.test_unless(unreadable, "no member and no constant is missing in the tables", move || {
        let headers = headers.ok_or("no headers")?;
        let compared = completeness::compare(&Tables::of_core(), &headers)?;
        if !compared.findings.is_empty() {
            return Err(format!("{}:\n{}", headers.name, listed(&compared.findings)).into());
        }
        if headers.maker != Maker::Apple && compared.members < LEAST_MEMBERS {
            return Err(format!("only {} members were compared", compared.members).into());
        }
        Ok(())
    });
    layer
}
