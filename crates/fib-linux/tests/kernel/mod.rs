//! The backend against the kernel, in network namespaces: needs root and `ip` of iproute2.

mod interfaces;
mod loss;
mod next_hops;
mod others;
mod routes;
mod sync;

use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use holdfast_fib::{Fib, Handle, NextHop, NextHops, RouteChange, TableId};
use holdfast_fib_linux::{LinuxFib, METRIC, Ownership};

/// Runs a story in a namespace of its own:
///
/// ```text
///  eth0 10.0.0.1/24 fd00::1/64 ── peer0        eth1 10.1.0.1/24 fd01::1/64 ── peer1
/// ```
fn in_a_namespace(story: impl FnOnce() + Send + 'static) {
    let inside = move || {
        holdfast_sys::process::enter_new_network()
            .expect("this test needs root (CAP_SYS_ADMIN, CAP_NET_ADMIN)");
        ip("link set lo up");
        for (number, network) in [(0, "10.0.0.1/24"), (1, "10.1.0.1/24")] {
            ip(&format!("link add eth{number} type veth peer name peer{number}"));
            ip(&format!("link set eth{number} up"));
            ip(&format!("link set peer{number} up"));
            ip(&format!("addr add {network} dev eth{number}"));
            ip(&format!("addr add fd0{number}::1/64 dev eth{number} nodad"));
        }
        story();
    };
    thread::spawn(inside).join().expect("the story holds");
}

/// The backend as the router has it.
fn main_table() -> LinuxFib {
    LinuxFib::open(ours(TableId::MAIN)).expect("netlink")
}

/// The backend of a VRF.
fn vrf_table(number: u32) -> LinuxFib {
    LinuxFib::open(ours(TableId(number))).expect("netlink")
}

/// With the metric that routes have unless another one is configured.
fn ours(table: TableId) -> Ownership {
    Ownership { table, metric: METRIC }
}

/// Runs `ip ARGUMENTS` and returns what it prints.
fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().expect("ip runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {error}");
    String::from_utf8(output.stdout).expect("text")
}

/// Runs many commands of `ip`, one a line.
fn ip_batch(lines: &str) {
    let mut command = Command::new("ip");
    let mut child = command.args(["-batch", "-"]).stdin(Stdio::piped()).spawn().expect("ip runs");
    // Taken, so that it is closed when all is written.
    child.stdin.take().expect("piped").write_all(lines.as_bytes()).expect("ip reads");
    assert!(child.wait().expect("ip ends").success());
}

/// The kernel's routes of ours in a table of a family (`-4`, `-6`), one a line, without what varies.
fn kernel_routes(family: &str, table: u32) -> Vec<String> {
    let found = Command::new("ip")
        .args([family, "route", "show", "proto", "75", "table", &table.to_string()])
        .output();
    let text = String::from_utf8(found.expect("ip runs").stdout).expect("text").replace("\n\t", " ");
    let mut lines: Vec<String> = text.lines().map(without_noise).collect();
    lines.sort();
    lines
}

fn without_noise(line: &str) -> String {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    if let Some(place) = words.iter().position(|word| *word == "nhid") {
        words.drain(place..place + 2);
    }
    words.join(" ").replace(" metric 20", "").replace(" pref medium", "")
}

fn index(interface: &str) -> u32 {
    let shown = ip(&format!("-o link show dev {interface}"));
    shown.split(':').next().and_then(|number| number.parse().ok()).expect("an index")
}

fn via(gateway: &str, interface: &str) -> NextHop {
    NextHop { gateway: Some(gateway.parse().expect("address")), interface: index(interface), weight: 1 }
}

fn forward(members: &[NextHop]) -> NextHops {
    NextHops::Forward(members.to_vec())
}

fn define(fib: &mut LinuxFib, handle: u32, members: &[NextHop]) {
    fib.define(Handle(handle), &forward(members)).expect("netlink works");
}

fn change(prefix: &str, handle: Option<u32>) -> RouteChange {
    RouteChange { prefix: prefix.parse().expect("prefix"), next_hops: handle.map(Handle) }
}

fn add(fib: &mut LinuxFib, prefix: &str, handle: u32) {
    fib.apply(&[change(prefix, Some(handle))]).expect("netlink works");
}

fn delete(fib: &mut LinuxFib, prefix: &str) {
    fib.apply(&[change(prefix, None)]).expect("netlink works");
}

/// Ends a sync and does all of its work.
fn finish(fib: &mut LinuxFib) {
    fib.sync_end().expect("netlink works");
    work(fib);
}

/// Does what there is to do.
fn work(fib: &mut LinuxFib) {
    while fib.work(1000).expect("netlink works") {}
}

/// Reads what other programs have done, and does what follows.
fn hear(fib: &mut LinuxFib) {
    hear_at(fib, Instant::now());
}

fn hear_at(fib: &mut LinuxFib, now: Instant) {
    while fib.hear(now).expect("netlink works") {}
    work(fib);
}

fn errors(fib: &LinuxFib) -> Vec<String> {
    fib.report().last_errors().map(|error| format!("{}: {}", error.what, error.error)).collect()
}

/// `ip monitor route` of what happens between now and [`Watch::end`]. A route of our own at either end says that it listens,
/// and that it has heard all that came before.
struct Watch {
    child: std::process::Child,
    heard: mpsc::Receiver<String>,
}

/// Where those routes are: nobody looks there. Each is in turn of one kind and of the other, since the kernel says nothing of a
/// route that replaces its like.
const MARKS: [&str; 2] = ["table 99 proto static", "table 99 proto boot"];

impl Watch {
    fn begin() -> Self {
        let mut command = Command::new("ip");
        let mut child = command.args(["monitor", "route"]).stdout(Stdio::piped()).spawn().expect("ip runs");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (tell, heard) = mpsc::channel();
        // Until the program ends, or nobody hears it any more.
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
        let watch = Self { child, heard };
        watch.until("192.0.2.254");
        watch
    }

    /// The lines that come before that of the route to this address, which is made until it is heard of.
    fn until(&self, mark: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for marks in MARKS.into_iter().cycle().take(1000) {
            ip(&format!("route replace blackhole {mark} {marks}"));
            while let Ok(line) = self.heard.recv_timeout(Duration::from_millis(10)) {
                if line.contains(mark) {
                    return lines;
                }
                lines.push(line);
            }
        }
        panic!("`ip monitor` has heard nothing of {mark}")
    }

    fn end(mut self) -> String {
        let lines = self.until("192.0.2.253");
        self.child.kill().expect("still runs");
        self.child.wait().expect("ended");
        // The first one may have been made more than once.
        lines.into_iter().filter(|line| !line.contains("192.0.2.254")).map(|line| line + "\n").collect()
    }
}
