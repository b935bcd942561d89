//! The description as tables of the reference page.

use std::fmt::Write;

use super::{Header, Key, Table, Type, headers};

/// For each table of a file its header, as `[bgp]`, and its keys as Markdown, those of its inline tables too. One that
/// is there under several headers comes with the first of them.
pub fn reference(file: &'static Table) -> Vec<(String, String)> {
    let headers = headers(file);
    let is_first =
        |place: usize, table| !headers[..place].iter().any(|header| std::ptr::eq(header.table, table));
    let all = headers.iter().enumerate();
    let wanted = all.filter(|(place, header)| has_values(header.table) && is_first(*place, header.table));
    wanted.map(|(_, header)| one(header)).collect()
}

fn has_values(table: &'static Table) -> bool {
    values(table).next().is_some()
}

fn values(table: &'static Table) -> impl Iterator<Item = &'static Key> {
    table.keys.iter().filter(|key| !matches!(key.value, Type::Table(_) | Type::Tables(..)))
}

fn one(header: &Header) -> (String, String) {
    let mut text = String::from("| key | value | meaning | default | changes by |\n|---|---|---|---|---|\n");
    rows(&mut text, "", header.table);
    (header.title(), text)
}

fn rows(text: &mut String, above: &str, table: &'static Table) {
    for key in values(table) {
        let name = format!("{above}{}", key.name);
        // Writing to a text does not fail.
        let _ = writeln!(
            text,
            "| `{name}` | {} | {} | {} | {} |",
            cell(&key.value.words()),
            cell(key.doc),
            cell(&key.default.words()),
            key.effect.words()
        );
        if let Some(inline) = key.value.inline() {
            rows(text, &format!("{name}."), inline);
        }
    }
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
