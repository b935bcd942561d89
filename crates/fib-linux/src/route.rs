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

/// The kernel's metric of our routes, unless another one is configured. It is part of a route's identity in the kernel, so
/// it is the same for all: a change of a protocol's metric must not leave two routes. Not 0, so that a route of the operator
/// to the same prefix wins and is left alone.
pub const METRIC: u32 = 20;

const DST: u16 = 1;
pub(crate) const PRIORITY: u16 = 6;
pub(crate) const TABLE: u16 = 15;
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

/// How a route is written. Where the table is not as was expected the kernel refuses, and nothing has changed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// There is no route of this prefix and metric, whoever has made it.
    Create,
    /// There is one, which is replaced.
    Replace,
}

/// What makes a route one of ours, beside [`PROTOCOL`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Ownership {
    /// Our table. Routes in other tables are not seen, whoever has made them.
    pub table: TableId,
    /// Our metric, never 0.
    pub metric: u32,
}

/// A route as the kernel tells of it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Route {
    pub(crate) table: TableId,
    pub(crate) protocol: u8,
    pub(crate) prefix: Prefix,
    pub(crate) priority: u32,
    pub(crate) target: Target,
}

/// Writes a route of ours.
pub(crate) fn write(
    batch: &mut Batch,
    sequence: u32,
    ours: Ownership,
    prefix: Prefix,
    (target, mode): (Target, Mode),
) {
    let flags = match mode {
        Mode::Create => flag::CREATE | flag::EXCLUSIVE,
        Mode::Replace => flag::REPLACE,
    };
    let kind = match target {
        Target::Group(_) | Target::Foreign => RTN_UNICAST,
        Target::Blackhole => RTN_BLACKHOLE,
        Target::Unreachable => RTN_UNREACHABLE,
    };
    batch.message(kind::NEW_ROUTE, flags, sequence, |body| {
        identity(body, ours, prefix, RT_SCOPE_UNIVERSE, kind);
        if let Target::Group(id) = target {
            body.attribute_u32(NH_ID, id);
        }
    });
}

/// Deletes a route of ours, if there is one: the request names our protocol, so the kernel deletes no other.
pub(crate) fn delete(batch: &mut Batch, sequence: u32, ours: Ownership, prefix: Prefix) {
    batch.message(kind::DEL_ROUTE, 0, sequence, |body| {
        identity(body, ours, prefix, RT_SCOPE_NOWHERE, 0);
    });
}

fn identity(body: &mut Body<'_>, ours: Ownership, prefix: Prefix, scope: u8, kind: u8) {
    // `struct rtmsg`: family, destination length, source length, tos, table, protocol, scope, type, flags.
    let Ownership { table, metric } = ours;
    let short_table = u8::try_from(table.0).unwrap_or(0);
    let family = family(prefix.afi());
    body.header(&[family, prefix.length(), 0, 0, short_table, PROTOCOL, scope, kind, 0, 0, 0, 0]);
    match prefix.address() {
        IpAddr::V4(address) => body.attribute(DST, &address.octets()),
        IpAddr::V6(address) => body.attribute(DST, &address.octets()),
    }
    body.attribute_u32(TABLE, table.0);
    body.attribute_u32(PRIORITY, metric);
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
    let is_ours = message.kind == kind::NEW_ROUTE && u8_at(message.body, 5) == PROTOCOL;
    is_ours.then(|| read(message.body)).flatten()
}

/// Reads the body of an `RTM_NEWROUTE` or `RTM_DELROUTE`; `None` for what is nowhere in the way of ours: routes for some
/// sources or types of service only.
pub(crate) fn read(body: &[u8]) -> Option<Route> {
    if u8_at(body, 2) != 0 || u8_at(body, 3) != 0 {
        return None;
    }
    let mut network = default_address(u8_at(body, 0))?;
    let (mut table, mut priority, mut nexthop) = (u32::from(u8_at(body, 4)), 0, None);
    for (kind, value) in attributes(body, HEADER) {
        match kind {
            DST => network = address(value)?,
            PRIORITY => priority = u32_at(value, 0),
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
    Some(Route { table: TableId(table), protocol: u8_at(body, 5), prefix, priority, target })
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

    const MAIN: Ownership = Ownership { table: TableId::MAIN, metric: METRIC };

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn a_route_and_its_deletion_in_octets() {
        let mut batch = Batch::new();
        write(&mut batch, 1, MAIN, prefix("203.0.113.0/24"), (Target::Group(258), Mode::Create));
        let other = Ownership { table: TableId(1000), metric: 20 };
        delete(&mut batch, 2, other, prefix("2001:db8::/32"));
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
                    let ours = Ownership { table, metric: 7 };
                    write(&mut batch, 1, ours, prefix(text), (target, Mode::Replace));
                    let route = messages(batch.bytes()).find_map(parse);
                    let prefix = prefix(text);
                    let expected = Route { table, protocol: PROTOCOL, prefix, priority: 7, target };
                    assert_eq!(route, Some(expected));
                }
            }
        }
    }

    #[test]
    fn routes_of_others_are_not_seen() {
        let mut batch = Batch::new();
        write(&mut batch, 1, MAIN, prefix("10.0.0.0/8"), (Target::Blackhole, Mode::Create));
        let mut bytes = batch.bytes().to_vec();
        bytes[crate::message::HEADER + 5] = 11;
        assert_eq!(messages(&bytes).find_map(parse), None);
    }
}
