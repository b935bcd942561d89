//! Stores of this host: in memory of this process, or in a file. Each answers at once.

use std::{collections::VecDeque, io, os::fd::OwnedFd};

use holdfast_store::{
    Answer, Contents, Failure, Request,
    file::{self, Recovered, Recovery, Rewrite},
};
use rustix::{
    fs::ftruncate,
    io::{pread, pwrite},
};
use tracing::warn;

/// Octets that a store of this host holds at most.
const ROOM: u64 = 1 << 30;
/// Octets of a file that are read at once.
const READ: usize = 1 << 20;
/// Generations that are given back before others have their turn: objects.
const FREED: usize = 10_000;

/// A store of this host.
#[derive(Debug)]
pub(crate) struct LocalStore {
    contents: Contents,
    answers: VecDeque<Result<Answer, Failure>>,
    files: Option<Files>,
}

/// Two files, of which one is the store. A file that is no longer worth its length is written anew into the other one.
#[derive(Debug)]
struct Files {
    files: [OwnedFd; 2],
    /// Which one is the store, and how long it is.
    active: usize,
    length: u64,
    /// It could not be written: nothing is known of what it has.
    is_broken: bool,
}

impl LocalStore {
    /// In memory.
    pub(crate) fn in_memory() -> Self {
        Self { contents: Contents::new(ROOM), answers: VecDeque::new(), files: None }
    }

    /// In two files, which go on with what is in them. What cannot be read is lost, and said.
    ///
    /// # Errors
    /// A file can be neither read nor written.
    pub(crate) fn in_files(files: [OwnedFd; 2]) -> io::Result<Self> {
        let found = [read(&files[0])?, read(&files[1])?];
        let sequence = |found: &Option<Recovered>| {
            found.as_ref().and_then(|found| found.contents.state()).map_or(0, |state| state.sequence)
        };
        let active = usize::from(sequence(&found[1]) > sequence(&found[0]));
        let [first, second] = found;
        let recovered = if active == 0 { first } else { second };
        let (contents, length) = match recovered {
            Some(recovered) => (recovered.contents, recovered.whole),
            None => (Contents::new(ROOM), 0),
        };
        let mut store = Files { files, active, length, is_broken: false };
        store.cut()?;
        Ok(Self { contents, answers: VecDeque::new(), files: Some(store) })
    }

    /// Asks the store.
    pub(crate) fn ask(&mut self, request: &Request) {
        let answer = self.answer(request);
        self.answers.push_back(answer);
    }

    fn answer(&mut self, request: &Request) -> Result<Answer, Failure> {
        if self.files.as_ref().is_some_and(|files| files.is_broken) {
            self.mend()?;
        }
        let answer = self.contents.answer(request);
        if let (Some(files), Answer::Claimed(_) | Answer::Applied(_)) = (&mut self.files, &answer) {
            let mut octets = Vec::new();
            file::append(request, &mut octets);
            if let Err(error) = files.append(&octets) {
                warn!(event = "store-file", "the file of the store cannot be written: {error}");
                files.is_broken = true;
                return Err(Failure::CannotSave);
            }
        }
        Ok(answer)
    }

    /// What the file has is what the store has: what was not written never was.
    fn mend(&mut self) -> Result<(), Failure> {
        let Some(files) = &mut self.files else { return Ok(()) };
        let recovered = read(&files.files[files.active]).map_err(|_| Failure::CannotSave)?;
        (self.contents, files.length) = match recovered {
            Some(recovered) => (recovered.contents, recovered.whole),
            None => (Contents::new(ROOM), 0),
        };
        files.cut().map_err(|_| Failure::CannotSave)?;
        files.is_broken = false;
        Ok(())
    }

    /// The next answer.
    pub(crate) fn take(&mut self) -> Option<Result<Answer, Failure>> {
        self.answers.pop_front()
    }

    /// Gives back what no longer counts; whether there is more.
    pub(crate) fn work(&mut self) -> bool {
        if let Some(files) = &mut self.files
            && !files.is_broken
            && file::is_worth_rewriting(files.length, &self.contents)
            && let Err(error) = files.rewrite(&self.contents)
        {
            warn!(event = "store-file", "the file of the store cannot be written anew: {error}");
        }
        self.contents.work(FREED)
    }
}

impl Files {
    /// The active file ends where its last whole record does.
    fn cut(&mut self) -> io::Result<()> {
        let file = &self.files[self.active];
        ftruncate(file, self.length)?;
        if self.length == 0 {
            let header = file::header();
            write_all(file, &header, 0)?;
            self.length = header.len() as u64;
        }
        Ok(())
    }

    fn append(&mut self, octets: &[u8]) -> io::Result<()> {
        write_all(&self.files[self.active], octets, self.length)?;
        self.length += octets.len() as u64;
        Ok(())
    }

    /// Writes the other file, which is the store from then on. The one before is emptied last.
    fn rewrite(&mut self, contents: &Contents) -> io::Result<()> {
        let other = 1 - self.active;
        let (mut rewrite, mut length, mut piece) = (Rewrite::new(contents), 0, Vec::new());
        ftruncate(&self.files[other], 0)?;
        loop {
            piece.clear();
            let more = rewrite.next(contents, &mut piece).map_err(io::Error::other)?;
            write_all(&self.files[other], &piece, length)?;
            length += piece.len() as u64;
            if !more {
                break;
            }
        }
        ftruncate(&self.files[self.active], 0)?;
        (self.active, self.length) = (other, length);
        Ok(())
    }
}

/// What is in a file; `None`: nothing of use.
fn read(file: &OwnedFd) -> io::Result<Option<Recovered>> {
    let (mut recovery, mut at, mut room) = (Recovery::new(), 0, vec![0; READ]);
    loop {
        let count = pread(file, &mut room, at)?;
        if count == 0 || !recovery.push(&room[..count]) {
            break;
        }
        at += count as u64;
    }
    match recovery.finish(ROOM) {
        Ok(recovered) => Ok(Some(recovered)),
        Err(error) => {
            warn!(event = "store-file", "a file of the store cannot be used: {error}");
            Ok(None)
        }
    }
}

fn write_all(file: &OwnedFd, mut octets: &[u8], mut at: u64) -> io::Result<()> {
    while !octets.is_empty() {
        let count = pwrite(file, octets, at)?;
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        (octets, at) = (&octets[count..], at + count as u64);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use holdfast_store::{Batch, Claim, Name, Operation, Page};

    use super::*;

    fn files(name: &str) -> [OwnedFd; 2] {
        ["a", "b"].map(|which| {
            let path = std::env::temp_dir().join(format!("holdfast-{}-{name}.{which}", std::process::id()));
            let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
            file.expect("made").into()
        })
    }

    fn copies(files: &[OwnedFd; 2]) -> [OwnedFd; 2] {
        [0, 1].map(|which| files[which].try_clone().expect("a copy"))
    }

    fn put(store: &mut LocalStore, sequence: u64, value: &[u8]) -> Result<Answer, Failure> {
        let mut batch = Batch::new(7, 1, 1, sequence);
        let name = Name::new(b"value").expect("short");
        batch.push(Operation::Put { name, value: value.to_vec() }).expect("room");
        store.ask(&Request::Batch(batch));
        store.take().expect("at once")
    }

    #[test]
    fn a_file_has_what_was_confirmed_however_often_it_is_written_anew() {
        let files = files("store");
        let mut store = LocalStore::in_files(copies(&files)).expect("empty files");
        store.ask(&Request::Claim(Claim { incarnation: 7, is_empty: true, epoch: 1, generation: 1 }));
        let Some(Ok(Answer::Claimed(claimed))) = store.take() else { panic!("it was empty") };
        let (mut sequence, mut longest) = (claimed.sequence, 0);
        for round in 0..40_u8 {
            sequence += 1;
            let answer = put(&mut store, sequence, &vec![round; 500_000]);
            assert!(matches!(answer, Ok(Answer::Applied(_))), "{answer:?}");
            while store.work() {}
            longest = longest.max(store.files.as_ref().expect("files").length);
            if round % 7 == 0 {
                store = LocalStore::in_files(copies(&files)).expect("a store");
            }
        }
        assert!(longest < 8 << 20, "{longest} octets for half a megabyte");
        let page = store.contents.page(1, &Name::new(b"value").expect("short"), 0);
        assert_eq!(page, Ok(Page::Value(vec![39; 500_000])));
    }

    #[test]
    fn a_file_that_cannot_be_written_has_confirmed_nothing() {
        let mut full = files("full");
        let mut store = LocalStore::in_files(copies(&full)).expect("empty files");
        store.ask(&Request::Claim(Claim { incarnation: 7, is_empty: true, epoch: 1, generation: 1 }));
        let Some(Ok(Answer::Claimed(claimed))) = store.take() else { panic!("it was empty") };
        // Nothing can be written to a file that is open for reading only.
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&full[0]));
        let read_only: OwnedFd = File::open(path).expect("opened").into();
        let writable = std::mem::replace(&mut store.files.as_mut().expect("files").files[0], read_only);
        assert_eq!(put(&mut store, claimed.sequence + 1, b"1"), Err(Failure::CannotSave));
        assert_eq!(put(&mut store, claimed.sequence + 2, b"2"), Err(Failure::CannotSave), "still");
        store.files.as_mut().expect("files").files[0] = writable;
        let answer = put(&mut store, claimed.sequence + 1, b"1");
        assert!(matches!(answer, Ok(Answer::Applied(_))), "what was not confirmed never was: {answer:?}");
        full[0] = full[0].try_clone().expect("a copy");
    }
}
