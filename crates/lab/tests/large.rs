//! A configuration with very many entries of prefix sets: whatever `check` takes runs, is reloaded, and comes back after the death
//! of `bgp`.
//!
//! ```text
//!  BIRD ──1── Holdfast, with a policy and a prefix set of its own for each of its peers
//! ```
//! `HOLDFAST_DRILLS` (`make drills`) has it as large as it may be.

use std::{
    fmt::Write,
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    kernel,
    router::Router,
    topology::{ROUTER, Star},
    wait,
};

const LIMIT: Duration = Duration::from_secs(60);

/// How large, and what it may take.
struct Scene {
    peers: u32,
    /// Of the prefix set of each peer.
    entries: u32,
    start: Duration,
    reload: Duration,
    /// Of the manager and of `bgp`, together, at their peaks.
    octets: u64,
}

impl Scene {
    /// The peer that is there may send this prefix and no other; nobody else is there.
    fn configuration(&self, prefix: &str) -> String {
        let mut text = ROUTER.to_owned();
        for peer in 0..self.peers {
            let (name, address, prefix) = match peer {
                0 => ("bird".to_owned(), "10.0.1.2".to_owned(), prefix),
                _ => (format!("m{peer}"), format!("10.1.{}.{}", peer / 250, peer % 250 + 1), "192.0.2.0/24"),
            };
            let _ = write!(text, "[[prefix-set]]\nname = \"{name}\"\nprefixes = [\n  \"{prefix}\",\n");
            for entry in 1..self.entries {
                let number = peer * self.entries + entry;
                let (a, b, c) = (20 + (number >> 16 & 0x7f), number >> 8 & 0xff, number & 0xff);
                let _ = writeln!(text, "  \"{a}.{b}.{c}.0/24 le {}\",", 25 + number % 5);
            }
            let _ = write!(
                text,
                "]\n[[policy]]\nname = \"{name}\"\nterm = [{{ from = {{ prefix-set = \"{name}\" }}, then = \"accept\" }}]\n\
                 [[bgp.peer]]\nname = \"{name}\"\naddress = \"{address}\"\nasn = {}\npassive = true\nimport = \"{name}\"\n\
                 export = \"accept-all\"\n",
                if peer == 0 { 65_001 } else { 100_000 + peer },
            );
        }
        text
    }
}

/// The most memory that a process has had, in octets.
fn peak(router: &Router, name: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", router.pid(name)?.as_raw_nonzero()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse::<u64>()? << 10)
}

fn until_installed(star: &Star, wanted: &str, unwanted: &str) -> Result<()> {
    let (wanted, unwanted) = (wanted.parse()?, unwanted.parse()?);
    wait::until("the kernel's routes", LIMIT, || {
        let routes = kernel::routes(&star.router, false).map_err(|error| error.to_string())?;
        let fits = routes.contains_key(&wanted) && !routes.contains_key(&unwanted);
        if fits { Ok(()) } else { Err(format!("{routes:?}")) }
    })
}

fn play(scene: &Scene) -> Result<()> {
    let (one, other) = ("198.51.100.0/24", "203.0.113.0/24");
    let star = Star::new(1)?;
    let bird = star.bird(1, 65_001, &[one, other], "debug { events };")?;
    let (first, second) = (scene.configuration(one), scene.configuration(other));
    let begin = Instant::now();
    let router = Router::start(&star.router, &first)?;
    router.until_established("bird", LIMIT)?;
    until_installed(&star, one, other)?;
    let start = begin.elapsed();

    fs::write(router.configuration(), &second)?;
    let begin = Instant::now();
    let said = router.cli(&["reload"])?;
    let reload = begin.elapsed();
    ensure!(said.contains("prefix-sets") && said.contains("bird"), "{said}");
    until_installed(&star, other, one)?;
    let peaks = [peak(&router, "manager")?, peak(&router, "bgp")?];

    let before = router.pid("bgp")?;
    router.kill("bgp")?;
    let begin = Instant::now();
    wait::until("the next bgp, with its configuration", LIMIT, || {
        let shown = router.show(&["processes"]).map_err(|error| error.to_string())?;
        let is_back =
            shown["bgp"]["state"] == "running" && shown["bgp"]["pid"] != before.as_raw_nonzero().get();
        if is_back { Ok(()) } else { Err(shown["bgp"].to_string()) }
    })?;
    let back = begin.elapsed();
    router.until_established("bird", LIMIT)?;
    until_installed(&star, other, one)?;
    ensure!(bird.sessions()? == 1, "the session has ended");
    let again = peak(&router, "bgp")?;

    let mib = peaks.map(|octets| octets >> 20);
    println!(
        "{} peers of {} entries, {} MiB of text: start {start:?}, reload {reload:?}, back {back:?}; \
         peaks: manager {} MiB, bgp {} MiB, the next bgp {} MiB",
        scene.peers,
        scene.entries,
        first.len() >> 20,
        mib[0],
        mib[1],
        again >> 20,
    );
    ensure!(start < scene.start && reload < scene.reload && peaks.iter().sum::<u64>() < scene.octets);
    router.stop()
}

#[test]
fn whatever_check_takes_runs() -> Result<()> {
    // As many entries as policies may have, and as many peers as a router is made for.
    let (peers, entries) = match std::env::var_os("HOLDFAST_DRILLS") {
        Some(_) => (4_999, 839),
        None => (400, 2_000),
    };
    play(&Scene {
        peers,
        entries,
        start: Duration::from_secs(30),
        reload: Duration::from_secs(20),
        octets: 600 << 20,
    })
}
