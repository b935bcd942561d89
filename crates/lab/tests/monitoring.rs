//! What others may watch: dumps that bgpdump reads, collectors that are told by BMP.

use std::{
    collections::BTreeSet,
    fs,
    io::Read,
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use holdfast_bgp_wire::{Open, Origin, edit::AttributesBuilder};
use holdfast_lab::{
    netns::output,
    router::Router,
    table::{AttributeSet, Table},
    topology::{ROUTER, Star},
    wait,
};
use holdfast_types::{Asn, Prefix};

const LIMIT: Duration = Duration::from_secs(30);
const PEERS: &str = r#"
[[bgp.peer]]
name = "left"
address = "10.0.1.2"
asn = 65001
passive = true
import = "accept-all"
export = "accept-all"
[[bgp.peer]]
name = "right"
address = "10.0.2.2"
asn = 65002
passive = true
import = "accept-all"
export = "accept-all"
"#;
const PREFIXES: [&str; 2] = ["198.51.100.0/24", "203.0.113.0/24"];

/// A directory that goes with its owner.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("holdfast-{name}-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    fn files(&self) -> Result<Vec<PathBuf>> {
        Ok(fs::read_dir(&self.0)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What bgpdump makes of the files whose names begin so, line by line.
fn bgpdump(directory: &Directory, begin: &str) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for file in directory.files()? {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with(begin) && name.ends_with(".mrt") {
            let text = output(Command::new("bgpdump").args(["-m", "-O", "/dev/stdout"]).arg(&file))?;
            lines.extend(text.lines().map(str::to_owned));
        }
    }
    Ok(lines)
}

fn until_line(directory: &Directory, begin: &str, parts: &[&str]) -> Result<String> {
    wait::until("a line of bgpdump", LIMIT, || {
        let lines = bgpdump(directory, begin).map_err(|error| format!("{error:#}"))?;
        let found = lines.iter().find(|line| parts.iter().all(|part| line.contains(part)));
        found.cloned().ok_or_else(|| format!("no {parts:?} in {lines:#?}"))
    })
}

#[test]
fn dumps_are_read_by_bgpdump_and_a_disk_that_fails_harms_nobody() -> Result<()> {
    let star = Star::new(2)?;
    let directory = Directory::new("dumps")?;
    let path = |name: &str| directory.0.join(name).display().to_string();
    let dumps = format!(
        "[[bgp.mrt]]\nfile = {:?}\ninterval = 1\n\
         [[bgp.mrt]]\nwhat = \"table\"\nfile = {:?}\ninterval = 1\n\
         [[bgp.mrt]]\nfile = {:?}\n",
        path("updates.%Y%m%d.%H%M%S.mrt"),
        path("rib.%s.mrt"),
        path("missing/updates.mrt")
    );
    let router = Router::start(&star.router, &[ROUTER, PEERS, &dumps].concat())?;
    let left = star.bird(1, 65001, &PREFIXES, "")?;
    router.until_established("left", LIMIT)?;

    for prefix in PREFIXES {
        until_line(
            &directory,
            "rib.",
            &["TABLE_DUMP2|", "|B|10.0.1.2|65001|", prefix, "|65001|IGP|10.0.1.2|"],
        )?;
    }
    // The session may have been up before anybody watched; now somebody does.
    left.birdc("restart holdfast")?;
    let state = until_line(&directory, "updates.", &["|STATE|10.0.1.2|65001|", "|5|6"])?;
    ensure!(state.starts_with("BGP4MP"), "{state}");
    for prefix in PREFIXES {
        until_line(&directory, "updates.", &["|A|10.0.1.2|65001|", prefix, "|65001|IGP|10.0.1.2|"])?;
    }
    let failures = |router: &Router| router.log().matches("writing a dump").count();
    wait::until("the failure", LIMIT, || {
        if failures(&router) > 0 { Ok(()) } else { Err("nothing is said".to_owned()) }
    })?;
    left.birdc("disable holdfast")?;
    until_line(&directory, "updates.", &["|STATE|10.0.1.2|65001|", "|6|1"])?;
    ensure!(failures(&router) == 1, "said once: {}", router.log_tail());
    router.stop()?;
    let files = directory.files()?;
    ensure!(files.iter().all(|file| file.extension().is_some_and(|it| it == "mrt")), "whole: {files:?}");
    for file in files {
        let octets = fs::read(&file)?;
        ensure!(holdfast_mrt::records(&octets).all(|record| record.is_ok()), "{}", file.display());
    }
    Ok(())
}

/// A message of BMP: its type, that of the table and its flags, and what follows the per-peer header.
#[derive(Clone, Debug)]
struct Bmp {
    kind: u8,
    table: Option<(u8, u8)>,
    body: Vec<u8>,
}

impl Bmp {
    fn read(stream: &mut TcpStream) -> Result<Self> {
        let mut header = [0; 6];
        stream.read_exact(&mut header)?;
        ensure!(header[0] == 3, "version {}", header[0]);
        let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
        ensure!((6..1 << 17).contains(&length), "{length} octets");
        let mut body = vec![0; length - 6];
        stream.read_exact(&mut body)?;
        // Initiation and Termination are about no peer.
        let table = if matches!(header[5], 4 | 5) { None } else { Some((body[0], body[1])) };
        let body = if table.is_some() { body.split_off(42) } else { body };
        Ok(Self { kind: header[5], table, body })
    }
}

/// A collector at a neighbour: everything that it was told, on its present connection.
fn collector(star: &Star, network: u8) -> Result<Arc<Mutex<Vec<Bmp>>>> {
    let told: Arc<Mutex<Vec<Bmp>>> = Arc::default();
    let kept = Arc::clone(&told);
    star.neighbor(network).run(move || {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 11019))?;
        thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                kept.lock().expect("no panic").clear();
                while let Ok(message) = Bmp::read(&mut stream) {
                    kept.lock().expect("no panic").push(message);
                }
            }
        });
        Ok::<_, anyhow::Error>(())
    })??;
    Ok(told)
}

/// Prefixes that are announced (or not any more) in the UPDATEs about a table.
fn routes(told: &[Bmp], table: (u8, u8), comes: bool) -> BTreeSet<String> {
    let of_table = told.iter().filter(|message| message.kind == 0 && message.table == Some(table));
    let mut routes = BTreeSet::new();
    for message in of_table {
        let sections = holdfast_bgp_wire::update::sections(&message.body[19..]).expect("an UPDATE");
        let octets = if comes { sections.nlri } else { sections.withdrawn };
        let prefixes = holdfast_bgp_wire::nlri::prefixes::<holdfast_types::Ipv4Prefix>(octets);
        routes.extend(prefixes.map(|prefix| Prefix::from(prefix.expect("a prefix")).to_string()));
    }
    routes
}

fn until(told: &Mutex<Vec<Bmp>>, what: &str, seen: impl Fn(&[Bmp]) -> bool) -> Result<()> {
    wait::until(what, LIMIT, || {
        let told = told.lock().map_err(|error| error.to_string())?;
        let kinds: Vec<_> = told.iter().map(|message| (message.kind, message.table)).collect();
        if seen(&told) { Ok(()) } else { Err(format!("{kinds:?}")) }
    })
}

fn table(prefix: &str) -> Arc<Table> {
    let attributes = AttributesBuilder { as_path: [Asn(7)].into(), ..AttributesBuilder::new(Origin::Igp) };
    let routes = vec![(prefix.parse::<Prefix>().expect("a prefix"), 0)];
    Arc::new(Table { sets: vec![AttributeSet { bytes: attributes.build() }], routes })
}

const ADJ_RIB_IN: (u8, u8) = (0, 0);
const ADJ_RIB_OUT: (u8, u8) = (0, 0x50);
const LOC_RIB: (u8, u8) = (3, 0);

#[test]
fn a_collector_is_told_what_is_there_and_what_changes() -> Result<()> {
    let star = Star::new(3)?;
    let collectors = r#"
[[bgp.bmp]]
name = "three"
address = "10.0.3.2"
send = ["pre-policy", "adj-rib-out", "loc-rib"]
statistics = 1
"#;
    let router = Router::start(&star.router, &[ROUTER, PEERS, collectors].concat())?;
    let left = star.speaker(1, 65001, |_| ())?;
    let _right = star.speaker(2, 65002, |_| ())?;
    left.announce(table(PREFIXES[0]));
    router.until_established("right", LIMIT)?;
    router.until_neighbor("left", LIMIT, |shown| {
        shown["addressFamilyInfo"]["ipv4Unicast"]["acceptedPrefixCounter"] == 1
    })?;
    // It was not there until now: it is told everything when it is.
    let told = collector(&star, 3)?;
    let has = |table: (u8, u8), prefix: &'static str| {
        move |told: &[Bmp]| routes(told, table, true).contains(prefix)
    };
    for table in [ADJ_RIB_IN, ADJ_RIB_OUT, LOC_RIB] {
        until(&told, "what is there", has(table, PREFIXES[0]))?;
    }
    until(&told, "statistics", |told| told.iter().any(|message| message.kind == 1))?;
    {
        let told = told.lock().expect("no panic");
        ensure!(told[0].kind == 4, "an Initiation comes first: {:?}", told[0]);
        let ups: Vec<_> = told.iter().filter(|message| message.kind == 3).collect();
        ensure!(ups.iter().filter(|up| up.table == Some(LOC_RIB)).count() == 1, "the Loc-RIB is up");
        ensure!(ups.iter().filter(|up| up.table == Some(ADJ_RIB_IN)).count() == 2, "each session is, once");
        for up in ups.iter().filter(|up| up.table == Some(ADJ_RIB_IN)) {
            // Behind the local address and the ports.
            let opens = &up.body[20..];
            let length = usize::from(u16::from_be_bytes([opens[16], opens[17]]));
            let (sent, received) = opens.split_at(length);
            let asns = [sent, received].map(|open| Open::parse(&open[19..]).map(|open| open.asn.0));
            ensure!(asns[0] == Ok(65000) && matches!(asns[1], Ok(65001 | 65002)), "both OPENs: {asns:?}");
        }
    }
    left.announce(table(PREFIXES[1]));
    for table in [ADJ_RIB_IN, ADJ_RIB_OUT, LOC_RIB] {
        until(&told, "what is new", has(table, PREFIXES[1]))?;
    }
    left.withdraw(table(PREFIXES[1]));
    for table in [ADJ_RIB_IN, ADJ_RIB_OUT, LOC_RIB] {
        until(&told, "what is gone", |told| routes(told, table, false).contains(PREFIXES[1]))?;
    }
    left.stop();
    until(&told, "a Peer Down", |told| told.iter().any(|message| message.kind == 2))?;
    router.stop()
}

#[test]
fn a_collector_that_does_not_read_is_cut_off_and_harms_nobody() -> Result<()> {
    /// Routes with attributes of their own each: some MB for the collector.
    const ROUTES: u16 = 20_000;
    /// The collector has half a minute.
    const CUT_OFF: Duration = Duration::from_secs(90);
    let star = Star::new(3)?;
    let accepted = star.deaf(3, 11019)?;
    let collector =
        "[[bgp.bmp]]\nname = \"deaf\"\naddress = \"10.0.3.2\"\nsend = [\"pre-policy\", \"loc-rib\"]\n";
    let router = Router::start(&star.router, &[ROUTER, PEERS, collector].concat())?;
    let left = star.speaker(1, 65001, |_| ())?;
    let right = star.speaker(2, 65002, |_| ())?;
    let set = |number: u16| {
        let communities = (0..50).map(|low| u32::from(number) << 16 | low).collect();
        let attributes = AttributesBuilder {
            as_path: [Asn(7)].into(),
            communities,
            ..AttributesBuilder::new(Origin::Igp)
        };
        AttributeSet { bytes: attributes.build() }
    };
    let prefix = |number: u16| {
        let [high, low] = number.to_be_bytes();
        Prefix::new(Ipv4Addr::new(100, high, low, 0).into(), 24).expect("a length of IPv4")
    };
    let sets = (0..ROUTES).map(set).collect();
    let routes = (0..ROUTES).map(|number| (prefix(number), number.into())).collect();
    left.announce(Arc::new(Table { sets, routes }));
    right.wait_routes(ROUTES.into(), LIMIT)?;
    wait::until("another attempt", CUT_OFF, || {
        let attempts = accepted.lock().map_err(|error| error.to_string())?.len();
        if attempts > 1 { Ok(()) } else { Err(format!("{attempts}, {}", router.log_tail())) }
    })?;
    for name in ["left", "right"] {
        let shown = router.neighbor(name)?;
        ensure!(shown["bgpState"] == "Established" && shown["connectionsDropped"] == 0, "{shown}");
    }
    ensure!(router.show(&["processes"])?["monitor"]["restarts"] == 0, "the process lives");
    Ok(())
}

/// pmacct's collector.
struct Pmbmpd(Child);

impl Pmbmpd {
    fn start(star: &Star, network: u8, directory: &Path) -> Result<Self> {
        let file = directory.join("pmbmpd.conf");
        let log = directory.join("told.json");
        let configuration = format!(
            "bmp_daemon_ip: 0.0.0.0\nbmp_daemon_port: 11019\nbmp_daemon_msglog_file: {}\n\
             bmp_daemon_msglog_output: json\n",
            log.display()
        );
        fs::write(&file, configuration)?;
        let mut command = star.neighbor(network).command("pmbmpd");
        command.arg("-f").arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(command.spawn().context("starting pmbmpd (apt package pmacct)")?))
    }
}

impl Drop for Pmbmpd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn pmacct_reads_what_it_is_told() -> Result<()> {
    let star = Star::new(3)?;
    let directory = Directory::new("pmbmpd")?;
    let _pmbmpd = Pmbmpd::start(&star, 3, &directory.0)?;
    let collector = r#"
[[bgp.bmp]]
name = "pmacct"
address = "10.0.3.2"
send = ["pre-policy", "loc-rib"]
statistics = 1
"#;
    let router = Router::start(&star.router, &[ROUTER, PEERS, collector].concat())?;
    let _left = star.bird(1, 65001, &PREFIXES, "")?;
    router.until_established("left", LIMIT)?;
    let log = directory.0.join("told.json");
    let line = |parts: &[&str]| {
        wait::until("a line of pmbmpd", LIMIT, || {
            let text = fs::read_to_string(&log).map_err(|error| error.to_string())?;
            let found = text.lines().any(|line| parts.iter().all(|part| line.contains(part)));
            if found { Ok(()) } else { Err(format!("no {parts:?} in {text}")) }
        })
    };
    line(&["\"bmp_msg_type\": \"init\""])?;
    line(&["\"bmp_msg_type\": \"peer_up\"", "10.0.1.2"])?;
    for prefix in PREFIXES {
        line(&[
            "\"bmp_msg_type\": \"route_monitor\"",
            prefix,
            "\"peer_ip\": \"10.0.1.2\"",
            "\"as_path\": \"65001\"",
        ])?;
    }
    line(&["\"bmp_msg_type\": \"stats\""])?;
    Ok(())
}
