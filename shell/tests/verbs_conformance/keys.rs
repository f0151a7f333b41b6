//! Indirect keys: several regions presented as one range that starts at 0. Run where the device is an mlx5, and on the
//! software fabric; no row of it was ever run on an mlx5 device.

use bareverbs_core::verbs::mlx5dv::MkeyFlags;
use bareverbs_core::verbs::{AccessFlags, QpType, SendFlags, WcOpcode, WcStatus, WrOpcode};

use crate::raw::keys::{Binder, at, create_key, destroy_key, entry, key, listed, lkey};
use crate::raw::one_sided::{ALL, RELIABLE, Scene, Word, compare_swap, fetch_add, read, write};
use crate::raw::{End, Env, MEMORY, clear_errno, errno, post_send};
use crate::{EINVAL, ENOMEM, OK};

const EOPNOTSUPP: i32 = 95;
const PART: usize = 4096;
const _: () = assert!(MEMORY >= 4 * PART);

/// Two ends, and a key over the second's pages 3, 1 and 2, in this order.
struct Keyed {
    scene: Scene,
    binder: Binder,
    key: *mut bareverbs_core::verbs::mlx5dv::Mkey,
    regions: Vec<*mut bareverbs_core::verbs::Mr>,
}

impl Keyed {
    fn new(env: &Env, access: AccessFlags) -> Self {
        let scene = Scene::new(env, RELIABLE);
        let other = &scene.other;
        let mut binder = Binder::new(other);
        let key = key(other, 4);
        let page = |at: usize| {
            let memory = std::ptr::slice_from_raw_parts_mut(other.memory.cast::<u8>().wrapping_add(at * PART), PART);
            let mr = env.reg_mr(other.pd, memory, ALL);
            assert!(!mr.is_null());
            mr
        };
        let regions = vec![page(3), page(1), page(2)];
        let list: Vec<_> = regions.iter().map(|mr| listed(*mr)).collect();
        let wc = binder.bind(key, access, &list);
        assert_eq!(wc.status, OK);
        Self { scene, binder, key, regions }
    }

    fn tear_down(self) {
        let env = self.scene.env.clone();
        assert_eq!(destroy_key(&env, self.key), 0);
        for region in self.regions {
            assert_eq!(env.dereg_mr(region), 0);
        }
        self.binder.tear_down();
        self.scene.tear_down();
    }

    /// The status that one operation of 8 bytes ends with.
    fn status(&self, request: crate::raw::Request<bareverbs_core::verbs::SendWr>) -> WcStatus {
        self.scene.post(request);
        self.scene.one.poll(1)[0].status
    }
}

pub fn a_key_presents_its_regions_as_one_range(env: &Env) {
    let keyed = Keyed::new(env, ALL);
    let Scene { one, other, .. } = &keyed.scene;
    let bytes: Vec<u8> = (0..3 * PART).map(|at| (at % 251) as u8 + 1).collect();
    one.write(0, &bytes);
    // All of it at once, over both edges.
    assert_eq!(keyed.status(write(1, one.sge(0, 3 * PART as u32), at(keyed.key, 0))), OK);
    for (place, page) in [(0, 3), (1, 1), (2, 2)] {
        assert_eq!(other.read(page * PART, PART), bytes[place * PART..][..PART], "{page}");
    }
    assert_eq!((other.read(0, PART), other.read(4 * PART, PART)), (vec![0; PART], vec![0; PART]));
    keyed.tear_down();
}

pub fn reads_atomics_and_local_entries_go_through_a_key(env: &Env) {
    let keyed = Keyed::new(env, ALL);
    let Scene { one, other, .. } = &keyed.scene;
    // The last 8 bytes of page 3 and the first 8 of page 1 are neighbours.
    other.write(4 * PART - 8, &[3; 8]);
    other.write(PART, &[1; 8]);
    assert_eq!(keyed.status(read(1, one.sge(64, 16), at(keyed.key, PART as u64 - 8))), OK);
    assert_eq!(one.read(64, 16), [[3; 8], [1; 8]].concat());
    other.set_word(PART, 40);
    assert_eq!(keyed.status(fetch_add(2, one.sge(0, 8), at(keyed.key, PART as u64), 2)), OK);
    assert_eq!((one.word(0), other.word(PART)), (40, 42));
    assert_eq!(keyed.status(compare_swap(3, one.sge(0, 8), at(keyed.key, PART as u64), 42, 7)), OK);
    assert_eq!((one.word(0), other.word(PART)), (42, 7));
    // The other end sends from and receives into its own key.
    other.write(PART, &[5; 8]);
    one.post_receive(4, 128, 16);
    let sent = crate::raw::send(5, entry(keyed.key, PART as u64 - 8, 16));
    assert_eq!(post_send(other.qp, &mut [sent]), (0, None));
    assert_eq!((other.poll(1)[0].status, one.poll(1)[0].status), (OK, OK));
    assert_eq!(one.read(128, 16), [[3; 8], [5; 8]].concat());
    let received = crate::raw::receive(6, entry(keyed.key, 2 * PART as u64 - 4, 8));
    assert_eq!(crate::raw::post_recv(other.qp, &mut [received]), (0, None));
    one.write(0, &[9; 8]);
    one.post_send(7, 0, 8);
    assert_eq!((one.poll(1)[0].status, other.poll(1)[0].status), (OK, OK));
    assert_eq!((other.read(2 * PART - 4, 4), other.read(2 * PART, 4)), (vec![9; 4], vec![9; 4]));
    keyed.tear_down();
}

pub fn a_key_starts_at_zero_and_ends_with_its_regions(env: &Env) {
    let end = 3 * PART as u64;
    for (offset, status) in [
        (0, OK),
        (end - 8, OK),
        (end - 7, WcStatus::REM_ACCESS_ERR),
        (end, WcStatus::REM_ACCESS_ERR),
        (u64::MAX - 3, WcStatus::REM_ACCESS_ERR),
    ] {
        let keyed = Keyed::new(env, ALL);
        assert_eq!(keyed.status(write(1, keyed.scene.one.sge(0, 8), at(keyed.key, offset))), status, "{offset:#x}");
        keyed.tear_down();
    }
    // A virtual address is no offset.
    let keyed = Keyed::new(env, ALL);
    let address = keyed.scene.other.sge(3 * PART, 0).addr;
    assert_eq!(keyed.status(write(1, keyed.scene.one.sge(0, 8), at(keyed.key, address))), WcStatus::REM_ACCESS_ERR);
    keyed.tear_down();
}

pub fn a_key_permits_what_it_was_bound_with(env: &Env) {
    let local = AccessFlags::LOCAL_WRITE;
    for (access, writes, reads) in [
        (local | AccessFlags::REMOTE_WRITE, OK, WcStatus::REM_ACCESS_ERR),
        (local | AccessFlags::REMOTE_READ, WcStatus::REM_ACCESS_ERR, OK),
        (local, WcStatus::REM_ACCESS_ERR, WcStatus::REM_ACCESS_ERR),
    ] {
        let keyed = Keyed::new(env, access);
        assert_eq!(keyed.status(write(1, keyed.scene.one.sge(0, 8), at(keyed.key, 0))), writes, "{access:?}");
        keyed.tear_down();
        let keyed = Keyed::new(env, access);
        assert_eq!(keyed.status(read(1, keyed.scene.one.sge(0, 8), at(keyed.key, 0))), reads, "{access:?}");
        keyed.tear_down();
    }
}

pub fn a_key_that_is_not_bound_reaches_nothing(env: &Env) {
    let scene = Scene::new(env, RELIABLE);
    let fresh = key(&scene.other, 4);
    scene.post(write(1, scene.one.sge(0, 8), at(fresh, 0)));
    assert_eq!(scene.one.poll(1)[0].status, WcStatus::REM_ACCESS_ERR);
    assert_eq!(destroy_key(env, fresh), 0);
    scene.tear_down();
}

pub fn a_binding_completes_with_its_number_and_opcode(env: &Env) {
    let end = End::with(env, crate::raw::CAP, |init| init.qp_type = QpType::RC);
    let mut binder = Binder::new(&end);
    let mr = end.register(ALL);
    for wr_id in [0, 1, u64::MAX] {
        let key = key(&end, 1);
        assert_eq!(binder.post(wr_id, key, ALL, &[listed(mr)]), Ok(()));
        let wc = env.poll(binder.cq, 1)[0];
        assert_eq!((wc.status, wc.wr_id, wc.opcode), (OK, wr_id, WcOpcode::DRIVER1));
        assert_eq!(destroy_key(env, key), 0);
    }
    assert_eq!(env.dereg_mr(mr), 0);
    binder.tear_down();
    end.tear_down();
}

pub fn what_complete_refuses_posts_nothing(env: &Env) {
    let end = End::new(env);
    let mut binder = Binder::new(&end);
    let mr = end.register(ALL);
    let (small, large) = (key(&end, 1), key(&end, 64));
    let list = |count: usize| vec![listed(mr); count];
    for (refused, answer) in [
        (binder.post(1, small, ALL | AccessFlags::RELAXED_ORDERING, &list(1)), EINVAL),
        (binder.post(2, small, AccessFlags::MW_BIND, &list(1)), EINVAL),
        // The key was asked for with 1 and has 4.
        (binder.post(3, small, ALL, &list(5)), ENOMEM),
        // The queue pair was asked for 30 and has 32.
        (binder.post(4, large, ALL, &list(33)), ENOMEM),
    ] {
        assert_eq!(refused, Err(answer));
    }
    assert_eq!(env.drain(binder.cq).len(), 0);
    assert_eq!(binder.bind(small, ALL, &list(4)).status, OK);
    assert_eq!(binder.bind(large, ALL, &list(32)).status, OK);
    assert_eq!([destroy_key(env, small), destroy_key(env, large), env.dereg_mr(mr)], [0; 3]);
    binder.tear_down();
    end.tear_down();
}

pub fn keys_are_made_of_fours_and_of_known_flags(env: &Env) {
    let end = End::new(env);
    for (asked, got) in [(1, 4), (4, 4), (5, 8), (30, 32)] {
        let (key, rounded) = create_key(&end, MkeyFlags::INDIRECT, asked);
        assert!(!key.is_null());
        assert_eq!(rounded, got);
        assert_eq!(lkey(key) & 0xff, 0, "a fresh key has no tag");
        assert_eq!(at(key, 0).rkey, lkey(key));
        assert_eq!(destroy_key(env, key), 0);
    }
    for flags in [MkeyFlags::empty(), MkeyFlags::from_bits_retain(1 << 30)] {
        clear_errno();
        assert!(create_key(&end, flags, 4).0.is_null());
        assert_eq!(errno(), EOPNOTSUPP);
    }
    end.tear_down();
}

pub fn a_key_bound_twice_needs_an_invalidation_between(env: &Env) {
    let end = End::new(env);
    let mut binder = Binder::new(&end);
    let (mr, key) = (end.register(ALL), key(&end, 4));
    assert_eq!(binder.bind(key, ALL, &[listed(mr)]).status, OK);
    let mut invalidate = crate::raw::gather(9, vec![]);
    invalidate.opcode = WrOpcode::LOCAL_INV;
    invalidate.send_flags = SendFlags::SIGNALED;
    // In C the key lies in a union with the immediate, in the machine's own order.
    invalidate.imm_data = bareverbs_core::verbs::Be32::new(u32::from_be(lkey(key)));
    assert_eq!(post_send(binder.qp, &mut [invalidate]), (0, None));
    let wc = env.poll(binder.cq, 1)[0];
    assert_eq!((wc.wr_id, wc.status, wc.opcode), (9, OK, WcOpcode::LOCAL_INV));
    assert_eq!(binder.bind(key, ALL, &[listed(mr)]).status, OK);
    assert_ne!(binder.bind(key, ALL, &[listed(mr)]).status, OK);
    assert_eq!([destroy_key(env, key), env.dereg_mr(mr)], [0; 2]);
    binder.tear_down();
    end.tear_down();
}
