//! A wire that takes its time, and loses, doubles and reorders frames: kernels have netem for it, not all of them.
//!
//! ```text
//!  host: eth0 (TAP) ══ descriptor ── [`Shaper`] ── descriptor ══ port (TAP), in a bridge
//! ```
//! A TAP offers its host no offloading, so the frames are whole, with checksums, and none is longer than the MTU.

use std::{
    collections::BTreeMap,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{read, write},
};
use serde::Serialize;

use crate::table::random::Random;

/// Frames that are under way in one direction, at most: more than windows of TCP let be. What comes then is lost.
const ROOM: usize = 1 << 14;
/// How much later a frame comes that others overtake.
const HELD_BACK: Duration = Duration::from_millis(10);
/// Time between a frame and its double.
const DOUBLED: Duration = Duration::from_millis(1);
/// Frames read at a time.
const AT_ONCE: usize = 64;
/// How long the end of a shaper may have to wait.
const NAP: Duration = Duration::from_millis(50);
/// Longer than any frame here.
const LONGEST: usize = 2048;

/// What happens to frames, in each direction.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Way {
    /// How long each is under way.
    pub delay: Duration,
    /// How many of 10,000 are lost.
    pub lost: u32,
    /// How many of 10,000 come twice.
    pub doubled: u32,
    /// How many of 10,000 come after those that were sent behind them.
    pub overtaken: u32,
}

/// Counts of both directions.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counts {
    /// Frames that came to the shaper.
    pub frames: u64,
    /// Those that went no further.
    pub lost: u64,
    /// Those that went on twice.
    pub doubled: u64,
    /// Those that others may have overtaken.
    pub overtaken: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.frames += other.frames;
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.overtaken += other.overtaken;
    }
}

/// One direction: what is under way, and when it comes.
#[derive(Debug)]
struct Direction {
    way: Way,
    random: Random,
    under_way: BTreeMap<(Instant, u64), Vec<u8>>,
    counts: Counts,
    next: u64,
}

impl Direction {
    fn new(way: Way, seed: u64) -> Self {
        let random = Random::new(seed);
        Self { way, random, under_way: BTreeMap::new(), counts: Counts::default(), next: 0 }
    }

    /// Takes a frame that was sent now.
    fn take(&mut self, now: Instant, frame: &[u8]) {
        self.counts.frames += 1;
        if self.random.chance(self.way.lost) || self.under_way.len() >= ROOM {
            self.counts.lost += 1;
            return;
        }
        let mut at = now + self.way.delay;
        if self.random.chance(self.way.overtaken) {
            self.counts.overtaken += 1;
            at += HELD_BACK;
        }
        self.put(at, frame);
        if self.random.chance(self.way.doubled) {
            self.counts.doubled += 1;
            self.put(at + DOUBLED, frame);
        }
    }

    fn put(&mut self, at: Instant, frame: &[u8]) {
        self.under_way.insert((at, self.next), frame.to_vec());
        self.next += 1;
    }

    /// The next frame that has come by now.
    fn come(&mut self, now: Instant) -> Option<Vec<u8>> {
        let first = self.under_way.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    fn next_at(&self) -> Option<Instant> {
        self.under_way.keys().next().map(|(at, _)| *at)
    }
}

/// A wire between two TAPs, until it is dropped.
#[derive(Debug)]
pub struct Shaper {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Counts>>,
}

impl Shaper {
    /// Begins. Another seed makes another choice of frames.
    ///
    /// # Errors
    /// There is no thread.
    pub fn start(ends: [OwnedFd; 2], way: Way, seed: u64) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let directions = [Direction::new(way, seed), Direction::new(way, !seed)];
        let thread = std::thread::Builder::new().name("shaper".into());
        let thread = thread.spawn(move || run(&ends, directions, &stopped)).context("a thread")?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends it: what became of the frames.
    pub fn end(mut self) -> Counts {
        self.join().unwrap_or_default()
    }

    fn join(&mut self) -> Option<Counts> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take()?.join().ok()
    }
}

impl Drop for Shaper {
    fn drop(&mut self) {
        self.join();
    }
}

fn run(ends: &[OwnedFd; 2], mut directions: [Direction; 2], stop: &AtomicBool) -> Counts {
    let mut frame = [0; LONGEST];
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        for (from, direction) in directions.iter_mut().enumerate() {
            while let Some(frame) = direction.come(now) {
                // An interface that is down takes none.
                if write(&ends[1 - from], &frame).is_err() {
                    direction.counts.lost += 1;
                }
            }
            for _ in 0..AT_ONCE {
                match read(&ends[from], &mut frame) {
                    Ok(octets) => direction.take(Instant::now(), &frame[..octets]),
                    Err(_) => break,
                }
            }
        }
        let next = directions.iter().filter_map(Direction::next_at).min();
        let nap = next.map_or(NAP, |at| at.saturating_duration_since(Instant::now()).min(NAP));
        let mut all = [0, 1].map(|end| PollFd::new(&ends[end], PollFlags::IN));
        let nap = Timespec { tv_sec: 0, tv_nsec: nap.subsec_nanos().into() };
        // Nothing follows from what it says: everything is tried again.
        let _ = poll(&mut all, Some(&nap));
    }
    let [mut counts, other] = directions.map(|direction| direction.counts);
    counts += other;
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_of(way: Way, frames: u16) -> (Vec<u16>, Counts) {
        let (mut direction, start) = (Direction::new(way, 1), Instant::now());
        let mut come = Vec::new();
        for number in 0..frames {
            let now = start + Duration::from_millis(u64::from(number));
            direction.take(now, &number.to_be_bytes());
            come.extend(std::iter::from_fn(|| direction.come(now)));
        }
        assert!(direction.next_at().is_none_or(|at| at > start));
        come.extend(std::iter::from_fn(|| direction.come(start + Duration::from_secs(3600))));
        (come.iter().map(|frame| u16::from_be_bytes([frame[0], frame[1]])).collect(), direction.counts)
    }

    #[test]
    fn what_only_takes_its_time_comes_once_and_in_order() {
        let way = Way { delay: Duration::from_millis(25), ..Way::default() };
        let (come, counts) = all_of(way, 1000);
        assert_eq!(come, (0..1000).collect::<Vec<_>>());
        assert_eq!(counts, Counts { frames: 1000, ..Counts::default() });
    }

    #[test]
    fn frames_are_lost_doubled_and_overtaken_as_often_as_is_wanted() {
        let way = Way { lost: 500, doubled: 200, overtaken: 200, ..Way::default() };
        let (come, counts) = all_of(way, 10_000);
        assert!((400..600).contains(&counts.lost), "{counts:?}");
        assert!((150..250).contains(&counts.doubled) && (150..250).contains(&counts.overtaken), "{counts:?}");
        assert_eq!(come.len() as u64, 10_000 - counts.lost + counts.doubled);
        let behind = come.windows(2).filter(|pair| pair[1] < pair[0]).count() as u64;
        assert!(behind > 0 && behind <= counts.overtaken + counts.doubled, "{behind} of {counts:?}");
    }

    #[test]
    fn there_is_room_for_so_many_and_no_more() {
        let way = Way { delay: Duration::from_secs(60), ..Way::default() };
        let (come, counts) = all_of(way, ROOM as u16 + 10);
        assert_eq!((come.len(), counts.lost), (ROOM, 10));
    }
}
