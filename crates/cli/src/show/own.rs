//! `show NAME`, `clear NAME`: what a process answers about itself that has a section of the configuration of its own.

use std::{
    fmt,
    io::Write,
    path::{Path, PathBuf},
};

use clap::{CommandFactory, FromArgMatches, Parser, error::ErrorKind};
use holdfast_api::process::v1::{ClearRequest, ProcessClient, ShowRequest};
use holdfast_config::Schema;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::Value;

use crate::{
    Commands, Failure, Options, Verb,
    configure::Remote,
    json::line,
    router::{Router, answer},
    text::Table,
};

/// Rows that are read of somebody who may be anybody.
const MOST_ROWS: usize = 1 << 20;
/// Octets of them.
const MOST_OCTETS: usize = 512 << 20;

/// What a process says of itself, or clears.
#[derive(Debug, Parser)]
#[command(name = "holdfast", no_binary_name = true, max_term_width = 100)]
struct Line {
    /// A process with a section of the configuration of its own.
    process: String,
    /// What of it to show or clear; its first command if left out.
    command: Option<String>,
    /// Answer as JSON.
    #[arg(long)]
    json: bool,
    /// The directory with the router's socket.
    #[arg(long, visible_alias = "router", value_name = "DIR")]
    runtime_dir: Option<PathBuf>,
}

fn unrecognized(name: &str) -> String {
    format!("unrecognized subcommand '{}'", harmless(name))
}

/// Whether a protocol could be called so. Those that a router has are known to that alone.
fn may_be_protocol(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(plain)
}

/// Leaves the process and its command among the words behind `verb`; the options among them are taken.
///
/// # Errors
/// No process answers to the name, or the words behind it are too many.
pub(crate) fn settle(
    verb: Verb,
    words: &mut Vec<String>,
    schema: Schema,
    commands: &Commands<'_>,
    options: &mut Options,
) -> Result<(), clap::Error> {
    if let Some(name) = words.first().filter(|name| !schema.has_section(name) && !may_be_protocol(name)) {
        let text = format!("{} (see `holdfast {} --help`)\n", unrecognized(name), verb.word());
        return Err(clap::Error::raw(ErrorKind::InvalidSubcommand, text));
    }
    let known = match words.first() {
        Some(name) if schema.has_section(name) => commands(verb, name),
        Some(name) if words.iter().any(|word| HELP.contains(&word.as_str())) => {
            described(&options.runtime_dir, verb, name).unwrap_or_default()
        }
        _ => Vec::new(),
    };
    let usage = format!("holdfast {} [OPTIONS] <PROCESS> [COMMAND]", verb.word());
    let line = Line::command().override_usage(usage).after_help(listed(&known));
    let line = line.try_get_matches_from(words.iter())?;
    let line = Line::from_arg_matches(&line)?;
    options.json |= line.json;
    options.runtime_dir = line.runtime_dir.unwrap_or_else(|| options.runtime_dir.clone());
    *words = std::iter::once(line.process).chain(line.command).collect();
    Ok(())
}

/// Words that ask for help.
const HELP: [&str; 2] = ["--help", "-h"];

impl Verb {
    fn word(self) -> &'static str {
        match self {
            Self::Show => "show",
            Self::Clear => "clear",
        }
    }
}

/// The commands of a protocol whose program a router has started, as its descriptor says; `None`: it is none, or no router
/// says so.
fn described(router: &Path, verb: Verb, name: &str) -> Option<Vec<(String, String)>> {
    let descriptors = Remote::new(router.to_owned()).descriptors().ok()?;
    let (_, descriptor) = descriptors.into_iter().find(|(described, _)| described == name)?;
    let commands = match verb {
        Verb::Show => &descriptor.shows,
        Verb::Clear => &descriptor.clears,
    };
    Some(commands.iter().map(|command| (command.name.clone(), command.doc.clone())).collect())
}

/// Commands as a help has them at its end; nothing for none.
fn listed(commands: &[(String, String)]) -> String {
    if commands.is_empty() {
        return String::new();
    }
    let width = commands.iter().map(|(word, _)| word.len()).max().unwrap_or(0);
    let lines = commands.iter().map(|(word, shows)| format!("  {word:width$}  {shows}"));
    lines.fold("Commands:".to_owned(), |text, line| text + "\n" + &line)
}

/// A row of an answer, with its names in the order in which they came.
struct Row(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Row;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Row, A::Error> {
                let mut row = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    row.push(entry);
                }
                Ok(Row(row))
            }
        }

        from.deserialize_map(InOrder)
    }
}

/// The process that words name, and its command, if any.
async fn find<'w>(
    router: &Router,
    words: &'w [String],
) -> Result<(&'w str, &'w str, ProcessClient), Failure> {
    let (name, command) = match words {
        [name] => (name, ""),
        [name, command] => (name, command.as_str()),
        _ => return Err(Failure::NothingFound(unrecognized(&words.join(" ")))),
    };
    match router.client(name).await {
        Err(Failure::NotRunning { .. }) => {
            let text = format!("{}, and no process of this name runs", unrecognized(name));
            Err(Failure::NothingFound(text))
        }
        found => Ok((name, command, found?)),
    }
}

/// Has a process carry out one of its commands; what it has cleared.
pub(crate) async fn clear(router: &Router, words: &[String]) -> Result<Vec<String>, Failure> {
    let (_, command, client) = find(router, words).await?;
    let cleared = answer(client.clear(ClearRequest { command: command.to_owned() })).await?.cleared;
    Ok(cleared.iter().map(|text| harmless(text)).collect())
}

/// `words` are the process's name and, if any, a command of it.
pub(super) async fn show(
    router: &Router,
    words: &[String],
    as_json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let (name, command, client) = find(router, words).await?;
    let mut replies = client.show(ShowRequest { command: command.to_owned() });
    let (mut rows, mut octets) = (Vec::new(), 0);
    while let Some(reply) = answer(replies.next()).await? {
        for row in &reply.rows {
            octets += row.len();
            let row: Row = serde_json::from_slice(row)
                .map_err(|error| Failure::NoAnswer(format!("{name} answers with what is no row: {error}")))?;
            rows.push(row.0);
        }
        if rows.len() > MOST_ROWS || octets > MOST_OCTETS {
            let bound = format!("{MOST_ROWS} rows of {MOST_OCTETS} octets");
            return Err(Failure::NoAnswer(format!("{name} answers with more than {bound}")));
        }
    }
    if as_json {
        let objects = rows.into_iter().map(|row| Value::Object(row.into_iter().collect()));
        return Ok(line(out, &Value::Array(objects.collect()))?);
    }
    let Some(first) = rows.first() else { return Ok(()) };
    let titles: Vec<String> = first.iter().map(|(name, _)| title(name)).collect();
    let mut table = Table::new(&titles.iter().map(String::as_str).collect::<Vec<_>>());
    let width = titles.len();
    for row in &rows {
        let cells = row.iter().map(|(_, value)| cell(value)).chain(std::iter::repeat_with(String::new));
        table.cells(cells.take(width).collect());
    }
    Ok(table.write(out)?)
}

/// `next-hop`, as the title of a column: `Next hop`.
fn title(name: &str) -> String {
    let words = name.replace(['-', '_'], " ");
    let mut letters = words.chars();
    let title: String = letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect();
    harmless(&title)
}

/// A value without the marks of JSON, and without what a terminal would obey.
fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    harmless(&text)
}

fn harmless(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use holdfast_config::{OwnSection, ProcessKeys, describe};
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_keep_their_order_and_nothing_obeys_them() {
        let row: Row =
            serde_json::from_str(r#"{"next-hop": "a\u001bb", "metric": 3, "age": null}"#).expect("a row");
        let titles: Vec<_> = row.0.iter().map(|(name, _)| title(name)).collect();
        assert_eq!(titles, ["Next hop", "Metric", "Age"]);
        let cells: Vec<_> = row.0.iter().map(|(_, value)| cell(value)).collect();
        assert_eq!(cells, ["ab", "3", "-"]);
        assert_eq!(cell(&json!([1, "x"])), "[1,\"x\"]");
    }

    fn schema() -> Schema {
        static TABLE: describe::Table = describe::Table { doc: "RIP", keys: &[] };
        let section = Some(OwnSection { key: "rip", table: &TABLE, check: None, implied: None });
        Schema::new([ProcessKeys { name: "rip", does: "speaks RIP", section, routing: None }])
    }

    fn commands(verb: Verb, process: &str) -> Vec<(String, String)> {
        assert_eq!(process, "rip");
        let commands: &[_] = match verb {
            Verb::Show => &[("routes", "the routes"), ("interfaces", "where")],
            Verb::Clear => &[("counters", "all counters")],
        };
        commands.iter().map(|(name, doc)| ((*name).to_owned(), (*doc).to_owned())).collect()
    }

    #[test]
    fn options_behind_the_name_are_taken() {
        let mut options = Options { runtime_dir: "/run/a".into(), json: false };
        let mut words: Vec<_> = ["rip", "--json", "routes"].map(str::to_owned).into();
        settle(Verb::Show, &mut words, schema(), &commands, &mut options).expect("a command");
        assert_eq!((words, options.json), (vec!["rip".to_owned(), "routes".to_owned()], true));
        let mut words: Vec<_> = ["rip", "--runtime-dir", "/run/b", "a", "b"].map(str::to_owned).into();
        assert!(
            settle(Verb::Show, &mut words, schema(), &commands, &mut options).is_err(),
            "a word too many"
        );
        let mut words = vec!["a-protocol".to_owned()];
        settle(Verb::Clear, &mut words, schema(), &commands, &mut options).expect("the router knows");
        let mut words = vec!["Rip".to_owned()];
        let error =
            settle(Verb::Clear, &mut words, schema(), &commands, &mut options).expect_err("nobody's name");
        assert!(error.exit_code() == 2 && error.to_string().contains("holdfast clear --help"), "{error}");
    }

    #[test]
    fn the_help_of_a_process_lists_its_commands() {
        let mut options = Options { runtime_dir: "/run/a".into(), json: false };
        for words in [["rip", "--help"], ["rip", "-h"]] {
            let mut words: Vec<_> = words.map(str::to_owned).into();
            let help = settle(Verb::Show, &mut words, schema(), &commands, &mut options).expect_err("help");
            assert_eq!((help.kind(), help.exit_code()), (ErrorKind::DisplayHelp, 0));
            let help = help.to_string();
            assert!(help.contains("Usage: holdfast show [OPTIONS] <PROCESS> [COMMAND]\n"), "{help}");
            assert!(help.ends_with("Commands:\n  routes      the routes\n  interfaces  where\n"), "{help}");
        }
        let mut words: Vec<_> = ["rip", "-h"].map(str::to_owned).into();
        let help = settle(Verb::Clear, &mut words, schema(), &commands, &mut options).expect_err("help");
        assert!(help.to_string().ends_with("Commands:\n  counters  all counters\n"), "{help}");
    }
}
