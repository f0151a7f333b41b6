//! Ways through what can happen: all of them, or enough to take every step from every state once.

use std::collections::HashMap;

use super::twin::{Act, Rules, Twin};

/// Says which of the acts that can be taken is; none, where the way ends.
pub type Choose<'a> = dyn FnMut(&Twin, &[Act]) -> Option<Act> + 'a;
/// Who is led: each call begins anew.
pub type Lead<'a> = dyn FnMut(&mut Choose<'_>) + 'a;

/// A part of all orders: those whose first choices make this number, modulo the number of parts.
#[derive(Clone, Copy)]
pub struct Part {
    pub which: usize,
    pub of: usize,
}

/// As many first choices say to which part an order belongs.
const FIRST: usize = 3;

/// Leads along every order of a part; answers how many there were.
pub fn all_orders(part: Part, lead: &mut Lead<'_>) -> u128 {
    let (mut made, mut orders): (Vec<(usize, usize)>, u128) = (Vec::new(), 0);
    loop {
        let (mut at, mut sum, mut is_in_part) = (0, 0, true);
        lead(&mut |_, acts| {
            if acts.is_empty() || at == FIRST {
                is_in_part = sum % part.of == part.which;
            }
            if acts.is_empty() || !is_in_part {
                return None;
            }
            if at == made.len() {
                made.push((0, acts.len()));
            }
            let (chosen, of) = made[at];
            assert_eq!(of, acts.len(), "the same choices meet the same world");
            (at, sum) = (at + 1, if at < FIRST { sum + chosen } else { sum });
            Some(acts[chosen])
        });
        orders += u128::from(is_in_part);
        loop {
            match made.pop() {
                None => return orders,
                Some((chosen, of)) if chosen + 1 < of => {
                    made.push((chosen + 1, of));
                    break;
                }
                Some(_) => {}
            }
        }
    }
}

/// Leads along ways on which everything that can happen in a state happens once, for every state; answers how many steps
/// that were.
pub fn every_step(rules: &Rules, lead: &mut Lead<'_>) -> u64 {
    // How each state was come to first, and how many of its acts were taken.
    let mut known: HashMap<Twin, (Vec<Act>, usize)> = HashMap::new();
    let mut open = vec![Twin::new(rules)];
    known.insert(Twin::new(rules), (Vec::new(), 0));
    let mut steps = 0;
    while let Some(state) = open.last() {
        let (way, taken) = &known[state];
        if *taken == state.acts(rules).len() {
            open.pop();
            continue;
        }
        let (way, mut at, mut so_far) = (way.clone(), 0, Vec::new());
        lead(&mut |twin, acts| {
            let chosen = if let Some(act) = way.get(at) {
                *act
            } else {
                if !known.contains_key(twin) {
                    known.insert(twin.clone(), (so_far.clone(), 0));
                    open.push(twin.clone());
                }
                let (_, taken) = known.get_mut(twin)?;
                let act = *acts.get(*taken)?;
                (*taken, steps) = (*taken + 1, steps + 1);
                act
            };
            at += 1;
            so_far.push(chosen);
            Some(chosen)
        });
    }
    steps
}
