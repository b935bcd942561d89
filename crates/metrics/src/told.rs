//! What the process takes of the configuration.

use holdfast_api::metrics::v1::{ExporterClient, ExporterConfiguration};
use holdfast_process::{Picks, Told};
use holdfast_types::octets;

pub(crate) const PICKS: Picks = Picks {
    is_wanted: |config| config.metrics.is_some(),
    told: |config, table, _| {
        let listen = config.metrics.iter().filter(|_| table.is_none()).map(|section| section.listen);
        let told = listen
            .map(|listen| ExporterConfiguration { address: octets(listen.ip()), port: listen.port().into() });
        Ok(told.map(|told| Told::new::<ExporterClient>(&told)).collect())
    },
    ..Picks::NOTHING
};
