//! Tables with one mistake each: the check reports that mistake and nothing else.

use std::sync::Arc;

use bareverbs_core::layout::{ConstantRow, FieldRow};
use bareverbs_core::verbs::platform::TailTable;
use bareverbs_layout_tests::headers::HeaderSet;
use bareverbs_layout_tests::members::DebugInfo;
use bareverbs_layout_tests::{Finding, Tables, check, completeness};
use libtest_mimic::Failed;

use crate::layer::Layer;

/// A mistake: its name, how it is made, and what must be found.
struct Mistake {
    name: &'static str,
    make: fn(&mut Tables),
    found: fn(&HeaderSet) -> Finding,
}

const MISTAKES: &[Mistake] = &[
    Mistake {
        name: "a wrong offset",
        make: |tables| field(tables, "struct ibv_sge", "lkey", |row| row.offset_bytes = 16),
        found: |_| differs("struct ibv_sge.lkey: offset", 16, 12),
    },
    Mistake {
        name: "a wrong offset in an inner union",
        make: |tables| field(tables, "struct ibv_send_wr", "wr.atomic.swap", |row| row.offset_bytes = 48),
        found: |_| differs("struct ibv_send_wr.wr.atomic.swap: offset", 48, 56),
    },
    Mistake {
        name: "a wrong size of a field",
        make: |tables| field(tables, "struct ibv_wc", "wc_flags", |row| row.size_bytes = 8),
        found: |_| differs("struct ibv_wc.wc_flags: size", 8, 4),
    },
    Mistake {
        name: "a wrong size of a struct",
        make: |tables| of(tables, "struct ibv_recv_wr").size_bytes = 40,
        found: |_| differs("struct ibv_recv_wr: size", 40, 32),
    },
    Mistake {
        name: "a wrong alignment",
        make: |tables| of(tables, "struct ibv_qp_cap").align_bytes = 8,
        found: |_| differs("struct ibv_qp_cap: alignment", 8, 4),
    },
    Mistake {
        name: "a forgotten field",
        make: |tables| forget(tables, "struct ibv_wc", "vendor_err"),
        found: |_| unlisted("struct ibv_wc", "vendor_err", 16),
    },
    Mistake {
        name: "a forgotten field of a start",
        make: |tables| forget(tables, "struct ibv_qp", "qp_type"),
        found: |_| unlisted("struct ibv_qp", "qp_type", 60),
    },
    Mistake {
        name: "a forgotten member of an inner union",
        make: |tables| forget(tables, "struct ibv_async_event", "element.wq"),
        found: |_| unlisted("struct ibv_async_event", "element.wq", 0),
    },
    Mistake {
        name: "a field that is not there",
        make: |tables| field(tables, "struct ibv_mr", "lkey", |row| row.c_name = "local_key"),
        found: |_| Finding::Missing { what: "struct ibv_mr.local_key".to_owned(), since: None },
    },
    Mistake {
        name: "a forgotten struct",
        make: |tables| tables.structs.retain(|table| table.c_type != "struct ibv_tso_caps"),
        found: |_| Finding::NoTable {
            c_type: "struct ibv_device_attr_ex".to_owned(),
            member: "tso_caps".to_owned(),
            member_type: "struct ibv_tso_caps".to_owned(),
        },
    },
    Mistake {
        name: "a wrong constant",
        make: |tables| constant(tables, "IBV_WC_RETRY_EXC_ERR", |row| row.value = 13),
        found: |_| differs("IBV_WC_RETRY_EXC_ERR", 13, 12),
    },
    Mistake {
        name: "a wrong negative constant",
        make: |tables| constant(tables, "IBV_NODE_UNKNOWN", |row| row.value = 0),
        found: |_| differs("IBV_NODE_UNKNOWN", 0, -1),
    },
    Mistake {
        name: "a forgotten constant",
        make: |tables| {
            let table = tables.constants.iter_mut().find(|table| table.rust_name == "QpType").expect("it is listed");
            table.rows = table.rows.iter().filter(|row| row.c_name != "IBV_QPT_UC").copied().collect::<Vec<_>>().leak();
        },
        found: |_| Finding::UnlistedConstant {
            table: "QpType".to_owned(),
            constant: "IBV_QPT_UC".to_owned(),
            value: 3,
        },
    },
    Mistake {
        name: "a constant of a later release that is there already",
        make: |tables| constant(tables, "IBV_WR_FLUSH", |row| row.since = Some(56)),
        found: |_| Finding::TooEarly { what: "IBV_WR_FLUSH".to_owned(), since: 56 },
    },
    Mistake {
        name: "a wrong optional range",
        make: |tables| tables.optional_range = Some(0x3ff0_0001),
        found: |_| differs("IBV_ACCESS_OPTIONAL_RANGE", 0x3ff0_0001, 0x3ff0_0000),
    },
    Mistake {
        name: "a wrong distance to the context",
        make: |tables| {
            let slot = tables.slots.iter_mut().find(|slot| slot.c_name == "query_port").expect("it is listed");
            slot.distance_bytes = 312;
        },
        found: |_| differs("struct verbs_context.query_port: distance to the context", 312, 320),
    },
    Mistake {
        name: "a wrong offset behind a mutex",
        make: |tables| tail(tables, "struct ibv_context", |rows| rows[0].offset_bytes = 312),
        found: |headers| {
            let here = |bytes| headers.scope.platform.map_or(0, |platform| platform.past_mutex(bytes) as i64);
            differs("struct ibv_context.abi_compat: offset", here(312), here(320))
        },
    },
    Mistake {
        name: "a forgotten field behind a mutex",
        make: |tables| tail(tables, "struct ibv_qp_ex", |rows| rows.retain(|row| row.c_name != "wr_set_sge")),
        found: |headers| {
            let here = headers.scope.platform.map_or(0, |platform| platform.past_mutex(304));
            unlisted("struct ibv_qp_ex", "wr_set_sge", here as u64)
        },
    },
];

pub fn layer(found: &Result<Arc<HeaderSet>, String>) -> Layer {
    let skipped = match found {
        Ok(headers) => DebugInfo::of(headers, &["struct ibv_sge"]).err(),
        Err(why) => Some(why.clone()),
    };
    let mut layer = Layer::new("layouts: doctored tables", skipped);
    for mistake in MISTAKES {
        let headers = found.as_ref().ok().cloned();
        layer.test(&format!("{} is found", mistake.name), move || {
            let headers = headers.ok_or("no headers")?;
            let mut tables = Tables::of_core();
            (mistake.make)(&mut tables);
            assert_eq!(findings(&tables, &headers)?, [(mistake.found)(&headers)]);
            Ok(())
        });
    }
    layer.test("a finding names the struct, the member and both numbers", || {
        let text = differs("struct ibv_sge.lkey: offset", 16, 12).to_string();
        assert_eq!(text, "struct ibv_sge.lkey: offset: the table says 16, C says 12");
        Ok(())
    });
    layer
}

fn findings(tables: &Tables, headers: &HeaderSet) -> Result<Vec<Finding>, Failed> {
    let mut findings = check(tables, headers).findings;
    findings.extend(completeness::compare(tables, headers)?.findings);
    // A wrong name is missing in C under the wrong name, and unlisted under the right one: the first says it.
    let missing = findings.iter().any(|finding| matches!(finding, Finding::Missing { .. }));
    findings.retain(|finding| !(missing && matches!(finding, Finding::Unlisted { .. })));
    Ok(findings)
}

fn differs(what: &str, expected: i64, got: i64) -> Finding {
    Finding::Differs { what: what.to_owned(), expected, got }
}

fn unlisted(c_type: &str, member: &str, offset_bytes: u64) -> Finding {
    Finding::Unlisted { c_type: c_type.to_owned(), member: member.to_owned(), offset_bytes }
}

fn of<'tables>(tables: &'tables mut Tables, c_type: &str) -> &'tables mut bareverbs_core::layout::StructTable {
    tables.structs.iter_mut().find(|table| table.c_type == c_type).expect("the struct has a table")
}

fn field(tables: &mut Tables, c_type: &str, name: &str, change: impl FnOnce(&mut FieldRow)) {
    let table = of(tables, c_type);
    let rows = table.fields.to_vec().leak();
    change(rows.iter_mut().find(|row| row.c_name == name).expect("the field is listed"));
    table.fields = rows;
}

fn forget(tables: &mut Tables, c_type: &str, name: &str) {
    let table = of(tables, c_type);
    let before = table.fields.len();
    table.fields = table.fields.iter().filter(|row| row.c_name != name).copied().collect::<Vec<_>>().leak();
    assert_eq!(table.fields.len() + 1, before, "the field was listed");
}

fn constant(tables: &mut Tables, name: &str, change: impl FnOnce(&mut ConstantRow)) {
    let holds = |rows: &[ConstantRow]| rows.iter().position(|row| row.c_name == name);
    let (table, at) = tables
        .constants
        .iter_mut()
        .find_map(|table| holds(table.rows).map(|at| (table, at)))
        .expect("the constant is listed");
    let rows = table.rows.to_vec().leak();
    change(&mut rows[at]);
    table.rows = rows;
}

fn tail(tables: &mut Tables, c_type: &str, change: impl FnOnce(&mut Vec<FieldRow>)) {
    let table: &mut TailTable = tables.tails.iter_mut().find(|tail| tail.c_type == c_type).expect("it has a tail");
    let mut rows = table.fields.to_vec();
    change(&mut rows);
    table.fields = rows.leak();
}
