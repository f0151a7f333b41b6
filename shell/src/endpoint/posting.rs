//! What a caller fills in and posts, and what comes: the link's frames, chains and events, with whom they concern.
//!
//! The rule this file protects: **an error that an endpoint's user gets names the peer and the device**, and the errno where
//! there is one, which is read before anything else is called. The link's own errors name neither; nothing is copied or
//! allocated for it as long as all goes well.
//!
//! And: **what posts stays on the thread that asked the endpoint for it.** That is where it was checked whether the thread may
//! (`MLX5_SINGLE_THREADED=1`), so nothing here is `Send`.

use std::marker::PhantomData;
use std::sync::Arc;

use bareverbs_core::link::{self, Carrier, Direction, Posted, ReceiveError, SendError, Sequence, WorkId};

use crate::endpoint::error::{EndpointError, EndpointErrorKind, errno_of_receive, errno_of_send};
use crate::errno;

/// Whom an error concerns. Neither `Send` nor `Sync`, and so is nothing that holds it.
#[derive(Clone, Copy)]
pub(super) struct Names<'end> {
    peer: &'end Arc<str>,
    device: &'end Arc<str>,
    here: PhantomData<*mut ()>,
}

impl<'end> Names<'end> {
    pub(super) fn new(peer: &'end Arc<str>, device: &'end Arc<str>) -> Self {
        Self { peer, device, here: PhantomData }
    }

    #[cold]
    pub(super) fn failed(self, kind: EndpointErrorKind) -> EndpointError {
        EndpointError { peer: Arc::clone(self.peer), device: Arc::clone(self.device), kind }
    }

    /// A send that was refused without a call: what is in `errno` is of something else.
    #[cold]
    pub(super) fn not_posted(self, error: SendError) -> EndpointError {
        errno::clear();
        self.send_refused(error)
    }

    /// A refused send; to be called before anything that sets `errno`.
    #[cold]
    pub(super) fn send_refused(self, error: SendError) -> EndpointError {
        self.failed(EndpointErrorKind::Send(error, errno_of_send(&error)))
    }

    /// A refused receive; to be called before anything that sets `errno`.
    #[cold]
    pub(super) fn receive_refused(self, error: ReceiveError) -> EndpointError {
        self.failed(EndpointErrorKind::Receive(error, errno_of_receive(&error)))
    }
}

/// A frame to fill in and post. Dropping it changes nothing: the frame is the next one again.
///
/// It stays on its thread:
///
/// ```compile_fail,E0277
/// # use bareverbs_core::link::Immediate;
/// # use bareverbs_shell::endpoint::{SendFrame};
/// fn goes_to_another_thread<T: Send>() {}
/// goes_to_another_thread::<SendFrame<'static, Immediate, 8>>();
/// ```
pub struct SendFrame<'end, C: Carrier, const N: usize> {
    pub(super) frame: link::SendFrame<'end, C, N>,
    pub(super) names: Names<'end>,
}

impl<C: Carrier, const N: usize> SendFrame<'_, C, N> {
    /// The payload's room, with whatever was in it last.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.frame.payload_mut()
    }

    /// The number that the message will have.
    #[inline]
    pub fn sequence(&self) -> Sequence {
        self.frame.sequence()
    }

    /// Posts the first `payload_bytes` of the payload ([`link::SendFrame::post`]).
    ///
    /// # Errors
    /// [`EndpointErrorKind::Send`]; a refused send used up no sequence number.
    #[inline]
    pub fn post(self, payload_bytes: usize) -> Result<Sequence, EndpointError> {
        let Self { frame, names } = self;
        errno::clear();
        frame.post(payload_bytes).map_err(|error| names.send_refused(error))
    }

    /// As [`post`](Self::post), where another one follows at once ([`link::SendFrame::post_more`]).
    ///
    /// # Errors
    /// Those of [`post`](Self::post).
    #[inline]
    pub fn post_more(self, payload_bytes: usize) -> Result<Sequence, EndpointError> {
        let Self { frame, names } = self;
        errno::clear();
        frame.post_more(payload_bytes).map_err(|error| names.send_refused(error))
    }
}

/// Messages that are staged one after the other and posted in one call. Dropping it posts nothing: the frames are the
/// next ones again.
///
/// It stays on its thread:
///
/// ```compile_fail,E0277
/// # use bareverbs_core::link::Immediate;
/// # use bareverbs_shell::endpoint::{SendChain};
/// fn goes_to_another_thread<T: Send>() {}
/// goes_to_another_thread::<SendChain<'static, Immediate, 8>>();
/// ```
pub struct SendChain<'end, C: Carrier, const N: usize> {
    pub(super) chain: link::SendChain<'end, C, N>,
    pub(super) names: Names<'end>,
}

impl<C: Carrier, const N: usize> SendChain<'_, C, N> {
    /// The next frame to fill in and stage.
    ///
    /// # Errors
    /// [`EndpointErrorKind::Send`]; what was staged stays staged.
    #[inline]
    pub fn next_frame(&mut self) -> Result<ChainFrame<'_, C, N>, EndpointError> {
        let Self { chain, names } = self;
        match chain.next_frame() {
            Ok(frame) => Ok(ChainFrame { frame, names: *names }),
            Err(error) => Err(names.not_posted(error)),
        }
    }

    /// How many messages are staged.
    pub const fn staged(&self) -> u32 {
        self.chain.staged()
    }

    /// Posts what was staged ([`link::SendChain::post`]).
    ///
    /// # Errors
    /// [`EndpointErrorKind::Send`]; of [`SendError::Refused`] the first `accepted` messages are in flight, the others are not
    /// and used up no number.
    #[inline]
    pub fn post(self) -> Result<Posted, EndpointError> {
        let Self { chain, names } = self;
        errno::clear();
        chain.post().map_err(|error| names.send_refused(error))
    }
}

/// A frame of a chain, to fill in and stage. Dropping it changes nothing.
pub struct ChainFrame<'chain, C: Carrier, const N: usize> {
    frame: link::ChainFrame<'chain, C, N>,
    names: Names<'chain>,
}

impl<C: Carrier, const N: usize> ChainFrame<'_, C, N> {
    /// The payload's room, with whatever was in it last.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.frame.payload_mut()
    }

    /// Stages the first `payload_bytes` of the payload; answers the number that the message will have.
    ///
    /// # Errors
    /// [`EndpointErrorKind::Send`] of a payload that is too long: nothing was staged.
    #[inline]
    pub fn stage(self, payload_bytes: usize) -> Result<Sequence, EndpointError> {
        let Self { frame, names } = self;
        frame.stage(payload_bytes).map_err(|error| names.not_posted(error))
    }
}

/// What a completion means.
pub enum Event<'end, const RECV: usize> {
    /// Sends are done: their frames have left this end, which says nothing of the other.
    Sent {
        /// How many messages; 0 when it was a credit message only.
        released: u32,
    },
    /// A credit message came: the other end takes more messages.
    Granted {
        /// How many more.
        messages: u32,
    },
    /// The next message came.
    Received(RecvFrame<'end, RECV>),
    /// A queue's teardown marker came: nothing of it is outstanding any more. The link takes no more posts.
    Drained(Direction),
}

impl<'end, const RECV: usize> Event<'end, RECV> {
    #[inline]
    pub(super) fn of(event: link::Event<'end, RECV>, names: Names<'end>) -> Self {
        match event {
            link::Event::Sent { released } => Self::Sent { released },
            link::Event::Granted { messages } => Self::Granted { messages },
            link::Event::Received(frame) => Self::Received(RecvFrame { frame, names }),
            link::Event::Drained(direction) => Self::Drained(direction),
        }
    }
}

/// A message that came. Dropping it gives its frame back to the ring, not posted.
///
/// It stays on its thread:
///
/// ```compile_fail,E0277
/// # use bareverbs_core::link::Immediate;
/// # use bareverbs_shell::endpoint::{RecvFrame};
/// fn goes_to_another_thread<T: Send>() {}
/// goes_to_another_thread::<RecvFrame<'static, 8>>();
/// ```
pub struct RecvFrame<'end, const N: usize> {
    frame: link::RecvFrame<'end, N>,
    names: Names<'end>,
}

impl<const N: usize> RecvFrame<'_, N> {
    /// The payload.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        self.frame.payload()
    }

    /// The message's number; `None` with the [`Raw`](link::Raw) carrier.
    #[inline]
    pub const fn sequence(&self) -> Option<Sequence> {
        self.frame.sequence()
    }

    /// The receive's number.
    #[inline]
    pub const fn wr_id(&self) -> WorkId {
        self.frame.wr_id()
    }

    /// Gives the frame back and posts a receive ([`link::RecvFrame::repost`]).
    ///
    /// # Errors
    /// [`EndpointErrorKind::Receive`]: the frame is in the ring, not posted, or the link is broken.
    #[inline]
    pub fn repost(self) -> Result<(), EndpointError> {
        let Self { frame, names } = self;
        errno::clear();
        frame.repost().map_err(|error| names.receive_refused(error))
    }
}
