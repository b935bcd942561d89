//! What of a peer only another session can change: the rows of its keys say which ([`Effect::Session`]).

use std::fmt::{Debug, Write};

use crate::{
    describe::Effect,
    keys,
    schema::{GracefulRestart, LocalAsn, Orf, PathRules, Peer, Remote, SendPaths, Transport, Trust},
};

/// The values of those keys, as text: where two peers have the same, what one has agreed on with its neighbour is good for
/// the other. A process of another build may compare them, so a key that is new is left out where it has its default.
pub fn session(peer: &Peer) -> String {
    let mut text = String::new();
    each(peer, &mut |key, value| {
        if ends_session(key) {
            // Writing to a text does not fail.
            let _ = write!(text, "{key}={value:?};");
        }
    });
    text
}

/// Whether a change of the key of this name ends the session, a key of a table below with the name of that.
fn ends_session(name: &str) -> bool {
    let row = match name.split_once('.') {
        Some((_, key)) => keys::ADD_PATH.key(key),
        None => keys::PEER.key(name),
    };
    row.is_some_and(|row| row.effect == Effect::Session)
}

/// Every key of a peer that has a value, with its value.
fn each(peer: &Peer, put: &mut dyn FnMut(&'static str, &dyn Debug)) {
    let Peer {
        name,
        description,
        vrf,
        remote,
        local_address,
        port,
        quic_port,
        asn,
        passive,
        families,
        import,
        export,
        transports,
        trust,
        md5,
        ttl_security,
        multihop,
        hold_time,
        connect_retry,
        enforce_first_as,
        next_hop_ipv4,
        next_hop_ipv6,
        paths,
        max_octets,
        max_cost,
        nonstop,
        damping,
        disabled,
        group,
        limits,
        shutdown_text,
        graceful_restart,
        restart_time,
        long_lived_stale_time,
        stale_time,
        receive_paths,
        send_paths,
        orf,
        orf_prefix_set,
    } = peer;
    put("name", name);
    some(put, "description", description);
    some(put, "vrf", vrf);
    place(remote, put);
    some(put, "local-address", local_address);
    put("port", port);
    some(put, "quic-port", quic_port);
    put("asn", asn);
    put("passive", passive);
    put("families", families);
    some(put, "import", import);
    some(put, "export", export);
    put("transport", &transports.iter().map(|transport: &Transport| transport.name()).collect::<Vec<_>>());
    proofs(trust, put);
    some(put, "md5", md5);
    put("ttl-security", ttl_security);
    some(put, "multihop", multihop);
    put("hold-time", &hold_time.as_secs());
    put("connect-retry", &connect_retry.as_secs());
    put("enforce-first-as", enforce_first_as);
    some(put, "next-hop-ipv4", next_hop_ipv4);
    some(put, "next-hop-ipv6", next_hop_ipv6);
    path_rules(paths, put);
    put("max-octets", max_octets);
    some(put, "max-cost", max_cost);
    put("nonstop", nonstop);
    put("damping", damping);
    put("disabled", disabled);
    some(put, "group", group);
    put("limit", limits);
    some(put, "shutdown-text", shutdown_text);
    put("graceful-restart", &GracefulRestart::name(*graceful_restart));
    put("restart-time", &restart_time.as_secs());
    put("long-lived-stale-time", &long_lived_stale_time.as_secs());
    put("stale-time", &stale_time.as_secs());
    put("add-path.receive", receive_paths);
    // What a session agrees on is that there may be several; which of them is ours to say.
    some(put, "add-path.send", &send_paths.map(several));
    put("orf", &Orf::name(*orf));
    some(put, "orf-prefix-set", orf_prefix_set);
}

fn several(paths: SendPaths) -> &'static str {
    match paths {
        SendPaths::All | SendPaths::Best(_) => "several",
    }
}

fn some<T: Debug>(put: &mut dyn FnMut(&'static str, &dyn Debug), key: &'static str, value: &Option<T>) {
    if let Some(value) = value {
        put(key, value);
    }
}

fn place(remote: &Remote, put: &mut dyn FnMut(&'static str, &dyn Debug)) {
    match remote {
        Remote::Address(address) => put("address", address),
        Remote::LinkLocal(address, interface) => {
            put("address", address);
            put("interface", interface);
        }
        Remote::Interface(interface) => put("interface", interface),
        Remote::Range(prefix) => put("listen-range", prefix),
    }
}

fn proofs(trust: &Trust, put: &mut dyn FnMut(&'static str, &dyn Debug)) {
    let Trust { authorities, name, pins, raw_public_key, revocations } = trust;
    put("tls-authorities", authorities);
    some(put, "tls-name", name);
    put("tls-pins", pins);
    put("tls-raw-public-key", raw_public_key);
    put("tls-revocations", revocations);
}

fn path_rules(rules: &PathRules, put: &mut dyn FnMut(&'static str, &dyn Debug)) {
    let PathRules {
        route_reflector_client,
        route_server_client,
        next_hop,
        local_asn,
        allow_own_asn,
        remove_private_asns,
        as_override,
        role,
        role_strict,
        graceful_shutdown,
        blackhole,
        own_view,
        default_originate,
        origin_validation,
        accept_validity,
        announce_validity,
    } = rules;
    put("route-reflector-client", route_reflector_client);
    put("route-server-client", route_server_client);
    put("next-hop", next_hop);
    if let Some(LocalAsn { asn, mode }) = local_asn {
        put("local-asn", asn);
        put("local-asn-mode", mode);
    }
    put("allow-own-asn", allow_own_asn);
    put("remove-private-asns", remove_private_asns);
    put("as-override", as_override);
    some(put, "role", role);
    put("role-strict", role_strict);
    put("graceful-shutdown", graceful_shutdown);
    put("blackhole", blackhole);
    put("own-view", own_view);
    put("default-originate", default_originate);
    put("origin-validation", origin_validation);
    put("accept-validity", accept_validity);
    put("announce-validity", announce_validity);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{Schema, describe::Key};

    const FILE: &str = r#"
        [router]
        id = "10.0.0.1"
        asn = 65000
        [[vrf]]
        name = "blue"
        table = 7
        [bgp]
        [[bgp.peer]]
        name = "a"
        vrf = "blue"
        address = "10.0.1.2"
        local-address = "10.0.1.1"
        asn = 65001
        families = ["ipv4-unicast", "ipv6-unicast"]
        next-hop-ipv6 = "2001:db8::1"
        local-asn = 65009
        role = "provider"
        add-path = { receive = true, send = 2 }
        [[bgp.peer]]
        name = "b"
        address = "2001:db8::2"
        asn = 65002
        families = ["ipv4-unicast", "ipv6-unicast"]
        next-hop-ipv4 = "10.0.0.1"
        [[bgp.peer]]
        name = "c"
        interface = "eth0"
        asn = 65003
        [[bgp.peer]]
        name = "d"
        listen-range = "10.1.0.0/16"
        asn = 65004
    "#;

    fn peers() -> Vec<Peer> {
        let config = crate::parse(FILE, "test", Schema::new([])).expect("no errors");
        config.bgp.expect("there is").peers
    }

    #[test]
    fn the_rows_say_what_is_in_the_text_and_every_row_that_does_is_in_one() {
        let mut seen = BTreeSet::new();
        for peer in peers() {
            each(&peer, &mut |key, _| _ = seen.insert(key));
        }
        let rows = |table: &'static crate::describe::Table, of: &'static str| {
            let ends = |key: &&Key| key.effect == Effect::Session;
            table.keys.iter().filter(ends).map(move |key| format!("{of}{}", key.name))
        };
        let wanted: Vec<_> = rows(&keys::PEER, "").chain(rows(&keys::ADD_PATH, "add-path.")).collect();
        assert!(wanted.len() > 15, "{wanted:?}");
        for key in wanted {
            assert!(seen.contains(key.as_str()), "{key}");
        }
        for key in seen {
            let is_known = match key.split_once('.') {
                Some((_, key)) => keys::ADD_PATH.key(key).is_some(),
                None => keys::PEER.key(key).is_some(),
            };
            assert!(is_known, "{key}");
        }
    }

    #[test]
    fn a_process_of_another_build_has_the_same_text() {
        let expected = "listen-range=10.1.0.0/16;";
        let text = peers().last().map(session).expect("a peer");
        assert!(text.starts_with(expected) && text.contains(";hold-time=90;"), "{text}");
        assert!(!text.contains("name") && !text.contains("md5"), "{text}");
    }
}
