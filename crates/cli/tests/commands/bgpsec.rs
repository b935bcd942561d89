//! `holdfast bgpsec` and `holdfast keygen`, which need no router.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt, path::PathBuf, process::Command};

use holdfast_cli::Failure;
use serde_json::{Value, json};

use crate::tests::commands::fake::{Directory, Line};

/// RFC 8608 appendix A.
fn vectors() -> Value {
    serde_json::from_str(include_str!("../../../bgpsec-wire/tests/rfc8608.json")).expect("vectors")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}

/// The keys of the RFC, as the command line has them.
fn keys() -> Vec<String> {
    let vectors = vectors();
    let keys = vectors["keys"].as_array().expect("keys").iter();
    keys.map(|key| format!("{}:{}:{}", key["asn"], text(&key["ski"]), text(&key["spki_der"]))).collect()
}

/// What is printed, and the exit code with its message.
fn run(line: &str) -> (String, u8, String) {
    let mut out = Vec::new();
    let done = Line::parse(line).expect(line).run_on(holdfast_config::Schema::new([]), &mut out);
    let said = done.as_ref().err().map(ToString::to_string).unwrap_or_default();
    (String::from_utf8(out).expect("text"), done.as_ref().err().map_or(0, Failure::exit_code), said)
}

fn verify(update: &str, rest: &str) -> (String, u8, String) {
    run(&format!("bgpsec verify --update {update} --local-as 65537 --peer-as 65536 {rest}"))
}

#[test]
fn the_examples_of_rfc_8608_are_valid_and_their_old_type_is_told() {
    let all = keys().join(",");
    for example in vectors()["updates"].as_array().expect("updates") {
        let printed = text(&example["update"]);
        let (out, code, said) = verify(printed, &format!("--keys {all}"));
        assert_eq!((out.as_str(), code), ("", 64));
        assert!(said.contains("type 30") && said.contains("--attribute 30"), "{said}");
        let (out, code, _) = verify(printed, &format!("--keys {all} --attribute 30"));
        assert!(out.starts_with("Valid\n") && code == 0, "{out}");
        let assigned = text(&example["update_with_type_33_derived"]);
        for update in [assigned.to_owned(), assigned[38..].to_lowercase()] {
            let (out, code, _) = verify(&update, &format!("--keys {all}"));
            let expected = format!(
                "Valid\n  {}\n  hop 0  AS 65536  pCount 1  suite 1  key 47F23BF1AB2F8A9D26864EBBD8DF2711C74406EC\n  \
                 hop 1  AS 64496  pCount 1  suite 1  key AB4D910F55CAE71A215EF3CAFE3ACC45B5EEC154\n",
                text(&example["prefix"])
            );
            assert_eq!((out, code), (expected, 0));
        }
    }
}

#[test]
fn keys_come_from_files_and_updates_too() {
    let at = Directory::new();
    let path = |name: &str| at.path().join(name);
    let update = text(&vectors()["updates"][0]["update_with_type_33_derived"]).to_owned();
    fs::write(path("keys"), format!("# of RFC 8608\n\n{}\n{}\n", keys()[0], keys()[1])).expect("written");
    fs::write(path("digits"), format!("{}\n{}\n", &update[..40], &update[40..])).expect("written");
    let octets: Vec<u8> = (0..update.len() / 2)
        .map(|at| u8::from_str_radix(&update[2 * at..2 * at + 2], 16).expect("digits"))
        .collect();
    fs::write(path("octets"), octets).expect("written");
    for file in ["digits", "octets"] {
        let rest = format!("--keys-file {}", path("keys").display());
        let (out, code, said) = verify(&format!("@{}", path(file).display()), &rest);
        assert_eq!(code, 0, "{out}{said}");
    }
    fs::write(path("keys"), "64496:AB:00").expect("written");
    let (_, code, said) = verify(&update, &format!("--keys-file {}", path("keys").display()));
    assert!(code == 64 && said.contains("line 1: \"AB\" is no subject key identifier"), "{said}");
}

#[test]
fn each_refusal_has_its_exit_code_and_its_reason() {
    let all = format!("--keys {}", keys().join(","));
    let update = text(&vectors()["updates"][0]["update_with_type_33_derived"]).to_owned();
    // The last digit of the newest signature, the pCount of the newest segment, and its AS.
    let newest = update.find("000E0100").expect("the Secure_Path") + 4;
    let changed = |at: usize, digits: &str| {
        let mut changed = update.clone();
        changed.replace_range(at..at + digits.len(), digits);
        changed
    };
    let no_key = format!("--keys {}", keys()[0]);
    let zero = changed(newest, "00");
    let put = |what: &str, digits: &str| changed(update.find(what).expect("is there"), digits);
    let rows: [(&str, String, &str, u8, &str); 16] = [
        ("another target", update.clone(), "--local-as 65538", 1, "hop 0 (AS 65536, key 47F2"),
        ("no key", update.clone(), &no_key, 1, "this AS has no such key"),
        ("a bit", changed(newest + 2, "01"), &all, 1, "the signature is bad"),
        ("not the peer", changed(newest + 4, "00010001"), &all, 2, "the most recent segment is of AS 65537"),
        ("pCount 0", zero.clone(), &all, 2, "leaves itself out"),
        ("a route server's", zero, &format!("{all} --route-server"), 1, "the signature is bad"),
        ("outside of us", changed(newest + 2, "80"), &all, 2, "a segment is of a confederation"),
        (
            "inside of us",
            changed(newest + 2, "80"),
            &format!("{all} --confederation"),
            1,
            "the signature is bad",
        ),
        (
            "a long path",
            update.clone(),
            &format!("{all} --most-hops 1"),
            2,
            "2 segments, of which 1 are looked at",
        ),
        ("many pCounts", update.clone(), &format!("{all} --most-pcount 1"), 2, "the pCounts sum up to 2"),
        ("a loop", update.clone(), &format!("{all} --other-as 64496"), 2, "our AS 64496 is in the path"),
        ("transitive", put("902100CD", "D0"), &all, 2, "BGPsec_PATH: wrong Optional or Transitive flag"),
        ("well-known", put("902100CD", "50"), &all, 2, "BGPsec_PATH: wrong Optional or Transitive flag"),
        ("no ORIGIN", put("40010102", "C0F0"), &all, 2, "ORIGIN: is missing"),
        ("next hop", put("C6336464", "00000000"), &all, 2, "next hop is not the address of a host"),
        ("a MED of no use", put("80040400000000", "40"), &all, 2, "MULTI_EXIT_DISC: wrong Optional"),
    ];
    for (name, update, rest, expected, reason) in rows {
        let (out, code, said) = match rest.strip_prefix("--local-as ") {
            Some(target) => {
                run(&format!("bgpsec verify --update {update} --local-as {target} --peer-as 65536 {all}"))
            }
            None => verify(&update, rest),
        };
        let word = if expected == 1 { "Not Valid: " } else { "Malformed: " };
        assert!(code == expected && out.starts_with(word) && out.contains(reason), "{name}: {out}{said}");
    }
    // The prefix once more, as some implementations send it.
    let repeated = format!("{}18C00002", &update[38..]);
    let (out, code, _) = verify(&repeated, &all);
    assert!(code == 2 && out.contains("a route outside MP_REACH_NLRI"), "{out}");
    let (out, code, _) = verify(&repeated, &format!("{all} --repeated-prefix"));
    assert!(code == 0, "{out}");
    let (out, code, _) =
        verify(&repeated.replace("18C00002", "18C00003"), &format!("{all} --repeated-prefix"));
    assert!(code == 1 && out.contains("the signature is bad"), "both are another one: {out}");
    // Inside of our AS nobody has added a segment. LOCAL_PREF takes the place of the MED.
    let inside = put("80040400000000", "400504");
    let internal = |update: &str, rest: &str| {
        run(&format!("bgpsec verify --update {update} --local-as 65537 --internal {all} {rest}"))
    };
    assert_eq!(internal(&inside, "").1, 0);
    let (out, code, _) = internal(&update, "");
    assert!(code == 2 && out.contains("LOCAL_PREF: is missing"), "{out}");
    let suite = update.find("00BF01").expect("a Signature_Block") + 4;
    let (out, code, _) = verify(&changed(suite, "FB"), &all);
    assert!(code == 3 && out.starts_with("Unsupported: "), "{out}");
    let (out, code, _) = verify(&changed(suite, "00"), &all);
    assert!(code == 2 && out.contains("the algorithm suite 0 is reserved"), "{out}");
    for (given, expected) in [
        ("abc", "not an even number"),
        ("@/nowhere", "/nowhere: No such file"),
        ("FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF001304", "this is no UPDATE but a message of type 4"),
        ("00000000", "no BGPsec_PATH: there is no attribute of type 33"),
        (&update[..update.len() - 2], "the length in the header is not that of the message"),
    ] {
        let (out, code, said) = verify(given, &all);
        assert!(out.is_empty() && code == 64 && said.contains(expected), "{given}: {said}");
    }
    let (out, code, _) = verify(&update, &format!("{no_key} --json"));
    let shown: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &shown["verdict"], &shown["failingHop"]), (1, &json!("Not Valid"), &json!(0)));
    assert_eq!(shown["hops"][1]["as"], 64496);
}

/// The files of a key, by what they are.
fn files(directory: &Directory, form: &str) -> BTreeMap<String, PathBuf> {
    let all = fs::read_dir(directory.path()).expect("is there").map(|entry| entry.expect("a file").path());
    let named = all.filter(|file| file.extension().is_some_and(|extension| extension == form));
    named
        .map(|file| {
            let name = file.file_name().expect("a name").to_str().expect("text").to_owned();
            (name.split('.').nth(2).expect("three parts").to_owned(), file)
        })
        .collect()
}

#[test]
fn what_is_signed_hop_by_hop_is_valid_at_the_end() {
    let at = Directory::new();
    let directory = at.path().display().to_string();
    let (said, code, _) = run(&format!("keygen 2 {directory} --as-range 64496-64497"));
    assert!(
        code == 0 && said.ends_with(&format!("Generated 2 router key(s) in directory {directory}\n")),
        "{said}"
    );
    let key = |asn: u32, what: &str| {
        let begins = format!("{asn}.");
        let mut all = fs::read_dir(at.path()).expect("is there").map(|entry| entry.expect("a file").path());
        let is = |file: &PathBuf| {
            let name = file.file_name().expect("a name").to_str().expect("text");
            name.starts_with(&begins) && name.contains(what)
        };
        all.find(is).expect("a key").display().to_string()
    };
    for (prefix, next_hop) in [("198.51.100.0/25", "192.0.2.1"), ("2001:db8:5::/48", "2001:db8::1")] {
        let (first, second) = (key(64496, "sec1"), key(64497, "pkcs8"));
        let line = format!("bgpsec sign --key {first} --to 64497 --prefix {prefix} --next-hop {next_hop}");
        let (origin, code, said) = run(&line);
        assert_eq!(code, 0, "{said}");
        let go_on = |update: &str, rest: &str| {
            let line = format!("bgpsec sign --key {second} --to 65000 --pcount 3 --next-hop {next_hop}");
            run(&format!("{line} --update {} {rest}", update.trim()))
        };
        let known = format!("--key-dir {directory}");
        let (update, code, said) = go_on(&origin, &known);
        assert_eq!(code, 0, "{said}");
        // What was made for others is not gone on with, unless that is wanted.
        let (elsewhere, code, said) = run(&line.replace("--to 64497", "--to 64498"));
        assert_eq!(code, 0, "{said}");
        let (out, code, said) = go_on(&elsewhere, &known);
        assert!(out.is_empty() && code == 64 && said.contains("not valid for AS 64497: hop 0"), "{said}");
        assert_eq!(go_on(&elsewhere, "--force").1, 0);
        let (_, code, said) = go_on(&update, &known);
        assert!(code == 64 && said.contains("AS 64497 has signed it already"), "{said}");
        let back = format!("bgpsec sign --key {first} --to 64497 --attribute-only {known} --update");
        let (_, code, said) = run(&format!("{back} {}", update.trim()));
        assert!(code == 64 && said.contains("our AS 64496 is in the path"), "{said}");
        let without =
            format!("bgpsec sign --key {second} --to 65000 --attribute-only --update {}", origin.trim());
        assert!(Line::parse(&without).is_err(), "nothing says whom it was signed for");
        for (to, reason) in [
            (0, "AS 0 is reserved"),
            (23456, "AS 23456 is reserved"),
            (64496, "AS 64496 is the one that signs"),
        ] {
            let line = line.replace("--to 64497", &format!("--to {to}"));
            let (out, code, said) = run(&line);
            assert!(out.is_empty() && code == 64 && said.contains(reason), "{said}");
            assert_eq!(run(&format!("{line} --force")).1, 0);
        }
        let judge = |target: u32, peer: u32, update: &str| {
            run(&format!(
                "bgpsec verify --update {update} --local-as {target} --peer-as {peer} --key-dir {directory}"
            ))
        };
        let (out, code, _) = judge(65000, 64497, update.trim());
        assert!(code == 0 && out.contains(prefix) && out.contains("AS 64497  pCount 3"), "{out}");
        assert_eq!(judge(64497, 64496, origin.trim()).1, 0);
        assert_eq!(judge(65001, 64497, update.trim()).1, 1, "it is signed for somebody else");
    }
    // Whose key it is, is in the name, or has to be said.
    fs::copy(key(64496, "sec1"), at.path().join("mine.pem")).expect("copied");
    let mine = format!("bgpsec sign --key {directory}/mine.pem --to 1 --prefix 10.0.0.0/8 --attribute-only");
    let (_, code, said) = run(&mine);
    assert!(code == 64 && said.contains("--as"), "{said}");
    let (attribute, code, _) = run(&format!("{mine} --as 64500"));
    assert!(code == 0 && attribute.starts_with("000801000000FBF4"), "{attribute}");
    let (_, code, said) = run(&format!("keygen 1 {directory}/mine.pem"));
    assert!(code == 1 && said.contains("File exists"), "{said}");
}

#[test]
fn no_keys_are_made_for_an_as_that_names_no_router() {
    let at = Directory::new();
    let directory = at.path().join("keys");
    let keygen = |rest: &str| run(&format!("keygen 3 {} {rest}", directory.display()));
    for (rest, asn) in [("--as 0", 0), ("--as 23456", 23456), ("--as-range 23454-23460", 23456)] {
        let (_, code, said) = keygen(rest);
        assert!(code == 64 && said.contains(&format!("AS {asn} is reserved and names no router")), "{said}");
        assert!(!directory.exists(), "{rest}");
    }
    assert_eq!(keygen("--as-range 23453-23460").1, 0, "three of them are no further than 23455");
}

fn openssl(arguments: &[&str]) -> String {
    let output = Command::new("openssl").args(arguments).output().expect("openssl is installed");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text") + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn openssl_reads_all_files_of_a_key_and_they_agree() {
    let at = Directory::new();
    let (out, code, said) = run(&format!("keygen 1 {} --as 64496 --pem --der --json", at.path().display()));
    assert_eq!(code, 0, "{said}");
    let made: Value = serde_json::from_str(&out).expect("JSON");
    let ski = text(&made["keys"][0]["ski"]).to_owned();
    assert_eq!(made["keys"][0]["as"], 64496);
    for form in ["pem", "der"] {
        let files = files(&at, form);
        let file = |what: &str| files[what].to_str().expect("text");
        let mode = |what: &str| fs::metadata(&files[what]).expect("is there").permissions().mode() & 0o777;
        assert_eq!((mode("sec1"), mode("pkcs8"), files.len()), (0o600, 0o600, 5));
        let public = openssl(&["pkey", "-pubin", "-in", file("spki"), "-inform", form, "-pubout"]);
        for what in ["sec1", "pkcs8"] {
            assert_eq!(openssl(&["pkey", "-in", file(what), "-inform", form, "-pubout"]), public, "{what}");
        }
        let request =
            openssl(&["req", "-in", file("request"), "-inform", form, "-noout", "-verify", "-text"]);
        assert!(request.contains("verify OK") && request.contains("CN = ROUTER-0000FBF0"), "{request}");
        assert!(request.contains("BGPsec Router"), "{request}");
        assert!(openssl(&["req", "-in", file("request"), "-inform", form, "-noout", "-pubkey"]) == public);
        let certificate = openssl(&["x509", "-in", file("certificate"), "-inform", form, "-noout", "-text"]);
        assert!(
            openssl(&["x509", "-in", file("certificate"), "-inform", form, "-noout", "-pubkey"]) == public
        );
        let shown = certificate.replace(':', "");
        assert!(shown.contains(&ski), "{certificate}");
        for wanted in [
            "CN = ROUTER-0000FBF0",
            "Digital Signature",
            "BGPsec Router",
            "sbgp-autonomousSysNum: critical",
            "64496",
            "Policy: ipAddr-asNumber",
        ] {
            assert!(certificate.contains(wanted), "{wanted}: {certificate}");
        }
        for unwanted in ["Basic Constraints", "sbgp-ipAddrBlock", "Subject Information Access"] {
            assert!(!certificate.contains(unwanted), "{unwanted}: {certificate}");
        }
    }
    // The SKI is the SHA-1 of the point, which is at the end of the subjectPublicKeyInfo.
    let spki = fs::read(&files(&at, "der")["spki"]).expect("is there");
    let point = at.path().join("point");
    fs::write(&point, &spki[spki.len() - 65..]).expect("written");
    let digest = openssl(&["dgst", "-sha1", "-r", point.to_str().expect("text")]);
    assert_eq!(digest[..40].to_uppercase(), ski);
    let certificate = files(&at, "pem")["certificate"].display().to_string();
    openssl(&["verify", "-ignore_critical", "-partial_chain", "-CAfile", &certificate, &certificate]);
}
