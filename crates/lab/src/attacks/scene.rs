//! Two routers with a session over every transport, somebody who attacks all of them, and what came of it.
//!
//! ```text
//!  r1 ──┐                       r1 10.0.1.11, .12, …: one address for each session
//!       ├── hub ── attacker     r2 10.0.1.21, .22, …: r2 connects
//!  r2 ──┘
//! ```

use std::{collections::BTreeMap, fs, net::Ipv4Addr, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{
    Attack, Outcome, Row, Transport,
    attacker::Attacker,
    forge::{FalseRoute, packets},
    hub::Hub,
};
use crate::{
    keys::Signer,
    netns::Namespace,
    router::{Files, Router},
    wait,
};

const LIMIT: Duration = Duration::from_secs(30);
const ASN: [u32; 2] = [65_001, 65_002];
const NAMES: [&str; 2] = ["r1.example", "r2.example"];
/// UDP port of QUIC by s2n-quic; noq has BGP's.
const S2N_PORT: u16 = 1790;
/// What the attacker would have r1 believe.
const FALSE_PREFIX: &str = "203.0.113.0/24";

/// Address of a router (1 or 2) for the session over a transport.
fn address(router: u8, transport: Transport) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 1, router * 10 + 1 + transport as u8)
}

/// What r2 announces after so many attacks.
fn marker(attacks: usize) -> String {
    format!("198.51.{attacks}.0/24")
}

/// Configuration of router 1 or 2.
fn configuration(router: u8, markers: usize) -> String {
    let (own, other) = (usize::from(router - 1), usize::from(2 - router));
    let mut text = format!(
        "[router]\nid = \"10.0.0.{router}\"\nasn = {}\n[bgp]\nconnect-retry = 1\nquic-s2n-port = {S2N_PORT}\n\
         [tls]\ncertificate = \"certificate.pem\"\nkey = \"key.pem\"\n",
        ASN[own]
    );
    for transport in Transport::ALL {
        let (name, word) = (transport.name(), transport.word());
        let (near, far) = (address(router, transport), address(3 - router, transport));
        text += &format!(
            "[[bgp.peer]]\nname = \"{name}\"\naddress = \"{far}\"\nlocal-address = \"{near}\"\nasn = {}\n\
             transport = \"{word}\"\npassive = {}\nimport = \"accept-all\"\nexport = \"{}-all\"\n",
            ASN[other],
            router == 1,
            if router == 1 { "reject" } else { "accept" },
        );
        if transport.has_md5() {
            text += "md5 = \"secret\"\n";
        }
        if transport.has_tls() {
            text += &format!("tls-authorities = \"authority.pem\"\ntls-name = \"{}\"\n", NAMES[other]);
        }
        if transport == Transport::QuicS2n {
            text += &format!("port = {S2N_PORT}\n");
        }
    }
    for number in 0..markers {
        text += &format!("[[bgp.network]]\nprefix = \"{}\"\n", marker(number));
    }
    text
}

/// The scene, with all sessions up.
#[derive(Debug)]
pub struct Scene {
    r1: Router,
    r2: Router,
    files: Files,
    markers: usize,
    attacker: Attacker,
    hosts: [Namespace; 2],
    _hub: Hub,
}

impl Scene {
    /// Starts it.
    pub fn start() -> Result<Self> {
        let hub = Hub::new()?;
        let hosts = [Namespace::new("r1")?, Namespace::new("r2")?];
        for (router, host) in (1..).zip(&hosts) {
            let addresses = Transport::ALL.map(|transport| format!("{}/24", address(router, transport)));
            hub.join(host, &addresses.each_ref().map(String::as_str))?;
        }
        let pairs = Transport::ALL.map(|transport| (address(1, transport), address(2, transport)));
        let attacker = Attacker::start(&hub, &pairs)?;
        let signer = Signer::new("Lab CA")?;
        let [one, two] = NAMES.map(|name| signer.sign(name).map(|shown| signer.files_of(&shown)));
        let (one, two) = (one?, two?);
        let r1 = Router::start_with_files(&hosts[0], &configuration(1, 0), &one)?;
        let r2 = Router::start_with_files(&hosts[1], &configuration(2, 1), &two)?;
        let scene = Self { r1, r2, files: two, markers: 1, attacker, hosts, _hub: hub };
        scene.until_up(&Transport::ALL, &[Counts::new(), Counts::new()])?;
        scene.until("the first routes", || {
            let missing = scene.missing(&marker(0))?;
            Ok(if missing.is_empty() { Ok(()) } else { Err(format!("none over {missing:?}")) })
        })?;
        Ok(scene)
    }

    /// Does one thing to all sessions, and what it did to each.
    pub fn attack(&mut self, attack: Attack) -> Result<Row> {
        let before = [Self::dropped(&self.r1)?, Self::dropped(&self.r2)?];
        let counted = self.counters()?;
        let mut datagrams = 0;
        for transport in Transport::ALL {
            let (victim, peer) = (address(1, transport), address(2, transport));
            let heard = if transport.is_quic() {
                self.attacker.heard(victim, peer)
            } else {
                self.attacker.until_quiet(victim, peer)?
            };
            let route = FalseRoute { prefix: FALSE_PREFIX.parse()?, asn: ASN[1] };
            let packets = packets(attack, transport, &heard, route)
                .with_context(|| format!("{} over {}", attack.title(), transport.name()))?;
            datagrams += if transport.is_quic() { packets.len() as u64 } else { 0 };
            self.attacker.send(&packets)?;
        }
        self.until_arrived(attack, &counted, datagrams)?;
        self.markers += 1;
        self.r2.reload_with_files(&configuration(2, self.markers), &self.files)?;
        let outcomes = self.outcomes(&before[0])?;
        self.recover(&before, &outcomes)?;
        Ok((attack, outcomes))
    }

    /// Waits until r1's kernel has had all of it: an attack that never came is none.
    fn until_arrived(&self, attack: Attack, before: &Counters, datagrams: u64) -> Result<()> {
        let counted: &[&str] = match attack {
            // RFC 5961 section 3.2: in the window and not exact.
            Attack::GuessedReset => {
                &["TcpExt TCPChallengeACK", "TcpExt TCPMD5NotFound", "TcpExt TCPMD5Failure"]
            }
            Attack::ExactReset | Attack::Close | Attack::Route => {
                &["TcpExt TCPMD5NotFound", "TcpExt TCPMD5Failure"]
            }
            // What r2 has sent had the right digests.
            Attack::Replay => &[],
        };
        self.until(attack.title(), || {
            let now = self.counters()?;
            let more = |name: &str| count(&now, name) - count(before, name);
            let arrived = counted.iter().all(|name| more(name) > 0);
            let arrived = arrived && more("Udp InDatagrams") >= datagrams;
            let wrong = ["Tcp InCsumErrors", "Udp InCsumErrors"].map(|name| count(&now, name));
            ensure!(wrong == [0, 0], "the attacker cannot compute checksums");
            Ok(if arrived { Ok(()) } else { Err(format!("{counted:?}, {datagrams} datagrams")) })
        })
    }

    /// Waits until it is clear what came of an attack. r2 has announced another route since: where it arrives, the session
    /// works.
    fn outcomes(&self, before: &Counts) -> Result<Vec<(Transport, Outcome)>> {
        self.until("what came of it", || {
            // In this order: a session that went down before the route came is known to have gone down then.
            let believed = self.missing(FALSE_PREFIX)?;
            let late = self.missing(&marker(self.markers - 1))?;
            let now = Self::dropped(&self.r1)?;
            let outcome = |transport: &Transport| {
                let outcome = if !believed.contains(transport) {
                    Outcome::FalseRoute
                } else if now.get(transport) > before.get(transport) {
                    Outcome::Down
                } else if !late.contains(transport) {
                    Outcome::Unharmed
                } else {
                    return Err(format!("nothing is known of {}", transport.name()));
                };
                Ok((*transport, outcome))
            };
            Ok(Transport::ALL.iter().map(outcome).collect())
        })
    }

    /// Begins the sessions anew that were harmed. Where octets were injected, neither end can go on.
    fn recover(&self, before: &[Counts; 2], outcomes: &[(Transport, Outcome)]) -> Result<()> {
        let harmed = |(transport, outcome): &(Transport, Outcome)| {
            (*outcome != Outcome::Unharmed).then_some(*transport)
        };
        let harmed: Vec<_> = outcomes.iter().filter_map(harmed).collect();
        for transport in &harmed {
            for router in [&self.r1, &self.r2] {
                router.cli(&["clear", "bgp", transport.name()])?;
            }
        }
        self.until_up(&harmed, before)?;
        self.until("everything as before", || {
            let wrong = Transport::ALL.len() - self.missing(FALSE_PREFIX)?.len();
            let late = self.missing(&marker(self.markers - 1))?;
            let well = wrong == 0 && late.is_empty();
            Ok(if well { Ok(()) } else { Err(format!("{wrong} false routes, nothing over {late:?}")) })
        })
    }

    /// Waits until these sessions are up at both ends, after they were dropped more often than that.
    fn until_up(&self, transports: &[Transport], before: &[Counts; 2]) -> Result<()> {
        for (router, before) in [&self.r1, &self.r2].into_iter().zip(before) {
            self.until("sessions", || {
                let shown = router.show(&["bgp", "neighbors"])?;
                let dropped = Self::dropped_of(&shown);
                let down = transports.iter().find(|transport| {
                    let again = before.is_empty() || dropped.get(transport) > before.get(transport);
                    let up = peer(&shown, **transport).is_some_and(|peer| {
                        peer["bgpState"] == "Established" && peer["transport"] == transport.word()
                    });
                    !(up && again)
                });
                Ok(down.map_or(Ok(()), |down| Err(format!("{}: {shown}", down.name()))))
            })?;
        }
        Ok(())
    }

    /// Over which transports r1 has no such route.
    fn missing(&self, prefix: &str) -> Result<Vec<Transport>> {
        let shown = match self.r1.show(&["bgp", "route", prefix]) {
            Err(error) if error.to_string().contains("no route to") => return Ok(Transport::ALL.to_vec()),
            shown => shown?,
        };
        let paths = shown["paths"].as_array().map_or(&[][..], Vec::as_slice);
        let has =
            |transport: &Transport| paths.iter().any(|path| path["peer"]["peerName"] == transport.name());
        Ok(Transport::ALL.into_iter().filter(|transport| !has(transport)).collect())
    }

    /// How often each session of a router went down.
    fn dropped(router: &Router) -> Result<Counts> {
        Ok(Self::dropped_of(&router.show(&["bgp", "neighbors"])?))
    }

    fn dropped_of(shown: &Value) -> Counts {
        let count = |transport: &Transport| {
            Some((*transport, peer(shown, *transport)?["connectionsDropped"].as_u64()?))
        };
        Transport::ALL.iter().filter_map(count).collect()
    }

    /// What r1's kernel has counted, by protocol and name.
    fn counters(&self) -> Result<Counters> {
        let read =
            || ["snmp", "netstat"].map(|name| fs::read_to_string(format!("/proc/thread-self/net/{name}")));
        let mut all = Counters::new();
        for text in self.hosts[0].run(read)? {
            let text = text?;
            let lines: Vec<_> = text.lines().collect();
            for pair in lines.chunks_exact(2) {
                let (names, counts) = (pair[0].split_once(": "), pair[1].split_once(": "));
                let ((protocol, names), (_, counts)) = names.zip(counts).context("lines of counters")?;
                let pairs = names.split(' ').zip(counts.split(' '));
                all.extend(
                    pairs.filter_map(|(name, count)| {
                        Some((format!("{protocol} {name}"), count.parse().ok()?))
                    }),
                );
            }
        }
        Ok(all)
    }

    fn until<T>(&self, what: &str, mut probe: impl FnMut() -> Result<Result<T, String>>) -> Result<T> {
        wait::until(what, LIMIT, || probe().unwrap_or_else(|error| Err(format!("{error:#}"))))
            .with_context(|| format!("{}\n{}", self.r1.log_tail(), self.r2.log_tail()))
    }
}

type Counts = BTreeMap<Transport, u64>;
type Counters = BTreeMap<String, u64>;

fn count(counters: &Counters, name: &str) -> u64 {
    counters.get(name).copied().unwrap_or(0)
}

/// What a router shows of the session over a transport.
fn peer(shown: &Value, transport: Transport) -> Option<&Value> {
    shown.as_object()?.values().find(|peer| peer["name"] == transport.name())
}
