//! tcpdump at a peer, judged while it runs.

use std::{
    io::BufReader,
    net::Ipv4Addr,
    process::{Child, Stdio},
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, Result};

use super::{
    capture::{Pcap, Segment},
    judge::Judge,
};
use crate::{netns::Namespace, wait};

/// KiB that tcpdump may hold before we read them.
const BUFFER: &str = "65536";
/// Octets of the longest frame, of many segments before they are cut into packets. Each frame has so much of the buffer.
const LONGEST: &str = "65550";
/// Octets between tcpdump and us.
const PIPE: usize = 1 << 20;
/// Frames that may wait to be looked at. The buffer of tcpdump has room for a thousand.
const WAITING: usize = 1 << 16;

/// A capture at a host. Each frame is given away as it comes.
#[derive(Debug)]
pub struct Dump {
    tcpdump: Child,
    failure: Arc<Mutex<Option<String>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Dump {
    /// Begins to capture what passes a filter at an interface. `take` gets each frame, and when it was seen in microseconds
    /// since 1970, on a thread of its own.
    ///
    /// # Errors
    /// tcpdump does not run.
    pub fn start(
        host: &Namespace,
        interface: &str,
        filter: &[&str],
        mut take: impl FnMut(u64, &[u8]) + Send + 'static,
    ) -> Result<Self> {
        let mut command = host.command("tcpdump");
        command.args(["-i", interface, "-s", LONGEST, "-B", BUFFER, "-U", "--immediate-mode", "-w", "-"]);
        command.args(filter).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut tcpdump = command.spawn().context("starting tcpdump")?;
        let output = tcpdump.stdout.take().context("output of tcpdump")?;
        rustix::pipe::fcntl_setpipe_size(&output, PIPE)?;
        let failure = Arc::<Mutex<_>>::default();
        let failed = Arc::clone(&failure);
        // The header of the file says that the capture has begun.
        let (begun, beginning) = mpsc::channel();
        // Whoever looks at frames may take longer than they take to come.
        let (put, frames) = mpsc::sync_channel(WAITING);
        let reader = std::thread::Builder::new().name("capture".into()).spawn(move || {
            let read = || -> Result<()> {
                let mut pcap = Pcap::new(BufReader::with_capacity(PIPE, output))?;
                let _ = begun.send(());
                while let Some(frame) = pcap.frame()? {
                    put.send(frame).context("nobody looks at frames")?;
                }
                Ok(())
            };
            if let Err(error) = read() {
                *lock(&failed) = Some(format!("the capture ended: {error:#}"));
            }
        })?;
        let looker = std::thread::Builder::new().name("frames".into()).spawn(move || {
            for (at, frame) in frames {
                take(at, &frame);
            }
        })?;
        let dump = Self { tcpdump, failure, threads: vec![reader, looker] };
        wait::until("tcpdump", Duration::from_secs(10), || {
            beginning.try_recv().map_err(|error| error.to_string())
        })?;
        Ok(dump)
    }

    /// What is wrong with the capture itself.
    pub fn failure(&self) -> Option<String> {
        lock(&self.failure).clone()
    }
}

/// A capture of all BGP at a host, and its judge.
#[derive(Debug)]
pub struct Watch {
    dump: Dump,
    judge: Arc<Mutex<Judge>>,
}

impl Watch {
    /// Begins to watch what comes through an interface of a host.
    pub fn start(host: &Namespace, interface: &str, router: Ipv4Addr) -> Result<Self> {
        let judge = Arc::new(Mutex::new(Judge::new(router)));
        let theirs = Arc::clone(&judge);
        let dump = Dump::start(host, interface, &["ip", "and", "tcp", "port", "179"], move |at, frame| {
            if let Some(segment) = Segment::parse(at, frame) {
                lock(&theirs).take(&segment);
            }
        })?;
        Ok(Self { dump, judge })
    }

    /// The judge, for who asks from another thread.
    pub fn judge(&self) -> Arc<Mutex<Judge>> {
        Arc::clone(&self.judge)
    }

    /// Asks the judge.
    pub fn ask<T>(&self, question: impl FnOnce(&Judge) -> T) -> T {
        question(&lock(&self.judge))
    }

    /// What the judge found wrong, and what is wrong with the capture itself.
    pub fn findings(&self) -> Vec<String> {
        let mut all = self.ask(Judge::findings);
        all.extend(self.dump.failure());
        all
    }
}

impl Drop for Dump {
    fn drop(&mut self) {
        let _ = self.tcpdump.kill();
        let _ = self.tcpdump.wait();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
