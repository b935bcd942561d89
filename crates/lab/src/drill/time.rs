//! Times as three routers print them.

use std::time::{SystemTime, UNIX_EPOCH};

/// Microseconds since 1970, as a capture counts them.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// Reads `2026-08-05 15:13:24.123…` at the beginning of a line, whatever is between the numbers, in microseconds since
/// 1970. Without a zone it is taken for UTC: differences of two are right, and all of it on a machine that is set so.
pub fn micros(line: &str) -> Option<u64> {
    let number = |from: usize, to: usize| line.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let fraction = line.get(19..).and_then(|rest| rest.strip_prefix('.')).unwrap_or_default();
    let digits =
        fraction.bytes().chain(std::iter::repeat(b'0')).map(|digit| digit.wrapping_sub(b'0')).take(6);
    let mut rest = true;
    let micros = digits.fold(0, |sum, digit| {
        rest &= digit < 10;
        sum * 10 + if rest { u64::from(digit) } else { 0 }
    });
    let seconds = ((days(year, month, day)? * 24 + hour) * 60 + minute) * 60 + second;
    Some(seconds * 1_000_000 + micros)
}

/// Days since 1970 of a date of the Gregorian calendar: years begin in March, so that the leap day is their last.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let in_year = (153 * month + 2) / 5 + day.checked_sub(1)?;
    (year * 365 + year / 4 - year / 100 + year / 400 + in_year).checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_routers_time_is_read() {
        for (line, expected) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-08-05T15:13:24.123456Z", 1_785_942_804_123_456),
            ("2026-08-05 15:13:24.123 <TRACE> holdfast: x", 1_785_942_804_123_000),
            ("2024/02/29 23:59:59.5 BGP: x", 1_709_251_199_500_000),
        ] {
            assert_eq!(micros(line), Some(expected), "{line}");
        }
        assert_eq!((micros("bird: Started"), micros("")), (None, None));
    }
}
