//! What the kernel has, read with iproute2 (not with our own netlink code).

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    process::{Child, Stdio},
    sync::{Arc, Mutex},
    thread::JoinHandle,
};

use anyhow::{Context, Result};
use holdfast_types::Prefix;

use crate::netns::Namespace;

/// Protocol number under which Holdfast installs routes.
pub const PROTOCOL: &str = "75";

/// Routes of Holdfast in the main table: prefix to the rest of the line as `ip route` prints it.
pub fn routes(host: &Namespace, v6: bool) -> Result<BTreeMap<Prefix, String>> {
    let family = if v6 { "-6" } else { "-4" };
    let mut child = host
        .command("ip")
        .args([family, "route", "show", "proto", PROTOCOL])
        .stdout(Stdio::piped())
        .spawn()
        .context("running ip route")?;
    let mut routes = BTreeMap::new();
    for line in BufReader::new(child.stdout.take().context("stdout of ip")?).lines() {
        let line = line?;
        if let Some((prefix, rest)) = parse(&line, v6) {
            routes.insert(prefix, rest.to_owned());
        }
    }
    child.wait()?;
    Ok(routes)
}

/// `10.0.0.0/8 nhid 5 via …`, `default via …`, `192.0.2.1 …`; `blackhole` and friends come first.
fn parse(line: &str, v6: bool) -> Option<(Prefix, &str)> {
    let line = line.trim_start();
    let (mut word, mut rest) = line.split_once(' ').unwrap_or((line, ""));
    if matches!(word, "blackhole" | "unreachable" | "prohibit") {
        (word, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    }
    let text = match word {
        "default" if v6 => "::/0".to_owned(),
        "default" => "0.0.0.0/0".to_owned(),
        word if word.contains('/') => word.to_owned(),
        word => format!("{word}/{}", if v6 { 128 } else { 32 }),
    };
    Some((text.parse().ok()?, rest))
}

/// `ip monitor route` in the background: counts what the kernel says was deleted.
#[derive(Debug)]
pub struct Monitor {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
}

impl Monitor {
    /// Starts watching deletions of routes in a host.
    pub fn start(host: &Namespace) -> Result<Self> {
        let mut child = host
            .command("ip")
            .args(["-o", "monitor", "route"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("running ip monitor")?;
        let stdout = child.stdout.take().context("stdout of ip monitor")?;
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&lines);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if line.starts_with("Deleted") && line.contains("proto 75") {
                    sink.lock().expect("no reader panics").push(line);
                }
            }
        });
        Ok(Self { child, lines, reader: Some(reader) })
    }

    /// Ends the watch: the deletions of our routes it saw.
    pub fn deletions(mut self) -> Vec<String> {
        self.stop();
        std::mem::take(&mut *self.lines.lock().expect("no reader panics"))
    }

    fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_line_is_read() {
        for (line, v6, prefix) in [
            ("10.0.0.0/8 nhid 5 via 10.1.0.2 dev eth0 proto 75", false, "10.0.0.0/8"),
            ("default via 10.1.0.2 dev eth0", false, "0.0.0.0/0"),
            ("blackhole 192.0.2.1 proto 75", false, "192.0.2.1/32"),
            ("2001:db8::1 dev eth0 metric 1024", true, "2001:db8::1/128"),
        ] {
            assert_eq!(parse(line, v6).map(|(p, _)| p.to_string()).as_deref(), Some(prefix));
        }
    }
}
