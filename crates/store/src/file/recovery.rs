//! Reading a file again.

use super::{BEFORE_BODY, FORMAT, HEADER, MAGIC, MOST_RECORD, codec, codec::Body, crc::crc};
use crate::Contents;

/// What was discarded is freed while the file is read: objects and chunks with each piece of it.
const FREED: usize = 10_000;

/// How a file ends.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// With a whole record.
    Whole,
    /// In the middle of a record, or of the header: the death came while it was written, so nobody was told that it was
    /// there. (Or its length is damaged.)
    Torn,
    /// A record is damaged, or does not follow the one before. What was confirmed may be behind it: the store is *not* what
    /// it was, and its writer must not go on with it.
    Damaged,
}

/// What a file held.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// After all whole records.
    pub contents: Contents,
    /// Octets of the file that are whole records, with the header. The caller cuts the file there. At 0 it writes the header.
    pub whole: u64,
    /// What is behind them.
    pub end: End,
}

/// The file is none of ours, or of no use.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unreadable {
    /// It does not begin like a store.
    #[error("the file is no store")]
    NoStore,
    /// Another version of this crate has written it.
    #[error("the store has format {0}, and only format {FORMAT} can be read")]
    Format(u32),
    /// What it began with when it was written anew is not whole. A file gets its name when it is, so it was damaged.
    #[error("the store is damaged near its beginning")]
    Beginning,
}

/// Where in a file records belong to.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Stage {
    Header,
    /// The first record.
    First,
    /// Behind objects, before the state that belongs to them.
    Beginning,
    Records,
}

/// Reads a file piece by piece.
#[derive(Debug)]
pub struct Recovery {
    contents: Contents,
    unread: Vec<u8>,
    whole: u64,
    stage: Stage,
    stopped: Option<Result<End, Unreadable>>,
}

impl Default for Recovery {
    fn default() -> Self {
        Self::new()
    }
}

impl Recovery {
    /// Nothing was read so far.
    pub fn new() -> Self {
        let contents = Contents::new(u64::MAX);
        Self { contents, unread: Vec::new(), whole: 0, stage: Stage::Header, stopped: None }
    }

    /// The next octets of the file. Whether it makes sense to read on.
    pub fn push(&mut self, octets: &[u8]) -> bool {
        if self.stopped.is_some() {
            return false;
        }
        self.unread.extend_from_slice(octets);
        let unread = std::mem::take(&mut self.unread);
        let mut rest = unread.as_slice();
        while self.stopped.is_none() {
            match self.next(&mut rest) {
                Ok(true) => {}
                Ok(false) => break,
                Err(end) => self.stopped = Some(end),
            }
        }
        if self.stopped.is_none() {
            self.unread = rest.to_vec();
        }
        // The rest is freed later, by whoever has the contents.
        self.contents.work(FREED);
        self.stopped.is_none()
    }

    /// Reads the header or a record, if it is there.
    fn next(&mut self, rest: &mut &[u8]) -> Result<bool, Result<End, Unreadable>> {
        if self.stage == Stage::Header {
            return self.header(rest).map_err(Err);
        }
        let Some((head, behind)) = rest.split_first_chunk::<BEFORE_BODY>() else { return Ok(false) };
        let [a, b, c, d, checksum @ ..] = *head;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length == 0 || length > MOST_RECORD {
            return Err(Ok(End::Damaged));
        }
        let Some((body, behind)) = behind.split_at_checked(length) else { return Ok(false) };
        let is_right = crc(&[a, b, c, d], body) == u32::from_le_bytes(checksum);
        let body = if is_right { codec::read(body) } else { None };
        body.and_then(|body| self.record(body)).ok_or(Ok(End::Damaged))?;
        self.whole += (BEFORE_BODY + length) as u64;
        *rest = behind;
        Ok(true)
    }

    fn header(&mut self, rest: &mut &[u8]) -> Result<bool, Unreadable> {
        let begin = &rest[..rest.len().min(MAGIC.len())];
        if !MAGIC.starts_with(begin) {
            return Err(Unreadable::NoStore);
        }
        let Some((header, behind)) = rest.split_first_chunk::<HEADER>() else { return Ok(false) };
        let [.., a, b, c, d, _, _, _, _] = *header;
        match u32::from_le_bytes([a, b, c, d]) {
            FORMAT if *header == super::header() => {}
            FORMAT => return Err(Unreadable::NoStore),
            other => return Err(Unreadable::Format(other)),
        }
        self.whole = HEADER as u64;
        self.stage = Stage::First;
        *rest = behind;
        Ok(true)
    }

    fn record(&mut self, body: Body) -> Option<()> {
        self.stage = match (self.stage, body) {
            (Stage::First | Stage::Beginning, Body::Piece(batch)) => {
                self.contents.fill(&batch)?;
                Stage::Beginning
            }
            (Stage::First | Stage::Beginning, Body::State(state)) => {
                self.contents.restore(&state)?;
                Stage::Records
            }
            (Stage::First | Stage::Records, Body::Claim(claim)) => {
                self.contents.claim(&claim).ok()?;
                Stage::Records
            }
            (Stage::Records, Body::Batch(batch)) => {
                self.contents.apply(&batch).ok()?;
                Stage::Records
            }
            (_, Body::Claim(_) | Body::Batch(_) | Body::State(_) | Body::Piece(_)) => return None,
        };
        Some(())
    }

    /// There is no more. The contents get room for so many octets.
    ///
    /// # Errors
    /// [`Unreadable`]: what it held cannot be said.
    pub fn finish(mut self, room: u64) -> Result<Recovered, Unreadable> {
        let at_end = if self.unread.is_empty() { End::Whole } else { End::Torn };
        let end = self.stopped.unwrap_or(Ok(at_end))?;
        if self.stage == Stage::Beginning {
            return Err(Unreadable::Beginning);
        }
        self.contents.set_room(room);
        Ok(Recovered { contents: self.contents, whole: self.whole, end })
    }
}
