//! Names of files with the time in them.

/// The name of a file that begins at this second of Unix time: the fields of strftime(3) that the configuration allows,
/// UTC.
pub(crate) fn name(pattern: &str, seconds: u64) -> String {
    let (year, month, day) = date(seconds / 86_400);
    let mut name = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            name.push(c);
            continue;
        }
        match rest.next() {
            Some('Y') => name += &format!("{year:04}"),
            Some('m') => name += &format!("{month:02}"),
            Some('d') => name += &format!("{day:02}"),
            Some('H') => name += &format!("{:02}", seconds / 3600 % 24),
            Some('M') => name += &format!("{:02}", seconds / 60 % 60),
            Some('S') => name += &format!("{:02}", seconds % 60),
            Some('s') => name += &seconds.to_string(),
            Some(other) => name.push(other),
            None => {}
        }
    }
    name
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
    fn fields_become_the_time_and_everything_else_stays() {
        let pattern = "/var/mrt/rib.%Y%m%d.%H%M%S-%s-100%%.mrt";
        assert_eq!(name(pattern, 1_772_352_930), "/var/mrt/rib.20260301.081530-1772352930-100%.mrt");
        assert_eq!(name("a.%Y-%m-%d", 951_782_400), "a.2000-02-29");
    }
}
