//! Writing a file anew, without what no longer counts.

use std::ops::Bound;

use super::codec;
use crate::{
    Batch, Contents, Name, Operation, State,
    object::{Generation, Object},
};

/// A file is not written anew for less.
const LEAST: u64 = 4 << 20;

/// Whether less than half of a file of so many octets is live.
pub fn is_worth_rewriting(file: u64, contents: &Contents) -> bool {
    file > LEAST && file / 2 > contents.octets()
}

/// The contents have changed since the file was begun: it is of no use, and has to be begun again. Whoever cannot wait keeps
/// batches that come meanwhile, and applies them afterwards.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the contents have changed meanwhile")]
pub struct Changed;

/// Writes a second file piece by piece. The caller puts the pieces behind each other, and renames the file when it is whole.
#[derive(Debug)]
pub struct Rewrite {
    state: Option<State>,
    stage: Stage,
}

#[derive(Copy, Clone, Debug)]
enum Stage {
    Header,
    /// Objects of this generation; those up to a name are written. The range behind it was begun, and has so many chunks.
    Objects {
        generation: u64,
        behind: Option<Name>,
        chunks: Option<usize>,
    },
    End,
    Done,
}

impl Rewrite {
    /// A file of what is there now.
    pub fn new(contents: &Contents) -> Self {
        Self { state: contents.state(), stage: Stage::Header }
    }

    /// Writes the next piece, of little more than a mebioctet. Whether there is more.
    ///
    /// # Errors
    /// [`Changed`] when the contents are not those of the beginning.
    pub fn next(&mut self, contents: &Contents, out: &mut Vec<u8>) -> Result<bool, Changed> {
        if contents.state() != self.state {
            return Err(Changed);
        }
        self.stage = match (self.stage, &self.state) {
            (Stage::Header, None) => {
                out.extend_from_slice(&super::header());
                Stage::Done
            }
            (Stage::Header, Some(state)) => {
                out.extend_from_slice(&super::header());
                codec::record(out, |body| codec::state(state, body));
                Self::generation(contents, 0)
            }
            (Stage::Objects { generation, behind, chunks }, _) => {
                let objects = contents.generations().get(&generation);
                let mut batch = Batch::new(0, 0, generation, 0);
                let next = objects.and_then(|objects| piece(objects, behind, chunks, &mut batch));
                if !batch.operations().is_empty() {
                    codec::record(out, |body| codec::batch(codec::PIECE, &batch, body));
                }
                match next {
                    Some((behind, chunks)) => Stage::Objects { generation, behind, chunks },
                    None => Self::generation(contents, generation + 1),
                }
            }
            (Stage::End, _) => {
                codec::record(out, codec::end);
                Stage::Done
            }
            (Stage::Done, _) => Stage::Done,
        };
        Ok(!matches!(self.stage, Stage::Done))
    }

    fn generation(contents: &Contents, from: u64) -> Stage {
        contents.generations().range(from..).next().map_or(Stage::End, |(generation, _)| Stage::Objects {
            generation: *generation,
            behind: None,
            chunks: None,
        })
    }
}

/// Fills a batch with what makes the objects; where to go on if it became full.
fn piece(
    objects: &Generation,
    mut behind: Option<Name>,
    mut begun: Option<usize>,
    batch: &mut Batch,
) -> Option<(Option<Name>, Option<usize>)> {
    let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
    for (&name, object) in objects.objects().range((from, Bound::Unbounded)) {
        match object {
            Object::Value(value) => {
                if batch.push(Operation::Put { name, value: value.clone() }).is_err() {
                    return Some((behind, None));
                }
            }
            Object::Range(range) => {
                if begun.is_none() && batch.push(Operation::Begin { name, at: range.start }).is_err() {
                    return Some((behind, None));
                }
                let first = begun.unwrap_or(0);
                let before: usize = range.chunks.iter().take(first).map(Vec::len).sum();
                let mut at = range.start + before as u64;
                for (number, chunk) in range.chunks.iter().enumerate().skip(first) {
                    if batch.push(Operation::Append { name, at, octets: chunk.clone() }).is_err() {
                        return Some((behind, Some(number)));
                    }
                    at += chunk.len() as u64;
                }
            }
        }
        (behind, begun) = (Some(name), None);
    }
    None
}
