//! RPKI caches: StayRTR from Debian, in a host of its own, and what it is to say.

use std::{
    collections::BTreeSet,
    fs,
    io::Read,
    path::PathBuf,
    process::{Child, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context, Result};
use flate2::read::GzDecoder;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::netns::Namespace;

/// A VRP as tests compare it: prefix, maximal length, AS.
pub type Row = (String, u64, u64);

/// VRPs of the real world as of 2025, where `HOLDFAST_DATA` has them; `None`: it is not set.
pub fn real_vrps() -> Result<Option<BTreeSet<Row>>> {
    let Some(directory) = std::env::var_os("HOLDFAST_DATA") else { return Ok(None) };
    let path = PathBuf::from(directory).join("vrps.json.gz");
    let mut text = String::new();
    let file = fs::File::open(&path).with_context(|| path.display().to_string())?;
    GzDecoder::new(file).read_to_string(&mut text)?;
    rows(&serde_json::from_str::<Value>(&text)?["roas"]).map(Some)
}

/// The real difference that goes with [`real_vrps`]: announced, withdrawn.
pub fn real_difference() -> Result<Option<(BTreeSet<Row>, BTreeSet<Row>)>> {
    let Some(directory) = std::env::var_os("HOLDFAST_DATA") else { return Ok(None) };
    let path = PathBuf::from(directory).join("vrps-delta.json");
    let value: Value = serde_json::from_slice(&fs::read(&path)?)?;
    Ok(Some((rows(&value["announced"])?, rows(&value["withdrawn"])?)))
}

/// So many VRPs of both families that nobody has.
pub fn made_vrps(count: u32) -> BTreeSet<Row> {
    let row = |number: u32| match number % 4 {
        0 => (format!("2001:db8:{:x}::/48", 1 + number / 4), 48 + u64::from(number) % 17, u64::from(number)),
        _ => (
            format!("{}.{}.{}.0/24", 1 + number / 65_536, number / 256 % 256, number % 256),
            24,
            u64::from(number),
        ),
    };
    (0..count).map(row).collect()
}

fn rows(list: &Value) -> Result<BTreeSet<Row>> {
    let row = |value: &Value| {
        Some((value["prefix"].as_str()?.to_owned(), value["maxLength"].as_u64()?, value["asn"].as_u64()?))
    };
    let rows = list.as_array().context("a list of VRPs")?.iter().map(row);
    rows.collect::<Option<_>>().context("a VRP without prefix, maximal length or AS")
}

/// StayRTR. Killed when dropped.
#[derive(Debug)]
pub struct StayRtr {
    child: Child,
    directory: PathBuf,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

impl StayRtr {
    /// Starts it on port 323 with these VRPs; `options` come on top.
    pub fn start(host: &Namespace, vrps: &BTreeSet<Row>, options: &[&str]) -> Result<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("holdfast-stayrtr-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory)?;
        let file = directory.join("vrps.json");
        fs::write(&file, text(vrps))?;
        let log = fs::File::create(directory.join("log"))?;
        let mut command = host.command("stayrtr");
        command
            .args(["-bind", ":323", "-metrics.addr", "", "-checktime=false", "-cache"])
            .arg(&file)
            .args(options);
        let command = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().context("starting stayrtr (apt package stayrtr)")?;
        Ok(Self { child, directory })
    }

    /// Has it say other VRPs, and tell so.
    pub fn say(&self, vrps: &BTreeSet<Row>) -> Result<()> {
        let (new, file) = (self.directory.join("new.json"), self.directory.join("vrps.json"));
        fs::write(&new, text(vrps))?;
        fs::rename(&new, &file)?;
        Ok(kill_process(self.pid()?, Signal::HUP)?)
    }

    /// kill -9.
    pub fn kill(&mut self) -> Result<()> {
        kill_process(self.pid()?, Signal::KILL)?;
        self.child.wait()?;
        Ok(())
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    fn pid(&self) -> Result<Pid> {
        // `ip netns exec` replaces itself with the program.
        Pid::from_raw(self.child.id() as i32).context("pid of stayrtr")
    }
}

impl Drop for StayRtr {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log of stayrtr:\n{}", self.log());
        }
        let _ = self.kill();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn text(vrps: &BTreeSet<Row>) -> String {
    let roa = |(prefix, length, asn): &Row| json!({ "prefix": prefix, "maxLength": length, "asn": asn, "ta": "lab" });
    let roas: Vec<_> = vrps.iter().map(roa).collect();
    json!({ "metadata": { "buildtime": "2026-01-01T00:00:00Z" }, "roas": roas }).to_string()
}
