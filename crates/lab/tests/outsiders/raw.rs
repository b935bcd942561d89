//! A protocol over raw IP by its descriptor alone: `raw.py` beside this file, at two routers. It has no socket: `fea` sends and
//! receives for it what the descriptor grants, on the interfaces that the section names, and nothing else.
//!
//! ```text
//!  near ──n1── far     10.0.1.1, 10.0.1.2: `[raw]` names it
//!       ──n2── (host)  10.0.2.1: it does not
//! ```

use std::{
    collections::BTreeSet,
    mem::MaybeUninit,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    netns::Namespace,
    router::{Files, Router},
    topology::Star,
    vrf::{Scene, TABLES},
    wait,
};
use rustix::net::RecvFlags;
use serde_json::{Value, json};
use socket2::{Domain, Protocol, Socket, Type};

use super::{LIMIT, described::Installed, python};

const OSPF: i32 = 89;
/// What is awaited that must not come.
const MOMENT: Duration = Duration::from_millis(500);

fn descriptor(place: &str) -> String {
    let raw = |family: &str, group: &str| {
        format!("[[raw]]\nfamily = \"{family}\"\nprotocol = 253\ngroups = [\"{group}\"]\nhops = 1\n")
    };
    format!(
        "does = \"speaks raw IP\"\ndoc = \"d\"\nprogram = \"{}\"\n\
        arguments = [\"{place}/raw.py\", \"{place}/interfaces.fds\"]\nreads = [\"{place}\"]\n{}{}\
        [[key]]\nname = \"word\"\ntype = \"text\"\nrequired = true\ndoc = \"what it says\"\n\
        [[key]]\nname = \"forge\"\ntype = \"bool\"\ndefault = false\ndoc = \"it tries what it may not\"\n\
        [[key]]\nname = \"interface\"\ntype = \"tables\"\ndoc = \"where\"\n\
        key = [{{ name = \"name\", type = \"interface\", required = true, doc = \"its name\" }}, \
        {{ name = \"vrf\", type = \"vrf\", doc = \"its VRF\" }}]\n\
        [[show]]\nname = \"heard\"\ndoc = \"what was heard\"\n[[show]]\nname = \"tried\"\ndoc = \"what was refused\"\n",
        python(),
        raw("ipv4", "224.0.0.120"),
        raw("ipv6", "ff02::120"),
    )
}

/// What is configured beside the router itself.
fn section(word: &str, forge: bool, interfaces: &str) -> String {
    format!(
        "[[protocol]]\nname = \"raw\"\ndescriptor = \"raw.toml\"\n\
        [raw]\nword = \"{word}\"\nforge = {forge}\n{interfaces}"
    )
}

fn configuration(word: &str, forge: bool, interfaces: &str) -> String {
    format!("[router]\nid = \"10.0.0.1\"\nasn = 65000\n{}", section(word, forge, interfaces))
}

const N1: &str = "[[raw.interface]]\nname = \"n1\"\n";

fn rows(router: &Router, command: &str) -> Result<Vec<Value>> {
    let shown = router.show(&["raw", command])?;
    Ok(shown.as_array().context("rows")?.clone())
}

fn until_heard(router: &Router, wanted: &Value) -> Result<()> {
    wait::until("a packet", LIMIT, || {
        let heard = rows(router, "heard").map_err(|error| error.to_string())?;
        if heard.contains(wanted) { Ok(()) } else { Err(format!("{wanted} is not in {heard:?}")) }
    })
    .with_context(|| router.log_tail())
}

fn heard(source: &str, destination: &str, payload: &str) -> Value {
    let (interface, hops) = ("n1", 1);
    json!({ "interface": interface, "source": source, "destination": destination, "hops": hops, "payload": payload })
}

fn installed() -> Result<(Installed, Files)> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/outsiders/raw.py");
    let installed = Installed::of(&program)?;
    let files = Files::from([("raw.toml".to_owned(), descriptor(installed.place()?))]);
    Ok((installed, files))
}

#[test]
fn a_program_of_somebody_else_speaks_raw_ip_as_it_is_described_and_not_otherwise() -> Result<()> {
    let (_installed, files) = installed()?;
    let star = Star::new(2)?;
    let listener = |host: &Namespace, family| -> Result<Socket> {
        let socket = host.run(move || Socket::new(family, Type::RAW, Some(Protocol::from(OSPF))))??;
        socket.set_read_timeout(Some(MOMENT))?;
        Ok(socket)
    };
    let ospf = [listener(star.neighbor(1), Domain::IPV4)?, listener(star.neighbor(1), Domain::IPV6)?];
    let near = Router::start_with_files(&star.router, &configuration("near", true, N1), &files)?;
    let far = Router::start_with_files(star.neighbor(1), &configuration("far", false, N1), &files)?;

    // Both ways, to a group and to one router, in both families.
    for (near_address, far_address, group) in
        [("10.0.1.1", "10.0.1.2", "224.0.0.120"), ("2001:db8:1::1", "2001:db8:1::2", "ff02::120")]
    {
        until_heard(&near, &heard(far_address, group, "far"))?;
        until_heard(&near, &heard(far_address, near_address, "re: near"))?;
        until_heard(&far, &heard(near_address, group, "near"))?;
        until_heard(&far, &heard(near_address, far_address, "re: far"))?;
    }

    // What it may not is refused with the reason, and has not come.
    let tried = wait::until("all that it tries", LIMIT, || match rows(&near, "tried") {
        Ok(rows) if rows.len() == 16 => Ok(rows),
        other => Err(format!("{other:?}")),
    })
    .with_context(|| near.log_tail())?;
    for (what, reason) in [
        ("ospf", "denied: you may not use IP protocol 89"),
        ("ospf to one", "denied: you may not use IP protocol 89"),
        ("source of the neighbor", "is no address of interface \"n1\""),
        ("source of another interface", "is no address of interface \"n1\""),
        ("interface", "you may not send IP protocol 253 on interface \"n2\""),
        ("group", "you were not granted the group"),
        ("receiving ospf", "denied: you may not use IP protocol 89"),
        ("descriptor", "denied: you may use Send and Receive"),
    ] {
        let of = tried.iter().filter(|row| row["what"] == what);
        let refused: Vec<_> = of.filter_map(|row| row["refused"].as_str()).collect();
        ensure!(refused.len() == 2 && refused.iter().all(|it| it.contains(reason)), "{what}: {tried:?}");
    }
    for socket in ospf {
        socket.recv(&mut [MaybeUninit::uninit(); 64]).expect_err("no packet of OSPF has come");
    }
    let sources: BTreeSet<_> =
        rows(&far, "heard")?.iter().filter_map(|row| row["source"].as_str().map(str::to_owned)).collect();
    ensure!(sources == BTreeSet::from(["10.0.1.1".to_owned(), "2001:db8:1::1".to_owned()]), "{sources:?}");
    ensure!(rows(&far, "heard")?.iter().all(|row| row["payload"] != "forged"));
    let counters = near.cli(&["show", "counters", "holdfast_fea_packets"])?;
    let count = |name: &str| -> Option<u64> {
        counters.lines().find(|line| line.contains(name))?.split_whitespace().last()?.parse().ok()
    };
    ensure!(count("packets_refused").is_some_and(|count| count >= 12), "{counters}");
    ensure!(count("packets_sent").is_some_and(|count| count > 0), "{counters}");
    ensure!(near.log().contains("packets-refused"));

    // What the section names no more is neither heard nor answered.
    near.reload_with_files(&configuration("silent", false, ""), &files)?;
    far.reload_with_files(&configuration("late", false, N1), &files)?;
    std::thread::sleep(3 * MOMENT);
    let has = |router: &Router, payload: &str| -> Result<bool> {
        Ok(rows(router, "heard")?.iter().any(|row| row["payload"] == payload))
    };
    ensure!(!has(&near, "late")? && !has(&far, "silent")? && !has(&far, "re: late")?);
    near.reload_with_files(&configuration("again", false, N1), &files)?;
    until_heard(&near, &heard("10.0.1.2", "224.0.0.120", "late"))?;
    until_heard(&far, &heard("10.0.1.1", "224.0.0.120", "again"))?;
    until_heard(&far, &heard("10.0.1.1", "10.0.1.2", "re: late"))?;

    // Another fea: the program asks it anew.
    near.kill("fea")?;
    near.wait_running()?;
    near.reload_with_files(&configuration("after", false, N1), &files)?;
    until_heard(&far, &heard("10.0.1.1", "224.0.0.120", "after"))?;
    near.stop()?;
    far.stop()
}

/// A host that says its word from 10.0.1.2 to the group, as another such program would, and reads what comes back.
fn neighbor(host: &Namespace, word: &'static str) -> Result<JoinHandle<Result<BTreeSet<String>>>> {
    host.spawn(move || {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(253)))?;
        let group = Ipv4Addr::new(224, 0, 0, 120);
        socket.join_multicast_v4(&group, &Ipv4Addr::new(10, 0, 1, 2))?;
        socket.set_multicast_if_v4(&Ipv4Addr::new(10, 0, 1, 2))?;
        socket.set_multicast_loop_v4(false)?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        let (mut heard, begin) = (BTreeSet::new(), Instant::now());
        while heard.len() < 2 && begin.elapsed() < LIMIT {
            socket.send_to(word.as_bytes(), &SocketAddr::new(group.into(), 0).into())?;
            let mut packet = [0_u8; 64];
            if let Ok((_, octets)) = rustix::net::recv(&socket, &mut packet[..], RecvFlags::empty()) {
                heard.insert(String::from_utf8_lossy(&packet[20..octets]).into_owned());
            }
        }
        Ok(heard)
    })
}

#[test]
fn a_program_of_somebody_else_speaks_raw_ip_in_vrfs() -> Result<()> {
    let (_installed, files) = installed()?;
    let scene = Scene::new()?;
    let mut interfaces = String::new();
    for table in TABLES {
        let vrf = if table == "main" { String::new() } else { format!("vrf = \"{table}\"\n") };
        interfaces += &format!("[[raw.interface]]\nname = \"{}\"\n{vrf}", scene.interface(table));
    }
    let configuration = scene.configuration(true, &section("near", false, &interfaces));
    let router = Router::start_with_files(&scene.host, &configuration, &files)?;
    let words = ["in main", "in blue", "in red"];
    let neighbors: Vec<_> =
        scene.neighbors.iter().zip(words).map(|(host, word)| neighbor(host, word)).collect::<Result<_>>()?;
    // Each hears the word of the router, and the answer to its own and to no other.
    for (neighbor, word) in neighbors.into_iter().zip(words) {
        let heard = neighbor.join().map_err(|_| anyhow::anyhow!("it panicked"))??;
        let expected = BTreeSet::from(["near".to_owned(), format!("re: {word}")]);
        ensure!(heard == expected, "{word}: {heard:?}\n{}", router.log_tail());
    }
    for (table, word) in TABLES.into_iter().zip(words) {
        let rows = rows(&router, "heard")?;
        let of_word = rows.iter().filter(|row| row["payload"] == word);
        let tables: BTreeSet<_> = of_word.map(|row| row["vrf"].as_str().unwrap_or("main")).collect();
        ensure!(tables == BTreeSet::from([table]), "{word}: {rows:?}");
    }
    router.stop()
}
