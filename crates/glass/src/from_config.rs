//! What the process reads of the configuration.

use holdfast_api::glass::v1::{Configuration, GlassClient};
use holdfast_process::{ConfigReader, ConfigureRequest};
use holdfast_types::octets;

pub(crate) const READER: ConfigReader = ConfigReader {
    is_wanted: |config| config.glass.is_some(),
    requests: |config, table, _| {
        let listen = config.glass.iter().filter(|_| table.is_none()).map(|section| section.listen);
        let told =
            listen.map(|listen| Configuration { address: octets(listen.ip()), port: listen.port().into() });
        Ok(told.map(|told| ConfigureRequest::new::<GlassClient>(&told)).collect())
    },
    ..ConfigReader::NOTHING
};
