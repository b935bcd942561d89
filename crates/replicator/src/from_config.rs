//! What the process reads of the configuration.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use holdfast_api::{
    keeper::v1::{KnownFile, OpenFileRequest},
    replicator::v1::{self as api, ReplicatorClient},
};
use holdfast_config::{
    Config,
    schema::{OnStoreLoss, Peer, ServiceAddress, Standby, Store, StoreKind, Vrf, VrfPlace},
};
use holdfast_process::{ConfigReader, ConfigureRequest, FilesToGive, Secrets};

/// How long a store is waited for where no session has a hold time.
const WITHOUT_HOLD_TIME: Duration = Duration::from_secs(30);

pub(crate) const READER: ConfigReader = ConfigReader {
    is_wanted: |config| config.store.is_some(),
    requests: |config, table, _| {
        // It has no instances for VRFs.
        let store = config.store.as_ref().filter(|_| table.is_none());
        Ok(store.map(|store| request(config, store)).into_iter().collect())
    },
    shares: true,
    ..ConfigReader::NOTHING
};

fn request(config: &Config, store: &Store) -> ConfigureRequest {
    let password = store.password.as_ref().map(|file| file.contents.to_vec()).unwrap_or_default();
    ConfigureRequest {
        secrets: Some(Secrets::new(ReplicatorClient::KEEP, &api::Secrets { password })),
        files: Some(FilesToGive { method: ReplicatorClient::FILES, files: files(store) }),
        ..ConfigureRequest::new::<ReplicatorClient>(&configuration(config, store))
    }
}

fn files(store: &Store) -> Vec<OpenFileRequest> {
    let file = |directory: &Option<String>, file: KnownFile| OpenFileRequest {
        directory: directory.clone().unwrap_or_default(),
        file: file.into(),
    };
    let of_store: &[_] = match store.kind {
        StoreKind::File => &[KnownFile::StoreA, KnownFile::StoreB],
        StoreKind::Redis | StoreKind::Memory => &[],
    };
    let lease = file(&store.lease_directory, KnownFile::Lease);
    std::iter::once(lease).chain(of_store.iter().map(|known| file(&store.directory, *known))).collect()
}

fn configuration(config: &Config, store: &Store) -> api::Configuration {
    let kind = match store.kind {
        StoreKind::Redis => api::Kind::Redis,
        StoreKind::File => api::Kind::File,
        StoreKind::Memory => api::Kind::Memory,
    };
    let on_loss = match store.on_store_loss {
        OnStoreLoss::Degrade => api::OnLoss::Degrade,
        OnStoreLoss::StepDown => api::OnLoss::StepDown,
    };
    let server =
        |(peer, address): (String, std::net::SocketAddr)| api::Server { peer, address: address.to_string() };
    let timeout = store_timeout(config, store);
    api::Configuration {
        kind: kind.into(),
        servers: store.peer_names().map(server).collect(),
        user: store.user.clone().unwrap_or_default(),
        tls: store.transport.proves(),
        store_timeout_milliseconds: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
        store_timeout_is_said: store.store_timeout.is_some(),
        on_loss: on_loss.into(),
        wait_replicas: store.wait_replicas.into(),
        lease_directory: store.lease_directory.clone().unwrap_or_default(),
        directory: store.directory.clone().unwrap_or_default(),
        router_id: config.router.id.bits(),
        port: config.bgp.as_ref().map_or(0, |bgp| bgp.port.into()),
        tables: tables(config),
        service_addresses: store.service_addresses.iter().map(service_address).collect(),
        preheated: store.standby == Standby::Preheated,
        log_octets: config.bgp.as_ref().map_or(0, |bgp| bgp.nonstop_memory.octets()),
    }
}

fn service_address(own: &ServiceAddress) -> api::ServiceAddress {
    let address = match own.address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let (vrf, interface) = (own.vrf.clone().unwrap_or_default(), own.interface.clone());
    api::ServiceAddress { vrf, address, length: own.length.into(), interface }
}

/// What is said, or a third of the shortest hold time.
fn store_timeout(config: &Config, store: &Store) -> Duration {
    let peers = config.bgp.iter().flat_map(|bgp| &bgp.peers).filter(|peer| peer.nonstop);
    let shortest = peers.map(|peer| peer.hold_time).filter(|time| !time.is_zero()).min();
    let said = store.store_timeout.map(|seconds| Duration::from_secs(seconds.into()));
    said.or(shortest.map(|shortest| shortest / 3)).unwrap_or(WITHOUT_HOLD_TIME)
}

/// The tables whose peers have protection.
fn tables(config: &Config) -> Vec<api::Table> {
    let tables = std::iter::once(None).chain(config.vrfs.iter().map(Some));
    tables.filter_map(|table| self::table(config, table)).collect()
}

fn table(config: &Config, table: Option<&Vrf>) -> Option<api::Table> {
    let peers: Vec<&Peer> = config.peers(table).filter(|peer| peer.nonstop).collect();
    let ports: BTreeSet<u32> = peers.iter().map(|peer| peer.rules.port.into()).collect();
    let netns = match table.map(|vrf| &vrf.place) {
        Some(VrfPlace::Netns { name, .. }) => name.clone(),
        Some(VrfPlace::Device { .. }) | None => String::new(),
    };
    let vrf = table.map(|vrf| vrf.name.clone()).unwrap_or_default();
    (!peers.is_empty()).then(|| api::Table { vrf, netns, ports: ports.into_iter().collect() })
}
