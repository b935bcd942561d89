//! Requests that are longer than a frame: they travel in parts, and other frames have their turn between these.
//!
//! The window lets such a request go alone, so a channel has at most one of them in each direction. A peer of an earlier build
//! does not know the frame: it closes the channel.

use std::os::fd::OwnedFd;

use bytes::Bytes;

use crate::XrlError;
use crate::frame::{Header, Kind, MAX_BODY};
use crate::outbox::Outbox;

/// Longest request, in all its parts: 256 MiB.
pub const MAX_REQUEST: usize = 256 << 20;
/// Octets of a part.
const PART: usize = 256 << 10;
/// The next part is written when no more than this waits.
const LOW: usize = 2 * PART;

/// A request of which something is still to be written.
#[derive(Debug)]
pub(crate) struct Outgoing {
    header: Header,
    rest: Bytes,
    fds: Vec<OwnedFd>,
}

impl Outgoing {
    pub(crate) fn new(header: Header, body: Bytes, fds: Vec<OwnedFd>) -> Self {
        Self { header, rest: body, fds }
    }

    /// Whether it is this call's.
    pub(crate) fn is_of(&self, call: u32) -> bool {
        self.header.call == call
    }

    /// Puts the next parts behind what waits, as far as there is room. What comes back is still to be written.
    pub(crate) fn feed(mut self, outbox: &mut Outbox) -> Option<Self> {
        while outbox.len() <= LOW {
            if self.rest.len() <= PART {
                // The descriptors go with the frame that ends the request.
                outbox.push_bytes(self.header, &self.rest, self.fds);
                return None;
            }
            let part = self.rest.split_to(PART);
            outbox.push_bytes(Header { kind: Kind::Part, ..self.header }, &part, Vec::new());
        }
        Some(self)
    }
}

/// The beginning of a request that has arrived.
#[derive(Debug)]
pub(crate) struct Incoming {
    call: u32,
    /// `None`: the peer may not call the method, and is told so at the end.
    body: Option<Vec<u8>>,
}

impl Incoming {
    /// Of a call that the peer may make, or may not.
    pub(crate) fn new(call: u32, may_call: bool) -> Self {
        Self { call, body: may_call.then(Vec::new) }
    }

    /// Whether it is this call's.
    pub(crate) fn is_of(&self, call: u32) -> bool {
        self.call == call
    }

    /// Octets that are kept.
    pub(crate) fn octets(&self) -> usize {
        self.body.as_ref().map_or(0, Vec::len)
    }

    /// Another part has arrived.
    ///
    /// # Errors
    /// The request is longer than [`MAX_REQUEST`].
    pub(crate) fn push(&mut self, part: &[u8]) -> Result<(), XrlError> {
        let Some(body) = &mut self.body else { return Ok(()) };
        if body.len() + part.len() > MAX_REQUEST {
            return Err(XrlError::internal(format!("a request of more than {MAX_REQUEST} octets")));
        }
        body.extend_from_slice(part);
        Ok(())
    }

    /// The whole request, of which this is the rest.
    ///
    /// # Errors
    /// As of [`push`](Self::push).
    pub(crate) fn end(mut self, rest: &[u8]) -> Result<Bytes, XrlError> {
        self.push(rest)?;
        Ok(self.body.unwrap_or_default().into())
    }
}

/// Whether a request of this length travels in parts.
pub(crate) fn is_long(len: usize) -> bool {
    len > MAX_BODY
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::FrameDecoder;

    const HEADER: Header = Header { call: 3, method: 4, kind: Kind::Call, fds: 0 };

    /// What is written of an outbox, read again.
    fn arrive(outbox: &mut Outbox) -> Vec<(Header, Vec<u8>)> {
        let (mut decoder, mut frames) = (FrameDecoder::default(), Vec::new());
        while outbox.len() > 0 {
            let (front, _) = outbox.front();
            let space = decoder.space();
            let len = space.len().min(front.len());
            space[..len].copy_from_slice(&front[..len]);
            decoder.filled(len);
            outbox.wrote(len);
            while let Some((header, body)) = decoder.next_frame().expect("frames") {
                frames.push((header, body.to_vec()));
            }
        }
        frames
    }

    #[test]
    fn a_request_arrives_whole_and_little_of_it_waits_at_a_time() {
        let body: Bytes = (0..5 * PART + 7).map(|at| at as u8).collect::<Vec<_>>().into();
        let mut outgoing = Some(Outgoing::new(HEADER, body.clone(), Vec::new()));
        let (mut incoming, mut outbox, mut whole) = (Incoming::new(3, true), Outbox::default(), None);
        while let Some(rest) = outgoing.take() {
            outgoing = rest.feed(&mut outbox);
            assert!(outbox.len() <= LOW + 2 * PART, "{}", outbox.len());
            for (header, part) in arrive(&mut outbox) {
                assert_eq!((header.call, header.method, whole.is_some()), (3, 4, false));
                match header.kind {
                    Kind::Part => incoming.push(&part).expect("within the bound"),
                    _ => whole = Some(std::mem::replace(&mut incoming, Incoming::new(9, true)).end(&part)),
                }
            }
        }
        assert!(whole == Some(Ok(body)));
    }

    #[test]
    fn no_more_is_kept_than_the_bound_and_nothing_for_a_peer_that_may_not_call() {
        let part = vec![0; MAX_BODY];
        let mut incoming = Incoming::new(1, true);
        for _ in 0..MAX_REQUEST / MAX_BODY {
            incoming.push(&part).expect("within the bound");
        }
        assert_eq!(incoming.octets(), MAX_REQUEST);
        incoming.push(&[0]).expect_err("beyond it");
        let mut refused = Incoming::new(1, false);
        for _ in 0..2 * MAX_REQUEST / MAX_BODY {
            refused.push(&part).expect("dropped");
        }
        assert_eq!((refused.octets(), refused.end(&part)), (0, Ok(Bytes::new())));
    }
}
