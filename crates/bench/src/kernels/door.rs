//! What stands before the listeners: the stages of admission as the process `transport` has them, and the look at a
//! ClientHello.

use std::{
    hint::black_box,
    iter::once,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use holdfast_admission::{AddressProof, Attempt, Chain, Hello, Load, Numbers, PeerState, Pressure, Verdict};
use holdfast_tls_wire::{Peek, Reassembly, peek_initial};
use holdfast_types::Prefix;

use super::measured;

/// Attempts, or ClientHellos, that each kernel is given.
const ATTEMPTS: usize = 50_000;
/// Configured peers, whose attempts come in turns.
const PEERS: usize = 1000;
/// From one attempt of a peer to the next one's: there is no load.
const PACE: Duration = Duration::from_millis(10);
/// ALPN of the example, as in the extension.
const ALPN: &[u8] = b"\x04alpn";
/// The ClientHello of RFC 9001 appendix A.2.
const HELLO: &[u8] = include_bytes!("../../../../fuzz/corpus/client_hello/rfc9001");
/// Octets of the key that a post-quantum client sends besides (X25519MLKEM768).
const POST_QUANTUM: usize = 1216;
/// Octets of a CRYPTO frame that fill a first datagram.
const DATAGRAM: usize = 1100;

fn peer(number: usize) -> SocketAddr {
    let host = (number % PEERS) as u32;
    SocketAddr::new(IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + host)), 4242)
}

/// Of somebody whose address is proven, and whose ClientHello can be looked at.
struct Known(SocketAddr);

impl Attempt for Known {
    fn remote(&self) -> SocketAddr {
        self.0
    }

    fn local(&self) -> Option<IpAddr> {
        None
    }

    fn proof(&self) -> AddressProof {
        AddressProof::Token
    }

    fn can_retry(&self) -> bool {
        false
    }

    fn hello(&mut self) -> Hello<'_> {
        Hello::Known { alpn: ALPN, server_name: None }
    }

    fn load(&self) -> Load {
        Load::default()
    }
}

fn chain() -> Result<Chain> {
    let known: Result<Vec<Prefix>, _> =
        (0..PEERS).map(|number| format!("{}/32", peer(number).ip()).parse()).collect();
    let numbers = Numbers::default();
    let pressure = Rc::new(Pressure::new(&numbers));
    let spoken = once(ALPN[1..].to_vec());
    Ok(Chain::new(numbers.stages(&pressure, known?.into_iter().collect(), spoken, |_| PeerState::Wanted)))
}

/// Attempts from these addresses; all have this verdict.
fn judge(from: impl Fn(usize) -> SocketAddr, wanted: Verdict) -> Result<usize> {
    let (mut chain, mut now, mut others) = (chain()?, Instant::now(), 0);
    measured(|| {
        for number in 0..ATTEMPTS {
            now += PACE;
            others += usize::from(chain.judge(black_box(&mut Known(from(number))), now) != wanted);
        }
    });
    ensure!(others == 0, "{others} verdicts are other than {wanted:?}");
    Ok(ATTEMPTS)
}

pub(super) fn ignore() -> Result<usize> {
    judge(
        |number| SocketAddr::new(Ipv4Addr::from_bits(0xc633_6400 | (number as u32 & 0xff)).into(), 4242),
        Verdict::Ignore,
    )
}

pub(super) fn accept() -> Result<usize> {
    judge(peer, Verdict::Accept)
}

/// A CRYPTO frame.
fn frame(offset: usize, octets: &[u8]) -> Vec<u8> {
    let [offset, length] = [offset, octets.len()].map(|value| (0x4000 | value as u16).to_be_bytes());
    [&[6][..], &offset, &length, octets].concat()
}

/// Looks at the payloads of a first flight, again and again.
fn look(payloads: &[Vec<u8>]) -> Result<usize> {
    let mut known = 0;
    measured(|| {
        for _ in 0..ATTEMPTS {
            let mut pieces = Reassembly::default();
            for payload in black_box(payloads) {
                if let Ok(Peek::Known(hello)) = peek_initial(payload, &mut pieces) {
                    known += usize::from(black_box(hello).alpn() == ALPN);
                }
            }
        }
    });
    ensure!(known == ATTEMPTS, "{known} ClientHellos were read");
    Ok(ATTEMPTS)
}

pub(super) fn hello() -> Result<usize> {
    look(&[frame(0, HELLO)])
}

pub(super) fn long_hello() -> Result<usize> {
    // Behind the last extension another one as long as the key; its type is one that has no meaning (RFC 8701).
    let mut hello = [HELLO, &[0x0a, 0x0a], &(POST_QUANTUM as u16).to_be_bytes(), &[0; POST_QUANTUM]].concat();
    // The message's length; before the extensions are version, random, session id, suites and compression.
    for length_at in [2, 4 + 2 + 32 + 1 + 2 + 4 + 2] {
        let length = u16::from_be_bytes([hello[length_at], hello[length_at + 1]]) + 4 + POST_QUANTUM as u16;
        hello[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
    }
    let (first, second) = hello.split_at(DATAGRAM);
    look(&[frame(0, first), frame(DATAGRAM, second)])
}
