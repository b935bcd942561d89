//! Every way by which anything gets into or out of a process of a running router: XRL, a descriptor that was handed
//! over, a declared log, or one of the few that are listed here with a reason. Anything else fails the test.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::Ipv4Addr,
};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    netns::{End, Namespace, link, output},
    router::Router,
    speaker::{Speaker, SpeakerConfig},
    wait,
};
use holdfast_types::Family;

const LIMIT: std::time::Duration = std::time::Duration::from_secs(60);
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const NEIGHBOR: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const CONFIGURATION: &str = r#"
[router]
id = "10.0.0.1"
asn = 65000
[xrl]
listen = "127.0.0.1:4400"
[bgp]
[[bgp.peer]]
name = "neighbor"
address = "10.0.0.2"
asn = 65001
import = "accept-all"
export = "accept-all"
"#;

/// Who holds a descriptor, and what it is as in /proc/PID/fd.
#[derive(Debug)]
struct Open {
    process: String,
    number: u32,
    link: String,
}

/// A descriptor that is no XRL and may be there: what it begins with, who may hold it, and why.
const DECLARED: [(&str, &[&str], &str); 10] = [
    ("/dev/null", &["*"], "standard input after the start"),
    ("log", &["*"], "the log: standard output and standard error"),
    ("anon_inode:[eventpoll]", &["*"], "the event loop"),
    ("anon_inode:[eventfd]", &["*"], "the event loop is woken"),
    ("anon_inode:[timerfd]", &["*"], "the event loop's clock"),
    ("binary", &["keeper", "manager"], "what processes are started from"),
    ("holdfast.lock", &["keeper"], "one router in a directory"),
    (
        "/memfd:holdfast-progress",
        &["*"],
        "what a process has finished: the keeper reads it where no answer comes",
    ),
    (
        "/memfd:",
        &["keeper", "bgp"],
        "the replication log, handed over between bgp and the keeper that holds it",
    ),
    ("anon_inode:[pidfd]", &["keeper"], "its children"),
];

/// A socket that is no XRL and may be there: what it is, who may hold it, and why.
const SOCKETS: [(&str, &[&str], &str); 6] = [
    ("own pair", &["*"], "both ends in one process: its event loop learns of signals"),
    (
        "unix listener holdfast.sock",
        &["keeper", "manager"],
        "operators connect here; handed over by the keeper",
    ),
    (
        "tcp listener 4400",
        &["keeper", "fea", "manager"],
        "xrl over tcp; opened by the fea, held by the keeper, handed over to the manager by transport",
    ),
    (
        "tcp listener 179",
        &["keeper", "fea", "transport"],
        "BGP; opened by the fea, held by the keeper, handed over to transport",
    ),
    ("tcp 179", &["keeper", "bgp"], "a session; let in by transport, handed over to bgp, held by the keeper"),
    (
        "netlink",
        &["keeper", "fea"],
        "the kernel's routes and interfaces; of claims on tables the keeper has copies",
    ),
];

/// Processes by name.
fn processes(router: &Router) -> Result<BTreeMap<String, i64>> {
    let shown = router.show(&["processes"])?;
    let shown = shown.as_object().context("processes")?;
    Ok(shown.iter().filter_map(|(name, shown)| Some((name.clone(), shown["pid"].as_i64()?))).collect())
}

fn descriptors(processes: &BTreeMap<String, i64>) -> Result<Vec<Open>> {
    let mut all = Vec::new();
    for (process, pid) in processes {
        for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
            let entry = entry?;
            let number = entry.file_name().to_string_lossy().parse()?;
            // It may have been closed meanwhile.
            let Ok(link) = fs::read_link(entry.path()) else { continue };
            all.push(Open { process: process.clone(), number, link: link.to_string_lossy().into_owned() });
        }
    }
    Ok(all)
}

impl Open {
    /// It is still there, and the same: not a connection that was just ending.
    fn lasts(&self, processes: &BTreeMap<String, i64>) -> bool {
        let path = processes.get(&self.process).map(|pid| format!("/proc/{pid}/fd/{}", self.number));
        path.and_then(|path| fs::read_link(path).ok()).is_some_and(|link| link.to_string_lossy() == self.link)
    }

    /// Whoever started the router has it too, here this test: the keeper must keep it from all others.
    fn is_inherited(&self) -> bool {
        let theirs = fs::read_link(format!("/proc/self/fd/{}", self.number));
        self.process == "keeper" && theirs.is_ok_and(|link| link.to_string_lossy() == self.link)
    }
}

fn inode(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Numbers of the sockets that a component is called on.
fn xrl_sockets(router: &Router, target: &str) -> Result<BTreeSet<u64>> {
    let told = router.cli(&["call", &format!("finder/finder.v1/Channels?target={target}"), "--json"])?;
    let told: serde_json::Value = serde_json::from_str(&told)?;
    let channels = told["channels"].as_array().context("channels")?;
    Ok(channels.iter().filter_map(|channel| channel["inode"].as_u64()).filter(|inode| *inode != 0).collect())
}

/// What the kernel knows of sockets in the router's host, by number.
struct Sockets {
    /// The other end of a Unix socket.
    peers: BTreeMap<u64, u64>,
    what: BTreeMap<u64, String>,
}

impl Sockets {
    fn of(host: &Namespace, pid: i64) -> Result<Self> {
        let mut sockets = Self { peers: BTreeMap::new(), what: BTreeMap::new() };
        // Netid State Recv-Q Send-Q Local:Inode Peer:Inode
        for line in output(host.command("ss").args(["-xanH"]))?.lines() {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (Some(path), Some(Ok(own)), Some(Ok(peer))) = (
                fields.get(4),
                fields.get(5).map(|number| number.parse::<u64>()),
                fields.get(7).map(|number| number.parse::<u64>()),
            ) else {
                continue;
            };
            match fields[1] {
                "LISTEN" => {
                    let name = path.rsplit('/').next().unwrap_or(path);
                    sockets.what.insert(own, format!("unix listener {name}"));
                }
                _ => drop(sockets.peers.insert(own, peer)),
            }
        }
        for table in ["tcp", "tcp6"] {
            sockets.tcp(&fs::read_to_string(format!("/proc/{pid}/net/{table}"))?);
        }
        for line in fs::read_to_string(format!("/proc/{pid}/net/netlink"))?.lines().skip(1) {
            if let Some(Ok(inode)) = line.split_whitespace().last().map(str::parse) {
                sockets.what.insert(inode, "netlink".into());
            }
        }
        Ok(sockets)
    }

    /// proc(5): local and remote address in hexadecimal, state 0A is LISTEN, field 9 is the inode.
    fn tcp(&mut self, table: &str) {
        for line in table.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let port = |field: usize| {
                let port = fields.get(field).and_then(|address| address.rsplit(':').next());
                port.and_then(|port| u16::from_str_radix(port, 16).ok()).unwrap_or(0)
            };
            let Some(Ok(inode)) = fields.get(9).map(|inode| inode.parse()) else { continue };
            let what = match fields[3] {
                "0A" => format!("tcp listener {}", port(1)),
                // BGP's port is on one side of a session.
                _ => format!("tcp {}", port(1).min(port(2))),
            };
            self.what.insert(inode, what);
        }
    }
}

fn is_declared(list: &[(&str, &[&str], &str)], what: &str, process: &str) -> bool {
    list.iter().any(|(known, holders, _)| {
        what.starts_with(known) && (holders.contains(&"*") || holders.contains(&process))
    })
}

/// The name under which a descriptor that is no socket is declared.
fn plain(router: &Router, link: &str) -> String {
    let log = router.directory().join("log");
    let binary = holdfast_lab::router::binary().and_then(|path| Ok(fs::canonicalize(path)?));
    match link {
        link if link == log.to_string_lossy() => "log".into(),
        link if binary.is_ok_and(|binary| link == binary.to_string_lossy()) => "binary".into(),
        link => link.strip_prefix(&format!("{}/", router.directory().display())).unwrap_or(link).into(),
    }
}

/// What there is and nobody has declared.
fn undeclared(router: &Router, host: &Namespace) -> Result<Vec<String>> {
    let processes = processes(router)?;
    let mut xrl = xrl_sockets(router, "finder")?;
    for name in processes.keys().filter(|name| *name != "keeper") {
        xrl.extend(xrl_sockets(router, name)?);
    }
    let open = descriptors(&processes)?;
    let sockets = Sockets::of(host, processes["keeper"])?;
    let mut holders: BTreeMap<u64, BTreeSet<&str>> = BTreeMap::new();
    for open in &open {
        if let Some(inode) = inode(&open.link) {
            holders.entry(inode).or_default().insert(&open.process);
        }
    }
    let mut found = Vec::new();
    for one in open.iter().filter(|open| !open.is_inherited()) {
        let Open { process, number, link } = one;
        let what = match inode(link) {
            None => {
                let what = plain(router, link);
                if is_declared(&DECLARED, &what, process) { continue } else { what }
            }
            Some(inode) => {
                let peer = sockets.peers.get(&inode).copied().unwrap_or(0);
                if xrl.contains(&inode) || xrl.contains(&peer) {
                    continue;
                }
                let own =
                    peer != 0 && holders.get(&peer).is_some_and(|there| there.contains(process.as_str()));
                let what = sockets.what.get(&inode).cloned();
                let what =
                    if own { "own pair".into() } else { what.unwrap_or(format!("{link}, peer {peer}")) };
                if is_declared(&SOCKETS, &what, process) { continue } else { what }
            }
        };
        if one.lasts(&processes) {
            found.push(format!("{process} has {number}: {what}"));
        }
    }
    for (process, pid) in &processes {
        found.extend(shared_mappings(*pid)?.into_iter().map(|mapping| format!("{process} shares {mapping}")));
    }
    Ok(found)
}

/// Memory that a process shares, but the replication log.
fn shared_mappings(pid: i64) -> Result<Vec<String>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let shared =
        maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|rights| rights.ends_with('s')));
    Ok(shared.filter(|line| !line.contains("/memfd:")).map(str::to_owned).collect())
}

#[test]
fn every_channel_of_a_router_is_xrl_handed_over_or_declared() -> Result<()> {
    let (host, outside) = (Namespace::new("router")?, Namespace::new("outside")?);
    host.ip(&["link", "set", "lo", "up"])?;
    link(
        &End { host: &host, interface: "eth0", addresses: &[&format!("{ROUTER}/24")] },
        &End { host: &outside, interface: "eth0", addresses: &[&format!("{NEIGHBOR}/24")] },
    )?;
    let config = SpeakerConfig::connect(NEIGHBOR.into(), ROUTER.into(), 65001);
    let router = Router::start(&host, CONFIGURATION)?;
    let neighbor = outside.run(move || Speaker::spawn(config))??;
    neighbor.wait_established(LIMIT)?;
    neighbor.wait_end_of_rib(Family::IPV4_UNICAST, LIMIT)?;
    wait::until("xrl over tcp", LIMIT, || {
        if router.log().contains("xrl over tcp") { Ok(()) } else { Err(router.log_tail()) }
    })?;
    // A connection that is just being made is on one side only.
    let found = wait::until("no undeclared channel", LIMIT, || match undeclared(&router, &host) {
        Ok(found) if found.is_empty() => Ok(()),
        Ok(found) => Err(found.join("\n")),
        Err(error) => Err(format!("{error:#}")),
    });
    found.with_context(|| router.log_tail())?;

    // The test can fail: a pipe that somebody opens behind everybody's back is found.
    let processes = processes(&router)?;
    ensure!(processes.len() >= 6, "{processes:?}");
    let some: Vec<_> =
        descriptors(&processes)?.into_iter().filter(|open| inode(&open.link).is_some()).collect();
    ensure!(some.len() > 20, "only {} sockets were looked at", some.len());
    ensure!(!is_declared(&DECLARED, "pipe:[7]", "bgp") && !is_declared(&SOCKETS, "netlink", "bgp"));
    ensure!(
        !is_declared(&SOCKETS, "tcp listener 9100", "bgp")
            && is_declared(&SOCKETS, "tcp listener 179", "fea")
    );
    Ok(())
}
