//! What must hold within the tables, whatever a header says: the check where there is no header.

use std::collections::HashSet;

use bareverbs_core::layout::{FieldRow, Growth};

use crate::tables::Tables;

/// Everything that contradicts itself, one line each.
pub fn contradictions(tables: &Tables) -> Vec<String> {
    let mut wrong = Vec::new();
    for table in &tables.structs {
        let body = Body { name: table.c_type, size: table.size_bytes, align: table.align_bytes, fields: table.fields };
        body.check(table.whole, table.grew, &mut wrong);
    }
    for tail in &tables.tails {
        let body = Body { name: tail.c_type, size: tail.size_bytes, align: tail.align_bytes, fields: tail.fields };
        body.check(true, tail.grew, &mut wrong);
    }
    let mut seen = HashSet::new();
    for table in &tables.constants {
        for row in table.rows.iter().filter(|row| !seen.insert(row.c_name)) {
            wrong.push(format!("{}: listed twice, the second time for {}", row.c_name, table.rust_name));
        }
    }
    wrong
}

struct Body<'tables> {
    name: &'tables str,
    size: usize,
    align: usize,
    fields: &'tables [FieldRow],
}

impl Body<'_> {
    fn check(&self, whole: bool, grew: &[Growth], wrong: &mut Vec<String>) {
        let mut seen = HashSet::new();
        for row in self.fields {
            if !seen.insert(row.c_name) {
                wrong.push(format!("{}.{}: listed twice", self.name, row.c_name));
            }
            if row.offset_bytes + row.size_bytes > self.size {
                wrong.push(format!("{}.{}: ends after the struct's {} bytes", self.name, row.c_name, self.size));
            }
        }
        let end = self.end_of(|_| true);
        if whole && end != self.size {
            wrong.push(format!("{}: {} bytes, but its members end at {end}", self.name, self.size));
        }
        for step in grew {
            self.check_growth(step, wrong);
        }
    }

    fn check_growth(&self, step: &Growth, wrong: &mut Vec<String>) {
        let Some(came) = self.fields.iter().find(|row| row.c_name == step.c_name) else {
            return wrong.push(format!("{} grew by {}, which it does not have", self.name, step.c_name));
        };
        if came.since.is_none() {
            wrong.push(format!("{}.{}: the struct grew by it, but not since when", self.name, step.c_name));
        }
        let before = self.end_of(|row| row.offset_bytes < came.offset_bytes);
        if before != step.size_before_bytes {
            wrong.push(format!(
                "{}: {} bytes before {} came, but its older members end at {before}",
                self.name, step.size_before_bytes, step.c_name
            ));
        }
    }

    fn end_of(&self, which: impl Fn(&FieldRow) -> bool) -> usize {
        let rows = self.fields.iter().filter(|row| which(row));
        rows.map(|row| row.offset_bytes + row.size_bytes).max().unwrap_or(0).next_multiple_of(self.align)
    }
}
