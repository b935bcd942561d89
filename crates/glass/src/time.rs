//! Times as birdwatcher writes them, always UTC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// `2026-03-01T08:15:30Z`: alice-lg's `servertime`.
pub(crate) fn long(at: SystemTime) -> String {
    let (date, time) = parts(at);
    format!("{date}T{time}Z")
}

/// `2026-03-01 08:15:30`: its `servertime_short` and `servertime_ext`.
pub(crate) fn short(at: SystemTime) -> String {
    let (date, time) = parts(at);
    format!("{date} {time}")
}

/// So long before.
pub(crate) fn before(at: SystemTime, milliseconds: u64) -> SystemTime {
    at.checked_sub(Duration::from_millis(milliseconds)).unwrap_or(UNIX_EPOCH)
}

fn parts(at: SystemTime) -> (String, String) {
    let seconds = at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    (format!("{year:04}-{month:02}-{day:02}"), format!("{hour:02}:{minute:02}:{second:02}"))
}

/// The date so many days after 1970-01-01. Years are counted from March, so that a leap day is a year's last.
fn date(days: u64) -> (u64, u64, u64) {
    /// Days of 400 years, and from 0000-03-01 to 1970-01-01.
    const ERA: u64 = 146_097;
    const OFFSET: u64 = 719_468;
    let days = days + OFFSET;
    let (era, day_of_era) = (days / ERA, days % ERA);
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_400, "2000-02-29 00:00:00"),
            (951_868_800, "2000-03-01 00:00:00"),
            (1_772_352_930, "2026-03-01 08:15:30"),
            (4_107_542_399, "2100-02-28 23:59:59"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(short(at(seconds)), text);
        }
        assert_eq!(long(at(1_772_352_930)), "2026-03-01T08:15:30Z");
    }
}
