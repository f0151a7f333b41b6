//! Claims as C: which names a header has, whether all `_Static_assert`s hold, and what C has where one does not.

use object::{Object, ObjectSection, ObjectSymbol};

use crate::claims::{Claim, Item};
use crate::finding::Finding;
use crate::headers::HeaderSet;

/// Which of the items the header has, in their order.
///
/// A name that came with a release gets a probe compile of its own. The others are probed together, and halved where that
/// fails: an enum constant cannot be seen by `#ifdef`.
pub fn present(headers: &HeaderSet, items: &[Item]) -> Vec<bool> {
    let mut present = vec![false; items.len()];
    let (newer, others): (Vec<_>, Vec<_>) = (0..items.len()).partition(|&index| items[index].since.is_some());
    for index in newer {
        mark(headers, items, &[index], &mut present);
    }
    mark(headers, items, &others, &mut present);
    present
}

fn mark(headers: &HeaderSet, items: &[Item], which: &[usize], present: &mut [bool]) {
    let probe: String = which
        .iter()
        .map(|&index| format!("static const long long probe_{index} = (long long)({});\n", items[index].probe))
        .collect();
    if headers.accepts(&probe).is_ok() {
        which.iter().for_each(|&index| present[index] = true);
    } else if which.len() > 1 {
        let (left, right) = which.split_at(which.len() / 2);
        mark(headers, items, left, present);
        mark(headers, items, right, present);
    }
}

/// The claims as one list of static assertions.
pub fn source(claims: &[Claim]) -> String {
    claims
        .iter()
        .map(|Claim { what, expression, expected }| {
            format!("_Static_assert((long long)({expression}) == {expected}LL, \"{what}\");\n")
        })
        .collect()
}

/// Compiles the assertions; where they do not hold, measures what C has.
pub fn hold(headers: &HeaderSet, claims: &[Claim]) -> Vec<Finding> {
    let Err(said) = headers.accepts(&source(claims)) else { return Vec::new() };
    let found: Vec<Finding> = match measure(headers, claims) {
        Ok(numbers) => claims
            .iter()
            .zip(numbers)
            .filter(|(claim, got)| claim.expected != *got)
            .map(|(claim, got)| Finding::Differs { what: claim.what.clone(), expected: claim.expected, got })
            .collect(),
        Err(_) => Vec::new(),
    };
    if found.is_empty() { vec![Finding::Compiler { said }] } else { found }
}

const MEASURED: &str = "bareverbs_measured";

/// The numbers that C has for the claims' expressions, read out of an object file: nothing is run, so that a compiler for
/// another target can be asked.
///
/// # Errors
/// Why they cannot be read.
pub fn measure(headers: &HeaderSet, claims: &[Claim]) -> Result<Vec<i64>, String> {
    let rows: String = claims.iter().map(|claim| format!("  (long long)({}),\n", claim.expression)).collect();
    let bytes = headers.object(&[], &format!("const long long {MEASURED}[] = {{\n{rows}}};\n"))?;
    let file = object::File::parse(&*bytes).map_err(|error| error.to_string())?;
    let symbol = file
        .symbols()
        .find(|symbol| symbol.name().is_ok_and(|name| name.trim_start_matches('_') == MEASURED))
        .ok_or("the measured numbers are not in the object file")?;
    let section = symbol.section_index().ok_or("the measured numbers have no section")?;
    let section = file.section_by_index(section).map_err(|error| error.to_string())?;
    let data = section
        .data_range(symbol.address(), 8 * claims.len() as u64)
        .map_err(|error| error.to_string())?
        .ok_or("the measured numbers end early")?;
    let little = file.is_little_endian();
    let number = |eight: &[u8]| {
        let eight: [u8; 8] = eight.try_into().expect("chunks of eight");
        if little { i64::from_le_bytes(eight) } else { i64::from_be_bytes(eight) }
    };
    Ok(data.chunks_exact(8).map(number).collect())
}
