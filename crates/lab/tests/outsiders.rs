//! Programs of others around a running router: scripts, a client, and a protocol that no line of the router knows.
//!
//! ```text
//!  BIRD ──1── Holdfast ──2── (an interface for routes)
//!  AS 65001   AS 65000
//!                │ protocol-toy.sock
//!             toy.py
//! ```

mod described;
mod raw;

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    kernel::{self, Monitor},
    netns::{Namespace, output},
    peers::Bird,
    router::{Router, binary},
    topology::{ROUTER, Star},
    wait,
};

const LIMIT: Duration = Duration::from_secs(30);
const PROTOCOL: &str = r#"
[rib]
stale-time = 6
[[protocol]]
name = "toy"
[[bgp.redistribute]]
from = "toy"
policy = "from-toy"
[[bgp.redistribute]]
from = "static"
policy = "accept-all"
[[static]]
prefix = "192.0.2.0/24"
interface = "n2"
tag = 7
[[static]]
prefix = "192.0.3.0/24"
interface = "n2"
tag = 8
[[policy]]
name = "from-toy"
[[policy.term]]
from = { protocol = "toy", tag = [42, 43] }
then = { add-communities = ["65000:42"], med = 77, action = "accept" }
[[policy]]
name = "out"
[[policy.term]]
from = { protocol = "toy", tag = [42] }
then = "accept"
[[policy.term]]
from = { protocol = "static", tag = [7] }
then = "accept"
"#;

const PEER: &str = r#"
[[bgp.peer]]
name = "bird"
address = "10.0.1.2"
asn = 65001
import = "accept-all"
export = "out"
"#;

fn configuration() -> String {
    format!("{ROUTER}{PROTOCOL}{PEER}")
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// The interpreter that has Debian's packages, unless another one is named.
fn python() -> String {
    std::env::var("HOLDFAST_PYTHON").unwrap_or_else(|_| "/usr/bin/python3".to_owned())
}

/// `examples/toy-protocol/toy.py` at work.
struct Toy {
    child: Child,
    said: Arc<Mutex<Vec<String>>>,
}

impl Toy {
    /// Starts it with these lines as what it knows already, and waits until the rib has them.
    fn start(router: &Router, routes: &str) -> Result<Self> {
        let toy = Self::spawn(router, routes)?;
        toy.until("synced")?;
        Ok(toy)
    }

    fn spawn(router: &Router, routes: &str) -> Result<Self> {
        let file = router.directory().join("toy-routes");
        fs::write(&file, routes)?;
        let mut command = Command::new(python());
        command.arg(examples().join("toy-protocol/toy.py")).arg("--routes").arg(file);
        command.arg("--runtime-dir").arg(router.directory());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("toy.py")?;
        let (said, lines) = (Arc::<Mutex<Vec<String>>>::default(), child.stdout.take().context("stdout")?);
        let heard = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in BufReader::new(lines).lines().map_while(Result::ok) {
                heard.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        Ok(Self { child, said })
    }

    fn tell(&mut self, line: &str) -> Result<()> {
        Ok(writeln!(self.child.stdin.as_mut().context("stdin")?, "{line}")?)
    }

    /// Waits until it says something with this in it; that is forgotten then, with all before it.
    fn until(&self, text: &str) -> Result<String> {
        wait::until(text, LIMIT, || {
            let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            let found = said.iter().position(|line| line.contains(text));
            let found = found.ok_or_else(|| format!("{said:?}"))?;
            Ok(said.drain(..=found).next_back().unwrap_or_default())
        })
    }

    fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Toy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn in_kernel(host: &Namespace, prefix: &str) -> Result<Option<String>> {
    Ok(kernel::routes(host, prefix.contains(':'))?.get(&prefix.parse()?).cloned())
}

fn until_kernel(host: &Namespace, prefix: &str, wanted: impl Fn(Option<&str>) -> bool) -> Result<()> {
    wait::until(prefix, LIMIT, || {
        let found = in_kernel(host, prefix).map_err(|error| error.to_string())?;
        if wanted(found.as_deref()) { Ok(()) } else { Err(format!("{found:?}")) }
    })
}

fn until_bird(bird: &Bird, prefix: &str, wanted: impl Fn(&str) -> bool) -> Result<()> {
    wait::until(prefix, LIMIT, || {
        let shown = in_bird(bird, prefix);
        if wanted(&shown) { Ok(()) } else { Err(shown) }
    })
}

/// What BIRD has of a prefix: nothing if it has no route, which it calls an error.
fn in_bird(bird: &Bird, prefix: &str) -> String {
    bird.birdc(&format!("show route all {prefix}")).unwrap_or_default()
}

fn has(bird: &Bird, prefix: &str) -> bool {
    in_bird(bird, prefix).contains("unicast")
}

const ROUTES: &str = "add 198.51.100.0/24 dev n2 tag 42\nadd 203.0.113.0/24 via 10.0.2.2 tag 42\nadd 198.18.0.0/15 dev n2 tag 43\nadd 2001:db8:99::/48 dev n2 tag 42\n";

#[test]
fn a_protocol_of_somebody_else_reaches_the_kernel_and_peers_and_may_die() -> Result<()> {
    let star = Star::new(2)?;
    let bird = star.bird(1, 65001, &["100.64.0.0/10"], "debug { routes };")?;
    let router = Router::start(&star.router, &configuration())?;
    router.until_established("bird", LIMIT)?;
    let mut toy = Toy::start(&router, ROUTES)?;

    // Routes that name an interface only, and such with a gateway.
    until_kernel(&star.router, "198.51.100.0/24", |route| route.is_some_and(|r| r.contains("dev n2")))?;
    until_kernel(&star.router, "203.0.113.0/24", |route| route.is_some_and(|r| r.contains("via 10.0.2.2")))?;
    until_kernel(&star.router, "2001:db8:99::/48", |route| route.is_some_and(|r| r.contains("dev n2")))?;
    let shown = router.cli(&["show", "route", "198.51.100.0/24"])?;
    ensure!(shown.contains("connected, n2, tag 42") && shown.contains("120/0"), "{shown}");

    // The tag takes them to the peer; what the policy of redistribution does is on them.
    until_bird(&bird, "198.51.100.0/24", |route| {
        route.contains("(65000,42)") && route.contains("BGP.med: 77") && route.contains("Incomplete")
    })?;
    until_bird(&bird, "192.0.2.0/24", |route| route.contains("unicast"))?;
    ensure!(!has(&bird, "198.18.0.0/15") && !has(&bird, "192.0.3.0/24"), "other tags stay here");
    let table = router.show(&["bgp", "routes"])?;
    ensure!(table["routes"]["198.51.100.0/24"][0]["peerName"] == "toy", "{table}");

    // It is a component like others, and speaks in its own name only.
    let components = router.cli(&["call", "--list"])?;
    ensure!(components.contains("class toy"), "{components}");

    // Figure 8: an answer holds for a range, until it is said that it does not.
    toy.tell("watch 100.64.1.1")?;
    toy.until("100.64.1.1 is reached")?;
    toy.tell("add 100.64.0.0/16 dev n2")?;
    toy.until("invalidated")?;
    toy.until("100.64.1.1 is reached by 100.64.0.0/16")?;
    toy.tell("del 100.64.0.0/16")?;
    toy.until("invalidated")?;
    until_kernel(&star.router, "100.64.0.0/16", |route| route.is_none())?;

    // Dead, its routes stay; back in time, nobody notices.
    let peer_log = bird.log();
    let monitor = Monitor::start(&star.router)?;
    toy.kill()?;
    wait::until("stale", LIMIT, || {
        let shown = router.show(&["route", "198.51.100.0/24"]).map_err(|error| error.to_string())?;
        if shown["198.51.100.0/24"][0]["stale"] == true { Ok(()) } else { Err(shown.to_string()) }
    })?;
    ensure!(in_kernel(&star.router, "198.51.100.0/24")?.is_some());
    let toy = Toy::start(&router, ROUTES)?;
    // A second one waits for the death of the first.
    let heir = Toy::spawn(&router, ROUTES)?;
    heir.until("waiting")?;
    toy.kill()?;
    heir.until("synced")?;
    wait::until("fresh", LIMIT, || {
        let shown = router.show(&["route", "198.51.100.0/24"]).map_err(|error| error.to_string())?;
        if shown["198.51.100.0/24"][0]["stale"].is_null() { Ok(()) } else { Err(shown.to_string()) }
    })?;
    let changes = monitor.changes()?;
    ensure!(changes.deleted.is_empty() && changes.written.is_empty(), "{changes:?}");
    ensure!(bird.log() == peer_log, "the peer has noticed: {}", bird.log());

    // Dead for good, they leave when the time is over.
    heir.kill()?;
    until_kernel(&star.router, "198.51.100.0/24", |route| route.is_none())?;
    until_bird(&bird, "198.51.100.0/24", |route| !route.contains("unicast"))?;
    ensure!(in_kernel(&star.router, "192.0.2.0/24")?.is_some() && has(&bird, "192.0.2.0/24"));
    Ok(())
}

#[test]
fn redistributed_routes_outlive_the_deaths_of_rib_bgp_and_manager() -> Result<()> {
    let star = Star::new(2)?;
    let bird = star.bird(1, 65001, &[], "debug { routes };")?;
    let router = Router::start(&star.router, &configuration())?;
    router.until_established("bird", LIMIT)?;
    let mut toy = Toy::start(&router, ROUTES)?;
    until_bird(&bird, "198.51.100.0/24", |route| route.contains("(65000,42)"))?;
    until_bird(&bird, "192.0.2.0/24", |route| route.contains("unicast"))?;
    let before = bird.log();
    ensure!(before.contains("198.51.100.0/24"), "its log tells of routes: {before}");
    for process in ["rib", "bgp", "manager"] {
        let pid = router.pid(process)?;
        router.kill(process)?;
        wait::until(process, LIMIT, || match router.pid(process) {
            Ok(now) if now != pid => Ok(()),
            other => Err(format!("{other:?}")),
        })?;
        router.wait_running()?;
        router.until_established("bird", LIMIT)?;
        if process == "rib" {
            toy.until("synced")?;
        }
        // A change that comes after all that was said anew.
        wait::until("everything is known", LIMIT, || {
            let shown = router.show(&["bgp", "routes"]).map_err(|error| error.to_string())?;
            let here = ["198.51.100.0/24", "192.0.2.0/24"].iter().all(|p| shown["routes"][p].is_array());
            if here { Ok(()) } else { Err(shown.to_string()) }
        })?;
    }
    // What comes last shows that all before it has been said.
    toy.tell("add 198.51.101.0/24 dev n2 tag 42")?;
    until_bird(&bird, "198.51.101.0/24", |route| route.contains("(65000,42)"))?;
    ensure!(has(&bird, "198.51.100.0/24") && has(&bird, "192.0.2.0/24"));
    let log = bird.log();
    let about = |line: &&str| line.contains("198.51.100.0/24") || line.contains("192.0.2.0/24");
    let noticed: Vec<_> = log[before.len()..].lines().filter(about).collect();
    ensure!(noticed.is_empty(), "{noticed:#?}");
    Ok(())
}

#[test]
fn a_reload_opens_and_closes_sockets_and_changes_what_is_redistributed() -> Result<()> {
    let star = Star::new(2)?;
    let bird = star.bird(1, 65001, &[], "")?;
    let router = Router::start(&star.router, &configuration())?;
    router.until_established("bird", LIMIT)?;
    let toy = Toy::start(&router, ROUTES)?;
    until_bird(&bird, "198.51.100.0/24", |route| route.contains("(65000,42)"))?;
    let reload = |text: &str| {
        fs::write(router.configuration(), text)?;
        router.cli(&["reload"])
    };
    let said = reload(&configuration().replace("\"65000:42\"", "\"65000:99\""))?;
    ensure!(said.contains("policies changed: from-toy"), "{said}");
    until_bird(&bird, "198.51.100.0/24", |route| route.contains("(65000,99)"))?;
    // Without redistribution and without the socket.
    let protocol =
        "[[protocol]]\nname = \"toy\"\n[[bgp.redistribute]]\nfrom = \"toy\"\npolicy = \"from-toy\"\n";
    let said = reload(&configuration().replace(protocol, "[[protocol]]\nname = \"other\"\n"))?;
    ensure!(said.contains("protocols added: other") && said.contains("protocols removed: toy"), "{said}");
    until_bird(&bird, "198.51.100.0/24", |route| !route.contains("unicast"))?;
    ensure!(has(&bird, "192.0.2.0/24"), "static routes are redistributed on");
    let socket = |name: &str| router.directory().join(format!("protocol-{name}.sock"));
    ensure!(!socket("toy").exists() && socket("other").exists());
    drop(toy);
    let directory = router.directory().to_owned();
    router.stop()?;
    ensure!(!directory.join("protocol-other.sock").exists());
    Ok(())
}

#[test]
fn a_route_server_keeps_its_table_out_of_the_kernel() -> Result<()> {
    let star = Star::new(2)?;
    let routes = ["198.51.100.0/24", "203.0.113.0/24"];
    let bird = star.bird(1, 65001, &routes, "")?;
    let policy = "[[policy]]\nname = \"some\"\n[[policy.term]]\nfrom = { prefix = [\"203.0.113.0/24\"] }\n\
        then = { tag = 5, med = 33, action = \"accept\" }\n";
    let with = |name: &str| {
        format!("{ROUTER}rib-policy = \"{name}\"\n{policy}{}", PEER.replace("\"out\"", "\"accept-all\""))
    };
    let router = Router::start(&star.router, &with("reject-all"))?;
    router.until_neighbor("bird", LIMIT, |shown| {
        shown["addressFamilyInfo"]["ipv4Unicast"]["acceptedPrefixCounter"] == 2
    })?;
    ensure!(kernel::routes(&star.router, false)?.is_empty(), "nothing of it is in the kernel");
    fs::write(router.configuration(), with("some"))?;
    router.cli(&["reload"])?;
    until_kernel(&star.router, "203.0.113.0/24", |route| route.is_some())?;
    let shown = router.cli(&["show", "route", "203.0.113.0/24"])?;
    ensure!(shown.contains("20/33") && shown.contains("tag 5"), "{shown}");
    ensure!(in_kernel(&star.router, "198.51.100.0/24")?.is_none());
    fs::write(router.configuration(), with("reject-all"))?;
    router.cli(&["reload"])?;
    until_kernel(&star.router, "203.0.113.0/24", |route| route.is_none())?;
    drop(bird);
    Ok(())
}

#[test]
fn a_script_and_a_client_of_others_drive_a_router() -> Result<()> {
    let star = Star::new(2)?;
    let _bird = star.bird(1, 65001, &["198.51.100.0/24"], "")?;
    let router = Router::start(&star.router, &configuration())?;
    router.until_established("bird", LIMIT)?;
    let script = |args: &[&str]| {
        let mut command = Command::new(examples().join("shell/router.sh"));
        output(command.args(args).env("HOLDFAST", binary()?).env("HOLDFAST_RUNTIME_DIR", router.directory()))
    };
    let processes = script(&["processes"])?;
    ensure!(
        ["keeper", "manager", "fea", "rib", "transport", "bgp"].iter().all(|name| processes.contains(name)),
        "{processes}"
    );
    ensure!(script(&["neighbors"])?.contains("bird Established"));
    ensure!(script(&["routes", "static"])?.contains("192.0.2.0/24"));
    ensure!(script(&["clear", "bird"])?.contains("bird"));
    router.until_established("bird", LIMIT)?;
    let mut command = Command::new(python());
    command.arg(examples().join("python/summary.py")).arg("--runtime-dir").arg(router.directory());
    let summary = output(&mut command)?;
    ensure!(
        summary.contains("AS 65000") && summary.contains("bird") && summary.contains("Established"),
        "{summary}"
    );
    // It watches: the death of a process, and its next life.
    let log = router.directory().join("watched");
    let mut watching = command.arg("--watch").stdout(fs::File::create(&log)?).spawn()?;
    let seen = |text: &str| {
        wait::until(text, LIMIT, || {
            let said = fs::read_to_string(&log).map_err(|error| error.to_string())?;
            if said.contains(text) { Ok(()) } else { Err(said) }
        })
    };
    let watched = seen("bgp-").and_then(|()| {
        let pid = router.pid("bgp")?.as_raw_nonzero();
        router.kill("bgp")?;
        seen(&format!("bgp-{pid} died"))
    });
    watching.kill()?;
    watching.wait()?;
    watched
}

#[test]
fn no_line_of_the_router_knows_the_protocol() -> Result<()> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut grep = Command::new("grep");
    let found = grep.args(["-rliw", "toy", "--include=*.rs"]).args(
        fs::read_dir(&crates)?
            .filter_map(|entry| Some(entry.ok()?.path().join("src")))
            .filter(|path| path.exists()),
    );
    let found = String::from_utf8(found.output()?.stdout)?;
    ensure!(found.is_empty(), "{found}");
    Ok(())
}
