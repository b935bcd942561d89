//! Protocol numbers of IP, next headers of IPv6 (IANA).

/// Those that are no routing protocol's: the kernel answers them itself (ICMP, TCP, UDP, …), they carry other packets (IP in
/// IP, GRE, ESP, …), or they are headers of IPv6 and no protocols. With 255 the sender would write the IP header.
const OTHERS: [u8; 27] = [
    0, 1, 4, 6, 17, 33, 41, 43, 44, 47, 50, 51, 58, 59, 60, 94, 97, 98, 115, 132, 135, 136, 137, 139, 140,
    143, 255,
];

/// Whether a routing protocol may send and receive packets of this number.
pub fn is_for_routing(number: u8) -> bool {
    !OTHERS.contains(&number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routing_protocols_have_their_numbers_and_transports_and_tunnels_keep_theirs() {
        // EIGRP, OSPF, PIM, VRRP, and both for experiments (RFC 3692).
        assert!([88, 89, 103, 112, 253, 254].into_iter().all(is_for_routing));
        // ICMP, IP in IP, TCP, UDP, IPv6, GRE, ESP, ICMPv6, raw.
        assert!(![1, 4, 6, 17, 41, 47, 50, 58, 255].into_iter().any(is_for_routing));
    }
}
