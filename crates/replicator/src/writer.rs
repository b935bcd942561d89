//! How the store is written: who the writer is, which batches are on their way, what the store has confirmed.
//!
//! ```text
//!            connected            State              Claimed           first whole pass
//!  Down ───────────────> Asking ─────────> Claiming ─────────> Copying ─────────────────> Whole
//!    ^                     │   the store goes on where it was ─────────────────────────────^
//!    └── the connection ends, or a batch fails without effect: the store is asked once more ──┘
//! ```
//! A store that has lost anything that it had confirmed gets a new generation: everything is written anew, beside what it
//! may still have, and counts when it is whole. Until then no mark moves.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Instant,
};

use holdfast_nsr::SessionId;
use holdfast_store::{Answer, Batch, Claim, Failure, MOST_GENERATIONS, Operation, Refused, Request, State};

use crate::copier::Mark;

/// Batches on their way, of all tables together: 4 MiB. While they are, the next one gathers what comes meanwhile.
pub(crate) const MOST_BATCHES: usize = 4;

/// How far a session of a table is.
pub(crate) type TableMark = (usize, Mark);

/// Why the store cannot be written for now. For people.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Trouble {
    #[error("there is no connection to the store")]
    NoConnection,
    #[error(transparent)]
    Failure(#[from] Failure),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("the store answers to something that was not asked")]
    Answer,
    #[error("the store does not have what it had confirmed")]
    Lost,
    #[error("the store does not answer")]
    Silent,
}

/// What is known of the store.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// There is no connection.
    Down,
    /// It is asked what it has.
    Asking,
    /// It is claimed.
    Claiming,
    /// Everything is copied into a new generation.
    Copying,
    /// It has everything; what is new follows.
    Whole,
    /// A later router has claimed it. This one writes nothing any more, for good.
    Fenced,
}

/// What follows from an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// To be sent next.
    Send(Request),
    /// These marks are in the store.
    Confirmed(Vec<TableMark>),
    /// Copiers begin from nothing.
    Restart,
    /// The connection is to be given up, and tried again.
    Reconnect(Trouble),
    /// Another router has taken over.
    Fenced,
    /// A router with this epoch had claimed it before this one has written everything.
    Overtaken(u64),
}

#[derive(Debug)]
struct Sent {
    sequence: u64,
    /// The batch, as it is asked.
    request: Request,
    marks: Vec<TableMark>,
    adopts: bool,
    at: Instant,
}

/// The writer of one router.
#[derive(Debug)]
pub(crate) struct Writer {
    phase: Phase,
    epoch: u64,
    /// A random number for a store that is empty.
    fresh: u64,
    incarnation: u64,
    generation: u64,
    /// Of the last batch that was made.
    sequence: u64,
    confirmed: u64,
    sent: VecDeque<Sent>,
    /// The generation was adopted by a batch that is on its way, or confirmed.
    adopts: bool,
    /// The generation that counted before: discarded with the adoption.
    before: Option<u64>,
    /// Generations that never counted: their writers have died. They go with the next batch.
    useless: Vec<u64>,
    /// How often everything was written anew after the first time.
    losses: u64,
    has_written: bool,
    /// The store, when it was asked last, did not have what it had confirmed.
    has_lost: bool,
    /// What is there is of no use.
    rewrites: bool,
    held: u64,
    /// How far sessions are in a generation that does not count yet.
    copied: BTreeMap<(usize, SessionId), Mark>,
    /// Since when the store is asked whether it is still what it was.
    probed: Option<Instant>,
}

impl Writer {
    /// A writer of this epoch; `random` names a store that is empty.
    pub(crate) fn new(epoch: u64, random: u64) -> Self {
        Self {
            phase: Phase::Down,
            epoch,
            fresh: random.max(1) & ((1 << 53) - 1),
            incarnation: 0,
            generation: 0,
            sequence: 0,
            confirmed: 0,
            sent: VecDeque::new(),
            adopts: false,
            before: None,
            useless: Vec::new(),
            losses: 0,
            has_written: false,
            has_lost: false,
            rewrites: false,
            held: 0,
            copied: BTreeMap::new(),
            probed: None,
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// How often the store had lost something that it had confirmed.
    pub(crate) fn losses(&self) -> u64 {
        self.losses
    }

    /// Octets of objects in the store, as it said last.
    pub(crate) fn octets_in_store(&self) -> u64 {
        self.held
    }

    /// Batches that are not confirmed.
    pub(crate) fn waiting(&self) -> usize {
        self.sent.len()
    }

    /// Since when the oldest of them has been on its way.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.sent.front().map(|sent| sent.at).or(self.probed)
    }

    /// All batches up to this one are in the store.
    pub(crate) fn confirmed(&self) -> u64 {
        self.confirmed
    }

    /// Asks the store whether it is still what it was, where nothing else does: one that was emptied says nothing.
    pub(crate) fn probe(&mut self, now: Instant) -> Option<Request> {
        let may = self.phase == Phase::Whole && self.sent.is_empty() && self.probed.is_none();
        may.then(|| {
            self.probed = Some(now);
            Request::State
        })
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(crate) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The generation that counted when this one was claimed, as long as that does not count.
    pub(crate) fn counted_before(&self) -> Option<u64> {
        self.before
    }

    /// Whatever the store has is of no use: everything is written anew.
    pub(crate) fn rewrite(&mut self) {
        self.rewrites = true;
    }

    /// There is a connection: the store is asked what it has.
    pub(crate) fn connected(&mut self) -> Option<Request> {
        if self.phase == Phase::Fenced {
            return None;
        }
        self.probed = None;
        self.phase = Phase::Asking;
        Some(Request::State)
    }

    /// The connection has ended. Batches on their way may have arrived.
    pub(crate) fn disconnected(&mut self) {
        if self.phase != Phase::Fenced {
            self.phase = Phase::Down;
        }
    }

    /// A batch to be filled, if there is room for one more.
    pub(crate) fn begin(&mut self) -> Option<Batch> {
        let may = matches!(self.phase, Phase::Copying | Phase::Whole) && self.sent.len() < MOST_BATCHES;
        may.then(|| self.batch())
    }

    /// The next batch, which begins with what is useless.
    fn batch(&mut self) -> Batch {
        let mut batch = Batch::new(self.incarnation, self.epoch, self.generation, self.sequence + 1);
        for generation in std::mem::take(&mut self.useless) {
            // There are few, so there is room.
            let _ = batch.push(Operation::Discard { generation });
        }
        batch
    }

    /// Takes a batch that was filled, with what holds when it is confirmed. `is_whole`: the store has everything with it, as far as
    /// it was there when the batch was begun. `None`: there is nothing to send.
    pub(crate) fn send(
        &mut self,
        mut batch: Batch,
        marks: Vec<TableMark>,
        is_whole: bool,
        now: Instant,
    ) -> Option<&Request> {
        let mut adopts = false;
        if is_whole && !self.adopts && batch.push(Operation::Adopt).is_ok() {
            (adopts, self.adopts) = (true, true);
            if let Some(generation) = self.before.take() {
                // Without room it stays until the next time: nobody reads it.
                let _ = batch.push(Operation::Discard { generation });
            }
        }
        if batch.operations().is_empty() {
            return None;
        }
        self.sequence += 1;
        let sequence = batch.sequence;
        self.sent.push_back(Sent { sequence, request: Request::Batch(batch), marks, adopts, at: now });
        self.sent.back().map(|sent| &sent.request)
    }

    /// Those on their way, to be sent once more.
    pub(crate) fn again(&self) -> impl Iterator<Item = &Request> {
        self.sent.iter().map(|sent| &sent.request)
    }

    /// Whether everything is written anew because the store has lost something.
    pub(crate) fn has_lost(&self) -> bool {
        self.has_lost
    }

    /// The store has answered.
    pub(crate) fn answered(&mut self, answer: Result<Answer, Failure>) -> Outcome {
        match answer {
            Err(failure) => Outcome::Reconnect(failure.into()),
            Ok(answer) => match (self.phase, answer) {
                (Phase::Asking, Answer::State(state)) => self.state(state),
                (Phase::Whole, Answer::State(state)) if self.probed.take().is_some() => match state {
                    Some(state) if self.is_ours(&state) => Outcome::Confirmed(Vec::new()),
                    Some(state) if state.epoch > self.epoch => self.fence(state.epoch),
                    Some(_) | None => Outcome::Reconnect(Trouble::Lost),
                },
                // There were too many: first the others go.
                (Phase::Claiming, Answer::Claimed(claimed)) if !claimed.is_new => {
                    // Whatever becomes of the connection: what is in this generation is not what was copied.
                    (self.sequence, self.rewrites) = (claimed.sequence, true);
                    Outcome::Send(Request::Batch(self.batch()))
                }
                (Phase::Claiming, Answer::Applied(_)) => {
                    (self.phase, self.rewrites) = (Phase::Asking, true);
                    Outcome::Send(Request::State)
                }
                (Phase::Claiming, Answer::Claimed(claimed)) => {
                    (self.sequence, self.confirmed) = (claimed.sequence, claimed.sequence);
                    self.before = claimed.counts;
                    self.phase = Phase::Copying;
                    self.sent.clear();
                    self.copied.clear();
                    (self.adopts, self.rewrites) = (false, false);
                    self.losses += u64::from(self.has_lost);
                    Outcome::Restart
                }
                (Phase::Copying | Phase::Whole, Answer::Applied(applied)) => {
                    self.held = applied.octets;
                    self.confirm(applied.sequence)
                }
                (_, Answer::Refused(Refused::Epoch { there })) if there > self.epoch => self.fence(there),
                (_, Answer::Refused(refused)) => {
                    match refused {
                        // What is there is found out, and decides; or there will be room again.
                        Refused::Sequence { .. } | Refused::Full | Refused::Epoch { .. } => {}
                        // The same batch would be refused again.
                        _ => self.rewrites = true,
                    }
                    Outcome::Reconnect(refused.into())
                }
                _ => Outcome::Reconnect(Trouble::Answer),
            },
        }
    }

    /// Another router has claimed the store: after this one, or before it has ever had everything from this one.
    fn fence(&mut self, there: u64) -> Outcome {
        match self.has_written {
            true => {
                self.give_up();
                Outcome::Fenced
            }
            false => Outcome::Overtaken(there),
        }
    }

    /// Writes nothing any more.
    pub(crate) fn give_up(&mut self) {
        self.phase = Phase::Fenced;
    }

    fn state(&mut self, state: Option<State>) -> Outcome {
        self.has_lost = self.has_written && !state.as_ref().is_some_and(|state| self.is_ours(state));
        let Some(state) = state else {
            self.useless.clear();
            return self.claim(self.fresh.wrapping_add(self.losses) & ((1 << 53) - 1), true, 1);
        };
        if state.epoch > self.epoch {
            return self.fence(state.epoch);
        }
        if self.rewrites || !self.is_ours(&state) {
            let never_counted = |generation: &u64| Some(*generation) != state.counts;
            self.useless = state.generations.iter().copied().filter(never_counted).collect();
            let is_full = state.generations.len() >= MOST_GENERATIONS;
            let generation = self.useless.pop_if(|_| is_full).unwrap_or(state.last + 1);
            return self.claim(state.incarnation, false, generation);
        }
        // Nothing was lost: what had not arrived is sent once more.
        self.phase = if state.counts == Some(self.generation) { Phase::Whole } else { Phase::Copying };
        self.confirm(state.sequence)
    }

    /// Whether the store has everything that it had confirmed.
    fn is_ours(&self, state: &State) -> bool {
        state.incarnation == self.incarnation
            && state.epoch == self.epoch
            && state.writing == self.generation
            && state.generations.contains(&self.generation)
            && (self.confirmed..=self.sequence).contains(&state.sequence)
    }

    fn claim(&mut self, incarnation: u64, is_empty: bool, generation: u64) -> Outcome {
        (self.incarnation, self.generation) = (incarnation, generation);
        self.phase = Phase::Claiming;
        Outcome::Send(Request::Claim(Claim { incarnation, is_empty, epoch: self.epoch, generation }))
    }

    /// All batches up to this one are in the store.
    fn confirm(&mut self, sequence: u64) -> Outcome {
        if !(self.confirmed..=self.sequence).contains(&sequence) {
            return Outcome::Reconnect(Trouble::Answer);
        }
        let mut marks = Vec::new();
        while let Some(sent) = self.sent.pop_front_if(|sent| sent.sequence <= sequence) {
            if sent.adopts {
                (self.phase, self.has_written) = (Phase::Whole, true);
                marks.extend(std::mem::take(&mut self.copied).into_iter().map(|((at, _), mark)| (at, mark)));
            }
            match self.phase {
                Phase::Whole => marks.extend(sent.marks),
                // What does not count yet moves no mark.
                _ => self.copied.extend(sent.marks.into_iter().map(|(at, mark)| ((at, mark.id), mark))),
            }
        }
        self.confirmed = sequence;
        Outcome::Confirmed(marks)
    }
}

#[cfg(test)]
mod tests;
