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
/// At its end traffic goes on until a packet arrives, but not longer.
const MENDED: Duration = Duration::from_secs(30);
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
    /// The longest time from a packet that arrived until the sending of the next one that did, in microseconds; more than
    /// the pace only where packets in between were lost.
    pub gap: u64,
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
            source.send_to(&packet(FIRST, 0), to).map_err(|error| error.to_string())?;
            target.recv(&mut [0; 16]).map_err(|error| error.to_string())
        })?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || run(&source, &target, to, &stopped));
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends it when packets arrive.
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
    let (mut count, mut arrivals, start) = (Count::default(), Arrivals::default(), Instant::now());
    let send = |count: &mut Count, arrivals: &mut Arrivals| {
        let at = start.elapsed().as_micros() as u64;
        if source.send_to(&packet(count.sent + 1, at), to).is_ok() {
            count.sent += 1;
        }
        std::thread::sleep(PACE);
        arrivals.take(target);
    };
    while !stop.load(Ordering::Relaxed) {
        send(&mut count, &mut arrivals);
    }
    let (last, limit) = (count.sent, Instant::now() + MENDED);
    while arrivals.last.0 < last && Instant::now() < limit {
        send(&mut count, &mut arrivals);
    }
    arrivals.end(last, start.elapsed().as_micros() as u64);
    let end = Instant::now() + LAST;
    while arrivals.received < count.sent && Instant::now() < end {
        std::thread::sleep(PACE);
        arrivals.take(target);
    }
    Count { received: arrivals.received, gap: arrivals.gap, ..count }
}

fn packet(number: u64, at: u64) -> [u8; 16] {
    let mut octets = [0; 16];
    octets[..8].copy_from_slice(&number.to_be_bytes());
    octets[8..].copy_from_slice(&at.to_be_bytes());
    octets
}

/// What has arrived.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
struct Arrivals {
    received: u64,
    gap: u64,
    /// Number of the last packet, and when it was sent.
    last: (u64, u64),
}

impl Arrivals {
    fn take(&mut self, target: &UdpSocket) {
        let mut octets = [0; 16];
        while target.recv(&mut octets).is_ok() {
            let word = |at: usize| octets[at..].first_chunk().map_or(0, |word| u64::from_be_bytes(*word));
            if word(0) != FIRST {
                self.arrived(word(0), word(8));
            }
        }
    }

    /// Nothing is sent any more. Since the last one that arrived nothing has, if it was before this one.
    fn end(&mut self, number: u64, at: u64) {
        if self.last.0 < number {
            self.gap = self.gap.max(at - self.last.1);
        }
    }

    fn arrived(&mut self, number: u64, at: u64) {
        self.received += 1;
        let (last, before) = self.last;
        if number > last + 1 {
            self.gap = self.gap.max(at - before);
        }
        self.last = self.last.max((number, at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_as_long_as_packets_were_lost() {
        let mut arrivals = Arrivals::default();
        for number in [1, 2, 3, 10, 11, 13] {
            arrivals.arrived(number, number * 1000);
        }
        assert_eq!((arrivals.received, arrivals.gap), (6, 7000));
        // Late in sending is not lost.
        arrivals.arrived(14, 60_000);
        assert_eq!(arrivals.gap, 7000);
        arrivals.end(14, 90_000);
        assert_eq!(arrivals.gap, 7000);
        // Nothing comes any more.
        arrivals.end(20, 90_000);
        assert_eq!(arrivals.gap, 30_000);
    }
}
