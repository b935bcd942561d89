//! Amounts of memory.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// An amount of memory: a whole number and a unit, as in `512 MiB`. It travels as a number of octets.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Size {
    octets: u64,
}

/// What a size may be written in, largest first.
const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

impl Size {
    /// One mebibyte.
    pub const MIB: Self = Self { octets: 1 << 20 };

    /// That many gibibytes.
    pub const fn gib(number: u32) -> Self {
        Self { octets: (number as u64) << 30 }
    }

    /// That many octets.
    pub const fn of_octets(octets: u64) -> Self {
        Self { octets }
    }

    /// In octets.
    pub fn octets(self) -> u64 {
        self.octets
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let &(unit, octets) = UNITS.iter().find(|(unit, _)| text.ends_with(unit))?;
            let number = text.strip_suffix(unit)?.trim_end_matches(' ');
            // `u64` alone would take a sign.
            let digits = number.bytes().all(|octet| octet.is_ascii_digit());
            let number: u64 = digits.then(|| number.parse().ok()).flatten()?;
            Some(Self { octets: number.checked_mul(octets)? })
        };
        read().ok_or_else(|| {
            format!("`{text}` is no size: expected a whole number of KiB, MiB or GiB as in \"512 MiB\"")
        })
    }
}

/// In the largest unit that leaves nothing over.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, octets)| self.octets.is_multiple_of(*octets)) {
            Some((unit, octets)) => write!(f, "{} {unit}", self.octets / octets),
            None => write!(f, "{} octets", self.octets),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_numbers_with_a_unit() {
        for (text, octets) in [("1 GiB", 1 << 30), ("512MiB", 512 << 20), ("3 KiB", 3 << 10), ("0 MiB", 0)] {
            assert_eq!(text.parse().map(Size::octets), Ok(octets), "{text}");
        }
        for text in ["", "1", "GiB", "1 GB", "1 gib", "1.5 GiB", "-1 MiB", "+1 MiB", "1 B", "99999999999 GiB"]
        {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_shown_as_they_would_be_written() {
        for text in ["64 GiB", "1 MiB", "1025 KiB", "1536 MiB"] {
            assert_eq!(text.parse::<Size>().map(|size| size.to_string()).as_deref(), Ok(text));
        }
    }
}
