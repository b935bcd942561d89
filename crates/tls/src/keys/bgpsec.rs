//! Keys of BGPsec routers: their requests and certificates (RFC 8209), and private keys as other programs read them.
//!
//! The certificates sign themselves: they are for tests. A router needs none of its own, its cache validates those of others.

use aws_lc_rs::{
    encoding::{AsDer, EcPrivateKeyRfc5915Der},
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use holdfast_types::{Asn, Ski};
use rcgen::{
    CertificateParams, CustomExtension, DistinguishedName, DnType, DnValue, ExtendedKeyUsagePurpose, IsCa,
    KeyUsagePurpose,
};

use super::{
    KeysError, PrivateKey, Validity, make,
    router::{ASNUM, INTEGER, SEQUENCE},
};

/// id-kp-bgpsec-router (RFC 8209 section 3.1.3.2).
const BGPSEC_ROUTER: [u64; 9] = [1, 3, 6, 1, 5, 5, 7, 3, 30];
/// id-ce-subjectKeyIdentifier (RFC 5280 section 4.2.1.2).
const SUBJECT_KEY_IDENTIFIER: [u64; 4] = [2, 5, 29, 14];
/// id-ce-certificatePolicies (RFC 5280 section 4.2.1.4).
const CERTIFICATE_POLICIES: [u64; 4] = [2, 5, 29, 32];
/// One policy, id-cp-ipAddr-asNumber (RFC 6484 section 1.2), which all of the RPKI has (RFC 6487 section 4.8.9).
const POLICY: [u8; 14] = [0x30, 12, 0x30, 10, 6, 8, 0x2b, 6, 1, 5, 5, 7, 14, 2];
/// id-pe-autonomousSysIds (RFC 3779 section 3.2.1).
const AS_RESOURCES: [u64; 9] = [1, 3, 6, 1, 5, 5, 7, 1, 8];

/// A tag of DER.
const OCTET_STRING: u8 = 0x04;

/// A request for the certificate of a router of this AS (RFC 8209 section 3.2). Of resources it says nothing: RFC 6487 section
/// 6.3 leaves them to whoever signs.
///
/// # Errors
/// The library refuses.
pub fn bgpsec_request(key: &PrivateKey, asn: Asn) -> Result<Vec<u8>, KeysError> {
    Ok(params(asn)?.serialize_request(&key.0)?.der().to_vec())
}

/// A certificate of a router of this AS (RFC 8209 section 3.1) that its own key has signed. `ski` is what signatures call the
/// key.
///
/// # Errors
/// The library refuses.
pub fn bgpsec_certificate(
    key: &PrivateKey,
    asn: Asn,
    ski: Ski,
    validity: Validity,
) -> Result<Vec<u8>, KeysError> {
    let mut params = params(asn)?;
    make::date(&mut params, validity)?;
    let extension = |oid: &[u64], is_critical, content| {
        let mut extension = CustomExtension::from_oid_content(oid, content);
        extension.set_criticality(is_critical);
        extension
    };
    params.custom_extensions = vec![
        extension(&SUBJECT_KEY_IDENTIFIER, false, tagged(OCTET_STRING, &ski.0)),
        extension(&CERTIFICATE_POLICIES, true, POLICY.to_vec()),
        extension(&AS_RESOURCES, true, as_resources(asn)),
    ];
    Ok(params.self_signed(&key.0)?.der().to_vec())
}

/// The private key as an ECPrivateKey (SEC 1, RFC 5915): what the BGPsec of FRR and BIRD reads.
///
/// # Errors
/// It is none of P-256.
pub fn sec1(key: &PrivateKey) -> Result<Vec<u8>, KeysError> {
    let refused = |why: &str| KeysError::Library(why.to_owned());
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, key.der())
        .map_err(|_| refused("a router's key is of P-256"))?;
    let der: EcPrivateKeyRfc5915Der<'_> =
        pair.private_key().as_der().map_err(|_| refused("the key cannot be written"))?;
    Ok(der.as_ref().to_vec())
}

/// The public key of a router's private key in DER (PKCS#8 or SEC 1): the point, uncompressed.
///
/// # Errors
/// It is none of P-256.
pub fn bgpsec_public_key(der: &[u8]) -> Result<Vec<u8>, KeysError> {
    let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, der)
        .or_else(|_| EcdsaKeyPair::from_private_key_der(algorithm, der))
        .map_err(|_| KeysError::Library("a router's key is of P-256".to_owned()))?;
    Ok(pair.public_key().as_ref().to_vec())
}

fn params(asn: Asn) -> Result<CertificateParams, KeysError> {
    let mut distinguished_name = DistinguishedName::new();
    let name = format!("ROUTER-{:08X}", asn.0).as_str().try_into()?;
    distinguished_name.push(DnType::CommonName, DnValue::PrintableString(name));
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished_name;
    // Without basic constraints (RFC 8209 section 3.1.3.1).
    params.is_ca = IsCa::NoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::Other(BGPSEC_ROUTER.to_vec())];
    Ok(params)
}

/// ASIdentifiers with one AS (RFC 3779 section 3.2.3).
fn as_resources(asn: Asn) -> Vec<u8> {
    // An INTEGER has a sign, and no octet more than it needs.
    let octets = u64::from(asn.0).to_be_bytes();
    let spare = octets.windows(2).take_while(|pair| pair[0] == 0 && pair[1] < 0x80).count();
    let ases = tagged(SEQUENCE, &tagged(INTEGER, &octets[spare..]));
    tagged(SEQUENCE, &tagged(ASNUM, &ases))
}

/// DER of less than 128 octets.
fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
    [&[tag, content.len() as u8], content].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_numbers_are_integers_with_a_sign() {
        let rows: [(u32, &[u8]); 5] = [
            (0, &[2, 1, 0]),
            (127, &[2, 1, 127]),
            (128, &[2, 2, 0, 128]),
            (64496, &[2, 3, 0, 0xfb, 0xf0]),
            (u32::MAX, &[2, 5, 0, 255, 255, 255, 255]),
        ];
        for (asn, integer) in rows {
            assert_eq!(as_resources(Asn(asn))[6..], *integer, "{asn}");
        }
    }
}
