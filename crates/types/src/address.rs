//! Addresses as messages between processes say them.

use std::net::IpAddr;

/// The 4 or 16 octets of an address, in network order.
pub fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// The address with these octets; `None` unless there are 4 or 16.
pub fn address(octets: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_comes_back_and_other_lengths_are_none() {
        for text in ["192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1"] {
            let given: IpAddr = text.parse().expect("an address");
            assert_eq!(address(&octets(given)), Some(given));
        }
        assert_eq!([0, 3, 5, 15, 17].map(|length| address(&vec![0; length])), [None; 5]);
    }
}
