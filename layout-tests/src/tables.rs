//! All tables in one value, so that a test can doctor one and watch the check fail.

use bareverbs_core::layout::{ConstantTable, StructTable};
use bareverbs_core::verbs::context::{EXTENDED_SLOTS, ExtendedSlot};
use bareverbs_core::verbs::platform::TailTable;
use bareverbs_core::verbs::{AccessFlags, CONSTANTS, STRUCTS, TARGET_OFFSETS};

/// What is held against a header.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// Mirrors: whole structs, and starts of structs.
    pub structs: Vec<StructTable>,
    /// What follows a mutex.
    pub tails: Vec<TailTable>,
    /// Enums and flag words.
    pub constants: Vec<ConstantTable>,
    /// Members of `struct verbs_context` by their distance from the context in it.
    pub slots: Vec<ExtendedSlot>,
    /// `IBV_ACCESS_OPTIONAL_RANGE`, if it is to be held against the headers.
    pub optional_range: Option<u32>,
}

impl Tables {
    /// The tables of `bareverbs-core`.
    pub fn of_core() -> Self {
        Self {
            structs: STRUCTS.to_vec(),
            tails: TARGET_OFFSETS.to_vec(),
            constants: CONSTANTS.to_vec(),
            slots: EXTENDED_SLOTS.to_vec(),
            optional_range: Some(AccessFlags::OPTIONAL_RANGE.bits()),
        }
    }

    /// The table of one struct of `bareverbs-core` and nothing else, by its name in C.
    pub fn of_struct_alone(c_type: &str) -> Self {
        let structs = STRUCTS.iter().filter(|table| table.c_type == c_type).copied().collect();
        Self { structs, ..Self::default() }
    }
}

/// How C can spell a table's type: an inner struct without a name is reached through the member that has it.
pub fn spell(c_type: &str) -> String {
    match c_type.split_once('.') {
        Some((outer, path)) => format!("__typeof__((({outer} *)0)->{path})"),
        None => c_type.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::spell;

    #[test]
    fn an_unnamed_struct_is_spelled_by_the_way_to_it() {
        assert_eq!(spell("struct ibv_sge"), "struct ibv_sge");
        assert_eq!(spell("struct ibv_send_wr.wr.ud"), "__typeof__(((struct ibv_send_wr *)0)->wr.ud)");
    }
}
