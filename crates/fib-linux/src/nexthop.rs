//! Nexthop objects as messages (linux/nexthop.h).

use std::net::IpAddr;

use crate::{
    message::{
        AF_INET, AF_INET6, AF_UNSPEC, Batch, Body, Message, address, attributes, flag, kind, u8_at, u32_at,
    },
    route::PROTOCOL,
};

const ID: u16 = 1;
const GROUP: u16 = 2;
const OIF: u16 = 5;
const GATEWAY: u16 = 6;
const RTNH_F_ONLINK: u32 = 4;

/// Octets of `struct nhmsg`: `u8 family, u8 scope, u8 protocol, u8 reserved, u32 flags`.
pub(crate) const HEADER: usize = 8;

/// A way out as the kernel holds it: a nexthop object for each.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Exit {
    pub(crate) gateway: Option<IpAddr>,
    pub(crate) interface: u32,
}

/// A member of a group: its object, and its weight less one.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Member {
    pub(crate) id: u32,
    pub(crate) extra_weight: u8,
}

/// An object of ours as dumped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Object {
    Exit(u32, Exit),
    Group(u32, Vec<Member>),
}

/// How the object of an exit is asked for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// A gateway that a route of the kernel reaches on the link; without a gateway an object of IPv6, which serves routes of both
    /// families.
    Usual,
    /// Without a gateway, for routes of IPv4 alone.
    Ipv4,
    /// A gateway that is a neighbor on the link though no route of the kernel says so (`onlink` of `ip route`).
    OnLink,
}

/// Creates the object of a way out; refused when the id is taken.
pub(crate) fn create_exit(batch: &mut Batch, sequence: u32, id: u32, exit: Exit, form: Form) {
    let family = match (exit.gateway, form) {
        (Some(IpAddr::V4(_)), _) | (None, Form::Ipv4) => AF_INET,
        (Some(IpAddr::V6(_)), _) | (None, Form::Usual | Form::OnLink) => AF_INET6,
    };
    let flags = if form == Form::OnLink { RTNH_F_ONLINK } else { 0 };
    batch.message(kind::NEW_NEXTHOP, flag::CREATE | flag::EXCLUSIVE, sequence, |body| {
        header(body, family, flags);
        body.attribute_u32(ID, id);
        body.attribute_u32(OIF, exit.interface);
        match exit.gateway {
            Some(IpAddr::V4(gateway)) => body.attribute(GATEWAY, &gateway.octets()),
            Some(IpAddr::V6(gateway)) => body.attribute(GATEWAY, &gateway.octets()),
            None => {}
        }
    });
}

/// Creates a group; refused when the id is taken.
pub(crate) fn create_group(batch: &mut Batch, sequence: u32, id: u32, members: &[Member]) {
    group(batch, sequence, flag::CREATE | flag::EXCLUSIVE, id, members);
}

/// Replaces the members of a group; refused (ENOENT) when the group does not exist.
pub(crate) fn replace_group(batch: &mut Batch, sequence: u32, id: u32, members: &[Member]) {
    group(batch, sequence, flag::REPLACE, id, members);
}

fn group(batch: &mut Batch, sequence: u32, flags: u16, id: u32, members: &[Member]) {
    // `struct nexthop_grp`: u32 id, u8 weight less one, u8 high part of it, u16 reserved.
    let members: Vec<u8> = members
        .iter()
        .flat_map(|member| member.id.to_ne_bytes().into_iter().chain([member.extra_weight, 0, 0, 0]))
        .collect();
    batch.message(kind::NEW_NEXTHOP, flags, sequence, |body| {
        header(body, AF_UNSPEC, 0);
        body.attribute_u32(ID, id);
        body.attribute(GROUP, &members);
    });
}

/// Deletes an object of either sort, and with it the routes that use it.
pub(crate) fn delete(batch: &mut Batch, sequence: u32, id: u32) {
    batch.message(kind::DEL_NEXTHOP, 0, sequence, |body| {
        body.header(&[0; HEADER]);
        body.attribute_u32(ID, id);
    });
}

fn header(body: &mut Body<'_>, family: u8, flags: u32) {
    let [a, b, c, d] = flags.to_ne_bytes();
    body.header(&[family, 0, PROTOCOL, 0, a, b, c, d]);
}

/// Reads an answer to `RTM_GETNEXTHOP`; `None` for objects that are not ours.
pub(crate) fn parse(message: Message<'_>) -> Option<Object> {
    let is_ours = message.kind == kind::NEW_NEXTHOP && u8_at(message.body, 2) == PROTOCOL;
    is_ours.then(|| read(message.body))
}

/// Reads the body of an `RTM_NEWNEXTHOP` or `RTM_DELNEXTHOP`.
pub(crate) fn read(body: &[u8]) -> Object {
    let mut exit = Exit { gateway: None, interface: 0 };
    let (mut id, mut group) = (0, None);
    for (kind, value) in attributes(body, HEADER) {
        match kind {
            ID => id = u32_at(value, 0),
            OIF => exit.interface = u32_at(value, 0),
            GATEWAY => exit.gateway = address(value),
            GROUP => group = Some(value.chunks_exact(8).map(parse_member).collect()),
            _ => {}
        }
    }
    group.map_or(Object::Exit(id, exit), |members| Object::Group(id, members))
}

fn parse_member(bytes: &[u8]) -> Member {
    // Weights over 256 need the high octet, which we never write.
    let extra_weight = if u8_at(bytes, 5) == 0 { u8_at(bytes, 4) } else { u8::MAX };
    Member { id: u32_at(bytes, 0), extra_weight }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::messages;

    fn written(write: impl FnOnce(&mut Batch)) -> Vec<u8> {
        let mut batch = Batch::new();
        write(&mut batch);
        batch.bytes().to_vec()
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn a_gateway_in_octets() {
        let exit = Exit { gateway: Some([10, 0, 0, 2].into()), interface: 3 };
        let bytes = written(|batch| create_exit(batch, 5, 75_000_001, exit, Form::Usual));
        let expected = concat!(
            "30000000", "6800", "0106", "05000000",
            "00000000", // length, RTM_NEWNEXTHOP, flags, sequence, port
            "0200", "4b", "00", "00000000", // AF_INET, protocol 75
            "0800", "0100", "c1687804", // id
            "0800", "0500", "03000000", // interface
            "0800", "0600", "0a000002", // gateway
        );
        assert_eq!(hex(&bytes), expected);
    }

    #[test]
    fn objects_are_read_as_they_were_written() {
        let members = vec![Member { id: 7, extra_weight: 0 }, Member { id: 8, extra_weight: 255 }];
        let exits = [
            Exit { gateway: Some("fe80::1".parse().expect("address")), interface: 9 },
            Exit { gateway: Some("192.0.2.1".parse().expect("address")), interface: 9 },
            Exit { gateway: None, interface: 9 },
        ];
        for exit in exits {
            let bytes = written(|batch| create_exit(batch, 1, 4, exit, Form::Usual));
            assert_eq!(messages(&bytes).find_map(parse), Some(Object::Exit(4, exit)));
        }
        let bytes = written(|batch| replace_group(batch, 1, 5, &members));
        assert_eq!(messages(&bytes).find_map(parse), Some(Object::Group(5, members)));
    }

    #[test]
    fn objects_of_others_are_not_seen() {
        let exit = Exit { gateway: None, interface: 9 };
        let mut bytes = written(|batch| create_exit(batch, 1, 4, exit, Form::Ipv4));
        bytes[crate::message::HEADER + 2] = 11;
        assert_eq!(messages(&bytes).find_map(parse), None);
    }
}
