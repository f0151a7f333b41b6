//! Whether every table in the sources is in the lists that the C compiler sees.

use std::io;
use std::path::{Path, PathBuf};

/// The names that the macros in `core`'s sources were given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Of `layout!`.
    pub structs: Vec<String>,
    /// Of `open_enum!` and `flag_word!`.
    pub constants: Vec<String>,
}

/// Where `core` keeps its mirrors.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/src/verbs")
}

/// Reads every file of a folder.
///
/// # Errors
/// What the file system says.
pub fn written_in(folder: &Path) -> io::Result<Written> {
    let mut written = Written::default();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            written.add(&std::fs::read_to_string(path)?);
        }
    }
    written.structs.sort();
    written.constants.sort();
    Ok(written)
}

impl Written {
    /// The macros stand at the start of a line; the name is the first word behind comments and attributes.
    fn add(&mut self, source: &str) {
        let mut rest = source;
        while let Some(start) = ["layout! {", "open_enum! {", "flag_word! {"]
            .iter()
            .filter_map(|invocation| rest.match_indices(invocation).map(|(at, _)| at).find(|&at| starts_line(rest, at)))
            .min()
        {
            let (invocation, behind) = rest[start..].split_once('{').unwrap_or((&rest[start..], ""));
            let list = if invocation.starts_with("layout") { &mut self.structs } else { &mut self.constants };
            let line = behind.lines().map(str::trim).find(|line| !(line.is_empty() || line.starts_with(['/', '#'])));
            list.extend(line.and_then(|line| line.split_once(':')).map(|(name, _)| name.to_owned()));
            rest = behind;
        }
    }
}

fn starts_line(text: &str, at: usize) -> bool {
    at == 0 || text[..at].ends_with('\n')
}

#[cfg(test)]
mod tests {
    use super::Written;

    #[test]
    fn names_are_found_behind_comments_and_on_the_same_line() {
        let mut written = Written::default();
        written.add(concat!(
            "layout! { One: \"struct one\", whole 4 align 4 { a 0 4; } }\n",
            "open_enum! {\n    /// `enum two`\n    #[doc(alias = \"x\")]\n    Two: u32 {\n",
            "// layout! { Not: this }\n",
            "layout! {\n    Three: \"struct three\"\n",
        ));
        assert_eq!(written.structs, ["One", "Three"]);
        assert_eq!(written.constants, ["Two"]);
    }
}
