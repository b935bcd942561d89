//! Datagrams that nobody has asked for.

use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;

use super::clients::Outcome;

/// Datagrams a second where it is the server's cost that counts: as many as it surely takes.
const STEADY: u32 = 5000;
/// Different datagrams without meaning.
const GARBAGE: u64 = 500;
/// Shorter waits are not worth a system call.
const SHORTEST: Duration = Duration::from_millis(1);

/// Datagrams, sent again and again.
#[derive(Clone)]
pub(super) struct Ammunition(Arc<[Vec<u8>]>);

impl Ammunition {
    pub(super) fn new(datagrams: Vec<Vec<u8>>) -> Self {
        Self(datagrams.into())
    }

    /// Octets of all lengths; every other datagram looks like the beginning of a connection.
    pub(super) fn garbage() -> Self {
        let datagrams = (0..GARBAGE).map(|seed| {
            let mut state = seed;
            let mut octet = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            };
            let length = 1 + (usize::from(octet()) << 8 | usize::from(octet())) % 1400;
            let mut datagram: Vec<u8> = (0..length).map(|_| octet()).collect();
            if seed % 2 == 0 {
                datagram.resize(1200, 0);
                datagram[..6].copy_from_slice(&[0xc3, 0, 0, 0, 1, 8]);
            }
            datagram
        });
        Self::new(datagrams.collect())
    }

    /// Sends so many, evenly.
    pub(super) fn fire(&self, from: Ipv4Addr, to: SocketAddr, count: u32) -> Result<Outcome> {
        let socket = UdpSocket::bind((from, 0))?;
        let begin = Instant::now();
        let mut sent = 0;
        for number in 0..count {
            pause_until(begin + at(number.into(), STEADY));
            sent += u64::from(self.one(&socket, to, number as usize));
        }
        Ok(Outcome { attacks: sent, attacked: begin.elapsed(), ..Outcome::default() })
    }

    /// Sends one.
    pub(super) fn one(&self, socket: &UdpSocket, to: SocketAddr, number: usize) -> bool {
        // What the server's kernel says of earlier ones comes back here, too.
        socket.send_to(&self.0[number % self.0.len()], to).is_ok()
    }

    /// Sends so many a second, until it is called off.
    pub(super) fn keep_firing(&self, from: Ipv4Addr, to: SocketAddr, per_second: u32) -> Result<Attack> {
        let socket = UdpSocket::bind((from, 0))?;
        let over = Arc::new(AtomicBool::new(false));
        let (ammunition, told) = (self.clone(), over.clone());
        let thread = thread::spawn(move || {
            let begin = Instant::now();
            let (mut number, mut sent) = (0, 0);
            while !told.load(Ordering::Relaxed) {
                pause_until(begin + at(number, per_second));
                sent += u64::from(ammunition.one(&socket, to, number as usize));
                number += 1;
            }
            Outcome { attacks: sent, attacked: begin.elapsed(), ..Outcome::default() }
        });
        Ok(Attack { over, thread })
    }
}

/// One that goes on.
pub(super) struct Attack {
    over: Arc<AtomicBool>,
    thread: thread::JoinHandle<Outcome>,
}

impl Attack {
    pub(super) fn call_off(self) -> Outcome {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

/// When one is due.
fn at(number: u64, per_second: u32) -> Duration {
    Duration::from_secs_f64(number as f64 / f64::from(per_second))
}

fn pause_until(due: Instant) {
    match due.checked_duration_since(Instant::now()) {
        Some(wait) if wait > SHORTEST => thread::sleep(wait),
        _ => {}
    }
}
