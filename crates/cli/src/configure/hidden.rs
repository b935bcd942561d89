//! Texts of configurations as they are shown: without secrets.

use std::collections::BTreeMap;

use holdfast_config::describe::{HIDDEN, Table, Type};
use toml_edit::{DocumentMut, Item, TableLike, Value};

use super::place;

/// What is shown in the place of a secret that another one is compared with.
const OTHER: &str = "(another secret)";

/// What no row describes is the section of a protocol that the router does not know yet: each text of it may be a secret.
const UNKNOWN: Type = Type::Secret("text", "");
static NOTHING: Table = Table { doc: "", keys: &[] };

/// Each secret of a document, by its place.
type Secrets = BTreeMap<Vec<String>, String>;

/// The same document without its secrets.
pub(super) fn hide(document: &DocumentMut, described: &'static Table) -> DocumentMut {
    let mut hidden = document.clone();
    secrets(&mut hidden, described, &|_, _| HIDDEN);
    hidden
}

/// Two texts without their secrets. A secret of the second one that is not that of the first one at its place is shown as
/// another one. What is no TOML is not shown.
pub(crate) fn hide_both(old: &str, new: &str, described: &'static Table) -> Option<[String; 2]> {
    let [mut old, mut new] = [old.parse::<DocumentMut>().ok()?, new.parse::<DocumentMut>().ok()?];
    let known = secrets(&mut old, described, &|_, _| HIDDEN);
    secrets(&mut new, described, &|place, secret| match known.get(place) {
        Some(before) if before != secret => OTHER,
        _ => HIDDEN,
    });
    Some([old.to_string(), new.to_string()])
}

/// Has something else stand in the place of each secret; what stood there.
fn secrets(
    document: &mut DocumentMut,
    described: &'static Table,
    shown: &dyn Fn(&[String], &str) -> &'static str,
) -> Secrets {
    let mut walk = Walk { place: Vec::new(), found: Secrets::new(), shown };
    walk.table(document.as_table_mut(), described);
    walk.found
}

struct Walk<'s> {
    place: Vec<String>,
    found: Secrets,
    shown: &'s dyn Fn(&[String], &str) -> &'static str,
}

impl Walk<'_> {
    fn at(&mut self, step: &str, go: impl FnOnce(&mut Self)) {
        self.place.push(step.to_owned());
        go(self);
        self.place.pop();
    }

    fn table(&mut self, table: &mut dyn TableLike, described: &'static Table) {
        for (name, item) in table.iter_mut() {
            let row = described.key(name.get()).map(|key| (&key.value, key.value.table()));
            let (of, below) = row.unwrap_or((&UNKNOWN, Some(&NOTHING)));
            self.at(name.get(), |walk| walk.item(item, of, below));
        }
    }

    fn item(&mut self, item: &mut Item, of: &Type, below: Option<&'static Table>) {
        let by = match of {
            Type::Tables(_, by) => by,
            _ => "name",
        };
        match (item, below) {
            (Item::ArrayOfTables(tables), Some(below)) => {
                for (number, table) in (1..).zip(tables.iter_mut()) {
                    let name = place::name(table, number, by);
                    self.at(&name, |walk| walk.table(table, below));
                }
            }
            (Item::Table(table), Some(below)) => self.table(table, below),
            (Item::Value(value), below) => self.value(value, of, below.map(|below| (below, by))),
            _ => {}
        }
    }

    fn value(&mut self, value: &mut Value, of: &Type, below: Option<(&'static Table, &str)>) {
        match (value, below) {
            (Value::InlineTable(table), Some((below, _))) => self.table(table, below),
            (Value::Array(list), below) => {
                for (number, value) in (1..).zip(list.iter_mut()) {
                    let name = match (value.as_inline_table(), below) {
                        (Some(table), Some((_, by))) => place::name(table, number, by),
                        _ => number.to_string(),
                    };
                    self.at(&name, |walk| walk.value(value, of, below));
                }
            }
            (Value::String(text), _) if is_secret(of) => {
                let (shown, lines) = ((self.shown)(&self.place, text.value()), text.to_string());
                let lines = lines.matches('\n').count();
                self.found.insert(self.place.clone(), text.value().clone());
                // As many lines as there were: what follows stays where it is.
                let written = match lines {
                    0 => format!("\"{shown}\""),
                    _ => format!("\"\"\"{shown}{}\"\"\"", "\n".repeat(lines)),
                };
                if let Ok(Value::String(new)) = written.parse() {
                    let decor = text.decor().clone();
                    *text = new;
                    *text.decor_mut() = decor;
                }
            }
            _ => {}
        }
    }
}

fn is_secret(of: &Type) -> bool {
    match of {
        Type::Secret(..) => true,
        Type::List(of) | Type::Moded(of) => is_secret(of),
        Type::Either(types) => types.iter().any(is_secret),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use holdfast_config::Schema;

    use super::*;

    const TEXT: &str = "[[bgp.peer]] # first\nname = \"a\"\nmd5 = \"s3cret\" # of a\n[[bgp.peer]]\nname = \"b\"\n\
        md5 = \"\"\"\nsecond\nsecret\"\"\"\nasn = 7\n[[bgp.group]]\nname = \"g\"\nmd5 = 'third s3cret'\n\
        [xrl]\nclient = [{ name = \"alice\", key = \"fourth s3cret\" }]\n";

    fn described() -> &'static Table {
        Schema::new([]).file()
    }

    #[test]
    fn secrets_are_hidden_wherever_they_stand_and_all_else_stays() {
        let document: DocumentMut = TEXT.parse().expect("TOML");
        let shown = hide(&document, described()).to_string();
        assert!(!shown.contains("s3cret") && !shown.contains("second"), "{shown}");
        assert_eq!(shown.matches(HIDDEN).count(), 4);
        assert_eq!(shown.lines().count(), TEXT.lines().count());
        assert!(shown.contains("[[bgp.peer]] # first\nname = \"a\"\nmd5 = \"(secret)\" # of a\n"), "{shown}");
        assert_eq!(document.to_string(), TEXT);
    }

    #[test]
    fn a_secret_that_changes_is_another_one_and_one_that_moves_with_its_peer_is_not() {
        let changed = TEXT.replace("\"s3cret\"", "\"changed\"");
        let [old, new] = hide_both(TEXT, &changed, described()).expect("TOML");
        let differ: Vec<_> = old.lines().zip(new.lines()).filter(|(old, new)| old != new).collect();
        assert_eq!(differ, [("md5 = \"(secret)\" # of a", "md5 = \"(another secret)\" # of a")]);
        let first = "[[bgp.peer]]\nname = \"new\"\nmd5 = \"new\"\n";
        let [old, new] = hide_both(TEXT, &format!("{first}{TEXT}"), described()).expect("TOML");
        assert_eq!(new, format!("[[bgp.peer]]\nname = \"new\"\nmd5 = \"(secret)\"\n{old}"));
        assert_eq!(hide_both(TEXT, "[bgp", described()), None);
    }

    #[test]
    fn of_a_section_that_nobody_knows_no_text_is_shown() {
        let text = "[hello]\nkey = \"s3cret\"\ncost = 7\n[[hello.interface]]\nkeys = [\"s3cret\", { a = 's3cret' }]\n";
        let shown = hide(&text.parse().expect("TOML"), described()).to_string();
        let expected = "[hello]\nkey = \"(secret)\"\ncost = 7\n[[hello.interface]]\nkeys = [\"(secret)\", { a = \"(secret)\" }]\n";
        assert_eq!(shown, expected);
    }
}
