//! The scripts, and what their replies mean.

use super::{Reply, command::Command, sha1::sha1};
use crate::{
    Answer, Applied, Claimed, Cursor, Described, Description, Failure, Kind, Listed, MOST_NUMBER, Name, Page,
    Refused, State,
};

/// A script that runs on the server.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Script {
    /// For a claim.
    Claim,
    /// For a batch.
    Batch,
    /// For a part of an object.
    Page,
}

const CLAIM: &str = include_str!("claim.lua");
const BATCH: &str = include_str!("batch.lua");
const PAGE: &str = include_str!("page.lua");

impl Script {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Claim, Self::Batch, Self::Page];

    /// The one that a request needs, if it needs one.
    pub fn of(kind: Kind) -> Option<Self> {
        match kind {
            Kind::Claim => Some(Self::Claim),
            Kind::Batch => Some(Self::Batch),
            Kind::Page => Some(Self::Page),
            Kind::State | Kind::List | Kind::Values => None,
        }
    }

    /// Its text.
    pub fn text(self) -> &'static str {
        match self {
            Self::Claim => CLAIM,
            Self::Batch => BATCH,
            Self::Page => PAGE,
        }
    }

    /// What the server calls it: the SHA-1 digest of its text in hexadecimal digits.
    pub fn digest(self) -> [u8; 40] {
        const DIGESTS: [[u8; 40]; 3] =
            [sha1(CLAIM.as_bytes()), sha1(BATCH.as_bytes()), sha1(PAGE.as_bytes())];
        match self {
            Self::Claim => DIGESTS[0],
            Self::Batch => DIGESTS[1],
            Self::Page => DIGESTS[2],
        }
    }

    /// `SCRIPT LOAD`; the server answers with the digest. It may forget a script at any time.
    pub fn load(self, out: &mut Vec<u8>) {
        Command::new(out, 3).word(b"SCRIPT").word(b"LOAD").word(self.text().as_bytes());
    }
}

/// How many replicas have everything, as the reply to `WAIT` says.
///
/// # Errors
/// The [`Failure`] that the server names, or [`Failure::Unexpected`].
pub fn confirmed(reply: &Reply) -> Result<u64, Failure> {
    match reply {
        Reply::Integer(replicas) => u64::try_from(*replicas).map_err(|_| Failure::Unexpected),
        Reply::Error(failure) => Err(failure.clone()),
        Reply::Status(_) | Reply::Bulk(_) | Reply::Nil | Reply::TooLong | Reply::Array(_) => {
            Err(Failure::Unexpected)
        }
    }
}

/// What a reply to a request of this kind means.
///
/// # Errors
/// The [`Failure`] that the server names, or [`Failure::Unexpected`] for a reply to something else.
pub fn answer(kind: Kind, reply: Reply) -> Result<Answer, Failure> {
    let elements = match reply {
        Reply::Array(elements) => elements,
        Reply::Error(failure) => return Err(failure),
        Reply::Status(_) | Reply::Integer(_) | Reply::Bulk(_) | Reply::Nil | Reply::TooLong => {
            return Err(Failure::Unexpected);
        }
    };
    match kind {
        Kind::State => state(&elements),
        Kind::List => list(elements),
        Kind::Values => values(elements),
        Kind::Claim | Kind::Batch | Kind::Page => of_script(kind, elements)?,
    }
    .ok_or(Failure::Unexpected)
}

/// `Err`: the script has found other data. `None`: it does not say such a thing.
fn of_script(kind: Kind, elements: Vec<Reply>) -> Result<Option<Answer>, Failure> {
    let mut elements = elements.into_iter();
    let Some(Reply::Bulk(word)) = elements.next() else { return Ok(None) };
    let rest = elements.as_slice();
    let answer = match (kind, word.as_slice()) {
        (_, b"foreign") => return Err(Failure::OtherData),
        (Kind::Claim, b"ok") => claimed(rest),
        (Kind::Batch, b"ok") => applied(rest),
        (Kind::Page, b"value" | b"range") => return Ok(page(&word, elements.collect())),
        _ => refused(kind, &word, rest).map(Answer::Refused),
    };
    Ok(answer)
}

fn text(reply: &Reply) -> Option<&str> {
    match reply {
        Reply::Bulk(octets) => str::from_utf8(octets).ok(),
        Reply::Status(_)
        | Reply::Error(_)
        | Reply::Integer(_)
        | Reply::Nil
        | Reply::TooLong
        | Reply::Array(_) => None,
    }
}

fn number(reply: &Reply) -> Option<u64> {
    digits(text(reply)?)
}

fn digits(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| text.starts_with(|first: char| first.is_ascii_digit()))
}

fn hexadecimal(reply: &Reply) -> Option<u64> {
    text(reply).filter(|text| text.len() == 16).and_then(|text| u64::from_str_radix(text, 16).ok())
}

/// A number that may be missing.
fn maybe(reply: &Reply) -> Option<Option<u64>> {
    match reply {
        Reply::Nil => Some(None),
        Reply::Bulk(octets) if octets.is_empty() => Some(None),
        reply => number(reply).map(Some),
    }
}

fn claimed(rest: &[Reply]) -> Option<Answer> {
    let [sequence, is_new, counts, octets] = rest else { return None };
    Some(Answer::Claimed(Claimed {
        sequence: number(sequence)?,
        is_new: number(is_new)? == 1,
        counts: maybe(counts)?,
        octets: number(octets)?,
    }))
}

fn applied(rest: &[Reply]) -> Option<Answer> {
    let [sequence, octets] = rest else { return None };
    Some(Answer::Applied(Applied { sequence: number(sequence)?, octets: number(octets)? }))
}

fn page(word: &[u8], rest: Vec<Reply>) -> Option<Answer> {
    let mut rest = rest.into_iter();
    let page = match (word, rest.next()?) {
        (b"value", Reply::Bulk(value)) => Page::Value(value),
        (b"range", start) => {
            let offset = |reply: &Reply| number(reply).filter(|offset| *offset <= MOST_NUMBER);
            let (start, end, at) = (offset(&start)?, offset(&rest.next()?)?, offset(&rest.next()?)?);
            let (mut octets, mut last) = (Vec::new(), at);
            for chunk in rest {
                let Reply::Bulk(chunk) = chunk else { return None };
                last = at + octets.len() as u64;
                octets.extend_from_slice(&chunk);
            }
            Page::Range { start, end, octets, last }
        }
        _ => return None,
    };
    Some(Answer::Page(page))
}

fn refused(kind: Kind, word: &[u8], rest: &[Reply]) -> Option<Refused> {
    let operation = || usize::try_from(number(rest.first()?)?).ok();
    let refused = match (kind, word, rest) {
        (Kind::Page, b"absent", []) => Refused::NotThere,
        (Kind::Page, ..) => return None,
        (_, b"lost", []) => Refused::Lost { there: None },
        (_, b"lost", [there]) => Refused::Lost { there: Some(hexadecimal(there)?) },
        (_, b"epoch", [there]) => Refused::Epoch { there: number(there)? },
        (_, b"generation", [there]) => Refused::Generation { there: number(there)? },
        (Kind::Claim, b"generations", []) => Refused::Generations,
        (Kind::Batch, b"sequence", [there]) => Refused::Sequence { there: number(there)? },
        (Kind::Batch, b"unfit", [_]) => Refused::Unfit { operation: operation()?, end: None },
        (Kind::Batch, b"unfit", [_, end]) => {
            Refused::Unfit { operation: operation()?, end: Some(number(end)?) }
        }
        (Kind::Batch, b"used", [_]) => Refused::Used { operation: operation()? },
        (Kind::Batch, b"much", [_]) => Refused::TooMuch { operation: operation()? },
        _ => return None,
    };
    Some(refused)
}

fn state(elements: &[Reply]) -> Option<Answer> {
    let [incarnation, epoch, sequence, last, counts, writing, generations] = elements else { return None };
    if *incarnation == Reply::Nil {
        return Some(Answer::State(None));
    }
    Some(Answer::State(Some(State {
        incarnation: hexadecimal(incarnation)?,
        epoch: number(epoch)?,
        sequence: number(sequence)?,
        last: number(last)?,
        counts: maybe(counts)?,
        writing: number(writing)?,
        generations: text(generations)?.split_terminator(' ').map(digits).collect::<Option<_>>()?,
    })))
}

fn list(elements: Vec<Reply>) -> Option<Answer> {
    let [cursor, Reply::Array(fields)] = <[Reply; 2]>::try_from(elements).ok()? else { return None };
    let next = match text(&cursor)? {
        "0" => None,
        cursor => Some(Cursor(digits(cursor)?.to_string().into_bytes())),
    };
    let (pairs, []) = fields.as_chunks::<2>() else { return None };
    let mut objects = Vec::with_capacity(pairs.len());
    for [name, entry] in pairs {
        let name = match name {
            Reply::Bulk(name) => name.as_slice(),
            Reply::TooLong => continue,
            _ => return None,
        };
        // What cannot be read is somebody else's, or damaged: whoever needs it finds that it is missing.
        if let (Ok(name), Some(description)) = (Name::new(name), text(entry).and_then(description)) {
            objects.push(Described { name, description });
        }
    }
    Some(Answer::Listed(Listed { objects, next }))
}

/// The first element says that there is such a generation. What is longer than any value is none of ours.
fn values(elements: Vec<Reply>) -> Option<Answer> {
    let mut elements = elements.into_iter();
    let is_there = elements.next()? != Reply::Nil;
    let value = |reply| match reply {
        Reply::Bulk(value) => Some(Some(value).filter(|_| is_there)),
        Reply::Nil | Reply::TooLong => Some(None),
        Reply::Status(_) | Reply::Error(_) | Reply::Integer(_) | Reply::Array(_) => None,
    };
    elements.map(value).collect::<Option<_>>().map(Answer::Values)
}

fn description(entry: &str) -> Option<Description> {
    let known = |text: &str| digits(text).filter(|number| *number <= MOST_NUMBER);
    if let Some(octets) = entry.strip_prefix('v') {
        return known(octets).map(|octets| Description::Value { octets });
    }
    let mut numbers = entry.strip_prefix('r')?.split(' ').map(known);
    let (start, end) = (numbers.next()??, numbers.next()??);
    (start <= end && numbers.count() == 2).then_some(Description::Range { start, end })
}
