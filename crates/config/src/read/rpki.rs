//! `[rpki]`: which caches are asked, and local exceptions.

use std::{net::IpAddr, time::Duration};

use holdfast_rtr::Exceptions;

use super::{is_link_local, tls, unicast};
use crate::{
    input::{At, Names, Problem, Section},
    schema::{Cache, ExceptionsFile, Rpki, Transport},
};

/// Where caches listen (RFC 8210 section 9), in the clear and over TLS.
const PORT: u16 = 323;
const TLS_PORT: u16 = 324;
/// What a cache is taken to say that says nothing of its times (RFC 8210 section 6), in seconds.
const REFRESH: u32 = 3600;
const RETRY: u32 = 600;
const EXPIRE: u32 = 7200;
/// Caches at most: each may bring all there is.
const MOST: usize = 32;
/// Octets of all files with local exceptions at most: they go to a process in one message.
const MOST_OCTETS: usize = 8 << 20;

pub(super) fn read(section: &Section<'_>, door: &tls::Door<'_>) -> Rpki {
    let sections = section.sections("cache", "[[rpki.cache]]");
    if let Some(extra) = sections.get(MOST) {
        let problem = Problem::new(format!("there are {} caches", sections.len()));
        section.report.add(&extra.span, problem.expected(format!("at most {MOST}")));
    }
    let mut names = Names::new(section.report, "cache");
    let caches = sections.iter().filter_map(|section| cache(section, door, &mut names)).collect();
    Rpki { exceptions: exceptions(section, door), caches }
}

fn exceptions(section: &Section<'_>, door: &tls::Door<'_>) -> Vec<ExceptionsFile> {
    let files = section.list::<String>("exceptions").unwrap_or_default();
    let mut names = Names::new(section.report, "local exceptions");
    files.iter().for_each(|file| names.declare(file));
    let files = files.into_iter().filter(|file| tls::is_file_name(section, file));
    let files: Vec<_> = files.filter_map(|file| door.files.exceptions(section.report, file)).collect();
    let octets: usize = files.iter().map(|file| file.text.len()).sum();
    if octets > MOST_OCTETS {
        let problem = Problem::new(format!("the files have {octets} octets"));
        section.add("exceptions", problem.expected(format!("at most {MOST_OCTETS} in all")));
    }
    if door.files.are_read() && !section.report.has_problems() {
        let texts = files.iter().map(|file| (file.file.as_str(), &*file.text));
        if let Err(error) = Exceptions::parse(texts) {
            section.add("exceptions", Problem::new(error.to_string()));
        }
    }
    files
}

fn cache(section: &Section<'_>, door: &tls::Door<'_>, names: &mut Names<'_>) -> Option<Cache> {
    let name = section.required::<String>("name");
    let address = section.required::<IpAddr>("address");
    let local_address = section.optional::<IpAddr>("local-address");
    let (transport, trust) = tls::server(section, door);
    let port = if transport == Transport::Tls { TLS_PORT } else { PORT };
    let port = section.number("port", 1..=u16::MAX, port);
    let preference = section.or("preference", 100);
    let version = section.number("version", 0..=2, 2);
    let [refresh, retry, expire] = times(section);
    name.iter().for_each(|name| names.declare(name));
    if let Some(address) = &address {
        unicast(section, address);
        if is_link_local(address.value) {
            let problem = Problem::new(format!("{} could be on any interface", address.value));
            section.report.add(&address.span, problem.expected("a global address"));
        }
        local_address.iter().for_each(|local| same_family(section, address, local));
    }
    Some(Cache {
        name: name?.value,
        address: address?.value,
        port,
        local_address: local_address.map(|at| at.value),
        preference,
        version,
        refresh,
        retry,
        expire,
        transport,
        trust,
    })
}

fn same_family(section: &Section<'_>, address: &At<IpAddr>, local: &At<IpAddr>) {
    if address.value.is_ipv4() != local.value.is_ipv4() {
        let problem = Problem::new(format!("{} is not of the family of {}", local.value, address.value));
        let expected = if address.value.is_ipv4() { "an IPv4 address" } else { "an IPv6 address" };
        section.report.add(&local.span, problem.expected(expected));
    }
}

/// How often it is asked, how soon again, and how long its data last. RFC 8210 section 6: they last longer than it takes to
/// ask for more.
fn times(section: &Section<'_>) -> [Option<Duration>; 3] {
    let number = |key, most, default| section.number(key, 1..=most, default);
    let refresh = number("refresh", 86_400, REFRESH);
    let retry = number("retry", 7200, RETRY);
    let expire = number("expire", 172_800, EXPIRE);
    let named = ["refresh", "retry", "expire"].into_iter().rev().find(|&key| section.has(key));
    if let Some(key) = named
        && expire <= refresh.max(retry)
    {
        let problem = Problem::new(format!(
            "data would expire after {expire} s, and be asked for after {refresh} s, or {retry} s where that failed"
        ));
        section.add(key, problem.expected("`expire` to be more than `refresh` and `retry`"));
    }
    let said =
        |key: &'static str, seconds: u32| section.has(key).then(|| Duration::from_secs(seconds.into()));
    [said("refresh", refresh), said("retry", retry), said("expire", expire)]
}
