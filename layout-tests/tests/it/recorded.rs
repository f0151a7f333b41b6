//! What is checked where there is no header: the tables against themselves and against the sources.

use bareverbs_core::layout::{ConstantTable, FieldRow, Growth, Mirror, StructTable};
use bareverbs_core::verbs::{CONSTANTS, PortAttr, STRUCTS};
use bareverbs_layout_tests::registered::{Written, folder, written_in};
use bareverbs_layout_tests::{Tables, consistency};

use crate::forgotten;
use crate::layer::Layer;

pub fn layer() -> Layer {
    let mut layer = Layer::new("layouts: recorded tables", None);
    layer.test("the tables do not contradict themselves", || {
        let wrong = consistency::contradictions(&Tables::of_core());
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
    });
    layer.test("a contradiction is found", || {
        contradictions_are_found();
        Ok(())
    });
    layer.test("every table in the sources is in the lists", || {
        let written = written_in(&folder())?;
        assert!(written.structs.len() > 40 && written.constants.len() > 20, "the sources were not read: {written:?}");
        assert_eq!(written, registered(STRUCTS, CONSTANTS));
        Ok(())
    });
    layer.test("a table that is not in the lists is noticed", || {
        let written = written_in(&folder())?;
        assert_ne!(written, registered(&STRUCTS[1..], CONSTANTS));
        assert_ne!(written, registered(STRUCTS, &CONSTANTS[1..]));
        Ok(())
    });
    layer.test("port attributes are 48, 52 and 56 bytes long (A1)", || {
        let table = PortAttr::TABLE;
        let row = |name: &str| table.fields.iter().find(|row| row.c_name == name).copied();
        assert_eq!(row("port_cap_flags2").map(|row| (row.offset_bytes, row.since)), Some((48, Some(22))));
        assert_eq!(row("active_speed_ex").map(|row| (row.offset_bytes, row.since)), Some((52, Some(49))));
        assert_eq!(table.grew.iter().map(|step| step.size_before_bytes).collect::<Vec<_>>(), [48, 52]);
        assert_eq!((table.size_bytes, size_of::<PortAttr>()), (56, 56));
        Ok(())
    });
    forgotten::add_to(&mut layer);
    layer
}

fn registered(structs: &[StructTable], constants: &[ConstantTable]) -> Written {
    let mut written = Written {
        structs: structs.iter().map(|table| table.rust_name.to_owned()).collect(),
        constants: constants.iter().map(|table| table.rust_name.to_owned()).collect(),
    };
    written.structs.sort();
    written.constants.sort();
    written
}

fn contradictions_are_found() {
    const fn row(c_name: &'static str, offset_bytes: usize, since: Option<u16>) -> FieldRow {
        FieldRow { c_name, offset_bytes, size_bytes: 4, since }
    }
    const A: FieldRow = row("a", 0, None);
    const B: FieldRow = row("b", 4, Some(2));
    const B_ALWAYS: FieldRow = row("b", 4, None);
    let sound = StructTable {
        rust_name: "Fake",
        c_type: "struct fake",
        size_bytes: 8,
        align_bytes: 4,
        whole: true,
        grew: &[Growth { c_name: "b", size_before_bytes: 4 }],
        fields: &[A, B],
    };
    let found = |table: StructTable| {
        consistency::contradictions(&Tables { structs: vec![table], ..Tables::default() }).join("\n")
    };
    assert_eq!(found(sound), "");
    let cases: [(StructTable, &str); 6] = [
        (StructTable { size_bytes: 12, ..sound }, "struct fake: 12 bytes, but its members end at 8"),
        (
            StructTable { size_bytes: 4, ..sound },
            "struct fake.b: ends after the struct's 4 bytes\nstruct fake: 4 bytes, but its members end at 8",
        ),
        (StructTable { fields: &[A, B, A], ..sound }, "struct fake.a: listed twice"),
        (
            StructTable { grew: &[Growth { c_name: "b", size_before_bytes: 8 }], ..sound },
            "struct fake: 8 bytes before b came, but its older members end at 4",
        ),
        (
            StructTable { grew: &[Growth { c_name: "c", size_before_bytes: 4 }], ..sound },
            "struct fake grew by c, which it does not have",
        ),
        (StructTable { fields: &[A, B_ALWAYS], ..sound }, "struct fake.b: the struct grew by it, but not since when"),
    ];
    for (table, expected) in cases {
        assert_eq!(found(table), expected);
    }
}
