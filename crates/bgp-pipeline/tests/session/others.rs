//! Messages of others, which are not in the repository: `HOLDFAST_DATA` names the folder that has them.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use holdfast_bgp_wire::MessageType;
use serde_json::Value;

use crate::tests::session::router::{Router, Wild};

fn folder() -> Option<PathBuf> {
    let data = std::env::var_os("HOLDFAST_DATA").map(|data| Path::new(&data).join("messages"));
    if data.is_none() {
        // Written past the test harness, which would swallow it.
        let _ = writeln!(std::io::stderr(), "HOLDFAST_DATA not set: skipped messages of others in sessions");
    }
    data
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|name| name == "hex" || name == "bin"));
    files.sort();
    files
}

fn octets(path: &Path) -> Vec<u8> {
    let bytes = fs::read(path).expect("a readable file");
    if path.extension().is_some_and(|extension| extension == "bin") {
        return bytes;
    }
    let digits: Vec<u8> = bytes.into_iter().filter(u8::is_ascii_hexdigit).collect();
    let octet = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).expect("digits"), 16).expect("hex");
    digits.as_chunks().0.iter().map(octet).collect()
}

/// Whether a session must end with this file's message. The index is followed, but for two.
fn must_end(file: &str, expect: &str) -> bool {
    match file {
        // RFC 8950 is not negotiated here: an IPv6 next hop of IPv4 is of no length that is expected (RFC 7606
        // section 7.11).
        "mp-reach-v4-nh6.hex" => true,
        // We have offered to take long messages, which is all that the sender needs (RFC 8654 section 4).
        "hdr-length-4097.hex" => false,
        _ => expect == "session reset",
    }
}

#[test]
fn a_session_ends_where_the_rfcs_want_it_and_nowhere_else() {
    let Some(folder) = folder().map(|folder| folder.join("handmade")) else { return };
    let index = fs::read_to_string(folder.join("index.json")).expect("an index");
    let index: Value = serde_json::from_str(&index).expect("JSON");
    let mut count = 0;
    for entry in index["messages"].as_array().expect("a list") {
        let (file, expect) =
            (entry["file"].as_str().expect("a name"), entry["expect"].as_str().expect("words"));
        let octets = octets(&folder.join(file));
        // OPENs and NOTIFICATIONs end an Established session whatever is in them.
        let kinds = [MessageType::Open as u8, MessageType::Notification as u8];
        if octets.get(18).is_some_and(|kind| kinds.contains(kind)) {
            continue;
        }
        let mut router = Router::new(Wild::EBGP);
        router.wild_says(&octets);
        assert_eq!(
            router.wild_is_up(),
            !must_end(file, expect),
            "{file}: {expect}, by {}",
            entry["reference"]
        );
        router.assert_clean(3);
        count += 1;
    }
    assert!(count > 70, "{count} messages");
}

#[test]
fn captured_messages_leave_the_session_beside_alone() {
    let Some(folder) = folder() else { return };
    let mut count = 0;
    for name in ["tcpdump-tests", "exabgp-decoding", "corpi-seed", "handmade"] {
        for path in files(&folder.join(name)) {
            let octets = octets(&path);
            for wild in [Wild::EBGP, Wild { extended_messages: true, four_octet_as: false, ..Wild::EBGP }] {
                for mut router in [Router::new(wild), Router::without_wild(wild)] {
                    router.wild_says(&octets);
                    router.assert_clean(3);
                    count += 1;
                }
            }
        }
    }
    assert!(count > 1000, "{count} sessions");
}
