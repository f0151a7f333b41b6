//! What befalls messages of reliable queue pairs on their way is made good, or the sender learns of it.

use bareverbs_core::verbs::{PortState, WcStatus};
use bareverbs_shell::soft::{MessageFault, MessageOdds, SoftConfig, SoftDevice, SoftFabric};

use super::raw::on_soft::{env, modes};
use super::raw::reliable::{PATIENT, Patience, rc_connect, rc_end, rc_pair};
use super::raw::{CAP, statuses};

const OK: WcStatus = WcStatus::SUCCESS;

fn fabrics() -> impl Iterator<Item = SoftFabric> {
    modes().map(|mode| SoftFabric::new(SoftConfig::default().mode(mode)).expect("a free slot"))
}

#[test]
fn a_message_lost_or_spoilt_or_doubled_arrives_once_and_whole() {
    let faults = [
        MessageFault::Drop,
        MessageFault::Duplicate,
        MessageFault::Reorder,
        MessageFault::Corrupt { offset_bytes: 3 },
        MessageFault::Delay { messages: 2 },
        MessageFault::Hold,
    ];
    for fabric in fabrics() {
        for fault in faults {
            let (one, other) = rc_pair(&env(&fabric, "soft0"), PATIENT);
            fabric.message_fault(2, fault);
            for id in 0..4 {
                other.post_receive(id, id as usize * 64, 64);
                one.write(id as usize * 64, &[id as u8; 64]);
            }
            for id in 0..3 {
                one.post_send(id, id as usize * 64, 64);
            }
            assert_eq!(statuses(&one.poll(3)), [(0, OK), (1, OK), (2, OK)], "{fault:?}");
            assert_eq!(statuses(&other.poll(3)), [(0, OK), (1, OK), (2, OK)], "{fault:?}");
            assert!((0..3).all(|id| other.read(id * 64, 64) == [id as u8; 64]), "{fault:?}");
            assert!(one.env.drain(other.cq).is_empty(), "{fault:?}");
            one.tear_down();
            other.tear_down();
        }
    }
}

#[test]
fn so_many_losses_as_there_are_retries_are_made_good_and_one_more_is_not() {
    for fabric in fabrics() {
        for retry_cnt in [0, 3, 7] {
            for (losses, outcome) in [(retry_cnt, OK), (retry_cnt + 1, WcStatus::RETRY_EXC_ERR)] {
                let (one, other) = rc_pair(&env(&fabric, "soft0"), Patience { retry_cnt, ..PATIENT });
                other.post_receive(1, 0, 64);
                (1..=u64::from(losses)).for_each(|nth| fabric.message_fault(nth, MessageFault::Drop));
                one.post_send(2, 0, 64);
                assert_eq!(statuses(&one.poll(1)), [(2, outcome)], "{losses} of {retry_cnt}");
                one.tear_down();
                other.tear_down();
            }
        }
    }
}

#[test]
fn a_lossy_wire_loses_nothing() {
    for fabric in fabrics() {
        let (one, other) = rc_pair(&env(&fabric, "soft0"), PATIENT);
        let odds = MessageOdds { drop: 100_000, duplicate: 100_000, reorder: 50_000, ..MessageOdds::default() };
        fabric.message_odds(5, odds);
        for id in 0..200 {
            other.post_receive(id, 0, 64);
            one.post_send(id, 0, 64);
            assert_eq!(statuses(&other.poll(1)), [(id, OK)]);
            assert_eq!(statuses(&one.poll(1)), [(id, OK)]);
        }
        assert!(fabric.message_faults_met().len() > 20);
        one.tear_down();
        other.tear_down();
    }
}

#[test]
fn the_port_of_either_end_can_be_the_one_that_is_down() {
    for down in ["soft0", "soft1"] {
        let devices = vec![SoftDevice::new("soft0"), SoftDevice::new("soft1")];
        let fabric = SoftFabric::new(SoftConfig::default().devices(devices)).expect("a free slot");
        let ends = (rc_end(&env(&fabric, "soft0"), CAP), rc_end(&env(&fabric, "soft1"), CAP));
        let (one, other) = rc_connect(ends.0, ends.1, Patience { retry_cnt: 3, ..PATIENT });
        other.post_receive(1, 0, 64);
        other.post_receive(2, 0, 64);
        one.post_send(3, 0, 64);
        assert_eq!((statuses(&one.poll(1)), statuses(&other.poll(1))), (vec![(3, OK)], vec![(1, OK)]));
        fabric.set_port_state(down, 1, PortState::DOWN);
        one.post_send(4, 0, 64);
        assert_eq!(statuses(&one.poll(1)), [(4, WcStatus::RETRY_EXC_ERR)], "{down}");
        assert!(one.env.poll_once(other.cq).is_none(), "{down}");
        one.tear_down();
        other.tear_down();
    }
}

#[test]
fn a_port_that_is_down_is_silence_until_it_is_up_again() {
    let fabric = SoftFabric::new(SoftConfig::default()).expect("a free slot");
    let (one, other) = rc_pair(&env(&fabric, "soft0"), Patience { retry_cnt: 3, ..PATIENT });
    other.post_receive(1, 0, 64);
    fabric.set_port_state("soft0", 1, PortState::DOWN);
    one.post_send(2, 0, 64);
    assert!(one.env.poll_once(one.cq).is_none());
    fabric.set_port_state("soft0", 1, PortState::ACTIVE);
    assert_eq!(statuses(&one.poll(1)), [(2, OK)]);
    fabric.set_port_state("soft0", 1, PortState::DOWN);
    one.post_send(3, 0, 64);
    assert_eq!(statuses(&one.poll(1)), [(3, WcStatus::RETRY_EXC_ERR)]);
    one.tear_down();
    other.tear_down();
}
