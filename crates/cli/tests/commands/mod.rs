//! Commands against a router made of a Finder and processes that answer from memory.

mod answers;
mod bgpsec;
mod fake;
mod keys;

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
fn a_listen_range_is_shown_where_no_peer_has_the_name() {
    let router = Router::start();
    let shown = router.json("show bgp neighbors guests");
    let range = &shown["guests"];
    for (key, value) in [
        ("listenRange", json!("10.2.0.0/16")),
        ("peers", json!(2)),
        ("peersSeen", json!(7)),
        ("connectionsDropped", json!(4)),
        ("drops", json!({ "AS_PATH: AS number 0": 3 })),
        ("lastErrorOf", json!("10.2.0.9")),
    ] {
        assert_eq!(range[key], value, "{key}");
    }
    let text = router.text("show bgp neighbors guests");
    assert!(text.contains("Listen range guests (10.2.0.0/16)\n  Peers: 2 now, 7 so far\n"), "{text}");
    let (code, message) = router.fails("show bgp neighbors nobody");
    assert_eq!((code, &*message), (1, "there is no peer `nobody`"));
}

#[test]
fn a_vrf_is_asked_where_one_is_named() {
    let router = Router::start();
    for line in ["show bgp summary --vrf blue", "show bgp --vrf=blue summary"] {
        let text = router.text(line);
        assert!(text.contains("router identifier 10.0.0.9"), "{line}: {text}");
    }
    let family = &router.json("show bgp summary --vrf blue")["ipv4Unicast"];
    assert_eq!((&family["vrfName"], family.get("vrfId")), (&json!("blue"), None));
    let family = &router.json("show bgp summary")["ipv4Unicast"];
    assert_eq!((&family["vrfName"], &family["vrfId"]), (&json!("default"), &json!(0)));
    assert_eq!(router.text("clear bgp transit-1 --vrf blue"), "cleared transit-1\n");
    assert_eq!(router.text("clear bgp dampened --vrf blue"), "cleared all dampened routes\n");
    assert_eq!(router.text("peer stop transit-1 --text x --vrf blue"), "stopped transit-1 (x)\n");
}

#[test]
fn a_vrf_that_is_not_there_is_told_from_one_without_that_process() {
    let router = Router::start();
    let (code, message) = router.fails("show bgp summary --vrf green");
    assert_eq!((code, &*message), (1, "there is no VRF `green` (see `holdfast show vrf`)"));
    let (code, message) = router.fails("show route --vrf blue");
    assert!(code == 1 && message.starts_with("rib@blue does not run"), "{message}");
    assert!(Line::parse("show processes --vrf blue").is_err(), "processes are of the router");
}

#[test]
fn vrfs_are_listed_with_their_place_and_sessions() {
    let router = Router::start();
    let rows: Vec<Vec<String>> = router
        .text("show vrf")
        .lines()
        .skip(1)
        .map(|row| row.split_whitespace().map(str::to_owned).collect())
        .collect();
    assert_eq!(
        rows,
        [["blue", "device", "vrf-blue", "100", "2", "1"], ["red", "netns", "red", "main", "-", "-"]]
    );
    let expected = json!({
        "totalVrfs": 2,
        "vrfs": {
            "blue": {
                "kind": "device", "device": "vrf-blue", "table": 100,
                "numConfiguredPeers": 2, "numEstablishedPeers": 1,
            },
            "red": { "kind": "netns", "netns": "red", "table": 254 },
        },
    });
    assert_eq!(router.json("show vrf"), expected);
}

#[test]
fn nsr_shows_which_sessions_outlive_the_process_and_why_others_do_not() {
    let router = Router::start();
    let text = router.text("show nsr");
    assert!(
        text.starts_with("Nonstop: on, 6.0 MiB of 1.0 GiB used\nResumed: 1 sessions in 35 ms, "),
        "{text}"
    );
    assert!(text.contains("\nDeaths in a row before all was resumed: 2\n\n"), "{text}");
    let row = |name: &str| {
        let row = text.lines().find(|line| line.starts_with(name)).expect("a row");
        row.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("transit-1"), "transit-1 10.1.0.2 yes 3.0 KiB 1.0 KiB 4.0 KiB 5.0 MiB 00:01:30");
    assert_eq!(row("down-1"), "down-1 10.1.0.3 no - - - - - not established");
    let expected = json!({
        "enabled": true,
        "logTotal": 1_u64 << 30,
        "logUsed": 6 << 20,
        "lives": 2,
        "resumedSessions": 1,
        "resumedEpochMsec": 978_307_200_000_u64,
        "lastResumeMsec": 35,
        "peers": {
            "10.1.0.2": {
                "name": "transit-1",
                "protected": true,
                "incoming": 3 << 10,
                "outgoing": 1 << 10,
                "lag": 4 << 10,
                "snapshot": 5 << 20,
                "snapshotAgeMsec": 90_000,
                "tier": "keeper",
            },
            "10.1.0.3": {
                "name": "down-1",
                "protected": false,
                "reason": "not established",
                "incoming": 0,
                "outgoing": 0,
                "lag": 0,
                "snapshot": 0,
                "tier": "none",
            },
        },
    });
    assert_eq!(router.json("show nsr"), expected);
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
    let bfd = json!({
        "type": "single hop",
        "status": "Up",
        "profile": "fast",
        "strict": true,
        "awaited": false,
        "since_ms": 61_000,
        "detection_us": 150_000,
        "remote_control_plane_independent": true,
        "remote_state": "up",
        "diagnostic": "control detection time expired",
    });
    assert_eq!(neighbor["peerBfdInfo"], bfd);
    let text = router.text("show bgp neighbors transit-1");
    for part in [
        "  BFD: up for 00:01:01, profile fast, hops single, strict, a failure is found after 150.0 ms\n",
        "    last down: control detection time expired\n",
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
fn routes_of_a_neighbor_are_shown_with_why_they_are_refused() {
    let router = Router::start();
    let text = router.text("show bgp neighbors transit-1 filtered-routes");
    assert!(text.contains("198.51.100.0/24") && text.contains("policy transit-in, term bogons"), "{text}");
    let told = router.json("show bgp neighbors transit-1 advertised-routes --ipv4");
    assert_eq!((&told["totalRoutes"], &told["routerId"]), (&json!(1), &json!("10.0.0.1")));
    let (code, _) = router.fails("show bgp neighbors nobody received-routes");
    assert_eq!(code, 1);
}

#[test]
fn vtysh_answers_as_frr_would() {
    let router = Router::start();
    let json = |command: &str| -> Value {
        serde_json::from_str(&router.vtysh(command).expect(command)).expect(command)
    };
    let summary = json("show bgp vrf all ipv4 unicast summary json");
    let family = &summary["default"];
    assert_eq!((&family["routerId"], &family["as"]), (&json!("10.0.0.1"), &json!(65001)));
    for key in ["ribCount", "ribMemory", "peerCount", "peerMemory"] {
        assert!(family[key].is_number(), "{key}");
    }
    let peer = &family["peers"]["10.1.0.2"];
    assert_eq!((&peer["state"], &peer["remoteAs"]), (&json!("Established"), &json!(65101)));
    for key in ["msgRcvd", "msgSent", "peerUptimeMsec", "pfxRcd", "pfxSnt"] {
        assert!(peer[key].is_number(), "{key}");
    }
    assert_eq!(json("show bgp vrf all ipv6 unicast summary json")["default"]["peerCount"], 0);
    assert_eq!(json("show bgp vrf all l2vpn evpn summary json"), json!({}));
    assert_eq!(json("show bgp vrf all neighbors json")["default"]["10.1.0.2"]["nbrDesc"], "port 7");
    let told = json("show bgp ipv4 unicast neighbors transit-1 advertised-routes json");
    assert_eq!(told["totalPrefixCounter"], 1);
    assert_eq!(json("show bfd peers json"), json!([]));
    assert!(router.vtysh("show bgp summary").expect("text").contains("transit-1"));
    let failure = router.vtysh("show frobnicate json").expect_err("unknown");
    assert_eq!(
        (failure.exit_code(), failure.to_string()),
        (1, "% Unknown command: show frobnicate json".into())
    );
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
    assert!(text.contains("blackhole") && text.ends_with("\n4 prefixes\n"), "{text}");
    assert!(text.contains("\n>r  203.0.113.0/24") && text.contains("r rejected"), "{text}");
    assert!(text.contains("rejected: Nexthop has invalid gateway\n"), "{text}");
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
    let rejected = &table["203.0.113.0/24"][0];
    assert_eq!(rejected["failedReason"], "Nexthop has invalid gateway");
    assert_eq!((&rejected["selected"], &rejected["failed"]), (&json!(true), &json!(true)));
    assert!(rejected.get("installed").is_none() && rejected["nexthops"][0].get("fib").is_none());
    assert!(recursive[0].get("failed").is_none());
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
    assert!(row("rib").contains("backing off, 3 s left") && row("rib").contains("hung"), "{text}");
    assert!(row("bgp").contains("running, busy for 3 s"), "{text}");
    assert!(row("bgp").ends_with("stages left out: Newcomers"), "{text}");
    assert_eq!(router.json("show processes")["bgp"]["quarantined"], json!(["Newcomers"]));
    assert_eq!(router.json("show processes")["bgp"]["longest_turn_us"], json!(1234));
    assert_eq!(router.json("show processes")["bgp"]["busy_ms"], json!(3200));
    let rib = &router.json("show processes")["rib"];
    assert_eq!((&rib["restarts"], &rib["last_end"], &rib["hung"]), (&json!(4), &json!("hung"), &json!(2)));
}

#[test]
fn an_upgrade_says_each_step_and_what_was_not_done() {
    let router = Router::start();
    let mut out = Vec::new();
    let failure = router.run("upgrade --binary /bin/true", &mut out).expect_err("the keeper stays");
    let out = String::from_utf8_lossy(&out).into_owned();
    assert!(out.starts_with("bgp      replaced (") && out.contains("\nmanager  replaced ("), "{out}");
    let text = failure.to_string();
    assert!(text.contains("keeper is running with 0.1.0+00000001, rib is backing off with -"), "{text}");
    assert_eq!(failure.exit_code(), 1);
    let (code, text) = router.fails("upgrade --binary /nonexistent");
    assert!(code == 1 && text.starts_with("/nonexistent: "), "{text}");
}

#[test]
fn before_an_upgrade_it_is_said_which_sessions_would_end_and_which_would_stay_behind() {
    let router = Router::start();
    let steps = "\
transport would be replaced (0.2.0+00000002)
bgp       would be replaced (0.2.0+00000002)
the session with transit-1 (10.1.0.2) would ";
    let stays = "stay with the old build: transport, which carries it over quic, stays for it\nno session would end\n";
    assert_eq!(router.text("upgrade --dry-run --binary /bin/true"), format!("{steps}{stays}"));
    let ends = "end: transport, which carries it over quic, is replaced\n";
    assert_eq!(router.text("upgrade --dry-run --now --binary /bin/true"), format!("{steps}{ends}"));
    let session = |reason: &str| {
        let reason = format!("transport, which carries it over quic, {reason}");
        json!([{ "peer": "transit-1", "address": "10.1.0.2", "vrf": null, "reason": reason }])
    };
    let process = |name: &str| json!({ "process": name, "text": "would be replaced" });
    let mut expected = json!({
        "build": "0.2.0+00000002",
        "processes": [process("transport"), process("bgp")],
        "sessions_on_old_build": session("stays for it"),
        "sessions_ended": [],
    });
    assert_eq!(router.json("upgrade --dry-run --binary /bin/true"), expected);
    expected["sessions_on_old_build"] = json!([]);
    expected["sessions_ended"] = session("is replaced");
    assert_eq!(router.json("upgrade --dry-run --now --binary /bin/true"), expected);
}

#[test]
fn peers_are_stopped_and_started_by_name() {
    let router = Router::start();
    assert_eq!(router.text("peer stop transit-1 --text maintenance"), "stopped transit-1 (maintenance)\n");
    assert_eq!(router.json("peer start all"), json!({ "started": ["transit-1", "down-1"] }));
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
fn aggregates_are_shown_with_how_many_routes_make_them() {
    let router = Router::start();
    let expected = "\
Aggregate      State            Routes inside  Contributors  Origin
10.0.0.0/8     announced        kept back              1200  IGP
192.0.2.0/24   no route inside  announced                 0  -
2001:db8::/32  counting         kept back                40  -
";
    assert_eq!(router.text("show bgp aggregates"), expected);
    let shown = router.json("show bgp aggregates");
    assert_eq!((&shown[0]["contributors"], &shown[0]["active"]), (&json!(1200), &json!(true)));
    assert_eq!((&shown[2]["counting"], &shown[2]["active"]), (&json!(true), &json!(false)));
}

#[test]
fn damped_routes_are_shown_and_cleared() {
    let router = Router::start();
    let expected = "\
Network      Neighbor   Address    State   Penalty  Flaps     Since  Reuse in
10.0.0.0/24  transit-1  192.0.2.1  damped     6123      7  00:01:01  00:45:25
";
    assert_eq!(router.text("show bgp dampened"), expected);
    let history = "10.0.1.0/24  transit-1  192.0.2.1  history      500      7  00:01:01         -\n";
    assert!(router.text("show bgp dampened --all").ends_with(history));
    let expected = json!({
        "routes": { "10.0.0.0/24": [{
            "peerHost": "192.0.2.1",
            "peerName": "transit-1",
            "dampened": true,
            "dampeningPenalty": 6123,
            "dampeningFlapCount": 7,
            "dampeningFlapPeriodMsec": 61_000,
            "reuseTimerMsecs": 2_725_000,
        }] },
        "totalPaths": 1,
    });
    assert_eq!(router.json("show bgp dampened"), expected);
    assert_eq!(router.text("clear bgp dampened"), "cleared all dampened routes\n");
    assert_eq!(router.text("clear bgp dampened 10.0.0.0/24"), "cleared 10.0.0.0/24\n");
    assert_eq!(
        router.fails("clear bgp dampened 10.1.0.0/24"),
        (1, "no route to 10.1.0.0/24 has flapped".into())
    );
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
        .run_on(holdfast_config::Schema::new([]), &mut io::sink())
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
fn a_descriptor_is_checked_alone() {
    use std::os::unix::fs::PermissionsExt;
    let directory = fake::Directory::new();
    let file = directory.path().join("toy.toml");
    let check = |text: &str, mode| {
        std::fs::write(&file, text).expect("writes");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("changes");
        let mut out = Vec::new();
        let line = Line::parse(&format!("check --descriptor {}", file.display())).expect("parses");
        let done = line.run_on(holdfast_config::Schema::new([]), &mut out);
        (done, String::from_utf8(out).expect("is text"))
    };
    let right = "does = \"says hello\"\ndoc = \"A toy.\"\nprogram = \"/bin/true\"\n";
    let (done, text) = check(right, 0o644);
    assert!(done.is_ok() && text.ends_with("toy.toml: no errors\n") && !text.contains("note"), "{text}");
    let missing = right.replace("/bin/true", "/bin").replace("doc", "reads = [\"/nowhere\"]\ndoc");
    let (done, text) = check(&missing, 0o644);
    assert!(done.is_ok() && text.starts_with("note: /nowhere: No such file"), "{text}");
    assert!(text.contains("note: /bin: it is no file\n"), "{text}");
    let (done, text) = check(right, 0o666);
    assert!(done.is_ok() && text.starts_with("note: the router would refuse it: others"), "{text}");
    let wrong = check(&right.replace("program", "porgram"), 0o644).0.expect_err("is wrong").to_string();
    assert!(wrong.contains("toy.toml:3:1") && wrong.contains("did you mean `program`?"), "{wrong}");
    let endless = Line::parse("check --descriptor /dev/zero").expect("parses");
    let endless = endless.run_on(holdfast_config::Schema::new([]), &mut Vec::new()).expect_err("has no end");
    assert!(endless.to_string().contains("this is too long for a descriptor"), "{endless}");
    assert!(Line::parse("check").is_err() && Line::parse("check -c a --descriptor b").is_err());
}

#[test]
fn a_program_that_is_not_there_or_nobody_may_execute_is_an_error_of_the_configuration() {
    use std::os::unix::fs::PermissionsExt;
    let directory = fake::Directory::new();
    let [file, descriptor, program] =
        ["router.toml", "toy.toml", "toy"].map(|name| directory.path().join(name));
    let router = "[router]\nid = \"10.0.0.1\"\nasn = 65000\n[[protocol]]\nname = \"toy\"\ndescriptor = \"toy.toml\"\n[toy]\n";
    std::fs::write(&file, router).expect("writes");
    let text = format!("does = \"says hello\"\ndoc = \"A toy.\"\nprogram = \"{}\"\n", program.display());
    std::fs::write(&descriptor, text).expect("writes");
    std::fs::set_permissions(&descriptor, std::fs::Permissions::from_mode(0o644)).expect("changes");
    let check = || {
        let line = Line::parse(&format!("check -c {}", file.display())).expect("parses");
        line.run_on(holdfast_config::Schema::new([]), &mut Vec::new()).map_err(|wrong| wrong.to_string())
    };
    let missing = check().expect_err("it is not there");
    assert!(
        missing.contains("toy.toml:3:11: ") && missing.contains("No such file or directory"),
        "{missing}"
    );
    std::fs::write(&program, "").expect("writes");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o644)).expect("changes");
    let text = check().expect_err("it is no program");
    assert!(text.contains("toy.toml:3:11: ") && text.contains("nobody may execute it"), "{text}");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("changes");
    check().expect("it is there");
}

#[test]
fn check_reports_faults_as_text_or_json() {
    let directory = fake::Directory::new();
    let file = directory.path().join("router.toml");
    let check = |text: &str, json: &str| {
        std::fs::write(&file, text).expect("writes");
        let mut out = Vec::new();
        let line = Line::parse(&format!("check -c {} {json}", file.display())).expect("parses");
        let done = line.run_on(holdfast_config::Schema::new([]), &mut out);
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
    assert!(
        matches!(line.run_on(holdfast_config::Schema::new([]), &mut io::sink()), Err(Failure::Wrong(_))),
        "not UTF-8"
    );
    let absent = Line::parse("check -c /nonexistent.toml")
        .expect("parses")
        .run_on(holdfast_config::Schema::new([]), &mut io::sink());
    assert_eq!(absent.expect_err("is absent").exit_code(), 1);
}

#[test]
fn a_change_of_policy_is_shown_until_and_after_it_has_reached_all_routes() {
    let router = Router::start();
    let text = router.text("show bgp policy");
    let rows: Vec<_> =
        text.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        rows,
        [
            "transit-1 10.1.0.2 import from-transit 25 % 00:00:02 ago 2000 ms",
            "down-1 10.1.0.3 export - 100 % 00:01:30 ago 1234 ms",
        ]
    );
    let shown = router.json("show bgp policy");
    assert_eq!(
        (&shown["changes"][0]["percent"], &shown["changes"][0]["running"]),
        (&json!(25), &json!(true))
    );
    assert_eq!(shown["changes"][1]["tookMsec"], 1234);
}

#[test]
fn a_trace_says_what_each_term_said() {
    let router = Router::start();
    let expected = "192.0.2.0/24 from transit-1\n  accepted by policy from-transit, term rest\n    \
        bogons  no: prefix-set = [\"bogons\"], the route has 192.0.2.0/24\n    \
        rest    yes: local-preference 80; accept\n  result\n    local-preference 80\n";
    assert_eq!(router.text("policy trace from-transit 192.0.2.0/24"), expected);
    let shown = router.json("policy trace from-transit 192.0.2.0/24 --export down-1");
    assert_eq!((&shown["policy"], &shown["export"]), (&json!("from-transit"), &json!("down-1")));
    assert_eq!(shown["paths"][0]["trace"]["decidedBy"], "rest");
    assert_eq!(shown["paths"][0]["trace"]["places"][0]["failed"]["found"], "192.0.2.0/24");
    assert_eq!(
        router.fails("policy trace nobody 192.0.2.0/24"),
        (1, "there is no policy `nobody`".to_owned())
    );
    assert!(Line::parse("policy trace p 10.0.0.0/8 --peer a --export b").is_err());
}

const POLICIES: &str = r#"
[router]
id = "10.0.0.1"
asn = 65001
[[prefix-set]]
name = "bogons"
prefixes = ["10.0.0.0/8 le 32"]
[[policy]]
name = "sanity"
[[policy.term]]
name = "bogons"
from = { prefix-set = "bogons" }
then = "reject"
[[policy]]
name = "in"
last = "accept"
[[policy.term]]
name = "checks"
then = { apply = "sanity", local-preference = 120 }
"#;

/// Runs `policy test` on these policies; `files` are written beside them.
fn policy_test(arguments: &str, cases: &str) -> (Result<(), Failure>, String) {
    let directory = fake::Directory::new();
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("router.toml"), POLICIES).expect("writes");
    std::fs::write(at("cases.toml"), cases).expect("writes");
    let arguments = arguments.replace("CASES", &at("cases.toml").display().to_string());
    let line = format!("policy test -c {} {arguments}", at("router.toml").display());
    let mut out = Vec::new();
    let done = Line::parse(&line).expect("parses").run_on(holdfast_config::Schema::new([]), &mut out);
    (done, String::from_utf8(out).expect("text"))
}

#[test]
fn a_policy_of_a_file_is_tried_on_a_route() {
    let (done, text) = policy_test("--policy in --prefix 10.1.0.0/16", "");
    assert!(done.is_ok(), "nothing was expected");
    let expected = "10.1.0.0/16\n  refused by policy in, term sanity: bogons\n    \
        checks    yes: local-preference 120; reject\n      bogons  yes: reject\n";
    assert_eq!(text, expected);
    let (done, text) = policy_test(
        "--policy in --prefix 192.0.2.0/24 --as-path 65002 --community rt:1:2 --expect accept --expect-term last",
        "",
    );
    assert!(done.is_ok() && text == "ok      192.0.2.0/24: accepted by policy in, term last\n", "{text}");
    let (done, text) = policy_test("--policy in --prefix 10.0.0.0/8 --expect accept", "");
    assert_eq!(done.expect_err("is refused").exit_code(), 1);
    assert!(text.contains("expected to be accepted, and is refused"), "{text}");
    for bad in [
        "--policy x --prefix 10.0.0.0/8",
        "--policy in --prefix x",
        "--policy in --prefix 10.0.0.0/8 --origin x",
    ] {
        assert_eq!(policy_test(bad, "").0.expect_err(bad).exit_code(), 1);
    }
    assert!(Line::parse("policy test -c x --prefix 10.0.0.0/8").is_err(), "of which policy?");
}

#[test]
fn cases_of_a_file_are_all_tried_and_those_that_fail_are_explained() {
    let cases = r#"
        [[case]]
        name = "bogons are refused"
        policy = "in"
        prefix = "10.0.0.0/8"
        expect = "reject"
        expect-term = "sanity: bogons"
        [[case]]
        name = "others are preferred"
        policy = "in"
        prefix = "192.0.2.0/24"
        as-path = "65002 65003"
        community = ["65001:1"]
        expect = "accept"
        expect-result = ["local-preference 121"]
    "#;
    let (done, text) = policy_test("--cases CASES", cases);
    assert_eq!(done.expect_err("one fails").to_string(), "1 of 2 routes are not treated as expected");
    assert!(text.starts_with("ok      bogons are refused: "), "{text}");
    assert!(
        text.contains("FAILED  others are preferred\n  expected `local-preference 121` in the result\n"),
        "{text}"
    );
    let (done, text) = policy_test("--cases CASES --json", &cases.replace("121", "120"));
    assert!(done.is_ok(), "{text}");
    let shown: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&shown["failed"], &shown["cases"][1]["trace"]["accepted"]), (&json!(0), &json!(true)));
    assert!(policy_test("--cases CASES", "[[case]]\nprefx = 1").0.is_err());
}

/// A file with this in it.
fn file(name: &str, text: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("holdfast-cli-{}-{name}", std::process::id()));
    std::fs::write(&path, text).expect("a file");
    path
}

#[test]
fn diff_says_what_would_change_and_its_exit_code_says_whether() {
    let router = Router::start();
    let run = |name: &str, text: &str, options: &str| {
        let (file, mut out) = (file(name, text), Vec::new());
        let result = router.run(&format!("diff -c {} {options}", file.display()), &mut out);
        std::fs::remove_file(file).expect("it is there");
        (result.err().map_or(0, |failure| failure.exit_code()), String::from_utf8(out).expect("text"))
    };
    assert_eq!(run("same", answers::RUNNING, ""), (0, "nothing would change\n".to_owned()));
    let other = answers::RUNNING.replace("10.1.0.2", "10.1.0.3");
    let text = "peers changed: transit-1\nsessions that would end: transit-1\n  transit-1 in VRF blue: it has too much\n";
    assert_eq!(run("other", &other, ""), (4, text.to_owned()));
    let (code, unified) = run("unified", &other, "--unified");
    assert!(
        code == 4 && unified.contains("\n-address = \"10.1.0.2\"\n+address = \"10.1.0.3\"\n"),
        "{unified}"
    );
    let (code, json) = run("json", &other, "--json");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let expected = serde_json::json!({
        "changes": ["peers changed: transit-1"],
        "sessions_ended": ["transit-1"],
        "over_limits": [{ "peer": "transit-1", "vrf": "blue", "cause": "it has too much" }],
        "restart": [],
    });
    assert_eq!((code, json), (4, expected));
    assert_eq!(run("restart", &other.replace("65001", "65002"), "").0, 1);
}

#[test]
fn a_script_edits_a_candidate_and_commits_it() {
    let router = Router::start();
    let run = |name: &str, script: &str| {
        let (file, mut out) = (file(name, script), Vec::new());
        let result = router.run(&format!("configure -f {}", file.display()), &mut out);
        std::fs::remove_file(file).expect("it is there");
        let out = String::from_utf8(out).expect("text");
        match result {
            Ok(()) => out,
            Err(failure) => format!("{out}{failure}, exit code {}", failure.exit_code()),
        }
    };
    let edit = "# A new peer.\nset bgp.peer.b.address 10.1.0.7\nset bgp peer b asn 65107\n";
    let text = run("commit", &format!("{edit}commit confirmed 2 without rip comment port 7\n"));
    assert!(
        text.starts_with("12 lines, false, 120 s, port 7rip\nversion 3 runs\nrolled back in 120 s"),
        "{text}"
    );
    let text = run("compare", &format!("{edit}show | compare\nshow bgp.peer.b\ncheck\ndiscard\nexit\n"));
    for part in ["+address = \"10.1.0.7\"\n", "\nname = \"b\"\n", "sessions that would end: transit-1"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = run("rollback", "rollback 2\nshow bgp.peer.transit-1.address\ndiscard\n");
    assert_eq!(text, "address = \"10.1.0.9\"\n");
    let text = run("history", "history\ncommit\n");
    assert!(text.contains("*        3  2026-11-21 18:51:10Z  root  port 7\n"), "{text}");
    assert!(text.ends_with("confirmed\n"), "{text}");
    // What is left over, or wrong, is an error, and nothing is committed.
    assert!(run("left", edit).contains("without `commit`"));
    assert!(run("wrong", "set bgp.pear.b.asn 7\ncommit\n").contains("did you mean `peer`?, exit code 1"));
}
