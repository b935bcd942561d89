//! A small universe in which everything collides, the model of the table, and those around it.

pub(crate) mod kernel;
pub(crate) mod model;
pub(crate) mod world;

use std::net::IpAddr;

use holdfast_rib::{InterfaceAddress, InterfaceRef, Nexthop, NexthopSet, Nexthops, OriginConfig};
use holdfast_types::Prefix;

/// Names with what they are; the connected origin is added by the table itself.
pub(crate) const ORIGINS: [(&str, bool, u8); 4] =
    [("static", true, 1), ("ospf", true, 110), ("ebgp", false, 20), ("aggregate", false, 200)];
pub(crate) const CLIENTS: usize = 3;
pub(crate) const SUBSCRIBERS: usize = 3;
pub(crate) const INTERFACES: usize = 3;
pub(crate) const CONTENTS: usize = 17;

pub(crate) const PREFIXES: [&str; 16] = [
    "0.0.0.0/0",
    "10.0.0.0/8",
    "10.0.0.0/16",
    "10.0.0.0/24",
    "10.0.0.128/25",
    "10.0.0.1/32",
    "10.0.1.0/24",
    "10.1.0.0/16",
    "192.168.0.0/24",
    "192.168.0.0/28",
    "192.168.1.0/24",
    "::/0",
    "2001:db8::/32",
    "2001:db8::/64",
    "2001:db8:1::/64",
    "2001:db8:1::1/128",
];

const GATEWAYS: [&str; 9] = [
    "10.0.0.1",
    "10.0.0.129",
    "10.0.1.1",
    "10.1.0.1",
    "192.168.0.1",
    "192.168.1.1",
    "2001:db8::1",
    "2001:db8:1::1",
    "fe80::1",
];

pub(crate) fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

pub(crate) fn prefix(text: &str) -> Prefix {
    text.parse().expect("a prefix")
}

pub(crate) fn origin_config(origin: usize) -> OriginConfig {
    match ORIGINS[origin] {
        (_, true, distance) => OriginConfig::internal(distance),
        (_, false, distance) => OriginConfig::external(distance),
    }
}

pub(crate) fn addresses() -> Vec<IpAddr> {
    let others = ["10.0.0.2", "10.0.0.200", "10.200.0.1", "192.168.0.77", "172.16.0.1", "2001:db8:2::1"];
    GATEWAYS.iter().chain(&others).map(|text| address(text)).collect()
}

pub(crate) fn interface_name(index: usize) -> Box<str> {
    format!("eth{index}").into()
}

/// Addresses that an interface may have: none, one, several; the same network on several interfaces.
pub(crate) fn interface_addresses() -> Vec<Vec<InterfaceAddress>> {
    let with = |text: &str, length| InterfaceAddress { address: address(text), length };
    vec![
        vec![],
        vec![with("192.168.0.254", 24)],
        vec![with("192.168.1.254", 24), with("fe80::2", 64)],
        vec![with("192.168.0.253", 24), with("2001:db8::fe", 64)],
        vec![with("10.0.0.254", 24), with("127.0.0.1", 8)],
    ]
}

/// Next hops of all kinds: a gateway, several, by interface with and without gateway, dropping. Most have backups.
pub(crate) fn contents(number: usize) -> Nexthops {
    let via = |number: usize| Nexthop::via(address(GATEWAYS[number]));
    let name = |number| InterfaceRef::Name(interface_name(number));
    let backups = match number {
        0..4 | 15 => vec![via(number % 4 + 4)],
        4..6 => vec![via(number - 4), via(number - 3)],
        9 | 13 => vec![Nexthop { interface: Some(name(1)), ..via(8) }],
        10 => vec![via(4), Nexthop::on(name(2))],
        _ => vec![],
    };
    let set = match number {
        0..9 => NexthopSet::Forward(vec![via(number)]),
        9 => NexthopSet::Forward(vec![via(0), via(4)]),
        10 => NexthopSet::Forward(vec![Nexthop { weight: 3, ..via(2) }, via(5), via(5)]),
        11 => NexthopSet::Forward(vec![Nexthop::on(name(1))]),
        12 => NexthopSet::Forward(vec![Nexthop::on(InterfaceRef::Index(2))]),
        13 => NexthopSet::Forward(vec![Nexthop { interface: Some(name(0)), ..via(8) }]),
        14 => NexthopSet::Blackhole,
        15 => NexthopSet::Unreachable,
        _ => NexthopSet::Forward(vec![]),
    };
    Nexthops { set, backups }
}
