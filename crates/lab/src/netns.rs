//! Hosts as network namespaces, joined by veth pairs.

use std::{
    ffi::OsStr,
    fs::File,
    io,
    net::Ipv6Addr,
    os::fd::AsFd,
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread::JoinHandle,
};

use anyhow::{Context, Result, ensure};
use holdfast_testing::addresses;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace that is deleted, with everything in it killed by its owners first, when dropped.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

impl Namespace {
    /// Makes a namespace with loopback up. `role` only makes its name readable.
    pub fn new(role: &str) -> Result<Self> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "network namespaces need root: run as root, or in a user namespace (unshare -Urnm)"
        );
        let namespace = Self { name: name(role) };
        ip(&["netns", "add", &namespace.name])?;
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// That of a process, which has made it.
    ///
    /// # Errors
    /// There is no such process.
    pub fn of(role: &str, pid: u32) -> Result<Self> {
        let namespace = Self { name: name(role) };
        ip(&["netns", "attach", &namespace.name, &pid.to_string()])?;
        Ok(namespace)
    }

    /// Name, as `ip netns` knows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command that runs inside.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// `ip …` inside.
    pub fn ip(&self, args: &[&str]) -> Result<String> {
        let mut all = vec!["-n", &self.name];
        all.extend(args);
        ip(&all)
    }

    /// Runs `body` on a thread of its own inside; sockets made there, and threads started there, stay inside.
    pub fn spawn<T: Send + 'static>(
        &self,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<T>> {
        let path = format!("/run/netns/{}", self.name);
        let file = File::open(&path).with_context(|| format!("opening {path}"))?;
        let thread = std::thread::Builder::new().name(self.name.clone());
        Ok(thread.spawn(move || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("entering a namespace of our own needs only root");
            body()
        })?)
    }

    /// [`Self::spawn`], waiting for the result.
    pub fn run<T: Send + 'static>(&self, body: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        self.spawn(body)?.join().map_err(|_| anyhow::anyhow!("the thread in {} panicked", self.name))
    }
}

fn name(role: &str) -> String {
    format!("hf{}-{}-{role}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = ip(&["netns", "del", &self.name]);
    }
}

/// One end of a link: the host, the interface's name there, its addresses with lengths.
#[derive(Debug)]
pub struct End<'a> {
    /// Host.
    pub host: &'a Namespace,
    /// Interface name inside the host, at most 15 octets.
    pub interface: &'a str,
    /// Addresses as `address/length`.
    pub addresses: &'a [&'a str],
}

/// Joins two hosts by a veth pair and brings it up. IPv6 addresses are usable at once (no DAD).
pub fn link(a: &End<'_>, b: &End<'_>) -> Result<()> {
    ip(&[
        "link",
        "add",
        a.interface,
        "netns",
        &a.host.name,
        "type",
        "veth",
        "peer",
        "name",
        b.interface,
        "netns",
        &b.host.name,
    ])?;
    for end in [a, b] {
        for address in end.addresses {
            let mut args = vec!["address", "add", address, "dev", end.interface];
            if address.contains(':') {
                args.push("nodad");
            }
            end.host.ip(&args)?;
        }
        end.host.ip(&["link", "set", end.interface, "up"])?;
    }
    for end in [a, b] {
        let address = |text: &&str| text.split('/').next()?.parse().ok();
        let addresses: Vec<Ipv6Addr> = end.addresses.iter().filter_map(address).collect();
        if !addresses.is_empty() {
            addresses::until_delivered(&["-n", &end.host.name], &addresses);
        }
    }
    Ok(())
}

/// Runs `ip` in the root namespace.
pub fn ip(args: &[&str]) -> Result<String> {
    output(Command::new("ip").args(args))
}

/// Runs a command to its end; its standard output, or an error with what it said.
pub fn output(command: &mut Command) -> Result<String> {
    let Output { status, stdout, stderr } = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error: io::Error| anyhow::anyhow!("running {:?}: {error}", command.get_program()))?;
    ensure!(
        status.success(),
        "{:?} {:?} ended with {status}: {}{}",
        command.get_program(),
        command.get_args().collect::<Vec<_>>(),
        String::from_utf8_lossy(&stderr).trim(),
        String::from_utf8_lossy(&stdout).trim(),
    );
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}
