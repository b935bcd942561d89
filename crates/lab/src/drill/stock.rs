//! The stock router at the other end: BIRD or FRR, without graceful restart, with a log that tells its sessions.

use std::{collections::BTreeMap, fmt::Write};

use anyhow::{Context, Result};
use clap::ValueEnum;
use holdfast_types::Prefix;
use serde::Serialize;

use super::{
    churn::{Change, Churn, SERIALS, prefixes, printed_serial},
    time::micros,
};
use crate::{
    netns::Namespace,
    peers::{Bird, Frr},
    topology::{Side, v4},
};

/// Which stock router.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// BIRD 2.
    Bird,
    /// FRR's bgpd.
    Frr,
}

/// The AS number of the router under test.
pub const ROUTER_AS: u32 = 65000;
/// The AS number of the stock router.
pub const STOCK_AS: u32 = 65001;
/// Its network.
pub const NETWORK: u8 = 1;

/// A running one.
#[derive(Debug)]
pub enum Stock {
    /// BIRD 2.
    Bird(Bird),
    /// FRR's bgpd.
    Frr(Frr),
}

/// What its log says of the session.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Session {
    /// It came up.
    Up,
    /// It went down.
    Down,
}

/// Included files of BIRD.
const FIXED: &str = "fixed.conf";
const MOVING: &str = "moving.conf";

impl Stock {
    /// Starts it: it announces the prefixes from `first` on, `routes` of them, and what the churn says.
    pub fn start(
        kind: Kind,
        host: &Namespace,
        first: std::net::Ipv4Addr,
        routes: u32,
        churn: &Churn,
    ) -> Result<Self> {
        let (own, router) = (v4(NETWORK, Side::Second), v4(NETWORK, Side::First));
        match kind {
            Kind::Bird => {
                let mut fixed = String::new();
                for prefix in prefixes(first, routes) {
                    writeln!(fixed, "route {prefix} blackhole;")?;
                }
                let configuration = format!(
                    "timeformat log iso long ms;
                    router id {own};
                    protocol device {{ }}
                    protocol static fixed {{ ipv4;\ninclude {FIXED:?};\n}}
                    protocol static moving {{ ipv4;\ninclude {MOVING:?};\n}}
                    protocol bgp holdfast {{
                      debug {{ states, events }};
                      local {own} as {STOCK_AS}; neighbor {router} as {ROUTER_AS};
                      graceful restart off; connect delay time 1; error wait time 1, 2;
                      ipv4 {{ import all; export all; }};
                    }}"
                );
                let files = [(FIXED, fixed.as_str()), (MOVING, &bird_routes(churn))];
                Ok(Self::Bird(Bird::start_with(host, &configuration, &files)?))
            }
            Kind::Frr => {
                let mut networks = String::new();
                for prefix in prefixes(first, routes) {
                    writeln!(networks, "  network {prefix}")?;
                }
                let mut maps = String::new();
                for (prefix, serial) in announced(churn) {
                    writeln!(networks, "  network {prefix} route-map S{serial}")?;
                    writeln!(
                        maps,
                        "route-map S{serial} permit 10\n set as-path prepend {}",
                        SERIALS + serial
                    )?;
                }
                let configuration = format!(
                    "log timestamp precision 3
                     bgp route-map delay-timer 0
                     {maps}router bgp {STOCK_AS}
                     bgp router-id {own}
                     bgp log-neighbor-changes
                     bgp graceful-restart-disable
                     no bgp ebgp-requires-policy
                     no bgp network import-check
                     neighbor {router} remote-as {ROUTER_AS}
                     neighbor {router} timers connect 1
                     neighbor {router} advertisement-interval 0
                     address-family ipv4 unicast\n{networks} exit-address-family\n"
                );
                Ok(Self::Frr(Frr::start(host, &configuration)?))
            }
        }
    }

    /// Has it announce what the churn says, of which these are the changes.
    pub fn apply(&self, churn: &Churn, changes: &[Change]) -> Result<()> {
        match self {
            Self::Bird(bird) => bird.reconfigure(MOVING, &bird_routes(churn)),
            Self::Frr(frr) => {
                let mut commands = vec!["configure terminal".to_owned()];
                for serial in changes.iter().filter_map(|(_, serial)| *serial) {
                    commands.push(format!("route-map S{serial} permit 10"));
                    commands.push(format!("set as-path prepend {}", SERIALS + serial));
                    commands.push("exit".to_owned());
                }
                commands.push(format!("router bgp {STOCK_AS}"));
                commands.push("address-family ipv4 unicast".to_owned());
                for (prefix, serial) in changes {
                    commands.push(match serial {
                        Some(serial) => format!("network {prefix} route-map S{serial}"),
                        None => format!("no network {prefix}"),
                    });
                }
                let commands: Vec<_> = commands.iter().map(String::as_str).collect();
                frr.vtysh_all(&commands).map(drop)
            }
        }
    }

    /// What it has from the router under test, with serial numbers.
    pub fn table(&self) -> Result<BTreeMap<Prefix, Option<u32>>> {
        match self {
            Self::Bird(bird) => Ok(bird_table(&bird.birdc("show route protocol holdfast all")?)),
            Self::Frr(frr) => frr_table(&frr.vtysh("show bgp ipv4 unicast json")?),
        }
    }

    /// What its log tells of the session, with times in microseconds since 1970.
    pub fn sessions(&self) -> Vec<(u64, Session)> {
        let (log, up, down) = match self {
            Self::Bird(bird) => {
                (bird.log(), "holdfast: BGP session established", "holdfast: BGP session closed")
            }
            Self::Frr(frr) => (frr.log(), " Up", " Down "),
        };
        let lines = log.lines().filter(|line| line.contains("holdfast: ") || line.contains("%ADJCHANGE"));
        let event = |line: &str| match line {
            line if line.contains(up) => Some((micros(line)?, Session::Up)),
            line if line.contains(down) => Some((micros(line)?, Session::Down)),
            _ => None,
        };
        lines.filter_map(event).collect()
    }

    /// Its whole log.
    pub fn log(&self) -> String {
        match self {
            Self::Bird(bird) => bird.log(),
            Self::Frr(frr) => frr.log(),
        }
    }
}

fn announced(churn: &Churn) -> impl Iterator<Item = (Prefix, u32)> {
    churn.now().iter().filter_map(|(prefix, serial)| Some((*prefix, (*serial)?)))
}

fn bird_routes(churn: &Churn) -> String {
    let route = |(prefix, serial)| {
        format!("route {prefix} blackhole {{ bgp_path.prepend({}); }};\n", SERIALS + serial)
    };
    announced(churn).map(route).collect()
}

/// Reads `show route … all`: a line that begins with the prefix, then indented lines of attributes.
fn bird_table(text: &str) -> BTreeMap<Prefix, Option<u32>> {
    let mut table = BTreeMap::new();
    let mut current = None;
    for line in text.lines() {
        if let Some(prefix) = line.split_whitespace().next().and_then(|word| word.parse::<Prefix>().ok()) {
            table.insert(prefix, None);
            current = Some(prefix);
        } else if let (Some(path), Some(prefix)) = (line.trim().strip_prefix("BGP.as_path:"), current) {
            table.insert(prefix, printed_serial(path));
        }
    }
    table
}

/// Reads `show bgp ipv4 unicast json`.
fn frr_table(text: &str) -> Result<BTreeMap<Prefix, Option<u32>>> {
    let shown: serde_json::Value = serde_json::from_str(text).context("FRR's table")?;
    let mut table = BTreeMap::new();
    for (prefix, paths) in shown["routes"].as_object().into_iter().flatten() {
        let path = paths.as_array().into_iter().flatten().find_map(|path| {
            path["path"].as_str().filter(|path| path.split(' ').next() == Some(&ROUTER_AS.to_string()))
        });
        if let Some(path) = path {
            table.insert(prefix.parse().ok().with_context(|| prefix.clone())?, printed_serial(path));
        }
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected() -> BTreeMap<Prefix, Option<u32>> {
        let prefix = |text: &str| text.parse::<Prefix>().expect("a prefix");
        BTreeMap::from([(prefix("60.0.0.0/24"), None), (prefix("100.96.0.0/24"), Some(17))])
    }

    #[test]
    fn a_table_of_bird_is_read() {
        let text = "BIRD 2.0.12 ready.\nTable master4:\n\
            60.0.0.0/24          unicast [holdfast 15:37:20.1] * (100) [AS64512i]\n\tvia 10.0.1.1 on n1\n\
            \tType: BGP univ\n\tBGP.as_path: 65000 65002 64512\n\
            100.96.0.0/24        unicast [holdfast 15:37:20.1] * (100) [AS4200000017i]\n\
            \tBGP.as_path: 65000 65002 4200000017\n";
        assert_eq!(bird_table(text), expected());
    }

    #[test]
    fn a_table_of_frr_is_read() {
        let text = r#"{ "routes": {
            "20.0.0.0/24": [{ "valid": true, "path": "" }],
            "60.0.0.0/24": [{ "valid": true, "path": "65000 65002 64512" }],
            "100.96.0.0/24": [{ "valid": true, "path": "65000 65002 4200000017" }] } }"#;
        assert_eq!(frr_table(text).expect("a table"), expected());
        assert!(frr_table("no").is_err());
    }
}
