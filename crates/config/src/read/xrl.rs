//! `[xrl]`.

use std::net::SocketAddr;

use super::own;
use crate::{
    input::{At, Names, Problem, Section},
    keyed::Word as _,
    schema::{Protocol, Secret, Xrl, XrlClient, XrlRole},
};

/// Shortest key in octets.
const SHORTEST_KEY: usize = 16;

pub(super) fn read(section: &Section<'_>, protocols: &[Protocol]) -> Xrl {
    let listen = section.list::<SocketAddr>("listen").unwrap_or_default();
    listen.iter().for_each(|address| unprivileged(section, address));
    let mut names = Names::new(section.report, "client");
    let clients = section.sections("client", "[[xrl.client]]");
    let clients = clients.iter().filter_map(|section| client(section, &mut names, protocols)).collect();
    Xrl { listen: listen.into_iter().map(|at| at.value).collect(), clients }
}

fn unprivileged(section: &Section<'_>, address: &At<SocketAddr>) {
    if address.value.port() < 1024 {
        let problem =
            Problem::new(format!("port {} needs rights that nobody has here", address.value.port()));
        section.report.add(&address.span, problem.expected("a port from 1024 to 65535"));
    }
}

fn client(section: &Section<'_>, names: &mut Names<'_>, protocols: &[Protocol]) -> Option<XrlClient> {
    let name = section.required::<String>("name");
    name.iter().for_each(|name| plain(section, name));
    name.iter().for_each(|name| names.declare(name));
    let role = section.word("role", XrlRole::WORDS, XrlRole::default());
    if let (Some(name), XrlRole::Protocol) = (&name, role)
        && !protocols.iter().any(|protocol| protocol.name == name.value)
    {
        let problem = Problem::new(format!("there is no [[protocol]] `{}`", name.value));
        section
            .report
            .add(&name.span, problem.hint("a client with the role of a protocol has the name of one"));
    }
    let (key, key_file) = key(section);
    Some(XrlClient { name: name?.value, role, key, key_file })
}

fn plain(section: &Section<'_>, name: &At<String>) {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    // A number would look like a user in the history of commits.
    let begins = name.value.starts_with(|c: char| c.is_ascii_alphabetic());
    if !begins || name.value.len() > 64 || !name.value.chars().all(plain) {
        let problem = Problem::new(format!("`{}` is no name for a client", name.value));
        section
            .report
            .add(&name.span, problem.expected("a letter, then up to 63 letters, digits, `-`, `_` or `.`"));
    }
}

fn key(section: &Section<'_>) -> (Secret, Option<String>) {
    let (key, file) = (section.optional::<String>("key"), section.optional::<String>("key-file"));
    if section.has("key") == section.has("key-file") {
        let problem = Problem::new("[[xrl.client]] has either `key` or `key-file`");
        section.report.add(&section.span, problem.secret());
    }
    if let Some(key) = key.as_ref().filter(|key| key.value.len() < SHORTEST_KEY) {
        let problem = Problem::new(format!("the key has {} octets", key.value.len()));
        let expected = format!("{SHORTEST_KEY} octets or more, as from `openssl rand -hex 32`");
        section.report.add(&key.span, problem.expected(expected).secret());
    }
    if let Some((key, problem)) = key.as_ref().and_then(|key| Some((key, own::shown(&key.value)?))) {
        section.report.add(&key.span, problem.secret());
    }
    let key = key.map(|at| at.value).unwrap_or_default();
    (Secret::new(key), file.map(|at| at.value))
}
