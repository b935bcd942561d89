//! Routes are validated by what a real cache says, and a real router says the same of each.
//!
//! ```text
//!  a feeder ──1── Holdfast ──2── BIRD, with the same VRPs
//!  AS 65001       AS 65000       AS 65002
//!                    ├──────3── a receiver, AS 65003
//!                    └──────4── StayRTR
//! ```

use std::{collections::BTreeSet, fmt::Write, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    caches::{Row, StayRtr},
    peers::Bird,
    router::Router,
    speaker::Speaker,
    table::Table,
    topology::{Side, Star, v4},
    wait,
};
use holdfast_types::Prefix;

const LIMIT: Duration = Duration::from_secs(60);
const ROUTES: u32 = 4_000;

const CONFIGURATION: &str = r#"
[router]
id = "10.0.0.1"
asn = 65000
[rib]
enabled = false
[[rpki.cache]]
name = "cache"
address = "10.0.4.2"
refresh = 2
retry = 1
[[policy]]
name = "no-invalid"
last = "accept"
[[policy.term]]
name = "invalid"
from = { validity = "invalid" }
then = "reject"
[[bgp.peer]]
name = "feeder"
address = "10.0.1.2"
asn = 65001
import = "accept-all"
export = "reject-all"
[[bgp.peer]]
name = "judge"
address = "10.0.2.2"
asn = 65002
import = "reject-all"
export = "accept-all"
[[bgp.peer]]
name = "receiver"
address = "10.0.3.2"
asn = 65003
import = "reject-all"
export = "no-invalid"
"#;

fn route(number: u32) -> String {
    format!("{}.{}.{}.0/24", 20 + number / 65_536, number / 256 % 256, number % 256)
}

/// What the cache says of each route: nothing; the feeder, for it or for what it is in; somebody else; the feeder, but only
/// for what is shorter; nobody; somebody else and the feeder.
fn vrps() -> BTreeSet<Row> {
    let of = |number: u32| {
        let own = route(number);
        let around =
            format!("{}.{}.{}.0/23", 20 + number / 65_536, number / 256 % 256, (number % 256) & 0xfe);
        match number % 14 {
            2 => vec![(own, 24, 65_001)],
            4 => vec![(around, 24, 65_001)],
            6 => vec![(own, 32, 64_999)],
            8 => vec![(around, 23, 65_001)],
            10 => vec![(own, 24, 0)],
            12 => vec![(own.clone(), 24, 64_999), (own, 24, 65_001)],
            _ => vec![],
        }
    };
    (0..ROUTES).flat_map(of).collect()
}

fn roa_table(vrps: &BTreeSet<Row>) -> String {
    let mut table = String::from("roa4 table r; protocol static roas { roa4 { table r; };\n");
    for (prefix, max_length, asn) in vrps {
        writeln!(table, "route {prefix} max {max_length} as {asn};").expect("a string");
    }
    table + "}\n"
}

/// What BIRD says.
fn judged(bird: &Bird, state: &str) -> Result<BTreeSet<String>> {
    let said =
        bird.birdc(&format!("show route table master4 where roa_check(r, net, bgp_path.last) = {state}"))?;
    let prefix = |line: &str| line.split(' ').next().filter(|first| first.contains('/')).map(str::to_owned);
    Ok(said.lines().filter_map(prefix).collect())
}

/// What Holdfast says.
fn shown(router: &Router, state: &str) -> Result<BTreeSet<String>> {
    let shown = router.show(&["bgp", "routes", "--validity", state])?;
    let routes = shown["routes"].as_object().context("routes")?;
    Ok(routes.keys().cloned().collect())
}

fn agree(router: &Router, bird: &Bird) -> Result<[usize; 3]> {
    let states = [("valid", "ROA_VALID"), ("invalid", "ROA_INVALID"), ("not-found", "ROA_UNKNOWN")];
    let mut counts = [0; 3];
    for ((ours, theirs), count) in states.into_iter().zip(&mut counts) {
        wait::until("both say the same", LIMIT, || {
            let say = |error: anyhow::Error| format!("{error:#}");
            let (ours, theirs) = (shown(router, ours).map_err(say)?, judged(bird, theirs).map_err(say)?);
            *count = ours.len();
            match ours == theirs {
                true => Ok(()),
                false => Err(format!(
                    "{} and {}: {:?}",
                    ours.len(),
                    theirs.len(),
                    ours.symmetric_difference(&theirs).next()
                )),
            }
        })
        .with_context(|| router.log_tail())?;
    }
    Ok(counts)
}

fn held(receiver: &Speaker) -> BTreeSet<String> {
    receiver.routes().keys().map(ToString::to_string).collect()
}

#[test]
fn a_real_router_says_the_same_of_every_route_and_a_change_moves_those_that_it_concerns() -> Result<()> {
    let star = Star::new(4)?;
    let mut all = vrps();
    let cache = StayRtr::start(star.neighbor(4), &all, &[])?;
    let (near, far) = (v4(2, Side::Second), v4(2, Side::First));
    let configuration = format!(
        "router id {near};
        protocol device {{ }}
        include \"roas.conf\";
        protocol bgp holdfast {{
          local {near} as 65002; neighbor {far} as 65000;
          connect delay time 1; connect retry time 1; error wait time 1, 2;
          ipv4 {{ import all; export none; }};
        }}"
    );
    let bird = Bird::start_with(star.neighbor(2), &configuration, &[("roas.conf", &roa_table(&all))])?;
    let router = Router::start(&star.router, CONFIGURATION)?;
    let feeder = star.speaker(1, 65001, |_| {})?;
    let receiver = star.speaker(3, 65003, |_| {})?;
    feeder.wait_established(LIMIT)?;
    receiver.wait_established(LIMIT)?;
    let routes: Vec<Prefix> = (0..ROUTES).map(|number| route(number).parse()).collect::<Result<_, _>>()?;
    feeder.announce(Arc::new(Table::plain(routes)));

    let counts = agree(&router, &bird)?;
    println!("valid, invalid, not found: {counts:?}");
    ensure!(
        counts.iter().sum::<usize>() == ROUTES as usize && counts.iter().all(|count| *count > 500),
        "{counts:?}"
    );
    let invalid = shown(&router, "invalid")?;
    wait::until("what is not invalid is told", LIMIT, || {
        let held = held(&receiver);
        let right = held.len() + invalid.len() == ROUTES as usize && held.is_disjoint(&invalid);
        if right { Ok(()) } else { Err(format!("{} held, {} invalid", held.len(), invalid.len())) }
    })?;

    // One becomes invalid, one is not any more, one becomes valid that was not found: of the last nobody need hear.
    let [lost, gained, confirmed] = [2, 6, 14].map(route);
    receiver.wait_quiet(Duration::from_secs(1), LIMIT)?;
    let before = receiver.status();
    let told_bird = bird.count("table master4")?;
    ensure!(told_bird == u64::from(ROUTES), "{told_bird}");
    ensure!(all.remove(&(lost.clone(), 24, 65_001)) && all.remove(&(gained.clone(), 32, 64_999)));
    all.insert((lost.clone(), 24, 64_999));
    all.insert((gained.clone(), 24, 65_001));
    all.insert((confirmed.clone(), 24, 65_001));
    cache.say(&all)?;
    bird.reconfigure("roas.conf", &roa_table(&all))?;
    agree(&router, &bird)?;
    wait::until("the change is told", LIMIT, || {
        let held = held(&receiver);
        if !held.contains(&lost) && held.contains(&gained) { Ok(()) } else { Err("not yet".to_owned()) }
    })?;
    receiver.wait_quiet(Duration::from_secs(1), LIMIT)?;
    let after = receiver.status();
    let news = (after.announced - before.announced, after.withdrawn - before.withdrawn);
    ensure!(news == (1, 1), "announced and withdrawn: {news:?}");

    // Why, for the operator.
    let said = router.show(&["bgp", "route", &lost])?;
    ensure!(
        said["vrps"][0] == format!("{lost} AS64999") && said["paths"][0]["validity"] == "invalid",
        "{said}"
    );

    // Neither the death of `rpki` nor that of `bgp`, whose sessions go on, changes anything for anybody.
    for process in ["rpki", "bgp"] {
        router.kill(process)?;
        router.wait_running()?;
        agree(&router, &bird).with_context(|| format!("after the death of {process}"))?;
        receiver.wait_quiet(Duration::from_secs(2), LIMIT)?;
        let now = receiver.status();
        let news = (now.announced - after.announced, now.withdrawn - after.withdrawn);
        ensure!(news == (0, 0), "after the death of {process}: {news:?}");
    }
    router.stop()
}
