//! What the process reads of the configuration.

use std::collections::HashMap;

use holdfast_api::bgp::v1::{self as api, BgpClient};
use holdfast_config::{
    Config,
    schema::{Aggregate, AsSets, Bgp, Confederation, Damping, Peer, Redistribute, Size, Vrf, is_in},
    session,
    whereabouts::peers,
};
use holdfast_policy::{PolicySource, PrefixSet};
use holdfast_process::{ConfigReader, ConfigureRequest, Refit, seconds};
use holdfast_types::{Asn, Prefix, RouterId};
use holdfast_xrl::XrlError;

/// How long routes that an earlier `bgp` left wait for its peers to come back and send theirs.
const SYNC_LIMIT_SECONDS: u32 = 120;

/// Prefix sets with more entries together travel beside the policies: in JSON they would be longer than what a `bgp` of an
/// earlier build takes, which does not know the other form.
const MOST_IN_JSON: usize = 1_400_000;

pub(crate) const READER: ConfigReader = ConfigReader {
    is_wanted: |config| config.bgp.is_some(),
    is_replaced: |old, new| birth(old) != birth(new) || has_other_rules(old, new),
    // Sessions of another router are put into its place before.
    waits_for: |config| config.store.is_some().then_some("replicator"),
    requests,
    ..ConfigReader::NOTHING
};

/// What is worked into every route.
#[derive(PartialEq)]
struct Birth<'c> {
    /// What is in every OPEN, and what follows from our number.
    router_id: RouterId,
    asn: Asn,
    confederation: Option<&'c Confederation>,
    /// Whether next hops are resolved.
    rib: bool,
    /// Of connected routes, and of ours from either kind of peer.
    distances: [u8; 3],
    local_preference: u32,
    max_paths: u8,
    cluster_id: Option<RouterId>,
    damping: Option<Damping>,
    nonstop_memory: Size,
}

fn birth(config: &Config) -> Option<Birth<'_>> {
    config.bgp.as_ref().map(|bgp| Birth {
        router_id: config.router.id,
        asn: config.router.asn,
        confederation: bgp.confederation.as_ref(),
        rib: config.rib.enabled,
        distances: config.rib.distance.of_bgp(),
        local_preference: bgp.local_preference,
        max_paths: bgp.max_paths,
        cluster_id: bgp.cluster_id,
        damping: bgp.damping,
        nonstop_memory: bgp.nonstop_memory,
    })
}

/// Whether there is a peer for which what it is told follows from other rules: what it was told by those before is in the
/// journal only, which the next process compares.
fn has_other_rules(old: &Config, new: &Config) -> bool {
    let rules = |peer: &Peer| (peer.paths.route_reflector_client, peer.paths.own_view);
    let before: HashMap<_, &Peer> = peers(old).filter(|(_, peer)| !peer.rules.disabled).collect();
    peers(new).any(|(at, peer)| before.get(&at).is_some_and(|before| rules(before) != rules(peer)))
}

fn requests(config: &Config, table: Option<&Vrf>, refit: &Refit) -> Result<Vec<ConfigureRequest>, XrlError> {
    let Some(bgp) = &config.bgp else { return Ok(Vec::new()) };
    let names = config.peers(table).map(|peer| &peer.name);
    let refit: Vec<String> = names.filter(|name| refit.contains(*name)).cloned().collect();
    let configuration = api::Configuration { refit: refit.clone(), ..configuration(config, bgp, table)? };
    Ok(vec![ConfigureRequest { refit, ..ConfigureRequest::new::<BgpClient>(&configuration) }])
}

fn configuration(config: &Config, bgp: &Bgp, table: Option<&Vrf>) -> Result<api::Configuration, XrlError> {
    let network = |prefix: &Prefix| api::Network { prefix: prefix.to_string() };
    let networks = table.map_or(&bgp.networks, |vrf| &vrf.networks);
    let aggregates = bgp.aggregates.iter().filter(|_| table.is_none());
    let redistribute = bgp.redistribute.iter().filter(|wanted| is_in(wanted.vrf.as_ref(), table));
    let (policies, prefix_sets) = policies(config)?;
    Ok(api::Configuration {
        router_id: config.router.id.bits(),
        asn: config.router.asn.0,
        accept_as_sets: bgp.as_sets == AsSets::Accept,
        max_paths: bgp.max_paths.into(),
        rib: config.rib.enabled,
        peers: config.peers(table).map(|peer| self::peer(peer, config)).collect::<Result<_, _>>()?,
        networks: networks.iter().map(network).collect(),
        aggregates: aggregates.map(aggregate).collect(),
        policies,
        prefix_sets,
        ebgp_distance: config.rib.distance.ebgp.into(),
        ibgp_distance: config.rib.distance.ibgp.into(),
        sync_seconds: SYNC_LIMIT_SECONDS,
        default_local_pref: bgp.local_preference,
        // Of what a manager said before there was `refit`.
        restart: Vec::new(),
        refit: Vec::new(),
        nonstop: bgp.nonstop,
        nonstop_holds_sent: config.store.is_some(),
        redistribute: redistribute.map(redistribution).collect(),
        rib_policy: bgp.rib_policy.clone().unwrap_or_default(),
        nonstop_octets: if bgp.nonstop { bgp.nonstop_memory.octets() } else { 0 },
        damping: bgp.damping.map(damping),
        routes_kept: config.rib.enabled && config.fea.keep_routes,
        cluster_id: bgp.cluster_id.map_or(0, RouterId::bits),
        confederation_id: bgp.confederation.as_ref().map_or(0, |confederation| confederation.id.0),
        confederation_members: bgp
            .confederation
            .iter()
            .flat_map(|confederation| confederation.members.iter().map(|asn| asn.0))
            .collect(),
        always_compare_med: bgp.decision.always_compare_med,
        med_missing_as_worst: bgp.decision.med_missing_as_worst,
        multipath_same_neighbor: !bgp.decision.multipath_relax,
        prefer_oldest: bgp.decision.prefer_oldest,
        consistency_check: bgp.consistency_check,
        signing: Some(api::Signing {
            kept_signatures: config.bgpsec.kept_signatures,
            rate: config.bgpsec.signing_rate,
            pace_seconds: Some(u32::try_from(bgp.bgpsec_pace.as_secs()).unwrap_or(u32::MAX)),
        }),
        validates: !config.rpki.caches.is_empty(),
        vrfs: config.vrf_names(table),
        // `transport` listens.
        listen: Vec::new(),
    })
}

/// The policies, and the prefix sets that travel beside them.
fn policies(config: &Config) -> Result<(String, Vec<api::PrefixSet>), XrlError> {
    let PolicySource { prefix_sets, community_sets, as_path_sets, policies } = &config.policy;
    if prefix_sets.iter().map(|set| set.prefixes.len()).sum::<usize>() <= MOST_IN_JSON {
        return Ok((holdfast_process::policies(config)?, Vec::new()));
    }
    let (community_sets, as_path_sets, policies) =
        (community_sets.clone(), as_path_sets.clone(), policies.clone());
    let others = PolicySource { prefix_sets: Vec::new(), community_sets, as_path_sets, policies };
    let json = serde_json::to_string(&others)
        .map_err(|error| XrlError::internal(format!("writing the policies: {error}")))?;
    let set = |set: &PrefixSet| api::PrefixSet {
        name: set.name.clone(),
        entries: set.prefixes.octets().to_vec().into(),
    };
    Ok((json, prefix_sets.iter().map(set).collect()))
}

fn aggregate(wanted: &Aggregate) -> api::Aggregate {
    api::Aggregate {
        prefix: wanted.prefix.to_string(),
        summary_only: wanted.summary_only,
        contributors: wanted.contributors.clone().unwrap_or_default(),
        policy: wanted.policy.clone().unwrap_or_default(),
    }
}

fn redistribution(wanted: &Redistribute) -> api::Redistribution {
    api::Redistribution { from: wanted.from.clone(), policy: wanted.policy.clone() }
}

fn damping(damping: Damping) -> api::Damping {
    api::Damping {
        half_life_seconds: seconds(damping.half_life),
        suppress: damping.suppress,
        reuse: damping.reuse,
        max_suppress_seconds: seconds(damping.max_suppress),
    }
}

/// What `transport` alone may know is left out (`schema::Peer`).
fn peer(peer: &Peer, config: &Config) -> Result<api::Peer, XrlError> {
    let settings = serde_json::to_vec(peer);
    Ok(api::Peer {
        name: peer.name.clone(),
        session: session(peer),
        settings: settings.map_err(|error| XrlError::internal(format!("writing a peer: {error}")))?,
        orf_prefixes: peer.orf_prefix_set.iter().flat_map(|name| prefixes(config, name)).collect(),
        ..api::Peer::default()
    })
}

/// What is in a prefix set.
fn prefixes(config: &Config, name: &str) -> Vec<String> {
    let set = config.policy.prefix_sets.iter().find(|set| set.name == name);
    set.into_iter().flat_map(|set| &set.prefixes).map(|range| range.to_string()).collect()
}
