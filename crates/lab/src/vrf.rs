//! A router with three tables, and a neighbour of the same address in each.
//!
//! ```text
//!             ┌─ n1 ── default table (main)
//!  Holdfast ──┼─ n2 ── VRF blue: device blue0, table 100
//!             └─ n1 ── VRF red: a network namespace of its own
//! ```
//!
//! Each network is 10.0.1.0/24, with the router at .1 and a neighbour at .2. Where the kernel has no VRF devices, blue0
//! is a bridge with rules for its traffic: whatever else is at stake here is the same.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};

use crate::{
    netns::{End, Namespace, link},
    peers::Bird,
    wait,
};

/// Blue's table in the kernel.
pub const TABLE: &str = "100";
/// What reaches the kernel does so within.
const LIMIT: Duration = Duration::from_secs(60);

/// The tables, in the order of their neighbours.
pub const TABLES: [&str; 3] = ["main", "blue", "red"];

/// The hosts. Red is one that the router reaches into.
#[derive(Debug)]
pub struct Scene {
    /// Where the router runs.
    pub host: Namespace,
    /// The VRF red.
    pub red: Namespace,
    /// In the order of [`TABLES`].
    pub neighbors: [Namespace; 3],
    /// Where the neighbour in blue is, for the kernel.
    blue: &'static str,
}

impl Scene {
    /// Makes the hosts and joins them.
    pub fn new() -> Result<Self> {
        let [host, red] = [Namespace::new("router")?, Namespace::new("red")?];
        let neighbors = [Namespace::new("main")?, Namespace::new("blue")?, Namespace::new("beside")?];
        let near = ["10.0.1.1/24"];
        let blue = Self::blue_device(&host)?;
        let (enslaved, addressed): (&[&str], &[&str]) =
            if blue == "n2" { (&near, &[]) } else { (&[], &near) };
        for (at, interface, addresses, neighbor) in
            [(&host, "n1", &near[..], 0), (&host, "n2", enslaved, 1), (&red, "n1", &near[..], 2)]
        {
            let far = End { host: &neighbors[neighbor], interface, addresses: &["10.0.1.2/24"] };
            link(&End { host: at, interface, addresses }, &far)?;
        }
        host.ip(&["link", "set", "n2", "master", "blue0"])?;
        for address in addressed {
            host.ip(&["address", "add", address, "dev", "blue0"])?;
        }
        Ok(Self { host, red, neighbors, blue })
    }

    /// Makes blue0; the interface that has the VRF's address.
    fn blue_device(host: &Namespace) -> Result<&'static str> {
        let vrf = host.ip(&["link", "add", "blue0", "type", "vrf", "table", TABLE]);
        if vrf.is_err() {
            println!("this kernel has no VRF devices: a bridge stands for one");
            host.ip(&["link", "add", "blue0", "type", "bridge"])?;
            for direction in ["iif", "oif"] {
                host.ip(&["rule", "add", direction, "blue0", "lookup", TABLE])?;
            }
        }
        host.ip(&["link", "set", "blue0", "up"])?;
        Ok(if vrf.is_ok() { "n2" } else { "blue0" })
    }

    /// Deletes the device of blue and makes another of that name, as who administers the host may do.
    pub fn remake_blue(&self) -> Result<()> {
        self.host.ip(&["link", "del", "blue0"])?;
        if self.blue == "blue0" {
            for direction in ["iif", "oif"] {
                self.host.ip(&["rule", "del", direction, "blue0", "lookup", TABLE])?;
            }
        }
        let blue = Self::blue_device(&self.host)?;
        self.host.ip(&["link", "set", "n2", "master", "blue0"])?;
        if blue == "blue0" {
            self.host.ip(&["address", "add", "10.0.1.1/24", "dev", "blue0"])?;
        }
        Ok(())
    }

    /// How a configuration begins: AS 65000, with blue, and red if it is wanted.
    pub fn configuration(&self, red: bool, rest: &str) -> String {
        let vrf = |name: &str, rest: &str| format!("[[vrf]]\nname = \"{name}\"\n{rest}\n");
        let mut text = "[router]\nid = \"10.0.1.1\"\nasn = 65000\n".to_owned();
        text += &vrf("blue", &format!("table = {TABLE}\ndevice = \"blue0\""));
        if red {
            text += &vrf("red", &format!("netns = \"{}\"", self.red.name()));
        }
        text + rest
    }

    /// BIRD at the neighbour of a table, with a session `holdfast` to the router and these prefixes to announce.
    pub fn bird(&self, table: &str, asn: u32, prefixes: &[&str]) -> Result<Bird> {
        let routes: String = prefixes.iter().map(|prefix| format!("route {prefix} blackhole;")).collect();
        let configuration = format!(
            "router id 10.0.1.2;
            timeformat protocol iso long ms;
            protocol device {{ }}
            protocol static {{ ipv4; {routes} }}
            protocol bgp holdfast {{
              debug {{ states }};
              local 10.0.1.2 as {asn}; neighbor 10.0.1.1 as 65000;
              connect delay time 1; connect retry time 1; error wait time 1, 2;
              ipv4 {{ import all; export all; }};
            }}"
        );
        let at = TABLES.iter().position(|known| *known == table).context("a table")?;
        Bird::start(&self.neighbors[at], &configuration)
    }

    /// The interface that has the router's address in a table.
    pub fn interface(&self, table: &str) -> &'static str {
        if table == "blue" { self.blue } else { "n1" }
    }

    /// Routes of ours in a table: prefix to where it leads.
    pub fn routes(&self, table: &str) -> Result<BTreeMap<String, String>> {
        let (host, number) = match table {
            "red" => (&self.red, "main"),
            "blue" => (&self.host, TABLE),
            _ => (&self.host, "main"),
        };
        // A table that has never been used is none.
        let shown = host.ip(&["-o", "route", "show", "table", number, "proto", "75"]).unwrap_or_default();
        let routes = shown.lines().filter_map(|line| line.split_once(' '));
        Ok(routes.map(|(prefix, rest)| (prefix.to_owned(), rest.to_owned())).collect())
    }

    /// Waits until each of these tables has exactly these prefixes, all at its own interface.
    pub fn until_routes(&self, wanted: &[(&str, &[&str])]) -> Result<()> {
        for (table, prefixes) in wanted {
            let interface = self.interface(table);
            wait::until(&format!("routes of {table}"), LIMIT, || {
                let routes = self.routes(table).map_err(|error| format!("{error:#}"))?;
                let there = routes.keys().eq(prefixes.iter().copied())
                    && routes.values().all(|rest| rest.contains(&format!("via 10.0.1.2 dev {interface}")));
                if there { Ok(()) } else { Err(format!("{routes:?}")) }
            })?;
        }
        Ok(())
    }
}
