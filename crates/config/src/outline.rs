//! A configuration without its longest lists: what is read as TOML.
//!
//! A reader of TOML that knows where everything stands takes many times the memory of the text. The entries of prefix sets can
//! be most of a text, so they are taken out before, and read from the text itself: [`of`] finds the lists `prefixes` of tables
//! `[[prefix-set]]` that hold nothing but plain texts, blanks and comments. In the outline such a list is empty. Whatever
//! looks different stays where it is.

use std::{borrow::Cow, ops::Range};

/// A list whose contents are shorter, in octets, stays.
const SHORT: usize = 4 << 10;
/// The table and the key of the lists.
const TABLE: &str = "prefix-set";
const KEY: &str = "prefixes";

/// A list that is not in the outline.
#[derive(Clone, Debug)]
struct Cut {
    /// Where the contents would be, in the outline.
    at: usize,
    /// Where they are, in the text.
    contents: Range<usize>,
}

/// What is not in an outline.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cuts(Vec<Cut>);

impl Cuts {
    /// Where in the text a place of the outline is.
    pub(crate) fn place(&self, at: usize) -> usize {
        let before = self.0.partition_point(|cut| cut.at < at);
        before.checked_sub(1).map_or(at, |last| {
            let Cut { at: cut, contents } = &self.0[last];
            contents.end + (at - cut)
        })
    }

    /// Where in the text a span of the outline is.
    pub(crate) fn span(&self, span: &Range<usize>) -> Range<usize> {
        self.place(span.start)..self.place(span.end)
    }

    /// The contents in the text, if a list of the outline was emptied; `span` is that of the list.
    pub(crate) fn contents(&self, span: &Range<usize>) -> Option<Range<usize>> {
        let at = span.start + 1;
        let found = self.0.binary_search_by_key(&at, |cut| cut.at).ok()?;
        Some(self.0[found].contents.clone())
    }
}

/// The outline of a text, and what is not in it.
pub(crate) fn of(text: &str) -> (Cow<'_, str>, Cuts) {
    let lists = Scanner { text: text.as_bytes(), at: 0 }.lists();
    if lists.is_empty() {
        return (Cow::Borrowed(text), Cuts::default());
    }
    let (mut outline, mut cuts, mut from) = (String::new(), Vec::new(), 0);
    for contents in lists {
        outline.push_str(&text[from..contents.start]);
        from = contents.end;
        cuts.push(Cut { at: outline.len(), contents });
    }
    outline.push_str(&text[from..]);
    (Cow::Owned(outline), Cuts(cuts))
}

/// The texts of a list that is not in the outline, with their places, quotes included.
pub(crate) fn texts(text: &str, contents: Range<usize>) -> impl Iterator<Item = (&str, Range<usize>)> {
    let mut scanner = Scanner { text: &text.as_bytes()[..contents.end], at: contents.start };
    std::iter::from_fn(move || {
        scanner.blanks()?;
        let span = scanner.plain_text()?;
        scanner.blanks()?;
        scanner.take(b',');
        Some((text.get(span.start + 1..span.end - 1)?, span))
    })
}

/// Goes over a text of TOML as far as it has to be understood. Where it is none, or not a plain one, it ends.
struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    /// The contents of the lists that are taken out.
    fn lists(mut self) -> Vec<Range<usize>> {
        let (mut lists, mut is_in_table) = (Vec::new(), false);
        while self.statement(&mut lists, &mut is_in_table).is_some() {}
        lists
    }

    /// A header, or a key with its value. `None`: there is no other.
    fn statement(&mut self, lists: &mut Vec<Range<usize>>, is_in_table: &mut bool) -> Option<()> {
        self.blanks()?;
        if self.peek()? == b'[' {
            *is_in_table = is_header(self.line());
            return Some(());
        }
        let is_meant = self.key()? == KEY.as_bytes() && *is_in_table;
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.at += 1;
        }
        let before = self.at;
        if let Some(contents) = is_meant.then(|| self.plain_list()).flatten() {
            lists.extend(Some(contents).filter(|contents| contents.len() >= SHORT));
        } else {
            self.at = before;
        }
        self.rest_of_value()
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self, octet: u8) -> bool {
        let is_next = self.peek() == Some(octet);
        self.at += usize::from(is_next);
        is_next
    }

    fn starts_with(&self, octets: &[u8]) -> bool {
        self.text.get(self.at..).is_some_and(|rest| rest.starts_with(octets))
    }

    /// The rest of the line, which is passed.
    fn line(&mut self) -> &[u8] {
        let rest = &self.text[self.at..];
        let length = rest.iter().position(|octet| *octet == b'\n').unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    /// Passes blanks, ends of lines and comments. `None`: something is there that TOML does not have there.
    fn blanks(&mut self) -> Option<()> {
        loop {
            match self.peek() {
                Some(b' ' | b'\t' | b'\n') => self.at += 1,
                Some(b'\r') if self.text.get(self.at + 1) == Some(&b'\n') => self.at += 2,
                Some(b'#') => {
                    let comment = self.line();
                    let comment = comment.strip_suffix(b"\r").unwrap_or(comment);
                    if comment.iter().any(|octet| is_control(*octet)) {
                        return None;
                    }
                }
                Some(_) | None => return Some(()),
            }
        }
    }

    /// The name before `=`, which is passed.
    fn key(&mut self) -> Option<&[u8]> {
        let start = self.at;
        loop {
            match self.peek()? {
                b'=' => break,
                b'"' | b'\'' => self.text_of_any_kind()?,
                b'\n' | b'#' => return None,
                _ => self.at += 1,
            }
        }
        let key = self.text[start..self.at].trim_ascii_end();
        self.at += 1;
        Some(key)
    }

    /// The contents of a list of plain texts, which is passed.
    fn plain_list(&mut self) -> Option<Range<usize>> {
        if !self.take(b'[') {
            return None;
        }
        let start = self.at;
        loop {
            self.blanks()?;
            if self.peek()? != b']' {
                self.plain_text()?;
                self.blanks()?;
                if self.take(b',') {
                    continue;
                }
            }
            let end = self.at;
            return self.take(b']').then_some(start..end);
        }
    }

    /// A text of one line that says what it means, and something.
    fn plain_text(&mut self) -> Option<Range<usize>> {
        let start = self.at;
        let quote = self.peek().filter(|octet| matches!(octet, b'"' | b'\''))?;
        let rest = self.text.get(start + 1..)?;
        let length =
            rest.iter().position(|octet| *octet == quote || *octet == b'\\' || is_control(*octet))?;
        if length == 0 || rest[length] != quote {
            return None;
        }
        self.at = start + length + 2;
        Some(start..self.at)
    }

    /// Passes what stands behind a key, with the end of its line.
    fn rest_of_value(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.peek()? {
                b'"' | b'\'' => self.text_of_any_kind()?,
                b'[' | b'{' => {
                    depth += 1;
                    self.at += 1;
                }
                b']' | b'}' => {
                    depth = depth.checked_sub(1)?;
                    self.at += 1;
                }
                b'#' => drop(self.line()),
                b'\n' if depth == 0 => return Some(()),
                _ => self.at += 1,
            }
        }
    }

    /// Passes a text of one line or of several.
    fn text_of_any_kind(&mut self) -> Option<()> {
        let quote = self.peek()?;
        let several = [quote; 3];
        let (end, escapes) = if self.starts_with(&several) { (&several[..], 3) } else { (&several[..1], 1) };
        self.at += escapes;
        while !self.starts_with(end) {
            match self.peek()? {
                b'\\' if quote == b'"' => self.at += 2,
                b'\n' if end.len() == 1 => return None,
                _ => self.at += 1,
            }
        }
        self.at += end.len();
        // Quotes of its own may stand before those that end it.
        while end.len() > 1 && self.take(quote) {}
        Some(())
    }
}

fn is_control(octet: u8) -> bool {
    octet.is_ascii_control() && octet != b'\t'
}

/// Whether a line is the header of one of the tables.
fn is_header(line: &[u8]) -> bool {
    let name = line.strip_prefix(b"[[").map(<[u8]>::trim_ascii_start);
    let rest = name.and_then(|name| name.strip_prefix(TABLE.as_bytes())).map(<[u8]>::trim_ascii_start);
    rest.is_some_and(|rest| rest.starts_with(b"]]"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use toml::de::{DeTable, DeValue};

    use super::*;

    /// A list that is long enough.
    fn long() -> String {
        (0..400).map(|at| format!("  \"10.0.{}.{}/32\", # \"no\"\r\n", at / 256, at % 256)).collect()
    }

    fn cut(text: &str) -> Vec<&str> {
        let (_, cuts) = of(text);
        cuts.0.iter().map(|cut| &text[cut.contents.clone()]).collect()
    }

    #[test]
    fn long_lists_of_prefix_sets_are_taken_out_and_places_are_found_again() {
        let long = long();
        let text = format!(
            "[a]\nx = '''\n[[prefix-set]]\nprefixes = [\n'''\n[[ prefix-set ]] # one\nname = \"n\"\nprefixes = [{long}]\ntail = 1\n\
             [[prefix-set]]\nprefixes =\t[{long}] # end\nlast = 2\n"
        );
        assert_eq!(cut(&text), [&long, &long]);
        let (outline, cuts) = of(&text);
        assert!(outline.len() < 200, "{outline}");
        for word in ["'''\n[[ prefix", "\"n\"", "tail", "# end", "last"] {
            let (there, here) = (text.find(word).expect("there"), outline.find(word).expect("here"));
            assert_eq!(cuts.place(here), there, "{word}");
        }
        assert_eq!(cuts.place(outline.len()), text.len());
        let list = outline.find("[] # end").expect("empty");
        let contents = cuts.contents(&(list..list + 2)).expect("taken out");
        assert_eq!(cuts.span(&(list..list + 2)), contents.start - 1..contents.end + 1);
        let texts: Vec<_> = texts(&text, contents).collect();
        assert_eq!(
            (texts.len(), texts[1].0, &text[texts[1].1.clone()]),
            (400, "10.0.0.1/32", "\"10.0.0.1/32\"")
        );
        assert_eq!(cuts.contents(&(0..3)), None);
    }

    #[test]
    fn whatever_looks_different_stays() {
        let long = long();
        for text in [
            format!("[[prefix-set]]\nprefixes = [{long} 7]\n"),
            format!("[[prefix-set]]\nprefixes = [{long} \"a\\n\"]\n"),
            format!("[[prefix-set]]\nprefixes = [{long} \"\"]\n"),
            format!("[[prefix-set]]\nprefixes = [{long} [\"a\"]]\n"),
            format!("[[prefix-set]]\nprefixes = [{long} \"a\" \"b\"]\n"),
            format!("[[prefix-set]]\nprefixes = [{long},]\n"),
            format!("[[prefix-set]]\nprefixes = [{long} # a\u{1}\n]\n"),
            format!("[[prefix-set]]\nprefixes = [{long}"),
            format!("[[prefix-set]]\nother = [{long}]\n"),
            format!("[[policy]]\nprefixes = [{long}]\n"),
            format!("[[prefix-set]]\nx\nprefixes = [{long}]\n"),
            format!("[[prefix-set]]\nx = \"\nprefixes = [{long}]\n"),
            format!("[[prefix-set]]\nx = ]\nprefixes = [{long}]\n"),
        ] {
            assert_eq!(cut(&text), [""; 0], "{}", &text[..40]);
        }
    }

    /// Pieces of TOML, and of what is none.
    const PIECES: &[&str] = &[
        "[[prefix-set]]\n",
        "[a]\n",
        "prefixes = [",
        "]",
        "\n",
        "\"x\"",
        ",",
        "'y'",
        "\"\"\"",
        "'''",
        "#",
        "\\",
        "{",
        "}",
        "name = ",
        "\"",
        "'",
        " ",
        "\r",
        "é",
        "1",
    ];

    fn piece() -> impl Strategy<Value = String> {
        prop_oneof![
            4 => proptest::sample::select(PIECES).prop_map(str::to_owned),
            1 => Just(format!("[[prefix-set]]\nprefixes = [{}]\n", long())),
        ]
    }

    /// A value without its places.
    fn plain(
        value: &DeValue<'_>,
        cut: &dyn Fn(Range<usize>) -> Option<Vec<String>>,
        span: Range<usize>,
    ) -> String {
        match value {
            DeValue::Array(entries) => match cut(span) {
                Some(texts) => format!("{texts:?}"),
                None => {
                    let entries = entries.iter().map(|entry| plain(entry.get_ref(), cut, entry.span()));
                    format!("[{}]", entries.collect::<Vec<_>>().join(", "))
                }
            },
            DeValue::Table(table) => {
                let rows = table.iter();
                let rows = rows.map(|(key, value)| {
                    format!("{}={}", key.get_ref(), plain(value.get_ref(), cut, value.span()))
                });
                rows.collect()
            }
            DeValue::String(text) => format!("{:?}", &**text),
            other => format!("{other:?}"),
        }
    }

    proptest! {
        #![proptest_config(holdfast_testing::cases(512))]

        #[test]
        fn an_outline_is_right_where_the_text_is_and_says_the_same(pieces in proptest::collection::vec(piece(), 0..30)) {
            let text = pieces.concat();
            let (outline, cuts) = of(&text);
            let (whole, short) = (DeTable::parse(&text), DeTable::parse(&outline));
            prop_assert_eq!(whole.is_ok(), short.is_ok(), "{}", text);
            if let (Ok(whole), Ok(short)) = (whole, short) {
                let nothing = |_: Range<usize>| None;
                let taken = |span: Range<usize>| {
                    Some(texts(&text, cuts.contents(&span)?).map(|(text, _)| text.to_owned()).collect())
                };
                prop_assert_eq!(
                    plain(&DeValue::Table(whole.get_ref().clone()), &nothing, 0..0),
                    plain(&DeValue::Table(short.get_ref().clone()), &taken, 0..0)
                );
            }
        }
    }
}
