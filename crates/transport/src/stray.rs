//! Datagrams at a socket of QUIC that begin no connection and are of none, before the library sees them: what they are is
//! counted, and who speaks another version is told ours only as admission has it.
//!
//! Libraries tell whoever asks: one of ours answers seven octets, from any address and as often as they come. RFC 9000
//! section 6.1 allows to answer less.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    rc::Rc,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use holdfast_admission::{AddressProof, Attempt, Bucket, Hello, Load, Rate};
use holdfast_tls_wire::{LongType, Packet, VERSION_1, packet};

use crate::{Gate, Protocol, Stray, attempt::canonical, kept::Kept};

/// Header Form: the header is long.
const LONG: u8 = 0x80;
/// A datagram that begins a connection is no shorter, in any version that we could speak (RFC 9000 section 14.1).
const LEAST: usize = 1200;
/// Answers to other versions.
const ANSWERS: Rate = Rate { per_second: 50, burst: 50 };

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Kind {
    /// It may begin a connection, or be of one.
    Known,
    Garbage,
    OtherVersion,
}

/// What a datagram is, where connection ids have so many octets and `is_ours` knows them.
fn kind(datagram: &[u8], id: usize, is_ours: impl Fn(&[u8]) -> bool) -> Kind {
    let known_if = |known| if known { Kind::Known } else { Kind::Garbage };
    let [first, rest @ ..] = datagram else { return Kind::Garbage };
    if first & LONG == 0 {
        return known_if(rest.get(..id).is_some_and(is_ours));
    }
    let Some((version, rest)) = rest.split_first_chunk() else { return Kind::Garbage };
    let version = u32::from_be_bytes(*version);
    if ![0, VERSION_1].contains(&version) {
        return Kind::OtherVersion;
    }
    let destination = rest.split_first().and_then(|(length, rest)| rest.get(..usize::from(*length)));
    if destination.is_some_and(is_ours) {
        return Kind::Known;
    }
    match packet(datagram) {
        Ok(Packet::Initial(_)) => known_if(datagram.len() >= LEAST),
        // It follows an Initial.
        Ok(Packet::Long(LongType::ZeroRtt)) => Kind::Known,
        Ok(
            Packet::Long(LongType::Handshake | LongType::Retry)
            | Packet::Short
            | Packet::VersionNegotiation
            | Packet::UnknownVersion(_),
        )
        | Err(_) => Kind::Garbage,
    }
}

/// Looks at what comes to a socket.
pub(crate) struct Strays {
    protocol: Protocol,
    /// Of whoever listens there.
    gate: Mutex<Option<Kept<Rc<dyn Gate>>>>,
    answers: Mutex<Bucket>,
}

impl Strays {
    /// Nobody listens yet.
    pub(crate) fn new(protocol: Protocol) -> Self {
        Self { protocol, gate: Mutex::default(), answers: Mutex::default() }
    }

    /// Whoever decides who is let in there; `None`: nobody listens any more.
    pub(crate) fn decided_by(&self, gate: Option<Rc<dyn Gate>>) {
        let gate = gate.map(Kept::new);
        let before = std::mem::replace(&mut *self.gate.lock().unwrap_or_else(PoisonError::into_inner), gate);
        drop(before);
    }

    /// Whether the library is to see a datagram.
    pub(crate) fn pass(
        &self,
        (remote, local): (SocketAddr, Option<IpAddr>),
        datagram: &[u8],
        id: usize,
        is_ours: impl Fn(&[u8]) -> bool,
    ) -> bool {
        match kind(datagram, id, is_ours) {
            Kind::Known => true,
            Kind::Garbage => {
                self.count(Stray::Garbage);
                true
            }
            Kind::OtherVersion => {
                self.count(Stray::UnknownVersion);
                datagram.len() >= LEAST && self.tells(remote, local)
            }
        }
    }

    /// One more of these.
    pub(crate) fn count(&self, stray: Stray) {
        self.ask(|gate| gate.stray(self.protocol, stray));
    }

    /// Whether somebody is told which version is spoken here.
    fn tells(&self, remote: SocketAddr, local: Option<IpAddr>) -> bool {
        let now = Instant::now();
        let mut asking = Asking { remote: canonical(remote), local };
        self.ask(|gate| gate.tells_version(self.protocol, &mut asking, now)).unwrap_or(false)
            && self.answers.lock().unwrap_or_else(PoisonError::into_inner).take(ANSWERS, now)
    }

    fn ask<T>(&self, ask: impl FnOnce(&dyn Gate) -> T) -> Option<T> {
        let gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        gate.as_ref()?.with(|gate| ask(&**gate))
    }
}

impl fmt::Debug for Strays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Strays").field("protocol", &self.protocol).finish_non_exhaustive()
    }
}

/// Somebody who speaks another version: what there is to say is its address.
struct Asking {
    remote: SocketAddr,
    local: Option<IpAddr>,
}

impl Attempt for Asking {
    fn remote(&self) -> SocketAddr {
        self.remote
    }

    fn local(&self) -> Option<IpAddr> {
        self.local
    }

    fn proof(&self) -> AddressProof {
        AddressProof::None
    }

    fn can_retry(&self) -> bool {
        false
    }

    fn hello(&mut self) -> Hello<'_> {
        Hello::Unsupported
    }

    fn load(&self) -> Load {
        Load::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_nobody_is_told_from_what_may_be_of_somebody() {
        let is_ours = |id: &[u8]| id == b"ours";
        let told = |head: &[u8], length: usize| {
            let mut datagram = head.to_vec();
            datagram.resize(length.max(head.len()), 0);
            kind(&datagram, 4, is_ours)
        };
        let initial = b"\xc0\0\0\0\x01\x04them\x04them\0\x44\0";
        for (head, length, expected) in [
            (&b""[..], 0, Kind::Garbage),
            (b"\x40ours", 40, Kind::Known),
            // A bit that a peer may change (RFC 9287).
            (b"\0ours", 40, Kind::Known),
            (b"\x40them", 40, Kind::Garbage),
            (b"\x40ou", 3, Kind::Garbage),
            (b"\xc0\0\0", 3, Kind::Garbage),
            (b"\x80\0\0\0\0\x04them\x04them", 40, Kind::Garbage),
            (b"\x80\0\0\0\0\x04ours\x04them", 40, Kind::Known),
            (initial, 1200, Kind::Known),
            (initial, 1199, Kind::Garbage),
            (b"\xe0\0\0\0\x01\x04them\x04them", 1200, Kind::Garbage),
            (b"\xe0\0\0\0\x01\x04ours\x04them", 1200, Kind::Known),
            (b"\xf0\0\0\0\x01\x04them\x04them", 1200, Kind::Garbage),
            (b"\xd0\0\0\0\x01\x04them\x04them", 1200, Kind::Known),
            (b"\xc0\xba\xba\xba\xba", 5, Kind::OtherVersion),
            (b"\x80\x6b\x33\x43\xcf", 1200, Kind::OtherVersion),
        ] {
            assert_eq!(told(head, length), expected, "{head:02x?}");
        }
    }
}
