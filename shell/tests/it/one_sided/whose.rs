//! Whose keys a local view's are: a domain's, told by its address, or a device's where no domain is named.
//!
//! # Safety
//!
//! A view is made here of another's numbers, and its guard holds that other one.
#![allow(unsafe_code)]

use std::sync::Arc;

use bareverbs_core::verbs::AccessFlags;
use bareverbs_core::view::DeviceName;
use bareverbs_shell::memory::{View, ViewGuard};
use bareverbs_shell::objects::ProtectionDomain;
use bareverbs_shell::one_sided::{TransferErrorKind, connect_pair};
use bareverbs_shell::soft::Mode;

use crate::scene::{ALL, End, content, memory, pair, published, succeed, transfers_config, view};
use crate::world::World;

#[test]
fn a_view_that_outlives_all_that_made_it_is_of_no_later_domain() {
    let world = World::soft(Mode::Prompt);
    let context = world.open();
    let mut earlier: Vec<View> = Vec::new();
    for _ in 0..20 {
        // All of one device: only the domains differ.
        let domain = ProtectionDomain::new(&context, 1).expect("a domain");
        let (mut a, mut b) = (in_domain(&domain), in_domain(&domain));
        connect_pair(&mut a, &mut b).expect("both are in INIT");
        let there = memory(&[0; 8]);
        let lease = published(&b, &there, ALL);
        for old in &earlier {
            let refused = a.write(old, lease.remote()).expect_err("of a domain that was before");
            assert_eq!(refused.kind, TransferErrorKind::ForeignView);
        }
        let own = view(&a, &memory(&[7; 16]), ALL).part(8, 8).expect("within");
        let write = a.write(&own, lease.remote()).expect("its own");
        succeed(&mut a, write);
        assert_eq!(content(&there), [7; 8]);
        earlier.push(own);
    }
    drop((earlier, context));
    world.assert_clean();
}

fn in_domain(domain: &Arc<ProtectionDomain>) -> End {
    End::in_domain(domain, transfers_config()).expect("a queue pair")
}

/// A guard that names no domain and no access.
struct OfDevice {
    device: DeviceName,
    _view: View,
}

impl ViewGuard for OfDevice {
    fn device(&self) -> &DeviceName {
        &self.device
    }
}

/// The same bytes under the same keys, said to be of that device and of no domain.
fn of_device(view: &View, device: DeviceName) -> View {
    let guard = OfDevice { device, _view: view.clone() };
    // SAFETY: 1, 2: the guard holds the view whose range it is. 3: it names no domain and no access; no request is posted with
    // a view of another device, which is what is tested.
    unsafe { View::new(*view.range(), Arc::new(guard)) }
}

#[test]
fn a_view_that_names_no_domain_is_its_devices_and_what_it_permits_the_device_says() {
    let world = World::soft(Mode::Prompt);
    let (mut a, b) = pair(&world, &transfers_config());
    let (here, there) = (memory(&[7; 8]), memory(&[0; 8]));
    let (known, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
    let (own, other) = (*known.device(), DeviceName::new(b"another").expect("a name"));
    assert!(of_device(&known, own).access().is_none() && of_device(&known, own).protection_domain().is_none());
    let refused = a.write(&of_device(&known, other), lease.remote()).expect_err("another device's keys");
    assert_eq!(refused.kind, TransferErrorKind::ForeignView);
    let write = a.write(&of_device(&known, own), lease.remote()).expect("the device's own");
    succeed(&mut a, write);
    assert_eq!(content(&there), [7; 8]);
    let read = a.read(&of_device(&known, own), lease.remote()).expect("nothing says that it may not land");
    succeed(&mut a, read);
}

#[test]
fn a_part_permits_what_its_view_does_and_no_more() {
    let world = World::soft(Mode::Prompt);
    let (mut a, b) = pair(&world, &transfers_config());
    let (here, there) = (memory(&[7; 16]), memory(&[0; 8]));
    let (local, lease) = (view(&a, &here, AccessFlags::empty()), published(&b, &there, ALL));
    let part = local.part(8, 8).expect("within").part(0, 8).expect("all of it");
    assert_eq!(part.access(), Some(AccessFlags::empty()));
    let refused = a.read(&part, lease.remote()).expect_err("nothing can land");
    assert!(matches!(refused.kind, TransferErrorKind::LocalAccess { .. }), "{refused}");
}
