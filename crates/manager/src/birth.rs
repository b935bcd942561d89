//! Which processes a configuration wants, and what each takes at its birth only: a change of that replaces the process.
//!
//! Sessions and the kernel's routes outlive the processes that have them, so that a setting that is worked into every route
//! need not change in a process that runs.

use std::collections::HashMap;

use holdfast_config::{
    Config, Descriptor,
    schema::{Confederation, Damping, Peer, ProcessLimits, SandboxMode, Size},
};
use holdfast_process::Processes;
use holdfast_types::{Asn, RouterId};

use crate::{
    outsiders, sandbox,
    whereabouts::{Whereabouts, peers},
};

/// How this process is called.
pub(crate) const MANAGER: &str = "manager";

/// Which processes a configuration wants, in the order of start.
pub(crate) fn wanted(processes: &Processes, config: &Config) -> Vec<&'static str> {
    let names = processes.as_configured().map(|process| process.name).filter(|name| is_wanted(name, config));
    names.chain(outsiders::names(config)).collect()
}

fn is_wanted(process: &str, config: &Config) -> bool {
    let asks = !config.rpki.caches.is_empty();
    match process {
        MANAGER => true,
        "fea" | "rib" => config.rib.enabled,
        "transport" => {
            let answers = config.metrics.is_some() || config.glass.is_some() || !config.xrl.listen.is_empty();
            config.bgp.is_some() || answers || asks
        }
        "rpki" => asks,
        "bgp" => config.bgp.is_some(),
        "metrics" => config.metrics.is_some(),
        "glass" => config.glass.is_some(),
        "monitor" => config.bgp.as_ref().is_some_and(|bgp| !bgp.mrt.is_empty() || !bgp.bmp.is_empty()),
        _ => config.sections.contains_key(process),
    }
}

/// What a process takes at its birth only.
#[derive(Debug, PartialEq)]
struct Birth {
    sandbox: SandboxMode,
    /// The first of the users, one of which it becomes.
    first_user: u32,
    limits: ProcessLimits,
    /// Where it writes.
    directories: Vec<String>,
    /// Of connected routes, of those of BGP, and of those of processes.
    distances: Vec<u8>,
    speaker: Option<Speaker>,
    /// Of a program of somebody else.
    descriptor: Option<&'static Descriptor>,
}

/// What `bgp` has worked into every route.
#[derive(Debug, PartialEq)]
struct Speaker {
    /// What is in every OPEN, and what follows from our number.
    router_id: RouterId,
    asn: Asn,
    confederation: Option<Confederation>,
    /// Whether next hops are resolved.
    rib: bool,
    local_preference: u32,
    max_paths: u8,
    cluster_id: Option<RouterId>,
    damping: Option<Damping>,
    nonstop_memory: Size,
}

fn birth(process: &str, config: &Config) -> Birth {
    let distance = &config.rib.distance;
    let of_bgp = [distance.connected, distance.ebgp, distance.ibgp];
    let speaker = config.bgp.as_ref().filter(|_| process == "bgp").map(|bgp| Speaker {
        router_id: config.router.id,
        asn: config.router.asn,
        confederation: bgp.confederation.clone(),
        rib: config.rib.enabled,
        local_preference: bgp.local_preference,
        max_paths: bgp.max_paths,
        cluster_id: bgp.cluster_id,
        damping: bgp.damping,
        nonstop_memory: bgp.nonstop_memory,
    });
    Birth {
        sandbox: config.sandbox.mode,
        // It keeps the router's.
        first_user: if process == MANAGER { 0 } else { config.sandbox.first_user },
        limits: config.sandbox.limits_of(process),
        directories: if process == "monitor" { sandbox::directories(config) } else { Vec::new() },
        distances: match process {
            "rib" => of_bgp.into_iter().chain(distance.processes.values().copied()).collect(),
            "bgp" => of_bgp.to_vec(),
            _ => Vec::new(),
        },
        speaker,
        descriptor: outsiders::descriptor(process, config),
    }
}

/// Whether a process has to be another one for another configuration, and is wanted by both.
pub(crate) fn is_replaced(process: &str, old: &Config, new: &Config) -> bool {
    is_wanted(process, old)
        && is_wanted(process, new)
        && (birth(process, old) != birth(process, new) || process == "bgp" && has_other_rules(old, new))
}

/// Whether there is a peer for which what it is told follows from other rules: what it was told by those before is in the
/// journal only, which the next process compares.
fn has_other_rules(old: &Config, new: &Config) -> bool {
    let rules = |peer: &Peer| (peer.paths.route_reflector_client, peer.paths.own_view);
    let before: HashMap<Whereabouts, &Peer> = peers(old).filter(|(_, peer)| !peer.rules.disabled).collect();
    peers(new).any(|(at, peer)| before.get(&at).is_some_and(|before| rules(before) != rules(peer)))
}
