//! The router as a service: what it tells systemd, and what is installed.

use std::{
    fs,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    netns::{Namespace, output},
    router::{Router, binary},
};
use rustix::process::{Signal, kill_process};

const LIMIT: Duration = Duration::from_secs(20);

/// A router that needs nobody.
const ALONE: &str = "[router]\nid = \"10.0.0.1\"\nasn = 65001\n[bgp]\nport = 1179\n";

/// A service manager.
struct Listener(UnixDatagram);

impl Listener {
    fn next(&self, limit: Duration) -> Option<String> {
        self.0.set_read_timeout(Some(limit)).ok()?;
        let mut buffer = [0; 512];
        let length = self.0.recv(&mut buffer).ok()?;
        Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
    }

    /// Waits for a message that begins so; others are passed over.
    fn until(&self, wanted: &str) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < LIMIT {
            if self.next(LIMIT).is_some_and(|said| said.starts_with(wanted)) {
                return Ok(());
            }
        }
        anyhow::bail!("no {wanted}")
    }
}

fn scratch(name: &str) -> Result<PathBuf> {
    let path = std::env::temp_dir().join(format!("holdfast-service-{}-{name}", std::process::id()));
    fs::create_dir_all(&path)?;
    Ok(path)
}

#[test]
fn systemd_hears_of_start_reload_life_and_stop() -> Result<()> {
    let directory = scratch("notify")?;
    let path = directory.join("socket");
    let listener = Listener(UnixDatagram::bind(&path)?);
    let host = Namespace::new("notify")?;
    let environment = [("NOTIFY_SOCKET", path.to_str().context("a path")?), ("WATCHDOG_USEC", "400000")];
    let router = Router::start_with(&host, ALONE, &environment)?;
    listener.until("READY=1")?;
    listener.until("WATCHDOG=1")?;

    let keeper = router.pid("keeper")?;
    kill_process(keeper, Signal::HUP)?;
    listener.until("RELOADING=1\nMONOTONIC_USEC=")?;
    listener.until("READY=1")?;

    // A manager that hangs is no router that works.
    let manager = router.pid("manager")?;
    kill_process(manager, Signal::STOP)?;
    while listener.next(Duration::from_millis(700)).is_some() {}
    kill_process(manager, Signal::CONT)?;
    listener.until("WATCHDOG=1")?;
    // One that dies is replaced before anybody misses it.
    router.kill("manager")?;
    listener.until("WATCHDOG=1")?;
    router.stop()?;
    listener.until("STOPPING=1")?;
    Ok(fs::remove_dir_all(directory)?)
}

#[test]
fn what_is_installed_is_complete_and_the_unit_is_right() -> Result<()> {
    let destination = scratch("install")?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut install = Command::new(root.join("scripts/install"));
    install.arg(binary()?).arg(&destination).args(["/usr", "/etc", "/lib/systemd/system"]);
    output(&mut install)?;
    for file in [
        "usr/bin/holdfast",
        "usr/share/man/man1/holdfast.1",
        "usr/share/man/man1/holdfast-configure.1",
        "usr/share/man/man1/holdfast-show-bgp-summary.1",
        "usr/share/man/man5/holdfast.toml.5",
        "usr/share/bash-completion/completions/holdfast",
        "usr/share/holdfast/holdfast.schema.json",
        "etc/holdfast",
    ] {
        ensure!(destination.join(file).exists(), "{file} is missing");
    }
    let page = fs::read_to_string(destination.join("usr/share/man/man5/holdfast.toml.5"))?;
    ensure!(page.contains(".B hold\\-time") && page.contains(".SH [[bgp.peer]]"), "{page}");

    let unit = destination.join("lib/systemd/system/holdfast.service");
    let text = fs::read_to_string(&unit)?;
    ensure!(text.contains("ExecStart=/usr/bin/holdfast run -c /etc/holdfast/router.toml"), "{text}");
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!("systemd-analyze is not here: the unit is not verified");
        return Ok(fs::remove_dir_all(destination)?);
    }
    // It looks for the program, and for the pages.
    let binary = binary()?;
    fs::write(
        &unit,
        text.replace("/usr/bin/holdfast", binary.to_str().context("a path")?).replace("Documentation=", "#"),
    )?;
    output(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit))?;
    Ok(fs::remove_dir_all(destination)?)
}
