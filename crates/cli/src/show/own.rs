//! `show NAME`, `clear NAME`: what a process answers about itself that has a section of the configuration of its own.

use std::{
    fmt,
    io::Write,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgAction, ArgMatches, CommandFactory, FromArgMatches, Parser, error::ErrorKind};
use holdfast_api::process::v1::{ClearRequest, ProcessClient, ShowRequest};
use holdfast_config::{DescribedCommand, Schema, describe, read_argument};
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
    // No argument of a protocol's command is called so.
    #[arg(id = "PROCESS")]
    process: String,
    /// What of it to show or clear; its first command if left out.
    #[arg(id = "COMMAND")]
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

/// Leaves the process and its command among the words behind `verb`, and its arguments as JSON where it takes some; the options
/// among them are taken.
///
/// # Errors
/// No process answers to the name, or the words behind it are too many, or no arguments of the command.
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
    let (mut known, mut arguments) = (Vec::new(), None);
    match words.split_first() {
        Some((name, _)) if schema.has_section(name) => known = commands(verb, name),
        // What a router says of a name alone is of no use.
        Some((name, rest)) if !rest.is_empty() => {
            let described = described(&directory(rest, options), verb, name).unwrap_or_default();
            known = described.iter().map(|command| (command.name.clone(), command.doc.clone())).collect();
            let named = |command: &&DescribedCommand| rest.contains(&command.name);
            arguments = described.iter().find(named).map(|command| command.arguments);
        }
        _ => {}
    }
    take(verb, words, &known, arguments.unwrap_or_default(), options)
}

/// Takes the words of a process with these commands, of which one with these arguments is named.
fn take(
    verb: Verb,
    words: &mut Vec<String>,
    known: &[(String, String)],
    arguments: &'static [describe::Key],
    options: &mut Options,
) -> Result<(), clap::Error> {
    let usage = format!("holdfast {} [OPTIONS] <PROCESS> [COMMAND]", verb.word());
    let line = match arguments {
        [] => Line::command().override_usage(usage).after_help(listed(known)),
        arguments => {
            let line = Line::command().bin_name(format!("holdfast {}", verb.word()));
            line.mut_arg("COMMAND", |command| command.required(true)).args(arguments.iter().map(argument))
        }
    };
    let matches = line.try_get_matches_from(words.iter())?;
    let line = Line::from_arg_matches(&matches)?;
    options.json |= line.json;
    options.runtime_dir = line.runtime_dir.unwrap_or_else(|| options.runtime_dir.clone());
    let given = Some(arguments).filter(|rows| !rows.is_empty()).map(|rows| given(rows, &matches));
    *words = std::iter::once(line.process).chain(line.command).chain(given).collect();
    Ok(())
}

/// The directory of the router that words name, which is asked before they are read.
fn directory(words: &[String], options: &Options) -> PathBuf {
    let value = |(word, next): (&String, Option<&String>)| {
        let (option, value) = word.split_once('=').map_or((word.as_str(), None), |(o, v)| (o, Some(v)));
        let is_it = ["--runtime-dir", "--router"].contains(&option);
        is_it.then(|| value.map(str::to_owned).or_else(|| next.cloned())).flatten()
    };
    let pairs = words.iter().zip(words.iter().skip(1).map(Some).chain([None]));
    pairs.filter_map(value).last().map_or_else(|| options.runtime_dir.clone(), PathBuf::from)
}

/// An argument of a command, as the command line takes it.
fn argument(row: &'static describe::Key) -> Arg {
    let arg = Arg::new(row.name).help(format!("{} ({})", row.doc, row.value.words()));
    let is_required = row.default == describe::Default::Required;
    match row.value {
        describe::Type::Bool if !is_required => arg.long(row.name).action(ArgAction::SetTrue),
        _ => {
            let arg = arg.value_parser(move |text: &str| read_argument(row, text));
            if is_required { arg.required(true) } else { arg.long(row.name) }
        }
    }
}

/// The arguments that were given, as a JSON object.
fn given(rows: &'static [describe::Key], matches: &ArgMatches) -> String {
    let value = |row: &describe::Key| match matches.try_get_one::<Value>(row.name) {
        Ok(value) => value.cloned(),
        // A flag.
        Err(_) => matches.get_flag(row.name).then(|| true.into()),
    };
    let values = rows.iter().filter_map(|row| Some((row.name.to_owned(), value(row)?)));
    Value::Object(values.collect()).to_string()
}

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
fn described(router: &Path, verb: Verb, name: &str) -> Option<&'static [DescribedCommand]> {
    let descriptors = Remote::new(router.to_owned()).descriptors().ok()?;
    let (_, descriptor) = descriptors.into_iter().find(|(described, _)| described == name)?;
    Some(match verb {
        Verb::Show => &descriptor.shows,
        Verb::Clear => &descriptor.clears,
    })
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

/// What words ask of a process, as [`settle`] has left them.
struct Asked<'w> {
    process: &'w str,
    command: String,
    arguments: Vec<u8>,
}

/// The process that words name, and what they ask of it.
async fn find<'w>(router: &Router, words: &'w [String]) -> Result<(Asked<'w>, ProcessClient), Failure> {
    let (name, command, arguments) = match words {
        [name] => (name, "", ""),
        [name, command] => (name, command.as_str(), ""),
        [name, command, arguments] => (name, command.as_str(), arguments.as_str()),
        _ => return Err(Failure::NothingFound(unrecognized(&words.join(" ")))),
    };
    match router.client(name).await {
        Err(Failure::NotRunning { .. }) => {
            let text = format!("{}, and no process of this name runs", unrecognized(name));
            Err(Failure::NothingFound(text))
        }
        found => {
            let (command, arguments) = (command.to_owned(), arguments.as_bytes().to_vec());
            Ok((Asked { process: name, command, arguments }, found?))
        }
    }
}

/// Has a process carry out one of its commands; what it has cleared.
pub(crate) async fn clear(router: &Router, words: &[String]) -> Result<Vec<String>, Failure> {
    let (Asked { command, arguments, .. }, client) = find(router, words).await?;
    let cleared = answer(client.clear(ClearRequest { command, arguments })).await?.cleared;
    Ok(cleared.iter().map(|text| harmless(text)).collect())
}

/// `words` are the process's name and, if any, a command of it, with its arguments.
pub(super) async fn show(
    router: &Router,
    words: &[String],
    as_json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let (Asked { process: name, command, arguments }, client) = find(router, words).await?;
    let mut replies = client.show(ShowRequest { command, arguments });
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

    /// The words and the options that are left of a line about a protocol whose command has these arguments.
    fn taken(line: &str) -> Result<(Vec<String>, Options), clap::Error> {
        const PROBE: &str = r#"
            does = "says hello"
            doc = "HELLO"
            program = "/bin/true"
            [[show]]
            name = "routes"
            doc = "the routes"
            argument = [
              { name = "via", type = "address", required = true, doc = "the gateway" },
              { name = "prefix", type = "prefix", required = true, doc = "the network" },
              { name = "cost", type = "number", range = [1, 9], doc = "at most" },
              { name = "command", type = "text", doc = "a name as that of a word of the line" },
              { name = "detail", type = "bool", doc = "all of it" },
            ]
        "#;
        let probe = holdfast_config::Descriptor::parse(PROBE, "probe").expect("a descriptor");
        let mut options = Options { runtime_dir: "/run/a".into(), json: false };
        let mut words: Vec<_> = line.split(' ').map(str::to_owned).collect();
        take(Verb::Show, &mut words, &[], probe.shows[0].arguments, &mut options)?;
        Ok((words, options))
    }

    #[test]
    fn arguments_of_a_command_are_checked_and_travel_as_json() {
        let line = "probe --json routes 10.0.0.1 --cost 3 192.0.2.0/24 --detail --command x --router /run/b";
        let (words, options) = taken(line).expect("it fits");
        let [name, command, arguments] = words.as_slice() else { panic!("{words:?}") };
        assert_eq!((name.as_str(), command.as_str()), ("probe", "routes"));
        let expected = json!({
            "via": "10.0.0.1", "prefix": "192.0.2.0/24", "cost": 3, "command": "x", "detail": true,
        });
        assert_eq!(arguments.parse::<Value>().expect("JSON"), expected);
        assert_eq!((options.json, options.runtime_dir), (true, "/run/b".into()));
        let (words, _) = taken("probe routes 10.0.0.1 192.0.2.0/24").expect("options are left out");
        assert_eq!(
            words[2].parse::<Value>().expect("JSON"),
            json!({ "via": "10.0.0.1", "prefix": "192.0.2.0/24" })
        );
        for (line, said) in [
            ("probe routes 10.0.0.1", "<prefix>"),
            ("probe routes 10.0.0.x 192.0.2.0/24", "no address"),
            ("probe routes 10.0.0.1 192.0.2.1/24", "the prefix is 192.0.2.0/24"),
            ("probe routes 10.0.0.1 192.0.2.0/24 --cost 10", "expected 1 to 9"),
            ("probe routes 10.0.0.1 192.0.2.0/24 --cots 1", "'--cost'"),
            ("probe routes 10.0.0.1 192.0.2.0/24 more", "'more'"),
        ] {
            let wrong = taken(line).expect_err(said);
            assert!(wrong.exit_code() == 2 && wrong.to_string().contains(said), "{line}: {wrong}");
        }
        let help = taken("probe routes --help").expect_err("help").to_string();
        assert!(help.contains("<via>") && help.contains("the gateway (address)"), "{help}");
        assert!(help.contains("--cost <cost>") && help.contains("at most (1 to 9)"), "{help}");
    }

    #[test]
    fn the_router_that_is_asked_is_the_one_that_the_line_names() {
        let options = Options { runtime_dir: "/run/a".into(), json: false };
        let asked = |line: &str| {
            let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
            directory(&words, &options)
        };
        assert_eq!(asked("routes --json"), PathBuf::from("/run/a"));
        for line in
            ["routes --router /run/b", "--runtime-dir=/run/b routes", "--router /run/c --router=/run/b"]
        {
            assert_eq!(asked(line), PathBuf::from("/run/b"), "{line}");
        }
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
