//! Descriptors of protocols of others, alone and in a configuration.

use std::{cell::RefCell, net::IpAddr, time::Duration};

use holdfast_config::{
    Config, Datagrams, Descriptor, Diagnostic, Diagnostics, Holds, LONGEST_DESCRIPTOR, RawIp,
    describe::{Default, Form, Key, Type},
    parse_with, read_argument,
    schema::Size,
    secrets,
};
use holdfast_types::Afi;
use serde_json::json;

use super::schema;

const TOY: &str = r#"does = "says hello"
doc = "A protocol that says hello."
program = "/usr/bin/python3"
arguments = ["/opt/toy/toy.py"]
reads = ["/opt/toy"]
distance = 130
memory = "128 MiB"
hang-limit = 5

[[datagrams]]
port = 5355
group = "224.0.0.120"

[[key]]
name = "word"
type = "text"
required = true
doc = "what it says"

[[key]]
name = "speeds"
type = "word"
words = ["fast", "slow"]
list = true
default = ["slow"]
doc = "how"

[[key]]
name = "interface"
type = "tables"
doc = "Where it speaks."
key = [
  { name = "name", type = "interface", required = true, doc = "its name" },
  { name = "vrf", type = "vrf", doc = "the VRF that it is in" },
  { name = "cost", type = "number", range = [1, 15], default = 1, doc = "what it adds" },
]

[[show]]
name = "neighbors"
doc = "who has said hello"

[[raw]]
family = "ipv4"
protocol = 89
groups = ["224.0.0.5"]
"#;

const ROUTER: &str = r#"[router]
id = "10.0.0.1"
asn = 65001
[[protocol]]
name = "toy"
descriptor = "toy.toml"
"#;

const SECTION: &str = "[toy]\nword = \"hello\"\n[[toy.interface]]\nname = \"eth1\"\n";

fn with_descriptor(text: &str, descriptor: &str) -> Result<Config, Diagnostics> {
    let read = |name: &str, holds: Holds<'_>| match (name, holds) {
        ("toy.toml" | "other.toml", Holds::Descriptor) => Ok(vec![descriptor.as_bytes().to_vec()]),
        ("/usr/bin/python3", Holds::Program) | ("/opt/toy", Holds::Anything) => Ok(Vec::new()),
        other => Err(format!("{other:?} is not there")),
    };
    parse_with(text, "router.toml", schema(), &read)
}

fn faults(wrong: Result<Config, Diagnostics>) -> Vec<String> {
    let say = |fault: &Diagnostic| {
        let more = [&fault.expected, &fault.hint]
            .map(|part| part.as_ref().map_or(String::new(), |part| format!(" | {part}")));
        format!("{}:{}: {}{}", fault.file, fault.line, fault.message, more.concat())
    };
    wrong.err().map(|wrong| wrong.iter().map(say).collect()).unwrap_or_default()
}

#[test]
fn a_section_has_the_rows_of_its_descriptor() {
    let config = with_descriptor(&format!("{ROUTER}{SECTION}"), TOY).expect("no errors");
    let section = &config.sections["toy"];
    let expected = json!({
        "word": "hello", "speeds": ["slow"], "interface": [{ "name": "eth1", "cost": 1 }],
    });
    assert_eq!(serde_json::Value::from(section.values.clone()), expected);
    assert!(section.interfaces.contains(&(None, "eth1".into())));
    let group = "224.0.0.120".parse::<IpAddr>().expect("an address");
    let routing = section.routing.expect("it routes");
    assert_eq!((routing.distance, routing.datagrams), (130, &[Datagrams { port: 5355, group, hops: 1 }][..]));
    let raw = RawIp { afi: Afi::IPV4, protocol: 89, groups: routing.raw[0].groups, hops: 1 };
    assert_eq!((routing.raw, routing.raw[0].groups.len()), (&[raw][..], 1));
    assert_eq!(config.rib.distance.processes["toy"], 130);
    assert_eq!(config.sandbox.limits_of("toy").memory.map(Size::octets), Some(128 << 20));
    let (name, descriptor) = config.described().next().expect("it is described");
    assert_eq!((name, descriptor.hang_limit), ("toy", Some(Duration::from_secs(5))));
    assert!(config.notes().is_empty());
}

#[test]
fn every_interface_that_a_section_names_is_one_for_its_sockets() {
    let more = "\n[[key]]\nname = \"passive\"\ntype = \"interface\"\nlist = true\ndefault = [\"eth8\"]\ndoc = \"more\"\n\
        [[key]]\nname = \"uplink\"\ntype = \"interface\"\ndoc = \"one\"\n\
        [[key]]\nname = \"downlink\"\ntype = \"interface\"\ndoc = \"another\"\n";
    let interfaces = |section: &str| {
        let config =
            with_descriptor(&format!("{ROUTER}[toy]\nword = \"x\"\n{section}"), &format!("{TOY}{more}"));
        let interfaces = config.expect("no errors").sections["toy"].interfaces.clone();
        Vec::from_iter(interfaces)
    };
    let here = |names: &[&str]| names.iter().map(|name| (None, (*name).to_owned())).collect::<Vec<_>>();
    assert_eq!(interfaces(""), here(&["eth8"]));
    assert_eq!(interfaces("passive = [\"eth1\", \"eth2\"]\n"), here(&["eth1", "eth2"]));
    assert_eq!(interfaces("passive = []\nuplink = \"eth3\"\ndownlink = \"eth4\"\n"), here(&["eth3", "eth4"]));
}

#[test]
fn what_the_router_says_of_processes_it_says_of_a_protocol() {
    let more = "[rib.distance]\ntoy = 90\n[log.process]\ntoy = \"debug\"\n[sandbox.limits.toy]\ncpu = 20\n\
        [bgp]\n[[bgp.redistribute]]\nfrom = \"toy\"\npolicy = \"accept-all\"\n";
    let config = with_descriptor(&format!("{ROUTER}{SECTION}{more}"), TOY).expect("no errors");
    assert_eq!(config.rib.distance.processes["toy"], 90);
    let limits = config.sandbox.limits_of("toy");
    assert_eq!((limits.cpu, limits.memory.map(Size::octets)), (Some(20), Some(128 << 20)));
    assert!(config.log.filter().contains("toy=debug"));
}

#[test]
fn without_its_section_a_protocol_does_not_run() {
    let config = with_descriptor(ROUTER, TOY).expect("no errors");
    assert_eq!((config.described().count(), config.sections.len()), (0, 0));
    assert_eq!(config.notes(), ["protocol `toy` does not run: there is no [toy]"]);
}

#[test]
fn wrong_keys_are_found_by_the_rows() {
    let wrong = |section: &str| faults(with_descriptor(&format!("{ROUTER}[toy]\n{section}"), TOY));
    let expected =
        "router.toml:8: unknown key `wrod` in toy | one of word, speeds, interface | did you mean `word`?";
    assert_eq!(wrong("wrod = \"x\"\nword = \"y\"\n"), [expected]);
    let expected = "router.toml:11: the number is out of range | 1 to 15";
    assert_eq!(wrong("word = \"x\"\n[[toy.interface]]\nname = \"eth1\"\ncost = 16\n"), [expected]);
    assert_eq!(wrong(""), ["router.toml:7: toy needs `word` | `word` = text"]);
}

#[test]
fn what_is_wrong_with_a_descriptor_is_shown_in_its_own_file() {
    let descriptor = TOY.replace("type = \"text\"", "type = \"txet\"");
    let found = faults(with_descriptor(&format!("{ROUTER}{SECTION}"), &descriptor));
    let types = "one of bool, number, word, text, secret, address, prefix, interface, asn, policy, vrf, protocol, table, tables";
    assert_eq!(found, [format!("toy.toml:16: there is no type `txet` | {types} | did you mean `text`?")]);
    let unread =
        parse_with(&format!("{ROUTER}{SECTION}"), "router.toml", schema(), &|_, _| Err("no".to_owned()));
    assert_eq!(faults(unread), ["router.toml:6: toy.toml: no"]);
    // Where files are not read, nothing of it is known, and nothing is wrong.
    let unread = holdfast_config::parse(&format!("{ROUTER}{SECTION}"), "router.toml", schema());
    assert_eq!(faults(unread), [""; 0]);
}

#[test]
fn every_check_of_a_descriptor_points_at_its_text() {
    let key = |more: &str| format!("[[key]]\nname = \"last\"\ndoc = \"d\"\n{more}");
    let deep = |depth: usize| {
        let inner = "{ name = \"name\", type = \"bool\", doc = \"d\" }".to_owned();
        (0..depth).fold(inner, |inner, _| {
            format!("{{ name = \"name\", type = \"table\", doc = \"d\", key = [{inner}] }}")
        })
    };
    let cases = [
        // It stands before the first table.
        (TOY.replace("does = \"says hello\"", ""), 10, "the file needs `does`"),
        ("does = \"a\"\ndoc = \"b\"\n".to_owned(), 3, "the file needs `program`"),
        (TOY.replace("\"says hello\"", "\"says\\nhello\""), 1, "`does` is no line of text"),
        (TOY.replace("\"/usr/bin/python3\"", "\"python3\""), 3, "`python3` is no absolute path"),
        (TOY.replace("[\"/opt/toy\"]", "\"toy\""), 5, "`toy` is no absolute path"),
        (TOY.replace("[\"/opt/toy/toy.py\"]", "[\"a\\u0000b\"]"), 4, "there is a zero in it"),
        (TOY.replace("224.0.0.120", "10.0.0.1"), 12, "10.0.0.1 is no multicast group"),
        (TOY.replace("5355", "0"), 11, "port 0 is no port to listen at"),
        (TOY.replace("\"word\"\ntype", "\"Word\"\ntype"), 15, "`Word` is no name"),
        (TOY.replace("\"speeds\"", "\"word\""), 21, "key `word` is already on line 15"),
        (TOY.replace("[\"slow\"]", "[\"slwo\"]"), 25, "the key does not take this value"),
        (TOY.replace("default = 1,", "default = 16,"), 35, "the key does not take this value"),
        (TOY.replace("[1, 15]", "[15, 1]"), 35, "this is no range"),
        (TOY.replace("words = [\"fast\", \"slow\"]\n", ""), 20, "[[key]] needs `words`"),
        (
            TOY.replace("required = true\n", "required = true\ndefault = \"x\"\n"),
            18,
            "a key that is required has no default",
        ),
        (TOY.replace("required = true\n", "range = [1, 2]\n"), 17, "`range` is for keys of type `number`"),
        (
            TOY.replace("{ name = \"name\",", "{ name = \"link\","),
            28,
            "the tables have no key `name` that names them",
        ),
        (
            TOY.replace("type = \"interface\", required = true, doc = \"its name\"", "type = \"interface\""),
            33,
            "[[key]] needs `doc`",
        ),
        (format!("{TOY}{}", key("type = \"table\"\n")), 46, "[[key]] needs `key`"),
        (
            format!(
                "{TOY}{}",
                key(
                    "type = \"tables\"\nlist = true\nkey = [{ name = \"name\", type = \"bool\", doc = \"d\" }]\n"
                )
            ),
            50,
            "a list of tables is of the type `tables`",
        ),
        (
            format!("{TOY}{}", key(&format!("type = \"table\"\nkey = [{}]\n", deep(3)))),
            50,
            "tables are at most 4 deep",
        ),
        (
            format!("{TOY}{}", key("type = \"vrf\"\ndefault = \"blue\"\n")),
            50,
            "the key does not take this value",
        ),
        (format!("{TOY}#{}", "x".repeat(LONGEST_DESCRIPTOR)), 1, "this is too long for a descriptor"),
        (TOY.replace("distance", "distence"), 6, "unknown key `distence` in the file"),
        (TOY.replace("\nname = \"neighbors\"", "\nname = \"a b\""), 39, "`a b` is no name"),
        (TOY.replace("protocol = 89", "protocol = 6"), 44, "packets of protocol number 6 are not relayed"),
        (TOY.replace("\"ipv4\"", "\"ipv6\""), 45, "224.0.0.5 is no multicast group of the family"),
        (
            format!("{TOY}[[raw]]\nfamily = \"ipv4\"\nprotocol = 89\n"),
            48,
            "protocol number `89 of ipv4` is already on line 44",
        ),
        (
            TOY.replace("[\"224.0.0.5\"]", &format!("[{}]", "\"224.0.0.5\", ".repeat(17))),
            45,
            "there are too many",
        ),
    ];
    for (text, line, message) in cases {
        let wrong = Descriptor::parse(&text, "toy.toml").expect_err(message);
        let found: Vec<_> = wrong.iter().map(|fault| (fault.line, fault.message.as_str())).collect();
        let line = line.max(1);
        assert_eq!(found, [(line, message)], "{text}");
    }
    let fits = format!("{TOY}{}", key(&format!("type = \"table\"\nkey = [{}]\n", deep(2))));
    Descriptor::parse(&fits, "toy.toml").expect("four deep");
}

#[test]
fn a_descriptor_is_kept_once_for_each_text() {
    let [first, second] = ["a", "b"].map(|file| Descriptor::parse(TOY, file).expect("no errors"));
    assert!(std::ptr::eq(first, second));
    let rows: Vec<_> = first.section.names().collect();
    assert_eq!(rows, ["word", "speeds", "interface"]);
    let Some(Key { value: Type::Tables(table, "name"), .. }) = first.section.key("interface") else {
        panic!("tables")
    };
    assert!(matches!(table.keys[0].value, Type::Form(Form::Interface)));
    assert_eq!(table.keys[2].default, Default::Is("1"));
    let (schema, toy) = (schema(), [("toy".to_owned(), first)]);
    let file = || std::ptr::from_ref(schema.with(&toy).expect("there is room").file());
    assert_eq!(file(), file(), "and so is what follows from it");
}

#[test]
fn a_described_protocol_has_what_processes_have_and_nothing_of_a_socket() {
    let with = |rest: &str| faults(with_descriptor(&format!("{ROUTER}{rest}"), TOY));
    let hint = "another one is set in [rib.distance]";
    assert_eq!(with("distance = 3\n"), [format!("router.toml:7: the descriptor says the distance | {hint}")]);
    let found = with("user = \"toy\"\n");
    assert!(found.len() == 1 && found[0].contains("`user` is of a socket"), "{found:?}");
    let found = with("[sandbox]\nfirst-user = 0\n");
    assert!(
        found.len() == 1 && found[0].contains("there is no user that its program could run as"),
        "{found:?}"
    );
    let other = "[[protocol]]\nname = \"other\"\ndescriptor = \"other.toml\"\n";
    assert_eq!(with(other), [""; 0], "their names make different users");
    let same = TOY.replace("distance = 130", "user = 3");
    let found = faults(with_descriptor(&format!("{ROUTER}{other}"), &same));
    let expected = "router.toml:9: `toy` and `other` would run as one user | give one of them another `user` in its descriptor";
    assert_eq!(found, [expected]);
    for taken in ["bgp", "policy", "router", "socket"] {
        let text = ROUTER.replace("\"toy\"", &format!("\"{taken}\""));
        let found = faults(with_descriptor(&text, TOY));
        assert_eq!(
            found,
            [format!("router.toml:5: `{taken}` is the name of a part of this router | another name")]
        );
    }
}

#[test]
fn each_file_is_read_as_one_of_which_nobody_else_has_a_say() {
    let asked = RefCell::new(Vec::new());
    let read = |name: &str, holds: Holds<'_>| {
        asked.borrow_mut().push(format!("{name}: {holds:?}"));
        Ok(vec![TOY.as_bytes().to_vec()])
    };
    parse_with(ROUTER, "router.toml", schema(), &read).expect("no errors");
    assert_eq!(
        asked.into_inner(),
        ["toy.toml: Descriptor", "/usr/bin/python3: Program", "/opt/toy: Anything"]
    );
}

#[test]
fn a_program_that_is_not_there_and_what_it_reads_are_faults_of_the_descriptor() {
    let descriptor =
        TOY.replace("/usr/bin/python3", "/usr/bin/pyhton3").replace("[\"/opt/toy\"]", "[\"/opt/toi\"]");
    let found = faults(with_descriptor(&format!("{ROUTER}{SECTION}"), &descriptor));
    let missing = |line: u32, holds: &str, path: &str| {
        format!("toy.toml:{line}: {path}: (\"{path}\", {holds}) is not there")
    };
    let expected = [missing(3, "Program", "/usr/bin/pyhton3"), missing(5, "Anything", "/opt/toi")];
    assert_eq!(found, expected);
}

#[test]
fn the_value_of_a_secret_is_no_default_and_is_shown_nowhere() {
    let more = "\n[[key]]\nname = \"pass\"\ntype = \"secret\"\nlist = true\ndoc = \"what others know\"\n";
    let with = |value: &str| {
        let section = SECTION.replace("word = \"hello\"", &format!("word = \"hello\"\npass = {value}"));
        with_descriptor(&format!("{ROUTER}{section}"), &format!("{TOY}{more}"))
    };
    let config = with("[\"s3cret\", \"other\"]").expect("no errors");
    assert!(!format!("{config:?}").contains("s3cret"));
    let (table, section) =
        (config.described().next().expect("it is described").1.section, &config.sections["toy"]);
    assert!(secrets::has_secrets(table));
    let (settings, secrets) = secrets::apart(table, &section.values);
    assert_eq!(
        (settings["pass"].clone(), secrets),
        (json!([0, 1]), vec!["s3cret".to_owned(), "other".to_owned()])
    );
    // What is not right is not shown either.
    for (wrong, message) in
        [("77", "this is no text"), ("\"(secret)\"", "is what is shown in the place of a secret")]
    {
        let wrong = with(wrong).expect_err(message).to_string();
        assert!(wrong.contains(message) && wrong.contains("pass = **"), "{wrong}");
    }
    let long = "x".repeat(secrets::MOST_SECRETS);
    assert_eq!(
        faults(with(&format!("\"{long}\""))),
        ["router.toml:7: its secrets are too long | 65536 octets, as JSON"]
    );
    let default = format!("{TOY}{more}")
        .replace("list = true\ndoc = \"what others", "default = \"x\"\ndoc = \"what others");
    let wrong = Descriptor::parse(&default, "toy.toml").expect_err("everybody can read it");
    assert!(wrong.to_string().contains("the key does not take this value"), "{wrong}");
}

#[test]
fn bits_after_the_length_of_a_prefix_are_refused_with_what_it_would_be() {
    let more = "\n[[key]]\nname = \"network\"\ntype = \"prefix\"\ndoc = \"where\"\n";
    let section = SECTION.replace("word = \"hello\"", "word = \"hello\"\nnetwork = \"10.0.0.1/8\"");
    let found = faults(with_descriptor(&format!("{ROUTER}{section}"), &format!("{TOY}{more}")));
    let expected =
        "router.toml:9: `10.0.0.1/8` has bits set after its length; the prefix is 10.0.0.0/8 | prefix";
    assert_eq!(found, [expected]);
}

#[test]
fn arguments_of_commands_have_types() {
    let with = |argument: &str| {
        let text = format!("{TOY}[[clear]]\nname = \"routes\"\ndoc = \"d\"\nargument = [{argument}]\n");
        Descriptor::parse(&text, "toy.toml")
    };
    let all = [
        ("yes", "bool", "", "true", "yes", "expected `true` or `false`"),
        ("count", "number", ", range = [1, 9]", "9", "10", "expected 1 to 9"),
        (
            "how",
            "word",
            ", words = [\"fast\", \"slow\"]",
            "\"slow\"",
            "slwo",
            "expected `\"fast\"` or `\"slow\"`",
        ),
        ("at", "address", "", "\"2001:db8::1\"", "10.0.0", "`10.0.0` is no address"),
        (
            "to",
            "prefix",
            "",
            "\"10.0.0.0/8\"",
            "10.0.0.1/8",
            "`10.0.0.1/8` has bits set after its length; the prefix is 10.0.0.0/8",
        ),
        ("on", "interface", "", "\"eth0\"", "e/0", "`e/0` is no name of an interface"),
        ("asn", "asn", "", "65001", "x", "expected AS number"),
    ];
    let rows: Vec<_> = all
        .iter()
        .map(|(name, kind, more, ..)| {
            format!("{{ name = \"{name}\", type = \"{kind}\", doc = \"d\"{more} }}")
        })
        .collect();
    let descriptor = with(&rows.join(", ")).unwrap_or_else(|wrong| panic!("{wrong}"));
    let arguments = descriptor.clears[0].arguments;
    for (argument, (name, _, _, right, wrong, message)) in arguments.iter().zip(all) {
        assert_eq!((argument.name, argument.default), (name, Default::Else("none")));
        let value: serde_json::Value = right.parse().expect("JSON");
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        assert_eq!(read_argument(argument, &text), Ok(value));
        assert_eq!(read_argument(argument, wrong), Err(message.to_owned()));
    }
    assert!(descriptor.shows[0].arguments.is_empty());
    for (argument, message) in [
        ("name = \"json\", type = \"text\"", "every command has an option of this name"),
        ("name = \"a\", type = \"tables\"", "there is no type `tables`"),
        ("name = \"a\", type = \"secret\"", "there is no type `secret`"),
        ("name = \"a\", type = \"text\", range = [1, 2]", "`range` is for keys of type `number`"),
        ("name = \"a\", type = \"word\"", "[[argument]] needs `words`"),
        ("name = \"a\", type = \"text\", list = true", "unknown key `list` in [[argument]]"),
    ] {
        let wrong = with(&format!("{{ {argument}, doc = \"d\" }}")).expect_err(message);
        let found: Vec<_> = wrong.iter().map(|fault| (fault.line, fault.message.as_str())).collect();
        assert_eq!(found, [(49, message)]);
    }
}
