//! What a socket of one interface does not get to see by where it was sent to: groups that it is not in.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use holdfast_sys::{filter::Instruction, tcp::IpVersion};

/// Groups of one socket. A test reaches 255 instructions, and each group of IPv6 takes 8.
pub(crate) const MOST_GROUPS: usize = 16;

/// Where the destination is in an IP header.
const DESTINATION_V4: u16 = 16;
const DESTINATION_V6: u16 = 24;
/// From here on no address of IPv4 is one host's: groups (RFC 5771), what is reserved, broadcast.
const FIRST_GROUP_V4: u32 = 0xe000_0000;
/// The first octet of every group of IPv6 (RFC 4291 section 2.7).
const GROUP_V6: u32 = 0xff;

/// Takes what was sent to one host, or to one of these groups, of which there are [`MOST_GROUPS`] at most.
pub(crate) fn program(version: IpVersion, groups: &[IpAddr]) -> Vec<Instruction> {
    let (mut of_v4, mut of_v6) = (Vec::new(), Vec::new());
    for group in groups {
        match group {
            IpAddr::V4(group) => of_v4.push(*group),
            IpAddr::V6(group) => of_v6.push(*group),
        }
    }
    match version {
        IpVersion::V4 => v4(&of_v4),
        IpVersion::V6 => v6(&of_v6),
    }
}

fn v4(groups: &[Ipv4Addr]) -> Vec<Instruction> {
    let mut program = vec![Instruction::LoadWord(DESTINATION_V4)];
    for (index, group) in groups.iter().enumerate() {
        // Past the other groups, the test for groups, and the drop.
        let yes = (groups.len() - index - 1 + 2) as u8;
        program.push(Instruction::Equal { value: group.to_bits(), yes, no: 0 });
    }
    program.push(Instruction::AtLeast { value: FIRST_GROUP_V4, yes: 0, no: 1 });
    program.extend([Instruction::Drop, Instruction::Take]);
    program
}

fn v6(groups: &[Ipv6Addr]) -> Vec<Instruction> {
    // Each group is four words, each loaded and compared; then there are the drop and the end.
    const OF_GROUP: usize = 8;
    let behind = |groups: usize| (groups * OF_GROUP + 1) as u8;
    let mut program = vec![
        Instruction::LoadOctet(DESTINATION_V6),
        Instruction::Equal { value: GROUP_V6, yes: 0, no: behind(groups.len()) },
    ];
    for (index, group) in groups.iter().enumerate() {
        let bits = group.to_bits();
        for word in 0..4_u16 {
            let value = (bits >> (96 - 32 * u32::from(word))) as u32;
            let next_group = ((3 - word) * 2) as u8;
            let yes = if word == 3 { behind(groups.len() - index - 1) } else { 0 };
            program.push(Instruction::LoadWord(DESTINATION_V6 + 4 * word));
            program.push(Instruction::Equal { value, yes, no: next_group });
        }
    }
    program.extend([Instruction::Drop, Instruction::Take]);
    program
}
