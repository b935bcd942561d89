//! Who hears all packets of a segment, and sends some that seem to be of others.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{Ipv4Addr, SocketAddrV4},
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, Result};
use holdfast_tls_wire::Packet as Quic;
use rustix::{
    io::Errno,
    net::{
        self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto,
        sockopt::{Timeout, set_socket_timeout},
    },
};

use super::{
    hub::{Hub, INTERFACE},
    packet::{Body, Packet, flag},
};
use crate::{netns::Namespace, wait};

/// Its address; nobody knows it.
const ADDRESS: &str = "10.0.1.3/24";
/// By which its own frames are told from those of others.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 3];
/// `ETH_P_ALL` of linux/if_ether.h: frames of every protocol.
const EVERY_PROTOCOL: u16 = 3;
/// Longer than any frame, whatever is offloaded.
const FRAME: usize = 1 << 17;
/// After which the thread looks whether it is to end.
const PAUSE: Duration = Duration::from_millis(50);
/// Packets of a conversation that are kept; the oldest go first.
const KEPT: usize = 512;
/// Connection ids of a conversation that are kept.
const IDS: usize = 8;

/// What has been heard of a connection that r2 has made to r1.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    /// What r2 has sent, in its order.
    pub sent: VecDeque<Packet>,
    /// TCP: the sequence number that comes next from r2.
    pub next: u32,
    /// TCP: the one that r1 says it expects; a segment with it is exact.
    pub expected: u32,
    /// TCP: the one that r2 says it expects.
    pub expected_by_peer: u32,
    /// QUIC: Destination Connection IDs of r2's Initials, the last first.
    pub initial_ids: Vec<Vec<u8>>,
    /// QUIC: the last packet with a short header that r2 has sent; its connection id is behind the first octet.
    pub short: Option<Vec<u8>>,
}

impl Conversation {
    /// Both ends, as r2 names them.
    pub fn ends(&self) -> Option<(SocketAddrV4, SocketAddrV4)> {
        self.sent.back().map(|packet| (packet.from, packet.to))
    }

    /// Takes a packet of r2's.
    fn sent(&mut self, packet: &Packet) {
        let other_port = self.ends().is_none_or(|(from, _)| from.port() != packet.from.port());
        let begins = match &packet.body {
            Body::Tcp(tcp) => tcp.flags & flag::SYN != 0,
            Body::Udp(data) => other_port && matches!(holdfast_tls_wire::packet(data), Ok(Quic::Initial(_))),
        };
        if begins {
            *self = Self::default();
        } else if other_port {
            // An earlier connection whose end r1 has not acknowledged goes on trying.
            return;
        }
        match &packet.body {
            Body::Tcp(tcp) => {
                let fresh = self.sent.is_empty() || tcp.end().wrapping_sub(self.next) as i32 > 0;
                self.next = if fresh { tcp.end() } else { self.next };
                self.expected_by_peer = tcp.acknowledgment;
            }
            Body::Udp(data) => match holdfast_tls_wire::packet(data) {
                Ok(Quic::Initial(initial)) => {
                    let id = initial.destination.to_vec();
                    if !self.initial_ids.contains(&id) {
                        self.initial_ids.truncate(IDS - 1);
                        self.initial_ids.insert(0, id);
                    }
                }
                Ok(Quic::Short) => self.short = Some(data.clone()),
                _ => {}
            },
        }
        if self.sent.len() == KEPT {
            self.sent.pop_front();
        }
        self.sent.push_back(packet.clone());
    }

    /// Takes a packet of r1's.
    fn answered(&mut self, packet: &Packet) {
        let ours = self.ends().is_some_and(|(from, _)| from.port() == packet.to.port());
        if let Body::Tcp(tcp) = &packet.body
            && tcp.flags & flag::ACK != 0
            && ours
        {
            self.expected = tcp.acknowledgment;
        }
    }
}

/// By addresses: r1's and r2's.
type Conversations = BTreeMap<(Ipv4Addr, Ipv4Addr), Conversation>;

/// A host on the segment.
#[derive(Debug)]
pub struct Attacker {
    host: Namespace,
    raw: OwnedFd,
    heard: Arc<Mutex<Conversations>>,
    end: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

impl Attacker {
    /// Joins the segment and hears what r2 has to say to r1: conversations between these addresses.
    pub fn start(hub: &Hub, pairs: &[(Ipv4Addr, Ipv4Addr)]) -> Result<Self> {
        let host = Namespace::new("attacker")?;
        let port = hub.join(&host, &[ADDRESS])?;
        hub.split(&port)?;
        let mac = MAC.map(|octet| format!("{octet:02x}")).join(":");
        host.ip(&["link", "set", INTERFACE, "address", &mac])?;
        let (all, raw) = host
            .run(|| {
                let kind = SocketType::RAW;
                let every = net::Protocol::from_raw(u32::from(EVERY_PROTOCOL.to_be()).try_into().ok()?);
                let all = net::socket_with(AddressFamily::PACKET, kind, SocketFlags::CLOEXEC, Some(every));
                let raw =
                    net::socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, Some(ipproto::RAW));
                Some((all, raw))
            })?
            .context("the protocol is no 0")?;
        let (all, raw) = (all.context("a socket of frames")?, raw.context("a raw socket")?);
        set_socket_timeout(&all, Timeout::Recv, Some(PAUSE))?;
        let conversations: Conversations =
            pairs.iter().map(|pair| (*pair, Conversation::default())).collect();
        let (heard, end) = (Arc::new(Mutex::new(conversations)), Arc::<AtomicBool>::default());
        let (theirs, ended) = (Arc::clone(&heard), Arc::clone(&end));
        let reader = std::thread::Builder::new().name("attacker".into()).spawn(move || {
            let mut buffer = vec![0; FRAME];
            while !ended.load(Ordering::Relaxed) {
                match net::recv(&all, &mut buffer[..], RecvFlags::empty()) {
                    Ok((_, length)) => hear(&theirs, &buffer[..length.min(FRAME)]),
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    // The host is gone.
                    Err(_) => return,
                }
            }
        })?;
        Ok(Self { host, raw, heard, end, reader: Some(reader) })
    }

    /// What has been heard between these: r1's address and r2's.
    ///
    /// # Panics
    /// It does not listen to these.
    pub fn heard(&self, victim: Ipv4Addr, peer: Ipv4Addr) -> Conversation {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.get(&(victim, peer)).expect("it listens to this pair").clone()
    }

    /// Waits until everything that r2 has sent to r1 over TCP is acknowledged: the next sequence number is certain then.
    pub fn until_quiet(&self, victim: Ipv4Addr, peer: Ipv4Addr) -> Result<Conversation> {
        wait::until("a pause between these two", Duration::from_secs(10), || {
            let heard = self.heard(victim, peer);
            if heard.next == heard.expected && heard.ends().is_some() {
                return Ok(heard);
            }
            Err(format!("{} sent, {} expected", heard.next, heard.expected))
        })
    }

    /// Sends packets as if somebody else did.
    pub fn send(&self, packets: &[Packet]) -> Result<()> {
        for packet in packets {
            let to = SocketAddrV4::new(*packet.to.ip(), 0);
            net::sendto(&self.raw, &packet.to_octets(), SendFlags::empty(), &to)
                .with_context(|| format!("{} cannot send", self.host.name()))?;
        }
        Ok(())
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

fn hear(heard: &Mutex<Conversations>, frame: &[u8]) {
    if frame.get(6..12) == Some(&MAC) {
        return;
    }
    let Some(packet) = Packet::parse(frame) else { return };
    let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
    let (from, to) = (*packet.from.ip(), *packet.to.ip());
    if let Some(conversation) = heard.get_mut(&(to, from)) {
        conversation.sent(&packet);
    } else if let Some(conversation) = heard.get_mut(&(from, to)) {
        conversation.answered(&packet);
    }
}
