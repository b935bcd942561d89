//! What the process reads of the configuration.

use std::{collections::BTreeSet, path::Path};

use holdfast_api::monitor::v1::{self as api, MonitorClient};
use holdfast_config::{
    Config,
    schema::{Bgp, Bmp, BmpTable, Mrt, MrtKind, Size},
};
use holdfast_process::{ConfigReader, ConfigureRequest, seconds};

pub(crate) const READER: ConfigReader = ConfigReader {
    is_wanted: |config| config.bgp.as_ref().is_some_and(|bgp| !bgp.mrt.is_empty() || !bgp.bmp.is_empty()),
    // It is told at its birth where it may write.
    is_replaced: |old, new| directories(old) != directories(new),
    directories,
    requests: |config, table, _| {
        let bgp = config.bgp.iter().filter(|_| table.is_none());
        Ok(bgp.map(|bgp| ConfigureRequest::new::<MonitorClient>(&configuration(config, bgp))).collect())
    },
    ..ConfigReader::NOTHING
};

/// Where dumps are written.
fn directories(config: &Config) -> Vec<String> {
    let dumps = config.bgp.iter().flat_map(|bgp| &bgp.mrt);
    let parents = dumps.filter_map(|mrt| Some(Path::new(&mrt.file).parent()?.to_str()?.to_owned()));
    parents.collect::<BTreeSet<_>>().into_iter().collect()
}

fn configuration(config: &Config, bgp: &Bgp) -> api::Configuration {
    let dump = |mrt: &Mrt| api::Dump {
        file: mrt.file.clone(),
        table: mrt.what == MrtKind::Table,
        interval_seconds: seconds(mrt.interval),
        most_octets: mrt.max_size.map_or(0, Size::octets),
    };
    let collector = |bmp: &Bmp| api::Collector {
        name: bmp.name.clone(),
        peer: bmp.peer_name(),
        adj_rib_in: bmp.send.contains(&BmpTable::PrePolicy),
        adj_rib_out: bmp.send.contains(&BmpTable::AdjRibOut),
        loc_rib: bmp.send.contains(&BmpTable::LocRib),
        statistics_seconds: seconds(bmp.statistics),
    };
    api::Configuration {
        router_id: config.router.id.bits(),
        asn: config.router.asn.0,
        dumps: bgp.mrt.iter().map(dump).collect(),
        collectors: bgp.bmp.iter().map(collector).collect(),
    }
}
