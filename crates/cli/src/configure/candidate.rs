//! The candidate: the running configuration with changes made to it, comments kept.

use holdfast_config::describe;
use toml_edit::{ArrayOfTables, DocumentMut, InlineTable, Item, Table, TableLike, Value};

use super::{
    place::{self, Document, Next, Place, Step},
    value,
};

/// A configuration being changed.
#[derive(Debug)]
pub(super) struct Candidate {
    document: Document,
    /// What it was made from, and what names that to the router.
    pub(super) running: String,
    pub(super) base: u64,
    /// The changes made since, to be made again to something else.
    changes: Vec<Vec<String>>,
}

impl Candidate {
    /// Begins with what runs.
    pub(super) fn new(
        running: String,
        base: u64,
        described: &'static describe::Table,
    ) -> Result<Self, String> {
        Ok(Self {
            document: Document { described, toml: parse(&running)? },
            running,
            base,
            changes: Vec::new(),
        })
    }

    pub(super) fn document(&self) -> &Document {
        &self.document
    }

    pub(super) fn text(&self) -> String {
        self.document.toml.to_string()
    }

    pub(super) fn is_changed(&self) -> bool {
        self.text() != self.running
    }

    /// Takes another text as the candidate, as of a version.
    pub(super) fn load(&mut self, text: &str) -> Result<(), String> {
        self.document.toml = parse(text)?;
        self.changes = vec![vec!["load".to_owned(), text.to_owned()]];
        Ok(())
    }

    /// Makes the same changes to what runs by now.
    pub(super) fn rebase(&mut self, running: String, base: u64) -> Result<(), String> {
        let mut rebased = Self::new(running, base, self.document.described)?;
        for change in &self.changes {
            rebased.change(change)?;
        }
        *self = rebased;
        Ok(())
    }

    /// `set PATH VALUE` or `delete PATH`, in words.
    pub(super) fn change(&mut self, words: &[String]) -> Result<(), String> {
        match words {
            [verb, text] if verb == "load" => return self.load(&text.clone()),
            [verb, path @ ..] if verb == "delete" => self.delete(path)?,
            [_, path @ ..] => self.set(path)?,
            [] => return Ok(()),
        }
        self.changes.push(words.to_vec());
        Ok(())
    }

    fn set(&mut self, words: &[String]) -> Result<(), String> {
        let (Place { steps, next }, rest) = place::find(&self.document, words)?;
        let (above, last) = match (next, steps.split_last()) {
            (_, None) => return Err("set what?".to_owned()),
            (Next::Name(..), _) => return Err("name one of them".to_owned()),
            (Next::Key(_), _) => {
                return make(self.document.toml.as_table_mut(), &steps).map(|_| ()).ok_or_else(odd);
            }
            (Next::Value(key), Some((_, above))) => (above, key),
        };
        let value = value::read(&last.value, rest)?;
        put(make(self.document.toml.as_table_mut(), above).ok_or_else(odd)?, last.name, value);
        Ok(())
    }

    fn delete(&mut self, words: &[String]) -> Result<(), String> {
        let (Place { steps, .. }, rest) = place::find(&self.document, words)?;
        if !rest.is_empty() {
            return Err(format!("`{}` is too much: a path is deleted, with what is there", rest.join(" ")));
        }
        let nothing = || "there is nothing there".to_owned();
        let (last, above) = steps.split_last().ok_or("delete what?")?;
        match last {
            Step::Key(key) => {
                let table = reach(self.document.toml.as_table_mut(), above).ok_or_else(nothing)?;
                table.remove(key.name).map(|_| ()).ok_or_else(nothing)
            }
            Step::Entry { by, name } => {
                let Some((Step::Key(list), above)) = above.split_last() else { return Err(nothing()) };
                let table = reach(self.document.toml.as_table_mut(), above).ok_or_else(nothing)?;
                let tables = table.get_mut(list.name).and_then(tables).ok_or_else(nothing)?;
                tables.remove(index(tables, by, name).ok_or_else(nothing)?);
                if tables.is_empty() {
                    table.remove(list.name);
                }
                Ok(())
            }
        }
    }
}

fn odd() -> String {
    "something else than a table is in the way".to_owned()
}

fn parse(text: &str) -> Result<DocumentMut, String> {
    text.parse().map_err(|error: toml_edit::TomlError| error.to_string())
}

/// Puts a value, with the comment of the one before.
fn put(table: &mut dyn TableLike, key: &str, mut value: Value) {
    match table.get_mut(key) {
        Some(Item::Value(before)) => {
            *value.decor_mut() = before.decor().clone();
            *before = value;
        }
        _ => {
            table.insert(key, Item::Value(value));
        }
    }
}

/// A list as tables with headers, whatever it was.
fn tables(item: &mut Item) -> Option<&mut ArrayOfTables> {
    if item.is_value() {
        let list = std::mem::take(item).into_array_of_tables();
        *item = list.map_or_else(|item| item, Item::ArrayOfTables);
    }
    item.as_array_of_tables_mut()
}

fn index(tables: &ArrayOfTables, by: &str, wanted: &str) -> Option<usize> {
    tables.iter().zip(1..).position(|(table, number)| place::name(table, number, by) == wanted)
}

/// The table at a place, if it is there.
fn reach<'d>(mut table: &'d mut dyn TableLike, mut steps: &[Step]) -> Option<&'d mut dyn TableLike> {
    loop {
        (table, steps) = match steps {
            [] => return Some(table),
            [Step::Key(key), Step::Entry { by, name }, rest @ ..] => {
                let tables = tables(table.get_mut(key.name)?)?;
                let index = index(tables, by, name)?;
                (tables.get_mut(index)? as &mut dyn TableLike, rest)
            }
            [Step::Key(key), rest @ ..] => (table.get_mut(key.name)?.as_table_like_mut()?, rest),
            [Step::Entry { .. }, ..] => return None,
        };
    }
}

/// The table at a place; made if it is not there.
fn make<'d>(mut table: &'d mut dyn TableLike, mut steps: &[Step]) -> Option<&'d mut dyn TableLike> {
    let mut inline = false;
    loop {
        (table, steps) = match steps {
            [] => return Some(table),
            [Step::Key(key), Step::Entry { by, name }, rest @ ..] => {
                // What is below one table of a list is written on one line.
                inline = true;
                (entry(table, key, by, name)?, rest)
            }
            [Step::Key(key), rest @ ..] => (below(table, key.name, inline)?, rest),
            [Step::Entry { .. }, ..] => return None,
        };
    }
}

fn entry<'d>(
    table: &'d mut dyn TableLike,
    key: &describe::Key,
    by: &str,
    name: &str,
) -> Option<&'d mut dyn TableLike> {
    let list = table.entry(key.name).or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
    let tables = tables(list)?;
    let at = index(tables, by, name).unwrap_or_else(|| {
        let mut new = Table::new();
        new.insert(by, Item::Value(naming(key, by, name)));
        tables.push(new);
        tables.len() - 1
    });
    tables.get_mut(at).map(|table| table as &mut dyn TableLike)
}

/// The value of the key that names a table of a list. One that is no number where it has to be is for the check to refuse.
fn naming(list: &describe::Key, by: &str, name: &str) -> Value {
    let kind = list.value.table().and_then(|table| table.key(by)).map(|key| &key.value);
    match (kind, name.parse::<i64>()) {
        (Some(describe::Type::Number(..)), Ok(number)) => number.into(),
        _ => name.into(),
    }
}

fn below<'d>(table: &'d mut dyn TableLike, key: &str, inline: bool) -> Option<&'d mut dyn TableLike> {
    let item = table.entry(key).or_insert(Item::None);
    if !item.is_table_like() {
        *item = if inline {
            Item::Value(Value::InlineTable(InlineTable::new()))
        } else {
            Item::Table(Table::new())
        };
    }
    item.as_table_like_mut()
}

#[cfg(test)]
mod tests {
    use holdfast_config::{OwnSection, ProcessKeys, Schema};

    use super::*;

    const RUNNING: &str = r#"# The border router.
[router]
id = "10.0.0.1"
asn = 65001 # ours

# Transit.
[[bgp.peer]]
name = "transit-1"
address = "10.1.0.2" # port 7
asn = 65101

[[static]]
prefix = "192.0.2.0/24"
blackhole = true

[[policy]]
name = "p"
[[policy.term]]
name = "t"
then = "accept"
"#;

    fn candidate() -> Candidate {
        Candidate::new(RUNNING.to_owned(), 1, Schema::new([]).file()).expect("TOML")
    }

    fn changed(lines: &[&str]) -> String {
        let mut candidate = candidate();
        for line in lines {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            candidate.change(&words).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
        let text = candidate.text();
        if let Err(wrong) = holdfast_config::parse(&text, "candidate", Schema::new([])) {
            panic!("{wrong}\n{text}");
        }
        text
    }

    /// The lines that a change takes away and adds.
    fn difference(lines: &[&str]) -> Vec<String> {
        let text = changed(lines);
        let diff = similar::TextDiff::from_lines(RUNNING, &text);
        let changes = diff.iter_all_changes().filter(|change| change.tag() != similar::ChangeTag::Equal);
        changes.map(|change| format!("{}{}", change.tag(), change.value().trim_end())).collect()
    }

    #[test]
    fn a_value_is_replaced_and_its_comment_stays() {
        assert_eq!(
            difference(&["set bgp.peer.transit-1.address 10.1.0.9"]),
            ["-address = \"10.1.0.2\" # port 7", "+address = \"10.1.0.9\" # port 7"]
        );
        assert_eq!(difference(&["set router asn 65002"]), ["-asn = 65001 # ours", "+asn = 65002 # ours"]);
    }

    #[test]
    fn points_and_blanks_are_the_same_and_names_may_have_points() {
        for path in ["bgp.peer.transit-1.import", "bgp peer transit-1 import", "bgp.peer transit-1.import"] {
            assert_eq!(difference(&[&format!("set {path} p")]), ["+import = \"p\""]);
        }
        for path in ["static.192.0.2.0/24.blackhole", "static \"192.0.2.0/24\" blackhole"] {
            let lines = difference(&[&format!("delete {path}"), "set static.192.0.2.0/24.interface eth0"]);
            assert_eq!(lines, ["-blackhole = true", "+interface = \"eth0\""]);
        }
        assert_eq!(
            difference(&["set bgp.peer.\"a.b\".address 10.9.0.1", "set bgp.peer.a.b.asn 7"]),
            ["+[[bgp.peer]]", "+name = \"a.b\"", "+address = \"10.9.0.1\"", "+asn = 7", "+"]
        );
    }

    #[test]
    fn tables_are_made_where_they_belong() {
        assert_eq!(
            difference(&["set rib.distance.static 7"]),
            ["+", "+[rib]", "+", "+[rib.distance]", "+static = 7"]
        );
        assert_eq!(
            difference(&[
                "set policy.p.term.t.from.med min 3",
                "set policy.p.term.t.then local-preference 7"
            ]),
            ["-then = \"accept\"", "+then = { local-preference = 7 }", "+from = { med = { min = 3 } }"]
        );
        let lines = difference(&["set bgp.network.2001:db8::/32", "set bgp listen 10.0.0.1 10.0.0.2"]);
        assert!(lines.contains(&"+prefix = \"2001:db8::/32\"".to_owned()), "{lines:?}");
        assert!(lines.contains(&"+listen = [\"10.0.0.1\", \"10.0.0.2\"]".to_owned()), "{lines:?}");
    }

    #[test]
    fn what_is_deleted_takes_its_comment_with_it() {
        let lines = difference(&["delete bgp.peer.transit-1"]);
        assert!(lines.len() == 6 && lines.iter().all(|line| line.starts_with('-')), "{lines:?}");
        assert!(lines.contains(&"-# Transit.".to_owned()), "{lines:?}");
        assert_eq!(difference(&["set log.level debug", "delete log"]), Vec::<String>::new());
    }

    /// A section whose tables `key` are named by a number, and tables `word` by a word.
    fn numbered() -> Schema {
        use describe::{Default, Effect, Type, key};

        const fn named(by: &'static str, kind: Type) -> describe::Key {
            key(by, kind, Default::Required, Effect::Reload, "names it")
        }
        static KEY: describe::Table = describe::Table {
            doc: "A key.",
            keys: &[named("id", Type::Number(0, 255)), named("secret", Type::Text("text", "s"))],
        };
        static WORD: describe::Table =
            describe::Table { doc: "A word.", keys: &[named("name", Type::Text("text", "s"))] };
        static TABLE: describe::Table = describe::Table {
            doc: "RIP.",
            keys: &[describe::tables("key", &KEY, "id"), describe::tables("word", &WORD, "name")],
        };
        let section = Some(OwnSection { key: "rip", table: &TABLE, check: None, implied: None });
        Schema::new([ProcessKeys { name: "rip", does: "speaks RIP", section, routing: None }])
    }

    #[test]
    fn a_table_that_a_number_names_has_it_as_a_number_and_is_found_by_it() {
        let schema = numbered();
        let mut candidate = Candidate::new(RUNNING.to_owned(), 1, schema.file()).expect("TOML");
        let mut change = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            candidate.change(&words).unwrap_or_else(|error| panic!("{line}: {error}"));
            candidate.text()
        };
        change("set rip.key.2.secret a");
        change("set rip.key.7.secret b");
        change("set rip.word.7");
        let text = change("set rip key 2 secret c");
        for table in ["[[rip.key]]\nid = 2\nsecret = \"c\"", "id = 7\nsecret = \"b\"", "name = \"7\""] {
            assert!(text.contains(table), "{table} in {text}");
        }
        if let Err(wrong) = holdfast_config::parse(&text, "candidate", schema) {
            panic!("{wrong}\n{text}");
        }
        let left = change("delete rip.key.2");
        assert!(!left.contains("id = 2") && left.contains("id = 7"), "{left}");
    }

    #[test]
    fn what_cannot_be_changed_is_said() {
        let refused = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            candidate().change(&words).expect_err(line)
        };
        assert!(refused("set bgp.peer.transit-1.pasive true").contains("did you mean `passive`?"));
        assert!(refused("set bgp.port.x 1").contains("nothing below"));
        assert!(refused("set bgp.port yes").contains("no value"));
        assert!(refused("set bgp.port").contains("1 to 65535"));
        assert!(refused("set bgp.peer").contains("name one"));
        assert!(refused("delete bgp.peer.nobody").contains("nothing there"));
        assert!(refused("delete fea.table").contains("nothing there"));
        assert!(refused("delete router.asn 65001").contains("too much"));
    }

    #[test]
    fn changes_are_made_again_to_what_runs_by_now() {
        let mut candidate = candidate();
        let words = ["set", "bgp.peer.transit-1.import", "p"].map(str::to_owned);
        candidate.change(&words).expect("fits");
        let now = RUNNING.replace("65101", "65102");
        candidate.rebase(now.clone(), 2).expect("fits");
        assert!(candidate.text().contains("65102\nimport = \"p\"") && candidate.base == 2);
        candidate.load(RUNNING).expect("TOML");
        candidate.rebase(now, 3).expect("fits");
        assert_eq!(candidate.text(), RUNNING);
    }
}
