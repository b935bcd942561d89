//! Bodies of records.

use super::{MOST_RECORD, crc::crc};
use crate::{Batch, Claim, Name, Operation, State};

const CLAIM: u8 = 1;
pub(super) const BATCH: u8 = 2;
const STATE: u8 = 3;
pub(super) const PIECE: u8 = 4;

const PUT: u8 = 1;
const REMOVE: u8 = 2;
const APPEND: u8 = 3;
const TRIM: u8 = 4;
const BEGIN: u8 = 5;
const ADOPT: u8 = 6;
const DISCARD: u8 = 7;

/// What a record says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Body {
    Claim(Claim),
    Batch(Batch),
    State(State),
    /// Operations of one generation, by no writer.
    Piece(Batch),
}

/// Writes a record around a body.
pub(super) fn record(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; super::BEFORE_BODY]);
    body(out);
    let (head, body) = out[start..].split_at_mut(super::BEFORE_BODY);
    debug_assert!(body.len() <= MOST_RECORD);
    head[..4].copy_from_slice(&(body.len() as u32).to_le_bytes());
    let checksum = crc(&head[..4], body);
    head[4..].copy_from_slice(&checksum.to_le_bytes());
}

fn word(word: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&word.to_le_bytes());
}

fn octets(octets: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(octets.len() as u32).to_le_bytes());
    out.extend_from_slice(octets);
}

pub(super) fn claim(claim: &Claim, out: &mut Vec<u8>) {
    out.extend_from_slice(&[CLAIM, claim.is_empty.into()]);
    [claim.incarnation, claim.epoch, claim.generation].into_iter().for_each(|number| word(number, out));
}

pub(super) fn state(state: &State, out: &mut Vec<u8>) {
    out.extend_from_slice(&[STATE, state.counts.is_some().into()]);
    [state.incarnation, state.epoch, state.sequence, state.last, state.counts.unwrap_or(0), state.writing]
        .iter()
        .chain(&state.generations)
        .for_each(|number| word(*number, out));
}

pub(super) fn batch(kind: u8, batch: &Batch, out: &mut Vec<u8>) {
    out.push(kind);
    [batch.incarnation, batch.epoch, batch.generation, batch.sequence]
        .into_iter()
        .for_each(|number| word(number, out));
    for operation in batch.operations() {
        let mut head = |kind, name: &Name| {
            out.extend_from_slice(&[kind, name.as_slice().len() as u8]);
            out.extend_from_slice(name.as_slice());
        };
        match operation {
            Operation::Put { name, value } => {
                head(PUT, name);
                octets(value, out);
            }
            Operation::Remove { name } => head(REMOVE, name),
            Operation::Append { name, at, octets: appended } => {
                head(APPEND, name);
                word(*at, out);
                octets(appended, out);
            }
            Operation::Trim { name, to } => {
                head(TRIM, name);
                word(*to, out);
            }
            Operation::Begin { name, at } => {
                head(BEGIN, name);
                word(*at, out);
            }
            Operation::Adopt => out.push(ADOPT),
            Operation::Discard { generation } => {
                out.push(DISCARD);
                word(*generation, out);
            }
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, octets: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(octets)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn octet(&mut self) -> Option<u8> {
        self.array().map(|[octet]| octet)
    }

    fn is_true(&mut self) -> Option<bool> {
        match self.octet()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn word(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn octets(&mut self) -> Option<Vec<u8>> {
        let length = self.array().map(u32::from_le_bytes)?;
        self.take(length as usize).map(<[u8]>::to_vec)
    }

    fn name(&mut self) -> Option<Name> {
        let length = self.octet()?;
        Name::new(self.take(length.into())?).ok()
    }

    fn operation(&mut self) -> Option<Operation> {
        let operation = match self.octet()? {
            PUT => Operation::Put { name: self.name()?, value: self.octets()? },
            REMOVE => Operation::Remove { name: self.name()? },
            APPEND => Operation::Append { name: self.name()?, at: self.word()?, octets: self.octets()? },
            TRIM => Operation::Trim { name: self.name()?, to: self.word()? },
            BEGIN => Operation::Begin { name: self.name()?, at: self.word()? },
            ADOPT => Operation::Adopt,
            DISCARD => Operation::Discard { generation: self.word()? },
            _ => return None,
        };
        Some(operation)
    }

    fn batch(&mut self) -> Option<Batch> {
        let (incarnation, epoch, generation, sequence) =
            (self.word()?, self.word()?, self.word()?, self.word()?);
        let mut batch = Batch::new(incarnation, epoch, generation, sequence);
        while !self.0.is_empty() {
            let operation = self.operation()?;
            batch.push(operation).ok()?;
        }
        Some(batch)
    }
}

/// What a body says; `None`: nothing that we have written.
pub(super) fn read(body: &[u8]) -> Option<Body> {
    let mut reader = Reader(body);
    let body = match reader.octet()? {
        CLAIM => {
            let is_empty = reader.is_true()?;
            let (incarnation, epoch, generation) = (reader.word()?, reader.word()?, reader.word()?);
            Body::Claim(Claim { incarnation, is_empty, epoch, generation })
        }
        BATCH => Body::Batch(reader.batch()?),
        PIECE => Body::Piece(reader.batch()?),
        STATE => {
            let has_counting = reader.is_true()?;
            let mut next = || reader.word();
            let (incarnation, epoch, sequence, last) = (next()?, next()?, next()?, next()?);
            let (counts, writing) = (next()?, next()?);
            let mut generations = Vec::new();
            while !reader.0.is_empty() {
                generations.push(reader.word()?);
            }
            let counts = has_counting.then_some(counts);
            Body::State(State { incarnation, epoch, sequence, last, counts, writing, generations })
        }
        _ => return None,
    };
    reader.0.is_empty().then_some(body)
}
