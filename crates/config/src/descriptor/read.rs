//! A descriptor as it is read: everything of it that is checked, and not kept yet.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use holdfast_types::Afi;
use toml::{Spanned, de::DeTable};

use super::{DescribedCommand, Descriptor, FORMAT, row};
use crate::{
    Datagrams, RawIp, Routing,
    input::{At, Names, Problem, Report, Section},
    schema::{ProcessLimits, Size},
};

/// Distance of its routes unless it says one: behind eBGP, before iBGP.
pub(crate) const DISTANCE: u8 = 120;

/// What a descriptor says, if nothing is wrong with it.
#[derive(Debug)]
pub(super) struct Draft {
    does: String,
    doc: String,
    program: PathBuf,
    arguments: Vec<String>,
    reads: Vec<PathBuf>,
    user: Option<u8>,
    hang_limit: Option<Duration>,
    limits: ProcessLimits,
    distance: u8,
    datagrams: Vec<Datagrams>,
    raw: Vec<Raw>,
    rows: Vec<row::Row>,
    shows: Vec<Command>,
    clears: Vec<Command>,
}

/// Reads all of it; what is wrong is in the report.
pub(super) fn descriptor<'a>(report: &'a Report<'a>, root: &'a Spanned<DeTable<'a>>) -> Option<Draft> {
    let root = Section::file(report, root.get_ref(), &FORMAT);
    let (does, doc) = (row::line(&root, "does"), row::line(&root, "doc"));
    let program = root.required::<String>("program").map(|at| path(&root, at));
    let arguments = root.list::<String>("arguments").unwrap_or_default();
    let reads = root.list::<String>("reads").unwrap_or_default();
    let datagrams = root.sections("datagrams", "[[datagrams]]");
    Some(Draft {
        arguments: arguments.into_iter().map(|at| argument(&root, at)).collect(),
        reads: reads.into_iter().map(|at| path(&root, at)).collect(),
        user: root.optional::<u8>("user").map(|at| at.value),
        hang_limit: seconds(&root),
        limits: limits(&root),
        distance: root.or("distance", DISTANCE),
        datagrams: datagrams.iter().filter_map(self::datagrams).collect(),
        raw: all_raw(&root),
        rows: row::rows(&root, 1),
        shows: commands(&root, "show", "[[show]]"),
        clears: commands(&root, "clear", "[[clear]]"),
        does: does?,
        doc: doc?,
        program: program?,
    })
}

impl Draft {
    /// The descriptor, which is kept for good with its rows.
    pub(super) fn keep(self, text: &str) -> Descriptor {
        Descriptor {
            text: text.to_owned(),
            does: self.does,
            program: self.program,
            arguments: self.arguments,
            reads: self.reads,
            user: self.user,
            hang_limit: self.hang_limit,
            limits: self.limits,
            routing: Routing {
                distance: self.distance,
                datagrams: self.datagrams.leak(),
                raw: self.raw.into_iter().map(Raw::keep).collect::<Vec<_>>().leak(),
            },
            section: row::keep(self.doc, self.rows),
            shows: self.shows.into_iter().map(Command::keep).collect(),
            clears: self.clears.into_iter().map(Command::keep).collect(),
        }
    }
}

/// No argument of a program can have a zero in it.
fn argument(section: &Section<'_>, at: At<String>) -> String {
    if at.value.contains('\0') {
        section.report.add(&at.span, Problem::new("there is a zero in it"));
    }
    at.value
}

fn path(section: &Section<'_>, at: At<String>) -> PathBuf {
    if !at.value.starts_with('/') {
        let problem = Problem::new(format!("`{}` is no absolute path", at.value));
        section.report.add(&at.span, problem.expected("a path from the root, as in \"/opt/igp\""));
    }
    argument(section, at).into()
}

/// `None`: as long as the router says.
fn seconds(section: &Section<'_>) -> Option<Duration> {
    section
        .has("hang-limit")
        .then(|| Duration::from_secs(section.number("hang-limit", 0..=3600_u32, 0).into()))
}

fn limits(section: &Section<'_>) -> ProcessLimits {
    let memory = section.optional::<Size>("memory").map(|at| at.value);
    let cpu = section.has("cpu").then(|| section.number("cpu", 1..=100_000_u32, 1));
    ProcessLimits { memory, cpu }
}

fn datagrams(section: &Section<'_>) -> Option<Datagrams> {
    let port = section.required::<u16>("port");
    if let Some(at) = port.as_ref().filter(|at| at.value == 0) {
        section.report.add(&at.span, Problem::new("port 0 is no port to listen at").expected("1 to 65535"));
    }
    let group = section.required::<IpAddr>("group");
    if let Some(at) = group.as_ref().filter(|at| !at.value.is_multicast()) {
        let problem = Problem::new(format!("{} is no multicast group", at.value));
        section.report.add(&at.span, problem.expected("an address as in \"224.0.0.120\" or \"ff02::120\""));
    }
    let hops = section.number("hops", 1..=255_u8, 1);
    Some(Datagrams { port: port?.value, group: group?.value, hops })
}

/// Most groups of a protocol number.
const MOST_GROUPS: usize = 16;

/// Raw IP, whose groups are not kept yet.
#[derive(Debug)]
struct Raw {
    afi: Afi,
    protocol: u8,
    groups: Vec<IpAddr>,
    hops: u8,
}

impl Raw {
    fn keep(self) -> RawIp {
        let Self { afi, protocol, groups, hops } = self;
        RawIp { afi, protocol, groups: groups.leak(), hops }
    }
}

fn all_raw(root: &Section<'_>) -> Vec<Raw> {
    let mut names = Names::new(root.report, "protocol number");
    let sections = root.sections("raw", "[[raw]]");
    sections.iter().filter_map(|section| raw(section, &mut names)).collect()
}

fn raw(section: &Section<'_>, names: &mut Names<'_>) -> Option<Raw> {
    let family = section.required::<String>("family");
    let afi = section.word("family", &[("ipv4", Afi::IPV4), ("ipv6", Afi::IPV6)], Afi::IPV4);
    let protocol = section.required::<u8>("protocol");
    if let (Some(at), Some(family)) = (&protocol, &family) {
        if !holdfast_types::is_for_routing(at.value) {
            let problem = Problem::new(format!("packets of protocol number {} are not relayed", at.value));
            section.report.add(&at.span, problem.expected("a number of no other protocol of the host"));
        }
        names.declare(&At { value: format!("{} of {}", at.value, family.value), span: at.span.clone() });
    }
    let groups = section.list::<IpAddr>("groups").unwrap_or_default();
    for at in groups.iter().filter(|at| !at.value.is_multicast() || at.value.is_ipv4() != (afi == Afi::IPV4))
    {
        section
            .report
            .add(&at.span, Problem::new(format!("{} is no multicast group of the family", at.value)));
    }
    if groups.len() > MOST_GROUPS {
        section.add("groups", Problem::new("there are too many").expected(format!("{MOST_GROUPS} at most")));
    }
    let groups: Vec<_> = groups.into_iter().map(|at| at.value).collect();
    let hops = section.number("hops", 1..=255_u8, 1);
    Some(Raw { afi: family.map(|_| afi)?, protocol: protocol?.value, groups, hops })
}

/// A command, whose arguments are not kept yet.
#[derive(Debug)]
struct Command {
    name: String,
    doc: String,
    arguments: Vec<row::Row>,
}

impl Command {
    fn keep(self) -> DescribedCommand {
        let Self { name, doc, arguments } = self;
        let arguments: Vec<_> = arguments.into_iter().map(row::Row::keep).collect();
        DescribedCommand { name, doc, arguments: arguments.leak() }
    }
}

fn commands(root: &Section<'_>, key: &'static str, name: &'static str) -> Vec<Command> {
    let mut names = Names::new(root.report, "command");
    let commands = root.sections(key, name);
    let command = |section: &Section<'_>, names: &mut Names<'_>| {
        let (name, doc) = (row::name(section, names), row::line(section, "doc"));
        let arguments = row::arguments(section);
        Some(Command { name: name?, doc: doc?, arguments })
    };
    commands.iter().filter_map(|section| command(section, &mut names)).collect()
}
