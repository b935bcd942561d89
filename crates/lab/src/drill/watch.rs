//! tcpdump at a peer, judged while it runs.

use std::{
    net::Ipv4Addr,
    process::{Child, Stdio},
    sync::{Arc, Mutex, PoisonError},
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

/// A capture of all BGP at a host, and its judge.
#[derive(Debug)]
pub struct Watch {
    tcpdump: Child,
    judge: Arc<Mutex<Judge>>,
    failure: Arc<Mutex<Option<String>>>,
    reader: Option<JoinHandle<()>>,
}

impl Watch {
    /// Begins to watch what comes through an interface of a host.
    pub fn start(host: &Namespace, interface: &str, router: Ipv4Addr) -> Result<Self> {
        let mut command = host.command("tcpdump");
        command.args(["-i", interface, "-s", "0", "-B", BUFFER, "-U", "--immediate-mode", "-w", "-"]);
        command.args(["ip", "and", "tcp", "port", "179"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut tcpdump = command.spawn().context("starting tcpdump")?;
        let output = tcpdump.stdout.take().context("output of tcpdump")?;
        let (judge, failure) = (Arc::new(Mutex::new(Judge::new(router))), Arc::<Mutex<_>>::default());
        let (theirs, failed) = (Arc::clone(&judge), Arc::clone(&failure));
        // The header of the file says that the capture has begun.
        let (begun, beginning) = std::sync::mpsc::channel();
        let reader = std::thread::Builder::new().name("capture".into()).spawn(move || {
            let read = || -> Result<()> {
                let mut pcap = Pcap::new(output)?;
                let _ = begun.send(());
                while let Some((at, frame)) = pcap.frame()? {
                    if let Some(segment) = Segment::parse(at, &frame) {
                        lock(&theirs).take(&segment);
                    }
                }
                Ok(())
            };
            if let Err(error) = read() {
                *lock(&failed) = Some(format!("the capture ended: {error:#}"));
            }
        })?;
        let watch = Self { tcpdump, judge, failure, reader: Some(reader) };
        wait::until("tcpdump", Duration::from_secs(10), || {
            beginning.try_recv().map_err(|error| error.to_string())
        })?;
        Ok(watch)
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
        all.extend(lock(&self.failure).clone());
        all
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.tcpdump.kill();
        let _ = self.tcpdump.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
