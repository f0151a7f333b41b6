//! The handle by which a test or a program makes a fabric, tells it things and asks what happened.

use std::ffi::c_char;
use std::sync::Arc;

use bareverbs_core::verbs::{Device, EventType, NodeType, PortState};

use crate::soft::bindings::BindingFault;
use crate::soft::config::{SoftConfig, SoftError};
use crate::soft::device::{GidSlot, SoftDevice, SoftPort};
use crate::soft::handles::{self, Place};
use crate::soft::message_faults::{MessageFault, MessageOdds};
use crate::soft::pairs::FIRST_NUMBER;
use crate::soft::plan::Answer;
use crate::soft::record::Call;
use crate::soft::state::{DeviceState, LiveCounts, State};
use crate::soft::steps::Step;
use crate::soft::{table, worlds};
use crate::symbols::{Mlx5Symbols, Symbols};

/// A software fabric. Clones control the same one.
///
/// Its entry points stay callable after the last clone is dropped, for as long as a table of them or an object made through
/// them lives; and they never become dangling: called even later they answer with errors.
#[derive(Clone, Debug)]
pub struct SoftFabric(Arc<Control>);

#[derive(Debug)]
struct Control {
    // Field order is drop order: the slot last, for a table still held would keep what is in it.
    symbols: Arc<Symbols>,
    mlx5_symbols: Arc<Mlx5Symbols>,
    slot: Slot,
}

#[derive(Debug)]
struct Slot(u32);

impl Drop for Slot {
    fn drop(&mut self) {
        worlds::abandon(self.0);
    }
}

impl SoftFabric {
    /// Makes a fabric.
    ///
    /// # Errors
    /// [`SoftError`] where the description cannot be, or where this process has too many fabrics.
    pub fn new(config: SoftConfig) -> Result<Self, SoftError> {
        let config = config.checked()?;
        let library: Arc<str> = "software fabric".into();
        let slot = worlds::claim(|slot| {
            let devices = (0..).zip(&config.devices).map(|(index, device)| make_device(Place { slot, index }, device));
            State::new(slot, &config, devices.collect(), Arc::clone(&library))
        })?;
        let mlx5_symbols = Arc::new(table::mlx5_symbols(Arc::clone(&library), config.old_mlx5));
        let symbols = Arc::new(table::symbols(slot, library, &config.missing));
        Ok(Self(Arc::new(Control { symbols, mlx5_symbols, slot: Slot(slot) })))
    }

    /// The table of entry points.
    pub fn symbols(&self) -> Arc<Symbols> {
        Arc::clone(&self.0.symbols)
    }

    /// The table of mlx5dv entry points: for devices made by [`SoftDevice::mlx5`]; of others it says that they are not
    /// supported.
    pub fn mlx5_symbols(&self) -> Arc<Mlx5Symbols> {
        Arc::clone(&self.0.mlx5_symbols)
    }

    /// Runs on the state; the fabric is there as long as this handle is.
    fn with<R>(&self, action: impl FnOnce(&mut State) -> R) -> R {
        worlds::with(self.0.slot.0, action).expect("a fabric lives as long as its control handle")
    }

    /// The calls recorded, oldest first.
    pub fn record(&self) -> Vec<Call> {
        self.with(|state| state.record.calls())
    }

    /// Forgets the calls recorded so far.
    pub fn clear_record(&self) {
        self.with(|state| state.record.clear());
    }

    /// How many objects are alive.
    pub fn live(&self) -> LiveCounts {
        self.with(|state| state.live())
    }

    /// What was done to handles that must not be: used or destroyed after destruction, closed with children, mixed between
    /// contexts. In order, in words, the first 1024.
    pub fn misuse(&self) -> Vec<String> {
        self.with(|state| state.misuse())
    }

    /// Makes the `nth` call of an entry point from now fail, counted from 1. The name is C's (`ibv_reg_mr`); the inline
    /// ones have theirs too (`ibv_post_send`).
    ///
    /// A call that fails so does nothing, but for a post that is told otherwise ([`Answer::bad_wr`]).
    ///
    /// # Panics
    /// If no entry point has that name, `nth` is 0, the call returns nothing and so cannot fail (`ibv_ack_cq_events`), or the
    /// answer is [`Answer::nothing`] and the call is no `ibv_poll_cq`.
    pub fn fail(&self, symbol: &str, nth: u64, answer: Answer) {
        self.with(|state| state.plan.add(symbol, nth, false, answer));
    }

    /// Makes the `nth` call of an entry point from now, counted from 1, and all after it fail.
    ///
    /// # Panics
    /// As [`fail`](Self::fail).
    pub fn fail_from(&self, symbol: &str, nth: u64, answer: Answer) {
        self.with(|state| state.plan.add(symbol, nth, true, answer));
    }

    /// Drops the failures planned so far.
    pub fn clear_plan(&self) {
        self.with(|state| state.plan.clear());
    }

    /// Plans what befalls the `nth` binding of an indirect key that is posted from now, counted from 1.
    ///
    /// # Panics
    /// If `nth` is 0.
    pub fn binding_fault(&self, nth: u64, fault: BindingFault) {
        self.with(|state| state.binding_faults.add(nth, fault));
    }

    /// Plans what becomes of the `nth` message from now, counted from 1 over all queue pairs of the fabric. A send that
    /// fails at its own end is no message.
    ///
    /// # Panics
    /// If `nth` is 0.
    pub fn message_fault(&self, nth: u64, fault: MessageFault) {
        self.with(|state| state.faults.add(nth, fault));
    }

    /// Lets messages meet faults by chance; the same seed and messages give the same faults. All zero ends it.
    pub fn message_odds(&self, seed: u64, odds: MessageOdds) {
        self.with(|state| state.faults.set_odds(seed, odds));
    }

    /// The messages that met a fault so far, by their number in the fabric's life, counted from 1.
    pub fn message_faults_met(&self) -> Vec<(u64, MessageFault)> {
        self.with(|state| state.faults.met())
    }

    /// Lets the messages arrive that [`MessageFault::Hold`] kept, and says how many found a receive.
    pub fn release_held(&self) -> usize {
        self.with(|state| {
            let held = state.faults.release();
            let arrived = held.iter().filter(|held| state.arrive_late(held).is_some()).count();
            state.after_change();
            arrived
        })
    }

    /// What can happen next, in [`Mode::Stepped`](crate::soft::Mode::Stepped). Empty when nothing can, until something is
    /// posted or moved.
    pub fn steps(&self) -> Vec<Step> {
        self.with(State::steps)
    }

    /// Lets a step happen; false where it cannot, and then nothing happens.
    pub fn take(&self, step: Step) -> bool {
        self.with(|state| state.take_told(step))
    }

    /// Ends the stepping: everything that can happen happens, and from now on at once. Messages that were held on their way
    /// are lost.
    pub fn run_freely(&self) {
        self.with(State::run_freely);
    }

    /// Begins the stepping again that [`SoftFabric::run_freely`] ended.
    pub fn step_again(&self) {
        self.with(|state| state.schedule.start_stepping());
    }

    /// Changes the state of a port, counted from 1.
    ///
    /// # Panics
    /// If there is no such device or port.
    pub fn set_port_state(&self, device: &str, port: u8, to: PortState) {
        let (index, before) = self.change_port(device, port, |port| std::mem::replace(&mut port.state, to));
        self.with(|state| {
            state.tell_port_state(index, port, before, to);
            state.after_change();
        });
    }

    /// Replaces a port's GID table. Queue pairs that are connected stay so.
    ///
    /// # Panics
    /// If there is no such device or port.
    pub fn set_gids(&self, device: &str, port: u8, gids: Vec<GidSlot>) {
        let (index, ()) = self.change_port(device, port, |port| port.gids = gids);
        self.with(|state| state.tell_all(index, EventType::GID_CHANGE, port));
    }

    /// Lets a device fail for good: its contexts are told, its ports are down, what is asked of it answers EIO. What there
    /// is can be destroyed.
    ///
    /// # Panics
    /// If there is no such device.
    pub fn device_fatal(&self, device: &str) {
        let index = self.with(|state| state.devices.iter().position(|known| known.name == device));
        let index = index.unwrap_or_else(|| panic!("there is no device {device:?}"));
        self.with(|state| state.fail_device(index as u32));
    }

    /// Changes a port; the device's index, and what the change answers.
    fn change_port<R>(&self, device: &str, port: u8, change: impl FnOnce(&mut SoftPort) -> R) -> (u32, R) {
        let changed = self.with(|state| {
            let index = state.devices.iter().position(|known| known.name == device)?;
            let port = state.devices[index].ports.get_mut(usize::from(port).checked_sub(1)?)?;
            Some((index as u32, change(port)))
        });
        changed.unwrap_or_else(|| panic!("there is no port {port} of a device {device:?}"))
    }
}

fn make_device(place: Place, device: &SoftDevice) -> DeviceState {
    let name = |prefix: &str| {
        let mut chars: [c_char; 64] = [0; 64];
        for (to, from) in chars.iter_mut().zip(prefix.bytes().chain(device.name.bytes())).take(63) {
            *to = from as c_char;
        }
        chars
    };
    let body = Device {
        _ops: bareverbs_core::verbs::device::DeviceOps { _dummy1: std::ptr::null_mut(), _dummy2: std::ptr::null_mut() },
        node_type: NodeType::CA,
        transport_type: device.profile.transport(),
        name: name(""),
        dev_name: name("uverbs_"),
        dev_path: [0; 256],
        ibdev_path: [0; 256],
    };
    DeviceState {
        handle: handles::create(place, body),
        name: device.name.clone(),
        guid: device.guid,
        profile: device.profile,
        limits: device.limits,
        ports: device.ports.clone(),
        queue_pairs: 0,
        regions: 0,
        next_number: FIRST_NUMBER,
        descriptor_bytes: device.descriptor_bytes,
        references: 0,
        fatal: false,
    }
}
