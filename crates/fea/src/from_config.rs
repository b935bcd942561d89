//! What the process reads of the configuration.

use holdfast_api::{
    fea::v1::{self as api, FeaClient},
    socket::v1::SocketClient,
};
use holdfast_config::{
    Config,
    schema::{Vrf, VrfPlace},
};
use holdfast_process::{ConfigReader, ConfigureRequest};
use holdfast_sockets::settings;

pub(crate) const READER: ConfigReader = ConfigReader {
    is_wanted: |config| config.rib.enabled,
    requests: |config, table, _| {
        let sockets = ConfigureRequest::new::<SocketClient>(&settings::configuration(config, table));
        let sockets = ConfigureRequest { opens: true, ..sockets };
        Ok(vec![sockets, ConfigureRequest::new::<FeaClient>(&configuration(config, table))])
    },
    ..ConfigReader::NOTHING
};

fn configuration(config: &Config, table: Option<&Vrf>) -> api::Configuration {
    let number = table.map_or(config.fea.table, |vrf| place(vrf).table);
    let store = config.store.as_ref();
    let lease = store.and_then(|store| store.lease_directory.clone()).unwrap_or_default();
    let vrfs = if table.is_none() { config.vrfs.iter().map(place).collect() } else { Vec::new() };
    api::Configuration {
        backend: config.fea.backend.name().into(),
        table: number,
        vrfs,
        metric: config.fea.metric,
        lease,
    }
}

fn place(vrf: &Vrf) -> api::Vrf {
    let name = vrf.name.clone();
    match vrf.place.clone() {
        VrfPlace::Device { name: device, table } => api::Vrf { name, table, device, netns: String::new() },
        VrfPlace::Netns { name: netns, table } => api::Vrf { name, table, device: String::new(), netns },
    }
}
