//! Stores of this host: in memory of this process, or in two files. What is asked is answered at once, but while a file is
//! read.
//!
//! Nothing that grows with the store is done at once: files are read, written anew and emptied, and generations freed, in
//! slices ([`LocalStore::work`]). So the lease is held meanwhile, and sessions go on.

mod files;

use std::{collections::VecDeque, os::fd::OwnedFd};

use holdfast_store::{Answer, Contents, Failure, Request};
use tracing::warn;

use self::files::{Files, Reading};

/// Octets that a store of this host holds at most.
const ROOM: u64 = 1 << 30;
/// What no longer counts is freed in slices of so many objects and chunks.
const FREED: usize = 10_000;

/// A store of this host.
#[derive(Debug)]
pub(crate) struct LocalStore {
    contents: Contents,
    /// What is asked while the files are read.
    waiting: VecDeque<Request>,
    answers: VecDeque<Result<Answer, Failure>>,
    kept: Kept,
}

/// What outlives the process.
#[derive(Debug)]
enum Kept {
    Nothing,
    /// It is being read.
    Reading(Reading),
    Files(Files),
}

impl LocalStore {
    /// In memory.
    pub(crate) fn in_memory() -> Self {
        Self::new(Kept::Nothing)
    }

    /// In two files, which go on with what is in them. What cannot be used of it is lost, and said.
    pub(crate) fn in_files(files: [OwnedFd; 2]) -> Self {
        Self::new(Kept::Reading(Reading::new(files)))
    }

    fn new(kept: Kept) -> Self {
        Self { contents: Contents::new(ROOM), waiting: VecDeque::new(), answers: VecDeque::new(), kept }
    }

    /// Asks the store.
    pub(crate) fn ask(&mut self, request: &Request) {
        if matches!(self.kept, Kept::Reading(_)) {
            // A writer asks for the state first, and for nothing else before it has it.
            self.waiting.push_back(request.clone());
        } else {
            let answer = self.answer(request);
            self.answers.push_back(answer);
        }
    }

    /// What was asked before is nobody's any more.
    pub(crate) fn forget(&mut self) {
        self.waiting.clear();
        self.answers.clear();
    }

    /// What is granted is written before it is done: what cannot be written never was.
    fn answer(&mut self, request: &Request) -> Result<Answer, Failure> {
        let Kept::Files(files) = &mut self.kept else { return Ok(self.contents.answer(request)) };
        if let Err(refused) = self.contents.check(request) {
            return Ok(Answer::Refused(refused));
        }
        files.append(request).map_err(|error| Failure::File(error.to_string()))?;
        let answer = self.contents.answer(request);
        files.follow(&self.contents, request);
        Ok(answer)
    }

    /// The next answer.
    pub(crate) fn take(&mut self) -> Option<Result<Answer, Failure>> {
        self.answers.pop_front()
    }

    /// Does a slice of what there is to do; whether there is more.
    pub(crate) fn work(&mut self) -> bool {
        match &mut self.kept {
            Kept::Nothing => self.contents.work(FREED),
            Kept::Files(files) => {
                let more = files.work(&self.contents);
                self.contents.work(FREED) || more
            }
            Kept::Reading(reading) => {
                // A file that cannot be read may be read later: whoever waits is told, and asks again.
                match reading.work(ROOM) {
                    Ok(None) => {}
                    Ok(Some((files, contents))) => {
                        (self.kept, self.contents) = (Kept::Files(files), contents);
                        while let Some(request) = self.waiting.pop_front() {
                            self.ask(&request);
                        }
                    }
                    Err(error) => {
                        if !self.waiting.is_empty() {
                            warn!(event = "store-file", "a file of the store cannot be read: {error}");
                        }
                        let failed = self.waiting.drain(..).map(|_| Err(Failure::File(error.to_string())));
                        self.answers.extend(failed);
                        return false;
                    }
                }
                true
            }
        }
    }
}

#[cfg(test)]
mod tests;
