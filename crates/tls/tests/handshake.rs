//! Two routers meet: a dialer and an acceptor over octets in memory, and what the operator of each reads.

use std::{slice, sync::Arc};

use holdfast_tls::{
    ALPN_QUIC, ALPN_TLS, Finding, Identity, PeerTls, TlsError, Trust, explain, fingerprint_words,
    keys::{Algorithm, Authority, PrivateKey, Validity, request, self_signed},
    rustls::{
        ClientConnection, Connection, Error, NamedGroup, ProtocolVersion, ServerConfig, ServerConnection,
        crypto::{SupportedKxGroup, aws_lc_rs::default_provider},
        pki_types::{CertificateDer, PrivateKeyDer},
        sign::{CertifiedKey, SingleCertAndKey},
    },
};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair,
};
use x509_parser::time::ASN1Time;

const BY_ALERT_UNKNOWN: &str =
    "the peer refuses our certificate: the peer's log says why (alert certificate_unknown)";

fn authority(name: &str) -> Authority {
    let key = PrivateKey::generate(Algorithm::P256).expect("a key");
    Authority::new(name, key, Validity::days(1)).expect("an authority")
}

/// The key of a router, its certificate, and both as it shows them.
struct Router {
    key: PrivateKey,
    certificate: Vec<u8>,
    identity: Identity,
}

impl Router {
    fn of(authority: &Authority, name: &str) -> Self {
        Self::valid(authority, name, Validity::days(1))
    }

    fn valid(authority: &Authority, name: &str, validity: Validity) -> Self {
        let key = PrivateKey::generate(Algorithm::P256).expect("a key");
        let request = request(&key, &[name.to_owned()]).expect("a request");
        let certificate = authority.sign(&request, validity).expect("a certificate");
        Self::with(key, certificate)
    }

    fn by_itself(name: &str, validity: Validity) -> Self {
        let key = PrivateKey::generate(Algorithm::Ed25519).expect("a key");
        let certificate = self_signed(&key, &[name.to_owned()], validity).expect("a certificate");
        Self::with(key, certificate)
    }

    fn with(key: PrivateKey, certificate: Vec<u8>) -> Self {
        let identity = Identity::new(slice::from_ref(&certificate), key.der()).expect("both belong together");
        Self { key, certificate, identity }
    }

    /// What this router has for a peer.
    fn expects(&self, trust: &Trust) -> PeerTls {
        PeerTls::new(&self.identity, trust, None).expect("a configuration")
    }

    fn words(&self) -> String {
        fingerprint_words(&self.identity.fingerprint())
    }
}

fn trusts(authority: &Authority, name: &str) -> Trust {
    Trust { authorities: vec![authority.certificate().to_vec()], name: name.to_owned(), ..Trust::default() }
}

fn pins(router: &Router) -> Trust {
    Trust { pins: vec![router.identity.fingerprint()], ..Trust::default() }
}

/// Both show and expect bare keys.
fn bare(peer: &Router) -> Trust {
    Trust { raw_public_key: true, present_raw_public_key: true, ..pins(peer) }
}

/// How a handshake has ended for one side: what has proven the peer, or why there is no connection.
type End = Result<String, String>;

fn refused(why: &str) -> End {
    Err(why.to_owned())
}

/// How it ends for the dialer and for the acceptor.
fn meet(dials: &PeerTls, accepts: &PeerTls) -> (End, End) {
    let (client, server) = between(dials, ALPN_QUIC, accepts.server(ALPN_QUIC));
    (end(&client, dials), end(&server, accepts))
}

/// A connection with the error it has ended with, if it has.
struct Side(Connection, Option<Error>);

fn between(dials: &PeerTls, alpn: &[u8], accepts: Arc<ServerConfig>) -> (Side, Side) {
    let client = ClientConnection::new(dials.client(alpn), dials.server_name()).expect("a client");
    let server = ServerConnection::new(accepts).expect("a server");
    let (mut client, mut server) = (Side(client.into(), None), Side(server.into(), None));
    while carry(&mut client, &mut server) | carry(&mut server, &mut client) {}
    (client, server)
}

/// Takes what one side has written to the other; whether it has written anything.
fn carry(from: &mut Side, to: &mut Side) -> bool {
    let mut octets = Vec::new();
    while from.0.wants_write() {
        from.0.write_tls(&mut octets).expect("memory takes all");
    }
    let mut rest = octets.as_slice();
    while !rest.is_empty() && to.1.is_none() {
        to.0.read_tls(&mut rest).expect("memory gives all");
        to.1 = to.0.process_new_packets().err();
    }
    !octets.is_empty()
}

fn end(side: &Side, tls: &PeerTls) -> End {
    match &side.1 {
        Some(error) => Err(explain(error)),
        None if side.0.is_handshaking() => refused("the handshake does not end"),
        None => Ok(tls.proof(side.0.peer_certificates().expect("the peer has shown something"))),
    }
}

#[test]
fn two_routers_of_one_authority_prove_their_names_to_each_other() {
    let lab = authority("Lab CA");
    let (one, two) = (Router::of(&lab, "r1.example"), Router::of(&lab, "192.0.2.2"));
    let (dials, accepts) =
        (one.expects(&trusts(&lab, "192.0.2.2")), two.expects(&trusts(&lab, "r1.example")));
    let (client, server) = between(&dials, ALPN_TLS, accepts.server(ALPN_TLS));
    let proof = |name: &str, router: &Router| {
        Ok(format!("certificate CN={name}, issued by CN=Lab CA, SHA-256 of its key {}", router.words()))
    };
    assert_eq!(end(&client, &dials), proof("192.0.2.2", &two));
    assert_eq!(end(&server, &accepts), proof("r1.example", &one));
    for Side(side, _) in [&client, &server] {
        assert_eq!(side.protocol_version(), Some(ProtocolVersion::TLSv1_3));
        assert_eq!(side.alpn_protocol(), Some(ALPN_TLS));
        let group = side.negotiated_key_exchange_group().map(<dyn SupportedKxGroup>::name);
        assert_eq!(group, Some(NamedGroup::X25519));
    }
}

#[test]
fn there_is_nothing_to_resume_and_no_early_data() {
    let lab = authority("Lab CA");
    let one = Router::of(&lab, "r1.example");
    let tls = one.expects(&trusts(&lab, ""));
    let (client, server) = (tls.client(ALPN_TLS), tls.server(ALPN_TLS));
    assert_eq!((server.send_tls13_tickets, server.max_early_data_size), (0, 0));
    assert!(!client.enable_early_data && !server.session_storage.can_cache());
}

#[test]
fn an_authority_without_a_name_vouches_for_all_that_it_has_signed() {
    let lab = authority("Lab CA");
    let (one, two) = (Router::of(&lab, "r1.example"), Router::of(&lab, "r2.example"));
    let (dialer, acceptor) = meet(&one.expects(&trusts(&lab, "")), &two.expects(&trusts(&lab, "")));
    assert!(dialer.is_ok() && acceptor.is_ok(), "{dialer:?} {acceptor:?}");
}

#[test]
fn another_authority_is_refused_with_its_name() {
    let (lab, other) = (authority("Lab CA"), authority("Other CA"));
    let (one, two) = (Router::of(&lab, "r1.example"), Router::of(&other, "r2.example"));
    let why =
        "its certificate, CN=r2.example, is signed by CN=Other CA, which is none of the peer's authorities";
    let (dials, accepts) = (one.expects(&trusts(&lab, "r2.example")), two.expects(&trusts(&lab, "")));
    assert_eq!(meet(&dials, &accepts), (refused(why), refused(BY_ALERT_UNKNOWN)));
    assert_eq!(meet(&accepts, &dials), (refused(BY_ALERT_UNKNOWN), refused(why)));
}

#[test]
fn an_authority_of_the_same_name_with_another_key_is_refused() {
    let (lab, other) = (authority("Lab CA"), authority("Lab CA"));
    let (one, two) = (Router::of(&lab, "r1.example"), Router::of(&other, "r2.example"));
    let why = "its certificate, CN=r2.example, names CN=Lab CA as its authority, but is not signed with the key of \
               that authority as it is known here";
    let (dials, accepts) = (one.expects(&trusts(&lab, "r2.example")), two.expects(&trusts(&lab, "")));
    assert_eq!(meet(&dials, &accepts), (refused(why), refused(BY_ALERT_UNKNOWN)));
}

#[test]
fn a_certificate_by_itself_is_an_authority_where_it_is_configured_as_one_only() {
    let (one, two) = (
        Router::by_itself("r1.example", Validity::days(1)),
        Router::by_itself("r2.example", Validity::days(1)),
    );
    let of = |router: &Router| Trust { authorities: vec![router.certificate.clone()], ..Trust::default() };
    let (dialer, acceptor) = meet(&one.expects(&of(&two)), &two.expects(&of(&one)));
    assert!(dialer.is_ok() && acceptor.is_ok(), "{dialer:?} {acceptor:?}");
    let why = "its certificate, CN=r2.example, is signed by nobody but itself, and it is none of the peer's authorities";
    assert_eq!(meet(&one.expects(&of(&one)), &two.expects(&of(&one))).0, refused(why));
}

#[test]
fn the_right_authority_with_another_name_is_refused_on_either_side() {
    let lab = authority("Lab CA");
    let (one, three) = (Router::of(&lab, "r1.example"), Router::of(&lab, "r3.example"));
    let why = "its certificate is for r3.example, not for r2.example";
    let alert = "the peer refuses our certificate: it is not for the name that the peer expects, or unreadable \
                 (alert bad_certificate)";
    let (expects, shows) = (one.expects(&trusts(&lab, "r2.example")), three.expects(&trusts(&lab, "")));
    assert_eq!(meet(&expects, &shows), (refused(why), refused(alert)));
    assert_eq!(meet(&shows, &expects), (refused(alert), refused(why)));
}

#[test]
fn an_expired_certificate_is_refused_with_its_last_day() {
    let lab = authority("Lab CA");
    let one = Router::of(&lab, "r1.example");
    let two = Router::valid(&lab, "r2.example", Validity { from: 0, until: 86_400 });
    let why = "its certificate has expired: it was valid until 1970-01-02 00:00:00 UTC";
    let alert = "the peer refuses our certificate: it has expired, or is not valid yet by the peer's clock \
                 (alert certificate_expired)";
    let (expects, shows) = (one.expects(&trusts(&lab, "r2.example")), two.expects(&trusts(&lab, "")));
    assert_eq!(meet(&expects, &shows), (refused(why), refused(alert)));
    assert_eq!(meet(&shows, &expects), (refused(alert), refused(why)));
}

#[test]
fn a_certificate_of_tomorrow_is_refused_with_its_first_day() {
    let lab = authority("Lab CA");
    let one = Router::of(&lab, "r1.example");
    // The year 2100, and a day more.
    let two = Router::valid(&lab, "r2.example", Validity { from: 4_102_444_800, until: 4_102_531_200 });
    let (dialer, _) = meet(&one.expects(&trusts(&lab, "r2.example")), &two.expects(&trusts(&lab, "")));
    let why = dialer.expect_err("it is not valid yet");
    let begins =
        "its certificate is not valid yet: it will be from 2100-01-01 00:00:00 UTC, and here it is 20";
    assert!(why.starts_with(begins), "{why}");
}

#[test]
fn a_revoked_certificate_is_refused_and_the_newest_list_counts() {
    let lab = authority("Lab CA");
    let (one, two) = (Router::of(&lab, "r1.example"), Router::of(&lab, "r2.example"));
    let three = Router::of(&lab, "r3.example");
    let old = lab.revoke(None, &three.certificate, Validity { from: 1, until: 2 }).expect("a list");
    let new = lab.revoke(Some(&old), &two.certificate, Validity::days(1)).expect("a list");
    let shows = two.expects(&trusts(&lab, ""));
    let expects = |lists: &[&Vec<u8>]| {
        let revocations = lists.iter().map(|list| (*list).clone()).collect();
        one.expects(&Trust { revocations, ..trusts(&lab, "r2.example") })
    };
    let why = "its certificate is revoked by its authority";
    let alert = "the peer refuses our certificate: it is revoked (alert certificate_revoked)";
    for lists in [vec![&new], vec![&old, &new], vec![&new, &old]] {
        assert_eq!(meet(&expects(&lists), &shows), (refused(why), refused(alert)));
        assert_eq!(meet(&shows, &expects(&lists)), (refused(alert), refused(why)));
    }
    assert!(
        meet(&expects(&[&old]), &shows).0.is_ok(),
        "the old list does not have it, though it is past its end"
    );
}

#[test]
fn a_revocation_list_by_somebody_else_is_nobodys_fault_but_the_list_s() {
    let (lab, other) = (authority("Lab CA"), authority("Lab CA"));
    let (one, two) = (Router::of(&lab, "r1.example"), Router::of(&lab, "r2.example"));
    let three = Router::of(&other, "r3.example");
    let list = other.revoke(None, &three.certificate, Validity::days(1)).expect("a list");
    let expects = one.expects(&Trust { revocations: vec![list], ..trusts(&lab, "r2.example") });
    let why = "the revocation list of CN=Lab CA is not signed by it: ask that authority for its list";
    assert_eq!(meet(&expects, &two.expects(&trusts(&lab, ""))).0, refused(why));
}

#[test]
fn a_pinned_key_proves_a_router_without_any_authority_and_after_expiry() {
    let one = Router::by_itself("r1.example", Validity::days(1));
    let two = Router::by_itself("r2.example", Validity { from: 0, until: 1 });
    let (dialer, acceptor) = meet(&one.expects(&pins(&two)), &two.expects(&pins(&one)));
    let proof =
        format!("certificate CN=r2.example, issued by CN=r2.example, SHA-256 of its key {}", two.words());
    assert_eq!(dialer, Ok(proof));
    assert!(acceptor.is_ok(), "{acceptor:?}");
}

#[test]
fn a_key_that_has_changed_is_refused_though_its_authority_vouches_for_it() {
    let lab = authority("Lab CA");
    let one = Router::of(&lab, "r1.example");
    let (before, after) = (Router::of(&lab, "r2.example"), Router::of(&lab, "r2.example"));
    let trust = Trust { pins: pins(&before).pins, ..trusts(&lab, "r2.example") };
    let (expects, shows) = (one.expects(&trust), after.expects(&trusts(&lab, "")));
    let why = format!(
        "its key is not the pinned one: expected SHA-256 {}, got {} (certificate CN=r2.example)",
        before.words(),
        after.words()
    );
    assert_eq!(meet(&expects, &shows), (refused(&why), refused(BY_ALERT_UNKNOWN)));
    assert_eq!(meet(&shows, &expects), (refused(BY_ALERT_UNKNOWN), refused(&why)));
    let both = Trust { pins: vec![before.identity.fingerprint(), after.identity.fingerprint()], ..trust };
    assert!(meet(&one.expects(&both), &shows).0.is_ok(), "while a key changes, both are pinned");
}

#[test]
fn bare_keys_prove_both_sides_where_they_are_pinned() {
    let (one, two) = (
        Router::by_itself("r1.example", Validity::days(1)),
        Router::by_itself("r2.example", Validity::days(1)),
    );
    let (dialer, acceptor) = meet(&one.expects(&bare(&two)), &two.expects(&bare(&one)));
    assert_eq!(dialer, Ok(format!("public key, SHA-256 {}", two.words())));
    assert_eq!(acceptor, Ok(format!("public key, SHA-256 {}", one.words())));

    let three = Router::by_itself("r3.example", Validity::days(1));
    let why = format!(
        "its key is not the pinned one: expected SHA-256 {}, got {} (public key)",
        two.words(),
        three.words()
    );
    let (expects, shows) = (one.expects(&bare(&two)), three.expects(&bare(&one)));
    assert_eq!(meet(&expects, &shows), (refused(&why), refused(BY_ALERT_UNKNOWN)));
    assert_eq!(meet(&shows, &expects), (refused(BY_ALERT_UNKNOWN), refused(&why)));
}

#[test]
fn a_bare_key_without_a_certificate_is_enough_for_a_router_that_shows_no_other() {
    let key = PrivateKey::generate(Algorithm::P256).expect("a key");
    let identity = Identity::new(&[], key.der()).expect("a key alone");
    let two = Router::by_itself("r2.example", Validity::days(1));
    let one = PeerTls::new(&identity, &bare(&two), None).expect("a configuration");
    let pinned = Trust { pins: vec![key.fingerprint()], ..bare(&two) };
    assert!(meet(&one, &two.expects(&pinned)).1.is_ok());
    let fault = PeerTls::new(&identity, &pins(&two), None).expect_err("it would have to show a certificate");
    assert_eq!(fault, TlsError::NoCertificate);
}

#[test]
fn a_certificate_where_a_bare_key_is_expected_is_told_from_a_wrong_key() {
    let (one, two) = (
        Router::by_itself("r1.example", Validity::days(1)),
        Router::by_itself("r2.example", Validity::days(1)),
    );
    let why =
        "one side shows a bare key (RFC 7250) where the other expects a certificate, or the other way round";
    let alert = "the peer finds no way to talk to us (alert handshake_failure): perhaps one side shows a bare key \
                 where the other expects a certificate";
    let (bare, certified) = (one.expects(&bare(&two)), two.expects(&pins(&one)));
    // It is the acceptor who sees what both offer.
    assert_eq!(meet(&bare, &certified), (refused(alert), refused(why)));
    assert_eq!(meet(&certified, &bare), (refused(alert), refused(why)));
}

#[test]
fn one_may_show_a_bare_key_and_the_other_a_certificate() {
    let (one, two) = (
        Router::by_itself("r1.example", Validity::days(1)),
        Router::by_itself("r2.example", Validity::days(1)),
    );
    let one_has = one.expects(&Trust { present_raw_public_key: true, ..pins(&two) });
    let two_has = two.expects(&Trust { raw_public_key: true, ..pins(&one) });
    for (dials, accepts) in [(&one_has, &two_has), (&two_has, &one_has)] {
        let (dialer, acceptor) = meet(dials, accepts);
        assert!(dialer.is_ok() && acceptor.is_ok(), "{dialer:?} {acceptor:?}");
    }
}

#[test]
fn a_protocol_that_the_other_does_not_speak_is_said_on_both_sides() {
    let lab = authority("Lab CA");
    let (one, two) = (Router::of(&lab, "r1.example"), Router::of(&lab, "r2.example"));
    let (dials, accepts) = (one.expects(&trusts(&lab, "")), two.expects(&trusts(&lab, "")));
    let (client, server) = between(&dials, ALPN_QUIC, accepts.server(ALPN_TLS));
    let alert = "it speaks none of the protocols that we offer (alert no_application_protocol)";
    assert_eq!(end(&client, &dials), refused(alert));
    assert_eq!(
        end(&server, &accepts),
        refused("it speaks none of the protocols that are spoken here (ALPN)")
    );
}

#[test]
fn who_shows_a_pinned_certificate_without_its_key_is_refused() {
    let (one, two) = (
        Router::by_itself("r1.example", Validity::days(1)),
        Router::by_itself("r2.example", Validity::days(1)),
    );
    let thief = PrivateKey::generate(Algorithm::Ed25519).expect("a key");
    let fault = Identity::new(slice::from_ref(&two.certificate), thief.der()).expect_err("of two pairs");
    assert_eq!(fault, TlsError::Mismatch);

    // Ours would not show that, another program may.
    let provider = Arc::new(default_provider());
    let key = PrivateKeyDer::try_from(thief.der().to_vec()).expect("a key");
    let key = provider.key_provider.load_private_key(key).expect("a key");
    let shown = CertifiedKey::new(vec![CertificateDer::from(two.certificate.clone())], key);
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(shown)));
    server.alpn_protocols = vec![ALPN_TLS.to_vec()];
    let expects = one.expects(&pins(&two));
    let (client, _) = between(&expects, ALPN_TLS, Arc::new(server));
    assert_eq!(end(&client, &expects), refused("it does not have the private key of what it shows"));
    // The key of the thief is good, it is only not that of the certificate.
    assert_ne!(thief.fingerprint(), two.key.fingerprint());
}

#[test]
fn a_certificate_that_is_an_authority_s_is_not_a_router_s() {
    let lab = authority("Lab CA");
    let one = Router::of(&lab, "r1.example");
    let key = PrivateKey::generate(Algorithm::P256).expect("a key");
    let der = key.der().to_vec();
    let itself = Authority::new("Lab CA 2", key, Validity::days(1)).expect("an authority");
    let two = Identity::new(&[itself.certificate().to_vec()], &der).expect("both belong together");
    let accepts = PeerTls::new(&two, &trusts(&lab, ""), None).expect("a configuration");
    let why = "its certificate, CN=Lab CA 2, cannot be used: it is that of an authority, not of a router";
    assert_eq!(meet(&one.expects(&trusts(&itself, "")), &accepts).0, refused(why));
}

#[test]
fn what_proves_nothing_is_no_configuration() {
    let one = Router::by_itself("r1.example", Validity::days(1));
    let fault = |trust: Trust| PeerTls::new(&one.identity, &trust, None).expect_err("is refused");
    let own = || vec![one.certificate.clone()];
    assert_eq!(fault(Trust::default()), TlsError::NothingTrusted);
    assert_eq!(fault(Trust { raw_public_key: true, ..Trust::default() }), TlsError::NothingPinned);
    assert_eq!(
        fault(Trust { raw_public_key: true, authorities: own(), ..Trust::default() }),
        TlsError::NothingPinned
    );
    let name = "r2 example".to_owned();
    assert_eq!(
        fault(Trust { authorities: own(), name: name.clone(), ..Trust::default() }),
        TlsError::Name(name)
    );
    let der = "it is no certificate (DER)".to_owned();
    let second = vec![one.certificate.clone(), vec![1, 2, 3]];
    assert_eq!(fault(Trust { authorities: second, ..Trust::default() }), TlsError::Authority(2, der));
    let list = "it is no revocation list (DER)".to_owned();
    let revocations = vec![one.certificate.clone()];
    assert_eq!(
        fault(Trust { authorities: own(), revocations, ..Trust::default() }),
        TlsError::Revocations(1, list)
    );
}

#[test]
fn either_side_of_tls_is_purpose_enough_for_both() {
    let key = PrivateKey::generate(Algorithm::P256).expect("a key");
    let der = key.der().to_vec();
    let lab = Authority::new("Lab CA", key, Validity::days(1)).expect("an authority");
    let issuer = KeyPair::try_from(der).expect("a key");
    let issuer =
        Issuer::from_ca_cert_der(&CertificateDer::from(lab.certificate()), issuer).expect("an authority");
    let of = |purpose: ExtendedKeyUsagePurpose| {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(["r2.example".to_owned()]).expect("a name");
        params.extended_key_usages = vec![purpose];
        let certificate = params.signed_by(&key, &issuer).expect("a certificate").der().to_vec();
        let identity = Identity::new(&[certificate], &key.serialize_der()).expect("both belong together");
        PeerTls::new(&identity, &trusts(&lab, ""), None).expect("a configuration")
    };
    let expects = Router::of(&lab, "r1.example").expects(&trusts(&lab, "r2.example"));
    for purpose in [ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth] {
        let shows = of(purpose);
        assert!(meet(&expects, &shows).0.is_ok() && meet(&shows, &expects).1.is_ok());
    }
    let why =
        "its certificate, CN=rcgen self signed cert, cannot be used: it may be used for neither side of TLS";
    let shows = of(ExtendedKeyUsagePurpose::EmailProtection);
    assert_eq!((meet(&expects, &shows).0, meet(&shows, &expects).1), (refused(why), refused(why)));
}

/// A router whose certificate leads to an authority over another one, which is valid as long as it is said.
fn by_way_of(lab: &Authority, key: &[u8], between: Validity) -> Identity {
    let key = KeyPair::try_from(key).expect("a key");
    let issuer =
        Issuer::from_ca_cert_der(&CertificateDer::from(lab.certificate()), key).expect("an authority");
    let at = |seconds| ASN1Time::from_timestamp(seconds).expect("a date").to_datetime();
    let (key, name) = (PrivateKey::generate(Algorithm::P256).expect("a key"), "Site CA");
    let der = key.der().to_vec();
    let site = Authority::new(name, key, Validity::days(1)).expect("an authority");
    let mut params = CertificateParams::new(Vec::<String>::new()).expect("no name");
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    (params.not_before, params.not_after) = (at(between.from), at(between.until));
    let key = KeyPair::try_from(der).expect("a key");
    let between = params.signed_by(&key, &issuer).expect("a certificate").der().to_vec();
    let router = Router::of(&site, "r2.example");
    Identity::new(&[router.certificate, between], router.key.der()).expect("they belong together")
}

#[test]
fn an_authority_between_counts_with_all_that_is_wrong_with_it() {
    let key = PrivateKey::generate(Algorithm::P256).expect("a key");
    let der = key.der().to_vec();
    let (lab, other) =
        (Authority::new("Lab CA", key, Validity::days(1)).expect("one"), authority("Other CA"));
    let one = Router::of(&lab, "r1.example");
    let met = |validity: Validity, trust: Trust| {
        let two = PeerTls::new(&by_way_of(&lab, &der, validity), &trusts(&lab, ""), None);
        meet(&one.expects(&trust), &two.expect("a configuration")).0
    };
    let good = met(Validity::days(1), trusts(&lab, "r2.example"));
    assert!(good.as_ref().is_ok_and(|proof| proof.contains("issued by CN=Site CA,")), "{good:?}");
    let why = "its certificate, CN=r2.example, cannot be used: one that has signed it has expired, or is not valid yet";
    assert_eq!(met(Validity { from: 0, until: 1 }, trusts(&lab, "")), refused(why));
    let why =
        "its certificate, CN=r2.example, is signed by CN=Lab CA, which is none of the peer's authorities";
    assert_eq!(met(Validity::days(1), trusts(&other, "")), refused(why));
}

#[test]
fn what_is_found_wrong_is_kept_for_who_sees_an_alert_only() {
    let lab = authority("Lab CA");
    let (one, two) = (Router::of(&lab, "r1.example"), Router::of(&lab, "r2.example"));
    let dials = one.expects(&trusts(&lab, ""));
    let found = |name: &str| {
        let finding = Finding::default();
        let accepts = two.expects(&trusts(&lab, name)).server_finding(ALPN_QUIC, &finding);
        assert_eq!((accepts.send_tls13_tickets, accepts.max_early_data_size), (0, 0));
        between(&dials, ALPN_QUIC, accepts);
        finding.get().map(explain)
    };
    assert_eq!(found("r1.example"), None);
    let why = "its certificate is for r1.example, not for r3.example";
    assert_eq!(found("r3.example").as_deref(), Some(why));
}

#[test]
fn debug_shows_no_secret() {
    let one = Router::by_itself("r1.example", Validity::days(1));
    let shown = format!("{:?} {:?} {:?}", one.identity, one.key, one.expects(&pins(&one)));
    let key: Vec<_> = one.key.der().iter().map(ToString::to_string).collect();
    assert!(!shown.contains(&key[16..24].join(", ")), "{shown}");
    assert!(shown.contains(&one.words()), "{shown}");
}
