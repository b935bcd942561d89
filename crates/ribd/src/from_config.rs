//! What the process reads of the configuration.

use holdfast_api::{
    bfd::v1::Hops,
    rib::v1::{self as api, RibClient},
    routes::v1::{NextHop, NextHopKind},
};
use holdfast_config::{
    Config,
    schema::{BfdHops, Protocol, StaticBfd, StaticRoute, StaticTarget, Vrf, is_in},
};
use holdfast_process::{ConfigReader, ConfigureRequest, seconds};
use holdfast_types::octets;

/// The process that says which neighbours have failed.
const BFD: &str = "bfd";

pub(crate) const READER: ConfigReader = ConfigReader {
    is_wanted: |config| config.rib.enabled,
    // Distances are worked into every route.
    is_replaced: |old, new| {
        let (old, new) = (&old.rib.distance, &new.rib.distance);
        old.of_bgp() != new.of_bgp() || old.processes != new.processes
    },
    requests: |config, table, _| Ok(vec![ConfigureRequest::new::<RibClient>(&configuration(config, table))]),
    ..ConfigReader::NOTHING
};

fn configuration(config: &Config, table: Option<&Vrf>) -> api::Configuration {
    let distance = &config.rib.distance;
    let distances = [
        ("connected", distance.connected),
        ("static", distance.static_),
        ("ebgp", distance.ebgp),
        ("ibgp", distance.ibgp),
    ];
    let own = distances.map(|(name, distance)| (name.to_owned(), distance.into()));
    let processes = config.routing(table).map(|(process, _)| process.to_owned()).collect::<Vec<_>>();
    let of_processes = processes.iter().map(|process| {
        let distance = distance.processes.get(process.as_str());
        (process.clone(), distance.copied().map_or(u32::from(u8::MAX), u32::from))
    });
    let bgp = config.bgp.iter().map(|_| "bgp".to_owned());
    // Those with a descriptor are among the processes.
    let is_other = |protocol: &&Protocol| table.is_none() && protocol.descriptor.is_none();
    let protocols = || config.protocols.iter().filter(is_other);
    let others = protocols().map(|protocol| (protocol.name.clone(), protocol.distance.into()));
    let statics = config.statics.iter().filter(|route| is_in(route.vrf.as_ref(), table));
    api::Configuration {
        statics: statics.map(static_route).collect(),
        distances: own.into_iter().chain(others).chain(of_processes).collect(),
        stale_seconds: seconds(config.rib.stale_time),
        expected_origins: bgp
            .chain(protocols().map(|protocol| protocol.name.clone()))
            .chain(processes.iter().cloned())
            .collect(),
        vrfs: config.vrf_names(table),
        bfd: config.sections.contains_key(BFD),
    }
}

fn static_route(route: &StaticRoute) -> api::StaticRoute {
    let (kind, next_hops) = match &route.target {
        StaticTarget::Blackhole => (NextHopKind::Blackhole, Vec::new()),
        StaticTarget::Interface(name) => {
            (NextHopKind::Forward, vec![NextHop { interface: name.clone(), ..NextHop::default() }])
        }
        StaticTarget::NextHop { address, interface } => {
            let interface = interface.clone().unwrap_or_default();
            let hop = NextHop { gateway: octets(*address), interface, ..NextHop::default() };
            (NextHopKind::Forward, vec![hop])
        }
    };
    api::StaticRoute {
        prefix: route.prefix.to_string(),
        kind: kind.into(),
        next_hops,
        tag: route.tag,
        bfd: route.bfd.as_ref().map(static_bfd),
        ..Default::default()
    }
}

fn static_bfd(bfd: &StaticBfd) -> api::StaticBfd {
    let hops = match bfd.hops {
        BfdHops::Automatic => Hops::Automatic,
        BfdHops::Single => Hops::Single,
        BfdHops::Multiple => Hops::Multiple,
    };
    api::StaticBfd { profile: bfd.profile.clone().unwrap_or_default(), hops: hops as u32 }
}
