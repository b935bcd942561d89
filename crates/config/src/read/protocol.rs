//! `[[protocol]]`.

use crate::{
    Schema,
    input::{At, Names, Problem, Section},
    processes::Owned,
    schema::Protocol,
};

/// Distance of a protocol's routes unless it is configured: behind eBGP, before iBGP.
const DISTANCE: u8 = 120;
/// Routes of these come from ourselves.
const OWN_ORIGINS: [&str; 2] = ["static", "connected"];
/// Roles, origins of routes and classes that are no process: they mean something already.
const TAKEN: [&str; 8] =
    ["ebgp", "ibgp", "finder", "operator", "process", "protocol", "socket", "transport-old"];
/// Longest name: it is part of a socket's path.
const LONGEST: usize = 15;

/// The protocols, and all names whose routes may be redistributed.
pub(super) fn read<'a>(root: &Section<'a>, rib_enabled: bool, schema: Schema) -> (Vec<Protocol>, Names<'a>) {
    let sections = root.sections("protocol", "[[protocol]]");
    if let (Some(first), false) = (sections.first(), rib_enabled) {
        let problem = Problem::new("a protocol has nobody to give routes to without a rib");
        root.report.add(&first.span, problem.hint("remove it, or set `enabled = true` in [rib]"));
    }
    let speaks = |own: &&Owned| own.routing.is_some() && root.has(own.section.key);
    let processes = schema.sections().iter().filter(speaks).map(|own| own.process);
    let mut names = Names::new(root.report, "protocol").built_in(OWN_ORIGINS).built_in(processes);
    let protocols = sections.iter().filter_map(|section| protocol(section, &mut names, schema)).collect();
    (protocols, names)
}

fn protocol(section: &Section<'_>, names: &mut Names<'_>, schema: Schema) -> Option<Protocol> {
    let name = section.required::<String>("name");
    name.iter().for_each(|name| check(section, name, schema));
    name.iter().for_each(|name| names.declare(name));
    let distance = section.or("distance", DISTANCE);
    let [user, group] = ["user", "group"].map(|key| section.optional::<String>(key).map(|at| at.value));
    Some(Protocol { name: name?.value, distance, user, group })
}

fn check(section: &Section<'_>, name: &At<String>, schema: Schema) {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let text = &name.value;
    let begins = text.starts_with(|c: char| c.is_ascii_lowercase());
    if !begins || text.len() > LONGEST || !text.chars().all(plain) {
        let problem = Problem::new(format!("`{text}` is no name for a protocol"));
        let expected = format!("a letter, then up to {} letters, digits or `-`, all lower case", LONGEST - 1);
        section.report.add(&name.span, problem.expected(expected));
    } else if TAKEN.iter().chain(schema.processes()).any(|taken| taken == text) {
        let problem = Problem::new(format!("`{text}` is the name of a part of this router"));
        section.report.add(&name.span, problem.expected("another name"));
    }
}
