//! What a file holds, for people and programs.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use holdfast_tls::{
    fingerprint_words,
    keys::{Description, Item, describe},
};
use serde_json::{Map, Value};

use crate::{Failure, json::line, text};

/// Everything in a file, in its order.
pub(super) fn items(items: &[Item], file: &Path, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let described = items.iter().map(describe).collect::<Result<Vec<_>, _>>();
    let described = described.map_err(|error| Failure::KeyFile { file: file.to_owned(), error })?;
    if json {
        return Ok(line(out, &described.iter().map(members).collect::<Vec<_>>())?);
    }
    for (number, description) in described.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        rows(description, &[], out)?;
    }
    Ok(())
}

/// Files that were written, and what the certificate or the list among them is.
pub(super) fn made<const N: usize>(
    files: &[(&str, PathBuf); N],
    description: &Description,
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let files =
        files.each_ref().map(|(name, path)| (name.trim_end_matches(".pem"), path.display().to_string()));
    if json {
        let paths = files.into_iter().map(|(name, path)| (name.to_owned(), Value::from(path)));
        let mut object = members(description);
        object.insert("files".into(), Value::Object(paths.collect()));
        return Ok(line(out, &object)?);
    }
    Ok(rows(description, &files, out)?)
}

/// A row for each thing that there is to say.
fn rows(description: &Description, files: &[(&str, String)], out: &mut dyn Write) -> io::Result<()> {
    let Description { kind, subject, names, issuer, serial, algorithm, fingerprint, revoked, .. } =
        description;
    let itself = issuer == subject;
    // Only a revocation list has no key.
    let [from, until, past, coming] = match fingerprint {
        Some(_) => ["valid from", "valid until", "expired", "not valid yet"],
        None => ["made", "next due", "overdue", "not made yet, by the clock here"],
    };
    let noted = |time: i64, note: Option<&str>| match note {
        Some(note) => format!("{} ({note})", date(time)),
        None => date(time),
    };
    let mut rows = vec![("", (*kind).to_owned())];
    let mut add = |title, value: Option<String>| rows.extend(value.map(|value| (title, value)));
    add("subject", subject.clone());
    add("names", (!names.is_empty()).then(|| names.join(", ")));
    if *kind == "certificate" && names.is_empty() {
        add("names", Some("none: no `tls-name` is good for it".to_owned()));
    }
    add("issuer", issuer.clone().map(|issuer| if itself { "itself".to_owned() } else { issuer }));
    add("serial", serial.clone());
    add(from, description.not_before.map(|time| noted(time, (!is_past(time)).then_some(coming))));
    add(until, description.not_after.map(|time| noted(time, is_past(time).then_some(past))));
    add("algorithm", algorithm.clone());
    add("fingerprint", fingerprint.as_ref().map(fingerprint_words));
    revoked.iter().for_each(|serial| add("revoked", Some(serial.clone())));
    files.iter().for_each(|(name, path)| add(name, Some(path.clone())));
    rows.iter().try_for_each(|(title, value)| match title.is_empty() {
        true => writeln!(out, "{value}"),
        false => writeln!(out, "  {title:<11}  {value}"),
    })
}

/// The same for programs; what does not apply is left out.
fn members(description: &Description) -> Map<String, Value> {
    let Description { kind, subject, names, issuer, serial, algorithm, fingerprint, revoked, .. } =
        description;
    let is_list = fingerprint.is_none();
    let some = |names: &[String], wanted: bool| wanted.then(|| Value::from(names.to_vec()));
    let members = [
        ("kind", Some(Value::from(*kind))),
        ("subject", subject.clone().map(Value::from)),
        ("names", some(names, !names.is_empty())),
        ("issuer", issuer.clone().map(Value::from)),
        ("serial", serial.clone().map(Value::from)),
        (if is_list { "made" } else { "notBefore" }, description.not_before.map(|time| date(time).into())),
        (if is_list { "nextDue" } else { "notAfter" }, description.not_after.map(|time| date(time).into())),
        ("isPast", description.not_after.map(|time| is_past(time).into())),
        ("algorithm", algorithm.clone().map(Value::from)),
        ("fingerprint", fingerprint.as_ref().map(|fingerprint| fingerprint_words(fingerprint).into())),
        ("revoked", some(revoked, is_list)),
    ];
    members.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

fn date(seconds: i64) -> String {
    text::time(u64::try_from(seconds).unwrap_or_default())
}

fn is_past(seconds: i64) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(seconds).unwrap_or_default() < now.as_secs()
}
