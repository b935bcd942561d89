//! A store in memory with faults, for tests.
//!
//! A request is on its way until [`Memory::work`] does it, and its answer is on its way until [`Memory::take`] takes it. So a
//! test is as slow as it likes, and cuts the connection at any place.

use std::collections::VecDeque;

use crate::{Answer, Contents, Failure, Request};

/// Requests that are on their way at most.
pub const MOST_WAITING: usize = 4096;

/// Batches and claims that [`Memory::lose_last`] can lose at most.
pub const MOST_LOST: usize = 256;

/// A store with faults.
#[derive(Clone, Debug)]
pub struct Memory {
    contents: Contents,
    /// The contents before what is in `history`, which was granted with any room.
    base: Contents,
    history: VecDeque<Request>,
    room: u64,
    requests: VecDeque<Request>,
    answers: VecDeque<Result<Answer, Failure>>,
    fault: Option<Failure>,
}

/// Too many requests are on their way.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("too many requests are on their way")]
pub struct TooMany(pub Request);

impl Memory {
    /// An empty store with room for so many octets.
    pub fn new(room: u64) -> Self {
        Self {
            contents: Contents::new(room),
            base: Contents::new(u64::MAX),
            history: VecDeque::new(),
            room,
            requests: VecDeque::new(),
            answers: VecDeque::new(),
            fault: None,
        }
    }

    /// Sends a request.
    ///
    /// # Errors
    /// [`TooMany`] with the request when [`MOST_WAITING`] are on their way.
    pub fn ask(&mut self, request: Request) -> Result<(), TooMany> {
        if self.requests.len() + self.answers.len() >= MOST_WAITING {
            return Err(TooMany(request));
        }
        self.requests.push_back(request);
        Ok(())
    }

    /// Does the oldest request. Whether there was one.
    pub fn work(&mut self) -> bool {
        let Some(request) = self.requests.pop_front() else { return false };
        let answer = match &self.fault {
            Some(fault) => Err(fault.clone()),
            None => Ok(self.contents.answer(&request)),
        };
        while self.contents.work(usize::MAX) {}
        if matches!(answer, Ok(Answer::Claimed(_) | Answer::Applied(_))) {
            self.history.push_back(request);
            if self.history.len() > MOST_LOST
                && let Some(oldest) = self.history.pop_front()
            {
                self.base.answer(&oldest);
                while self.base.work(usize::MAX) {}
            }
        }
        self.answers.push_back(answer);
        true
    }

    /// Takes the oldest answer, if one is there.
    pub fn take(&mut self) -> Option<Result<Answer, Failure>> {
        self.answers.pop_front()
    }

    /// Does all requests.
    pub fn work_all(&mut self) {
        while self.work() {}
    }

    /// The connection ends: requests that were not done never will be, and answers do not come.
    pub fn cut(&mut self) {
        self.requests.clear();
        self.answers.clear();
    }

    /// Answers all requests with this failure from now on, and does none; or does them again.
    pub fn fail(&mut self, fault: Option<Failure>) {
        self.fault = fault;
    }

    /// Loses everything, as one that was restarted empty.
    pub fn lose_everything(&mut self) {
        self.contents = Contents::new(self.room);
        self.base = Contents::new(u64::MAX);
        self.history.clear();
    }

    /// Loses the last batches and claims, as a replica that was promoted without them. At most [`MOST_LOST`]; how many it
    /// were.
    pub fn lose_last(&mut self, count: usize) -> usize {
        let kept = self.history.len().saturating_sub(count);
        let lost = self.history.len() - kept;
        self.history.truncate(kept);
        self.contents = self.base.clone();
        for request in &self.history {
            self.contents.answer(request);
            while self.contents.work(usize::MAX) {}
        }
        self.contents.set_room(self.room);
        lost
    }

    /// From now on there is room for so many octets.
    pub fn set_room(&mut self, room: u64) {
        self.room = room;
        self.contents.set_room(room);
    }

    /// What it holds.
    pub fn contents(&self) -> &Contents {
        &self.contents
    }
}
