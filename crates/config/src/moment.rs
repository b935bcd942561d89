//! Moments of the calendar.

use toml::value::{Date, Datetime, Offset, Time};

const DAY: i64 = 86_400;

/// A moment, in whole seconds since 1970 (UTC).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Moment(u64);

impl Moment {
    /// Seconds since 1970. What was before counts as 1970.
    pub fn since_1970(self) -> u64 {
        self.0
    }

    /// `None`: the date, the time of day or the offset is not said.
    pub(crate) fn of(datetime: &Datetime) -> Option<Self> {
        let Datetime { date: Some(date), time: Some(time), offset: Some(offset) } = datetime else {
            return None;
        };
        let seconds = days(*date) * DAY + seconds_of_day(*time) - east(*offset);
        Some(Self(u64::try_from(seconds).unwrap_or(0)))
    }
}

/// Days since 1970. Years begin in March here, so that the day that is not in each of them is the last one.
fn days(date: Date) -> i64 {
    /// From 1 March of the year 0 to 1970.
    const BEFORE_1970: i64 = 719_468;
    let (month, day) = (i64::from(date.month), i64::from(date.day));
    let year = i64::from(date.year) - i64::from(month < 3);
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    365 * year + leap_days + day_of_year - BEFORE_1970
}

fn seconds_of_day(time: Time) -> i64 {
    i64::from(time.hour) * 3600 + i64::from(time.minute) * 60 + i64::from(time.second.unwrap_or(0))
}

/// How far local time is ahead of UTC, in seconds.
fn east(offset: Offset) -> i64 {
    match offset {
        Offset::Z => 0,
        Offset::Custom { minutes } => i64::from(minutes) * 60,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_calendar() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("1970-01-01T00:00:01.9Z", Some(1)),
            ("1969-12-31T23:59:59Z", Some(0)),
            ("0000-01-01T00:00:00Z", Some(0)),
            ("2000-02-29T00:00:00Z", Some(951_782_400)),
            ("2000-03-01T00:00:00Z", Some(951_868_800)),
            ("2026-12-01T00:00:00Z", Some(1_796_083_200)),
            ("2026-12-01T01:30:00+01:30", Some(1_796_083_200)),
            ("2026-11-30T19:00:00-05:00", Some(1_796_083_200)),
            ("2100-02-28T23:59:59Z", Some(4_107_542_399)),
            ("2100-03-01T00:00:00Z", Some(4_107_542_400)),
            ("9999-12-31T23:59:59Z", Some(253_402_300_799)),
            ("2026-12-01T00:00:00", None),
            ("2026-12-01", None),
            ("00:00:00", None),
        ] {
            let datetime: Datetime = text.parse().expect("a date of TOML");
            assert_eq!(Moment::of(&datetime).map(Moment::since_1970), expected, "{text}");
        }
    }
}
