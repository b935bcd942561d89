//! Packets through a router, to see whether forwarding ever stops.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use crate::{netns::Namespace, wait};

/// Time between two packets.
const PACE: Duration = Duration::from_millis(1);
/// How long the last packets may be under way.
const LAST: Duration = Duration::from_secs(2);

/// Up to a thousand packets a second from one host to an address at another.
#[derive(Debug)]
pub struct Traffic {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Count>>,
}

/// What became of the packets.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// Packets sent.
    pub sent: u64,
    /// Of these, received.
    pub received: u64,
}

impl Traffic {
    /// Begins to send to `to`, an address of the host `at`, once a first packet has arrived there.
    ///
    /// # Errors
    /// None arrives.
    pub fn start(from: &Namespace, at: &Namespace, to: SocketAddr) -> Result<Self> {
        let target = at.run(move || UdpSocket::bind(to))?.with_context(|| format!("binding {to}"))?;
        target.set_nonblocking(true)?;
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let source = from.run(move || UdpSocket::bind(any))??;
        wait::until("traffic", Duration::from_secs(10), || {
            source.send_to(&FIRST.to_be_bytes(), to).map_err(|error| error.to_string())?;
            target.recv(&mut [0; 8]).map_err(|error| error.to_string())
        })?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || run(&source, &target, to, &stopped));
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends it.
    pub fn end(mut self) -> Count {
        self.join().unwrap_or_default()
    }

    fn join(&mut self) -> Option<Count> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take()?.join().ok()
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.join();
    }
}

/// What the packets of the beginning carry: they do not count.
const FIRST: u64 = 0;

fn run(source: &UdpSocket, target: &UdpSocket, to: SocketAddr, stop: &AtomicBool) -> Count {
    let mut count = Count::default();
    while !stop.load(Ordering::Relaxed) {
        if source.send_to(&(count.sent + 1).to_be_bytes(), to).is_ok() {
            count.sent += 1;
        }
        std::thread::sleep(PACE);
        count.received += arrived(target);
    }
    let end = Instant::now() + LAST;
    while count.received < count.sent && Instant::now() < end {
        std::thread::sleep(PACE);
        count.received += arrived(target);
    }
    count
}

fn arrived(target: &UdpSocket) -> u64 {
    let mut number = [0; 8];
    let mut count = 0;
    while target.recv(&mut number).is_ok() {
        count += u64::from(u64::from_be_bytes(number) != FIRST);
    }
    count
}
