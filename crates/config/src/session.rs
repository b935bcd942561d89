//! What of a peer only another session can change: the rows of its keys say which ([`Effect::Session`]).

use std::fmt::Write;

use serde_json::{Map, Value};

use crate::{
    describe::{Effect, Table},
    keys,
    schema::{Peer, Trust},
};

/// The values of those keys, as text: where two peers have the same, what one has agreed on with its neighbour is good for
/// the other. What is not said is left out, and so is a key that is `false` or an
/// empty list: other builds do not know it.
pub fn session(peer: &Peer) -> String {
    let mut text = String::new();
    let values = values(peer);
    written(&keys::PEER, "", &values, &mut text);
    if let Some(Value::Object(values)) = values.get("add-path") {
        written(&keys::ADD_PATH, "add-path.", values, &mut text);
    }
    if let Some(Value::Object(values)) = values.get("bgpsec").filter(|_| peer.bgpsec.is_on()) {
        written(&keys::BGPSEC, "bgpsec.", values, &mut text);
    }
    text
}

fn written(table: &Table, above: &str, values: &Map<String, Value>, text: &mut String) {
    for key in table.keys.iter().filter(|key| key.effect == Effect::Session) {
        match values.get(key.name) {
            None | Some(Value::Null | Value::Bool(false)) => {}
            Some(Value::Array(none)) if none.is_empty() => {}
            // Writing to a text does not fail.
            Some(value) => _ = write!(text, "{above}{}={value};", key.name),
        }
    }
}

/// What a peer says, by the names of its keys.
fn values(peer: &Peer) -> Map<String, Value> {
    let Ok(Value::Object(mut values)) = serde_json::to_value(peer) else { return Map::new() };
    values.insert("hold-time".into(), peer.hold_time.as_secs().into());
    if peer.paths.local_asn.is_none() {
        values.remove("local-asn-mode");
    }
    // What a session agrees on is that there may be several; which of them is ours to say.
    if let Some(send) = values.get_mut("add-path").and_then(|paths| paths.get_mut("send"))
        && !send.is_null()
    {
        *send = "several".into();
    }
    let Trust { authorities, name, pins, raw_public_key, revocations } = &peer.trust;
    let files =
        |files: &[crate::schema::DerFile]| files.iter().map(|file| file.file.clone()).collect::<Value>();
    values.insert("tls-authorities".into(), files(authorities));
    values.insert("tls-name".into(), name.clone().into());
    values.insert("tls-pins".into(), pins.iter().map(|pin| format!("{pin:?}")).collect());
    values.insert("tls-raw-public-key".into(), (*raw_public_key).into());
    values.insert("tls-revocations".into(), files(revocations));
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Schema, describe::Key};

    const FILE: &str = r#"
        [router]
        id = "10.0.0.1"
        asn = 65000
        [[vrf]]
        name = "blue"
        table = 7
        [tls]
        key = "k.pem"
        certificate = "c.pem"
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
        role-strict = true
        add-path = { receive = true, send = 2 }
        bgpsec = { send = true, receive = true, families = ["ipv4"], require-session = true, pcount-zero = true, repeated-prefix = true }
        [[bgp.peer]]
        name = "b"
        address = "2001:db8::2"
        asn = 65002
        families = ["ipv4-unicast", "ipv6-unicast"]
        next-hop-ipv4 = "10.0.0.1"
        route-server-client = true
        own-view = true
        [[bgp.peer]]
        name = "e"
        address = "2001:db8::3"
        asn = 65005
        transport = "tls"
        tls-authorities = "ca.pem"
        tls-name = "r5"
        [[bgp.peer]]
        name = "f"
        address = "2001:db8::4"
        asn = 65006
        transport = "tls"
        tls-pins = "2b056c8d00112233445566778899aabbccddeeff00112233445566778899aabb"
        tls-raw-public-key = true
        [[bgp.peer]]
        name = "c"
        interface = "eth0"
        asn = 65000
        route-reflector-client = true
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
    fn every_row_that_ends_a_session_is_in_the_text_of_a_peer_that_says_it() {
        let texts: String = peers().iter().map(session).collect();
        let rows = |table: &'static Table, of: &'static str| {
            let ends = |key: &&Key| key.effect == Effect::Session;
            table.keys.iter().filter(ends).map(move |key| format!("{of}{}=", key.name))
        };
        let tables = rows(&keys::ADD_PATH, "add-path.").chain(rows(&keys::BGPSEC, "bgpsec."));
        let wanted: Vec<_> = rows(&keys::PEER, "").chain(tables).collect();
        assert!(wanted.len() > 15, "{wanted:?}");
        for key in wanted {
            assert!(texts.starts_with(&key) || texts.contains(&format!(";{key}")), "{key} {texts}");
        }
    }

    #[test]
    fn a_process_of_another_build_has_the_same_text() {
        let expected = "listen-range=\"10.1.0.0/16\";";
        let text = peers().last().map(session).expect("a peer");
        assert!(text.starts_with(expected) && text.contains(";hold-time=90;"), "{text}");
        assert!(!text.contains("name") && !text.contains("md5"), "{text}");
    }
}
