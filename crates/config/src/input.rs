//! Reading of tables: every key that is taken is known, every other one is an error.

mod value;

use std::{
    cell::RefCell,
    collections::HashMap,
    ops::{Range, RangeInclusive},
};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

pub(crate) use self::value::{Value, integer};
use crate::{
    Diagnostic, Diagnostics,
    describe::{Table, Type},
    diagnostic::{Lines, Place},
    outline::{self, Cuts},
    suggest,
};

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) span: Range<usize>,
}

impl<T> At<T> {
    /// Something else that stands there.
    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> At<U> {
        At { value: change(self.value), span: self.span }
    }
}

/// What is wrong with one place.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    message: String,
    expected: Option<String>,
    hint: Option<String>,
    secret: bool,
}

impl Problem {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), expected: None, hint: None, secret: false }
    }

    /// From an error whose text may say at its end what was expected.
    pub(crate) fn from_error(error: &impl ToString) -> Self {
        let text = error.to_string();
        match text.split_once(": expected ") {
            Some((message, expected)) => Self::new(message).expected(expected),
            None => Self::new(text),
        }
    }

    pub(crate) fn expected(mut self, expected: impl Into<String>) -> Self {
        self.expected = Some(expected.into());
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// What is wrong, alone.
    pub(crate) fn into_message(self) -> String {
        self.message
    }

    /// The text in question is not to be shown.
    pub(crate) fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    pub(crate) fn suggest<'a>(self, word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Self {
        match suggest::nearest(word, candidates) {
            Some(meant) => self.hint(format!("did you mean `{meant}`?")),
            None => self,
        }
    }
}

/// Collects what is wrong with a text.
pub(crate) struct Report<'a> {
    file: &'a str,
    lines: Lines<'a>,
    /// What was read as TOML has no such lists. Places are of that; those of problems are of the text.
    cuts: Cuts,
    problems: RefCell<Vec<At<Problem>>>,
    /// What is wrong with other files, which this text names.
    elsewhere: RefCell<Vec<Diagnostic>>,
}

impl<'a> Report<'a> {
    pub(crate) fn new(text: &'a str, file: &'a str) -> Self {
        Self::outlined(text, file, Cuts::default())
    }

    /// For a text of which an outline is read.
    pub(crate) fn outlined(text: &'a str, file: &'a str, cuts: Cuts) -> Self {
        let lines = Lines::new(text);
        Self { file, lines, cuts, problems: RefCell::default(), elsewhere: RefCell::default() }
    }

    /// What is written there.
    pub(crate) fn text(&self, span: &Range<usize>) -> &'a str {
        self.lines.text(&self.cuts.span(span))
    }

    /// The number of the line, from 1.
    fn line(&self, at: usize) -> usize {
        self.lines.line(self.cuts.place(at))
    }

    /// Whether the header of a table is there.
    fn is_header(&self, span: &Range<usize>) -> bool {
        self.lines.is_header(&self.cuts.span(span))
    }

    /// Adds what is wrong with another file.
    pub(crate) fn add_elsewhere(&self, wrong: Diagnostics) {
        self.elsewhere.borrow_mut().extend(wrong.0);
    }

    pub(crate) fn add(&self, span: &Range<usize>, problem: Problem) {
        self.add_in_text(self.cuts.span(span), problem);
    }

    /// Adds what is wrong with a place of the text.
    fn add_in_text(&self, span: Range<usize>, problem: Problem) {
        self.problems.borrow_mut().push(At { value: problem, span });
    }

    pub(crate) fn syntax(&self, fault: &toml::de::Error) {
        let message = fault.message();
        let problem = match message.split_once(", expected ") {
            Some((message, expected)) => Problem::new(message).expected(expected),
            None => Problem::new(message),
        };
        self.add(&fault.span().unwrap_or_default(), problem);
    }

    pub(crate) fn has_problems(&self) -> bool {
        !self.problems.borrow().is_empty() || !self.elsewhere.borrow().is_empty()
    }

    /// What was read if nothing is wrong.
    pub(crate) fn finish<T>(self, read: Option<T>) -> Result<T, Diagnostics> {
        let elsewhere = self.elsewhere.into_inner();
        let mut problems = self.problems.into_inner();
        problems.sort_by(|a, b| {
            let place = |at: &At<Problem>| (at.span.start, at.span.end);
            place(a).cmp(&place(b)).then_with(|| a.value.message.cmp(&b.value.message))
        });
        // What is wrong in a group is found by each of its peers.
        problems.dedup_by(|a, b| a.span == b.span && a.value.message == b.value.message);
        match read {
            Some(read) if problems.is_empty() && elsewhere.is_empty() => Ok(read),
            _ => {
                let here = problems.into_iter().map(|problem| diagnostic(self.file, &self.lines, problem));
                Err(Diagnostics(here.chain(elsewhere).collect()))
            }
        }
    }
}

fn diagnostic(file: &str, lines: &Lines<'_>, problem: At<Problem>) -> Diagnostic {
    let Place { line, column, width, text } = lines.place(problem.span);
    let Problem { message, expected, hint, secret } = problem.value;
    let hidden = (column - 1)..(column - 1 + width);
    let blank = |(at, c)| if secret && hidden.contains(&at) { '*' } else { c };
    let text = text.chars().enumerate().map(blank).collect();
    Diagnostic { file: file.to_owned(), line, column, width, text, message, expected, hint }
}

/// One table being read. A key is known when it is described and has been asked for; when the section is dropped, all
/// others are reported.
pub(crate) struct Section<'a> {
    pub(crate) report: &'a Report<'a>,
    /// As shown to the operator: `[bgp]`.
    pub(crate) name: &'static str,
    /// Its header, or the whole of an inline table.
    pub(crate) span: Range<usize>,
    table: &'a DeTable<'a>,
    /// Where keys are taken from that are not here, and which are not.
    lender: Option<(&'a DeTable<'a>, &'static [&'static str])>,
    described: &'static Table,
    asked: RefCell<Vec<&'static str>>,
    /// Keys that are not described, and may be there.
    passed: Vec<String>,
}

impl<'a> Section<'a> {
    /// The whole file.
    pub(crate) fn file(report: &'a Report<'a>, table: &'a DeTable<'a>, described: &'static Table) -> Self {
        Self {
            report,
            name: "the file",
            span: 0..0,
            table,
            lender: None,
            described,
            asked: RefCell::default(),
            passed: Vec::new(),
        }
    }

    /// A table that is not in the file: this `table`, which is empty, in its place.
    pub(crate) fn implied(
        report: &'a Report<'a>,
        name: &'static str,
        table: &'a DeTable<'a>,
        described: &'static Table,
    ) -> Self {
        let mut section = Self::file(report, table, described);
        section.name = name;
        section
    }

    /// Has some keys pass that are described elsewhere.
    pub(crate) fn pass(&mut self, keys: impl IntoIterator<Item = String>) {
        self.passed.extend(keys);
    }

    fn get(&self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        debug_assert!(self.described.key(key).is_some(), "`{key}` of {} is not in keys.rs", self.name);
        let mut asked = self.asked.borrow_mut();
        if !asked.contains(&key) {
            asked.push(key);
        }
        self.find(key)
    }

    fn find(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.table.get(key).or_else(|| self.lent(key))
    }

    fn lent(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.lender.filter(|lender| !lender.1.contains(&key))?.0.get(key)
    }

    /// Takes the keys that it does not have from another section, all `but` some. A [table](Self::section) below it does the same.
    pub(crate) fn borrow(&mut self, other: &Self, but: &'static [&'static str]) {
        self.lender = Some((other.table, but));
    }

    /// Has every key that is described count as known, whether it is asked for here or not.
    pub(crate) fn know_all(&self) {
        self.asked.borrow_mut().extend(self.described.names());
    }

    /// What it may say.
    pub(crate) fn described(&self) -> &'static Table {
        self.described
    }

    /// What a key says, whatever that is.
    pub(crate) fn value(&self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.get(key)
    }

    /// Reports that a key is not there which has to be.
    pub(crate) fn misses(&self, key: &str, expected: &str) {
        let missing = Problem::new(format!("{} needs `{key}`", self.name));
        let missing = missing.expected(format!("`{key}` = {expected}"));
        // A file has no header to point at: its own keys stand before its first table.
        match self.span.is_empty().then(|| self.first_table()).flatten() {
            Some(header) => {
                self.report.add(&header, missing.hint("it stands before the first table of the file"));
            }
            None if self.span.is_empty() && !self.is_empty() => {
                self.report.add_in_text(self.report.lines.end(), missing);
            }
            None => self.report.add(&self.span, missing),
        }
    }

    /// The first header below the file.
    fn first_table(&self) -> Option<Range<usize>> {
        let header = |value: &Spanned<DeValue<'_>>| match value.get_ref() {
            DeValue::Table(_) => Some(value.span()),
            DeValue::Array(entries) => entries.iter().next().map(Spanned::span),
            _ => None,
        };
        let headers = self.table.values().filter_map(header);
        headers.filter(|span| self.report.is_header(span)).min_by_key(|span| span.start)
    }

    /// The `name` of each table `[[above.key]]`, whether something else is wrong with it or not.
    pub(crate) fn names_below(&self, above: &str, key: &str) -> impl Iterator<Item = String> {
        let list = self
            .table
            .get(above)
            .and_then(|above| above.get_ref().as_table()?.get(key)?.get_ref().as_array());
        let name = |entry: &Spanned<DeValue<'_>>| {
            Some(entry.get_ref().as_table()?.get("name")?.get_ref().as_str()?.to_owned())
        };
        list.into_iter().flatten().filter_map(name)
    }

    /// The `name` of each table `[[key]]`, likewise.
    pub(crate) fn names_of(&self, key: &str) -> impl Iterator<Item = &'a str> {
        let list = self.table.get(key).and_then(|list| list.get_ref().as_array());
        let name =
            |entry: &'a Spanned<DeValue<'a>>| entry.get_ref().as_table()?.get("name")?.get_ref().as_str();
        list.into_iter().flatten().filter_map(name)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Where the value of a key stands; the section if there is none.
    pub(crate) fn span_of(&self, key: &str) -> Range<usize> {
        self.find(key).map_or(self.span.clone(), Spanned::span)
    }

    pub(crate) fn has(&self, key: &'static str) -> bool {
        self.get(key).is_some()
    }

    /// Whether the value of a key is exactly this text.
    pub(crate) fn is_text(&self, key: &'static str, text: &str) -> bool {
        self.get(key).is_some_and(|value| value.get_ref().as_str() == Some(text))
    }

    pub(crate) fn is_list(&self, key: &'static str) -> bool {
        self.get(key).is_some_and(|value| value.get_ref().is_array())
    }

    /// Entries of a list, right or wrong; a single value counts as one.
    pub(crate) fn count(&self, key: &'static str) -> usize {
        self.get(key).map_or(0, |value| value.get_ref().as_array().map_or(1, |list| list.len()))
    }

    pub(crate) fn is_table(&self, key: &'static str) -> bool {
        self.get(key).is_some_and(|value| value.get_ref().is_table())
    }

    pub(crate) fn add(&self, key: &str, problem: Problem) {
        self.report.add(&self.span_of(key), problem);
    }

    /// The value of a key; `None` if it is absent, or wrong and reported.
    pub(crate) fn optional<T: Value>(&self, key: &'static str) -> Option<At<T>> {
        self.read(self.get(key)?)
    }

    fn read<T: Value>(&self, value: &Spanned<DeValue<'_>>) -> Option<At<T>> {
        match T::read(value.get_ref()) {
            Ok(read) => Some(At { value: read, span: value.span() }),
            Err(problem) => {
                self.report.add(&value.span(), problem);
                None
            }
        }
    }

    /// The value of a key that has to be there.
    pub(crate) fn required<T: Value>(&self, key: &'static str) -> Option<At<T>> {
        if !self.has(key) {
            self.misses(key, T::EXPECTED);
        }
        self.optional(key)
    }

    /// The value of a key, or what it is by default.
    pub(crate) fn or<T: Value>(&self, key: &'static str, default: T) -> T {
        self.optional(key).map_or(default, |at| at.value)
    }

    /// A number, or what it is by default.
    pub(crate) fn number<T>(&self, key: &'static str, range: RangeInclusive<T>, default: T) -> T
    where
        T: Value + PartialOrd + std::fmt::Display,
    {
        let Some(value) = self.get(key) else { return default };
        let span = format!("{} to {}", range.start(), range.end());
        let outside = || Problem::new(format!("`{key}` is out of range")).expected(span.as_str());
        let problem = match T::read(value.get_ref()) {
            Ok(number) if range.contains(&number) => return number,
            Ok(_) => outside(),
            // What the key takes is narrower than what its type does.
            Err(_) if T::IS_NUMBER && integer(value.get_ref()).is_some() => outside(),
            Err(problem) if T::IS_NUMBER => problem.expected(format!("a number from {span}")),
            Err(problem) => problem,
        };
        self.report.add(&value.span(), problem);
        default
    }

    /// One of a few words, or what it is by default.
    pub(crate) fn word<T: Copy>(&self, key: &'static str, words: &[(&str, T)], default: T) -> T {
        let Some(at) = self.optional::<String>(key) else { return default };
        if let Some(&(_, meaning)) = words.iter().find(|(word, _)| *word == at.value) {
            return meaning;
        }
        let quoted: Vec<_> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        let problem = Problem::new(format!("`{}` is no value for `{key}`", at.value));
        let problem =
            problem.expected(quoted.join(" or ")).suggest(&at.value, words.iter().map(|&(word, _)| word));
        self.report.add(&at.span, problem);
        default
    }

    /// The entries of an array; a single value counts as an array of one. `None` if the key is absent.
    pub(crate) fn list<T: Value>(&self, key: &'static str) -> Option<Vec<At<T>>> {
        let value = self.get(key)?;
        Some(match value.get_ref() {
            DeValue::Array(entries) => entries.iter().filter_map(|entry| self.read(entry)).collect(),
            _ => self.read(value).into_iter().collect(),
        })
    }

    /// The entries of an array, each as soon as it is read; as [`list`](Self::list). The array may be a long one.
    pub(crate) fn each<T: Value>(&self, key: &'static str, mut take: impl FnMut(T)) -> Option<()> {
        let report = self.report;
        let Some(contents) = report.cuts.contents(&self.get(key)?.span()) else {
            self.list::<T>(key)?.into_iter().for_each(|at| take(at.value));
            return Some(());
        };
        for (text, span) in outline::texts(report.lines.whole(), contents) {
            match T::read(&DeValue::String(text.into())) {
                Ok(read) => take(read),
                Err(problem) => report.add_in_text(span, problem),
            }
        }
        Some(())
    }

    /// A table below this one. It takes the keys that it does not have from the table of that key of the lender.
    pub(crate) fn section(&self, key: &'static str, name: &'static str) -> Option<Self> {
        let mut section = self.open(self.get(key)?, key, name)?;
        let is_own = self.table.contains_key(key);
        let lent =
            self.lent(key).filter(|lent| is_own && (lent.get_ref().is_table() || !self.may_be_no_table(key)));
        if let Some(lent) = lent {
            // Opened, so that a key that nobody knows is found there as well.
            if let Some(lent) = self.open(lent, key, name) {
                lent.know_all();
                section.borrow(&lent, &[]);
            }
        }
        Some(section)
    }

    fn may_be_no_table(&self, key: &str) -> bool {
        self.described.key(key).is_some_and(|key| matches!(key.value, Type::Either(_)))
    }

    /// An array of tables below this one.
    pub(crate) fn sections(&self, key: &'static str, name: &'static str) -> Vec<Self> {
        let Some(value) = self.get(key) else { return Vec::new() };
        match value.get_ref() {
            DeValue::Array(entries) => {
                entries.iter().filter_map(|entry| self.open(entry, key, name)).collect()
            }
            other => {
                let problem = Problem::new(format!("`{key}` is {} here", value::kind(other)));
                self.report.add(&value.span(), problem.expected(format!("a table {name} for each")));
                Vec::new()
            }
        }
    }

    fn open(&self, value: &'a Spanned<DeValue<'a>>, key: &str, name: &'static str) -> Option<Self> {
        let described = self.described.key(key).and_then(|key| key.value.table());
        debug_assert!(described.is_some(), "`{key}` of {} is no table in keys.rs", self.name);
        if let (DeValue::Table(table), Some(described)) = (value.get_ref(), described) {
            let (report, span, asked, passed) = (self.report, value.span(), RefCell::default(), Vec::new());
            return Some(Section { report, name, span, table, lender: None, described, asked, passed });
        }
        let problem = Problem::new(format!("`{key}` is {} here", value::kind(value.get_ref())));
        self.report.add(&value.span(), problem.expected(format!("a table {name}")));
        None
    }
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        let asked = self.asked.borrow();
        let known: Vec<_> = self.described.names().filter(|name| asked.contains(name)).collect();
        let is_known = |word: &str| known.contains(&word) || self.passed.iter().any(|passed| passed == word);
        for key in self.table.keys().filter(|key| !is_known(key.get_ref())) {
            let word = key.get_ref();
            let problem = Problem::new(format!("unknown key `{word}` in {}", self.name));
            let expected = format!("one of {}", known.join(", "));
            let problem = problem.expected(expected).suggest(word, known.iter().copied());
            self.report.add(&key.span(), problem);
        }
    }
}

/// Names of one kind: each may be declared once, and only declared ones may be referred to.
pub(crate) struct Names<'a> {
    report: &'a Report<'a>,
    /// What is named, as in "policy".
    kind: &'static str,
    /// Where each was declared; `None` for built-in ones.
    declared: HashMap<String, Option<usize>>,
}

impl<'a> Names<'a> {
    pub(crate) fn new(report: &'a Report<'a>, kind: &'static str) -> Self {
        Self { report, kind, declared: HashMap::new() }
    }

    pub(crate) fn built_in(mut self, names: impl IntoIterator<Item = &'static str>) -> Self {
        self.declared.extend(names.into_iter().map(|name| (name.to_owned(), None)));
        self
    }

    /// With these besides, which are declared elsewhere.
    pub(crate) fn named(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.declared.extend(names.into_iter().map(|name| (name, None)));
        self
    }

    pub(crate) fn declare(&mut self, at: &At<impl ToString>) {
        let (kind, name) = (self.kind, at.value.to_string());
        match self.declared.get(&name) {
            Some(Some(first)) => {
                let line = self.report.line(*first);
                self.report.add(&at.span, Problem::new(format!("{kind} `{name}` is already on line {line}")));
            }
            Some(None) => self.report.add(&at.span, Problem::new(format!("{kind} `{name}` is built in"))),
            None => {
                self.declared.insert(name, Some(at.span.start));
            }
        }
    }

    pub(crate) fn refer(&self, at: &At<String>) {
        let (kind, name) = (self.kind, &at.value);
        if !self.declared.contains_key(name) {
            let problem = Problem::new(format!("there is no {kind} `{name}`"));
            self.report.add(&at.span, problem.suggest(name, self.declared.keys().map(String::as_str)));
        }
    }
}
