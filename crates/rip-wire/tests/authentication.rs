//! Passwords and digests (RFC 2453 sections 4.1 and 5.2, RFC 4822).

use holdfast_rip_wire::{
    Algorithm, Authentication, BadKey, Command, Credentials, ENTRY, Entry, HEADER, Key, Malformed, Message,
    Metric, Password, Proof, Ripv2, Unauthentic, Writer,
};

use super::octets;

const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::KeyedMd5,
    Algorithm::HmacSha1,
    Algorithm::HmacSha256,
    Algorithm::HmacSha384,
    Algorithm::HmacSha512,
];

fn key(id: u8, algorithm: Algorithm, secret: &str) -> Key {
    Key::new(id, algorithm, secret.as_bytes()).expect("a key")
}

fn keys(keys: &[Key]) -> Credentials {
    Credentials::keys(keys.to_vec()).expect("keys")
}

fn password(text: &str) -> Credentials {
    Credentials::Password(Password::new(text.as_bytes()).expect("a password"))
}

/// One route, 192.0.2.0/24.
fn message(ours: Option<&Credentials>, sequence: u32) -> Vec<u8> {
    let mut writer = Writer::<Ripv2>::new(Command::Response, ours, 1500);
    let prefix = "192.0.2.0/24".parse().expect("a prefix");
    assert!(writer.push(&Entry { prefix, tag: 0, metric: Metric::ONE, next_hop: None }));
    writer.finish(sequence)
}

fn check(octets: &[u8], theirs: Option<&Credentials>) -> Result<Option<Proof>, Unauthentic> {
    let message = Message::<Ripv2>::read(octets).expect("a message");
    assert_eq!(message.entries().count(), 1);
    message.authenticate(theirs)
}

/// Digests made with Python's hashlib and hmac by the words of RFC 4822 sections 2.4 and 2.5.
#[test]
fn digests_are_as_other_programs_make_them() {
    let body = "0002 0000 c0000200 ffffff00 00000000 00000001 ffff 0001";
    for (algorithm, secret, length, digest) in VECTORS {
        let head = format!("02020000 ffff 0003 002c 05 {length:02x} 00000102 0000000000000000");
        let expected = octets(&format!("{head} {body} {digest}"));
        assert_eq!(message(Some(&keys(&[key(5, algorithm, secret)])), 0x102), expected, "{algorithm:?}");
    }
}

const VECTORS: [(Algorithm, &str, u8, &str); 7] = [
    (Algorithm::KeyedMd5, "secret", 16, "476fa0260e7342fa03e9ed00376a443b"),
    (Algorithm::KeyedMd5, "0123456789abcdef", 16, "0ac69572c737221352a99b5e8fa74d98"),
    (Algorithm::HmacSha1, "secret", 20, "f5a73e2a6bc072e20fe9d5441bc7d824b772be16"),
    (Algorithm::HmacSha1, "a secret of over twenty octets", 20, "525f31b160df9b2afac511e443b504399219dd60"),
    (Algorithm::HmacSha256, "secret", 32, "cf86773f9f79b3804cc6ad78b14c370a7d615f97fd013662a29a3bd37d6f24e0"),
    (
        Algorithm::HmacSha384,
        "secret",
        48,
        "80ad45a54d45a31dd737874bbebd137c9c2f0f66387d4f327136983450061623212a76b7bf78ab1c4a072e79a3a9f434",
    ),
    (
        Algorithm::HmacSha512,
        "secret",
        64,
        "c885eabf7d99cb167682043cfddab92a0b0480a524dbb2674aa34e1fe7dd0a15bf15e524a65151b585ca7116da04119eea8b3b5f9a3fd891f0bcd73693510d18",
    ),
];

#[test]
fn what_was_signed_is_authentic_and_tells_its_sequence_number() {
    for algorithm in ALGORITHMS {
        let ours = keys(&[key(5, algorithm, "secret")]);
        let octets = message(Some(&ours), 77);
        assert_eq!(octets.len(), HEADER + 2 * ENTRY + 4 + algorithm.length());
        assert_eq!(check(&octets, Some(&ours)), Ok(Some(Proof { key: 5, sequence: 77 })));
    }
}

#[test]
fn no_changed_octet_is_authentic() {
    for algorithm in ALGORITHMS {
        let ours = keys(&[key(5, algorithm, "secret")]);
        let right = message(Some(&ours), 77);
        for at in 0..right.len() {
            let mut octets = right.clone();
            octets[at] ^= 1;
            let authentic = Message::<Ripv2>::read(&octets)
                .is_ok_and(|message| message.authenticate(Some(&ours)).is_ok());
            assert!(!authentic, "{algorithm:?} {at}");
        }
    }
}

#[test]
fn a_message_is_held_to_what_the_interface_expects() {
    let sha = |id, secret| keys(&[key(id, Algorithm::HmacSha256, secret)]);
    for (ours, theirs, verdict) in [
        (None, None, Ok(None)),
        (None, Some(password("a")), Err(Unauthentic::Missing)),
        (None, Some(sha(1, "a")), Err(Unauthentic::Missing)),
        (Some(password("a")), None, Err(Unauthentic::Unexpected)),
        (Some(sha(1, "a")), None, Err(Unauthentic::Unexpected)),
        (Some(password("a")), Some(password("a")), Ok(None)),
        (Some(password("a")), Some(password("b")), Err(Unauthentic::Password)),
        (Some(password("a")), Some(sha(1, "a")), Err(Unauthentic::Type(2))),
        (Some(sha(1, "a")), Some(password("a")), Err(Unauthentic::Type(3))),
        (Some(sha(1, "a")), Some(sha(2, "a")), Err(Unauthentic::Key(1))),
        (Some(sha(1, "a")), Some(sha(1, "b")), Err(Unauthentic::Digest(1))),
        (Some(sha(1, "a")), Some(keys(&[key(1, Algorithm::HmacSha512, "a")])), Err(Unauthentic::Digest(1))),
    ] {
        assert_eq!(check(&message(ours.as_ref(), 0), theirs.as_ref()), verdict, "{ours:?} {theirs:?}");
    }
}

#[test]
fn a_type_that_is_not_known_is_told() {
    let mut octets = message(Some(&password("a")), 0);
    octets[HEADER + 3] = 9;
    assert_eq!(check(&octets, Some(&password("a"))), Err(Unauthentic::Type(9)));
    assert_eq!(check(&octets, None), Err(Unauthentic::Unexpected));
}

#[test]
fn a_password_is_padded_with_zeros() {
    let octets = message(Some(&password("secret")), 0);
    let message = Message::<Ripv2>::read(&octets).expect("a message");
    assert_eq!(message.authentication(), Authentication::Password(b"secret\0\0\0\0\0\0\0\0\0\0"));
}

#[test]
fn keys_roll_over_one_after_the_other() {
    let (old, new) = (key(1, Algorithm::KeyedMd5, "old"), key(2, Algorithm::HmacSha256, "new"));
    let both = keys(&[old.clone().using(false, true), new.clone()]);
    let (only_old, only_new) = (keys(std::slice::from_ref(&old)), keys(&[new]));
    assert_eq!(check(&message(Some(&only_old), 3), Some(&both)), Ok(Some(Proof { key: 1, sequence: 3 })));
    assert_eq!(check(&message(Some(&both), 4), Some(&only_new)), Ok(Some(Proof { key: 2, sequence: 4 })));
    let no_more = keys(&[old.using(true, false), key(3, Algorithm::HmacSha1, "other")]);
    assert_eq!(check(&message(Some(&only_old), 5), Some(&no_more)), Err(Unauthentic::Key(1)));
}

#[test]
fn keys_that_cannot_be_used_are_refused() {
    let one = key(1, Algorithm::HmacSha1, "a");
    assert_eq!(Credentials::keys(vec![one.clone(), one.clone()]).err(), Some(BadKey::Twice(1)));
    assert_eq!(Credentials::keys(vec![one.using(false, true)]).err(), Some(BadKey::NoneToSend));
    assert_eq!(Credentials::keys(vec![]).err(), Some(BadKey::NoneToSend));
    assert_eq!(Key::new(1, Algorithm::HmacSha1, b"").err(), Some(BadKey::Empty));
    assert_eq!(Key::new(1, Algorithm::KeyedMd5, &[1; 17]).err(), Some(BadKey::TooLong(17)));
    assert!(Key::new(1, Algorithm::HmacSha1, &[1; 1000]).is_ok());
    assert_eq!(Password::new(b"").err(), Some(BadKey::Empty));
    assert_eq!(Password::new(&[1; 17]).err(), Some(BadKey::TooLong(17)));
}

#[test]
fn an_authenticated_message_has_24_entries() {
    for ours in [password("a"), keys(&[key(1, Algorithm::HmacSha512, "a")])] {
        let mut writer = Writer::<Ripv2>::new(Command::Response, Some(&ours), 1500);
        let prefix = "192.0.2.0/24".parse().expect("a prefix");
        let entry = Entry { prefix, tag: 0, metric: Metric::ONE, next_hop: None };
        assert_eq!((0..99).take_while(|_| writer.push(&entry)).count(), 24);
        let octets = writer.finish(1);
        let message = Message::<Ripv2>::read(&octets).expect("a message");
        assert_eq!(message.entries().count(), 24);
        assert!(message.authenticate(Some(&ours)).is_ok());
    }
    let ours = password("a");
    let octets = Writer::<Ripv2>::whole_table(Some(&ours)).finish(0);
    assert!(Message::<Ripv2>::read(&octets).expect("a message").asks_for_everything());
}

/// What old routers send with MD5: the length of the digest counts the four octets before it.
#[test]
fn a_length_that_counts_the_whole_trailer_is_understood() {
    let ours = keys(&[key(5, Algorithm::KeyedMd5, "secret")]);
    let mut octets = message(Some(&ours), 1);
    octets[HEADER + 7] = 20;
    // Signed again, because the length is signed as well.
    let digest = octets.len() - 16;
    let mut padded = [0; 16];
    padded[..6].copy_from_slice(b"secret");
    let signed = md5::Digest::chain_update(<md5::Md5 as md5::Digest>::new(), &octets[..digest]);
    let signed = md5::Digest::finalize(md5::Digest::chain_update(signed, padded));
    octets[digest..].copy_from_slice(&signed);
    assert_eq!(check(&octets, Some(&ours)), Ok(Some(Proof { key: 5, sequence: 1 })));
}

#[test]
fn trailers_that_do_not_fit_are_refused() {
    let ours = keys(&[key(5, Algorithm::HmacSha256, "secret")]);
    let right = message(Some(&ours), 1);
    let refused = |octets: &[u8]| Message::<Ripv2>::read(octets).err();
    for length in HEADER + ENTRY..right.len() {
        assert_eq!(refused(&right[..length]), Some(Malformed::Trailer), "{length}");
    }
    assert_eq!(refused(&[&right[..], &[0]].concat()), Some(Malformed::Trailer));
    for (at, value) in [(HEADER + 4, 0xff), (HEADER + 5, 0), (HEADER + 5, 23), (HEADER + 7, 31)] {
        let mut octets = right.clone();
        octets[at] = value;
        assert_eq!(refused(&octets), Some(Malformed::Trailer), "{at} {value}");
    }
}

#[test]
fn secrets_are_not_printed() {
    let texts =
        [password("hunter2"), keys(&[key(1, Algorithm::KeyedMd5, "hunter2")])].map(|c| format!("{c:?}"));
    assert_eq!(texts[0], "Password(Password)");
    assert!(texts[1].contains("secret: Secret"), "{}", texts[1]);
}
