//! What the process takes of the configuration.

use holdfast_api::glass::v1::{Configuration, GlassClient};
use holdfast_process::{Picks, Told};
use holdfast_types::octets;

pub(crate) const PICKS: Picks = Picks {
    is_wanted: |config| config.glass.is_some(),
    told: |config, table, _| {
        let listen = config.glass.iter().filter(|_| table.is_none()).map(|section| section.listen);
        let told =
            listen.map(|listen| Configuration { address: octets(listen.ip()), port: listen.port().into() });
        Ok(told.map(|told| Told::new::<GlassClient>(&told)).collect())
    },
    ..Picks::NOTHING
};
