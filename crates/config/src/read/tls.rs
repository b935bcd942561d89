//! `[tls]`, and what of a peer says how it is reached and what it has to prove.

use std::{net::IpAddr, slice};

use crate::{
    files::{Files, List},
    input::{At, Names, Problem, Section},
    schema::{DerFile, Pin, Remote, Tls, Transport, Trust},
};

/// Keys that mean nothing where nothing is proven.
const TRUST: [&str; 4] = ["tls-name", "tls-authorities", "tls-pins", "tls-revocations"];
const TRANSPORTS: &str = "\"tcp\", \"tls\", \"quic\" or \"quic-s2n\"";
/// Pins and files of a peer, which each of its handshakes goes through.
const MOST: usize = 64;

/// What the transports of peers need to know of the rest of the file.
pub(super) struct Door<'a> {
    /// Who is at the other end, in messages.
    pub(super) whom: &'static str,
    pub(super) has_tls: bool,
    pub(super) has_certificate: bool,
    pub(super) has_s2n_port: bool,
    pub(super) files: &'a Files<'a>,
}

pub(super) fn read(section: &Section<'_>, files: &Files<'_>) -> Option<Tls> {
    let certificate = section.optional::<String>("certificate");
    let key = section.required::<String>("key");
    let key_log = section.optional::<String>("key-log");
    let [certificate, key, key_log] =
        [certificate, key, key_log].map(|name| name.filter(|name| is_file_name(section, name)));
    let certificate = certificate.map(|name| files.lists(section.report, name, List::Certificates));
    let ours = certificate.as_ref().map(|certificate| &*certificate.contents);
    let key = files.key(section.report, key?, ours.unwrap_or_default());
    Some(Tls { certificate, key, key_log: key_log.map(|at| at.value) })
}

pub(super) fn is_file_name(section: &Section<'_>, at: &At<String>) -> bool {
    let is_name = !at.value.is_empty() && !at.value.ends_with('/') && !at.value.contains('\0');
    if !is_name {
        let problem = Problem::new(format!("`{}` is no name of a file", at.value));
        section.report.add(&at.span, problem.expected("a path, from the directory of this file on"));
    }
    is_name
}

/// How a peer is reached, and what it has to prove.
pub(super) fn peer(
    section: &Section<'_>,
    remote: Option<&Remote>,
    door: &Door<'_>,
) -> (Vec<Transport>, Trust) {
    let transports = transports(section);
    let trust = trust(section, door.files);
    if transports.iter().any(|transport| transport.proves()) {
        identities(section, &transports, &trust, door);
        consistent(section, remote, &trust);
    } else if !transports.is_empty() {
        unused(section, "add `transport = \"tls\"`, or `\"quic\"`");
    }
    if transports.iter().any(|transport| transport.is_quic()) {
        over_quic(section, &transports, remote, door);
    }
    (transports, trust)
}

/// The same for an RPKI cache, or a store, which has one transport.
pub(super) fn server(section: &Section<'_>, door: &Door<'_>) -> (Transport, Trust) {
    let words = [Transport::Tcp, Transport::Tls].map(|transport| (transport.name(), transport));
    let transport = section.word("transport", &words, Transport::Tcp);
    let trust = trust(section, door.files);
    if transport.proves() {
        identities(section, slice::from_ref(&transport), &trust, door);
        consistent(section, None, &trust);
    } else {
        unused(section, "add `transport = \"tls\"`");
    }
    (transport, trust)
}

fn transports(section: &Section<'_>) -> Vec<Transport> {
    let Some(words) = section.list::<String>("transport") else { return vec![Transport::Tcp] };
    if words.is_empty() && section.is_list("transport") {
        let problem = Problem::new("no transport is left");
        section.add("transport", problem.expected(TRANSPORTS));
    }
    let mut names = Names::new(section.report, "transport");
    words.iter().for_each(|word| names.declare(word));
    words.iter().filter_map(|word| transport(section, word)).collect()
}

fn transport(section: &Section<'_>, word: &At<String>) -> Option<Transport> {
    let found = Transport::ALL.into_iter().find(|transport| transport.name() == word.value);
    if found.is_none() {
        let problem = Problem::new(format!("`{}` is no transport", word.value));
        let problem = problem.expected(TRANSPORTS).suggest(&word.value, Transport::ALL.map(Transport::name));
        section.report.add(&word.span, problem);
    }
    found
}

fn trust(section: &Section<'_>, files: &Files<'_>) -> Trust {
    let name = section.optional::<String>("tls-name");
    name.iter().for_each(|name| subject(section, name));
    let pins = section.list::<Pin>("tls-pins").unwrap_or_default();
    let trust = Trust {
        authorities: lists(section, "tls-authorities", List::Authorities, files),
        name: name.map(|at| at.value),
        pins: pins.into_iter().map(|at| at.value).collect(),
        raw_public_key: section.or("tls-raw-public-key", false),
        revocations: lists(section, "tls-revocations", List::Revocations, files),
    };
    for (key, count) in [
        ("tls-pins", trust.pins.len()),
        ("tls-authorities", trust.authorities.len()),
        ("tls-revocations", trust.revocations.len()),
    ] {
        if count > MOST {
            let problem = Problem::new(format!("there are {count} entries"));
            section.add(key, problem.expected(format!("at most {MOST}")));
        }
    }
    trust
}

fn lists(section: &Section<'_>, key: &'static str, list: List, files: &Files<'_>) -> Vec<DerFile> {
    let names = section.list::<String>(key).unwrap_or_default().into_iter();
    let names = names.filter(|name| is_file_name(section, name));
    names.map(|name| files.lists(section.report, name, list)).collect()
}

/// RFC 9525 section 6.1: a DNS name or an address; what stands for several names is for certificates.
fn subject(section: &Section<'_>, name: &At<String>) {
    let is_label = |label: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        (1..=63).contains(&label.len()) && label.chars().all(plain)
    };
    let text = &name.value;
    let is_dns_name = text.len() <= 253 && text.split('.').all(is_label);
    if !is_dns_name && text.parse::<IpAddr>().is_err() {
        let problem = Problem::new(format!("`{text}` is no name of a host"));
        section.report.add(&name.span, problem.expected("a DNS name as in \"r2.example\", or an address"));
    }
}

/// Whether both ends have something to show.
fn identities(section: &Section<'_>, transports: &[Transport], trust: &Trust, door: &Door<'_>) {
    let words = transports.iter().filter(|transport| transport.proves()).map(|transport| transport.name());
    let words = words.collect::<Vec<_>>().join("` and `");
    let whom = door.whom;
    if !door.has_tls {
        let problem = Problem::new(format!("there is nothing that we could show the {whom} over `{words}`"));
        section.add("transport", problem.expected("[tls] with `certificate` and `key`"));
    } else if !door.has_certificate && !trust.raw_public_key {
        let problem =
            Problem::new(format!("there is no certificate that we could show the {whom} over `{words}`"));
        section.add("transport", problem.expected("`certificate` in [tls], or `tls-raw-public-key = true`"));
    }
    let proofs = section.count("tls-authorities") + section.count("tls-pins");
    if proofs == 0 && !trust.raw_public_key {
        let problem = Problem::new(format!("nothing proves who the {whom} is over `{words}`"));
        section.add("transport", problem.expected("`tls-authorities` with `tls-name`, or `tls-pins`"));
    }
}

/// What is asked of the neighbour's certificate, or key.
fn consistent(section: &Section<'_>, remote: Option<&Remote>, trust: &Trust) {
    let no_effect = |key: &'static str, why: &str, hint: &str| {
        if section.has(key) {
            section.add(key, Problem::new(format!("`{key}` has no effect {why}")).hint(hint));
        }
    };
    if trust.raw_public_key && section.count("tls-pins") == 0 {
        let problem = Problem::new("a bare key proves nothing unless it is known");
        section.add("tls-raw-public-key", problem.expected("`tls-pins` with its fingerprint"));
    } else if trust.raw_public_key {
        for key in ["tls-authorities", "tls-name", "tls-revocations"] {
            no_effect(key, "on a bare key, which nobody has signed", "remove it, or `tls-raw-public-key`");
        }
    } else if section.count("tls-authorities") == 0 {
        for key in ["tls-name", "tls-revocations"] {
            no_effect(key, "without `tls-authorities`", "add them: files with certificates");
        }
    }
    if let Some(Remote::Range(_)) = remote {
        no_effect(
            "tls-name",
            "with a `listen-range`: its neighbours have a name each",
            "remove it: whoever the authorities have signed for is let in, or those of `tls-pins`",
        );
    }
}

/// Whoever says what the neighbour has to prove does not want a transport that proves nothing.
fn unused(section: &Section<'_>, hint: &str) {
    let raw = section.or("tls-raw-public-key", false).then_some("tls-raw-public-key");
    if let Some(key) = TRUST.into_iter().find(|&key| section.has(key)).or(raw) {
        let problem = Problem::new(format!("`{key}` has no effect over `tcp`, which proves nothing"));
        section.add(key, problem.hint(hint));
    }
}

/// What TCP has and QUIC has not.
fn over_quic(section: &Section<'_>, transports: &[Transport], remote: Option<&Remote>, door: &Door<'_>) {
    if let Some(Remote::Interface(_) | Remote::LinkLocal(..)) = remote {
        let problem = Problem::new("QUIC between link-local addresses is not there yet");
        section.add("transport", problem.hint("use `\"tls\"`, or an `address` of wider scope"));
    }
    if section.has("md5") && transports.iter().all(|transport| transport.is_quic()) {
        let problem = Problem::new("`md5` signs segments of TCP, and there are none over QUIC");
        section.add("md5", problem.hint("remove it: QUIC authenticates every packet").secret());
    }
    if transports.contains(&Transport::QuicS2n) && !door.has_s2n_port {
        let problem = Problem::new("`quic-s2n` has no port to listen on");
        section.add("transport", problem.hint("add `quic-s2n-port = 1179` to [bgp]"));
    }
}
