//! The files that users are shown parse.

use std::{fs, path::PathBuf};

use holdfast_config::{
    Config, Holds, parse, parse_with,
    schema::{AsSets, PeerAsn, Remote, Secret, StaticTarget},
};
use holdfast_types::Family;

fn docs() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn read(text: &str, name: &str) -> Config {
    parse(text, name, super::schema()).unwrap_or_else(|wrong| panic!("{wrong}"))
}

fn example() -> Config {
    let path = docs().join("examples/router.toml");
    read(&fs::read_to_string(&path).expect("the example is there"), "router.toml")
}

#[test]
fn the_example_says_what_its_comments_say() {
    let config = example();
    assert_eq!((config.router.id.to_string().as_str(), config.router.asn.0), ("10.0.0.1", 65001));
    assert!(matches!(config.statics[2].target, StaticTarget::Blackhole));
    assert!(
        matches!(&config.statics[3].target, StaticTarget::NextHop { interface: Some(name), .. } if name == "eth1")
    );
    let bgp = config.bgp.expect("there is [bgp]");
    assert_eq!((bgp.as_sets, bgp.port, bgp.local_preference, bgp.max_paths), (AsSets::Reject, 179, 100, 1));
    assert_eq!((bgp.nonstop, bgp.nonstop_memory.octets()), (true, 1 << 30));
    let transit = &bgp.peers[0];
    assert_eq!(
        (transit.name.as_str(), &transit.asn),
        ("transit-1", &PeerAsn::One(holdfast_types::Asn(65101)))
    );
    assert_eq!(transit.remote, Remote::Address("10.1.0.2".parse().expect("an address")));
    assert_eq!(transit.import.as_deref(), Some("from-transit"));
    assert_eq!(transit.md5.as_ref().map(Secret::expose), Some("secret"));
    assert!(transit.rules.ttl_security && !transit.session.passive && transit.families.len() == 2);
    assert_eq!(transit.hold_time.as_secs(), 90);
    let range = &bgp.peers[2];
    assert!(
        matches!((&range.remote, &range.asn), (Remote::Range(_), PeerAsn::OneOf(asns)) if asns.len() == 2)
    );
    assert!(range.session.passive && range.rules.disabled, "a range only waits");
    assert!(transit.nonstop && !range.nonstop, "what [bgp] says, unless the peer has its own");
    assert_eq!(bgp.networks.len(), 1);
}

#[test]
fn a_peer_on_a_link_has_an_address_and_an_interface_or_the_interface_alone() {
    let peer = |place: &str| {
        let text = format!(
            "[router]\nid = \"10.0.0.1\"\nasn = 65001\n[[bgp.peer]]\nname = \"a\"\nasn = 65101\n{place}\n"
        );
        read(&text, "link.toml").bgp.expect("[bgp]").peers.remove(0)
    };
    let address = "fe80::1".parse().expect("an address");
    let by_address = peer("address = \"fe80::1\"\ninterface = \"eth0\"");
    assert_eq!(by_address.remote, Remote::LinkLocal(address, "eth0".into()));
    let unnumbered = peer("interface = \"eth0\"");
    assert_eq!(unnumbered.remote, Remote::Interface("eth0".into()));
    assert_eq!(unnumbered.families, Family::ALL, "IPv4 has next hops of IPv6 there (RFC 8950)");
    assert_eq!(by_address.families, Family::ALL);
    let one = peer("interface = \"eth0\"\nfamilies = [\"ipv6-unicast\"]");
    assert_eq!(one.families, [Family::IPV6_UNICAST]);
}

#[test]
fn defaults_are_those_of_the_example() {
    let mut full = example();
    let least = read("[router]\nid = \"10.0.0.1\"\nasn = 65001\n[bgp]\n", "least.toml");
    assert_eq!((full.log, full.fea, full.rib), (least.log, least.fea, least.rib));
    let (full, least) = (full.bgp.as_mut().expect("[bgp]"), least.bgp.expect("[bgp]"));
    full.peers.clear();
    full.networks.clear();
    assert_eq!(*full, least);
}

#[test]
fn the_example_policies_survive_the_way_to_another_process() {
    let source = example().policy;
    let sent = serde_json::to_vec(&source).expect("serialises");
    let received = serde_json::from_slice(&sent).expect("is read back");
    assert_eq!(source, received);
    let library = holdfast_policy::Library::compile(&received, 1).expect("compiles");
    assert!(library.get("from-transit").is_some_and(holdfast_policy::Program::reads_prefix));
}

/// Blocks that begin with ```` ```toml complete ````.
fn complete_blocks(text: &str) -> impl Iterator<Item = &str> {
    text.split("\n```toml complete\n").skip(1).map(|rest| rest.split("\n```").next().unwrap_or(rest))
}

#[test]
fn the_descriptor_of_the_manual_is_that_of_the_example_and_fits_the_configuration_beside_it() {
    let page = fs::read_to_string(docs().join("manual/protocols.md")).expect("the page is there");
    let (_, rest) = page.split_once("\n```toml descriptor\n").expect("a descriptor");
    let (descriptor, rest) = rest.split_once("```\n").expect("its end");
    let example = docs().join("../examples/hello-protocol/hello.toml");
    assert_eq!(descriptor, fs::read_to_string(&example).expect("the example is there"));
    let configuration = complete_blocks(rest).next().expect("a configuration");
    let named = |name: &str, holds: Holds<'_>| match holds {
        Holds::Descriptor if name == "hello.toml" => Ok(vec![descriptor.as_bytes().to_vec()]),
        // Nobody has installed it.
        Holds::Program | Holds::Anything => Ok(Vec::new()),
        _ => Err("it is not there".to_owned()),
    };
    let config = parse_with(configuration, "protocols.md", super::schema(), &named);
    let config = config.unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!(config.described().map(|(name, _)| name).collect::<Vec<_>>(), ["hello"]);
    assert_eq!(config.sections["hello"].values["interface"][0]["cost"], 7);
}

/// `holdfast call --describe`, as the manual shows it, says what the interfaces say.
#[test]
fn methods_that_the_manual_shows_are_those_of_the_interfaces() {
    let mut shown = 0;
    for page in fs::read_dir(docs().join("manual")).expect("there is a manual") {
        let page = page.expect("an entry").path();
        let text = fs::read_to_string(&page).expect("a page");
        let mut interface = None;
        for line in text.lines() {
            if let Some((name, _)) =
                line.strip_prefix("interface ").and_then(|rest| rest.split_once(" (service "))
            {
                let (package, version) = name.split_once('.').expect("a version");
                let file = docs().join(format!("../api/{package}/{version}/{package}.proto"));
                interface = Some(fs::read_to_string(file).expect("an interface"));
            }
            let Some((call, rest)) = line.strip_prefix("  ").and_then(|line| line.split_once(") -> ")) else {
                continue;
            };
            let reply = rest.split("   ").next().unwrap_or(rest).replace("stream of ", "stream ");
            let said = format!("rpc {call}) returns ({reply})");
            let interface = interface.as_ref().expect("the line before says which");
            assert!(interface.contains(&said), "{}: {line}", page.display());
            shown += 1;
        }
    }
    assert!(shown > 0, "the manual shows none");
}

#[test]
fn complete_configurations_of_the_manual_parse() {
    assert_eq!(
        complete_blocks("x\n```toml complete\na\nb\n```\n```toml\nc\n```").collect::<Vec<_>>(),
        ["a\nb"]
    );
    let mut blocks = 0;
    for page in fs::read_dir(docs().join("manual")).expect("there is a manual") {
        let page = page.expect("an entry").path();
        let text = fs::read_to_string(&page).expect("a page is text");
        for block in complete_blocks(&text) {
            read(block, &page.display().to_string());
            blocks += 1;
        }
    }
    assert!(blocks > 0, "no page has a complete configuration");
}
