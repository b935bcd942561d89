//! The lease: which router of the machine may have the sessions, and until when.
//!
//! It never lives in the store. Here it is a lock on a file that all routers of the machine share: who has the lock has the
//! lease, and the file says how many have had it, which is the *epoch*. The lock goes with the last descriptor, so with
//! the process.

use std::{io, os::fd::AsFd, time::Duration};

use rustix::{
    fs::{FlockOperation, flock},
    io::{pread, pwrite},
    time::{ClockId, clock_gettime},
};

/// For how long the gate may go on without a sign of life of this process. Longer than a turn of a busy machine takes; shorter
/// than any hold time.
const TERM: Duration = Duration::from_secs(3);

/// The lease is held.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Lease {
    epoch: u64,
}

/// No machine has so many routers: what a store says beyond is no reason to count on from there.
const MOST_EPOCH: u64 = 1 << 53;

impl Lease {
    /// Takes it; `None` while another router has it.
    ///
    /// # Errors
    /// The file cannot be locked, read or written.
    pub(crate) fn take(file: impl AsFd) -> io::Result<Option<Self>> {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let mut before = [0; 8];
        let read = pread(&file, &mut before, 0)?;
        // An empty file is a new one.
        let epoch = if read == before.len() { u64::from_le_bytes(before) } else { 0 };
        let epoch = epoch.checked_add(1).ok_or(io::ErrorKind::InvalidData)?;
        let written = pwrite(&file, &epoch.to_le_bytes(), 0)?;
        (written == 8).then_some(Some(Self { epoch })).ok_or_else(|| io::ErrorKind::WriteZero.into())
    }

    /// Counts on from an epoch that the store has had, with the lock held; `None`: no router has counted so far.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn raise(file: impl AsFd, there: u64) -> io::Result<Option<Self>> {
        let Some(epoch) = there.checked_add(1).filter(|epoch| *epoch <= MOST_EPOCH) else { return Ok(None) };
        let written = pwrite(&file, &epoch.to_le_bytes(), 0)?;
        (written == 8).then_some(Some(Self { epoch })).ok_or_else(|| io::ErrorKind::WriteZero.into())
    }

    /// How many have had it, this one included.
    pub(crate) fn epoch(self) -> u64 {
        self.epoch
    }

    /// Until when the gate may let something leave, if this process is well now: CLOCK_BOOTTIME in nanoseconds.
    pub(crate) fn until(self) -> u64 {
        let now = clock_gettime(ClockId::Boottime);
        let now = Duration::new(now.tv_sec.try_into().unwrap_or(0), now.tv_nsec.try_into().unwrap_or(0));
        u64::try_from((now + TERM).as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn one_has_it_and_each_has_another_epoch() {
        let path = std::env::temp_dir().join(format!("holdfast-lease-{}", std::process::id()));
        let open =
            || File::options().read(true).write(true).create(true).truncate(false).open(&path).expect("made");
        let (first, second) = (open(), open());
        let lease = Lease::take(&first).expect("a file").expect("free");
        assert_eq!(lease.epoch(), 1);
        assert_eq!(Lease::take(&second).expect("a file"), None, "another has it");
        drop(first);
        let later = Lease::take(&second).expect("a file").expect("free");
        assert_eq!(later.epoch(), 2);
        let raised = Lease::raise(&second, 40).expect("a file").expect("a higher one");
        assert_eq!(raised.epoch(), 41);
        for absurd in [MOST_EPOCH, u64::MAX] {
            assert_eq!(Lease::raise(&second, absurd).expect("a file"), None);
        }
        drop(second);
        let third = open();
        assert_eq!(Lease::take(&third).expect("a file").map(Lease::epoch), Some(42), "it stays so");
        let until = lease.until();
        assert!(later.until() >= until);
        std::fs::remove_file(&path).expect("removed");
    }
}
