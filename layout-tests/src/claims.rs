//! From tables to claims: C expressions, each with the number that it must have.

use bareverbs_core::layout::{FieldRow, Growth};
use bareverbs_core::verbs::context::{ABI_IS_EXTENDED, CONTEXT_TAIL};
use bareverbs_core::verbs::platform::Platform;

use crate::tables::{Tables, spell};

/// A C expression and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What it is, in words (`struct ibv_sge.lkey: offset`).
    pub what: String,
    /// The expression.
    pub expression: String,
    /// The table's number for it.
    pub expected: i64,
}

/// What a header has or lacks as a whole, and what is claimed of it if it is there.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its name, for people.
    pub name: String,
    /// The type that it is a member of; without that it cannot be there.
    pub of_type: Option<String>,
    /// The release since which it is there.
    pub since: Option<u16>,
    /// An expression that compiles where it is there.
    pub probe: String,
    /// What is claimed of it.
    pub claims: Vec<Claim>,
}

/// The size of a struct, which depends on the members that a header has.
#[derive(Clone, Debug)]
pub struct Extent {
    /// The type as tables name it.
    pub c_type: String,
    /// Its size in the newest header, in bytes.
    pub newest_bytes: usize,
    /// Size without each member, oldest first.
    pub before: Vec<(String, usize)>,
}

impl Extent {
    /// The claim of the size for a header that has the members of which `has` is true.
    pub fn claim(&self, has: impl Fn(&str) -> bool) -> Claim {
        let older = self.before.iter().find(|(member, _)| !has(&format!("{}.{member}", self.c_type)));
        let bytes = older.map_or(self.newest_bytes, |(_, bytes)| *bytes);
        Claim {
            what: format!("{}: size", self.c_type),
            expression: format!("sizeof({})", spell(&self.c_type)),
            expected: number(bytes),
        }
    }
}

/// Which of the headers' worlds the claims are for.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// Whose `pthread_mutex_t` it is; `None` for an unknown one, where nothing is claimed of what follows a mutex.
    pub platform: Option<Platform>,
    /// Whether `<infiniband/mlx5dv.h>` is there.
    pub mlx5dv: bool,
}

/// All items that the tables speak of, and the sizes of structs.
pub fn claims(tables: &Tables, scope: Scope) -> (Vec<Item>, Vec<Extent>) {
    let (mut items, mut extents) = (Vec::new(), Vec::new());
    for table in &tables.structs {
        if !scope.covers(table.c_type) {
            continue;
        }
        items.push(type_item(table.c_type, table.align_bytes));
        items.extend(table.fields.iter().map(|row| member_item(table.c_type, row, row.offset_bytes)));
        if table.whole {
            extents.push(extent(table.c_type, table.size_bytes, table.grew, |bytes| bytes));
        }
    }
    for tail in &tables.tails {
        let Some(platform) = scope.platform.filter(|platform| tail.platforms.contains(platform)) else { continue };
        items.push(type_item(tail.c_type, tail.align_bytes));
        items
            .extend(tail.fields.iter().map(|row| member_item(tail.c_type, row, platform.past_mutex(row.offset_bytes))));
        extents.push(extent(tail.c_type, tail.size_bytes, tail.grew, |bytes| platform.past_mutex(bytes)));
    }
    for row in tables.constants.iter().flat_map(|table| table.rows) {
        if scope.covers(row.c_name) {
            items.push(constant_item(row.c_name, row.value, row.since));
        }
    }
    let range = tables.optional_range.map(i64::from);
    items.extend(range.map(|range| constant_item("IBV_ACCESS_OPTIONAL_RANGE", range, None)));
    items.extend(slot_items(tables, scope));
    (items, extents)
}

impl Scope {
    /// Whether the headers in scope can have a name at all.
    pub fn covers(self, c_name: &str) -> bool {
        self.mlx5dv || !(c_name.starts_with("struct mlx5dv_") || c_name.starts_with("MLX5DV_"))
    }
}

/// A type, of which only the alignment is claimed.
pub fn type_item(c_type: &str, align_bytes: usize) -> Item {
    let spelled = spell(c_type);
    let align = Claim {
        what: format!("{c_type}: alignment"),
        expression: format!("_Alignof({spelled})"),
        expected: number(align_bytes),
    };
    Item {
        name: c_type.to_owned(),
        of_type: None,
        since: None,
        probe: format!("sizeof({spelled})"),
        claims: vec![align],
    }
}

fn member_item(c_type: &str, row: &FieldRow, offset_bytes: usize) -> Item {
    let name = format!("{c_type}.{}", row.c_name);
    let offset = Claim {
        what: format!("{name}: offset"),
        expression: format!("offsetof({}, {})", spell(c_type), row.c_name),
        expected: number(offset_bytes),
    };
    let size = Claim {
        what: format!("{name}: size"),
        expression: format!("sizeof((({} *)0)->{})", spell(c_type), row.c_name),
        expected: number(row.size_bytes),
    };
    let probe = offset.expression.clone();
    Item { name, of_type: Some(c_type.to_owned()), since: row.since, probe, claims: vec![offset, size] }
}

fn constant_item(c_name: &str, value: i64, since: Option<u16>) -> Item {
    let claim = Claim { what: c_name.to_owned(), expression: c_name.to_owned(), expected: value };
    Item { name: c_name.to_owned(), of_type: None, since, probe: c_name.to_owned(), claims: vec![claim] }
}

fn slot_items(tables: &Tables, scope: Scope) -> Vec<Item> {
    const OUTER: &str = "struct verbs_context";
    let mut items: Vec<Item> = Vec::new();
    let mut item = |name: String, expression: String, expected: i64| {
        let claim = Claim { what: name.clone(), expression: expression.clone(), expected };
        items.push(Item { name, of_type: None, since: None, probe: expression, claims: vec![claim] });
    };
    for slot in &tables.slots {
        item(
            format!("{OUTER}.{}: distance to the context", slot.c_name),
            format!("offsetof({OUTER}, context) - offsetof({OUTER}, {})", slot.c_name),
            number(slot.distance_bytes),
        );
    }
    if tables.slots.is_empty() {
        return items;
    }
    let extended = "(uintptr_t)__VERBS_ABI_IS_EXTENDED".to_owned();
    item("__VERBS_ABI_IS_EXTENDED".to_owned(), extended, ABI_IS_EXTENDED as i64);
    if let Some(platform) = scope.platform {
        item(
            format!("{OUTER}: from the context to the end"),
            format!("sizeof({OUTER}) - offsetof({OUTER}, context)"),
            number(platform.past_mutex(CONTEXT_TAIL.size_bytes)),
        );
    }
    items
}

fn extent(c_type: &str, newest: usize, grew: &[Growth], on_platform: impl Fn(usize) -> usize) -> Extent {
    Extent {
        c_type: c_type.to_owned(),
        newest_bytes: on_platform(newest),
        before: grew.iter().map(|step| (step.c_name.to_owned(), on_platform(step.size_before_bytes))).collect(),
    }
}

fn number(bytes: usize) -> i64 {
    i64::try_from(bytes).expect("a size fits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_struct_is_as_long_as_its_oldest_missing_member_says() {
        let port = Extent {
            c_type: "struct ibv_port_attr".to_owned(),
            newest_bytes: 56,
            before: vec![("port_cap_flags2".to_owned(), 48), ("active_speed_ex".to_owned(), 52)],
        };
        assert_eq!(port.claim(|_| true).expected, 56);
        assert_eq!(port.claim(|name| name != "struct ibv_port_attr.active_speed_ex").expected, 52);
        assert_eq!(port.claim(|_| false).expected, 48);
    }
}
