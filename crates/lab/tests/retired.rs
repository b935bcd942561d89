//! Sessions over TLS and QUIC across upgrades: they stay with the `transport` that carries them, and what is new is
//! the next one's.
//!
//! ```text
//!  feeder ──3──(TCP)── near ──1──(TLS, QUIC)── far       near listens, the others dial
//!  AS 65003            AS 65000 ──2──────────── third
//! ```

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    keys::Signer,
    router::{Router, binary},
    speaker::Speaker,
    table::Table,
    topology::{Side, Star, v4},
    wait,
};
use rustix::process::{Pid, test_kill_process};
use serde_json::Value;

use super::upgrade::saboteur;

const LIMIT: Duration = Duration::from_secs(60);
/// Far less than the hold time of 90 s.
const SOON: Duration = Duration::from_secs(30);
const OLD: &str = "transport-old";
/// Routes in a table of the feeder.
const ROUTES: u64 = 16;

fn peer(name: &str, address: impl ToString, asn: u32, transport: &str, rest: &str) -> String {
    let address = address.to_string();
    format!(
        r#"
[[bgp.peer]]
name = "{name}"
address = "{address}"
asn = {asn}
transport = "{transport}"
tls-authorities = "authority.pem"
tls-name = "{name}.example"
import = "accept-all"
export = "accept-all"
{rest}"#
    )
}

fn configuration(asn: u32, peers: &[String]) -> String {
    let peers = peers.concat();
    format!(
        r#"
[router]
id = "10.0.0.{}"
asn = {asn}
[tls]
certificate = "certificate.pem"
key = "key.pem"
[bgp]
connect-retry = 1
quic-s2n-port = 1179
{peers}"#,
        asn - 64_999
    )
}

/// The feeder, as near has it.
fn feeding() -> String {
    let address = v4(3, Side::Second);
    format!(
        "[[bgp.peer]]\nname = \"feeder\"\naddress = \"{address}\"\nasn = 65003\npassive = true\nimport = \"accept-all\"\n"
    )
}

fn table(number: u8) -> Arc<Table> {
    Arc::new(Table::of_24s(number, ROUTES as u16))
}

/// Everything that runs.
struct Scene<'a> {
    transport: &'a str,
    star: &'a Star,
    authority: Signer,
    near: Router,
    far: Router,
    feeder: Speaker,
    tables: u8,
    builds: u8,
}

impl<'a> Scene<'a> {
    fn start(star: &'a Star, transport: &'a str) -> Result<Self> {
        let authority = Signer::new("Lab CA")?;
        let listening =
            |name, link, asn| peer(name, v4(link, Side::Second), asn, transport, "passive = true\n");
        let peers = [listening("far", 1, 65_001), listening("third", 2, 65_002), feeding()];
        let near = Router::start_with_files(
            &star.router,
            &configuration(65_000, &peers),
            &authority.files("near")?,
        )?;
        let far = dialing(star, &authority, transport, ("far", 1, 65_001))?;
        let feeder = star.speaker(3, 65003, |config| config.tables = vec![table(0)])?;
        let shown = near.until_established("far", LIMIT)?;
        ensure!(shown["transport"] == transport, "{shown}");
        let scene = Self { transport, star, authority, near, far, feeder, tables: 1, builds: 0 };
        scene.until_protected(&scene.near, &["far", "feeder"])?;
        scene.until_protected(&scene.far, &["near"])?;
        Ok(scene)
    }

    fn third(&self) -> Result<Router> {
        dialing(self.star, &self.authority, self.transport, ("third", 2, 65_002))
    }

    /// Waits until the sessions with these are up and protected.
    fn until_protected(&self, router: &Router, peers: &[&str]) -> Result<()> {
        wait::until("protected", LIMIT, || {
            let shown = router.show(&["nsr"]).map_err(|error| format!("{error:#}"))?;
            let sessions = shown["peers"].as_object().ok_or_else(|| shown.to_string())?;
            let is_so = |name: &&str| {
                sessions.values().any(|session| session["name"] == **name && session["protected"] == true)
            };
            if peers.iter().all(is_so) { Ok(()) } else { Err(shown.to_string()) }
        })
        .with_context(|| router.log_tail())
    }

    /// Routes that are announced now go through the session, which has not ended.
    fn goes_on(&mut self) -> Result<()> {
        self.feeder.announce(table(self.tables));
        self.tables += 1;
        let wanted = ROUTES * u64::from(self.tables);
        let family =
            |shown: &Value| shown["addressFamilyInfo"]["ipv4Unicast"]["acceptedPrefixCounter"].clone();
        let shown = self.far.until_neighbor("near", LIMIT, |shown| family(shown) == wanted)?;
        ensure!(shown["connectionsDropped"] == 0, "{shown}\n{}", self.near.log_tail());
        let shown = self.near.neighbor("far")?;
        ensure!(shown["bgpState"] == "Established" && shown["connectionsDropped"] == 0, "{shown}");
        Ok(())
    }

    /// Another build than all before.
    fn build(&mut self) -> Result<PathBuf> {
        self.builds += 1;
        let new = self.near.directory().join(format!("build-{}", self.builds));
        fs::copy(binary()?, &new)?;
        fs::OpenOptions::new().append(true).open(&new)?.write_all(&vec![b'\n'; self.builds.into()])?;
        Ok(new)
    }
}

fn dialing(
    star: &Star,
    authority: &Signer,
    transport: &str,
    (name, link, asn): (&str, u8, u32),
) -> Result<Router> {
    let near = peer("near", v4(link, Side::First), 65_000, transport, "");
    Router::start_with_files(star.neighbor(link), &configuration(asn, &[near]), &authority.files(name)?)
}

fn upgrade(router: &Router, build: &Path, arguments: &[&str]) -> Result<String> {
    let build = build.to_str().context("a path")?;
    router.cli(&[&["upgrade", "--binary", build], arguments].concat()).with_context(|| router.log_tail())
}

/// Peers whose sessions would stay with the old build, and those whose would end.
fn plan(router: &Router, build: &Path, arguments: &[&str]) -> Result<[Vec<String>; 2]> {
    let plan = upgrade(router, build, &[&["--dry-run", "--json"], arguments].concat())?;
    let plan: Value = serde_json::from_str(&plan)?;
    let peers = |key: &str| -> Result<Vec<String>> {
        let sessions = plan[key].as_array().context("a list")?.iter();
        let mut peers: Vec<_> =
            sessions.map(|session| session["peer"].as_str().unwrap_or("-").to_owned()).collect();
        peers.sort();
        Ok(peers)
    };
    Ok([peers("sessions_on_old_build")?, peers("sessions_ended")?])
}

/// Who carries the connection with a peer.
fn carrier(router: &Router, peer: &str) -> Result<String> {
    let shown = router.show(&["connections", peer])?;
    let all = shown["connections"].as_array().context("a list")?;
    ensure!(all.len() == 1, "{shown}");
    Ok(all[0]["process"].as_str().context("a name")?.to_owned())
}

fn until_old_has_ended(router: &Router, old: Pid) -> Result<()> {
    wait::until("the end of the old transport", LIMIT, || match test_kill_process(old) {
        Err(_) if router.pid(OLD).is_err() => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .with_context(|| router.log_tail())
}

/// Waits until a session is up that has ended so often.
fn again(router: &Router, peer: &str, ended: u64, limit: Duration) -> Result<()> {
    let again = |shown: &Value| shown["bgpState"] == "Established" && shown["connectionsDropped"] == ended;
    router.until_neighbor(peer, limit, again).map(drop)
}

fn over(transport: &str) -> Result<()> {
    let star = Star::new(3)?;
    let mut scene = Scene::start(&star, transport)?;
    scene.goes_on()?;

    // Who has dialled is upgraded, then who was dialled.
    let build = scene.build()?;
    for (router, peer) in [(&scene.far, "near"), (&scene.near, "far")] {
        let before = router.pid("transport")?;
        ensure!(
            plan(router, &build, &[])?[0] == [peer]
                && plan(router, &build, &["--now"])?[1].contains(&peer.to_owned())
        );
        let said = upgrade(router, &build, &[])?;
        ensure!(said.contains("carries its connections on"), "{said}");
        let shown = router.show(&["processes"])?;
        ensure!(
            shown[OLD]["state"] == "running" && shown[OLD]["build"] != shown["transport"]["build"],
            "{shown}"
        );
        ensure!(router.pid(OLD)? == before && router.pid("transport")? != before, "{shown}");
        ensure!(carrier(router, peer)? == OLD);
    }
    scene.goes_on().context("after both upgrades")?;

    // What is new is the next one's, at the same port.
    let third = scene.third()?;
    scene.near.until_established("third", LIMIT)?;
    ensure!(carrier(&scene.near, "third")? == "transport" && carrier(&scene.near, "far")? == OLD);

    // Its successors have nothing to do with what the old one carries, nor the old one with what is new.
    for process in ["bgp", "manager", "transport"] {
        scene.until_protected(&scene.near, &["far", "third"])?;
        let before = scene.near.pid(process)?;
        scene.near.kill(process)?;
        wait::until("another one", LIMIT, || match scene.near.pid(process) {
            Ok(pid) if pid != before => Ok(()),
            other => Err(format!("{other:?}")),
        })?;
        scene.near.wait_running()?;
        scene.goes_on().with_context(|| format!("after the death of {process}"))?;
    }
    again(&scene.near, "third", 1, LIMIT).context("the next transport has it")?;

    // Who carries it at the other end dies: who has it here is asked about it when the other one dials again.
    let old = scene.near.pid(OLD)?;
    scene.far.kill(OLD)?;
    again(&scene.near, "far", 1, SOON)?;
    ensure!(carrier(&scene.near, "far")? == "transport");
    until_old_has_ended(&scene.near, old)?;

    // The old one dies: that ends what it carries, and nothing else.
    scene.until_protected(&scene.near, &["far", "third"])?;
    let build = scene.build()?;
    upgrade(&scene.near, &build, &[])?;
    let old = scene.near.pid(OLD)?;
    scene.near.kill(OLD)?;
    until_old_has_ended(&scene.near, old)?;
    again(&scene.near, "far", 2, LIMIT)?;
    again(&scene.near, "third", 2, LIMIT)?;
    ensure!(carrier(&scene.near, "far")? == "transport");

    // The next old one ends with the last session that it carries.
    scene.until_protected(&scene.near, &["far", "third"])?;
    let build = scene.build()?;
    let planned = plan(&scene.near, &build, &[])?;
    ensure!(planned == [vec!["far".to_owned(), "third".to_owned()], vec![]], "{planned:?}");
    upgrade(&scene.near, &build, &[])?;
    let old = scene.near.pid(OLD)?;
    scene.near.cli(&["peer", "stop", "far"])?;
    scene.near.until_neighbor("far", LIMIT, |shown| shown["bgpState"] != "Established")?;
    ensure!(carrier(&scene.near, "third")? == OLD && scene.near.pid(OLD)? == old);
    scene.near.cli(&["peer", "start", "far"])?;
    scene.near.until_established("far", LIMIT)?;
    ensure!(carrier(&scene.near, "far")? == "transport");

    // There is room for one: what it carries would end with another upgrade, and does.
    scene.until_protected(&scene.near, &["far", "third"])?;
    let build = scene.build()?;
    let planned = plan(&scene.near, &build, &[])?;
    ensure!(planned == [vec!["far".to_owned()], vec!["third".to_owned()]], "{planned:?}");
    let dropped = scene.near.neighbor("far")?["connectionsDropped"].clone();
    upgrade(&scene.near, &build, &[])?;
    scene.near.until_established("third", LIMIT)?;
    ensure!(carrier(&scene.near, "third")? == "transport" && carrier(&scene.near, "far")? == OLD);

    // And nobody stays if nobody is to.
    let said = upgrade(&scene.near, &build, &["--now"])?;
    ensure!(said.contains(OLD) && scene.near.pid(OLD).is_err(), "{said}");
    let more = |shown: &Value| {
        shown["bgpState"] == "Established" && shown["connectionsDropped"].as_u64() > dropped.as_u64()
    };
    scene.near.until_neighbor("far", LIMIT, more)?;
    drop(third);
    Ok(())
}

#[test]
fn a_session_over_tls_stays_with_the_transport_of_the_build_before() -> Result<()> {
    over("tls")
}

#[test]
fn a_session_over_quic_stays_with_the_transport_of_the_build_before() -> Result<()> {
    over("quic")
}

#[test]
fn a_session_over_quic_by_the_other_library_stays_with_the_transport_of_the_build_before() -> Result<()> {
    over("quic-s2n")
}

#[test]
fn on_the_way_back_from_a_build_that_does_not_run_sessions_stay_where_they_were() -> Result<()> {
    let star = Star::new(3)?;
    let mut scene = Scene::start(&star, "quic")?;
    let before = scene.near.pid("transport")?;
    for fault in ["transport", "bgp"] {
        let refused = upgrade(&scene.near, &saboteur(&scene.near, fault)?, &[]);
        let text = format!("{:#}", refused.err().context("it does not run")?);
        ensure!(text.contains("the build before runs again"), "{fault}: {text}");
        scene.near.wait_running()?;
        ensure!(scene.near.pid(OLD)? == before && carrier(&scene.near, "far")? == OLD);
        scene.goes_on().with_context(|| fault.to_owned())?;
    }
    Ok(())
}

#[test]
fn a_reload_reaches_sessions_that_the_old_transport_carries() -> Result<()> {
    let star = Star::new(3)?;
    let mut scene = Scene::start(&star, "quic")?;
    let build = scene.build()?;
    upgrade(&scene.near, &build, &[])?;
    let old = scene.near.pid(OLD)?;
    // Another key as well, which the session that is up does not need.
    let files = scene.authority.files("near")?;
    let all = fs::read_to_string(scene.near.configuration())?;
    scene.near.reload_with_files(&all, &files)?;
    scene.goes_on()?;
    ensure!(scene.near.pid(OLD)? == old);
    scene.near.reload_with_files(&configuration(65_000, &[feeding()]), &files)?;
    scene.far.until_neighbor("near", SOON, |shown| shown["connectionsDropped"] == 1)?;
    until_old_has_ended(&scene.near, old)
}
