//! Scripts of `holdfast speaker` against Holdfast and against BIRD: the same ones, since they say what RFCs say.
//!
//! ```text
//!  10.0.1.10 …, AS 64511, testers  ──┐
//!  10.0.1.3, AS 64512, the witness ──┴── 10.0.1.1, AS 65000: Holdfast, or BIRD
//! ```

use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    peers::Bird,
    router::{Router, binary},
    topology::{ROUTER, Star},
};

const WITNESS: &str = "10.0.1.3";
/// Testers, each with an address and a peer of its own: who has sent a NOTIFICATION rests a while and takes nobody.
const TESTERS: u8 = 8;

fn address(tester: u8) -> String {
    format!("10.0.1.{}", 10 + tester)
}

/// Who is tested.
enum Tested {
    Holdfast(Router),
    Bird { _bird: Bird },
}

impl Tested {
    /// Both, each in a star of its own.
    fn each() -> Result<[(Star, Self); 2]> {
        let (ours, theirs) = (star()?, star()?);
        let testers = (0..TESTERS).map(|tester| (format!("tester{tester}"), address(tester), 64511));
        let peers: Vec<_> = testers.chain([("witness".to_owned(), WITNESS.to_owned(), 64512)]).collect();
        let peer = |(name, address, asn): &(String, String, u32)| {
            format!(
                "[[bgp.peer]]\nname = \"{name}\"\naddress = \"{address}\"\nasn = {asn}\npassive = true\n\
                 import = \"accept-all\"\nexport = \"accept-all\"\n"
            )
        };
        let configuration = format!("{ROUTER}{}", peers.iter().map(peer).collect::<String>());
        let holdfast = Self::Holdfast(Router::start(&ours.router, &configuration)?);
        let protocol = |(name, address, asn): &(String, String, u32)| {
            format!(
                "protocol bgp {name} {{ local 10.0.1.1 as 65000; neighbor {address} as {asn}; passive yes;
                   ipv4 {{ import all; export all; }}; }}\n"
            )
        };
        let protocols: String = peers.iter().map(protocol).collect();
        let configuration = format!("router id 10.0.1.1; protocol device {{ }}\n{protocols}");
        let bird = Self::Bird { _bird: Bird::start(&theirs.router, &configuration)? };
        Ok([(ours, holdfast), (theirs, bird)])
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Holdfast(_) => "Holdfast",
            Self::Bird { .. } => "BIRD",
        }
    }
}

fn star() -> Result<Star> {
    let star = Star::new(1)?;
    for address in (0..TESTERS).map(address).chain([WITNESS.to_owned()]) {
        star.neighbor(1).ip(&["addr", "add", &format!("{address}/24"), "dev", "n1"])?;
    }
    Ok(star)
}

/// A directory that goes with it.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("holdfast-lab-{name}-{}", std::process::id()));
        fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Carries a script out as an operator would, in the neighbour's host.
fn speak(star: &Star, directory: &Path, tester: u8, script: &str) -> Result<Output> {
    let file = directory.join("script");
    fs::write(&file, script)?;
    let mut command = star.neighbor(1).command(binary()?.to_str().context("the path is text")?);
    let from = format!("from={}", address(tester));
    Ok(command.args(["speaker", "--set", "router=10.0.1.1", "--set", &from]).arg(&file).output()?)
}

fn passes(tested: &Tested, star: &Star, directory: &Path, tester: u8, script: &str) -> Result<()> {
    let output = speak(star, directory, tester, script)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(0), "{}: {said}\n{script}", tested.name());
    Ok(())
}

fn holdfast(arguments: &[&str]) -> Result<String> {
    let output = std::process::Command::new(binary()?).args(arguments).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// A new key in a file of this name.
fn key(directory: &Path, name: &str) -> Result<()> {
    let keys = directory.join(format!("keys-{name}"));
    holdfast(&["keygen", "1", keys.to_str().context("text")?])?;
    for entry in fs::read_dir(&keys)? {
        let file = entry?.path();
        if file.to_string_lossy().ends_with(".sec1.pem") {
            fs::copy(&file, directory.join(name))?;
        }
    }
    Ok(())
}

#[test]
fn what_cannot_be_taken_is_answered_with_its_code() -> Result<()> {
    let directory = Directory::new("codes")?;
    // RFC 4271 sections 6.1 and 6.2, RFC 6286.
    let rows = [
        ("version 3", "send open", "2 1"),
        ("my-as 64999 no-as4", "send open", "2 2"),
        ("id 0.0.0.0", "send open", "2 3"),
        ("hold 1", "send open", "2 6"),
        ("", "send hex fffffffffffffffffffffffffffffffe 0013 04", "1 1"),
        ("", "send hex ffffffffffffffffffffffffffffffff 0012 04", "1 2"),
        ("", "send message 7", "1 3"),
        ("", "send open\nexpect open\nsend keepalive\nexpect keepalive\nsend message 2 000000", "1 2"),
    ];
    for (star, tested) in Tested::each()? {
        for (tester, (open, sent, code)) in (0..TESTERS).zip(rows) {
            let script = format!(
                "connect $router from $from\nopen as 64511 {open}\n{sent}\nawait notification {code}\nexpect close"
            );
            passes(&tested, &star, &directory.0, tester, &script)?;
        }
    }
    Ok(())
}

#[test]
fn a_broken_update_is_a_withdrawal_and_the_session_stays() -> Result<()> {
    let directory = Directory::new("withdrawals")?;
    key(&directory.0, "key.pem")?;
    // A length of ORIGIN that cannot be (RFC 7606 section 7.1), an odd COMMUNITIES (7.8), no NEXT_HOP (3 d), and a path of
    // BGPsec where nobody has agreed on it: that is an unknown attribute, and no AS_PATH.
    let broken = ["attribute 40:1:0000", "attribute c0:8:fbff00", "without 3", "bgpsec to 65000 key key.pem"];
    let mut script = "session witness\nconnect $router from 10.0.1.3\nopen as 64512\nestablish\n\
                      session tester\nconnect $router from $from\nopen as 64511 capability 64:0000\nestablish\n\
                      await end-of-rib ipv4-unicast\n"
        .to_owned();
    for wrong in broken {
        script.push_str(&format!(
            "session tester\nsend update 203.0.113.0/24\nsession witness\nawait update announces 203.0.113.0/24 with 2\n\
             session tester\nsend update 203.0.113.0/24 {wrong}\nsession witness\nawait update withdraws 203.0.113.0/24\n\
             session tester\nexpect nothing for 200ms\n"
        ));
    }
    // What cannot be located ends it: attributes that reach beyond the message (RFC 7606 section 3 b).
    script.push_str("send message 2 0000 0009 40010100\nawait notification 3 1\nexpect close\n");
    for (star, tested) in Tested::each()? {
        passes(&tested, &star, &directory.0, 0, &script)?;
        if let Tested::Holdfast(router) = tested {
            let log = router.log();
            ensure!(log.contains("RFC 7606 section 7.1"), "{log}");
        }
    }
    Ok(())
}

#[test]
fn the_examples_of_the_manual_pass() -> Result<()> {
    let directory = Directory::new("manual")?;
    key(&directory.0, "origin.pem")?;
    key(&directory.0, "own.pem")?;
    let own = directory.0.join("own.pem");
    let update = holdfast(&[
        "bgpsec",
        "sign",
        "--as",
        "64511",
        "--key",
        own.to_str().context("text")?,
        "--to",
        "65000",
        "--prefix",
        "203.0.113.0/24",
        "--next-hop",
        "10.0.1.2",
    ])?;
    let octets =
        (0..update.trim().len() / 2).map(|at| Ok(u8::from_str_radix(&update[2 * at..2 * at + 2], 16)?));
    fs::write(directory.0.join("upd.bin"), octets.collect::<Result<Vec<u8>>>()?)?;
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual/speaker.md");
    let page = fs::read_to_string(page)?;
    let blocks = page.split("```speaker\n").skip(1).filter_map(|rest| rest.split("```").next());
    let examples: Vec<_> = blocks.filter(|block| block.contains("connect $router")).collect();
    ensure!(examples.len() == 3, "{} examples", examples.len());
    for (star, tested) in Tested::each()? {
        for (tester, example) in (0..TESTERS).zip(&examples) {
            // Each from an address of its own, where the page leaves it to the kernel.
            let example =
                example.replace(" from $from", "").replace("connect $router", "connect $router from $from");
            passes(&tested, &star, &directory.0, tester, &example)?;
        }
    }
    Ok(())
}

#[test]
fn exit_codes_tell_what_came_from_what_could_not_be_done() -> Result<()> {
    let directory = Directory::new("exits")?;
    let star = star()?;
    let code = |script: &str| -> Result<(Option<i32>, String)> {
        let output = speak(&star, &directory.0, 0, script)?;
        Ok((output.status.code(), String::from_utf8(output.stderr)?))
    };
    let (exit, said) = code("listen $from\nsession b\nconnect $from\nexpect open within 100ms")?;
    ensure!(
        exit == Some(1) && said.contains("script: line 4: expected OPEN; nothing came within 100ms"),
        "{said}"
    );
    let (exit, said) = code("connect $router within 300ms")?;
    ensure!(exit == Some(2) && said.contains("line 1: 10.0.1.1:179: Connection refused"), "{said}");
    let (exit, said) = code("conect $router")?;
    ensure!(exit == Some(64) && said.contains("line 1: `conect` is no statement"), "{said}");
    let status = |arguments: &[&str]| {
        Ok::<_, anyhow::Error>(std::process::Command::new(binary()?).args(arguments).output()?.status.code())
    };
    ensure!(status(&["speaker"])? == Some(64) && status(&["bgpsec", "verify"])? == Some(64));
    // Only a router would know whether it runs a protocol of that name.
    ensure!(status(&["show", "nothing"])? == Some(3) && status(&["speaker", "--help"])? == Some(0));
    Ok(())
}
