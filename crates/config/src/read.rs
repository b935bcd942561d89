//! The sections of a configuration, except BGP and policy.

mod admission;
mod bfd;
mod bgp;
mod damping;
mod monitor;
mod nonstop;
mod own;
mod paths;
mod policy;
mod protocol;
mod rpki;
mod signing;
mod tls;
mod vrf;
mod xrl;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::Range,
    time::Duration,
};

use holdfast_types::{Afi, Asn, Prefix, RouterId};
use toml::{Spanned, de::DeTable};

use crate::{
    Config, Schema,
    files::Files,
    input::{At, Names, Problem, Report, Section},
    keyed::Word as _,
    read::protocol::{Described, Surroundings},
    schema::{
        Admission, Distances, Fea, Glass, Log, LogLevel, Metrics, ProcessLimits, Rib, Router, Rpki, Sandbox,
        Signing, StaticRoute, StaticTarget,
    },
};

/// Reads everything; `None` if something that has no default is missing or wrong. What is wrong is in
/// the report.
pub(crate) fn config<'a>(
    report: &'a Report<'a>,
    root: &'a Spanned<DeTable<'a>>,
    schema: Schema,
    files: &Files<'_>,
) -> Option<Config> {
    let described = Described::read(report, root.get_ref(), schema, files);
    let schema = described.schema(report, schema);
    let mut root = Section::file(report, root.get_ref(), schema.file());
    // What is wrong with a descriptor is said; what its section may say is not known.
    root.pass(described.names.iter().cloned());
    let (policy, policies, prefix_sets) = policy::read(&root);
    let router = router(&root);
    let log = root.section("log", "[log]").map_or(Log::default(), |section| log(&section, schema));
    let metrics =
        root.section("metrics", "[metrics]").map(|section| Metrics { listen: listen(&section, 9179) });
    let glass = root.section("glass", "[glass]").map(|section| Glass { listen: listen(&section, 29184) });
    let fea = root.section("fea", "[fea]").map_or(Fea::default(), |section| Fea::read(&section));
    let rib = rib(root.section("rib", "[rib]").as_ref(), schema);
    let mut sandbox =
        root.section("sandbox", "[sandbox]").map_or(Sandbox::default(), |section| sandbox(&section, schema));
    described.limit(&mut sandbox, schema);
    let tls = root.section("tls", "[tls]");
    let (has_tls, has_certificate) =
        (tls.is_some(), tls.as_ref().is_some_and(|section| section.has("certificate")));
    let tls = tls.and_then(|section| tls::read(&section, files));
    let admission = root
        .section("admission", "[admission]")
        .map_or(Admission::default(), |section| admission::read(&section));
    let (vrfs, vrf_names) = vrf::read(&root, &fea);
    let profiles = bfd::profiles(&root);
    let statics = statics(&root, rib.enabled, &vrf_names, &profiles);
    let (rib_enabled, has_users) = (rib.enabled, sandbox.first_user != 0);
    let with = Surroundings { rib_enabled, has_users, schema, described: &described };
    let (protocols, origins) = protocol::read(&root, &with);
    let asn = router.map(|router| router.asn);
    let names = bgp::Known {
        policies: &policies,
        prefix_sets: &prefix_sets,
        origins: &origins,
        schema,
        vrfs: &vrf_names,
        profiles: &profiles,
        rib: rib.enabled,
        asn,
        has_tls,
        has_certificate,
        files,
    };
    let door = tls::Door { whom: "cache", has_tls, has_certificate, has_s2n_port: false, files };
    let rpki = root.section("rpki", "[rpki]").map_or(Rpki::default(), |section| rpki::read(&section, &door));
    let bgpsec = root
        .section("bgpsec", "[bgpsec]")
        .map_or(Signing::default(), |section| signing::read(&section, files));
    let bgp = root.section("bgp", "[bgp]").map(|section| bgp::read(&section, names));
    let door = tls::Door { whom: "store", ..door };
    let store = root
        .section("nonstop", "[nonstop]")
        .and_then(|section| nonstop::read(&section, &door, bgp.as_ref(), &vrf_names));
    let known = own::Known {
        policies: &policies,
        vrfs: &vrf_names,
        profiles: &profiles,
        origins: &origins,
        has_bgp: bgp.is_some(),
    };
    let sections = schema.sections().iter().filter_map(|own| own::section(&root, own, &known, rib.enabled));
    let sections = sections.collect();
    let xrl = root.section("xrl", "[xrl]").map(|section| xrl::read(&section, &protocols)).unwrap_or_default();
    let mut config = Config {
        router: router?,
        log,
        metrics,
        glass,
        fea,
        rib,
        sandbox,
        tls,
        admission,
        vrfs,
        statics,
        protocols,
        rpki,
        bgpsec,
        store,
        bgp,
        policy,
        xrl,
        sections,
    };
    own::imply(&mut config, &root, schema, &known);
    Some(config)
}

fn router(root: &Section<'_>) -> Option<Router> {
    let Some(section) = root.section("router", "[router]") else {
        if !root.has("router") {
            let problem = Problem::new("there is no [router]");
            root.add("router", problem.expected("[router] with `id` and `asn`"));
        }
        return None;
    };
    let id = section.required::<RouterId>("id");
    let asn = section.required::<Asn>("asn");
    asn.iter().for_each(|asn| usable(&section, asn));
    let hang_limit = Duration::from_secs(section.number("hang-limit", 0..=3600_u32, 2).into());
    Some(Router { id: id?.value, asn: asn?.value, hang_limit })
}

/// Refuses numbers that name no AS (RFC 7607, RFC 7300, RFC 6793 section 9).
fn usable(section: &Section<'_>, asn: &At<Asn>) {
    if !asn.value.is_usable() {
        let problem = Problem::new(format!("AS {} is reserved and names no router", asn.value));
        section.report.add(&asn.span, problem.expected("another AS number, private ones are from 64512"));
    }
}

fn log(section: &Section<'_>, schema: Schema) -> Log {
    let levels = section.section("process", "[log.process]").map(|section| log_levels(&section, schema));
    Log { processes: levels.unwrap_or_default(), ..Log::read(section) }
}

fn log_levels(section: &Section<'_>, schema: Schema) -> Vec<(&'static str, LogLevel)> {
    // What a key that is there does not say is never used.
    let level = |name: &'static str| {
        section.has(name).then(|| (name, section.word(name, LogLevel::WORDS, LogLevel::default())))
    };
    schema.processes().iter().copied().filter_map(level).collect()
}

/// Where to listen; by default at this port, for those on this machine.
fn listen(section: &Section<'_>, port: u16) -> SocketAddr {
    let listen = section.optional::<SocketAddr>("listen");
    if let Some(at) = listen.as_ref().filter(|at| at.value.port() == 0) {
        section.report.add(&at.span, Problem::new("port 0 is no port to ask at").expected("1 to 65535"));
    }
    listen.map_or(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port), |at| at.value)
}

/// RT_TABLE_MAIN.
const MAIN: u32 = 254;

fn rib(section: Option<&Section<'_>>, schema: Schema) -> Rib {
    let below = section.and_then(|section| section.section("distance", "[rib.distance]"));
    let below = below.as_ref();
    let distance = |name, usual| below.map_or(usual, |section| section.or(name, usual));
    let processes =
        schema.routing().map(|(name, routing)| (name, distance(name, routing.distance))).collect();
    let distance = Distances { processes, ..below.map(Distances::read).unwrap_or_default() };
    Rib { distance, ..section.map(Rib::read).unwrap_or_default() }
}

fn seconds(at: At<u16>) -> Duration {
    Duration::from_secs(at.value.into())
}

fn sandbox(section: &Section<'_>, schema: Schema) -> Sandbox {
    let limits = section.section("limits", "[sandbox.limits]").map(|section| limits(&section, schema));
    Sandbox { limits: limits.unwrap_or_default(), ..Sandbox::read(section) }
}

fn limits(section: &Section<'_>, schema: Schema) -> Vec<(&'static str, ProcessLimits)> {
    // The keeper has none.
    let limits = schema.processes().iter().skip(1).filter_map(|name| {
        let section = section.section(name, "[sandbox.limits] of a process")?;
        Some((*name, ProcessLimits::read(&section)))
    });
    limits.collect()
}

fn statics(
    root: &Section<'_>,
    rib_enabled: bool,
    vrfs: &Names<'_>,
    profiles: &Names<'_>,
) -> Vec<StaticRoute> {
    let sections = root.sections("static", "[[static]]");
    if let (Some(first), false) = (sections.first(), rib_enabled) {
        let problem = Problem::new("a static route has no effect without a rib");
        root.report.add(&first.span, problem.hint("remove it, or set `enabled = true` in [rib]"));
    }
    let mut prefixes = Names::new(root.report, "a static route for");
    let read = |section| static_route(section, vrfs, profiles, &mut prefixes);
    sections.iter().filter_map(read).collect()
}

fn static_route(
    section: &Section<'_>,
    vrfs: &Names<'_>,
    profiles: &Names<'_>,
    prefixes: &mut Names<'_>,
) -> Option<StaticRoute> {
    let vrf = vrf::of(section, vrfs);
    let prefix = section.required::<Prefix>("prefix");
    let next_hop = section.optional::<IpAddr>("next-hop");
    let interface = section.optional::<String>("interface");
    let blackhole = section.or("blackhole", false);
    let tag = section.or("tag", 0);
    prefix.iter().for_each(|prefix| prefixes.declare(&vrf::scoped(prefix, vrf.as_deref())));
    interface.iter().for_each(|name| interface_name(section, name));
    if let (Some(prefix), Some(next_hop)) = (&prefix, &next_hop) {
        gateway(section, prefix.value, next_hop, interface.is_some());
    }
    let gateway_or_interface = section.has("next-hop") || section.has("interface");
    let target = match (next_hop, interface, blackhole) {
        (Some(address), interface, false) => {
            StaticTarget::NextHop { address: address.value, interface: interface.map(|at| at.value) }
        }
        (None, Some(interface), false) => StaticTarget::Interface(interface.value),
        (None, None, true) if !gateway_or_interface => StaticTarget::Blackhole,
        (None, None, false) if gateway_or_interface => return None,
        (None, None, false) => {
            let problem = Problem::new("the static route leads nowhere");
            section
                .report
                .add(&section.span, problem.expected("`next-hop`, `interface` or `blackhole = true`"));
            return None;
        }
        (_, _, true) => {
            section.add("blackhole", Problem::new("a blackhole has neither `next-hop` nor `interface`"));
            return None;
        }
    };
    let bfd = bfd::of_static(section, &target, profiles);
    Some(StaticRoute { vrf, prefix: prefix?.value, target, tag, bfd })
}

fn gateway(section: &Section<'_>, prefix: Prefix, next_hop: &At<IpAddr>, has_interface: bool) {
    let address = next_hop.value;
    let afi = Prefix::host(address).afi();
    if afi != prefix.afi() {
        let problem = Problem::new(format!("next hop {address} is not of the family of {prefix}"));
        section
            .report
            .add(&next_hop.span, problem.expected(format!("an {} address", family_word(prefix.afi()))));
    }
    unicast(section, next_hop);
    if is_link_local(address) && !has_interface {
        let problem = Problem::new(format!("link-local next hop {address} could be on any interface"));
        section.report.add(&next_hop.span, problem.hint("add `interface = \"eth1\"`"));
    }
}

fn family_word(afi: Afi) -> &'static str {
    if afi == Afi::IPV4 { "IPv4" } else { "IPv6" }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// Refuses addresses that no single host has.
fn unicast(section: &Section<'_>, at: &At<IpAddr>) {
    unicast_of(section, &at.span, at.value);
}

/// The same of an address that is a part of a value.
fn unicast_of(section: &Section<'_>, span: &Range<usize>, address: IpAddr) {
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    if address.is_unspecified() || address.is_multicast() || broadcast {
        let problem = Problem::new(format!("{address} is no address of a host"));
        section.report.add(span, problem.expected("a unicast address"));
    }
}

/// Whether the kernel could have an interface of this name.
fn is_interface_name(name: &str) -> bool {
    /// IFNAMSIZ without the final zero.
    const LONGEST: usize = 15;
    let bad = |c: char| c.is_whitespace() || c.is_control() || c == '/';
    !name.is_empty() && name.len() <= LONGEST && !name.contains(bad)
}

fn interface_name(section: &Section<'_>, name: &At<String>) {
    if !is_interface_name(&name.value) {
        let problem = Problem::new(format!("`{}` is no interface name", name.value));
        section.report.add(&name.span, problem.expected("1 to 15 characters as in eth1"));
    }
}
