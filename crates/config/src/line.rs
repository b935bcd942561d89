//! Where a key is in a text.

use std::cmp::Reverse;

use toml::de::{DeTable, DeValue};

use crate::{diagnostic::Lines, outline};

/// The line, from 1, where a key is, named as `holdfast configure` names it: `bgp.peer.transit-1.import`. Where a part of
/// its path is not in the text, the line of what it would be in; `None` where that is the whole file, and for no TOML.
pub fn line_of(text: &str, key: &str) -> Option<usize> {
    let (outline, cuts) = outline::of(text);
    let root = DeTable::parse(&outline).ok()?;
    Some(Lines::new(text).line(cuts.place(in_table(root.get_ref(), key)?)))
}

/// Where a path leads from a table on, as far as it leads.
fn in_table(table: &DeTable<'_>, path: &str) -> Option<usize> {
    let (key, value, rest) =
        table.iter().find_map(|(key, value)| Some((key, value, after(path, key.get_ref())?)))?;
    let deeper = match value.get_ref() {
        DeValue::Table(table) => in_table(table, rest),
        DeValue::Array(entries) => {
            let named = entries.iter().zip(1_usize..).filter_map(|(entry, number)| {
                let table = entry.get_ref().as_table()?;
                let (length, rest) = entry_after(table, number, rest)?;
                let found = in_table(table, rest);
                let fits = (length, found.is_some(), Reverse(number));
                Some((fits, found.unwrap_or(entry.span().start)))
            });
            // Of two names that fit the longer one is meant, then the table that has the key, then the first.
            named.max_by_key(|(fits, _)| *fits).map(|(_, at)| at)
        }
        _ => None,
    };
    Some(deeper.unwrap_or(key.span().start))
}

/// What follows the name of a table of a list, and how long that is: one of its texts, or its place from 1.
fn entry_after<'p>(table: &DeTable<'_>, number: usize, path: &'p str) -> Option<(usize, &'p str)> {
    let named = table.values().filter_map(|value| {
        let name = value.get_ref().as_str()?;
        Some((name.len(), after(path, name)?))
    });
    named.max_by_key(|(length, _)| *length).or_else(|| Some((0, after(path, &number.to_string())?)))
}

/// What follows a name at the beginning of a path, with or without quotes around it.
fn after<'p>(path: &'p str, name: &str) -> Option<&'p str> {
    let quoted = || path.strip_prefix('"')?.strip_prefix(name)?.strip_prefix('"');
    let rest = path.strip_prefix(name).or_else(quoted).filter(|_| !name.is_empty())?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('.') }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[router]
id = \"10.0.0.1\"

[[bgp.peer]]
name = \"a\"
asn = 65001
[[bgp.peer]]
name = \"a.b\"
description = \"a\"
bfd = { profile = \"fast\",
  hops = 3 }
[[static]]
prefix = \"192.0.2.0/24\"
tag = 7
";

    #[test]
    fn a_key_is_found_by_the_names_that_configure_has() {
        for (key, line) in [
            ("router.id", Some(2)),
            ("bgp.peer.a.asn", Some(6)),
            ("bgp.peer.a.b.description", Some(9)),
            ("bgp.peer.\"a.b\".bfd.hops", Some(11)),
            ("static.192.0.2.0/24.tag", Some(14)),
            ("static.1.tag", Some(14)),
            // What is not there is missing in something.
            ("bgp.peer.a.import", Some(4)),
            ("bgp.peer.nobody.import", Some(4)),
            ("router.asn", Some(1)),
            ("rip.interface", None),
            ("", None),
        ] {
            assert_eq!(line_of(TEXT, key), line, "{key}");
        }
        assert_eq!(line_of("no TOML", "no"), None);
    }
}
