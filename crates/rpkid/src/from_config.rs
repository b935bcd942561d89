//! What the process reads of the configuration.

use std::{net::SocketAddr, time::Duration};

use holdfast_api::rpki::v1::{self as api, RpkiClient};
use holdfast_config::schema::{Cache, ExceptionsFile, Rpki};
use holdfast_process::{ConfigReader, ConfigureRequest, seconds};

pub(crate) const READER: ConfigReader = ConfigReader {
    is_wanted: |config| !config.rpki.caches.is_empty(),
    requests: |config, table, _| {
        let told = table.is_none().then(|| ConfigureRequest::new::<RpkiClient>(&caches(&config.rpki)));
        Ok(told.into_iter().collect())
    },
    ..ConfigReader::NOTHING
};

/// Which caches there are, and local exceptions.
fn caches(rpki: &Rpki) -> api::Configuration {
    let cache = |cache: &Cache| {
        let told = |time: Option<Duration>| time.map_or(0, seconds);
        api::CacheConfiguration {
            name: cache.name.clone(),
            peer: cache.peer_name(),
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

fn endpoint(cache: &Cache) -> String {
    let remote = SocketAddr::new(cache.address, cache.port);
    let local = cache.local_address.map(|local| format!(" from {local}")).unwrap_or_default();
    format!("{remote} over {}{local}", cache.transport.name())
}
