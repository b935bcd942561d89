//! What can be said in a configuration, as data: the one source of unknown keys and suggestions, completion, the
//! JSON schema and the reference page. The keys themselves are in [`crate::keys`]; those that follow from which processes there
//! are come with the [`Schema`](crate::Schema).

mod json;
mod man;
mod markdown;

pub use self::{
    json::{descriptor_schema, json_schema},
    man::man_page,
    markdown::reference,
};

/// A table of the file, or an inline one.
#[derive(Debug)]
pub struct Table {
    /// What it is about, in one or two sentences.
    pub doc: &'static str,
    /// In the order in which they are shown.
    pub keys: &'static [Key],
}

/// A key of a table.
#[derive(Copy, Clone, Debug)]
pub struct Key {
    /// As in the file.
    pub name: &'static str,
    /// What it may be.
    pub value: Type,
    /// What holds without it.
    pub default: Default,
    /// When a change of it takes effect.
    pub effect: Effect,
    /// What it means, in Markdown without its range and default.
    pub doc: &'static str,
    /// Whether its reader is made of this row, so that the two cannot differ.
    pub once: bool,
}

/// What a value may be.
#[derive(Copy, Clone, Debug)]
pub enum Type {
    /// `true` or `false`.
    Bool,
    /// A number from the first to the last, both included.
    Number(u64, u64),
    /// One of these texts.
    Word(&'static [&'static str]),
    /// A text: what it is, and an example.
    Text(&'static str, &'static str),
    /// A text that is not shown: what it is, and an example. In its place commands show [`HIDDEN`].
    Secret(&'static str, &'static str),
    /// A text of this form.
    Form(Form),
    /// An AS number, as number or as text.
    Asn,
    /// The `name` of one of the tables `[[…]]` of this key of the file, or one of the built-in names.
    Name(&'static str, &'static [&'static str]),
    /// A list of these; one alone may stand for a list of one.
    List(&'static Self),
    /// Any of these.
    Either(&'static [Self]),
    /// A table.
    Table(&'static Table),
    /// A list of these, of which one has to hold, or a table that says how many: [`MODES`].
    Moded(&'static Self),
    /// A table as that which is described at the key of this name.
    Like(&'static Table, &'static str),
    /// A list of tables `[[…]]`; of each the value of this key is unique, and names it. Empty: they go by their
    /// place.
    Tables(&'static Table, &'static str),
    /// A list of named tables `[[…]]` from which tables `[[…]]` of this key of the file take what they do not say
    /// themselves. They have the keys of those, none of them required but the name.
    Templates(&'static Table, &'static str),
}

/// What is shown in the place of a [secret](Type::Secret). It is none itself: somebody has taken it from a screen.
pub const HIDDEN: &str = "(secret)";

/// A form of texts that the rows of a section are enough to check.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Form {
    /// An IPv4 or IPv6 address.
    Address,
    /// A prefix without bits after its length.
    Prefix,
    /// A name that an interface may have.
    Interface,
}

impl Form {
    /// What it is, in a few words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Prefix => "prefix",
            Self::Interface => "name of an interface",
        }
    }

    /// One of them.
    pub fn example(self) -> &'static str {
        match self {
            Self::Address => "10.0.0.1",
            Self::Prefix => "192.0.2.0/24",
            Self::Interface => "eth1",
        }
    }
}

/// What holds where a key is not given.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Default {
    /// It has to be given.
    Required,
    /// As if this had been given, in TOML.
    Is(&'static str),
    /// What cannot be said as a value, in Markdown.
    Else(&'static str),
}

/// When a change of a key takes effect.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// At `holdfast reload`; no session ends.
    Reload,
    /// At `holdfast reload`; the sessions in whose OPEN it is, or that it carries or identifies, end and come up anew.
    Session,
}

/// A row of a table.
pub const fn key(
    name: &'static str,
    value: Type,
    default: Default,
    effect: Effect,
    doc: &'static str,
) -> Key {
    Key { name, value, default, effect, doc, once: false }
}

/// A table `[name]`.
pub const fn table(name: &'static str, table: &'static Table) -> Key {
    key(name, Type::Table(table), Default::Else("none"), Effect::Reload, table.doc)
}

/// Tables `[[name]]`, each named by its key `by`.
pub const fn tables(name: &'static str, table: &'static Table, by: &'static str) -> Key {
    key(name, Type::Tables(table, by), Default::Else("none"), Effect::Reload, table.doc)
}

/// The rows of these parts, one after the other; `N` is how many there are.
pub(crate) const fn joined<const N: usize>(parts: &[&'static [Key]]) -> [Key; N] {
    let mut rows = [parts[0][0]; N];
    let (mut part, mut row, mut place) = (0, 0, 0);
    while place < N {
        if row == parts[part].len() {
            (part, row) = (part + 1, 0);
        } else {
            rows[place] = parts[part][row];
            (row, place) = (row + 1, place + 1);
        }
    }
    rows
}

/// How many entries of a list must hold, where the list alone means one.
pub static MODES: Table = Table {
    doc: "How many entries must hold.",
    keys: &[
        mode("any", "one of these holds"),
        mode("all", "all of these hold"),
        mode("none", "none of these holds"),
    ],
};

const fn mode(name: &'static str, doc: &'static str) -> Key {
    /// What it holds is what the list would hold.
    const ENTRIES: Type = Type::List(&Type::Text("entry", ""));
    key(name, ENTRIES, Default::Else("none"), Effect::Reload, doc)
}

impl Table {
    /// The key of this name.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// The names of all keys.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.keys.iter().map(|key| key.name)
    }
}

impl Type {
    /// The table that the value is or may be, alone or in a list.
    pub fn table(&self) -> Option<&'static Table> {
        match self {
            Self::Table(table)
            | Self::Tables(table, _)
            | Self::Like(table, _)
            | Self::Templates(table, _) => Some(table),
            Self::Either(types) => types.iter().find_map(Self::table),
            Self::List(of) => of.table(),
            Self::Moded(_) => Some(&MODES),
            _ => None,
        }
    }

    /// The same if its keys are described here and nowhere else.
    pub fn inline(&self) -> Option<&'static Table> {
        match self {
            Self::Like(..) | Self::Moded(_) | Self::Templates(..) => None,
            Self::Either(types) => types.iter().find_map(Self::inline),
            Self::List(of) => of.inline(),
            _ => self.table(),
        }
    }

    /// In a few words of Markdown: `1 to 65535`.
    pub fn words(&self) -> String {
        match self {
            Self::Bool => "`true` or `false`".into(),
            Self::Number(low, high) => format!("{low} to {high}"),
            Self::Word(words) => listed(words.iter().map(|word| format!("`\"{word}\"`"))),
            Self::Text(what, _) | Self::Secret(what, _) => (*what).into(),
            Self::Form(form) => form.words().into(),
            Self::Asn => "AS number".into(),
            Self::Name(of, _) => format!("name of a {of}"),
            Self::List(of) => format!("list: {}", of.words()),
            Self::Either(types) => listed(types.iter().map(Self::words)),
            Self::Moded(of) => format!("list: {}; or how many", of.words()),
            Self::Like(_, key) => format!("table as in `{key}`"),
            Self::Table(_) => "table".into(),
            Self::Tables(..) => "list of tables".into(),
            Self::Templates(_, key) => format!("list of tables with keys of `[[{key}]]`"),
        }
    }
}

/// `a, b or c`
fn listed(words: impl Iterator<Item = String>) -> String {
    let mut words: Vec<_> = words.collect();
    match words.pop() {
        Some(last) if !words.is_empty() => format!("{} or {last}", words.join(", ")),
        last => last.unwrap_or_default(),
    }
}

impl Default {
    /// In a few words of Markdown.
    pub fn words(self) -> String {
        match self {
            Self::Required => "required".into(),
            Self::Is(value) => format!("`{value}`"),
            Self::Else(words) => words.into(),
        }
    }
}

impl Effect {
    /// In a few words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Reload => "reload",
            Self::Session => "reload, ends the session",
        }
    }
}

/// A table that can stand in the file under a header of its own.
#[derive(Debug)]
pub struct Header {
    /// `bgp.peer`; empty for the file itself.
    pub path: String,
    /// Its description.
    pub table: &'static Table,
    /// Whether there may be several: `[[bgp.peer]]`.
    pub many: bool,
}

impl Header {
    /// As in the file: `[bgp]`, `[[bgp.peer]]`.
    pub fn title(&self) -> String {
        if self.many { format!("[[{}]]", self.path) } else { format!("[{}]", self.path) }
    }
}

/// All tables of a file that have a header, each after the one that contains it.
pub fn headers(file: &'static Table) -> Vec<Header> {
    let mut headers = Vec::new();
    below("", file, &mut headers);
    headers
}

fn below(path: &str, table: &'static Table, headers: &mut Vec<Header>) {
    for key in table.keys {
        let (table, many) = match key.value {
            Type::Table(table) => (table, false),
            Type::Tables(table, _) => (table, true),
            _ => continue,
        };
        let path = if path.is_empty() { key.name.to_owned() } else { format!("{path}.{}", key.name) };
        headers.push(Header { path: path.clone(), table, many });
        below(&path, table, headers);
    }
}
