//! The commands of `holdfast configure`.

/// One command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Command {
    /// `set` or `delete`, with all its words.
    Change(Vec<String>),
    Show(Vec<String>),
    Compare,
    Check,
    Commit(Commit),
    Rollback(u64),
    History,
    Rebase,
    Discard,
    Help(Vec<String>),
    Exit,
}

/// `commit …`
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Commit {
    pub(super) force: bool,
    /// 0: it stays.
    pub(super) confirm_seconds: u64,
    pub(super) comment: String,
    /// Processes that are left out.
    pub(super) without: Vec<String>,
}

/// The verbs, with what they do.
pub(super) const VERBS: [(&str, &str); 12] = [
    ("set", "PATH VALUE: change the candidate; a table that is not there is made"),
    ("delete", "PATH: take a key or a table out of the candidate"),
    ("show", "[PATH]: the candidate, or a part of it; show | compare: as compare"),
    ("compare", "lines that differ between the candidate and what runs"),
    ("check", "errors in the candidate; what a commit would do, and which sessions would end"),
    (
        "commit",
        "[confirmed MINUTES] [force] [without PROCESS] [comment TEXT]: make it run; without changes, confirm the last commit",
    ),
    ("rollback", "N: take version N as the candidate; 0 is what runs"),
    ("history", "versions that are kept"),
    ("rebase", "make the changes again to what runs by now"),
    ("discard", "give up all changes"),
    ("help", "this"),
    ("exit", "leave; refused while there are changes"),
];

/// Words, divided by blanks outside of quotes.
pub(super) fn words(line: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let (mut quoted, mut inside) = (false, false);
    for c in line.chars() {
        if c.is_whitespace() && !quoted {
            inside = false;
            continue;
        }
        quoted ^= c == '"';
        if !std::mem::replace(&mut inside, true) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.push(c);
        }
    }
    words
}

/// Reads a line; `None` for an empty one or a comment.
pub(super) fn read(line: &str) -> Result<Option<Command>, String> {
    if line.trim_start().starts_with('#') {
        return Ok(None);
    }
    let words = words(line);
    let Some((verb, rest)) = words.split_first() else { return Ok(None) };
    let command = match (verb.as_str(), rest) {
        ("set" | "delete", _) => Command::Change(words),
        ("show", [bar, what]) if bar == "|" && what == "compare" => Command::Compare,
        ("show", path) => Command::Show(path.to_vec()),
        ("compare", []) => Command::Compare,
        ("check", []) => Command::Check,
        ("commit", options) => Command::Commit(commit(options)?),
        ("rollback", [number]) => Command::Rollback(self::number(number)?),
        ("history", []) => Command::History,
        ("rebase", []) => Command::Rebase,
        ("discard", []) => Command::Discard,
        ("help", rest) => Command::Help(rest.to_vec()),
        ("exit" | "quit", []) => Command::Exit,
        (known, _) if VERBS.iter().any(|(verb, _)| *verb == known) => {
            return Err(format!("`{known}` takes something else: see `help`"));
        }
        (unknown, _) => return Err(no_command(unknown)),
    };
    Ok(Some(command))
}

fn no_command(word: &str) -> String {
    match holdfast_config::nearest(word, VERBS.map(|(verb, _)| verb)) {
        Some(meant) => format!("there is no command `{word}`: did you mean `{meant}`?"),
        None => format!("there is no command `{word}`: see `help`"),
    }
}

fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("`{word}` is no number"))
}

/// Minutes, or seconds as in `90s`.
fn seconds(time: &str) -> Result<u64, String> {
    let seconds = match time.strip_suffix('s') {
        Some(seconds) => Some(number(seconds)?),
        None => number(time)?.checked_mul(60),
    };
    seconds.filter(|seconds| *seconds > 0).ok_or_else(|| format!("`{time}` is no time to confirm in"))
}

fn commit(mut options: &[String]) -> Result<Commit, String> {
    let mut commit = Commit::default();
    loop {
        options = match options {
            [] => return Ok(commit),
            [word, rest @ ..] if word == "force" => {
                commit.force = true;
                rest
            }
            [word, time, rest @ ..] if word == "confirmed" => {
                commit.confirm_seconds = seconds(time)?;
                rest
            }
            [word, process, rest @ ..] if word == "without" => {
                commit.without.push(process.clone());
                rest
            }
            [word, text @ ..] if word == "comment" && !text.is_empty() => {
                commit.comment = text.join(" ").trim_matches('"').to_owned();
                &[]
            }
            [word, ..] => {
                return Err(format!(
                    "`{word}`: expected confirmed MINUTES, force, without PROCESS or comment TEXT"
                ));
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_hold_words_together() {
        assert_eq!(words("  set a \"b c\".d  e "), ["set", "a", "\"b c\".d", "e"]);
        assert_eq!(words(""), Vec::<String>::new());
    }

    #[test]
    fn commits_take_their_options_in_any_order_and_a_comment_last() {
        let comment = "port 7 is back".into();
        let without = vec!["rip".into(), "probe".into()];
        let expected = Commit { force: true, confirm_seconds: 300, comment, without };
        for line in [
            "commit force confirmed 5 without rip without probe comment port 7 is back",
            "commit without rip confirmed 5 without probe force comment \"port 7 is back\"",
        ] {
            assert_eq!(read(line), Ok(Some(Command::Commit(expected.clone()))), "{line}");
        }
        for line in [
            "commit confirmed",
            "commit confirmed 0",
            "commit confirmed x",
            "commit comment",
            "commit now",
            "commit without",
        ] {
            assert!(read(line).is_err(), "{line}");
        }
    }

    #[test]
    fn lines_that_say_nothing_are_none_and_slips_are_recognised() {
        for line in ["", "  ", "# set a b"] {
            assert_eq!(read(line), Ok(None));
        }
        assert!(read("comit").is_err_and(|error| error.contains("`commit`")));
        assert!(read("history 3").is_err());
        assert_eq!(read("show | compare"), Ok(Some(Command::Compare)));
    }
}
