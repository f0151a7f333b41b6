//! Contexts: which there are, how often primary ones are retained, and which is current on which thread.

use std::cell::RefCell;
use std::collections::BTreeMap;

use bareverbs_core::cuda::CuResult;

/// A context that is not a device's primary one, or a primary one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContextOf {
    pub ordinal: i32,
    pub primary: bool,
}

/// Retains and releases of one device's primary context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Primary {
    /// Held now, the application's own hold included.
    pub held: u64,
    /// Retained through the table, ever.
    pub retained: u64,
    /// Released through the table, ever.
    pub released: u64,
}

#[derive(Debug)]
pub(super) struct Contexts {
    /// By handle.
    all: BTreeMap<usize, ContextOf>,
    pub primaries: Vec<Primary>,
}

/// Where primary contexts' handles begin: no addresses, and told apart from others at sight.
const FIRST_PRIMARY: usize = 0xc0_0000;
/// The same of others.
const FIRST_OTHER: usize = 0xa0_0000;
const STEP: usize = 0x10;

impl Contexts {
    pub(super) fn new(devices: usize) -> Self {
        let primary =
            |ordinal: usize| (Self::primary(ordinal as i32), ContextOf { ordinal: ordinal as i32, primary: true });
        Self { all: (0..devices).map(primary).collect(), primaries: vec![Primary::default(); devices] }
    }

    /// The handle of a device's primary context, active or not.
    pub(super) const fn primary(ordinal: i32) -> usize {
        FIRST_PRIMARY + ordinal as usize * STEP
    }

    /// Makes a context that is not primary.
    pub(super) fn create(&mut self, ordinal: i32) -> usize {
        let last = self.all.range(FIRST_OTHER..FIRST_PRIMARY).next_back().map(|(handle, _)| *handle);
        let handle = last.map_or(FIRST_OTHER, |last| last + STEP);
        self.all.insert(handle, ContextOf { ordinal, primary: false });
        handle
    }

    pub(super) fn destroy(&mut self, handle: usize) {
        self.all.remove(&handle);
    }

    /// Whether a context can be made current: a primary one can, whether somebody holds it or not.
    pub(super) fn is_known(&self, handle: usize) -> bool {
        self.all.contains_key(&handle)
    }

    /// A context that calls can be made in: a primary one only while somebody holds it.
    pub(super) fn usable(&self, handle: usize) -> Result<ContextOf, CuResult> {
        if handle == 0 {
            return Err(CuResult::INVALID_CONTEXT);
        }
        let context = self.all.get(&handle).copied().ok_or(CuResult::CONTEXT_IS_DESTROYED)?;
        let held = self.primaries.get(context.ordinal as usize).map_or(0, |primary| primary.held);
        if context.primary && held == 0 { Err(CuResult::CONTEXT_IS_DESTROYED) } else { Ok(context) }
    }
}

thread_local! {
    /// The current context of this thread, by stand-in.
    static CURRENT: RefCell<BTreeMap<u64, usize>> = const { RefCell::new(BTreeMap::new()) };
}

/// The current context of this thread in the stand-in with this number; 0 for none.
pub(super) fn current(stand_in: u64) -> usize {
    CURRENT.with(|current| current.borrow().get(&stand_in).copied()).unwrap_or(0)
}

pub(super) fn set_current(stand_in: u64, context: usize) {
    CURRENT.with(|current| match context {
        0 => current.borrow_mut().remove(&stand_in),
        _ => current.borrow_mut().insert(stand_in, context),
    });
}
