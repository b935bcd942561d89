//! OpenBGPD.

use anyhow::{Result, ensure};

use super::{Feature, LINK, LINK_LOCAL, Running, Stock, THEIR_LARGE, THEIRS, Wish};
use crate::{
    netns::Namespace,
    peers::{self, Programs},
};

/// OpenBGPD.
#[derive(Debug)]
pub(super) struct OpenBgpd(pub(super) Programs);

impl Stock for OpenBgpd {
    fn name(&self) -> &'static str {
        "OpenBGPD"
    }

    fn version(&self) -> Result<String> {
        self.0.version("openbgpd")
    }

    fn lacks(&self, feature: Feature) -> Option<&'static str> {
        match feature {
            Feature::Confederation => Some("has no confederations"),
            Feature::RestartThere | Feature::RestartHere => {
                Some("of graceful restart only the End-of-RIB marker is supported (bgpd.conf(5))")
            }
            Feature::ExtendedMessages if self.0 == Programs::Machine => {
                Some("this version does not have extended messages")
            }
            Feature::Unnumbered if self.0 == Programs::Machine => {
                Some("this version takes no IPv6 next hops for IPv4 (RFC 8950)")
            }
            _ => None,
        }
    }

    fn start(&self, host: &Namespace, wish: &Wish) -> Result<Box<dyn Running>> {
        let (prefix, asn, our_asn) = (wish.prefix(), wish.asn, wish.our_asn);
        let (far, near) = match wish.unnumbered {
            true => (format!("{}%{LINK}", LINK_LOCAL[0]), format!("{}%{LINK}", LINK_LOCAL[1])),
            false => (wish.far(), wish.near()),
        };
        let (family, other) = if wish.ipv6 { ("IPv6", "IPv4") } else { ("IPv4", "IPv6") };
        let (others, more) = match wish.unnumbered {
            true => ("unicast", format!("network {}", THEIRS[1])),
            false => ("none", String::new()),
        };
        let [a, b, c] = THEIR_LARGE;
        let large = if wish.large { format!("set {{ large-community {a}:{b}:{c} }}") } else { String::new() };
        let mut session = String::new();
        let mut say = |line: String| session.push_str(&format!("  {line}\n"));
        wish.md5.iter().for_each(|key| say(format!("tcp md5sig password {key}")));
        if wish.gtsm {
            say("ttl-security yes".into());
        }
        if wish.extended {
            say("announce extended message yes".into());
        }
        if wish.unnumbered {
            say("announce extended nexthop yes".into());
        }
        if wish.add_path {
            say("announce add-path recv yes".into());
            say("announce add-path send all".into());
        }
        if wish.customer {
            match self.0 {
                Programs::Machine => say("announce policy customer".into()),
                Programs::Tree(_) => {
                    say("role customer".into());
                    say("announce policy yes".into());
                }
            }
        }
        let configuration = format!(
            "AS {asn}
router-id 10.0.1.2
fib-update no
network {prefix} {large}
{more}
neighbor {far} {{
  remote-as {our_asn}
  local-address {near}
  announce {family} unicast
  announce {other} {others}
{session}}}
allow from any
allow to any
"
        );
        let bgpd = peers::OpenBgpd::start_of(self.0.clone(), host, &configuration)?;
        Ok(Box::new(Started { bgpd, far }))
    }
}

struct Started {
    bgpd: peers::OpenBgpd,
    far: String,
}

impl Running for Started {
    fn route(&self, prefix: &str) -> Result<String> {
        let text = self.bgpd.bgpctl(&["show", "rib", "detail", prefix])?;
        ensure!(text.contains(prefix), "{text}");
        Ok(text)
    }

    fn refresh(&self) -> Result<()> {
        self.bgpd.bgpctl(&["neighbor", &self.far, "refresh"]).map(drop)
    }

    fn kill(&mut self) -> Result<()> {
        self.bgpd.kill()
    }
}
