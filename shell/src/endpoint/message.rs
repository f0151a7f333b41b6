//! The `dyn`-safe form of an endpoint.

use bareverbs_core::link::{Carrier, Outstanding, Sequence};

use crate::endpoint::{Endpoint, EndpointError, Event, Teardown};
use crate::error::Error;
use crate::wait::Wait;

/// An endpoint behind a pointer, for those who store several kinds in one place. The same calls as [`Endpoint`]'s, one
/// indirect call each.
pub trait MessageEndpoint: Send {
    /// Who is at the other end.
    fn peer(&self) -> &str;

    /// As [`Endpoint::send`].
    ///
    /// # Errors
    /// As [`Endpoint::send`].
    fn send_with(&mut self, payload_bytes: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<Sequence, EndpointError>;

    /// Waits until at least one message came, gives each to `on` with its number, and posts its frame again.
    ///
    /// # Errors
    /// As [`Endpoint::wait`].
    fn receive_with(
        &mut self,
        wait: &Wait<'_>,
        on: &mut dyn FnMut(&[u8], Option<Sequence>),
    ) -> Result<usize, EndpointError>;

    /// Requests that the device has, or may have.
    fn outstanding(&self) -> Outstanding;

    /// As [`Endpoint::close`].
    ///
    /// # Errors
    /// As [`Endpoint::close`].
    fn close_boxed(self: Box<Self>) -> Result<Teardown, Error>;
}

impl<C: Carrier, const SEND: usize, const RECV: usize> MessageEndpoint for Endpoint<C, SEND, RECV> {
    fn peer(&self) -> &str {
        Endpoint::peer(self)
    }

    fn send_with(&mut self, payload_bytes: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<Sequence, EndpointError> {
        self.send(payload_bytes, fill)
    }

    fn receive_with(
        &mut self,
        wait: &Wait<'_>,
        on: &mut dyn FnMut(&[u8], Option<Sequence>),
    ) -> Result<usize, EndpointError> {
        let mut messages = 0;
        let mut waiting = wait.begin();
        while messages == 0 {
            self.wait_on(&mut waiting, |event| {
                if let Event::Received(frame) = event {
                    messages += 1;
                    on(frame.payload(), frame.sequence());
                }
            })?;
            if messages == 0 {
                // What came was no message: a peer that sends nothing else must not hold this up for ever.
                self.time_left(&mut waiting)?;
            }
        }
        self.post_receives(messages)?;
        Ok(messages)
    }

    fn outstanding(&self) -> Outstanding {
        Endpoint::outstanding(self)
    }

    fn close_boxed(self: Box<Self>) -> Result<Teardown, Error> {
        self.close()
    }
}
