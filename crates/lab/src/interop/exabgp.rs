//! ExaBGP: it keeps no table, so what it was sent is read from what it writes to its process.

use std::{fs, io::Write as _};

use anyhow::{Result, ensure};

use super::{Feature, Running, Stock, THEIR_LARGE, Wish};
use crate::{
    netns::Namespace,
    peers::{
        Programs,
        process::{Directory, Process},
    },
};

/// ExaBGP.
#[derive(Debug)]
pub(super) struct ExaBgp(pub(super) Programs);

impl Stock for ExaBgp {
    fn name(&self) -> &'static str {
        "ExaBGP"
    }

    fn version(&self) -> Result<String> {
        self.0.version("exabgp")
    }

    fn lacks(&self, feature: Feature) -> Option<&'static str> {
        match feature {
            Feature::Confederation => Some("has no confederations"),
            Feature::Role => Some("this version does not have roles"),
            Feature::Unnumbered => Some("takes no neighbour with an interface"),
            _ => None,
        }
    }

    fn start(&self, host: &Namespace, wish: &Wish) -> Result<Box<dyn Running>> {
        let directory = Directory::new("exabgp")?;
        let (commands, received) = (directory.write("commands", 0o600, "")?, directory.path("received"));
        let script = format!(
            "#!/bin/sh\ntail -n +1 -f {} &\ntail=$!\ncat >{}\nkill $tail\n",
            commands.display(),
            received.display()
        );
        let script = directory.write("process", 0o700, &script)?;
        let (far, near, family, prefix, asn, our_asn) =
            (wish.far(), wish.near(), wish.family(), wish.prefix(), wish.asn, wish.our_asn);
        let [a, b, c] = THEIR_LARGE;
        let large = if wish.large { format!("large-community [{a}:{b}:{c}]") } else { String::new() };
        let mut session = String::new();
        let mut say = |line: String| session.push_str(&format!("  {line};\n"));
        wish.md5.iter().for_each(|key| say(format!("md5-password \"{key}\"")));
        if wish.gtsm {
            say("outgoing-ttl 255".into());
            say("incoming-ttl 255".into());
        }
        let (mut capabilities, mut paths) = ("route-refresh enable;".to_owned(), String::new());
        if wish.add_path {
            capabilities += " add-path send/receive;";
            paths = format!("add-path {{ {family} unicast; }}");
        }
        if wish.graceful_restart {
            capabilities += " graceful-restart 60;";
        }
        let configuration = format!(
            "process log {{ run {}; encoder json; }}
neighbor {far} {{
  router-id 10.0.1.2; local-address {near}; local-as {asn}; peer-as {our_asn};
  family {{ {family} unicast; }}
  capability {{ {capabilities} }}
  {paths}
  api {{ processes [ log ]; receive {{ parsed; update; }} }}
  static {{ route {prefix} next-hop self {large}; }}
{session}}}
",
            script.display()
        );
        let file = directory.write("exabgp.conf", 0o600, &configuration)?;
        let mut command = host.command(self.0.path("exabgp", "exabgp"));
        command.arg(&file);
        command.envs([("exabgp.daemon.user", "root"), ("exabgp.daemon.drop", "false")]);
        command.envs([("exabgp.api.cli", "false"), ("exabgp.log.level", "WARNING")]);
        let process = Process::start(command)?;
        Ok(Box::new(Started { process, family, far, directory }))
    }
}

struct Started {
    process: Process,
    family: &'static str,
    far: String,
    directory: Directory,
}

impl Running for Started {
    fn route(&self, prefix: &str) -> Result<String> {
        let all = fs::read_to_string(self.directory.path("received"))?;
        let about: Vec<_> = all.lines().filter(|line| line.contains(prefix)).collect();
        ensure!(about.last().is_some_and(|last| last.contains("\"announce\"")), "{about:?}");
        Ok(about.join("\n"))
    }

    fn refresh(&self) -> Result<()> {
        let mut commands = fs::OpenOptions::new().append(true).open(self.directory.path("commands"))?;
        writeln!(commands, "neighbor {} announce route-refresh {} unicast", self.far, self.family)?;
        Ok(())
    }

    fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }
}
