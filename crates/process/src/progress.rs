//! What a process tells the keeper without answering: a page of memory that both have.
//!
//! ```text
//! finished:u64  units of finished work so far
//! patience:u64  milliseconds for which those who wait for this process wait at most; 0: nobody said
//! ```
//!
//! Both are little endian. The keeper makes the page and only reads it. It does not trust it: the count may save a process
//! that does not answer for a while only, and the patience only shortens that.

use std::{
    os::fd::OwnedFd,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use holdfast_api::keeper::v1::{Empty, KeeperClient, ProgressPageReply};
use holdfast_sys::memory::SharedMemory;
use tracing::debug;

/// Octets of the page.
pub const PAGE: usize = 4096;
/// Where the keeper finds the count of finished work.
pub const FINISHED: usize = 0;
/// Where it finds the patience of others.
pub const PATIENCE: usize = 8;

/// Counts units of finished work: octets taken from a peer, prefixes that a reader has passed for good, routes carried out.
///
/// The keeper reads the count while the process does not answer: a process whose count rises is busy, another one hangs. So
/// only work counts that has an end: never turns of a loop, and never the same unit twice. One thread counts.
#[derive(Copy, Clone, Debug)]
pub struct Finished(&'static AtomicU64);

impl Default for Finished {
    fn default() -> Self {
        Self(&UNREAD)
    }
}

impl Finished {
    /// Counts in this word, which others read as little endian.
    const fn in_word(word: &'static AtomicU64) -> Self {
        Self(word)
    }

    /// So many units more are done.
    #[inline]
    pub fn add(self, units: u64) {
        let units = self.units().wrapping_add(units);
        self.0.store(units.to_le(), Ordering::Relaxed);
    }

    /// Units so far.
    #[inline]
    pub fn units(self) -> u64 {
        u64::from_le(self.0.load(Ordering::Relaxed))
    }
}

/// What the keeper is told.
#[derive(Copy, Clone, Debug)]
pub struct Progress {
    /// Counts finished work.
    pub finished: Finished,
    patience: &'static AtomicU64,
    /// The process before was killed because it did not answer, although it had finished work meanwhile: it was slow, and not
    /// wrong.
    pub last_was_busy: bool,
}

/// What nobody reads.
static UNREAD: AtomicU64 = AtomicU64::new(0);

impl Default for Progress {
    /// Told to nobody.
    fn default() -> Self {
        Self { finished: Finished::default(), patience: &UNREAD, last_was_busy: false }
    }
}

impl Progress {
    /// With the page that this keeper gives. A keeper of an earlier build has none, and waits for nobody.
    pub async fn of(keeper: &KeeperClient) -> Self {
        let page = match keeper.progress_page(Empty {}).await {
            Ok((reply, descriptors)) => Self::in_page(descriptors, &reply),
            Err(error) => Err(error.to_string()),
        };
        page.unwrap_or_else(|error| {
            debug!("no page to count finished work in: {error}");
            Self::default()
        })
    }

    fn in_page(descriptors: Vec<OwnedFd>, reply: &ProgressPageReply) -> Result<Self, String> {
        let descriptor = descriptors.into_iter().next().ok_or("no descriptor")?;
        let page = SharedMemory::from_descriptor(descriptor).map_err(|error| error.to_string())?;
        // It is this process's for its life.
        let words = Box::leak(Box::new(page)).words();
        let [finished, patience] = [FINISHED, PATIENCE].map(|at| words.get(at / 8).ok_or("a short page"));
        Ok(Self {
            finished: Finished::in_word(finished?),
            patience: patience?,
            last_was_busy: reply.last_was_busy,
        })
    }

    /// Those who wait for this process do so for this time at most: a third of the shortest hold time that it serves.
    pub fn set_patience(&self, patience: Option<Duration>) {
        let milliseconds =
            patience.map_or(0, |patience| u64::try_from(patience.as_millis()).unwrap_or(u64::MAX));
        self.patience.store(milliseconds.to_le(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use holdfast_sys::memory::ForeignMemory;

    use super::*;

    #[test]
    fn the_keeper_reads_what_was_counted() {
        let page = SharedMemory::create("test", PAGE).expect("memfd");
        let theirs = ForeignMemory::from_descriptor(page.descriptor()).expect("mapped");
        let ours = page.descriptor().try_clone_to_owned().expect("dup");
        let reply = ProgressPageReply { last_was_busy: true };
        let progress = Progress::in_page(vec![ours], &reply).expect("a page");
        progress.finished.add(7);
        progress.set_patience(Some(Duration::from_secs(3)));
        assert_eq!((theirs.load(FINISHED), theirs.load(PATIENCE), progress.last_was_busy), (7, 3000, true));
        progress.set_patience(None);
        assert_eq!(theirs.load(PATIENCE), 0);
        assert!(Progress::in_page(Vec::new(), &reply).is_err());
    }
}
