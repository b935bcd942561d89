//! Regular expressions as operators know them from other routers, in linear time.

use std::{
    fmt::{self, Write},
    str::FromStr,
    sync::Arc,
};

use regex_automata::{
    Anchored,
    dfa::{Automaton, StartKind, dense},
    nfa::thompson::{self, WhichCaptures},
    util::{primitives::StateID, start, syntax},
};

use crate::text::as_text;

/// The longest expression, in octets.
const MAX_LENGTH: usize = 1024;

/// The most that one expression may become, in octets: an expression can stand for exponentially many states.
const MAX_SIZE: usize = 1 << 18;

/// Groups inside groups.
const MAX_NESTING: u32 = 32;

/// What `_` stands for outside of brackets: a boundary between two numbers, or an end of the text.
const BOUNDARY: &str = "(?:^|[ ,{}()]|$)";

/// An expression that is looked for in a text: in the AS path as it is printed (`65001 65002 {65003,65004}`, without
/// confederation segments), or in each community as it is printed. Syntax is that of the `regex` crate in ASCII, with
/// `_` for a boundary: the start, the end, a blank, a comma, a brace or a parenthesis.
///
/// Compiled when it is read, to an automaton that takes one step per character: no expression is slow.
#[derive(Clone)]
pub struct Regex {
    text: Box<str>,
    automaton: Arc<Compiled>,
}

struct Compiled {
    dfa: dense::DFA<Vec<u32>>,
    start: StateID,
}

impl PartialEq for Regex {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Regex {}

impl fmt::Debug for Regex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Regex({:?})", self.text)
    }
}

impl fmt::Display for Regex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

as_text!(Regex);

/// Why a text is no expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseRegexError {
    /// It is too long.
    #[error("a regular expression has at most {MAX_LENGTH} characters")]
    TooLong,
    /// It does not follow the syntax.
    #[error("`{0}` is no regular expression: {1}")]
    Syntax(String, String),
    /// It stands for too many cases.
    #[error("the regular expression `{0}` stands for too many cases")]
    TooLarge(String),
}

impl FromStr for Regex {
    type Err = ParseRegexError;

    fn from_str(text: &str) -> Result<Self, ParseRegexError> {
        if text.len() > MAX_LENGTH {
            return Err(ParseRegexError::TooLong);
        }
        let dfa = dense::Builder::new()
            .syntax(syntax::Config::new().unicode(false).utf8(false).nest_limit(MAX_NESTING))
            .thompson(
                thompson::Config::new()
                    .utf8(false)
                    .nfa_size_limit(Some(MAX_SIZE))
                    .which_captures(WhichCaptures::None),
            )
            .configure(
                dense::Config::new()
                    .accelerate(false)
                    .start_kind(StartKind::Unanchored)
                    .dfa_size_limit(Some(MAX_SIZE))
                    .determinize_size_limit(Some(MAX_SIZE)),
            )
            .build(&with_boundaries(text))
            .map_err(|error| explain(text, &error))?;
        let start = dfa.start_state(&start::Config::new().anchored(Anchored::No));
        let start = start.map_err(|error| ParseRegexError::Syntax(text.into(), error.to_string()))?;
        Ok(Self { text: text.into(), automaton: Arc::new(Compiled { dfa, start }) })
    }
}

/// What the library says of the fault, in its last line.
fn explain(text: &str, error: &dense::BuildError) -> ParseRegexError {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    if error.is_size_limit_exceeded() || cause.to_string().contains("limit") {
        return ParseRegexError::TooLarge(text.to_owned());
    }
    let said = cause.to_string();
    let reason = said.lines().last().unwrap_or_default().trim_start_matches("error: ");
    ParseRegexError::Syntax(text.to_owned(), reason.to_owned())
}

/// The expression with `_` spelt out.
fn with_boundaries(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut in_class, mut escaped) = (false, false);
    for c in text.chars() {
        match c {
            '_' if !in_class && !escaped => out.push_str(BOUNDARY),
            // The backslash is there already.
            '_' if escaped => out.push_str("x5F"),
            _ => out.push(c),
        }
        match c {
            '[' if !escaped => in_class = true,
            ']' if !escaped => in_class = false,
            _ => {}
        }
        escaped = c == '\\' && !escaped;
    }
    out
}

impl Regex {
    /// Whether the expression is found in what `write` writes.
    pub(crate) fn is_found(&self, write: impl FnOnce(&mut Search<'_>) -> fmt::Result) -> bool {
        let Compiled { dfa, start } = &*self.automaton;
        let mut search = Search { dfa, state: *start };
        // An error is only the search that has seen enough.
        let _ = write(&mut search);
        search.is_over() || dfa.is_match_state(dfa.next_eoi_state(search.state))
    }
}

/// A search under way, which reads what is written to it.
pub(crate) struct Search<'a> {
    dfa: &'a dense::DFA<Vec<u32>>,
    state: StateID,
}

impl Search<'_> {
    fn is_over(&self) -> bool {
        self.dfa.is_match_state(self.state)
    }
}

impl Write for Search<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &octet in text.as_bytes() {
            if self.is_over() {
                return Err(fmt::Error);
            }
            self.state = self.dfa.next_state(self.state, octet);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(regex: &str, text: &str) -> bool {
        regex.parse::<Regex>().expect("an expression").is_found(|search| search.write_str(text))
    }

    #[test]
    fn expressions_of_other_routers_mean_the_same_here() {
        let table = [
            ("^$", "", true),
            ("^$", "1", false),
            ("", "1", true),
            ("_65001_", "65001", true),
            ("_65001_", "1 65001 2", true),
            ("_65001_", "1 165001 2", false),
            ("_65001_", "1 {65001,2}", true),
            ("^65001_", "65001 2", true),
            ("^65001_", "650011 2", false),
            ("_65001$", "2 65001", true),
            ("^65001(_65001)*$", "65001 65001 65001", true),
            ("^65001(_65001)*$", "65001 65001 2", false),
            ("^[0-9]+_65001$", "3 65001", true),
            ("^[0-9]+_65001$", "3 3 65001", false),
            ("_(64[5-9][0-9]{2}|65[0-4][0-9]{2})_", "1 64512 2", true),
            (".*", "", true),
            ("[^_]", "_", false),
            (r"a\_b", "a_b", true),
        ];
        for (regex, text, expected) in table {
            assert_eq!(found(regex, text), expected, "`{regex}` in `{text}`");
        }
    }

    #[test]
    fn what_is_no_expression_or_too_large_is_refused() {
        let error = |text: &str| text.parse::<Regex>().expect_err("refused");
        assert_eq!(error(&"1".repeat(1025)), ParseRegexError::TooLong);
        let ParseRegexError::Syntax(_, reason) = error("(1") else { panic!("no syntax error") };
        assert_eq!(reason, "unclosed group");
        for text in ["([0-9]{1000}){1000}", "(0|1)*1(0|1){40}", "[01]{500}{500}"] {
            assert!(matches!(error(text), ParseRegexError::TooLarge(_)), "{text}: {:?}", error(text));
        }
        assert!("(".repeat(200).parse::<Regex>().is_err());
    }

    proptest! {
        #![proptest_config(holdfast_testing::cases(256))]

        #[test]
        fn no_text_makes_the_reader_panic(text in "[0-9_()\\[\\]{}|*+?.^$\\\\ ,a-]{0,40}") {
            if let Ok(regex) = text.parse::<Regex>() {
                prop_assert_eq!(regex.to_string(), text);
                regex.is_found(|search| search.write_str("1 2 3"));
            }
        }
    }
}
