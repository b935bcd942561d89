//! `[nonstop.store]`.

use holdfast_config::{
    Config, Holds,
    schema::{OnStoreLoss, Standby, Store, StoreKind, Transport},
};

use super::{parse, schema};

const ROUTER: &str = "[router]\nid = \"10.0.0.1\"\nasn = 65001\n";
const PEER: &str = "[bgp]\n[[bgp.peer]]\nname = \"a\"\naddress = \"10.1.0.2\"\nasn = 65101\n";
const REDIS: &str = "kind = \"redis\"\naddresses = \"10.0.0.9:6379\"\n";

fn text(store: &str) -> String {
    format!("{ROUTER}[nonstop.store]\n{store}{PEER}")
}

fn config(store: &str) -> Config {
    parse(&text(store), "router.toml").unwrap_or_else(|wrong| panic!("{store}\n{wrong}"))
}

/// The only fault: what is meant, and what is said of it.
fn fault(text: &str) -> (String, String) {
    let wrong = parse(text, "router.toml").expect_err(text);
    let faults: Vec<_> = wrong.iter().collect();
    assert_eq!(faults.len(), 1, "{text}\n{wrong}");
    let line = text.lines().nth(faults[0].line - 1).unwrap_or_default();
    let more = faults[0].expected.iter().chain(&faults[0].hint).cloned().collect::<Vec<_>>();
    (line.to_owned(), format!("{} | {}", faults[0].message, more.join(" | ")))
}

#[test]
fn a_store_is_a_server_or_files_or_memory() {
    assert!(parse(&format!("{ROUTER}{PEER}"), "x").expect("right").store.is_none());
    let store = config(REDIS).store.expect("a store");
    assert_eq!(
        (store.kind, store.on_store_loss, store.transport),
        (StoreKind::Redis, OnStoreLoss::Degrade, Transport::Tcp)
    );
    assert_eq!((store.store_timeout, store.wait_replicas, store.user.is_none()), (None, 0, true));
    let several =
        config("kind = \"redis\"\naddresses = [\"[2001:db8::9]:1\", \"10.0.0.9:2\"]\nwait-replicas = 2\n");
    let names: Vec<_> = several.store.iter().flat_map(Store::peer_names).map(|(name, _)| name).collect();
    assert_eq!(names, ["store [2001:db8::9]:1", "store 10.0.0.9:2"], "in their order");
    let files = config(
        "kind = \"file\"\ndirectory = \"/var/lib/a\"\non-store-loss = \"step-down\"\nstore-timeout = 5\n",
    );
    let files = files.store.expect("a store");
    assert_eq!((files.kind, files.directory.as_deref()), (StoreKind::File, Some("/var/lib/a")));
    assert_eq!((files.on_store_loss, files.store_timeout), (OnStoreLoss::StepDown, Some(5)));
    let memory = config("kind = \"memory\"\nlease-directory = \"/run/lease\"\n").store.expect("a store");
    assert_eq!((memory.kind, memory.lease_directory.as_deref()), (StoreKind::Memory, Some("/run/lease")));
}

#[test]
fn what_is_wrong_is_said_where_it_stands() {
    let redis = |rest: &str| text(&format!("{REDIS}{rest}"));
    let addresses = |list: &str| text(&format!("kind = \"redis\"\naddresses = {list}\n"));
    let many: Vec<_> = (1..=9).map(|port| format!("\"10.0.0.9:{port}\"")).collect();
    let table = [
        (text(""), "[nonstop.store]", "needs `kind`"),
        (text("kind = \"etcd\"\n"), "etcd", "`etcd` is no value for `kind`"),
        (text("kind = \"redis\"\n"), "[nonstop.store]", "needs `addresses`"),
        (text("kind = \"file\"\n"), "[nonstop.store]", "needs `directory`"),
        (addresses("[]"), "addresses", "no address is left"),
        (addresses("\"10.0.0.9\""), "addresses", "10.0.0.9"),
        (addresses("\"10.0.0.9:0\""), "addresses", "port 0"),
        (addresses("\"0.0.0.0:1\""), "addresses", "0.0.0.0 is no address of a host"),
        (addresses("[\"10.0.0.9:1\", \"10.0.0.9:1\"]"), "addresses", "is already on line 6"),
        (addresses(&format!("[{}]", many.join(", "))), "addresses", "there are 9 addresses | at most 8"),
        (redis("directory = \"/a\"\n"), "directory", "no effect with `kind = \"redis\"`"),
        (text("kind = \"file\"\ndirectory = \"a\"\n"), "directory", "an absolute path"),
        (redis("lease-directory = \"a\"\n"), "lease-directory", "an absolute path"),
        (
            text("kind = \"memory\"\naddresses = \"10.0.0.9:1\"\n"),
            "addresses",
            "no effect with `kind = \"memory\"`",
        ),
        (text("kind = \"memory\"\ntls-name = \"a\"\n"), "tls-name", "no effect with `kind = \"memory\"`"),
        (text("kind = \"memory\"\nwait-replicas = 1\n"), "wait-replicas", "no effect"),
        (redis("user = \"a\"\n"), "user", "no effect without `password-file`"),
        (redis("user = \"a b\"\npassword-file = \"p\"\n"), "user", "no name of a user"),
        (redis("password-file = \"p/\"\n"), "password-file", "no name of a file"),
        (redis("store-timeout = 0\n"), "store-timeout", "1 to 3600"),
        (redis("wait-replicas = 17\n"), "wait-replicas", "0 to 16"),
        (redis("tls-pins = \"PIN\"\n").replace("PIN", &"2b".repeat(32)), "tls-pins", "no effect over `tcp`"),
        (redis("transport = \"quic\"\n"), "transport", "`quic` is no value"),
        (redis("timeout = 1\n"), "timeout", "unknown key `timeout`"),
        (redis("").replace("asn = 65101", "asn = 65101\nnonstop = false"), "[nonstop.store]", "no session"),
        (redis("").replace(PEER, ""), "[nonstop.store]", "no session"),
        (format!("{ROUTER}{PEER}[nonstop]\nstores = 1\n"), "stores", "unknown key `stores`"),
    ];
    for (text, meant, message) in table {
        let (found, said) = fault(&text);
        assert!(found.contains(meant), "{text}\nmeant: {found}");
        assert!(said.contains(message), "{text}\nsaid: {said}");
    }
}

#[test]
fn a_password_is_a_line_of_a_file_and_is_not_shown() {
    let read = |name: &str, _: Holds<'_>| match name {
        "good" => Ok(vec![b"hunter2\r\n".to_vec()]),
        "two" => Ok(vec![b"a\nb\n".to_vec()]),
        "empty" => Ok(vec![b"\n".to_vec()]),
        "long" => Ok(vec![vec![b'x'; 1025]]),
        _ => Err("No such file or directory".to_owned()),
    };
    let with = |name: &str| {
        let text = text(&format!("{REDIS}password-file = \"{name}\"\n"));
        holdfast_config::parse_with(&text, "router.toml", schema(), &read)
    };
    let config = with("good").unwrap_or_else(|wrong| panic!("{wrong}"));
    let password = config.store.as_ref().and_then(|store| store.password.as_ref()).expect("a password");
    assert_eq!((password.file.as_str(), &*password.contents), ("good", &b"hunter2"[..]));
    assert!(!format!("{config:?}").contains("hunter2"));
    for name in ["two", "empty", "long", "gone"] {
        let wrong = with(name).expect_err(name).to_string();
        assert!(wrong.contains(name) && !wrong.contains("xxx"), "{wrong}");
    }
}

#[test]
fn a_standby_is_cold_or_has_the_routes_of_a_store_that_can_be_followed() {
    let whole =
        |standby: &str, store: &str| format!("{ROUTER}[nonstop]\n{standby}[nonstop.store]\n{store}{PEER}");
    let standby = |text: &str| parse(text, "router.toml").expect(text).store.expect("a store").standby;
    assert_eq!(standby(&text(REDIS)), Standby::Cold);
    assert_eq!(standby(&whole("standby = \"cold\"\n", "kind = \"memory\"\n")), Standby::Cold);
    assert_eq!(standby(&whole("standby = \"preheated\"\n", REDIS)), Standby::Preheated);
    let (line, said) = fault(&whole("standby = \"preheated\"\n", "kind = \"memory\"\n"));
    assert_eq!(line, "standby = \"preheated\"");
    assert!(said.contains("can follow no store of this kind"), "{said}");
    let (_, said) = fault(&format!("{ROUTER}[nonstop]\nstandby = \"cold\"\n{PEER}"));
    assert!(said.contains("no effect without [nonstop.store]"), "{said}");
    let (_, said) = fault(&whole("standby = \"warm\"\n", REDIS));
    assert!(said.contains("preheated"), "{said}");
}

#[test]
fn a_service_address_is_one_that_neighbors_know_with_its_network() {
    let whole = |addresses: &str| format!("{ROUTER}[nonstop]\n{addresses}[nonstop.store]\n{REDIS}{PEER}");
    let one = |address: &str| format!("[[nonstop.address]]\naddress = \"{address}\"\ninterface = \"eth0\"\n");
    let both = whole(&(one("10.1.0.10/24") + &one("2001:db8:1::10/64")));
    let read = parse(&both, "router.toml").expect("right").store.expect("a store").service_addresses;
    let read: Vec<_> =
        read.iter().map(|own| (own.address.to_string(), own.length, own.interface.as_str())).collect();
    assert_eq!(read, [("10.1.0.10".into(), 24, "eth0"), ("2001:db8:1::10".into(), 64, "eth0")]);
    for (address, words) in [
        ("10.1.0.10", "no address with a length"),
        ("10.1.0.10/33", "no address with a length"),
        ("10.1.0/24", "no address with a length"),
        ("224.0.0.1/24", "no address of a host"),
        ("127.0.0.1/8", "something else on each router"),
        ("fe80::1/64", "something else on each router"),
    ] {
        let (_, said) = fault(&whole(&one(address)));
        assert!(said.contains(words), "{address}: {said}");
    }
    let (_, said) = fault(&whole(&(one("10.1.0.10/24") + &one("10.1.0.10/25"))));
    assert!(said.contains("service address `10.1.0.10` is already on line"), "{said}");
    let (_, said) = fault(&whole(&(one("10.1.0.10/24") + "vrf = \"blue\"\n")));
    assert!(said.contains("blue"), "{said}");
    let (_, said) = fault(&format!("{ROUTER}{}{PEER}", one("10.1.0.10/24")));
    assert!(said.contains("no effect without [nonstop.store]"), "{said}");
}
