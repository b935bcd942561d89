//! The routers under test, each described by a small file in `daemons/`.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context, Result, bail};
use holdfast_types::Asn;
use minijinja::{Environment, UndefinedBehavior};
use serde::{Deserialize, Serialize};

use crate::cgroup::Cgroup;

/// The AS number of every router under test.
pub(crate) const ASN: u32 = 65_500;
/// The AS number of the first peer; the others follow.
const FIRST_PEER: u32 = 64_512;
/// The AS numbers of peers for which there is no private one of two octets.
const MORE_PEERS: u32 = 4_200_000_000;

/// The AS number of a peer.
pub(crate) fn peer_asn(number: usize) -> Asn {
    let number = number as u32;
    Asn(if number < ASN - FIRST_PEER { FIRST_PEER + number } else { MORE_PEERS + number })
}

/// A description, as in its file. Texts are minijinja templates over [`Setup`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Daemon {
    /// How it is called on the command line and in the JSON.
    pub(crate) name: String,
    /// How it is called in tables.
    pub(crate) title: String,
    /// Debian package; none for Holdfast itself.
    #[serde(default)]
    package: Option<String>,
    /// Shell command that prints the version in its first line.
    pub(crate) version: String,
    /// Configuration files by name.
    pub(crate) files: BTreeMap<String, String>,
    /// Shell command that runs it in the foreground.
    start: String,
    /// Shell command that shows all sessions, as an operator asks.
    #[serde(default)]
    summary: Option<String>,
    /// Shell command that makes a changed configuration take effect, and returns when it is accepted.
    #[serde(default)]
    pub(crate) reload: Option<String>,
    /// Kills the process that holds the sessions, if they are to outlive that.
    pub(crate) die: Option<String>,
    /// Shell command that fails unless the RIB has `prefix`; for routers whose RIB is another process.
    #[serde(default)]
    lookup: Option<String>,
    /// Ways of running it that are measured each on its own.
    #[serde(default)]
    variant: Vec<Variant>,
    /// Of the variant.
    #[serde(skip)]
    missing: Option<String>,
    /// Who has its sessions of BFD.
    #[serde(default)]
    pub(crate) bfd: Option<BfdProcess>,
    /// What the files can be made to say: see [`Feature`].
    #[serde(default)]
    features: Vec<Feature>,
}

/// Which of its processes has the sessions of BFD.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct BfdProcess {
    /// As it calls itself.
    pub(crate) process: String,
    /// All of its threads but the first, which does other things.
    #[serde(default)]
    pub(crate) not_the_first_thread: bool,
}

/// One way of running a daemon; templates know it by `name`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Variant {
    name: String,
    title: String,
    #[serde(default)]
    lookup: Option<String>,
    /// Why it is not there when it is not, if that is not for want of the package.
    #[serde(default)]
    missing: Option<String>,
    /// Beyond those of the daemon.
    #[serde(default)]
    features: Vec<Feature>,
}

/// What not every router, or not every description, can do.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Feature {
    /// Install routes in the kernel.
    Kernel,
    /// The realistic import policy.
    Policy,
    /// Another export policy while it runs.
    PolicyChange,
    /// Thousands of peers, and of prefix-set entries.
    Scale,
    /// Go on with its sessions after a death of the process that holds them.
    Nonstop,
    /// Keep up with a feeder that changes all routes again and again.
    Churn,
    /// Pass routes on as the server of a thousand clients.
    RouteServer,
    /// And choose for each client among those that it may have.
    OwnView,
    /// Hundreds of tables with peers of their own.
    Vrfs,
    /// Sessions of BFD, for peers and without BGP.
    Bfd,
    /// Tell peers of one prefix only.
    Only,
}

/// What the templates are filled with.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Setup {
    pub(crate) directory: PathBuf,
    pub(crate) netns: String,
    pub(crate) holdfast: PathBuf,
    pub(crate) asn: u32,
    pub(crate) hold: u16,
    pub(crate) peers: Vec<Peer>,
    pub(crate) ipv6: bool,
    pub(crate) kernel: bool,
    pub(crate) policy: Option<Policy>,
    /// Added to every route that is announced.
    pub(crate) export_community: Option<(u32, u32)>,
    /// Peers from this number on are told of no route.
    pub(crate) untold: Option<usize>,
    /// Peers are told of this prefix and no other.
    pub(crate) only: Option<String>,
    /// Where the store of the sessions listens; without one they are in memory of the host at most.
    pub(crate) store: Option<SocketAddr>,
    /// All peers are clients of a route server.
    pub(crate) route_server: bool,
    /// Each of them is told of the best route that it may have.
    pub(crate) own_view: bool,
    /// So many VRFs, each at the router's end of a link.
    pub(crate) vrfs: usize,
    /// Sets that peers' policies refer to by number, modulo how many there are.
    pub(crate) prefix_sets: Vec<Vec<String>>,
    /// Links with sessions of BFD.
    pub(crate) bfd: Vec<BfdLink>,
}

/// A link, and how fast BFD is there.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BfdLink {
    /// The router's interface. Where sessions have profiles, theirs is called so, too.
    pub(crate) name: String,
    /// Milliseconds between two packets, in both directions; three of them are a detection time.
    pub(crate) interval: u32,
    /// Who is asked without BGP.
    pub(crate) neighbors: Vec<BfdNeighbor>,
}

/// A neighbour, and a destination behind it, where sessions of BFD need one.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BfdNeighbor {
    pub(crate) address: IpAddr,
    pub(crate) behind: String,
}

/// A peer, which connects to the router.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Peer {
    pub(crate) number: usize,
    pub(crate) address: IpAddr,
    pub(crate) local: IpAddr,
    pub(crate) asn: u32,
    /// The number of the VRF that it is in.
    pub(crate) vrf: Option<usize>,
    /// The link of its session of BFD, if it has one.
    pub(crate) bfd: Option<String>,
}

/// A policy as operators have them, on import from every peer.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Policy {
    /// Exactly these prefixes are refused.
    pub(crate) refused: Vec<String>,
    /// Paths with this AS are refused.
    pub(crate) refused_as: u32,
    /// Routes with this community …
    pub(crate) matched: (u32, u32),
    /// … are given this one.
    pub(crate) added: (u32, u32),
}

const DESCRIPTIONS: [&str; 5] = [
    include_str!("../daemons/holdfast.toml"),
    include_str!("../daemons/bird.toml"),
    include_str!("../daemons/frr.toml"),
    include_str!("../daemons/openbgpd.toml"),
    include_str!("../daemons/gobgp.toml"),
];

impl Daemon {
    /// All that come with this program, then those in files.
    pub(crate) fn all(files: &[PathBuf]) -> Result<Vec<Self>> {
        let mut daemons = Vec::new();
        for text in DESCRIPTIONS {
            daemons.extend(Self::read(text)?);
        }
        for file in files {
            let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
            daemons.extend(Self::read(&text).with_context(|| file.display().to_string())?);
        }
        Ok(daemons)
    }

    fn read(text: &str) -> Result<Vec<Self>> {
        let mut daemon: Self = toml::from_str(text)?;
        let variants = std::mem::take(&mut daemon.variant);
        if variants.is_empty() {
            return Ok(vec![daemon]);
        }
        let of = |variant: Variant| {
            let features = [&daemon.features[..], &variant.features].concat();
            let Variant { name, title, lookup, missing, .. } = variant;
            Self { name, title, lookup, missing, features, ..daemon.clone() }
        };
        Ok(variants.into_iter().map(of).collect())
    }

    /// Whether it is the one to be compared with the others.
    pub(crate) fn is_ours(&self) -> bool {
        self.package.is_none()
    }

    /// Whether it can do all of this.
    pub(crate) fn can(&self, features: &[Feature]) -> bool {
        features.iter().all(|feature| self.features.contains(feature))
    }

    /// What is missing when it is not installed.
    pub(crate) fn missing(&self) -> String {
        match (&self.missing, &self.package) {
            (Some(missing), _) => missing.clone(),
            (_, Some(package)) => format!("Debian package {package} is not installed"),
            (_, None) => "it is not built: cargo build --release -p holdfast-holdfast".to_owned(),
        }
    }

    /// Its version; `None` if it is not installed.
    pub(crate) fn installed_version(&self) -> Option<String> {
        let setup = Setup { holdfast: holdfast().unwrap_or_default(), ..Setup::default() };
        let command = self.render(&self.version, &setup, "").ok()?;
        let output = Command::new("sh").args(["-c", &command]).stdin(Stdio::null()).output().ok()?;
        let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
        let text = String::from_utf8_lossy(&text);
        output.status.success().then(|| text.lines().next().unwrap_or_default().trim().to_owned())
    }

    fn render(&self, template: &str, setup: &Setup, prefix: &str) -> Result<String> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        let setup = minijinja::Value::from_serialize(setup);
        // What is not there cannot be run from there either.
        let current = std::env::var("HOLDFAST_PEERS").unwrap_or_else(|_| "/nonexistent".to_owned());
        let context = minijinja::context! { name => self.name, prefix, current, ..setup };
        Ok(environment.render_str(template, context)?)
    }

    /// Writes the files and starts it.
    pub(crate) fn start(&self, mut setup: Setup) -> Result<Running> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("holdfast-bench-{}-{number}", std::process::id());
        (setup.asn, setup.holdfast) = (ASN, holdfast()?);
        setup.directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&setup.directory)?;
        let cgroup = Cgroup::new(&number.to_string())?;
        let mut running = Running { daemon: self.clone(), setup, cgroup, child: None };
        running.write_files()?;
        let command = running.render(&self.start, "")?;
        // Into the group before anything else, so that all of the daemon's processes are in it; and before the
        // namespace, in which `ip` shows another /sys.
        let script = format!("echo $$ > {}; exec \"$@\"", running.cgroup.door().display());
        let log = File::create(running.log())?;
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, "sh", "ip", "netns", "exec", &running.setup.netns, "sh", "-c", &command]);
        shell.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        running.child = Some(shell.spawn().context("starting the router")?);
        Ok(running)
    }
}

/// The binary under test: `HOLDFAST_BIN`, or the release build of this workspace.
fn holdfast() -> Result<PathBuf> {
    holdfast_lab::router::binary()
}

/// A router that runs; it is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) daemon: Daemon,
    pub(crate) setup: Setup,
    pub(crate) cgroup: Cgroup,
    child: Option<Child>,
}

impl Running {
    /// Writes the files as the setup now wants them.
    pub(crate) fn write_files(&self) -> Result<()> {
        for (name, template) in &self.daemon.files {
            let text = self.render(template, "").with_context(|| name.clone())?;
            fs::write(self.setup.directory.join(name), text)?;
        }
        Ok(())
    }

    fn render(&self, template: &str, prefix: &str) -> Result<String> {
        self.daemon.render(template, &self.setup, prefix)
    }

    fn log(&self) -> PathBuf {
        self.setup.directory.join("log")
    }

    /// The end of what it has printed.
    pub(crate) fn log_tail(&self) -> String {
        let log = fs::read(self.log()).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(2000)..]).into_owned()
    }

    /// A command that shows all sessions, if it has one.
    pub(crate) fn summary(&self) -> Result<Option<Command>> {
        self.daemon.summary.as_ref().map(|command| self.shell(command, "")).transpose()
    }

    /// Has it read its files again.
    pub(crate) fn reload(&self) -> Result<()> {
        let command = self.daemon.reload.as_ref().context("it cannot reload")?;
        run(&mut self.shell(command, "")?)
    }

    /// Kills the process that holds the sessions.
    pub(crate) fn die(&self) -> Result<()> {
        let command = self.daemon.die.as_ref().context("its sessions do not outlive it")?;
        run(&mut self.shell(command, "")?)
    }

    /// Asks its RIB for a prefix, if that is another process.
    pub(crate) fn lookup(&self, prefix: &str) -> Result<()> {
        self.daemon.lookup.as_ref().map_or(Ok(()), |command| run(&mut self.shell(command, prefix)?))
    }

    fn shell(&self, command: &str, prefix: &str) -> Result<Command> {
        let mut shell = Command::new("sh");
        shell.args(["-c", &self.render(command, prefix)?]).stdin(Stdio::null());
        Ok(shell)
    }
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output()?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        bail!("{command:?} ended with {}: {}", output.status, said.concat().trim());
    }
    Ok(())
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Killed here and not only with its group, because only the parent can wait for it.
            let _ = child.kill();
            let _ = child.wait();
        }
        remove(&self.setup.directory);
    }
}

fn remove(directory: &Path) {
    let _ = fs::remove_dir_all(directory);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setups() -> Vec<Setup> {
        let peer = |number: usize| Peer {
            number,
            address: [10, 0, number as u8, 2].into(),
            local: [10, 0, number as u8, 1].into(),
            asn: peer_asn(number).0,
            vrf: None,
            bfd: None,
        };
        let plain = Setup {
            asn: ASN,
            hold: 30,
            peers: (0..3).map(peer).collect(),
            directory: "/nowhere".into(),
            netns: "host".to_owned(),
            holdfast: "holdfast".into(),
            ..Setup::default()
        };
        let policy = Policy {
            refused: vec!["192.0.2.0/24".to_owned(), "198.51.100.0/24".to_owned()],
            refused_as: 64_999,
            matched: (1, 2),
            added: (3, 4),
        };
        vec![
            Setup { ipv6: true, ..plain.clone() },
            Setup { kernel: true, export_community: Some((65_000, 77)), ..plain.clone() },
            Setup { policy: Some(policy), ..plain.clone() },
            Setup { untold: Some(1), ..plain.clone() },
            Setup {
                only: Some("198.18.0.0/32".to_owned()),
                store: Some(([127, 0, 0, 1], 6379).into()),
                ..plain.clone()
            },
            Setup { route_server: true, own_view: true, ..plain.clone() },
            Setup {
                vrfs: 3,
                peers: (0..3).map(|number| Peer { vrf: Some(number), ..peer(number) }).collect(),
                ..plain.clone()
            },
            Setup {
                kernel: true,
                bfd: vec![BfdLink {
                    name: "l0".to_owned(),
                    interval: 50,
                    neighbors: vec![BfdNeighbor {
                        address: [10, 0, 0, 9].into(),
                        behind: "192.0.2.0/24".to_owned(),
                    }],
                }],
                peers: vec![Peer { bfd: Some("l0".to_owned()), ..peer(0) }],
                ..plain.clone()
            },
            Setup {
                prefix_sets: vec![vec!["192.0.2.0/24".to_owned()], vec!["10.0.0.0/8".to_owned()]],
                ..plain
            },
        ]
    }

    #[test]
    fn every_description_fills_its_templates() {
        for daemon in Daemon::all(&[]).unwrap() {
            for setup in setups() {
                let commands = [Some(&daemon.start), daemon.summary.as_ref(), daemon.reload.as_ref()];
                for text in daemon.files.values().chain(commands.into_iter().flatten()) {
                    daemon.render(text, &setup, "").unwrap();
                }
            }
        }
    }

    #[test]
    fn our_own_configuration_is_accepted() {
        let ours = Daemon::all(&[]).unwrap().into_iter().filter(Daemon::is_ours);
        // The section `[bfd]` is known to its process only.
        let known = || setups().into_iter().filter(|setup| setup.bfd.is_empty());
        for (daemon, setup) in ours.flat_map(|daemon| known().map(move |setup| (daemon.clone(), setup))) {
            let text = daemon.render(&daemon.files["router.toml"], &setup, "").unwrap();
            let config = holdfast_config::parse(&text, "router.toml", holdfast_config::Schema::new([]))
                .unwrap_or_else(|error| panic!("{error:?} in {text}"));
            assert_eq!(config.rib.enabled, daemon.name == "holdfast-router");
        }
    }
}
