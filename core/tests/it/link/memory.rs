use bareverbs_core::link::{
    FrameStorage, Geometry, Header, Immediate, LinkRules, LinkSetup, LinkSetupError, PAGE_BYTES, Sequence,
};
use bareverbs_core::verbs::{LinkLayer, QpCap};

use super::provider::{Device, QP_NUM, Rig, Seen, Wishes, accept, leaked_memory};

static STORAGE: FrameStorage<8192> = FrameStorage::new();

#[test]
fn storage_has_one_claim_at_a_time_and_is_zeroed_and_page_aligned() {
    let claims: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| STORAGE.claim())).collect();
        threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
    });
    let [memory] = &claims[..] else { panic!("{} claims", claims.len()) };
    assert!(memory.as_ptr().addr().is_multiple_of(PAGE_BYTES));
    assert_eq!(memory.len_bytes(), 8192);
    // SAFETY: the claim makes it ours alone.
    assert!(unsafe { core::slice::from_raw_parts(memory.as_ptr(), 8192) }.iter().all(|byte| *byte == 0));
    assert!(STORAGE.claim().is_none());
}

#[test]
fn storage_can_be_claimed_anew_when_all_that_was_claimed_is_dropped() {
    static STORAGE: FrameStorage<4096> = FrameStorage::new();
    let (first, rest) = STORAGE.claim().unwrap().split_at(64).unwrap();
    let rest = rest.split_at(4096).unwrap_err();
    drop(first);
    assert!(STORAGE.claim().is_none());
    drop(rest);
    // SAFETY: the claim makes it ours alone.
    unsafe { STORAGE.claim().unwrap().as_ptr().write(7) };
    let memory = STORAGE.claim().unwrap();
    assert_eq!(memory.len_bytes(), 4096);
    // SAFETY: the claim makes it ours alone.
    assert_eq!(unsafe { memory.as_ptr().read() }, 7, "as the last owner left it");
    core::mem::forget(memory);
    assert!(STORAGE.claim().is_none());
}

#[test]
fn what_a_link_took_comes_back_by_release_alone() {
    static STORAGE: FrameStorage<{ 16 * 256 }> = FrameStorage::new();
    for _ in 0..3 {
        let mut rig: Rig<Immediate> =
            Rig::over(Immediate, Wishes::default(), Device::new(QP_NUM), STORAGE.claim().unwrap()).unwrap();
        rig.link.post_receives(8).unwrap();
        let held = rig.link.into_memory();
        assert!(STORAGE.claim().is_none());
        // SAFETY: the test's device is the queue pair, and does nothing any more; nothing is registered.
        let memory = unsafe { held.release() };
        assert_eq!(memory.len_bytes(), 16 * 256);
        assert!(STORAGE.claim().is_none());
        drop(memory);
    }
    // A link that could not be made took nothing.
    let geometry = Geometry { frame_bytes: 100, ..Wishes::default().geometry };
    let wishes = Wishes { geometry, ..Wishes::default() };
    assert!(Rig::<Immediate>::over(Immediate, wishes, Device::new(QP_NUM), STORAGE.claim().unwrap()).is_err());
    // Its device may still write: no drop gives it back, neither the link's nor the held memory's.
    let rig: Rig<Immediate> =
        Rig::over(Immediate, Wishes::default(), Device::new(QP_NUM), STORAGE.claim().unwrap()).unwrap();
    drop(rig);
    assert!(STORAGE.claim().is_none());
    static OTHER: FrameStorage<{ 16 * 256 }> = FrameStorage::new();
    let rig: Rig<Immediate> =
        Rig::over(Immediate, Wishes::default(), Device::new(QP_NUM), OTHER.claim().unwrap()).unwrap();
    drop(rig.link.into_memory());
    assert!(OTHER.claim().is_none());
}

#[test]
fn memory_splits_at_any_place_within_it() {
    let memory = leaked_memory(4096);
    let base = memory.as_ptr().addr();
    let memory = memory.split_at(4097).unwrap_err();
    let (first, rest) = memory.split_at(4096).unwrap();
    assert_eq!((first.len_bytes(), rest.len_bytes()), (4096, 0));
    let (first, rest) = first.split_at(64).unwrap();
    assert_eq!((first.as_ptr().addr(), rest.as_ptr().addr()), (base, base + 64));
    assert_eq!((first.len_bytes(), rest.len_bytes()), (64, 4032));
}

#[test]
fn a_link_may_move_between_and_after_posts() {
    let mut rig: Rig<Immediate> = Rig::new(Immediate);
    for number in 0..40u32 {
        rig.link.post_receives(8).unwrap();
        rig.send(&number.to_le_bytes()).unwrap();
        assert_eq!(rig.wire(), number.to_le_bytes());
        rig.arrive(&number.to_le_bytes(), Some(number));
        rig.complete_send();
        rig = *Box::new(rig);
        let mut others = vec![rig];
        others.reserve(17);
        rig = others.remove(0);
        assert!(matches!(accept!(rig), Seen::Received { payload, .. } if payload == number.to_le_bytes()));
        assert_eq!(accept!(rig), Seen::Sent(1));
    }
}

#[test]
fn a_link_with_frames_in_flight_goes_to_another_thread() {
    let mut rig: Rig<Immediate> = Rig::new(Immediate);
    rig.send(b"x").unwrap();
    rig.complete_send();
    let Rig { link, mut queue, device } = rig;
    let outstanding = std::thread::spawn(move || {
        let mut link = link;
        let mut room = [bareverbs_core::verbs::Wc::default()];
        let completion = queue.poll(&mut room).unwrap().next().unwrap();
        assert_eq!(Seen::of(link.accept(&completion)), Seen::Sent(1));
        link.outstanding()
    });
    assert_eq!(outstanding.join().unwrap().sends, 0);
    drop(device);
}

#[test]
fn forgotten_frames_change_nothing() {
    let mut rig: Rig<Immediate, 2, 2> = Rig::new(Immediate);
    for _ in 0..5 {
        core::mem::forget(rig.link.next_frame().unwrap());
    }
    rig.send(b"x").unwrap();
    rig.link.post_receives(2).unwrap();
    for number in 0..5 {
        rig.arrive(b"x", Some(number));
        let mut room = [bareverbs_core::verbs::Wc::default()];
        let completion = rig.queue.poll(&mut room).unwrap().next().unwrap();
        core::mem::forget(rig.link.accept(&completion));
        assert_eq!(rig.link.post_receives(2), Ok(1));
    }
}

fn refused(change: impl FnOnce(&mut Geometry, &mut LinkRules, &mut usize)) -> Option<LinkSetupError> {
    let Wishes { mut geometry, mut rules, .. } = Wishes::default();
    let mut bytes = 16 * 256;
    change(&mut geometry, &mut rules, &mut bytes);
    let queue = Device::new(1).queue();
    let setup = LinkSetup {
        send_queue: queue.id(),
        recv_queue: queue.id(),
        geometry,
        rules,
        tx_start: Sequence::default(),
        rx_start: Sequence::default(),
        key: None,
    };
    setup.check::<Header, 8, 8>(&leaked_memory(bytes)).err()
}

#[test]
fn what_cannot_be_a_link_is_refused_before_it_is_one() {
    assert_eq!(refused(|_, _, _| ()), None);
    let size = |got_bytes| LinkSetupError::FrameSize { got_bytes, multiple_of_bytes: 64 };
    assert_eq!(refused(|geometry, _, _| geometry.frame_bytes = 0), Some(size(0)));
    assert_eq!(refused(|geometry, _, _| geometry.frame_bytes = 100), Some(size(100)));
    let thunderbolt = LinkRules::for_link_layer(LinkLayer::THUNDERBOLT);
    let whole = LinkSetupError::FrameSize { got_bytes: 256, multiple_of_bytes: 4096 };
    assert_eq!(refused(|_, rules, _| *rules = thunderbolt), Some(whole));
    let room = LinkSetupError::NoPayloadRoom { frame_bytes: 64, header_bytes: 64 };
    assert_eq!(refused(|geometry, _, _| geometry.frame_bytes = 64), Some(room));
    let small = LinkSetupError::MemoryTooSmall { got_bytes: 4095, need_bytes: 4096 };
    assert_eq!(refused(|_, _, bytes| *bytes = 4095), Some(small));
    let depth = LinkSetupError::NoDepth { send_capacity: 0, recv_capacity: 1000 };
    assert_eq!(refused(|geometry, _, _| geometry.send_capacity = 0), Some(depth));
    let one_too_few = |geometry: &mut Geometry, rules: &mut LinkRules, bytes: &mut usize| {
        *rules = thunderbolt;
        (geometry.frame_bytes, geometry.send_capacity, geometry.recv_capacity) = (8192, 1, 2);
        *bytes = 16 * 8192;
    };
    let depth = LinkSetupError::NoDepth { send_capacity: 1, recv_capacity: 2 };
    assert_eq!(refused(one_too_few), Some(depth));
}

#[test]
fn memory_that_starts_between_frames_is_refused() {
    let (_, memory) = leaked_memory(8192).split_at(32).unwrap();
    let device = Device::new(1);
    let queue = device.queue();
    let Wishes { geometry, rules, .. } = Wishes::default();
    let start = Sequence::default();
    let (send_queue, recv_queue) = (queue.id(), queue.id());
    let setup = LinkSetup { send_queue, recv_queue, geometry, rules, tx_start: start, rx_start: start, key: None };
    let misaligned = Err(LinkSetupError::Misaligned { multiple_of_bytes: 64 });
    assert_eq!(setup.check::<Immediate, 8, 8>(&memory), misaligned);
}

#[test]
fn one_request_of_each_queue_is_set_aside_for_its_marker() {
    let cap = QpCap { max_send_wr: 33, max_recv_wr: 0, ..QpCap::default() };
    let expected = Geometry { frame_bytes: 4096, send_capacity: 32, recv_capacity: 0 };
    assert_eq!(Geometry::of_queues(4096, &cap), expected);
}
