//! What the process reads of the configuration: whether it runs. All else it hears of the replicator.

use holdfast_config::Config;
use holdfast_process::ConfigReader;

pub(crate) const READER: ConfigReader = ConfigReader { is_wanted: has_store, ..ConfigReader::NOTHING };

/// Whether sessions are replicated to a store.
fn has_store(config: &Config) -> bool {
    config.store.is_some()
}
