//! What belongs to processes: logs, limits, sections of their own, calls over TCP.

use super::{Routing, Secret, Size};
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// A section that belongs to one process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessSection {
    /// What it says: names are the keys of the file. What has a default is there.
    pub values: serde_json::Map<String, serde_json::Value>,
    /// The interfaces that it names, each with its VRF; `None`: the default table.
    pub interfaces: BTreeSet<(Option<String>, String)>,
    /// The routing protocol of the process.
    pub routing: Option<Routing>,
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

/// What a client over TCP is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum XrlRole {
    /// Like who opens the operator's socket.
    Operator,
    /// Like who opens the socket of the `[[protocol]]` of its name.
    Protocol,
}

impl XrlRole {
    /// The word in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Protocol => "protocol",
        }
    }
}

/// How events are written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Log {
    /// `text` (default) or `json`.
    pub format: LogFormat,
    /// The least important level that is written; `info` by default.
    pub level: LogLevel,
    /// `[log.process]`: the levels of single processes.
    pub processes: Vec<(&'static str, LogLevel)>,
}

/// Form of a log line.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl LogFormat {
    /// The word in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

/// Importance of a log line, most important first.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    /// Something failed.
    Error,
    /// Something unexpected that was dealt with.
    Warn,
    /// Changes of state, as of a session.
    Info,
    /// Single events.
    Debug,
    /// Single steps.
    Trace,
}

impl LogLevel {
    /// The word in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

impl Log {
    /// As the processes take it by environment: `info,bgp=debug`.
    pub fn filter(&self) -> String {
        let own = self.processes.iter().map(|(process, level)| format!(",{process}={}", level.name()));
        std::iter::once(self.level.name().to_owned()).chain(own).collect()
    }
}

/// How far the router's processes are confined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sandbox {
    /// `enforce` (default) or `off`: whether Landlock and seccomp are used where the kernel has them.
    pub mode: SandboxMode,
    /// The first of the users that processes become when the router is started as root; 60700 by default. 0: none, they
    /// keep the router's.
    pub first_user: u32,
    /// `[sandbox.limits.NAME]`: the name of a process, once, and what it may use.
    pub limits: Vec<(&'static str, ProcessLimits)>,
}

/// What a process may use.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct ProcessLimits {
    /// Memory; three quarters of the machine's by default, where a cgroup counts it.
    pub memory: Option<Size>,
    /// Processor time in percent of one processor; all by default.
    pub cpu: Option<u32>,
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

/// Whether processes are confined.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum SandboxMode {
    /// By everything that the kernel has.
    Enforce,
    /// By capabilities and users only: to find out whether the sandbox is what stands in the way.
    Off,
}

impl SandboxMode {
    /// The word in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Off => "off",
        }
    }
}

impl Default for Sandbox {
    fn default() -> Self {
        Self { mode: SandboxMode::Enforce, first_user: 60_700, limits: Vec::new() }
    }
}
