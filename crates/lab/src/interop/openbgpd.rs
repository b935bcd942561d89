//! OpenBGPD.

use std::fs;

use anyhow::{Result, ensure};

use super::{
    Feature, Running, Stock, THEIR_LARGE, Wish,
    process::{self, Directory, Process},
};
use crate::netns::Namespace;

/// OpenBGPD.
#[derive(Debug)]
pub(super) struct OpenBgpd;

impl Stock for OpenBgpd {
    fn name(&self) -> &'static str {
        "OpenBGPD"
    }

    fn version(&self) -> Result<String> {
        process::package("openbgpd")
    }

    fn lacks(&self, feature: Feature) -> Option<&'static str> {
        match feature {
            Feature::Confederation => Some("has no confederations"),
            Feature::RestartThere | Feature::RestartHere => {
                Some("of graceful restart only the End-of-RIB marker is supported (bgpd.conf(5))")
            }
            Feature::ExtendedMessages => Some("this version does not have extended messages"),
            Feature::Unnumbered => Some("this version takes no IPv6 next hops for IPv4 (RFC 8950)"),
            _ => None,
        }
    }

    fn start(&self, host: &Namespace, wish: &Wish) -> Result<Box<dyn Running>> {
        fs::create_dir_all("/run/openbgpd")?;
        let directory = Directory::new("openbgpd")?;
        let (far, near, prefix, asn, our_asn) =
            (wish.far(), wish.near(), wish.prefix(), wish.asn, wish.our_asn);
        let (family, other) = if wish.ipv6 { ("IPv6", "IPv4") } else { ("IPv4", "IPv6") };
        let [a, b, c] = THEIR_LARGE;
        let large = if wish.large { format!("set {{ large-community {a}:{b}:{c} }}") } else { String::new() };
        let mut session = String::new();
        let mut say = |line: String| session.push_str(&format!("  {line}\n"));
        wish.md5.iter().for_each(|key| say(format!("tcp md5sig password {key}")));
        if wish.gtsm {
            say("ttl-security yes".into());
        }
        if wish.add_path {
            say("announce add-path recv yes".into());
            say("announce add-path send all".into());
        }
        if wish.customer {
            say("announce policy customer".into());
        }
        let socket = directory.path("ctl");
        let configuration = format!(
            "AS {asn}
router-id 10.0.1.2
fib-update no
socket \"{}\"
network {prefix} {large}
neighbor {far} {{
  remote-as {our_asn}
  local-address {near}
  announce {family} unicast
  announce {other} none
{session}}}
allow from any
allow to any
",
            socket.display()
        );
        let file = directory.write("bgpd.conf", 0o600, &configuration)?;
        let mut command = process::command(host, "/usr/sbin/bgpd");
        command.args(["-d", "-f"]).arg(&file);
        let process = Process::start(&mut command, &directory.path("log"))?;
        let socket = socket.display().to_string();
        let started = Started { process, socket, far, _directory: directory };
        started.process.until_answers(|| started.bgpctl(&["show"]))?;
        Ok(Box::new(started))
    }
}

struct Started {
    process: Process,
    socket: String,
    far: String,
    _directory: Directory,
}

impl Started {
    fn bgpctl(&self, args: &[&str]) -> Result<String> {
        let mut all = vec!["-s", &*self.socket];
        all.extend(args);
        crate::netns::output(std::process::Command::new("bgpctl").args(all))
    }
}

impl Running for Started {
    fn route(&self, prefix: &str) -> Result<String> {
        let text = self.bgpctl(&["show", "rib", "detail", prefix])?;
        ensure!(text.contains(prefix), "{text}");
        Ok(text)
    }

    fn refresh(&self) -> Result<()> {
        self.bgpctl(&["neighbor", &self.far, "refresh"]).map(drop)
    }

    fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }
}
