//! Frames of an Initial packet that somebody has decrypted (RFC 9000 section 19).

use thiserror::Error;

use crate::{
    client_hello::{BadHello, Peek, peek},
    reader::Reader,
    reassembly::Reassembly,
};

/// Where a CRYPTO frame has to end (RFC 9000 section 19.6).
const MOST_OFFSET: u64 = (1 << 62) - 1;

/// A frame that an Initial packet may hold (RFC 9000 section 17.2.2).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Frame<'a> {
    /// One or more PADDING.
    Padding,
    /// PING.
    Ping,
    /// ACK. Of which packets is not of interest here.
    Ack,
    /// CRYPTO: a piece of the handshake.
    Crypto {
        /// Where it belongs.
        offset: u64,
        /// What it says.
        octets: &'a [u8],
    },
    /// CONNECTION_CLOSE by QUIC itself, with its error code.
    Close(u64),
}

/// The frames of a payload. An error ends it.
#[derive(Clone, Debug)]
pub struct Frames<'a>(Reader<'a>);

impl<'a> Frames<'a> {
    /// Of a whole payload without its authentication tag.
    pub fn new(payload: &'a [u8]) -> Self {
        Self(Reader::new(payload))
    }

    fn read(&mut self) -> Result<Frame<'a>, BadFrame> {
        match self.0.varint().ok_or(BadFrame::CutOff("type"))? {
            0x00 => {
                self.0.skip_all(0);
                Ok(Frame::Padding)
            }
            0x01 => Ok(Frame::Ping),
            kind @ (0x02 | 0x03) => self.skip_ack(kind == 0x03).ok_or(BadFrame::CutOff("ACK")),
            0x06 => {
                let (offset, octets) =
                    self.0.varint().zip(self.0.vector()).ok_or(BadFrame::CutOff("CRYPTO"))?;
                if offset + octets.len() as u64 > MOST_OFFSET {
                    return Err(BadFrame::Offset);
                }
                Ok(Frame::Crypto { offset, octets })
            }
            0x1c => self.close().ok_or(BadFrame::CutOff("CONNECTION_CLOSE")),
            kind => Err(BadFrame::NotInInitial(kind)),
        }
    }

    /// RFC 9000 section 19.3.
    fn skip_ack(&mut self, with_ecn: bool) -> Option<Frame<'a>> {
        let _largest = self.0.varint()?;
        let _delay = self.0.varint()?;
        let ranges = self.0.varint()?;
        let _first = self.0.varint()?;
        // However many it says: the first that is not there ends it.
        for _ in 0..ranges {
            let (_gap, _length) = (self.0.varint()?, self.0.varint()?);
        }
        if with_ecn {
            let (_ect0, _ect1, _ce) = (self.0.varint()?, self.0.varint()?, self.0.varint()?);
        }
        Some(Frame::Ack)
    }

    /// RFC 9000 section 19.19.
    fn close(&mut self) -> Option<Frame<'a>> {
        let code = self.0.varint()?;
        let _frame_type = self.0.varint()?;
        let _reason = self.0.vector()?;
        Some(Frame::Close(code))
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, BadFrame>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let frame = self.read();
        if frame.is_err() {
            self.0 = Reader::new(&[]);
        }
        Some(frame)
    }
}

/// Looks at the payload of an Initial: the first one, or the next one of the same connection. Nothing is copied when the
/// whole ClientHello is in one frame of the first; else its pieces are put to those that are there.
///
/// # Errors
/// A frame that comes before the end of the ClientHello, or the ClientHello, is malformed.
pub fn peek_initial<'a>(payload: &'a [u8], pieces: &'a mut Reassembly) -> Result<Peek<'a>, BadInitial> {
    for frame in Frames::new(payload) {
        let Frame::Crypto { offset, octets } = frame? else { continue };
        if offset == 0 && pieces.is_empty() {
            match peek(octets)? {
                Peek::Incomplete => {}
                decided => return Ok(decided),
            }
        }
        // One that is left out is missing: the ClientHello stays incomplete.
        let _ = pieces.insert(offset, octets);
    }
    Ok(pieces.peek()?)
}

/// Why the payload of an Initial is malformed: the client's fault.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
pub enum BadFrame {
    /// A frame is longer than what holds it.
    #[error("the Initial ends within a frame: {0}")]
    CutOff(&'static str),
    /// A CRYPTO frame is beyond all that there can be.
    #[error("a CRYPTO frame of the Initial ends behind 2^62")]
    Offset,
    /// An Initial must not hold frames of this type.
    #[error("the Initial holds a frame of type {0:#x}")]
    NotInInitial(u64),
}

/// Why an Initial does not tell what it asks for.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
pub enum BadInitial {
    /// Its frames.
    #[error(transparent)]
    Frame(#[from] BadFrame),
    /// Its ClientHello.
    #[error(transparent)]
    Hello(#[from] BadHello),
}
