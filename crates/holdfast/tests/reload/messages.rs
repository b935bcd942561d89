//! Who is told what, in which order.

use holdfast_api::{
    bgp::v1::BgpClient, fea::v1::FeaClient, rib::v1::RibClient, socket::v1::SocketClient,
    transport::v1::TransportClient,
};
use holdfast_config::{Config, Holds, Schema, parse_with};
use holdfast_manager::{Message, Plan};

use super::fixtures::{FILE, changes, config, ending, plan, refit, secure, told, with_vrfs};

const NOTHING: &str = "[router]\nid = \"10.0.0.9\"\nasn = 65009\n[rib]\nenabled = true\n[bgp]\nport = 1790\n";

#[test]
fn keys_of_quic_are_kept_as_soon_as_somebody_uses_it() {
    let (old, new) = (secure(&[], ""), secure(&[("\"tls\"", "\"quic\"")], ""));
    assert_eq!(told(&old, &new).0, ["secrets", "transport"]);
}

#[test]
fn what_is_kept_is_in_use_with_the_reload_that_brings_it() {
    let logging = secure(&[("[bgp]", "key-log = \"secrets.log\"\n[bgp]")], "");
    for (old, new) in [(secure(&[], ""), logging.clone()), (logging, secure(&[], ""))] {
        assert_eq!(told(&old, &new), (["secrets", "transport"].map(str::to_owned).to_vec(), Vec::new()));
    }
}

/// A router that signs, with these keys of two octets.
fn signing(keys: &[(&str, u8)], rest: &str) -> Config {
    let entries = keys.iter().map(|(file, _)| format!("{{ asn = 65000, file = \"{file}\" }}"));
    let entries = entries.collect::<Vec<_>>().join(", ");
    let text = FILE.replace("asn = 65002", "asn = 65002\nbgpsec = { send = true }");
    let text = format!("[bgpsec]\nkeys = [{entries}]\n{rest}{text}");
    let read = |name: &str, _: Holds<'_>| {
        let (_, octet) = keys.iter().find(|(file, _)| *file == name).expect("one of them");
        Ok(vec![vec![*octet; 2], name.as_bytes().to_vec()])
    };
    parse_with(&text, "test", Schema::new([]), &read).unwrap_or_else(|wrong| panic!("{wrong}"))
}

#[test]
fn other_private_keys_are_told_to_who_signs_and_to_nobody_else() {
    let base = || signing(&[("a", 1), ("b", 2)], "");
    let pathsec = (Vec::new(), vec!["secrets".to_owned(), "pathsec".to_owned()]);
    for (new, line) in [
        (signing(&[("a", 1), ("b", 3)], ""), "private keys changed: b"),
        (signing(&[("b", 2), ("a", 1)], ""), "order of private keys changed"),
        (signing(&[("a", 1)], ""), "private keys removed: b"),
    ] {
        assert_eq!((told(&base(), &new), changes(&base(), &new)), (pathsec.clone(), vec![line.to_owned()]));
        assert!(ending(&base(), &new).is_empty(), "{line}");
    }
    let others = signing(&[("a", 1), ("b", 2)], "signing-rate = 7\n");
    assert_eq!(told(&base(), &others), (Vec::new(), vec!["bgp".to_owned()]));
    assert_eq!(changes(&base(), &others), ["[bgpsec] changed"]);
    assert!(ending(&base(), &others).is_empty());
}

#[test]
fn private_keys_are_in_no_message() {
    let config = signing(&[("a", 0xa7)], "");
    let nothing = holdfast_config::parse(NOTHING, "test", Schema::new([])).expect("no errors");
    let Plan { first, then, .. } = plan(&nothing, &config);
    let messages: Vec<_> = first.into_iter().chain(then).collect();
    let has = |octets: &[u8]| octets.windows(2).any(|pair| pair == [0xa7; 2]);
    assert!(messages.iter().all(|(_, message)| !has(&message.request.octets)));
    let secret = messages
        .iter()
        .filter(|(_, message)| message.request.secrets.as_ref().is_some_and(|secrets| has(&secrets.octets)));
    assert_eq!(secret.map(|(name, _)| *name).collect::<Vec<_>>(), ["pathsec"]);
    let shown = format!("{config:?}{messages:?}");
    assert!(!shown.contains("167, 167"), "{shown}");
}

#[test]
fn what_is_in_a_vrf_is_told_to_its_instances_only() {
    let config = with_vrfs(&[]);
    const NAMES: [&str; 4] = ["fea", "rib", "transport", "bgp"];
    let nothing = holdfast_config::parse(NOTHING, "test", Schema::new([])).expect("no errors");
    let Plan { first, then, .. } = plan(&nothing, &config);
    let mut found = Vec::new();
    let messages = first.into_iter().chain(then).filter(|(name, _)| NAMES.contains(name));
    for Message { vrf, request } in messages.map(|(_, message)| message) {
        let vrf = vrf.unwrap_or_default();
        if let Some(told) = request.read::<SocketClient>() {
            found.push(format!("socket@{vrf} {}", told.expect("readable").peers.len()));
        } else if let Some(told) = request.read::<TransportClient>() {
            let told = told.expect("readable");
            found.push(format!("transport@{vrf} {} {}", told.peers.len(), told.vrfs.join("+")));
        } else if let Some(told) = request.read::<FeaClient>() {
            let told = told.expect("readable");
            found.push(format!("fea@{vrf} {} {}", told.table, told.vrfs.len()));
        } else if let Some(told) = request.read::<RibClient>() {
            let told = told.expect("readable");
            found.push(format!("rib@{vrf} {} {}", told.statics.len(), told.vrfs.join("+")));
        } else if let Some(told) = request.read::<BgpClient>() {
            let told = told.expect("readable");
            found.push(format!("bgp@{vrf} {} {}", told.peers.len(), told.vrfs.join("+")));
        } else {
            panic!("{request:?}");
        }
    }
    let expected = [
        "socket@ 2",
        "transport@ 2 blue+red",
        "fea@ 254 2",
        "socket@blue 1",
        "fea@blue 100 0",
        "socket@red 1",
        "fea@red 254 0",
        "rib@ 1 blue+red",
        "rib@blue 1 ",
        "rib@red 0 ",
        "transport@blue 1 ",
        "transport@red 1 ",
        "bgp@ 2 blue+red",
        "bgp@blue 1 ",
        "bgp@red 1 ",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_vrf_comes_and_goes_and_nobody_else_is_told_more_than_that() {
    let (none, both) = (config(&[]), with_vrfs(&[]));
    let come = ["fea", "socket@blue", "fea@blue", "socket@red", "fea@red", "rib", "rib@blue", "rib@red"];
    let come = come.into_iter().chain(["secrets@blue", "transport@blue", "secrets@red", "transport@red"]);
    let come = come.chain(["bgp", "bgp@blue", "bgp@red"]);
    let come = come.map(str::to_owned).collect();
    assert_eq!(told(&none, &both), (vec!["transport".into()], come));
    let gone = ["fea", "rib", "transport", "bgp"].map(str::to_owned).into();
    assert_eq!(told(&both, &none), (Vec::new(), gone));
    let (begin, end) = (ending(&none, &both), ending(&both, &none));
    assert_eq!((begin, end), (Vec::new(), vec!["c".to_owned(), "d".to_owned()]));
    let lines =
        ["VRFs added: blue, red", "static routes added: 192.0.2.0/24 in VRF blue", "peers added: c, d"];
    assert_eq!(changes(&none, &both), lines);
}

#[test]
fn a_change_in_a_vrf_is_told_there() {
    let old = with_vrfs(&[]);
    let other_key = with_vrfs(&[("asn = 65003", "asn = 65003\nmd5 = \"key\"")]);
    assert_eq!(refit(&old, &other_key), ["c"]);
    assert_eq!(told(&old, &other_key), (vec!["socket@blue".into()], vec!["bgp@blue".into()]));
    let other_table = with_vrfs(&[("table = 100", "table = 101")]);
    assert_eq!(told(&old, &other_table), (Vec::new(), vec!["fea".into(), "fea@blue".into()]));
    assert!(ending(&old, &other_table).is_empty());
    let other_vrf = with_vrfs(&[
        ("vrf = \"red\"", "vrf = \"blue\""),
        ("10.0.1.2\"\n    asn = 65004", "10.0.1.3\"\n    asn = 65004"),
    ]);
    assert_eq!(ending(&old, &other_vrf), ["d"]);
}

#[test]
fn a_vrf_that_moves_ends_before_it_begins() {
    let (old, new) = (with_vrfs(&[]), with_vrfs(&[("netns = \"red\"", "table = 9\ndevice = \"red\"")]));
    let then = [
        "fea",
        "rib",
        "transport",
        "bgp",
        "fea",
        "socket@red",
        "fea@red",
        "rib",
        "rib@red",
        "transport",
        "secrets@red",
        "transport@red",
        "bgp",
        "bgp@red",
    ];
    assert_eq!(told(&old, &new), (Vec::new(), then.map(str::to_owned).into()));
    assert_eq!(ending(&old, &new), ["d"]);
}

#[test]
fn a_vrf_that_moves_while_the_certificate_changes_is_told_of_no_earlier_one() {
    let with = |tls: &str, place: &str| {
        with_vrfs(&[
            ("netns = \"red\"", place),
            ("[bgp]\n", &format!("[tls]\nkey = \"{tls}.key\"\ncertificate = \"{tls}.pem\"\n[bgp]\n")),
        ])
    };
    let (old, new) = (with("a", "netns = \"red\""), with("b", "table = 9\ndevice = \"red\""));
    let Plan { first, then, .. } = plan(&old, &new);
    let told = first.iter().chain(&then).filter_map(|(_, message)| message.request.read::<TransportClient>());
    let told: Vec<_> = told.map(|told| told.expect("readable").certificates).collect();
    let certificate = new.tls.expect("[tls]").certificate.expect("a certificate").contents;
    assert!(!told.is_empty() && told.iter().all(|told| told[..] == certificate[..]));
}

#[test]
fn who_has_no_part_in_a_change_is_not_told() {
    let (old, new) = (config(&[]), config(&[("accept-all", "reject-all")]));
    assert_eq!(told(&old, &new), (Vec::new(), vec!["bgp".to_owned()]));
}
