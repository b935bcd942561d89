//! Stages of the pipeline that have brought the process down: the one that was being called at three deaths is left out.
//!
//! One memory that the keeper holds as well says which stage is being called. So the next process knows in which one this
//! one has ended, by a panic as well as for a hang.
//!
//! ```text
//! header  format:u64  inside:u32 (0: none, or a row + 1)  -:u32  build:112 (0 behind it)
//! row     deaths:u32  length:u32 (0: free)  name:56
//! ```

use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    io,
    os::fd::OwnedFd,
    rc::Rc,
    sync::atomic::{Ordering, compiler_fence},
    time::Instant,
};

use holdfast_bgp_pipeline::{Answer, Batch, Offered, PeerIndex, Release, Rewriter, Slot, Stage};
use holdfast_sys::memory::SharedMemory;
use holdfast_types::Prefix;
use holdfast_xrl::XrlError;
use tracing::{error, warn};

use crate::custody::FdStore;

/// A stage in which the process has ended so often is left out.
const MOST_DEATHS: u32 = 3;
/// Version of what is in the memory. What a process does not know it forgets.
const FORMAT: u64 = 1;
const HEADER: usize = 128;
const BUILD: usize = 112;
const ROW: usize = 64;
const NAME: usize = 56;
/// Stages that are known by name; further ones are not watched.
const ROWS: usize = 64;
const OCTETS: usize = HEADER + ROWS * ROW;

/// What is known of the stages of this process, in all its tables.
pub(crate) struct Quarantine {
    custody: FdStore,
    /// What the process was started from: another build has other stages.
    build: String,
    record: RefCell<Option<Rc<RefCell<Record>>>>,
    /// A stage is left out for the first time.
    is_new: Cell<bool>,
}

impl Quarantine {
    /// Nothing is known yet.
    pub(crate) fn new(custody: FdStore, build: String) -> Self {
        Self { custody, build, record: RefCell::default(), is_new: Cell::default() }
    }

    /// Plugs stages in but those that are left out, each so that a death in it is known.
    ///
    /// # Errors
    /// As the keeper says.
    pub(crate) async fn plug(&self, stages: Vec<Box<dyn Stage>>) -> Result<Vec<Box<dyn Stage>>, XrlError> {
        if stages.is_empty() {
            return Ok(stages);
        }
        let record = self.record().await?;
        let guarded = |stage: Box<dyn Stage>| {
            Some(match admit(stage.name(), &record) {
                Admission::Watched(row) => Box::new(Guarded { stage, row, record: Rc::clone(&record) }),
                Admission::Unwatched => stage,
                Admission::LeftOut => return None,
            })
        };
        Ok(stages.into_iter().filter_map(guarded).collect())
    }

    /// The same for stages that rewrite. One in several slots is known by name and slot.
    ///
    /// # Errors
    /// As the keeper says.
    pub(crate) async fn plug_rewriters(&self, stages: Vec<Plugged>) -> Result<Vec<Plugged>, XrlError> {
        if stages.is_empty() {
            return Ok(stages);
        }
        let record = self.record().await?;
        let guarded = |(slot, stage): Plugged| -> Option<Plugged> {
            let stage = match admit(&format!("{} {slot}", stage.name()), &record) {
                Admission::Watched(row) => Box::new(Guarded { stage, row, record: Rc::clone(&record) }),
                Admission::Unwatched => stage,
                Admission::LeftOut => return None,
            };
            Some((slot, stage))
        };
        Ok(stages.into_iter().filter_map(guarded).collect())
    }

    /// Names of the stages that are left out.
    pub(crate) fn left_out(&self) -> Vec<String> {
        self.record.borrow().iter().flat_map(|record| record.borrow().left_out()).collect()
    }

    /// Whether the last death was the one for which a stage is left out: nobody else is to blame for it.
    pub(crate) fn is_new(&self) -> bool {
        self.is_new.get()
    }

    async fn record(&self) -> Result<Rc<RefCell<Record>>, XrlError> {
        let known = self.record.borrow().clone();
        match known {
            Some(record) => Ok(record),
            None => self.recover().await,
        }
    }

    async fn recover(&self) -> Result<Rc<RefCell<Record>>, XrlError> {
        let failed = |error: io::Error| XrlError::internal(format!("the record of the stages: {error}"));
        let left = self.custody.stages().await?;
        let left = left.map(|left| Record::recover(left, &self.build)).transpose().map_err(failed)?;
        let record = match left.flatten() {
            Some((record, dead)) => {
                if let Some((name, deaths)) = dead {
                    warn!(
                        event = "stage-died",
                        stage = name,
                        deaths,
                        "the process before has ended in a stage"
                    );
                    self.is_new.set(deaths == MOST_DEATHS);
                }
                record
            }
            None => {
                let record = Record::create(&self.build).map_err(failed)?;
                self.custody.put_stages(record.descriptor().map_err(failed)?).await?;
                record
            }
        };
        let record = Rc::new(RefCell::new(record));
        self.record.replace(Some(Rc::clone(&record)));
        Ok(record)
    }
}

/// A stage that rewrites, and its slot.
pub(crate) type Plugged = (Slot, Box<dyn Rewriter>);

/// Whether a stage is plugged in.
enum Admission {
    /// Under this row.
    Watched(u32),
    Unwatched,
    LeftOut,
}

fn admit(name: &str, record: &Rc<RefCell<Record>>) -> Admission {
    let Some(row) = record.borrow_mut().row(name) else {
        warn!(event = "stage-unwatched", stage = name, "too many stages: a death in it will not be known");
        return Admission::Unwatched;
    };
    if record.borrow().deaths(row) >= MOST_DEATHS {
        error!(
            event = "stage-quarantined",
            stage = name,
            "left out: the process has ended in it {MOST_DEATHS} times; a restart of the router or another build plugs it in again"
        );
        return Admission::LeftOut;
    }
    Admission::Watched(row)
}

/// A stage, and where it is noted that it is being called.
#[derive(Debug)]
struct Guarded<S: ?Sized> {
    row: u32,
    record: Rc<RefCell<Record>>,
    stage: Box<S>,
}

impl<S: ?Sized> Guarded<S> {
    fn within<T>(&mut self, call: impl FnOnce(&mut S) -> T) -> T {
        self.record.borrow_mut().enter(self.row);
        let result = call(&mut *self.stage);
        // Not after a panic.
        self.record.borrow_mut().leave();
        result
    }

    fn seen<T>(&self, call: impl FnOnce(&S) -> T) -> T {
        self.record.borrow_mut().enter(self.row);
        let result = call(&*self.stage);
        self.record.borrow_mut().leave();
        result
    }
}

impl Rewriter for Guarded<dyn Rewriter> {
    fn name(&self) -> &'static str {
        self.stage.name()
    }

    fn rewrite(&mut self, set: &Offered<'_>) -> Answer {
        self.within(|stage| stage.rewrite(set))
    }

    fn describe(&self) -> String {
        self.seen(<dyn Rewriter>::describe)
    }
}

impl Stage for Guarded<dyn Stage> {
    fn name(&self) -> &'static str {
        self.stage.name()
    }

    fn push(&mut self, batch: &mut Batch<'_>) {
        self.within(|stage| stage.push(batch));
    }

    fn peer_down(&mut self, peer: PeerIndex) {
        self.within(|stage| stage.peer_down(peer));
    }

    fn peer_removed(&mut self, peer: PeerIndex) {
        self.within(|stage| stage.peer_removed(peer));
    }

    fn work(&mut self, now: Instant, budget: usize, released: &mut Vec<Release>) -> bool {
        self.within(|stage| stage.work(now, budget, released))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.seen(<dyn Stage>::poll_timeout)
    }

    fn holds(&self, now: Instant, peer: PeerIndex, prefix: Prefix) -> Option<Cow<'static, str>> {
        self.seen(|stage| stage.holds(now, peer, prefix))
    }

    fn describe(&self) -> String {
        self.seen(<dyn Stage>::describe)
    }
}

/// The stage in which a process has ended, and how often that was so.
type Dead = (String, u32);

/// The memory.
#[derive(Debug)]
struct Record(SharedMemory);

impl Record {
    fn create(build: &str) -> io::Result<Self> {
        let mut memory = SharedMemory::create("holdfast-stages", OCTETS)?;
        memory.octets_mut()[..8].copy_from_slice(&FORMAT.to_le_bytes());
        memory.octets_mut()[16..HEADER].copy_from_slice(&padded::<BUILD>(build));
        Ok(Self(memory))
    }

    /// As the process before has left it, with the stage in which that has ended, if it has, and how often so far; `None` if
    /// it is of another version or another build.
    fn recover(descriptor: OwnedFd, build: &str) -> io::Result<Option<(Self, Option<Dead>)>> {
        let mut record = Self(SharedMemory::from_descriptor(descriptor)?);
        let octets = record.0.octets();
        if octets.len() != OCTETS
            || octets[..8] != FORMAT.to_le_bytes()
            || octets[16..HEADER] != padded::<BUILD>(build)
        {
            return Ok(None);
        }
        let inside = record.word(8).checked_sub(1).filter(|row| (*row as usize) < ROWS);
        record.leave();
        let dead = inside.map(|row| {
            let deaths = record.deaths(row).saturating_add(1);
            record.set_word(place(row), deaths);
            (record.name(row).unwrap_or_default().to_owned(), deaths)
        });
        Ok(Some((record, dead)))
    }

    fn descriptor(&self) -> io::Result<OwnedFd> {
        self.0.descriptor().try_clone_to_owned()
    }

    /// Where a name is, or is from now on; `None`: there is no room.
    fn row(&mut self, name: &str) -> Option<u32> {
        let name = &name[..name.floor_char_boundary(NAME)];
        let of_name = |record: &Self, row: u32| record.name(row).is_none_or(|known| known == name);
        let row = (0..ROWS as u32).find(|row| of_name(self, *row))?;
        if self.name(row).is_none() {
            self.0.octets_mut()[place(row) + 8..][..name.len()].copy_from_slice(name.as_bytes());
            self.set_word(place(row) + 4, name.len() as u32);
        }
        Some(row)
    }

    /// The name in a row; `None`: it is free.
    fn name(&self, row: u32) -> Option<&str> {
        let length = self.word(place(row) + 4) as usize;
        let octets = self.0.octets()[place(row) + 8..].get(..length).filter(|_| (1..=NAME).contains(&length));
        str::from_utf8(octets?).ok()
    }

    fn deaths(&self, row: u32) -> u32 {
        self.word(place(row))
    }

    fn left_out(&self) -> Vec<String> {
        let rows = (0..ROWS as u32).filter(|row| self.deaths(*row) >= MOST_DEATHS);
        rows.filter_map(|row| self.name(row).map(str::to_owned)).collect()
    }

    fn enter(&mut self, row: u32) {
        self.set_word(8, row + 1);
    }

    fn leave(&mut self) {
        self.set_word(8, 0);
    }

    fn word(&self, at: usize) -> u32 {
        self.0.octets()[at..].first_chunk().copied().map_or(0, u32::from_le_bytes)
    }

    /// Death may come at any instruction: it is written before what follows, and after what was before.
    fn set_word(&mut self, at: usize, word: u32) {
        compiler_fence(Ordering::SeqCst);
        self.0.octets_mut()[at..][..4].copy_from_slice(&word.to_le_bytes());
        compiler_fence(Ordering::SeqCst);
    }
}

fn place(row: u32) -> usize {
    HEADER + row as usize * ROW
}

/// The beginning of a text, with zeros behind it.
fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut octets = [0; N];
    let length = text.len().min(N);
    octets[..length].copy_from_slice(&text.as_bytes()[..length]);
    octets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route() -> Prefix {
        Prefix::host([192, 0, 2, 1].into())
    }

    /// Panics when it is asked why it holds a route, if it is to.
    #[derive(Debug)]
    struct Frail(bool);

    impl Stage for Frail {
        fn name(&self) -> &'static str {
            if self.0 { "frail" } else { "sound" }
        }
        fn push(&mut self, _: &mut Batch<'_>) {}
        fn peer_down(&mut self, _: PeerIndex) {}
        fn holds(&self, _: Instant, _: PeerIndex, _: Prefix) -> Option<Cow<'static, str>> {
            assert!(!self.0, "it is frail");
            None
        }
        fn describe(&self) -> String {
            String::new()
        }
    }

    /// The life of a process with both stages, which asks all of them: names of those that were plugged in.
    fn live(left: OwnedFd, build: &str) -> Vec<&'static str> {
        let record = Record::recover(left, build).expect("readable").expect("of this version").0;
        let record = Rc::new(RefCell::new(record));
        let stages = [Frail(false), Frail(true)].map(|stage| Box::new(stage) as Box<dyn Stage>);
        let stages: Vec<Box<dyn Stage>> = stages
            .into_iter()
            .filter_map(|stage| match admit(stage.name(), &record) {
                Admission::Watched(row) => {
                    let record = Rc::clone(&record);
                    Some(Box::new(Guarded { stage, row, record }) as Box<dyn Stage>)
                }
                Admission::Unwatched => Some(stage),
                Admission::LeftOut => None,
            })
            .collect();
        let ask = || stages.iter().for_each(|stage| drop(stage.holds(Instant::now(), PeerIndex(0), route())));
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(ask));
        stages.iter().map(|stage| stage.name()).collect()
    }

    #[test]
    fn a_stage_in_which_three_processes_have_ended_is_left_out_of_the_next() {
        let record = Record::create("1").expect("memory");
        let lives = [(); 5].map(|()| live(record.descriptor().expect("a copy"), "1"));
        assert_eq!(
            lives,
            [&["sound", "frail"][..], &["sound", "frail"], &["sound", "frail"], &["sound"], &["sound"]]
        );
        assert_eq!(record.left_out(), ["frail"]);
    }

    #[test]
    fn another_build_has_other_stages() {
        let record = Record::create("1").expect("memory");
        let other = Record::recover(record.descriptor().expect("a copy"), "2").expect("readable");
        assert!(other.is_none());
    }

    #[test]
    fn names_are_cut_and_there_is_room_for_so_many() {
        let mut record = Record::create("1").expect("memory");
        let long = "ä".repeat(NAME);
        assert_eq!((record.row(&long), record.row(&long)), (Some(0), Some(0)));
        assert_eq!(record.name(0), Some(&long[..NAME]));
        for row in 1..ROWS as u32 {
            assert_eq!(record.row(&row.to_string()), Some(row));
        }
        assert_eq!((record.row("one more"), record.row("7")), (None, Some(7)));
    }
}
