//! What `transport` is told of a peer besides its address, and of admission.

use holdfast_api::transport::v1 as api;
use holdfast_config::{
    Config,
    schema::{AdmissionSet, Bgp, DerFile, Peer, Rate, Retry, Transport, Trust, Vrf},
};

use super::{is_in, seconds};

/// QUIC waits so much longer for a sign of life than BGP does, in seconds: it is BGP that gives up, and says so.
const BEYOND_HOLD_TIME: u32 = 30;
/// How long it waits where BGP waits for ever: a day.
const WITHOUT_HOLD_TIME: u32 = 86_400;

/// Adds to a peer what it may use, and what it has to prove.
pub(super) fn complete(told: &mut api::Peer, peer: &Peer) {
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
pub(super) fn complete_all(told: &mut api::Configuration, config: &Config, table: Option<&Vrf>) {
    let certificates = config.tls.iter().filter_map(|tls| tls.certificate.as_ref());
    let uses = |bgp: &Bgp, transport| {
        let mut peers = bgp.peers.iter().filter(|peer| is_in(peer.vrf.as_ref(), table));
        peers.any(|peer| peer.transports.contains(&transport))
    };
    let port = |transport, port: fn(&Bgp) -> Option<u16>| {
        let bgp = config.bgp.as_ref().filter(|bgp| uses(bgp, transport));
        bgp.and_then(port).unwrap_or(0).into()
    };
    told.quic_port = port(Transport::Quic, |bgp| Some(bgp.quic_port));
    told.quic_s2n_port = port(Transport::QuicS2n, |bgp| bgp.quic_s2n_port);
    told.certificates = certificates.flat_map(|file| file.contents.iter().cloned()).collect();
    told.admission = Some(admission(config));
}

pub(super) fn protocol(transport: Transport) -> api::Protocol {
    match transport {
        Transport::Tcp => api::Protocol::Tcp,
        Transport::Tls => api::Protocol::Tls,
        Transport::Quic => api::Protocol::Quic,
        Transport::QuicS2n => api::Protocol::QuicS2n,
    }
}

pub(super) fn trust(trust: &Trust) -> api::Trust {
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

/// Networks of all sets, whose members are heard without being peers.
pub(super) fn heard(config: &Config) -> Vec<String> {
    config.admission.sets.iter().flat_map(|set| &set.prefixes).map(ToString::to_string).collect()
}

/// Whether keys have to outlive `transport`: those of QUIC do.
pub(super) fn needs_seeds(config: &Config) -> bool {
    let mut peers = config.bgp.iter().flat_map(|bgp| &bgp.peers);
    peers.any(|peer| peer.transports.iter().any(|transport| transport.is_quic()))
}

#[cfg(test)]
mod tests {
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
