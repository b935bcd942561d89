//! Frames: the unit on the wire, and the decoder that finds them in a stream.
//!
//! ```text
//!  0               4               8               12
//! +---------------+---------------+---------------+----+-----+---------+
//! | body length   | call id       | method        |kind|flags| descrip.|   then the body
//! +---------------+---------------+---------------+----+-----+---------+
//! ```
//! Numbers are big-endian. Flags are sent as 0 and ignored. `descriptors` is how many file descriptors travel with
//! the frame; the bytes do not contain them.

use std::fmt;

/// Octets of the header.
pub const HEADER_LEN: usize = 16;
/// Longest body: 16 MiB.
pub const MAX_BODY: usize = 16 << 20;
/// Most descriptors with one frame.
pub const MAX_FDS: usize = 32;
/// Version of the frames. Both ends of a channel have to have the same.
pub const FRAME_VERSION: u32 = 1;

/// Size of the decoder's buffer at first, for those who say little.
const FIRST_BUFFER: usize = 4 << 10;
/// Size of the decoder's buffer where much arrives, while frames are small.
const BUFFER: usize = 256 << 10;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Presents a key; body: 16 octets. Call id and method are 0.
    Hello = 1,
    /// A request. The caller chooses the call id, unique among its calls in progress and not 0.
    Call = 2,
    /// The answer to a unary call, or the end of a stream (then empty).
    Reply = 3,
    /// One message of a stream.
    Item = 4,
    /// The call failed; body: see `XrlError`. With call id 0: why the sender closes the channel.
    Error = 5,
    /// The caller has lost interest; no frame about this call follows from it.
    Cancel = 6,
    /// The caller takes so many more octets of a stream; body: 4 octets.
    Credit = 7,
    /// Beginning of a request that is longer than [`MAX_BODY`]; more parts and the call itself follow.
    Part = 8,
}

impl Kind {
    fn from_octet(octet: u8) -> Option<Self> {
        use Kind::{Call, Cancel, Credit, Error, Hello, Item, Part, Reply};
        [Hello, Call, Reply, Item, Error, Cancel, Credit, Part].into_iter().find(|kind| *kind as u8 == octet)
    }
}

/// What precedes a body, besides its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Which call it belongs to.
    pub call: u32,
    /// Method number of a call, and of its parts; 0 in other frames.
    pub method: u32,
    /// What the frame is.
    pub kind: Kind,
    /// How many descriptors travel with it.
    pub fds: u16,
}

impl Header {
    /// The header for a body of this length.
    pub fn encode(&self, body_len: u32) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[0..4].copy_from_slice(&body_len.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.call.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.method.to_be_bytes());
        bytes[12] = self.kind as u8;
        bytes[14..16].copy_from_slice(&self.fds.to_be_bytes());
        bytes
    }

    /// Reads a header: body length and the rest.
    pub(crate) fn decode(bytes: &[u8; HEADER_LEN]) -> Result<(usize, Self), FrameError> {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let kind = Kind::from_octet(bytes[12]).ok_or(FrameError::UnknownKind(bytes[12]))?;
        let fds = u16::from_be_bytes([bytes[14], bytes[15]]);
        if usize::from(fds) > MAX_FDS {
            return Err(FrameError::TooManyDescriptors(fds));
        }
        let len = word(0) as usize;
        if len > MAX_BODY {
            return Err(FrameError::TooLong(len));
        }
        Ok((len, Self { call: word(4), method: word(8), kind, fds }))
    }
}

/// Bytes that are not a frame; there is no way to find the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The body would be longer than [`MAX_BODY`].
    #[error("a frame of {0} octets (at most {MAX_BODY} are allowed)")]
    TooLong(usize),
    /// No such kind.
    #[error("unknown frame kind {0}")]
    UnknownKind(u8),
    /// More than [`MAX_FDS`].
    #[error("a frame with {0} descriptors (at most {MAX_FDS} are allowed)")]
    TooManyDescriptors(u16),
}

/// Finds frames in a stream. Read into [`space`](Self::space), say how much with [`filled`](Self::filled), take
/// frames with [`next`](Self::next_frame) until there is none.
///
/// Its buffer grows with the bytes that have arrived at once (to one longest frame at most), never with what a header
/// promises.
#[derive(Default)]
pub struct FrameDecoder {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// The last read filled the buffer.
    full: bool,
}

impl fmt::Debug for FrameDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FrameDecoder({} octets)", self.end - self.start)
    }
}

impl FrameDecoder {
    /// Where the next bytes go; never empty.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.full && self.buffer.len() < BUFFER {
            // Whoever fills it has more to say: the next read is a larger one.
            self.buffer.resize((4 * self.buffer.len()).clamp(FIRST_BUFFER, BUFFER), 0);
        } else if self.end == self.buffer.len() {
            self.buffer.resize((2 * self.end).max(FIRST_BUFFER), 0);
        } else if self.end == 0 && self.buffer.len() > BUFFER {
            self.buffer = vec![0; BUFFER];
        }
        &mut self.buffer[self.end..]
    }

    /// So many octets have been written to the beginning of `space`.
    ///
    /// # Panics
    /// If `space` was shorter.
    pub fn filled(&mut self, len: usize) {
        assert!(len <= self.buffer.len() - self.end, "filled more than there was");
        self.end += len;
        self.full = self.end == self.buffer.len();
    }

    /// Nothing more has arrived: the buffer of a small channel is not kept. A process may have thousands.
    pub(crate) fn rest(&mut self) {
        if self.start == self.end && self.buffer.len() <= FIRST_BUFFER {
            *self = Self::default();
        }
    }

    /// Whether everything that has arrived was taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The next whole frame, if one has arrived.
    ///
    /// # Errors
    /// When the bytes are not a frame. The stream is then of no more use.
    pub fn next_frame(&mut self) -> Result<Option<(Header, &[u8])>, FrameError> {
        let Some((header, rest)) = self.buffer[self.start..self.end].split_first_chunk() else {
            return Ok(None);
        };
        let (len, header) = Header::decode(header)?;
        if rest.len() < len {
            return Ok(None);
        }
        let body = self.start + HEADER_LEN;
        self.start = body + len;
        Ok(Some((header, &self.buffer[body..body + len])))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn feed(decoder: &mut FrameDecoder, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let space = decoder.space();
            let len = space.len().min(bytes.len());
            space[..len].copy_from_slice(&bytes[..len]);
            decoder.filled(len);
            bytes = &bytes[len..];
        }
    }

    fn frame() -> impl Strategy<Value = (Header, Vec<u8>)> {
        let kind = (1u8..=8).prop_map(|octet| Kind::from_octet(octet).expect("a kind"));
        let header = (any::<u32>(), any::<u32>(), kind, 0..=MAX_FDS as u16)
            .prop_map(|(call, method, kind, fds)| Header { call, method, kind, fds });
        (header, proptest::collection::vec(any::<u8>(), 0..600))
    }

    proptest! {
        #![proptest_config(holdfast_testing::cases(256))]

        #[test]
        fn frames_come_out_as_they_went_in_however_the_stream_is_cut(
            frames in proptest::collection::vec(frame(), 0..20),
            cuts in proptest::collection::vec(1usize..700, 1..40),
        ) {
            let mut stream = Vec::new();
            for (header, body) in &frames {
                stream.extend_from_slice(&header.encode(body.len() as u32));
                stream.extend_from_slice(body);
            }
            let mut decoder = FrameDecoder::default();
            let mut seen = Vec::new();
            let mut rest = stream.as_slice();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (now, later) = rest.split_at(rest.len().min(*cut));
                feed(&mut decoder, now);
                rest = later;
                while let Some((header, body)) = decoder.next_frame().expect("valid frames") {
                    seen.push((header, body.to_vec()));
                }
            }
            prop_assert_eq!(seen, frames);
        }

        #[test]
        fn any_bytes_are_frames_or_an_error_and_memory_follows_what_arrived(
            bytes in proptest::collection::vec(any::<u8>(), 0..2000),
        ) {
            crate::fuzzing::frames(&bytes);
        }
    }

    #[test]
    fn a_promised_length_takes_no_memory() {
        let mut decoder = FrameDecoder::default();
        let header = Header { call: 1, method: 1, kind: Kind::Call, fds: 0 };
        feed(&mut decoder, &header.encode(MAX_BODY as u32));
        assert_eq!(decoder.next_frame(), Ok(None));
        assert!(decoder.space().len() <= BUFFER);
    }

    #[test]
    fn the_buffer_is_small_until_a_read_fills_it() {
        let mut decoder = FrameDecoder::default();
        let header = Header { call: 1, method: 1, kind: Kind::Call, fds: 0 };
        for _ in 0..1000 {
            feed(&mut decoder, &header.encode(0));
            assert!(decoder.next_frame().expect("valid").is_some());
        }
        assert_eq!(decoder.space().len(), FIRST_BUFFER);
        for _ in 0..8 {
            feed(&mut decoder, &header.encode(0).repeat(FIRST_BUFFER));
            while decoder.next_frame().expect("valid").is_some() {}
        }
        assert_eq!(decoder.space().len(), BUFFER);
    }

    #[test]
    fn a_frame_longer_than_allowed_is_refused_before_its_body() {
        let mut decoder = FrameDecoder::default();
        let header = Header { call: 1, method: 1, kind: Kind::Call, fds: 0 };
        feed(&mut decoder, &header.encode(MAX_BODY as u32 + 1));
        assert_eq!(decoder.next_frame(), Err(FrameError::TooLong(MAX_BODY + 1)));
    }

    #[test]
    fn the_buffer_shrinks_after_a_long_frame() {
        let mut decoder = FrameDecoder::default();
        let header = Header { call: 1, method: 1, kind: Kind::Call, fds: 0 };
        feed(&mut decoder, &header.encode(4 << 20));
        feed(&mut decoder, &vec![7; 4 << 20]);
        assert_eq!(decoder.next_frame().expect("valid").map(|(_, body)| body.len()), Some(4 << 20));
        assert_eq!(decoder.space().len(), BUFFER);
    }
}
