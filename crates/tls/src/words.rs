//! Names, dates and fingerprints as operators read them.

use aws_lc_rs::digest;
use x509_parser::{extensions::GeneralName, prelude::X509Certificate, time::ASN1Time, x509::X509Name};

/// Names come from whoever is at the other end: longer ones are cut.
const LONGEST_NAME: usize = 200;
/// So many names of a certificate are shown.
const MOST_NAMES: usize = 8;

/// SHA-256 of a SubjectPublicKeyInfo (DER): what is pinned.
pub fn fingerprint(public_key: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest::digest(&digest::SHA256, public_key).as_ref());
    hash
}

/// A fingerprint as it is written in the configuration: `2b:…`, hexadecimal octets with colons.
pub fn fingerprint_words(fingerprint: &[u8; 32]) -> String {
    colons(fingerprint)
}

/// Hexadecimal octets with colons.
pub(crate) fn colons(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect::<Vec<_>>().join(":")
}

/// A name that is safe in a log: one line, of bounded length.
pub(crate) fn clean(name: &str) -> String {
    let safe = name.chars().map(|c| if c.is_control() { '?' } else { c });
    let mut cut: String = safe.clone().take(LONGEST_NAME).collect();
    if safe.count() > LONGEST_NAME {
        cut.push('…');
    }
    cut
}

/// `CN=r2, O=Example`; a name without parts is `(no name)`.
pub(crate) fn distinguished(name: &X509Name<'_>) -> String {
    match name.to_string() {
        empty if empty.is_empty() => "(no name)".to_owned(),
        name => clean(&name),
    }
}

/// What a certificate is for, by its subjectAltName: DNS names and addresses.
pub(crate) fn alternative_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return Vec::new() };
    names.value.general_names.iter().filter_map(general).collect()
}

/// At most so many that a line of a log can hold them.
pub(crate) fn listed(names: &[String]) -> String {
    match names {
        [] => "no name".to_owned(),
        names if names.len() > MOST_NAMES => format!("{}, …", names[..MOST_NAMES].join(", ")),
        names => names.join(", "),
    }
}

pub(crate) fn general(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some(clean(name)),
        GeneralName::IPAddress(octets) => address(octets),
        _ => None,
    }
}

fn address(octets: &[u8]) -> Option<String> {
    let v4 = <[u8; 4]>::try_from(octets).map(|octets| std::net::Ipv4Addr::from(octets).to_string());
    v4.or_else(|_| <[u8; 16]>::try_from(octets).map(|octets| std::net::Ipv6Addr::from(octets).to_string()))
        .ok()
}

/// `2026-11-22 07:53:00 UTC` of seconds since 1970.
pub(crate) fn date(seconds: i64) -> String {
    let Ok(time) = ASN1Time::from_timestamp(seconds) else { return format!("{seconds} s after 1970") };
    let time = time.to_datetime();
    let (hour, minute, second) = time.to_hms();
    let (year, month, day) = (time.year(), u8::from(time.month()), time.day());
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_in_utc() {
        assert_eq!(date(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(1_795_334_400), "2026-11-22 08:00:00 UTC");
        assert_eq!(date(i64::MAX), "9223372036854775807 s after 1970");
    }

    #[test]
    fn a_name_stays_on_its_line() {
        assert_eq!(clean("r1\nERROR all is lost"), "r1?ERROR all is lost");
        assert_eq!(clean(&"x".repeat(300)), format!("{}…", "x".repeat(200)));
    }

    #[test]
    fn a_fingerprint_has_colons() {
        // SHA-256 of nothing (FIPS 180-4).
        assert!(fingerprint_words(&fingerprint(b"")).starts_with("e3:b0:c4:42:98:fc:1c:14:"));
    }
}
