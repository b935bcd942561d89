//! A relay between the router under test and the stock router, which meddles with one message of each direction: the
//! judge must see it.
//!
//! ```text
//!  BIRD or FRR ── relay: far end │ near end ── Holdfast
//!   10.0.1.2       10.0.1.1      │  10.0.1.2     10.0.1.1
//! ```
//!
//! Each end stands in a namespace of its own with the address of whom it stands for, so nobody's configuration knows of
//! the relay. What it passes on is octets of TCP, message by message.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddrV4, TcpListener, TcpStream},
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, SyncSender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result};
use clap::ValueEnum;
use holdfast_bgp_wire::{
    Attributes, HEADER_LEN, MAX_EXTENDED_LEN, MessageType, attribute::code, next_message, nlri::prefixes,
    update::sections,
};
use holdfast_types::Ipv4Prefix;
use serde::Serialize;

use super::{
    churn::is_used_once,
    stock::{NETWORK, ROUTER_AS},
};
use crate::{
    netns::Namespace,
    topology::{Side, join, v4},
};

/// What is done to one announcement of a prefix that is used once.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tampering {
    /// Nothing.
    Nothing,
    /// It is left out.
    Drop,
    /// It is passed on twice.
    Double,
    /// It is passed on after the next such one.
    Swap,
    /// Its ORIGIN is changed to INCOMPLETE.
    Corrupt,
}

/// For one announcement to come, or two, where changes are made all the time.
const LIMIT: Duration = Duration::from_secs(60);

/// The relay, and the host of the stock router behind it.
#[derive(Debug)]
pub struct Relay {
    stock: Namespace,
    listener: Arc<TcpListener>,
    accepting: Option<JoinHandle<()>>,
    /// From the router to the stock router, and back.
    directions: [Arc<Direction>; 2],
    meddled: Receiver<()>,
    /// The far end stands there; it is deleted last.
    _far: Namespace,
}

/// What both a direction's pump and the relay know.
#[derive(Debug)]
struct Direction {
    tampering: Tampering,
    /// The next announcement is tampered with.
    is_armed: AtomicBool,
    meddled: SyncSender<()>,
}

impl Relay {
    /// A relay that stands at the host `near`, which has the stock router's address towards the router.
    pub fn start(near: &Namespace, tampering: Tampering) -> Result<Self> {
        let (far, stock) = (Namespace::new("relay")?, Namespace::new("stock")?);
        join(NETWORK, &far, &stock)?;
        let router = SocketAddrV4::new(v4(NETWORK, Side::First), 179);
        let listener = Arc::new(far.run(move || TcpListener::bind(router))??);
        let (sender, meddled) = mpsc::sync_channel(2);
        let directions = [(); 2].map(|()| {
            let meddled = sender.clone();
            Arc::new(Direction { tampering, is_armed: AtomicBool::new(false), meddled })
        });
        let (theirs, both) = (Arc::clone(&listener), directions.clone());
        // Whoever is in a namespace opens connections from there.
        let accepting = near.spawn(move || {
            while let Ok((stock, _)) = theirs.accept() {
                // One that is refused is ended; the stock router tries again.
                if let Ok(router) = TcpStream::connect(router) {
                    let _ = relay(&stock, &router, &both);
                }
            }
        })?;
        Ok(Self { stock, listener, accepting: Some(accepting), directions, meddled, _far: far })
    }

    /// The stock router's host.
    pub fn stock(&self) -> &Namespace {
        &self.stock
    }

    /// Meddles with one announcement in each direction, and waits until that is done.
    ///
    /// # Errors
    /// None came.
    pub fn meddle(&self) -> Result<()> {
        for direction in &self.directions {
            direction.is_armed.store(true, Ordering::SeqCst);
        }
        for _ in &self.directions {
            self.meddled.recv_timeout(LIMIT).context("no announcement to meddle with")?;
        }
        Ok(())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // It waits for a connection, and gets an error instead.
        let _ = rustix::net::shutdown(self.listener.as_fd(), rustix::net::Shutdown::Read);
        if let Some(accepting) = self.accepting.take() {
            // A panic there has been printed.
            let _ = accepting.join();
        }
    }
}

/// Passes on what both ends of a session say, until they end it.
fn relay(stock: &TcpStream, router: &TcpStream, directions: &[Arc<Direction>; 2]) -> io::Result<()> {
    for (from, to, direction) in [(router, stock, &directions[0]), (stock, router, &directions[1])] {
        to.set_nodelay(true)?;
        let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
        let direction = Arc::clone(direction);
        thread::Builder::new().name("relay".into()).spawn(move || {
            let _ = pump(&mut from, &mut to, &direction);
            let _ = (from.shutdown(Shutdown::Read), to.shutdown(Shutdown::Write));
        })?;
    }
    Ok(())
}

fn pump(from: &mut impl Read, to: &mut impl Write, direction: &Direction) -> io::Result<()> {
    let (mut octets, mut room) = (Vec::new(), vec![0; MAX_EXTENDED_LEN]);
    let mut held: Option<Vec<u8>> = None;
    loop {
        let count = from.read(&mut room)?;
        if count == 0 {
            return to.write_all(&held.unwrap_or_default());
        }
        octets.extend_from_slice(&room[..count]);
        let (mut read, mut out) = (0, Vec::new());
        // What is no message is the receiver's to judge.
        while let Some(message) = next_message(&octets[read..], MAX_EXTENDED_LEN).map_err(io::Error::other)? {
            read += message.wire.len();
            direction.pass(message.wire, message.kind, &mut held, &mut out);
        }
        octets.drain(..read);
        to.write_all(&out)?;
    }
}

impl Direction {
    /// Puts a message into `out`, as it is or not; one that is swapped with the next is `held` meanwhile.
    fn pass(&self, message: &[u8], kind: MessageType, held: &mut Option<Vec<u8>>, out: &mut Vec<u8>) {
        let Some(origin) = (kind == MessageType::Update).then(|| origin_of(message)).flatten() else {
            return out.extend_from_slice(message);
        };
        if let Some(held) = held.take() {
            out.extend_from_slice(message);
            out.extend(held);
            return self.done();
        }
        if !self.is_armed.swap(false, Ordering::SeqCst) {
            return out.extend_from_slice(message);
        }
        match self.tampering {
            Tampering::Nothing => out.extend_from_slice(message),
            Tampering::Drop => {}
            Tampering::Double => out.extend([message, message].concat()),
            Tampering::Swap => {
                *held = Some(message.to_vec());
                return;
            }
            Tampering::Corrupt => {
                let mut message = message.to_vec();
                message[origin] = INCOMPLETE;
                out.extend(message);
            }
        }
        self.done();
    }

    fn done(&self) {
        // There is room for one of each direction, and no more are armed.
        let _ = self.meddled.try_send(());
    }
}

/// The value of ORIGIN (RFC 4271 section 4.3).
const INCOMPLETE: u8 = 2;

/// Where the ORIGIN is of an UPDATE that announces a prefix that is used once.
fn origin_of(message: &[u8]) -> Option<usize> {
    let update = sections(message.get(HEADER_LEN..)?).ok()?;
    if !prefixes::<Ipv4Prefix>(update.nlri).flatten().any(|prefix| is_used_once(prefix.into())) {
        return None;
    }
    // What FRR sends back is nothing of its own.
    let path = Attributes(update.attributes).as_path();
    if path.asns().skip(1).any(|asn| asn.0 == ROUTER_AS) {
        return None;
    }
    let mut at = message.len() - update.nlri.len() - update.attributes.len();
    for attribute in Attributes(update.attributes).iter() {
        at += attribute.wire.len();
        if attribute.code == code::ORIGIN {
            return at.checked_sub(attribute.value.len());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use holdfast_bgp_wire::{KEEPALIVE, MAX_LEN, Origin, UpdateEncoder, edit::AttributesBuilder};
    use holdfast_types::Asn;

    use super::*;

    fn announcement(last: u8, length: u8, origin: Origin) -> Vec<u8> {
        announcement_over(&[], last, length, origin)
    }

    fn announcement_over(path: &[u32], last: u8, length: u8, origin: Origin) -> Vec<u8> {
        let as_path = path.iter().copied().map(Asn).collect();
        let attributes = AttributesBuilder { as_path, ..AttributesBuilder::new(origin) }.build();
        let prefix = Ipv4Prefix::new([118, 0, 0, last].into(), length).expect("a length of IPv4");
        let mut out = Vec::new();
        UpdateEncoder::new(MAX_LEN).announce(&attributes, [prefix], &mut out).expect("short attributes");
        out
    }

    #[test]
    fn one_announcement_of_a_prefix_used_once_is_meddled_with_and_all_else_passes() {
        let once = |last| announcement(last, 32, Origin::Igp);
        let (first, second, third) = (once(1), once(2), once(3));
        let (keepalive, other) = (KEEPALIVE.to_vec(), announcement(0, 24, Origin::Igp));
        let back = announcement_over(&[65001, ROUTER_AS, 65002], 9, 32, Origin::Igp);
        let other = [other, back].concat();
        let all = [&keepalive, &other, &first, &keepalive, &second, &third];
        let corrupted = announcement(1, 32, Origin::Incomplete);
        for (tampering, expected) in [
            (Tampering::Nothing, all.to_vec()),
            (Tampering::Drop, vec![&keepalive, &other, &keepalive, &second, &third]),
            (Tampering::Double, vec![&keepalive, &other, &first, &first, &keepalive, &second, &third]),
            (Tampering::Swap, vec![&keepalive, &other, &keepalive, &second, &first, &third]),
            (Tampering::Corrupt, vec![&keepalive, &other, &corrupted, &keepalive, &second, &third]),
        ] {
            let (meddled, done) = mpsc::sync_channel(2);
            let direction = Direction { tampering, is_armed: AtomicBool::new(true), meddled };
            let octets = all.map(Vec::as_slice).concat();
            let mut out = Vec::new();
            // As they come: not message by message.
            let mut from = octets
                .chunks(7)
                .fold(Box::new(io::empty()) as Box<dyn Read>, |before, chunk| Box::new(before.chain(chunk)));
            pump(&mut from, &mut out, &direction).expect("nothing fails");
            let expected: Vec<u8> = expected.into_iter().flatten().copied().collect();
            assert_eq!((out, done.try_iter().count()), (expected, 1), "{tampering:?}");
        }
    }
}
