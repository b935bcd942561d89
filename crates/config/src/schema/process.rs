//! What belongs to processes: logs, limits, sections of their own, calls over TCP.

use super::{Routing, Secret, Size};
use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;

use crate::keyed::{Maybe, MaybeNumber, OneOf, keys, number, words};
use crate::keys::types::SIZE;

/// A section that belongs to one process. Its values may be secrets, and are not shown in debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct ProcessSection {
    /// What it says: names are the keys of the file. What has a default is there.
    pub values: serde_json::Map<String, serde_json::Value>,
    /// The interfaces that it names, each with its VRF; `None`: the default table.
    pub interfaces: BTreeSet<(Option<String>, String)>,
    /// The routing protocol of the process.
    pub routing: Option<Routing>,
}

impl fmt::Debug for ProcessSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.values.keys().collect::<Vec<_>>();
        let Self { interfaces, routing, .. } = self;
        let mut shown = f.debug_struct("ProcessSection");
        shown.field("keys", &keys).field("interfaces", interfaces).field("routing", routing);
        shown.finish_non_exhaustive()
    }
}

impl ProcessSection {
    /// Whether it is of a routing protocol that has an interface in this table; one that has none is in the default table.
    pub fn routes_in(&self, vrf: Option<&str>) -> bool {
        let is_there = || self.interfaces.iter().any(|(of, _)| of.as_deref() == vrf);
        self.routing.is_some() && (vrf.is_none() || is_there())
    }
}

/// XRL over TCP.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Xrl {
    /// Addresses to listen on; none by default.
    pub listen: Vec<SocketAddr>,
    /// `[[xrl.client]]`: who may connect; names are unique.
    pub clients: Vec<XrlClient>,
}

/// Somebody who may connect to XRL over TCP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct XrlClient {
    /// As it calls itself.
    pub name: String,
    /// What it may call; `operator` by default.
    pub role: XrlRole,
    /// What it has to know, 16 octets or more. Empty until the file of `key_file` has been read.
    pub key: Secret,
    /// `key-file`: where the key is, in place of `key`.
    pub key_file: Option<String>,
}

words! {
    /// What a client over TCP is.
    pub enum XrlRole = Operator "operator" {
        /// Like who opens the operator's socket.
        Operator = "operator",
        /// Like who opens the socket of the `[[protocol]]` of its name.
        Protocol = "protocol",
    }
}

keys! {
    /// How events are written.
    pub struct Log {
        "format" format: LogFormat = OneOf::<LogFormat>(PhantomData), Reload, "`\"json\"`: one object a line";
        "level" level: LogLevel = OneOf::<LogLevel>(PhantomData), Reload, "the least important that is written";
        + /// `[log.process]`: the levels of single processes.
        processes: Vec<(&'static str, LogLevel)> = Vec::new();
    }
}

words! {
    /// Form of a log line.
    pub enum LogFormat = Text "text" {
        /// For people.
        Text = "text",
        /// One JSON object a line.
        Json = "json",
    }
}

words! {
    /// Importance of a log line, most important first.
    #[derive(PartialOrd, Ord)]
    pub enum LogLevel = Info "info" {
        /// Something failed.
        Error = "error",
        /// Something unexpected that was dealt with.
        Warn = "warn",
        /// Changes of state, as of a session.
        Info = "info",
        /// Single events.
        Debug = "debug",
        /// Single steps.
        Trace = "trace",
    }
}

impl Log {
    /// As the processes take it by environment: `info,bgp=debug`.
    pub fn filter(&self) -> String {
        let own = self.processes.iter().map(|(process, level)| format!(",{process}={}", level.name()));
        std::iter::once(self.level.name().to_owned()).chain(own).collect()
    }
}

keys! {
    /// How far the router's processes are confined.
    pub struct Sandbox {
        "mode" mode: SandboxMode = OneOf::<SandboxMode>(PhantomData), Reload, "`\"enforce\"`: Landlock and seccomp, as far as the kernel has them; `\"off\"`: neither";
        // Users of their own have numbers up to here, which leaves out what is special: nobody, and -1 in 16 and 32 bits.
        "first-user" first_user: u32 = number!(0..=0x7fff_0000, 60700), Reload, "the first of the users that processes become when the router is started as root; 0: they keep the router's";
        + /// `[sandbox.limits.NAME]`: the name of a process, once, and what it may use.
        limits: Vec<(&'static str, ProcessLimits)> = Vec::new();
    }
}

keys! {
    /// What a process may use.
    #[derive(Copy)]
    pub struct ProcessLimits {
        "memory" memory: Option<Size> = Maybe(SIZE, "three quarters of the machine's, where a cgroup counts it"), Reload, "one that wants more dies, and is started again";
        "cpu" cpu: Option<u32> = MaybeNumber(1, 100_000, "all"), Reload, "processor time in percent of one processor; only where a cgroup counts it";
    }
}

impl Sandbox {
    /// What the process of this name may use.
    pub fn limits_of(&self, name: &str) -> ProcessLimits {
        self.limits
            .iter()
            .find(|limited| limited.0 == name)
            .map_or(ProcessLimits::default(), |limited| limited.1)
    }
}

words! {
    /// Whether processes are confined.
    pub enum SandboxMode = Enforce "enforce" {
        /// By everything that the kernel has.
        Enforce = "enforce",
        /// By capabilities and users only: to find out whether the sandbox is what stands in the way.
        Off = "off",
    }
}
