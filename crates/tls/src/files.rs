//! Files that a configuration names: certificates, revocation lists and keys, in PEM or DER. What is wrong with one is said
//! in words, without its name.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use x509_parser::{parse_x509_certificate, parse_x509_crl, x509::X509Version};

use crate::{
    Identity,
    keys::{self, KeysError},
    words,
};

/// In octets. A list that revokes a hundred thousand certificates is not longer.
const LARGEST: u64 = 4 << 20;

/// All certificates of a file, as DER.
///
/// # Errors
/// It cannot be read, or holds none, or one of them is none.
pub fn certificates(file: &Path) -> Result<Vec<Vec<u8>>, String> {
    let found = keys::certificates(&read(file)?).map_err(said)?;
    match found.iter().all(|der| parse_x509_certificate(der).is_ok_and(|(rest, _)| rest.is_empty())) {
        true => Ok(found),
        false => Err("it holds a certificate that cannot be read".to_owned()),
    }
}

/// What a file of text holds.
///
/// # Errors
/// It cannot be read, or is too long.
pub fn text(file: &Path) -> Result<Vec<u8>, String> {
    read(file)
}

/// What a file of text holds of which nobody has a say but root and the caller's user.
///
/// # Errors
/// Those of [`text`], and that somebody else may have written it.
pub fn trusted_text(file: &Path) -> Result<Vec<u8>, String> {
    contents(holdfast_sys::file::open_trusted(file))
}

/// All certificates of a file of those who may have signed others: authorities, and those that have signed themselves.
///
/// # Errors
/// Those of [`certificates`], and that one of them can have signed none.
pub fn authorities(file: &Path) -> Result<Vec<Vec<u8>>, String> {
    let found = certificates(file)?;
    match found.iter().find_map(|der| of_a_router(der)) {
        None => Ok(found),
        Some((subject, issuer)) => Err(format!(
            "the certificate of {subject} is no authority's: take that of {issuer}, which has signed it, or pin its key"
        )),
    }
}

/// Whose certificate it is, and who has signed it, unless others can lead to it (RFC 5280 section 6.1.4, k).
fn of_a_router(der: &[u8]) -> Option<(String, String)> {
    let (_, read) = parse_x509_certificate(der).ok()?;
    let names = [read.subject(), read.issuer()];
    let leads_to_it = read.is_ca() || read.version() != X509Version::V3 || names[0] == names[1];
    (!leads_to_it).then(|| names.map(words::distinguished).into())
}

/// All revocation lists of a file, as DER.
///
/// # Errors
/// It cannot be read, or holds none, or one of them is none.
pub fn revocations(file: &Path) -> Result<Vec<Vec<u8>>, String> {
    let found = keys::revocations(&read(file)?).map_err(said)?;
    match found.iter().all(|der| parse_x509_crl(der).is_ok_and(|(rest, _)| rest.is_empty())) {
        true => Ok(found),
        false => Err("it holds a revocation list that cannot be read".to_owned()),
    }
}

/// The private key of a file, as DER; that of the first of these certificates, if there is one.
///
/// # Errors
/// It cannot be read, or holds none, or that of another certificate.
pub fn private_key(file: &Path, certificates: &[Vec<u8>]) -> Result<Vec<u8>, String> {
    let key = keys::private_key(&read(file)?).map_err(said)?;
    Identity::new(certificates, &key).map_err(|error| error.to_string())?;
    Ok(key)
}

/// The private key of a BGPsec router, as DER, and its public key.
///
/// # Errors
/// The file cannot be read, or holds none, or several, or one of another curve than P-256.
pub fn router_key(file: &Path) -> Result<[Vec<u8>; 2], String> {
    let octets = read(file)?;
    // Which of them signs, nobody would know.
    let begins_key = |line: &&[u8]| {
        let line = line.trim_ascii();
        line.starts_with(b"-----BEGIN ") && line.ends_with(b" PRIVATE KEY-----")
    };
    if octets.split(|octet| *octet == b'\n').filter(begins_key).count() > 1 {
        return Err("it has more than one private key".to_owned());
    }
    let key = keys::private_key(&octets).map_err(said)?;
    let public = keys::bgpsec_public_key(&key).map_err(said)?;
    Ok([key, public])
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    contents(holdfast_sys::file::open(file))
}

fn contents(file: io::Result<File>) -> Result<Vec<u8>, String> {
    let mut octets = Vec::new();
    let file = file.map_err(|error| error.to_string())?;
    file.take(LARGEST + 1).read_to_end(&mut octets).map_err(|error| error.to_string())?;
    match octets.len() as u64 > LARGEST {
        true => Err(format!("it has more than {} MiB", LARGEST >> 20)),
        false => Ok(octets),
    }
}

fn said(error: KeysError) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use super::*;
    use crate::keys::{Algorithm, Authority, Item, PrivateKey, Validity, pem, self_signed};

    /// A directory that goes with it.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("holdfast-tls-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("made");
            Self(path)
        }

        fn write(&self, name: &str, octets: impl AsRef<[u8]>) -> PathBuf {
            let file = self.0.join(name);
            fs::write(&file, octets).expect("written");
            file
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn key() -> PrivateKey {
        PrivateKey::generate(Algorithm::P256).expect("random numbers")
    }

    #[test]
    fn keys_of_routers_are_of_p256_in_any_form() {
        let scratch = Scratch::new("router");
        let key = key();
        let sec1 = keys::sec1(&key).expect("of P-256");
        let point = [&[4], &key.public_key()[27..]].concat();
        for (name, octets) in [
            ("pkcs8.der", key.der().to_vec()),
            ("pkcs8.pem", pem(&Item::PrivateKey(key.der().to_vec())).into_bytes()),
            ("sec1.der", sec1.clone()),
            ("sec1.pem", pem(&Item::PrivateKey(sec1.clone())).into_bytes()),
        ] {
            let read = router_key(&scratch.write(name, octets)).expect(name);
            assert_eq!(read[1], point, "{name}");
            assert!(read[0] == key.der() || read[0] == sec1, "{name}");
        }
        let twice = pem(&Item::PrivateKey(sec1.clone())).repeat(2);
        let refused = router_key(&scratch.write("two.pem", twice)).expect_err("two keys");
        assert!(refused.contains("more than one"), "{refused}");
        let other = PrivateKey::generate(Algorithm::Ed25519).expect("random numbers");
        let refused = router_key(&scratch.write("other.der", other.der())).expect_err("of another curve");
        assert!(refused.contains("of P-256"), "{refused}");
        let missing = router_key(&scratch.0.join("gone")).expect_err("not there");
        assert!(missing.contains("No such file"), "{missing}");
    }

    #[test]
    fn files_are_pem_or_der_and_hold_what_they_are_to_hold() {
        let scratch = Scratch::new("files");
        let (ours, other) = (key(), key());
        let der = self_signed(&ours, &["r1.example".to_owned()], Validity::days(1)).expect("made");
        let certificate = pem(&Item::Certificate(der.clone()));
        let private = pem(&Item::PrivateKey(ours.der().to_vec()));
        let both = scratch.write("both.pem", format!("{certificate}{certificate}{private}"));
        assert_eq!(certificates(&both), Ok(vec![der.clone(), der.clone()]));
        assert_eq!(certificates(&scratch.write("one.der", &der)), Ok(vec![der.clone()]));
        assert_eq!(private_key(&both, std::slice::from_ref(&der)), Ok(ours.der().to_vec()));
        assert_eq!(private_key(&scratch.write("key.der", ours.der()), &[]), Ok(ours.der().to_vec()));

        let authority = Authority::new("CA", key(), Validity::days(1)).expect("made");
        let list = authority.revoke(None, authority.certificate(), Validity::days(1)).expect("made");
        let list_file = scratch.write("crl.pem", pem(&Item::Revocations(list.clone())));
        assert_eq!(revocations(&list_file), Ok(vec![list]));

        let other = scratch.write("other.pem", pem(&Item::PrivateKey(other.der().to_vec())));
        let garbage = pem(&Item::Certificate(vec![0x30, 0x01, 0x00]));
        let signed = keys::request(&ours, &["r1.example".to_owned()]).expect("made");
        let signed = authority.sign(&signed, Validity::days(1)).expect("made");
        let leaf = scratch.write("leaf.der", &signed);
        assert_eq!(certificates(&leaf), Ok(vec![signed]));
        let ca = scratch.write("ca.der", authority.certificate());
        assert_eq!(authorities(&ca), Ok(vec![authority.certificate().to_vec()]));
        assert_eq!(authorities(&both).map(|found| found.len()), Ok(2), "it has signed itself");

        let locked = private.replace("BEGIN ", "BEGIN ENCRYPTED ").replace("END ", "END ENCRYPTED ");
        let locked_ec = "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\n\
                         AAAA\n-----END EC PRIVATE KEY-----\n";
        let with_mark = scratch.write("mark.pem", format!("\u{feff}{}", certificate.replace('\n', "\r\n")));
        assert_eq!(certificates(&with_mark), Ok(vec![der.clone()]), "as some editors save it");
        // PFX begins with version 3 (RFC 7292 section 4).
        let bundle = [0x30, 0x06, 0x02, 0x01, 0x03, 0x30, 0x01, 0x00];
        let faults = [
            (
                authorities(&leaf).expect_err("a router's"),
                "CN=r1.example is no authority's: take that of CN=CA,",
            ),
            (
                private_key(&scratch.write("locked.pem", &locked), &[]).expect_err("locked"),
                "a password protects",
            ),
            (
                private_key(&scratch.write("old.pem", locked_ec), &[]).expect_err("locked"),
                "a password protects",
            ),
            (
                private_key(&scratch.write("all.pem", format!("{certificate}{locked}")), &[])
                    .expect_err("locked"),
                "a password protects",
            ),
            (
                private_key(&scratch.write("a.p12", bundle), &[]).expect_err("PKCS#12"),
                "neither a certificate nor",
            ),
            (
                certificates(&scratch.write("cut.pem", &certificate[..200])).expect_err("cut"),
                "this PEM is damaged: it has no line `-----END CERTIFICATE-----`",
            ),
            (private_key(&other, &[der]).expect_err("of nobody"), "does not belong to our certificate"),
            (private_key(&list_file, &[]).expect_err("no key"), "there is no private key in it"),
            (certificates(&other).expect_err("a key"), "there is no certificate in it"),
            (certificates(&scratch.write("empty", "")).expect_err("empty"), "neither a certificate nor"),
            (certificates(&scratch.write("bad", garbage)).expect_err("bad"), "that cannot be read"),
            (certificates(&scratch.0.join("gone")).expect_err("gone"), "No such file"),
            (certificates(Path::new("/dev/zero")).expect_err("endless"), "no regular file"),
            (revocations(&both).expect_err("certificates"), "there is no revocation list in it"),
        ];
        for (error, expected) in faults {
            assert!(error.contains(expected), "{error}");
        }
    }
}
