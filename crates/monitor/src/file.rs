//! Files that are written by a thread of their own: a disk that is slow or full holds up nobody else.
//!
//! A file is written under its name with `.tmp` behind it, and gets its name when all of it is written. A file of which a piece
//! could not be written never does: a table is removed, and messages stay as `.tmp` up to the last whole record. Between the thread
//! and those who write stands a queue with a bound; what does not fit is dropped and counted.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread,
};

use holdfast_sys::file::open_with;
use tokio::sync::oneshot;
use tracing::{info, warn};

/// Pieces that wait for the disk, each of a few hundred KiB at most.
const MOST_WAITING: usize = 32;

/// What is to be done.
enum Job {
    /// These octets, in the file of this name. Another name ends the file before.
    Write(PathBuf, Vec<u8>),
    /// The file is whole.
    End,
    /// The file will never be whole.
    Discard,
}

/// What becomes of the file that is being written when nobody writes any more.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Unfinished {
    /// Its records are whole by themselves: it gets its name.
    Finish,
    /// It says something only as a whole: it is removed.
    Remove,
}

/// What has become of what was to be written.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Octets on disk.
    pub(crate) written: AtomicU64,
    /// Pieces that found the queue full, or the disk.
    pub(crate) dropped: AtomicU64,
}

/// The way to the thread. Dropped, it ends what is being written in order, as [`Unfinished`] says.
pub(crate) struct Output {
    jobs: SyncSender<Job>,
    counts: Arc<Counts>,
    /// It has been said that the disk does not keep up.
    said: bool,
}

impl Output {
    /// Starts the thread; the second says when it has ended.
    pub(crate) fn new(
        counts: Arc<Counts>,
        unfinished: Unfinished,
    ) -> io::Result<(Self, oneshot::Receiver<()>)> {
        let (jobs, queue) = sync_channel(MOST_WAITING);
        let (ended, end) = oneshot::channel();
        let writer = Writer { counts: Arc::clone(&counts), file: None, failed: false, unfinished };
        thread::Builder::new().name("mrt".into()).spawn(move || {
            writer.run(queue);
            let _ = ended.send(());
        })?;
        Ok((Self { jobs, counts, said: false }, end))
    }

    /// Has octets written into a file; `false` if there is no room for them now.
    pub(crate) fn write(&mut self, file: PathBuf, octets: Vec<u8>) -> bool {
        self.give(Job::Write(file, octets))
    }

    /// The file is whole.
    pub(crate) fn end(&mut self) -> bool {
        self.give(Job::End)
    }

    /// The file will never be whole: it is removed.
    pub(crate) fn discard(&mut self) -> bool {
        self.give(Job::Discard)
    }

    fn give(&mut self, job: Job) -> bool {
        match self.jobs.try_send(job) {
            Ok(()) => {
                self.said = false;
                true
            }
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.counts.dropped.fetch_add(1, Ordering::Relaxed);
                if !std::mem::replace(&mut self.said, true) {
                    warn!(event = "mrt-dropped", "the disk does not keep up: records are left out");
                }
                false
            }
        }
    }
}

struct Writer {
    counts: Arc<Counts>,
    file: Option<Dump>,
    /// The last attempt has failed, and that has been said.
    failed: bool,
    unfinished: Unfinished,
}

/// The file that is being written.
struct Dump {
    name: PathBuf,
    state: State,
}

enum State {
    /// Every piece so far is in the file, which has so many octets.
    Whole(File, u64),
    /// A piece is missing: no more of them are written, and the file does not get its name.
    Broken,
}

impl Writer {
    fn run(mut self, queue: Receiver<Job>) {
        for job in queue {
            let done = match job {
                Job::Write(name, octets) => self.write(name, &octets),
                Job::End => self.end(),
                Job::Discard => self.discard(),
            };
            self.note(done);
        }
        let done = self.leave();
        self.note(done);
    }

    fn note(&mut self, done: io::Result<()>) {
        if let Err(error) = done {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
            if !std::mem::replace(&mut self.failed, true) {
                warn!(event = "mrt-failed", "writing a dump: {error}");
            }
        }
    }

    fn write(&mut self, name: PathBuf, octets: &[u8]) -> io::Result<()> {
        if self.file.as_ref().is_none_or(|dump| dump.name != name) {
            let left = self.leave();
            self.note(left);
            let mut options = File::options();
            let opened = open_with(options.write(true).create(true).truncate(true), &temporary(&name));
            let (state, error) = match opened {
                Ok(file) => (State::Whole(file, 0), None),
                Err(error) => (State::Broken, Some(error)),
            };
            self.file = Some(Dump { name, state });
            error.map_or(Ok(()), Err)?;
        }
        let Some(dump) = &mut self.file else { return Ok(()) };
        let State::Whole(file, length) = &mut dump.state else {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        };
        match file.write_all(octets) {
            Ok(()) => {
                *length += octets.len() as u64;
                self.failed = false;
                self.counts.written.fetch_add(octets.len() as u64, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                // The piece may be there in part. What was there before is whole records.
                let kept = file.set_len(*length).map(|()| *length).unwrap_or(0);
                dump.state = State::Broken;
                if kept == 0 || self.unfinished == Unfinished::Remove {
                    let _ = fs::remove_file(temporary(&dump.name));
                    return Err(error);
                }
                let file = temporary(&dump.name);
                Err(io::Error::new(error.kind(), format!("{error}: {} ends before", file.display())))
            }
        }
    }

    /// Nobody writes into the file any more, and nobody has said whether it is whole.
    fn leave(&mut self) -> io::Result<()> {
        match self.unfinished {
            Unfinished::Finish => self.end(),
            Unfinished::Remove => self.discard(),
        }
    }

    fn end(&mut self) -> io::Result<()> {
        let Some(Dump { name, state: State::Whole(file, _) }) = self.file.take() else { return Ok(()) };
        // Not synced: a disk that others keep busy takes half a minute for that, and an upgrade would wait.
        drop(file);
        fs::rename(temporary(&name), &name)?;
        info!(event = "mrt-written", file = %name.display(), "dump written");
        Ok(())
    }

    fn discard(&mut self) -> io::Result<()> {
        match self.file.take() {
            Some(Dump { name, state: State::Whole(..) }) => fs::remove_file(temporary(&name)),
            Some(Dump { state: State::Broken, .. }) | None => Ok(()),
        }
    }
}

fn temporary(name: &std::path::Path) -> PathBuf {
    let mut name = name.as_os_str().to_owned();
    name.push(".tmp");
    name.into()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_file_has_its_name_when_it_is_whole() {
        let directory = std::env::temp_dir().join(format!("holdfast-mrt-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("made");
        let (first, second) = (directory.join("a"), directory.join("b"));
        let counts = Arc::new(Counts::default());
        let ending = |jobs: Vec<Job>, unfinished| {
            let (sender, queue) = sync_channel(MOST_WAITING);
            jobs.into_iter().for_each(|job| sender.send(job).expect("room"));
            drop(sender);
            Writer { counts: Arc::clone(&counts), file: None, failed: false, unfinished }.run(queue);
        };
        let writer = |jobs| ending(jobs, Unfinished::Finish);
        let write = |name: &PathBuf, octets: &[u8]| Job::Write(name.clone(), octets.to_vec());
        writer(vec![write(&first, b"12"), write(&first, b"3"), write(&second, b"4"), Job::End]);
        assert_eq!(
            (fs::read(&first).expect("a"), fs::read(&second).expect("b")),
            (b"123".to_vec(), b"4".to_vec())
        );
        assert!(!temporary(&first).exists() && !temporary(&second).exists());
        // What says something only as a whole is not left by half.
        let third = directory.join("e");
        ending(vec![write(&third, b"5"), Job::Discard, write(&third, b"6")], Unfinished::Remove);
        assert!(!temporary(&third).exists() && !third.exists());
        counts.written.store(4, Ordering::Relaxed);
        // A table that nobody has ended is none, whether the next one begins or not.
        ending(vec![write(&third, b"5"), write(&directory.join("f"), b"6"), Job::End], Unfinished::Remove);
        assert!(!temporary(&third).exists() && !third.exists());
        counts.written.store(4, Ordering::Relaxed);
        // A directory that is not there costs what was to be written, and no more.
        writer(vec![write(&directory.join("none/c"), b"5"), write(&first, b"6")]);
        assert_eq!(fs::read(&first).expect("a"), b"6");
        assert_eq!(counts.dropped.load(Ordering::Relaxed), 1);
        assert_eq!(counts.written.load(Ordering::Relaxed), 5);
        // Nor is a pipe in the place of a file waited for.
        let pipe = Command::new("mkfifo").arg(temporary(&directory.join("d"))).status();
        assert!(pipe.is_ok_and(|made| made.success()));
        writer(vec![write(&directory.join("d"), b"7"), write(&first, b"8")]);
        assert_eq!(
            (counts.dropped.load(Ordering::Relaxed), fs::read(&first).expect("a")),
            (2, b"8".to_vec())
        );
        fs::remove_dir_all(&directory).expect("removed");
    }

    /// Needs root: a file system with room for so many octets, gone at the end.
    struct Disk(PathBuf);

    impl Disk {
        fn new(name: &str, octets: usize) -> Self {
            let path = std::env::temp_dir().join(format!("holdfast-mrt-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("made");
            let mut mount = Command::new("mount");
            mount.args(["-t", "tmpfs", "-o", &format!("size={octets}"), "none"]).arg(&path);
            assert!(mount.status().is_ok_and(|done| done.success()), "this test needs root");
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).expect("read");
            let name = |entry: io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
            let mut names: Vec<_> = entries.map(|entry| name(entry).to_string_lossy().into_owned()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Disk {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg(&self.0).status();
            let _ = fs::remove_dir(&self.0);
        }
    }

    #[test]
    fn a_dump_that_the_disk_has_no_room_for_never_gets_its_name() {
        const PAGE: usize = 4096;
        let disk = Disk::new("full", 4 * PAGE);
        let counts = Arc::new(Counts::default());
        let run = |jobs: Vec<Job>, unfinished| {
            let (sender, queue) = sync_channel(MOST_WAITING);
            jobs.into_iter().for_each(|job| sender.send(job).expect("room"));
            drop(sender);
            Writer { counts: Arc::clone(&counts), file: None, failed: false, unfinished }.run(queue);
        };
        let write = |name: &str, octets: usize| Job::Write(disk.0.join(name), vec![7; octets]);
        // A table, the first piece of which fits, and so would the last.
        let table = vec![write("table", PAGE), write("table", 9 * PAGE), write("table", 1), Job::End];
        run(table, Unfinished::Remove);
        assert_eq!(disk.names(), [""; 0]);
        assert_eq!(counts.dropped.load(Ordering::Relaxed), 2);
        // The next one has room.
        run(vec![write("next", PAGE), Job::End], Unfinished::Remove);
        assert_eq!(disk.names(), ["next"]);
        // Of messages, whole records stay.
        run(vec![write("messages", PAGE), write("messages", 9 * PAGE), Job::End], Unfinished::Finish);
        assert_eq!(disk.names(), ["messages.tmp", "next"]);
        assert_eq!(fs::metadata(disk.0.join("messages.tmp")).expect("there").len(), PAGE as u64);
        run(vec![write("more", 9 * PAGE), Job::End], Unfinished::Finish);
        assert_eq!(disk.names(), ["messages.tmp", "next"], "and nothing where there is none");
    }

    #[test]
    fn what_the_queue_has_no_room_for_is_dropped_and_counted() {
        let (jobs, _queue) = sync_channel(1);
        let counts = Arc::new(Counts::default());
        let mut output = Output { jobs, counts: Arc::clone(&counts), said: false };
        assert!(output.write("x".into(), vec![1]));
        assert!(!output.write("x".into(), vec![2]) && !output.end());
        assert_eq!(counts.dropped.load(Ordering::Relaxed), 2);
    }
}
