//! `[bgp]`, `[[bgp.peer]]`, `[[bgp.network]]`, `[[bgp.aggregate]]`, `[[bgp.redistribute]]`.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use holdfast_policy::AsnRange;
use holdfast_types::{Afi, Asn, Family, Prefix, RouterId};

use super::{
    bfd, damping, family_word, interface_name, is_link_local, monitor, own, paths, seconds, tls, unicast,
    usable, vrf,
};
use crate::{
    Schema,
    files::Files,
    input::{At, Names, Problem, Section, Value},
    keyed::Word,
    schema::{
        AddPath, Aggregate, Bgp, Bgpsec, DecisionRules, LimitAction, Orf, Peer, PeerAsn, PeerRules,
        PrefixLimit, Redistribute, Remote, Secret, SessionRules,
    },
};

/// What BGP needs to know of the rest of the file.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) policies: &'a Names<'a>,
    pub(super) prefix_sets: &'a Names<'a>,
    /// Whose routes may be redistributed.
    pub(super) origins: &'a Names<'a>,
    pub(super) schema: Schema,
    /// VRFs.
    pub(super) vrfs: &'a Names<'a>,
    /// Profiles of BFD.
    pub(super) profiles: &'a Names<'a>,
    /// Whether there is a rib.
    pub(super) rib: bool,
    /// Our AS.
    pub(super) asn: Option<Asn>,
    /// Whether there is [tls].
    pub(super) has_tls: bool,
    /// And a certificate in it.
    pub(super) has_certificate: bool,
    /// Whoever reads files.
    pub(super) files: &'a Files<'a>,
}

/// What peers need to know of the rest.
struct Context<'a> {
    policies: &'a Names<'a>,
    vrfs: &'a Names<'a>,
    prefix_sets: &'a Names<'a>,
    profiles: &'a Names<'a>,
    hold_time: Duration,
    connect_retry: Duration,
    nonstop: bool,
    damping: bool,
    ourselves: paths::Ourselves,
    graceful_shutdown: bool,
    /// Whether there is a rib, and with it who opens raw sockets.
    rib: bool,
    door: tls::Door<'a>,
}

pub(super) fn read(section: &Section<'_>, known: Known<'_>) -> Bgp {
    let bgp = Bgp::read(section);
    quic_ports(section, &bgp);
    let context = Context {
        policies: known.policies,
        vrfs: known.vrfs,
        prefix_sets: known.prefix_sets,
        profiles: known.profiles,
        hold_time: hold_time(section, Duration::from_secs(90)),
        connect_retry: Duration::from_secs(section.number("connect-retry", 1..=u16::MAX, 5).into()),
        nonstop: bgp.nonstop,
        damping: section.has("damping"),
        ourselves: paths::Ourselves {
            asn: known.asn,
            confederation: paths::confederation(section, known.asn),
        },
        graceful_shutdown: section.or("graceful-shutdown", false),
        rib: known.rib,
        door: tls::Door {
            whom: "neighbour",
            has_tls: known.has_tls,
            has_certificate: known.has_certificate,
            has_s2n_port: section.has("quic-s2n-port"),
            files: known.files,
        },
    };
    let listen = section.list::<IpAddr>("listen").unwrap_or_default();
    Bgp {
        listen: listen.into_iter().map(|at| at.value).collect(),
        damping: section.section("damping", "[bgp.damping]").map(|section| damping::read(&section)),
        peers: peers(section, &context),
        networks: networks(section),
        aggregates: aggregates(section, known),
        redistribute: redistribute(section, known),
        rib_policy: rib_policy(section, known),
        mrt: monitor::mrt(section),
        bmp: monitor::bmp(section),
        cluster_id: section.optional::<RouterId>("cluster-id").map(|at| at.value),
        decision: DecisionRules::read(section),
        confederation: context.ourselves.confederation,
        ..bgp
    }
}

/// Each library has a socket of its own.
fn quic_ports(section: &Section<'_>, bgp: &Bgp) {
    if bgp.quic_s2n_port == Some(bgp.quic_port) {
        let problem = Problem::new(format!("UDP port {} is that of `quic` already", bgp.quic_port));
        section.add("quic-s2n-port", problem.expected("another port"));
    }
}

fn rib_policy(section: &Section<'_>, known: Known<'_>) -> Option<String> {
    let at = section.optional::<String>("rib-policy")?;
    known.policies.refer(&at);
    if !known.rib {
        let problem = Problem::new("`rib-policy` has no effect without a rib");
        section.report.add(&at.span, problem.hint("remove it, or set `enabled = true` in [rib]"));
    }
    Some(at.value)
}

fn redistribute(section: &Section<'_>, known: Known<'_>) -> Vec<Redistribute> {
    let sections = section.sections("redistribute", "[[bgp.redistribute]]");
    if let (Some(first), false) = (sections.first(), known.rib) {
        let problem = Problem::new("there is nothing to redistribute without a rib");
        section.report.add(&first.span, problem.hint("remove it, or set `enabled = true` in [rib]"));
    }
    let mut names = Names::new(section.report, "redistribution of");
    sections.iter().filter_map(|section| redistribution(section, known, &mut names)).collect()
}

/// The policy has to be there, as between autonomous systems (RFC 8212).
fn redistribution(section: &Section<'_>, known: Known<'_>, names: &mut Names<'_>) -> Option<Redistribute> {
    let vrf = vrf::of(section, known.vrfs);
    let from = section.required::<String>("from");
    let policy = section.required::<String>("policy");
    if let Some(from) = &from {
        names.declare(&vrf::scoped(from, vrf.as_deref()));
        match from.value.as_str() {
            "bgp" => {
                let problem = Problem::new("routes of BGP do not go into BGP");
                section.report.add(&from.span, problem.expected("another protocol"));
            }
            "static" | "connected" => {}
            other if vrf.is_some() && !known.schema.routing().any(|(process, _)| process == other) => {
                let problem = Problem::new(format!("`{other}` brings no routes into a VRF"));
                section
                    .report
                    .add(&from.span, problem.expected("`static`, `connected` or a protocol of the router"));
            }
            _ => known.origins.refer(from),
        }
    }
    policy.iter().for_each(|policy| known.policies.refer(policy));
    Some(Redistribute { vrf, from: from?.value, policy: policy?.value })
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

fn aggregates(section: &Section<'_>, known: Known<'_>) -> Vec<Aggregate> {
    let mut names = Names::new(section.report, "aggregate");
    let sections = section.sections("aggregate", "[[bgp.aggregate]]");
    sections.iter().filter_map(|section| aggregate(section, known, &mut names)).collect()
}

fn aggregate(section: &Section<'_>, known: Known<'_>, names: &mut Names<'_>) -> Option<Aggregate> {
    let prefix = section.required::<Prefix>("prefix");
    let [contributors, policy] = ["contributors", "policy"].map(|key| {
        let at = section.optional::<String>(key)?;
        known.policies.refer(&at);
        Some(at.value)
    });
    let summary_only = section.or("summary-only", false);
    let prefix = prefix?;
    names.declare(&prefix);
    if prefix.value == Prefix::host(prefix.value.address()) {
        let problem = Problem::new("no other prefix lies inside a single address");
        section.report.add(&prefix.span, problem.expected("a shorter prefix"));
    }
    Some(Aggregate { prefix: prefix.value, summary_only, contributors, policy })
}

fn peers(section: &Section<'_>, context: &Context<'_>) -> Vec<Peer> {
    let mut names = Names::new(section.report, "peer");
    let mut remotes = Names::new(section.report, "a peer with");
    let groups = Groups::read(section);
    let mut sections = section.sections("peer", "[[bgp.peer]]");
    sections.iter_mut().for_each(|peer| groups.lend(peer));
    let peers = sections.iter();
    let peers =
        peers.filter_map(|section| Some((section, peer(section, context, &mut names, &mut remotes)?)));
    let peers: Vec<_> = peers.collect();
    alone_on_links(&peers);
    peers.into_iter().map(|(_, peer)| peer).collect()
}

/// `[[bgp.group]]`, by name. What they say is read where a peer takes it over, so a key of peers is one of groups.
struct Groups<'a> {
    names: Names<'a>,
    sections: HashMap<String, Section<'a>>,
}

impl<'a> Groups<'a> {
    /// What makes a peer this one.
    const NOT_LENT: [&'static str; 5] = ["name", "address", "interface", "listen-range", "group"];

    fn read(bgp: &Section<'a>) -> Self {
        let mut groups = Self { names: Names::new(bgp.report, "group"), sections: HashMap::new() };
        for group in bgp.sections("group", "[[bgp.group]]") {
            group.know_all();
            for key in Self::NOT_LENT.into_iter().filter(|key| *key != "name" && group.has(key)) {
                let problem = Problem::new(format!("`{key}` cannot be common to several peers"));
                group.add(key, problem.hint("say it in each [[bgp.peer]]"));
            }
            if let Some(name) = name(&group, &mut groups.names) {
                groups.sections.insert(name, group);
            }
        }
        groups
    }

    /// Lets a peer have what its group says.
    fn lend(&self, peer: &mut Section<'a>) {
        let Some(name) = peer.optional::<String>("group") else { return };
        self.names.refer(&name);
        if let Some(group) = self.sections.get(&name.value) {
            peer.borrow(group, &Self::NOT_LENT);
        }
    }
}

/// All keys are read before anything is given up, so that all errors are found.
fn peer(
    section: &Section<'_>,
    context: &Context<'_>,
    names: &mut Names<'_>,
    remotes: &mut Names<'_>,
) -> Option<Peer> {
    let name = name(section, names);
    let vrf = vrf::of(section, context.vrfs);
    let remote = remote(section, vrf.as_deref(), remotes, context);
    let asn = asn(section, remote.as_ref());
    let local_address = local_address(section, remote.as_ref());
    let families = families(section, remote.as_ref());
    let import = policy(section, "import", context);
    let export = policy(section, "export", context);
    let md5 = md5(section, remote.as_ref());
    let (transports, trust) = tls::peer(section, remote.as_ref(), &context.door);
    let hold_time = hold_time(section, context.hold_time);
    let next_hop_ipv4 = own_address(section, "next-hop-ipv4");
    let next_hop_ipv6 = next_hop_ipv6(section);
    let paths = paths::peer(section, &context.ourselves, asn.as_ref(), context.graceful_shutdown);
    let nonstop = nonstop(section, context);
    let damping = damping_of_peer(section, context);
    let group = section.optional("group").map(|at| at.value);
    let limits = limits(section);
    let session = session(section, remote.as_ref(), context);
    let rules = PeerRules::read(section);
    one_or_several_hops(section, &rules);
    shutdown_text(section, &rules);
    let orf_prefix_set = orf_prefix_set(section, session.orf, context);
    let add_path = section.section("add-path", "[bgp.peer.add-path]").map(|section| AddPath::read(&section));
    let bgpsec = bgpsec(section, &families);
    let bfd = bfd::of_peer(section, remote.as_ref(), context.profiles);
    Some(Peer {
        name: name?,
        vrf,
        remote: remote?,
        local_address,
        asn: asn?,
        families,
        import,
        export,
        transports,
        trust,
        md5,
        hold_time,
        next_hop_ipv4,
        next_hop_ipv6,
        paths,
        session,
        rules,
        add_path: add_path.unwrap_or_default(),
        bgpsec,
        bfd,
        nonstop,
        damping,
        group,
        limits,
        orf_prefix_set,
    })
}

fn bgpsec(section: &Section<'_>, families: &[Family]) -> Bgpsec {
    let Some(table) = section.section("bgpsec", "[bgp.peer.bgpsec]") else { return Bgpsec::default() };
    let bgpsec = Bgpsec::read(&table);
    for family in bgpsec.families.iter().filter(|family| !families.contains(&family.family())) {
        let problem = Problem::new(format!("the session has no family {}", family.family()));
        table.add("families", problem.hint("see `families` of the peer"));
    }
    if bgpsec.require_session && !bgpsec.is_on() {
        table.add(
            "require-session",
            Problem::new("there is nothing to agree on").expected("`send` or `receive`"),
        );
    }
    bgpsec
}

fn limits(section: &Section<'_>) -> Vec<PrefixLimit> {
    let mut families = Names::new(section.report, "limit of");
    let sections = section.sections("limit", "[[bgp.peer.limit]]");
    sections.iter().filter_map(|section| limit(section, &mut families)).collect()
}

fn limit(section: &Section<'_>, families: &mut Names<'_>) -> Option<PrefixLimit> {
    let family = section.required::<Family>("family");
    let [received, accepted, announced] = ["received", "accepted", "announced"]
        .map(|key| section.has(key).then(|| section.number(key, 1..=u32::MAX, u32::MAX)));
    if [received, accepted, announced] == [None; 3] {
        let problem = Problem::new("the limit limits nothing");
        section.report.add(&section.span, problem.expected("`received`, `accepted` or `announced`"));
    }
    let warn_percent = section.number("warn-percent", 1..=100, 75);
    let action = section.word("action", LimitAction::WORDS, LimitAction::default());
    let restart_after = Duration::from_secs(section.number("restart-after", 1..=u16::MAX, 300).into());
    family.iter().for_each(|family| families.declare(family));
    let family = family?.value;
    Some(PrefixLimit { family, received, accepted, announced, warn_percent, action, restart_after })
}

/// RFC 9003 section 2.
fn shutdown_text(section: &Section<'_>, rules: &PeerRules) {
    const LONGEST: usize = 255;
    let Some(text) = &rules.shutdown_text else { return };
    if text.len() > LONGEST {
        let problem = Problem::new(format!("the text has {} octets", text.len()));
        section.add("shutdown-text", problem.expected("up to 255 octets"));
    } else if text.contains(char::is_control) {
        let problem = Problem::new("the text has control characters");
        section.add("shutdown-text", problem.expected("one line for people"));
    }
}

/// What a filter of ours is made of.
fn orf_prefix_set(section: &Section<'_>, orf: Orf, context: &Context<'_>) -> Option<String> {
    let set = section.optional::<String>("orf-prefix-set");
    set.iter().for_each(|at| context.prefix_sets.refer(at));
    match (orf.sends(), &set) {
        (true, None) if !section.has("orf-prefix-set") => {
            let problem = Problem::new("nothing says which prefixes the neighbour is to send");
            section.add("orf", problem.expected("`orf-prefix-set`, the name of a [[prefix-set]]"));
        }
        (false, Some(at)) => {
            let problem = Problem::new("`orf-prefix-set` has no effect here");
            section.report.add(&at.span, problem.expected("it with `orf = \"send\"` or `\"both\"`"));
        }
        (true | false, _) => {}
    }
    set.map(|at| at.value)
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

fn remote(
    section: &Section<'_>,
    vrf: Option<&str>,
    remotes: &mut Names<'_>,
    context: &Context<'_>,
) -> Option<Remote> {
    let address = section.optional::<IpAddr>("address");
    let range = section.optional::<Prefix>("listen-range");
    let interface = section.optional::<String>("interface");
    interface.iter().for_each(|name| interface_name(section, name));
    match (section.has("address"), section.has("listen-range")) {
        (true, true) => {
            section.add("listen-range", Problem::new("a peer has `address` or `listen-range`, not both"));
        }
        (false, true) if section.has("interface") => {
            section.add("interface", Problem::new("a peer has `interface` or `listen-range`, not both"));
        }
        (false, false) if !section.has("interface") => {
            let problem = Problem::new("[[bgp.peer]] needs `address`, `interface` or `listen-range`");
            section.report.add(&section.span, problem.expected("`address` = \"10.0.0.1\""));
        }
        (true, false) | (false, true) | (false, false) => {}
    }
    if let Some(range) = range {
        remotes.declare(&vrf::scoped(&range, vrf));
        return Some(Remote::Range(range.value));
    }
    match address {
        Some(address) => neighbor(section, vrf, remotes, &address, interface),
        None if section.has("address") => None,
        None => unnumbered(section, vrf, remotes, interface?, context.rib),
    }
}

/// One with an address, which a link-local one needs an interface for.
fn neighbor(
    section: &Section<'_>,
    vrf: Option<&str>,
    remotes: &mut Names<'_>,
    address: &At<IpAddr>,
    interface: Option<At<String>>,
) -> Option<Remote> {
    let (value, span) = (address.value, address.span.clone());
    unicast(section, address);
    match (value, interface) {
        (IpAddr::V6(link_local), Some(interface)) if link_local.is_unicast_link_local() => {
            let place = At { value: format!("{value}%{}", interface.value), span };
            remotes.declare(&vrf::scoped(&place, vrf));
            Some(Remote::LinkLocal(link_local, interface.value))
        }
        (_, None) if is_link_local(value) => {
            let problem = Problem::new(format!("link-local address {value} could be on any interface"));
            section.report.add(&span, problem.hint("add `interface = \"eth1\"`"));
            None
        }
        (_, interface) => {
            remotes.declare(&vrf::scoped(address, vrf));
            Some(match interface {
                Some(interface) => Remote::OnLink(value, interface.value),
                None => Remote::Address(value),
            })
        }
    }
}

/// Without address: whoever is the router on the interface.
fn unnumbered(
    section: &Section<'_>,
    vrf: Option<&str>,
    remotes: &mut Names<'_>,
    interface: At<String>,
    rib: bool,
) -> Option<Remote> {
    remotes.declare(&vrf::scoped(&interface, vrf));
    if !rib {
        let problem = Problem::new("without a rib nobody listens for router advertisements");
        section.report.add(&interface.span, problem.hint("add `address = \"fe80::1\"`"));
    }
    Some(Remote::Interface(interface.value))
}

/// A peer without address is whoever is on the link: it could be any peer there that has one.
fn alone_on_links(peers: &[(&Section<'_>, Peer)]) {
    let on_link = |peer: &Peer| match &peer.remote {
        Remote::LinkLocal(_, interface) => Some((peer.vrf.clone(), interface.clone())),
        Remote::Address(_) | Remote::OnLink(..) | Remote::Interface(_) | Remote::Range(_) => None,
    };
    let known: HashMap<_, _> =
        peers.iter().filter_map(|(_, peer)| Some((on_link(peer)?, &peer.name))).collect();
    for (section, peer) in peers {
        if let Remote::Interface(interface) = &peer.remote
            && let Some(other) = known.get(&(peer.vrf.clone(), interface.clone()))
        {
            let problem = Problem::new(format!("the neighbour on {interface} could be the peer `{other}`"));
            section.add("interface", problem.hint("add `address`, or remove one of them"));
        }
    }
}

impl Remote {
    fn afi(&self) -> Afi {
        match self {
            Self::Address(address) | Self::OnLink(address, _) => Prefix::host(*address).afi(),
            Self::LinkLocal(..) | Self::Interface(_) => Afi::IPV6,
            Self::Range(range) => range.afi(),
        }
    }

    /// Whether the session is between link-local addresses.
    pub(super) fn is_link_local_only(&self) -> bool {
        match self {
            Self::Address(_) | Self::OnLink(..) | Self::Range(_) => false,
            Self::LinkLocal(..) | Self::Interface(_) => true,
        }
    }
}

fn asn(section: &Section<'_>, remote: Option<&Remote>) -> Option<PeerAsn> {
    if let Some(Remote::Range(_) | Remote::Interface(_)) = remote {
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

fn local_address(section: &Section<'_>, remote: Option<&Remote>) -> Option<IpAddr> {
    let at = section.optional::<IpAddr>("local-address")?;
    let remote = remote?;
    unicast(section, &at);
    if Prefix::host(at.value).afi() != remote.afi() {
        let problem = Problem::new(format!("local address {} is not of the peer's family", at.value));
        section.report.add(&at.span, problem.expected(format!("an {} address", family_word(remote.afi()))));
    }
    if remote.is_link_local_only() && !is_link_local(at.value) {
        let problem =
            Problem::new(format!("local address {} is not link-local, and the peer's is", at.value));
        section.report.add(&at.span, problem.hint("remove it"));
    }
    if *remote == Remote::Address(at.value) {
        section.report.add(&at.span, Problem::new(format!("{} is also the peer's address", at.value)));
    }
    Some(at.value)
}

fn own_address<A: Value + Copy + Into<IpAddr>>(section: &Section<'_>, key: &'static str) -> Option<A> {
    let at = section.optional::<A>(key)?;
    unicast(section, &At { value: at.value.into(), span: at.span });
    Some(at.value)
}

/// Sent beside or in place of the session's own address, so to whom that is no neighbour, too.
fn next_hop_ipv6(section: &Section<'_>) -> Option<Ipv6Addr> {
    let address = own_address::<Ipv6Addr>(section, "next-hop-ipv6")?;
    if address.is_unicast_link_local() {
        let problem = Problem::new(format!("link-local next hop {address} could be on any interface"));
        section.add("next-hop-ipv6", problem.expected("an address of wider scope"));
    }
    Some(address)
}

fn session(section: &Section<'_>, remote: Option<&Remote>, context: &Context<'_>) -> SessionRules {
    let mut rules = SessionRules::read(section);
    if !section.has("connect-retry") {
        rules.connect_retry = context.connect_retry;
    }
    if matches!(remote, Some(Remote::Range(_))) {
        if section.has("passive") && !rules.passive {
            let problem = Problem::new("with a `listen-range` there is no address to connect to");
            section.add("passive", problem.hint("remove `passive`"));
        }
        rules.passive = true;
    }
    if rules.role_strict && !section.has("role") {
        let problem = Problem::new("`role-strict` has no effect without `role`");
        section.add("role-strict", problem.hint("say what we are to the neighbour, or remove it"));
    }
    rules
}

fn nonstop(section: &Section<'_>, context: &Context<'_>) -> bool {
    let own = section.optional::<bool>("nonstop");
    if let (false, Some(At { value: true, span })) = (context.nonstop, &own) {
        let problem = Problem::new("`nonstop = true` has no effect where [bgp] says `nonstop = false`");
        section.report.add(span, problem.hint("remove one of them"));
    }
    own.map_or(context.nonstop, |at| at.value)
}

fn damping_of_peer(section: &Section<'_>, context: &Context<'_>) -> bool {
    let own = section.optional::<bool>("damping");
    if let (false, Some(At { value: true, span })) = (context.damping, &own) {
        let problem = Problem::new("`damping = true` has no effect without [bgp.damping]");
        section.report.add(span, problem.hint("add an empty [bgp.damping] for the defaults"));
    }
    own.map_or(context.damping, |at| at.value)
}

fn families(section: &Section<'_>, remote: Option<&Remote>) -> Vec<Family> {
    let Some(listed) = section.list::<Family>("families") else {
        let own = |remote: &Remote| match remote.afi() {
            // IPv4 with next hops of IPv6 (RFC 8950).
            _ if remote.is_link_local_only() => vec![Family::IPV4_UNICAST, Family::IPV6_UNICAST],
            Afi::IPV4 => vec![Family::IPV4_UNICAST],
            _ => vec![Family::IPV6_UNICAST],
        };
        return remote.map(own).unwrap_or_default();
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

fn md5(section: &Section<'_>, remote: Option<&Remote>) -> Option<Secret> {
    /// TCP_MD5SIG_MAXKEYLEN of Linux.
    const LONGEST: usize = 80;
    let at = section.optional::<String>("md5")?;
    if at.value.is_empty() || at.value.len() > LONGEST {
        let problem = Problem::new(format!("the key has {} octets", at.value.len()));
        section.report.add(&at.span, problem.expected("1 to 80 octets").secret());
    }
    if let Some(problem) = own::shown(&at.value) {
        section.report.add(&at.span, problem.secret());
    }
    if remote.is_some_and(Remote::is_link_local_only) {
        let problem =
            Problem::new("the kernel knows keys by address, and the peer's may be on several links");
        section.report.add(&at.span, problem.hint("use `ttl-security` on a link").secret());
    }
    Some(Secret::new(at.value))
}

fn one_or_several_hops(section: &Section<'_>, rules: &PeerRules) {
    if rules.ttl_security && rules.multihop.is_some() {
        let problem = Problem::new("`ttl-security` is for a neighbour one hop away, `multihop` for others");
        section.add("multihop", problem.hint("remove one of them"));
    }
}
