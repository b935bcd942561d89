//! The rows of a descriptor: what a section may say, as [`Key`]s.

use toml::{Spanned, de::DeValue};

use crate::{
    describe::{Default, Effect, Form, Key, Table, Type, key, table, tables},
    input::{At, Names, Problem, Section, Value, integer},
};

/// Tables in tables, the section included.
const DEEPEST: usize = 4;
/// Longest name of a key or command.
const LONGEST: usize = 32;

/// A row that is right, and not kept yet.
#[derive(Debug)]
pub(super) struct Row {
    name: String,
    doc: String,
    kind: Kind,
    is_list: bool,
    default: Given,
}

/// What a value is, as [`Type`] has it.
#[derive(Debug)]
enum Kind {
    Bool,
    Number(u64, u64),
    Word(Vec<String>),
    Text { what: String, example: String },
    Secret { what: String, example: String },
    Form(Form),
    Asn,
    Policy,
    Vrf,
    Protocol,
    Table(Vec<Row>),
    Tables(Vec<Row>, String),
}

/// What holds without a value.
#[derive(Debug)]
enum Given {
    Required,
    Default(String),
    Nothing,
}

/// What says more about a type, and about which.
const DETAILS: [(&str, &[&str]); 6] = [
    ("range", &["number"]),
    ("words", &["word"]),
    ("what", &["text", "secret"]),
    ("example", &["text", "secret"]),
    ("by", &["tables"]),
    ("key", &["table", "tables"]),
];

/// The rows below a section, `depth` tables deep.
pub(super) fn rows(section: &Section<'_>, depth: usize) -> Vec<Row> {
    let mut names = Names::new(section.report, "key");
    let keys = section.sections("key", "[[key]]");
    keys.iter().filter_map(|section| row(section, &mut names, depth)).collect()
}

fn row(section: &Section<'_>, names: &mut Names<'_>, depth: usize) -> Option<Row> {
    // Which of them its type asks for is said by `kind`.
    section.know_all();
    let (name, doc) = (name(section, names), line(section, "doc"));
    let kind = kind(section, depth);
    let is_list = section.or("list", false);
    if is_list && matches!(kind, Some(Kind::Table(_) | Kind::Tables(..))) {
        section.add("list", Problem::new("a list of tables is of the type `tables`"));
    }
    let default = given(section, kind.as_ref(), is_list);
    Some(Row { name: name?, doc: doc?, kind: kind?, is_list, default })
}

/// Options that every command has.
const OPTIONS: [&str; 4] = ["help", "json", "router", "runtime-dir"];

/// The arguments of a command.
pub(super) fn arguments(command: &Section<'_>) -> Vec<Row> {
    let mut names = Names::new(command.report, "argument");
    let arguments = command.sections("argument", "[[argument]]");
    arguments.iter().filter_map(|section| argument(section, &mut names)).collect()
}

fn argument(section: &Section<'_>, names: &mut Names<'_>) -> Option<Row> {
    section.know_all();
    let (name, doc) = (name(section, names), line(section, "doc"));
    if name.as_ref().is_some_and(|name| OPTIONS.contains(&name.as_str())) {
        section.add("name", Problem::new("every command has an option of this name"));
    }
    let kind = kind(section, DEEPEST);
    let default = if section.or("required", false) { Given::Required } else { Given::Nothing };
    Some(Row { name: name?, doc: doc?, kind: kind?, is_list: false, default })
}

/// A name that is not there yet.
pub(super) fn name(section: &Section<'_>, names: &mut Names<'_>) -> Option<String> {
    let name = section.required::<String>("name")?;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let text = &name.value;
    if text.starts_with(|c: char| c.is_ascii_lowercase()) && text.len() <= LONGEST && text.chars().all(plain)
    {
        names.declare(&name);
    } else {
        let expected = format!("a letter, then up to {} letters, digits or `-`, all lower case", LONGEST - 1);
        section.report.add(&name.span, Problem::new(format!("`{text}` is no name")).expected(expected));
    }
    Some(name.value)
}

/// A text on one line, for people.
pub(super) fn line(section: &Section<'_>, key: &'static str) -> Option<String> {
    let text = section.required::<String>(key)?;
    if text.value.trim().is_empty() || text.value.contains(char::is_control) {
        section.report.add(&text.span, Problem::new(format!("`{key}` is no line of text")));
    }
    Some(text.value)
}

fn kind(section: &Section<'_>, depth: usize) -> Option<Kind> {
    let word = section.required::<String>("type")?;
    let described = section.described();
    let Some(Type::Word(known)) = described.key("type").map(|key| key.value) else { return None };
    if !known.contains(&word.value.as_str()) {
        let problem = Problem::new(format!("there is no type `{}`", word.value));
        let problem = problem.expected(format!("one of {}", known.join(", ")));
        section.report.add(&word.span, problem.suggest(&word.value, known.iter().copied()));
        return None;
    }
    for (key, types) in DETAILS.iter().filter(|(key, _)| described.key(key).is_some()) {
        if section.has(key) && !types.contains(&word.value.as_str()) {
            let types = types.join("` and `");
            section.add(key, Problem::new(format!("`{key}` is for keys of type `{types}`")));
        }
    }
    let text = |key: &'static str, default: &str| section.or::<String>(key, default.to_owned());
    Some(match word.value.as_str() {
        "bool" => Kind::Bool,
        "number" => number(section),
        "word" => Kind::Word(words(section)?),
        "text" => Kind::Text { what: text("what", "text"), example: text("example", "") },
        "secret" => Kind::Secret { what: text("what", "text"), example: text("example", "") },
        "address" => Kind::Form(Form::Address),
        "prefix" => Kind::Form(Form::Prefix),
        "interface" => Kind::Form(Form::Interface),
        "asn" => Kind::Asn,
        "policy" => Kind::Policy,
        "vrf" => Kind::Vrf,
        "protocol" => Kind::Protocol,
        "table" => Kind::Table(below(section, depth)),
        "tables" => {
            let (rows, by) = (below(section, depth), text("by", "name"));
            // A key that is there, and lacks something else, is not among the rows: that is said at its own place.
            if !section.names_of("key").any(|name| name == by) {
                section.add("by", Problem::new(format!("the tables have no key `{by}` that names them")));
            }
            Kind::Tables(rows, by)
        }
        _ => return None,
    })
}

fn number(section: &Section<'_>) -> Kind {
    let range = section.list::<u32>("range").unwrap_or_default();
    let range: Vec<_> = range.iter().map(|at| u64::from(at.value)).collect();
    match range[..] {
        [] if !section.has("range") => Kind::Number(0, u32::MAX.into()),
        [low, high] if low <= high => Kind::Number(low, high),
        _ => {
            let problem = Problem::new("this is no range").expected("two numbers as in [1, 255]");
            section.add("range", problem);
            Kind::Number(0, u32::MAX.into())
        }
    }
}

fn words(section: &Section<'_>) -> Option<Vec<String>> {
    let words: Vec<At<String>> = section.list("words").unwrap_or_default();
    if words.is_empty() {
        section.misses("words", "[\"fast\", \"slow\"]");
        return None;
    }
    Some(words.into_iter().map(|word| word.value).collect())
}

fn below(section: &Section<'_>, depth: usize) -> Vec<Row> {
    if depth >= DEEPEST {
        section.add("key", Problem::new(format!("tables are at most {DEEPEST} deep")));
        return Vec::new();
    }
    let rows = rows(section, depth + 1);
    if !section.has("key") {
        section.misses("key", "[{ name = \"…\", type = \"…\", doc = \"…\" }]");
    }
    rows
}

fn given(section: &Section<'_>, kind: Option<&Kind>, is_list: bool) -> Given {
    let is_required = section.or("required", false);
    let Some(value) = section.value("default") else {
        return if is_required { Given::Required } else { Given::Nothing };
    };
    if is_required {
        section.add("default", Problem::new("a key that is required has no default"));
    }
    let text = section.report.text(&value.span());
    let entries = value.get_ref().as_array().filter(|_| is_list);
    let fits = |kind: &Kind| match entries {
        Some(entries) => entries.iter().all(|entry| kind.takes(entry)),
        None => kind.takes(value),
    };
    if kind.is_some_and(|kind| !fits(kind)) {
        section.add("default", Problem::new("the key does not take this value"));
    } else if text.contains('\n') {
        section.add("default", Problem::new("a default is written on one line"));
    }
    Given::Default(text.to_owned())
}

impl Kind {
    /// Whether a value may be a default. Names are those of the configuration, which is not known here.
    fn takes(&self, value: &Spanned<DeValue<'_>>) -> bool {
        let value = value.get_ref();
        match self {
            Self::Bool => value.as_bool().is_some(),
            Self::Number(low, high) => integer(value)
                .and_then(|number| u64::try_from(number).ok())
                .is_some_and(|number| (*low..=*high).contains(&number)),
            Self::Word(words) => value.as_str().is_some_and(|word| words.iter().any(|known| known == word)),
            Self::Text { .. } => value.as_str().is_some(),
            Self::Form(form) => value.as_str().is_some_and(|text| form.read(text).is_ok()),
            Self::Asn => holdfast_types::Asn::read(value).is_ok(),
            Self::Policy => value.as_str().is_some_and(|name| POLICIES.contains(&name)),
            // A secret that everybody can read in a descriptor is none.
            Self::Secret { .. } | Self::Vrf | Self::Protocol | Self::Table(_) | Self::Tables(..) => false,
        }
    }
}

/// Policies that are built in.
const POLICIES: &[&str] = &["accept-all", "reject-all"];

/// The rows of a table, kept for good.
pub(super) fn keep(doc: String, rows: Vec<Row>) -> &'static Table {
    let keys: Vec<Key> = rows.into_iter().map(Row::keep).collect();
    Box::leak(Box::new(Table { doc: doc.leak(), keys: keys.leak() }))
}

impl Row {
    pub(super) fn keep(self) -> Key {
        let (name, doc) = (&*self.name.leak(), self.doc);
        let of = match self.kind {
            Kind::Table(rows) => return table(name, keep(doc, rows)),
            Kind::Tables(rows, by) => return tables(name, keep(doc, rows), by.leak()),
            Kind::Bool => Type::Bool,
            Kind::Number(low, high) => Type::Number(low, high),
            Kind::Word(words) => {
                Type::Word(words.into_iter().map(|word| &*word.leak()).collect::<Vec<_>>().leak())
            }
            Kind::Text { what, example } => Type::Text(what.leak(), example.leak()),
            Kind::Secret { what, example } => Type::Secret(what.leak(), example.leak()),
            Kind::Form(form) => Type::Form(form),
            Kind::Asn => Type::Asn,
            Kind::Policy => Type::Name("policy", POLICIES),
            Kind::Vrf => Type::Name("vrf", &[]),
            Kind::Protocol => Type::Name("protocol", &["bgp", "static", "connected"]),
        };
        let value = if self.is_list { Type::List(Box::leak(Box::new(of))) } else { of };
        let default = match self.default {
            Given::Required => Default::Required,
            Given::Default(text) => Default::Is(text.leak()),
            Given::Nothing => Default::Else("none"),
        };
        key(name, value, default, Effect::Reload, doc.leak())
    }
}
