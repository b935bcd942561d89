//! Texts of configurations in little memory.

use std::{
    borrow::Cow,
    io::{self, Read, Write},
};

use flate2::{Compression, read::DeflateDecoder, write::DeflateEncoder};

use crate::file::base;

/// A text of more octets is compressed. A configuration may have 100 MiB, and there are two while the one takes the other's
/// place.
const LONG: usize = 1 << 20;

/// A text, and the number that names it.
#[derive(Debug)]
pub(crate) struct Text {
    base: u64,
    octets: Octets,
}

#[derive(Debug)]
enum Octets {
    Plain(String),
    Compressed { octets: Vec<u8>, length: usize },
}

impl Text {
    /// Takes long for a long text.
    pub(crate) fn new(text: String) -> Self {
        let base = base(&text);
        let compressed = (text.len() > LONG).then(|| compress(&text).ok()).flatten();
        let octets = match compressed {
            Some(octets) => Octets::Compressed { octets, length: text.len() },
            None => Octets::Plain(text),
        };
        Self { base, octets }
    }

    /// Names the text: see [`base`].
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// The text itself; takes long for a long one.
    pub(crate) fn read(&self) -> io::Result<Cow<'_, str>> {
        match &self.octets {
            Octets::Plain(text) => Ok(text.into()),
            Octets::Compressed { octets, length } => {
                let mut text = String::with_capacity(*length);
                DeflateDecoder::new(octets.as_slice()).read_to_string(&mut text)?;
                Ok(text.into())
            }
        }
    }
}

fn compress(text: &str) -> io::Result<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes())?;
    let mut octets = encoder.finish()?;
    octets.shrink_to_fit();
    Ok(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prefixes of a set, one a line.
    fn of_octets(octets: usize) -> String {
        let line = |number: u32| {
            format!("  \"10.{}.{}.0/24 le {}\",\n", number >> 8 & 255, number & 255, 25 + number % 5)
        };
        (0..).map(line).flat_map(String::into_bytes).take(octets).map(char::from).collect()
    }

    #[test]
    fn a_text_is_the_same_when_it_is_read_and_a_long_one_takes_a_quarter() {
        for octets in [0, 1000, LONG, LONG + 1, 3 * LONG] {
            let plain = of_octets(octets);
            let text = Text::new(plain.clone());
            assert!(text.read().expect("read") == plain, "{octets}");
            assert_eq!(text.base(), base(&plain));
            let kept = match &text.octets {
                Octets::Plain(text) => text.capacity(),
                Octets::Compressed { octets, .. } => octets.capacity(),
            };
            assert!(kept <= LONG.max(octets / 4), "{kept} octets for {octets}");
        }
    }
}
