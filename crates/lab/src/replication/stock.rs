//! A stock router beside the router under test: BIRD or FRR, without graceful restart, with routes that change by version.

use std::{cell::Cell, fmt::Write as _, net::IpAddr};

use anyhow::{Context, Result, ensure};

use super::judge::Capture;
use crate::{
    drill::stock::Kind,
    netns::Namespace,
    peers::{Bird, Frr},
    topology::{Side, v4, v6},
};

/// Routes that it announces in every version.
const ROUTES: usize = 2000;
/// Routes of which every other one is announced, in turn.
const CHANGING: usize = 200;
/// Routes that it announces at a time.
pub const COUNT: usize = ROUTES + CHANGING / 2 + 1;
/// Versions that can be told from each other.
const SIGNS: usize = 50;
/// Seconds of sessions with it.
pub(super) const HOLD_TIME: u32 = 30;
/// AS number of the router under test.
const ROUTER_AS: u32 = 65000;
/// An included file of BIRD.
const INCLUDED: &str = "routes.conf";

/// What is special about a session.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Special {
    /// Either side dials.
    Nothing,
    /// It has an MD5 key.
    Md5,
    /// Over IPv6; the router waits.
    V6,
    /// The router waits.
    Waits,
    /// The router dials, and both sides have the other one's packets come with TTL 255 (RFC 5082).
    Dials,
}

impl Special {
    /// Lines of the router's configuration.
    pub(crate) fn router(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Dials => "ttl-security = true",
            Self::Md5 => "md5 = \"secret\"",
            Self::V6 => "families = [\"ipv6-unicast\"]\npassive = true",
            Self::Waits => "passive = true",
        }
    }

    /// Lines of BIRD's protocol.
    pub(crate) fn bird(self) -> &'static str {
        match self {
            Self::Nothing | Self::V6 | Self::Waits => "",
            Self::Md5 => "password \"secret\";",
            Self::Dials => "passive yes; ttl security on;",
        }
    }

    /// What FRR says of the neighbour.
    pub(crate) fn frr(self) -> &'static [&'static str] {
        match self {
            Self::Nothing | Self::V6 | Self::Waits => &[],
            Self::Md5 => &["password secret"],
            Self::Dials => &["passive", "ttl-security hops 1"],
        }
    }

    /// The address of a side in a network, of the family that the session is over.
    pub(super) fn address(self, network: u8, side: Side) -> IpAddr {
        match self {
            Self::V6 => v6(network, side).into(),
            _ => v4(network, side).into(),
        }
    }
}

#[derive(Debug)]
enum Program {
    Bird(Bird),
    Frr(Frr),
}

/// A running one, and what came to it.
#[derive(Debug)]
pub struct Stock {
    program: Program,
    /// All BGP at its interface.
    pub capture: Capture,
    /// Where it runs.
    pub host: Namespace,
    /// Its end of the session.
    pub address: IpAddr,
    /// What is special about the session.
    pub special: Special,
    /// Its name in the router's configuration.
    pub name: String,
    network: u8,
    /// Which version it announces.
    version: Cell<usize>,
}

/// The name of the stock router of a network in the router's configuration.
pub(super) fn name(network: u8) -> String {
    format!("stock{network}")
}

/// Numbers of the prefixes that a version has.
fn numbers(version: usize) -> impl Iterator<Item = usize> {
    let changing = (ROUTES..ROUTES + CHANGING).filter(move |number| number % 2 == version % 2);
    changing.chain([ROUTES + CHANGING + version % SIGNS])
}

fn prefix(special: Special, network: u8, number: usize) -> String {
    match special {
        Special::V6 => format!("2001:db8:{network}00:{number:x}::/64"),
        _ => format!("100.{}.{}.0/24", usize::from(network) * 16 + number / 256, number % 256),
    }
}

fn bird_routes(special: Special, network: u8, version: usize) -> String {
    let mut text = String::new();
    for number in (0..ROUTES).chain(numbers(version)) {
        let _ = writeln!(text, "route {} blackhole;", prefix(special, network, number));
    }
    text
}

impl Stock {
    /// Starts it in a host, in a network that the host is in, where the capture has begun.
    pub(super) fn start(
        kind: Kind,
        special: Special,
        network: u8,
        host: Namespace,
        capture: Capture,
    ) -> Result<Self> {
        let program = match kind {
            Kind::Bird => Program::Bird(bird(special, network, &host)?),
            Kind::Frr => Program::Frr(frr(special, network, &host)?),
        };
        let address = special.address(network, Side::Second);
        Ok(Self {
            program,
            capture,
            host,
            address,
            special,
            name: name(network),
            network,
            version: Cell::new(0),
        })
    }

    /// BIRD.
    ///
    /// # Errors
    /// It is FRR.
    pub fn bird(&self) -> Result<&Bird> {
        match &self.program {
            Program::Bird(bird) => Ok(bird),
            Program::Frr(_) => anyhow::bail!("{} is FRR", self.name),
        }
    }

    /// Has it announce this version instead of the one before.
    ///
    /// # Errors
    /// It does not take it.
    pub fn change(&self, version: usize) -> Result<()> {
        let (special, network, before) = (self.special, self.network, self.version.replace(version));
        match &self.program {
            Program::Bird(bird) => bird.reconfigure(INCLUDED, &bird_routes(special, network, version)),
            Program::Frr(frr) => {
                let family = if special == Special::V6 { "ipv6" } else { "ipv4" };
                let mut commands = vec![
                    "configure terminal".to_owned(),
                    format!("router bgp 6500{network}"),
                    format!("address-family {family} unicast"),
                ];
                let gone = numbers(before).filter(|number| numbers(version).all(|kept| kept != *number));
                commands
                    .extend(gone.map(|number| format!("no network {}", prefix(special, network, number))));
                let new = numbers(version).filter(|number| numbers(before).all(|had| had != *number));
                commands.extend(new.map(|number| format!("network {}", prefix(special, network, number))));
                let commands: Vec<_> = commands.iter().map(String::as_str).collect();
                frr.vtysh_all(&commands).map(drop)
            }
        }
    }

    /// The version that it announces.
    pub fn version(&self) -> usize {
        self.version.get()
    }

    /// It reads and says nothing, or goes on.
    ///
    /// # Errors
    /// It is gone.
    pub fn pause(&self, pauses: bool) -> Result<()> {
        match (&self.program, pauses) {
            (Program::Bird(bird), true) => bird.pause(),
            (Program::Bird(bird), false) => bird.resume(),
            (Program::Frr(frr), true) => frr.pause(),
            (Program::Frr(frr), false) => frr.resume(),
        }
    }

    /// kill -9: the kernel ends its connection.
    ///
    /// # Errors
    /// It is gone.
    pub fn kill(&mut self) -> Result<()> {
        match &mut self.program {
            Program::Bird(bird) => bird.kill(),
            Program::Frr(frr) => frr.kill(),
        }
    }

    /// Starts it again after [`Self::kill`], as it was at first.
    ///
    /// # Errors
    /// It does not run.
    pub fn start_again(&mut self) -> Result<()> {
        match &mut self.program {
            Program::Bird(bird) => bird.start_again(&self.host),
            Program::Frr(frr) => {
                // BIRD's routes are in a file.
                self.version.set(0);
                frr.start_again(&self.host)
            }
        }
    }

    /// The prefix that only this version has, of the last fifty.
    pub fn sign(&self, version: usize) -> String {
        prefix(self.special, self.network, ROUTES + CHANGING + version % SIGNS)
    }

    /// Routes that it has from the router.
    ///
    /// # Errors
    /// It does not say.
    pub fn received(&self) -> Result<u64> {
        match &self.program {
            Program::Bird(bird) => bird.count("protocol holdfast"),
            Program::Frr(frr) => {
                let family = if self.special == Special::V6 { "ipv6" } else { "ipv4" };
                let shown = frr.vtysh(&format!("show bgp {family} unicast summary json"))?;
                let shown: serde_json::Value = serde_json::from_str(&shown)?;
                let peers = shown["peers"].as_object().context("peers")?;
                let peer = peers.values().next().context("a peer")?;
                peer["pfxRcd"].as_u64().context("a number of routes")
            }
        }
    }

    /// Its log.
    pub fn log(&self) -> String {
        match &self.program {
            Program::Bird(bird) => bird.log(),
            Program::Frr(frr) => frr.log(),
        }
    }

    /// How many sessions with the router it has had, of which the last is there.
    ///
    /// # Errors
    /// There is none now.
    pub fn sessions(&self) -> Result<usize> {
        match &self.program {
            Program::Bird(bird) => bird.sessions(),
            Program::Frr(frr) => {
                let (mut ups, mut is_up) = (0, false);
                for line in frr.log().lines().filter(|line| line.contains("%ADJCHANGE")) {
                    is_up = line.contains(" Up");
                    ups += usize::from(is_up);
                }
                ensure!(is_up, "{}: no session: {}", self.name, frr.log());
                Ok(ups)
            }
        }
    }

    /// The session ends in order, by the stock router, and begins again.
    ///
    /// # Errors
    /// It does not say so.
    pub fn restart(&self) -> Result<()> {
        match &self.program {
            Program::Bird(bird) => bird.birdc("restart holdfast").map(drop),
            Program::Frr(frr) => frr.vtysh("clear bgp *").map(drop),
        }
    }

    /// It has had one session, and has said no word about any trouble.
    ///
    /// # Errors
    /// It has, and with what.
    pub fn ensure_quiet(&self) -> Result<()> {
        let (sessions, log) = (self.sessions()?, self.log());
        ensure!(sessions == 1, "{}: {sessions} sessions: {log}", self.name);
        let said: &[&str] = match &self.program {
            Program::Bird(_) => &["<ERR>", "<WARN>", "<RMT>", "<BUG>", "<AUTH>"],
            Program::Frr(_) => &["NOTIFICATION", " Down "],
        };
        let trouble = log.lines().find(|line| said.iter().any(|word| line.contains(word)));
        ensure!(trouble.is_none(), "{}: {log}", self.name);
        let connection = self.capture.stream(self.address)?;
        ensure!((connection.fins, connection.resets) == (0, 0), "{connection:?}");
        Ok(())
    }
}

fn bird(special: Special, network: u8, host: &Namespace) -> Result<Bird> {
    let [near, own] = [Side::First, Side::Second].map(|side| special.address(network, side));
    let family = if special == Special::V6 { "ipv6" } else { "ipv4" };
    let text = format!(
        "router id 10.0.{network}.2;
        timeformat protocol iso long ms;
        protocol device {{ }}
        protocol static {{ {family};\ninclude \"{INCLUDED}\";\n}}
        protocol bgp holdfast {{
          debug {{ events, states }};
          local {own} as 6500{network}; neighbor {near} as {ROUTER_AS};
          connect delay time 1; connect retry time 1; error wait time 1, 2;
          hold time {HOLD_TIME}; graceful restart off;
          {family} {{ import all; export all; }};
          {}
        }}",
        special.bird()
    );
    Bird::start_with(host, &text, &[(INCLUDED, &bird_routes(special, network, 0))])
}

fn frr(special: Special, network: u8, host: &Namespace) -> Result<Frr> {
    let near = special.address(network, Side::First);
    let (family, activate) = match special {
        Special::V6 => ("ipv6", format!("neighbor {near} activate")),
        _ => ("ipv4", String::new()),
    };
    let more: String = special.frr().iter().map(|more| format!("neighbor {near} {more}\n")).collect();
    let mut networks = String::new();
    for number in (0..ROUTES).chain(numbers(0)) {
        writeln!(networks, "  network {}", prefix(special, network, number))?;
    }
    let configuration = format!(
        "log timestamp precision 3
         router bgp 6500{network}
         bgp router-id 10.0.{network}.2
         bgp log-neighbor-changes
         bgp graceful-restart-disable
         no bgp ebgp-requires-policy
         no bgp network import-check
         neighbor {near} remote-as {ROUTER_AS}
         neighbor {near} timers 10 {HOLD_TIME}
         neighbor {near} timers connect 1
         neighbor {near} advertisement-interval 0
         {more}
         address-family {family} unicast
         {activate}\n{networks} exit-address-family\n"
    );
    Frr::start(host, &configuration)
}
