//! Scripts that have both ends, carried out over the loopback.

use std::{
    collections::BTreeMap,
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use holdfast_bgp_wire::{HEADER_LEN, attribute::code::BGPSEC_PATH, bgpsec::SecureUpdate};
use holdfast_bgpsec_wire::{CONFED_SEGMENT, Ingress, Path as SecurePath};
use holdfast_path_validation::{Change, KeyTable, P256Signer, Validator, Verdict};
use holdfast_speaker::{Options, Stop, Why, run, script};
use holdfast_tls::keys::{Algorithm, Item, PrivateKey, pem};
use holdfast_types::Asn;
use proptest::prelude::*;

/// A directory that goes with it.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("holdfast-speaker-{}-{number}", std::process::id()));
        fs::create_dir(&path).expect("a fresh directory");
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A port that was free a moment ago.
fn port() -> String {
    TcpListener::bind("127.0.0.1:0").expect("bound").local_addr().expect("an address").port().to_string()
}

/// Both ends: `router` listens, `tester` has connected to it, and what follows is `tester`'s.
const ENDS: &str = "session router\nlisten 127.0.0.1:$port\nopen as 64496\nsession tester\nconnect 127.0.0.1:$port\nopen as 64511\n";
/// Lines of [`ENDS`].
const ENDS_LINES: usize = 6;

fn carry_out_for(text: &str, directory: &Path, limit: Duration) -> Result<String, Stop> {
    let given = BTreeMap::from([("port".to_owned(), port())]);
    let lines = script::parse(text, &given).expect("a script");
    let options = Options { directory: directory.to_owned(), limit, trace: false };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut out = Vec::new();
    runtime.block_on(run(&lines, &options, &mut out))?;
    Ok(String::from_utf8(out).expect("text"))
}

fn carry_out(text: &str, directory: &Path) -> Result<String, Stop> {
    carry_out_for(text, directory, Duration::from_secs(30))
}

/// What both ends do after they are connected.
fn both(text: &str) -> Result<String, Stop> {
    carry_out(&format!("{ENDS}{text}"), &Directory::new().0)
}

#[test]
fn the_examples_of_the_manual_are_scripts_and_those_with_both_ends_pass() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual/speaker.md");
    let page = fs::read_to_string(page).expect("the page");
    let examples: Vec<_> =
        page.split("```speaker\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(examples.len() >= 4);
    let given = [("router", "192.0.2.1"), ("from", "192.0.2.7"), ("port", "179")];
    let given = given.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let mut carried_out = 0;
    for example in examples {
        script::parse(example, &given).unwrap_or_else(|error| panic!("{error}: {example}"));
        if example.contains("listen 127.0.0.1") {
            carry_out(example, &Directory::new().0).unwrap_or_else(|stop| panic!("{stop}: {example}"));
            carried_out += 1;
        }
    }
    assert_eq!(carried_out, 1);
}

#[test]
fn messages_are_the_octets_that_the_rfcs_say() {
    const MARKER: &str = "ffffffffffffffffffffffffffffffff";
    let rows = [
        ("open", "002b 01 04 fbff 005a 0a00fbff 0e 02 0c 0104 0001 0001 4104 0000fbff"),
        ("keepalive", "0013 04"),
        ("notification 6 2 00", "0016 03 06 02 00"),
        ("end-of-rib ipv6-unicast", "001d 02 0000 0006 800f03 0002 01"),
        ("refresh ipv6-unicast", "0017 05 0002 00 01"),
        ("message 9 0102", "0015 09 0102"),
        (
            "update 203.0.113.0/24 10.0.0.0/7 med 5 community 64511:7 withdraw 10.1.0.0/16",
            "0042 02 0003 100a01 0022 400101 00 40020602010000fbff 4003047f000001 80040400000005 c00804fbff0007 \
             18cb0071 070a",
        ),
        ("update withdraw 2001:db8::/32", "0022 02 0000 000b 800f08 0002 01 20 20010db8"),
        (
            "update 10.0.0.0/8 path empty without 3 attribute 40:1:0000",
            "0021 02 0000 0008 4001020000 400200 080a",
        ),
        (
            "update 10.0.0.0/8 mp next-hop 192.0.2.1 path 1,70000 without 1 attribute c0:99:07 attribute c0:99:08",
            "003a 02 0000 0023 40020a 0202 00000001 00011170 800e0b 0001 01 04 c0000201 00 080a c0630107 c0630108",
        ),
    ];
    for (what, octets) in rows {
        let text = format!("send {what}\nsession router\nexpect hex {MARKER} {octets}");
        both(&text).unwrap_or_else(|stop| panic!("{what}: {stop}"));
    }
}

#[test]
fn what_comes_instead_is_told_with_its_line() {
    let unmet = [
        (
            "send keepalive\nsession router\nexpect open within 90ms",
            3,
            "expected OPEN; nothing came within 90ms; before that came KEEPALIVE",
        ),
        (
            "send notification 6 2\nsession router\nexpect open",
            3,
            "expected OPEN; came NOTIFICATION 6 2: Cease/Administrative Shutdown\n  ffff",
        ),
        (
            "send open\nsession router\nexpect open as 1",
            3,
            "expected OPEN of AS 1; came OPEN of AS 64511, hold time 90 s, identifier 10.0.251.255, multiprotocol ipv4-unicast, four-octet AS 64511\n",
        ),
        (
            "send update 10.0.0.0/8\nsession router\nexpect update announces 10.0.0.0/8 without 3",
            3,
            "expected UPDATE that announces 10.0.0.0/8 without NEXT_HOP; came UPDATE announces 10.0.0.0/8, ORIGIN, AS_PATH, NEXT_HOP\n",
        ),
        (
            "send update 10.0.0.0/8\nsend notification 6 4\nsession router\nawait end-of-rib ipv4-unicast",
            4,
            "expected End-of-RIB of ipv4-unicast; came NOTIFICATION 6 4",
        ),
        (
            "send update 10.0.0.0/8\nsession router\nawait refresh within 100ms",
            3,
            "expected ROUTE-REFRESH; nothing came within 100ms; before that came UPDATE announces",
        ),
        (
            "send hex 00112233445566778899aabbccddeeff001304\nsession router\nexpect keepalive",
            3,
            "expected KEEPALIVE; came 19 octets that are no message (Message Header Error",
        ),
        ("close\nsession router\nexpect keepalive", 3, "expected KEEPALIVE; came the end of the connection"),
        (
            "send open\nsession router\nexpect nothing for 5s",
            3,
            "expected nothing for 5s; came OPEN of AS 64511",
        ),
        (
            "session other\nlisten 127.0.0.1:$port from 127.0.0.2 within 100ms\nsend keepalive",
            2,
            "127.0.0.1:",
        ),
    ];
    for (text, line, said) in unmet {
        let stop = both(text).expect_err(text);
        assert_eq!(stop.line, ENDS_LINES + line, "{stop}");
        assert!(stop.why.to_string().starts_with(said), "{stop}");
        let is_unmet = matches!(stop.why, Why::Unmet(_));
        assert_eq!(is_unmet, !text.contains("other"), "{stop}");
    }
    let alone = [
        ("send keepalive", "there is no connection"),
        ("connect 127.0.0.1:$port within 100ms", "127.0.0.1:"),
        (
            "listen 127.0.0.1:$port\nsession b\nconnect 127.0.0.1:$port\nsend open",
            "no `open as AS` says who we are",
        ),
        ("listen 127.0.0.1:$port\nsession b\nconnect 127.0.0.1:$port\nsend file none", "none: No such file"),
        ("save x", "nothing has come"),
    ];
    let directory = Directory::new();
    for (text, said) in alone {
        let stop = carry_out(text, &directory.0).expect_err(text);
        assert!(matches!(&stop.why, Why::Cannot(why) if why.contains(said)), "{stop}");
    }
    let nobody =
        carry_out("listen 127.0.0.1:$port within 50ms\nexpect open", &directory.0).expect_err("nobody");
    assert_eq!(nobody.to_string(), "line 2: nobody has connected within 50ms");
    let endless = "repeat 1000000\nrepeat 1000000\nwait 0s\nend\nend";
    let stop = carry_out_for(endless, &directory.0, Duration::from_millis(300)).expect_err("endless");
    assert_eq!(stop.to_string(), "line 3: the script is not done after 300ms");
}

#[test]
fn files_are_sent_in_parts_and_saved() {
    let directory = Directory::new();
    let octets = holdfast_bgp_wire::KEEPALIVE;
    fs::write(directory.0.join("two.bin"), [octets, octets].concat()).expect("written");
    let digits: String = octets.iter().map(|octet| format!("{octet:02X} \n")).collect();
    fs::write(directory.0.join("one.hex"), digits).expect("written");
    let text = format!(
        "{ENDS}send file two.bin at 19\nsend file two.bin at 0 length 10\nsend file two.bin at 10 length 9\nsend hexfile one.hex\n\
         session router\nexpect keepalive\nexpect keepalive\nexpect keepalive\nsave last.bin\nexpect nothing for 50ms\nprint"
    );
    assert_eq!(carry_out(&text, &directory.0).expect("passes"), "KEEPALIVE\n");
    assert_eq!(fs::read(directory.0.join("last.bin")).expect("saved"), octets);
    let stop =
        carry_out(&format!("{ENDS}send file two.bin at 30 length 9"), &directory.0).expect_err("short");
    assert!(stop.to_string().contains("it has only 8 octets from there on"), "{stop}");
    let stop = carry_out(&format!("{ENDS}send file ."), &directory.0).expect_err("a directory");
    assert!(stop.to_string().contains("it is no regular file"), "{stop}");
    // Longer than may be: a part of it may be sent, and the whole is not cut.
    let long = fs::File::create(directory.0.join("long.bin")).expect("made");
    long.set_len(script::LONGEST_FILE + 1).expect("a hole");
    for what in ["file", "hexfile"] {
        let stop = carry_out(&format!("{ENDS}send {what} long.bin"), &directory.0).expect_err("too long");
        assert!(stop.to_string().ends_with("it is longer than 16777216 octets"), "{stop}");
    }
    carry_out(&format!("{ENDS}send file long.bin at 1 length 9"), &directory.0).expect("a part");
}

#[test]
fn keepalives_go_out_beside_the_script() {
    let text = "keepalives every 20ms\nsession router\nexpect keepalive\nexpect keepalive\nexpect keepalive\n\
                session tester\nkeepalives off\nsession router\nawait keepalive within 50ms";
    let stop = carry_out(
        &format!("{ENDS}{text}{}", "\nawait keepalive within 200ms".repeat(3)),
        &Directory::new().0,
    );
    // One or two may have been under way when they were switched off.
    let stop = stop.expect_err("they go on");
    assert!(stop.line > ENDS_LINES + 7 && stop.why.to_string().contains("nothing came"), "{stop}");
}

#[test]
fn keys_of_tcp_md5_have_to_agree() {
    let ends = |key: &str| {
        format!(
            "session router\nlisten 127.0.0.1:$port from 127.0.0.1 md5 secret\nsession tester\n\
             connect 127.0.0.1:$port md5 {key} ttl 255 within 1s\nsend keepalive\nsession router\nexpect keepalive"
        )
    };
    let directory = Directory::new();
    carry_out(&ends("secret"), &directory.0).expect("they agree");
    let stop = carry_out(&ends("guess"), &directory.0).expect_err("they do not");
    assert!(stop.line == 4 && stop.why.to_string().contains("does not answer within 1s"), "{stop}");
}

#[test]
fn updates_of_bgpsec_are_signed_for_the_peer() {
    let directory = Directory::new();
    let signers = [64496, 64497, 64511].map(|asn| {
        let private = PrivateKey::generate(Algorithm::P256).expect("a key");
        let text = pem(&Item::PrivateKey(private.der().to_vec()));
        fs::write(directory.0.join(format!("{asn}.pem")), text).expect("written");
        P256Signer::from_der(Asn(asn), private.der()).expect("a key")
    });
    let table = KeyTable::new([1, 2]);
    table.apply(signers.iter().map(|signer| Change::Announce(signer.router_key())));
    let judge = |text: &str| {
        let text = format!(
            "{ENDS}open as 64511 bgpsec send ipv4\nsend open\nsession router\nexpect open capability 7\nsend open\n\
             session tester\nexpect open as 64496\n{text}\nsession router\nexpect update with 33 without 2\nsave update"
        );
        carry_out(&text, &directory.0).unwrap_or_else(|stop| panic!("{stop}"));
        fs::read(directory.0.join("update")).expect("saved")
    };
    let verdict = |message: &[u8], target: u32| {
        let update = SecureUpdate::parse(&message[HEADER_LEN..], BGPSEC_PATH).expect("BGPsec");
        let path = SecurePath::parse(update.path).expect("well-formed");
        let ingress = Ingress::external(Asn(64511), Asn(target));
        let checked = ingress.check(&path, update.update);
        let verdict =
            Validator::default().validate(&path, Asn(target), &update.nlri.expect("a route"), &table.keys());
        (
            checked.is_ok(),
            verdict == Verdict::Valid,
            path.segments().map(|segment| segment.pcount).collect::<Vec<_>>(),
        )
    };
    let alone = judge("send update 203.0.113.0/24 bgpsec key 64511.pem");
    assert_eq!(verdict(&alone, 64496), (true, true, vec![1]));
    let three = "send update 2001:db8:7::/48 next-hop 2001:db8::1 bgpsec to 65000 key 64496.pem as 64496 \
                 key 64497.pem as 64497 pcount 0 confederation key 64511.pem pcount 2";
    let three = judge(three);
    assert_eq!(verdict(&three, 65000), (false, true, vec![2, 0, 1]));
    assert_eq!(verdict(&three, 65001), (false, false, vec![2, 0, 1]));
    let path = SecureUpdate::parse(&three[HEADER_LEN..], BGPSEC_PATH).expect("BGPsec").path;
    let flags: Vec<_> =
        SecurePath::parse(path).expect("read").segments().map(|segment| segment.flags).collect();
    assert_eq!(flags, [0, CONFED_SEGMENT, 0]);
}

proptest! {
    #![proptest_config(holdfast_testing::cases(256))]

    /// Whatever the words of a script are: it is one, or the line is named in which it is not.
    #[test]
    fn any_words_are_a_script_or_have_a_line_that_is_wrong(
        lines in prop::collection::vec(prop::collection::vec(word(), 0..8), 0..6),
    ) {
        let text: Vec<_> = lines.iter().map(|words| words.join(" ")).collect();
        if let Err(error) = script::parse(&text.join("\n"), &BTreeMap::new()) {
            prop_assert!((1..=lines.len()).contains(&error.line), "{}", error);
            prop_assert!(!error.reason.is_empty());
        }
    }
}

/// Words of the language, and others.
fn word() -> impl Strategy<Value = String> {
    const WORDS: [&str; 48] = [
        "set",
        "session",
        "connect",
        "listen",
        "open",
        "as",
        "establish",
        "send",
        "expect",
        "await",
        "wait",
        "keepalives",
        "repeat",
        "end",
        "save",
        "print",
        "close",
        "update",
        "hex",
        "file",
        "nothing",
        "for",
        "within",
        "announces",
        "with",
        "bgpsec",
        "key",
        "to",
        "attribute",
        "capability",
        "notification",
        "path",
        "community",
        "keepalive",
        "from",
        "md5",
        "at",
        "10.0.0.0/8",
        "2001:db8::/32",
        "192.0.2.1",
        "::1",
        "2s",
        "64511",
        "4294967296",
        "c0:8:fbff0001",
        "7:0800",
        "..ff*",
        "$x",
    ];
    prop_oneof![9 => prop::sample::select(&WORDS[..]).prop_map(str::to_owned), 1 => "\\PC{0,6}"]
}
