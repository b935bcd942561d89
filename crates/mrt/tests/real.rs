//! Real and realistic dumps, where there are any: `HOLDFAST_DATA` names the folder.

use std::{fs::File, io::Read, path::Path};

use flate2::read::MultiGzDecoder;
use holdfast_mrt::{Body, records};

/// The dump, unless the data are not there; then the summary says so.
fn load(name: &str) -> Option<Vec<u8>> {
    let Some(folder) = std::env::var_os("HOLDFAST_DATA") else {
        println!("HOLDFAST_DATA not set: skipped {name}");
        return None;
    };
    let file =
        File::open(Path::new(&folder).join(name)).expect("the file is listed in the README of the data");
    let mut dump = Vec::new();
    MultiGzDecoder::new(file).read_to_end(&mut dump).expect("gzip");
    Some(dump)
}

/// Records of each sort: routes in tables, messages, state changes, others.
fn count(dump: &[u8]) -> [usize; 4] {
    let mut counts = [0; 4];
    for record in records(dump) {
        match record.and_then(|record| record.body()).expect("a sound dump") {
            Body::PeerIndex(index) => assert!(index.peers().all(|peer| peer.is_ok())),
            Body::Rib(rib) => {
                assert!(rib.entries().all(|entry| entry.is_ok()));
                counts[0] += rib.entries().count();
            }
            Body::Message(_) => counts[1] += 1,
            Body::StateChange(_) => counts[2] += 1,
            Body::Other => counts[3] += 1,
        }
    }
    counts
}

#[test]
fn tables_have_as_many_routes_as_the_readme_says() {
    for (name, routes) in [
        ("table-v4.mrt.gz", 1_168_945),
        ("table-v4-b.mrt.gz", 1_151_674),
        ("table-v6.mrt.gz", 279_855),
        ("table-v6-b.mrt.gz", 275_647),
        ("table-v4-real-2015.mrt.gz", 577_703),
    ] {
        let Some(dump) = load(name) else { continue };
        assert_eq!(count(&dump), [routes, 0, 0, 0], "{name}");
    }
}

#[test]
fn recorded_sessions_are_read_to_their_end() {
    for name in [
        "updates/fullfeed-20151023-as3856.mrt.gz",
        "updates/rrc-20160811-1600.mrt.gz",
        "updates/routeviews-20131201-0000.mrt.gz",
        "updates/rrc06-20150401-0000.mrt.gz",
    ] {
        let Some(dump) = load(name) else { continue };
        let [routes, messages, _, others] = count(&dump);
        assert!(messages > 100 && (routes, others) == (0, 0), "{name}: {messages} messages");
        if name.contains("fullfeed") {
            // The README counts 89,681: those with four-octet AS numbers, without the first OPEN.
            assert_eq!(messages, 89_682);
        }
    }
}

#[test]
fn odd_dumps_are_read() {
    for (name, want) in [
        ("messages/odd-mrt/bview.ipv4_unicast_add_path.gz", true),
        ("messages/odd-mrt/bview.ipv6_unicast_add_path.gz", true),
        ("messages/odd-mrt/bview.64k_stream_overflow.gz", true),
        ("messages/odd-mrt/updates.long_withdrawal.gz", false),
        ("messages/odd-mrt/updates.nlri_mask_trailing_bits.gz", false),
    ] {
        let Some(dump) = load(name) else { continue };
        let [routes, messages, ..] = count(&dump);
        assert_eq!((routes > 0, messages > 0), (want, !want), "{name}");
    }
}
