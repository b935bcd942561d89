//! BIRD.

use anyhow::{Result, ensure};

use super::{CONFEDERATION, Feature, LINK, LINK_LOCAL, Running, Stock, THEIR_LARGE, THEIRS, Wish};
use crate::{
    netns::Namespace,
    peers::{self, Programs},
};

/// BIRD.
#[derive(Debug)]
pub(super) struct Bird(pub(super) Programs);

impl Stock for Bird {
    fn name(&self) -> &'static str {
        "BIRD"
    }

    fn version(&self) -> Result<String> {
        self.0.version(if self.0 == Programs::Machine { "bird2" } else { "bird3" })
    }

    fn lacks(&self, _: Feature) -> Option<&'static str> {
        None
    }

    fn start(&self, host: &Namespace, wish: &Wish) -> Result<Box<dyn Running>> {
        let (near, far, family, prefix) = (wish.near(), wish.far(), wish.family(), wish.prefix());
        let (asn, our_asn) = (wish.asn, wish.our_asn);
        let [a, b, c] = THEIR_LARGE;
        let large = if wish.large {
            format!("{{ bgp_large_community.add(({a}, {b}, {c})); }}")
        } else {
            String::new()
        };
        let mut session = String::new();
        let mut say = |line: String| session.push_str(&format!("  {line};\n"));
        wish.md5.iter().for_each(|key| say(format!("password {key:?}")));
        if wish.gtsm {
            say("ttl security yes".into());
        }
        if wish.extended {
            say("enable extended messages yes".into());
        }
        if wish.confederation {
            say(format!("confederation {CONFEDERATION}"));
            say("confederation member yes".into());
        }
        if wish.customer {
            say("local role customer".into());
        }
        if wish.graceful_restart {
            say("graceful restart on".into());
        }
        let paths = if wish.add_path { "add paths on;" } else { "" };
        let (ends, more, channel, other) = match wish.unnumbered {
            true => (
                format!("local as {asn}; neighbor {} as {our_asn}; interface {LINK:?};", LINK_LOCAL[0]),
                format!("protocol static {{ ipv6; route {} blackhole; }}", THEIRS[1]),
                "extended next hop on;",
                "ipv6 { import all; export all; };",
            ),
            false => (format!("local {near} as {asn}; neighbor {far} as {our_asn};"), String::new(), "", ""),
        };
        let configuration = format!(
            "router id 10.0.1.2;
            protocol device {{ }}
            protocol static {{ {family}; route {prefix} blackhole {large}; }}
            {more}
            protocol bgp holdfast {{
              {ends}
              connect delay time 1; connect retry time 1; error wait time 1, 2;
              {family} {{ import all; export all; {paths} {channel} }};
              {other}
              {session}
            }}"
        );
        Ok(Box::new(peers::Bird::start_of(self.0.clone(), host, &configuration, &[])?))
    }
}

impl Running for peers::Bird {
    fn route(&self, prefix: &str) -> Result<String> {
        let text = self.birdc(&format!("show route for {prefix} all"))?;
        // As versions 2 and 3 write it.
        ensure!(["BGP.as_path", "bgp_path"].iter().any(|name| text.contains(name)), "{text}");
        Ok(text)
    }

    fn refresh(&self) -> Result<()> {
        self.ask_for_refresh()
    }

    fn kill(&mut self) -> Result<()> {
        self.kill()
    }
}
