//! FRR's bgpd.

use anyhow::{Result, ensure};

use super::{CONFEDERATION, Feature, LINK, Running, Stock, THEIR_LARGE, THEIRS, Wish};
use crate::{
    netns::Namespace,
    peers::{self, Programs},
};

/// FRR's bgpd.
#[derive(Debug)]
pub(super) struct Frr(pub(super) Programs);

impl Stock for Frr {
    fn name(&self) -> &'static str {
        "FRR"
    }

    fn version(&self) -> Result<String> {
        self.0.version("frr")
    }

    fn lacks(&self, _: Feature) -> Option<&'static str> {
        None
    }

    fn start(&self, host: &Namespace, wish: &Wish) -> Result<Box<dyn Running>> {
        let (family, prefix, asn, our_asn) = (wish.family(), wish.prefix(), wish.asn, wish.our_asn);
        let (far, remote) = match wish.unnumbered {
            true => (LINK.to_owned(), "interface remote-as"),
            false => (wish.far(), "remote-as"),
        };
        let [a, b, c] = THEIR_LARGE;
        let large = if wish.large { format!(" set large-community {a}:{b}:{c}\n") } else { String::new() };
        let mut session = String::new();
        let mut say = |line: String| session.push_str(&format!(" neighbor {far} {line}\n"));
        wish.md5.iter().for_each(|key| say(format!("password {key}")));
        if wish.gtsm {
            say("ttl-security hops 1".into());
        }
        if wish.customer {
            say("local-role customer".into());
        }
        let mut speaker = String::new();
        if wish.confederation {
            speaker += &format!(
                " bgp confederation identifier {CONFEDERATION}\n bgp confederation peers {our_asn}\n"
            );
        }
        if wish.graceful_restart {
            speaker += " bgp graceful-restart\n bgp graceful-restart preserve-fw-state\n";
        }
        let more = match wish.unnumbered {
            true => format!(
                " address-family ipv6 unicast\n  network {}\n  neighbor {far} activate\n exit-address-family\n",
                THEIRS[1]
            ),
            false => String::new(),
        };
        let paths =
            if wish.add_path { format!("  neighbor {far} addpath-tx-all-paths\n") } else { String::new() };
        let configuration = format!(
            "route-map own permit 10
{large}exit
router bgp {asn}
 bgp router-id 10.0.1.2
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
 no bgp network import-check
 neighbor {far} {remote} {our_asn}
 neighbor {far} timers connect 1
{speaker}{session} address-family {family} unicast
  network {prefix} route-map own
  neighbor {far} activate
{paths} exit-address-family
{more}exit
"
        );
        let frr = match wish.unnumbered {
            true => peers::Frr::start_with_zebra(self.0.clone(), host, &configuration)?,
            false => peers::Frr::start_of(self.0.clone(), host, &configuration)?,
        };
        Ok(Box::new(Started { frr, family: wish.family(), far }))
    }
}

struct Started {
    frr: peers::Frr,
    family: &'static str,
    far: String,
}

impl Running for Started {
    fn route(&self, prefix: &str) -> Result<String> {
        let family = if prefix.contains(':') { "ipv6" } else { "ipv4" };
        let text = self.frr.vtysh(&format!("show bgp {family} unicast {prefix}"))?;
        ensure!(text.contains("BGP routing table entry"), "{text}");
        Ok(text)
    }

    fn refresh(&self) -> Result<()> {
        self.frr.vtysh(&format!("clear bgp {} unicast {} soft in", self.family, self.far)).map(drop)
    }

    fn kill(&mut self) -> Result<()> {
        self.frr.kill()
    }
}
