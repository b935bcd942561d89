//! `[[protocol]]`, and the descriptors that it names.

use toml::de::DeTable;

use crate::{
    Descriptor, Schema,
    files::Files,
    input::{At, Names, Problem, Report, Section},
    processes::Owned,
    schema::{Protocol, Sandbox},
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

/// What a file says of protocols with a descriptor, before anything else of it is read: their sections follow from that.
pub(super) struct Described {
    /// Their names, whether their descriptors are known or not.
    pub(super) names: Vec<String>,
    known: Vec<(String, &'static Descriptor)>,
}

impl Described {
    /// Reads the descriptors that a file names.
    pub(super) fn read(report: &Report<'_>, root: &DeTable<'_>, schema: Schema, files: &Files<'_>) -> Self {
        let mut found = Self { names: Vec::new(), known: Vec::new() };
        let entries = root.get("protocol").and_then(|value| value.get_ref().as_array());
        for table in entries.into_iter().flatten().filter_map(|entry| entry.get_ref().as_table()) {
            let text = |key| {
                let value = table.get(key)?;
                Some(At { value: value.get_ref().as_str()?.to_owned(), span: value.span() })
            };
            let (Some(name), Some(file)) = (text("name"), text("descriptor")) else { continue };
            if wrong(&name.value, schema, true).is_none() && !found.names.contains(&name.value) {
                let descriptor = files.descriptor(report, &file);
                found.known.extend(descriptor.map(|descriptor| (name.value.clone(), descriptor)));
                found.names.push(name.value);
            }
        }
        found
    }

    /// What a file may say in which they are.
    pub(super) fn schema(&self, report: &Report<'_>, schema: Schema) -> Schema {
        schema.with(&self.known).unwrap_or_else(|full| {
            report.add(&(0..0), full.problem());
            schema
        })
    }

    /// What they may use, where the file does not say it.
    pub(super) fn limit(&self, sandbox: &mut Sandbox, schema: Schema) {
        for (name, descriptor) in &self.known {
            let Some(name) = schema.processes().iter().find(|known| **known == name) else { continue };
            if !sandbox.limits.iter().any(|(limited, _)| limited == name) {
                sandbox.limits.push((name, descriptor.limits));
            }
            for (_, limits) in sandbox.limits.iter_mut().filter(|(limited, _)| limited == name) {
                limits.memory = limits.memory.or(descriptor.limits.memory);
                limits.cpu = limits.cpu.or(descriptor.limits.cpu);
            }
        }
    }

    fn descriptor(&self, name: &str) -> Option<&'static Descriptor> {
        self.known.iter().find(|(known, _)| known == name).map(|(_, descriptor)| *descriptor)
    }
}

/// What protocols are read with.
pub(super) struct Surroundings<'d> {
    pub(super) rib_enabled: bool,
    /// Processes have users of their own.
    pub(super) has_users: bool,
    pub(super) schema: Schema,
    pub(super) described: &'d Described,
}

/// The protocols, and all names whose routes may be redistributed.
pub(super) fn read<'a>(root: &Section<'a>, with: &Surroundings<'_>) -> (Vec<Protocol>, Names<'a>) {
    let sections = root.sections("protocol", "[[protocol]]");
    if let (Some(first), false) = (sections.first(), with.rib_enabled) {
        let problem = Problem::new("a protocol has nobody to give routes to without a rib");
        root.report.add(&first.span, problem.hint("remove it, or set `enabled = true` in [rib]"));
    }
    let is_ours = |own: &&Owned| !with.described.names.iter().any(|name| name == own.process);
    let speaks = |own: &&Owned| own.routing.is_some() && root.has(own.section.key);
    let processes = with.schema.sections().iter().filter(is_ours).filter(speaks).map(|own| own.process);
    let mut names = Names::new(root.report, "protocol").built_in(OWN_ORIGINS).built_in(processes);
    let protocols: Vec<_> =
        sections.iter().filter_map(|section| protocol(section, &mut names, with)).collect();
    for (place, protocol) in protocols.iter().enumerate() {
        users(&sections, &protocols[..place], protocol);
    }
    (protocols, names)
}

fn protocol(section: &Section<'_>, names: &mut Names<'_>, with: &Surroundings<'_>) -> Option<Protocol> {
    let name = section.required::<String>("name");
    if let Some(name) = &name {
        let is_described = with.described.names.contains(&name.value);
        if let Some(problem) =
            wrong(&name.value, with.schema, section.has("descriptor")).filter(|_| !is_described)
        {
            section.report.add(&name.span, problem);
        }
        names.declare(name);
    }
    if section.optional::<String>("descriptor").is_some() {
        described(section, with);
    }
    let distance = section.or("distance", DISTANCE);
    let [user, group] = ["user", "group"].map(|key| section.optional::<String>(key).map(|at| at.value));
    let name = name?.value;
    Some(Protocol { descriptor: with.described.descriptor(&name), name, distance, user, group })
}

/// What is of no use for one that the router starts.
fn described(section: &Section<'_>, with: &Surroundings<'_>) {
    if section.has("distance") {
        let problem = Problem::new("the descriptor says the distance");
        section.add("distance", problem.hint("another one is set in [rib.distance]"));
    }
    for key in ["user", "group"].into_iter().filter(|key| section.has(key)) {
        let problem =
            Problem::new(format!("`{key}` is of a socket, which a protocol with a descriptor has none of"));
        section.add(key, problem.hint("as whom its program runs follows from `first-user` in [sandbox]"));
    }
    if !with.has_users {
        let problem = Problem::new("there is no user that its program could run as");
        section.add("descriptor", problem.hint("`first-user` in [sandbox] is 0: give it another number"));
    }
}

/// No two programs run as one user.
fn users(sections: &[Section<'_>], others: &[Protocol], protocol: &Protocol) {
    let user = |protocol: &Protocol| Some(protocol.descriptor?.user_of(&protocol.name));
    let Some(other) = others.iter().find(|other| user(other).is_some() && user(other) == user(protocol))
    else {
        return;
    };
    let problem = Problem::new(format!("`{}` and `{}` would run as one user", other.name, protocol.name));
    let problem = problem.hint("give one of them another `user` in its descriptor");
    if let Some(section) = sections.iter().find(|section| section.is_text("name", &protocol.name)) {
        section.add("descriptor", problem);
    }
}

/// Why a protocol cannot be called so; one with a descriptor has a section of its name.
fn wrong(name: &str, schema: Schema, has_section: bool) -> Option<Problem> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
    if !begins || name.len() > LONGEST || !name.chars().all(plain) {
        let problem = Problem::new(format!("`{name}` is no name for a protocol"));
        let expected = format!("a letter, then up to {} letters, digits or `-`, all lower case", LONGEST - 1);
        Some(problem.expected(expected))
    } else if TAKEN.iter().chain(schema.processes()).any(|taken| *taken == name)
        || has_section && schema.file().key(name).is_some()
    {
        let problem = Problem::new(format!("`{name}` is the name of a part of this router"));
        Some(problem.expected("another name"))
    } else {
        None
    }
}
