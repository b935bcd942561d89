//! RIPv2 and RIPng between FRR, Holdfast and BIRD, with keys; into BGP and out of it; and the death of `rip`.
//!
//! ```text
//!  FRR ripd, ripngd ──n1── Holdfast ──n2── BIRD rip, rip ng
//! ```

use std::time::Duration;

use anyhow::{Result, ensure};
use holdfast_lab::{
    netns::Namespace,
    peers::{Bird, Frr, Programs},
    router::{Files, Router},
    topology::join,
    wait,
};

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
fn frr(host: &Namespace, interface: &str, more: &str) -> Result<Frr> {
    let [v4, v6] = OF_FRR;
    host.ip(&["route", "add", "blackhole", v4])?;
    host.ip(&["-6", "route", "add", "blackhole", v6])?;
    let mut frr = Frr::start_with_zebra(Programs::Machine, host, "")?;
    let ripd = format!(
        "{more}\nrouter rip\n version 2\n network {interface}\n redistribute kernel\n timers basic 5 20 10\n"
    );
    frr.add(host, "ripd", &ripd)?;
    let ripngd = format!("router ripng\n network {interface}\n redistribute kernel\n timers basic 5 20 10\n");
    frr.add(host, "ripngd", &ripngd)?;
    Ok(frr)
}

/// BIRD with both versions on an interface, which originates [`OF_BIRD`] with the tag 77.
fn bird(host: &Namespace, interface: &str, more: &str) -> Result<Bird> {
    let [v4, v6] = OF_BIRD;
    Bird::start(
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
    let row = row()?;
    let frr = frr(&row.frr, "n1", "")?;
    let bird = bird(&row.bird, "n2", "")?;
    let interfaces = interface("n1", "") + &interface("n2", "cost = 2");
    let router = Router::start(&row.us, &configuration(&interfaces))?;
    row.until_all()?;

    // 3 of our policy, and 1 of FRR's interface; BIRD's tag with 1 of its own, 2 of ours, 1 of FRR's.
    let told = frr.vtysh("show ip rip")?;
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

    // The process dies: nobody notices.
    let before = row.us.ip(&["route", "show", OF_FRR[0]])?;
    router.kill("rip")?;
    wait::until("the next process", LIMIT, || {
        let text = router.show(&["rip", "neighbors"]).map_err(|error| error.to_string())?;
        if text.as_array().is_some_and(|all| all.len() == 4) { Ok(()) } else { Err(text.to_string()) }
    })?;
    row.until_all()?;
    ensure!(row.us.ip(&["route", "show", OF_FRR[0]])? == before);

    // FRR loses its route, and everybody does.
    row.frr.ip(&["route", "del", "blackhole", OF_FRR[0]])?;
    until_kernel(&row.us, OF_FRR[0], None)?;
    until_kernel(&row.bird, OF_FRR[0], None)?;

    // The section goes: neighbours are told at once.
    let without = configuration("").replace("[rip]\nupdate = 5\ntimeout = 20\ngarbage = 10\n", "");
    let without = &without[..without.find("[[rip.redistribute]]").unwrap_or(without.len())];
    router.reload_with_files(without, &Files::new())?;
    until_kernel(&row.bird, OURS[0], None)?;
    until_kernel(&row.us, OF_BIRD[0], None)?;
    router.stop()
}

#[test]
fn keys_are_those_of_frr_and_bird_and_others_are_refused() -> Result<()> {
    let row = row()?;
    let keys = "key chain k\n key 1\n  key-string hidden\n exit\nexit\n\
                interface n1\n ip rip authentication mode md5 auth-length rfc\n \
                ip rip authentication key-chain k\nexit";
    let _frr = frr(&row.frr, "n1", keys)?;
    let bird = "authentication cryptographic; password \"secret of both\" { id 5; algorithm hmac sha256; };";
    let _bird = self::bird(&row.bird, "n2", bird)?;
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
