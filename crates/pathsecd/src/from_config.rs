//! What the process reads of the configuration.

use holdfast_config::Config;
use holdfast_process::ConfigReader;

pub(crate) const READER: ConfigReader = ConfigReader { is_wanted: has_bgpsec_peer, ..ConfigReader::NOTHING };

/// Whether some peer sends or receives signed paths.
fn has_bgpsec_peer(config: &Config) -> bool {
    config.bgp.iter().flat_map(|bgp| &bgp.peers).any(|peer| peer.bgpsec.is_on())
}
