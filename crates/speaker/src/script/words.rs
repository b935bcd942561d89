//! The words of a line.

use std::{collections::BTreeMap, str::FromStr, time::Duration};

use super::LONGEST_FILE;

/// What is left of a line.
pub(super) struct Words(std::iter::Peekable<std::vec::IntoIter<String>>);

impl Words {
    /// Words of a line, without its comment, with variables replaced, for which there is so much room, and less then.
    pub(super) fn split(
        line: &str,
        variables: &BTreeMap<String, String>,
        room: &mut usize,
    ) -> Result<Self, String> {
        let words = line.split_whitespace().take_while(|word| !word.starts_with('#'));
        let words: Result<Vec<_>, _> = words.map(|word| replaced(word, variables, room)).collect();
        Ok(Self(words?.into_iter().peekable()))
    }

    pub(super) fn next(&mut self) -> Option<String> {
        self.0.next()
    }

    pub(super) fn peek(&mut self) -> Option<&str> {
        self.0.peek().map(String::as_str)
    }

    /// Whether the next word is this one, which is taken then.
    pub(super) fn take(&mut self, word: &str) -> bool {
        self.0.next_if(|next| next == word).is_some()
    }

    pub(super) fn need(&mut self, what: &str) -> Result<String, String> {
        self.next().ok_or_else(|| format!("{what} is missing"))
    }

    pub(super) fn parse<T: FromStr>(&mut self, what: &str) -> Result<T, String> {
        let word = self.need(what)?;
        word.parse().map_err(|_| format!("`{word}` is not {what}"))
    }

    /// A decimal number up to a greatest one.
    pub(super) fn number(&mut self, what: &str, most: u32) -> Result<u32, String> {
        let word = self.need(what)?;
        let number = word.parse().ok().filter(|number| *number <= most);
        number.ok_or_else(|| format!("`{word}` is not {what}: 0 to {most}"))
    }

    /// A number and its unit.
    pub(super) fn duration(&mut self) -> Result<Duration, String> {
        let word = self.need("a duration")?;
        duration(&word).ok_or_else(|| format!("`{word}` is no duration: 500ms, 2s, 1m"))
    }

    /// All that is left, with one space between words.
    pub(super) fn rest(&mut self) -> String {
        self.0.by_ref().collect::<Vec<_>>().join(" ")
    }

    /// All that is left, as octets.
    pub(super) fn rest_of_hex(&mut self) -> Result<Vec<u8>, String> {
        let digits: String = self.0.by_ref().collect();
        if digits.is_empty() { Err("hexadecimal digits are missing".to_owned()) } else { hex(&digits) }
    }

    /// Nothing is left.
    pub(super) fn end(&mut self) -> Result<(), String> {
        match self.next() {
            None => Ok(()),
            Some(word) => Err(format!("`{word}` is not understood here")),
        }
    }
}

/// Not longer than a day: there is a limit to the whole.
pub(crate) fn duration(word: &str) -> Option<Duration> {
    let unit = word.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, unit) = word.split_at(unit);
    let number: u64 = number.parse().ok()?;
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        _ => return None,
    };
    let all = number.checked_mul(milliseconds).filter(|all| *all <= 86_400_000)?;
    Some(Duration::from_millis(all))
}

/// Octets of digits.
pub(crate) fn hex(digits: &str) -> Result<Vec<u8>, String> {
    let wrong = || format!("`{digits}` is not an even number of hexadecimal digits");
    let octets = digits.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => {
            let digit = |digit: u8| char::from(digit).to_digit(16);
            Some((digit(*high)? << 4 | digit(*low)?) as u8)
        }
        _ => None,
    });
    octets.collect::<Option<Vec<_>>>().ok_or_else(wrong)
}

pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// A word in which `$NAME` and `${NAME}` are replaced. Without a bound a few lines would fill all memory: each may have
/// twice what the one before it has.
fn replaced(word: &str, variables: &BTreeMap<String, String>, room: &mut usize) -> Result<String, String> {
    let (mut done, mut rest) = (String::new(), word);
    while let Some((before, behind)) = rest.split_once('$') {
        done.push_str(before);
        let (name, after) = match behind.strip_prefix('{') {
            Some(behind) => {
                behind.split_once('}').ok_or_else(|| format!("`{word}`: a brace is not closed"))?
            }
            None => {
                let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
                behind.split_at(behind.find(|letter| !is_part(letter)).unwrap_or(behind.len()))
            }
        };
        let value = variables.get(name).ok_or_else(|| format!("nothing has set `${name}`"))?;
        *room = room
            .checked_sub(value.len())
            .ok_or_else(|| format!("variables put more than {LONGEST_FILE} octets into the script"))?;
        done.push_str(value);
        rest = after;
    }
    done.push_str(rest);
    Ok(done)
}
