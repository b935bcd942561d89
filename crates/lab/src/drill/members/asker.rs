//! An operator who asks `show bgp summary` each 50 ms.

use std::{
    path::Path,
    process::Command,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::Result;

use super::Asked;
use crate::{netns::output, router::binary};

const INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
struct Shared {
    ends: AtomicBool,
    pauses: AtomicBool,
    answers: Mutex<Answers>,
}

#[derive(Debug, Default)]
struct Answers {
    waits: Vec<Duration>,
    failed: usize,
    error: Option<String>,
}

/// Asks until it is dropped.
#[derive(Debug)]
pub(super) struct Asker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Asker {
    /// Asks the router in this directory.
    pub(super) fn start(directory: &Path) -> Result<Self> {
        let (program, directory) = (binary()?, directory.to_owned());
        let shared = Arc::new(Shared::default());
        let its = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            while !its.ends.load(Ordering::Relaxed) {
                let due = Instant::now() + INTERVAL;
                if !its.pauses.load(Ordering::Relaxed) {
                    let begin = Instant::now();
                    let mut command = Command::new(&program);
                    command.args(["show", "bgp", "summary", "--json"]);
                    let answer = output(command.env("HOLDFAST_RUNTIME_DIR", &directory));
                    its.answers
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .add(begin.elapsed(), answer.err());
                }
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
        });
        Ok(Self { shared, thread: Some(thread) })
    }

    pub(super) fn pause(&self, pauses: bool) {
        self.shared.pauses.store(pauses, Ordering::Relaxed);
    }

    /// Of the answers since the last time that this was asked.
    pub(super) fn asked(&self) -> Asked {
        std::mem::take(&mut *self.shared.answers.lock().unwrap_or_else(PoisonError::into_inner)).asked()
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Answers {
    /// While one question waits, those that were due meanwhile wait as well.
    fn add(&mut self, wait: Duration, error: Option<anyhow::Error>) {
        self.failed += usize::from(error.is_some());
        self.error = self.error.take().or(error.map(|error| format!("{error:#}")));
        let mut wait = wait;
        loop {
            self.waits.push(wait);
            match wait.checked_sub(INTERVAL) {
                Some(less) if !less.is_zero() => wait = less,
                _ => break,
            }
        }
    }

    fn asked(mut self) -> Asked {
        self.waits.sort_unstable();
        let of = |percent: usize| {
            let place = (self.waits.len() * percent).div_ceil(100).saturating_sub(1);
            self.waits.get(place).map_or(0, |wait| wait.as_millis() as u64)
        };
        Asked {
            asked: self.waits.len(),
            p50_ms: of(50),
            p99_ms: of(99),
            max_ms: of(100),
            failed: self.failed,
            error: self.error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_wait_is_one_of_all_questions_that_were_due() {
        let mut answers = Answers::default();
        (0..98).for_each(|_| answers.add(Duration::from_millis(10), None));
        answers.add(Duration::from_millis(120), Some(anyhow::anyhow!("nobody")));
        let asked = answers.asked();
        assert_eq!((asked.asked, asked.failed), (101, 1));
        assert_eq!((asked.p50_ms, asked.p99_ms, asked.max_ms), (10, 70, 120));
        assert_eq!(Answers::default().asked().asked, 0);
    }
}
