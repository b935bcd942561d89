//! Who knows nothing of BGPsec is told an AS_PATH as if nobody did.
//!
//! ```text
//!  65001 ── 65002 ── 65003 ──11── BIRD, 65011
//!                          ──12── FRR, 65012
//!                          ──13── a speaker, 65013
//! ```

use std::{fs, net::IpAddr, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    netns::Namespace,
    peers::{Bird, Frr},
    row::{BGPSEC, Place, Row, SigningKey, cache, head, network, peer},
    speaker::{Speaker, SpeakerConfig},
    topology::{self, Side, v4},
    wait,
};
use holdfast_mrt::{Body, records};
use holdfast_types::RouterKey;

use super::{Directory, until_path};

const LIMIT: Duration = Duration::from_secs(60);
/// What the first router has, and its path at the last one.
const ROUTES: [(&str, &str); 3] = [
    ("203.0.113.0/24", "65002 65002 65001"),
    ("198.51.100.0/24", "65002 65002 65001 65001 65001"),
    ("192.0.2.0/25", "65002 65002 65001"),
];
/// Networks of the last router with those who know nothing of BGPsec.
const BIRD: u8 = 11;
const FRR: u8 = 12;
const SPEAKER: u8 = 13;
/// Octets of a header of BGP and of an End-of-RIB for IPv4 (RFC 4724 section 2), and where the type stands.
const END_OF_RIB: usize = 23;
const TYPE: usize = 18;
const UPDATE: u8 = 2;

/// Each route has a community of its own, so that each has an UPDATE; of one the AS counts three times.
const TAGGED: &str = r#"
[[policy]]
name = "tagged"
last = "accept"
[[policy.term]]
name = "first"
from = { prefix = "203.0.113.0/24" }
then = { add-communities = ["65001:1"], med = 7 }
[[policy.term]]
name = "second"
from = { prefix = "198.51.100.0/24" }
then = { add-communities = ["65001:2"], prepend = 2 }
[[policy.term]]
name = "third"
from = { prefix = "192.0.2.0/25" }
then = { add-communities = ["65001:3", "65001:4"], origin = "incomplete" }
"#;
const LONGER: &str = r#"
[[policy]]
name = "longer"
last = "accept"
[[policy.term]]
name = "all"
then = { prepend = 1 }
"#;

fn asn(number: u8) -> u32 {
    65_000 + u32::from(number)
}

/// The routers' configurations; their sessions with each other have these lines.
fn configuration(number: u8, key: &SigningKey, lines: &str) -> String {
    let text = head(number, asn(number), &[key]);
    let behind = |policy: &str| {
        peer("behind", number, Side::Second, asn(number + 1), lines)
            .replace("export = \"accept-all\"", &format!("export = \"{policy}\""))
    };
    let before = || peer("before", number - 1, Side::First, asn(number - 1), lines);
    let stock = |network| peer(&format!("peer{network}"), network, Side::Second, asn(network), "");
    let rest = match number {
        1 => ROUTES.map(|(prefix, _)| network(prefix)).concat() + &behind("tagged") + TAGGED,
        2 => before() + &behind("longer") + LONGER,
        _ => before() + &[BIRD, FRR, SPEAKER].map(stock).concat(),
    };
    text + &rest + &cache()
}

fn bird(host: &Namespace, dump: &Path) -> Result<Bird> {
    let (near, far) = (v4(BIRD, Side::Second), v4(BIRD, Side::First));
    let (asn, dump) = (asn(BIRD), dump.display());
    Bird::start(
        host,
        &format!(
            "router id {near};
            mrtdump \"{dump}\";
            mrtdump protocols {{ messages }};
            protocol device {{ }}
            protocol bgp holdfast {{
              local {near} as {asn}; neighbor {far} as 65003;
              connect delay time 1; connect retry time 1; error wait time 1, 2;
              ipv4 {{ import all; export none; }};
            }}"
        ),
    )
}

fn frr(host: &Namespace, dump: &Path) -> Result<Frr> {
    let (near, far) = (v4(FRR, Side::Second), v4(FRR, Side::First));
    let (asn, dump) = (asn(FRR), dump.display());
    Frr::start(
        host,
        &format!(
            "dump bgp updates {dump}
router bgp {asn}
 bgp router-id {near}
 no bgp ebgp-requires-policy
 neighbor {far} remote-as 65003
 neighbor {far} timers connect 1
"
        ),
    )
}

/// The UPDATEs with routes among messages, in the order of their octets.
fn with_routes(messages: impl Iterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    let mut updates: Vec<_> =
        messages.filter(|message| message.len() > END_OF_RIB && message[TYPE] == UPDATE).collect();
    updates.sort_unstable();
    updates
}

/// Those that a stock router has had from this address, as it has written them down.
fn dumped(file: &Path, from: IpAddr) -> Result<Vec<Vec<u8>>> {
    let octets = fs::read(file).with_context(|| file.display().to_string())?;
    let messages = records(&octets).filter_map(|record| match record.ok()?.body().ok()? {
        Body::Message(message) if message.session.peer == from => Some(message.bytes.to_vec()),
        _ => None,
    });
    Ok(with_routes(messages))
}

/// The UPDATEs that BIRD, FRR and a speaker were told at the end of a row whose sessions have these lines.
fn told(name: &str, lines: &str, state: Option<&str>) -> Result<[Vec<Vec<u8>>; 3]> {
    let (row, directory) = (Row::new(3)?, Directory::new(name)?);
    let ends = [BIRD, FRR, SPEAKER].map(|network| -> Result<Namespace> {
        let host = Namespace::new(&format!("end{network}"))?;
        topology::join(network, row.host(3), &host)?;
        Ok(host)
    });
    let ends = ends.into_iter().collect::<Result<Vec<_>>>()?;
    let keys = (1..=3).map(|number| SigningKey::generate(asn(number))).collect::<Result<Vec<_>>>()?;
    let all: Vec<RouterKey> = keys.iter().map(|key| key.public.clone()).collect();
    let dumps = ["bird.mrt", "frr.mrt"].map(|name| directory.0.join(name));
    let bird = bird(&ends[0], &dumps[0])?;
    let _frr = frr(&ends[1], &dumps[1])?;
    let [near, far] = [Side::Second, Side::First].map(|side| v4(SPEAKER, side).into());
    let config = SpeakerConfig { records: true, ..SpeakerConfig::connect(near, far, asn(SPEAKER)) };
    let speaker = ends[2].run(|| Speaker::spawn(config))??;

    let start = |(number, key)| row.start(number, &configuration(number, key, lines), &[key], &all);
    let places = (1..).zip(&keys).map(start).collect::<Result<Vec<Place>>>()?;
    for (prefix, path) in ROUTES {
        until_path(&places[2].router, prefix, state, path)?;
    }
    speaker.wait_routes(ROUTES.len(), LIMIT)?;
    let from = [BIRD, FRR].map(|network| IpAddr::from(v4(network, Side::First)));
    let found = wait::until("all UPDATEs", LIMIT, || {
        let [first, second] = [0, 1].map(|at| dumped(&dumps[at], from[at]));
        let found = [first, second, Ok(with_routes(speaker.updates().into_iter()))];
        let found = found.into_iter().collect::<Result<Vec<_>>>().map_err(|error| format!("{error:#}"))?;
        let counts: Vec<_> = found.iter().map(Vec::len).collect();
        if counts.iter().all(|count| *count >= ROUTES.len()) { Ok(found) } else { Err(format!("{counts:?}")) }
    })
    .with_context(|| places[2].router.log_tail())?;
    ensure!(bird.count("protocol holdfast")? == ROUTES.len() as u64, "{}", bird.birdc("show route all")?);
    <[_; 3]>::try_from(found).ok().context("three of them")
}

#[test]
fn stock_routers_behind_routers_that_sign_are_told_what_a_plain_row_tells_them() -> Result<()> {
    let signed = told("signed-row", BGPSEC, Some("valid"))?;
    let plain = told("plain-row", "", None)?;
    for ((name, signed), plain) in ["BIRD", "FRR", "the speaker"].iter().zip(&signed).zip(&plain) {
        ensure!(plain.len() == ROUTES.len(), "{name} was told {} UPDATEs", plain.len());
        ensure!(signed == plain, "{name} was told {signed:02x?}, and by a plain row {plain:02x?}");
    }
    Ok(())
}
