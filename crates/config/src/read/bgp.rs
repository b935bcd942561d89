//! `[bgp]`, `[[bgp.peer]]`, `[[bgp.network]]`.

use std::{net::IpAddr, time::Duration};

use holdfast_policy::AsnRange;
use holdfast_types::{Afi, Asn, Family, Prefix};

use super::{family_word, is_link_local, seconds, unicast, usable};
use crate::{
    input::{At, Names, Problem, Section, Value},
    schema::{AsSets, Bgp, Peer, PeerAsn, Remote, Secret},
};

/// RFC 4271 section 8 and IANA.
const PORT: u16 = 179;

/// What peers need to know of the rest.
struct Context<'a> {
    policies: &'a Names<'a>,
    hold_time: Duration,
    connect_retry: Duration,
}

pub(super) fn read(section: &Section<'_>, policies: &Names<'_>) -> Bgp {
    let context = Context {
        policies,
        hold_time: hold_time(section, Duration::from_secs(90)),
        connect_retry: connect_retry(section, Duration::from_secs(5)),
    };
    let listen = section.list::<IpAddr>("listen").unwrap_or_default();
    Bgp {
        as_sets: section.word(
            "as-sets",
            &[("reject", AsSets::Reject), ("accept", AsSets::Accept)],
            AsSets::Reject,
        ),
        port: section.number("port", 1..=u16::MAX, PORT),
        listen: listen.into_iter().map(|at| at.value).collect(),
        local_preference: section.or("local-preference", 100),
        max_paths: section.number("max-paths", 1..=64, 1),
        peers: peers(section, &context),
        networks: networks(section),
    }
}

/// RFC 4271 section 4.2: zero, or at least three seconds.
fn hold_time(section: &Section<'_>, default: Duration) -> Duration {
    let Some(at) = section.optional::<u16>("hold-time") else { return default };
    if matches!(at.value, 1 | 2) {
        let problem = Problem::new(format!("a hold time of {} s is not allowed", at.value));
        section.report.add(&at.span, problem.expected("0 (no keepalives), or 3 to 65535"));
    }
    seconds(at)
}

fn connect_retry(section: &Section<'_>, default: Duration) -> Duration {
    let default = u16::try_from(default.as_secs()).unwrap_or(u16::MAX);
    Duration::from_secs(section.number("connect-retry", 1..=u16::MAX, default).into())
}

fn networks(section: &Section<'_>) -> Vec<Prefix> {
    let mut names = Names::new(section.report, "network");
    let mut networks = Vec::new();
    for network in section.sections("network", "[[bgp.network]]") {
        if let Some(prefix) = network.required::<Prefix>("prefix") {
            names.declare(&prefix);
            networks.push(prefix.value);
        }
    }
    networks
}

fn peers(section: &Section<'_>, context: &Context<'_>) -> Vec<Peer> {
    let mut names = Names::new(section.report, "peer");
    let mut remotes = Names::new(section.report, "a peer with");
    let sections = section.sections("peer", "[[bgp.peer]]");
    sections.iter().filter_map(|section| peer(section, context, &mut names, &mut remotes)).collect()
}

/// All keys are read before anything is given up, so that all errors are found.
fn peer(
    section: &Section<'_>,
    context: &Context<'_>,
    names: &mut Names<'_>,
    remotes: &mut Names<'_>,
) -> Option<Peer> {
    let name = name(section, names);
    let remote = remote(section, remotes);
    let asn = asn(section, remote);
    let description = section.optional("description").map(|at| at.value);
    let local_address = local_address(section, remote);
    let port = section.number("port", 1..=u16::MAX, PORT);
    let passive = passive(section, remote);
    let families = families(section, remote);
    let import = policy(section, "import", context);
    let export = policy(section, "export", context);
    let md5 = md5(section);
    let (ttl_security, multihop) = ttl(section);
    let hold_time = hold_time(section, context.hold_time);
    let connect_retry = connect_retry(section, context.connect_retry);
    let enforce_first_as = section.or("enforce-first-as", true);
    let next_hop_ipv4 = own_address(section, "next-hop-ipv4");
    let next_hop_ipv6 = own_address(section, "next-hop-ipv6");
    let next_hop_self = section.or("next-hop-self", false);
    let disabled = section.or("disabled", false);
    Some(Peer {
        name: name?,
        description,
        remote: remote?,
        local_address,
        port,
        asn: asn?,
        passive,
        families,
        import,
        export,
        md5,
        ttl_security,
        multihop,
        hold_time,
        connect_retry,
        enforce_first_as,
        next_hop_ipv4,
        next_hop_ipv6,
        next_hop_self,
        disabled,
    })
}

fn name(section: &Section<'_>, names: &mut Names<'_>) -> Option<String> {
    let at = section.required::<String>("name")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if at.value.is_empty() || at.value.len() > 64 || !at.value.chars().all(plain) {
        let problem = Problem::new(format!("`{}` is no name for a peer", at.value));
        section.report.add(&at.span, problem.expected("1 to 64 letters, digits, `-`, `_`, `.` or `:`"));
    }
    names.declare(&at);
    Some(at.value)
}

fn remote(section: &Section<'_>, remotes: &mut Names<'_>) -> Option<Remote> {
    let address = section.optional::<IpAddr>("address");
    let range = section.optional::<Prefix>("listen-range");
    match (section.has("address"), section.has("listen-range")) {
        (true, true) => {
            section.add("listen-range", Problem::new("a peer has `address` or `listen-range`, not both"));
        }
        (false, false) => {
            let problem = Problem::new("[[bgp.peer]] needs `address` or `listen-range`");
            section.report.add(&section.span, problem.expected("`address` = \"10.0.0.1\""));
        }
        (true, false) | (false, true) => {}
    }
    if let Some(range) = range {
        remotes.declare(&range);
        return Some(Remote::Range(range.value));
    }
    let address = address?;
    remotes.declare(&address);
    unicast(section, &address);
    if is_link_local(address.value) {
        let problem = Problem::new(format!("link-local address {} could be on any interface", address.value));
        section
            .report
            .add(&address.span, problem.expected("a global address; link-local peers are not supported"));
    }
    Some(Remote::Address(address.value))
}

impl Remote {
    fn afi(self) -> Afi {
        match self {
            Self::Address(address) => Prefix::host(address).afi(),
            Self::Range(range) => range.afi(),
        }
    }
}

fn asn(section: &Section<'_>, remote: Option<Remote>) -> Option<PeerAsn> {
    if let Some(Remote::Range(_)) = remote {
        return asn_of_range(section);
    }
    let asn = section.required::<Asn>("asn")?;
    usable(section, &asn);
    Some(PeerAsn::One(asn.value))
}

/// One number, several numbers and ranges, or `"any"`.
fn asn_of_range(section: &Section<'_>) -> Option<PeerAsn> {
    if section.is_text("asn", "any") {
        return Some(PeerAsn::Any);
    }
    if !section.is_list("asn") {
        let asn = section.required::<Asn>("asn")?;
        usable(section, &asn);
        return Some(PeerAsn::One(asn.value));
    }
    let ranges: Vec<AsnRange> = section.list("asn")?.into_iter().map(|at| at.value).collect();
    if ranges.is_empty() {
        section
            .add("asn", Problem::new("the list of AS numbers is empty").expected("AS numbers, or \"any\""));
    }
    Some(PeerAsn::OneOf(ranges))
}

fn local_address(section: &Section<'_>, remote: Option<Remote>) -> Option<IpAddr> {
    let at = section.optional::<IpAddr>("local-address")?;
    let remote = remote?;
    unicast(section, &at);
    if Prefix::host(at.value).afi() != remote.afi() {
        let problem = Problem::new(format!("local address {} is not of the peer's family", at.value));
        section.report.add(&at.span, problem.expected(format!("an {} address", family_word(remote.afi()))));
    }
    if remote == Remote::Address(at.value) {
        section.report.add(&at.span, Problem::new(format!("{} is also the peer's address", at.value)));
    }
    Some(at.value)
}

fn own_address<A: Value + Copy + Into<IpAddr>>(section: &Section<'_>, key: &'static str) -> Option<A> {
    let at = section.optional::<A>(key)?;
    unicast(section, &At { value: at.value.into(), span: at.span });
    Some(at.value)
}

fn passive(section: &Section<'_>, remote: Option<Remote>) -> bool {
    let passive = section.optional::<bool>("passive");
    let is_range = matches!(remote, Some(Remote::Range(_)));
    if let (true, Some(At { value: false, span })) = (is_range, &passive) {
        let problem = Problem::new("with a `listen-range` there is no address to connect to");
        section.report.add(span, problem.hint("remove `passive`"));
    }
    is_range || passive.is_some_and(|at| at.value)
}

fn families(section: &Section<'_>, remote: Option<Remote>) -> Vec<Family> {
    let Some(listed) = section.list::<Family>("families") else {
        let own = |remote: Remote| match remote.afi() {
            Afi::IPV4 => Family::IPV4_UNICAST,
            _ => Family::IPV6_UNICAST,
        };
        return remote.into_iter().map(own).collect();
    };
    if listed.is_empty() && section.is_list("families") {
        let problem = Problem::new("a session needs at least one family");
        section.add("families", problem.expected("\"ipv4-unicast\" or \"ipv6-unicast\""));
    }
    let mut names = Names::new(section.report, "family");
    listed.iter().for_each(|family| names.declare(family));
    listed.into_iter().map(|at| at.value).collect()
}

fn policy(section: &Section<'_>, key: &'static str, context: &Context<'_>) -> Option<String> {
    let at = section.optional::<String>(key)?;
    context.policies.refer(&at);
    Some(at.value)
}

fn md5(section: &Section<'_>) -> Option<Secret> {
    /// TCP_MD5SIG_MAXKEYLEN of Linux.
    const LONGEST: usize = 80;
    let at = section.optional::<String>("md5")?;
    if at.value.is_empty() || at.value.len() > LONGEST {
        let problem = Problem::new(format!("the key has {} octets", at.value.len()));
        section.report.add(&at.span, problem.expected("1 to 80 octets").secret());
    }
    Some(Secret::new(at.value))
}

fn ttl(section: &Section<'_>) -> (bool, Option<u8>) {
    let security = section.or("ttl-security", false);
    let multihop = section.has("multihop").then(|| section.number("multihop", 1..=u8::MAX, u8::MAX));
    if security && multihop.is_some() {
        let problem = Problem::new("`ttl-security` is for a neighbour one hop away, `multihop` for others");
        section.add("multihop", problem.hint("remove one of them"));
    }
    (security, multihop)
}
