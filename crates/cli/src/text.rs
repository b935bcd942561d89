//! Text for people: columns, times, sizes.

use std::{
    io::{self, Write},
    net::IpAddr,
};

/// Rows that are few enough to be aligned after the widest entry of each column.
pub(crate) struct Table {
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Titles of the columns; one that begins with `>` is aligned to the right.
    pub(crate) fn new(titles: &[&str]) -> Self {
        let right = titles.iter().map(|title| title.starts_with('>')).collect();
        let titles = titles.iter().map(|title| title.trim_start_matches('>').to_owned()).collect();
        Self { right, rows: vec![titles] }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        debug_assert_eq!(N, self.right.len());
        self.rows.push(cells.into());
    }

    /// A row of as many cells as there are titles.
    pub(crate) fn cells(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.right.len());
        self.rows.push(cells);
    }

    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let width =
            |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.right.len()).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, &right), &width) in row.iter().zip(&self.right).zip(&widths) {
                let pad = " ".repeat(width - cell.chars().count());
                let [before, after] = if right { [pad.as_str(), ""] } else { ["", pad.as_str()] };
                line.extend([before, cell, after, "  "]);
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A duration as FRR writes it: `00:01:02`, `1d02h03m`, `01w2d03h`; `never` for none.
pub(crate) fn uptime(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match days {
        _ if milliseconds == 0 => "never".to_owned(),
        0 => format!("{hours:02}:{:02}:{:02}", minutes % 60, seconds % 60),
        1..7 => format!("{days}d{:02}h{:02}m", hours % 24, minutes % 60),
        _ => format!("{:02}w{}d{:02}h", days / 7, days % 7, hours % 24),
    }
}

/// Seconds since 1970 as a date and time of UTC: `2026-11-21 18:51:10Z`.
pub(crate) fn time(seconds: u64) -> String {
    // Days are counted from 1 March of year 0, so that a leap day is the last of its year; 400 years have 146097 days.
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{:04}-{month:02}-{day:02} {hours:02}:{minutes:02}:{:02}Z", era * 400 + year, seconds % 60)
}

/// A size in the largest unit in which it is at least one.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

/// Four or sixteen octets as an address; `None` for any other number of them.
pub(crate) fn address(octets: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok()
}

/// An address with a port: `10.0.0.1:179`, `[::]:179`.
pub(crate) fn socket(octets: &[u8], port: u32) -> String {
    match address(octets) {
        Some(IpAddr::V6(address)) => format!("[{address}]:{port}"),
        Some(IpAddr::V4(address)) => format!("{address}:{port}"),
        None => format!("-:{port}"),
    }
}

/// `-` for an empty text.
pub(crate) fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

/// FRR's key for a family: `ipv4Unicast` for `ipv4-unicast`.
pub(crate) fn camel(name: &str) -> String {
    let mut words = name.split(['-', ' ', '_']);
    let first = words.next().unwrap_or("").to_owned();
    words.fold(first, |mut text, word| {
        let mut letters = word.chars();
        text.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        text.extend(letters);
        text
    })
}

/// FRR's word for the family of an address or prefix.
pub(crate) fn afi(address: &str) -> &'static str {
    if address.contains(':') { "ipv6" } else { "ipv4" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_399, "2000-02-28 23:59:59Z"),
            (951_782_400, "2000-02-29 00:00:00Z"),
            (1_795_287_070, "2026-11-21 18:51:10Z"),
            (4_107_542_400, "2100-03-01 00:00:00Z"),
        ] {
            assert_eq!(time(seconds), text);
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_entry() {
        let mut table = Table::new(&["Name", ">AS", "State"]);
        table.row(["ä".into(), "65001".into(), "up".into()]);
        table.row(["transit".into(), "7".into(), String::new()]);
        let mut out = Vec::new();
        table.write(&mut out).expect("writes");
        let expected = "Name        AS  State\nä        65001  up\ntransit      7\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    #[test]
    fn times_are_written_as_frr_does() {
        let day = 86_400_000;
        for (milliseconds, text) in [
            (0, "never"),
            (10_999, "00:00:10"),
            (day - 1, "23:59:59"),
            (day + 7_380_000, "1d02h03m"),
            (9 * day + 10_800_000, "01w2d03h"),
        ] {
            assert_eq!(uptime(milliseconds), text);
        }
    }

    #[test]
    fn sizes_families_and_addresses() {
        assert_eq!((size(1023).as_str(), size(1536).as_str()), ("1023 B", "1.5 KiB"));
        assert_eq!((size(5 << 20).as_str(), size(3 << 30).as_str()), ("5.0 MiB", "3.0 GiB"));
        assert_eq!(camel("ipv4-unicast"), "ipv4Unicast");
        assert_eq!(address(&[10, 0, 0, 1]).map(|a| a.to_string()).as_deref(), Some("10.0.0.1"));
        assert_eq!(address(&[0; 16]).map(|a| a.to_string()).as_deref(), Some("::"));
        assert_eq!(address(&[1, 2, 3]), None);
    }
}
