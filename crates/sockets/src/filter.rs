//! Who gets no answer at all: whoever comes to a listener from where no peer is configured. The kernel drops the SYN.
//!
//! A program of classic BPF, made of the peers' networks. Pure.

use std::net::IpAddr;

use holdfast_sys::filter::{Instruction, MOST_INSTRUCTIONS};
use holdfast_types::Prefix;

/// Where the source is in an IP header.
const SOURCE_V4: u16 = 12;
const SOURCE_V6: u16 = 8;

/// Takes what comes from these networks, all of one family. `None`: there are too many for a program.
pub(crate) fn program(networks: impl IntoIterator<Item = Prefix>) -> Option<Vec<Instruction>> {
    let mut program = Vec::new();
    for network in networks {
        program.extend(from(network));
        if program.len() >= MOST_INSTRUCTIONS {
            return None;
        }
    }
    program.push(Instruction::DROP);
    Some(program)
}

/// Ends with taking it, if the source is in this network.
fn from(network: Prefix) -> Vec<Instruction> {
    let (first, words) = match network.address() {
        IpAddr::V4(address) => (SOURCE_V4, vec![address.to_bits()]),
        IpAddr::V6(address) => {
            (SOURCE_V6, (0..4).rev().map(|word| (address.to_bits() >> (32 * word)) as u32).collect())
        }
    };
    let mut program = vec![Instruction::TAKE];
    // From behind: each test skips what follows it.
    for (number, value) in words.into_iter().enumerate().rev() {
        let bits = u32::from(network.length()).saturating_sub(32 * number as u32).min(32);
        let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
        if bits == 0 {
            continue;
        }
        let mut test = vec![Instruction::load_ip(first + 4 * number as u16)];
        if bits < 32 {
            test.push(Instruction::and(mask));
        }
        test.push(Instruction::equal_or_skip(value & mask, program.len() as u8));
        test.append(&mut program);
        program = test;
    }
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().expect("a prefix")
    }

    #[test]
    fn each_network_is_tested_as_far_as_it_reaches() {
        use Instruction as I;
        let host = [I::load_ip(12), I::equal_or_skip(0x0a00_0002, 1), I::TAKE];
        let net = [I::load_ip(12), I::and(0xffff_ff00), I::equal_or_skip(0xc000_0200, 1), I::TAKE];
        let expected = [&host[..], &net, &[I::DROP]].concat();
        assert_eq!(program([prefix("10.0.0.2/32"), prefix("192.0.2.0/24")]), Some(expected));
        assert_eq!(program([prefix("0.0.0.0/0")]), Some(vec![I::TAKE, I::DROP]));
        let link = [I::load_ip(8), I::and(0xffc0_0000), I::equal_or_skip(0xfe80_0000, 1), I::TAKE, I::DROP];
        assert_eq!(program([prefix("fe80::/10")]), Some(link.to_vec()));
        let host = [
            I::load_ip(8),
            I::equal_or_skip(0x2001_0db8, 7),
            I::load_ip(12),
            I::equal_or_skip(0, 5),
            I::load_ip(16),
            I::equal_or_skip(0, 3),
            I::load_ip(20),
            I::equal_or_skip(2, 1),
            I::TAKE,
            I::DROP,
        ];
        assert_eq!(program([prefix("2001:db8::2/128")]), Some(host.to_vec()));
        assert_eq!(program([]), Some(vec![I::DROP]));
    }

    #[test]
    fn there_is_an_end_to_what_a_program_can_test() {
        let hosts = |count: u32| (0..count).map(|host| Prefix::host(IpAddr::V4(host.into())));
        assert!(program(hosts(1365)).is_some_and(|program| program.len() == MOST_INSTRUCTIONS));
        assert_eq!(program(hosts(1366)), None);
    }
}
