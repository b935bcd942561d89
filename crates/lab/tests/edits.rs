//! Two hundred random edits of the configuration of a running router: only what differs takes effect. One neighbour is
//! never touched, and its log shows one session.
//!
//! ```text
//!  BIRD "still" ──1── Holdfast ──2── BIRD "two"
//!  AS 65001           AS 65000 ──3── BIRD "three"       "four" is nobody
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    kernel,
    router::{Router, binary},
    table::random::Random,
    topology::Star,
    wait,
};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(30);
const EDITS: u32 = 200;
/// After so many edits the state is compared with that of a router that has never had another file.
const COMPARED: u32 = 10;
const SEED: u64 = 5;

/// Has values of its own for all that `[bgp]` has for peers: no edit is about it.
const STILL: &str = r#"
[[bgp.peer]]
name = "still"
address = "10.0.1.2"
asn = 65001
hold-time = 90
connect-retry = 1
import = "accept-all"
export = "accept-all"
"#;

/// A configuration that is edited.
#[derive(Clone, Debug)]
struct File {
    peers: BTreeMap<u8, Peer>,
    networks: BTreeSet<u8>,
    statics: BTreeMap<u8, bool>,
    wanted: BTreeSet<u8>,
    preference: u32,
    stale_time: u32,
    static_distance: u32,
    hold_time: u32,
}

#[derive(Clone, Debug, Default)]
struct Peer {
    description: u32,
    hold_time: Option<u32>,
    import: bool,
    mortal: bool,
    disabled: bool,
    next_hop_self: bool,
}

impl File {
    fn new() -> Self {
        Self {
            peers: [2, 3].map(|number| (number, Peer::default())).into(),
            networks: BTreeSet::new(),
            statics: BTreeMap::new(),
            wanted: [2, 3].into(),
            preference: 100,
            stale_time: 300,
            static_distance: 1,
            hold_time: 90,
        }
    }

    /// One edit.
    fn edit(&mut self, random: &mut Random) {
        let number = 2 + random.below(3) as u8;
        let peer = self.peers.get_mut(&number);
        match (random.below(13), peer) {
            (0, Some(_)) => drop(self.peers.remove(&number)),
            (0..=2, None) => drop(self.peers.insert(number, Peer::default())),
            (1, Some(peer)) => peer.hold_time = [None, Some(30), Some(60)][random.below(3) as usize],
            (2 | 3, Some(peer)) => peer.description += 1,
            (4, Some(peer)) => peer.import ^= true,
            (5, Some(peer)) => peer.mortal ^= true,
            (6, Some(peer)) => peer.disabled ^= true,
            (7, Some(peer)) => peer.next_hop_self ^= true,
            (8, _) => toggle(&mut self.networks, number),
            (9, _) => match self.statics.remove(&number) {
                Some(_) => {}
                None => drop(self.statics.insert(number, random.below(2) == 0)),
            },
            (10, _) => toggle(&mut self.wanted, number),
            (11, _) => self.stale_time += 1,
            (12, _) => self.static_distance = 1 + random.below(9),
            (3, None) => self.hold_time = 90 + 30 * random.below(2),
            (_, None) => self.preference = 100 + random.below(5),
            (_, Some(_)) => {}
        }
    }

    fn text(&self) -> String {
        let mut text = format!(
            "[router]\nid = \"10.0.0.1\"\nasn = 65000\n[rib]\nstale-time = {}\ndistance = {{ static = {} }}\n\
             [bgp]\nconnect-retry = 1\nhold-time = {}\n{STILL}",
            self.stale_time, self.static_distance, self.hold_time
        );
        for (number, peer) in &self.peers {
            text += &peer.text(*number);
        }
        for number in &self.networks {
            text += &format!("[[bgp.network]]\nprefix = \"192.0.{number}.0/24\"\n");
        }
        for (number, blackhole) in &self.statics {
            let target = if *blackhole { "blackhole = true" } else { "next-hop = \"10.0.1.2\"" };
            text += &format!("[[static]]\nprefix = \"172.16.{number}.0/24\"\n{target}\n");
        }
        let wanted: Vec<_> = self.wanted.iter().map(|number| format!("\"198.51.{number}.0/24\"")).collect();
        text += &format!("[[prefix-set]]\nname = \"wanted\"\nprefixes = [{}]\n", wanted.join(", "));
        text + &format!(
            "[[policy]]\nname = \"in\"\n[[policy.term]]\nfrom = {{ prefix-set = \"wanted\" }}\n\
             then = {{ local-preference = {}, action = \"accept\" }}\n",
            self.preference
        )
    }
}

impl Peer {
    fn text(&self, number: u8) -> String {
        let mut text = format!(
            "[[bgp.peer]]\nname = \"peer{number}\"\naddress = \"10.0.{number}.2\"\nasn = 6500{number}\n\
             description = \"edit {}\"\nexport = \"accept-all\"\nimport = \"{}\"\nnonstop = {}\n\
             disabled = {}\n{}",
            self.description,
            if self.import { "accept-all" } else { "in" },
            !self.mortal,
            self.disabled,
            if self.next_hop_self { "next-hop = \"self\"\n" } else { "" },
        );
        if let Some(hold_time) = self.hold_time {
            text += &format!("hold-time = {hold_time}\n");
        }
        text
    }
}

fn toggle(set: &mut BTreeSet<u8>, number: u8) {
    if !set.remove(&number) {
        set.insert(number);
    }
}

/// Files that no router takes.
fn bad(good: &str, random: &mut Random) -> String {
    match random.below(5) {
        0 => format!("{good}\npasive = true\n"),
        1 => format!("{good}{STILL}"),
        2 => good.replace("asn = 65000", "asn = 0"),
        3 => good[..good.len() / 2].to_owned() + "\n[[[",
        _ => good.replace("import = \"accept-all\"", "import = \"nobody\""),
    }
}

/// What `holdfast diff` says, whatever its exit code.
fn diff(router: &Router, text: &str) -> Result<Value> {
    let file = router.directory().join("candidate.toml");
    fs::write(&file, text)?;
    let mut command = Command::new(binary()?);
    command.args(["diff", "--json", "-c"]).arg(&file).arg("--runtime-dir").arg(router.directory());
    Ok(serde_json::from_slice(&command.output()?.stdout)?)
}

/// What a router's state says that comes from its configuration alone.
fn configured(router: &Router) -> Result<Value> {
    let mut peers = BTreeMap::new();
    for (_, peer) in router.show(&["bgp", "neighbors"])?.as_object().context("neighbours")? {
        let family = &peer["addressFamilyInfo"]["ipv4Unicast"];
        let facts = json!([
            peer["remoteAs"],
            peer["nbrDesc"],
            peer["bgpTimerConfiguredHoldTimeMsecs"],
            family["importPolicy"],
            family["exportPolicy"],
        ]);
        peers.insert(peer["name"].to_string(), facts);
    }
    let statics: BTreeMap<_, _> = router
        .show(&["route"])?
        .as_object()
        .context("routes")?
        .iter()
        .filter(|(prefix, _)| prefix.starts_with("172.16."))
        .map(|(prefix, routes)| (prefix.clone(), routes[0]["distance"].clone()))
        .collect();
    Ok(json!({ "peers": peers, "statics": statics }))
}

/// What the router has from its neighbours and tells the kernel.
fn learned(star: &Star, router: &Router) -> Result<Value> {
    let routes = router.show(&["route"])?;
    let routes: BTreeSet<_> = routes.as_object().context("routes")?.keys().cloned().collect();
    // The numbers of nexthop objects are of no consequence.
    let way = |text: &str| {
        let words: Vec<_> = text.split(' ').collect();
        if words[0] == "nhid" { words[2..].join(" ") } else { text.to_owned() }
    };
    let kernel = kernel::routes(&star.router, false)?.into_iter();
    let kernel: BTreeMap<_, _> = kernel.map(|(prefix, text)| (prefix.to_string(), way(&text))).collect();
    Ok(json!({ "rib": routes, "kernel": kernel }))
}

/// A fresh router with this file, where no neighbour is.
fn fresh(text: &str) -> Result<Value> {
    let star = Star::new(3)?;
    let router = Router::start(&star.router, text)?;
    let state = wait::until("static routes", LIMIT, || {
        let state = configured(&router).map_err(|error| error.to_string())?;
        let wanted = text.matches("[[static]]").count();
        let there = state["statics"].as_object().map(serde_json::Map::len);
        if there == Some(wanted) { Ok(state) } else { Err(state.to_string()) }
    })?;
    router.stop()?;
    Ok(state)
}

fn until_up(router: &Router, file: &File) -> Result<()> {
    for (number, peer) in &file.peers {
        if *number < 4 && !peer.disabled {
            router.until_established(&format!("peer{number}"), LIMIT)?;
        }
    }
    Ok(())
}

#[test]
fn of_two_hundred_edits_only_the_differences_take_effect() -> Result<()> {
    let star = Star::new(3)?;
    let still = star.bird(1, 65001, &["198.51.1.0/24"], "debug { events };")?;
    let _others = [
        star.bird(2, 65002, &["198.51.2.0/24", "198.52.2.0/24"], "")?,
        star.bird(3, 65003, &["198.51.3.0/24", "198.52.3.0/24"], "")?,
    ];
    let mut file = File::new();
    let router = Router::start(&star.router, &file.text())?;
    router.until_established("still", LIMIT)?;
    until_up(&router, &file)?;
    let mut random = Random::new(SEED);
    let edits = std::env::var("HOLDFAST_EDITS").ok().and_then(|n| n.parse().ok()).unwrap_or(EDITS);
    let (mut refused, mut ended) = (0, 0);
    for edit in 1..=edits {
        if random.below(8) == 0 {
            let state = configured(&router)?;
            fs::write(router.configuration(), bad(&file.text(), &mut random))?;
            ensure!(router.cli(&["reload"]).is_err(), "edit {edit}: taken");
            ensure!(configured(&router)? == state, "edit {edit}: a bad file has changed something");
            refused += 1;
            continue;
        }
        file.edit(&mut random);
        let text = file.text();
        let foretold = diff(&router, &text)?;
        fs::write(router.configuration(), &text)?;
        let said = router.cli(&["reload"]).with_context(|| format!("edit {edit}: {text}"))?;
        let changes: Vec<_> = said.lines().filter(|line| !line.starts_with("sessions ended")).collect();
        if changes != ["nothing has changed"] {
            ensure!(foretold["changes"] == json!(changes), "edit {edit}: {foretold} and then {said}");
        }
        if let Some((_, names)) = said.split_once("sessions ended: ") {
            let names: Vec<_> = names.trim().split(", ").collect();
            let foreseen = |name: &&str| {
                foretold["sessions_ended"].as_array().is_some_and(|all| all.contains(&json!(name)))
            };
            ensure!(names.iter().all(foreseen), "edit {edit}: {foretold} and then {said}");
            ended += names.len();
        }
        ensure!(still.sessions()? == 1, "edit {edit} has touched a session: {text}");
        if edit % COMPARED == 0 {
            until_up(&router, &file)?;
            ensure!(
                configured(&router)? == fresh(&text)?,
                "edit {edit}: another state than a fresh router's: {text}"
            );
        }
    }
    println!("{edits} edits: {refused} refused, {ended} sessions ended, one neighbour never touched");

    // The same router from the start, with the same neighbours.
    fs::write(router.configuration(), file.text())?;
    router.cli(&["reload"])?;
    until_up(&router, &file)?;
    let settled = |router: &Router| {
        let mut last = json!(null);
        wait::until("routes that stay", LIMIT, || {
            let now = learned(&star, router).map_err(|error| error.to_string())?;
            std::thread::sleep(Duration::from_millis(500));
            if std::mem::replace(&mut last, now.clone()) == now { Ok(now) } else { Err(now.to_string()) }
        })
    };
    let edited = settled(&router)?;
    router.stop()?;
    let router = Router::start(&star.router, &file.text())?;
    router.until_established("still", LIMIT)?;
    until_up(&router, &file)?;
    wait::until("the same routes", LIMIT, || {
        let now = learned(&star, &router).map_err(|error| error.to_string())?;
        if now == edited { Ok(()) } else { Err(format!("{now}, edited: {edited}")) }
    })
}
