//! What a store holds, and what each request does with it.

use std::collections::BTreeMap;

use crate::{
    Answer, Applied, Batch, Claim, Claimed, Cursor, Described, JUMP, LISTED, Listed, MOST_FREED,
    MOST_GENERATIONS, MOST_NUMBER, MOST_PAGE, Malformed, Name, Operation, PIECE, Page, Refused, Request,
    State,
    object::{Generation, Object, Range},
};

/// What a store holds: the model of all stores, and the whole of one in memory.
#[derive(Clone, Debug)]
pub struct Contents {
    head: Option<Head>,
    generations: BTreeMap<u64, Generation>,
    room: u64,
    /// Generations that went, and are not freed yet.
    discarded: Vec<Generation>,
}

/// A [`State`] without its generations.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Head {
    incarnation: u64,
    epoch: u64,
    sequence: u64,
    last: u64,
    counts: Option<u64>,
    writing: u64,
}

/// The same requests have led to the same.
impl PartialEq for Contents {
    fn eq(&self, other: &Self) -> bool {
        self.head == other.head && self.generations == other.generations
    }
}

impl Eq for Contents {}

/// What an object would be by the operations before, for the checks.
#[derive(Copy, Clone)]
enum Sketch {
    Nothing,
    Value,
    /// Chunks are at most so many: appends may be merged, and trims are not looked at.
    Range {
        end: u64,
        chunks: u64,
    },
}

/// What a batch would do as a whole.
struct Check<'a> {
    generation: &'a Generation,
    objects: BTreeMap<Name, Sketch>,
    counts: Option<u64>,
    writing: u64,
    /// Chunks that removals free, and how many they may.
    freed: u64,
    most_freed: u64,
    /// Octets that are added; what goes is not taken off.
    added: u64,
}

impl<'a> Check<'a> {
    fn of(
        batch: &Batch,
        generation: &'a Generation,
        (counts, writing): (Option<u64>, u64),
        most_freed: u64,
    ) -> Result<Self, Refused> {
        let objects = BTreeMap::new();
        let mut check = Self { generation, objects, counts, writing, freed: 0, most_freed, added: 0 };
        for (number, operation) in batch.operations().iter().enumerate() {
            check.operation(number, operation)?;
        }
        Ok(check)
    }

    fn object(&mut self, name: &Name) -> &mut Sketch {
        let generation = self.generation;
        self.objects.entry(*name).or_insert_with(|| match generation.get(name.as_slice()) {
            None => Sketch::Nothing,
            Some(Object::Value(_)) => Sketch::Value,
            Some(Object::Range(range)) => Sketch::Range { end: range.end, chunks: range.chunks.len() as u64 },
        })
    }

    /// The object becomes another, or nothing.
    fn replace(&mut self, operation: usize, name: &Name, new: Sketch) -> Result<(), Refused> {
        if let Sketch::Range { chunks, .. } = std::mem::replace(self.object(name), new) {
            self.freed += chunks;
        }
        if self.freed > self.most_freed { Err(Refused::TooMuch { operation }) } else { Ok(()) }
    }

    fn operation(&mut self, number: usize, operation: &Operation) -> Result<(), Refused> {
        let unfit = |end| Err(Refused::Unfit { operation: number, end });
        let of_name = |name: &Name| name.as_slice().len() as u64 + PIECE;
        match operation {
            Operation::Put { name, value } => {
                self.added += of_name(name) + value.len() as u64;
                self.replace(number, name, Sketch::Value)
            }
            Operation::Remove { name } => self.replace(number, name, Sketch::Nothing),
            Operation::Begin { name, at } => {
                self.added += of_name(name);
                self.replace(number, name, Sketch::Range { end: *at, chunks: 0 })
            }
            Operation::Append { name, at, octets } => {
                self.added += of_name(name) + PIECE + octets.len() as u64;
                let object = self.object(name);
                let chunks = match *object {
                    Sketch::Nothing => 0,
                    Sketch::Range { end, chunks } if end == *at => chunks,
                    Sketch::Range { end, .. } => return unfit(Some(end)),
                    Sketch::Value => return unfit(None),
                };
                *object = Sketch::Range { end: at + octets.len() as u64, chunks: chunks + 1 };
                Ok(())
            }
            Operation::Trim { name, to } => match *self.object(name) {
                Sketch::Range { end, .. } if *to <= end => Ok(()),
                Sketch::Range { end, .. } => unfit(Some(end)),
                Sketch::Nothing | Sketch::Value => unfit(None),
            },
            Operation::Adopt => {
                self.counts = Some(self.writing);
                Ok(())
            }
            Operation::Discard { generation } => {
                let is_used = self.counts == Some(*generation) || self.writing == *generation;
                if is_used { Err(Refused::Used { operation: number }) } else { Ok(()) }
            }
        }
    }
}

/// Does to a generation what was checked before.
fn change(generation: &mut Generation, operations: &[Operation], mut budget: u64) {
    for operation in operations {
        match operation {
            Operation::Put { name, value } => generation.put(*name, Object::Value(value.clone())),
            Operation::Remove { name } => generation.remove(name),
            Operation::Append { name, at, octets } => generation.append(*name, *at, octets),
            Operation::Trim { name, to } => generation.trim(name, *to, &mut budget),
            Operation::Begin { name, at } => generation.put(*name, Object::Range(Range::at(*at))),
            Operation::Adopt | Operation::Discard { .. } => {}
        }
    }
}

impl Contents {
    /// An empty store with room for so many octets, as [`Self::octets`] counts them.
    pub fn new(room: u64) -> Self {
        Self { head: None, generations: BTreeMap::new(), room, discarded: Vec::new() }
    }

    /// What all generations hold, as [`Applied::octets`] counts.
    pub fn octets(&self) -> u64 {
        self.generations.values().map(Generation::octets).sum()
    }

    /// From now on there is room for so many octets. What is there stays.
    pub fn set_room(&mut self, room: u64) {
        self.room = room;
    }

    pub(crate) fn generations(&self) -> &BTreeMap<u64, Generation> {
        &self.generations
    }

    /// A store that was filled, and has no state, has this one. Generations that it does not name go. `None`: there can be no
    /// such state.
    pub(crate) fn restore(&mut self, state: &State) -> Option<()> {
        let State { incarnation, epoch, sequence, last, counts, writing, ref generations } = *state;
        let is_known = |generation| generations.contains(&generation);
        let is_possible = self.head.is_none()
            && generations.is_sorted_by(|one, next| one < next)
            && generations.len() <= MOST_GENERATIONS
            && is_known(writing)
            && counts.is_none_or(is_known)
            && generations.iter().all(|generation| *generation <= last)
            && last.max(sequence) <= MOST_NUMBER;
        is_possible.then(|| {
            self.head = Some(Head { incarnation, epoch, sequence, last, counts, writing });
            let mut filled = std::mem::take(&mut self.generations);
            for generation in generations {
                self.generations.insert(*generation, filled.remove(generation).unwrap_or_default());
            }
            self.discarded.extend(filled.into_values());
        })
    }

    /// Does to any generation what operations say that belong to no writer. `None`: they cannot.
    pub(crate) fn fill(&mut self, batch: &Batch) -> Option<()> {
        batch.check().ok()?;
        batch.operations().iter().all(|operation| operation.name().is_some()).then_some(())?;
        let new = Generation::default();
        let generation = self.generations.get(&batch.generation).unwrap_or(&new);
        Check::of(batch, generation, (None, 0), u64::MAX).ok()?;
        let generation = self.generations.entry(batch.generation).or_default();
        change(generation, batch.operations(), u64::MAX);
        Some(())
    }

    /// What another one holds is freed here, by [`Self::work`].
    pub fn discard(&mut self, other: Self) {
        self.discarded.extend(other.generations.into_values().chain(other.discarded));
    }

    /// What it says of itself; `None` if it is empty.
    pub fn state(&self) -> Option<State> {
        let Head { incarnation, epoch, sequence, last, counts, writing } = self.head?;
        let generations = self.generations.keys().copied().collect();
        Some(State { incarnation, epoch, sequence, last, counts, writing, generations })
    }

    /// Answers any request.
    pub fn answer(&mut self, request: &Request) -> Answer {
        let answer = match request {
            Request::State => Ok(Answer::State(self.state())),
            Request::Claim(claim) => self.claim(claim).map(Answer::Claimed),
            Request::Batch(batch) => self.apply(batch).map(Answer::Applied),
            Request::List { generation, from } => Ok(Answer::Listed(self.list(*generation, from))),
            Request::Page { generation, name, at } => self.page(*generation, name, *at).map(Answer::Page),
            Request::Values { generation, names } => Ok(Answer::Values(self.values(*generation, names))),
        };
        answer.unwrap_or_else(Answer::Refused)
    }

    /// Whether a request would be granted now, without doing it. One that changes nothing always is.
    ///
    /// # Errors
    /// [`Refused`] as its variants say.
    pub fn check(&self, request: &Request) -> Result<(), Refused> {
        match request {
            Request::Claim(claim) => self.check_claim(claim).map(drop),
            Request::Batch(batch) => self.check_batch(batch).map(drop),
            Request::State | Request::List { .. } | Request::Page { .. } | Request::Values { .. } => Ok(()),
        }
    }

    /// A writer begins.
    ///
    /// # Errors
    /// [`Refused`] as its variants say; nothing has changed.
    pub fn claim(&mut self, claim: &Claim) -> Result<Claimed, Refused> {
        let head = self.check_claim(claim)?;
        self.head = Some(head);
        let is_new = !self.generations.contains_key(&claim.generation);
        let octets = self.generations.entry(claim.generation).or_default().octets();
        Ok(Claimed { sequence: head.sequence, is_new, counts: head.counts, octets })
    }

    /// What the claim makes of the head.
    fn check_claim(&self, claim: &Claim) -> Result<Head, Refused> {
        if claim.generation > MOST_NUMBER {
            return Err(Malformed::Number.into());
        }
        let there = self.head.map(|head| head.incarnation);
        let is_right = if claim.is_empty { there.is_none() } else { there == Some(claim.incarnation) };
        if !is_right {
            return Err(Refused::Lost { there });
        }
        let Head { epoch, sequence, last, counts, .. } = self.head.unwrap_or(Head {
            incarnation: claim.incarnation,
            epoch: claim.epoch,
            sequence: 0,
            last: 0,
            counts: None,
            writing: 0,
        });
        if claim.epoch < epoch {
            return Err(Refused::Epoch { there: epoch });
        }
        let is_new = !self.generations.contains_key(&claim.generation);
        if is_new && claim.generation <= last {
            return Err(Refused::Generation { there: last });
        }
        if is_new && self.generations.len() == MOST_GENERATIONS {
            return Err(Refused::Generations);
        }
        let sequence = sequence.checked_add(JUMP).filter(|sequence| *sequence <= MOST_NUMBER);
        Ok(Head {
            incarnation: claim.incarnation,
            epoch: claim.epoch,
            sequence: sequence.ok_or(Malformed::Number)?,
            last: last.max(claim.generation),
            counts,
            writing: claim.generation,
        })
    }

    /// Does all of a batch, or nothing.
    ///
    /// # Errors
    /// [`Refused`] as its variants say; nothing has changed.
    pub fn apply(&mut self, batch: &Batch) -> Result<Applied, Refused> {
        let (head, budget) = self.check_batch(batch)?;
        let generation = self.generations.entry(head.writing).or_default();
        change(generation, batch.operations(), budget);
        let octets = generation.octets();
        for operation in batch.operations() {
            if let Operation::Discard { generation } = operation {
                self.discarded.extend(self.generations.remove(generation));
            }
        }
        self.head = Some(head);
        Ok(Applied { sequence: batch.sequence, octets })
    }

    /// What the batch makes of the head, and how many chunks its trims may free.
    fn check_batch(&self, batch: &Batch) -> Result<(Head, u64), Refused> {
        batch.check()?;
        let there = self.head.map(|head| head.incarnation);
        let Some(head) = self.head.filter(|head| head.incarnation == batch.incarnation) else {
            return Err(Refused::Lost { there });
        };
        if head.epoch != batch.epoch {
            return Err(Refused::Epoch { there: head.epoch });
        }
        if head.writing != batch.generation {
            return Err(Refused::Generation { there: head.writing });
        }
        if head.sequence.checked_add(1) != Some(batch.sequence) {
            return Err(Refused::Sequence { there: head.sequence });
        }
        let room = self.room.saturating_sub(self.octets());
        let generation = self.generations.get(&head.writing).ok_or(Refused::Lost { there })?;
        let check = Check::of(batch, generation, (head.counts, head.writing), MOST_FREED)?;
        if check.added > 0 && check.added > room {
            return Err(Refused::Full);
        }
        let head = Head { sequence: batch.sequence, counts: check.counts, ..head };
        Ok((head, MOST_FREED - check.freed))
    }

    /// Frees what was discarded: so many objects and chunks. Whether there is more.
    pub fn work(&mut self, budget: usize) -> bool {
        for _ in 0..budget {
            let Some(generation) = self.discarded.last_mut() else { return false };
            if !generation.free_one() {
                self.discarded.pop();
            }
        }
        !self.discarded.is_empty()
    }

    /// Some objects of a generation, in the order of their names.
    pub fn list(&self, generation: u64, from: &Cursor) -> Listed {
        let Some(generation) = self.generations.get(&generation) else {
            return Listed { objects: Vec::new(), next: None };
        };
        let behind = (std::ops::Bound::Excluded(from.0.as_slice()), std::ops::Bound::Unbounded);
        let mut rest = generation.objects().range::<[u8], _>(behind);
        let described =
            |(name, object): (&Name, &Object)| Described { name: *name, description: object.description() };
        let objects: Vec<_> = rest.by_ref().take(LISTED).map(described).collect();
        let last = objects.last().map(|object| Cursor(object.name.as_slice().to_vec()));
        Listed { objects, next: last.filter(|_| rest.next().is_some()) }
    }

    /// A part of an object.
    ///
    /// # Errors
    /// [`Refused::NotThere`]: there is no such object, or no chunk of the range begins at `at`.
    pub fn page(&self, generation: u64, name: &Name, at: u64) -> Result<Page, Refused> {
        let object = self.generations.get(&generation).and_then(|generation| generation.get(name.as_slice()));
        object.and_then(|object| object.page(at, MOST_PAGE)).ok_or(Refused::NotThere)
    }

    /// The values of these names, as far as there are some.
    pub fn values(&self, generation: u64, names: &[Name]) -> Vec<Option<Vec<u8>>> {
        let generation = self.generations.get(&generation);
        let value = |name: &Name| match generation.and_then(|generation| generation.get(name.as_slice())) {
            Some(Object::Value(value)) => Some(value.clone()),
            Some(Object::Range(_)) | None => None,
        };
        names.iter().map(value).collect()
    }
}
