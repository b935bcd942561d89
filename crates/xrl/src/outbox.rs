//! What is to be written: frames one behind the other, with the descriptors that go along.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use prost::Message;

use crate::frame::{HEADER_LEN, Header};

/// Memory that an empty outbox may hold on to.
const KEEP: usize = 1 << 20;
/// Less is not worth it: a process may have thousands of channels.
const SMALL: usize = 16 << 10;

/// Encoded frames in order of writing.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    /// How much of `bytes` has been written.
    written: usize,
    /// Where in `bytes` a frame begins: the first one there, of which everything before is a rest.
    first: usize,
    /// Where in `bytes` the frames with descriptors begin.
    fds: VecDeque<(usize, Vec<OwnedFd>)>,
}

impl Outbox {
    /// Appends a frame with the message as body.
    pub(crate) fn push<M: Message>(&mut self, header: Header, body: &M, fds: Vec<OwnedFd>) {
        let len = body.encoded_len();
        self.bytes.reserve(HEADER_LEN + len);
        self.begin(header, len, fds);
        // A `Vec` does not run out of space.
        let _ = body.encode(&mut self.bytes);
    }

    /// Appends a frame with these bytes as body.
    pub(crate) fn push_bytes(&mut self, header: Header, body: &[u8], fds: Vec<OwnedFd>) {
        self.begin(header, body.len(), fds);
        self.bytes.extend_from_slice(body);
    }

    /// Writes the header.
    fn begin(&mut self, header: Header, len: usize, fds: Vec<OwnedFd>) {
        let header = Header { fds: fds.len() as u16, ..header };
        if !fds.is_empty() {
            self.fds.push_back((self.bytes.len(), fds));
        }
        self.bytes.extend_from_slice(&header.encode(len as u32));
    }

    /// Octets not yet written.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.written
    }

    /// Frames not yet written that have descriptors.
    pub(crate) fn frames_with_fds(&self) -> usize {
        self.fds.len()
    }

    /// The bytes to write next, with the descriptors that belong to the first of them. Ends before the next frame
    /// that has descriptors.
    pub(crate) fn front(&self) -> (&[u8], &[OwnedFd]) {
        let fds = match self.fds.front() {
            Some((at, fds)) if *at == self.written => fds.as_slice(),
            _ => &[],
        };
        let next = self.fds.iter().map(|(at, _)| *at).find(|at| *at > self.written);
        (&self.bytes[self.written..next.unwrap_or(self.bytes.len())], fds)
    }

    /// So many octets of `front` have been written, and its descriptors with the first.
    pub(crate) fn wrote(&mut self, len: usize) -> Vec<OwnedFd> {
        let fds = match self.fds.front() {
            Some((at, _)) if len > 0 && *at == self.written => self.fds.pop_front(),
            _ => None,
        };
        self.written += len;
        self.reclaim();
        fds.map(|(_, fds)| fds).unwrap_or_default()
    }

    /// Drops everything but the rest of the frame of which some is written.
    pub(crate) fn end_with_frame(&mut self) {
        self.find_frame();
        let rest = self.bytes[self.written..self.first].to_vec();
        // Its descriptors have gone with its first octet.
        *self = Self { first: rest.len(), bytes: rest, ..Self::default() };
    }

    /// Goes on to the first frame of which nothing is written.
    fn find_frame(&mut self) {
        while self.first < self.written
            && let Some((len, _)) = self.bytes[self.first..].split_first_chunk()
        {
            self.first += HEADER_LEN + u32::from_be_bytes(*len) as usize;
        }
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Gives back the memory of what was written, at a cost of less than one copy per octet.
    fn reclaim(&mut self) {
        if self.written == self.bytes.len() {
            self.bytes.clear();
            self.bytes.shrink_to(if self.bytes.capacity() > SMALL { KEEP } else { 0 });
            self.first = 0;
        } else if self.written > self.bytes.len() / 2 {
            self.find_frame();
            self.first -= self.written;
            self.bytes.drain(..self.written);
            for (at, _) in &mut self.fds {
                *at -= self.written;
            }
        } else {
            return;
        }
        self.written = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Kind;

    const HEADER: Header = Header { call: 1, method: 2, kind: Kind::Call, fds: 0 };

    fn fd() -> OwnedFd {
        rustix::pipe::pipe().expect("a pipe").0
    }

    #[test]
    fn descriptors_split_the_bytes_at_their_frame() {
        let mut outbox = Outbox::default();
        outbox.push_bytes(HEADER, b"one", vec![]);
        outbox.push_bytes(HEADER, b"two", vec![fd(), fd()]);
        outbox.push_bytes(HEADER, b"three", vec![]);
        assert_eq!((outbox.front().0.len(), outbox.front().1.len()), (HEADER_LEN + 3, 0));
        outbox.wrote(HEADER_LEN + 3);
        assert_eq!((outbox.front().0.len(), outbox.front().1.len()), (2 * HEADER_LEN + 8, 2));
    }

    #[test]
    fn what_is_left_of_a_frame_under_way_is_kept_and_nothing_of_others() {
        // Written in pieces of every length, with the memory of what was written given back at different times.
        for piece in 1..40 {
            for written in 0..3 * (HEADER_LEN + 5) + HEADER_LEN + 300 {
                let mut outbox = Outbox::default();
                for body in [&b"first"[..], b"other", b"third", &[7; 300]] {
                    outbox.push_bytes(HEADER, body, Vec::new());
                }
                let mut left = written;
                while left > 0 {
                    outbox.wrote(left.min(piece));
                    left -= left.min(piece);
                }
                outbox.end_with_frame();
                let frames = [21, 42, 63, 63 + HEADER_LEN + 300];
                let end = frames.into_iter().find(|end| *end >= written).expect("within them");
                let rest = if frames.contains(&written) || written == 0 { 0 } else { end - written };
                assert_eq!((outbox.len(), outbox.front().0.len()), (rest, rest), "{written} by {piece}");
                outbox.push_bytes(HEADER, b"more", Vec::new());
                assert_eq!(outbox.len(), rest + HEADER_LEN + 4);
            }
        }
    }

    #[test]
    fn descriptors_go_with_the_first_octet_of_a_frame_written_in_pieces() {
        let mut outbox = Outbox::default();
        outbox.push_bytes(HEADER, b"two", vec![fd()]);
        assert_eq!(outbox.wrote(1).len(), 1);
        assert_eq!((outbox.front().0.len(), outbox.front().1.len()), (HEADER_LEN + 2, 0));
        outbox.wrote(HEADER_LEN + 2);
        assert_eq!(outbox.len(), 0);
    }
}
