//! The books of one-sided operations, and completions that a queue hands out.

use bareverbs_core::one_sided::{Accepted, Books};
use bareverbs_core::verbs::{Wc, WcStatus};

use crate::link::provider::Device;

const QP_NUM: u32 = 17;

#[test]
fn a_completion_of_another_queue_or_queue_pair_ends_nothing_however_well_its_number_fits() {
    let (mut own, mut other) = (Device::new(QP_NUM), Device::new(QP_NUM));
    let (mut queue, mut stranger) = (own.queue(), other.queue());
    let mut books = Books::<2>::new(queue.id(), QP_NUM, 4).expect("numbers");
    let start = books.start(1).expect("room");
    let (wr_id, slot) = (start.wr_id(0), start.slot());
    let operation = books.posted(start);
    let before = books;
    for status in [WcStatus::SUCCESS, WcStatus::REM_ACCESS_ERR] {
        let good = Wc { wr_id, status, qp_num: QP_NUM, ..Wc::default() };
        let of_others = [Wc { qp_num: QP_NUM + 1, ..good }, Wc { qp_num: 0, ..good }];
        for (device, queue, wc) in [(&mut own, &mut queue, of_others[0]), (&mut other, &mut stranger, good)] {
            device.world().completions.push_back(wc);
            let mut room = [Wc::default()];
            let completion = queue.poll(&mut room).expect("it is there").next().expect("it is there");
            assert_eq!((books.accept(&completion), books), (Accepted::Foreign, before), "{wc:?}");
        }
        own.world().completions.push_back(of_others[1]);
        let mut room = [Wc::default()];
        let completion = queue.poll(&mut room).expect("it is there").next().expect("it is there");
        assert_eq!((books.accept(&completion), books), (Accepted::Foreign, before));
    }
    own.world().completions.push_back(Wc { wr_id, qp_num: QP_NUM, ..Wc::default() });
    let mut room = [Wc::default()];
    let completion = queue.poll(&mut room).expect("it is there").next().expect("it is there");
    assert_eq!(books.accept(&completion), Accepted::Ended { operation, slot }, "its own");
}
