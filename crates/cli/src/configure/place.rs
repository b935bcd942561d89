//! Places in a configuration: paths as an operator types them, led by the description of all keys.
//!
//! `bgp.peer.transit-1.import` and `bgp peer transit-1 import` are the same place: points and blanks both divide.
//! A table of a list goes by the value of the key that names it; where that has points in it and is neither a prefix
//! nor known already, it stands in quotes.

use holdfast_config::describe::{Key, Table, Type};
use toml_edit::{DocumentMut, Item, TableLike};

/// A configuration being changed, and what it may say.
#[derive(Clone, Debug)]
pub(super) struct Document {
    pub(super) described: &'static Table,
    pub(super) toml: DocumentMut,
}

/// One step down.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Into what a key says.
    Key(&'static Key),
    /// Into one table of a list.
    Entry {
        /// The key that names it.
        by: &'static str,
        name: String,
    },
}

/// What can come next.
#[derive(Copy, Clone, Debug)]
pub(super) enum Next {
    /// A key of this table.
    Key(&'static Table),
    /// The name of a table of a list.
    Name(&'static Table, &'static str),
    /// A value.
    Value(&'static Key),
}

/// A place, and what it is.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) steps: Vec<Step>,
    pub(super) next: Next,
}

/// Follows words as far as they name a place; also returns those that are left: a value.
pub(super) fn find<'w>(document: &Document, words: &'w [String]) -> Result<(Place, &'w [String]), String> {
    let mut place = Place { steps: Vec::new(), next: Next::Key(document.described) };
    let mut left = words;
    while let Some((word, others)) = left.split_first() {
        if let Next::Value(key) = place.next
            && !goes_on(key, word, others)
        {
            break;
        }
        let mut rest = word.as_str();
        while !rest.is_empty() {
            rest = place.follow(&document.toml, rest)?;
        }
        left = others;
    }
    Ok((place, left))
}

/// Whether what follows a key that may be a value or a table is a key of that table, and not the value.
fn goes_on(key: &Key, word: &str, others: &[String]) -> bool {
    let first = word.split('.').next().unwrap_or(word);
    let known = key.value.table().is_some_and(|table| table.key(first).is_some());
    known && (!others.is_empty() || word.contains('.') || !is_word(&key.value, first))
}

fn is_word(kind: &Type, text: &str) -> bool {
    match kind {
        Type::Word(words) => words.contains(&text),
        Type::Either(kinds) => kinds.iter().any(|kind| is_word(kind, text)),
        _ => false,
    }
}

impl Place {
    /// One step along the first segment of `rest`; what is left of it.
    fn follow<'r>(&mut self, document: &DocumentMut, rest: &'r str) -> Result<&'r str, String> {
        let (table, segment, rest) = match self.next {
            Next::Name(table, by) => {
                let (name, rest) = name_of(rest, &names(document, &self.steps, by))?;
                self.steps.push(Step::Entry { by, name });
                self.next = Next::Key(table);
                return Ok(rest);
            }
            Next::Key(table) => split(table, rest),
            Next::Value(key) => match key.value.table() {
                Some(table) => split(table, rest),
                None => return Err(format!("`{}` is a value: there is nothing below it", key.name)),
            },
        };
        let key = table.key(segment).ok_or_else(|| unknown(segment, table))?;
        self.steps.push(Step::Key(key));
        self.next = match key.value {
            Type::Table(table) | Type::Like(table, _) => Next::Key(table),
            Type::Tables(table, by) => Next::Name(table, by),
            Type::Templates(table, _) => Next::Name(table, "name"),
            _ => Next::Value(key),
        };
        Ok(rest)
    }
}

fn split<'r>(table: &'static Table, rest: &'r str) -> (&'static Table, &'r str, &'r str) {
    let (segment, rest) = rest.split_once('.').unwrap_or((rest, ""));
    (table, segment, rest)
}

fn unknown(word: &str, table: &Table) -> String {
    let known: Vec<_> = table.names().collect();
    match holdfast_config::nearest(word, known.iter().copied()) {
        Some(meant) => format!("there is no key `{word}`: did you mean `{meant}`?"),
        None => format!("there is no key `{word}`: expected one of {}", known.join(", ")),
    }
}

/// A name at the beginning of a word, and what follows it.
fn name_of<'r>(rest: &'r str, known: &[String]) -> Result<(String, &'r str), String> {
    if let Some(quoted) = rest.strip_prefix('"') {
        let (name, rest) = quoted.split_once('"').ok_or("a quotation mark is missing")?;
        return Ok((name.to_owned(), rest.strip_prefix('.').unwrap_or(rest)));
    }
    let after = |name: &str| {
        let rest = rest.strip_prefix(name)?;
        if rest.is_empty() { Some(rest) } else { rest.strip_prefix('.') }
    };
    let longest = known.iter().filter(|name| after(name).is_some()).max_by_key(|name| name.len());
    let name = match (longest, rest.split_once('/')) {
        (Some(known), _) => known.clone(),
        (None, Some((address, length))) => {
            let digits = length.find(|c: char| !c.is_ascii_digit()).unwrap_or(length.len());
            format!("{address}/{}", &length[..digits])
        }
        (None, None) => rest.split('.').next().unwrap_or(rest).to_owned(),
    };
    let rest = after(&name).ok_or_else(|| format!("`{rest}` is no name"))?;
    Ok((name, rest))
}

/// The names of the tables in a list; those that have none go by their place, from 1.
pub(super) fn names(document: &DocumentMut, steps: &[Step], by: &str) -> Vec<String> {
    let Some(item) = item(document, steps) else { return Vec::new() };
    entries(item).into_iter().zip(1..).map(|(entry, number)| name(entry, number, by)).collect()
}

/// What a table of a list is called.
pub(super) fn name(entry: &dyn TableLike, number: usize, by: &str) -> String {
    let named = entry.get(by);
    let text = named.and_then(Item::as_str).map(str::to_owned);
    text.or_else(|| Some(named?.as_integer()?.to_string())).unwrap_or_else(|| number.to_string())
}

/// The tables of a list, in either of TOML's forms.
fn entries(item: &Item) -> Vec<&dyn TableLike> {
    match item {
        Item::ArrayOfTables(tables) => tables.iter().map(|table| table as &dyn TableLike).collect(),
        Item::Value(toml_edit::Value::Array(list)) => list
            .iter()
            .filter_map(|value| value.as_inline_table().map(|table| table as &dyn TableLike))
            .collect(),
        _ => Vec::new(),
    }
}

/// What is at a place that does not end with a table of a list.
fn item<'d>(document: &'d DocumentMut, steps: &[Step]) -> Option<&'d Item> {
    let mut table: &dyn TableLike = document.as_table();
    let mut found = document.as_item();
    for step in steps {
        match step {
            Step::Key(key) => {
                found = table.get(key.name)?;
                table = found.as_table_like().unwrap_or(table);
            }
            Step::Entry { by, name: wanted } => {
                let all = entries(found).into_iter().zip(1..);
                table = all.into_iter().find(|(entry, number)| name(*entry, *number, by) == *wanted)?.0;
            }
        }
    }
    Some(found)
}

/// What is at a place, as text; `None` if there is nothing.
pub(super) fn text(document: &DocumentMut, steps: &[Step]) -> Option<String> {
    match steps.split_last() {
        None => Some(document.to_string()),
        Some((Step::Key(key), _)) => Some(match item(document, steps)? {
            Item::Value(value) => format!("{} = {}\n", key.name, value.to_string().trim()),
            item => item.to_string(),
        }),
        Some((Step::Entry { by, name: wanted }, above)) => {
            let all = entries(item(document, above)?).into_iter().zip(1..);
            let (entry, _) = all.into_iter().find(|(entry, number)| name(*entry, *number, by) == *wanted)?;
            Some(entry.iter().map(|(key, item)| format!("{key} = {}\n", item.to_string().trim())).collect())
        }
    }
}
