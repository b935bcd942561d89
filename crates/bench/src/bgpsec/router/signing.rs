//! Signed routes, made before any clock starts: of each route its prefix and its number of hops follow from its number.

use std::{
    net::{IpAddr, Ipv4Addr},
    num::NonZero,
    thread::{self, ScopedJoinHandle},
};

use anyhow::{Context, Result, bail, ensure};
use holdfast_bgp_wire::{
    MAX_LEN, NextHop, Origin, UpdateEncoder,
    attribute::{code, flag, push},
    bgpsec::announce,
};
use holdfast_bgpsec_wire::{Nlri, Path, Segment, SignatureBlock, Signed, Ski, extend, octets_to_sign};
use holdfast_path_validation::{P256Signer, SUITE_P256, Signer, sign};
use holdfast_types::{Asn, Ipv4Prefix, Prefix, RouterKey};

use crate::bgpsec::crypto;

/// The first AS that is no neighbour.
const FIRST_OLDER: u32 = 100_000;
/// The first AS whose key some routes name and no others.
const FIRST_MARKED: u32 = 900_000;
/// The first address of the routes.
const FIRST_ROUTE: u32 = 0x0b00_0000;
/// Where a message says how long it is.
const LENGTH_AT: usize = 16;
/// Octets of a point that is not compressed, with which a public key ends.
const POINT: usize = 65;
/// AS_SEQUENCE (RFC 4271 section 4.3).
const AS_SEQUENCE: u8 = 2;

/// The prefix of a route.
pub(super) fn prefix(number: u32) -> Ipv4Prefix {
    Ipv4Prefix::new(Ipv4Addr::from_bits(FIRST_ROUTE + (number << 8)), 24).expect("no bits behind the length")
}

/// Whoever signs: the neighbour, and those behind it.
pub(super) struct Signers {
    neighbor: P256Signer,
    older: Vec<P256Signer>,
    /// Origins of routes up to a number, each with a key that no other route names.
    marked: Vec<(u32, P256Signer)>,
}

impl Signers {
    /// The neighbour and so many others, each with a key of its own.
    pub(super) fn new(neighbor: Asn, older: u32) -> Result<Self> {
        let older = (0..older).map(|number| P256Signer::generate(Asn(FIRST_OLDER + number)));
        let older = older.collect::<Result<_, _>>()?;
        Ok(Self { neighbor: P256Signer::generate(neighbor)?, older, marked: Vec::new() })
    }

    /// The next so many routes have an origin of their own, with this key.
    pub(super) fn mark(&mut self, routes: u32) -> Result<RouterKey> {
        let from = self.marked.last().map_or(0, |(end, _)| *end);
        let signer = P256Signer::generate(Asn(FIRST_MARKED + self.marked.len() as u32))?;
        let key = signer.router_key();
        self.marked.push((from + routes, signer));
        Ok(key)
    }

    /// The keys of all.
    pub(super) fn keys(&self) -> impl Iterator<Item = RouterKey> {
        let marked = self.marked.iter().map(|(_, signer)| signer);
        [&self.neighbor].into_iter().chain(&self.older).chain(marked).map(P256Signer::router_key)
    }

    /// Who signs at a hop of so many, 0 being the origin: the neighbour at last, all others in turn before it.
    fn signer(&self, route: u32, hop: usize, hops: usize) -> &P256Signer {
        let marked = self.marked.iter().find(|(end, _)| route < *end).filter(|_| hop == 0);
        match (hop + 1 == hops, marked) {
            (true, _) => &self.neighbor,
            (false, Some((_, signer))) => signer,
            // Apart from each other, as the routes of a table are; hops of one path differ.
            (false, None) => &self.older[((route as usize).wrapping_mul(7919) + hop) % self.older.len()],
        }
    }

    /// BGPsec_PATH of a route.
    pub(super) fn path(&self, route: u32, hops: usize, target: Asn) -> Result<Vec<u8>> {
        self.continued(None, (route, 0, hops), target)
    }

    /// The same with a signature of the origin that is bad, which all later ones cover; `salt` tells one from another.
    pub(super) fn path_with_bad_origin(
        &self,
        route: u32,
        salt: u8,
        hops: usize,
        target: Asn,
    ) -> Result<Vec<u8>> {
        let (signer, segment, next, nlri) = self.hop(route, 0, hops, target);
        let octets = octets_to_sign(None, SUITE_P256, segment, next, &nlri);
        let mut signature = signer.sign(&octets)?;
        // In the same form: the last octet of *s* is another.
        if let Some(last) = signature.last_mut() {
            *last ^= salt;
        }
        let path = extend(
            None,
            segment,
            &[SignatureBlock { suite: SUITE_P256, ski: signer.ski(), signature: &signature }],
        )?;
        if hops == 1 { Ok(path) } else { self.continued(Some(path), (route, 1, hops), target) }
    }

    fn hop(&self, route: u32, hop: usize, hops: usize, target: Asn) -> (&P256Signer, Segment, Asn, Nlri) {
        let signer = self.signer(route, hop, hops);
        let next = if hop + 1 == hops { target } else { self.signer(route, hop + 1, hops).asn() };
        let segment = Segment { pcount: 1, flags: 0, asn: signer.asn() };
        (signer, segment, next, Nlri::unicast(prefix(route).into()))
    }

    fn continued(
        &self,
        mut path: Option<Vec<u8>>,
        (route, from, hops): (u32, usize, usize),
        target: Asn,
    ) -> Result<Vec<u8>> {
        for hop in from..hops {
            let (signer, segment, next, nlri) = self.hop(route, hop, hops, target);
            let before = path.as_deref().map(Path::parse).transpose()?;
            path = Some(sign(before.as_ref(), segment, next, &nlri, &[signer])?);
        }
        path.context("a path has a hop")
    }

    /// A path of one hop that names a key that nobody has.
    pub(super) fn unknown(&self, route: u32, salt: u8) -> Result<Vec<u8>> {
        let segment = Segment { pcount: 1, flags: 0, asn: self.neighbor.asn() };
        let mut ski = Ski([salt; 20]);
        ski.0[..4].copy_from_slice(&route.to_be_bytes());
        // The smallest that is DER: nobody gets as far as that.
        let signature = [0x30, 6, 2, 1, 1, 2, 1, 1];
        Ok(extend(None, segment, &[SignatureBlock { suite: SUITE_P256, ski, signature: &signature }])?)
    }

    /// The UPDATEs of these routes, made by as many threads as there are processors.
    pub(super) fn feed(
        &self,
        routes: std::ops::Range<u32>,
        next_hop: IpAddr,
        path: impl Fn(&Self, u32) -> Result<Vec<u8>> + Sync,
    ) -> Result<Vec<u8>> {
        let threads = thread::available_parallelism().map_or(1, NonZero::get) as u32;
        let share = (routes.end - routes.start).div_ceil(threads).max(1);
        let part = |thread: u32| -> Result<Vec<u8>> {
            let from = (routes.start + thread * share).min(routes.end);
            let mut octets = Vec::new();
            for route in from..(from + share).min(routes.end) {
                octets.extend(update(&path(self, route)?, next_hop, prefix(route).into())?);
            }
            Ok(octets)
        };
        let parts = thread::scope(|scope| {
            let part = &part;
            let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || part(thread))).collect();
            threads.into_iter().map(ScopedJoinHandle::join).collect::<Vec<_>>()
        });
        let mut octets = Vec::new();
        for part in parts {
            let Ok(part) = part else { bail!("a thread that signs has panicked") };
            octets.extend(part?);
        }
        Ok(octets)
    }

    /// The same routes as a plain neighbour has them, with the AS_PATH that such a path stands for, one UPDATE each.
    pub(super) fn plain(
        &self,
        routes: std::ops::Range<u32>,
        hops: usize,
        (next_hop, neighbor): (IpAddr, Asn),
    ) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        for route in routes {
            let older = (0..hops - 1).rev().map(|hop| self.signer(route, hop, hops).asn());
            let path: Vec<Asn> = [neighbor].into_iter().chain(older).collect();
            out.extend(plain(&path, next_hop, prefix(route))?);
        }
        Ok(out)
    }

    /// What the library alone has to do for some of these routes: verifications, one for each hop.
    pub(super) fn bare(&self, routes: impl Iterator<Item = u32>, hops: usize, target: Asn) -> Result<Bare> {
        let mut all = Vec::new();
        for route in routes {
            let octets = self.path(route, hops, target)?;
            let path = Path::parse(&octets)?;
            let block = path.blocks().next().context("a block")?;
            let signed = Signed::new(&path, block, target, &Nlri::unicast(prefix(route).into()));
            for (hop, signature) in block.signatures().enumerate() {
                let spki = self.signer(route, hops - 1 - hop, hops).router_key().spki;
                let point = spki.get(spki.len() - POINT..).context("a key of another form")?;
                all.push(crypto::Bare::new(point, signed.of(hop), signature.octets));
            }
        }
        Ok(Bare(all))
    }
}

/// Verifications by the library alone.
pub(super) struct Bare(Vec<crypto::Bare>);

impl Bare {
    /// Microseconds of processor time that one takes.
    pub(super) fn verify(&self) -> Result<f64> {
        let begin = thread_us();
        ensure!(self.0.iter().all(crypto::Bare::verify), "a signature of our own is bad");
        Ok((thread_us() - begin) / self.0.len() as f64)
    }
}

/// Signatures by the library alone: what a router signs that passes routes on.
pub(super) struct ToSign {
    signer: crypto::BareSigner,
    octets: Vec<Vec<u8>>,
}

impl ToSign {
    /// Of these routes, received with so many hops by `own`, who signs them for `target`.
    pub(super) fn new(
        signers: &Signers,
        routes: impl Iterator<Item = u32>,
        received: usize,
        own: Asn,
        target: Asn,
    ) -> Result<Self> {
        let segment = Segment { pcount: 1, flags: 0, asn: own };
        let octets = |route| -> Result<Vec<u8>> {
            let nlri = Nlri::unicast(prefix(route).into());
            if received == 0 {
                return Ok(octets_to_sign(None, SUITE_P256, segment, target, &nlri));
            }
            let octets = signers.path(route, received, own)?;
            let path = Path::parse(&octets)?;
            let block = path.blocks().next().context("a block")?;
            Ok(octets_to_sign(Some((&path, block)), SUITE_P256, segment, target, &nlri))
        };
        Ok(Self { signer: crypto::BareSigner::new()?, octets: routes.map(octets).collect::<Result<_>>()? })
    }

    /// Microseconds of processor time that one takes.
    pub(super) fn sign(&self) -> Result<f64> {
        let begin = thread_us();
        ensure!(self.octets.iter().all(|octets| self.signer.sign(octets)), "the library does not sign");
        Ok((thread_us() - begin) / self.octets.len() as f64)
    }
}

/// Microseconds of processor time that this thread has taken.
fn thread_us() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// An UPDATE with one signed route.
pub(super) fn update(path: &[u8], next_hop: IpAddr, prefix: Prefix) -> Result<Vec<u8>> {
    Ok(announce(path, Origin::Igp, hop_of(next_hop), prefix)?)
}

/// An UPDATE with one route as plain BGP has it, in MP_REACH_NLRI as signed ones are.
pub(super) fn plain(path: &[Asn], next_hop: IpAddr, prefix: Ipv4Prefix) -> Result<Vec<u8>> {
    let mut octets = vec![AS_SEQUENCE, u8::try_from(path.len())?];
    octets.extend(path.iter().flat_map(|asn| asn.0.to_be_bytes()));
    let (mut attributes, mut out) = (Vec::new(), Vec::new());
    push(&mut attributes, flag::TRANSITIVE, code::ORIGIN, &[Origin::Igp as u8]);
    push(&mut attributes, flag::TRANSITIVE, code::AS_PATH, &octets);
    UpdateEncoder::new(MAX_LEN).announce_mp(&attributes, hop_of(next_hop), [prefix], &mut out)?;
    Ok(out)
}

/// Messages in pieces of about so many octets, each of which ends with a message: KEEPALIVEs go out between them.
pub(super) fn pieces(octets: &[u8], about: usize) -> impl Iterator<Item = &[u8]> {
    let mut rest = octets;
    std::iter::from_fn(move || {
        let mut end = 0;
        while end < about
            && let Some(length) = rest.get(end + LENGTH_AT..).and_then(|octets| octets.first_chunk())
        {
            end += usize::from(u16::from_be_bytes(*length));
        }
        let (piece, behind) = rest.split_at_checked(end).filter(|_| end > 0)?;
        rest = behind;
        Some(piece)
    })
}

/// UPDATEs that withdraw these routes.
pub(super) fn withdraw(routes: std::ops::Range<u32>) -> Vec<u8> {
    let mut out = Vec::new();
    UpdateEncoder::new(MAX_LEN).withdraw_mp(routes.map(prefix), &mut out);
    out
}

fn hop_of(next_hop: IpAddr) -> NextHop {
    match next_hop {
        IpAddr::V4(address) => NextHop::V4(address),
        IpAddr::V6(global) => NextHop::V6 { global, link_local: None },
    }
}

#[cfg(test)]
mod tests {
    use holdfast_path_validation::{Change, KeyTable, Reason, Validator, Verdict};

    use super::*;

    const TARGET: Asn = Asn(65_000);

    /// What a router with all keys of the signers makes of a path.
    fn verdict(signers: &Signers, route: u32, path: &[u8]) -> Verdict {
        let table = KeyTable::new([1, 2]);
        table.apply(signers.keys().map(Change::Announce));
        let path = Path::parse(path).expect("a path");
        Validator::default().validate(&path, TARGET, &Nlri::unicast(prefix(route).into()), &table.keys())
    }

    #[test]
    fn paths_are_what_their_rows_say() -> Result<()> {
        let signers = Signers::new(Asn(64_512), 10)?;
        for (route, hops) in [(0, 1), (7, 2), (12_345, 5)] {
            assert_eq!(verdict(&signers, route, &signers.path(route, hops, TARGET)?), Verdict::Valid);
            for salt in [1, 2] {
                let bad = signers.path_with_bad_origin(route, salt, hops, TARGET)?;
                let Verdict::NotValid(failure) = verdict(&signers, route, &bad) else { panic!("it is bad") };
                assert_eq!((failure.hop, failure.reason), (hops - 1, Reason::BadSignature));
            }
        }
        let Verdict::NotValid(failure) = verdict(&signers, 3, &signers.unknown(3, 1)?) else {
            panic!("valid")
        };
        assert_eq!((failure.hop, failure.reason), (0, Reason::NoKey));
        assert_ne!(signers.unknown(3, 1)?, signers.unknown(3, 2)?);
        signers.bare(0..3, 3, TARGET)?.verify().map(drop)
    }

    #[test]
    fn a_marked_key_is_named_by_as_many_routes_as_were_to() -> Result<()> {
        let mut signers = Signers::new(Asn(64_512), 10)?;
        let keys = [signers.mark(1)?, signers.mark(3)?];
        let names = |route: u32, key: &RouterKey| -> Result<bool> {
            let octets = signers.path(route, 3, TARGET)?;
            let path = Path::parse(&octets)?;
            let block = path.blocks().next().context("a block")?;
            Ok(block.signatures().any(|signature| signature.ski == key.ski))
        };
        for (key, wanted) in keys.iter().zip([0..1, 1..4]) {
            for route in 0..8 {
                assert_eq!(names(route, key)?, wanted.contains(&route), "{route}");
            }
        }
        Ok(())
    }

    #[test]
    fn a_feed_has_each_route_once_and_in_order() -> Result<()> {
        let signers = Signers::new(Asn(64_512), 10)?;
        let from = [10, 0, 0, 2].into();
        let octets = signers.feed(5..12, from, |signers, route| signers.unknown(route, 1))?;
        let wanted: Vec<u8> = (5..12)
            .map(|route| update(&signers.unknown(route, 1)?, from, prefix(route).into()))
            .collect::<Result<Vec<_>>>()?
            .concat();
        assert_eq!(octets, wanted);
        for about in [1, 100, 200, 10_000] {
            let pieces: Vec<_> = pieces(&octets, about).collect();
            assert_eq!(pieces.concat(), octets);
            for piece in pieces {
                let messages = crate::load::updates(piece).map(|body| 19 + body.len()).sum::<usize>();
                assert_eq!(messages, piece.len(), "it ends with a message");
            }
        }
        Ok(())
    }
}
