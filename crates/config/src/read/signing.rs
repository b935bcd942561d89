//! `[bgpsec]`: the private keys that paths are signed with.

use std::collections::HashMap;

use holdfast_types::Asn;

use super::{tls, usable};
use crate::{
    files::Files,
    input::{Problem, Section},
    schema::{Signing, SigningKey},
};

/// Private keys at most: two for each of a few ASes.
const MOST: usize = 64;

/// Public keys with their AS, and the file that has each.
type Known = HashMap<(Asn, Vec<u8>), String>;

pub(super) fn read(section: &Section<'_>, files: &Files<'_>) -> Signing {
    let sections = section.sections("keys", "[[bgpsec.keys]]");
    if let Some(extra) = sections.get(MOST) {
        let problem = Problem::new(format!("there are {} private keys", sections.len()));
        section.report.add(&extra.span, problem.expected(format!("at most {MOST}")));
    }
    let mut known = Known::new();
    let keys = sections.iter().filter_map(|section| key(section, files, &mut known)).collect();
    Signing { keys, ..Signing::read(section) }
}

fn key(section: &Section<'_>, files: &Files<'_>, known: &mut Known) -> Option<SigningKey> {
    let asn = section.required::<Asn>("asn");
    let file = section.required::<String>("file").filter(|name| tls::is_file_name(section, name));
    let sign_from = section.optional("sign-from").map(|at| at.value);
    asn.iter().for_each(|asn| usable(section, asn));
    let (asn, file) = (asn?.value, file?);
    let (key, public) = files.router_key(section.report, file)?;
    if let Some(other) = known.insert((asn, public), key.file.clone()) {
        let problem = Problem::new(format!("{}: AS {asn} has this key already, in {other}", key.file));
        section.add("file", problem.hint("remove one of the two"));
    }
    Some(SigningKey { asn, key, sign_from })
}
