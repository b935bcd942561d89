//! RIPv2 and RIPng between FRR, Holdfast and BIRD, with keys; into BGP and out of it; and the death of `rip`.
//!
//! ```text
//!  FRR ripd, ripngd ──n1── Holdfast ──n2── BIRD rip, rip ng
//! ```

use std::{
    process::{Child, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    netns::Namespace,
    peers::{Bird, Frr, Programs},
    router::{Files, Router},
    topology::join,
    vrf::{Scene, TABLES},
    wait,
};
use rustix::process::{Signal, kill_process};

const LIMIT: Duration = Duration::from_secs(60);

const OF_FRR: [&str; 2] = ["203.0.113.0/24", "2001:db8:113::/48"];
const OF_BIRD: [&str; 2] = ["198.51.100.0/24", "2001:db8:198::/48"];
const OURS: [&str; 2] = ["192.0.2.0/24", "2001:db8:192::/48"];

/// Until the kernel of a host has a route by this way, or has none.
fn until_kernel(host: &Namespace, wanted: &str, way: Option<&str>) -> Result<()> {
    let family = if wanted.contains(':') { "-6" } else { "-4" };
    wait::until("the kernel's route", LIMIT, || {
        let line = host.ip(&[family, "route", "show", wanted]).map_err(|error| error.to_string())?;
        let right = match way {
            Some(way) => line.contains(way),
            None => line.is_empty(),
        };
        if right { Ok(()) } else { Err(format!("{wanted} by {way:?}: {line:?}")) }
    })
}

/// FRR with both versions on an interface, which originates [`OF_FRR`].
fn frr(programs: &Programs, host: &Namespace, interface: &str, more: &str) -> Result<Frr> {
    let [v4, v6] = OF_FRR;
    host.ip(&["route", "add", "blackhole", v4])?;
    host.ip(&["-6", "route", "add", "blackhole", v6])?;
    let mut frr = Frr::start_with_zebra(programs.clone(), host, "")?;
    let ripd = format!(
        "{more}\nrouter rip\n version 2\n network {interface}\n redistribute kernel\n timers basic 5 20 10\n"
    );
    let ripngd = format!("router ripng\n network {interface}\n redistribute kernel\n timers basic 5 20 10\n");
    frr.add(host, &[("ripd", &ripd), ("ripngd", &ripngd)])?;
    Ok(frr)
}

/// BIRD with both versions on an interface, which originates [`OF_BIRD`] with the tag 77.
fn bird(programs: &Programs, host: &Namespace, interface: &str, more: &str) -> Result<Bird> {
    let [v4, v6] = OF_BIRD;
    Bird::start_of(
        programs.clone(),
        host,
        &format!(
            "router id 10.0.2.2;
            protocol device {{ }}
            protocol kernel {{ ipv4 {{ export all; }}; }}
            protocol kernel {{ ipv6 {{ export all; }}; }}
            protocol static {{ ipv4; route {v4} blackhole; }}
            protocol static {{ ipv6; route {v6} blackhole; }}
            filter ours {{ if source != RTS_STATIC then reject; rip_tag = 77; accept; }}
            protocol rip {{ ipv4 {{ import all; export filter ours; }}; interface \"{interface}\" {{ update time 5; timeout time 20; garbage time 10; {more} }}; }}
            protocol rip ng {{ ipv6 {{ import all; export filter ours; }}; interface \"{interface}\" {{ update time 5; timeout time 20; garbage time 10; }}; }}"
        ),
        &[],
    )
}

/// Our configuration, with these interfaces.
fn configuration(interfaces: &str) -> String {
    let [v4, v6] = OURS;
    format!(
        "[router]\nid = \"10.0.0.1\"\nasn = 65000\n\
         [[static]]\nprefix = \"{v4}\"\nblackhole = true\ntag = 9\n\
         [[static]]\nprefix = \"{v6}\"\nblackhole = true\ntag = 9\n\
         [rip]\nupdate = 5\ntimeout = 20\ngarbage = 10\n\
         [[rip.redistribute]]\nfrom = \"static\"\npolicy = \"metric-3\"\n\
         [[policy]]\nname = \"metric-3\"\n[[policy.term]]\nfrom = {{ tag = [9] }}\nthen = {{ med = 3, action = \"accept\" }}\n\
         {interfaces}"
    )
}

fn interface(name: &str, more: &str) -> String {
    format!("[[rip.interface]]\nname = \"{name}\"\n{more}\n")
}

/// All that the kernel of a host says of routes, whoever's they are; in a pipe, which has room for hundreds of lines.
struct Watch(Child);

impl Watch {
    fn start(host: &Namespace) -> Result<Self> {
        let mut ip = host.command("ip");
        Ok(Self(ip.args(["monitor", "route"]).stdout(Stdio::piped()).spawn()?))
    }

    fn end(mut self) -> Result<String> {
        self.0.kill()?;
        Ok(String::from_utf8(self.0.wait_with_output()?.stdout)?)
    }
}

/// FRR, Holdfast, BIRD in a row.
struct Row {
    us: Namespace,
    frr: Namespace,
    bird: Namespace,
}

fn row() -> Result<Row> {
    let row = Row { us: Namespace::new("us")?, frr: Namespace::new("frr")?, bird: Namespace::new("bird")? };
    join(1, &row.us, &row.frr)?;
    join(2, &row.us, &row.bird)?;
    Ok(row)
}

impl Row {
    /// Until all three have all routes.
    fn until_all(&self) -> Result<()> {
        until_kernel(&self.us, OF_FRR[0], Some("via 10.0.1.2"))?;
        until_kernel(&self.us, OF_FRR[1], Some("via fe80::"))?;
        until_kernel(&self.us, OF_BIRD[0], Some("via 10.0.2.2"))?;
        until_kernel(&self.us, OF_BIRD[1], Some("via fe80::"))?;
        for host in [&self.frr, &self.bird] {
            for prefix in OURS {
                until_kernel(host, prefix, Some("via "))?;
            }
        }
        for (host, theirs) in [(&self.frr, OF_BIRD), (&self.bird, OF_FRR)] {
            theirs.iter().try_for_each(|prefix| until_kernel(host, prefix, Some("via ")))?;
        }
        Ok(())
    }
}

#[test]
fn frr_and_bird_have_the_routes_of_each_other_and_ours_with_metric_and_tag() -> Result<()> {
    Programs::all().try_for_each(|programs| have_the_routes_of_each_other(&programs))
}

fn have_the_routes_of_each_other(programs: &Programs) -> Result<()> {
    let row = row()?;
    let frr = frr(programs, &row.frr, "n1", "")?;
    let bird = bird(programs, &row.bird, "n2", "")?;
    let interfaces = interface("n1", "") + &interface("n2", "cost = 2");
    let router = Router::start(&row.us, &configuration(&interfaces))?;
    row.until_all()?;

    // 3 of our policy, and 1 of FRR's interface; BIRD's tag with 1 of its own, 2 of ours, 1 of FRR's.
    let told = frr.ask("ripd", "show ip rip")?;
    let line = |prefix: &str| told.lines().find(|line| line.contains(prefix)).unwrap_or_default().to_owned();
    ensure!(line(OURS[0]).split_whitespace().any(|word| word == "4"), "{told}");
    ensure!(line(OF_BIRD[0]).split_whitespace().any(|word| word == "77"), "{told}");
    let told = bird.birdc(&format!("show route for {} all", OURS[0]))?;
    ensure!(told.contains("rip_metric: 4") || told.contains("RIP.metric: 4"), "{told}");
    ensure!(told.contains("rip_tag: 9") || told.contains("RIP.tag: 9") || told.contains("0009"), "{told}");

    let routes = router.show(&["rip"])?;
    let learned = routes.as_array().into_iter().flatten().find(|route| route["prefix"] == OF_BIRD[0]);
    ensure!(learned.is_some_and(|route| route["tag"] == 77 && route["metric"] == 3), "{routes:#}");
    let neighbors = router.show(&["rip", "neighbors"])?;
    ensure!(neighbors.as_array().is_some_and(|all| all.len() == 4), "{neighbors:#}");

    // FRR loses its route, and everybody does.
    row.frr.ip(&["route", "del", "blackhole", OF_FRR[0]])?;
    until_kernel(&row.us, OF_FRR[0], None)?;
    until_kernel(&row.bird, OF_FRR[0], None)?;

    // Another policy: neighbours are told so, and the process stays.
    let pid = router.pid("rip")?;
    let refused = configuration(&interfaces).replace("tag = [9]", "tag = [10]");
    router.reload_with_files(&refused, &Files::new())?;
    until_kernel(&row.bird, OURS[0], None)?;
    router.reload_with_files(&configuration(&interfaces), &Files::new())?;
    until_kernel(&row.bird, OURS[0], Some("via "))?;
    ensure!(router.pid("rip")? == pid);

    // The section goes: neighbours are told at once.
    let without = configuration("").replace("[rip]\nupdate = 5\ntimeout = 20\ngarbage = 10\n", "");
    let without = &without[..without.find("[[rip.redistribute]]").unwrap_or(without.len())];
    router.reload_with_files(without, &Files::new())?;
    until_kernel(&row.bird, OURS[0], None)?;
    until_kernel(&row.us, OF_BIRD[0], None)?;
    router.stop()
}

/// Neighbours, after some time.
fn until_neighbors(router: &Router, number: usize) -> Result<()> {
    wait::until("neighbours", LIMIT, || {
        let shown = router.show(&["rip", "neighbors"]).map_err(|error| error.to_string())?;
        if shown.as_array().is_some_and(|all| all.len() == number) { Ok(()) } else { Err(shown.to_string()) }
    })
}

#[test]
fn rip_is_killed_and_hangs_and_neighbours_and_kernels_keep_the_routes() -> Result<()> {
    let row = row()?;
    let _frr = frr(&Programs::Machine, &row.frr, "n1", "")?;
    let _bird = bird(&Programs::Machine, &row.bird, "n2", "")?;
    let interfaces = interface("n1", "") + &interface("n2", "");
    let router = Router::start(&row.us, &configuration(&interfaces))?;
    row.until_all()?;
    let mut watches = Vec::new();
    for host in [&row.us, &row.frr, &row.bird] {
        watches.push(Watch::start(host)?);
    }

    router.kill("rip")?;
    until_neighbors(&router, 4)?;
    let stopped = router.pid("rip")?;
    kill_process(stopped, Signal::STOP)?;
    wait::until("the next process", LIMIT, || match router.pid("rip") {
        Ok(pid) if pid != stopped => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    until_neighbors(&router, 4)?;
    // An update and more: whatever the next process told has been told.
    wait::until("the end of the next process's start", LIMIT, || {
        let log = router.log();
        if log.contains("origin-synced") { Ok(()) } else { Err(log) }
    })?;
    row.until_all()?;
    for watch in watches {
        let seen = watch.end()?;
        let gone: Vec<_> = seen.lines().filter(|line| line.contains("Deleted")).collect();
        let of_rip = |line: &&&str| [OF_FRR, OF_BIRD, OURS].concat().iter().any(|route| line.contains(route));
        ensure!(gone.iter().filter(of_rip).count() == 0, "{gone:?}");
    }
    router.stop()
}

/// BIRD that speaks BGP with us over n3, and announces a network.
fn bgp(host: &Namespace, asn: u32, network: &str, more: &str) -> Result<Bird> {
    Bird::start(
        host,
        &format!(
            "router id 10.0.3.2;
            protocol device {{ }}
            protocol static {{ ipv4; route {network} blackhole; }}
            filter ours {{ if source != RTS_STATIC then reject; {more} accept; }}
            protocol bgp holdfast {{
              local 10.0.3.2 as {asn}; neighbor 10.0.3.1 as 65000;
              connect delay time 1; connect retry time 1; error wait time 1, 2;
              ipv4 {{ import all; export filter ours; }};
            }}"
        ),
    )
}

#[test]
fn routes_of_bgp_go_through_rip_into_bgp_and_do_not_come_back() -> Result<()> {
    let hosts = ["x", "a", "b", "y"].map(Namespace::new);
    let [x, a, b, y] = hosts;
    let [x, a, b, y] = [x?, a?, b?, y?];
    join(3, &a, &x)?;
    join(1, &a, &b)?;
    join(3, &b, &y)?;
    let bird_x = bgp(&x, 65001, "203.0.113.0/24", "")?;
    let bird_y = bgp(&y, 65002, "198.51.100.0/24", "")?;
    // What a router has brought into RIP has its tag, and does not leave RIP there.
    let configuration = |id: u8, asn: u32, own: u32| {
        format!(
            "[router]\nid = \"10.0.0.{id}\"\nasn = 65000\n[rip]\nupdate = 5\ntimeout = 20\ngarbage = 10\n\
             [[rip.interface]]\nname = \"n1\"\n\
             [[rip.redistribute]]\nfrom = \"bgp\"\npolicy = \"into-rip\"\n\
             [bgp]\nconnect-retry = 1\n\
             [[bgp.redistribute]]\nfrom = \"rip\"\npolicy = \"out-of-rip\"\n\
             [[bgp.peer]]\nname = \"bird\"\naddress = \"10.0.3.2\"\nasn = {asn}\nimport = \"accept-all\"\nexport = \"accept-all\"\n\
             [[policy]]\nname = \"into-rip\"\n[[policy.term]]\nthen = {{ tag = {own}, action = \"accept\" }}\n\
             [[policy]]\nname = \"out-of-rip\"\n[[policy.term]]\nfrom = {{ tag = [{own}] }}\nthen = \"reject\"\n\
             [[policy.term]]\nthen = \"accept\"\n"
        )
    };
    let router_a = Router::start(&a, &configuration(1, 65001, 100))?;
    let router_b = Router::start(&b, &configuration(2, 65002, 200))?;
    for (bird, theirs) in [(&bird_x, "198.51.100.0/24"), (&bird_y, "203.0.113.0/24")] {
        wait::until("the other side's route", LIMIT, || {
            let text =
                bird.birdc(&format!("show route for {theirs} all")).map_err(|error| error.to_string())?;
            if text.contains("BGP.as_path: 65000") { Ok(()) } else { Err(text) }
        })?;
    }
    until_kernel(&b, "203.0.113.0/24", Some("via 10.0.1.1"))?;
    // Nothing of a side comes back to it through RIP.
    for (router, own) in [(&router_a, "203.0.113.0/24"), (&router_b, "198.51.100.0/24")] {
        let routes = router.show(&["bgp", "route", own])?;
        ensure!(!routes.to_string().contains("\"rip\""), "{routes:#}");
    }
    router_a.stop()?;
    router_b.stop()
}

/// Routes of RIPv2 that a host has in its kernel.
fn learned(host: &Namespace) -> Result<usize> {
    Ok(host.ip(&["-4", "route", "show", "proto", "rip"])?.lines().count())
}

/// Datagrams that sockets of RIPv2 of a host have dropped, as they were full.
fn dropped(host: &Namespace) -> Result<u64> {
    let text = host.run(|| std::fs::read_to_string("/proc/thread-self/net/udp"))??;
    let rip =
        text.lines().filter(|line| line.split_whitespace().nth(1).is_some_and(|at| at.ends_with(":0208")));
    rip.map(|line| Ok(line.split_whitespace().next_back().context("a column")?.parse::<u64>()?)).sum()
}

/// A burst of 401 packets is more than FRR's socket holds.
#[test]
fn frr_holds_ten_thousand_routes_over_five_updates() -> Result<()> {
    const ROUTES: usize = 10_000;
    const UPDATE: u64 = 4;
    let [us, frr, feed] = ["us", "frr", "feed"].map(Namespace::new);
    let (us, frr, feed) = (us?, frr?, feed?);
    join(1, &us, &frr)?;
    join(3, &us, &feed)?;
    let more =
        (1..ROUTES).map(|number| format!(" route 20.{}.{}.0/24 blackhole;", number >> 8, number & 255));
    let network = format!("20.0.0.0/24 blackhole;{} route 203.0.113.0/24", more.collect::<String>());
    let _feed = bgp(&feed, 65001, &network, "")?;
    let router = Router::start(
        &us,
        &format!(
            "[router]\nid = \"10.0.0.1\"\nasn = 65000\n[rip]\nupdate = {UPDATE}\ntimeout = 30\ngarbage = 10\n\
             [[rip.interface]]\nname = \"n1\"\n[[rip.redistribute]]\nfrom = \"bgp\"\npolicy = \"accept-all\"\n\
             [bgp]\nconnect-retry = 1\n\
             [[bgp.peer]]\nname = \"feed\"\naddress = \"10.0.3.2\"\nasn = 65001\nimport = \"accept-all\"\n"
        ),
    )?;
    router.until_neighbor("feed", LIMIT, |shown| {
        shown["addressFamilyInfo"]["ipv4Unicast"]["acceptedPrefixCounter"].as_u64() > Some(ROUTES as u64)
    })?;
    let mut daemon = Frr::start_with_zebra(Programs::Machine, &frr, "")?;
    daemon.add(&frr, &[("ripd", "router rip\n version 2\n network n1\n timers basic 5 20 10\n")])?;
    wait::until("all routes at FRR", LIMIT, || match learned(&frr) {
        Ok(number) if number > ROUTES => Ok(()),
        Ok(number) => Err(number.to_string()),
        Err(error) => Err(error.to_string()),
    })?;
    let end = std::time::Instant::now() + Duration::from_secs(5 * UPDATE);
    while std::time::Instant::now() < end {
        let number = learned(&frr)?;
        ensure!(number > ROUTES, "{number} routes are left");
        std::thread::sleep(Duration::from_millis(500));
    }
    let dropped = dropped(&frr)?;
    ensure!(dropped == 0, "FRR's socket has dropped {dropped} packets");
    drop(daemon);
    router.stop()
}

#[test]
fn a_next_hop_of_bgp_moves_when_rip_moves() -> Result<()> {
    let (us, far, bird) = (Namespace::new("us")?, Namespace::new("far")?, Namespace::new("bird")?);
    join(1, &us, &far)?;
    join(2, &us, &far)?;
    join(3, &us, &bird)?;
    far.ip(&["address", "add", "192.0.2.9/32", "dev", "lo"])?;
    let mut frr = Frr::start_with_zebra(Programs::Machine, &far, "")?;
    let ripd =
        "router rip\n version 2\n network n1\n network n2\n redistribute connected\n timers basic 5 20 10\n";
    frr.add(&far, &[("ripd", ripd)])?;
    let _bird = bgp(&bird, 65000, "203.0.113.0/24", "bgp_next_hop = 192.0.2.9;")?;
    let configuration = format!(
        "[router]\nid = \"10.0.0.1\"\nasn = 65000\n[rip]\nupdate = 5\ntimeout = 20\ngarbage = 10\nfamilies = \"ipv4\"\n{}{}\
         [bgp]\nconnect-retry = 1\n[[bgp.peer]]\nname = \"bird\"\naddress = \"10.0.3.2\"\nasn = 65000\n",
        interface("n1", ""),
        interface("n2", "cost = 3"),
    );
    let router = Router::start(&us, &configuration)?;
    until_kernel(&us, "203.0.113.0/24", Some("via 10.0.1.2"))?;
    us.ip(&["link", "set", "n1", "down"])?;
    until_kernel(&us, "203.0.113.0/24", Some("via 10.0.2.2"))?;
    us.ip(&["link", "set", "n1", "up"])?;
    until_kernel(&us, "203.0.113.0/24", Some("via 10.0.1.2"))?;
    router.stop()
}

#[test]
fn each_vrf_has_routes_of_its_own() -> Result<()> {
    let scene = Scene::new()?;
    let mut rest = "[rip]\nupdate = 5\ntimeout = 20\ngarbage = 10\nfamilies = \"ipv4\"\n".to_owned();
    let mut birds = Vec::new();
    for (number, table) in TABLES.into_iter().enumerate() {
        let vrf = if table == "main" { String::new() } else { format!("vrf = \"{table}\"") };
        rest += &interface(scene.interface(table), &vrf);
        birds.push(Bird::start(
            &scene.neighbors[number],
            &format!(
                "router id 10.0.1.2; protocol device {{ }}
                protocol static {{ ipv4; route 20.0.{number}.0/24 blackhole; }}
                protocol rip {{ ipv4 {{ import all; export all; }}; interface \"n*\" {{ update time 5; }}; }}"
            ),
        )?);
    }
    let router = Router::start(&scene.host, &scene.configuration(true, &rest))?;
    let of = |table, prefix| (table, [prefix]);
    for (table, prefixes) in [of("main", "20.0.0.0/24"), of("blue", "20.0.1.0/24"), of("red", "20.0.2.0/24")]
    {
        scene.until_routes(&[(table, &prefixes)])?;
    }
    // A VRF goes, and what RIP had there.
    let at = rest.find("[[rip.interface]]\nname = \"n1\"\nvrf = \"red\"").unwrap_or(rest.len());
    router.reload_with_files(&scene.configuration(false, &rest[..at]), &Files::new())?;
    scene.until_routes(&[("red", &[]), ("blue", &["20.0.1.0/24"])])?;
    router.stop()
}

#[test]
fn keys_are_those_of_frr_and_bird_and_others_are_refused() -> Result<()> {
    Programs::all().try_for_each(|programs| keys_are_theirs(&programs))
}

fn keys_are_theirs(programs: &Programs) -> Result<()> {
    let row = row()?;
    let keys = "key chain k\n key 1\n  key-string hidden\n exit\nexit\n\
                interface n1\n ip rip authentication mode md5 auth-length rfc\n \
                ip rip authentication key-chain k\nexit";
    let _frr = frr(programs, &row.frr, "n1", keys)?;
    let bird = "authentication cryptographic; password \"secret of both\" { id 5; algorithm hmac sha256; };";
    let _bird = self::bird(programs, &row.bird, "n2", bird)?;
    let key = |id, algorithm, secret| {
        format!("[[rip.interface.key]]\nid = {id}\nalgorithm = \"{algorithm}\"\nsecret = \"{secret}\"")
    };
    let of = |secret| {
        configuration(
            &(interface("n1", &key(1, "keyed-md5", "hidden"))
                + &interface("n2", &key(5, "hmac-sha-256", secret))),
        )
    };
    let router = Router::start(&row.us, &of("secret of both"))?;
    row.until_all()?;

    // Another secret: the neighbour's routes go, and the packets are counted.
    router.reload_with_files(&of("another one"), &Files::new())?;
    until_kernel(&row.us, OF_BIRD[0], None)?;
    let shown = router.show(&["rip", "interfaces"])?;
    let of_n2 = shown.as_array().into_iter().flatten();
    let of_n2 = of_n2.filter(|row| row["interface"] == "n2" && row["version"] == "RIPv2");
    ensure!(of_n2.map(|row| row["notAuthentic"].as_u64()).max().flatten() > Some(0), "{shown:#}");
    until_kernel(&row.us, OF_FRR[0], Some("via 10.0.1.2"))?;
    router.stop()
}

/// A host with the interface n1 of this number, at whose other end nobody speaks.
fn alone(index: &str) -> Result<Namespace> {
    let us = Namespace::new("us")?;
    make_n1(&us, index)?;
    Ok(us)
}

fn make_n1(host: &Namespace, index: &str) -> Result<()> {
    host.ip(&["link", "add", "n1", "index", index, "type", "veth", "peer", "name", "far"])?;
    host.ip(&["link", "set", "far", "up"])?;
    host.ip(&["address", "add", "10.0.1.1/24", "dev", "n1"])?;
    host.ip(&["link", "set", "n1", "up"])?;
    Ok(())
}

/// The destinations of `show rip`, in the order in which they are shown.
fn shown(router: &Router) -> Result<Vec<String>, String> {
    let rows = router.show(&["rip"]).map_err(|error| error.to_string())?;
    let rows = rows.as_array().into_iter().flatten();
    let shown = rows.filter(|row| row["source"] != "lost").filter_map(|row| row["prefix"].as_str());
    Ok(shown.map(str::to_owned).collect())
}

#[test]
fn routes_that_found_a_full_table_come_in_when_there_is_room_and_each_is_shown_once() -> Result<()> {
    let us = alone("77")?;
    let statics = |numbers: std::ops::Range<u32>| -> String {
        let one = |number: u32| {
            let prefix = format!("20.{}.{}.0/24", number / 256, number % 256);
            format!("[[static]]\nprefix = \"{prefix}\"\nblackhole = true\n")
        };
        numbers.map(one).collect()
    };
    // 600 of them, in a table with room for 500.
    let configuration = |statics: &str| {
        format!(
            "[router]\nid = \"10.0.0.1\"\nasn = 65000\n[rip]\nfamilies = \"ipv4\"\nmax-routes = 500\n\
             update = 1\ntimeout = 4\ngarbage = 2\n\
             [[rip.redistribute]]\nfrom = \"static\"\npolicy = \"accept-all\"\n{}{statics}",
            interface("n1", "")
        )
    };
    let router = Router::start(&us, &configuration(&statics(0..600)))?;
    // The network of the interface is there in any case, also if it came when the table was full.
    let of_statics = |rows: &[String]| rows.iter().filter(|prefix| prefix.starts_with("20.")).count();
    let until_shown = |right: &dyn Fn(&[String]) -> bool| {
        wait::until("the routes of RIP", LIMIT, || match shown(&router) {
            Ok(rows) if right(&rows) && rows.len() == of_statics(&rows) + 1 => Ok(rows),
            other => Err(format!("{other:?}")),
        })
    };
    let shown = until_shown(&|rows| [499, 500].contains(&of_statics(rows)))?;
    let each_once = shown.iter().collect::<std::collections::BTreeSet<_>>();
    ensure!(each_once.len() == shown.len(), "{shown:?}");
    ensure!(router.log().contains("redistribution-refused"), "{}", router.log());
    // Nothing that concerns RIP itself changes.
    router.reload_with_files(&configuration(&statics(200..600)), &Files::new())?;
    let shown = until_shown(&|rows| of_statics(rows) == 400)?;
    ensure!(shown.iter().any(|prefix| prefix == "20.2.87.0/24"), "the last one: {shown:?}");
    router.stop()
}

#[test]
fn an_interface_that_is_made_again_under_its_number_hears_multicasts() -> Result<()> {
    // While `fea` stands still; and while there is none.
    for signal in [Signal::CONT, Signal::KILL] {
        let us = alone("77")?;
        let configuration = format!(
            "[router]\nid = \"10.0.0.1\"\nasn = 65000\nhang-limit = 0\n[rip]\nfamilies = \"ipv4\"\n{}",
            interface("n1", "")
        );
        let router = Router::start(&us, &configuration)?;
        let until_member = || {
            wait::until("membership of 224.0.0.9", LIMIT, || {
                let groups = us.ip(&["maddress", "show", "dev", "n1"]).map_err(|error| error.to_string())?;
                if groups.contains("224.0.0.9") {
                    Ok(())
                } else {
                    Err(format!("{signal:?}: {groups}{}", router.log()))
                }
            })
        };
        until_member()?;
        let fea = router.pid("fea")?;
        kill_process(fea, Signal::STOP)?;
        us.ip(&["link", "delete", "n1"])?;
        make_n1(&us, "77")?;
        kill_process(fea, signal)?;
        until_member()?;
        router.stop()?;
    }
    Ok(())
}

/// Until `show route` has these flags for a route, and so does its JSON (`failed`, as FRR says).
fn until_shown(router: &Router, prefix: &str, flags: &str) -> Result<()> {
    wait::until("the flags of a route", LIMIT, || {
        let text = router.cli(&["show", "route", prefix]).map_err(|error| error.to_string())?;
        let shown = router.show(&["route", prefix]).map_err(|error| error.to_string())?;
        let route = &shown[prefix][0];
        let in_json = (route["installed"] == true, route["failed"] == true);
        let in_text = text.lines().any(|line| line.starts_with(&format!("{flags}  {prefix}")));
        if in_text && in_json == (flags.contains('*'), flags.contains('r')) {
            Ok(())
        } else {
            Err(format!("{text}{shown}"))
        }
    })
    .with_context(|| router.log_tail())
}

#[test]
fn what_the_kernel_refuses_is_shown_as_rejected_until_it_is_over() -> Result<()> {
    let us = alone("77")?;
    let disable_ipv6 = |value: &'static str| {
        us.run(move || std::fs::write("/proc/sys/net/ipv6/conf/n1/disable_ipv6", value))
    };
    // An address of the host itself; and of a family that the interface has not.
    us.ip(&["address", "add", "192.0.2.9/32", "dev", "lo"])?;
    disable_ipv6("1")??;
    let configuration = "[router]\nid = \"10.0.0.1\"\nasn = 65000\n\
        [[static]]\nprefix = \"20.0.0.0/24\"\nnext-hop = \"192.0.2.9\"\ninterface = \"n1\"\n\
        [[static]]\nprefix = \"2001:db8:20::/48\"\nnext-hop = \"fe80::9\"\ninterface = \"n1\"\n\
        [[static]]\nprefix = \"20.0.1.0/24\"\nblackhole = true\n";
    let router = Router::start(&us, configuration)?;
    until_shown(&router, "20.0.1.0/24", ">*")?;
    until_shown(&router, "20.0.0.0/24", ">r")?;
    until_shown(&router, "2001:db8:20::/48", ">r")?;
    until_kernel(&us, "20.0.0.0/24", None)?;
    wait::until("a line about it", LIMIT, || {
        let log = router.log();
        let line = log.lines().find(|line| line.contains("routes-refused"));
        if line.is_some_and(|line| line.contains("20.0.0.0/24") || line.contains("192.0.2.9")) {
            Ok(())
        } else {
            Err(log)
        }
    })?;
    let counters = router.cli(&["show", "counters", "holdfast_fea_errors"])?;
    ensure!(!counters.trim_end().ends_with(" 0"), "{counters}");

    // Each is healed by itself.
    us.ip(&["address", "del", "192.0.2.9/32", "dev", "lo"])?;
    us.ip(&["address", "add", "192.0.2.1/24", "dev", "n1"])?;
    until_shown(&router, "20.0.0.0/24", ">*")?;
    until_kernel(&us, "20.0.0.0/24", Some("via 192.0.2.9 dev n1"))?;
    until_shown(&router, "2001:db8:20::/48", ">r")?;
    // The next process is told so anew, and the next one says so.
    for process in ["rib", "fea"] {
        router.kill(process)?;
        router.wait_running()?;
        until_shown(&router, "20.0.0.0/24", ">*")?;
        until_shown(&router, "2001:db8:20::/48", ">r")?;
    }
    disable_ipv6("0")??;
    until_shown(&router, "2001:db8:20::/48", ">*")?;
    until_kernel(&us, "2001:db8:20::/48", Some("via fe80::9 dev n1"))?;
    router.stop()
}
