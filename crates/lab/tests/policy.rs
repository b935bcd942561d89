//! Another policy for a full session: it reaches all routes behind everybody's back, and its end can be seen.
//!
//! ```text
//!  a feeder ──1── Holdfast ──2── a receiver
//!  AS 65001       AS 65000       AS 65002
//!                    └──────3── another feeder, AS 65003, of 3 s hold time
//! ```

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    router::Router,
    speaker::Speaker,
    table::{Synthetic, Table},
    topology::Star,
    wait,
};
use holdfast_types::Prefix;

const ROUTES: usize = 200_000;
const LIMIT: Duration = Duration::from_secs(120);
/// Longest that a single route, or an answer to the operator, may take while all others are evaluated.
const PROMPT: Duration = Duration::from_secs(2);

fn configuration(last: &str) -> String {
    let peer = |n: u8, more: &str| {
        format!(
            "[[bgp.peer]]\nname = \"peer-{n}\"\naddress = \"10.0.{n}.2\"\nasn = 6500{n}\nexport = \"accept-all\"\n{more}\n"
        )
    };
    [
        "[router]\nid = \"10.0.0.1\"\nasn = 65000\n[rib]\nenabled = false\n[bgp]\n",
        &format!("[[policy]]\nname = \"in\"\nlast = {last}\n"),
        &peer(1, "import = \"in\""),
        &peer(2, "import = \"reject-all\""),
        &peer(3, "import = \"accept-all\"\nhold-time = 3"),
    ]
    .concat()
}

/// What `show bgp policy` says of the one change: whether it is under way, and how far.
fn change(router: &Router) -> Result<(bool, u64)> {
    let shown = router.show(&["bgp", "policy"])?;
    let change = &shown["changes"][0];
    ensure!(change["peer"] == "peer-1" && change["direction"] == "import", "{shown}");
    let running = change["running"].as_bool().with_context(|| shown.to_string())?;
    Ok((running, change["percent"].as_u64().with_context(|| shown.to_string())?))
}

/// How long a single route takes from one neighbour to another.
fn single_route(number: u8, from: &Speaker, to: &Speaker) -> Result<Duration> {
    let prefix: Prefix = format!("192.0.{number}.128/25").parse()?;
    let began = Instant::now();
    from.announce(Arc::new(Table::plain([prefix])));
    wait::until("the single route", LIMIT, || {
        to.route(prefix).map(|_| ()).ok_or_else(|| prefix.to_string())
    })?;
    Ok(began.elapsed())
}

#[test]
fn a_change_of_policy_over_a_full_table_delays_nobody_and_its_end_is_shown() -> Result<()> {
    let star = Star::new(3)?;
    let router = Router::start(&star.router, &configuration("\"accept\""))?;
    let feeder = star.speaker(1, 65001, |_| {})?;
    let receiver = star.speaker(2, 65002, |_| {})?;
    let other = star.speaker(3, 65003, |config| config.hold_time = 3)?;
    for speaker in [&feeder, &receiver, &other] {
        speaker.wait_established(LIMIT)?;
    }
    let table = Arc::new(Synthetic::ipv4(7, ROUTES).build());
    feeder.announce(Arc::clone(&table));
    receiver.wait_routes(ROUTES, LIMIT)?;
    let shown = router.show(&["bgp", "policy"])?;
    ensure!(shown["changes"].as_array().is_some_and(Vec::is_empty), "nothing has changed: {shown}");

    let last = "{ add-communities = [\"65000:7\"], action = \"accept\" }";
    fs::write(router.configuration(), configuration(last))?;
    let before = receiver.status().announced;
    let began = Instant::now();
    router.cli(&["reload"])?;
    let (mut seen, mut slowest, mut answers) = (Vec::new(), Duration::ZERO, Duration::ZERO);
    for number in 0..=u8::MAX {
        slowest = slowest.max(single_route(number, &other, &receiver)?);
        let asked = Instant::now();
        let (running, percent) = change(&router)?;
        answers = answers.max(asked.elapsed());
        if !running {
            break;
        }
        seen.push(percent);
    }
    let took = began.elapsed();
    wait::until("every route with its community", LIMIT, || {
        let announced = receiver.status().announced - before;
        if announced >= ROUTES as u64 { Ok(()) } else { Err(format!("{announced} announced again")) }
    })?;
    println!(
        "{ROUTES} routes under another policy in {took:?}: slowest single route {slowest:?}, slowest answer {answers:?}, \
         percent seen {seen:?}"
    );
    ensure!(!change(&router)?.0, "its end is shown");
    ensure!(
        seen.iter().any(|percent| *percent < 100) && seen.is_sorted(),
        "it was seen on its way: {seen:?}"
    );
    ensure!(slowest < PROMPT && answers < PROMPT, "single routes {slowest:?}, answers {answers:?}");
    for speaker in [&feeder, &receiver, &other] {
        ensure!(speaker.status().sessions == 1, "all sessions stay");
    }

    let prefix = table.routes.first().map(|(prefix, _)| prefix.to_string()).context("a route")?;
    let traced = router.cli(&["policy", "trace", "in", &prefix, "--peer", "peer-1"])?;
    ensure!(traced.contains("accepted by policy in, term last") && traced.contains("+65000:7"), "{traced}");
    router.stop()
}
