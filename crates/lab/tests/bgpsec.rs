//! Signed paths from the wire to the table: a peer that signs, a cache with its keys, and deaths of all that is between.
//!
//! ```text
//!  10.0.1.2: speaker, AS 64511, and spki-cache ── 10.0.1.1, AS 65000: Holdfast
//! ```

mod chains;
mod inside;
mod keys;
mod listener;
mod reconstruction;
mod second;
mod sessions;
mod stable;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    router::{Router, binary},
    topology::{ROUTER, Star},
    wait,
};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
const GOOD: &str = "203.0.113.0/24";
const UNKNOWN: &str = "198.51.100.0/24";
/// Signed for another prefix than it is announced with.
const REPEATED: &str = "192.0.2.0/24";

fn configuration(validation: &str) -> String {
    format!(
        r#"{ROUTER}
[[bgp.peer]]
name = "signer"
address = "10.0.1.2"
asn = 64511
passive = true
import = "accept-all"
export = "accept-all"
bgpsec = {{ receive = true, require-session = true }}
bgpsec-validation = "{validation}"
[[rpki.cache]]
name = "keys"
address = "10.0.1.2"
port = 8282
preference = 10
refresh = 1
retry = 1
"#
    )
}

/// A process of ours in the neighbour's host, which ends with it.
struct Running(Child);

impl Running {
    fn start(mut command: Command) -> Result<Self> {
        Ok(Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?))
    }

    /// It has not ended.
    fn still_runs(&mut self) -> Result<()> {
        if let Some(status) = self.0.try_wait()? {
            let said = self.0.stderr.take().map(std::io::read_to_string).transpose()?;
            anyhow::bail!("it has ended ({status}): {}", said.unwrap_or_default());
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory that goes with it.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("holdfast-lab-bgpsec-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("keys"))?;
        Ok(Self(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Makes a key of an AS: the private one for scripts; the public one's file, for the cache.
fn key(directory: &Path, asn: u32) -> Result<PathBuf> {
    let made = directory.join(format!("made-{asn}"));
    let output = Command::new(binary()?)
        .args(["keygen", "1", made.to_str().context("text")?, "--as", &asn.to_string()])
        .output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut public = None;
    for entry in fs::read_dir(&made)? {
        let file = entry?.path();
        let name = file.to_string_lossy().into_owned();
        if name.ends_with(".sec1.pem") {
            fs::copy(&file, directory.join(format!("{asn}.pem")))?;
        } else if name.ends_with(".spki.pem") {
            public = Some(file);
        }
    }
    public.context("a public key")
}

fn serve(directory: &Path, public: &Path) -> Result<PathBuf> {
    let served = directory.join("keys").join(public.file_name().context("a name")?);
    fs::copy(public, &served)?;
    Ok(served)
}

/// State of the one path of a prefix, and whether it is best.
fn state(router: &Router, prefix: &str) -> Result<(Value, bool)> {
    let shown = router.show(&["bgp", "route", prefix])?;
    let path = shown["paths"].get(0).with_context(|| format!("no path: {shown}"))?;
    Ok((path["bgpsec"].clone(), path["bestpath"]["overall"] == true))
}

fn until(router: &Router, prefix: &str, wanted: (&str, bool)) -> Result<Value> {
    let found = wait::until(&format!("{prefix} {}", wanted.0), LIMIT, || {
        let (bgpsec, best) = state(router, prefix).map_err(|error| format!("{error:#}"))?;
        let is_there = bgpsec["state"] == wanted.0 && bgpsec["pending"] == false && best == wanted.1;
        if is_there { Ok(bgpsec) } else { Err(format!("{bgpsec}, best: {best}")) }
    });
    found.with_context(|| router.log_tail())
}

#[test]
fn signed_paths_are_verified_and_states_outlive_every_process() -> Result<()> {
    let (star, directory) = (Star::new(1)?, Directory::new("states")?);
    let origin = key(&directory.0, 64496)?;
    serve(&directory.0, &key(&directory.0, 64511)?)?;
    let served = serve(&directory.0, &origin)?;
    key(&directory.0, 64499)?;
    let program = binary()?;
    let program = program.to_str().context("the path is text")?;
    let mut cache = star.neighbor(1).command(program);
    cache
        .args(["spki-cache", "--listen", "10.0.1.2:8282", "--look", "1", "--notify", "1"])
        .arg(directory.0.join("keys"));
    let mut cache = Running::start(cache)?;
    let router = Router::start(&star.router, &configuration("require"))?;

    let script = format!(
        "connect 10.0.1.1\nopen as 64511 hold 30 family ipv4-unicast bgpsec send ipv4 capability 64:0000\nestablish\n\
         await end-of-rib ipv4-unicast\n\
         send update {GOOD} bgpsec key 64496.pem as 64496 key 64511.pem\n\
         send update {UNKNOWN} bgpsec key 64499.pem as 64499 key 64511.pem\n\
         send update {REPEATED} bgpsec to 65009 key 64496.pem as 64496 key 64511.pem\n\
         expect nothing for 300s\n"
    );
    fs::write(directory.0.join("script"), script)?;
    let mut speaker = star.neighbor(1).command(program);
    speaker.args(["speaker", "--timeout", "400s"]).arg(directory.0.join("script"));
    let mut speaker = Running::start(speaker)?;

    until(&router, GOOD, ("valid", true))?;
    let fault = until(&router, UNKNOWN, ("not-valid", false))?;
    ensure!(
        fault["failing_hop"] == 1 && fault["asn"] == 64499 && fault["reason"] == "this AS has no such key",
        "{fault}"
    );
    let fault = until(&router, REPEATED, ("not-valid", false))?;
    ensure!(fault["failing_hop"] == 0 && fault["reason"] == "the signature is bad", "{fault}");
    let neighbor = router.neighbor("signer")?;
    ensure!(neighbor["bgpsec"]["received"] == serde_json::json!(["ipv4-unicast"]), "{neighbor}");
    let shown = router.show(&["bgpsec"])?;
    ensure!(shown["router_keys"] == 2 && shown["peers"][0]["valid"] == 1, "{shown}");
    ensure!(shown["peers"][0]["not_valid"] == 2 && shown["queued_hops"] == 0, "{shown}");

    // Keys come and go.
    fs::remove_file(&served)?;
    until(&router, GOOD, ("not-valid", false))?;
    serve(&directory.0, &origin)?;
    until(&router, GOOD, ("valid", true))?;

    // Nobody's death changes what is known, and nothing is verified again.
    let verified = |router: &Router| -> Result<u64> {
        router.show(&["bgpsec"])?["verified"].as_u64().context("a number")
    };
    for process in ["bgp", "rpki", "pathsec"] {
        let before = if process == "pathsec" { 0 } else { verified(&router)? };
        router.kill(process)?;
        wait::until("all processes are back", LIMIT, || {
            let shown = router.show(&["bgpsec"]).map_err(|error| format!("{error:#}"))?;
            let is_back = shown["router_keys"] == 2 && shown["queued_hops"] == 0;
            if is_back { Ok(()) } else { Err(shown.to_string()) }
        })
        .with_context(|| router.log_tail())?;
        until(&router, GOOD, ("valid", true))?;
        until(&router, UNKNOWN, ("not-valid", false))?;
        speaker
            .still_runs()
            .with_context(|| format!("after the death of {process}: {}", router.log_tail()))?;
        let after = verified(&router)?;
        // A bad signature is not remembered, and after a death of bgp it is asked about once more.
        ensure!(after <= before + 2, "after the death of {process}: {before}, {after}");
    }
    cache.still_runs()?;

    // By another rule the routes that are not valid are used.
    fs::write(router.configuration(), configuration("log"))?;
    router.cli(&["reload"])?;
    until(&router, UNKNOWN, ("not-valid", true))?;
    until(&router, GOOD, ("valid", true))?;
    speaker.still_runs()
}

#[test]
fn a_session_without_what_it_has_to_have_does_not_come_up() -> Result<()> {
    let (star, directory) = (Star::new(1)?, Directory::new("refused")?);
    let router = Router::start(&star.router, &configuration("log"))?;
    let script = "connect 10.0.1.1\nopen as 64511 family ipv4-unicast\nsend open\nexpect open capability 7\n\
                  expect notification 2 7\nexpect close\n";
    fs::write(directory.0.join("script"), script)?;
    let program = binary()?;
    let mut speaker = star.neighbor(1).command(program.to_str().context("the path is text")?);
    let output = speaker.arg("speaker").arg(directory.0.join("script")).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    ensure!(
        router.neighbor("signer")?["bgpsec"]["received"] == serde_json::json!([]),
        "nothing is agreed on"
    );
    Ok(())
}

#[test]
fn what_bgp_knows_is_shown_while_pathsec_hangs_and_is_counted() -> Result<()> {
    // So that nobody ends it meanwhile.
    let configuration = configuration("log").replace("asn = 65000\n", "asn = 65000\nhang-limit = 0\n");
    let star = Star::new(1)?;
    let router = Router::start(&star.router, &configuration)?;
    let pathsec = router.pid("pathsec")?;
    kill_process(pathsec, Signal::STOP)?;
    let begin = Instant::now();
    let shown = router.show(&["bgpsec"])?;
    // One second, and what a busy machine needs to start the program.
    ensure!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    let expected = serde_json::json!({
        "router_keys": null, "verified": null, "remembered": null, "failed": null, "signed": null,
        "private_keys": null, "memory_octets": null, "kept": 0, "lost": 0, "waiting": 0, "kept_octets": 0,
        "queued_hops": 0,
        "peers": [{
            "name": "signer", "sent": [], "received": [], "valid": 0, "not_valid": 0, "unverified": 0,
            "queued_hops": 0, "incomplete": false,
        }],
    });
    ensure!(shown == expected, "{shown}");
    let text = router.cli(&["show", "bgpsec"])?;
    ensure!(text.contains("not known (") && text.contains("signer"), "{text}");
    kill_process(pathsec, Signal::CONT)?;
    let shown = router.show(&["bgpsec"])?;
    ensure!(shown["router_keys"] == 0 && shown["memory_octets"].is_u64(), "{shown}");
    for count in ["valid", "not_valid", "unverified", "queued_hops", "incomplete"] {
        let name = format!("holdfast_bgp_bgpsec_{count}");
        let counters = router.cli(&["show", "counters", &name])?;
        ensure!(counters.contains(&name) && counters.contains("signer"), "{counters}");
    }
    // While there is none, nobody waits for the next one.
    router.kill("pathsec")?;
    let begin = Instant::now();
    let shown = router.show(&["bgpsec"])?;
    ensure!(begin.elapsed() < Duration::from_secs(5) && shown["peers"][0]["name"] == "signer", "{shown}");
    Ok(())
}

/// RFC 8206 section 5.4, while AS 64510 becomes AS 64500: the router is both PE-1, to CE-1, and PE-2, to another PE-1.
#[test]
fn paths_of_an_as_that_migrates_are_verified() -> Result<()> {
    const INBOUND: &str = "203.0.113.0/24";
    const FOR_NEW: &str = "198.51.100.0/24";
    const HIDDEN: &str = "192.0.2.0/24";
    let (star, directory) = (Star::new(2)?, Directory::new("migration")?);
    for asn in [64496, 64497, 64510] {
        serve(&directory.0, &key(&directory.0, asn)?)?;
    }
    let program = binary()?;
    let program = program.to_str().context("the path is text")?;
    let mut cache = star.neighbor(1).command(program);
    cache.args(["spki-cache", "--listen", "10.0.1.2:8282"]).arg(directory.0.join("keys"));
    let mut cache = Running::start(cache)?;
    let configuration = r#"
[router]
id = "10.0.0.1"
asn = 64500
[bgp]
[[bgp.group]]
name = "signers"
passive = true
import = "accept-all"
export = "reject-all"
bgpsec = { receive = true }
bgpsec-validation = "log"
[[bgp.peer]]
name = "ce-1"
group = "signers"
address = "10.0.1.2"
asn = 64496
local-asn = 64510
[[bgp.peer]]
name = "pe-1"
group = "signers"
address = "10.0.2.2"
asn = 64500
[[rpki.cache]]
name = "keys"
address = "10.0.1.2"
port = 8282
retry = 1
"#;
    let router = Router::start(&star.router, configuration)?;
    let scripts = [
        // The one AS number that it knows, and the other one, which it cannot know.
        format!(
            "connect 10.0.1.1\nopen as 64496 hold 30 bgpsec send ipv4\nestablish\n\
             await end-of-rib ipv4-unicast\n\
             send update {INBOUND} bgpsec key 64496.pem\n\
             send update {FOR_NEW} bgpsec to 64500 key 64496.pem\nexpect nothing for 300s\n"
        ),
        format!(
            "connect 10.0.2.1\nopen as 64500 hold 30 bgpsec send ipv4\nestablish\n\
             await end-of-rib ipv4-unicast\n\
             send update {HIDDEN} local-pref 100 bgpsec to 64500 key 64497.pem as 64497 key 64510.pem as 64510 pcount 0\n\
             expect nothing for 300s\n"
        ),
    ];
    let mut speakers = Vec::new();
    for (number, script) in (1..).zip(scripts) {
        let file = directory.0.join(format!("script-{number}"));
        fs::write(&file, script)?;
        let mut speaker = star.neighbor(number).command(program);
        speaker.args(["speaker", "--timeout", "400s"]).arg(file);
        speakers.push(Running::start(speaker)?);
    }
    let path = |prefix: &str| -> Result<Value> {
        Ok(router.show(&["bgp", "route", prefix])?["paths"][0]["aspath"]["string"].clone())
    };
    until(&router, INBOUND, ("valid", true))?;
    until(&router, FOR_NEW, ("not-valid", true))?;
    until(&router, HIDDEN, ("valid", true))?;
    // `local-asn` is in front as in any path from this peer; AS 64510 of the other path counts for nothing.
    ensure!(
        path(INBOUND)? == "64510 64496" && path(HIDDEN)? == "64497",
        "{} {}",
        path(INBOUND)?,
        path(HIDDEN)?
    );
    speakers.iter_mut().try_for_each(Running::still_runs)?;
    cache.still_runs()
}

/// Waits until the one path of a prefix has this state (`None`: it came unsigned) and this AS_PATH.
fn until_path(router: &Router, prefix: &str, state: Option<&str>, as_path: &str) -> Result<()> {
    wait::until(&format!("{prefix} {state:?} {as_path}"), LIMIT, || {
        let shown = router.show(&["bgp", "route", prefix]).map_err(|error| format!("{error:#}"))?;
        let path = &shown["paths"][0];
        let is_judged = path["bgpsec"]["pending"] != true;
        let found = path["bgpsec"]["state"].as_str().filter(|state| *state != "unsigned");
        let is_it = is_judged && found == state && path["aspath"]["string"] == as_path;
        if is_it { Ok(()) } else { Err(shown.to_string()) }
    })
    .with_context(|| router.log_tail())
}
