//! BMP messages as a router sends them to a collector (RFC 7854, with RFC 8671 and RFC 9069).
//!
//! Values in, bytes out: [`Writer`] appends whole messages to a buffer. When to send which, and over what, is the caller's.

use std::net::{IpAddr, Ipv6Addr};

use holdfast_types::{Asn, Family};

/// RFC 7854 section 4.1.
const VERSION: u8 = 3;

/// What a monitored table is, and of whom (the per-peer header, section 4.2).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Which table.
    pub table: Table,
    /// The peer's address; of [`Table::LocRib`], unspecified.
    pub address: IpAddr,
    /// The peer's AS; of [`Table::LocRib`], ours.
    pub asn: Asn,
    /// The peer's BGP identifier; of [`Table::LocRib`], ours.
    pub router_id: u32,
    /// UPDATEs have two-octet AS numbers.
    pub two_octet_as: bool,
    /// When it happened: microseconds since 1970.
    pub at: u64,
}

/// A table that is monitored.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Table {
    /// As received from the peer, before import policy.
    AdjRibIn,
    /// As sent to the peer, after export policy (RFC 8671).
    AdjRibOut,
    /// The best routes (RFC 9069).
    LocRib,
}

/// Why a session is down (section 4.9).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Down<'a> {
    /// We sent this NOTIFICATION, a whole message.
    Sent(&'a [u8]),
    /// We closed it, without one; with the number of the FSM's event (RFC 4271 section 8.1), or 0.
    Closed(u16),
    /// The peer sent this NOTIFICATION.
    Received(&'a [u8]),
    /// The connection ended without one.
    Lost,
    /// The peer is monitored no more.
    Unmonitored,
}

/// What is counted (section 4.8).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Statistic {
    /// Routes in an Adj-RIB-In.
    AdjRibIn(u64),
    /// Those of one family.
    AdjRibInOf(Family, u64),
    /// Routes in the Loc-RIB.
    LocRib(u64),
    /// Those of one family.
    LocRibOf(Family, u64),
    /// Routes in an Adj-RIB-Out after export policy (RFC 8671 section 6.2).
    AdjRibOut(u64),
    /// Those of one family.
    AdjRibOutOf(Family, u64),
}

/// Why the router ends the connection (section 4.5).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// It is no longer configured.
    AdministrativelyClosed,
    /// Any other.
    Unspecified,
    /// The collector does not keep up.
    OutOfResources,
}

/// Appends messages to a buffer.
#[derive(Debug, Default)]
pub struct Writer {
    /// Whole messages.
    pub bytes: Vec<u8>,
}

impl Writer {
    /// Initiation (section 4.3): how the router calls itself.
    pub fn initiation(&mut self, name: &str, description: &str) {
        self.message(4, |out| {
            tlv(1, description.as_bytes(), out);
            tlv(2, name.as_bytes(), out);
        });
    }

    /// Termination (section 4.5).
    pub fn termination(&mut self, reason: Reason) {
        let reason: u16 = match reason {
            Reason::AdministrativelyClosed => 0,
            Reason::Unspecified => 1,
            Reason::OutOfResources => 2,
        };
        self.message(5, |out| tlv(1, &reason.to_be_bytes(), out));
    }

    /// Peer Up (section 4.10), with both OPENs as whole messages. `local` is our end of the connection with both ports, ours
    /// first. The Loc-RIB is named (RFC 9069 section 4.4).
    pub fn peer_up(&mut self, peer: &Peer, local: (IpAddr, u16, u16), opens: (&[u8], &[u8]), name: &str) {
        self.message(3, |out| {
            peer.push(out);
            let (address, local_port, remote_port) = local;
            push_address(address, out);
            out.extend(local_port.to_be_bytes());
            out.extend(remote_port.to_be_bytes());
            let (sent, received) = opens;
            out.extend(sent);
            out.extend(received);
            if peer.table == Table::LocRib {
                tlv(3, name.as_bytes(), out);
            }
        });
    }

    /// Peer Down (section 4.9).
    pub fn peer_down(&mut self, peer: &Peer, down: Down<'_>) {
        self.message(2, |out| {
            peer.push(out);
            match down {
                Down::Sent(notification) => push_reason(1, notification, out),
                Down::Closed(event) => push_reason(2, &event.to_be_bytes(), out),
                Down::Received(notification) => push_reason(3, notification, out),
                Down::Lost => out.push(4),
                Down::Unmonitored => out.push(5),
            }
        });
    }

    /// Route Monitoring (section 4.6): one UPDATE, a whole message.
    pub fn route_monitoring(&mut self, peer: &Peer, update: &[u8]) {
        self.message(0, |out| {
            peer.push(out);
            out.extend(update);
        });
    }

    /// A Statistics Report (section 4.8).
    pub fn statistics(&mut self, peer: &Peer, statistics: &[Statistic]) {
        self.message(1, |out| {
            peer.push(out);
            out.extend((statistics.len() as u32).to_be_bytes());
            statistics.iter().for_each(|statistic| statistic.push(out));
        });
    }

    fn message(&mut self, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        self.bytes.push(VERSION);
        self.bytes.extend([0; 4]);
        self.bytes.push(kind);
        body(&mut self.bytes);
        let length = (self.bytes.len() - start) as u32;
        self.bytes[start + 1..start + 5].copy_from_slice(&length.to_be_bytes());
    }
}

impl Peer {
    fn push(&self, out: &mut Vec<u8>) {
        /// Flags of section 4.2 and RFC 8671 section 4.
        const V: u8 = 0x80;
        const L: u8 = 0x40;
        const A: u8 = 0x20;
        const O: u8 = 0x10;
        // Those of a Loc-RIB (RFC 9069 section 4.2) are others: F would say that it is filtered.
        let (kind, table) = match self.table {
            Table::AdjRibIn => (0, 0),
            Table::AdjRibOut => (0, O | L),
            Table::LocRib => (3, 0),
        };
        let of_peer = |flag, set| if set && kind == 0 { flag } else { 0 };
        let flags = table | of_peer(V, self.address.is_ipv6()) | of_peer(A, self.two_octet_as);
        out.extend([kind, flags]);
        // The distinguisher: there is one instance.
        out.extend([0; 8]);
        push_address(self.address, out);
        out.extend(self.asn.0.to_be_bytes());
        out.extend(self.router_id.to_be_bytes());
        out.extend(((self.at / 1_000_000) as u32).to_be_bytes());
        out.extend(((self.at % 1_000_000) as u32).to_be_bytes());
    }
}

impl Statistic {
    fn push(self, out: &mut Vec<u8>) {
        let (kind, family, value): (u16, Option<Family>, u64) = match self {
            Self::AdjRibIn(value) => (7, None, value),
            Self::LocRib(value) => (8, None, value),
            Self::AdjRibInOf(family, value) => (9, Some(family), value),
            Self::LocRibOf(family, value) => (10, Some(family), value),
            Self::AdjRibOut(value) => (15, None, value),
            Self::AdjRibOutOf(family, value) => (17, Some(family), value),
        };
        let mut octets = Vec::with_capacity(11);
        if let Some(Family { afi, safi }) = family {
            octets.extend(afi.0.to_be_bytes());
            octets.push(safi.0);
        }
        octets.extend(value.to_be_bytes());
        tlv(kind, &octets, out);
    }
}

/// IPv4 in the last four of 16 octets.
fn push_address(address: IpAddr, out: &mut Vec<u8>) {
    let octets = match address {
        IpAddr::V4(address) => Ipv6Addr::from_bits(address.to_bits().into()).octets(),
        IpAddr::V6(address) => address.octets(),
    };
    out.extend(octets);
}

fn push_reason(reason: u8, data: &[u8], out: &mut Vec<u8>) {
    out.push(reason);
    out.extend(data);
}

/// What is too long for the length is cut: names only.
fn tlv(kind: u16, value: &[u8], out: &mut Vec<u8>) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    out.extend(kind.to_be_bytes());
    out.extend((value.len() as u16).to_be_bytes());
    out.extend(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
        digits.chunks(2).map(|pair| u8::from_str_radix(&String::from_iter(pair), 16).expect("hex")).collect()
    }

    fn peer(table: Table) -> Peer {
        let address = "192.0.2.2".parse().expect("an address");
        Peer { table, address, asn: Asn(65001), router_id: 7, two_octet_as: false, at: 5_000_003 }
    }

    const HEADER: &str =
        "0000000000000000 000000000000000000000000c0000202 0000fde9 00000007 00000005 00000003";

    #[test]
    fn messages_are_those_of_the_rfc() {
        let mut writer = Writer::default();
        writer.initiation("r1", "x");
        writer.termination(Reason::OutOfResources);
        let expected = hex("03 00000011 04 0001 0001 78 0002 0002 7231  03 0000000c 05 0001 0002 0002");
        assert_eq!(writer.bytes, expected);

        let mut writer = Writer::default();
        writer.route_monitoring(&peer(Table::AdjRibIn), &[0xaa]);
        writer.route_monitoring(&peer(Table::AdjRibOut), &[0xaa]);
        writer.peer_down(&peer(Table::AdjRibIn), Down::Received(&[0xbb]));
        writer.peer_down(&peer(Table::AdjRibIn), Down::Lost);
        let expected = [
            format!("03 00000031 00 0000 {HEADER} aa"),
            format!("03 00000031 00 0050 {HEADER} aa"),
            format!("03 00000032 02 0000 {HEADER} 03 bb"),
            format!("03 00000031 02 0000 {HEADER} 04"),
        ];
        assert_eq!(writer.bytes, hex(&expected.concat()));
    }

    #[test]
    fn a_peer_up_has_both_opens_and_the_loc_rib_its_name() {
        let mut writer = Writer::default();
        let local = ("192.0.2.1".parse().expect("an address"), 179, 40000);
        writer.peer_up(&peer(Table::AdjRibIn), local, (&[1], &[2]), "unused");
        let expected =
            format!("03 00000046 03 0000 {HEADER} 000000000000000000000000c0000201 00b3 9c40 01 02");
        assert_eq!(writer.bytes, hex(&expected));

        let mut writer = Writer::default();
        let table = Peer { address: IpAddr::from([0; 4]), ..peer(Table::LocRib) };
        writer.peer_up(&table, (IpAddr::from([0; 4]), 0, 0), (&[1], &[2]), "global");
        assert_eq!(&writer.bytes[6..8], [3, 0], "a table of its own, and whole");
        assert!(writer.bytes.ends_with(&hex("01 02 0003 0006 676c6f62616c")));
    }

    #[test]
    fn flags_say_the_family_and_how_paths_are_written() {
        let mut writer = Writer::default();
        let v6 = Peer { address: "2001:db8::2".parse().expect("an address"), ..peer(Table::AdjRibOut) };
        writer.route_monitoring(&Peer { two_octet_as: true, ..v6 }, &[]);
        assert_eq!(writer.bytes[6..8], [0, 0xf0]);
        assert_eq!(&writer.bytes[16..20], [0x20, 1, 0x0d, 0xb8]);
    }

    #[test]
    fn statistics_have_a_length_each() {
        let mut writer = Writer::default();
        let of = Statistic::AdjRibInOf(Family::IPV6_UNICAST, 2);
        writer.statistics(&peer(Table::AdjRibIn), &[Statistic::AdjRibIn(3), of]);
        let expected = "00000002 0007 0008 0000000000000003 0009 000b 0002 01 0000000000000002";
        assert!(writer.bytes.ends_with(&hex(expected)), "{:02x?}", writer.bytes);
    }
}
