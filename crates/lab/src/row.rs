//! Routers in a row, each in a host of its own and joined to the next, with private keys to sign paths with, and each with
//! a cache beside it: so each may know other keys.
//!
//! Router 1 has `10.0.1.1`, router 2 has `10.0.1.2` and `10.0.2.1`, and so on: network N ([`topology`]) is between routers
//! N and N + 1.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context, Result};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use holdfast_path_validation::P256Signer;
use holdfast_types::{Asn, RouterKey};

use crate::{
    netns::{Namespace, output},
    router::{Files, Router, binary},
    signed::SpkiCache,
    topology::{self, Side, v4},
};

/// Lines of a peer that takes and is sent signed paths.
pub const BGPSEC: &str = "bgpsec = { send = true, receive = true }\nbgpsec-validation = \"log\"\n";

/// Where a router finds its cache.
const CACHE: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 8282);

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A private key that `holdfast keygen` has made.
#[derive(Clone, Debug)]
pub struct SigningKey {
    /// Its AS.
    pub asn: u32,
    /// What caches say of it.
    pub public: RouterKey,
    file: String,
    contents: String,
}

impl SigningKey {
    /// A new one of an AS.
    pub fn generate(asn: u32) -> Result<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("holdfast-lab-key-{}-{number}", std::process::id()));
        let arguments =
            ["keygen", "1", directory.to_str().context("the path is text")?, "--as", &asn.to_string()];
        let made = output(Command::new(binary()?).args(arguments)).and_then(|_| Self::read(&directory, asn));
        let _ = fs::remove_dir_all(&directory);
        made
    }

    fn read(directory: &Path, asn: u32) -> Result<Self> {
        let files =
            fs::read_dir(directory)?.map(|file| Ok(file?.path())).collect::<Result<Vec<PathBuf>>>()?;
        let is_private = |file: &&PathBuf| file.to_string_lossy().ends_with(".sec1.pem");
        let path = files.iter().find(is_private).context("a private key")?;
        let contents = fs::read_to_string(path)?;
        let octets: String = contents.lines().filter(|line| !line.starts_with('-')).collect();
        let signer = P256Signer::from_der(Asn(asn), &STANDARD.decode(octets)?)?;
        let file = path.file_name().and_then(|name| name.to_str()).context("a name")?.to_owned();
        Ok(Self { asn, public: signer.router_key(), file, contents })
    }
}

/// The files of a router with these keys.
pub fn files(keys: &[&SigningKey]) -> Files {
    keys.iter().map(|key| (key.file.clone(), key.contents.clone())).collect()
}

/// The section with these keys; nothing without any.
pub fn section(keys: &[&SigningKey]) -> String {
    let listed: Vec<_> =
        keys.iter().map(|key| format!("{{ asn = {}, file = \"{}\" }}", key.asn, key.file)).collect();
    if listed.is_empty() { String::new() } else { format!("[bgpsec]\nkeys = [{}]\n", listed.join(", ")) }
}

/// How the configuration of a router with these keys begins; more of `[bgp]` may follow, then peers.
pub fn head(number: u8, asn: u32, keys: &[&SigningKey]) -> String {
    let keys = section(keys);
    format!("[router]\nid = \"10.0.0.{number}\"\nasn = {asn}\n{keys}[bgp]\nconnect-retry = 1\n")
}

/// The cache of a router in a row; behind `[bgp]`.
pub fn cache() -> String {
    let (address, port) = CACHE;
    format!(
        "[[rpki.cache]]\nname = \"keys\"\naddress = \"{address}\"\nport = {port}\npreference = 10\nretry = 1\n"
    )
}

/// The peer at the other end of a network, with these lines about it. It gets all routes, and all of its own are taken.
pub fn peer(name: &str, network: u8, side: Side, asn: u32, lines: &str) -> String {
    let address = v4(network, side);
    format!(
        "[[bgp.peer]]\nname = \"{name}\"\naddress = \"{address}\"\nasn = {asn}\nimport = \"accept-all\"\n\
         export = \"accept-all\"\n{lines}"
    )
}

/// A network of our own.
pub fn network(prefix: &str) -> String {
    format!("[[bgp.network]]\nprefix = \"{prefix}\"\n")
}

/// A router of a row and its cache.
#[derive(Debug)]
pub struct Place {
    /// The router.
    pub router: Router,
    /// What it knows of keys.
    pub cache: SpkiCache,
}

/// The hosts of a row.
#[derive(Debug)]
pub struct Row {
    hosts: Vec<Namespace>,
}

impl Row {
    /// Makes so many hosts, and joins each to the next.
    pub fn new(routers: u8) -> Result<Self> {
        let hosts = (1..=routers).map(|number| Namespace::new(&format!("row{number}")));
        let hosts = hosts.collect::<Result<Vec<_>>>()?;
        for (network, pair) in (1..).zip(hosts.windows(2)) {
            topology::join(network, &pair[0], &pair[1])?;
        }
        Ok(Self { hosts })
    }

    /// The host of a router, counted from 1.
    ///
    /// # Panics
    /// There is no such host.
    pub fn host(&self, number: u8) -> &Namespace {
        &self.hosts[usize::from(number) - 1]
    }

    /// Starts a router with these keys of its own, and a cache that has published these.
    pub fn start(
        &self,
        number: u8,
        configuration: &str,
        keys: &[&SigningKey],
        published: &[RouterKey],
    ) -> Result<Place> {
        let host = self.host(number);
        let cache = SpkiCache::start(host, CACHE.into(), published)?;
        let router = Router::start_with_files(host, configuration, &files(keys))?;
        Ok(Place { router, cache })
    }
}
