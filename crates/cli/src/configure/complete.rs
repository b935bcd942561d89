//! What may come next on a line: for the tabulator and for `?`.

use holdfast_config::describe::{Key, Table, Type};
use toml_edit::DocumentMut;

use super::{
    language::{self, VERBS},
    place::{self, Document, Next, Place},
};

/// One way to go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Choice {
    pub(super) text: String,
    pub(super) help: String,
}

/// Where in the line the choices begin, in octets, and the choices.
pub(super) fn choices(document: &Document, line: &str) -> (usize, Vec<Choice>) {
    let begun = if line.ends_with(char::is_whitespace) { "" } else { line.rsplit(' ').next().unwrap_or("") };
    let words = language::words(&line[..line.len() - begun.len()]);
    let begins = |choices: Vec<Choice>, part: &str| -> Vec<Choice> {
        choices.into_iter().filter(|choice| choice.text.starts_with(part)).collect()
    };
    let Some((verb, path)) = words.split_first() else {
        return (line.len() - begun.len(), begins(verbs(), begun));
    };
    if !["set", "delete", "show"].contains(&verb.as_str()) {
        return (line.len(), Vec::new());
    }
    let whole = begins(after(document, path, verb), begun);
    if !whole.is_empty() || !begun.contains('.') {
        return (line.len() - begun.len(), whole);
    }
    let (head, part) = begun.rsplit_once('.').unwrap_or(("", begun));
    let path = [path, &[head.to_owned()]].concat();
    (line.len() - part.len(), begins(after(document, &path, verb), part))
}

fn verbs() -> Vec<Choice> {
    VERBS.iter().map(|(verb, help)| choice(*verb, *help)).collect()
}

fn choice(text: impl Into<String>, help: impl Into<String>) -> Choice {
    Choice { text: text.into(), help: help.into() }
}

/// What may follow a path.
fn after(document: &Document, path: &[String], verb: &str) -> Vec<Choice> {
    let Ok((Place { steps, next }, rest)) = place::find(document, path) else { return Vec::new() };
    match next {
        Next::Key(table) if rest.is_empty() => keys(table),
        Next::Name(table, by) => {
            let known = place::names(&document.toml, &steps, by).into_iter();
            known.map(|name| choice(written(&name), table.doc)).collect()
        }
        Next::Value(key) if verb == "set" => {
            let below = key.value.table().filter(|_| rest.is_empty()).map(keys);
            values(&document.toml, &key.value).into_iter().chain(below.unwrap_or_default()).collect()
        }
        _ => Vec::new(),
    }
}

/// A name as it can be typed.
fn written(name: &str) -> String {
    if name.contains(' ') { format!("\"{name}\"") } else { name.to_owned() }
}

fn keys(table: &'static Table) -> Vec<Choice> {
    table.keys.iter().map(|key| choice(key.name, help(key))).collect()
}

fn help(key: &Key) -> String {
    match key.value {
        Type::Table(table) | Type::Tables(table, _) | Type::Like(table, _) => plain(table.doc),
        _ => plain(&format!("{} ({}; default: {})", key.doc, key.value.words(), key.default.words())),
    }
}

/// Markdown without its marks: of a link the words.
fn plain(text: &str) -> String {
    let mut plain = text.replace('`', "");
    while let Some((at, end)) = plain.find("](").and_then(|at| Some((at, at + plain[at..].find(')')?))) {
        plain.replace_range(at..=end, "");
        if let Some(open) = plain[..at].rfind('[') {
            plain.remove(open);
        }
    }
    plain
}

fn values(document: &DocumentMut, kind: &Type) -> Vec<Choice> {
    match kind {
        Type::Bool => ["true", "false"].map(|word| choice(word, "")).to_vec(),
        Type::Word(words) => words.iter().map(|word| choice(*word, "")).collect(),
        Type::Name(of, built_in) => {
            let item = of.split('.').try_fold(document.as_item(), |item, key| item.get(key));
            let list = item.and_then(toml_edit::Item::as_array_of_tables);
            let names = list.into_iter().flatten().filter_map(|table| table.get("name")?.as_str());
            names
                .map(|name| choice(written(name), ""))
                .chain(built_in.iter().map(|name| choice(*name, "built in")))
                .collect()
        }
        Type::List(of) | Type::Moded(of) => values(document, of),
        Type::Either(kinds) => kinds.iter().flat_map(|kind| values(document, kind)).collect(),
        _ => Vec::new(),
    }
}

/// What a line may be continued with, for people: one choice a line, or what the value has to be.
pub(super) fn explain(document: &Document, line: &str) -> String {
    let (_, choices) = choices(document, line);
    if !choices.is_empty() {
        let width = choices.iter().map(|choice| choice.text.len()).max().unwrap_or(0);
        let row = |choice: Choice| {
            format!("  {:width$}  {}", choice.text, choice.help).trim_end().to_owned() + "\n"
        };
        return choices.into_iter().map(row).collect();
    }
    let words = language::words(line);
    let place = words.split_first().and_then(|(_, path)| place::find(document, path).ok());
    match place {
        Some((Place { next: Next::Value(key), .. }, _)) => format!("  {}\n", help(key)),
        Some((Place { next: Next::Name(table, by), .. }, _)) => format!("  {by}: {}\n", table.doc),
        _ => "  nothing fits here\n".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use holdfast_config::Schema;

    use super::*;

    const TEXT: &str = "[[bgp.peer]]\nname = \"transit-1\"\n[[bgp.peer]]\nname = \"tram\"\n[[static]]\nprefix = \"192.0.2.0/24\"\n[[policy]]\nname = \"in\"\n[[bfd.profile]]\nname = \"fast\"\n";

    fn document() -> Document {
        Document { described: Schema::new([]).file(), toml: TEXT.parse().expect("TOML") }
    }

    fn offered(line: &str) -> (usize, Vec<String>) {
        let document = document();
        let (at, choices) = choices(&document, line);
        (at, choices.into_iter().map(|choice| choice.text).collect())
    }

    #[test]
    fn verbs_keys_names_and_values_are_offered_where_they_fit() {
        for (line, at, expected) in [
            ("co", 0, vec!["compare", "commit"]),
            ("set ro", 4, vec!["router"]),
            ("set bgp.pe", 8, vec!["peer"]),
            ("set bgp peer tra", 13, vec!["transit-1", "tram"]),
            ("set bgp.peer.tran", 13, vec!["transit-1"]),
            ("set bgp.peer.tram.imp", 18, vec!["import"]),
            ("set bgp.peer.tram.import ", 25, vec!["in", "accept-all", "reject-all"]),
            ("set bgp.peer.tram.bfd.profile ", 30, vec!["fast", "default"]),
            ("set bgp.peer.tram.bfd t", 22, vec!["true"]),
            ("set static 192", 11, vec!["192.0.2.0/24"]),
            ("set static.192.0.2.0/24.bl", 24, vec!["blackhole"]),
            ("set bgp.peer.tram.passive t", 26, vec!["true"]),
            ("set policy.in.term.1.then a", 26, vec!["accept", "add-communities", "apply", "action"]),
            ("delete bgp.peer.tram.passive ", 29, vec![]),
            ("commit ", 7, vec![]),
        ] {
            let expected: Vec<String> = expected.into_iter().map(str::to_owned).collect();
            assert_eq!(offered(line), (at, expected), "{line}");
        }
    }

    #[test]
    fn help_is_plain_text() {
        assert_eq!(plain("a `b` (see [c](c.md)), [d](e)"), "a b (see c), d");
        assert_eq!(plain("a [b] (c) ]("), "a [b] (c) ](");
    }

    #[test]
    fn a_value_that_cannot_be_offered_is_explained() {
        let document = document();
        assert!(explain(&document, "set bgp.peer.tram.hold-time ").contains("0 to 65535"));
        assert!(explain(&document, "set bgp.").contains("  of routes that neither the peer"));
        assert!(explain(&document, "set nothing.").contains("nothing fits"));
    }
}
