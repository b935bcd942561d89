//! Another binary under a running router. `HOLDFAST_UPGRADE_TO` names one of another commit; without it a copy of our
//! own that differs in a byte at its end takes part.

use std::{
    fs,
    io::Write,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    kernel::{self, Monitor},
    router::{Router, binary},
    speaker::Speaker,
    table::Table,
    topology::Star,
    wait,
};
use holdfast_types::Prefix;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
const PROCESSES: [&str; 6] = ["keeper", "manager", "fea", "rib", "transport", "bgp"];
const ROUTES: usize = 256;

const CONFIGURATION: &str = r#"
[router]
id = "10.0.0.1"
asn = 65000
[bgp]
[[bgp.peer]]
name = "feeder"
address = "10.0.1.2"
asn = 65001
passive = true
import = "accept-all"
export = "accept-all"
"#;

/// A router whose routes are in the kernel.
fn running(star: &Star) -> Result<(Router, Speaker)> {
    let router = Router::start(&star.router, CONFIGURATION)?;
    let feeder = feeder(star)?;
    until_right(star, &router)?;
    Ok((router, feeder))
}

fn feeder(star: &Star) -> Result<Speaker> {
    let prefixes =
        (0..=255).map(|third| Prefix::new([50, 0, third, 0].into(), 24).expect("a length of IPv4"));
    let table = Arc::new(Table::plain(prefixes));
    star.speaker(1, 65001, |config| config.tables = vec![table])
}

fn until_right(star: &Star, router: &Router) -> Result<()> {
    wait::until("a session", LIMIT, || {
        let shown = router.show(&["bgp", "neighbors"]).map_err(|error| error.to_string())?;
        let up = shown.as_object().is_some_and(|all| all.values().all(|p| p["bgpState"] == "Established"));
        if up { Ok(()) } else { Err(shown.to_string()) }
    })
    .with_context(|| router.log_tail())?;
    until_routes(star, router)
}

fn until_routes(star: &Star, router: &Router) -> Result<()> {
    wait::until("all routes", LIMIT, || {
        let count = kernel::routes(&star.router, false).map_err(|error| error.to_string())?.len();
        if count == ROUTES { Ok(()) } else { Err(format!("{count} routes")) }
    })
    .with_context(|| router.log_tail())
}

/// Pid and build of every process.
fn builds(router: &Router) -> Result<Vec<(i64, String)>> {
    let shown = router.show(&["processes"])?;
    let of = |name: &&str| {
        let process: &Value = &shown[*name];
        let build = process["build"].as_str().context("a build")?;
        Ok((process["pid"].as_i64().context("a process id")?, build.to_owned()))
    };
    PROCESSES.iter().map(of).collect()
}

/// A file in the router's directory that may be executed.
fn executable(router: &Router, name: &str, from: &Path) -> Result<PathBuf> {
    let path = router.directory().join(name);
    fs::copy(from, &path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// A build with this fault.
pub(super) fn saboteur(router: &Router, fault: &str) -> Result<PathBuf> {
    let path = executable(router, &format!("{fault}-holdfast"), env!("CARGO_BIN_EXE_saboteur").as_ref())?;
    symlink(fs::canonicalize(binary()?)?, path.with_file_name(format!("{fault}-holdfast.real")))?;
    Ok(path)
}

/// Upgrades to this file; what is said, as text.
fn upgrade(router: &Router, to: &Path) -> Result<String> {
    router.cli(&["upgrade", "--binary", to.to_str().context("a path")?])
}

/// Why it does not upgrade to this file.
fn refused(router: &Router, to: &Path) -> Result<String> {
    Ok(upgrade(router, to).err().context("it should be refused")?.to_string())
}

fn descriptors(router: &Router) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{}/fd", router.pid("keeper")?.as_raw_nonzero()))?.count())
}

#[test]
fn a_peer_that_is_down_delays_no_upgrade() -> Result<()> {
    let star = Star::new(1)?;
    let absent = CONFIGURATION.replace("feeder", "absent").replace("10.0.1.2", "10.0.1.9");
    let peer = absent.split_once("[bgp]\n").context("a peer")?.1;
    let router = Router::start(&star.router, &[CONFIGURATION, peer].concat())?;
    let _feeder = feeder(&star)?;
    until_routes(&star, &router)?;
    let new = executable(&router, "new", &binary()?)?;
    fs::OpenOptions::new().append(true).open(&new)?.write_all(b"\n")?;
    let begin = Instant::now();
    let said = upgrade(&router, &new).with_context(|| router.log_tail())?;
    let took = begin.elapsed();
    println!("{said}an upgrade with a peer down: {took:?}");
    // After each process it waited for ten seconds.
    ensure!(took < Duration::from_secs(10), "{took:?}: {said}");
    until_routes(&star, &router)
}

#[test]
fn another_build_takes_over_while_the_kernel_keeps_every_route() -> Result<()> {
    let star = Star::new(1)?;
    let (router, feeder) = running(&star)?;
    let monitor = Monitor::start(&star.router)?;
    let before = builds(&router)?;
    let new = match std::env::var_os("HOLDFAST_UPGRADE_TO") {
        Some(path) => executable(&router, "new", path.as_ref())?,
        None => {
            let path = executable(&router, "new", &binary()?)?;
            fs::OpenOptions::new().append(true).open(&path)?.write_all(b"\n")?;
            path
        }
    };
    let dry = router.cli(&["upgrade", "--dry-run", "--binary", new.to_str().context("a path")?])?;
    ensure!(dry.lines().count() == PROCESSES.len() + 1 && builds(&router)? == before, "{dry}");
    ensure!(dry.ends_with("no session would end\n"), "{dry}");

    let said = upgrade(&router, &new).with_context(|| router.log_tail())?;
    println!("{said}");
    let after = builds(&router)?;
    ensure!(after.iter().all(|(_, build)| *build == after[0].1 && *build != before[0].1), "{after:?}");
    ensure!(after[0].0 == before[0].0, "the keeper's process stays");
    ensure!(
        (1..PROCESSES.len()).all(|process| after[process].0 != before[process].0),
        "the others do not: {after:?}"
    );
    ensure!(PROCESSES.iter().all(|name| said.lines().any(|line| line.starts_with(name))), "{said}");
    let shown = router.show(&["processes"])?;
    ensure!(shown["bgp"]["lastExit"] == "upgrade" && shown["bgp"]["restarts"] == 1, "{shown}");
    until_right(&star, &router)?;
    ensure!(
        feeder.status().sessions == 1,
        "the session went on, whichever process had it: {:?}",
        feeder.status()
    );

    // The file may be gone now: what runs does not need it. And the same again says so.
    let said = upgrade(&router, &new)?;
    ensure!(said.contains("runs this build already"), "{said}");
    fs::remove_file(&new)?;
    router.kill("fea")?;
    wait::until("another fea of the same build", LIMIT, || {
        let now = builds(&router).map_err(|error| error.to_string())?;
        let is_so = now[2].0 != after[2].0 && now[2].0 != 0 && now[2].1 == after[2].1;
        if is_so { Ok(()) } else { Err(format!("{now:?}")) }
    })?;
    router.wait_running()?;

    // And back: nothing is lost on the way, and nothing gathers.
    let open = descriptors(&router)?;
    upgrade(&router, &binary()?).with_context(|| router.log_tail())?;
    ensure!(builds(&router)?.iter().all(|(_, build)| *build == before[0].1));
    until_right(&star, &router)?;
    wait::until("as many descriptors as before", LIMIT, || match descriptors(&router) {
        Ok(now) if now == open => Ok(()),
        now => Err(format!("{now:?} instead of {open}")),
    })?;
    let deletions = monitor.deletions()?;
    ensure!(deletions.is_empty(), "{deletions:?}");

    router.stop()?;
    drop(feeder);
    Ok(())
}

/// A copy of the binary that is another build.
fn another(router: &Router) -> Result<PathBuf> {
    let path = executable(router, "another", &binary()?)?;
    fs::OpenOptions::new().append(true).open(&path)?.write_all(b"\n")?;
    Ok(path)
}

#[test]
fn the_sessions_that_would_end_are_those_that_end() -> Result<()> {
    let star = Star::new(2)?;
    let other =
        CONFIGURATION.replace("feeder", "other").replace("10.0.1.2", "10.0.2.2").replace("65001", "65002");
    let other = other.split_once("[bgp]\n").context("a peer")?.1;
    let configuration = format!("{CONFIGURATION}{other}nonstop = false\n");
    let router = Router::start(&star.router, &configuration)?;
    let (feeder, unprotected) = (feeder(&star)?, star.speaker(2, 65002, |_| {})?);
    until_right(&star, &router)?;
    wait::until("protection", LIMIT, || {
        let shown = router.show(&["nsr"]).map_err(|error| error.to_string())?;
        let is_so = |name: &str, protected: bool| {
            let peers = shown["peers"].as_object().into_iter().flatten();
            peers.filter(|(_, peer)| peer["name"] == name).all(|(_, peer)| peer["protected"] == protected)
        };
        if is_so("feeder", true) && is_so("other", false) { Ok(()) } else { Err(shown.to_string()) }
    })?;
    let new = another(&router)?;
    let new = new.to_str().context("a path")?;
    let plan: Value =
        serde_json::from_str(&router.cli(&["upgrade", "--dry-run", "--json", "--binary", new])?)?;
    let ended = plan["sessions_ended"].as_array().context("a list")?;
    ensure!(ended.len() == 1 && ended[0]["peer"] == "other", "{plan}");
    ensure!(plan["sessions_on_old_build"] == serde_json::json!([]), "{plan}");
    // The next manager reads the file: what it ends is named, too. The feeder has more routes than one.
    let limit = "\n[[bgp.peer.limit]]\nfamily = \"ipv4-unicast\"\nreceived = 1\n";
    let limited = CONFIGURATION.to_owned() + limit + "\n" + other + "nonstop = false\n";
    fs::write(router.configuration(), limited)?;
    let plan: Value =
        serde_json::from_str(&router.cli(&["upgrade", "--dry-run", "--json", "--binary", new])?)?;
    let ended = plan["sessions_ended"].as_array().context("a list")?;
    let of_feeder = ended.iter().find(|session| session["peer"] == "feeder").context("the feeder")?;
    let reason = of_feeder["reason"].as_str().unwrap_or_default();
    ensure!(
        ended.len() == 2 && reason.contains("edited and not reloaded") && reason.contains("received"),
        "{plan}"
    );
    fs::write(router.configuration(), &configuration)?;
    router.cli(&["upgrade", "--binary", new])?;
    wait::until("the session again", LIMIT, || match unprotected.status() {
        status if status.sessions == 2 && status.established => Ok(()),
        status => Err(format!("{status:?}")),
    })?;
    ensure!(feeder.status().sessions == 1, "{:?}", feeder.status());
    Ok(())
}

#[test]
fn a_dump_in_progress_is_finished() -> Result<()> {
    let star = Star::new(1)?;
    let directory = std::env::temp_dir().join(format!("holdfast-upgraded-{}", std::process::id()));
    fs::create_dir_all(&directory)?;
    let dump = format!("[[bgp.mrt]]\nfile = \"{}/%s.mrt\"\ninterval = 86400\n", directory.display());
    let router = Router::start(&star.router, &format!("{CONFIGURATION}{dump}"))?;
    let files = || -> Result<Vec<PathBuf>> {
        Ok(fs::read_dir(&directory)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?)
    };
    let is_whole = |file: &PathBuf| file.extension().is_some_and(|ending| ending == "mrt");
    let _feeder = feeder(&star)?;
    until_right(&star, &router)?;
    wait::until("a dump", LIMIT, || match files() {
        Ok(files) if files.len() == 1 && !is_whole(&files[0]) => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    upgrade(&router, &another(&router)?)?;
    let whole: Vec<_> = files()?.into_iter().filter(is_whole).collect();
    ensure!(whole.len() == 1, "{:?}", files()?);
    let octets = fs::read(&whole[0])?;
    ensure!(holdfast_mrt::records(&octets).all(|record| record.is_ok()), "it is readable");
    router.stop()?;
    ensure!(files()?.iter().all(is_whole), "{:?}", files()?);
    fs::remove_dir_all(&directory)?;
    Ok(())
}

#[test]
fn what_cannot_work_is_refused_and_nothing_is_touched() -> Result<()> {
    let star = Star::new(1)?;
    let (router, feeder) = running(&star)?;
    let (before, status) = (builds(&router)?, feeder.status());
    let other = executable(&router, "other", Path::new("/bin/true"))?;
    let text = refused(&router, &other)?;
    ensure!(text.contains("no holdfast"), "{text}");
    fs::set_permissions(&other, fs::Permissions::from_mode(0o644))?;
    let text = refused(&router, &other)?;
    ensure!(text.contains("not executable"), "{text}");
    fs::set_permissions(&other, fs::Permissions::from_mode(0o777))?;
    let text = refused(&router, &other)?;
    ensure!(text.contains("the right to write"), "{text}");
    for (fault, why) in
        [("frames", "frames of version 9"), ("silent", "not say in time"), ("trial", "cannot take over")]
    {
        let text = refused(&router, &saboteur(&router, fault)?)?;
        ensure!(text.contains(why), "{fault}: {text}");
    }
    ensure!(builds(&router)? == before, "{before:?}");
    let after = feeder.status();
    ensure!(after.established && after.sessions == status.sessions, "{after:?}");
    Ok(())
}

#[test]
fn a_build_whose_process_does_not_run_is_taken_back() -> Result<()> {
    let star = Star::new(1)?;
    let (router, _feeder) = running(&star)?;
    let before = builds(&router)?;
    let text = refused(&router, &saboteur(&router, "bgp")?)?;
    ensure!(text.contains("bgp does not run") && text.contains("the build before runs again"), "{text}");
    router.wait_running()?;
    let after = builds(&router)?;
    ensure!(after.iter().all(|(_, build)| *build == before[0].1), "{after:?}");
    ensure!(after[..2] == before[..2], "keeper and manager were not touched");
    until_right(&star, &router)
}
