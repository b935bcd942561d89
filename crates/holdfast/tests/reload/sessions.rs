//! Whose sessions end, and whose connections get other options.

use holdfast_api::bgp::v1::{BgpClient, Configuration};
use holdfast_config::{
    Config, Schema,
    describe::{self, Default, Effect, Key, Type},
    schema::Peer,
};
use holdfast_manager::Ending;
use holdfast_process::{Reads, Refit};

use super::fixtures::{FILE, changes, config, ending, plan, refit, secure, told};
use crate::processes;

/// What `bgp` is told of the default table.
fn configuration(config: &Config, refit: &Refit) -> Configuration {
    let processes = processes();
    let Some(Reads::Config(reader)) = processes.named("bgp").map(|bgp| bgp.reads) else { panic!("no `bgp`") };
    let requests = (reader.requests)(config, None, refit).expect("readable");
    requests[0].read::<BgpClient>().expect("a request to it").expect("readable")
}

/// Another value than the default, in TOML; `None` for what is not a single value.
fn other(key: &Key) -> Option<String> {
    let is = |text: &str| matches!(key.default, Default::Is(default) if default == text);
    match key.value {
        Type::Bool => Some((!is("true")).to_string()),
        Type::Number(low, high) => Some(if is(&high.to_string()) { low } else { high }.to_string()),
        Type::Word(words) => words.iter().map(|word| format!("\"{word}\"")).find(|word| !is(word)),
        Type::Form(form) => Some(format!("\"{}\"", form.example())),
        Type::Text(_, example) | Type::Secret(_, example) => Some(format!("\"{example}\"")),
        Type::Asn => Some("65009".to_owned()),
        _ => None,
    }
}

#[test]
fn a_session_that_does_not_outlive_its_process_ends_with_it() {
    let named = |more: &str| {
        config(&[("asn = 65001", "asn = 65001\nnonstop = false"), ("[bgp]", &format!("[bgp]\n{more}"))])
    };
    assert_eq!(ending(&named(""), &named("max-paths = 4")), ["a"]);
}

#[test]
fn what_is_taken_at_birth_replaces_those_who_take_it() {
    let replaced = |changed: &[(&str, &str)]| {
        let (old, new) = (config(&[]), config(changed));
        (plan(&old, &new).replaced, ending(&old, &new))
    };
    let none = Vec::<String>::new;
    assert_eq!(
        replaced(&[("[bgp]", "[rib]\ndistance = { ebgp = 30 }\n[bgp]")]),
        (vec!["rib", "bgp"], none())
    );
    for key in ["max-paths = 4", "local-preference = 7", "cluster-id = \"10.0.0.9\"", "damping = {}"] {
        assert_eq!(replaced(&[("[bgp]", &format!("[bgp]\n{key}"))]), (vec!["bgp"], none()), "{key}");
    }
    assert_eq!(replaced(&[("[bgp]", "[bgp]\nhold-time = 9")]).0, Vec::<&str>::new());
}

#[test]
fn of_the_whole_router_those_keys_end_sessions_that_say_so() {
    let least: toml::Table = FILE.replace("\"10.0.0.1\"", "\"10.0.0.7\"").parse().expect("TOML");
    let config = |file: &toml::Table| holdfast_config::parse(&file.to_string(), "test", Schema::new([]));
    let old = config(&least).expect("no errors");
    let mut ended = Vec::new();
    for header in describe::headers(Schema::new([]).file()).iter().filter(|header| !header.many) {
        for (key, value) in header.table.keys.iter().filter_map(|key| Some((key, other(key)?))) {
            let mut file = least.clone();
            let inner: toml::Table = format!("{}.{} = {value}", header.path, key.name).parse().expect("TOML");
            for (name, table) in inner {
                let before = file.entry(name).or_insert(toml::Table::new().into()).as_table_mut();
                before.expect("a table").extend(table.as_table().expect("a table").clone());
            }
            // Some keys need others besides: those are not tried here.
            let Ok(new) = config(&file) else { continue };
            let ends = !ending(&old, &new).is_empty();
            assert_eq!(ends, key.effect == Effect::Session, "{} of {}", key.name, header.title());
            ended.extend(ends.then(|| format!("{}.{}", header.path, key.name)));
        }
    }
    assert_eq!(ended, ["router.id", "router.asn", "bgp.hold-time", "bgp.confederation.id"]);
}

#[test]
fn another_number_of_ours_ends_the_sessions_that_say_it() {
    let with = |asn: &str, more: &str, confederation: &str| {
        let bgp = format!("{confederation}\n[bgp]");
        let asn = format!("asn = {asn}");
        config(&[("asn = 65000", &asn), ("asn = 65001", &format!("asn = 65001\n{more}")), ("[bgp]", &bgp)])
    };
    let other = |more: &str| ending(&with("65000", more, ""), &with("65009", more, ""));
    assert_eq!(other(""), ["a", "b"]);
    assert_eq!(other("local-asn = 65010"), ["b"]);
    let of =
        |members: &str| with("65000", "", &format!("[bgp.confederation]\nid = 65100\nmembers = {members}"));
    assert_eq!(ending(&of("[]"), &of("[65001]")), ["a"], "it is inside from then on");
    assert!(ending(&of("[]"), &of("[65003]")).is_empty());
}

#[test]
fn a_session_that_bgp_says_is_not_protected_ends_with_its_process() {
    let (old, new) = (config(&[]), config(&[("[bgp]", "[bgp]\nmax-paths = 4")]));
    let ending = |unprotected: &[&str]| {
        let unprotected = unprotected.iter().map(|name| (*name).to_owned());
        Ending::new(&processes(), &old, &new, unprotected).names()
    };
    assert_eq!((ending(&[]), ending(&["b"])), (Vec::new(), vec!["b".to_owned()]));
    assert!(ending(&["b:10.0.2.2"]).is_empty(), "b is no range");
}

#[test]
fn another_key_is_another_socket_and_nothing_that_bgp_sees() {
    let (old, new) = (config(&[]), config(&[("first", "second")]));
    assert_eq!(refit(&old, &new), ["b"]);
    let told = |config| configuration(config, &Refit::new());
    assert_eq!(told(&old), told(&new));
}

#[test]
fn a_session_is_left_out_of_nonstop_by_its_peer_or_by_all() {
    let told = |config: &Config| {
        let told = configuration(config, &Refit::new());
        let peer = |n: usize| serde_json::from_slice::<Peer>(&told.peers[n].settings).expect("JSON");
        (told.nonstop, told.nonstop_octets, peer(0).nonstop, peer(1).nonstop)
    };
    let (all, but_a) = (config(&[]), config(&[("asn = 65001", "asn = 65001\nnonstop = false")]));
    assert_eq!(told(&all), (true, 1 << 30, true, true));
    assert_eq!(told(&but_a), (true, 1 << 30, false, true));
    assert_eq!(changes(&all, &but_a), ["peers changed: a"]);
    assert!(refit(&all, &but_a).is_empty() && ending(&all, &but_a).is_empty());
    let none = config(&[("[bgp]", "[bgp]\nnonstop = false\nnonstop-memory = \"2 MiB\"")]);
    assert_eq!(told(&none), (false, 0, false, false));
    let off = config(&[("[bgp]", "[bgp]\nnonstop = false")]);
    assert!(ending(&all, &off).is_empty() && ending(&off, &all).is_empty(), "it is not replaced for that");
}

/// A key of a peer, in TOML: with what it needs besides, and its value before; and its value after. `None`: as
/// [`other`] says.
fn before_and_after(key: &Key) -> Option<[String; 2]> {
    let with = |needed: &str, before: &str, after: &str| {
        let line = |value: &str| match value {
            "" => needed.to_owned(),
            value => format!("{needed}\n{} = {value}", key.name),
        };
        Some([line(before), line(after)])
    };
    match key.name {
        // What says where a peer is makes another of it, and is tried elsewhere; these have no session of their own.
        "address" | "interface" | "listen-range" | "vrf" | "group" => None,
        "name" | "asn" => None,
        // Over TLS only: tried elsewhere.
        name if name.starts_with("tls-") => None,
        "transport" => None,
        "families" => with("", "", "[\"ipv4-unicast\", \"ipv6-unicast\"]"),
        "import" | "export" => with("", "\"accept-all\"", "\"reject-all\""),
        "max-octets" => with("", "", "\"2 MiB\""),
        "next-hop-ipv6" => with("families = [\"ipv4-unicast\", \"ipv6-unicast\"]", "", "\"2001:db8::1\""),
        "next-hop-ipv4" => None,
        "limit" => with("", "", "[{ family = \"ipv4-unicast\", received = 7 }]"),
        "restart-time" | "stale-time" => with("graceful-restart = \"full\"", "", "7"),
        "long-lived-stale-time" => with("graceful-restart = \"full\"", "", "7"),
        "hold-time" => with("", "", "30"),
        "damping" => None,
        "nonstop" => with("", "", "false"),
        "graceful-shutdown" => with("", "", "true"),
        "disabled" => None,
        "route-reflector-client" | "accept-validity" | "announce-validity" => None,
        "own-view" => with("route-server-client = true", "", "true"),
        "local-asn-mode" => with("local-asn = 65009", "", "\"replace\""),
        "role" => with("", "", "\"provider\""),
        "role-strict" => with("role = \"provider\"", "", "true"),
        "add-path" => with("", "", "{ receive = true }"),
        "orf-prefix-set" => None,
        _ => with("", "", &other(key)?),
    }
}

#[test]
fn what_ends_a_session_is_what_the_description_says() {
    let config = |lines: &str| {
        let text = FILE.replace("asn = 65001", &format!("asn = 65001\n{lines}"));
        holdfast_config::parse(&text.replace("import = \"accept-all\"", ""), "test", Schema::new([]))
    };
    let headers = describe::headers(Schema::new([]).file());
    let peer = headers.iter().find(|header| header.path == "bgp.peer").expect("the table of peers");
    let (mut tried, mut ended) = (0, 0);
    for key in peer.table.keys {
        let Some([before, after]) = before_and_after(key) else { continue };
        let [old, new] = [before, after].map(|lines| config(&lines).expect(&lines));
        let ends = !ending(&old, &new).is_empty();
        // The keys of the table below say it for that.
        let says = key.effect == Effect::Session || key.name == "add-path";
        assert_eq!(ends, says, "{}", key.name);
        let [told, then] =
            [&old, &new].map(|config| configuration(config, &Refit::new()).peers[0].session.clone());
        assert_eq!(told != then, says, "{} is told", key.name);
        (tried, ended) = (tried + 1, ended + usize::from(ends));
    }
    assert!(tried >= 30 && ended >= 10, "{tried} {ended}");
}

#[test]
fn sessions_end_when_more_than_policies_and_words_differ() {
    let ended = |changed: &[(&str, &str)]| ending(&config(&[]), &config(changed));
    assert!(ended(&[("accept-all", "reject-all")]).is_empty());
    assert!(ended(&[("asn = 65001", "asn = 65001\ndescription = \"x\"\nnonstop = false")]).is_empty());
    let sends = |all: &str, few: &str| {
        let sent =
            |paths: &str| config(&[("asn = 65001", &format!("asn = 65001\nadd-path = {{ {paths} }}"))]);
        ending(&sent(all), &sent(few))
    };
    assert!(sends("send = \"all\"", "send = 2").is_empty(), "several stay several");
    assert_eq!(sends("", "send = 2"), ["a"]);
    assert_eq!(sends("send = 2", "send = 2, receive = true"), ["a"]);
    assert!(ended(&[("first", "second")]).is_empty() && ended(&[("md5 = \"first\"", "")]).is_empty());
    assert_eq!(ended(&[("65001", "65003"), ("10.0.2.2", "10.0.2.3")]), ["a", "b"]);
    assert!(ended(&[("\"a\"", "\"c\"")]).is_empty(), "it is the same under another name");
    assert_eq!(ended(&[("[bgp]", "[bgp]\nhold-time = 30")]), ["a", "b"]);
}

#[test]
fn other_certificates_end_no_session_and_another_list_of_transports_does() {
    let old = secure(&[], "");
    let all = |new: &Config| {
        let (first, then) = told(&old, new);
        assert!(then.is_empty(), "{then:?}");
        (changes(&old, new), ending(&old, new), refit(&old, new), first)
    };
    let renewed = secure(&[], " of another year");
    let both = ["secrets", "transport"].map(str::to_owned).to_vec();
    let lines = ["[tls] changed", "peers changed: a"].map(str::to_owned).to_vec();
    assert_eq!(all(&renewed), (lines, Vec::new(), Vec::new(), both));
    let named = secure(&[("\"r2\"", "\"r3\"")], "");
    let changed = vec!["peers changed: a".to_owned()];
    assert_eq!(ending(&old, &named), ["a"], "somebody else is meant");
    let admission =
        "[admission]\nretry = \"never\"\n[[admission.set]]\nname = \"x\"\nprefixes = \"::/0\"\n[bgp]";
    let admitting = secure(&[("[bgp]", admission)], "");
    let lines = ["[admission] changed", "sets of admission added: x"].map(str::to_owned).to_vec();
    // The filter before TCP's listeners knows the sets as well.
    let sockets = ["socket", "transport"].map(str::to_owned).to_vec();
    assert_eq!(all(&admitting), (lines, Vec::new(), Vec::new(), sockets));

    let fallen = secure(&[("\"tls\"", "[\"tls\", \"tcp\"]")], "");
    assert_eq!((changes(&old, &fallen), ending(&old, &fallen)), (changed, vec!["a".to_owned()]));
    assert!(refit(&old, &fallen).is_empty(), "another session is another socket");
}
