//! What members a C struct really has, and what constants an enum: read from the compiler's debug information.

use std::borrow::Cow;
use std::collections::HashMap;

use gimli::{AttributeValue, DebuggingInformationEntry, EndianSlice, Reader, RelocateReader, RunTimeEndian};
use object::{Object, ObjectSection};

use crate::headers::HeaderSet;
use crate::tables::spell;

/// One member of a C struct. Members of unnamed inner unions and structs without a member name stand at their parent's
/// level, as C code sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Where it is, in bytes from the start of the struct that it is listed for.
    pub offset_bytes: u64,
    /// What it is.
    pub kind: MemberKind,
}

/// What a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberKind {
    /// A number, a pointer, an array of them.
    Plain,
    /// A struct or union with a name (`struct ibv_gid`), or an array of such.
    Named(String),
    /// A struct or union that has no name, and its members.
    Unnamed(Vec<Member>),
}

/// The debug information of one source file.
#[derive(Debug)]
pub struct DebugInfo {
    entries: HashMap<usize, Entry>,
    top: Vec<usize>,
}

#[derive(Debug)]
struct Entry {
    tag: gimli::DwTag,
    name: Option<String>,
    type_at: Option<usize>,
    offset_bytes: u64,
    value: Option<i64>,
    children: Vec<usize>,
}

impl DebugInfo {
    /// What the compiler says of these types, and of every enum in the headers.
    ///
    /// # Errors
    /// Why it says nothing that can be read.
    pub fn of(headers: &HeaderSet, c_types: &[&str]) -> Result<Self, String> {
        let body: String = c_types
            .iter()
            .enumerate()
            .map(|(index, c_type)| format!("{} {};\n", spell(c_type), variable(index)))
            .collect();
        let flags = ["-g", "-gz=none", "-fno-eliminate-unused-debug-types"];
        let bytes = headers.object(&flags, &body)?;
        let info = read(&bytes)?;
        match (0..c_types.len()).find(|&index| info.struct_of(index).is_none()) {
            Some(index) => Err(format!("the debug information does not describe {}", c_types[index])),
            None => Ok(info),
        }
    }

    /// The members of the type that was asked for at this place of the list.
    pub fn members(&self, index: usize) -> Vec<Member> {
        self.struct_of(index).map_or_else(Vec::new, |at| self.members_at(at, 0))
    }

    /// The constants of every enum.
    pub fn enums(&self) -> Vec<Vec<(&str, i64)>> {
        let enums = self.entries.values().filter(|entry| entry.tag == gimli::DW_TAG_enumeration_type);
        enums
            .map(|entry| {
                let constants = entry.children.iter().filter_map(|at| self.entries.get(at));
                constants.filter_map(|constant| Some((constant.name.as_deref()?, constant.value?))).collect()
            })
            .collect()
    }

    fn struct_of(&self, index: usize) -> Option<usize> {
        let name = variable(index);
        let at = self.top.iter().find(|at| self.entries[at].name.as_deref() == Some(name.as_str()))?;
        self.bare_type(*at).filter(|at| !self.entries[at].children.is_empty())
    }

    fn members_at(&self, at: usize, base_bytes: u64) -> Vec<Member> {
        let mut members = Vec::new();
        for entry in self.entries[&at].children.iter().filter_map(|at| self.entries.get(at).map(|entry| (at, entry))) {
            let (at, entry) = entry;
            if entry.tag != gimli::DW_TAG_member {
                continue;
            }
            let offset_bytes = base_bytes + entry.offset_bytes;
            let inner = self.bare_type(*at);
            match &entry.name {
                Some(name) => members.push(Member { name: name.clone(), offset_bytes, kind: self.kind(inner) }),
                None => members.extend(inner.map_or_else(Vec::new, |inner| self.members_at(inner, offset_bytes))),
            }
        }
        members
    }

    fn kind(&self, at: Option<usize>) -> MemberKind {
        let Some((at, entry)) = at.and_then(|at| Some((at, self.entries.get(&at)?))) else { return MemberKind::Plain };
        let word = match entry.tag {
            gimli::DW_TAG_structure_type => "struct",
            gimli::DW_TAG_union_type => "union",
            _ => return MemberKind::Plain,
        };
        match &entry.name {
            Some(name) => MemberKind::Named(format!("{word} {name}")),
            None => MemberKind::Unnamed(self.members_at(at, 0)),
        }
    }

    /// The type of a variable or member, without typedefs, qualifiers and array bounds.
    fn bare_type(&self, at: usize) -> Option<usize> {
        let mut at = self.entries.get(&at)?.type_at?;
        loop {
            let entry = self.entries.get(&at)?;
            match entry.tag {
                gimli::DW_TAG_typedef
                | gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_array_type => at = entry.type_at?,
                _ => return Some(at),
            }
        }
    }
}

fn variable(index: usize) -> String {
    format!("bareverbs_type_{index}")
}

/// Relocations of a section: in an object file that is not linked, references between debug sections are relocations.
#[derive(Clone, Copy, Debug)]
struct Relocations<'map>(&'map object::read::RelocationMap);

impl gimli::Relocate<usize> for Relocations<'_> {
    fn relocate_address(&self, offset: usize, value: u64) -> gimli::Result<u64> {
        Ok(self.0.relocate(offset as u64, value))
    }

    fn relocate_offset(&self, offset: usize, value: usize) -> gimli::Result<usize> {
        gimli::ReaderOffset::from_u64(self.0.relocate(offset as u64, value as u64))
    }
}

#[derive(Default)]
struct Section<'data> {
    data: Cow<'data, [u8]>,
    relocations: object::read::RelocationMap,
}

fn read(bytes: &[u8]) -> Result<DebugInfo, String> {
    let file = object::File::parse(bytes).map_err(|error| error.to_string())?;
    let endian = if file.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let sections = gimli::DwarfSections::load(|id| section(&file, id.name()))?;
    let dwarf = sections.borrow(|section| {
        RelocateReader::new(EndianSlice::new(&section.data, endian), Relocations(&section.relocations))
    });
    let mut info = DebugInfo { entries: HashMap::new(), top: Vec::new() };
    // One source file is one unit: offsets within it name entries.
    let header = dwarf.units().next().map_err(said)?.ok_or("there is no debug information in the object file")?;
    let unit = dwarf.unit(header).map_err(said)?;
    let mut tree = unit.entries_tree(None).map_err(said)?;
    let root = tree.root().map_err(said)?;
    info.top = children(&dwarf, &unit, root, &mut info.entries).map_err(said)?;
    Ok(info)
}

fn said(error: gimli::Error) -> String {
    format!("the debug information cannot be read: {error}")
}

fn section<'data>(file: &object::File<'data>, name: &str) -> Result<Section<'data>, String> {
    let Some(section) = file.section_by_name(name) else { return Ok(Section::default()) };
    let text = |error: object::Error| format!("section {name} cannot be read: {error}");
    Ok(Section {
        data: section.uncompressed_data().map_err(text)?,
        relocations: section.relocation_map().map_err(text)?,
    })
}

fn children<R: Reader<Offset = usize>>(
    dwarf: &gimli::Dwarf<R>,
    unit: &gimli::Unit<R>,
    node: gimli::EntriesTreeNode<'_, '_, R>,
    entries: &mut HashMap<usize, Entry>,
) -> gimli::Result<Vec<usize>> {
    let mut list = Vec::new();
    let mut nodes = node.children();
    while let Some(child) = nodes.next()? {
        let at = child.entry().offset().0;
        let mut entry = entry(dwarf, unit, child.entry())?;
        entry.children = children(dwarf, unit, child, entries)?;
        entries.insert(at, entry);
        list.push(at);
    }
    Ok(list)
}

fn entry<R: Reader<Offset = usize>>(
    dwarf: &gimli::Dwarf<R>,
    unit: &gimli::Unit<R>,
    entry: &DebuggingInformationEntry<R>,
) -> gimli::Result<Entry> {
    let name = match entry.attr_value(gimli::DW_AT_name) {
        Some(value) => Some(dwarf.attr_string(unit, value)?.to_string_lossy()?.into_owned()),
        None => None,
    };
    let type_at = match entry.attr_value(gimli::DW_AT_type) {
        Some(AttributeValue::UnitRef(offset)) => Some(offset.0),
        _ => None,
    };
    let number = |attribute| entry.attr(attribute).and_then(|attr| attr.udata_value());
    let signed = || entry.attr(gimli::DW_AT_const_value).and_then(|attr| attr.sdata_value());
    Ok(Entry {
        tag: entry.tag(),
        name,
        type_at,
        offset_bytes: number(gimli::DW_AT_data_member_location).unwrap_or(0),
        value: number(gimli::DW_AT_const_value).and_then(|value| i64::try_from(value).ok()).or_else(signed),
        children: Vec::new(),
    })
}
