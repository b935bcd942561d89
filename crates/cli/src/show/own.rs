//! `show NAME`: what a process answers about itself that has a section of the configuration of its own.

use std::{fmt, io::Write, path::PathBuf};

use clap::{CommandFactory, FromArgMatches, Parser, error::ErrorKind};
use holdfast_api::process::v1::{ProcessClient, ShowRequest};
use holdfast_config::Schema;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::Value;

use crate::{
    Commands, Failure, Options,
    json::line,
    router::{Router, answer},
    text::Table,
};

/// Rows that are read of somebody who may be anybody.
const MOST_ROWS: usize = 1 << 20;
/// Octets of them.
const MOST_OCTETS: usize = 512 << 20;

/// What a process says of itself.
#[derive(Debug, Parser)]
#[command(name = "holdfast show", no_binary_name = true, max_term_width = 100)]
struct Line {
    /// A process with a section of the configuration of its own.
    process: String,
    /// What of it to show; its first command if left out.
    command: Option<String>,
    /// Answer as JSON.
    #[arg(long)]
    json: bool,
    /// The directory with the router's socket.
    #[arg(long, visible_alias = "router", value_name = "DIR")]
    runtime_dir: Option<PathBuf>,
}

/// Leaves the process and its command among the words; the options among them are taken.
///
/// # Errors
/// No process of this build answers to the name, or the words behind it are too many.
pub(crate) fn settle(
    words: &mut Vec<String>,
    schema: Schema,
    commands: &Commands<'_>,
    options: &mut Options,
) -> Result<(), clap::Error> {
    if let Some(name) = words.first().filter(|name| !schema.has_section(name)) {
        let text = format!("unrecognized subcommand '{}' (see `holdfast show --help`)\n", harmless(name));
        return Err(clap::Error::raw(ErrorKind::InvalidSubcommand, text));
    }
    let known = words.first().map_or_else(String::new, |name| listed(&commands(name)));
    let line = Line::command().after_help(known).try_get_matches_from(words.iter())?;
    let line = Line::from_arg_matches(&line)?;
    options.json |= line.json;
    options.runtime_dir = line.runtime_dir.unwrap_or_else(|| options.runtime_dir.clone());
    *words = std::iter::once(line.process).chain(line.command).collect();
    Ok(())
}

/// Commands as a help has them at its end.
fn listed(commands: &[(&str, &str)]) -> String {
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

/// `words` are the process's name and, if any, a command of it.
pub(super) async fn show(
    router: &Router,
    words: &[String],
    as_json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let (name, command) = match words {
        [name] => (name, ""),
        [name, command] => (name, command.as_str()),
        _ => return Err(Failure::NothingFound(format!("`show {}` is no command", words.join(" ")))),
    };
    let client: ProcessClient = match router.client(name).await {
        Err(Failure::NotRunning { .. }) => {
            let text = format!("`show {name}` is no command, and no process of this name runs");
            return Err(Failure::NothingFound(text));
        }
        found => found?,
    };
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
        let section = Some(OwnSection { key: "rip", table: &TABLE, check: None });
        Schema::new([ProcessKeys { name: "rip", does: "speaks RIP", section, routing: None }])
    }

    fn commands(process: &str) -> Vec<(&'static str, &'static str)> {
        assert_eq!(process, "rip");
        vec![("routes", "the routes"), ("interfaces", "where")]
    }

    #[test]
    fn options_behind_the_name_are_taken() {
        let mut options = Options { runtime_dir: "/run/a".into(), json: false };
        let mut words: Vec<_> = ["rip", "--json", "routes"].map(str::to_owned).into();
        settle(&mut words, schema(), &commands, &mut options).expect("a command");
        assert_eq!((words, options.json), (vec!["rip".to_owned(), "routes".to_owned()], true));
        let mut words: Vec<_> = ["rip", "--runtime-dir", "/run/b", "a", "b"].map(str::to_owned).into();
        assert!(settle(&mut words, schema(), &commands, &mut options).is_err(), "a word too many");
        let mut words = vec!["ripp".to_owned()];
        let unknown = settle(&mut words, schema(), &commands, &mut options);
        assert!(unknown.is_err_and(|error| error.exit_code() == 2));
    }

    #[test]
    fn the_help_of_a_process_lists_its_commands() {
        let mut options = Options { runtime_dir: "/run/a".into(), json: false };
        for words in [["rip", "--help"], ["rip", "-h"]] {
            let mut words: Vec<_> = words.map(str::to_owned).into();
            let help = settle(&mut words, schema(), &commands, &mut options).expect_err("help");
            assert_eq!((help.kind(), help.exit_code()), (ErrorKind::DisplayHelp, 0));
            let help = help.to_string();
            assert!(help.ends_with("Commands:\n  routes      the routes\n  interfaces  where\n"), "{help}");
        }
    }
}
