//! A signature is made once: whoever asks again, comes back or dies, the same octets are sent.
//!
//! ```text
//!  10.0.1.2 to 10.0.4.2: four peers of AS 65001 ── AS 65000: Holdfast
//! ```

use std::{collections::BTreeMap, fs, io::Write, os::unix::fs::PermissionsExt, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use holdfast_bgp_wire::{Attributes, attribute::code::BGPSEC_PATH};
use holdfast_bgpsec_wire::Path;
use holdfast_lab::{
    router::{Router, binary},
    row::{SigningKey, files, head, network, peer, section},
    speaker::{Received, Speaker, SpeakerConfig},
    topology::{Side, Star, v4},
    vrf::{Scene, TABLES},
    wait,
};
use holdfast_types::{Family, Prefix};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
const PEERS: u8 = 4;
const ROUTES: u8 = 20;

type Routes = BTreeMap<Prefix, Arc<Received>>;

fn configuration(key: &SigningKey, routes: u8) -> String {
    let mut text = head(1, 65_000, &[key]);
    for third in 0..routes {
        text += &network(&format!("20.0.{third}.0/24"));
    }
    for number in 1..=PEERS {
        let lines = "passive = true\nbgpsec = { send = true, require-session = true }\n";
        text += &peer(&format!("peer{number}"), number, Side::Second, 65_001, lines);
    }
    text
}

/// Signatures that the living `pathsec` has made.
fn signed(router: &Router) -> Result<u64> {
    wait::until("pathsec", LIMIT, || {
        let said = router.cli(&["call", "--json", "pathsec/pathsec.v1/Status"]);
        let said = said.map_err(|error| format!("{error:#}"))?;
        let status: Value = serde_json::from_str(&said).map_err(|error| format!("{error}: {said}"))?;
        status["signed"].as_u64().ok_or(said)
    })
}

/// So many signatures are kept, and none was lost.
fn ensure_kept(router: &Router, count: u8) -> Result<()> {
    let shown = router.show(&["bgpsec"])?;
    ensure!(shown["kept"] == count && shown["lost"] == 0 && shown["waiting"] == 0, "{shown}");
    Ok(())
}

/// All routes of a peer, when there are so many: each with a path of one hop.
fn routes(speaker: &Speaker, count: u8) -> Result<Routes> {
    speaker.wait_routes(count.into(), LIMIT)?;
    let routes = speaker.routes();
    for (prefix, received) in &routes {
        let path = Attributes(&received.attributes).iter().find(|attribute| attribute.code == BGPSEC_PATH);
        let path = path.with_context(|| format!("{prefix} is not signed"))?;
        ensure!(Path::parse(path.value)?.hops() == 1, "{prefix}");
    }
    Ok(routes)
}

/// Whether attributes are the same, next hops aside.
fn are_same(these: &Routes, others: &Routes) -> bool {
    let is_same = |(prefix, received): (&Prefix, &Arc<Received>)| {
        others.get(prefix).is_some_and(|other| other.attributes == received.attributes)
    };
    these.len() == others.len() && these.iter().all(is_same)
}

/// Asks for all routes again; they are as they were.
fn ask_again(speaker: &Speaker, before: &Routes) -> Result<()> {
    let announced = speaker.status().announced;
    speaker.refresh(Family::IPV4_UNICAST);
    wait::until("all routes again", LIMIT, || {
        let now = speaker.status().announced - announced;
        if now >= before.len() as u64 { Ok(()) } else { Err(format!("{now} of {}", before.len())) }
    })?;
    ensure!(speaker.routes() == *before, "another signature");
    Ok(())
}

/// A peer and all that it has been told.
struct Told<'a> {
    speaker: &'a Speaker,
    routes: Routes,
    updates: u64,
    sessions: u32,
}

impl<'a> Told<'a> {
    fn now(speaker: &'a Speaker) -> Self {
        let status = speaker.status();
        Self { speaker, routes: speaker.routes(), updates: status.updates, sessions: status.sessions }
    }

    /// Nothing has come since; and what comes when it is asked for is the same.
    fn check(&self) -> Result<()> {
        let status = self.speaker.status();
        ensure!(status.sessions == self.sessions, "the session has ended: {status:?}");
        ensure!(status.updates == self.updates, "{} UPDATEs", status.updates - self.updates);
        ask_again(self.speaker, &self.routes)
    }
}

/// Waits until another process of this name runs.
fn kill(router: &Router, process: &str) -> Result<()> {
    let before = router.pid(process)?;
    router.kill(process)?;
    wait::until("another process", LIMIT, || match router.pid(process) {
        Ok(pid) if pid != before => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    router.wait_running()
}

/// Lets those go who may still say something.
const QUIET: Duration = Duration::from_secs(2);

fn told(speakers: &[Speaker]) -> Vec<Told<'_>> {
    speakers.iter().map(Told::now).collect()
}

#[test]
fn four_peers_of_an_as_cost_what_one_does_and_what_is_sent_again_costs_nothing() -> Result<()> {
    let (star, key) = (Star::new(PEERS)?, SigningKey::generate(65_000)?);
    let router = Router::start_with_files(&star.router, &configuration(&key, ROUTES), &files(&[&key]))?;
    let speakers: Vec<Speaker> = (1..=PEERS)
        .map(|number| star.speaker(number, 65_001, |config| config.takes_signed = true))
        .collect::<Result<_>>()?;
    let first = routes(&speakers[0], ROUTES).with_context(|| router.log_tail())?;
    for speaker in &speakers[1..] {
        ensure!(are_same(&routes(speaker, ROUTES)?, &first), "each peer has its own signatures");
    }
    ensure!(signed(&router)? == u64::from(ROUTES), "{} signatures", signed(&router)?);

    ensure_kept(&router, ROUTES)?;

    // A peer asks again, and comes back.
    ask_again(&speakers[0], &first)?;
    speakers[1].flap();
    ensure!(are_same(&routes(&speakers[1], ROUTES)?, &first), "signed anew for who came back");
    ensure!(signed(&router)? == u64::from(ROUTES), "{} signatures", signed(&router)?);

    // bgp dies, and then pathsec: nobody is told anything, and who asks is told the same.
    for process in ["bgp", "pathsec"] {
        let before = told(&speakers);
        let count = signed(&router)?;
        kill(&router, process)?;
        std::thread::sleep(QUIET);
        for told in &before {
            told.check().with_context(|| format!("after the death of {process}: {}", router.log_tail()))?;
        }
        let made = if process == "pathsec" { 0 } else { count };
        ensure!(signed(&router)? == made, "{} signatures after the death of {process}", signed(&router)?);
    }

    // A reload with another network: one signature, and no other changes.
    fs::write(router.configuration(), configuration(&key, ROUTES + 1))?;
    router.cli(&["reload"])?;
    for speaker in &speakers {
        let now = routes(speaker, ROUTES + 1)?;
        ensure!(first.iter().all(|(prefix, old)| now[prefix].attributes == old.attributes), "signed anew");
    }
    ensure!(signed(&router)? == 1, "{} signatures after the reload", signed(&router)?);

    let before = told(&speakers);
    upgrade(&router)?;
    std::thread::sleep(QUIET);
    for told in &before {
        told.check().with_context(|| format!("after the upgrade: {}", router.log_tail()))?;
    }
    ensure!(signed(&router)? == 0, "{} signatures after the upgrade", signed(&router)?);
    ensure_kept(&router, ROUTES + 1)
}

/// A peer of AS 65001 in each table, and the same network of our own.
fn in_tables(scene: &Scene, key: &SigningKey) -> String {
    let peers = TABLES.map(|table| {
        let vrf = if table == "main" { String::new() } else { format!("vrf = \"{table}\"\n") };
        peer(table, 1, Side::Second, 65_001, &(vrf + "bgpsec = { send = true }\n"))
    });
    let rest = [section(&[key]), "[bgp]\nconnect-retry = 1\n".to_owned(), network(IN_TABLES), peers.concat()]
        .concat();
    ["blue", "red"].iter().fold(scene.configuration(true, &rest), |text, vrf| {
        let name = format!("name = \"{vrf}\"\n");
        text.replacen(&name, &format!("{name}networks = [\"{IN_TABLES}\"]\n"), 1)
    })
}

const IN_TABLES: &str = "20.0.0.0/24";

#[test]
fn each_table_keeps_its_own_signatures() -> Result<()> {
    let (scene, key) = (Scene::new()?, SigningKey::generate(65_000)?);
    let router = Router::start_with_files(&scene.host, &in_tables(&scene, &key), &files(&[&key]))?;
    let speakers = scene.neighbors.iter().map(|host| {
        let near = v4(1, Side::Second).into();
        let config = SpeakerConfig { takes_signed: true, ..SpeakerConfig::listen(near, 65_001) };
        host.run(|| Speaker::spawn(config))?
    });
    let speakers = speakers.collect::<Result<Vec<_>>>()?;
    let all = speakers.iter().map(|speaker| routes(speaker, 1)).collect::<Result<Vec<_>>>();
    let all = all.with_context(|| router.log_tail())?;
    ensure!(!are_same(&all[0], &all[1]) && !are_same(&all[1], &all[2]), "one signature for two tables");
    ensure!(signed(&router)? == 3, "{} signatures", signed(&router)?);
    let before = told(&speakers);
    kill(&router, "bgp")?;
    std::thread::sleep(QUIET);
    for (told, table) in before.iter().zip(TABLES) {
        told.check().with_context(|| format!("table {table}: {}", router.log_tail()))?;
    }
    ensure!(signed(&router)? == 3, "{} signatures", signed(&router)?);
    Ok(())
}

/// Upgrades to a copy of the binary that differs in an octet at its end.
fn upgrade(router: &Router) -> Result<()> {
    let new = router.directory().join("new");
    fs::copy(binary()?, &new)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
    fs::OpenOptions::new().append(true).open(&new)?.write_all(b"\n")?;
    router.cli(&["upgrade", "--binary", new.to_str().context("a path")?]).map(drop)
}
