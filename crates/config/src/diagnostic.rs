//! Errors that show the text they are about.

use std::{borrow::Cow, cell::OnceCell, fmt, ops::Range};

use serde::Serialize;

/// Everything that is wrong with a file, in the order of its text. Prints one block per error; as JSON
/// it is an array of objects.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, thiserror::Error)]
#[serde(transparent)]
pub struct Diagnostics(pub(crate) Vec<Diagnostic>);

/// One error and its place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Diagnostic {
    /// The file, as it was named to [`crate::parse`].
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// First column, in characters from 1.
    pub column: usize,
    /// How many characters of the line are meant; 1 or more.
    pub width: usize,
    /// The line as it is in the file; a secret that the error is about is blanked.
    pub text: String,
    /// What is wrong.
    pub message: String,
    /// What would be right.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// What was probably meant, or what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Diagnostics {
    /// The errors; at least one.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a Diagnostics {
    type Item = &'a Diagnostic;
    type IntoIter = std::slice::Iter<'a, Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for diagnostic in self {
            writeln!(f, "{diagnostic}")?;
        }
        match self.0.len() {
            1 => f.write_str("1 error"),
            many => write!(f, "{many} errors"),
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, .. } = self;
        writeln!(f, "{file}:{line}:{column}: {}", clipped(&self.message))?;
        let from = (column - 1).saturating_sub(BEFORE);
        let shown: String = self.text.chars().skip(from).take(WIDEST).collect();
        let more = if self.text.chars().count() > from + WIDEST { "…" } else { "" };
        writeln!(f, "{line:>5} | {}{more}", printable(&shown))?;
        let carets = self.width.min(WIDEST - (column - 1 - from));
        writeln!(f, "      | {}{}", indent(&shown, column - 1 - from), "^".repeat(carets))?;
        if let Some(expected) = &self.expected {
            writeln!(f, "      expected {expected}")?;
        }
        if let Some(hint) = &self.hint {
            writeln!(f, "      hint: {hint}")?;
        }
        Ok(())
    }
}

/// Of a longer line so many characters are shown, from a little before the fault on.
const WIDEST: usize = 160;
const BEFORE: usize = 80;

/// As wide as what is before the fault; tabs stay tabs.
fn indent(text: &str, before: usize) -> String {
    text.chars().take(before).map(|c| if c == '\t' { c } else { ' ' }).collect()
}

/// A message may quote what is wrong, and that may be long.
fn clipped(message: &str) -> Cow<'_, str> {
    match message.char_indices().nth(WIDEST) {
        Some((end, _)) => format!("{}…", &message[..end]).into(),
        None => message.into(),
    }
}

/// The line with nothing in it that a terminal would obey.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\t' { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Where something is in a text.
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) width: usize,
    pub(crate) text: String,
}

/// A text in which places can be looked up.
pub(crate) struct Lines<'a> {
    text: &'a str,
    /// Where each line begins, once that is asked.
    starts: OnceCell<Vec<usize>>,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, starts: OnceCell::new() }
    }

    /// The text.
    pub(crate) fn whole(&self) -> &'a str {
        self.text
    }

    fn starts(&self) -> &[usize] {
        self.starts.get_or_init(|| {
            let breaks = self.text.match_indices('\n').map(|(at, _)| at + 1);
            std::iter::once(0).chain(breaks).collect()
        })
    }

    /// What is written there, as far as it is there.
    pub(crate) fn text(&self, span: &Range<usize>) -> &'a str {
        self.text.get(span.clone()).unwrap_or_default()
    }

    /// Its end.
    pub(crate) fn end(&self) -> Range<usize> {
        self.text.len()..self.text.len()
    }

    /// Whether the header of a table is there.
    pub(crate) fn is_header(&self, span: &Range<usize>) -> bool {
        let begin = self.text.get(..span.start).unwrap_or_default();
        let line = begin.rsplit('\n').next().unwrap_or_default();
        self.text(span).starts_with('[') && line.trim().is_empty()
    }

    /// The number of the line, from 1.
    pub(crate) fn line(&self, at: usize) -> usize {
        self.starts().partition_point(|&start| start <= at)
    }

    /// Finds a span of bytes; only the part on its first line counts. Spans outside of the text or inside
    /// of a character are moved to the next place that exists.
    pub(crate) fn place(&self, span: Range<usize>) -> Place {
        let start = self.text.floor_char_boundary(span.start);
        let end = self.text.floor_char_boundary(span.end.max(start));
        let line = self.line(start);
        let from = self.starts()[line - 1];
        let text = self.text[from..].lines().next().unwrap_or("");
        let meant = self.text.get(start..end.min(from + text.len())).unwrap_or("");
        Place {
            line,
            column: self.text[from..start].chars().count() + 1,
            width: meant.trim_end().chars().count().max(1),
            text: text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, span: Range<usize>) -> (usize, usize, usize, String) {
        let Place { line, column, width, text } = Lines::new(text).place(span);
        (line, column, width, text)
    }

    #[test]
    fn columns_count_characters_and_spans_end_with_their_line() {
        let text = "a = 1\r\nä = [\n 2 ]\n";
        assert_eq!(at(text, 4..5), (1, 5, 1, "a = 1".into()));
        assert_eq!(at(text, 12..18), (2, 5, 1, "ä = [".into()));
        assert_eq!(at(text, 5..6), (1, 6, 1, "a = 1".into()));
        assert_eq!(at(text, text.len()..text.len()), (4, 1, 1, String::new()));
    }

    #[test]
    fn impossible_spans_are_moved_into_the_text() {
        assert_eq!(at("ä", 1..99), (1, 1, 1, "ä".into()));
        assert_eq!(at("ab", 7..9), (1, 3, 1, "ab".into()));
    }

    #[test]
    fn a_block_shows_place_line_and_caret() {
        let diagnostic = Diagnostic {
            file: "router.toml".into(),
            line: 17,
            column: 2,
            width: 6,
            text: "\tpasive = true\u{1b}".into(),
            message: "unknown key `pasive`".into(),
            expected: None,
            hint: Some("did you mean `passive`?".into()),
        };
        let shown = "router.toml:17:2: unknown key `pasive`\n   17 | \tpasive = true\u{fffd}\n      | \t^^^^^^\n      \
                     hint: did you mean `passive`?\n";
        assert_eq!(diagnostic.to_string(), shown);
        assert!(Diagnostics(vec![diagnostic]).to_string().ends_with("\n\n1 error"));
    }

    #[test]
    fn of_a_long_line_only_the_place_is_shown() {
        let diagnostic = Diagnostic {
            file: "router.toml".into(),
            line: 1,
            column: 1001,
            width: 5000,
            text: format!("{}{}", "a".repeat(1000), "b".repeat(5000)),
            message: "c".repeat(5000),
            expected: None,
            hint: None,
        };
        let shown = diagnostic.to_string();
        assert!(shown.lines().all(|line| line.chars().count() < 200), "{shown}");
        let lines: Vec<_> = shown.lines().collect();
        let places = [lines[1].find('b'), lines[2].find('^')];
        assert_eq!(places, [Some(88); 2], "{shown}");
        assert!(lines[1].ends_with("b…"), "{shown}");
    }
}
