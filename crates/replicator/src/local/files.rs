//! The two files of a store, of which one is the store. When half of it is dead it is written anew into the other one.

use std::{io, os::fd::OwnedFd};

use holdfast_store::{
    Contents, Request,
    file::{self, Recovered, Recovery, Rewrite},
};
use rustix::{
    fs::{fstat, ftruncate},
    io::{pread, pwrite},
};
use tracing::warn;

/// A file is read in slices of so many octets.
const READ: usize = 1 << 20;
/// A file is emptied in slices of so many octets: what the kernel holds of it is freed meanwhile.
const EMPTIED: u64 = 16 << 20;
/// A file that could not be written anew is let grow by so many octets before it is tried again.
const GROWN: u64 = 4 << 20;

/// The files while they are read.
#[derive(Debug)]
pub(super) struct Reading {
    files: Option<[OwnedFd; 2]>,
    recovery: Recovery,
    /// Of the file that is read.
    at: u64,
    /// What was in the first one.
    first: Option<Found>,
    room: Vec<u8>,
}

/// What was in a file; nothing, if it is of no use.
#[derive(Debug)]
struct Found(Option<Recovered>);

impl Found {
    fn sequence(&self) -> u64 {
        self.0.as_ref().and_then(|found| found.contents.state()).map_or(0, |state| state.sequence)
    }
}

impl Reading {
    /// Nothing is read yet.
    pub(super) fn new(files: [OwnedFd; 2]) -> Self {
        Self { files: Some(files), recovery: Recovery::new(), at: 0, first: None, room: vec![0; READ] }
    }

    /// Reads a slice. The files when both are read, with what they hold, for which there is so much room.
    ///
    /// # Errors
    /// A file can be neither read nor written. It is tried again with the next call.
    pub(super) fn work(&mut self, room: u64) -> io::Result<Option<(Files, Contents)>> {
        let Some(files) = &self.files else { return Ok(None) };
        let file = &files[usize::from(self.first.is_some())];
        let count = pread(file, &mut self.room, self.at)?;
        if count > 0 && self.recovery.push(&self.room[..count]) {
            self.at += count as u64;
            return Ok(None);
        }
        let found = match std::mem::take(&mut self.recovery).finish(room) {
            Ok(recovered) => Some(recovered),
            Err(error) => {
                warn!(event = "store-file", "a file of the store cannot be used: {error}");
                None
            }
        };
        self.at = 0;
        match self.first.take() {
            None => {
                self.first = Some(Found(found));
                Ok(None)
            }
            Some(first) => self.choose(first, Found(found), room),
        }
    }

    fn choose(&mut self, first: Found, second: Found, room: u64) -> io::Result<Option<(Files, Contents)>> {
        let Some(files) = self.files.take() else { return Ok(None) };
        let active = usize::from(second.sequence() > first.sequence());
        let (Found(found), Found(useless)) = if active == 0 { (first, second) } else { (second, first) };
        let (mut contents, length) = match found {
            Some(found) => (found.contents, found.whole),
            None => (Contents::new(room), 0),
        };
        contents.discard(useless.map_or_else(|| Contents::new(0), |useless| useless.contents));
        let stale = fstat(&files[1 - active]).map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0));
        let mut files = Files { files, active, length, is_torn: true, stale, anew: None, not_before: 0 };
        // Where this cannot be done now, the next append does it.
        let _ = files.mend();
        Ok(Some((files, contents)))
    }
}

/// The files of a store that is read.
#[derive(Debug)]
pub(super) struct Files {
    files: [OwnedFd; 2],
    /// Which one is the store, and how long it is.
    active: usize,
    length: u64,
    /// It may have something behind its last whole record.
    is_torn: bool,
    /// Octets of the other one.
    stale: u64,
    /// The other one while it is written.
    anew: Option<Rewrite>,
    /// How long the active one becomes before it is tried again.
    not_before: u64,
}

impl Files {
    /// The active file ends where its last whole record does.
    fn mend(&mut self) -> io::Result<()> {
        let file = &self.files[self.active];
        ftruncate(file, self.length)?;
        if self.length == 0 {
            let header = file::header();
            write_all(file, &header, 0)?;
            self.length = header.len() as u64;
        }
        self.is_torn = false;
        Ok(())
    }

    /// Writes down a request.
    ///
    /// # Errors
    /// It was not written, and nothing of it counts.
    pub(super) fn append(&mut self, request: &Request) -> io::Result<()> {
        let mut octets = Vec::new();
        file::append(request, &mut octets);
        if octets.is_empty() {
            return Ok(());
        }
        if self.is_torn {
            self.mend()?;
        }
        self.is_torn = true;
        write_all(&self.files[self.active], &octets, self.length)?;
        (self.is_torn, self.length) = (false, self.length + octets.len() as u64);
        Ok(())
    }

    /// A request was done, and has led to these contents: the file that is being written has it as well.
    pub(super) fn follow(&mut self, contents: &Contents, request: &Request) {
        if let Some(rewrite) = &mut self.anew {
            let mut octets = Vec::new();
            rewrite.follow(contents, request, &mut octets);
            self.add(&octets);
        }
    }

    /// Writes or empties a slice; whether there is more to do.
    pub(super) fn work(&mut self, contents: &Contents) -> bool {
        if let Some(rewrite) = &mut self.anew {
            let mut octets = Vec::new();
            let more = rewrite.next(contents, &mut octets);
            self.add(&octets);
            if !more && self.anew.take().is_some() {
                // From now on it is the store.
                (self.active, self.length, self.stale) = (1 - self.active, self.stale, self.length);
                // What could not be emptied may stand behind it.
                (self.is_torn, self.not_before) = (true, 0);
            }
            return true;
        }
        if self.stale > 0 {
            let left = self.stale.saturating_sub(EMPTIED);
            // What cannot be emptied is overwritten.
            let is_emptied = ftruncate(&self.files[1 - self.active], left).is_ok();
            self.stale = if is_emptied { left } else { 0 };
            return true;
        }
        if self.length >= self.not_before && file::is_worth_rewriting(self.length, contents) {
            self.anew = Some(Rewrite::new());
            return true;
        }
        false
    }

    /// Adds octets to the file that is being written. If it cannot be, the active one goes on as it is.
    fn add(&mut self, octets: &[u8]) {
        match write_all(&self.files[1 - self.active], octets, self.stale) {
            Ok(()) => self.stale += octets.len() as u64,
            Err(error) => {
                warn!(event = "store-file", "the file of the store cannot be written anew: {error}");
                // A part of it may be there.
                self.stale += octets.len() as u64;
                (self.anew, self.not_before) = (None, self.length + GROWN);
            }
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
impl Files {
    pub(super) fn active(&mut self) -> &mut OwnedFd {
        &mut self.files[self.active]
    }

    pub(super) fn other(&mut self) -> &mut OwnedFd {
        &mut self.files[1 - self.active]
    }

    pub(super) fn is_being_written_anew(&self) -> bool {
        self.anew.is_some()
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }
}
