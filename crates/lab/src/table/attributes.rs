//! Attributes of made-up routes and their bytes.

use super::random::Random;

/// Attribute type codes and flags, as on the wire.
const WELL_KNOWN: u8 = 0x40;
const OPTIONAL: u8 = 0x80;
const OPTIONAL_TRANSITIVE: u8 = 0xc0;
const EXTENDED_LENGTH: u8 = 0x10;

/// Hops after the speaker's own AS: with it, and with prepending, 4.1 on average.
const HOPS: [(u32, usize); 6] = [(40, 1), (300, 2), (410, 3), (180, 4), (50, 5), (20, 6)];
/// How often the origin is repeated where it is.
const PREPENDS: [(u32, usize); 6] = [(40, 1), (26, 2), (15, 3), (6, 4), (8, 5), (2, 10)];
/// Numbers of communities where there are any: 3.7 on average.
const COMMUNITIES: [(u32, u32); 12] = [
    (232, 1),
    (154, 2),
    (70, 3),
    (91, 4),
    (205, 5),
    (85, 6),
    (51, 7),
    (21, 8),
    (22, 9),
    (30, 10),
    (12, 12),
    (6, 16),
];

/// The attributes of a route, readable.
#[derive(Clone, Debug, Default)]
pub(crate) struct Route {
    /// 0 IGP, 1 EGP, 2 INCOMPLETE.
    pub(crate) origin: u8,
    pub(crate) path: Vec<u32>,
    pub(crate) as_set: Vec<u32>,
    pub(crate) med: Option<u32>,
    pub(crate) atomic_aggregate: bool,
    pub(crate) aggregator: Option<(u32, u32)>,
    pub(crate) communities: Vec<u32>,
    pub(crate) ext_community: Option<[u8; 8]>,
    pub(crate) large_communities: Vec<[u32; 3]>,
}

impl Route {
    /// Attributes for a prefix of `origin`, reached over a few of the ASes that carry most of the traffic.
    pub(crate) fn draw(random: &mut Random, origin: u32) -> Self {
        let mut route = Self { path: path(random, origin), ..Self::default() };
        route.vary(random);
        route
    }

    /// Draws all but the path again.
    pub(crate) fn vary(&mut self, random: &mut Random) {
        let (nearest, origin) = (self.path[0], self.path[self.path.len() - 1]);
        self.origin = random.weighted(&[(9586, 0), (404, 2), (10, 1)]);
        self.med =
            random.chance(4_500).then(|| random.weighted(&[(1, 0), (2, 5 * random_below(nearest, 40))]));
        self.atomic_aggregate = random.chance(640);
        self.aggregator = random.chance(890).then(|| (origin, 0xc000_0000 | random.below(0x1000_0000)));
        let count = if random.chance(6_200) { random.weighted(&COMMUNITIES) } else { 0 };
        self.communities = distinct(count, || (nearest & 0xffff) << 16 | (100 + random.below(4000)));
        self.ext_community = random.chance(120).then(|| {
            let mut octets = [0, 2, 0, 0, 0, 0, 0, 0];
            octets[2..4].copy_from_slice(&(origin as u16).to_be_bytes());
            octets[4..].copy_from_slice(&(1 + random.below(1000)).to_be_bytes());
            octets
        });
        let count = if random.chance(600) { 1 + random.below(3) } else { 0 };
        self.large_communities = distinct(count, || [nearest, 1 + random.below(9), 1 + random.below(500)]);
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        push(&mut out, WELL_KNOWN, 1, &[self.origin]);
        push(&mut out, WELL_KNOWN, 2, &self.path_bytes());
        if let Some(med) = self.med {
            push(&mut out, OPTIONAL, 4, &med.to_be_bytes());
        }
        if self.atomic_aggregate {
            push(&mut out, WELL_KNOWN, 6, &[]);
        }
        if let Some((asn, address)) = self.aggregator {
            push(&mut out, OPTIONAL_TRANSITIVE, 7, &words(&[asn, address]));
        }
        if !self.communities.is_empty() {
            push(&mut out, OPTIONAL_TRANSITIVE, 8, &words(&self.communities));
        }
        if let Some(community) = self.ext_community {
            push(&mut out, OPTIONAL_TRANSITIVE, 16, &community);
        }
        if !self.large_communities.is_empty() {
            push(&mut out, OPTIONAL_TRANSITIVE, 32, &words(self.large_communities.as_flattened()));
        }
        out
    }

    fn path_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (kind, numbers) in [(2, &self.path), (1, &self.as_set)] {
            for segment in numbers.chunks(255) {
                out.extend_from_slice(&[kind, segment.len() as u8]);
                out.extend_from_slice(&words(segment));
            }
        }
        out
    }
}

/// An AS path: large networks first, smaller ones towards the origin.
fn path(random: &mut Random, origin: u32) -> Vec<u32> {
    let hops = random.weighted(&HOPS);
    let mut path: Vec<u32> = (1..hops).map(|hop| transit(random, if hop == 1 { 40 } else { 6000 })).collect();
    path.retain(|asn| *asn != origin);
    path.dedup();
    let prepends = if random.chance(900) { random.weighted(&PREPENDS) } else { 0 };
    path.extend(std::iter::repeat_n(origin, 1 + prepends));
    path
}

/// One of the `count` networks that sell transit, small numbers more often.
fn transit(random: &mut Random, count: u32) -> u32 {
    let bound = 1 + random.below(count);
    1_001 + 7 * random.below(bound)
}

/// A fixed choice for each network.
fn random_below(asn: u32, bound: u32) -> u32 {
    Random::new(asn.into()).below(bound)
}

/// At most `count` values, sorted.
fn distinct<T: Ord>(count: u32, mut draw: impl FnMut() -> T) -> Vec<T> {
    let mut values: Vec<T> = (0..count).map(|_| draw()).collect();
    values.sort_unstable();
    values.dedup();
    values
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Appends an attribute; its value is below 64 KiB.
pub(crate) fn push(out: &mut Vec<u8>, flags: u8, code: u8, value: &[u8]) {
    match u8::try_from(value.len()) {
        Ok(length) => out.extend_from_slice(&[flags & !EXTENDED_LENGTH, code, length]),
        Err(_) => {
            out.extend_from_slice(&[flags | EXTENDED_LENGTH, code]);
            out.extend_from_slice(&(value.len() as u16).to_be_bytes());
        }
    }
    out.extend_from_slice(value);
}
