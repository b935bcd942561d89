//! A scripted BGP speaker, for tests of other speakers: it sends what a script says, sound or not, and says where what comes
//! back is not what the script expects. `docs/manual/speaker.md` has the language.
//!
//! It is no router: it has no state machine, keeps no route, and answers nothing that the script does not answer. Read first:
//! [`script`], which is pure, then [`run()`].

mod build;
mod connection;
mod received;
mod run;
pub mod script;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
extern crate self as holdfast_speaker;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Args;

pub use received::Received;
pub use run::{Options, Stop, Why, run};

/// What the script expects has not come.
const UNMET: u8 = 1;
/// What the script wants cannot be done.
const CANNOT: u8 = 2;
/// The script is wrong: EX_USAGE.
const WRONG_SCRIPT: u8 = 64;

/// `holdfast speaker`
#[derive(Clone, Debug, Args)]
pub struct Speaker {
    /// The script; - is the standard input. Files that it names are beside it.
    script: PathBuf,
    /// Sets a variable of the script, whatever the script sets it to.
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    set: Vec<(String, String)>,
    /// How long the script may take as a whole.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = limit)]
    timeout: Duration,
    /// Tell each message that goes and comes.
    #[arg(short, long)]
    verbose: bool,
    /// Only read the script.
    #[arg(long)]
    check: bool,
}

fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn limit(text: &str) -> Result<Duration, String> {
    script::duration(text).ok_or_else(|| "a duration is 500ms, 2s or 1m".to_owned())
}

impl Speaker {
    /// Carries the script out. Exit codes: 0 all came as expected; 1 something did not; 2 something cannot be done here, as
    /// connecting to who does not listen; 64 the script is wrong.
    pub fn run(self) -> ExitCode {
        let name = self.script.display();
        let read = read(&self.script).map_err(|error| (CANNOT, format!("{name}: {error}")));
        let parsed = read.and_then(|text| {
            let given: BTreeMap<_, _> = self.set.iter().cloned().collect();
            script::parse(&text, &given).map_err(|error| (WRONG_SCRIPT, format!("{name}: {error}")))
        });
        let done = parsed.and_then(|lines| match self.check {
            true => Ok(()),
            false => self.carry_out(&lines).map_err(|(code, text)| (code, format!("{name}: {text}"))),
        });
        match done {
            Ok(()) => ExitCode::SUCCESS,
            Err((code, text)) => {
                eprintln!("{text}");
                ExitCode::from(code)
            }
        }
    }

    fn carry_out(&self, lines: &[script::Line]) -> Result<(), (u8, String)> {
        let directory = self.script.parent().map(Path::to_owned).unwrap_or_default();
        let options = Options { directory, limit: self.timeout, trace: self.verbose };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| (CANNOT, error.to_string()))?;
        runtime.block_on(run(lines, &options, &mut io::stdout())).map_err(|stop| {
            let code = match stop.why {
                Why::Unmet(_) => UNMET,
                Why::Cannot(_) => CANNOT,
            };
            (code, stop.to_string())
        })
    }
}

fn read(script: &Path) -> io::Result<String> {
    let octets = match script.as_os_str() == "-" {
        true => whole(io::stdin().lock())?,
        false => whole(fs::File::open(script)?)?,
    };
    String::from_utf8(octets).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// All of a script or of a file that it sends. One that is too long is refused: cut, it would be another.
fn whole(source: impl Read) -> io::Result<Vec<u8>> {
    let mut octets = Vec::new();
    source.take(script::LONGEST_FILE + 1).read_to_end(&mut octets)?;
    if octets.len() as u64 > script::LONGEST_FILE {
        return Err(io::Error::other(format!("it is longer than {} octets", script::LONGEST_FILE)));
    }
    Ok(octets)
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_refused_and_not_cut() {
        let comments = || io::repeat(b'#');
        let all = whole(comments().take(script::LONGEST_FILE)).expect("just not too long");
        assert_eq!(all.len() as u64, script::LONGEST_FILE);
        let error = whole(comments()).expect_err("endless").to_string();
        assert_eq!(error, "it is longer than 16777216 octets");
    }
}
