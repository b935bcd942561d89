//! What the manager sends, as checked values.

pub(crate) mod before;
mod policies;

use std::{
    collections::{BTreeMap, HashSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use holdfast_api::bgp::v1 as api;
use holdfast_bgp_pipeline as pipeline;
use holdfast_bgp_session as session;
use holdfast_bgp_wire::{OrfEntry, update::AsSets};
use holdfast_config::schema::{self, LimitAction, Peer, PeerAsn, PrefixLimit, Remote};
use holdfast_damping::Parameters;
use holdfast_policy::{Library, PrefixRange, Program};
use holdfast_types::{Asn, HashKey, Prefix, RouterId};
use holdfast_xrl::XrlError;

pub(crate) use self::policies::Policies;
use crate::location::Location;

/// Peers and ranges of one configuration. The pipeline numbers peers with 16 bits; the rest is for those of ranges.
pub(crate) const MOST_CONFIGURED: usize = 16_384;

/// What our routes are called in the rib.
pub(crate) const ORIGIN: &str = "bgp";

/// What holds for the whole speaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) asn: Asn,
    pub(crate) router_id: RouterId,
    pub(crate) as_sets: AsSets,
    pub(crate) max_paths: u8,
    pub(crate) local_pref: u32,
    /// A rib runs.
    pub(crate) rib: bool,
    pub(crate) ebgp_distance: u8,
    pub(crate) ibgp_distance: u8,
    /// Longest wait of an earlier life's routes for ours.
    pub(crate) sync: Duration,
    /// Size of the replication log in octets; `None`: no session outlives this process.
    pub(crate) nonstop: Option<u64>,
    /// Routes of other ASes that flap are damped.
    pub(crate) damping: Option<Parameters>,
    /// As a route reflector.
    pub(crate) cluster_id: u32,
    pub(crate) confederation: Option<Confederation>,
    pub(crate) decision: pipeline::DecisionRules,
}

/// The confederation that our AS is a member of (RFC 5065).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Confederation {
    pub(crate) id: Asn,
    pub(crate) members: Vec<Asn>,
}

/// One configured peer, or one of a listen range.
#[derive(Clone, Debug)]
pub(crate) struct Neighbor {
    pub(crate) name: String,
    pub(crate) location: Location,
    pub(crate) asn: session::PeerAsn,
    /// The prefixes that it is told we want (RFC 5292).
    pub(crate) orf: Vec<OrfEntry>,
    pub(crate) disabled: bool,
    pub(crate) import: Option<Program>,
    pub(crate) export: Option<Program>,
    pub(crate) limits: Vec<session::PrefixLimit>,
    /// As configured.
    pub(crate) source: Peer,
    /// What of it only another session can change; `None`: the manager does not say so in the way of this build.
    pub(crate) session: Option<String>,
}

/// Peers that may come from a range.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub(crate) network: Prefix,
    /// What each of them is configured as; its address is the network's.
    pub(crate) template: Neighbor,
}

impl Range {
    /// Whether a peer at this place is of this range.
    pub(crate) fn holds(&self, location: &Location) -> bool {
        match location {
            Location::Address(_) | Location::OnLink(..) => self.network.contains_address(location.address()),
            Location::Neighbor(_) => false,
        }
    }
}

/// Everything the manager says.
#[derive(Clone, Debug)]
pub(crate) struct Configuration {
    pub(crate) settings: Settings,
    pub(crate) peers: Peers,
    pub(crate) networks: Vec<Prefix>,
    pub(crate) aggregates: Vec<pipeline::AggregateConfig>,
    /// Protocols whose routes are ours too, with the policy for them.
    pub(crate) redistribute: BTreeMap<String, Program>,
    /// For what the rib is given.
    pub(crate) rib_policy: Option<Program>,
    /// What ran before has left its routes in the kernel.
    pub(crate) routes_kept: bool,
    /// VRFs with a speaker of their own.
    pub(crate) vrfs: Vec<String>,
    /// Routes are validated by what the RPKI says.
    pub(crate) validates: bool,
    /// Of signatures of our own.
    pub(crate) signing: Signing,
    /// The log holds what was sent until it is acknowledged.
    pub(crate) holds_sent: bool,
}

/// What becomes of signatures of our own.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Signing {
    /// So many are kept at most.
    pub(crate) kept: usize,
    /// So many a second are made after a change of keys, at most; never 0.
    pub(crate) rate: u32,
    /// `bgp` passes a path that differs in its signatures alone on at most once in this time.
    pub(crate) pace: Duration,
}

impl Signing {
    /// What a manager does not say is as the configuration has it by default.
    fn read(message: Option<api::Signing>) -> Self {
        let usual = schema::Signing::default();
        let pace = message.and_then(|message| message.pace_seconds);
        let pace = pace.map_or(schema::Bgp::default().bgpsec_pace, |pace| Duration::from_secs(pace.into()));
        let (kept, rate) = match message {
            Some(message) => (message.kept_signatures, message.rate.max(1)),
            None => (usual.kept_signatures, usual.signing_rate),
        };
        Self { kept: kept as usize, rate, pace }
    }
}

/// Whom we speak with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peers {
    pub(crate) neighbors: Vec<Neighbor>,
    pub(crate) ranges: Vec<Range>,
    /// Peers and ranges, by name, whose sessions begin anew whatever differs here.
    pub(crate) restart: HashSet<String>,
    /// Those whose sockets are made in another way from now on.
    pub(crate) refit: HashSet<String>,
}

impl Configuration {
    /// Reads a message of the manager with its policies.
    fn read_with(message: api::Configuration, policies: &Library) -> Result<Self, XrlError> {
        if message.peers.len() > MOST_CONFIGURED {
            let text = format!("{} peers are configured, more than {MOST_CONFIGURED}", message.peers.len());
            return Err(XrlError::invalid_argument(text));
        }
        let settings = Settings::read(&message)?;
        let redistribute = redistribution(&message.redistribute, policies)?;
        let rib_policy = policy(&message.rib_policy, policies)?;
        let (mut neighbors, mut ranges) = (Vec::new(), Vec::new());
        for peer in message.peers {
            let neighbor = Neighbor::read(peer, policies)?;
            match neighbor.source.remote {
                Remote::Range(network) => ranges.push(Range { network, template: neighbor }),
                Remote::Address(_) | Remote::OnLink(..) | Remote::LinkLocal(..) | Remote::Interface(_) => {
                    neighbors.push(neighbor);
                }
            }
        }
        // The most specific range wins.
        ranges.sort_by_key(|range| std::cmp::Reverse(range.network.length()));
        let network =
            |network: &api::Network| network.prefix.parse().map_err(|_| bad("network", &network.prefix));
        let networks = message.networks.iter().map(network).collect::<Result<_, _>>()?;
        let (restart, refit) = (message.restart.into_iter().collect(), message.refit.into_iter().collect());
        let peers = Peers { neighbors, ranges, restart, refit };
        let aggregate = |message: &api::Aggregate| aggregate(message, policies);
        let aggregates = message.aggregates.iter().map(aggregate).collect::<Result<_, _>>()?;
        let (routes_kept, vrfs, validates) = (message.routes_kept, message.vrfs, message.validates);
        Ok(Self {
            settings,
            peers,
            networks,
            aggregates,
            redistribute,
            rib_policy,
            routes_kept,
            vrfs,
            validates,
            signing: Signing::read(message.signing),
            holds_sent: message.nonstop_holds_sent,
        })
    }
}

fn redistribution(
    wanted: &[api::Redistribution],
    policies: &Library,
) -> Result<BTreeMap<String, Program>, XrlError> {
    let read = |wanted: &api::Redistribution| {
        let program = policy(&wanted.policy, policies)?;
        let program = program.filter(|_| wanted.from != ORIGIN);
        Ok((wanted.from.clone(), program.ok_or_else(|| bad("redistribution of", &wanted.from))?))
    };
    wanted.iter().map(read).collect()
}

fn aggregate(message: &api::Aggregate, policies: &Library) -> Result<pipeline::AggregateConfig, XrlError> {
    Ok(pipeline::AggregateConfig {
        prefix: message.prefix.parse().map_err(|_| bad("aggregate", &message.prefix))?,
        summary_only: message.summary_only,
        contributors: policy(&message.contributors, policies)?,
        policy: policy(&message.policy, policies)?,
    })
}

/// The policy of this name; none is one, too.
fn policy(name: &str, policies: &Library) -> Result<Option<Program>, XrlError> {
    match name {
        "" => Ok(None),
        name => policies.get(name).cloned().map(Some).ok_or_else(|| bad("policy", name)),
    }
}

impl Settings {
    fn read(message: &api::Configuration) -> Result<Self, XrlError> {
        let distance = |value: u32| u8::try_from(value).map_err(|_| bad("distance", &value.to_string()));
        Ok(Self {
            asn: Asn(message.asn),
            router_id: RouterId::new(message.router_id).ok_or_else(|| bad("router id", "0.0.0.0"))?,
            as_sets: if message.accept_as_sets { AsSets::Accept } else { AsSets::Reject },
            max_paths: message.max_paths.clamp(1, 255) as u8,
            local_pref: message.default_local_pref,
            rib: message.rib,
            ebgp_distance: distance(message.ebgp_distance)?,
            ibgp_distance: distance(message.ibgp_distance)?,
            sync: Duration::from_secs(message.sync_seconds.into()),
            nonstop: message.nonstop.then_some(message.nonstop_octets),
            damping: message.damping.as_ref().map(damping).transpose()?,
            cluster_id: if message.cluster_id == 0 { message.router_id } else { message.cluster_id },
            confederation: (message.confederation_id != 0).then(|| Confederation {
                id: Asn(message.confederation_id),
                members: message.confederation_members.iter().copied().map(Asn).collect(),
            }),
            decision: pipeline::DecisionRules {
                always_compare_med: message.always_compare_med,
                med_missing_as_worst: message.med_missing_as_worst,
                multipath_relax: !message.multipath_same_neighbor,
                prefer_oldest: message.prefer_oldest,
            },
        })
    }

    /// Where a peer with this AS number is.
    pub(crate) fn kind(&self, asn: Asn) -> pipeline::PeerKind {
        let members = self.confederation.iter().flat_map(|confederation| &confederation.members);
        match asn {
            _ if asn == self.asn => pipeline::PeerKind::Ibgp,
            _ if members.copied().any(|member| member == asn) => pipeline::PeerKind::ConfedEbgp,
            _ => pipeline::PeerKind::Ebgp,
        }
    }

    /// What the pipeline needs; `key` is that of its hashes.
    pub(crate) fn pipeline(&self, key: HashKey) -> pipeline::SpeakerConfig {
        pipeline::SpeakerConfig {
            as_sets: self.as_sets,
            next_hops: match self.rib {
                true => pipeline::NextHopMode::Resolved,
                false => pipeline::NextHopMode::AlwaysReachable,
            },
            max_paths: self.max_paths,
            local_pref: self.local_pref,
            cluster_id: self.cluster_id,
            confederation: self.confederation.as_ref().map(|confederation| confederation.id),
            decision: self.decision,
            ..pipeline::SpeakerConfig::new(self.asn, self.router_id, key)
        }
    }
}

impl Neighbor {
    fn read(message: api::Peer, policies: &Library) -> Result<Self, XrlError> {
        let (source, session) = match message.settings.as_slice() {
            [] => (before::peer(&message)?, None),
            json => {
                let wrong = |error| XrlError::invalid_argument(format!("peer {}: {error}", message.name));
                (serde_json::from_slice::<Peer>(json).map_err(wrong)?, Some(message.session))
            }
        };
        let asn = match &source.asn {
            PeerAsn::Any => session::PeerAsn::Any,
            PeerAsn::One(asn) => session::PeerAsn::Exact(*asn),
            PeerAsn::OneOf(ranges) => {
                session::PeerAsn::OneOf(ranges.iter().map(|range| (range.first(), range.last())).collect())
            }
        };
        let named = |name: &Option<String>| policy(name.as_deref().unwrap_or_default(), policies);
        Ok(Self {
            name: source.name.clone(),
            location: Location::of(&source.remote),
            asn,
            orf: message.orf_prefixes.iter().zip(1..).map(orf_entry).collect::<Result<_, _>>()?,
            disabled: source.rules.disabled,
            import: named(&source.import)?,
            export: named(&source.export)?,
            limits: source.limits.iter().map(limit).collect(),
            source,
            session,
        })
    }

    /// The same peer at one place of its range.
    pub(crate) fn at(&self, location: Location) -> Self {
        Self { name: format!("{}:{location}", self.name), location, ..self.clone() }
    }

    /// Whether the configuration names the interface whose link it is on.
    pub(crate) fn is_on_link(&self) -> bool {
        self.source.remote.interface().is_some()
    }

    /// What the session needs.
    pub(crate) fn session(&self, settings: &Settings) -> session::PeerConfig {
        session::PeerConfig {
            hold_time: u16::try_from(self.source.hold_time.as_secs()).unwrap_or(u16::MAX),
            families: self.source.families.clone(),
            extended_next_hop: self.location.address().is_ipv6(),
            role: self.source.paths.role,
            rules: self.source.session.clone(),
            add_path: self.source.add_path.clone(),
            bgpsec: self.source.bgpsec.clone(),
            bfd: self.source.bfd.clone(),
            ..session::PeerConfig::new(self.local_asn(settings), settings.router_id, self.asn.clone())
        }
    }

    /// Our AS as this peer knows it. Those of ranges that may be of several are taken to be outside of a confederation.
    pub(crate) fn local_asn(&self, settings: &Settings) -> Asn {
        let inside = match self.asn {
            session::PeerAsn::Exact(asn) => settings.kind(asn) != pipeline::PeerKind::Ebgp,
            session::PeerAsn::Internal => true,
            session::PeerAsn::Any | session::PeerAsn::OneOf(_) | session::PeerAsn::External => false,
        };
        let outer = settings.confederation.as_ref().map(|confederation| confederation.id);
        match self.source.paths.local_asn {
            _ if inside => settings.asn,
            Some(local) => local,
            None => outer.unwrap_or(settings.asn),
        }
    }

    /// Where the peer is that says this AS number: outside, whatever it says, if it knows us by a number of the outside.
    pub(crate) fn kind(&self, settings: &Settings, asn: Asn) -> pipeline::PeerKind {
        if self.local_asn(settings) == settings.asn { settings.kind(asn) } else { pipeline::PeerKind::Ebgp }
    }

    /// The AS number that is configured; 0 where there are several.
    pub(crate) fn configured_asn(&self) -> Asn {
        match self.source.asn {
            PeerAsn::One(asn) => asn,
            PeerAsn::OneOf(_) | PeerAsn::Any => Asn(0),
        }
    }

    /// What the pipeline needs; `asn` is what the peer's OPEN says, as far as one has come.
    pub(crate) fn pipeline(&self, settings: &Settings, asn: Option<Asn>) -> pipeline::PeerConfig {
        let asn = asn.unwrap_or(self.configured_asn());
        pipeline::PeerConfig {
            name: self.name.clone(),
            address: self.location.address(),
            asn,
            kind: self.kind(settings, asn),
            import: self.import.clone(),
            export: self.export.clone(),
            paths: self.source.paths.clone(),
            send_paths: match self.source.add_path.send {
                Some(schema::SendPaths::Best(most)) => pipeline::SendPaths::Best(most),
                Some(schema::SendPaths::All) | None => pipeline::SendPaths::All,
            },
        }
    }

    /// Whether nothing about this peer differs.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.source == other.source && self.import == other.import && self.export == other.export
    }

    /// Whether a running session may stay when this peer's configuration becomes `other`: the manager says so, if both come
    /// from one that speaks of it as this build does.
    pub(crate) fn keeps_session(&self, other: &Self) -> bool {
        match (&self.session, &other.session) {
            (Some(before), Some(after)) => before == after,
            _ => {
                let [before, after] = [self, other].map(|peer| before::said(&peer.source));
                holdfast_config::session(&before) == holdfast_config::session(&after)
            }
        }
    }

    /// Our IPv4 next hop on a session from this local address.
    pub(crate) fn next_hop_v4(&self, local: IpAddr) -> Option<Ipv4Addr> {
        match (self.source.next_hop_ipv4, local) {
            (Some(configured), _) => Some(configured),
            (_, IpAddr::V4(local)) => Some(local),
            _ => None,
        }
    }

    /// Our global IPv6 next hop on a session from this local address.
    pub(crate) fn next_hop_v6(&self, local: IpAddr) -> Option<Ipv6Addr> {
        match (self.source.next_hop_ipv6, local) {
            (Some(configured), _) => Some(configured),
            (_, IpAddr::V6(local)) => (!local.is_unicast_link_local()).then_some(local),
            _ => None,
        }
    }
}

/// An entry of the filter that a peer is told; its number is of no meaning, as all permit.
fn orf_entry((text, number): (&String, u32)) -> Result<OrfEntry, XrlError> {
    let range: PrefixRange = text.parse().map_err(|_| bad("prefix of a filter", text))?;
    let ((shortest, longest), own) = (range.lengths(), range.prefix().length());
    let (min_length, max_length) = match () {
        () if longest == own => (0, 0),
        () if shortest == own => (0, longest),
        () => (shortest, longest),
    };
    Ok(OrfEntry { sequence: 5 * number, permit: true, prefix: range.prefix(), min_length, max_length })
}

fn limit(limit: &PrefixLimit) -> session::PrefixLimit {
    session::PrefixLimit {
        family: limit.family,
        most: [limit.received, limit.accepted, limit.announced],
        warn_percent: limit.warn_percent,
        action: match limit.action {
            LimitAction::Idle => session::LimitAction::Idle,
            LimitAction::Restart => session::LimitAction::Restart(limit.restart_after),
            LimitAction::Warn => session::LimitAction::Warn,
        },
    }
}

fn damping(message: &api::Damping) -> Result<Parameters, XrlError> {
    let seconds = |seconds: u32| Duration::from_secs(seconds.into());
    let parameters = Parameters {
        half_life: seconds(message.half_life_seconds),
        suppress: message.suppress,
        reuse: message.reuse,
        max_suppress: seconds(message.max_suppress_seconds),
    };
    parameters.check().map_err(|error| bad("damping", &format!("{error:?}")))?;
    Ok(parameters)
}

fn bad(what: &str, value: &str) -> XrlError {
    XrlError::invalid_argument(format!("{what}: {value:?} makes no sense"))
}

#[cfg(test)]
mod tests {
    use holdfast_config::schema::Transport;

    use super::*;

    #[test]
    fn distances_are_those_of_the_message_and_zero_is_one() {
        let settings = |ebgp_distance| {
            let message = api::Configuration { router_id: 1, ebgp_distance, ..api::Configuration::default() };
            Settings::read(&message).map(|settings| settings.ebgp_distance)
        };
        assert_eq!((settings(0), settings(255)), (Ok(0), Ok(255)));
        assert!(settings(256).is_err());
    }

    #[test]
    fn an_older_manager_has_signatures_kept_as_by_default() {
        let read = |signing| {
            let message = api::Configuration { router_id: 1, signing, ..api::Configuration::default() };
            Policies::default().read_at_once(message, None).expect("a configuration").0.signing
        };
        let (usual, at_once) = (Duration::from_secs(5), Duration::ZERO);
        assert_eq!(read(None), Signing { kept: 1_000_000, rate: 1000, pace: usual });
        let told = |kept_signatures, rate, pace_seconds| {
            read(Some(api::Signing { kept_signatures, rate, pace_seconds }))
        };
        assert_eq!(told(0, 7, None), Signing { kept: 0, rate: 7, pace: usual });
        assert_eq!(told(9, 0, Some(0)), Signing { kept: 9, rate: 1, pace: at_once }, "it comes to an end");
    }

    #[test]
    fn a_session_ends_where_the_manager_says_so() {
        let policies = Library::default();
        let old = api::Peer { address: vec![10, 0, 0, 2], hold_time: 90, ..api::Peer::default() };
        let source = before::peer(&old).expect("a peer");
        let told = |session: &str, seconds| {
            // Which an older manager did not say to bgp.
            let (vrf, transports) = (Some("blue".to_owned()), vec![Transport::Tls]);
            let hold_time = Duration::from_secs(seconds);
            let source = Peer { hold_time, vrf, transports, ..source.clone() };
            let settings = serde_json::to_vec(&source).expect("JSON");
            let message = api::Peer { session: session.to_owned(), settings, ..api::Peer::default() };
            Neighbor::read(message, &policies).expect("a peer")
        };
        let (before, after) = (told("hold-time=90;", 90), told("hold-time=90;", 30));
        assert!(before.keeps_session(&after) && !before.is_same(&after), "it is a change, and ends nothing");
        assert!(!before.keeps_session(&told("hold-time=30;", 90)));
        // A manager of another build has said nothing of the kind.
        let old = Neighbor::read(old, &policies).expect("a peer");
        assert!(old.keeps_session(&before) && !old.keeps_session(&after));
    }

    #[test]
    fn who_knows_us_by_the_confederations_number_is_outside_whatever_it_says() {
        let settings = Settings::read(&api::Configuration {
            router_id: 1,
            asn: 65001,
            confederation_id: 65100,
            confederation_members: vec![65002],
            ..api::Configuration::default()
        });
        let settings = settings.expect("settings");
        let policies = Library::default();
        let peer = |asn, asns: &[u32]| {
            let range = |&asn: &u32| api::AsnRange { first: asn, last: asn };
            let asns = asns.iter().map(range).collect();
            let source = api::Peer { address: vec![10, 0, 0, 2], asn, asns, ..api::Peer::default() };
            Neighbor::read(source, &policies).expect("a peer")
        };
        let place = |peer: Neighbor, says| (peer.local_asn(&settings).0, peer.kind(&settings, Asn(says)));
        assert_eq!(place(peer(65002, &[]), 65002), (65001, pipeline::PeerKind::ConfedEbgp));
        assert_eq!(place(peer(65001, &[]), 65001), (65001, pipeline::PeerKind::Ibgp));
        for says in [65001, 65002, 65003] {
            assert_eq!(place(peer(0, &[65002, 65003]), says), (65100, pipeline::PeerKind::Ebgp));
            assert_eq!(place(peer(0, &[]), says), (65100, pipeline::PeerKind::Ebgp));
        }
    }
}
