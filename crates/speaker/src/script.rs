//! Scripts: text to statements.
//!
//! One statement on a line, `#` begins a comment, `$NAME` is replaced by what was set. Everything that can be wrong with a
//! script is found here, before anything is sent; files and addresses that are not there are found when it runs.

mod expect;
mod open;
mod send;
mod words;

use std::{collections::BTreeMap, net::IpAddr, net::SocketAddr, path::PathBuf, time::Duration};

pub(crate) use expect::Named;
pub use expect::{Expected, Octet};
pub use open::OpenSpec;
pub use send::{AddAttribute, FilePart, Hop, Outgoing, UpdateSpec};
use words::Words;
pub(crate) use words::{duration, hex};

/// Octets of a script, of what variables put into it, and of any file that it sends.
pub const LONGEST_FILE: u64 = 16 << 20;
/// How deep `repeat` may stand in `repeat`.
const DEEPEST: usize = 8;
/// How often at most a `repeat` repeats.
const MOST_TIMES: u32 = 1_000_000;
/// How long is waited where nothing is said.
const WITHIN: Duration = Duration::from_secs(5);
/// The port of BGP.
const PORT: u16 = 179;
/// The session of statements before the first `session`.
pub const FIRST_SESSION: &str = "main";

/// A statement and where it stands.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    /// From 1 on.
    pub number: usize,
    /// What is to be done.
    pub statement: Statement,
}

/// What is to be done.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "the manual page says what each does")]
pub enum Statement {
    Session(String),
    Connect {
        to: SocketAddr,
        from: Option<IpAddr>,
        options: SocketOptions,
        within: Duration,
    },
    Listen {
        at: SocketAddr,
        from: Option<IpAddr>,
        options: SocketOptions,
        within: Duration,
    },
    Open(OpenSpec),
    Establish {
        within: Duration,
    },
    Send(Outgoing),
    SendFile(FilePart),
    /// `await` passes over what is not expected.
    Expect {
        what: Expected,
        is_patient: bool,
        within: Duration,
    },
    Silence(Duration),
    Wait(Duration),
    Keepalives(Keepalives),
    Repeat {
        times: u32,
        body: Vec<Line>,
    },
    Save(PathBuf),
    Print(Option<String>),
    Close,
}

/// Whether KEEPALIVEs are sent beside everything else.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the manual page says what each does")]
pub enum Keepalives {
    Off,
    /// Every third of the hold time of our OPEN.
    On,
    Every(Duration),
}

/// How a socket is opened.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SocketOptions {
    /// TCP-MD5 (RFC 2385).
    pub md5: Option<String>,
    /// The TTL of what is sent: 255 for a peer that wants it so (RFC 5082).
    pub ttl: Option<u8>,
}

/// What is wrong with a script.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct ScriptError {
    /// From 1 on.
    pub line: usize,
    /// In words.
    pub reason: String,
}

/// Reads a script. `given` are variables that count instead of what the script sets.
///
/// # Errors
/// The first thing that is wrong.
pub fn parse(text: &str, given: &BTreeMap<String, String>) -> Result<Vec<Line>, ScriptError> {
    let mut variables = given.clone();
    let mut room = LONGEST_FILE as usize;
    // The lines of each `repeat` that is not ended yet, with its own line and count; the first is the script.
    let mut open: Vec<(usize, u32, Vec<Line>)> = vec![(0, 1, Vec::new())];
    for (number, text) in text.lines().enumerate().map(|(number, text)| (number + 1, text)) {
        let at = |reason| ScriptError { line: number, reason };
        let mut words = Words::split(text, &variables, &mut room).map_err(at)?;
        let Some(verb) = words.next() else { continue };
        match verb.as_str() {
            "set" => {
                let name = words.need("a name").map_err(at)?;
                let value = words.rest();
                if !words::is_name(&name) || value.is_empty() {
                    return Err(at("`set NAME VALUE`: a name has letters, digits and _".to_owned()));
                }
                if !given.contains_key(&name) {
                    variables.insert(name, value);
                }
                continue;
            }
            "repeat" => {
                let times = words.number("how often", MOST_TIMES).map_err(at)?;
                words.end().map_err(at)?;
                if open.len() > DEEPEST {
                    return Err(at(format!("`repeat` stands in more than {DEEPEST} others")));
                }
                open.push((number, times, Vec::new()));
                continue;
            }
            "end" => {
                words.end().map_err(at)?;
                let (line, times, body) = match open.len() {
                    0 | 1 => return Err(at("there is no `repeat` to end".to_owned())),
                    _ => open.pop().unwrap_or_default(),
                };
                push(&mut open, Line { number: line, statement: Statement::Repeat { times, body } });
                continue;
            }
            _ => {}
        }
        let statement = statement(&verb, &mut words).map_err(at)?;
        words.end().map_err(at)?;
        push(&mut open, Line { number, statement });
    }
    match open.len() {
        1 => Ok(open.pop().unwrap_or_default().2),
        _ => {
            let line = open.last().map_or(0, |last| last.0);
            Err(ScriptError { line, reason: "this `repeat` has no `end`".to_owned() })
        }
    }
}

fn push(open: &mut [(usize, u32, Vec<Line>)], line: Line) {
    if let Some((_, _, body)) = open.last_mut() {
        body.push(line);
    }
}

fn statement(verb: &str, words: &mut Words) -> Result<Statement, String> {
    Ok(match verb {
        "session" => Statement::Session(words.need("a name")?),
        "connect" => {
            let to = address(&words.need("an address")?)?;
            let (from, options, within) = socket(words)?;
            if from.is_some_and(|from| from.is_ipv4() != to.is_ipv4()) {
                return Err("both addresses are of one family".to_owned());
            }
            Statement::Connect { to, from, options, within }
        }
        "listen" => {
            let at = address(&words.need("an address")?)?;
            let (from, options, within) = socket(words)?;
            if options.md5.is_some() && from.is_none() {
                return Err("`md5` wants to know the peer: `from ADDRESS`".to_owned());
            }
            Statement::Listen { at, from, options, within }
        }
        "open" => Statement::Open(open::read(words)?),
        "establish" => Statement::Establish { within: within(words)? },
        "send" => send::read(words)?,
        "expect" if words.take("nothing") => {
            if !words.take("for") {
                return Err("`expect nothing for DURATION`".to_owned());
            }
            Statement::Silence(words.duration()?)
        }
        "expect" | "await" => {
            let (what, is_patient) = (expect::read(words)?, verb == "await");
            Statement::Expect { what, is_patient, within: within(words)? }
        }
        "wait" => Statement::Wait(words.duration()?),
        "keepalives" => Statement::Keepalives(match words.need("`on`, `off` or `every`")?.as_str() {
            "on" => Keepalives::On,
            "off" => Keepalives::Off,
            "every" => Keepalives::Every(words.duration()?),
            other => return Err(format!("`{other}` is none of `on`, `off`, `every`")),
        }),
        "save" => Statement::Save(words.need("a file")?.into()),
        "print" => Statement::Print(Some(words.rest()).filter(|text| !text.is_empty())),
        "close" => Statement::Close,
        other => return Err(format!("`{other}` is no statement")),
    })
}

/// What may follow an address, in any order.
fn socket(words: &mut Words) -> Result<(Option<IpAddr>, SocketOptions, Duration), String> {
    let (mut from, mut options, mut limit) = (None, SocketOptions::default(), WITHIN);
    loop {
        if words.take("from") {
            from = Some(words.parse("an address")?);
        } else if words.take("md5") {
            let key = words.need("a key")?;
            if key.len() > 80 {
                return Err("a key of TCP-MD5 has 80 octets at most".to_owned());
            }
            options.md5 = Some(key);
        } else if words.take("ttl") {
            options.ttl = Some(words.number("a TTL", 255)? as u8);
        } else if words.take("within") {
            limit = words.duration()?;
        } else {
            return Ok((from, options, limit));
        }
    }
}

fn within(words: &mut Words) -> Result<Duration, String> {
    if words.take("within") { words.duration() } else { Ok(WITHIN) }
}

/// An address, with a port if there is one.
fn address(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse().ok().or_else(|| Some(SocketAddr::new(text.parse().ok()?, PORT)));
    address.ok_or_else(|| {
        format!("`{text}` is no address: 192.0.2.1, 192.0.2.1:179, 2001:db8::1, [2001:db8::1]:179")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Line>, ScriptError> {
        parse(text, &BTreeMap::new())
    }

    fn error(text: &str) -> String {
        read(text).expect_err(text).to_string()
    }

    #[test]
    fn errors_name_their_line() {
        let rows = [
            ("\n# a comment\nopne as 1", "line 3: `opne` is no statement"),
            ("connect 192.0.2", "line 1: `192.0.2` is no address: "),
            ("connect 192.0.2.1 from 2001:db8::1", "line 1: both addresses are of one family"),
            ("connect 192.0.2.1 fro 192.0.2.2", "line 1: `fro` is not understood here"),
            ("connect $router", "line 1: nothing has set `$router`"),
            ("listen 192.0.2.1 md5 x", "line 1: `md5` wants to know the peer"),
            ("expect open\nend", "line 2: there is no `repeat` to end"),
            ("repeat 2\nsend keepalive", "line 1: this `repeat` has no `end`"),
            ("repeat 1000001\nend", "line 1: `1000001` is not how often: 0 to 1000000"),
            ("expect nothing", "line 1: `expect nothing for DURATION`"),
            ("wait 5", "line 1: `5` is no duration: 500ms, 2s, 1m"),
            ("wait 99999999999999999999s", "line 1: `99999999999999999999s` is no duration"),
            ("send", "line 1: what to send is missing"),
            ("send hex 0", "line 1: `0` is not an even number of hexadecimal digits"),
            ("send update 10.0.0.0/8 2001:db8::/32", "line 1: prefixes of both families in one UPDATE"),
            ("send update 10.0.0.0/8 path 1,x", "line 1: `x` is no AS number"),
            ("send update 10.0.0.0/8 attribute 40:1", "line 1: `40:1` is no attribute: FLAGS:TYPE:VALUE"),
            ("send update 10.0.0.0/8 bgpsec to 1", "line 1: a key of who signs first is missing"),
            ("expect update with ORIGIN", "line 1: `ORIGIN` is not a type of attributes: 0 to 255"),
            ("expect notification 3 1 2", "line 1: `2` is not understood here"),
            ("keepalives maybe", "line 1: `maybe` is none of `on`, `off`, `every`"),
            ("open hold 90", "line 1: `open as AS`: the AS is missing"),
        ];
        for (text, expected) in rows {
            let said = error(text);
            assert!(said.starts_with(expected), "{text}: {said}");
        }
        let deep = "repeat 1\n".repeat(9);
        assert!(error(&deep).starts_with("line 9: `repeat` stands in more than 8 others"));
    }

    #[test]
    fn variables_are_replaced_and_given_ones_count() {
        let text = "set router 192.0.2.1\nconnect $router:${port} # $nobody\nprint a$router";
        let given = BTreeMap::from([("port".to_owned(), "1790".to_owned())]);
        let lines = parse(text, &given).expect("a script");
        let to = |line: &Line| match &line.statement {
            Statement::Connect { to, .. } => to.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!((lines[0].number, to(&lines[0])), (2, "192.0.2.1:1790".to_owned()));
        assert_eq!(lines[1].statement, Statement::Print(Some("a192.0.2.1".to_owned())));
        let given =
            BTreeMap::from([("port", "1"), ("router", "::1")].map(|(a, b)| (a.to_owned(), b.to_owned())));
        assert!(parse("set router 192.0.2.1\nconnect [$router]:$port", &given).is_ok());
    }

    #[test]
    fn variables_that_double_have_an_end() {
        let doubled = |from: &str, times: u32| -> String {
            (0..times)
                .map(|step| format!("set a{} {from}\n", step + 1).replace('@', &step.to_string()))
                .collect()
        };
        // 15 octets, and what the lines before put in is what this one has: less than 16 MiB up to the 19th.
        let script = |body: &str| format!("set a0 fifteen_octets_\n{body}");
        assert!(read(&script(&doubled("$a@$a@", 19))).is_ok());
        let said = error(&script(&doubled("$a@$a@", 40)));
        assert_eq!(said, "line 21: variables put more than 16777216 octets into the script");
        // Neither one word nor one line alone.
        let said = error(&script(&(doubled("$a@$a@", 16) + &"print $a16\n".repeat(40))));
        assert!(said.starts_with("line 33: variables put more"), "{said}");
        assert!(error(&script(&doubled("$a@ $a@", 40))).contains("variables put more"));
    }

    #[test]
    fn five_seconds_are_waited_where_nothing_is_said() {
        let lines = read("expect open\nawait close within 250ms\nconnect ::1").expect("a script");
        let within = |line: &Line| match line.statement {
            Statement::Expect { within, .. } | Statement::Connect { within, .. } => within.as_millis(),
            ref other => panic!("{other:?}"),
        };
        assert_eq!(lines.iter().map(within).collect::<Vec<_>>(), [5000, 250, 5000]);
    }

    #[test]
    fn repeats_stand_in_repeats() {
        let lines = read("repeat 2\nsend keepalive\nrepeat 3\nclose\nend\nend\nclose").expect("a script");
        let Statement::Repeat { times: 2, body } = &lines[0].statement else { panic!("{lines:?}") };
        assert!(matches!(&body[1].statement, Statement::Repeat { times: 3, body } if body[0].number == 4));
        assert_eq!((lines[0].number, lines.len()), (1, 2));
    }
}
