//! What a certificate of a BGPsec router says (RFC 8209 section 3.1).

use holdfast_types::{Asn, RouterKey, Ski};
use x509_parser::{extensions::ParsedExtension, oid_registry::Oid, parse_x509_certificate};

use super::KeysError;

/// id-pe-autonomousSysIds (RFC 3779 section 3.2.1).
const AS_RESOURCES: &str = "1.3.6.1.5.5.7.1.8";

/// Tags of ASIdentifiers.
pub(super) const INTEGER: u8 = 0x02;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const ASNUM: u8 = 0xa0;

/// The key of a router's certificate, for each AS that it names. Neither signature nor dates are looked at: what is valid is
/// for who validates the RPKI to say.
///
/// # Errors
/// It is no certificate, or misses the key's identifier or ASes; ranges of ASes, which RFC 8209 section 3.1.3.3 does not
/// permit, are none.
pub fn router_keys(certificate: &[u8]) -> Result<Vec<RouterKey>, KeysError> {
    let Ok(([], certificate)) = parse_x509_certificate(certificate) else {
        return Err(KeysError::Missing("certificate"));
    };
    let ski = certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(ski) => ski.0.try_into().ok().map(Ski),
        _ => None,
    });
    let ski = ski.ok_or(KeysError::Missing("subject key identifier of 20 octets"))?;
    let is_resources = |oid: &Oid<'_>| oid.to_id_string() == AS_RESOURCES;
    let extensions = certificate.extensions().iter();
    let asns = extensions.filter(|extension| is_resources(&extension.oid)).find_map(|it| ases(it.value));
    let asns = asns.filter(|asns| !asns.is_empty()).ok_or(KeysError::Missing("list of ASes"))?;
    let spki = certificate.public_key().raw;
    Ok(asns.into_iter().map(|asn| RouterKey { asn, ski, spki: spki.to_vec() }).collect())
}

/// ASIdentifiers: a SEQUENCE of `[0]` of a SEQUENCE of INTEGERs (RFC 3779 section 3.2.3).
fn ases(der: &[u8]) -> Option<Vec<Asn>> {
    let (identifiers, []) = element(der, SEQUENCE)? else { return None };
    // What may follow are routing domains.
    let (asnum, _) = element(identifiers, ASNUM)?;
    let (mut list, []) = element(asnum, SEQUENCE)? else { return None };
    let mut asns = Vec::new();
    while !list.is_empty() {
        let (octets, rest) = element(list, INTEGER)?;
        let significant = octets.strip_prefix(&[0]).unwrap_or(octets);
        let mut number = [0; 4];
        number.get_mut(4usize.checked_sub(significant.len())?..)?.copy_from_slice(significant);
        asns.push(Asn(u32::from_be_bytes(number)));
        list = rest;
    }
    Some(asns)
}

/// The content of the first element, which is to have this tag, and what follows it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (length, rest) = match der.strip_prefix(&[tag])? {
        [0x81, length @ 0x80..=0xff, rest @ ..] => (usize::from(*length), rest),
        [0x82, high @ 1..=0xff, low, rest @ ..] => (usize::from(u16::from_be_bytes([*high, *low])), rest),
        [length @ 0..=0x7f, rest @ ..] => (usize::from(*length), rest),
        _ => return None,
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{Algorithm, PrivateKey, Validity, bgpsec_certificate, self_signed};

    #[test]
    fn a_certificate_says_what_was_put_into_it() {
        let key = PrivateKey::generate(Algorithm::P256).unwrap();
        let ski = Ski([7; 20]);
        for asn in [0, 127, 128, 64496, u32::MAX] {
            let certificate = bgpsec_certificate(&key, Asn(asn), ski, Validity::days(1)).unwrap();
            let keys = router_keys(&certificate).unwrap();
            assert_eq!((keys.len(), keys[0].asn, keys[0].ski, keys[0].spki.len()), (1, Asn(asn), ski, 91));
        }
        let plain = self_signed(&key, &["example.org".into()], Validity::days(1)).unwrap();
        assert!(router_keys(&plain).is_err());
    }

    #[test]
    fn several_ases_are_several_and_ranges_are_none() {
        let two = [0x30, 10, 0xa0, 8, 0x30, 6, 2, 1, 5, 2, 1, 6];
        assert_eq!(ases(&two), Some(vec![Asn(5), Asn(6)]));
        let range = [0x30, 12, 0xa0, 10, 0x30, 8, 0x30, 6, 2, 1, 5, 2, 1, 6];
        let inherited = [0x30, 4, 0xa0, 2, 5, 0];
        let too_long = [0x30, 11, 0xa0, 9, 0x30, 7, 2, 5, 1, 0, 0, 0, 0];
        for none in [&range[..], &inherited, &too_long, &two[..11]] {
            assert_eq!(ases(none), None, "{none:?}");
        }
    }
}
