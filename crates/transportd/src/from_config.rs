//! What the process reads of the configuration.

use holdfast_api::{
    socket::v1 as socket_api,
    transport::v1::{self as api, TransportClient},
};
use holdfast_config::{
    Config,
    schema::{AdmissionSet, Bgp, Cache, DerFile, Peer, Rate, Retry, Store, Transport, Trust, Vrf},
};
use holdfast_process::{ConfigReader, ConfigureRequest, Secrets, seconds};
use holdfast_sockets::settings;

/// QUIC waits so much longer for a sign of life than BGP does, in seconds: it is BGP that gives up, and says so.
const BEYOND_HOLD_TIME: u32 = 30;
/// How long it waits where BGP waits for ever: a day.
const WITHOUT_HOLD_TIME: u32 = 86_400;

pub(crate) const READER: ConfigReader = ConfigReader {
    is_wanted: |config| {
        let answers = config.metrics.is_some() || config.glass.is_some() || !config.xrl.listen.is_empty();
        config.bgp.is_some() || answers || !config.rpki.caches.is_empty() || config.store.is_some()
    },
    requests: |config, table, _| {
        Ok(vec![ConfigureRequest {
            opens: true,
            names_vrfs: table.is_none(),
            secrets: Some(secrets(config)),
            ..ConfigureRequest::new::<TransportClient>(&configuration(config, table))
        }])
    },
    ..ConfigReader::NOTHING
};

fn secrets(config: &Config) -> Secrets {
    let tls = config.tls.as_ref();
    let mut peers = config.bgp.iter().flat_map(|bgp| &bgp.peers);
    let private_key = tls.map(|tls| tls.key.contents.to_vec()).unwrap_or_default();
    // The manager adds the rest, which is not in the configuration.
    let told = api::Secrets { private_key, ..api::Secrets::default() };
    Secrets {
        key_log: tls.and_then(|tls| tls.key_log.clone()),
        // Keys of QUIC have to outlive the process.
        seeds: peers.any(|peer| peer.transports.iter().any(|transport| transport.is_quic())),
        ..Secrets::new(TransportClient::KEEP, &told)
    }
}

fn configuration(config: &Config, table: Option<&Vrf>) -> api::Configuration {
    let peers = config.peers(table).map(|peer| self::peer(peer, config));
    let mut told = api::Configuration {
        peers: peers
            .chain(config.caches(table).iter().map(cache))
            .chain(config.store_servers(table).into_iter().flat_map(store))
            .collect(),
        listen: settings::listen(config, table).into_iter().map(settings::of_transport).collect(),
        vrfs: config.vrf_names(table),
        ..api::Configuration::default()
    };
    complete_all(&mut told, config, table);
    told
}

/// The key of its TCP segments is for whoever opens sockets only.
fn addressed(socket: socket_api::Peer) -> api::Peer {
    api::Peer {
        name: socket.name,
        address: socket.address,
        is_range: socket.is_range,
        range_length: socket.range_length,
        port: socket.port,
        local_address: socket.local_address,
        interface: socket.interface,
        ttl_security: socket.ttl_security,
        ttl: socket.ttl,
        ..api::Peer::default()
    }
}

fn peer(peer: &Peer, config: &Config) -> api::Peer {
    let mut told = addressed(settings::peer(peer, config));
    complete(&mut told, peer);
    told
}

/// A cache, which `rpki` is connected with and nobody else.
fn cache(cache: &Cache) -> api::Peer {
    api::Peer {
        transports: vec![protocol(cache.transport).into()],
        trust: cache.transport.proves().then(|| trust(&cache.trust)),
        role: "rpki".into(),
        ..addressed(settings::cache(cache))
    }
}

/// The servers of a store, which `replicator` is connected with and nobody else.
fn store(store: &Store) -> impl Iterator<Item = api::Peer> {
    settings::store(store).map(|socket| api::Peer {
        transports: vec![protocol(store.transport).into()],
        trust: store.transport.proves().then(|| trust(&store.trust)),
        role: "replicator".into(),
        ..addressed(socket)
    })
}

/// Adds to a peer what it may use, and what it has to prove.
fn complete(told: &mut api::Peer, peer: &Peer) {
    let proves = peer.transports.iter().any(|transport| transport.proves());
    told.transports = peer.transports.iter().map(|transport| protocol(*transport).into()).collect();
    told.trust = proves.then(|| trust(&peer.trust));
    told.quic_port = peer.rules.quic_port.map_or(0, u32::from);
    told.disabled = peer.rules.disabled;
    told.idle_seconds = match seconds(peer.hold_time) {
        0 => WITHOUT_HOLD_TIME,
        hold_time => hold_time + BEYOND_HOLD_TIME,
    };
}

/// Adds to what holds for a table what is not about single peers.
fn complete_all(told: &mut api::Configuration, config: &Config, table: Option<&Vrf>) {
    let certificates = config.tls.iter().filter_map(|tls| tls.certificate.as_ref());
    let port = |transport, port: fn(&Bgp) -> Option<u16>| {
        let is_used = config.peers(table).any(|peer| peer.transports.contains(&transport));
        config.bgp.as_ref().filter(|_| is_used).and_then(port).unwrap_or(0).into()
    };
    told.quic_port = port(Transport::Quic, |bgp| Some(bgp.quic_port));
    told.quic_s2n_port = port(Transport::QuicS2n, |bgp| bgp.quic_s2n_port);
    told.certificates = certificates.flat_map(|file| file.contents.iter().cloned()).collect();
    told.admission = Some(admission(config));
}

fn protocol(transport: Transport) -> api::Protocol {
    match transport {
        Transport::Tcp => api::Protocol::Tcp,
        Transport::Tls => api::Protocol::Tls,
        Transport::Quic => api::Protocol::Quic,
        Transport::QuicS2n => api::Protocol::QuicS2n,
    }
}

fn trust(trust: &Trust) -> api::Trust {
    let ders = |files: &[DerFile]| files.iter().flat_map(|file| file.contents.iter().cloned()).collect();
    api::Trust {
        authorities: ders(&trust.authorities),
        name: trust.name.clone().unwrap_or_default(),
        pins: trust.pins.iter().map(|pin| pin.0.to_vec()).collect(),
        raw_public_key: trust.raw_public_key,
        revocations: ders(&trust.revocations),
        present_raw_public_key: trust.raw_public_key,
    }
}

fn admission(config: &Config) -> api::Admission {
    let admission = &config.admission;
    let rate = |rate: Rate| Some(api::Rate { per_second: rate.per_second, burst: rate.burst });
    let set = |set: &AdmissionSet| api::PrefixSet {
        name: set.name.clone(),
        prefixes: set.prefixes.iter().map(ToString::to_string).collect(),
    };
    let retry = match admission.retry {
        Retry::UnderLoad => api::Retry::Unspecified,
        Retry::Always => api::Retry::Always,
        Retry::Never => api::Retry::Never,
    };
    api::Admission {
        sets: admission.sets.iter().map(set).collect(),
        retry: retry.into(),
        load_handshakes: admission.load_handshakes,
        load_attempts: admission.load_attempts,
        unvalidated: rate(admission.unvalidated),
        by_address: rate(admission.by_address),
        most_handshakes: admission.most_handshakes,
        priority_alpn: admission.priority_alpn.clone(),
        log_per_second: admission.log_per_second,
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    const PIN: &str = "2b056c8d00112233445566778899aabbccddeeff00112233445566778899aabb";

    fn config(bgp: &str) -> Config {
        let text = format!(
            "[router]\nid = \"10.0.0.1\"\nasn = 65000\n[tls]\nkey = \"key.pem\"\ncertificate = \"c.pem\"\n{bgp}"
        );
        let read = |file: &str, _: holdfast_config::Holds<'_>| Ok(vec![file.as_bytes().to_vec()]);
        holdfast_config::parse_with(&text, "test", holdfast_config::Schema::new([]), &read)
            .unwrap_or_else(|wrong| panic!("{wrong}"))
    }

    fn peer(rest: &str) -> (api::Peer, api::Configuration) {
        let config = config(&format!(
            "[bgp]\nquic-s2n-port = 1179\n[[vrf]]\nname = \"blue\"\ntable = 7\n\
             [[bgp.peer]]\nname = \"a\"\naddress = \"10.0.1.2\"\nasn = 65001\n{rest}"
        ));
        let (mut told, mut all) = Default::default();
        complete(&mut told, &config.bgp.as_ref().expect("[bgp]").peers[0]);
        complete_all(&mut all, &config, None);
        (told, all)
    }

    #[test]
    fn secrets_are_those_of_the_router_and_seeds_are_for_quic() {
        let of = |bgp: &str| secrets(&config(bgp));
        let none = of("");
        let told = api::Secrets::decode(&*none.octets).expect("a message");
        assert_eq!((told.private_key.as_slice(), none.seeds), (b"key.pem".as_slice(), false));
        let peer = "[bgp]\n[[bgp.peer]]\nname = \"a\"\naddress = \"10.0.1.2\"\nasn = 65001\n";
        let over =
            |transport: &str| of(&format!("{peer}transport = \"{transport}\"\ntls-pins = \"{PIN}\"\n"));
        assert!(!over("tls").seeds && over("quic").seeds);
    }

    #[test]
    fn a_peer_without_transport_has_tcp_and_nothing_to_prove_and_nobody_listens_on_udp() {
        let (told, all) = peer("");
        assert_eq!(told.transports().collect::<Vec<_>>(), [api::Protocol::Tcp]);
        assert_eq!((told.trust, told.idle_seconds), (None, 120));
        assert_eq!((all.quic_port, all.quic_s2n_port), (0, 0));
        let admission = all.admission.expect("numbers");
        assert_eq!((admission.load_handshakes, admission.most_handshakes), (64, 1024));
        assert_eq!(admission.by_address, Some(api::Rate { per_second: 20, burst: 40 }));
    }

    #[test]
    fn transports_keep_their_order_and_files_become_what_they_hold() {
        let (told, all) = peer(
            "transport = [\"quic\", \"tls\"]\nhold-time = 0\ntls-name = \"r2.example\"\n\
             tls-authorities = [\"ca.pem\", \"old.pem\"]\ntls-revocations = \"crl.pem\"\n",
        );
        assert_eq!(told.transports().collect::<Vec<_>>(), [api::Protocol::Quic, api::Protocol::Tls]);
        let trust = told.trust.expect("a trust");
        assert_eq!(trust.authorities, [b"ca.pem".to_vec(), b"old.pem".to_vec()]);
        assert_eq!((trust.revocations, trust.name.as_str()), (vec![b"crl.pem".to_vec()], "r2.example"));
        assert_eq!((told.idle_seconds, all.quic_port, all.quic_s2n_port), (86_400, 179, 0));
        assert_eq!(all.certificates, [b"c.pem".to_vec()]);
    }

    #[test]
    fn bare_keys_are_shown_by_both_ends() {
        let pinned = format!("transport = \"quic-s2n\"\ntls-raw-public-key = true\ntls-pins = \"{PIN}\"\n");
        let (told, all) = peer(&pinned);
        let trust = told.trust.expect("a trust");
        assert!(trust.raw_public_key && trust.present_raw_public_key);
        assert_eq!((trust.pins.len(), trust.pins[0][..3].to_vec()), (1, vec![0x2b, 0x05, 0x6c]));
        assert_eq!((all.quic_port, all.quic_s2n_port), (0, 1179));
    }

    #[test]
    fn udp_is_listened_on_in_the_tables_whose_peers_use_it() {
        let (_, all) = peer(&format!("vrf = \"blue\"\ntransport = \"quic\"\ntls-pins = \"{PIN}\"\n"));
        assert_eq!((all.quic_port, all.quic_s2n_port), (0, 0), "it is in another table");
    }
}
