//! `holdfast spki-cache` and its routers: rtrclient (RTRlib), rtrdump (StayRTR), and ours.

pub(crate) mod bench;

use std::{fs, process::Command};

use bench::{Cache, Router, folder, holdfast, lines_of};
use holdfast_rtr::{Dataset, Delta};
use holdfast_rtr_wire::{Record, Version};
use holdfast_types::{Asn, Aspa, Vrp};

const VRPS: &str = r#"{"roas": [
    {"asn": 64496, "prefix": "192.0.2.0/24", "maxLength": 26, "ta": "x", "expires": 1},
    {"asn": "AS64497", "prefix": "2001:db8::/32", "maxLength": 32}],
  "aspas": [{"customer_asid": 64496, "expires": 1, "providers": [64498, 64497]}]}"#;

const SLURM: &str = r#"{"slurmVersion": 1,
  "validationOutputFilters": {"prefixFilters": [{"asn": 64497}], "bgpsecFilters": []},
  "locallyAddedAssertions": {"prefixAssertions": [{"asn": 64499, "prefix": "198.51.100.0/24"}], "bgpsecAssertions": []}}"#;

/// Keys of `holdfast keygen` in a folder, each as AS and SKI.
fn keygen(directory: &str, count: &str) -> Vec<(String, String)> {
    let made = holdfast(&["keygen", count, directory, "--as-range", "64496-64505"]);
    let names = made.lines().filter_map(|line| line.split_once('.'));
    names.map(|(asn, ski)| (asn.to_owned(), ski.to_owned())).collect()
}

#[test]
fn routers_of_others_get_keys_and_vrps() {
    let folder = folder("others");
    let keys = keygen(&folder, "2");
    fs::write(format!("{folder}/vrps.json"), VRPS).unwrap();
    let cache = Cache::start(&folder, &[]);

    // In version 1, by StayRTR's client. Its 0.5 knows of version 2 an earlier draft, of another form.
    let dump = format!("{folder}/dump.out");
    let rtrdump = Command::new("rtrdump")
        .args(["-connect", &cache.address(), "-rtr.version", "1", "-file", &dump])
        .output()
        .expect("rtrdump (scripts/install-deps test)");
    assert!(rtrdump.status.success(), "{rtrdump:?}");
    let dumped = fs::read_to_string(&dump).unwrap().to_lowercase();
    for (_, ski) in &keys {
        assert!(dumped.contains(&ski.to_lowercase()), "{ski}: {dumped}");
    }
    assert!(dumped.contains("192.0.2.0/24") && dumped.contains("2001:db8::/32"), "{dumped}");

    // By RTRlib, which FRR uses.
    let (host, port) = cache.address.rsplit_once(':').unwrap();
    let mut rtrclient = Command::new("stdbuf");
    rtrclient.args(["-oL", "rtrclient", "-k", "-p", "tcp", host, port]);
    let mut wanted = vec!["192.0.2.0", "2001:db8::"];
    let shown: Vec<String> = keys.iter().map(|(_, ski)| colons(ski)).collect();
    wanted.extend(shown.iter().map(String::as_str));
    lines_of(rtrclient, &wanted);
}

#[test]
fn a_change_is_told_as_a_difference_and_counts_as_a_whole() {
    let folder = folder("changes");
    let keys = keygen(&folder, "1");
    let (asn, ski) = &keys[0];
    fs::write(format!("{folder}/vrps.json"), VRPS).unwrap();
    let cache = Cache::start(&folder, &["--look", "1", "--notify", "0"]);
    let mut router = Router::connect(&cache, Version::V2);
    let first = router.update().announced;
    // The key comes twice, as such and in its certificate, and is one.
    let [key] = &first.router_keys().collect::<Vec<_>>()[..] else { panic!("{first:?}") };
    assert_eq!((key.asn.to_string(), key.ski.to_string()), (asn.clone(), ski.clone()));
    let aspa = Record::Aspa(Aspa::new(Asn(64496), vec![Asn(64497), Asn(64498)]));
    let (net, other) = (vrp("192.0.2.0/24", 26, 64496), vrp("2001:db8::/32", 32, 64497));
    assert_eq!(first, set([net.clone(), other.clone(), aspa.clone(), Record::RouterKey(key.clone())]));

    // Something is broken: nothing is told, not even of what is not.
    fs::write(format!("{folder}/slurm.json"), SLURM.replace("prefixFilters", "prefixFilter")).unwrap();
    fs::write(format!("{folder}/new.json"), r#"{"roas": [{"asn": 1, "prefix": "10.0.0.0/8"}]}"#).unwrap();
    cache.says("slurm.json: validationOutputFilters: `prefixFilters` is missing");
    fs::write(format!("{folder}/slurm.json"), SLURM).unwrap();
    let announced = set([vrp("10.0.0.0/8", 8, 1), vrp("198.51.100.0/24", 24, 64499)]);
    assert_eq!(router.update(), Delta { announced, withdrawn: set([other]) });

    // The key goes only when both its files have gone.
    fs::remove_file(format!("{folder}/{asn}.{ski}.spki.pem")).unwrap();
    fs::remove_file(format!("{folder}/vrps.json")).unwrap();
    assert_eq!(router.update().withdrawn, set([net, aspa]));
    fs::remove_file(format!("{folder}/{asn}.{ski}.certificate.pem")).unwrap();
    assert_eq!(router.update().withdrawn, set([Record::RouterKey(key.clone())]));
}

#[test]
fn older_routers_get_what_their_version_has() {
    let folder = folder("versions");
    keygen(&folder, "1");
    fs::write(format!("{folder}/vrps.json"), VRPS).unwrap();
    let cache = Cache::start(&folder, &[]);
    for (version, count) in [(Version::V0, 2), (Version::V1, 3), (Version::V2, 4)] {
        let mut router = Router::connect(&cache, version);
        assert_eq!(router.update().announced.len(), count, "{version}");
        assert_eq!(router.version(), Some(version));
    }
}

#[test]
fn what_cannot_be_served_is_said_at_the_start() {
    let folder = folder("broken");
    fs::write(format!("{folder}/a.json"), "{").unwrap();
    fs::write(format!("{folder}/64496.3F2AF2C1A03AB5E5D4B4C1F8B4C0B2C9D4F1E8A7.spki.pem"), "nothing")
        .unwrap();
    let said = bench::fails(&["spki-cache", &folder, "--check"]);
    assert!(said.contains("a.json: EOF") && said.contains("spki.pem: this is neither"), "{said}");
    let said = bench::fails(&["spki-cache", &folder, "--refresh", "7200", "--expire", "3600"]);
    assert!(said.contains("--expire must be more"), "{said}");
    assert!(bench::fails(&["spki-cache", &format!("{folder}/none")]).contains("No such file"));
}

#[test]
fn no_more_routers_than_may_be_are_let_in() {
    let folder = folder("many");
    let cache = Cache::start(&folder, &["--clients", "1"]);
    let _router = Router::connect(&cache, Version::V1);
    cache.says("connected");
    let _another = Router::connect(&cache, Version::V1);
    cache.says("turned away");
}

/// A SKI as RTRlib shows it.
fn colons(ski: &str) -> String {
    let digits: Vec<char> = ski.to_lowercase().chars().collect();
    digits.chunks(2).map(|pair| pair.iter().collect::<String>()).collect::<Vec<_>>().join(":")
}

fn vrp(prefix: &str, max_length: u8, asn: u32) -> Record {
    Record::Vrp(Vrp::new(prefix.parse().unwrap(), max_length, Asn(asn)).unwrap())
}

fn set<const N: usize>(records: [Record; N]) -> Dataset {
    records.into_iter().collect()
}
