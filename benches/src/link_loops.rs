//! Our loops over a link, each the counterpart of one in `c/loops.c`: it does one thing `n` times and answers what came of
//! it, 0 if anything was at fault. The library's calls are inlined into them; they themselves are not inlined anywhere.

use bareverbs_core::link::{Event, Immediate, Link};
use bareverbs_core::verbs::Wc;
use bareverbs_core::verbs::inline_calls::CompletionQueueCalls;

/// A link whose numbers travel as immediate data, with equally many frames each way.
type Numbered<const FRAMES: usize> = Link<Immediate, FRAMES, FRAMES>;

/// Room for completions, at a cache line's start, as C's has it.
#[repr(align(64))]
struct Room([Wc; 16]);

/// One send, signalled.
#[inline(never)]
pub fn post<const FRAMES: usize>(link: &mut Numbered<FRAMES>, n: u64, bytes: usize) -> u64 {
    let mut sum = 0;
    for _ in 0..n {
        sum += u64::from(link.next_frame().is_ok_and(|frame| frame.post(bytes).is_ok()));
    }
    sum
}

/// One send of many: every 16th is signalled.
#[inline(never)]
pub fn post_more<const FRAMES: usize>(link: &mut Numbered<FRAMES>, n: u64, bytes: usize) -> u64 {
    let mut sum = 0;
    for _ in 0..n {
        sum += u64::from(link.next_frame().is_ok_and(|frame| frame.post_more(bytes).is_ok()));
    }
    sum
}

/// A chain of 16.
#[inline(never)]
pub fn chain<const FRAMES: usize>(link: &mut Numbered<FRAMES>, n: u64, bytes: usize) -> u64 {
    let mut sum = 0;
    for _ in 0..n {
        let mut chain = link.chain();
        for _ in 0..16 {
            let Ok(frame) = chain.next_frame() else { return 0 };
            if frame.stage(bytes).is_err() {
                return 0;
            }
        }
        sum += u64::from(chain.post().is_ok());
    }
    sum
}

/// One receive.
#[inline(never)]
pub fn post_receive<const FRAMES: usize>(link: &mut Numbered<FRAMES>, n: u64) -> u64 {
    let mut sum = 0;
    for _ in 0..n {
        match link.post_receives(1) {
            Ok(count) => sum += count as u64,
            Err(_) => return 0,
        }
    }
    sum
}

/// 16 send completions, checked.
#[inline(never)]
pub fn poll_sends<const FRAMES: usize>(link: &mut Numbered<FRAMES>, queue: &mut CompletionQueueCalls, n: u64) -> u64 {
    let Room(room) = &mut Room([Wc::default(); 16]);
    let mut sum = 0;
    for _ in 0..n {
        let Ok(completions) = queue.poll(room) else { return 0 };
        for completion in completions {
            match link.accept(&completion) {
                Ok(Event::Sent { released }) => sum += u64::from(released),
                _ => return 0,
            }
        }
    }
    sum
}

/// 16 receive completions, status and sequence checked.
#[inline(never)]
pub fn poll_receives<const FRAMES: usize>(
    link: &mut Numbered<FRAMES>,
    queue: &mut CompletionQueueCalls,
    n: u64,
) -> u64 {
    let Room(room) = &mut Room([Wc::default(); 16]);
    let mut sum = 0;
    for _ in 0..n {
        let Ok(completions) = queue.poll(room) else { return 0 };
        for completion in completions {
            match link.accept(&completion) {
                Ok(Event::Received(frame)) => sum += frame.payload().len() as u64,
                _ => return 0,
            }
        }
    }
    sum
}

/// 16 receive completions, status and sequence checked, each frame posted again.
#[inline(never)]
pub fn poll_and_repost<const FRAMES: usize>(
    link: &mut Numbered<FRAMES>,
    queue: &mut CompletionQueueCalls,
    n: u64,
) -> u64 {
    let Room(room) = &mut Room([Wc::default(); 16]);
    let mut sum = 0;
    for _ in 0..n {
        let Ok(completions) = queue.poll(room) else { return 0 };
        for completion in completions {
            match link.accept(&completion) {
                Ok(Event::Received(frame)) => {
                    sum += frame.payload().len() as u64;
                    if frame.repost().is_err() {
                        return 0;
                    }
                }
                _ => return 0,
            }
        }
    }
    sum
}

/// A poll that finds nothing.
#[inline(never)]
pub fn poll_empty(queue: &mut CompletionQueueCalls, n: u64) -> u64 {
    let Room(room) = &mut Room([Wc::default(); 16]);
    let mut sum = 0;
    for _ in 0..n {
        let Ok(completions) = queue.poll(room) else { return 0 };
        sum += u64::from(completions.len() == 0);
    }
    sum
}
