//! BFD of peers and static routes, and the section that they imply.

use std::time::Duration;

use holdfast_config::{
    Config, Diagnostic, OwnSection, ProcessKeys, Schema,
    describe::{
        Default::{Is, Required},
        Effect::Reload,
        Table, Type, key, tables,
    },
    schema::{BfdHops, PeerBfd, StaticBfd},
};

/// As the process `bfd` has them, in short.
static SECTION: Table = Table {
    doc: "BFD.",
    keys: &[
        key("slow-timer", Type::Number(1, 60), Is("7"), Reload, "a number"),
        tables("profile", &PROFILE, "name"),
    ],
};
static PROFILE: Table = Table {
    doc: "A profile.",
    keys: &[key("name", Type::Text("name", "fast"), Required, Reload, "its name")],
};

const START: &str = "[router]\nid = \"10.0.0.1\"\nasn = 65001\n";

fn schema() -> Schema {
    let section = OwnSection { key: "bfd", table: &SECTION, check: None, implied: Some(Config::uses_bfd) };
    Schema::new([ProcessKeys { name: "bfd", does: "speaks BFD", section: Some(section), routing: None }])
}

fn parse(rest: &str) -> Result<Config, Vec<Diagnostic>> {
    let text = format!("{START}{rest}");
    holdfast_config::parse(&text, "router.toml", schema()).map_err(|wrong| wrong.iter().cloned().collect())
}

fn peer(rest: &str) -> String {
    format!("[[bgp.peer]]\nname = \"a\"\naddress = \"10.1.0.2\"\nasn = 65101\n{rest}\n")
}

fn gateway(rest: &str) -> String {
    format!("[[static]]\nprefix = \"10.9.0.0/16\"\nnext-hop = \"10.1.0.2\"\n{rest}\n")
}

fn bfd_of_peer(text: &str) -> Option<PeerBfd> {
    parse(text).expect("no errors").bgp.expect("[bgp]").peers.remove(0).bfd
}

#[test]
fn true_is_the_default_session_and_false_is_none() {
    assert_eq!(bfd_of_peer(&peer("")), None);
    assert_eq!(bfd_of_peer(&peer("bfd = false")), None);
    assert_eq!(bfd_of_peer(&peer("bfd = true")), Some(PeerBfd::default()));
    assert_eq!(bfd_of_peer(&peer("bfd = {}")), Some(PeerBfd::default()));
    let said = PeerBfd {
        profile: Some("fast".to_owned()),
        hops: BfdHops::Multiple,
        strict: true,
        strict_hold_time: Duration::from_secs(5),
    };
    let text = "bfd = { profile = \"fast\", hops = \"multiple\", strict = true, strict-hold-time = 5 }";
    assert_eq!(bfd_of_peer(&format!("{}[[bfd.profile]]\nname = \"fast\"\n", peer(text))), Some(said));
    let statics = |rest| parse(&gateway(rest)).expect("no errors").statics.remove(0).bfd;
    assert_eq!((statics(""), statics("bfd = true")), (None, Some(StaticBfd::default())));
    let single = StaticBfd { hops: BfdHops::Single, profile: Some("default".to_owned()) };
    assert_eq!(statics("bfd = { profile = \"default\", hops = \"single\" }"), Some(single));
}

#[test]
fn a_group_lends_its_session_or_parts_of_it() {
    let group = |of_group: &str, own: &str| {
        let text = format!(
            "[[bgp.group]]\nname = \"g\"\nbfd = {of_group}\n{}",
            peer(&format!("group = \"g\"\n{own}"))
        );
        bfd_of_peer(&text)
    };
    let strict = PeerBfd { strict: true, ..PeerBfd::default() };
    assert_eq!(group("{ strict = true }", ""), Some(strict.clone()));
    assert_eq!(group("{ strict = true }", "bfd = false"), None);
    assert_eq!(group("{ strict = true }", "bfd = true"), Some(PeerBfd::default()));
    assert_eq!(group("true", "bfd = { strict = true }"), Some(strict.clone()));
    let both = PeerBfd { hops: BfdHops::Multiple, ..strict };
    assert_eq!(group("{ strict = true }", "bfd = { hops = \"multiple\" }"), Some(both));
}

#[test]
fn who_needs_the_process_implies_its_section_with_its_defaults() {
    let slow = |text: &str| {
        let section = parse(text).expect("no errors").sections.remove("bfd")?;
        section.values.get("slow-timer").and_then(serde_json::Value::as_u64)
    };
    assert_eq!(slow(&peer("")), None);
    assert_eq!(slow(&peer("bfd = true")), Some(7));
    assert_eq!(slow(&gateway("bfd = {}")), Some(7));
    assert_eq!(slow(&format!("{}[bfd]\nslow-timer = 9\n", peer("bfd = true"))), Some(9));
    assert_eq!(slow("[bfd]\n"), Some(7));
}

#[test]
fn what_is_wrong_is_said_where_it_stands() {
    let fast = "[[bfd.profile]]\nname = \"fast\"\n";
    let on_link = "[[bgp.peer]]\nname = \"a\"\nasn = 65101\ninterface = \"eth1\"\n";
    for (text, place, message) in [
        (peer("bfd = 3"), "3", "this is a number"),
        (peer("bfd = { profil = \"fast\" }"), "profil", "unknown key `profil`"),
        (peer("bfd = { profile = \"fast\" }"), "\"fast\"", "there is no BFD profile `fast`"),
        (
            format!("{}{fast}", gateway("bfd = { profile = \"fats\" }")),
            "\"fats\"",
            "there is no BFD profile `fats`",
        ),
        (peer("bfd = { strict = true, strict-hold-time = 0 }"), "0", "`strict-hold-time` is out of range"),
        (format!("{on_link}bfd = {{ hops = \"multiple\" }}"), "\"multiple\"", "one hop away"),
        ("[[static]]\nprefix = \"10.9.0.0/16\"\nblackhole = true\nbfd = true".into(), "true", "no neighbour"),
        ("[[static]]\nprefix = \"10.9.0.0/16\"\ninterface = \"eth1\"\nbfd = {}".into(), "{}", "no neighbour"),
        (
            gateway("interface = \"eth1\"\nbfd = { hops = \"multiple\" }"),
            "{ hops = \"multiple\" }",
            "one hop away",
        ),
    ] {
        let faults = parse(&text).expect_err(&text);
        assert_eq!(faults.len(), 1, "{text} {faults:#?}");
        let fault = &faults[0];
        let meant: String = fault.text.chars().skip(fault.column - 1).take(fault.width).collect();
        assert_eq!(meant, place, "{text}");
        assert!(fault.message.contains(message), "{text} {}", fault.message);
    }
}
