//! Addresses of every kind, and links that come and go: after each event the kernel has the routes that lead somewhere, and no
//! others.
//!
//! ```text
//!  neighbor ──n1 … n6── Holdfast
//! ```

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, ensure};
use holdfast_lab::{
    kernel,
    netns::{End, Namespace, link},
    peers::Bird,
    router::Router,
    wait,
};
use holdfast_types::Prefix;

/// After an event the kernel is right so soon; and a slow machine has its time beside that.
const SOON: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(20);

/// A link of the router with an address of one kind, and a static route that leads over it.
struct Cell {
    interface: &'static str,
    /// As `ip address add` takes them.
    address: &'static [&'static str],
    route: &'static str,
    gateway: &'static str,
    /// The route names the interface: its gateway is in no network of the host.
    is_named: bool,
}

/// Expected of each: the route is in the kernel while the link is up and the address is there. Of the last two rows the address
/// does not matter, as the operator says where the gateway is.
const CELLS: [Cell; 8] = [
    cell("n1", &["10.1.0.1/24"], "192.0.2.16/28", "10.1.0.2"),
    // RFC 3021.
    cell("n2", &["10.2.0.0/31"], "192.0.2.32/28", "10.2.0.1"),
    cell("n3", &["10.3.0.1", "peer", "10.3.0.2/32"], "192.0.2.48/28", "10.3.0.2"),
    // The network of the peer, which need not be its address alone.
    cell("n4", &["10.4.0.1", "peer", "10.4.9.0/24"], "192.0.2.64/28", "10.4.9.7"),
    cell("n5", &["2001:db8:5::1/64", "nodad"], "2001:db8:f5::/48", "2001:db8:5::2"),
    cell("n6", &["2001:db8:6::1", "peer", "2001:db8:6::2", "nodad"], "2001:db8:f6::/48", "2001:db8:6::2"),
    Cell { is_named: true, ..cell("n7", &["203.0.113.5/32"], "192.0.2.112/28", "172.31.1.1") },
    Cell { is_named: true, ..cell("n8", &["10.8.0.1/32"], "2001:db8:f8::/48", "fe80::2") },
];

const fn cell(
    interface: &'static str,
    address: &'static [&'static str],
    route: &'static str,
    gateway: &'static str,
) -> Cell {
    Cell { interface, address, route, gateway, is_named: false }
}

impl Cell {
    fn put(&self, host: &Namespace, verb: &str) -> Result<()> {
        let mut arguments = vec!["address", verb];
        // What is deleted has no option of its making.
        arguments.extend(self.address.iter().filter(|word| verb == "add" || **word != "nodad"));
        arguments.extend(["dev", self.interface]);
        host.ip(&arguments).map(drop)
    }

    fn configuration(&self) -> String {
        let Self { interface, route, gateway, is_named, .. } = self;
        let interface = if *is_named { format!("interface = \"{interface}\"\n") } else { String::new() };
        format!("[[static]]\nprefix = \"{route}\"\nnext-hop = \"{gateway}\"\n{interface}")
    }
}

/// Our routes in the kernel of a host, of both families.
fn routes(host: &Namespace) -> Result<BTreeMap<Prefix, String>> {
    let mut routes = kernel::routes(host, false)?;
    routes.extend(kernel::routes(host, true)?);
    Ok(routes)
}

/// Until the kernel has exactly the routes of these cells, each by its gateway and link; then once more after a moment.
fn until_kernel(host: &Namespace, event: &str, expected: &[&Cell]) -> Result<()> {
    let is_right = || -> Result<(), String> {
        let routes = routes(host).map_err(|error| error.to_string())?;
        let right = expected.iter().all(|cell| {
            let prefix: Prefix = cell.route.parse().expect("a prefix");
            let way = format!("via {} dev {}", cell.gateway, cell.interface);
            routes.get(&prefix).is_some_and(|line| line.contains(&way))
        });
        if right && routes.len() == expected.len() { Ok(()) } else { Err(format!("{event}: {routes:#?}")) }
    };
    wait::until(event, LIMIT, is_right)?;
    is_right().map_err(anyhow::Error::msg)
}

/// Both ends of a link, made in the router's host. The other end has a link-local address that is known.
fn wire(us: &Namespace, them: &Namespace, interface: &str) -> Result<()> {
    link(
        &End { host: us, interface, addresses: &[] },
        &End { host: them, interface, addresses: &["fe80::2/64"] },
    )
}

#[test]
fn the_kernel_is_right_after_each_event_of_each_kind_of_address() -> Result<()> {
    let (us, them) = (Namespace::new("us")?, Namespace::new("them")?);
    for cell in &CELLS {
        wire(&us, &them, cell.interface)?;
        cell.put(&us, "add")?;
    }
    let statics: String = CELLS.iter().map(Cell::configuration).collect();
    let router = Router::start(&us, &format!("[router]\nid = \"10.0.0.1\"\nasn = 65000\n{statics}"))?;
    let all: Vec<_> = CELLS.iter().collect();
    until_kernel(&us, "the start", &all)?;
    for cell in &CELLS {
        let name = cell.interface;
        let others: Vec<_> = CELLS.iter().filter(|other| other.interface != name).collect();
        us.ip(&["link", "set", name, "down"])?;
        until_kernel(&us, &format!("{name} goes down"), &others)?;
        us.ip(&["link", "set", name, "up"])?;
        if cell.address[0].contains(':') {
            // Linux takes IPv6 addresses away with the link.
            cell.put(&us, "add")?;
        }
        until_kernel(&us, &format!("{name} is up again"), &all)?;

        them.ip(&["link", "set", name, "down"])?;
        until_kernel(&us, &format!("{name} loses its carrier"), &others)?;
        them.ip(&["link", "set", name, "up"])?;
        until_kernel(&us, &format!("{name} has its carrier again"), &all)?;

        cell.put(&us, "del")?;
        let expected = if cell.is_named { &all } else { &others };
        until_kernel(&us, &format!("{name} has no address"), expected)?;
        cell.put(&us, "add")?;
        until_kernel(&us, &format!("{name} has its address again"), &all)?;

        us.ip(&["link", "set", name, "name", "other"])?;
        let expected = if cell.is_named { &others } else { &all };
        let renamed = || -> Result<(), String> {
            let routes = routes(&us).map_err(|error| error.to_string())?;
            if routes.len() == expected.len() { Ok(()) } else { Err(format!("{routes:#?}")) }
        };
        wait::until(&format!("{name} has another name"), LIMIT, renamed)?;
        us.ip(&["link", "set", "other", "name", name])?;
        until_kernel(&us, &format!("{name} has its name again"), &all)?;
    }

    // An interface is deleted, and another one of its name takes its place; one moves into another namespace.
    for cell in [&CELLS[0], &CELLS[2], &CELLS[6]] {
        let name = cell.interface;
        let others: Vec<_> = CELLS.iter().filter(|other| other.interface != name).collect();
        us.ip(&["link", "del", name])?;
        until_kernel(&us, &format!("{name} is deleted"), &others)?;
        wire(&us, &them, name)?;
        cell.put(&us, "add")?;
        until_kernel(&us, &format!("{name} is made again"), &all)?;
        us.ip(&["link", "set", name, "netns", them.name(), "name", "moved"])?;
        until_kernel(&us, &format!("{name} moves away"), &others)?;
        them.ip(&["link", "del", "moved"])?;
        wire(&us, &them, name)?;
        cell.put(&us, "add")?;
        until_kernel(&us, &format!("{name} is there again"), &all)?;
    }

    // A carrier that flaps.
    for _ in 0..50 {
        them.ip(&["link", "set", "n1", "down"])?;
        them.ip(&["link", "set", "n1", "up"])?;
    }
    until_kernel(&us, "n1 has flapped", &all)?;
    router.stop()
}

/// A session between global addresses over a link that is named, with graceful restart: the link goes, and everything that was
/// bound to it. Then the neighbor restarts, and the link goes while the routes are stale.
#[test]
fn a_peer_on_a_named_link_ends_with_it_and_so_do_its_stale_routes() -> Result<()> {
    let (us, them) = (Namespace::new("us")?, Namespace::new("bird")?);
    link(
        &End { host: &us, interface: "n1", addresses: &["10.1.0.1/24"] },
        &End { host: &them, interface: "n1", addresses: &["10.1.0.2/24"] },
    )?;
    // Routes of the peer lead over a link that stays.
    link(
        &End { host: &us, interface: "n2", addresses: &["10.2.0.1/24"] },
        &End { host: &them, interface: "n2", addresses: &["10.2.0.2/24"] },
    )?;
    let bird = "router id 10.0.0.2; protocol device { }
        protocol static { ipv4; route 203.0.113.0/24 via 10.2.0.2; }
        protocol bgp holdfast {
            local 10.1.0.2 as 65001; neighbor 10.1.0.1 as 65000; graceful restart on; connect retry time 1;
            connect delay time 1; error wait time 1, 2;
            ipv4 { import all; export all; next hop keep; };
        }";
    let mut other = Bird::start(&them, bird)?;
    let router = Router::start(
        &us,
        "[router]\nid = \"10.0.0.1\"\nasn = 65000\n[bgp]\nconnect-retry = 1\n\
         [[bgp.peer]]\nname = \"bird\"\naddress = \"10.1.0.2\"\ninterface = \"n1\"\nasn = 65001\n\
         graceful-restart = \"helper\"\nimport = \"accept-all\"\nexport = \"accept-all\"\n",
    )?;
    let until = |what: &str, count: usize| {
        wait::until(what, LIMIT, || {
            let routes = kernel::routes(&us, false).map_err(|error| error.to_string())?;
            if routes.len() == count { Ok(()) } else { Err(format!("{routes:?}")) }
        })
    };
    router.until_established("bird", LIMIT)?;
    until("the route of the peer", 1)?;
    us.ip(&["link", "set", "n1", "down"])?;
    router.until_neighbor("bird", SOON + LIMIT, |shown| shown["bgpState"] != "Established")?;
    until("its route is withdrawn", 0)?;
    us.ip(&["link", "set", "n1", "up"])?;
    router.until_established("bird", LIMIT)?;
    until("the route again", 1)?;

    other.kill()?;
    router.until_neighbor("bird", LIMIT, |shown| shown["bgpState"] != "Established")?;
    ensure!(kernel::routes(&us, false)?.len() == 1, "the routes of a neighbor that restarts stay");
    us.ip(&["link", "set", "n1", "down"])?;
    until("its stale route is withdrawn", 0)?;
    router.stop()
}

/// RIP in both networks of a link, each with a neighbor that takes only what comes from its own.
#[test]
fn rip_is_spoken_in_each_network_of_a_link() -> Result<()> {
    let (us, them) = (Namespace::new("us")?, Namespace::new("bird")?);
    link(
        &End { host: &us, interface: "n1", addresses: &["10.1.0.1/24", "10.2.0.1/24"] },
        &End { host: &them, interface: "n1", addresses: &["10.2.0.2/24"] },
    )?;
    let _bird = Bird::start(
        &them,
        "router id 10.0.0.2; protocol device { }
         protocol kernel { ipv4 { export all; }; }
         protocol rip { ipv4 { import all; export all; }; interface \"n1\" { update time 2; timeout time 10; }; }",
    )?;
    let router = Router::start(
        &us,
        "[router]\nid = \"10.0.0.1\"\nasn = 65000\n[[static]]\nprefix = \"203.0.113.0/24\"\nblackhole = true\n\
         [rip]\nupdate = 2\ntimeout = 10\ngarbage = 10\nfamilies = [\"ipv4\"]\n\
         [[rip.interface]]\nname = \"n1\"\n[[rip.redistribute]]\nfrom = \"static\"\npolicy = \"accept-all\"\n",
    )?;
    wait::until("our route at the neighbor in the second network", LIMIT, || {
        let line = them.ip(&["route", "show", "203.0.113.0/24"]).map_err(|error| error.to_string())?;
        if line.contains("via 10.2.0.1") { Ok(()) } else { Err(line) }
    })?;
    router.stop()
}
