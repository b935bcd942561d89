//! What programs of others print, as lines of the router's log.
//!
//! Each program prints into a pipe of its own. The router's log is no descriptor of theirs: who has it could truncate the
//! file, have the writes of all processes fail (`O_NONBLOCK`), or write lines in the name of others. The keeper reads
//! the pipes. A program that prints without end costs it little: what is over [`BURST`] and [`RATE`] is read and left
//! out, and no more than [`READ`] octets of a program are read in [`PAUSE`].

use std::{
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use holdfast_process::spawn_task;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::{io::AsyncReadExt, net::unix::pipe};
use tracing::{info, warn};

use crate::{
    service::Keeper,
    store::{Kept, OnDeath},
};

/// Owner of the pipes among the descriptors that are kept: so the next keeper has them.
const OWNER: &str = "keeper";
/// Octets of a line; the rest of a longer one is the next line.
const LONGEST: usize = 2048;
/// Octets that a program may have written at once: a long report of what has failed.
const BURST: u64 = 64 << 10;
/// After that, octets in a second.
const RATE: u64 = 1024;
/// Octets that are read at a time.
const READ: usize = 16 << 10;
/// Pause between two reads.
const PAUSE: Duration = Duration::from_millis(20);

/// Our end of the pipe of a program, and its copy for the next keeper.
pub(crate) struct Output {
    ours: pipe::Receiver,
    copy: OwnedFd,
}

impl Output {
    /// With the end of a program that is about to be started.
    pub(crate) fn new() -> Result<(Self, OwnedFd)> {
        let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).context("a pipe for what it prints")?;
        let copy = ours.try_clone()?;
        Ok((Self { ours: pipe::Receiver::from_owned_fd(ours)?, copy }, theirs))
    }

    /// The program runs: what it prints is logged from now on, also by the next keeper.
    pub(crate) fn follow(self, keeper: &Keeper, name: &str, pid: u32) {
        let note = Some(name.to_owned());
        let kept = Kept { descriptor: self.copy, on_death: OnDeath::Close, deadline: None, note };
        // Programs are fewer than descriptors that an owner may have.
        let _ = keeper.store.borrow_mut().put(OWNER, &pid.to_string(), kept);
        log(name.to_owned(), pid, self.ours);
    }
}

impl Keeper {
    /// Goes on with what the keeper before this one had read.
    pub(crate) fn follow_outputs(&self) -> Result<()> {
        let store = self.store.borrow();
        for (.., key, kept) in store.iter().filter(|(owner, ..)| *owner == OWNER) {
            if let (Ok(pid), Some(name)) = (key.parse(), &kept.note) {
                let copy = kept.descriptor.as_fd().try_clone_to_owned()?;
                log(name.clone(), pid, pipe::Receiver::from_owned_fd(copy)?);
            }
        }
        Ok(())
    }

    /// A process has ended. What it has printed is read to its end.
    pub(crate) fn forget_output(&self, pid: u32) {
        self.store.borrow_mut().drop_key(OWNER, &pid.to_string());
    }
}

/// Logs what comes out of a pipe, until its other end is closed.
fn log(name: String, pid: u32, mut output: pipe::Receiver) {
    spawn_task(async move {
        let (mut lines, mut read) = (Lines::new(Instant::now()), vec![0; READ]);
        while let Ok(length @ 1..) = output.read(&mut read).await {
            lines.take(&read[..length], Instant::now(), |line| write(&name, pid, line));
            tokio::time::sleep(PAUSE).await;
        }
        lines.end(Instant::now(), |line| write(&name, pid, line));
    });
}

fn write(name: &str, pid: u32, line: Line<'_>) {
    match line {
        Line::Printed(text) => info!(event = "program-printed", process = name, pid, "{}", harmless(text)),
        Line::LeftOut(octets) => {
            warn!(
                event = "output-left-out",
                process = name,
                pid,
                octets,
                "prints too much: some was left out"
            );
        }
    }
}

/// As text that no terminal obeys, and that stays on its line.
fn harmless(text: &[u8]) -> String {
    let escaped = |c: char| match c.is_control() && c != '\t' {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    String::from_utf8_lossy(text).chars().map(escaped).collect()
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Line<'l> {
    Printed(&'l [u8]),
    /// So many octets before the next line.
    LeftOut(u64),
}

/// What a program prints, cut into lines.
struct Lines {
    /// The beginning of a line.
    begun: Vec<u8>,
    /// Octets that may be written.
    room: u64,
    filled: Instant,
    left_out: u64,
}

impl Lines {
    fn new(now: Instant) -> Self {
        Self { begun: Vec::new(), room: BURST, filled: now, left_out: 0 }
    }

    fn take(&mut self, octets: &[u8], now: Instant, mut write: impl FnMut(Line<'_>)) {
        for part in octets.split_inclusive(|octet| *octet == b'\n') {
            for piece in part.chunks(LONGEST) {
                self.begun.extend_from_slice(piece);
                if self.begun.ends_with(b"\n") || self.begun.len() >= LONGEST {
                    self.end(now, &mut write);
                }
            }
        }
    }

    /// The line that has begun is one.
    fn end(&mut self, now: Instant, mut write: impl FnMut(Line<'_>)) {
        let line = std::mem::take(&mut self.begun);
        let line = line.trim_ascii_end();
        if line.is_empty() {
            return;
        }
        let more = now.saturating_duration_since(self.filled).as_secs();
        if more > 0 {
            (self.room, self.filled) = (self.room.saturating_add(more.saturating_mul(RATE)).min(BURST), now);
        }
        let length = line.len() as u64;
        if self.room < length {
            self.left_out += length;
            return;
        }
        self.room -= length;
        let left_out = std::mem::take(&mut self.left_out);
        if left_out > 0 {
            write(Line::LeftOut(left_out));
        }
        write(Line::Printed(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(parts: &[&[u8]]) -> Vec<String> {
        let (now, mut out) = (Instant::now(), Vec::new());
        let mut lines = Lines::new(now);
        let mut write = |line: Line<'_>| match line {
            Line::Printed(text) => out.push(harmless(text)),
            Line::LeftOut(octets) => out.push(format!("{octets} left out")),
        };
        parts.iter().for_each(|part| lines.take(part, now, &mut write));
        lines.end(now, &mut write);
        out
    }

    #[test]
    fn what_comes_in_parts_is_cut_into_lines_that_nothing_obeys() {
        assert_eq!(lines(&[b"a\nb", b"c\n\n", b"d"]), ["a", "bc", "d"]);
        assert_eq!(lines(&[b"\x1b[31mred\r\n", b"\xff\tx\x00\n"]), ["\\u{1b}[31mred", "\u{fffd}\tx\\u{0}"]);
        let long = vec![b'x'; 2 * LONGEST + 1];
        let lengths: Vec<_> = lines(&[&long]).iter().map(String::len).collect();
        assert_eq!(lengths, [LONGEST, LONGEST, 1]);
    }

    #[test]
    fn a_program_that_prints_without_end_has_a_burst_and_then_little() {
        let (start, line) = (Instant::now(), [&[b'x'; 99][..], b"\n"].concat());
        let (mut lines, mut octets, mut left_out) = (Lines::new(start), 0, 0);
        for turn in 0..10_000_u32 {
            // Ten seconds of it.
            let now = start + Duration::from_millis(1) * turn;
            lines.take(&line, now, |line| match line {
                Line::Printed(text) => octets += text.len() as u64,
                Line::LeftOut(some) => left_out += some,
            });
        }
        assert!((BURST..=BURST + 10 * RATE).contains(&octets), "{octets}");
        assert_eq!(octets + left_out + lines.left_out, 990_000, "nothing is lost without being counted");
    }
}
