//! What the process reads of the configuration.

use holdfast_api::pathsec::v1::{Configuration, PathSecClient, SecretKey, Secrets as Told};
use holdfast_config::{
    Config,
    schema::{Moment, SigningKey, Vrf},
};
use holdfast_process::{ConfigReader, ConfigureRequest, Refit, Secrets};
use holdfast_xrl::XrlError;

pub(crate) const READER: ConfigReader =
    ConfigReader { is_wanted: has_bgpsec_peer, requests, ..ConfigReader::NOTHING };

/// Whether some peer sends or receives signed paths.
fn has_bgpsec_peer(config: &Config) -> bool {
    config.bgp.iter().flat_map(|bgp| &bgp.peers).any(|peer| peer.bgpsec.is_on())
}

fn requests(config: &Config, table: Option<&Vrf>, _: &Refit) -> Result<Vec<ConfigureRequest>, XrlError> {
    let all = ConfigureRequest {
        secrets: Some(secrets(config)),
        ..ConfigureRequest::new::<PathSecClient>(&configuration(config))
    };
    // It has no instances for VRFs.
    Ok(if table.is_none() { vec![all] } else { Vec::new() })
}

fn configuration(config: &Config) -> Configuration {
    let ases = config.our_ases().into_iter().map(|asn| asn.0).collect();
    let keys_per_ski = config.bgpsec.keys_per_ski.into();
    Configuration { ases, caches: !config.rpki.caches.is_empty(), keys_per_ski }
}

fn secrets(config: &Config) -> Secrets {
    let key = |key: &SigningKey| SecretKey {
        asn: key.asn.0,
        key: key.key.contents.to_vec(),
        sign_from: key.sign_from.map_or(0, Moment::since_1970),
    };
    Secrets::new(PathSecClient::KEEP, &Told { keys: config.bgpsec.keys.iter().map(key).collect() })
}
