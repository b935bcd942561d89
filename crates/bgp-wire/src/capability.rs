//! Capabilities (RFC 5492): the bodies that this version understands.

use std::fmt;

use holdfast_types::{Afi, Asn, BgpRole, Family, Safi};

use crate::Notification;

/// One capability of an OPEN.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Capability {
    /// The sender can exchange this family (RFC 4760 section 8).
    Multiprotocol(Family),
    /// RFC 2918.
    RouteRefresh,
    /// RFC 7313.
    EnhancedRouteRefresh,
    /// The sender reads and writes four-octet AS numbers, and this is its own (RFC 6793).
    FourOctetAs(Asn),
    /// What the sender takes and would send of outbound route filters (RFC 5291 section 5).
    OutboundRouteFiltering(Vec<OrfCapability>),
    /// RFC 8654.
    ExtendedMessage,
    /// For each family, a next-hop AFI that the sender accepts beside the usual one (RFC 8950).
    ExtendedNextHop(Vec<(Family, Afi)>),
    /// The sender sends or receives BGPsec_PATH (RFC 8205 section 2.1); one for each direction and family.
    Bgpsec {
        /// Of BGPsec; 0 is RFC 8205's.
        version: u8,
        /// Whether it sends, or receives.
        send: bool,
        /// Of the family, which is always unicast.
        afi: Afi,
    },
    /// RFC 4724 section 3.
    GracefulRestart {
        /// The sender has restarted; its peer need not wait for its End-of-RIB.
        restarting: bool,
        /// The sender retains routes after a NOTIFICATION too (RFC 8538).
        notification: bool,
        /// Seconds until the sender expects to be back, below 4096.
        time: u16,
        /// Families whose forwarding state the sender can preserve.
        families: Vec<GracefulFamily>,
    },
    /// RFC 9494 section 4.1.
    LongLivedGracefulRestart(Vec<LongLivedFamily>),
    /// RFC 9234.
    Role(u8),
    /// For each family, whether the sender wants to receive (1), send (2) or both (3) (RFC 7911).
    AddPath(Vec<(Family, u8)>),
    /// Name of the speaker (draft-walton-bgp-hostname-capability).
    Fqdn {
        /// Host name.
        host: String,
        /// Domain name; may be empty.
        domain: String,
    },
    /// No session before BFD is up (draft-ietf-idr-bgp-bfd-strict-mode).
    BfdStrictMode,
    /// A capability we do not know, or one whose body its RFC tells us to ignore.
    Unknown {
        /// Capability code.
        code: u8,
        /// Its body; at most 255 octets are sent.
        value: Vec<u8>,
    },
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Multiprotocol(family) => write!(f, "multiprotocol {family}"),
            Self::RouteRefresh => f.write_str("route refresh"),
            Self::EnhancedRouteRefresh => f.write_str("enhanced route refresh"),
            Self::OutboundRouteFiltering(entries) => {
                f.write_str("outbound route filtering")?;
                entries
                    .iter()
                    .try_for_each(|entry| write!(f, " {}:{}:{}", entry.family, entry.kind, entry.mode))
            }
            Self::FourOctetAs(asn) => write!(f, "four-octet AS {asn}"),
            Self::ExtendedMessage => f.write_str("extended message"),
            Self::ExtendedNextHop(families) => {
                f.write_str("extended next hop")?;
                families.iter().try_for_each(|(family, _)| write!(f, " {family}"))
            }
            Self::Bgpsec { version, send, afi } => {
                let direction = if *send { "send" } else { "receive" };
                write!(f, "BGPsec version {version} {direction} AFI {}", afi.0)
            }
            Self::GracefulRestart { time, families, .. } => {
                write!(f, "graceful restart {time} s")?;
                families.iter().try_for_each(|entry| write!(f, " {}", entry.family))
            }
            Self::LongLivedGracefulRestart(families) => {
                f.write_str("long-lived graceful restart")?;
                families.iter().try_for_each(|entry| write!(f, " {}:{} s", entry.family, entry.time))
            }
            Self::Role(role) => match BgpRole::from_octet(*role) {
                Some(role) => write!(f, "role {role}"),
                None => write!(f, "role {role}"),
            },
            Self::AddPath(families) => {
                f.write_str("add-path")?;
                families.iter().try_for_each(|(family, mode)| write!(f, " {family}:{mode}"))
            }
            Self::Fqdn { host, domain } if domain.is_empty() => write!(f, "host name {host}"),
            Self::Fqdn { host, domain } => write!(f, "host name {host}.{domain}"),
            Self::BfdStrictMode => f.write_str("BFD strict mode"),
            Self::Unknown { code, value } => write!(f, "capability {code} ({} octets)", value.len()),
        }
    }
}

/// A family and type of filters inside the Outbound Route Filtering capability.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct OrfCapability {
    /// Routes of this family are filtered.
    pub family: Family,
    /// The type of the filters; [`crate::orf::ADDRESS_PREFIX`] is that of RFC 5292.
    pub kind: u8,
    /// Whether the sender takes such filters (1), would send them (2), or both (3).
    pub mode: u8,
}

/// A family inside the Graceful Restart capability.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct GracefulFamily {
    /// The family.
    pub family: Family,
    /// Its forwarding state was preserved over the restart.
    pub forwarding: bool,
}

/// A family inside the Long-Lived Graceful Restart capability.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct LongLivedFamily {
    /// The family.
    pub family: Family,
    /// Its forwarding state was preserved over the restart.
    pub forwarding: bool,
    /// Seconds that its routes may stay after the restart time, below 2^24.
    pub time: u32,
}

impl Capability {
    /// Capability code, as numbered by IANA.
    pub fn code(&self) -> u8 {
        match self {
            Self::Multiprotocol(_) => 1,
            Self::RouteRefresh => 2,
            Self::OutboundRouteFiltering(_) => 3,
            Self::ExtendedNextHop(_) => 5,
            Self::ExtendedMessage => 6,
            Self::Bgpsec { .. } => 7,
            Self::Role(_) => 9,
            Self::GracefulRestart { .. } => 64,
            Self::FourOctetAs(_) => 65,
            Self::AddPath(_) => 69,
            Self::EnhancedRouteRefresh => 70,
            Self::LongLivedGracefulRestart(_) => 71,
            Self::Fqdn { .. } => 73,
            Self::BfdStrictMode => 74,
            Self::Unknown { code, .. } => *code,
        }
    }

    /// Reads one body. The two capabilities that decide how everything else is read must be sound; a broken
    /// optional one is kept as [`Self::Unknown`], as if the peer had not understood its own feature.
    ///
    /// # Errors
    /// [`Notification::malformed_open`] for a Multiprotocol or four-octet AS capability that is not four octets.
    pub(crate) fn parse(code: u8, value: &[u8]) -> Result<Self, Notification> {
        let known = match code {
            1 => return multiprotocol(value).ok_or_else(Notification::malformed_open),
            65 => return four_octet_as(value).ok_or_else(Notification::malformed_open),
            2 if value.is_empty() => Some(Self::RouteRefresh),
            3 => outbound_route_filtering(value),
            5 => extended_next_hop(value),
            6 if value.is_empty() => Some(Self::ExtendedMessage),
            7 => bgpsec(value),
            9 => <[u8; 1]>::try_from(value).ok().map(|[role]| Self::Role(role)),
            64 => graceful_restart(value),
            69 => add_path(value),
            70 if value.is_empty() => Some(Self::EnhancedRouteRefresh),
            71 => long_lived(value),
            73 => fqdn(value),
            74 if value.is_empty() => Some(Self::BfdStrictMode),
            _ => None,
        };
        Ok(known.unwrap_or_else(|| Self::Unknown { code, value: value.to_vec() }))
    }

    /// Appends code, length and body. A body over 255 octets loses whole entries at its end.
    pub(crate) fn push(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.code(), 0]);
        let start = out.len();
        self.push_body(out);
        out.truncate(start + 255);
        out[start - 1] = (out.len() - start) as u8;
    }

    fn push_body(&self, out: &mut Vec<u8>) {
        match self {
            Self::Multiprotocol(family) => {
                out.extend_from_slice(&family.afi.0.to_be_bytes());
                out.extend_from_slice(&[0, family.safi.0]);
            }
            Self::RouteRefresh | Self::EnhancedRouteRefresh | Self::ExtendedMessage | Self::BfdStrictMode => {
            }
            Self::OutboundRouteFiltering(entries) => push_filters(entries, out),
            Self::FourOctetAs(asn) => out.extend_from_slice(&asn.0.to_be_bytes()),
            Self::ExtendedNextHop(entries) => {
                for (family, next_hop) in entries.iter().take(255 / 6) {
                    out.extend_from_slice(&family.afi.0.to_be_bytes());
                    out.extend_from_slice(&u16::from(family.safi.0).to_be_bytes());
                    out.extend_from_slice(&next_hop.0.to_be_bytes());
                }
            }
            Self::GracefulRestart { restarting, notification, time, families } => {
                let flags = u16::from(*restarting) << 15 | u16::from(*notification) << 14;
                out.extend_from_slice(&(flags | (time & 0x0fff)).to_be_bytes());
                for entry in families.iter().take(253 / 4) {
                    push_family(entry.family, out);
                    out.push(u8::from(entry.forwarding) << 7);
                }
            }
            Self::LongLivedGracefulRestart(families) => {
                for entry in families.iter().take(255 / 7) {
                    push_family(entry.family, out);
                    out.push(u8::from(entry.forwarding) << 7);
                    out.extend_from_slice(&entry.time.to_be_bytes()[1..]);
                }
            }
            Self::Bgpsec { version, send, afi } => {
                out.push(version << 4 | u8::from(*send) << 3);
                out.extend_from_slice(&afi.0.to_be_bytes());
            }
            Self::Role(role) => out.push(*role),
            Self::AddPath(entries) => {
                for (family, mode) in entries.iter().take(255 / 4) {
                    push_family(*family, out);
                    out.push(*mode);
                }
            }
            Self::Fqdn { host, domain } => {
                push_name(host, out);
                push_name(domain, out);
            }
            Self::Unknown { value, .. } => out.extend_from_slice(value),
        }
    }
}

fn push_family(family: Family, out: &mut Vec<u8>) {
    out.extend_from_slice(&family.afi.0.to_be_bytes());
    out.push(family.safi.0);
}

/// At most 64 octets each, as the draft says.
fn push_name(name: &str, out: &mut Vec<u8>) {
    let name = &name[..name.floor_char_boundary(64)];
    out.push(name.len() as u8);
    out.extend_from_slice(name.as_bytes());
}

fn family(afi: [u8; 2], safi: u8) -> Family {
    Family { afi: Afi(u16::from_be_bytes(afi)), safi: Safi(safi) }
}

fn multiprotocol(value: &[u8]) -> Option<Capability> {
    let [a, b, _reserved, safi] = *value else { return None };
    Some(Capability::Multiprotocol(family([a, b], safi)))
}

fn four_octet_as(value: &[u8]) -> Option<Capability> {
    let number = <[u8; 4]>::try_from(value).ok()?;
    Some(Capability::FourOctetAs(Asn(u32::from_be_bytes(number))))
}

fn extended_next_hop(value: &[u8]) -> Option<Capability> {
    let (entries, []) = value.as_chunks::<6>() else { return None };
    // SAFI takes two octets here (RFC 8950 section 4); none is over 255.
    let known = entries.iter().filter(|entry| entry[2] == 0);
    let entry = |&[a, b, _, safi, c, d]: &[u8; 6]| (family([a, b], safi), Afi(u16::from_be_bytes([c, d])));
    Some(Capability::ExtendedNextHop(known.map(entry).collect()))
}

/// The three bits behind the direction are ignored (RFC 8205 section 2.1).
fn bgpsec(value: &[u8]) -> Option<Capability> {
    let [head, high, low] = *value else { return None };
    let afi = Afi(u16::from_be_bytes([high, low]));
    Some(Capability::Bgpsec { version: head >> 4, send: head & 8 != 0, afi })
}

fn graceful_restart(value: &[u8]) -> Option<Capability> {
    let (&head, entries) = value.split_first_chunk::<2>()?;
    let (entries, []) = entries.as_chunks::<4>() else { return None };
    let head = u16::from_be_bytes(head);
    let entry = |&[a, b, safi, flags]: &[u8; 4]| GracefulFamily {
        family: family([a, b], safi),
        forwarding: flags & 0x80 != 0,
    };
    Some(Capability::GracefulRestart {
        restarting: head & 0x8000 != 0,
        notification: head & 0x4000 != 0,
        time: head & 0x0fff,
        families: entries.iter().map(entry).collect(),
    })
}

fn long_lived(value: &[u8]) -> Option<Capability> {
    let (entries, []) = value.as_chunks::<7>() else { return None };
    let entry = |&[a, b, safi, flags, high, middle, low]: &[u8; 7]| LongLivedFamily {
        family: family([a, b], safi),
        forwarding: flags & 0x80 != 0,
        time: u32::from_be_bytes([0, high, middle, low]),
    };
    Some(Capability::LongLivedGracefulRestart(entries.iter().map(entry).collect()))
}

fn add_path(value: &[u8]) -> Option<Capability> {
    let (entries, []) = value.as_chunks::<4>() else { return None };
    // RFC 7911 section 4: an entry with another mode is ignored.
    let known = entries.iter().filter(|entry| matches!(entry[3], 1..=3));
    Some(Capability::AddPath(known.map(|&[a, b, safi, mode]| (family([a, b], safi), mode)).collect()))
}

/// Entries of modes that are none are left out.
fn outbound_route_filtering(mut value: &[u8]) -> Option<Capability> {
    let mut entries = Vec::new();
    while let Some((&[a, b, _, safi, count], rest)) = value.split_first_chunk() {
        let (filters, rest) = rest.split_at_checked(2 * usize::from(count))?;
        let filters = filters.as_chunks().0.iter().filter(|[_, mode]| matches!(mode, 1..=3));
        entries.extend(filters.map(|&[kind, mode]| OrfCapability {
            family: family([a, b], safi),
            kind,
            mode,
        }));
        value = rest;
    }
    value.is_empty().then_some(Capability::OutboundRouteFiltering(entries))
}

/// Those of a family together.
fn push_filters(entries: &[OrfCapability], out: &mut Vec<u8>) {
    let start = out.len();
    for part in entries.chunk_by(|a, b| a.family == b.family).flat_map(|part| part.chunks(MOST_FILTERS)) {
        if out.len() - start + 5 + 2 * part.len() > 255 {
            return;
        }
        let Family { afi, safi } = part[0].family;
        out.extend_from_slice(&afi.0.to_be_bytes());
        out.extend_from_slice(&[0, safi.0, part.len() as u8]);
        part.iter().for_each(|entry| out.extend_from_slice(&[entry.kind, entry.mode]));
    }
}

/// As many of a family as the body of a capability has room for.
const MOST_FILTERS: usize = (255 - 5) / 2;

fn fqdn(value: &[u8]) -> Option<Capability> {
    let (host, rest) = name(value)?;
    // Some send the host name only.
    let (domain, _) = name(rest).unwrap_or_default();
    Some(Capability::Fqdn { host, domain })
}

fn name(value: &[u8]) -> Option<(String, &[u8])> {
    let (&length, rest) = value.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(length))?;
    Some((String::from_utf8_lossy(name).into_owned(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each capability beside its bytes, by the RFC that defines them.
    fn table() -> Vec<(Capability, &'static [u8])> {
        let (v4, v6) = (Family::IPV4_UNICAST, Family::IPV6_UNICAST);
        let graceful = Capability::GracefulRestart {
            restarting: true,
            notification: true,
            time: 120,
            families: vec![GracefulFamily { family: v6, forwarding: true }],
        };
        let fqdn = Capability::Fqdn { host: "r1".into(), domain: "lab".into() };
        vec![
            (Capability::Multiprotocol(v6), &[1, 4, 0, 2, 0, 1]),
            (Capability::RouteRefresh, &[2, 0]),
            (Capability::ExtendedNextHop(vec![(v4, Afi::IPV6)]), &[5, 6, 0, 1, 0, 1, 0, 2]),
            (Capability::ExtendedMessage, &[6, 0]),
            (Capability::Bgpsec { version: 0, send: true, afi: Afi::IPV6 }, &[7, 3, 8, 0, 2]),
            (Capability::Bgpsec { version: 0, send: false, afi: Afi::IPV4 }, &[7, 3, 0, 0, 1]),
            (Capability::Bgpsec { version: 15, send: true, afi: Afi(9) }, &[7, 3, 0xf8, 0, 9]),
            (Capability::Role(3), &[9, 1, 3]),
            (graceful, &[64, 6, 0xc0, 120, 0, 2, 1, 0x80]),
            (Capability::FourOctetAs(Asn(65536)), &[65, 4, 0, 1, 0, 0]),
            (
                Capability::LongLivedGracefulRestart(vec![LongLivedFamily {
                    family: v6,
                    forwarding: true,
                    time: 65_537,
                }]),
                &[71, 7, 0, 2, 1, 0x80, 1, 0, 1],
            ),
            (Capability::AddPath(vec![(v4, 3)]), &[69, 4, 0, 1, 1, 3]),
            (Capability::EnhancedRouteRefresh, &[70, 0]),
            (
                Capability::OutboundRouteFiltering(vec![
                    OrfCapability { family: v4, kind: 64, mode: 3 },
                    OrfCapability { family: v4, kind: 65, mode: 1 },
                    OrfCapability { family: v6, kind: 64, mode: 2 },
                ]),
                &[3, 16, 0, 1, 0, 1, 2, 64, 3, 65, 1, 0, 2, 0, 1, 1, 64, 2],
            ),
            (fqdn, &[73, 7, 2, b'r', b'1', 3, b'l', b'a', b'b']),
            (Capability::BfdStrictMode, &[74, 0]),
            (Capability::Unknown { code: 200, value: vec![1, 2] }, &[200, 2, 1, 2]),
        ]
    }

    #[test]
    fn each_capability_is_read_and_written_as_its_rfc_says() {
        for (capability, bytes) in table() {
            let mut out = Vec::new();
            capability.push(&mut out);
            assert_eq!(out, bytes);
            assert_eq!(Capability::parse(bytes[0], &bytes[2..]), Ok(capability));
        }
    }

    #[test]
    fn reserved_bits_of_bgpsec_are_ignored() {
        let read = Capability::parse(7, &[0x0f, 0, 1]);
        assert_eq!(read, Ok(Capability::Bgpsec { version: 0, send: true, afi: Afi::IPV4 }));
    }

    #[test]
    fn a_broken_optional_capability_is_as_if_unknown() {
        let bodies: [(u8, &[u8]); 13] = [
            (2, &[1]),
            (7, &[8, 0]),
            (7, &[8, 0, 1, 0]),
            (3, &[0, 1, 0, 1]),
            (3, &[0, 1, 0, 1, 2, 64, 3, 65]),
            (5, &[0, 1, 0, 1, 0]),
            (6, &[0]),
            (9, &[]),
            (64, &[0]),
            (64, &[0, 0, 1]),
            (69, &[0, 1, 1]),
            (73, &[9, b'x']),
            (74, &[1]),
        ];
        for (code, value) in bodies {
            let expected = Capability::Unknown { code, value: value.to_vec() };
            assert_eq!(Capability::parse(code, value), Ok(expected));
        }
    }

    #[test]
    fn an_add_path_entry_of_unknown_mode_is_ignored() {
        let value = [0, 1, 1, 0, 0, 1, 1, 3, 0, 2, 1, 4];
        let known = Capability::AddPath(vec![(Family::IPV4_UNICAST, 3)]);
        assert_eq!(Capability::parse(69, &value), Ok(known));
    }

    #[test]
    fn a_capability_that_decides_how_to_read_must_be_sound() {
        for (code, value) in [(1, &[0u8, 1, 0][..]), (65, &[0, 0, 1])] {
            assert_eq!(Capability::parse(code, value), Err(Notification::malformed_open()));
        }
    }

    #[test]
    fn an_overlong_body_loses_whole_entries() {
        let mut out = Vec::new();
        Capability::AddPath(vec![(Family::IPV4_UNICAST, 1); 100]).push(&mut out);
        assert_eq!((out[1], out.len()), (252, 254));
    }
}
