//! What a looking glass sees, and Debian's exporter for FRR.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use holdfast_bgp_wire::{Origin, edit::AttributesBuilder};
use holdfast_lab::{
    router::{Router, binary},
    table::{AttributeSet, Table},
    topology::{ROUTER, Star},
    wait,
};
use holdfast_types::{Asn, Prefix};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(30);
const CONFIGURATION: &str = r#"
[glass]
[[bgp.peer]]
name = "left"
address = "10.0.1.2"
asn = 65001
passive = true
description = "the left one"
import = "in"
export = "accept-all"
[[bgp.peer]]
name = "right"
address = "10.0.2.2"
asn = 65002
passive = true
import = "accept-all"
export = "out"
[[policy]]
name = "in"
[[policy.term]]
name = "too-long"
from = { prefix-length = { min = 25 } }
then = "reject"
[[policy.term]]
name = "rest"
then = { add-communities = ["65000:7"], action = "accept" }
[[policy]]
name = "out"
[[policy.term]]
name = "not-these"
from = { prefix = "203.0.113.0/24" }
then = "reject"
[[policy.term]]
name = "rest"
then = "accept"
"#;

fn table(prefixes: &[&str]) -> Arc<Table> {
    let attributes = AttributesBuilder {
        as_path: [Asn(7)].into(),
        communities: vec![65001 << 16 | 9],
        large_communities: vec![(65001, 1, 2)],
        med: Some(5),
        ..AttributesBuilder::new(Origin::Igp)
    };
    let routes = prefixes.iter().map(|text| (text.parse::<Prefix>().expect("a prefix"), 0)).collect();
    Arc::new(Table { sets: vec![AttributeSet { bytes: attributes.build() }], routes })
}

/// The status line and the body of an answer, its chunks joined.
fn ask(star: &Star, path: &str) -> Result<(String, String)> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: router\r\n\r\n");
    let answer = star.router.run(move || {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, 29184))?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok::<_, anyhow::Error>(answer)
    })??;
    let (head, body) = answer.split_once("\r\n\r\n").with_context(|| format!("no answer: {answer:?}"))?;
    let status = head.lines().next().unwrap_or_default().to_owned();
    let body = if head.contains("transfer-encoding: chunked") { join(body)? } else { body.to_owned() };
    Ok((status, body))
}

/// RFC 9112 section 7.1.
fn join(mut chunked: &str) -> Result<String> {
    let mut body = String::new();
    loop {
        let (length, rest) = chunked.split_once("\r\n").context("a chunk without a length")?;
        let length = usize::from_str_radix(length, 16)?;
        if length == 0 {
            return Ok(body);
        }
        body.push_str(rest.get(..length).context("a chunk that is cut off")?);
        chunked = rest.get(length + 2..).context("a chunk without an end")?;
    }
}

fn get(star: &Star, path: &str) -> Result<Value> {
    let (status, body) = ask(star, path)?;
    ensure!(status.starts_with("HTTP/1.1 200"), "{path}: {status} {body}");
    let answer: Value = serde_json::from_str(&body).with_context(|| format!("{path}: {body}"))?;
    // What alice-lg reads of every answer (parseAPIStatus); without one of these it gives up or panics.
    let api = &answer["api"];
    ensure!(api["Version"].is_string() && api["result_from_cache"].is_boolean(), "{path}: {api}");
    ensure!(api["cache_status"]["cached_at"]["date"].is_string() && answer["ttl"].is_string(), "{path}");
    Ok(answer)
}

fn networks(star: &Star, path: &str) -> Result<Vec<String>> {
    let answer = get(star, path)?;
    let routes = answer["routes"].as_array().with_context(|| format!("{path}: {answer}"))?;
    Ok(routes.iter().filter_map(|route| Some(route["network"].as_str()?.to_owned())).collect())
}

#[test]
fn a_looking_glass_sees_what_was_taken_refused_told_and_kept_back() -> Result<()> {
    let star = Star::new(2)?;
    let router = Router::start(&star.router, &[ROUTER, CONFIGURATION].concat())?;
    let left = star.speaker(1, 65001, |_| ())?;
    let _right = star.speaker(2, 65002, |_| ())?;
    left.announce(table(&["198.51.100.0/24", "203.0.113.0/24", "192.0.2.128/25"]));
    router.until_established("right", LIMIT)?;
    let protocols = wait::until("the routes", LIMIT, || {
        let answer = get(&star, "/protocols/bgp").map_err(|error| format!("{error:#}"))?;
        let is_told = answer["protocols"]["right"]["routes"]["exported"] == 1;
        let is_there = answer["protocols"]["left"]["routes"]["imported"] == 2;
        if is_told && is_there { Ok(answer) } else { Err(answer.to_string()) }
    })?;
    let left = &protocols["protocols"]["left"];
    // What alice-lg reads of a session (parseNeighbors).
    for (key, expected) in [
        ("neighbor_address", Value::from("10.0.1.2")),
        ("neighbor_as", 65001.into()),
        ("state", "up".into()),
        ("description", "the left one".into()),
        ("bird_protocol", "BGP".into()),
        ("last_error", "".into()),
    ] {
        ensure!(left[key] == expected, "{key}: {left}");
    }
    ensure!(left["state_changed"].is_string() && left["routes"]["filtered"] == 1, "{left}");
    ensure!(get(&star, "/protocols/short?uncached=true")?["protocols"]["left"]["since"].is_string());
    let status = &get(&star, "/status")?["status"];
    ensure!(status["router_id"] == "10.0.0.1" && status["current_server"].is_string(), "{status}");

    ensure!(networks(&star, "/routes/protocol/left")? == ["198.51.100.0/24", "203.0.113.0/24"]);
    ensure!(networks(&star, "/routes/peer/10.0.1.2")?.len() == 2);
    ensure!(networks(&star, "/routes/filtered/left")? == ["192.0.2.128/25"]);
    ensure!(networks(&star, "/routes/export/right")? == ["198.51.100.0/24"]);
    ensure!(networks(&star, "/routes/noexport/right")? == ["203.0.113.0/24"]);
    let kept_back = get(&star, "/routes/noexport/right")?;
    ensure!(kept_back["routes"][0]["primary"] == true, "it is best all the same: {kept_back}");
    ensure!(networks(&star, "/routes/noexport/left")?.is_empty(), "its own are not worth a word");
    ensure!(networks(&star, "/routes/prefix?prefix=198.51.100.0/24")? == ["198.51.100.0/24"]);
    ensure!(networks(&star, "/routes/prefix?prefix=198.51.0.0/16")?.is_empty());
    ensure!(networks(&star, "/route/net/198.51.100.7")? == ["198.51.100.0/24"]);
    ensure!(networks(&star, "/routes/table/master4")?.len() == 2);
    ensure!(networks(&star, "/routes/table/master4/filtered")?.len() == 1);
    ensure!(get(&star, "/routes/count/protocol/left")?["routes"] == 2);
    let dump = get(&star, "/routes/dump")?;
    ensure!(dump["imported"].as_array().map(Vec::len) == Some(2), "{dump}");
    ensure!(dump["filtered"].as_array().map(Vec::len) == Some(1), "{dump}");
    let refused = get(&star, "/routes/filtered/left")?;
    ensure!(refused["routes"][0]["reason"] == "refused by policy in, term too-long", "{refused}");
    // What alice-lg reads of a route (parseRouteData, parseRouteBgpInfo).
    let route = &get(&star, "/routes/export/right")?["routes"][0];
    ensure!(route["from_protocol"] == "left" && route["primary"] == true, "{route}");
    ensure!(route["metric"].is_number() && route["type"].is_array() && route["age"].is_string(), "{route}");
    let bgp = &route["bgp"];
    ensure!(bgp["as_path"] == serde_json::json!(["65000", "65001", "7"]), "as it is told: {bgp}");
    ensure!(bgp["communities"] == serde_json::json!([[65001, 9], [65000, 7]]), "{bgp}");
    ensure!(bgp["large_communities"] == serde_json::json!([[65001, 1, 2]]), "{bgp}");
    ensure!(bgp["next_hop"] == "10.0.2.1" && bgp["origin"].is_string(), "{bgp}");

    for (path, status) in
        [("/config", "404"), ("/routes/protocol/nobody", "404"), ("/routes/prefix?prefix=x", "400")]
    {
        let (head, body) = ask(&star, path)?;
        ensure!(head.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {head}");
        ensure!(serde_json::from_str::<Value>(&body)?["error"].is_string(), "{body}");
    }
    // The same from the command line.
    let told = router.show(&["bgp", "neighbors", "right", "withheld-routes"])?;
    let why = &told["routes"]["203.0.113.0/24"][0]["reason"];
    ensure!(why == "refused by policy out, term not-these", "{told}");
    let received = router.show(&["bgp", "neighbors", "left", "received-routes"])?;
    ensure!(received["totalRoutes"] == 3, "{received}");
    Ok(())
}

/// Debian's exporter, until it is dropped.
struct Exporter(Child);

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn debians_exporter_for_frr_reads_us_through_vtysh() -> Result<()> {
    let star = Star::new(2)?;
    let router = Router::start(&star.router, &[ROUTER, CONFIGURATION].concat())?;
    let left = star.speaker(1, 65001, |_| ())?;
    left.announce(table(&["198.51.100.0/24", "203.0.113.0/24"]));
    router.until_neighbor("left", LIMIT, |shown| {
        shown["addressFamilyInfo"]["ipv4Unicast"]["acceptedPrefixCounter"] == 2
    })?;
    let vtysh = router.directory().join("holdfast-vtysh");
    std::os::unix::fs::symlink(binary()?, &vtysh)?;
    let mut command = star.router.command("prometheus-frr-exporter");
    command.arg("--frr.vtysh").arg(format!("--frr.vtysh.path={}", vtysh.display()));
    command.args(["--web.listen-address=127.0.0.1:9342", "--collector.bgp6"]);
    command.arg("--collector.bgp.peer-descriptions");
    command.arg("--collector.bgp.peer-descriptions.plain-text");
    command.env("HOLDFAST_RUNTIME_DIR", router.directory());
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let _exporter = Exporter(child.context("starting prometheus-frr-exporter")?);
    let scraped = wait::until("a scrape", LIMIT, || {
        let scraped = star.router.run(|| {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, 9342))?;
            stream.set_read_timeout(Some(LIMIT))?;
            stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok::<_, std::io::Error>(answer)
        });
        scraped.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    })?;
    let value = |name: &str, labels: &[&str]| -> Result<f64> {
        let line = scraped.lines().find(|line| {
            line.starts_with(&format!("{name}{{")) && labels.iter().all(|label| line.contains(label))
        });
        let line = line.with_context(|| format!("no {name} {labels:?} in {scraped}"))?;
        Ok(line.rsplit(' ').next().context("a value")?.parse()?)
    };
    for collector in ["bgp", "bgp6", "bfd", "ospf"] {
        let up = value("frr_collector_up", &[&format!("collector=\"{collector}\"")])?;
        ensure!(up == 1.0, "{collector}: {scraped}");
    }
    let v4 = "afi=\"ipv4\"";
    ensure!(value("frr_bgp_peer_state", &[v4, "peer=\"10.0.1.2\"", "peer_desc=\"the left one\""])? == 1.0);
    ensure!(value("frr_bgp_peer_state", &[v4, "peer=\"10.0.2.2\""])? == 0.0);
    ensure!(value("frr_bgp_peer_prefixes_received_count_total", &[v4, "peer=\"10.0.1.2\""])? == 2.0);
    ensure!(value("frr_bgp_peers_count_total", &[v4, "local_as=\"65000\""])? == 2.0);
    let unknown = Command::new(&vtysh)
        .args(["-c", "show frobnicate json"])
        .env("HOLDFAST_RUNTIME_DIR", router.directory())
        .output()?;
    ensure!(unknown.status.code() == Some(1) && unknown.stdout.is_empty(), "{unknown:?}");
    Ok(())
}
