//! Route-flap damping beside BIRD, with timers of seconds.
//!
//! ```text
//!  flapper (BIRD, AS 65001) ──1── Holdfast ──2── sink (AS 65003)
//! ```

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    peers::Bird,
    router::Router,
    speaker::Speaker,
    topology::{ROUTER, Star},
    wait,
};
use holdfast_types::Prefix;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
const SINK: u32 = 65003;
const FLAPPING: &str = "203.0.113.0/24";
const STABLE: &str = "198.51.100.0/24";

/// Three withdrawals within a second or two are too many; at least two half-lives later is the route used again.
const DAMPING: &str = r#"
[bgp.damping]
half-life = 5
suppress = 2500
reuse = 500
max-suppress = 20
"#;

const PEERS: &str = r#"
[[bgp.peer]]
name = "flapper"
address = "10.0.1.2"
asn = 65001
import = "accept-all"

[[bgp.peer]]
name = "sink"
address = "10.0.2.2"
asn = 65003
passive = true
import = "reject-all"
export = "accept-all"
"#;

const FLAPPER: &str = r#"
router id 10.0.1.2;
protocol device { scan time 1; }
protocol static {
  ipv4; route 198.51.100.0/24 blackhole;
include "routes.conf";
}
protocol bgp holdfast {
  local 10.0.1.2 as 65001; neighbor 10.0.1.1 as 65000;
  connect retry time 1; connect delay time 1;
  ipv4 { import none; export where source = RTS_STATIC; };
}
"#;

/// The three of them, with the stable route at the sink.
struct Scene {
    router: Router,
    flapper: Bird,
    sink: Speaker,
    _star: Star,
}

impl Scene {
    fn new(damping: &str) -> Result<Self> {
        let star = Star::new(2)?;
        let router = Router::start(&star.router, &[ROUTER, damping, PEERS].concat())?;
        let sink = star.speaker(2, SINK, |_| ())?;
        let flapper = Bird::start_with(star.neighbor(1), FLAPPER, &[("routes.conf", "")])?;
        let scene = Self { router, flapper, sink, _star: star };
        scene.until_told(STABLE, true)?;
        Ok(scene)
    }

    /// The route comes or goes.
    fn set(&self, up: bool) -> Result<()> {
        let text = if up { format!("route {FLAPPING} blackhole;") } else { String::new() };
        self.flapper.reconfigure("routes.conf", &text)
    }

    /// Comes and goes, until the router has seen both.
    fn flap(&self) -> Result<()> {
        self.set(true)?;
        self.until_router("the route", |shown| shown.is_some())?;
        self.set(false)?;
        self.until_router("no route", |shown| shown.is_none())
    }

    fn until_router(&self, what: &str, wanted: impl Fn(Option<&Value>) -> bool) -> Result<()> {
        wait::until(what, LIMIT, || {
            let shown = self.router.show(&["bgp", "route", FLAPPING]).ok();
            let path = shown.as_ref().and_then(|shown| shown["paths"].get(0));
            if wanted(path) { Ok(()) } else { Err(format!("{path:?}")) }
        })
        .with_context(|| self.router.log_tail())
    }

    fn until_told(&self, prefix: &str, wanted: bool) -> Result<()> {
        let prefix: Prefix = prefix.parse()?;
        wait::until("what the sink is told", LIMIT, || match self.sink.route(prefix).is_some() {
            told if told == wanted => Ok(()),
            told => Err(format!("{prefix}: {told}")),
        })
        .with_context(|| self.router.log_tail())
    }

    /// The entry of the flapping route, and that there is no other.
    fn dampened(&self, more: &[&str]) -> Result<Option<Value>> {
        let shown = self.router.show(&[&["bgp", "dampened"], more].concat())?;
        let routes = shown["routes"].as_object().context("routes")?;
        ensure!(routes.keys().all(|prefix| prefix == FLAPPING), "{shown}");
        Ok(routes.get(FLAPPING).map(|paths| paths[0].clone()))
    }
}

fn is_damped(path: Option<&Value>) -> bool {
    let reason = path.and_then(|path| path["reason"].as_str()).unwrap_or_default();
    reason.starts_with("damped (reuse in ")
}

fn is_best(path: Option<&Value>) -> bool {
    path.is_some_and(|path| path["bestpath"]["overall"] == true)
}

#[test]
fn a_flapping_route_is_held_back_and_used_again_and_nobody_else_notices() -> Result<()> {
    let scene = Scene::new(DAMPING)?;
    scene.flap()?;
    let once = scene.dampened(&["--all"])?.context("a history")?;
    ensure!(once["dampened"] == false && once["dampeningFlapCount"] == 1, "{once}");
    ensure!(scene.dampened(&[])?.is_none(), "one flap is no reason to hold a route back");
    // More often than three times where the machine is slow.
    while scene.dampened(&[])?.is_none() {
        scene.flap()?;
    }
    scene.set(true)?;
    scene.until_router("damped", is_damped)?;
    let held = scene.dampened(&[])?.context("a damped route")?;
    let flaps = held["dampeningFlapCount"].as_u64();
    ensure!(flaps.is_some_and(|flaps| (3..12).contains(&flaps)) && held["peerName"] == "flapper", "{held}");
    ensure!(scene.sink.route(FLAPPING.parse()?).is_none() && scene.sink.route(STABLE.parse()?).is_some());
    // Without anything happening, when its time has come.
    scene.until_told(FLAPPING, true)?;
    scene.until_router("best", is_best)?;
    wait::until("forgotten", LIMIT, || match scene.dampened(&["--all"]) {
        Ok(None) => Ok(()),
        other => Err(format!("{other:?}")),
    })
}

#[test]
fn the_operator_and_the_configuration_may_let_routes_go() -> Result<()> {
    // So that nothing is let go by itself.
    let scene = Scene::new(&DAMPING.replace("half-life = 5", "half-life = 300").replace("= 20", "= 900"))?;
    let damp = || {
        for _ in 0..3 {
            scene.flap()?;
        }
        scene.set(true)?;
        scene.until_router("damped", is_damped)
    };
    damp()?;
    scene.router.cli(&["clear", "bgp", "dampened", FLAPPING])?;
    scene.until_router("cleared", is_best)?;
    scene.set(false)?;
    scene.until_router("no route", |shown| shown.is_none())?;
    damp()?;
    scene.router.cli(&["clear", "bgp", "dampened"])?;
    scene.until_router("cleared", is_best)?;
    scene.set(false)?;
    scene.until_router("no route", |shown| shown.is_none())?;
    damp()?;
    // Another policy is no flap, and the session stays.
    let file = scene.router.configuration();
    let text = std::fs::read_to_string(&file)?;
    let changed = text.replace("asn = 65001", "asn = 65001\ndamping = false");
    ensure!(changed != text);
    std::fs::write(&file, changed)?;
    scene.router.cli(&["reload"])?;
    scene.until_router("not damped any more", is_best)?;
    let peer = scene.router.neighbor("flapper")?;
    ensure!(peer["connectionsEstablished"] == 1, "{peer}");
    Ok(())
}

#[test]
fn a_new_bgp_process_begins_with_no_history_and_counts_no_replay() -> Result<()> {
    let scene = Scene::new(&DAMPING.replace("half-life = 5", "half-life = 300").replace("= 20", "= 900"))?;
    for _ in 0..3 {
        scene.flap()?;
    }
    scene.set(true)?;
    scene.until_router("damped", is_damped)?;
    scene.router.kill("bgp")?;
    // All of that is in the log, and replayed within milliseconds.
    scene.until_router("used", is_best)?;
    ensure!(scene.dampened(&["--all"])?.is_none(), "replayed flaps were counted");
    scene.flap()?;
    let once = scene.dampened(&["--all"])?.context("a history")?;
    ensure!(once["dampeningFlapCount"] == 1, "{once}");
    Ok(())
}
