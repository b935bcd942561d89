//! `[nonstop.store]`: where sessions are kept that outlive this host.

use std::{
    net::{IpAddr, SocketAddr},
    path::Path,
};

use super::{interface_name, is_link_local, tls, unicast_of, vrf};
use crate::{
    input::{At, Names, Problem, Section},
    keyed::Word as _,
    schema::{Bgp, KeyFile, ServiceAddress, Standby, Store, StoreKind, Transport, Trust},
};

/// Servers of a store at most.
const MOST: usize = 8;
/// Service addresses at most.
const MOST_ADDRESSES: usize = 64;
/// Octets of the name of a user.
const LONGEST_USER: usize = 64;
/// Octets of the secret that configurations are sealed with at least.
const SHORTEST_KEY: usize = 16;
/// Octets of the path of a directory: PATH_MAX is 4096, and the files are below.
const LONGEST_DIRECTORY: usize = 1024;
/// Keys that are about a server.
const OF_SERVERS: [&str; 11] = [
    "addresses",
    "user",
    "password-file",
    "key-file",
    "wait-replicas",
    "transport",
    "tls-name",
    "tls-authorities",
    "tls-pins",
    "tls-raw-public-key",
    "tls-revocations",
];

pub(super) fn read(
    section: &Section<'_>,
    door: &tls::Door<'_>,
    bgp: Option<&Bgp>,
    vrfs: &Names<'_>,
) -> Option<Store> {
    let service_addresses = service_addresses(section, vrfs);
    let standby = section.word("standby", Standby::WORDS, Standby::default());
    let Some(inner) = section.section("store", "[nonstop.store]") else {
        for key in ["standby", "address"].into_iter().filter(|key| section.has(key)) {
            section.add(key, Problem::new(format!("`{key}` has no effect without [nonstop.store]")));
        }
        return None;
    };
    let (whole, section) = (section, &inner);
    let mut store = Store::read(section);
    if !section.has("kind") {
        section.misses("kind", "\"redis\", \"file\" or \"memory\"");
    }
    let said = StoreKind::WORDS.iter().find(|(word, _)| section.is_text("kind", word));
    store.kind = section.word("kind", StoreKind::WORDS, StoreKind::default());
    for (key, directory) in [("directory", &store.directory), ("lease-directory", &store.lease_directory)] {
        directory.iter().for_each(|directory| absolute(section, key, directory));
    }
    store.addresses = addresses(section);
    store.user = section.optional::<String>("user").filter(|user| is_user(section, user)).map(|at| at.value);
    store.password = secret(section, door, "password-file", 1);
    store.key = secret(section, door, "key-file", SHORTEST_KEY);
    (store.transport, store.trust) = match store.kind {
        StoreKind::Redis => tls::server(section, door),
        StoreKind::File | StoreKind::Memory => (Transport::Tcp, Trust::default()),
    };
    (store.standby, store.service_addresses) = (standby, service_addresses);
    if standby == Standby::Preheated && said.is_some_and(|(_, kind)| *kind != StoreKind::Redis) {
        let problem = Problem::new("a standby can follow no store of this kind");
        whole.add("standby", problem.expected("`kind = \"redis\"`, or `standby = \"cold\"`"));
    }
    match said {
        Some((_, kind)) => belongs(section, *kind),
        // What else there may be depends on it.
        None => section.know_all(),
    }
    if !bgp.is_some_and(|bgp| bgp.peers.iter().any(|peer| peer.nonstop)) {
        let problem = Problem::new("there is no session that a store could keep");
        let problem = problem.hint("remove [nonstop.store], or give [bgp] a peer with `nonstop`");
        section.report.add(&section.span, problem);
    }
    Some(store)
}

fn service_addresses(section: &Section<'_>, vrfs: &Names<'_>) -> Vec<ServiceAddress> {
    let sections = section.sections("address", "[[nonstop.address]]");
    if let Some(extra) = sections.get(MOST_ADDRESSES) {
        let problem = Problem::new(format!("there are {} service addresses", sections.len()));
        section.report.add(&extra.span, problem.expected(format!("at most {MOST_ADDRESSES}")));
    }
    let mut names = Names::new(section.report, "service address");
    sections.iter().filter_map(|section| service_address(section, vrfs, &mut names)).collect()
}

fn service_address(section: &Section<'_>, vrfs: &Names<'_>, names: &mut Names<'_>) -> Option<ServiceAddress> {
    let (address, interface) =
        (section.required::<String>("address"), section.required::<String>("interface"));
    let vrf = vrf::of(section, vrfs);
    interface.iter().for_each(|name| interface_name(section, name));
    let (At { value: text, span }, interface) = (address?, interface?);
    let read = text.split_once('/').and_then(|(address, length)| {
        let (address, length) = (address.parse::<IpAddr>().ok()?, length.parse::<u8>().ok()?);
        (length <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, length))
    });
    let Some((address, length)) = read else {
        let problem = Problem::new(format!("`{text}` is no address with a length"));
        section.report.add(&span, problem.expected("as in \"10.1.0.10/24\""));
        return None;
    };
    unicast_of(section, &span, address);
    if is_link_local(address) || address.is_loopback() {
        let problem = Problem::new(format!("{address} means something else on each router"));
        section.report.add(&span, problem.expected("an address that neighbors know"));
    }
    names.declare(&vrf::scoped(&At { value: address, span }, vrf.as_deref()));
    Some(ServiceAddress { address, length, interface: interface.value, vrf })
}

/// Which keys a kind needs, and which say nothing to it.
fn belongs(section: &Section<'_>, kind: StoreKind) {
    let word = kind.name();
    let (of_servers, directory) = match kind {
        StoreKind::Redis => (true, false),
        StoreKind::File => (false, true),
        StoreKind::Memory => (false, false),
    };
    let refuse = |key: &'static str| {
        if section.has(key) {
            let problem = Problem::new(format!("`{key}` has no effect with `kind = \"{word}\"`"));
            section.add(key, problem.hint("remove it"));
        }
    };
    match (of_servers, section.has("addresses")) {
        (true, true) => {}
        (true, false) => section.misses("addresses", "[\"address:port\"]"),
        (false, _) => {
            OF_SERVERS.into_iter().for_each(refuse);
            section.know_all();
        }
    }
    match (directory, section.has("directory")) {
        (true, true) => {}
        (true, false) => section.misses("directory", "\"/var/lib/holdfast/nonstop\""),
        (false, _) => refuse("directory"),
    }
    if of_servers && section.has("user") && !section.has("password-file") {
        section.add("user", Problem::new("`user` has no effect without `password-file`"));
    }
}

fn addresses(section: &Section<'_>) -> Vec<SocketAddr> {
    let addresses = section.list::<SocketAddr>("addresses").unwrap_or_default();
    if section.is_list("addresses") && addresses.is_empty() && section.count("addresses") == 0 {
        section.add("addresses", Problem::new("no address is left").expected("one at least"));
    }
    if addresses.len() > MOST {
        let problem = Problem::new(format!("there are {} addresses", addresses.len()));
        section.add("addresses", problem.expected(format!("at most {MOST}")));
    }
    let mut names = Names::new(section.report, "address");
    for address in &addresses {
        names.declare(address);
        unicast_of(section, &address.span, address.value.ip());
        if address.value.port() == 0 {
            let problem = Problem::new("port 0 is no port to ask at");
            section.report.add(&address.span, problem.expected("1 to 65535"));
        }
    }
    addresses.into_iter().map(|at| at.value).collect()
}

fn is_user(section: &Section<'_>, user: &At<String>) -> bool {
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control();
    let is_user = (1..=LONGEST_USER).contains(&user.value.len()) && user.value.chars().all(is_plain);
    if !is_user {
        let problem = Problem::new(format!("`{}` is no name of a user", user.value));
        section
            .report
            .add(&user.span, problem.expected(format!("1 to {LONGEST_USER} octets without spaces")));
    }
    is_user
}

fn secret(
    section: &Section<'_>,
    door: &tls::Door<'_>,
    key: &'static str,
    shortest: usize,
) -> Option<KeyFile> {
    let file = section.optional::<String>(key)?;
    let file = Some(file).filter(|file| tls::is_file_name(section, file))?;
    door.files.secret(section.report, file, shortest)
}

/// The keeper opens files there, wherever it stands itself.
fn absolute(section: &Section<'_>, key: &str, directory: &str) {
    if !Path::new(directory).is_absolute() || directory.contains('\0') || directory.len() > LONGEST_DIRECTORY
    {
        let problem = Problem::new(format!("`{directory}` is no directory as it is needed here"));
        section.add(key, problem.expected("an absolute path as in \"/var/lib/holdfast/nonstop\""));
    }
}
