//! Writing a file anew, without what no longer counts, while the contents go on changing.

use std::ops::Bound;

use super::codec;
use crate::{
    Batch, Contents, Name, Operation, Request,
    object::{Generation, Object, Range},
};

/// A file is not written anew for less.
const LEAST: u64 = 4 << 20;

/// Whether less than half of a file of so many octets is live.
pub fn is_worth_rewriting(file: u64, contents: &Contents) -> bool {
    file > LEAST && file / 2 > contents.octets()
}

/// Writes a second file piece by piece: the objects in the order of generations and names, and last the state. The caller
/// puts the pieces behind each other. When the last one is there, the second file is the store.
///
/// What changes meanwhile is told to [`Self::follow`]. The new file gets it where it has the object already; what it does not
/// have yet, it gets later as it is then.
#[derive(Debug, Default)]
pub struct Rewrite {
    stage: Stage,
}

#[derive(Copy, Clone, Default, Debug)]
enum Stage {
    #[default]
    Header,
    Objects(Place),
    Done,
}

/// Up to where the new file has everything.
#[derive(Copy, Clone, Debug)]
struct Place {
    /// It has all generations before this one.
    generation: u64,
    /// Of this one it has the objects up to this name.
    behind: Option<Name>,
    /// And of this range the octets before an offset.
    begun: Option<(Name, u64)>,
}

impl Rewrite {
    /// Nothing is written yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes the next piece, of little more than a mebioctet. Whether there is more.
    pub fn next(&mut self, contents: &Contents, out: &mut Vec<u8>) -> bool {
        self.stage = match self.stage {
            Stage::Header => {
                out.extend_from_slice(&super::header());
                Self::generation(contents, 0, out)
            }
            Stage::Objects(place) => {
                let mut batch = Batch::new(0, 0, place.generation, 0);
                let objects = contents.generations().get(&place.generation);
                let next = objects.and_then(|objects| piece(objects, place, &mut batch));
                if !batch.operations().is_empty() {
                    codec::record(out, |body| codec::batch(codec::PIECE, &batch, body));
                }
                match next {
                    Some(place) => Stage::Objects(place),
                    None => Self::generation(contents, place.generation + 1, out),
                }
            }
            Stage::Done => Stage::Done,
        };
        !matches!(self.stage, Stage::Done)
    }

    /// Goes on with the next generation; behind the last one stands the state.
    fn generation(contents: &Contents, from: u64, out: &mut Vec<u8>) -> Stage {
        match contents.generations().range(from..).next() {
            Some((&generation, _)) => Stage::Objects(Place { generation, behind: None, begun: None }),
            None => {
                if let Some(state) = contents.state() {
                    codec::record(out, |body| codec::state(&state, body));
                }
                Stage::Done
            }
        }
    }

    /// A request was granted, and has led to these contents. Writes what the new file needs of it.
    pub fn follow(&mut self, contents: &Contents, request: &Request, out: &mut Vec<u8>) {
        let (Stage::Objects(place), Request::Batch(batch)) = (&mut self.stage, request) else { return };
        if batch.generation > place.generation {
            return;
        }
        let is_current = batch.generation == place.generation;
        let objects = contents.generations().get(&batch.generation);
        let mut followed = Batch::new(0, 0, batch.generation, 0);
        for operation in batch.operations() {
            let Some(name) = operation.name() else { continue };
            let is_there = !is_current || place.behind.is_some_and(|behind| *name <= behind);
            let is_begun = is_current && place.begun.is_some_and(|(begun, _)| begun == *name);
            let copy = match operation {
                // What a batch may free is bounded, so the range begins where the contents say. If it was replaced since, less
                // is trimmed here, and it goes as a whole.
                Operation::Trim { name, to } if is_there => {
                    match objects.and_then(|objects| objects.get(name.as_slice())) {
                        Some(Object::Range(range)) => {
                            Operation::Trim { name: *name, to: range.start.min(*to) }
                        }
                        Some(Object::Value(_)) | None => continue,
                    }
                }
                operation if is_there => operation.clone(),
                // It is written as it is then, from the beginning.
                Operation::Put { .. } | Operation::Remove { .. } | Operation::Begin { .. } if is_begun => {
                    place.begun = None;
                    Operation::Remove { name: *name }
                }
                _ => continue,
            };
            // It has no more operations than the batch, and none is longer.
            let _ = followed.push(copy);
        }
        if !followed.operations().is_empty() {
            codec::record(out, |body| codec::batch(codec::PIECE, &followed, body));
        }
    }
}

/// Fills a batch with what makes the objects; where to go on if it became full.
fn piece(objects: &Generation, mut place: Place, batch: &mut Batch) -> Option<Place> {
    let from = place.behind.map_or(Bound::Unbounded, Bound::Excluded);
    for (&name, object) in objects.objects().range((from, Bound::Unbounded)) {
        match object {
            Object::Value(value) => {
                if batch.push(Operation::Put { name, value: value.clone() }).is_err() {
                    return Some(place);
                }
            }
            Object::Range(range) => {
                let begun = place.begun.filter(|(begun, _)| *begun == name).map(|(_, at)| at);
                if let Err(at) = piece_of_range(name, range, begun, batch) {
                    // One before it may have come since it was begun: then it stays as far as it was.
                    place.begun = at.map(|at| (name, at)).or(place.begun);
                    return Some(place);
                }
                place.begun = place.begun.filter(|(begun, _)| *begun != name);
            }
        }
        place.behind = Some(name);
    }
    None
}

/// Adds the octets of a range from an offset on. `Err`: up to where it was added, if at all, when the batch became full.
fn piece_of_range(
    name: Name,
    range: &Range,
    begun: Option<u64>,
    batch: &mut Batch,
) -> Result<(), Option<u64>> {
    // What was trimmed meanwhile is not needed.
    let mut at = match begun {
        Some(at) if at >= range.start => at,
        Some(_) | None => {
            batch.push(Operation::Begin { name, at: range.start }).map_err(|_| begun)?;
            range.start
        }
    };
    let mut start = range.start;
    for chunk in &range.chunks {
        let end = start + chunk.len() as u64;
        // The last chunk may have grown.
        if end > at {
            let octets = chunk[(at.max(start) - start) as usize..].to_vec();
            batch.push(Operation::Append { name, at, octets }).map_err(|_| Some(at))?;
            at = end;
        }
        start = end;
    }
    if begun.is_some() {
        batch.push(Operation::Trim { name, to: range.start }).map_err(|_| Some(at))?;
    }
    Ok(())
}
