//! A stock router beside a service address, without graceful restart, with prefixes that are used once.

use std::{
    fmt::Write as _,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use holdfast_types::Prefix;
use serde::Serialize;

use super::{
    judge::Judge,
    lan::{ROUTER_AS, service, v4, v6},
};
use crate::{
    drill::{stock::Session, time::micros, watch::Dump},
    netns::Namespace,
    peers::{Bird, Frr, GoBgp, Line, OpenBgpd, Programs},
    replication::{scene::counter, stock::Special},
};

/// Routes that it announces all the time.
pub const ROUTES: u32 = 2000;
/// Seconds of sessions with it.
pub const HOLD_TIME: u32 = 30;
/// Included files of BIRD.
const FIXED: &str = "fixed.conf";
const ONCE: &str = "once.conf";
/// What its kernel counts where a signature is missing or wrong (Linux, `TcpExt`).
const BAD_SIGNATURES: [&str; 3] = ["TCPMD5NotFound", "TCPMD5Unexpected", "TCPMD5Failure"];

/// Which stock router.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// BIRD.
    Bird,
    /// FRR's bgpd.
    Frr,
    /// GoBGP.
    Gobgp,
    /// OpenBGPD.
    Openbgpd,
}

impl Kind {
    /// Its package, by which its version is known.
    fn package(self, programs: &Programs) -> &'static str {
        match (self, programs) {
            (Self::Bird, Programs::Machine) => "bird2",
            (Self::Bird, Programs::Tree(_)) => "bird3",
            (Self::Frr, _) => "frr",
            (Self::Gobgp, _) => "gobgpd",
            (Self::Openbgpd, _) => "openbgpd",
        }
    }

    /// Its name and version.
    ///
    /// # Errors
    /// It is not installed.
    pub fn version(self, programs: &Programs) -> Result<String> {
        programs.version(self.package(programs))
    }
}

#[derive(Debug)]
enum Program {
    Bird(Bird),
    Frr(Frr),
    Gobgp(GoBgp),
    Openbgpd(OpenBgpd),
}

/// A running one, and who judges what comes to it.
#[derive(Debug)]
pub struct Stock {
    program: Program,
    watch: Watch,
    /// What is special about the session.
    pub special: Special,
    /// Its name in the router's configuration.
    pub name: String,
    number: u8,
    /// Where it runs.
    pub host: Namespace,
}

/// A capture and its judge.
#[derive(Debug)]
pub struct Watch {
    dump: Dump,
    judge: Arc<Mutex<Judge>>,
}

impl Watch {
    /// Begins to judge the session of a host with the router at this address.
    ///
    /// # Errors
    /// tcpdump does not run.
    pub fn start(host: &Namespace, router: IpAddr, number_of: fn(Prefix) -> Option<u32>) -> Result<Self> {
        let judge = Arc::new(Mutex::new(Judge::new(router, number_of)));
        let theirs = Arc::clone(&judge);
        let filter = ["tcp port 179 or icmp[icmptype] == icmp-unreach or (ip6[6] == 58 and ip6[40] == 1)"];
        let dump = Dump::start(host, "eth0", &filter, move |at, frame| {
            theirs.lock().unwrap_or_else(PoisonError::into_inner).frame(at, frame);
        })?;
        Ok(Self { dump, judge })
    }

    /// The judge.
    pub fn judge(&self) -> MutexGuard<'_, Judge> {
        self.judge.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was found wrong, in words.
    pub fn findings(&self) -> Vec<String> {
        let mut all = self.judge().findings();
        all.extend(self.dump.failure());
        all
    }
}

/// Its own end of the session.
pub fn address(special: Special, number: u8) -> IpAddr {
    match special {
        Special::V6 => v6(number).into(),
        _ => v4(number).into(),
    }
}

/// Its AS number.
pub fn asn(number: u8) -> u32 {
    65000 + u32::from(number)
}

fn fixed(special: Special, number: u8) -> impl Iterator<Item = String> {
    (0..ROUTES).map(move |route| match special {
        Special::V6 => format!("2001:db8:{:x}::/48", 0x1000 + route),
        _ => format!("{}.{}.{}.0/24", 80 + number, route / 256, route % 256),
    })
}

/// The prefix with this number of those that it uses once.
fn once(special: Special, number: u8, prefix: u32) -> String {
    match special {
        Special::V6 => format!("2001:db9:{:x}:{:x}::/64", prefix >> 16, prefix & 0xffff),
        _ => format!("{}.{}.{}.{}/32", 150 + number, prefix >> 16 & 255, prefix >> 8 & 255, prefix & 255),
    }
}

impl Stock {
    /// Starts it in a host with this number on the LAN.
    ///
    /// # Errors
    /// It does not run.
    pub fn start(
        (kind, programs): (Kind, &Programs),
        special: Special,
        number: u8,
        host: Namespace,
        number_of: fn(Prefix) -> Option<u32>,
    ) -> Result<Self> {
        let watch = Watch::start(&host, service(special == Special::V6), number_of)?;
        let program = match kind {
            Kind::Bird => Program::Bird(bird(programs, special, number, &host)?),
            Kind::Frr => Program::Frr(frr(programs, special, number, &host)?),
            Kind::Gobgp => Program::Gobgp(gobgp(programs, special, number, &host)?),
            Kind::Openbgpd => Program::Openbgpd(openbgpd(programs, special, number, &host)?),
        };
        Ok(Self { program, watch, special, name: format!("stock{number}"), number, host })
    }

    /// The judge.
    pub fn judge(&self) -> MutexGuard<'_, Judge> {
        self.watch.judge()
    }

    /// What was found wrong, in words.
    pub fn findings(&self) -> Vec<String> {
        self.watch.findings()
    }

    /// Announces the new ones of its prefixes, by number, and withdraws the old ones; `all` are those that it has then.
    ///
    /// # Errors
    /// It does not take it.
    pub fn change(&self, all: &[u32], new: &[u32], old: &[u32]) -> Result<()> {
        let prefix = |number: &u32| once(self.special, self.number, *number);
        match &self.program {
            Program::Bird(bird) => {
                let mut routes = String::new();
                for number in all {
                    writeln!(routes, "route {} blackhole;", prefix(number))?;
                }
                bird.reconfigure(ONCE, &routes)
            }
            Program::Frr(frr) => {
                let family = if self.special == Special::V6 { "ipv6" } else { "ipv4" };
                let mut commands = vec![
                    "configure terminal".to_owned(),
                    format!("router bgp {}", asn(self.number)),
                    format!("address-family {family} unicast"),
                ];
                commands.extend(old.iter().map(|number| format!("no network {}", prefix(number))));
                commands.extend(new.iter().map(|number| format!("network {}", prefix(number))));
                let commands: Vec<_> = commands.iter().map(String::as_str).collect();
                frr.vtysh_all(&commands).map(drop)
            }
            Program::Gobgp(gobgp) => {
                let prefixes = |numbers: &[u32]| parsed(numbers.iter().map(prefix));
                gobgp.change(&self.host, prefixes(new)?, prefixes(old)?)
            }
            Program::Openbgpd(openbgpd) => {
                if !old.is_empty() {
                    openbgpd.bulk(false, old.iter().map(prefix))?;
                }
                openbgpd.bulk(true, new.iter().map(prefix))
            }
        }
    }

    /// Its log, with times in microseconds since 1970 where a line has one.
    fn lines(&self) -> Vec<Line> {
        let dated =
            |log: String| log.lines().map(|line| (micros(line).unwrap_or(0), line.to_owned())).collect();
        match &self.program {
            Program::Bird(bird) => dated(bird.log()),
            Program::Frr(frr) => dated(frr.log()),
            Program::Gobgp(gobgp) => gobgp.lines(),
            Program::Openbgpd(openbgpd) => openbgpd.lines(),
        }
    }

    /// Its log.
    pub fn log(&self) -> String {
        self.lines().into_iter().map(|(_, line)| line + "\n").collect()
    }

    /// What a line of its log tells of the session.
    fn session(&self, line: &str) -> Option<Session> {
        let (about, up, down) = match &self.program {
            Program::Bird(_) => {
                ("holdfast: ", "holdfast: BGP session established", "holdfast: BGP session closed")
            }
            Program::Frr(_) => ("%ADJCHANGE", " Up", " Down "),
            Program::Gobgp(_) => ("\"Topic\":\"Peer\"", "\"Peer Up\"", "\"Peer Down\""),
            Program::Openbgpd(_) => ("state change", " -> Established", "state change Established -> "),
        };
        match line {
            line if !line.contains(about) => None,
            line if line.contains(up) => Some(Session::Up),
            line if line.contains(down) => Some(Session::Down),
            _ => None,
        }
    }

    /// What its log tells of the session, with times in microseconds since 1970.
    pub fn sessions(&self) -> Vec<(u64, Session)> {
        let lines = self.lines().into_iter();
        lines.filter_map(|(at, line)| Some((at, self.session(&line)?))).collect()
    }

    /// It has had one session, which is there, and since then no word was said about any trouble.
    ///
    /// # Errors
    /// It is not, or with what word.
    pub fn ensure_quiet(&self) -> Result<()> {
        let sessions = self.sessions();
        ensure!(matches!(sessions[..], [(_, Session::Up)]), "{}: {sessions:?}", self.name);
        let said: &[&str] = match &self.program {
            Program::Bird(_) => &["<ERR>", "<WARN>", "<RMT>", "<BUG>", "<AUTH>"],
            Program::Frr(_) => &["NOTIFICATION", " Down "],
            Program::Gobgp(_) => &[
                "\"level\":\"warning\"",
                "\"level\":\"error\"",
                "\"level\":\"fatal\"",
                "Peer Down",
                "notification",
            ],
            Program::Openbgpd(_) => {
                &["otification", "error", "fatal", " failed", " closed", "state change Established"]
            }
        };
        let lines = self.lines().into_iter().map(|(_, line)| line);
        let mut since = lines.skip_while(|line| self.session(line) != Some(Session::Up));
        let trouble = since.find(|line| said.iter().any(|word| line.contains(word)));
        ensure!(trouble.is_none(), "{} says: {}", self.name, trouble.unwrap_or_default());
        if let Program::Bird(bird) = &self.program {
            let shown = bird.birdc("show protocols holdfast")?;
            ensure!(shown.contains("Established"), "{}: {shown}", self.name);
        }
        Ok(())
    }

    /// Segments that its kernel has dropped for their signatures.
    ///
    /// # Errors
    /// They are not counted.
    pub fn bad_signatures(&self) -> Result<u64> {
        let counted = BAD_SIGNATURES.iter().map(|name| counter(&self.host, name).context(*name));
        counted.sum()
    }
}

fn bird(programs: &Programs, special: Special, number: u8, host: &Namespace) -> Result<Bird> {
    let (own, router) = (address(special, number), service(special == Special::V6));
    let family = if special == Special::V6 { "ipv6" } else { "ipv4" };
    // Since BIRD 3 it wants to be told which kind of key it is, and says so each time.
    let kind = match (special, programs) {
        (Special::Md5, Programs::Tree(_)) => "authentication md5;",
        _ => "",
    };
    let mut routes = String::new();
    for prefix in fixed(special, number) {
        writeln!(routes, "route {prefix} blackhole;")?;
    }
    let text = format!(
        "timeformat log iso long ms;
        router id {};
        protocol device {{ }}
        protocol static lasting {{ {family};\ninclude \"{FIXED}\";\n}}
        protocol static used_once {{ {family};\ninclude \"{ONCE}\";\n}}
        protocol bgp holdfast {{
          debug {{ events, states }};
          local {own} as {}; neighbor {router} as {ROUTER_AS};
          connect delay time 1; connect retry time 1; error wait time 1, 2;
          hold time {HOLD_TIME}; graceful restart off;
          {family} {{ import all; export all; }};
          {kind} {}
        }}",
        v4(number),
        asn(number),
        special.bird()
    );
    Bird::start_of(programs.clone(), host, &text, &[(FIXED, &routes), (ONCE, "")])
}

fn frr(programs: &Programs, special: Special, number: u8, host: &Namespace) -> Result<Frr> {
    let router = service(special == Special::V6);
    let (family, activate) = match special {
        Special::V6 => ("ipv6", format!("neighbor {router} activate")),
        _ => ("ipv4", String::new()),
    };
    let more: String = special.frr().iter().map(|more| format!("neighbor {router} {more}\n")).collect();
    let mut networks = String::new();
    for prefix in fixed(special, number) {
        writeln!(networks, "  network {prefix}")?;
    }
    let configuration = format!(
        "log timestamp precision 3
         router bgp {}
         bgp router-id {}
         bgp log-neighbor-changes
         bgp graceful-restart-disable
         no bgp ebgp-requires-policy
         no bgp network import-check
         neighbor {router} remote-as {ROUTER_AS}
         neighbor {router} timers 10 {HOLD_TIME}
         neighbor {router} timers connect 1
         neighbor {router} advertisement-interval 0
         {more}
         address-family {family} unicast
         {activate}\n{networks} exit-address-family\n",
        asn(number),
        v4(number)
    );
    Frr::start_of(programs.clone(), host, &configuration)
}

fn parsed(prefixes: impl Iterator<Item = String>) -> Result<Vec<Prefix>> {
    prefixes.map(|prefix| prefix.parse().ok().with_context(|| prefix.clone())).collect()
}

fn gobgp(programs: &Programs, special: Special, number: u8, host: &Namespace) -> Result<GoBgp> {
    let (own, router) = (address(special, number), service(special == Special::V6));
    let family = if special == Special::V6 { "ipv6" } else { "ipv4" };
    let is_dialled = special == Special::Dials;
    let configuration = format!(
        "[global.config]
         as = {}
         router-id = \"{}\"
         [[neighbors]]
         [neighbors.config]
         neighbor-address = \"{router}\"
         peer-as = {ROUTER_AS}
         {}
         [neighbors.timers.config]
         connect-retry = 1
         hold-time = {HOLD_TIME}
         keepalive-interval = 10
         [neighbors.ttl-security.config]
         enabled = {is_dialled}
         ttl-min = 255
         [neighbors.transport.config]
         local-address = \"{own}\"
         passive-mode = {is_dialled}
         [[neighbors.afi-safis]]
         [neighbors.afi-safis.config]
         afi-safi-name = \"{family}-unicast\"",
        asn(number),
        v4(number),
        if special == Special::Md5 { "auth-password = \"secret\"" } else { "" }
    );
    let gobgp = GoBgp::start_of(programs.clone(), host, &configuration)?;
    gobgp.change(host, parsed(fixed(special, number))?, Vec::new())?;
    Ok(gobgp)
}

fn openbgpd(programs: &Programs, special: Special, number: u8, host: &Namespace) -> Result<OpenBgpd> {
    let (own, router) = (address(special, number), service(special == Special::V6));
    let (family, other) = if special == Special::V6 { ("IPv6", "IPv4") } else { ("IPv4", "IPv6") };
    let more = match special {
        Special::Nothing | Special::V6 | Special::Waits => "",
        Special::Md5 => "tcp md5sig password secret",
        Special::Dials => "passive\nttl-security yes",
    };
    let mut networks = String::new();
    for prefix in fixed(special, number) {
        writeln!(networks, "network {prefix}")?;
    }
    let configuration = format!(
        "AS {}
         router-id {}
         fib-update no
         holdtime {HOLD_TIME}
         {networks}
         neighbor {router} {{
           remote-as {ROUTER_AS}
           local-address {own}
           announce {family} unicast
           announce {other} none
           announce restart no
           {more}
         }}
         allow from any
         allow to any\n",
        asn(number),
        v4(number)
    );
    OpenBgpd::start_of(programs.clone(), host, &configuration)
}
