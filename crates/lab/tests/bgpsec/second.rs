//! A second verifier, which shares no code with the router, reads the same octets and finds the same.

use std::{fmt::Write as _, fs, path::Path, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use holdfast_bgp_wire::NextHop;
use holdfast_bgpsec_wire::{CONFED_SEGMENT, Segment};
use holdfast_lab::{
    router::Router,
    signed::{Hop, SpkiCache, path, path_of, segment, signer, update},
    speaker::{Speaker, SpeakerConfig},
    table::random::Random,
    topology::{ROUTER, Side, Star, v4, v6},
    wait,
};
use holdfast_path_validation::{P256Signer, Signer, has_own_name};
use holdfast_types::{Asn, Family, Prefix, RouterKey};

use super::Directory;

const OWN: Asn = Asn(65_000);
const PEER: u32 = 64_511;
/// Algorithm suites: that of RFC 8608, and one for experiments that nobody knows.
const SUITE: u8 = 1;
const UNKNOWN: u8 = 0xf7;
/// Paths of each kind.
const OF_EACH: u32 = 12;
const VERIFIER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bgpsec/verifier.py");
const LIMIT: Duration = Duration::from_secs(60);
/// The order of P-256.
const ORDER: [u8; 32] = [
    0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc, 0xe6, 0xfa,
    0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
];

/// What is wrong with a path.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Kind {
    Sound,
    PcountZeroInside,
    PcountZeroOfPeer,
    Flags,
    Confederation,
    UnknownFirst,
    UnknownSecond,
    OnlyUnknown,
    ReservedSuite,
    OtherTarget,
    KeyOfAnotherAs,
    NamesAnother,
    NoKey,
    SecondOfAName,
    Repeated,
    HighS,
    PaddedDer,
    LongDer,
    TrailingDer,
    Truncated,
    NotThePeer,
    Loop,
    OursUncounted,
    AsZero,
    HostBits,
    AsPathBeside,
    Flipped,
}

/// Each kind, and what a receiver makes of it, where that does not depend on chance.
const KINDS: [(Kind, Option<&str>); 27] = [
    (Kind::Sound, Some("valid")),
    (Kind::PcountZeroInside, Some("valid")),
    (Kind::PcountZeroOfPeer, Some("refused")),
    (Kind::Flags, Some("valid")),
    (Kind::Confederation, Some("refused")),
    (Kind::UnknownFirst, Some("valid")),
    (Kind::UnknownSecond, Some("valid")),
    (Kind::OnlyUnknown, Some("unsigned")),
    (Kind::ReservedSuite, Some("refused")),
    (Kind::OtherTarget, Some("not-valid")),
    (Kind::KeyOfAnotherAs, Some("not-valid")),
    (Kind::NamesAnother, Some("not-valid")),
    (Kind::NoKey, Some("not-valid")),
    (Kind::SecondOfAName, Some("not-valid")),
    (Kind::Repeated, Some("not-valid")),
    (Kind::HighS, Some("valid")),
    (Kind::PaddedDer, Some("not-valid")),
    (Kind::LongDer, Some("not-valid")),
    (Kind::TrailingDer, Some("not-valid")),
    (Kind::Truncated, Some("refused")),
    (Kind::NotThePeer, Some("refused")),
    (Kind::Loop, Some("refused")),
    (Kind::OursUncounted, Some("valid")),
    (Kind::AsZero, Some("refused")),
    (Kind::HostBits, Some("valid")),
    (Kind::AsPathBeside, Some("refused")),
    (Kind::Flipped, None),
];

/// Routers that sign.
struct Routers {
    peer: P256Signer,
    /// Transit ASs.
    others: Vec<P256Signer>,
    /// Has no key in the cache.
    unknown: P256Signer,
    ours: P256Signer,
    zero: P256Signer,
    /// Its key goes by the name of that of the first of `others`, and is not taken for that.
    doubled: P256Signer,
}

impl Routers {
    fn new() -> Result<Self> {
        let others = (64_496..64_502).map(signer).collect::<Result<Vec<_>>>()?;
        let doubled = signer(others[0].asn().0)?;
        Ok(Self {
            peer: signer(PEER)?,
            others,
            unknown: signer(64_509)?,
            ours: signer(OWN.0)?,
            zero: signer(0)?,
            doubled,
        })
    }

    fn keys(&self) -> Vec<RouterKey> {
        let mut keys: Vec<_> = self.others.iter().map(P256Signer::router_key).collect();
        let name = self.others[0].ski();
        keys.push(RouterKey { ski: name, ..self.doubled.router_key() });
        keys.extend([&self.peer, &self.ours].map(P256Signer::router_key));
        keys
    }
}

/// A route, how it is announced, and what is expected of it.
struct Case {
    kind: Kind,
    prefix: Prefix,
    update: Vec<u8>,
    expected: Option<&'static str>,
}

fn prefix(number: u32) -> Result<Prefix> {
    let text = match number % 3 {
        0 => format!("2001:db8:{number:x}::/48"),
        // The octets that there are differ, and the last one has host bits of its own.
        1 => format!("20.{}.{}.0/23", number / 64, number % 64 * 4),
        _ => format!("21.{}.{}.64/27", number / 256, number % 256),
    };
    text.parse().ok().context(text)
}

fn next_hop(prefix: Prefix) -> NextHop {
    match prefix {
        Prefix::V4(_) => NextHop::V4(v4(1, Side::Second)),
        Prefix::V6(_) => NextHop::V6 { global: v6(1, Side::Second), link_local: None },
    }
}

/// The other *s* that is as good.
fn high_s(signature: Vec<u8>) -> Vec<u8> {
    let (r, s) = split(&signature);
    let mut other = [0; 32];
    let mut borrow = 0;
    for at in (0..32).rev() {
        let of_s = s.len().checked_sub(32 - at).map_or(0, |place| s[place]);
        let difference = i16::from(ORDER[at]) - i16::from(of_s) - borrow;
        borrow = i16::from(difference < 0);
        other[at] = difference.rem_euclid(256) as u8;
    }
    let first = other.iter().position(|octet| *octet != 0).unwrap_or(31);
    let mut other = other[first..].to_vec();
    if other[0] & 0x80 != 0 {
        other.insert(0, 0);
    }
    join(r, &other)
}

/// The octets of both numbers of a signature in DER.
fn split(signature: &[u8]) -> (&[u8], &[u8]) {
    let length = usize::from(signature[3]);
    (&signature[4..4 + length], &signature[6 + length..])
}

fn join(r: &[u8], s: &[u8]) -> Vec<u8> {
    let length = (4 + r.len() + s.len()) as u8;
    [&[0x30, length, 2, r.len() as u8], r, &[2, s.len() as u8], s].concat()
}

/// Routes of a kind.
fn case(
    kind: Kind,
    expected: Option<&'static str>,
    number: u32,
    routers: &Routers,
    random: &mut Random,
) -> Result<Case> {
    let prefix = match kind {
        Kind::HostBits => {
            format!("22.{}.{}.0/23", number / 64, number % 64 * 4).parse().ok().context("a prefix")?
        }
        _ => prefix(number)?,
    };
    let count = 1 + number as usize % 5;
    let transit = |random: &mut Random| &routers.others[random.below(routers.others.len() as u32) as usize];
    // The origin first, the peer last.
    let mut hops: Vec<_> = (1..count).map(|_| Hop::of(transit(random))).collect();
    let peer = Hop::of(&routers.peer);
    hops.push(peer);
    let any = random.below(count as u32) as usize;
    // For what is wrong with a transit AS.
    let inside = random.below(count.max(2) as u32 - 1) as usize;
    if count == 1 && needs_transit(kind) {
        hops.insert(0, Hop::of(transit(random)));
    }
    let (mut target, mut suites) = (OWN, vec![SUITE]);
    let mut change: Box<dyn Fn(usize, Vec<u8>) -> Vec<u8>> = Box::new(|_, signature| signature);
    let only = move |at: usize, of: fn(Vec<u8>) -> Vec<u8>| -> Box<dyn Fn(usize, Vec<u8>) -> Vec<u8>> {
        Box::new(move |hop, signature| if hop == at { of(signature) } else { signature })
    };
    let newest = hops.len() - 1;
    match kind {
        Kind::Sound
        | Kind::Repeated
        | Kind::Truncated
        | Kind::HostBits
        | Kind::AsPathBeside
        | Kind::Flipped => {
            for hop in &mut hops {
                hop.segment.pcount = 1 + random.below(3) as u8;
            }
            if kind == Kind::Flipped && random.chance(3000) {
                suites = if random.chance(5000) { vec![UNKNOWN, SUITE] } else { vec![SUITE, UNKNOWN] };
            }
        }
        Kind::PcountZeroInside => hops[inside].segment.pcount = 0,
        Kind::PcountZeroOfPeer => hops[newest].segment.pcount = 0,
        Kind::Flags => hops[any].segment.flags = 1 + random.below(127) as u8,
        Kind::Confederation => hops[any].segment.flags = CONFED_SEGMENT,
        Kind::UnknownFirst => suites = vec![UNKNOWN, SUITE],
        Kind::UnknownSecond => suites = vec![SUITE, UNKNOWN],
        Kind::OnlyUnknown => suites = vec![UNKNOWN],
        Kind::ReservedSuite => {}
        Kind::OtherTarget => target = Asn(OWN.0 + 1 + random.below(3)),
        Kind::KeyOfAnotherAs => {
            // Signed well, by a key that this AS does not have.
            let other = if hops[any].segment.asn == routers.others[1].asn() { 2 } else { 1 };
            hops[any] = Hop { segment: hops[any].segment, ..Hop::of(&routers.others[other]) };
        }
        Kind::NamesAnother => {
            let other = if hops[any].segment.asn == routers.others[1].asn() { 2 } else { 1 };
            hops[any].signer = &routers.others[other];
        }
        Kind::NoKey => hops[inside] = Hop::of(&routers.unknown),
        Kind::SecondOfAName => {
            hops[inside] = Hop { signer: &routers.doubled, ..Hop::of(&routers.others[0]) };
        }
        Kind::HighS => change = only(any, high_s),
        Kind::PaddedDer => {
            change = only(any, |signature| {
                let (r, s) = split(&signature);
                join(&[&[0], r].concat(), s)
            });
        }
        Kind::LongDer => change = only(any, |s| [&[0x30, 0x81, s[1]], &s[2..]].concat()),
        Kind::TrailingDer => change = only(any, |s| [&s[..], &[0]].concat()),
        Kind::NotThePeer => hops[newest] = Hop::of(&routers.others[0]),
        Kind::Loop => hops[inside] = Hop::of(&routers.ours),
        Kind::OursUncounted => {
            hops[inside] = Hop { segment: Segment { pcount: 0, ..segment(OWN) }, ..Hop::of(&routers.ours) };
        }
        Kind::AsZero => hops[inside] = Hop::of(&routers.zero),
    }
    let signed_for = if kind == Kind::Repeated { self::prefix(number + 3000)? } else { prefix };
    let mut value = path_of(&hops, &suites, target, signed_for, &*change)?;
    match kind {
        Kind::Flipped => {
            let bit = random.below(8 * value.len() as u32);
            value[bit as usize / 8] ^= 1 << (bit % 8);
        }
        Kind::Truncated => {
            let most = value.len() as u32 - 1;
            value.truncate(1 + random.below(most) as usize);
        }
        // Behind Secure_Path and the length of the block.
        Kind::ReservedSuite => value[2 + 6 * hops.len() + 2] = if random.chance(5000) { 0 } else { 255 },
        _ => {}
    }
    let mut update = update(&value, next_hop(prefix), prefix)?;
    match kind {
        Kind::HostBits => {
            // Behind the next hop and an octet that is reserved (RFC 4760 section 3): the length, and three octets.
            let next_hop = v4(1, Side::Second).octets();
            let begin = update.windows(4).position(|window| window == next_hop).context("a next hop")?;
            update[begin + 8] |= 1;
        }
        Kind::AsPathBeside => update = with_as_path(&update),
        _ => {}
    }
    Ok(Case { kind, prefix, update, expected })
}

/// Whether what is wrong is in a segment that is not the peer's.
fn needs_transit(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::PcountZeroInside
            | Kind::NoKey
            | Kind::SecondOfAName
            | Kind::Loop
            | Kind::OursUncounted
            | Kind::AsZero
    )
}

/// The same UPDATE with an AS_PATH behind all other attributes.
fn with_as_path(update: &[u8]) -> Vec<u8> {
    let added = [&[0x40, 2, 6, 2, 1][..], &PEER.to_be_bytes()].concat();
    let mut longer = [update, &added].concat();
    for at in [16, 21] {
        let length = u16::from_be_bytes([update[at], update[at + 1]]) + added.len() as u16;
        longer[at..at + 2].copy_from_slice(&length.to_be_bytes());
    }
    longer
}

/// What the second verifier makes of UPDATEs between these ASs, the receiver's first: each route, and its state.
pub(super) fn second<'a>(
    directory: &Path,
    asns: [u32; 2],
    keys: &[RouterKey],
    received: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<(String, String)>> {
    let (mut names, mut updates) = (String::new(), String::new());
    // The second verifier takes what it is given.
    for RouterKey { asn, ski, spki } in keys.iter().filter(|key| has_own_name(key)) {
        writeln!(names, "{} {ski} {}", asn.0, hex(spki))?;
    }
    for update in received {
        writeln!(updates, "{}", hex(update))?;
    }
    let files = ["keys.txt", "updates.txt"].map(|name| directory.join(name));
    fs::write(&files[0], names)?;
    fs::write(&files[1], updates)?;
    let output =
        Command::new("python3").arg(VERIFIER).args(asns.map(|asn| asn.to_string())).args(files).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout)?;
    let line = |line: &str| {
        let (route, state) = line.rsplit_once(' ').context("two words")?;
        Ok((route.to_owned(), state.to_owned()))
    };
    said.lines().map(line).collect()
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// A prefix as the second verifier writes it.
fn written(prefix: Prefix) -> String {
    let (afi, bits) = match prefix {
        Prefix::V4(prefix) => (1, prefix.address().octets().to_vec()),
        Prefix::V6(prefix) => (2, prefix.address().octets().to_vec()),
    };
    let octets = usize::from(prefix.length().div_ceil(8));
    format!("{afi} {:02x}{}", prefix.length(), hex(&bits[..octets]))
}

fn configuration() -> String {
    let peer = v4(1, Side::Second);
    format!(
        "{ROUTER}[[bgp.peer]]\nname = \"signer\"\naddress = \"{peer}\"\nasn = {PEER}\npassive = true\n\
         families = [\"ipv4-unicast\", \"ipv6-unicast\"]\nimport = \"accept-all\"\nexport = \"reject-all\"\n\
         bgpsec = {{ receive = true, require-session = true }}\nbgpsec-validation = \"log\"\n\
         [[rpki.cache]]\nname = \"keys\"\naddress = \"{peer}\"\nport = 8282\npreference = 10\n"
    )
}

#[test]
fn a_second_verifier_finds_the_same() -> Result<()> {
    let seed = std::env::var("HOLDFAST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let (routers, mut random) = (Routers::new()?, Random::new(seed));
    let (mut cases, mut number) = (Vec::new(), 0);
    for _ in 0..OF_EACH {
        for (kind, expected) in KINDS {
            cases.push(case(kind, expected, number, &routers, &mut random)?);
            number += 1;
        }
    }
    let (star, directory) = (Star::new(1)?, Directory::new("second")?);
    let host = star.neighbor(1);
    let _cache = SpkiCache::start(host, (v4(1, Side::Second), 8282).into(), &routers.keys())?;
    let router = Router::start(&star.router, &configuration())?;
    let (local, remote) = (v4(1, Side::Second).into(), v4(1, Side::First).into());
    let config = SpeakerConfig {
        families: Family::ALL.to_vec(),
        signs: true,
        ..SpeakerConfig::connect(local, remote, PEER)
    };
    let speaker = host.run(|| Speaker::spawn(config))??;
    router.until_established("signer", LIMIT)?;
    for case in &cases {
        speaker.send_raw(case.update.clone());
    }
    let last: Prefix = "203.0.113.0/24".parse().ok().context("a prefix")?;
    speaker.send_raw(update(&path(&[&routers.peer], OWN, last)?, next_hop(last), last)?);

    let found =
        second(&directory.0, [OWN.0, PEER], &routers.keys(), cases.iter().map(|case| &case.update[..]))?;
    wait::until("all verdicts", LIMIT, || {
        let shown = router.show(&["bgpsec"]).map_err(|error| format!("{error:#}"))?;
        let route = router.show(&["bgp", "route", "203.0.113.0/24"]).map_err(|error| format!("{error:#}"))?;
        let is_done = route["paths"][0]["bgpsec"]["state"] == "valid" && shown["queued_hops"] == 0;
        if is_done { Ok(()) } else { Err(format!("{shown} {route}")) }
    })
    .with_context(|| router.log_tail())?;
    let shown = router.show(&["bgp", "routes"])?;
    ensure!(found.len() == cases.len(), "{} of {}", found.len(), cases.len());
    let mut wrong = Vec::new();
    let mut counts = std::collections::BTreeMap::<&str, u32>::new();
    for (case, (route, second)) in cases.iter().zip(&found) {
        ensure!(*route == written(case.prefix), "{route} is not {}", case.prefix);
        let path = &shown["routes"][case.prefix.to_string()][0];
        let first = if path.is_null() { "refused" } else { path["bgpsec"]["state"].as_str().unwrap_or("?") };
        *counts.entry(second.as_str()).or_default() += 1;
        if first != second || case.expected.is_some_and(|expected| expected != first) {
            wrong.push(format!(
                "{:?}: {} is {first}, the second verifier says {second}, expected {:?}: {}",
                case.kind,
                case.prefix,
                case.expected,
                hex(&case.update)
            ));
        }
    }
    ensure!(wrong.is_empty(), "seed {seed}: {}\nkeys: {:?}", wrong.join("\n"), routers.keys());
    ensure!(counts.len() == 4 && counts.values().all(|count| *count >= OF_EACH), "{counts:?}");
    Ok(())
}
