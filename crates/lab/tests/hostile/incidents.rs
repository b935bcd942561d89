//! Messages that took routers down, here or elsewhere, sent again over real sockets. Each comes from a guest that has
//! announced a good route before; what becomes of that route, of the guest's session and of the neighbour's is checked.

use std::net::TcpStream;

use anyhow::{Context, Result, bail, ensure};
use holdfast_bgp_wire::{MessageType, Notification};
use holdfast_lab::{
    netns::{End, Namespace, link},
    peers::Bird,
    wait,
};
use holdfast_types::Prefix;

use crate::hostile::{CONFIGURATION, LIMIT, Scene, guest, guest_asn, receive_whole, session};

/// What becomes of the guest's route.
#[derive(Debug)]
enum Outcome {
    /// It stays, and so does the session.
    Kept,
    /// It goes, the session stays, and the log says why.
    Withdrawn,
    /// It is there, but nobody is told of it: what it says is sound, and of no use.
    Unused,
    /// The session ends with this code and subcode, its routes with it.
    Ended(u8, u8),
}
use Outcome::{Ended, Kept, Unused, Withdrawn};

/// What is sent.
#[derive(Copy, Clone)]
enum Update {
    /// ORIGIN, AS_PATH and NEXT_HOP, these behind them, and the route.
    With(&'static str),
    /// These attributes alone, and the route.
    Only(&'static str),
    /// This body.
    Body(&'static str),
}
use Update::{Body, Only, With};

const INCIDENTS: [(&str, Update, Outcome); 35] = [
    // 2023: attribute 28, deprecated, corrupted on its way, and sessions reset wherever it was known.
    ("entropy label", With("c01c03010203"), Kept),
    ("entropy label, empty", With("c01c00"), Kept),
    ("entropy label, long", With("d01c0080 LONG"), Kept),
    // CVE-2023-38802, CVE-2024-44070: attribute 23 with a TLV past its end.
    ("tunnel encapsulation", With("c017050007ffff00"), Kept),
    ("tunnel encapsulation, half a header", With("c01703000700"), Kept),
    // October 2025: ONLY_TO_CUSTOMER of 1,024 octets.
    ("OTC of 3 octets", With("c0230300fde9"), Withdrawn),
    ("OTC of 128 octets", With("d0230080 LONG"), Withdrawn),
    // Deprecated, and what came after them.
    ("attribute 20", With("c014020001"), Kept),
    ("attribute 21", With("c015050a0000fde9"), Kept),
    ("attribute 22, too short", With("c01603000600"), Kept),
    // 2025: Prefix-SID on plain routes.
    ("prefix SID past the end", With("c0280401000700"), Kept),
    ("prefix SID, empty", With("c02800"), Kept),
    // 2009: paths longer than 255, and the confederation segments that AS4_PATH let through.
    ("AS4_PATH with confederation segments", With("c0110c03010000fde902010000fde9"), Kept),
    ("AS_PATH of no segments", Only("40010100400200400304c0000201"), Unused),
    ("AS_PATH with an empty segment", Only("400101004002020200400304c0000201"), Withdrawn),
    // CVE-2026-41643, GHSA-frrj-87jh-2772: AS4_PATH beside a path that is none.
    ("AS4_PATH and an empty AS_PATH", Only("40010100400200400304c0000201c011060201000000ff"), Unused),
    // CVE-2026-30405: NEXT_HOP of less than four octets.
    ("NEXT_HOP of 3 octets", Only("4001010040020602010000fde9400303c00002"), Withdrawn),
    ("NEXT_HOP of no octets", Only("4001010040020602010000fde9400300"), Withdrawn),
    // CVE-2026-42285 and the report before it: lengths that contradict each other; ORIGIN that is not transitive.
    ("ORIGIN that is not transitive", Only("0001010040020602010000fde9400304c0000201"), Withdrawn),
    ("an attribute past the others' end", With("c008ff00010002"), Withdrawn),
    ("valid but for the last octet of the attributes", With("c0080400010002c0100800020000000000"), Withdrawn),
    // CVE-2026-41642: well-known, and unknown.
    ("unknown well-known attribute", With("4063010f"), Ended(3, 2)),
    // CVE-2026-37461: IPv6 extended communities cut short.
    (
        "IPv6 extended communities of 19 octets",
        With("c0191300000000000000000000000000000000000000"),
        Withdrawn,
    ),
    // CVE-2023-41358: routes without any attribute.
    ("routes and no attributes", Only(""), Withdrawn),
    // CVE-2023-46753: nothing but an attribute that nobody knows.
    ("only an unknown attribute", Only("c0630101"), Withdrawn),
    // CVE-2023-46752: MP_REACH_NLRI that breaks off.
    ("MP_REACH_NLRI that breaks off", With("800e08000201102001 0db8"), Ended(3, 9)),
    // CVE-2023-47234: MP_UNREACH_NLRI, and routes without what they must have.
    ("MP_UNREACH_NLRI and routes", Only("800f03000201"), Withdrawn),
    // CVE-2023-47235, and the missing reset of 2026 (RFC 7606 section 5.2): errors in attributes of nothing.
    ("end of RIB with an error", Body("0000 000a 800f03000201 40010107"), Ended(3, 6)),
    ("attributes of nothing with an error", Body("0000 0004 40010107"), Ended(3, 6)),
    // CVE-2023-38406: flow specifications of no octets, of a family that nobody has negotiated.
    ("flow specification of no octets", With("800e0600018500 0000"), Kept),
    // CVE-2022-37032 and others: lengths beyond the message.
    ("withdrawn routes beyond the message", Body("ffff 18140000 0000"), Ended(3, 1)),
    ("withdrawn routes one octet too long", Body("0005 18140000 0000"), Ended(3, 1)),
    ("attributes beyond the message", Body("0000 ffff 40010100"), Ended(3, 1)),
    ("a withdrawn prefix of 33 bits", Body("0006 211400000000 0000"), Ended(3, 10)),
    ("valid but for the last octet of the routes", Body("0000 0000 18140000 18c633"), Ended(3, 10)),
];

fn octets(text: &str) -> Vec<u8> {
    let long = "23".repeat(128);
    let digits: Vec<u8> =
        text.replace("LONG", &long).bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let octet = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).expect("digits"), 16).expect("hex");
    digits.as_chunks().0.iter().map(octet).collect()
}

fn message(body: &[u8]) -> Vec<u8> {
    let length = (19 + body.len()) as u16;
    [&[0xff; 16][..], &length.to_be_bytes(), &[MessageType::Update as u8], body].concat()
}

/// An UPDATE with these attributes for 20.NUMBER.THIRD.0/24.
fn announcement(number: u8, third: u8, attributes: &[u8]) -> Vec<u8> {
    let length = (attributes.len() as u16).to_be_bytes();
    message(&[&[0, 0][..], &length, attributes, &[24, 20, number, third]].concat())
}

/// ORIGIN, AS_PATH and NEXT_HOP of a guest.
fn mandatory(number: u8) -> Vec<u8> {
    let asn = guest_asn(guest(number)).0.to_be_bytes();
    let next_hop = guest(number).octets();
    [&[0x40, 1, 1, 0, 0x40, 2, 6, 2, 1][..], &asn, &[0x40, 3, 4], &next_hop].concat()
}

fn route(number: u8, third: u8) -> Prefix {
    format!("20.{number}.{third}.0/24").parse().expect("a prefix")
}

/// What the guest is told at the end of its session.
fn last_word(stream: &mut TcpStream) -> Result<Notification> {
    loop {
        match receive_whole(stream)? {
            (MessageType::Notification, body) => break Notification::parse(&body).context("a NOTIFICATION"),
            (MessageType::Open, _) => bail!("a second OPEN"),
            _ => {}
        }
    }
}

/// Waits until the neighbour has a route, or has it no more.
fn until_known(scene: &Scene, name: &str, prefix: Prefix, known: bool) -> Result<()> {
    wait::until(name, LIMIT, || {
        if scene.neighbor.route(prefix).is_some() == known {
            Ok(())
        } else {
            Err(format!("{prefix}: {}", !known))
        }
    })
}

/// The message, from a guest.
fn bad(number: u8, update: Update) -> Vec<u8> {
    match update {
        With(attributes) => announcement(number, 0, &[mandatory(number), octets(attributes)].concat()),
        Only(attributes) => announcement(number, 0, &octets(attributes)),
        Body(body) => message(&octets(body)),
    }
}

fn replay(scene: &Scene, number: u8, name: &str, update: Update, outcome: &Outcome) -> Result<()> {
    let [good, marker] = [0, 1].map(|third| announcement(number, third, &mandatory(number)));
    let mut stream = scene.outside.run(move || session(number))??;
    let mut say = |octets: &[u8]| std::io::Write::write_all(&mut stream, octets);
    say(&good)?;
    until_known(scene, name, route(number, 0), true)?;
    say(&bad(number, update))?;
    if let Ended(code, subcode) = *outcome {
        let told = last_word(&mut stream)?;
        ensure!((told.code, told.subcode) == (code, subcode), "told {told}");
        return until_known(scene, name, route(number, 0), false);
    }
    // What comes behind it has been taken in: so has it.
    say(&marker)?;
    until_known(scene, name, route(number, 1), true)?;
    let kept = matches!(outcome, Kept);
    until_known(scene, name, route(number, 0), kept)?;
    let said =
        format!("event=\"routes-dropped\" peer=\"guest:{}\" prefix=\"{}\"", guest(number), route(number, 0));
    let is_said = scene.router.log().contains(&said);
    ensure!(is_said == matches!(outcome, Withdrawn), "in the log: {is_said}; {}", scene.router.log_tail());
    Ok(())
}

#[test]
fn what_took_others_down_ends_one_session_at_most() -> Result<()> {
    let scene = Scene::new(CONFIGURATION)?;
    for (number, (name, update, outcome)) in (1..).zip(&INCIDENTS) {
        replay(&scene, number, name, *update, outcome).with_context(|| format!("{name}: not {outcome:?}"))?;
    }
    scene.is_unharmed()
}

#[test]
fn what_fits_no_message_of_the_neighbor_is_taken_from_it() -> Result<()> {
    let scene = Scene::new(CONFIGURATION)?;
    let mut stream = scene.outside.run(|| session(1))??;
    let with_octets = |count: u16| {
        let header = [&[0xd0, 99][..], &count.to_be_bytes()].concat();
        let octets = vec![7; usize::from(count)];
        announcement(1, 0, &[mandatory(1), header, octets].concat())
    };
    // The neighbour takes 4,096 octets; what guests send may be longer (RFC 8654).
    for (octets, known) in [(100, true), (65_000, false), (200, true), (4096, false), (0, true)] {
        std::io::Write::write_all(&mut stream, &with_octets(octets))?;
        until_known(&scene, "the route", route(1, 0), known).with_context(|| format!("{octets} octets"))?;
    }
    let guest = scene.router.show(&["bgp", "summary"])?;
    let state = &guest["ipv4Unicast"]["peers"][crate::hostile::guest(1).to_string()]["state"];
    ensure!(*state == "Established", "the guest's session: {state}");
    drop(stream);
    scene.is_unharmed()
}

#[test]
fn what_is_passed_on_of_them_is_sound_for_bird() -> Result<()> {
    let peer = "[[bgp.peer]]\nname = \"bird\"\naddress = \"10.9.0.2\"\nasn = 65009\n\
        import = \"accept-all\"\nexport = \"accept-all\"\n";
    let scene = Scene::new(&format!("{CONFIGURATION}{peer}"))?;
    let host = Namespace::new("bird")?;
    link(
        &End { host: &scene.host, interface: "eth1", addresses: &["10.9.0.1/24"] },
        &End { host: &host, interface: "eth0", addresses: &["10.9.0.2/24"] },
    )?;
    let bird = Bird::start(
        &host,
        "router id 10.9.0.2;
        protocol device { }
        protocol bgp holdfast {
          local 10.9.0.2 as 65009; neighbor 10.9.0.1 as 65000; connect delay time 1;
          ipv4 { import all; export all; };
        }",
    )?;
    scene.router.until_established("bird", LIMIT)?;
    let sent = (1..).zip(&INCIDENTS).filter(|(_, (.., outcome))| !matches!(outcome, Ended(..)));
    let mut guests = Vec::new();
    let mut kept = 0;
    for (number, (_, update, outcome)) in sent {
        let mut stream = scene.outside.run(move || session(number))??;
        std::io::Write::write_all(&mut stream, &announcement(number, 0, &mandatory(number)))?;
        std::io::Write::write_all(&mut stream, &bad(number, *update))?;
        guests.push(stream);
        kept += u64::from(matches!(outcome, Kept));
    }
    wait::until("what is kept, at BIRD", LIMIT, || {
        let count = bird.count("table master4").map_err(|error| error.to_string())?;
        if count == kept { Ok(()) } else { Err(format!("{count} routes, not {kept}")) }
    })?;
    let shown = scene.router.neighbor("bird")?;
    ensure!(shown["bgpState"] == "Established" && shown["connectionsDropped"] == 0, "{shown}");
    ensure!(!bird.log().contains("<RMT>"), "BIRD has found something wrong: {}", bird.log());
    Ok(())
}
