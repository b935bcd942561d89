//! What the process reads of the configuration.

use holdfast_api::metrics::v1::{ExporterClient, ExporterConfiguration};
use holdfast_process::{ConfigReader, ConfigureRequest};
use holdfast_types::octets;

pub(crate) const READER: ConfigReader = ConfigReader {
    is_wanted: |config| config.metrics.is_some(),
    requests: |config, table, _| {
        let listen = config.metrics.iter().filter(|_| table.is_none()).map(|section| section.listen);
        let told = listen
            .map(|listen| ExporterConfiguration { address: octets(listen.ip()), port: listen.port().into() });
        Ok(told.map(|told| ConfigureRequest::new::<ExporterClient>(&told)).collect())
    },
    ..ConfigReader::NOTHING
};
