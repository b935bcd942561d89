//! Keys, certificates, requests and revocation lists: what is made can be read, and is what it says.

use holdfast_tls::{
    fingerprint, fingerprint_words,
    keys::{
        Algorithm, Authority, Item, KeysError, PrivateKey, Validity, certificates, describe, pem,
        private_key, read, request, revocations, self_signed,
    },
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, KeyUsagePurpose};

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn key() -> PrivateKey {
    PrivateKey::generate(Algorithm::P256).expect("a key")
}

fn authority(name: &str) -> Authority {
    Authority::new(name, key(), Validity::days(1)).expect("an authority")
}

#[test]
fn what_is_made_can_be_read_as_pem_and_as_der() {
    let (lab, key) = (authority("Lab CA"), key());
    let request = request(&key, &names(&["r1.example"])).expect("a request");
    let certificate = lab.sign(&request, Validity::days(1)).expect("a certificate");
    let list = lab.revoke(None, &certificate, Validity::days(1)).expect("a list");
    let items = [
        Item::Certificate(certificate),
        Item::PrivateKey(key.der().to_vec()),
        Item::PublicKey(key.public_key()),
        Item::Request(request),
        Item::Revocations(list),
    ];
    for item in &items {
        let text = pem(item);
        assert!(
            text.starts_with("-----BEGIN ") && text.ends_with("-----\n") && !text.contains('\r'),
            "{text}"
        );
        assert!(read(text.as_bytes()).expect("is PEM") == std::slice::from_ref(item), "{text}");
        assert!(read(item.der()).expect("is DER") == std::slice::from_ref(item), "{text}");
    }
    let bundle = format!("the words of somebody\n{}", items.iter().map(pem).collect::<String>());
    assert!(read(bundle.as_bytes()).expect("is PEM") == items);
    assert_eq!(certificates(bundle.as_bytes()).expect("has one").len(), 1);
    assert_eq!(private_key(bundle.as_bytes()).expect("has one"), key.der());
    assert_eq!(revocations(bundle.as_bytes()).expect("has one").len(), 1);
}

#[test]
fn what_is_something_else_is_said() {
    let said = |error: KeysError| error.to_string();
    let text = pem(&Item::PublicKey(key().public_key()));
    assert_eq!(
        said(private_key(text.as_bytes()).expect_err("a public one")),
        "there is no private key in it"
    );
    assert_eq!(
        said(read(b"[bgp]\nlocal-as = 1\n").expect_err("no key")),
        "this is neither a certificate nor a key, a request or a revocation list (PEM or DER)"
    );
    assert_eq!(said(read(b"").expect_err("no key")), said(KeysError::Unreadable));
    let cut = &text[..text.len() - 30];
    assert!(said(read(cut.as_bytes()).expect_err("no end")).starts_with("this PEM is damaged: "));
    assert!(
        said(
            read(b"-----BEGIN DH PARAMETERS-----\nAA==\n-----END DH PARAMETERS-----\n").expect_err("unknown")
        )
        .starts_with("this is neither")
    );
}

#[test]
fn key_request_and_certificate_have_one_fingerprint() {
    for algorithm in [Algorithm::P256, Algorithm::Ed25519] {
        let key = PrivateKey::generate(algorithm).expect("a key");
        let request = request(&key, &names(&["r1.example"])).expect("a request");
        let certificate =
            self_signed(&key, &names(&["r1.example"]), Validity::days(1)).expect("a certificate");
        let again = PrivateKey::read(key.der()).expect("a key");
        for item in [
            Item::PrivateKey(key.der().to_vec()),
            Item::PublicKey(again.public_key()),
            Item::Request(request),
            Item::Certificate(certificate),
        ] {
            let description = describe(&item).expect("is readable");
            assert_eq!(description.fingerprint, Some(fingerprint(&key.public_key())), "{description:?}");
            let expected = if algorithm == Algorithm::P256 { "P-256" } else { "Ed25519" };
            assert_eq!(description.algorithm.as_deref(), Some(expected));
        }
        assert_eq!(fingerprint_words(&key.fingerprint()).len(), 95);
    }
}

#[test]
fn a_certificate_is_described_with_its_names_and_who_has_signed_it() {
    let lab = authority("Lab CA");
    let request = request(&key(), &names(&["r1.example", "192.0.2.1", "2001:db8::1"])).expect("a request");
    let certificate =
        lab.sign(&request, Validity { from: 1_000_000_000, until: 2_000_000_000 }).expect("signed");
    let description = describe(&Item::Certificate(certificate)).expect("is readable");
    assert_eq!(description.kind, "certificate");
    assert_eq!(description.subject.as_deref(), Some("CN=r1.example"));
    assert_eq!(description.names, ["r1.example", "192.0.2.1", "2001:db8::1"]);
    assert_eq!(description.issuer.as_deref(), Some("CN=Lab CA"));
    assert_eq!((description.not_before, description.not_after), (Some(1_000_000_000), Some(2_000_000_000)));
    assert_eq!(description.serial.map(|serial| serial.len()), Some(16 * 3 - 1));
    let itself = describe(&Item::Certificate(lab.certificate().to_vec())).expect("is readable");
    assert_eq!((itself.kind, itself.issuer), ("certificate of an authority", itself.subject));
}

#[test]
fn names_that_no_certificate_can_have_are_refused() {
    for name in ["", "r1 example", "-", "r1..example"] {
        let fault = request(&key(), &names(&[name])).expect_err(name);
        assert_eq!(fault.to_string(), format!("`{name}` is neither a DNS name nor an IP address"));
    }
    let fault = self_signed(&key(), &[], Validity::days(1)).expect_err("no name");
    assert!(matches!(fault, KeysError::Nameless));
}

#[test]
fn an_authority_grants_names_and_no_more() {
    let lab = authority("Lab CA");
    let greedy = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(names(&["r1.example"])).expect("names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let request = params.serialize_request(&greedy).expect("a request").der().to_vec();
    let certificate = lab.sign(&request, Validity::days(1)).expect("signed");
    let description = describe(&Item::Certificate(certificate.clone())).expect("is readable");
    assert_eq!(
        (description.kind, description.names.as_slice()),
        ("certificate", &names(&["r1.example"])[..])
    );
    let key = PrivateKey::read(&greedy.serialize_der()).expect("a key");
    let fault = Authority::read(&certificate, key).expect_err("signs nobody");
    assert!(matches!(fault, KeysError::NotAnAuthority(_)), "{fault}");
}

/// By OpenSSL: a key of P-384, and a signature with SHA-256.
const FOREIGN: &str = "\
-----BEGIN CERTIFICATE REQUEST-----
MIIBTTCB1AIBADAnMRAwDgYDVQQKDAdFeGFtcGxlMRMwEQYDVQQDDApyOS5leGFt
cGxlMHYwEAYHKoZIzj0CAQYFK4EEACIDYgAEla12heoShFXGbKvkYJKO3QwfpCkE
IUilueexRWIQ52EJtXh2koqYxUKnx6x1A4sUPiSnd4oQ5p0oJ5CAA0q7BHubt04o
lAxWECyU8ToaA88VjcE4/YKCXjtFYq5RHmm5oC4wLAYJKoZIhvcNAQkOMR8wHTAb
BgNVHREEFDASggpyOS5leGFtcGxlhwTAAAIJMAoGCCqGSM49BAMCA2gAMGUCMAPs
xyEnAqw4P75LX4M65I8VC8+AnnB3fQPuRXyniNOyC6sZeFVag16TNOKTI39j0QIx
AP9XsX2rnyW/ILtya/eq/244gHzPSXoBkX/cqb16M9oDR8K1LcdHAXcqg7zbYYCD
+w==
-----END CERTIFICATE REQUEST-----
";

#[test]
fn a_request_of_another_tool_keeps_its_key_whatever_it_is_signed_with() {
    let lab = authority("Lab CA");
    let request = read(FOREIGN.as_bytes()).expect("a request").remove(0);
    let asked = describe(&request).expect("is readable");
    assert_eq!(asked.algorithm.as_deref(), Some("P-384"));
    let Item::Request(der) = request else { panic!("{request:?}") };
    let certificate = lab.sign(&der, Validity::days(1)).expect("signed");
    let granted = describe(&Item::Certificate(certificate)).expect("is readable");
    assert_eq!((granted.fingerprint, granted.algorithm), (asked.fingerprint, asked.algorithm));
    assert_eq!((granted.subject.as_deref(), granted.names), (Some("O=Example, CN=r9.example"), asked.names));
}

#[test]
fn a_request_that_somebody_has_changed_is_refused() {
    let mut request = request(&key(), &names(&["r1.example"])).expect("a request");
    let place = request.windows(10).rposition(|octets| octets == b"r1.example").expect("the name");
    request[place + 1] = b'2';
    let fault = authority("Lab CA").sign(&request, Validity::days(1)).expect_err("is not signed");
    assert!(matches!(fault, KeysError::RequestSignature), "{fault}");
    let fault = authority("Lab CA").sign(b"x", Validity::days(1)).expect_err("is none");
    assert_eq!(fault.to_string(), "there is no request in it");
}

#[test]
fn two_certificates_of_one_key_can_be_revoked_apart() {
    let lab = authority("Lab CA");
    let request = request(&key(), &names(&["r1.example"])).expect("a request");
    let [one, two] = [0, 1].map(|_| lab.sign(&request, Validity::days(1)).expect("signed"));
    let list = lab.revoke(None, &one, Validity::days(1)).expect("a list");
    let serial = |der: &Vec<u8>| describe(&Item::Certificate(der.clone())).expect("is readable").serial;
    let revoked = |list: &Vec<u8>| describe(&Item::Revocations(list.clone())).expect("is readable").revoked;
    assert_eq!(revoked(&list), Vec::from_iter(serial(&one)));
    let list = lab.revoke(Some(&list), &two, Validity::days(1)).expect("a list");
    assert_eq!(revoked(&list), serial(&one).into_iter().chain(serial(&two)).collect::<Vec<_>>());
    let fault = lab.revoke(Some(&list), &one, Validity::days(1)).expect_err("nothing changes");
    assert_eq!(fault.to_string(), "CN=r1.example is revoked already");
}

#[test]
fn only_who_has_signed_revokes() {
    let (lab, other) = (authority("Lab CA"), authority("Other CA"));
    let request = request(&key(), &names(&["r1.example"])).expect("a request");
    let certificate = lab.sign(&request, Validity::days(1)).expect("signed");
    let fault = other.revoke(None, &certificate, Validity::days(1)).expect_err("of another");
    assert_eq!(
        fault.to_string(),
        "CN=r1.example was signed by CN=Lab CA, not by CN=Other CA, which cannot revoke it"
    );
}

#[test]
fn an_authority_has_the_key_of_its_certificate() {
    let lab = authority("Lab CA");
    let fault = Authority::read(lab.certificate(), key()).expect_err("of two pairs");
    assert_eq!(fault.to_string(), "the key of CN=Lab CA does not belong to its certificate");
}
