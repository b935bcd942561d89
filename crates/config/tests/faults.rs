//! What is wrong is found, all of it, and shown where it is.

use holdfast_config::{
    Diagnostic,
    schema::{Moment, VrfPlace},
};
use proptest::prelude::*;

use super::{parse, schema};

const ROUTER: &str = "[router]\nid = \"10.0.0.1\"\nasn = 65001\n";
const TLS: &str = "[tls]\ncertificate = \"a.pem\"\nkey = \"a.key\"\n";
const PIN: &str = "tls-pins = \"2b056c8d00112233445566778899aabbccddeeff00112233445566778899aabb\"\n";
const PEER: &str = "[[bgp.peer]]\nname = \"a\"\naddress = \"10.1.0.2\"\nasn = 65101\n";

fn faults(text: &str) -> Vec<Diagnostic> {
    parse(text, "router.toml").err().map(|wrong| wrong.iter().cloned().collect()).unwrap_or_default()
}

/// The only fault of a router with this besides: the offending text, the message and the rest.
fn fault(rest: &str) -> (String, String) {
    let text = format!("{ROUTER}{rest}");
    let faults = faults(&text);
    assert_eq!(faults.len(), 1, "{text}\n{faults:#?}");
    let fault = &faults[0];
    let meant = fault.text.chars().skip(fault.column - 1).take(fault.width).collect();
    let [expected, hint] = [&fault.expected, &fault.hint]
        .map(|part| part.as_ref().map(|part| format!(" | {part}")).unwrap_or_default());
    (meant, format!("{}{expected}{hint}", fault.message))
}

#[test]
fn what_is_unique_is_so_in_each_vrf() {
    let peer = |name: &str, vrf: &str| PEER.replace("\"a\"", &format!("\"{name}\"")) + vrf;
    let text = format!(
        "{ROUTER}[[vrf]]\nname = \"blue\"\ntable = 7\n[[vrf]]\nname = \"red\"\nnetns = \"red\"\n{}{}{}",
        peer("a", ""),
        peer("b", "vrf = \"blue\"\n"),
        peer("c", "vrf = \"red\"\n"),
    );
    let config = parse(&text, "router.toml").expect("no errors");
    let places: Vec<_> = config.vrfs.into_iter().map(|vrf| vrf.place).collect();
    let device = VrfPlace::Device { name: "blue".into(), table: 7 };
    assert_eq!(places, [device, VrfPlace::Netns { name: "red".into(), table: 254 }]);
    let peers = config.bgp.expect("[bgp]").peers;
    let vrfs: Vec<_> = peers.iter().map(|peer| peer.vrf.as_deref()).collect();
    assert_eq!(vrfs, [None, Some("blue"), Some("red")]);
    assert!(peers.iter().all(|peer| peer.remote == peers[0].remote));
}

#[test]
fn more_vrfs_than_there_may_be_are_refused() {
    let vrf = |number: usize| format!("[[vrf]]\nname = \"v{number}\"\ntable = {}\n", 1000 + number);
    let file = |count: usize| format!("{ROUTER}{}", (0..count).map(vrf).collect::<String>());
    assert!(faults(&file(512)).is_empty());
    assert_eq!(fault(&file(513)[ROUTER.len()..]).1, "there are 513 VRFs | at most 512");
}

#[test]
fn every_check_points_at_its_text() {
    let peer = |rest: &str| format!("{PEER}{rest}");
    let group = |rest: &str| {
        let members =
            "group = \"g\"\n[[bgp.peer]]\nname = \"b\"\naddress = \"10.1.0.3\"\nasn = 65101\ngroup = \"g\"";
        format!("[[bgp.group]]\nname = \"g\"\n{rest}\n{PEER}{members}")
    };
    let on_link = |place: &str| format!("[[bgp.peer]]\nname = \"a\"\nasn = 65101\n{place}\n");
    let inside = |rest: &str| format!("{}{rest}", PEER.replace("65101", "65001"));
    let redistribution = |from: &str, before: &str| {
        format!("{before}[[bgp.redistribute]]\nfrom = \"{from}\"\npolicy = \"accept-all\"")
    };
    let term = |from: &str| {
        format!("[[policy]]\nname = \"p\"\n[[policy.term]]\nfrom = {{ {from} }}\nthen = \"accept\"")
    };
    let then = |then: &str| format!("[[policy]]\nname = \"p\"\n[[policy.term]]\nthen = {{ {then} }}");
    let vrf = |rest: &str| format!("[[vrf]]\nname = \"blue\"\n{rest}\n");
    let two_vrfs = |name: &str, first: &str, second: &str| {
        format!("{}[[vrf]]\nname = \"{name}\"\n{second}\n", vrf(first))
    };
    let in_vrf = |table: &str, rest: &str| format!("[[{table}]]\nvrf = \"blue\"\n{rest}\n");
    let secure = |rest: &str| format!("{TLS}{}", peer(&format!("transport = \"tls\"\n{rest}")));
    let quic = |rest: &str| format!("{TLS}{}", peer(&format!("transport = \"quic\"\n{PIN}{rest}")));
    let table: &[(String, &str, &str)] = &[
        // Transports, and what proves peers.
        (peer("transport = \"quick\""), "\"quick\"", "`quick` is no transport | \"tcp\", \"tls\", \"quic\" or \"quic-s2n\" | did you mean `quic`?"),
        (peer("transport = []"), "[]", "no transport is left"),
        (peer("transport = [\"tcp\", \"tcp\"]"), "\"tcp\"", "transport `tcp` is already on line"),
        (peer(&format!("transport = \"tls\"\n{PIN}")), "\"tls\"", "nothing that we could show the neighbour over `tls` | [tls] with `certificate`"),
        (secure(""), "\"tls\"", "nothing proves who the neighbour is over `tls` | `tls-authorities` with `tls-name`, or `tls-pins`"),
        (secure("tls-pins = []\ntls-authorities = []"), "\"tls\"", "nothing proves who the neighbour is"),
        (secure("tls-pins = \"2b:05\""), "\"2b:05\"", "`2b:05` is no fingerprint | 32 octets in hexadecimal"),
        (secure("tls-authorities = \"\"\ntls-pins = []"), "\"\"", "`` is no name of a file"),
        (secure(&format!("{PIN}tls-name = \"r2.example\"")), "\"r2.example\"", "`tls-name` has no effect without `tls-authorities`"),
        (secure("tls-authorities = \"ca.pem\"\ntls-name = \"*.example\""), "\"*.example\"", "no name of a host | a DNS name"),
        (secure("tls-authorities = \"ca.pem\"\ntls-raw-public-key = true"), "true", "a bare key proves nothing unless it is known"),
        (secure(&format!("{PIN}tls-raw-public-key = true\ntls-authorities = \"ca.pem\"")), "\"ca.pem\"", "`tls-authorities` has no effect on a bare key"),
        (peer("tls-name = \"r2.example\""), "\"r2.example\"", "`tls-name` has no effect over `tcp`, which proves nothing | add `transport = \"tls\"`"),
        (peer("tls-raw-public-key = true"), "true", "`tls-raw-public-key` has no effect over `tcp`"),
        (format!("{TLS}[[bgp.peer]]\nname = \"a\"\nlisten-range = \"10.0.0.0/8\"\nasn = \"any\"\ntransport = \"tls\"\ntls-authorities = \"ca.pem\"\ntls-name = \"r2.example\""), "\"r2.example\"", "its neighbours have a name each | remove it"),
        (quic("md5 = \"secret\""), "********", "none over QUIC | remove it"),
        (quic("").replace("\"quic\"", "\"quic-s2n\""), "\"quic-s2n\"", "no port to listen on | add `quic-s2n-port = 1179` to [bgp]"),
        (format!("{TLS}{}", on_link(&format!("interface = \"eth1\"\ntransport = \"quic\"\n{PIN}"))), "\"quic\"", "link-local addresses is not there yet | use `\"tls\"`"),
        ("[bgp]\nquic-s2n-port = 179".into(), "179", "UDP port 179 is that of `quic` already | another port"),
        ("[tls]\ncertificate = \"a.pem\"".into(), "[tls]", "[tls] needs `key`"),
        (secure(PIN).replace("certificate = \"a.pem\"", ""), "\"tls\"", "no certificate that we could show the neighbour over `tls` | `certificate` in [tls], or"),
        ("[tls]\ncertificate = \"a.pem\"\nkey = \"tls/\"".into(), "\"tls/\"", "no name of a file"),
        ("[admission]\nretry = \"allways\"".into(), "\"allways\"", "did you mean `always`?"),
        ("[admission]\nload-handshakes = 2000".into(), "2000", "there are never more than 1024 | `load-handshakes` up to"),
        ("[admission]\nmost-handshakes = 10".into(), "10", "load begins at 64 handshakes under way"),
        ("[admission]\nmost-handshakes = 16385".into(), "16385", "1 to 16384"),
        ("[admission]\nby-address = { burst = 0 }".into(), "0", "1 to 10000000"),
        ("[admission]\npriority-alpn = \"\"".into(), "\"\"", "no name of a protocol"),
        ("[[admission.set]]\nname = \"a\"".into(), "[[admission.set]]", "needs `prefixes`"),
        ("[[admission.set]]\nname = \"a\"\nprefixes = \"10.0.0.1/8\"".into(), "\"10.0.0.1/8\"", "the prefix is 10.0.0.0/8"),
        // Keys and types.
        (peer("pasive = true"), "pasive", "did you mean `passive`?"),
        (peer("pasive = true"), "pasive", "unknown key `pasive` in [[bgp.peer]] | one of name, address, interface"),
        ("[bpg]".into(), "bpg", "did you mean `bgp`?"),
        (peer("passive = \"yes\""), "\"yes\"", "this is a text | true or false"),
        (peer("group = \"g\""), "\"g\"", "there is no group `g`"),
        (group("port = 0"), "0", "out of range | 1 to 65535"),
        (peer("bgpsec = { most-hops = 655 }"), "655", "`most-hops` is out of range | 1 to 654"),
        (peer("bgpsec = { most-hops = 70000 }"), "70000", "`most-hops` is out of range | 1 to 654"),
        (peer("bgpsec = { most-hops = -1 }"), "-1", "`most-hops` is out of range | 1 to 654"),
        (peer("bgpsec = { most-pcount = 70000 }"), "70000", "`most-pcount` is out of range | 1 to 16000"),
        (peer("bgpsec = { most-pcount = \"7\" }"), "\"7\"", "this is a text | a number from 1 to 16000"),
        (group("pasive = true"), "pasive", "unknown key `pasive` in [[bgp.group]]"),
        (group("listen-range = \"10.3.0.0/16\""), "\"10.3.0.0/16\"", "cannot be common to several peers"),
        (peer("limit = [{ family = \"ipv4-unicast\" }]"), "{ family = \"ipv4-unicast\" }", "limits nothing"),
        (peer("limit = [{ family = \"ipv4-unicast\", received = 0 }]"), "0", "1 to 4294967295"),
        (peer(&format!("shutdown-text = \"{}\"", "x".repeat(256))), "xxx", "256 octets | up to 255"),
        (peer("port = 0"), "0", "out of range | 1 to 65535"),
        (peer("port = 70000"), "70000", "out of range"),
        (peer("port = 99999999999999999999999999999999999999999999"), "9999", "out of range"),
        ("[fea]\nbackend = \"linus\"".into(), "\"linus\"", "\"linux\" or \"none\" | did you mean `linux`?"),
        ("[log]\nlevel = \"verbose\"".into(), "\"verbose\"", "no value for `level`"),
        ("[rib]\ndistance = 3".into(), "3", "`distance` is a number here | a table [rib.distance]"),
        ("[bgp]\npeer = 3".into(), "3", "`peer` is a number here | a table [[bgp.peer]] for each"),
        ("[rib.distance]\nospf = 110".into(), "ospf", "one of connected, static, ebgp, ibgp"),
        // VRFs.
        ("[[vrf]]\nname = \"blue\"".into(), "[[vrf]]", "needs `table`, or `netns`"),
        (vrf("table = 254"), "254", "no table of a VRF | 1 to 252, or 256 and more"),
        (vrf("table = 7\n[fea]\ntable = 7"), "7", "that of [fea], the default table"),
        (vrf("netns = \"red\"\ntable = 253"), "253", "the system's own | 1 to 252, 254, or 256 and more"),
        (vrf("netns = \"red\"\ntable = 255"), "255", "the system's own"),
        (vrf("netns = \"../red\""), "\"../red\"", "no name of a network namespace"),
        (vrf("netns = \"red\"\ndevice = \"red\""), "\"red\"", "a `device` or in a namespace"),
        (vrf("table = 7").replace("blue", "blue@home"), "\"blue@home\"", "1 to 15 letters, digits, `-` or `_`"),
        (vrf("table = 7").replace("blue", "a-name-that-is-too-long"), "\"a-name", "no name for a VRF"),
        (two_vrfs("blue", "table = 7", "table = 8\ndevice = \"b\""), "\"blue\"", "VRF `blue` is already on line 5"),
        (two_vrfs("red", "table = 7", "table = 7"), "7", "a VRF with table modulo 32768 `7` is already on line 6"),
        (two_vrfs("red", "table = 7", "table = 32775"), "32775", "a VRF with table modulo 32768 `7` is already on line 6"),
        (two_vrfs("red", "table = 7", "table = 8\ndevice = \"blue\""), "\"blue\"", "a VRF with device `blue` is already"),
        (two_vrfs("red", "netns = \"n\"", "netns = \"n\""), "\"n\"", "a VRF with namespace `n` is already"),
        (vrf("table = 7\nnetworks = [\"10.0.0.0/8\"]"), "[\"10.0.0.0/8\"]", "no effect without [bgp]"),
        (vrf("table = 7\nnetworks = [\"10.0.0.0/8\", \"10.0.0.0/8\"]\n[bgp]"), "\"10.0.0.0/8\"", "network `10.0.0.0/8` is already"),
        (peer("vrf = \"blu\"\n") + &vrf("table = 7"), "\"blu\"", "there is no VRF `blu` | did you mean `blue`?"),
        (peer("vrf = \"blue\"\n") + &vrf("table = 7") + &peer("vrf = \"blue\"\n").replace("\"a\"", "\"b\""), "\"10.1.0.2\"", "a peer with `10.1.0.2 in VRF blue` is already"),
        (format!("{}{}", vrf("table = 7"), in_vrf("static", "prefix = \"::/0\"\nblackhole = true").repeat(2)), "\"::/0\"", "a static route for `::/0 in VRF blue` is already"),
        (vrf("table = 7") + "[[protocol]]\nname = \"igp\"\n" + &in_vrf("bgp.redistribute", "from = \"igp\"\npolicy = \"accept-all\""), "\"igp\"", "`igp` brings no routes into a VRF | `static`, `connected` or a protocol of the router"),
        // Paths.
        (peer("route-reflector-client = true"), "true", "only a neighbour of our own AS"),
        (inside("role = \"peer\""), "\"peer\"", "`role` has no effect inside our AS | remove it"),
        (inside("as-override = true"), "true", "no effect inside our AS"),
        (peer("role-strict = true"), "true", "no effect without `role`"),
        (peer("own-view = true"), "true", "no effect without `route-server-client`"),
        (peer("role = \"transit\""), "\"transit\"", "\"provider\" or \"rs-server\""),
        (peer("local-asn = 65101"), "65101", "AS 65101 is the neighbour's own | another number"),
        (peer("local-asn = 65001"), "65001", "AS 65001 is ours in any case"),
        (peer("local-asn-mode = \"replace\""), "\"replace\"", "no effect without `local-asn`"),
        (peer("allow-own-asn = 11"), "11", "out of range | 0 to 10"),
        ("[bgp.confederation]\nid = 65001".into(), "65001", "AS 65001 is the confederation and a member of it"),
        (
            format!("[bgp.confederation]\nid = 65009\nmembers = [65101]\n{}", peer("route-reflector-client = true")),
            "true",
            "only a neighbour of our own AS",
        ),
        (
            format!("[bgp.confederation]\nid = 65009\nmembers = [65102]\n{}", peer("local-asn = 65102")),
            "65102",
            "AS 65102 is our confederation or a member of it | a number from outside",
        ),
        (
            format!("[bgp.confederation]\nid = 65101\nmembers = [65102]\n{}", peer("")),
            "65101",
            "AS 65101 is our confederation, seen from outside",
        ),
        (
            peer("route-server-client = true\nas-override = true"),
            "true",
            "a route server leaves paths alone: `as-override` has no effect",
        ),
        (
            peer("route-server-client = true\nrole = \"peer\""),
            "\"peer\"",
            "a route server to them | \"rs-server\"",
        ),
        // Links.
        (on_link("address = \"fe80::1\""), "\"fe80::1\"", "could be on any interface | add `interface"),
        (on_link("listen-range = \"fe80::/10\"\ninterface = \"eth1\""), "\"eth1\"", "`interface` or `listen-range`, not both"),
        (on_link("interface = \"a b\""), "\"a b\"", "no interface name"),
        (on_link("interface = \"eth1\"\nmd5 = \"sesame\""), "", "the kernel knows keys by address"),
        (on_link("interface = \"eth1\"\nlocal-address = \"2001:db8::1\""), "\"2001:db8::1\"", "is not link-local, and the peer's is"),
        (
            on_link("interface = \"eth1\"") + &on_link("interface = \"eth1\"").replace("\"a\"", "\"b\""),
            "\"eth1\"",
            "a peer with `eth1` is already on line",
        ),
        (
            on_link("interface = \"eth1\"")
                + &on_link("address = \"fe80::2\"\ninterface = \"eth1\"").replace("\"a\"", "\"b\""),
            "\"eth1\"",
            "the neighbour on eth1 could be the peer `b`",
        ),
        (
            on_link("interface = \"eth1\"\nnext-hop-ipv6 = \"fe80::1\""),
            "\"fe80::1\"",
            "link-local next hop fe80::1 could be on any interface",
        ),
        (format!("[rib]\nenabled = false\n{}", on_link("interface = \"eth1\"")), "\"eth1\"", "nobody listens for router advertisements"),
        // Protocols of others.
        ("[[protocol]]\nname = \"Toy\"".into(), "\"Toy\"", "no name for a protocol | a letter, then up to 14"),
        ("[[protocol]]\nname = \"bgp\"".into(), "\"bgp\"", "the name of a part of this router | another name"),
        ("[[protocol]]\nname = \"static\"".into(), "\"static\"", "protocol `static` is built in"),
        ("[rib]\nenabled = false\n[[protocol]]\nname = \"toy\"".into(), "[[protocol]]", "nobody to give routes to"),
        (redistribution("bgp", ""), "\"bgp\"", "routes of BGP do not go into BGP"),
        (redistribution("tay", "[[protocol]]\nname = \"toy\"\n"), "\"tay\"", "no protocol `tay` | did you mean `toy`?"),
        ("[[bgp.redistribute]]\nfrom = \"static\"".into(), "[[bgp.redistribute]]", "needs `policy`"),
        (
            format!("{}\n{}", redistribution("static", ""), redistribution("static", "")),
            "\"static\"",
            "redistribution of `static` is already on line 5",
        ),
        ("[rib]\nenabled = false\n[bgp]\nrib-policy = \"accept-all\"".into(), "\"accept-all\"", "no effect without a rib"),
        // Static routes.
        ("[[static]]\nprefix = \"10.1.2.3/8\"\nblackhole = true".into(), "\"10.1.2.3/8\"", "the prefix is 10.0.0.0/8"),
        ("[[static]]\nprefix = \"10.0.0.0/8\"".into(), "[[static]]", "leads nowhere | `next-hop`, `interface`"),
        ("[[static]]\nblackhole = true".into(), "[[static]]", "[[static]] needs `prefix`"),
        (
            "[[static]]\nprefix = \"10.0.0.0/8\"\nblackhole = true\ninterface = \"eth0\"".into(),
            "true",
            "neither `next-hop` nor `interface`",
        ),
        (
            "[[static]]\nprefix = \"10.0.0.0/8\"\nnext-hop = \"2001:db8::1\"".into(),
            "\"2001:db8::1\"",
            "not of the family of 10.0.0.0/8 | an IPv4 address",
        ),
        (
            "[[static]]\nprefix = \"2001:db8::/32\"\nnext-hop = \"fe80::1\"".into(),
            "\"fe80::1\"",
            "any interface | add `interface",
        ),
        ("[[static]]\nprefix = \"10.0.0.0/8\"\nnext-hop = \"224.0.0.1\"".into(), "\"224.0.0.1\"", "no address of a host"),
        ("[[static]]\nprefix = \"10.0.0.0/8\"\ninterface = \"a b\"".into(), "\"a b\"", "no interface name"),
        (
            "[[static]]\nprefix = \"10.0.0.0/8\"\nblackhole = true\n[[static]]\nprefix = \"10.0.0.0/8\"\nblackhole = true"
                .into(),
            "\"10.0.0.0/8\"",
            "already on line 5",
        ),
        (
            "[rib]\nenabled = false\n[[static]]\nprefix = \"10.0.0.0/8\"\nblackhole = true".into(),
            "[[static]]",
            "no effect without a rib",
        ),
        // Peers.
        ("[[bgp.peer]]\naddress = \"10.1.0.2\"\nasn = 1".into(), "[[bgp.peer]]", "needs `name` | `name` = \"text\""),
        ("[[bgp.peer]]\nname = \"a\"\nasn = 1".into(), "[[bgp.peer]]", "needs `address`, `interface` or `listen-range`"),
        ("[[bgp.peer]]\nname = \"a\"\naddress = \"10.1.0.2\"".into(), "[[bgp.peer]]", "needs `asn`"),
        (peer("listen-range = \"10.0.0.0/8\""), "\"10.0.0.0/8\"", "not both"),
        ("[[bgp.peer]]\nname = \"a b\"\naddress = \"10.1.0.2\"\nasn = 1".into(), "\"a b\"", "no name for a peer"),
        ("[[bgp.peer]]\nname = \"a\"\naddress = \"fe80::1\"\nasn = 1".into(), "\"fe80::1\"", "add `interface"),
        ("[[bgp.peer]]\nname = \"a\"\naddress = \"10.1.0\"\nasn = 1".into(), "\"10.1.0\"", "`10.1.0` is no such address"),
        ("[[bgp.peer]]\nname = \"a\"\naddress = \"10.1.0.2\"\nasn = 23456".into(), "23456", "reserved"),
        ("[[bgp.peer]]\nname = \"a\"\naddress = \"10.1.0.2\"\nasn = [1]".into(), "[1]", "this is a list | an AS number"),
        ("[[bgp.peer]]\nname = \"a\"\naddress = \"10.1.0.2\"\nasn = \"any\"".into(), "\"any\"", "`any` is no AS number"),
        ("[[bgp.peer]]\nname = \"a\"\nlisten-range = \"10.0.0.0/8\"\nasn = []".into(), "[]", "empty"),
        (
            "[[bgp.peer]]\nname = \"a\"\nlisten-range = \"10.0.0.0/8\"\nasn = \"any\"\npassive = false".into(),
            "false",
            "no address to connect to",
        ),
        (format!("{PEER}{}", PEER.replace("10.1.0.2", "10.1.0.3")), "\"a\"", "peer `a` is already on line 5"),
        (
            format!("{PEER}{}", PEER.replace("\"a\"", "\"b\"")),
            "\"10.1.0.2\"",
            "a peer with `10.1.0.2` is already on line 6",
        ),
        (peer("local-address = \"2001:db8::1\""), "\"2001:db8::1\"", "not of the peer's family | an IPv4 address"),
        (peer("local-address = \"10.1.0.2\""), "\"10.1.0.2\"", "also the peer's address"),
        (peer("import = \"accept-al\""), "\"accept-al\"", "no policy `accept-al` | did you mean `accept-all`?"),
        (peer("next-hop-ipv6 = \"10.0.0.1\""), "\"10.0.0.1\"", "no such address | an IPv6 address"),
        (peer("next-hop-ipv4 = \"0.0.0.0\""), "\"0.0.0.0\"", "no address of a host"),
        (peer("hold-time = 2"), "2", "not allowed | 0 (no keepalives), or 3 to 65535"),
        ("[bgp]\nhold-time = 1".into(), "1", "not allowed"),
        (peer("families = [\"ipv4-unicast\", \"ipv4\"]"), "\"ipv4\"", "no address family | ipv4-unicast or"),
        (peer("families = []"), "[]", "at least one family"),
        (peer("families = [\"ipv4-unicast\", \"ipv4-unicast\"]"), "\"ipv4-unicast\"", "already on line"),
        (peer("ttl-security = true\nmultihop = 3"), "3", "remove one of them"),
        (peer("multihop = 0"), "0", "1 to 255"),
        (peer("md5 = \"\""), "**", "0 octets | 1 to 80"),
        (peer("nonstop = \"no\""), "\"no\"", "this is a text | true or false"),
        (format!("[bgp]\nnonstop = false\n{}", peer("nonstop = true")), "true", "no effect where [bgp] says"),
        ("[bgp.damping]\nreuse = 6000".into(), "6000", "used again at once: `suppress` is 6000 | a number below `suppress`"),
        ("[bgp.damping]\nsuppress = 12001".into(), "12001", "its penalty never exceeds 12000"),
        ("[bgp]\n[[bgp.peer]]\nname = \"a\"\naddress = \"10.0.0.2\"\nasn = 1\ndamping = true".into(), "true", "no effect without [bgp.damping]"),
        ("[bgp]\nnonstop-memory = 64".into(), "64", "this is a number | a size as in \"512 MiB\""),
        ("[bgp]\nnonstop-memory = \"1 GB\"".into(), "\"1 GB\"", "`1 GB` is no size | a whole number of KiB, MiB or GiB"),
        ("[bgp]\nnonstop-memory = \"1023 KiB\"".into(), "\"1023 KiB\"", "out of range | 1 MiB to 64 GiB"),
        ("[bgp]\nnonstop-memory = \"65 GiB\"".into(), "\"65 GiB\"", "out of range | 1 MiB to 64 GiB"),
        ("[[bgp.network]]\nprefix = \"10.0.0.0/33\"".into(), "\"10.0.0.0/33\"", "no prefix | address/length"),
        ("[[bgp.aggregate]]\nprefix = \"10.0.0.1/32\"".into(), "\"10.0.0.1/32\"", "inside a single address | a shorter"),
        ("[[bgp.aggregate]]\nprefix = \"::/0\"\n[[bgp.aggregate]]\nprefix = \"::/0\"".into(), "\"::/0\"", "aggregate `::/0`"),
        ("[[bgp.aggregate]]\nprefix = \"::/0\"\ncontributors = \"p\"".into(), "\"p\"", "there is no policy `p`"),
        // Policies and sets.
        ("[[prefix-set]]\nname = \"a\"".into(), "[[prefix-set]]", "needs `prefixes` | a list of \"10.0.0.0/8 le 24\""),
        ("[[prefix-set]]\nname = \"a\"\nprefixes = [\"10.0.0.0/8 le 7\"]".into(), "\"10.0.0.0/8 le 7\"", "rise"),
        ("[[community-set]]\nname = \"a\"\ncommunities = \"1:x\"".into(), "\"1:x\"", "`1:x` is no community"),
        ("[[as-path-set]]\nname = \"a\"\npaths = [\"1 _\"]".into(), "\"1 _\"", "`_` in an AS path pattern"),
        ("[[policy]]\nname = \"accept-all\"".into(), "\"accept-all\"", "built in"),
        (then("next-hop = \"fe80::1\""), "\"fe80::1\"", "link-local next hop fe80::1 could be on any interface"),
        ("[[policy]]\nname = \"p\"\n[[policy.term]]".into(), "[[policy.term]]", "needs `then`"),
        (
            "[[policy]]\nname = \"p\"\n[[policy.term]]\nthen = \"acept\"".into(),
            "\"acept\"",
            "did you mean `accept`?",
        ),
        (
            "[[policy]]\nname = \"p\"\n[[policy.term]]\nthen = { accept = true }".into(),
            "accept",
            "unknown key `accept` in `then`",
        ),
        (
            "[[policy]]\nname = \"p\"\n[[policy.term]]\nfrom = { prefix-set = \"x\" }\nthen = \"accept\"".into(),
            "\"x\"",
            "there is no prefix-set `x`",
        ),
        (
            "[[policy]]\nname = \"p\"\n[[policy.term]]\nfrom = { origin-as = [] }\nthen = \"accept\"".into(),
            "[]",
            "an empty list never matches",
        ),
        (
            "[[policy]]\nname = \"p\"\n[[policy.term]]\nfrom = { med = { min = 3, max = 2 } }\nthen = \"accept\"".into(),
            "{ min = 3, max = 2 }",
            "no number is from 3 to 2",
        ),
        (
            "[[policy]]\nname = \"p\"\n[[policy.term]]\nfrom = { policy = \"p\" }\nthen = \"accept\"".into(),
            "\"p\"",
            "the policy asks itself: p asks p",
        ),
        (
            "[[policy]]\nname = \"p\"\n[[policy.term]]\nname = \"t\"\nthen = \"next\"\n[[policy.term]]\nname = \"t\"\nthen = \"next\""
                .into(),
            "\"t\"",
            "term `t` is already on line 7",
        ),
        (term("community = { one = \"1:1\" }"), "one", "unknown key `one` in community | one of any, all, none"),
        (term("community = {}"), "{}", "`community` says nothing here | a list, or a table with `any`"),
        (term("origin = { none = [] }"), "[]", "an empty list never matches"),
        (term("prefix-set = { all = [\"x\"] }"), "\"x\"", "there is no prefix-set `x`"),
        (term("as-path-regex = \"(1\""), "\"(1\"", "`(1` is no regular expression: unclosed group"),
        (term("as-path-regex = \"[0-9]{999}{999}\""), "999", "stands for too many cases"),
        (term("prefix-length = 129"), "129", "out of range | 0 to 128"),
        (term("validity = \"unknown\""), "\"unknown\"", "is not one of valid, invalid, not-found"),
        (term("protocol = \"Toy\""), "\"Toy\"", "no name of a protocol"),
        (
            "[[policy]]\nname = \"p\"\n[[policy.term]]\nunless = { mde = 2 }\nthen = \"accept\"".into(),
            "mde",
            "unknown key `mde` in `unless`",
        ),
        (then("med = { add = 1, subtract = 2 }"), "{ add = 1", "this changes nothing | `add` or `subtract`"),
        (then("prepend = { last-as = 0 }"), "0", "out of range | 1 to 32"),
        (then("replace-communities = { these = \"1:1\" }"), "{ these", "needs both lists"),
        (then("apply = \"x\""), "\"x\"", "there is no policy `x`"),
        (then("apply = \"p\""), "\"p\"", "the policy asks itself: p asks p"),
        (then("weight = -1"), "-1", "out of range"),
        ("[[policy]]\nname = \"p\"\nlast = \"next\"".into(), "\"next\"", "\"accept\" or \"reject\""),
        ("[[policy]]\nname = \"p\"\nlast = { tag = 1 }".into(), "{ tag", "`last` needs `action`"),
        ("[[policy]]\nname = \"p\"\nfirst = { action = \"accept\" }".into(), "action", "in `first`"),
        ("[[as-path-set]]\nname = \"a\"".into(), "[[as-path-set]]", "needs `paths`"),
    ];
    for (text, meant, message) in table {
        let (found, said) = fault(text);
        assert!(found.contains(meant), "{text}\nmeant: {found}");
        assert!(said.contains(message), "{text}\nsaid: {said}");
    }
}

#[test]
fn all_faults_are_found_in_one_run_and_in_order() {
    let text = "[router]\nid = \"0.0.0.0\"\n[bgp]\nas-set = 1\n[[bgp.peer]]\nname = 7\naddress = \"x\"\nhold-time = 1\n";
    let lines: Vec<_> = faults(text).iter().map(|fault| fault.line).collect();
    assert_eq!(lines, [1, 2, 4, 5, 6, 7, 8]);
}

#[test]
fn what_is_in_and_behind_long_lists_is_shown_where_it_is() {
    let entries = |from: u32| {
        (from..from + 1000).map(|at| format!("  \"10.{}.{}.0/24\", # {at}\n", at >> 8, at & 0xff))
    };
    let set = |wrong: &str| {
        let all: String = entries(0).chain([wrong.to_owned()]).chain(entries(1000)).collect();
        format!("[[prefix-set]]\nname = \"long\"\nprefixes = [\n{all}]\n")
    };
    let text = [ROUTER, &set("  \"10.0.0.0/33\", '10.0.0.0/x',\n"), &set(""), "[log]\nlvel = 1\n"].concat();
    let line = |part: &str, nth: usize| {
        text.lines().zip(1..).filter(|(line, _)| line.contains(part)).nth(nth).map_or(0, |(_, number)| number)
    };
    let found = faults(&text);
    let found: Vec<_> =
        found.iter().map(|fault| (fault.line, fault.column, fault.message.as_str())).collect();
    let again = format!("prefix-set `long` is already on line {}", line("long", 0));
    assert_eq!(
        found.iter().map(|(line, column, _)| (*line, *column)).collect::<Vec<_>>(),
        [(line("/33", 0), 3), (line("/33", 0), 18), (line("long", 1), 8), (line("lvel", 0), 1)],
        "{found:?}"
    );
    assert!(found[0].2.contains("10.0.0.0/33") && found[1].2.contains("10.0.0.0/x"), "{found:?}");
    assert_eq!(found[2].2, again);
    let unclosed = text.replacen("[log]", "[log", 1);
    assert_eq!(faults(&unclosed).first().map(|fault| fault.line), Some(line("[log]", 0)));
    let right = parse(&[ROUTER, &set("")].concat(), "router.toml").expect("no errors");
    assert_eq!(right.policy.prefix_sets[0].prefixes.len(), 2000);
    assert_eq!(holdfast_config::line_of(&text, "log.lvel"), Some(line("lvel", 0)));
}

#[test]
fn syntax_errors_come_first_and_all_of_them() {
    let faults = faults("[router]\nid = \nasn = 65001\nasn = 2\n[bgp]\npasive = 1 2\n");
    let lines: Vec<_> = faults.iter().map(|fault| fault.line).collect();
    assert_eq!(lines, [2, 4, 6], "{faults:#?}");
}

#[test]
fn an_empty_file_is_told_what_is_missing() {
    let faults = faults("");
    assert_eq!((faults.len(), faults[0].line, faults[0].column), (1, 1, 1));
    assert_eq!(faults[0].message, "there is no [router]");
}

#[test]
fn keys_of_sessions_are_never_shown() {
    let key = "k".repeat(81);
    let text = format!("{ROUTER}{PEER}md5 = \"{key}\"\n");
    let shown = format!("{:?}", faults(&text));
    assert!(shown.contains("81 octets") && !shown.contains("kkk"), "{shown}");
    let config = parse(&text.replace(&key, "hunter2"), "router.toml").expect("a short key is fine");
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn diagnostics_are_text_for_people_and_json_for_programs() {
    let wrong = parse(&format!("{ROUTER}{PEER}pasive = true\n"), "router.toml").expect_err("a slip");
    let text = wrong.to_string();
    assert!(text.starts_with(
        "router.toml:8:1: unknown key `pasive` in [[bgp.peer]]\n    8 | pasive = true\n      | ^^^^^^\n"
    ));
    assert!(text.ends_with("      hint: did you mean `passive`?\n\n1 error"), "{text}");
    let json = serde_json::to_value(&wrong).expect("serialises");
    assert_eq!(json[0]["line"], 8);
    assert_eq!(json[0]["hint"], "did you mean `passive`?");
}

fn example() -> &'static str {
    include_str!("../../../docs/examples/router.toml")
}

/// A slip of the hand: a piece of the text is replaced by another piece, or by something odd.
fn slip() -> impl Strategy<Value = (usize, usize, String)> {
    let length = example().len();
    let piece = (0..length, 0usize..30).prop_map(|(at, size)| piece(at, size).to_owned());
    let odd = prop::sample::select(vec![
        "\"", "[", "]]", "=", "\n", "\r", "{", "#", "'''", "ä", "\u{1b}", "-1", "1e9", ".",
    ]);
    (0..length, 0usize..12, prop_oneof![piece, odd.prop_map(str::to_owned)])
}

fn piece(at: usize, size: usize) -> &'static str {
    let text = example();
    let (from, to) = (text.floor_char_boundary(at), text.floor_char_boundary((at + size).min(text.len())));
    &text[from..to]
}

fn mutated(slips: &[(usize, usize, String)]) -> String {
    let mut text = example().to_owned();
    for (at, size, new) in slips {
        let from = text.floor_char_boundary(*at);
        let to = text.floor_char_boundary((at + size).min(text.len())).max(from);
        text.replace_range(from..to, new);
    }
    text
}

proptest! {
    #![proptest_config(holdfast_testing::cases(3000))]

    #[test]
    fn any_text_gives_a_configuration_or_faults_inside_of_it(slips in prop::collection::vec(slip(), 1..6)) {
        let text = mutated(&slips);
        if let Err(wrong) = parse(&text, "router.toml") {
            prop_assert!(wrong.iter().len() > 0);
            for fault in &wrong {
                let line = text.split('\n').nth(fault.line - 1);
                prop_assert!(line.is_some_and(|line| fault.column <= line.chars().count() + 1), "{fault:?}\n{text}");
            }
            let shown = wrong.to_string();
            prop_assert!(!shown.contains(char::from(0x1b)));
        }
    }

    #[test]
    fn arbitrary_bytes_are_survived(text in "\\PC{0,200}") {
        prop_assert!(parse(&text, "x").is_err());
    }
}

/// Local exceptions that filter nothing.
const SLURM: &str = r#"{"slurmVersion": 1,
  "validationOutputFilters": {"prefixFilters": [], "bgpsecFilters": []},
  "locallyAddedAssertions": {"prefixAssertions": [], "bgpsecAssertions": []}}"#;

/// A disk with a few files; the number of reads.
fn with_files(text: &str) -> (Result<holdfast_config::Config, Vec<String>>, usize) {
    use holdfast_config::{Holds, List};
    let reads = std::cell::Cell::new(0);
    let read = |file: &str, holds: Holds<'_>| {
        reads.set(reads.get() + 1);
        match (file, holds) {
            ("a.pem" | "ca.pem", Holds::List(List::Certificates))
            | ("ca.pem", Holds::List(List::Authorities)) => Ok(vec![file.as_bytes().to_vec()]),
            ("crl.pem", Holds::List(List::Revocations)) => Ok(vec![vec![7]]),
            ("a.key", Holds::KeyOf([certificate])) if certificate == b"a.pem" => Ok(vec![vec![9]]),
            ("a.key", Holds::KeyOf(_)) => Err("this is the key of another certificate".to_owned()),
            ("router.key" | "copy.key", Holds::RouterKey) => Ok(vec![vec![5], vec![6]]),
            ("next.key", Holds::RouterKey) => Ok(vec![vec![7], vec![8]]),
            ("slurm.json", Holds::Text) => Ok(vec![SLURM.as_bytes().to_vec()]),
            ("hasty.json", Holds::Text) => {
                Ok(vec![SLURM.replace("bgpsecFilters", "bgpsecFliters").into_bytes()])
            }
            ("latin-1.json", Holds::Text) => Ok(vec![vec![0xe4]]),
            ("empty.pem", _) => Err("there is no certificate in it".to_owned()),
            _ => Err("No such file or directory".to_owned()),
        }
    };
    let parsed = holdfast_config::parse_with(text, "router.toml", schema(), &read);
    let lines = |wrong: holdfast_config::Diagnostics| -> Vec<_> {
        wrong.iter().map(|fault| format!("{} {}", fault.line, fault.message)).collect()
    };
    (parsed.map_err(lines), reads.get())
}

#[test]
fn what_files_hold_is_a_part_of_the_values_and_each_is_read_once() {
    let trust = "transport = \"tls\"\ntls-authorities = \"ca.pem\"\ntls-revocations = \"crl.pem\"\n";
    let other = PEER.replace("\"a\"", "\"b\"").replace("10.1.0.2", "10.1.0.3");
    let text = format!("{ROUTER}{TLS}{PEER}{trust}{other}{trust}");
    let (config, reads) = with_files(&text);
    let config = config.unwrap_or_else(|wrong| panic!("{wrong:?}"));
    assert_eq!(reads, 4, "two of ours, and two of the peers'");
    let tls = config.tls.as_ref().expect("[tls]");
    let certificate = tls.certificate.as_ref().expect("a certificate");
    assert_eq!((&*certificate.contents, &*tls.key.contents), (&[b"a.pem".to_vec()][..], &[9][..]));
    let peers = &config.bgp.as_ref().expect("[bgp]").peers;
    for peer in peers {
        assert_eq!(*peer.trust.authorities[0].contents, [b"ca.pem".to_vec()]);
        assert_eq!(*peer.trust.revocations[0].contents, [vec![7]]);
    }
    assert!(!format!("{config:?}").contains("[9]"), "keys are not shown");
    let unread = parse(&text, "router.toml").expect("without files nothing is wrong");
    assert!(unread.tls.expect("[tls]").key.contents.is_empty());
}

#[test]
fn local_exceptions_are_read_as_text() {
    let text = |files: &str| format!("{ROUTER}[rpki]\nexceptions = {files}\n");
    let (config, _) = with_files(&text("\"slurm.json\""));
    let exceptions = config.unwrap_or_else(|wrong| panic!("{wrong:?}")).rpki.exceptions;
    assert_eq!((exceptions[0].file.as_str(), &*exceptions[0].text), ("slurm.json", SLURM));
    let (wrong, _) = with_files(&text("[\"slurm.json\", \"hasty.json\"]"));
    let wrong = wrong.expect_err("refused");
    assert!(wrong.len() == 1 && wrong[0].starts_with("5 hasty.json: "), "{wrong:?}");
    let (wrong, _) = with_files(&text("[\"slurm.json\", \"slurm.json\"]"));
    assert!(wrong.expect_err("refused")[0].contains("local exceptions"), "named twice");
    let (wrong, _) = with_files(&text("[\"latin-1.json\", \"gone.json\"]"));
    let expected = ["5 latin-1.json: it is no text in UTF-8", "5 gone.json: No such file or directory"];
    assert_eq!(wrong.expect_err("refused"), expected);
}

#[test]
fn private_keys_are_read_in_their_order() {
    let text = format!(
        "{ROUTER}[bgpsec]\nsigning-rate = 7\nkeys = [{{ asn = 65001, file = \"router.key\" }},\n\
         {{ asn = \"1.1\", file = \"router.key\", sign-from = 2026-12-01T01:00:00+01:00 }},\n\
         {{ asn = 65001, file = \"next.key\" }}]\n"
    );
    let (config, reads) = with_files(&text);
    let signing = config.unwrap_or_else(|wrong| panic!("{wrong:?}")).bgpsec;
    assert_eq!((signing.kept_signatures, signing.signing_rate, reads), (1_000_000, 7, 3));
    let keys: Vec<_> = signing.keys.iter().map(|key| (key.asn.0, &*key.key.contents)).collect();
    assert_eq!(keys, [(65001, &[5][..]), (65537, &[5]), (65001, &[7])]);
    let times: Vec<_> = signing.keys.iter().map(|key| key.sign_from.map(Moment::since_1970)).collect();
    assert_eq!(times, [None, Some(1_796_083_200), None]);
    assert!(!format!("{signing:?}").contains("[5]"), "keys are not shown");
    let unread = parse(&text, "router.toml").expect("without files nothing is wrong");
    assert!(unread.bgpsec.keys[0].key.contents.is_empty());
}

#[test]
fn what_is_wrong_with_a_private_key_is_said() {
    let key = |rest: &str| format!("[bgpsec]\nkeys = [{{ asn = 65001, {rest} }}]\n");
    let time = |time: &str| key(&format!("file = \"router.key\", sign-from = {time}"));
    let cases = [
        ("[bgpsec]\nkeys = 7\n".to_owned(), "`keys` is a number here", "[[bgpsec.keys]]"),
        ("[bgpsec]\nkeys = [{ file = \"a\" }]\n".to_owned(), "needs `asn`", "`asn` = an AS number"),
        (key("sign-from = 2026-12-01T00:00:00Z"), "needs `file`", "`file` = "),
        (key("file = \"a\", asn2 = 1"), "unknown key `asn2`", "did you mean `asn`?"),
        (key("file = \"keys/\""), "`keys/` is no name of a file", "a path"),
        (key("file = \"a\"").replace("65001", "23456"), "AS 23456 is reserved", "another AS number"),
        (time("2026-12-01"), "`2026-12-01` is no moment", "2026-12-01T00:00:00Z"),
        (time("2026-12-01T00:00:00"), "`2026-12-01T00:00:00` is no moment", "2026-12-01T00:00:00Z"),
        (time("\"2026-12-01T00:00:00Z\""), "this is a text", "2026-12-01T00:00:00Z"),
        ("[bgpsec]\nkept-signatures = 100000001\n".to_owned(), "`kept-signatures` is out", "0 to 100000000"),
        ("[bgpsec]\nsigning-rate = 0\n".to_owned(), "`signing-rate` is out of range", "1 to 1000000"),
    ];
    for (text, message, rest) in cases {
        let (_, said) = fault(&text);
        assert!(said.contains(message) && said.contains(rest), "{text}\n{said}");
    }
    let keys = |files: &[&str]| {
        let keys = files.iter().map(|file| format!("{{ asn = 65001, file = \"{file}\" }}"));
        format!("[bgpsec]\nkeys = [{}]\n", keys.collect::<Vec<_>>().join(",\n"))
    };
    let names: Vec<_> = (0..65).map(|number| format!("{number}.key")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    assert_eq!(fault(&keys(&names)).1, "there are 65 private keys | at most 64");
    assert!(parse(&format!("{ROUTER}{}", keys(&names[1..])), "x").is_ok());
    let (wrong, _) =
        with_files(&format!("{ROUTER}{}", keys(&["router.key", "copy.key", "gone.key", "empty.pem"])));
    let expected = [
        "6 copy.key: AS 65001 has this key already, in router.key",
        "7 gone.key: No such file or directory",
        "8 empty.pem: there is no certificate in it",
    ];
    assert_eq!(wrong.expect_err("three faults"), expected);
}

#[test]
fn private_keys_that_sign_nothing_are_noted() {
    let notes = |keys: &str, rest: &str| {
        let text = format!("{ROUTER}[bgpsec]\nkeys = [{keys}]\n[bgp]\n{rest}");
        parse(&text, "router.toml").unwrap_or_else(|wrong| panic!("{wrong}")).notes()
    };
    let [ours, other] = [65001, 65009].map(|asn| format!("{{ asn = {asn}, file = \"{asn}.key\" }}"));
    let sends = format!("{PEER}bgpsec = {{ send = true }}\n");
    let local = format!("{sends}local-asn = 65009\n");
    let inside = sends.replace("65101", "65001");
    let confederation = "confederation = { id = 65009, members = [65101] }\n";
    let none: [&str; 0] = [];
    let foreign = "the private key `65009.key` signs nothing: AS 65009 is none of ours";
    let unsigned =
        |asn: u32| format!("peer `a`: what it is sent is not signed: [bgpsec] has no key of AS {asn}");
    let idle = "the keys of [bgpsec] do nothing: no peer has `bgpsec` with `send`";
    assert_eq!(notes(&ours, &sends), none);
    assert_eq!(notes(&format!("{ours}, {other}"), &sends), [foreign]);
    assert_eq!(notes(&ours, PEER), [idle]);
    assert_eq!(notes("", PEER), none);
    assert_eq!(notes("", &sends), [unsigned(65001)]);
    assert_eq!(notes("", &inside), none, "nothing is signed inside our AS");
    assert_eq!(notes(&other, &local), none);
    assert_eq!(notes(&ours, &local), [unsigned(65009)]);
    assert_eq!(notes(&ours, &format!("{confederation}{sends}")), none, "a member knows us by our number");
    let outside = confederation.replace("65101", "65102");
    assert_eq!(notes(&ours, &format!("{outside}{sends}")), [unsigned(65009)]);
    assert_eq!(notes(&other, &format!("{outside}{sends}")), none);
    let range =
        sends.replace("address = \"10.1.0.2\"", "listen-range = \"10.1.0.0/24\"").replace("65101", "\"any\"");
    assert_eq!(notes(&ours, &format!("{outside}{range}")), [unsigned(65009)]);
}

#[test]
fn what_is_wrong_with_a_cache_is_said() {
    let cache = |rest: &str| format!("[[rpki.cache]]\nname = \"c\"\naddress = \"10.0.5.1\"\n{rest}");
    let cases = [
        (cache("transport = \"quic\"\n"), "`quic` is no value for `transport`", "\"tcp\" or \"tls\""),
        (
            cache("transport = \"tls\"\n") + PIN,
            "there is nothing that we could show the cache over `tls`",
            "[tls]",
        ),
        (format!("{TLS}{}", cache("transport = \"tls\"\n")), "nothing proves who the cache is", "`tls-pins`"),
        (cache(PIN), "`tls-pins` has no effect over `tcp`", "add `transport = \"tls\"`"),
        (cache("expire = 60\n"), "data would expire after 60 s, and be asked for after 3600 s", "more than"),
        (cache("refresh = 7200\n"), "data would expire after 7200 s", "more than"),
        (cache("expire = 20\nrefresh = 5\nretry = 20\n"), "or 20 s where that failed", "more than"),
        (cache("version = 3\n"), "`version` is out of range", "0 to 2"),
        (cache("local-address = \"::1\"\n"), "::1 is not of the family of 10.0.5.1", "IPv4"),
        (cache("").replace("10.0.5.1", "fe80::1"), "fe80::1 could be on any interface", "global"),
        (cache("") + &cache(""), "cache `c`", ""),
    ];
    for (text, message, rest) in cases {
        let (_, said) = fault(&text);
        assert!(said.contains(message) && said.contains(rest), "{text}\n{said}");
    }
    let number = |number: usize| cache("").replace("\"c\"", &format!("\"c{number}\""));
    let many: String = (0..33).map(number).collect();
    assert_eq!(fault(&many).1, "there are 33 caches | at most 32");
    let tls = parse(&format!("{ROUTER}{TLS}{}", cache("transport = \"tls\"\n") + PIN), "x").expect("fine");
    assert_eq!(tls.rpki.caches[0].port, 324);
    let times =
        parse(&format!("{ROUTER}{}", cache("refresh = 2\nretry = 1\nexpire = 5\n")), "x").expect("fine");
    assert_eq!(times.rpki.caches[0].expire.map(|time| time.as_secs()), Some(5));
}

#[test]
fn a_file_that_is_not_there_or_holds_something_else_is_shown_where_it_is_named() {
    let text = format!(
        "{ROUTER}[tls]\ncertificate = \"ca.pem\"\nkey = \"a.key\"\n{PEER}transport = \"tls\"\n\
         tls-authorities = [\"ca.pem\", \"empty.pem\"]\ntls-revocations = \"gone.pem\"\n"
    );
    let expected = [
        "6 a.key: this is the key of another certificate",
        "12 empty.pem: there is no certificate in it",
        "13 gone.pem: No such file or directory",
    ];
    assert_eq!(with_files(&text).0.expect_err("three faults"), expected);
}

#[test]
fn who_could_be_several_or_need_not_prove_who_it_is_is_noted() {
    let noted = |transport: &str, trust: &str| {
        let text = format!("{ROUTER}{TLS}{PEER}transport = {transport}\n{trust}");
        parse(&text, "router.toml").unwrap_or_else(|wrong| panic!("{wrong}")).notes()
    };
    let notes = |trust: &str| noted("\"tls\"", trust);
    assert!(noted("[\"tls\", \"tcp\"]", PIN)[0].starts_with("peer `a`: who comes over `tcp`"));
    assert!(noted("[\"quic\", \"tls\"]", PIN).is_empty() && noted("\"tcp\"", "").is_empty());
    let authorities = "tls-authorities = \"ca.pem\"\n";
    assert!(notes(authorities)[0].starts_with("peer `a`: whoever its authorities have signed for"));
    assert!(notes(&format!("{authorities}tls-name = \"10.1.0.2\"")).is_empty());
    assert!(notes(&format!("{authorities}{PIN}")).is_empty() && notes(PIN).is_empty());
}

#[test]
fn exceptions_without_a_cache_are_noted() {
    let notes = |rest: &str| {
        let text = format!("{ROUTER}[rpki]\nexceptions = [\"x.json\"]\n{rest}");
        parse(&text, "router.toml").unwrap_or_else(|wrong| panic!("{wrong}")).notes()
    };
    assert!(notes("")[0].starts_with("`exceptions` of the RPKI do nothing"));
    assert!(notes("[[rpki.cache]]\nname = \"a\"\naddress = \"192.0.2.1\"\n").is_empty());
}

#[test]
fn signatures_that_nobody_can_know_are_noted() {
    let policies = "[[policy]]
        name = \"inner\"
        [[policy.term]]
        from = { bgpsec = { none = [\"valid\"] } }
        then = \"reject\"
        [[policy]]
        name = \"asks\"
        [[policy.term]]
        from = { policy = \"inner\" }
        then = \"accept\"
        [[policy]]
        name = \"applies\"
        first = { apply = \"asks\" }
        [[policy]]
        name = \"other\"
        [[policy.term]]
        from = { validity = \"valid\" }
        then = \"accept\"\n";
    let notes = |rest: &str, cache: &str| {
        let text = format!("{ROUTER}{policies}{cache}{PEER}{rest}");
        parse(&text, "router.toml").unwrap_or_else(|wrong| panic!("{wrong}")).notes()
    };
    let cache = "[[rpki.cache]]\nname = \"a\"\naddress = \"192.0.2.1\"\n";
    let one = |rest: &str, cache: &str, expected: &str| {
        let notes = notes(rest, cache);
        assert!(
            notes.len() == 1 && notes[0].starts_with(&format!("peer `a`: {expected}")),
            "{rest} {notes:?}"
        );
    };
    one("bgpsec = { receive = true }", "", "without an `[[rpki.cache]]`");
    one("bgpsec-validation = \"require\"", cache, "none of its routes is used");
    one(
        "bgpsec-validation = \"prefer\"\nbgpsec = { send = true }",
        &format!("{cache}[bgpsec]\nkeys = [{{ asn = 65001, file = \"a.key\" }}]\n"),
        "`bgpsec-validation` has no effect",
    );
    for policy in ["inner", "asks", "applies"] {
        one(&format!("import = \"{policy}\""), cache, "`import` asks for `bgpsec`");
    }
    let receives = "bgpsec = { receive = true }\nbgpsec-validation = \"require\"\nimport = \"applies\"";
    for (rest, cache) in [
        (receives, cache),
        ("bgpsec-validation = \"log\"", ""),
        ("bgpsec-validation = \"off\"", cache),
        ("import = \"other\"\nexport = \"asks\"", cache),
        ("", ""),
    ] {
        assert_eq!(notes(rest, cache), [""; 0], "{rest}");
    }
}

#[test]
fn a_peer_has_what_its_group_says_unless_it_says_otherwise() {
    let group =
        "[[bgp.group]]\nname = \"g\"\nasn = 65101\nhold-time = 30\nport = 1179\nimport = \"accept-all\"
        limit = [{ family = \"ipv4-unicast\", received = 5 }]\n";
    let peer = |rest: &str| {
        let text = format!(
            "{ROUTER}{group}[[bgp.peer]]\nname = \"a\"\naddress = \"10.1.0.2\"\ngroup = \"g\"\n{rest}"
        );
        let config = parse(&text, "router.toml").unwrap_or_else(|wrong| panic!("{wrong}"));
        config.bgp.expect("BGP").peers.remove(0)
    };
    let member = peer("hold-time = 60");
    assert_eq!((member.hold_time.as_secs(), member.rules.port, member.name.as_str()), (60, 1179, "a"));
    assert_eq!((member.import.as_deref(), member.group.as_deref()), (Some("accept-all"), Some("g")));
    assert_eq!(member.limits[0].received, Some(5));
    assert_eq!(peer("limit = []").limits, [], "a list of one's own is the whole list");
}

#[test]
fn a_table_of_a_peer_takes_the_keys_that_it_does_not_have_from_the_table_of_its_group() {
    let file = |of_group: &str, of_peer: &str| {
        let group = format!("[[bgp.group]]\nname = \"g\"\n{of_group}\n");
        format!("{ROUTER}{group}{PEER}group = \"g\"\n{of_peer}\n")
    };
    let peer = |of_group: &str, of_peer: &str| {
        let config = parse(&file(of_group, of_peer), "router.toml").unwrap_or_else(|wrong| panic!("{wrong}"));
        config.bgp.expect("BGP").peers.remove(0)
    };
    let of_group = "bgpsec = { receive = true, most-hops = 7, families = [\"ipv4\"] }";
    let merged = peer(of_group, "bgpsec = { most-hops = 9, pcount-zero = true }").bgpsec;
    assert!(merged.receive && merged.pcount_zero && !merged.send);
    assert_eq!((merged.most_hops, merged.families.len()), (9, 1));
    assert!(!peer(of_group, "bgpsec = { receive = false }").bgpsec.receive);
    assert!(peer(of_group, "bgpsec = {}").bgpsec.receive && peer(of_group, "").bgpsec.receive);

    let paths = peer("add-path = { receive = true }", "add-path = { send = 2 }").add_path;
    assert!(paths.receive && paths.send.is_some());

    // The table of the group is checked as well, though the peer has one of its own.
    let messages = |of_group: &str| -> Vec<_> {
        let faults = faults(&file(of_group, "bgpsec = { send = true }"));
        faults.iter().map(|fault| (fault.line, fault.message.clone())).collect()
    };
    assert_eq!(messages("bgpsec = true"), [(6, "`bgpsec` is a truth value here".to_owned())]);
    assert_eq!(
        messages("bgpsec = { receve = true }"),
        [(6, "unknown key `receve` in [bgp.peer.bgpsec]".to_owned())]
    );
    assert_eq!(messages("bgpsec = { most-hops = 0 }"), [(6, "`most-hops` is out of range".to_owned())]);
}
