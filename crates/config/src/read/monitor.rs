//! `[[bgp.mrt]]` and `[[bgp.bmp]]`: what others may watch.

use std::{net::IpAddr, path::Path, time::Duration};

use super::{is_link_local, unicast};
use crate::{
    input::{At, Names, Problem, Section},
    schema::{Bmp, BmpTable, Mrt, MrtKind},
};

/// Fields of strftime(3) that a name may have.
const FIELDS: &str = "YmdHMSs%";

pub(super) fn mrt(bgp: &Section<'_>) -> Vec<Mrt> {
    let mut files = Names::new(bgp.report, "a dump to");
    bgp.sections("mrt", "[[bgp.mrt]]").iter().filter_map(|section| dump(section, &mut files)).collect()
}

fn dump(section: &Section<'_>, files: &mut Names<'_>) -> Option<Mrt> {
    let dump = Mrt::read(section);
    if dump.what == MrtKind::Table && dump.max_size.is_some() {
        let problem = Problem::new("a table is one file, however large");
        section.add("max-size", problem.hint("remove `max-size`"));
    }
    let file = section.required::<String>("file")?;
    files.declare(&file);
    file_name(section, &file);
    Some(Mrt { file: file.value, ..dump })
}

/// An absolute path, whose last part may have fields.
fn file_name(section: &Section<'_>, file: &At<String>) {
    let path = Path::new(&file.value);
    let parent = path.parent().and_then(Path::to_str).unwrap_or_default();
    if !path.is_absolute() || path.file_name().is_none() || file.value.ends_with('/') {
        let problem = Problem::new(format!("`{}` is no absolute path of a file", file.value));
        section.report.add(&file.span, problem.expected("as in /var/lib/holdfast/updates.%Y%m%d.%H%M%S.mrt"));
    } else if parent.contains('%') {
        let problem = Problem::new("fields of time are for the name of the file, not for its directory");
        section.report.add(&file.span, problem.expected("a directory that is there"));
    }
    let mut fields = file.value.split('%').skip(1).peekable();
    while let Some(rest) = fields.next() {
        // `%%` splits into an empty part and one that is text.
        let known = match rest.chars().next() {
            Some(field) => FIELDS.contains(field),
            None => fields.next().is_some(),
        };
        if !known {
            let problem = Problem::new(format!("`%` is followed by no known field in `{}`", file.value));
            section.report.add(&file.span, problem.expected("%Y %m %d %H %M %S %s or %%"));
            return;
        }
    }
}

pub(super) fn bmp(bgp: &Section<'_>) -> Vec<Bmp> {
    let mut names = Names::new(bgp.report, "collector");
    let mut addresses = Names::new(bgp.report, "a collector at");
    let sections = bgp.sections("bmp", "[[bgp.bmp]]");
    sections.iter().filter_map(|section| collector(section, &mut names, &mut addresses)).collect()
}

fn collector(section: &Section<'_>, names: &mut Names<'_>, addresses: &mut Names<'_>) -> Option<Bmp> {
    let name = section.required::<String>("name");
    let address = section.required::<IpAddr>("address");
    let port = section.number("port", 1..=u16::MAX, 11_019);
    let statistics = section.number("statistics", 0..=86_400_u32, 60);
    let send = tables(section);
    name.iter().for_each(|name| names.declare(name));
    if let Some(address) = &address {
        unicast(section, address);
        addresses.declare(&At { value: address.value.to_string(), span: address.span.clone() });
        if is_link_local(address.value) {
            let problem = Problem::new(format!("{} could be on any interface", address.value));
            section.report.add(&address.span, problem.expected("a global address"));
        }
    }
    Some(Bmp {
        name: name?.value,
        address: address?.value,
        port,
        send,
        statistics: Duration::from_secs(statistics.into()),
    })
}

fn tables(section: &Section<'_>) -> Vec<BmpTable> {
    let Some(words) = section.list::<String>("send") else { return vec![BmpTable::PrePolicy] };
    let table = |at: At<String>| {
        let found = BmpTable::ALL.into_iter().find(|table| table.name() == at.value);
        if found.is_none() {
            let problem = Problem::new(format!("`{}` is no table to send", at.value));
            let expected = BmpTable::ALL.map(|table| format!("\"{}\"", table.name())).join(" or ");
            section.report.add(&at.span, problem.expected(expected));
        }
        found
    };
    words.into_iter().filter_map(table).collect()
}
