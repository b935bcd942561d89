//! GoBGP.

use anyhow::{Result, ensure};

use super::{
    CONFEDERATION, Feature, Running, Stock, THEIR_LARGE, Wish,
    process::{self, Directory, Process},
};
use crate::netns::Namespace;

/// GoBGP.
#[derive(Debug)]
pub(super) struct GoBgp;

impl Stock for GoBgp {
    fn name(&self) -> &'static str {
        "GoBGP"
    }

    fn version(&self) -> Result<String> {
        process::package("gobgpd")
    }

    fn lacks(&self, feature: Feature) -> Option<&'static str> {
        match feature {
            Feature::RouteRefresh => Some("keeps what it was sent, and asks for no refresh"),
            Feature::Role => Some("this version does not have roles"),
            Feature::ExtendedMessages => Some("this version does not have extended messages"),
            _ => None,
        }
    }

    fn start(&self, host: &Namespace, wish: &Wish) -> Result<Box<dyn Running>> {
        let directory = Directory::new("gobgp")?;
        let (far, near, family, asn, our_asn) =
            (wish.far(), wish.near(), wish.family(), wish.asn, wish.our_asn);
        let password = wish.md5.map(|key| format!("auth-password = \"{key}\"\n")).unwrap_or_default();
        let gtsm =
            if wish.gtsm { "[neighbors.ttl-security.config]\nenabled = true\nttl-min = 255\n" } else { "" };
        let confederation = if wish.confederation {
            format!(
                "[global.confederation.config]\nenabled = true\nidentifier = {CONFEDERATION}\nmember-as-list = [{our_asn}]\n"
            )
        } else {
            String::new()
        };
        let (restart, family_restart) = if wish.graceful_restart {
            (
                "[neighbors.graceful-restart.config]\nenabled = true\nrestart-time = 60\n",
                "[neighbors.afi-safis.mp-graceful-restart.config]\nenabled = true\n",
            )
        } else {
            ("", "")
        };
        let paths = if wish.add_path {
            "[neighbors.afi-safis.add-paths.config]\nreceive = true\nsend-max = 8\n"
        } else {
            ""
        };
        let configuration = format!(
            "[global.config]
as = {asn}
router-id = \"10.0.1.2\"
{confederation}[[neighbors]]
[neighbors.config]
neighbor-address = \"{far}\"
peer-as = {our_asn}
{password}[neighbors.transport.config]
local-address = \"{near}\"
{gtsm}{restart}[[neighbors.afi-safis]]
[neighbors.afi-safis.config]
afi-safi-name = \"{family}-unicast\"
{family_restart}{paths}"
        );
        let file = directory.write("gobgpd.toml", 0o600, &configuration)?;
        let mut command = process::command(host, "gobgpd");
        command.arg("-f").arg(&file).args(["--api-hosts", "127.0.0.1:50051", "--pprof-disable"]);
        let process = Process::start(&mut command, &directory.path("log"))?;
        let started = Started { process, host: host.name().to_owned(), family, far, _directory: directory };
        started.process.until_answers(|| started.gobgp(&["global"]))?;
        let [a, b, c] = THEIR_LARGE.map(|number| number.to_string());
        let large = format!("{a}:{b}:{c}");
        let mut add = vec!["global", "rib", "-a", family, "add", wish.prefix()];
        if wish.large {
            add.extend(["large-community", &large]);
        }
        started.gobgp(&add)?;
        Ok(Box::new(started))
    }
}

struct Started {
    process: Process,
    host: String,
    family: &'static str,
    far: String,
    _directory: Directory,
}

impl Started {
    fn gobgp(&self, args: &[&str]) -> Result<String> {
        process::inside(&self.host, "gobgp", args)
    }
}

impl Running for Started {
    fn route(&self, prefix: &str) -> Result<String> {
        let text = self.gobgp(&["global", "rib", "-a", self.family, prefix])?;
        ensure!(text.contains(prefix), "{text}");
        Ok(text)
    }

    fn refresh(&self) -> Result<()> {
        self.gobgp(&["neighbor", &self.far, "softresetin"]).map(drop)
    }

    fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }
}
