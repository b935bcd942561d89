//! Frames that tell neighbours which hardware address an address is at from now on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An Ethernet address.
pub(crate) type Mac = [u8; 6];

const BROADCAST: Mac = [0xff; 6];
/// Of ff02::1, all nodes (RFC 2464 section 7).
const ALL_NODES: Mac = [0x33, 0x33, 0, 0, 0, 1];
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
const ICMPV6: u8 = 58;
const NEIGHBOR_ADVERTISEMENT: u8 = 136;
/// We are a router, and what was known before counts no more (RFC 4861 section 4.4).
const ROUTER_OVERRIDE: u8 = 0x80 | 0x20;
const TARGET_LINK_LAYER_ADDRESS: u8 = 2;

/// All that is sent for an address at once: of IPv4 an ARP announcement (RFC 5227 section 2.3) and the same as a reply, which
/// some hear rather; of IPv6 an unsolicited Neighbor Advertisement (RFC 4861 section 7.2.6).
pub(crate) fn frames(address: IpAddr, mac: Mac) -> Vec<Vec<u8>> {
    match address {
        IpAddr::V4(address) => vec![arp(1, address, mac), arp(2, address, mac)],
        IpAddr::V6(address) => vec![advertisement(address, mac)],
    }
}

fn ethernet(to: Mac, from: Mac, kind: u16) -> Vec<u8> {
    [&to[..], &from, &kind.to_be_bytes()].concat()
}

fn arp(operation: u16, address: Ipv4Addr, mac: Mac) -> Vec<u8> {
    let target = if operation == 1 { [0; 6] } else { BROADCAST };
    let mut frame = ethernet(BROADCAST, mac, ARP);
    // Ethernet and IPv4, with addresses of 6 and 4 octets.
    frame.extend([0, 1, 8, 0, 6, 4]);
    frame.extend(operation.to_be_bytes());
    for (mac, address) in [(mac, address), (target, address)] {
        frame.extend(mac);
        frame.extend(address.octets());
    }
    frame
}

fn advertisement(address: Ipv6Addr, mac: Mac) -> Vec<u8> {
    let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let mut message = vec![NEIGHBOR_ADVERTISEMENT, 0, 0, 0, ROUTER_OVERRIDE, 0, 0, 0];
    message.extend(address.octets());
    message.extend([TARGET_LINK_LAYER_ADDRESS, 1]);
    message.extend(mac);
    let length = message.len() as u16;
    let pseudo = [&address.octets()[..], &all.octets(), &u32::from(length).to_be_bytes(), &[0, 0, 0, ICMPV6]];
    let sum = checksum([&pseudo.concat()[..], &message].concat().as_slice());
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut frame = ethernet(ALL_NODES, mac, IPV6);
    frame.extend([0x60, 0, 0, 0]);
    frame.extend(length.to_be_bytes());
    // The hop limit says that it comes from this link.
    frame.extend([ICMPV6, 255]);
    frame.extend(address.octets());
    frame.extend(all.octets());
    frame.extend(message);
    frame
}

/// The checksum of the Internet (RFC 1071), of an even number of octets.
fn checksum(octets: &[u8]) -> u16 {
    let words = octets.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = [2, 0, 0, 0, 0, 7];

    #[test]
    fn an_announcement_asks_for_what_it_says() {
        let frames = frames([10, 1, 0, 10].into(), MAC);
        let request =
            "ffffffffffff 020000000007 0806 0001 0800 06 04 0001 020000000007 0a01000a 000000000000 0a01000a";
        let reply =
            "ffffffffffff 020000000007 0806 0001 0800 06 04 0002 020000000007 0a01000a ffffffffffff 0a01000a";
        assert_eq!(frames, [request, reply].map(octets));
    }

    #[test]
    fn an_advertisement_overrides_what_neighbours_know() {
        let address: Ipv6Addr = "2001:db8:1::10".parse().expect("an address");
        let frames = frames(address.into(), MAC);
        let [frame] = &frames[..] else { panic!("{frames:?}") };
        let head = "333300000001 020000000007 86dd 60000000 0020 3a ff 20010db8000100000000000000000010 \
                    ff020000000000000000000000000001 88 00";
        let head = octets(head);
        assert_eq!(frame[..head.len()], head);
        let rest = octets("a0000000 20010db8000100000000000000000010 02 01 020000000007");
        assert_eq!(frame[head.len() + 2..], rest);
        // A sum over all of it, its own field among them, has all bits set.
        let pseudo = octets("00000020 0000003a");
        let summed = [&frame[22..54], &pseudo, &frame[54..]].concat();
        assert_eq!(checksum(&summed), 0);
    }

    fn octets(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|digit| !digit.is_ascii_whitespace()).collect();
        let octet = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).expect("digits"), 16);
        digits.chunks(2).map(|pair| octet(pair).expect("digits")).collect()
    }
}
