//! The same bytes under the keys of two fabrics, by two handles that know nothing of each other: safe code, so no data race.

use std::sync::Barrier;

use bareverbs_shell::memory::{LocalMemory, OwnedBytes};
use bareverbs_shell::soft::Mode;

use crate::scene::{ALL, content, memory, pair, published, succeed, transfers_config, view};
use crate::world::World;

#[test]
fn writes_of_two_fabrics_into_the_same_bytes_at_once_come_one_after_the_other() {
    const LEN: usize = 1 << 20;
    let owner = OwnedBytes::from(vec![0; LEN]);
    let (together, apart) = (Barrier::new(3), Barrier::new(3));
    std::thread::scope(|threads| {
        for number in [1, 2] {
            let there = LocalMemory::new(owner.clone()).expect("host memory");
            let (together, apart) = (&together, &apart);
            threads.spawn(move || {
                let world = World::soft(Mode::Prompt);
                let (mut a, b) = pair(&world, &transfers_config());
                let here = memory(&[number; LEN]);
                let (local, lease) = (view(&a, &here, ALL), published(&b, &there, ALL));
                for _ in 0..50 {
                    together.wait();
                    let write = a.write(&local, lease.remote()).expect("posted");
                    succeed(&mut a, write);
                    apart.wait();
                }
            });
        }
        let all = LocalMemory::new(owner.clone()).expect("host memory");
        // Held against each other at the end: the writers wait for this thread in every round.
        let mut torn = Vec::new();
        for round in 0..50 {
            together.wait();
            apart.wait();
            // Both are done, and go on only when this has come around.
            let bytes = content(&all);
            if bytes[0] == 0 || bytes.iter().any(|byte| *byte != bytes[0]) {
                torn.push(round);
            }
        }
        assert_eq!(torn, [] as [i32; 0], "rounds in which both were there in part");
    });
}
