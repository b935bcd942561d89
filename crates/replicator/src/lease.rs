//! The lease: which router of the machine may have the sessions, and until when.
//!
//! It never lives in the store. Here it is a file that all routers of the machine share, and map:
//!
//! | word | means |
//! |---|---|
//! | 0 | the *epoch*: how many have had the lease |
//! | 1 | a tag that each holder changes in the upper 24 bits, and until when it has the lease: CLOCK_BOOTTIME in milliseconds |
//! | 2 | the network namespace of the holder (SO_NETNS_COOKIE); 0: not known |
//! | 3 | the *mark*: whoever has had the lease with this tag has lost the sessions to a router that does not share the file |
//! | 4 | the configuration of the holder, as a number |
//! | 5 | until when a standby is known to wait: CLOCK_BOOTTIME in milliseconds |
//! | 6 | the configuration of that standby |
//! | 7 | the serial of the configuration that it cannot take; 0: there is none |
//!
//! Word 1 is changed by compare-and-swap alone. So a router that was stopped, and wakes up when another one has the lease, cannot
//! renew what it had. The holder has the lock of the file, too. It goes with the last process of the router, so a death
//! is noticed before the time is over. The lock of a router whose process has died is no proof that the holder is dead when that is
//! another one by now: so a process says which tag the one before it has had.

use std::{
    io,
    os::fd::AsFd,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use holdfast_sys::memory::SharedFile;
use rustix::fs::{FlockOperation, flock};

/// For how long the gate may go on without a sign of life of this process. Longer than a turn of a busy machine takes; shorter
/// than any hold time.
const TERM: Duration = Duration::from_secs(3);
/// For how long a lease is left alone that is over: whoever had it may be about to let a segment go.
const MARGIN: Duration = Duration::from_millis(100);
/// It is renewed no more often.
const RENEWED: Duration = Duration::from_millis(100);
/// No machine has so many routers: what a store says beyond is no reason to count on from there.
const MOST_EPOCH: u64 = 1 << 53;

const EPOCH: usize = 0;
const HOLDER: usize = 1;
const NAMESPACE: usize = 2;
const MARK: usize = 3;
const CONFIGURATION: usize = 4;
const STANDBY: usize = 5;
const STANDBY_CONFIGURATION: usize = 6;
const STANDBY_REFUSES: usize = 7;
/// Octets of the file.
const OCTETS: usize = 64;
/// A mark has this bit besides the tag.
const IS_MARKED: u64 = 1 << 24;

/// Bits of the time in a word.
const TIME_BITS: u32 = 40;

/// Who holds the lease, and until when.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Holder {
    tag: u64,
    /// CLOCK_BOOTTIME in milliseconds.
    until: u64,
}

impl Holder {
    fn of(word: u64) -> Self {
        Self { tag: word >> TIME_BITS, until: word & ((1 << TIME_BITS) - 1) }
    }

    fn word(self) -> u64 {
        self.tag << TIME_BITS | self.until & ((1 << TIME_BITS) - 1)
    }

    /// Whoever has it next, if this one's time is over, or it is known to be dead.
    fn next(self, now: Duration, is_dead: bool) -> Option<Self> {
        // A file may be older than the start of the machine: no lease is longer than its term.
        let longest = milliseconds(now + TERM);
        let is_over = milliseconds(now) > self.until + milliseconds(MARGIN) || self.until > longest;
        (is_dead || is_over).then_some(Self { tag: (self.tag + 1) & 0xff_ffff, until: longest })
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The configurations of a standby.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Has {
    /// The number of what it runs.
    pub(crate) runs: u64,
    /// The serial of what it cannot take; 0: there is none.
    pub(crate) refused: u64,
}

/// The lease is held, or was.
#[derive(Debug)]
pub(crate) struct Lease {
    file: SharedFile,
    holder: Holder,
    epoch: u64,
    is_lost: bool,
    has_lock: bool,
}

impl Lease {
    /// Takes it; `None` while another router has it. `now` reads CLOCK_BOOTTIME; `own` is the tag that the process before has had,
    /// whose lock this one has; `by_time`: also from a router that may be alive, when its time is over.
    ///
    /// The clock is read behind the word. The other way round the holder may renew in between, and its time would be
    /// later than any that is taken at that time: it would pass for one of another start of the machine.
    ///
    /// # Errors
    /// The file cannot be locked, read, written or mapped.
    pub(crate) fn take(
        file: impl AsFd,
        own: Option<u64>,
        by_time: bool,
        now: impl FnOnce() -> Duration,
    ) -> io::Result<Option<Self>> {
        let has_lock = lock(&file)?;
        let file = SharedFile::map(file.as_fd().try_clone_to_owned()?, OCTETS)?;
        let words = file.words();
        let before = words[HOLDER].load(Ordering::SeqCst);
        let holder = Holder::of(before);
        let is_dead = has_lock && own.is_none_or(|own| own == holder.tag);
        let next = holder.next(now(), is_dead).filter(|_| has_lock || by_time);
        let taken = next.filter(|next| swap(&words[HOLDER], before, *next));
        let Some(holder) = taken else {
            if has_lock {
                let _ = flock(&file, FlockOperation::Unlock);
            }
            return Ok(None);
        };
        let epoch = words[EPOCH].fetch_add(1, Ordering::SeqCst).checked_add(1);
        let epoch = epoch.ok_or(io::ErrorKind::InvalidData)?;
        Ok(Some(Self { file, holder, epoch, is_lost: false, has_lock }))
    }

    /// Whether a router has it, which may be dead for less than the term.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn is_held(file: impl AsFd, now: impl FnOnce() -> Duration) -> io::Result<bool> {
        let mut word = [0; 8];
        let read = rustix::io::pread(file, &mut word, 8)?;
        let until = Holder::of(u64::from_le_bytes(word)).until;
        let now = now();
        Ok(read == 8 && (milliseconds(now)..=milliseconds(now + TERM)).contains(&until))
    }

    /// Whether this router has lost the lease for good: another one has had it since the process before, whose tag is `own`;
    /// or the file is marked ([`Self::give_up`]). Then the lock is given back.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn is_given_up(file: impl AsFd, own: Option<u64>) -> io::Result<bool> {
        let mut words = [0; OCTETS];
        let read = rustix::io::pread(&file, &mut words, 0)?;
        let word = |at: usize| words[8 * at..].first_chunk().map_or(0, |octets| u64::from_le_bytes(*octets));
        let tag = Holder::of(word(HOLDER)).tag;
        let is_other = read >= 8 * MARK && own.is_some_and(|own| own != tag);
        let is_given_up = is_other || word(MARK) == IS_MARKED | tag;
        if is_given_up {
            let _ = flock(&file, FlockOperation::Unlock);
        }
        Ok(is_given_up)
    }

    /// The sessions are at a router that does not share the file: nobody takes the lease here before [`Self::readmit`].
    pub(crate) fn give_up(&mut self) {
        if !self.is_lost {
            let words = self.file.words();
            words[MARK].store(IS_MARKED | self.holder.tag, Ordering::SeqCst);
            // That it is over keeps this router from being taken for one that has the sessions.
            swap(&words[HOLDER], self.holder.word(), Holder { until: 0, ..self.holder });
            self.is_lost = true;
        }
        self.release();
    }

    /// The operator has decided: a mark counts no more.
    ///
    /// # Errors
    /// The file cannot be written or mapped.
    pub(crate) fn readmit(file: impl AsFd) -> io::Result<()> {
        let file = SharedFile::map(file.as_fd().try_clone_to_owned()?, OCTETS)?;
        file.words()[MARK].store(0, Ordering::SeqCst);
        Ok(())
    }

    /// Says which configuration the holder has.
    pub(crate) fn set_configuration(&self, number: u64) {
        self.file.words()[CONFIGURATION].store(number, Ordering::SeqCst);
    }

    /// Says that a standby waits for [`TERM`] from now on, and what it has. Of several the last one is known.
    ///
    /// # Errors
    /// The file cannot be written or mapped.
    pub(crate) fn waits(file: impl AsFd, has: Has, now: Duration) -> io::Result<()> {
        let file = SharedFile::map(file.as_fd().try_clone_to_owned()?, OCTETS)?;
        file.words()[STANDBY_CONFIGURATION].store(has.runs, Ordering::SeqCst);
        file.words()[STANDBY_REFUSES].store(has.refused, Ordering::SeqCst);
        file.words()[STANDBY].store(milliseconds(now + TERM), Ordering::SeqCst);
        Ok(())
    }

    /// The configuration of the last holder, and what the standby that waits has. `now` is asked behind the file: whoever writes
    /// there meanwhile would be ahead of an earlier time, and be taken for nobody.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn configurations(
        file: impl AsFd,
        now: impl FnOnce() -> Duration,
    ) -> io::Result<(u64, Option<Has>)> {
        let mut words = [0; OCTETS];
        rustix::io::pread(&file, &mut words, 0)?;
        let now = now();
        let word = |at: usize| words[8 * at..].first_chunk().map_or(0, |octets| u64::from_ne_bytes(*octets));
        let waits = (milliseconds(now)..=milliseconds(now + TERM)).contains(&word(STANDBY));
        let has = Has { runs: word(STANDBY_CONFIGURATION), refused: word(STANDBY_REFUSES) };
        Ok((word(CONFIGURATION), waits.then_some(has)))
    }

    /// What tells this holder from others.
    pub(crate) fn tag(&self) -> u64 {
        self.holder.tag
    }

    /// Says that this process is well, unless another router has the lease by now. Whether it is held.
    pub(crate) fn renew(&mut self, now: Duration) -> bool {
        let until = milliseconds(now + TERM);
        if self.is_lost || until < self.holder.until + milliseconds(RENEWED) {
            return !self.is_lost;
        }
        let after = Holder { until, ..self.holder };
        self.is_lost = !swap(&self.file.words()[HOLDER], self.holder.word(), after);
        if self.is_lost {
            self.release();
            return false;
        }
        self.holder = after;
        // A router that was stopped for long, and has lost the lease to this one, has had the lock all the time.
        self.has_lock = self.has_lock || lock(&self.file).unwrap_or(false);
        true
    }

    /// Says in which network namespace its holder is. A moment before, the file names that of the holder before.
    pub(crate) fn set_namespace(&self, cookie: u64) {
        self.file.words()[NAMESPACE].store(cookie, Ordering::SeqCst);
    }

    /// In which network namespace the last holder is or was; 0: not known.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn namespace(file: impl AsFd) -> io::Result<u64> {
        let mut word = [0; 8];
        let read = rustix::io::pread(file, &mut word, (NAMESPACE * size_of::<u64>()) as u64)?;
        Ok(if read == word.len() { u64::from_ne_bytes(word) } else { 0 })
    }

    /// Whether another router has taken it since, by the file.
    pub(crate) fn is_taken(&self) -> bool {
        let now = Holder::of(self.file.words()[HOLDER].load(Ordering::SeqCst));
        self.is_lost || now.tag != self.holder.tag
    }

    /// Counts on from an epoch that the store has had; false: no router has counted so far.
    pub(crate) fn raise(&mut self, there: u64) -> bool {
        let Some(epoch) = there.checked_add(1).filter(|epoch| *epoch <= MOST_EPOCH) else { return false };
        self.file.words()[EPOCH].fetch_max(epoch, Ordering::SeqCst);
        self.epoch = epoch;
        true
    }

    /// Gives the lock back: whoever is here is no sign of life of a holder.
    pub(crate) fn release(&mut self) {
        let _ = flock(&self.file, FlockOperation::Unlock);
        self.has_lock = false;
    }

    /// How many have had it, this one included.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Until when the gate may let something leave: CLOCK_BOOTTIME in nanoseconds.
    pub(crate) fn until(&self) -> u64 {
        if self.is_lost { 0 } else { self.holder.until.saturating_mul(1_000_000) }
    }
}

fn swap(word: &AtomicU64, before: u64, after: Holder) -> bool {
    word.compare_exchange(before, after.word(), Ordering::SeqCst, Ordering::SeqCst).is_ok()
}

fn lock(file: impl AsFd) -> io::Result<bool> {
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, path::PathBuf};

    use super::*;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let name = format!("holdfast-lease-{name}-{}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }

        fn open(&self) -> File {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false).open(&self.0).expect("made")
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    const fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_router_that_may_be_alive_keeps_it_where_time_does_not_count() {
        let place = Place::new("by-time");
        let stopped = Lease::take(place.open(), None, true, || at(1000)).expect("a file").expect("free");
        let take = |by_time| Lease::take(place.open(), None, by_time, || at(9000)).expect("a file");
        assert!(take(false).is_none());
        drop(stopped);
        assert!(take(false).is_some(), "it is dead");
    }

    #[test]
    fn one_has_it_and_each_has_another_epoch() {
        let place = Place::new("one");
        let (first, second) = (place.open(), place.open());
        let mut lease = Lease::take(&first, None, true, || at(10_000)).expect("a file").expect("free");
        assert_eq!((lease.epoch(), lease.until()), (1, 13_000_000_000));
        assert!(Lease::take(&second, None, true, || at(10_001)).expect("a file").is_none(), "another has it");
        assert!(Lease::is_held(&second, || at(10_001)).expect("a file"));
        assert!(!Lease::is_held(&second, || at(13_001)).expect("a file"), "not renewed");
        assert!(lease.renew(at(10_050)) && lease.until() == 13_000_000_000, "it was renewed a moment ago");
        assert!(lease.renew(at(10_100)) && lease.until() == 13_100_000_000);
        drop((lease, first));
        let mut later =
            Lease::take(&second, None, true, || at(10_101)).expect("a file").expect("the holder is dead");
        assert_eq!(later.epoch(), 2);
        assert!(later.raise(40) && later.epoch() == 41);
        for absurd in [MOST_EPOCH, u64::MAX] {
            assert!(!later.raise(absurd));
        }
        drop((later, second));
        let third = Lease::take(place.open(), None, true, || at(10_200)).expect("a file").expect("free");
        assert_eq!(third.epoch(), 42, "it stays so");
    }

    #[test]
    fn who_was_stopped_for_too_long_has_lost_it_for_good() {
        let place = Place::new("stopped");
        let mut stopped = Lease::take(place.open(), None, true, || at(1000)).expect("a file").expect("free");
        assert!(
            Lease::take(place.open(), None, true, || at(4100)).expect("a file").is_none(),
            "its time is not over"
        );
        let mut next =
            Lease::take(place.open(), None, true, || at(4101)).expect("a file").expect("its time is over");
        assert!(stopped.is_taken() && !next.is_taken());
        assert!(!stopped.renew(at(4102)) && stopped.until() == 0);
        assert!(next.renew(at(5000)), "it has the lock now");
        drop(next);
        assert!(!stopped.renew(at(9000)), "nobody has it any more, and this one neither");
        let again =
            Lease::take(place.open(), None, true, || at(5001)).expect("a file").expect("the holder is dead");
        assert_eq!(again.epoch(), 3);
    }

    #[test]
    fn the_file_names_the_namespace_of_the_last_holder() {
        let place = Place::new("namespace");
        let file = place.open();
        std::fs::write(&place.0, [0; 16]).expect("a file as another build has made it");
        assert_eq!(Lease::namespace(&file).expect("a file"), 0);
        let lease = Lease::take(&file, None, true, || at(1000)).expect("a file").expect("free");
        assert_eq!(Lease::namespace(&file).expect("a file"), 0, "nobody has said it");
        lease.set_namespace(1 << 40 | 7);
        assert_eq!(Lease::namespace(&file).expect("a file"), 1 << 40 | 7);
    }

    #[test]
    fn a_renewal_while_another_router_looks_is_one() {
        let place = Place::new("meanwhile");
        let (first, second) = (place.open(), place.open());
        let mut lease = Lease::take(&first, None, true, || at(10_000)).expect("a file").expect("free");
        let mut renewed = |renewed, seen| {
            Lease::take(&second, None, true, || {
                assert!(lease.renew(at(renewed)));
                at(seen)
            })
        };
        assert!(renewed(10_500, 10_400).expect("a file").is_none(), "later than this router's clock");
        assert!(renewed(20_000, 20_000).expect("a file").is_none(), "in the last moment");
    }

    #[test]
    fn the_lock_of_a_dead_process_is_no_proof_against_another_router() {
        let place = Place::new("lock");
        let file = place.open();
        let stopped = Lease::take(&file, None, true, || at(1000)).expect("a file").expect("free");
        let own = Some(stopped.tag());
        assert!(!Lease::is_given_up(&file, own).expect("a file"));
        let other = place.open();
        let mut next =
            Lease::take(&other, None, true, || at(4101)).expect("a file").expect("its time is over");
        // The process is killed before it wakes up. The keeper has its file, and so its lock.
        drop(stopped);
        assert!(
            Lease::take(&file, own, true, || at(4102)).expect("a file").is_none(),
            "the next router lives"
        );
        assert!(Lease::is_given_up(&file, own).expect("a file"));
        assert!(next.renew(at(4300)) && next.has_lock);
        drop((next, other));
        assert!(Lease::is_given_up(&file, own).expect("a file"), "also when nobody has it any more");
        assert!(!Lease::is_given_up(&file, None).expect("a file"));
    }

    #[test]
    fn a_mark_keeps_the_lease_from_all_until_the_operator_decides() {
        let place = Place::new("mark");
        let file = place.open();
        let mut lease = Lease::take(&file, None, true, || at(1000)).expect("a file").expect("free");
        lease.give_up();
        assert!(!lease.renew(at(2000)) && lease.until() == 0);
        let again = place.open();
        assert!(Lease::is_given_up(&again, None).expect("a file"), "for another process, too");
        assert!(!Lease::is_held(&again, || at(1001)).expect("a file"), "and nobody has it");
        Lease::readmit(&again).expect("a file");
        assert!(!Lease::is_given_up(&again, None).expect("a file"));
        assert!(Lease::take(&again, None, true, || at(2000)).expect("a file").is_some());
    }

    #[test]
    fn the_file_names_the_configurations_of_holder_and_standby() {
        let place = Place::new("configurations");
        let file = place.open();
        let known = |now| Lease::configurations(&file, || at(now)).expect("a file");
        assert_eq!(known(1000), (0, None), "it is empty");
        let lease = Lease::take(&file, None, true, || at(1000)).expect("a file").expect("free");
        lease.set_configuration(7);
        let has = Has { runs: 8, refused: 9 };
        Lease::waits(place.open(), has, at(1000)).expect("a file");
        assert_eq!(known(4000), (7, Some(has)));
        assert_eq!(known(4001), (7, None), "it has said nothing for long");
        assert_eq!(known(900), (7, None), "of another start of the machine");
        let writes_meanwhile = || {
            Lease::waits(place.open(), has, at(1001)).expect("a file");
            at(1000)
        };
        assert_eq!(Lease::configurations(&file, writes_meanwhile).expect("a file"), (7, Some(has)));
    }

    #[test]
    fn a_late_renewal_holds_where_nobody_has_taken_the_lease() {
        let place = Place::new("late");
        let mut late = Lease::take(place.open(), None, true, || at(1000)).expect("a file").expect("free");
        assert!(late.renew(at(60_000)) && late.until() == 63_000_000_000);
    }

    #[test]
    fn times_of_another_start_of_the_machine_keep_nobody_waiting() {
        let old = Holder { tag: 0xff_ffff, until: 1 << 39 };
        let next = old.next(at(5000), false).expect("no lease is so long");
        assert_eq!(next, Holder { tag: 0, until: 8000 });
        assert_eq!(Holder::of(old.word()), old);
    }
}
