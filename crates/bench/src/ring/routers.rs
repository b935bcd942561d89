//! The routers of the ring, each a whole `holdfast run` in a host of its own, and the feeder beside them.

use std::{fmt::Write, time::Duration};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    keys::Signer,
    netns::Namespace,
    router::{Files, Router},
    topology::{Side, join, v4, v6},
};
use holdfast_types::Asn;
use serde::Deserialize;

use super::Transport;
use crate::{admission::name, cgroup::Cgroup, daemon::peer_asn, load::Load, net::Place};

/// Routers; network N joins router N, which is its first host, with the next one.
const ROUTERS: u8 = 3;
/// The network of R1 and the feeder.
const FEEDER: u8 = ROUTERS + 1;
/// The AS number of a router is its own number behind this.
const FIRST_AS: u32 = 65_000;
/// Hold time of all sessions, s.
const HOLD: u16 = 90;
/// Longest wait for the sessions.
const START: Duration = Duration::from_secs(30);

/// Where the feeder has its session for a family, IPv4 or IPv6.
pub(super) fn feeder(family: usize) -> Place {
    match family {
        0 => Place { peer: v4(FEEDER, Side::Second).into(), router: v4(FEEDER, Side::First).into() },
        _ => Place { peer: v6(FEEDER, Side::Second).into(), router: v6(FEEDER, Side::First).into() },
    }
}

/// The AS number that the feeder has in that session.
pub(super) fn feeder_asn(family: usize) -> Asn {
    peer_asn(family)
}

/// Three routers with all sessions up and nothing else. Fields end in their order.
pub(super) struct Ring {
    pub(super) load: Load,
    routers: Vec<Router>,
    /// Of all their processes.
    pub(super) cgroup: Cgroup,
    _hosts: Vec<Namespace>,
}

/// What `profile.v1/List` says.
#[derive(Deserialize)]
struct Points {
    #[serde(default)]
    recorded: u64,
}

impl Ring {
    pub(super) fn start(transport: Transport, signer: &Signer) -> Result<Self> {
        let roles = ["r1", "r2", "r3", "feeder"];
        let hosts: Vec<_> = roles.into_iter().map(Namespace::new).collect::<Result<_>>()?;
        for number in 1..=ROUTERS {
            join(number, host(&hosts, number), host(&hosts, next(number)))?;
        }
        join(FEEDER, &hosts[0], &hosts[usize::from(ROUTERS)])?;
        let cgroup = Cgroup::new("ring")?;
        let start = |number: u8| -> Result<Router> {
            let mut files = Files::new();
            if transport != Transport::Tcp {
                files.extend(signer.sign(&tls_name(number))?.files());
                files.insert("authority.pem".to_owned(), signer.certificate());
            }
            let configuration = configuration(number, transport);
            let router = Router::start_with_files(host(&hosts, number), &configuration, &files)?;
            for process in router.show(&["processes"])?.as_object().context("processes")?.values() {
                let pid = process["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
                cgroup.take(pid.context("a process without an id")?)?;
            }
            Ok(router)
        };
        let routers: Vec<_> = (1..=ROUTERS).map(start).collect::<Result<_>>()?;
        for router in &routers {
            for neighbor in ["next", "previous"] {
                let shown = router.until_established(neighbor, START)?;
                ensure!(shown["transport"] == name(transport), "{neighbor} is there by another way: {shown}");
            }
        }
        let places = [feeder(0), feeder(1)];
        let load = hosts[usize::from(ROUTERS)]
            .run(move || Load::establish(&places, feeder_asn, HOLD, START))?
            .with_context(|| routers[0].log_tail())?;
        Ok(Self { load, routers, cgroup, _hosts: hosts })
    }

    /// Has R1 note so many routes entering BGP.
    pub(super) fn record(&self, capacity: usize) -> Result<()> {
        let capacity = capacity.to_string();
        self.routers[0].cli(&["profile", "on", "bgp-in", "--capacity", &capacity]).map(drop)
    }

    /// How many it has noted.
    pub(super) fn recorded(&self) -> Result<u64> {
        let shown = self.routers[0].cli(&["call", "bgp/profile.v1/List", "--json"])?;
        Ok(serde_json::from_str::<Points>(&shown)?.recorded)
    }

    /// What it has noted, an object of JSON for each on a line of its own.
    pub(super) fn records(&self) -> Result<String> {
        self.routers[0].cli(&["profile", "off"])?;
        self.routers[0].cli(&["profile", "show", "--records", "--json"])
    }
}

fn host(hosts: &[Namespace], number: u8) -> &Namespace {
    &hosts[usize::from(number) - 1]
}

fn next(number: u8) -> u8 {
    number % ROUTERS + 1
}

fn previous(number: u8) -> u8 {
    (number + 1) % ROUTERS + 1
}

fn tls_name(number: u8) -> String {
    format!("r{number}.example")
}

/// What comes from one side goes out to the other, and nothing goes back.
fn configuration(number: u8, transport: Transport) -> String {
    let asn = |number: u8| FIRST_AS + u32::from(number);
    let mut text = format!(
        r#"
[router]
id = "10.0.0.{number}"
asn = {}
[fea]
backend = "none"
[bgp]
connect-retry = 1
hold-time = {HOLD}
quic-s2n-port = 1179
nonstop-memory = "4 GiB"
"#,
        asn(number)
    );
    if transport != Transport::Tcp {
        text += "[tls]\ncertificate = \"certificate.pem\"\nkey = \"key.pem\"\n";
    }
    let ends = [
        ("next", next(number), number, Side::First, "export = \"accept-all\""),
        (
            "previous",
            previous(number),
            previous(number),
            Side::Second,
            "passive = true\nimport = \"accept-all\"",
        ),
    ];
    for (name_of_peer, other, network, near, lines) in ends {
        let far = if near == Side::First { Side::Second } else { Side::First };
        let (address, hop, asn) = (v4(network, far), v6(network, near), asn(other));
        let _ = write!(
            text,
            r#"
[[bgp.peer]]
name = "{name_of_peer}"
address = "{address}"
asn = {asn}
families = ["ipv4-unicast", "ipv6-unicast"]
next-hop-ipv6 = "{hop}"
transport = "{}"
{lines}
"#,
            name(transport)
        );
        if transport != Transport::Tcp {
            let _ = write!(text, "tls-authorities = \"authority.pem\"\ntls-name = \"{}\"\n", tls_name(other));
        }
    }
    for family in 0..if number == 1 { 2 } else { 0 } {
        let (address, asn) = (feeder(family).peer, feeder_asn(family).0);
        let _ = write!(
            text,
            r#"
[[bgp.peer]]
name = "feeder-{family}"
address = "{address}"
asn = {asn}
passive = true
import = "accept-all"
"#
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_configuration_is_accepted() {
        for transport in [Transport::Tcp, Transport::Tls, Transport::Quic, Transport::QuicS2n] {
            for number in 1..=ROUTERS {
                let text = configuration(number, transport);
                holdfast_config::parse(&text, "router.toml", holdfast_config::Schema::new([]))
                    .unwrap_or_else(|error| panic!("{error:?} in {text}"));
            }
        }
    }

    #[test]
    fn each_router_has_the_one_before_it_and_the_one_after_it() {
        let around: Vec<_> = (1..=ROUTERS).map(|number| (previous(number), next(number))).collect();
        assert_eq!(around, [(3, 2), (1, 3), (2, 1)]);
    }
}
