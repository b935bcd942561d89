//! What is told of RPKI caches: to `rpki`, which asks them, and to those who connect it.

use std::{net::SocketAddr, time::Duration};

use holdfast_api::{rpki::v1 as api, socket::v1 as socket_api, transport::v1 as transport_api};
use holdfast_config::schema::{Cache, ExceptionsFile, Rpki};

use super::{address::octets, door, seconds};

/// Which caches there are, and local exceptions.
pub(super) fn caches(rpki: &Rpki) -> api::Configuration {
    let cache = |cache: &Cache| {
        let told = |time: Option<Duration>| time.map_or(0, seconds);
        api::CacheConfiguration {
            name: cache.name.clone(),
            peer: peer_name(cache),
            endpoint: endpoint(cache),
            preference: cache.preference.into(),
            refresh_seconds: told(cache.refresh),
            retry_seconds: told(cache.retry),
            expire_seconds: told(cache.expire),
            version: cache.version.into(),
        }
    };
    let exceptions = |exceptions: &ExceptionsFile| api::LocalExceptions {
        file: exceptions.file.clone(),
        text: exceptions.text.to_string(),
    };
    api::Configuration {
        caches: rpki.caches.iter().map(cache).collect(),
        exceptions: rpki.exceptions.iter().map(exceptions).collect(),
    }
}

/// What `transport` and whoever opens sockets call a cache: no name of a peer has a space.
fn peer_name(cache: &Cache) -> String {
    format!("cache {}", cache.name)
}

fn endpoint(cache: &Cache) -> String {
    let remote = SocketAddr::new(cache.address, cache.port);
    let local = cache.local_address.map(|local| format!(" from {local}")).unwrap_or_default();
    format!("{remote} over {}{local}", cache.transport.name())
}

/// The bare socket to a cache.
pub(super) fn socket(cache: &Cache) -> socket_api::Peer {
    socket_api::Peer {
        name: peer_name(cache),
        address: octets(cache.address),
        port: cache.port.into(),
        local_address: cache.local_address.map(octets).unwrap_or_default(),
        only_dialled: true,
        ..socket_api::Peer::default()
    }
}

/// A cache for `transport`, which connects `rpki` with it and nobody else.
pub(super) fn peer(cache: &Cache) -> transport_api::Peer {
    transport_api::Peer {
        name: peer_name(cache),
        address: octets(cache.address),
        port: cache.port.into(),
        local_address: cache.local_address.map(octets).unwrap_or_default(),
        transports: vec![door::protocol(cache.transport).into()],
        trust: cache.transport.proves().then(|| door::trust(&cache.trust)),
        role: "rpki".into(),
        ..transport_api::Peer::default()
    }
}
