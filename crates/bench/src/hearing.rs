//! What a session makes of the UPDATEs that it hears, while it hears them.
//!
//! A sink that keeps all octets costs memory, and time when they are read. A sum over all routes that came is as exact where
//! each is announced once: it depends on no order, and whoever does not know its key cannot make two tables with equal
//! sums. Where routes are replaced, each prefix has the hash of what it was announced with last.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hasher, RandomState},
    net::IpAddr,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use anyhow::{Context, Result};
use holdfast_bgp_wire::{
    as_path::AsPath,
    attribute::code,
    nlri::{PrefixIter, prefixes},
};
use holdfast_types::{Asn, HashKey, IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix};

use crate::load::{attributes_of, field};

/// What becomes of UPDATEs.
#[derive(Debug)]
pub(crate) enum Hearing {
    /// Nothing: their prefixes are counted, as everywhere.
    Count,
    /// A sum of all routes announced. It is right only where none is replaced or withdrawn.
    Sum(Sum),
    /// The hash of each prefix's attributes, as announced last.
    Last(HashMap<Prefix, u64, HashKey>),
    /// A sum of all routes announced with a signed path: the prefix, and all attributes but the next hop, to the octet. It is
    /// right only where none is replaced or withdrawn.
    Signed(Sum),
    /// When each prefix was announced first.
    When(HashMap<Prefix, Instant, HashKey>),
    /// All octets, so that a failure can say how the attributes differ.
    All(Vec<u8>),
}

/// Whether all octets are kept wherever something is listened to.
static EXPLAIN: AtomicBool = AtomicBool::new(false);

/// From now on a failure says how attributes differ; sessions keep all octets for that.
pub(crate) fn explain() {
    EXPLAIN.store(true, Ordering::Relaxed);
}

impl Hearing {
    /// Where each route is announced once.
    pub(crate) fn once() -> Self {
        if EXPLAIN.load(Ordering::Relaxed) { Self::All(Vec::new()) } else { Self::Sum(Sum::default()) }
    }

    /// Where routes are replaced and withdrawn.
    pub(crate) fn last() -> Self {
        if EXPLAIN.load(Ordering::Relaxed) {
            Self::All(Vec::new())
        } else {
            Self::Last(HashMap::with_hasher(key()))
        }
    }

    /// The same with nothing heard yet.
    pub(crate) fn anew(&self) -> Self {
        match self {
            Self::Count => Self::Count,
            Self::Sum(_) => Self::Sum(Sum::default()),
            Self::Signed(_) => Self::Signed(Sum::default()),
            Self::Last(_) => Self::Last(HashMap::with_hasher(key())),
            Self::When(_) => Self::When(HashMap::with_hasher(key())),
            Self::All(_) => Self::All(Vec::new()),
        }
    }

    /// Takes in an UPDATE: all of it, and what follows the header.
    pub(crate) fn take(&mut self, message: &[u8], body: &[u8], digest: &mut Digest) -> Result<()> {
        match self {
            Self::Count => {}
            Self::All(octets) => octets.extend_from_slice(message),
            Self::Sum(sum) => {
                let update = Update::read(body).context("a broken UPDATE")?;
                update.announced(digest, |prefix, set| sum.add(prefix, set))?;
            }
            Self::Signed(sum) => {
                signed(body)
                    .context("a broken UPDATE")?
                    .into_iter()
                    .for_each(|(prefix, set)| sum.add(prefix, set));
            }
            Self::When(routes) => {
                let (update, now) = (Update::read(body).context("a broken UPDATE")?, Instant::now());
                update.announced(digest, |prefix, _| {
                    routes.entry(prefix).or_insert(now);
                })?;
            }
            Self::Last(routes) => {
                let update = Update::read(body).context("a broken UPDATE")?;
                update.withdrawn(|prefix| {
                    routes.remove(&prefix);
                })?;
                update.announced(digest, |prefix, set| {
                    routes.insert(prefix, set);
                })?;
            }
        }
        Ok(())
    }
}

/// The route of an UPDATE that has BGPsec_PATH, and the hash of its attributes without the next hop.
fn signed(body: &[u8]) -> Option<Option<(Prefix, u64)>> {
    let (_, rest) = field(body)?;
    let (attributes, _) = field(rest)?;
    let (mut hasher, mut is_signed, mut prefix) = (key().build_hasher(), false, None);
    for (kind, value) in attributes_of(attributes) {
        let value = value?;
        if kind == code::MP_REACH_NLRI {
            // AFI, SAFI, length of the next hop, next hop, a reserved octet.
            let nlri = value.get(5 + usize::from(*value.get(3)?)..)?;
            prefix = match value.first_chunk()? {
                [0, 1] => prefixes::<Ipv4Prefix>(nlri).next()?.ok().map(Prefix::from),
                _ => prefixes::<Ipv6Prefix>(nlri).next()?.ok().map(Prefix::from),
            };
        } else {
            is_signed |= kind == code::BGPSEC_PATH;
            hasher.write_u8(kind);
            hasher.write(value);
        }
    }
    Some(prefix.filter(|_| is_signed).map(|prefix| (prefix, hasher.finish())))
}

/// Routes in no order.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sum {
    pub(crate) routes: u64,
    sum: u64,
}

impl Sum {
    /// Adds a route, whose attributes have this hash.
    pub(crate) fn add(&mut self, prefix: Prefix, set: u64) {
        let mut hasher = key().build_hasher();
        match prefix {
            // Address and length; the first bit says that it is IPv6.
            Prefix::V4(prefix) => hasher.write_u64((prefix.bits() >> 88) as u64 | u64::from(prefix.length())),
            Prefix::V6(prefix) => {
                hasher.write_u64(1 << 63 | u64::from(prefix.length()));
                hasher.write_u128(prefix.bits());
            }
        }
        hasher.write_u64(set);
        self.routes += 1;
        self.sum = self.sum.wrapping_add(hasher.finish());
    }

    /// Without those routes, which are among these.
    pub(crate) fn without(self, other: Self) -> Self {
        Self { routes: self.routes.wrapping_sub(other.routes), sum: self.sum.wrapping_sub(other.sum) }
    }
}

/// The key of this process.
pub(crate) fn key() -> HashKey {
    static KEY: OnceLock<HashKey> = OnceLock::new();
    // The maps of std get theirs from the kernel.
    *KEY.get_or_init(|| HashKey::new([0, 1].map(|n: u64| RandomState::new().hash_one(n))))
}

/// Hashes the attributes that every router passes on, in room that is used again.
#[derive(Debug, Default)]
pub(crate) struct Digest {
    octets: Vec<u8>,
    communities: Vec<u32>,
    large: Vec<(u32, u32, u32)>,
}

impl Digest {
    /// Of a set of attributes. Communities are sets: neither their order nor one that comes twice makes a difference.
    pub(crate) fn of(
        &mut self,
        origin: Option<u8>,
        path: impl Iterator<Item = Asn>,
        communities: impl Iterator<Item = u32>,
        large_communities: impl Iterator<Item = (u32, u32, u32)>,
        next_hop: Option<IpAddr>,
    ) -> u64 {
        let Self { octets, communities: small, large } = self;
        octets.clear();
        octets.push(origin.unwrap_or(u8::MAX));
        match next_hop {
            None => octets.push(0),
            Some(IpAddr::V4(address)) => octets.extend([&[4][..], &address.octets()].concat()),
            Some(IpAddr::V6(address)) => octets.extend([&[6][..], &address.octets()].concat()),
        }
        path.for_each(|asn| octets.extend(asn.0.to_be_bytes()));
        // Each list ends with its length, so that no other lists have the same octets.
        octets.extend((octets.len() as u32).to_be_bytes());
        sorted(small, communities);
        small.iter().for_each(|community| octets.extend(community.to_be_bytes()));
        octets.extend((small.len() as u32).to_be_bytes());
        sorted(large, large_communities);
        large.iter().for_each(|&(a, b, c)| [a, b, c].iter().for_each(|n| octets.extend(n.to_be_bytes())));
        octets.extend((large.len() as u32).to_be_bytes());
        let mut hasher = key().build_hasher();
        hasher.write(octets);
        hasher.finish()
    }
}

fn sorted<T: Ord>(room: &mut Vec<T>, values: impl Iterator<Item = T>) {
    room.clear();
    room.extend(values);
    room.sort_unstable();
    room.dedup();
}

/// The parts of an UPDATE that count, found in one pass.
#[derive(Default)]
struct Update<'a> {
    withdrawn: [&'a [u8]; 2],
    /// IPv4 in its own field, IPv6 in MP_REACH_NLRI.
    announced: [&'a [u8]; 2],
    origin: Option<u8>,
    path: &'a [u8],
    next_hops: [Option<IpAddr>; 2],
    communities: &'a [u8],
    large_communities: &'a [u8],
}

impl<'a> Update<'a> {
    fn read(body: &'a [u8]) -> Option<Self> {
        let mut update = Self::default();
        let (withdrawn, rest) = field(body)?;
        let (attributes, nlri) = field(rest)?;
        (update.withdrawn[0], update.announced[0]) = (withdrawn, nlri);
        for (code, value) in attributes_of(attributes) {
            let value = value?;
            match code {
                1 => update.origin = value.first().copied(),
                2 => update.path = value,
                3 => update.next_hops[0] = Some(IpAddr::from(<[u8; 4]>::try_from(value).ok()?)),
                8 => update.communities = value,
                // AFI, SAFI, length of the next hop, next hop, a reserved octet.
                14 => {
                    let (hop, nlri) = value.get(4..)?.split_at_checked(usize::from(*value.get(3)?))?;
                    update.announced[1] = nlri.get(1..)?;
                    // The global address, which a link-local one may follow.
                    update.next_hops[1] = Some(IpAddr::from(*hop.first_chunk::<16>()?));
                }
                15 => update.withdrawn[1] = value.get(3..)?,
                32 => update.large_communities = value,
                _ => {}
            }
        }
        Some(update)
    }

    fn withdrawn(&self, mut each: impl FnMut(Prefix)) -> Result<()> {
        let [four, six] = self.withdrawn;
        every(prefixes::<Ipv4Prefix>(four), &mut each)?;
        every(prefixes::<Ipv6Prefix>(six), &mut each)
    }

    /// Every prefix with the hash of its attributes.
    fn announced(&self, digest: &mut Digest, mut each: impl FnMut(Prefix, u64)) -> Result<()> {
        let [four, six] = self.announced;
        if !four.is_empty() {
            let set = self.hash(digest, self.next_hops[0]);
            every(prefixes::<Ipv4Prefix>(four), |prefix| each(prefix, set))?;
        }
        if !six.is_empty() {
            let set = self.hash(digest, self.next_hops[1]);
            every(prefixes::<Ipv6Prefix>(six), |prefix| each(prefix, set))?;
        }
        Ok(())
    }

    fn hash(&self, digest: &mut Digest, next_hop: Option<IpAddr>) -> u64 {
        let number = |octets: &[u8; 4]| u32::from_be_bytes(*octets);
        let communities = self.communities.as_chunks().0.iter().map(number);
        let large = self.large_communities.as_chunks::<12>().0.iter().map(|octets| {
            let parts = octets.as_chunks().0;
            (number(&parts[0]), number(&parts[1]), number(&parts[2]))
        });
        digest.of(self.origin, AsPath::new(self.path).asns(), communities, large, next_hop)
    }
}

fn every<P: IpPrefix>(list: PrefixIter<'_, P>, mut each: impl FnMut(Prefix)) -> Result<()> {
    for prefix in list {
        each(prefix?.into());
    }
    Ok(())
}
