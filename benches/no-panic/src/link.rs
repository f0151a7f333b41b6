//! Posts, polls and what completions mean, for each of the three carriers.

use bareverbs_core::link::Direction;
use bareverbs_core::link::{
    Carrier, Event, Header, Immediate, Link, LinkError, Posted, Raw, ReceiveError, SendError, Sequence,
};
use bareverbs_core::verbs::inline_calls::{
    Completion, CompletionQueueCalls, Notify, PollError, PostError, QueuePairCalls, RawErrno,
};
use bareverbs_core::verbs::{RecvWr, SendWr, Wc};

use crate::exported;

type Numbered = Link<Immediate, 64, 64>;
type Headed = Link<Header, 64, 64>;
type Bare = Link<Raw, 64, 64>;

exported! {
    fn proof_bare_post_send(calls: &mut QueuePairCalls, chain: *mut SendWr) -> Result<(), PostError> {
        // SAFETY: for linking only.
        unsafe { calls.post_send(chain) }
    }

    fn proof_bare_post_receive(calls: &mut QueuePairCalls, chain: *mut RecvWr) -> Result<(), PostError> {
        // SAFETY: for linking only.
        unsafe { calls.post_recv(chain) }
    }

    fn proof_poll(queue: &mut CompletionQueueCalls, room: &mut &mut [Wc]) -> Result<u64, PollError> {
        let completions = queue.poll(room)?;
        Ok(completions.map(|completion| completion.wr_id() ^ u64::from(completion.outcome().is_ok())).sum())
    }

    fn proof_arm(queue: &mut CompletionQueueCalls, solicited: usize) -> Result<(), RawErrno> {
        queue.arm(if solicited == 0 { Notify::Any } else { Notify::Solicited })
    }

    fn proof_post_immediate(link: &mut Numbered, bytes: usize) -> Result<Sequence, SendError> { post(link, bytes) }
    fn proof_post_header(link: &mut Headed, bytes: usize) -> Result<Sequence, SendError> { post(link, bytes) }
    fn proof_post_raw(link: &mut Bare, bytes: usize) -> Result<Sequence, SendError> { post(link, bytes) }

    fn proof_post_more_immediate(link: &mut Numbered, bytes: usize) -> Result<Sequence, SendError> {
        link.next_frame()?.post_more(bytes)
    }
    fn proof_post_more_header(link: &mut Headed, bytes: usize) -> Result<Sequence, SendError> {
        link.next_frame()?.post_more(bytes)
    }

    fn proof_chain_immediate(link: &mut Numbered, lengths: &&[usize]) -> Result<Posted, SendError> { chain(link, lengths) }
    fn proof_chain_header(link: &mut Headed, lengths: &&[usize]) -> Result<Posted, SendError> { chain(link, lengths) }
    fn proof_chain_raw(link: &mut Bare, lengths: &&[usize]) -> Result<Posted, SendError> { chain(link, lengths) }

    fn proof_post_receives(link: &mut Numbered, max: usize) -> Result<usize, ReceiveError> { link.post_receives(max) }

    fn proof_accept_immediate(link: &mut Numbered, completion: &Completion<'_>) -> Result<u64, LinkError> {
        accept(link, completion)
    }
    fn proof_accept_header(link: &mut Headed, completion: &Completion<'_>) -> Result<u64, LinkError> {
        accept(link, completion)
    }
    fn proof_accept_raw(link: &mut Bare, completion: &Completion<'_>) -> Result<u64, LinkError> {
        accept(link, completion)
    }

    fn proof_poll_accept_repost_immediate(link: &mut Numbered, queue: &mut CompletionQueueCalls) -> Option<u64> {
        turn(link, queue)
    }
    fn proof_poll_accept_repost_header(link: &mut Headed, queue: &mut CompletionQueueCalls) -> Option<u64> {
        turn(link, queue)
    }
    fn proof_poll_accept_repost_raw(link: &mut Bare, queue: &mut CompletionQueueCalls) -> Option<u64> {
        turn(link, queue)
    }

    fn proof_break(link: &mut Numbered, error: &PollError) -> bool {
        link.break_with(*error);
        link.cause().is_some()
    }

    fn proof_marker(link: &mut Numbered, receives: usize) -> Result<(), PostError> {
        link.post_marker(if receives == 0 { Direction::Send } else { Direction::Receive })
    }

    fn proof_outstanding(link: &Numbered) -> (u32, u32) {
        let outstanding = link.outstanding();
        (outstanding.sends, outstanding.receives)
    }
}

fn post<C: Carrier>(link: &mut Link<C, 64, 64>, bytes: usize) -> Result<Sequence, SendError> {
    let mut frame = link.next_frame()?;
    frame.payload_mut().fill(bytes as u8);
    frame.post(bytes)
}

fn chain<C: Carrier>(link: &mut Link<C, 64, 64>, lengths: &[usize]) -> Result<Posted, SendError> {
    let mut chain = link.chain();
    for &bytes in lengths {
        let mut frame = chain.next_frame()?;
        frame.payload_mut().fill(bytes as u8);
        frame.stage(bytes)?;
    }
    chain.post()
}

fn accept<C: Carrier>(link: &mut Link<C, 64, 64>, completion: &Completion<'_>) -> Result<u64, LinkError> {
    Ok(match link.accept(completion)? {
        Event::Sent { released } => u64::from(released),
        Event::Received(frame) => frame.payload().iter().map(|&byte| u64::from(byte)).sum(),
        Event::Granted { messages } => u64::from(messages),
        Event::Drained(direction) => direction as u64,
    })
}

/// What a program's loop does in one turn.
fn turn<C: Carrier>(link: &mut Link<C, 64, 64>, queue: &mut CompletionQueueCalls) -> Option<u64> {
    let mut room = [Wc::default(); 16];
    let mut sum = 0;
    for completion in queue.poll(&mut room).ok()? {
        if let Event::Received(frame) = link.accept(&completion).ok()? {
            sum += frame.payload().len() as u64;
            frame.repost().ok()?;
        }
    }
    Some(sum)
}
