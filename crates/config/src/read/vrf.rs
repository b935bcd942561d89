//! `[[vrf]]`, and `vrf = "…"` elsewhere.

use holdfast_types::Prefix;

use super::{MAIN, interface_name};
use crate::{
    input::{At, Names, Problem, Section},
    schema::{Fea, MOST_VRFS, Vrf, VrfPlace},
};

/// RT_TABLE_DEFAULT, RT_TABLE_MAIN and RT_TABLE_LOCAL: no device has one of these, and a namespace only `MAIN`.
const RESERVED: std::ops::RangeInclusive<u32> = 253..=255;
/// Longest name: IFNAMSIZ without the final zero, for the device is called the same unless it is said.
const LONGEST: usize = 15;
/// The kernel has one set of next hops for all tables; the fea numbers those of a table by its rest by this
/// (`ObjectIds::TABLES` of fib-linux).
const TABLES_APART: u32 = 1 << 15;
/// NAME_MAX.
const LONGEST_NETNS: usize = 255;

/// What is one of a kind.
struct Taken<'a> {
    names: Names<'a>,
    devices: Names<'a>,
    /// By their rests.
    tables: Names<'a>,
    namespaces: Names<'a>,
}

/// The VRFs, and their names.
pub(super) fn read<'a>(root: &Section<'a>, fea: &Fea) -> (Vec<Vrf>, Names<'a>) {
    let [names, devices, tables, namespaces] =
        ["VRF", "a VRF with device", "a VRF with table modulo 32768", "a VRF with namespace"]
            .map(|kind| Names::new(root.report, kind));
    let mut taken = Taken { names, devices, tables, namespaces };
    let sections = root.sections("vrf", "[[vrf]]");
    if let Some(first) = sections.get(MOST_VRFS) {
        let problem = Problem::new(format!("there are {} VRFs", sections.len()));
        root.report.add(&first.span, problem.expected(format!("at most {MOST_VRFS}")));
    }
    let has_bgp = root.has("bgp");
    let vrfs = sections.iter().filter_map(|section| vrf(section, fea, has_bgp, &mut taken)).collect();
    (vrfs, taken.names)
}

fn vrf(section: &Section<'_>, fea: &Fea, has_bgp: bool, taken: &mut Taken<'_>) -> Option<Vrf> {
    let name = section.required::<String>("name");
    name.iter().for_each(|name| check(section, name));
    name.iter().for_each(|name| taken.names.declare(name));
    let networks = networks(section, has_bgp);
    let place = match section.has("netns") {
        true => namespace(section, taken),
        false => device(section, name.as_ref(), fea, taken),
    };
    Some(Vrf { name: name?.value, place: place?, networks })
}

fn check(section: &Section<'_>, name: &At<String>) {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.value.is_empty() || name.value.len() > LONGEST || !name.value.chars().all(plain) {
        let problem = Problem::new(format!("`{}` is no name for a VRF", name.value));
        let expected = format!("1 to {LONGEST} letters, digits, `-` or `_`");
        section.report.add(&name.span, problem.expected(expected));
    }
}

fn device(
    section: &Section<'_>,
    vrf: Option<&At<String>>,
    fea: &Fea,
    taken: &mut Taken<'_>,
) -> Option<VrfPlace> {
    let given = section.optional::<String>("device");
    given.iter().for_each(|name| interface_name(section, name));
    if !section.has("table") {
        let problem = Problem::new("[[vrf]] needs `table`, or `netns`");
        section.report.add(&section.span, problem.expected("`table` = 100, as of its device"));
    }
    let table = section.optional::<u32>("table");
    let name = if section.has("device") { given } else { vrf.cloned() };
    name.iter().for_each(|name| taken.devices.declare(name));
    let (name, table) = (name?.value, table?);
    taken.tables.declare(&At { value: (table.value % TABLES_APART).to_string(), span: table.span.clone() });
    let number = table.value;
    if number == 0 || RESERVED.contains(&number) {
        let problem = Problem::new(format!("table {number} is no table of a VRF"));
        section.report.add(&table.span, problem.expected("1 to 252, or 256 and more"));
    } else if number == fea.table {
        let problem = Problem::new(format!("table {number} is that of [fea], the default table"));
        section.report.add(&table.span, problem.expected("another table"));
    }
    Some(VrfPlace::Device { name, table: number })
}

fn namespace(section: &Section<'_>, taken: &mut Taken<'_>) -> Option<VrfPlace> {
    if section.has("device") {
        let problem = Problem::new("a VRF is at a `device` or in a namespace (`netns`), not both");
        section.add("device", problem.hint("remove one of them"));
    }
    let table = section.number("table", 1..=u32::MAX, MAIN);
    if table != MAIN && RESERVED.contains(&table) {
        let problem = Problem::new(format!("table {table} is one of the system's own"));
        section.add("table", problem.expected("1 to 252, 254, or 256 and more"));
    }
    let name = section.optional::<String>("netns")?;
    let is_special = name.value.is_empty() || name.value == "." || name.value == "..";
    let bad = |c: char| c == '/' || c.is_control() || c.is_whitespace();
    if is_special || name.value.len() > LONGEST_NETNS || name.value.contains(bad) {
        let problem = Problem::new(format!("`{}` is no name of a network namespace", name.value));
        section.report.add(&name.span, problem.expected("a name as `ip netns` shows it"));
    }
    taken.namespaces.declare(&name);
    Some(VrfPlace::Netns { name: name.value, table })
}

fn networks(section: &Section<'_>, has_bgp: bool) -> Vec<Prefix> {
    let networks = section.list::<Prefix>("networks").unwrap_or_default();
    if !has_bgp && section.has("networks") {
        let problem = Problem::new("`networks` have no effect without [bgp]");
        section.add("networks", problem.hint("add [bgp], or remove them"));
    }
    let mut names = Names::new(section.report, "network");
    networks.iter().for_each(|network| names.declare(network));
    networks.into_iter().map(|network| network.value).collect()
}

/// The VRF that something is in.
pub(super) fn of(section: &Section<'_>, vrfs: &Names<'_>) -> Option<String> {
    let vrf = section.optional::<String>("vrf")?;
    vrfs.refer(&vrf);
    Some(vrf.value)
}

/// What is one of a kind in its VRF.
pub(super) fn scoped(at: &At<impl ToString>, vrf: Option<&str>) -> At<String> {
    let value = match vrf {
        Some(vrf) => format!("{} in VRF {vrf}", at.value.to_string()),
        None => at.value.to_string(),
    };
    At { value, span: at.span.clone() }
}
