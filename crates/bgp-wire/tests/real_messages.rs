//! Messages of others, which are not in the repository: `HOLDFAST_DATA` names the folder that has them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use holdfast_bgp_wire::{
    HEADER_LEN, MAX_LEN, MessageType, Notification, Open, RouteRefresh, fuzzing, next_message,
    update::{AsSets, Checked, PeerKind, Rules, Verdict, check, sections},
};
use serde_json::Value;

const RULES: Rules = Rules::new(PeerKind::Ebgp, AsSets::Reject);

/// Nothing without `HOLDFAST_DATA`, which the summary of `make test` says.
fn folder(name: &str) -> Option<PathBuf> {
    let data = std::env::var_os("HOLDFAST_DATA")?;
    Some(Path::new(&data).join("messages").join(name))
}

fn read_hex(path: &Path) -> Vec<u8> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let octet = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).expect("digits"), 16).expect("hex");
    digits.as_chunks().0.iter().map(octet).collect()
}

/// In the words of the index.
fn treatment(bytes: &[u8]) -> &'static str {
    match try_treatment(bytes) {
        Ok(treatment) => treatment,
        Err(_) => "session reset",
    }
}

fn try_treatment(bytes: &[u8]) -> Result<&'static str, Notification> {
    let message = next_message(bytes, MAX_LEN)?.expect("a whole message");
    match message.kind {
        MessageType::Open => Open::parse(message.body).map(|_| "accept"),
        MessageType::RouteRefresh => RouteRefresh::parse(message.body).map(|_| "accept"),
        MessageType::Update => update(message.body),
        MessageType::KeepAlive | MessageType::Notification => Ok("accept"),
    }
}

fn update(body: &[u8]) -> Result<&'static str, Notification> {
    let sections = sections(body)?;
    let mut checked = Checked::default();
    check(sections.attributes, !sections.nlri.is_empty(), &RULES, &mut checked);
    match checked.verdict {
        Verdict::Ok if checked.discarded.is_empty() => Ok("accept"),
        Verdict::Ok => Ok("attribute discard"),
        Verdict::TreatAsWithdraw(_) => Ok("treat-as-withdraw"),
        Verdict::SessionReset(error) => Err(error),
    }
}

/// Where the index says something else than this crate, and why the crate is right.
fn expected<'a>(file: &str, index: &'a str) -> &'a str {
    match file {
        // What a route's path means to this speaker is the pipeline's to decide.
        "aspath-empty-ebgp.hex" | "aspath-first-as-wrong.hex" | "aspath-own-as.hex" => "accept",
        // Attributes that this speaker does not know: their inside is nothing to it (RFC 4271 section 5).
        "attr-prefix-sid-40-bad.hex" | "attr-tunnel-encap-bad.hex" | "attr-set-128-short.hex" => "accept",
        // A family that the session has not negotiated.
        "flowspec-len-overrun.hex" => "accept",
        // A discarded duplicate is reported, the UPDATE is used.
        "origin-twice.hex" => "attribute discard",
        // RFC 8950 is not negotiated here.
        "mp-reach-v4-nh6.hex" => "session reset",
        _ => index,
    }
}

#[test]
fn hand_made_messages_are_treated_as_the_rfcs_say() {
    let Some(folder) = folder("handmade") else { return };
    let index = fs::read_to_string(folder.join("index.json")).expect("an index");
    let index: Value = serde_json::from_str(&index).expect("JSON");
    let mut wrong = Vec::new();
    for entry in index["messages"].as_array().expect("a list") {
        let file = entry["file"].as_str().expect("a name");
        let expect = expected(file, entry["expect"].as_str().expect("a treatment"));
        let found = treatment(&read_hex(&folder.join(file)));
        if found != expect {
            wrong.push(format!("{file}: {found}, not {expect}, by {}", entry["reference"]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn captured_messages_break_no_promise() {
    for name in ["tcpdump-tests", "exabgp-decoding", "handmade"] {
        let Some(folder) = folder(name) else { continue };
        let files = fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path());
        let hex = files.filter(|path| path.extension().is_some_and(|extension| extension == "hex"));
        let mut count = 0;
        for path in hex {
            let bytes = read_hex(&path);
            fuzzing::message(&bytes);
            if let Some(body) = bytes.get(HEADER_LEN..) {
                fuzzing::open(body);
                fuzzing::notification(body);
                fuzzing::nlri(body);
                fuzzing::update_check(body);
            }
            count += 1;
        }
        assert_ne!(count, 0, "{}", folder.display());
    }
}

#[test]
fn a_fuzzing_corpus_of_others_breaks_no_promise() {
    let Some(folder) = folder("corpi-seed") else { return };
    for entry in fs::read_dir(&folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_file() {
            fuzzing::message(&fs::read(&path).expect("a readable file"));
        }
    }
}
