//! What the kernel has, read with iproute2 (not with our own netlink code).

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    process::{Child, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use holdfast_types::Prefix;

use crate::{netns::Namespace, wait};

/// Protocol number under which Holdfast installs routes.
pub const PROTOCOL: &str = "75";

/// Routes of Holdfast in the main table: prefix to the rest of the line as `ip route` prints it.
pub fn routes(host: &Namespace, v6: bool) -> Result<BTreeMap<Prefix, String>> {
    let family = if v6 { "-6" } else { "-4" };
    let mut child = host
        .command("ip")
        .args(["-o", family, "route", "show", "proto", PROTOCOL])
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

/// Routes of everybody in a host, cheaply: the kernel's own count. It is not exact, as it has local and broadcast
/// routes in it, but a difference between two moments says how a load goes on.
pub fn count(host: &Namespace, v6: bool) -> Result<usize> {
    let file = if v6 { "/proc/thread-self/net/rt6_stats" } else { "/proc/thread-self/net/fib_triestat" };
    let text = host.run(move || fs::read_to_string(file))?.context(file)?;
    let count = match v6 {
        // The fourth number is that of the entries.
        true => text.split(' ').nth(3).and_then(|count| usize::from_str_radix(count, 16).ok()),
        // The main table comes first, and shares what it counts with the local one.
        false => text.lines().find_map(|line| line.trim().strip_prefix("Prefixes:")?.trim().parse().ok()),
    };
    count.with_context(|| format!("{file} has another form: {text}"))
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

/// `ip monitor` in the background: collects what the kernel says was done to our routes and next hops.
#[derive(Debug)]
pub struct Monitor<'a> {
    host: &'a Namespace,
    child: Child,
    seen: Arc<Mutex<Seen>>,
    reader: Option<JoinHandle<()>>,
}

/// Lines of `ip monitor` about our routes and next hops.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Deletions.
    pub deleted: Vec<String>,
    /// Additions and replacements.
    pub written: Vec<String>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Lines that have these are kept.
    words: &'static str,
    deleted: Vec<String>,
    written: Vec<String>,
    /// What `ip` says when the kernel had more to tell than it could read.
    errors: Vec<String>,
    /// The newest mark.
    mark: u32,
}

/// A route whose coming and going shows that the watch has come so far. Its metric counts marks.
const MARK: &str = "192.0.2.255";
const MARK_LIMIT: Duration = Duration::from_secs(30);

impl<'a> Monitor<'a> {
    /// Starts watching a host.
    pub fn start(host: &'a Namespace) -> Result<Self> {
        Self::start_for(host, "proto 75")
    }

    /// Starts watching a host for routes and next hops of others: those whose lines have these words.
    pub fn start_for(host: &'a Namespace, words: &'static str) -> Result<Self> {
        let (output, writer) = std::io::pipe()?;
        let mut command = host.command("ip");
        command.args(["-o", "-rcvbuf", "67108864", "monitor", "route", "nexthop"]);
        command.stdout(writer.try_clone()?).stderr(writer);
        let child = command.spawn().context("running ip monitor")?;
        // It would hold the pipe open.
        drop(command);
        let seen = Arc::new(Mutex::new(Seen { words, ..Seen::default() }));
        let sink = Arc::clone(&seen);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                lock(&sink).read(line);
            }
        });
        let monitor = Self { host, child, seen, reader: Some(reader) };
        // It is not said when the watch has begun.
        wait::until("ip monitor", MARK_LIMIT, || {
            monitor.mark(1).map_err(|error| format!("{error:#}"))?;
            monitor.has_come_to(1)
        })?;
        Ok(monitor)
    }

    /// Ends the watch: the lines about our routes and next hops that were deleted until now.
    ///
    /// # Errors
    /// Not all could be seen.
    pub fn deletions(self) -> Result<Vec<String>> {
        Ok(self.changes()?.deleted)
    }

    /// Ends the watch: all that was done to our routes and next hops until now.
    ///
    /// # Errors
    /// Not all could be seen.
    pub fn changes(mut self) -> Result<Changes> {
        self.mark(2)?;
        wait::until("the end of ip monitor", MARK_LIMIT, || self.has_come_to(2))?;
        self.stop();
        let seen = std::mem::take(&mut *lock(&self.seen));
        ensure!(seen.errors.is_empty(), "ip monitor missed something: {:?}", seen.errors);
        Ok(Changes { deleted: seen.deleted, written: seen.written })
    }

    fn mark(&self, number: u32) -> Result<()> {
        for action in ["add", "del"] {
            let route = ["route", action, "blackhole", MARK, "table", "7500", "metric", &number.to_string()];
            self.host.ip(&route)?;
        }
        Ok(())
    }

    fn has_come_to(&self, mark: u32) -> Result<(), String> {
        let newest = lock(&self.seen).mark;
        if newest >= mark { Ok(()) } else { Err(format!("mark {newest}, not {mark}")) }
    }

    fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Drop for Monitor<'_> {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Seen {
    fn read(&mut self, line: String) {
        if line.contains("netlink") {
            self.errors.push(line);
        } else if line.contains("Deleted") {
            if line.contains(MARK) {
                let metric = line.split("metric ").nth(1).and_then(|rest| rest.split(' ').next());
                self.mark = metric.and_then(|metric| metric.parse().ok()).unwrap_or(self.mark);
            } else if line.contains(self.words) {
                self.deleted.push(line);
            }
        } else if line.contains(self.words) {
            self.written.push(line);
        }
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
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
