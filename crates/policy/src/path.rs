//! Patterns over AS paths.

use std::{fmt, str::FromStr};

use holdfast_types::Asn;

use crate::{AsnRange, PathElement, Regex, asn_set::AsnSet, route::write_path, text::as_text};

/// Tokens of one pattern: its states and the final one fit one machine word.
const MAX_TOKENS: usize = 63;

/// A pattern that a whole AS path must follow, from the neighbour to the origin. Tokens, separated by
/// spaces:
///
/// | token | stands for |
/// |---|---|
/// | `65001` | this AS |
/// | `64512-65534` | an AS of this range |
/// | `65001\|65002\|64512-65534` | one of these |
/// | `.` | any one AS |
/// | `*` | any number of ASes, also none |
/// | a token but `*`, followed by `+` | the same once or more, as when an AS prepends itself |
///
/// So `65001 *` is learned from neighbour 65001, `* 65001` originated there, `* 65001 *` passed through
/// it, `65001+ .` one AS behind it however often it prepends. An empty pattern is the empty path.
///
/// An AS_SET is one position and matches where one of its members does; confederation segments are
/// passed over. Matching takes one step per AS and possible position, so it is linear in the path.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PathPattern(Box<[Token]>);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Token {
    /// `*`
    Gap,
    Any {
        repeat: bool,
    },
    OneOf {
        ranges: Box<[AsnRange]>,
        repeat: bool,
    },
}

/// The text is no path pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParsePathPatternError {
    /// One token cannot be read.
    #[error(
        "`{0}` in an AS path pattern: expected an AS number, a range, `.`, `*`, or these with `|` and `+`"
    )]
    Token(String),
    /// The pattern has more tokens than a program may try at once.
    #[error("an AS path pattern has at most {MAX_TOKENS} parts, this one has {0}")]
    TooLong(usize),
}

impl FromStr for PathPattern {
    type Err = ParsePathPatternError;

    fn from_str(text: &str) -> Result<Self, ParsePathPatternError> {
        let tokens: Box<[Token]> = text.split_ascii_whitespace().map(token).collect::<Result<_, _>>()?;
        match tokens.len() {
            ..=MAX_TOKENS => Ok(Self(tokens)),
            many => Err(ParsePathPatternError::TooLong(many)),
        }
    }
}

fn token(text: &str) -> Result<Token, ParsePathPatternError> {
    if text == "*" {
        return Ok(Token::Gap);
    }
    let (one, repeat) = text.strip_suffix('+').map_or((text, false), |one| (one, true));
    if one == "." {
        return Ok(Token::Any { repeat });
    }
    let ranges = one.split('|').map(str::parse).collect::<Result<_, _>>();
    let ranges = ranges.map_err(|_| ParsePathPatternError::Token(text.to_owned()))?;
    Ok(Token::OneOf { ranges, repeat })
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, token) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(" ")?;
            }
            token.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let repeat = match self {
            Self::Gap => return f.write_str("*"),
            Self::Any { repeat } => {
                f.write_str(".")?;
                repeat
            }
            Self::OneOf { ranges, repeat } => {
                for (i, range) in ranges.iter().enumerate() {
                    if i > 0 {
                        f.write_str("|")?;
                    }
                    range.fmt(f)?;
                }
                repeat
            }
        };
        f.write_str(if *repeat { "+" } else { "" })
    }
}

as_text!(PathPattern);

impl PathPattern {
    /// The states a match may begin in. State `i`: the first `i` tokens have been matched.
    fn start(&self) -> u64 {
        self.skip_gaps(1)
    }

    fn is_complete(&self, states: u64) -> bool {
        states >> self.0.len() & 1 == 1
    }

    /// The states after one more AS.
    fn step(&self, states: u64, asn: Asn) -> u64 {
        let mut next = 0;
        let mut left = states & !(1 << self.0.len());
        while left != 0 {
            let state = left.trailing_zeros();
            left &= left - 1;
            next |= self.0[state as usize].step(asn) << state;
        }
        self.skip_gaps(next)
    }

    /// `*` may stand for nothing: a state before one is also the state after it.
    fn skip_gaps(&self, mut states: u64) -> u64 {
        for (i, token) in self.0.iter().enumerate() {
            if *token == Token::Gap {
                states |= (states >> i & 1) << (i + 1);
            }
        }
        states
    }
}

impl Token {
    /// Where an AS leads from before this token: bit 0 is to stay, bit 1 is to go on.
    fn step(&self, asn: Asn) -> u64 {
        let (matches, repeat) = match self {
            Self::Gap => return 1,
            Self::Any { repeat } => (true, *repeat),
            Self::OneOf { ranges, repeat } => (ranges.iter().any(|range| range.contains(asn)), *repeat),
        };
        match (matches, repeat) {
            (false, _) => 0,
            (true, false) => 0b10,
            (true, true) => 0b11,
        }
    }
}

/// Patterns compiled for the question whether one of them matches. The frequent forms `A *`, `* A` and
/// `* A *` become sets of AS numbers, so that thousands of origins cost one binary search.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct PathMatcher {
    neighbours: AsnSet,
    origins: AsnSet,
    anywhere: AsnSet,
    others: Box<[PathPattern]>,
    regexes: Box<[Regex]>,
}

impl PathMatcher {
    pub(crate) fn new(
        patterns: impl IntoIterator<Item = PathPattern>,
        regexes: impl IntoIterator<Item = Regex>,
    ) -> Self {
        let (mut neighbours, mut origins, mut anywhere, mut others) = (vec![], vec![], vec![], vec![]);
        for pattern in patterns {
            match &*pattern.0 {
                [Token::OneOf { ranges, repeat: false }, Token::Gap] => neighbours.extend_from_slice(ranges),
                [Token::Gap, Token::OneOf { ranges, repeat: false }] => origins.extend_from_slice(ranges),
                [Token::Gap, Token::OneOf { ranges, repeat: false }, Token::Gap] => {
                    anywhere.extend_from_slice(ranges);
                }
                _ => others.push(pattern),
            }
        }
        Self {
            neighbours: neighbours.into_iter().collect(),
            origins: origins.into_iter().collect(),
            anywhere: anywhere.into_iter().collect(),
            others: others.into(),
            regexes: regexes.into_iter().collect(),
        }
    }

    /// Patterns that are tried one by one.
    pub(crate) fn steps(&self) -> usize {
        self.others.len() + self.regexes.len()
    }

    pub(crate) fn from_origins(ranges: impl IntoIterator<Item = AsnRange>) -> Self {
        Self { origins: ranges.into_iter().collect(), ..Self::default() }
    }

    pub(crate) fn from_neighbours(ranges: impl IntoIterator<Item = AsnRange>) -> Self {
        Self { neighbours: ranges.into_iter().collect(), ..Self::default() }
    }

    pub(crate) fn matches<I: Iterator<Item = PathElement>>(&self, path: impl Fn() -> I) -> bool {
        (!self.neighbours.is_empty() && self.neighbour_matches(positions(path())))
            || (!self.origins.is_empty() && self.origin_matches(positions(path())))
            || (!self.anywhere.is_empty() && positions(path()).any(|(_, asn)| self.anywhere.contains(asn)))
            || self.others.iter().any(|pattern| matches(pattern, positions(path())))
            || self.regexes.iter().any(|regex| regex.is_found(|search| write_path(path(), search)))
    }

    fn neighbour_matches(&self, path: impl Iterator<Item = (bool, Asn)>) -> bool {
        let mut seen = 0;
        let first = path.take_while(|&(begins, _)| {
            seen += usize::from(begins);
            seen <= 1
        });
        first.into_iter().any(|(_, asn)| self.neighbours.contains(asn))
    }

    /// Looks up the members of the last position only.
    fn origin_matches(&self, path: impl Iterator<Item = (bool, Asn)>) -> bool {
        let holds = |asn: Option<Asn>| asn.is_some_and(|asn| self.origins.contains(asn));
        let (mut found, mut last) = (false, None);
        for (begins, asn) in path {
            found = !begins && (found || holds(last));
            last = Some(asn);
        }
        found || holds(last)
    }
}

fn matches(pattern: &PathPattern, path: impl Iterator<Item = (bool, Asn)>) -> bool {
    let (mut before, mut after) = (0, pattern.start());
    for (begins, asn) in path {
        if begins {
            (before, after) = (after, 0);
        }
        after |= pattern.step(before, asn);
    }
    pattern.is_complete(after)
}

/// The ASes of a path, each with whether it begins a position: the members of an AS_SET share one.
fn positions(path: impl Iterator<Item = PathElement>) -> impl Iterator<Item = (bool, Asn)> {
    let mut in_set = false;
    path.filter_map(move |element| match element {
        PathElement::Sequence(asn) => {
            in_set = false;
            Some((true, asn))
        }
        PathElement::Set(asn) => Some((!std::mem::replace(&mut in_set, true), asn)),
        PathElement::ConfedSequence(_) | PathElement::ConfedSet(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `1 2 {3 4}`: sequence and set elements.
    fn path(text: &str) -> Vec<PathElement> {
        let mut in_set = false;
        let mut elements = Vec::new();
        for word in text.split_ascii_whitespace() {
            in_set |= word.starts_with('{');
            let asn = word.trim_matches(['{', '}']).parse().expect("an AS number");
            elements.push(if in_set { PathElement::Set(asn) } else { PathElement::Sequence(asn) });
            in_set &= !word.ends_with('}');
        }
        elements
    }

    fn holds(pattern: &str, text: &str) -> bool {
        let path = path(text);
        PathMatcher::new([pattern.parse().expect("a pattern")], []).matches(|| path.iter().copied())
    }

    #[test]
    fn patterns_are_printed_as_they_are_read() {
        for text in ["", "*", "65001 *", "* 1|5-7+ .+ . 9", "1.10"] {
            let printed = text.parse::<PathPattern>().map(|pattern| pattern.to_string());
            assert_eq!(printed.as_deref(), Ok(if text == "1.10" { "65546" } else { text }));
        }
    }

    #[test]
    fn bad_patterns_name_the_token() {
        for text in ["_", "*+", "1||2", "+", "5-4", "65001*", "1,2"] {
            assert_eq!(text.parse::<PathPattern>(), Err(ParsePathPatternError::Token(text.into())));
        }
        assert!("1 ".repeat(63).parse::<PathPattern>().is_ok());
        assert_eq!("1 ".repeat(64).parse::<PathPattern>(), Err(ParsePathPatternError::TooLong(64)));
    }

    #[test]
    fn a_pattern_is_about_the_whole_path() {
        let table = [
            ("", "", true),
            ("", "1", false),
            ("*", "", true),
            ("1", "1", true),
            ("1", "1 2", false),
            ("1 *", "1 2 3", true),
            ("1 *", "2 1", false),
            ("* 3", "1 2 3", true),
            ("* 3", "3 2", false),
            ("* 2 *", "1 2 3", true),
            ("* 2 *", "1 3", false),
            ("1 . 3", "1 2 3", true),
            ("1 . 3", "1 3", false),
            ("1+ .", "1 1 1 2", true),
            ("1+ .", "2", false),
            ("* 5-7 9", "1 6 9", true),
            ("1 * 1", "1", false),
            ("1 * 1", "1 1", true),
            ("* 2 * 4 *", "1 2 2 3 4 4", true),
        ];
        for (pattern, path, expected) in table {
            assert_eq!(holds(pattern, path), expected, "`{pattern}` on `{path}`");
        }
    }

    #[test]
    fn a_set_is_one_position() {
        let table = [
            ("1 .", "1 {2 3}", true),
            ("1 3", "1 {2 3}", true),
            ("* 2", "1 {2 3}", true),
            ("* 4", "1 {2 3}", false),
            ("2 *", "{3 2} 1", true),
            ("1 *", "{3 2} 1", false),
            ("1 . .", "1 {2 3}", false),
            ("* 3", "3 {2}", false),
        ];
        for (pattern, path, expected) in table {
            assert_eq!(holds(pattern, path), expected, "`{pattern}` on `{path}`");
        }
    }

    #[test]
    fn regexes_look_at_the_path_as_it_is_printed() {
        let table = [
            ("^1_", "1 2 {3 4}", true),
            ("_2$", "1 2 {3 4}", false),
            (r"_2_\{3,4\}$", "1 2 {3 4}", true),
            (r"^\{1\}_2$", "{1} 2", true),
            ("^$", "", true),
        ];
        for (regex, text, expected) in table {
            let path = path(text);
            let matcher = PathMatcher::new([], [regex.parse().expect("a regex")]);
            assert_eq!(matcher.matches(|| path.iter().copied()), expected, "`{regex}` on `{text}`");
        }
        let confederation = [PathElement::ConfedSequence(Asn(9)), PathElement::Sequence(Asn(1))];
        let matcher = PathMatcher::new([], ["^1$".parse().expect("a regex")]);
        assert!(matcher.matches(|| confederation.into_iter()));
    }

    #[test]
    fn confederation_segments_are_passed_over() {
        let path = [PathElement::ConfedSequence(Asn(9)), PathElement::Sequence(Asn(1))];
        let matcher = PathMatcher::new(["1".parse().expect("a pattern")], []);
        assert!(matcher.matches(|| path.into_iter()));
    }

    /// By trying all ways, position by position.
    fn naive(tokens: &[Token], path: &[Vec<Asn>]) -> bool {
        let Some((token, rest)) = tokens.split_first() else {
            return path.is_empty();
        };
        let one = |position: &Vec<Asn>| position.iter().any(|&asn| token.step(asn) & 0b10 != 0);
        match token {
            Token::Gap => (0..=path.len()).any(|n| naive(rest, &path[n..])),
            Token::Any { repeat } | Token::OneOf { repeat, .. } => {
                let most = if *repeat { path.len() } else { path.len().min(1) };
                (1..=most).any(|n| path[..n].iter().all(one) && naive(rest, &path[n..]))
            }
        }
    }

    fn tokens() -> impl Strategy<Value = String> {
        let token = prop::sample::select(vec!["*", ".", ".+", "1", "2", "1+", "2|3", "2-3+"]);
        prop::collection::vec(token, 0..6).prop_map(|tokens| tokens.join(" "))
    }

    proptest! {
        #![proptest_config(holdfast_testing::cases(4096))]

        #[test]
        fn matching_is_what_trying_all_ways_finds(
            text in tokens(),
            // A set follows a sequence or ends the path: two neighbouring sets would be one.
            hops in prop::collection::vec((1u32..4, prop::collection::vec(1u32..4, 0..3)), 0..4),
        ) {
            let (mut elements, mut positions) = (Vec::new(), Vec::new());
            for (asn, set) in hops {
                elements.push(PathElement::Sequence(Asn(asn)));
                positions.push(vec![Asn(asn)]);
                if !set.is_empty() {
                    elements.extend(set.iter().map(|&asn| PathElement::Set(Asn(asn))));
                    positions.push(set.into_iter().map(Asn).collect());
                }
            }
            let pattern: PathPattern = text.parse().expect("a pattern");
            let expected = naive(&pattern.0, &positions);
            let found = PathMatcher::new([pattern], []).matches(|| elements.iter().copied());
            prop_assert_eq!(found, expected, "`{}` on {:?}", text, elements);
        }
    }
}
