//! ExaBGP: it keeps no table, so what it was sent is read from what it writes to its process.

use std::{fs, io::Write as _};

use anyhow::{Result, ensure};

use super::{
    Feature, Running, Stock, THEIR_LARGE, Wish,
    process::{self, Directory, Process},
};
use crate::netns::Namespace;

/// ExaBGP.
#[derive(Debug)]
pub(super) struct ExaBgp;

impl Stock for ExaBgp {
    fn name(&self) -> &'static str {
        "ExaBGP"
    }

    fn version(&self) -> Result<String> {
        process::package("exabgp")
    }

    fn lacks(&self, _: Feature) -> Option<&'static str> {
        None
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
        let configuration = format!(
            "process log {{ run {}; encoder json; }}
neighbor {far} {{
  router-id 10.0.1.2; local-address {near}; local-as {asn}; peer-as {our_asn};
  family {{ {family} unicast; }}
  capability {{ route-refresh enable; }}
  api {{ processes [ log ]; receive {{ parsed; update; }} }}
  static {{ route {prefix} next-hop self {large}; }}
{session}}}
",
            script.display()
        );
        let file = directory.write("exabgp.conf", 0o600, &configuration)?;
        let mut command = process::command(host, "exabgp");
        command.arg(&file);
        command.envs([("exabgp.daemon.user", "root"), ("exabgp.daemon.drop", "false")]);
        command.envs([("exabgp.api.cli", "false"), ("exabgp.log.level", "WARNING")]);
        let process = Process::start(&mut command, &directory.path("log"))?;
        Ok(Box::new(Started { _process: process, family, far, directory }))
    }
}

struct Started {
    _process: Process,
    family: &'static str,
    far: String,
    directory: Directory,
}

impl Running for Started {
    fn route(&self, prefix: &str) -> Result<String> {
        let all = fs::read_to_string(self.directory.path("received"))?;
        let about = all.lines().rfind(|line| line.contains(prefix)).unwrap_or_default();
        ensure!(about.contains("\"announce\""), "{about:?}");
        Ok(about.to_owned())
    }

    fn refresh(&self) -> Result<()> {
        let mut commands = fs::OpenOptions::new().append(true).open(self.directory.path("commands"))?;
        writeln!(commands, "neighbor {} announce route-refresh {} unicast", self.far, self.family)?;
        Ok(())
    }
}
