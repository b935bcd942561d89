//! `[admission]`.

use holdfast_types::Prefix;

use crate::{
    input::{Names, Problem, Section},
    schema::{Admission, AdmissionSet, Rate},
};

/// Names of protocols that each attempt is compared with.
const MOST_ALPN: usize = 16;

pub(super) fn read(section: &Section<'_>) -> Admission {
    let usual = Admission::default();
    let rate = |key, name, usual: Rate| section.section(key, name).map_or(usual, |s| rate(&s, usual));
    let admission = Admission {
        unvalidated: rate("unvalidated", "[admission.unvalidated]", usual.unvalidated),
        by_address: rate("by-address", "[admission.by-address]", usual.by_address),
        priority_alpn: priority_alpn(section),
        sets: sets(section),
        ..Admission::read(section)
    };
    if admission.load_handshakes > admission.most_handshakes {
        let key = if section.has("load-handshakes") { "load-handshakes" } else { "most-handshakes" };
        let problem = Problem::new(format!(
            "load begins at {} handshakes under way, and there are never more than {}",
            admission.load_handshakes, admission.most_handshakes
        ));
        section.add(key, problem.expected("`load-handshakes` up to `most-handshakes`"));
    }
    admission
}

/// More attempts in a second come through no socket.
const MOST_ATTEMPTS: u32 = 10_000_000;

fn rate(section: &Section<'_>, default: Rate) -> Rate {
    Rate {
        per_second: section.number("per-second", 1..=MOST_ATTEMPTS, default.per_second),
        burst: section.number("burst", 1..=MOST_ATTEMPTS, default.burst),
    }
}

/// RFC 7301 section 3.1: names have 1 to 255 octets.
fn priority_alpn(section: &Section<'_>) -> Vec<String> {
    let names = section.list::<String>("priority-alpn").unwrap_or_default();
    for name in names.iter().filter(|name| !(1..=255).contains(&name.value.len())) {
        let problem = Problem::new(format!("`{}` is no name of a protocol", name.value));
        section.report.add(&name.span, problem.expected("1 to 255 octets as in \"qbgp\""));
    }
    if names.len() > MOST_ALPN {
        let problem = Problem::new(format!("there are {} names", names.len()));
        section.add("priority-alpn", problem.expected(format!("at most {MOST_ALPN}")));
    }
    names.into_iter().map(|name| name.value).collect()
}

fn sets(section: &Section<'_>) -> Vec<AdmissionSet> {
    let mut names = Names::new(section.report, "set");
    let sections = section.sections("set", "[[admission.set]]");
    sections.iter().filter_map(|section| set(section, &mut names)).collect()
}

fn set(section: &Section<'_>, names: &mut Names<'_>) -> Option<AdmissionSet> {
    let name = section.required::<String>("name");
    name.iter().for_each(|name| names.declare(name));
    if !section.has("prefixes") {
        section.required::<Prefix>("prefixes");
    }
    let prefixes = section.list::<Prefix>("prefixes").unwrap_or_default();
    Some(AdmissionSet { name: name?.value, prefixes: prefixes.into_iter().map(|at| at.value).collect() })
}
