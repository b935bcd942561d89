//! Routes as messages (linux/rtnetlink.h).

use std::net::IpAddr;

use holdfast_fib::TableId;
use holdfast_types::{Afi, Prefix};

use crate::message::{
    AF_INET, AF_INET6, Batch, Body, Message, address, attributes, flag, kind, u8_at, u32_at,
};

/// Who made a route or nexthop object (`rtm_protocol`, `nh_protocol`): everything with this number is ours.
/// Free in iproute2's `rt_protos` and in the kernel's list.
pub const PROTOCOL: u8 = 75;

/// The kernel's metric of our routes. It is part of a route's identity in the kernel, so it is the same for
/// all: a change of a protocol's metric must not leave two routes. Not 0, so that a route of
/// the operator to the same prefix wins and is left alone.
pub const PRIORITY: u32 = 20;

const DST: u16 = 1;
const PRIORITY_ATTRIBUTE: u16 = 6;
const TABLE: u16 = 15;
const NH_ID: u16 = 30;

const RTN_UNICAST: u8 = 1;
const RTN_BLACKHOLE: u8 = 6;
const RTN_UNREACHABLE: u8 = 7;

/// "Any scope" in a deletion.
const RT_SCOPE_NOWHERE: u8 = 255;
const RT_SCOPE_UNIVERSE: u8 = 0;

/// Octets of `struct rtmsg`.
pub(crate) const HEADER: usize = 12;

/// Where a route leads, as the kernel holds it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    Group(u32),
    Blackhole,
    Unreachable,
    /// Nothing that we would write.
    Foreign,
}

/// What is expected to be in the table before a write. If it is not so, the kernel refuses and nothing has
/// changed: that is how routes are counted without remembering them.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Expect {
    Absent,
    Present,
}

impl Expect {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Absent => Self::Present,
            Self::Present => Self::Absent,
        }
    }
}

/// A route of ours as dumped.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Route {
    pub(crate) table: TableId,
    pub(crate) prefix: Prefix,
    pub(crate) priority: u32,
    pub(crate) target: Target,
}

/// Writes a route: creates it where it is expected to be absent, otherwise replaces it.
pub(crate) fn write(
    batch: &mut Batch,
    sequence: u32,
    table: TableId,
    prefix: Prefix,
    target: Target,
    expect: Expect,
) {
    let flags = match expect {
        Expect::Absent => flag::CREATE | flag::EXCLUSIVE,
        Expect::Present => flag::REPLACE,
    };
    let kind = match target {
        Target::Group(_) | Target::Foreign => RTN_UNICAST,
        Target::Blackhole => RTN_BLACKHOLE,
        Target::Unreachable => RTN_UNREACHABLE,
    };
    batch.message(kind::NEW_ROUTE, flags, sequence, |body| {
        identity(body, table, prefix, PRIORITY, RT_SCOPE_UNIVERSE, kind);
        if let Target::Group(id) = target {
            body.attribute_u32(NH_ID, id);
        }
    });
}

/// Deletes a route of ours.
pub(crate) fn delete(batch: &mut Batch, sequence: u32, table: TableId, prefix: Prefix, priority: u32) {
    batch.message(kind::DEL_ROUTE, 0, sequence, |body| {
        identity(body, table, prefix, priority, RT_SCOPE_NOWHERE, 0);
    });
}

fn identity(body: &mut Body<'_>, table: TableId, prefix: Prefix, priority: u32, scope: u8, kind: u8) {
    // `struct rtmsg`: family, destination length, source length, tos, table, protocol, scope, type, flags.
    let short_table = u8::try_from(table.0).unwrap_or(0);
    let family = family(prefix.afi());
    body.header(&[family, prefix.length(), 0, 0, short_table, PROTOCOL, scope, kind, 0, 0, 0, 0]);
    match prefix.address() {
        IpAddr::V4(address) => body.attribute(DST, &address.octets()),
        IpAddr::V6(address) => body.attribute(DST, &address.octets()),
    }
    body.attribute_u32(TABLE, table.0);
    body.attribute_u32(PRIORITY_ATTRIBUTE, priority);
}

fn family(afi: Afi) -> u8 {
    if afi == Afi::IPV4 { AF_INET } else { AF_INET6 }
}

/// The header of a dump of our routes of one family in one table, with the attribute that says which.
pub(crate) fn dump_header(afi: Afi, table: TableId) -> [u8; HEADER + 8] {
    let mut header = [0; HEADER + 8];
    (header[0], header[5]) = (family(afi), PROTOCOL);
    header[HEADER..HEADER + 2].copy_from_slice(&8_u16.to_ne_bytes());
    header[HEADER + 2..HEADER + 4].copy_from_slice(&TABLE.to_ne_bytes());
    header[HEADER + 4..].copy_from_slice(&table.0.to_ne_bytes());
    header
}

/// Reads an answer to `RTM_GETROUTE`; `None` for routes that are not ours.
pub(crate) fn parse(message: Message<'_>) -> Option<Route> {
    let body = message.body;
    if message.kind != kind::NEW_ROUTE || u8_at(body, 5) != PROTOCOL {
        return None;
    }
    let mut network = default_address(u8_at(body, 0))?;
    let (mut table, mut priority, mut nexthop) = (u32::from(u8_at(body, 4)), 0, None);
    for (kind, value) in attributes(body, HEADER) {
        match kind {
            DST => network = address(value)?,
            PRIORITY_ATTRIBUTE => priority = u32_at(value, 0),
            TABLE => table = u32_at(value, 0),
            NH_ID => nexthop = Some(u32_at(value, 0)),
            _ => {}
        }
    }
    let target = match (u8_at(body, 7), nexthop) {
        (RTN_UNICAST, Some(id)) => Target::Group(id),
        (RTN_BLACKHOLE, None) => Target::Blackhole,
        (RTN_UNREACHABLE, None) => Target::Unreachable,
        _ => Target::Foreign,
    };
    let prefix = Prefix::new(network, u8_at(body, 1))?;
    Some(Route { table: TableId(table), prefix, priority, target })
}

/// A default route has no destination attribute.
fn default_address(family: u8) -> Option<IpAddr> {
    match family {
        AF_INET => Some([0; 4].into()),
        AF_INET6 => Some([0; 16].into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::messages;

    fn prefix(text: &str) -> Prefix {
        text.parse().expect("prefix")
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn a_route_and_its_deletion_in_octets() {
        let mut batch = Batch::new();
        write(&mut batch, 1, TableId::MAIN, prefix("203.0.113.0/24"), Target::Group(258), Expect::Absent);
        delete(&mut batch, 2, TableId(1000), prefix("2001:db8::/32"), PRIORITY);
        let expected = concat!(
            "3c000000",
            "1800",
            "0106",
            "01000000",
            "00000000", // RTM_NEWROUTE, create exclusively
            "02",
            "18",
            "00",
            "00",
            "fe",
            "4b",
            "00",
            "01",
            "00000000", // /24, table 254, protocol 75, unicast
            "0800",
            "0100",
            "cb007100",
            "0800",
            "0f00",
            "fe000000",
            "0800",
            "0600",
            "14000000", // to, table, metric
            "0800",
            "1e00",
            "02010000", // nexthop id
            "40000000",
            "1900",
            "0100",
            "02000000",
            "00000000", // RTM_DELROUTE
            "0a",
            "20",
            "00",
            "00",
            "00",
            "4b",
            "ff",
            "00",
            "00000000", // any scope, any type
            "1400",
            "0100",
            "20010db8000000000000000000000000", // to
            "0800",
            "0f00",
            "e8030000",
            "0800",
            "0600",
            "14000000", // table, metric
        );
        assert_eq!(hex(batch.bytes()), expected);
    }

    #[test]
    fn routes_are_read_as_they_were_written() {
        for target in [Target::Group(7), Target::Blackhole, Target::Unreachable] {
            for text in ["0.0.0.0/0", "10.0.0.0/8", "::/0", "2001:db8::1/128"] {
                for table in [TableId::MAIN, TableId(100_000)] {
                    let mut batch = Batch::new();
                    write(&mut batch, 1, table, prefix(text), target, Expect::Present);
                    let route = messages(batch.bytes()).find_map(parse);
                    let expected = Route { table, prefix: prefix(text), priority: PRIORITY, target };
                    assert_eq!(route, Some(expected));
                }
            }
        }
    }

    #[test]
    fn routes_of_others_are_not_seen() {
        let mut batch = Batch::new();
        write(&mut batch, 1, TableId::MAIN, prefix("10.0.0.0/8"), Target::Blackhole, Expect::Absent);
        let mut bytes = batch.bytes().to_vec();
        bytes[crate::message::HEADER + 5] = 11;
        assert_eq!(messages(&bytes).find_map(parse), None);
    }
}
