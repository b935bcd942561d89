//! Commands against a router made of a Finder and processes that answer from memory.

mod answers;
mod fake;

use std::io;

use fake::{Line, Router};
use holdfast_cli::Failure;
use serde_json::{Value, json};

#[test]
fn summary_shows_each_session_with_its_counts() {
    let router = Router::start();
    let text = router.text("show bgp summary");
    assert!(text.contains("router identifier 10.0.0.1, local AS number 65001"), "{text}");
    let row = |name: &str| text.lines().find(|line| line.starts_with(name)).expect("a row").to_owned();
    let transit: Vec<_> = row("transit-1").split_whitespace().map(str::to_owned).collect();
    assert_eq!(
        transit,
        "transit-1 10.1.0.2 65101 500 400 0 01:00:00 1000 990 3 port 7".split(' ').collect::<Vec<_>>()
    );
    assert!(!text.contains("ipv6-unicast"), "a family that nobody uses is left out: {text}");
    assert!(row("down-1").contains("Active") && row("down-1").ends_with("(connection refused)"), "{text}");
}

#[test]
fn summary_has_the_key_names_of_frr() {
    let summary = Router::start().json("show bgp summary");
    let family = &summary["ipv4Unicast"];
    assert_eq!((&family["routerId"], &family["as"]), (&json!("10.0.0.1"), &json!(65001)));
    assert_eq!((&family["peerCount"], &family["failedPeers"]), (&json!(2), &json!(1)));
    let peer = &family["peers"]["10.1.0.2"];
    for (key, value) in [
        ("remoteAs", json!(65101)),
        ("localAs", json!(65001)),
        ("msgRcvd", json!(500)),
        ("msgSent", json!(400)),
        ("pfxRcd", json!(1000)),
        ("pfxSnt", json!(3)),
        ("peerUptime", json!("01:00:00")),
        ("peerUptimeMsec", json!(3_600_000)),
        ("state", json!("Established")),
        ("peerState", json!("OK")),
        ("connectionsEstablished", json!(2)),
        ("connectionsDropped", json!(1)),
        ("desc", json!("port 7")),
        ("idType", json!("ipv4")),
    ] {
        assert_eq!(peer[key], value, "{key}");
    }
    assert!(peer["peerUptimeEstablishedEpoch"].is_u64());
    assert!(family["peers"]["10.1.0.3"].get("peerUptimeEstablishedEpoch").is_none(), "it is not established");
}

#[test]
fn neighbors_are_all_or_the_one_that_is_named() {
    let router = Router::start();
    let all = router.json("show bgp neighbors");
    assert_eq!(all.as_object().map(serde_json::Map::len), Some(2));
    let one = router.json("show bgp neighbors transit-1");
    let neighbor = &one["10.1.0.2"];
    assert_eq!(one.as_object().map(serde_json::Map::len), Some(1));
    assert_eq!(neighbor["bgpState"], "Established");
    assert_eq!(neighbor["bgpTimerHoldTimeMsecs"], 90_000);
    assert_eq!(neighbor["messageStats"]["updatesRecv"], 490);
    assert_eq!(neighbor["messageStats"]["routeRefreshSent"], 1);
    let expected = json!({
        "routeRefresh": "advertisedAndReceived",
        "extendedMessage": "advertised",
        "4byteAs": "advertisedAndReceived",
        "multiprotocolExtensions": { "ipv4Unicast": { "advertised": true }, "ipv6Unicast": { "received": true } },
    });
    assert_eq!(neighbor["neighborCapabilities"], expected);
    assert_eq!(neighbor["addressFamilyInfo"]["ipv4Unicast"]["acceptedPrefixCounter"], 990);
    let text = router.text("show bgp neighbors transit-1");
    for part in [
        "transit-1 (10.1.0.2), AS 65101, external link",
        "up for 01:00:00",
        "Policy: import in, export none (nothing passes)",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains("Last read"), "a peer without a connection has read nothing: {text}");
    assert_eq!(router.fails("show bgp neighbors nobody"), (1, "there is no peer `nobody`".into()));
}

#[test]
fn routes_are_streamed_with_their_paths() {
    let router = Router::start();
    let text = router.text("show bgp routes --ipv4");
    let lines: Vec<_> = text.lines().filter(|line| line.contains("10.1.0.")).collect();
    assert!(lines[0].starts_with("*>  10.0.0.0/24"), "{text}");
    assert!(lines[0].ends_with("transit-1        65101 65200 i"), "{text}");
    assert!(lines[1].starts_with("*                      10.1.0.3"), "{text}");
    assert!(text.ends_with("100000 prefixes, 200000 paths\n"));
    let table = router.json("show bgp routes --ipv4");
    assert_eq!((&table["localAS"], &table["totalRoutes"]), (&json!(65001), &json!(100_000)));
    let paths = &table["routes"]["10.0.0.0/24"];
    assert_eq!((&paths[0]["bestpath"], &paths[0]["path"]), (&json!(true), &json!("65101 65200")));
    assert_eq!((&paths[0]["metric"], &paths[0]["origin"]), (&json!(5), &json!("IGP")));
    assert_eq!((&paths[1]["bestpath"], &paths[1]["reason"]), (&json!(false), &json!("longer AS path")));
    assert_eq!(paths[1]["nexthops"][0]["ip"], "10.1.0.3");
}

#[test]
fn a_reader_who_has_seen_enough_is_no_error() {
    /// Takes some bytes and then no more, as a pipe to `head`.
    struct Full(usize);
    impl io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let router = Router::start();
    let failure = router.run("show bgp routes", &mut Full(4000)).expect_err("the pipe is closed");
    assert_eq!(failure.exit_code(), 0);
}

#[test]
fn a_prefix_is_shown_with_every_candidate_and_its_reason() {
    let router = Router::start();
    let text = router.text("show bgp route 10.0.0.7");
    for part in [
        "10.0.0.0/24: 2 paths",
        "Advertised to: customer-1",
        "*>  65101 65200",
        "from transit-1 (10.1.0.2, router id 10.9.9.9, AS 65101)",
        "next hop 10.1.0.2 (metric 10)",
        "longer AS path",
        "communities: 65101:1 65101:2",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let shown = router.json("show bgp route 10.0.0.0/24");
    assert_eq!(shown["advertisedTo"], json!({ "customer-1": {} }));
    let best = &shown["paths"][0];
    assert_eq!(best["aspath"]["segments"][0]["list"], json!([65101, 65200]));
    assert_eq!(best["bestpath"]["overall"], true);
    assert_eq!(best["community"]["string"], "65101:1 65101:2");
    assert_eq!(best["nexthops"][0]["accessible"], true);
    assert_eq!(best["peer"]["peerId"], "10.1.0.2");
    assert!(best.get("largeCommunity").is_none() && shown["paths"][1].get("bestpath").is_none());
    assert_eq!(
        router.fails("show bgp route 203.0.113.0/24"),
        (1, "BGP has no route to 203.0.113.0/24".into())
    );
    assert_eq!(router.fails("show bgp route x"), (1, "`x` is no prefix".into()));
}

#[test]
fn the_routing_table_shows_protocols_and_resolved_next_hops() {
    let router = Router::start();
    let text = router.text("show route");
    assert!(text.contains(">*  10.1.0.0/24        connected           0/0  connected, eth0"), "{text}");
    assert!(text.contains("10.9.0.1 (recursive)\n") && text.contains("  10.1.0.2 via eth0\n"), "{text}");
    assert!(text.contains("blackhole") && text.ends_with("\n3 prefixes\n"), "{text}");
    let table = router.json("show route");
    let recursive = &table["198.51.100.0/24"];
    assert_eq!(
        recursive.as_array().map(Vec::len),
        Some(2),
        "both protocols, though they came in two messages"
    );
    assert_eq!((&recursive[0]["protocol"], &recursive[0]["selected"]), (&json!("bgp"), &json!(true)));
    let hops = &recursive[0]["nexthops"];
    assert_eq!((&hops[0]["ip"], &hops[0]["recursive"]), (&json!("10.9.0.1"), &json!(true)));
    assert_eq!((&hops[1]["ip"], &hops[1]["fib"]), (&json!("10.1.0.2"), &json!(true)));
    assert_eq!(hops[1]["interfaceName"], "eth0");
    assert!(recursive[1].get("selected").is_none());
    assert_eq!(table["10.1.0.0/24"][0]["nexthops"][0]["directlyConnected"], true);
    assert_eq!(table["192.0.2.0/24"][0]["nexthops"][0]["blackhole"], true);
    assert_eq!(router.fails("show route 203.0.113.9"), (1, "there is no route to 203.0.113.9".into()));
}

#[test]
fn interfaces_and_processes() {
    let router = Router::start();
    let text = router.text("show interfaces");
    assert!(
        text.contains("eth0           2  up     down  1500  02:00:00:00:00:01  10.1.0.1/24 fe80::1/64"),
        "{text}"
    );
    let interface = &router.json("show interfaces")["eth0"];
    assert_eq!(
        (&interface["administrativeStatus"], &interface["operationalStatus"]),
        (&json!("up"), &json!("down"))
    );
    assert_eq!(interface["ipAddresses"][1]["address"], "fe80::1/64");
    let text = router.text("show processes");
    let row = |name: &str| text.lines().find(|line| line.starts_with(name)).expect("a row").to_owned();
    assert!(row("bgp").contains("00:01:00") && row("bgp").contains("2.0 MiB"), "{text}");
    assert!(row("rib").contains("backing off, 3 s left") && row("rib").contains("signal 9"), "{text}");
    assert_eq!(router.json("show processes")["rib"]["restarts"], 4);
}

#[test]
fn clear_names_what_it_cleared() {
    let router = Router::start();
    assert_eq!(router.text("clear bgp transit-1"), "cleared transit-1\n");
    assert_eq!(router.text("clear bgp all"), "cleared transit-1\ncleared down-1\n");
    assert_eq!(
        router.json("clear bgp all --soft"),
        json!({ "cleared": ["transit-1 (soft)", "down-1 (soft)"] })
    );
    assert_eq!(router.fails("clear bgp nobody"), (1, "there is no peer `nobody`".into()));
}

#[test]
fn any_method_can_be_called_by_its_name() {
    let router = Router::start();
    assert!(router.text("call --list").contains("finder://bgp/bgp.v1/ShowSummary\n"));
    assert!(router.text("call --describe bgp/bgp.v1").contains("Clear(ClearRequest) -> ClearReply"));
    assert!(router.text("call --resolve bgp/bgp.v1").contains("ShowSummary"));
    let cleared = router.json("call bgp/bgp.v1/Clear?peer:txt=transit-1");
    assert_eq!(cleared["cleared"], json!(["transit-1"]));
    let (code, message) = router.fails("call bgp/bgp.v1/Shutdown?text=x");
    assert!(code == 1 && message.contains("operator"), "{message}");
}

#[test]
fn words_may_be_abbreviated_and_options_stand_anywhere() {
    let router = Router::start();
    assert_eq!(router.text("sh b sum"), router.text("show bgp summary"));
    assert!(Line::parse("show --json bgp summary --runtime-dir /x").is_ok());
    for wrong in
        ["show", "show bgp", "show bgp routes --ipv4 --ipv6", "call", "call --list x/y/z", "clear bgp"]
    {
        assert_eq!(Line::parse(wrong).expect_err(wrong).exit_code(), 2, "{wrong}");
    }
}

#[test]
fn without_a_router_the_directory_is_named() {
    let failure = Line::parse("show processes --runtime-dir /nonexistent/holdfast")
        .expect("parses")
        .run_on(&mut io::sink())
        .expect_err("nobody there");
    assert_eq!(failure.exit_code(), 3);
    let text = failure.to_string();
    assert!(
        text.contains("no router runs in /nonexistent/holdfast") && text.contains("--runtime-dir"),
        "{text}"
    );
}

#[test]
fn a_process_that_does_not_run_is_named() {
    let router = Router::without_bgp();
    let (code, text) = router.fails("show bgp summary");
    assert!(code == 1 && text.starts_with("bgp does not run (see `holdfast show processes`)"), "{text}");
}

#[test]
fn a_manager_that_goes_away_is_no_answer() {
    let router = Router::deaf();
    let (code, text) = router.fails("show processes");
    assert!(code == 3 && text.starts_with("the router does not answer"), "{text}");
}

#[test]
fn check_reports_faults_as_text_or_json() {
    let directory = fake::Directory::new();
    let file = directory.path().join("router.toml");
    let check = |text: &str, json: &str| {
        std::fs::write(&file, text).expect("writes");
        let mut out = Vec::new();
        let line = Line::parse(&format!("check -c {} {json}", file.display())).expect("parses");
        let done = line.run_on(&mut out);
        (done, String::from_utf8(out).expect("is text"))
    };
    let (done, text) = check("[router]\nid = \"10.0.0.1\"\nasn = 65001\n", "");
    assert!(done.is_ok() && text.ends_with("router.toml: no errors\n"));
    let (done, text) = check("[router]\nid = \"10.0.0.1\"\nasm = 65001\n", "--json");
    let failure = done.expect_err("is wrong");
    assert!(matches!(&failure, Failure::Wrong(wrong) if wrong.iter().len() == 2), "{failure}");
    let faults: Value = serde_json::from_str(&text).expect("is JSON");
    assert_eq!((&faults[1]["line"], &faults[1]["column"]), (&json!(3), &json!(1)));
    let (done, text) = check("[router]\nid = \"10.0.0.1\"\nasn = 65001\n", "--json");
    assert!(done.is_ok() && text == "[]\n");
    std::fs::write(&file, b"[router]\nid = \"\xff\"\n").expect("writes");
    let line = Line::parse(&format!("check -c {}", file.display())).expect("parses");
    assert!(matches!(line.run_on(&mut io::sink()), Err(Failure::Wrong(_))), "not UTF-8");
    let absent = Line::parse("check -c /nonexistent.toml").expect("parses").run_on(&mut io::sink());
    assert_eq!(absent.expect_err("is absent").exit_code(), 1);
}
