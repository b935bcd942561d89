//! `show bgp route PREFIX`: every path of a prefix, and why it is or is not used.

use std::io::{self, Write};

use holdfast_api::bgp::v1::{
    BgpClient, Path, PathSignatures, Paths, Prefix, SentTo, ShowRouteRequest, SignatureFault,
};
use serde_json::{Map, Value, json};

use super::{
    routes::{flags, origin_word, peer_id},
    summary::epoch_of,
};
use crate::{
    Failure,
    json::line,
    router::{Router, answer},
    text::{afi, or_dash},
};

pub(super) async fn show(
    router: &Router,
    destination: String,
    as_json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let bgp: BgpClient = router.client("bgp").await?;
    let found = answer(bgp.show_route(ShowRouteRequest { destination: destination.clone() })).await?;
    let Some(prefix) = found.prefixes.first() else {
        return Err(Failure::NothingFound(format!("BGP has no route to {destination}")));
    };
    match as_json {
        true => line(out, &to_json(prefix, &found))?,
        false => write(prefix, &found, out)?,
    }
    Ok(())
}

fn to_json(prefix: &Prefix, found: &Paths) -> Value {
    let to: Map<_, _> = found.advertised_to.iter().map(|peer| (peer.clone(), json!({}))).collect();
    let mut value = json!({
        "prefix": prefix.prefix,
        "advertisedTo": to,
        "sent_to": found.sent_to.iter().map(sent_to).collect::<Vec<_>>(),
        "paths": prefix.paths.iter().map(path_json).collect::<Vec<_>>(),
    });
    if found.validates {
        value["vrps"] = json!(found.vrps);
    }
    value
}

/// `why` is `null` where the route is sent with signatures.
fn sent_to(SentTo { peer, signed, why, .. }: &SentTo) -> Value {
    json!({ "peer": peer, "signed": signed, "why": if *signed { None } else { Some(why) } })
}

fn path_json(path: &Path) -> Value {
    let link = if path.external { "external" } else { "internal" };
    let mut value = json!({
        "aspath": as_path(&path.as_path, empty_path(path)),
        "origin": origin_word(&path.origin),
        "valid": path.valid,
        "nexthops": next_hops(path),
        "peer": {
            "peerId": peer_id(path),
            "peerName": path.peer,
            "remoteAs": path.peer_asn,
            "routerId": path.peer_router_id,
            "type": link,
        },
    });
    let members = optional_members(path);
    for (key, member) in members.into_iter().filter(|(_, member)| !member.is_null()) {
        value[key] = member;
    }
    value
}

/// What is known of a path's signatures. `at` is when that was found, in seconds of Unix time; what there is none of is `null`.
pub(super) fn bgpsec(bgpsec: &PathSignatures) -> Value {
    let fault = bgpsec.fault.as_ref();
    json!({
        "state": bgpsec.state,
        "pending": bgpsec.pending,
        "at": bgpsec.milliseconds_ago.and_then(epoch_of),
        "reason": fault.map(|fault| &fault.reason),
        "failing_hop": fault.map(|fault| fault.failing_hop),
        "asn": fault.map(|fault| fault.asn),
        "ski": fault.map(|fault| &fault.ski),
        "suite": fault.map(|fault| fault.suite),
    })
}

/// None for a route of our own.
fn next_hops(path: &Path) -> Value {
    if path.next_hop.is_empty() {
        return json!([]);
    }
    json!([{
        "ip": path.next_hop,
        "afi": afi(&path.next_hop),
        "metric": path.igp_metric,
        "accessible": path.igp_metric.is_some(),
        "used": path.best || path.multipath,
    }])
}

/// What is left out where a path does not have it; `null` stands for that.
fn optional_members(path: &Path) -> [(&'static str, Value); 20] {
    let text = |text: &str| if text.is_empty() { Value::Null } else { text.into() };
    let flag = |set: bool| if set { true.into() } else { Value::Null };
    let list = |entries: &[String]| match entries {
        [] => Value::Null,
        entries => json!({ "string": entries.join(" "), "list": entries }),
    };
    [
        ("metric", path.med.into()),
        ("locPrf", path.local_pref.into()),
        ("pathId", path.path_id.into()),
        ("weight", if path.weight > 0 { path.weight.into() } else { Value::Null }),
        ("bestpath", if path.best { json!({ "overall": true }) } else { Value::Null }),
        ("multipath", flag(path.multipath)),
        ("stale", flag(path.stale)),
        ("reason", text(&path.reason)),
        ("validity", text(&path.validity)),
        ("aspa", text(&path.aspa)),
        ("bgpsec", path.bgpsec.as_ref().map_or(Value::Null, bgpsec)),
        ("local", flag(path.peer_address.is_empty())),
        ("community", list(&path.communities)),
        ("largeCommunity", list(&path.large_communities)),
        ("extendedCommunity", list(&path.ext_communities)),
        ("aggregatorId", text(&path.aggregator)),
        ("atomicAggregate", flag(path.atomic_aggregate)),
        ("originatorId", text(&path.originator_id)),
        ("clusterList", list(&path.cluster_list)),
        ("unknownAttributes", list(&path.unknown_attributes)),
    ]
}

/// What stands for an AS path in which no AS counts: it starts inside our AS, or its ASs have left themselves out of it (RFC 8205
/// section 3.1).
fn empty_path(path: &Path) -> &'static str {
    match &path.bgpsec {
        Some(bgpsec) if bgpsec.state != UNSIGNED => "pCount 0",
        Some(_) | None => "Local",
    }
}

/// The state of a path that came without signatures.
const UNSIGNED: &str = "unsigned";

/// FRR's form of an AS path, from text as `(64512) 65001 65002 {65003,65004}`; `empty` stands for one without an AS.
fn as_path(text: &str, empty: &str) -> Value {
    const SEQUENCE: &str = "as-sequence";
    let mut segments: Vec<Value> = Vec::new();
    let mut length = 0;
    let mut kind = SEQUENCE;
    for part in text.split_inclusive(['{', '[', '(', '}', ']', ')']) {
        let asns = numbers(part);
        // A set counts as one, confederation segments as none (RFC 4271 section 9.1.2.2, RFC 5065).
        length += match kind {
            SEQUENCE => asns.len(),
            "as-set" => 1,
            _ => 0,
        };
        if !asns.is_empty() {
            segments.push(json!({ "type": kind, "list": asns }));
        }
        kind = match part.as_bytes().last() {
            Some(b'{') => "as-set",
            Some(b'[') => "as-confed-set",
            Some(b'(') => "as-confed-sequence",
            _ => SEQUENCE,
        };
    }
    let string = if text.is_empty() { empty } else { text };
    json!({ "string": string, "segments": segments, "length": length })
}

fn numbers(text: &str) -> Vec<u32> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
}

fn write(prefix: &Prefix, found: &Paths, out: &mut dyn Write) -> io::Result<()> {
    let count = prefix.paths.len();
    writeln!(out, "{}: {count} {}", prefix.prefix, if count == 1 { "path" } else { "paths" })?;
    let list = |entries: &[String], none: &str| {
        if entries.is_empty() { none.to_owned() } else { entries.join(", ") }
    };
    writeln!(out, "  Advertised to: {}", list(&found.advertised_to, "nobody"))?;
    // Where nobody has agreed on signatures there is nothing to be said of them.
    if found.sent_to.iter().any(|sent| sent.signed || sent.why != "not-agreed") {
        for SentTo { peer, signed, reason, .. } in &found.sent_to {
            let signed = if *signed { "signed".to_owned() } else { format!("not signed: {reason}") };
            writeln!(out, "    {peer}: {signed}")?;
        }
    }
    if found.validates {
        writeln!(out, "  VRPs: {}", list(&found.vrps, "none covers it"))?;
    }
    prefix.paths.iter().try_for_each(|path| write_path(path, out))
}

fn write_path(path: &Path, out: &mut dyn Write) -> io::Result<()> {
    let as_path = if path.as_path.is_empty() { empty_path(path) } else { &path.as_path };
    writeln!(out, "\n{} {as_path}", flags(path))?;
    let (address, router_id) = (or_dash(&path.peer_address), or_dash(&path.peer_router_id));
    let id = path.path_id.map(|id| format!(", path id {id}")).unwrap_or_default();
    writeln!(out, "    from {} ({address}, router id {router_id}, AS {}){id}", path.peer, path.peer_asn)?;
    if !path.next_hop.is_empty() {
        let metric = path.igp_metric.map_or("unreachable".to_owned(), |metric| format!("metric {metric}"));
        writeln!(out, "    next hop {} ({metric})", path.next_hop)?;
    }
    let number = |value: Option<u32>| value.map_or("-".to_owned(), |value| value.to_string());
    let (preference, med) = (number(path.local_pref), number(path.med));
    let weight = if path.weight > 0 { format!(", weight {}", path.weight) } else { String::new() };
    let origin = origin_word(&path.origin);
    writeln!(out, "    origin {origin}, local preference {preference}, MED {med}{weight}")?;
    let state = match (path.best, path.multipath, path.reason.as_str()) {
        (true, _, _) => "best",
        (false, true, "") => "multipath",
        (false, false, "") => "not best",
        (false, _, reason) => reason,
    };
    let stale = if path.stale { ", stale: of the session before" } else { "" };
    writeln!(out, "    {}{state}{stale}", if path.valid { "" } else { "not usable: " })?;
    if !path.validity.is_empty() {
        writeln!(out, "    origin {}, path {} by the RPKI", path.validity, path.aspa)?;
    }
    if let Some(bgpsec) = &path.bgpsec {
        let pending = if bgpsec.pending { ", to be verified" } else { "" };
        write!(out, "    BGPsec: {}{pending}", bgpsec.state)?;
        if let Some(fault) = &bgpsec.fault {
            let SignatureFault { reason, failing_hop, asn, ski, suite } = fault;
            write!(out, "; hop {failing_hop} (AS {asn}, key {ski}, suite {suite}): {reason}")?;
        }
        writeln!(out)?;
    }
    for (title, entries) in [
        ("communities", &path.communities),
        ("large communities", &path.large_communities),
        ("extended communities", &path.ext_communities),
        ("cluster list", &path.cluster_list),
        ("unknown attributes", &path.unknown_attributes),
    ] {
        if !entries.is_empty() {
            writeln!(out, "    {title}: {}", entries.join(" "))?;
        }
    }
    for (title, text) in [("aggregator", &path.aggregator), ("originator", &path.originator_id)] {
        if !text.is_empty() {
            writeln!(out, "    {title} {text}")?;
        }
    }
    if path.atomic_aggregate { writeln!(out, "    atomic aggregate") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_has_its_time_and_what_it_does_not_have_is_null() {
        let state = |state: &str| PathSignatures { state: state.to_owned(), ..PathSignatures::default() };
        let expected = json!({
            "state": "unverified", "pending": true, "at": null,
            "reason": null, "failing_hop": null, "asn": null, "ski": null, "suite": null,
        });
        assert_eq!(bgpsec(&PathSignatures { pending: true, ..state("unverified") }), expected);
        let fault = SignatureFault {
            reason: "the signature is bad".to_owned(),
            failing_hop: 0,
            asn: 64496,
            ski: "AB".to_owned(),
            suite: 1,
        };
        let bad = PathSignatures { fault: Some(fault), milliseconds_ago: Some(1), ..state("not-valid") };
        let shown = bgpsec(&bad);
        assert!(shown["at"].as_u64().is_some_and(|at| at > 1_500_000_000), "{shown}");
        assert_eq!(
            (&shown["failing_hop"], &shown["suite"], &shown["ski"]),
            (&json!(0), &json!(1), &json!("AB"))
        );
    }

    #[test]
    fn a_path_whose_as_does_not_count_is_not_local() {
        let signed = |state: &str| {
            let bgpsec = Some(PathSignatures { state: state.to_owned(), ..PathSignatures::default() });
            Path { bgpsec, ..Path::default() }
        };
        for (path, expected) in [
            (Path::default(), "Local"),
            (signed("unsigned"), "Local"),
            (signed("unverified"), "pCount 0"),
            (signed("valid"), "pCount 0"),
        ] {
            let mut out = Vec::new();
            write_path(&path, &mut out).expect("memory");
            let text = String::from_utf8(out).expect("text");
            assert!(text.lines().any(|line| line.ends_with(expected)), "{text}");
            assert_eq!(path_json(&path)["aspath"]["string"], expected);
        }
    }

    #[test]
    fn segments_of_a_path_are_told_apart() {
        let table = [
            ("", json!({ "string": "Local", "segments": [], "length": 0 })),
            (
                "1 2 {3,4}",
                json!({ "string": "1 2 {3,4}", "segments": [
                    { "type": "as-sequence", "list": [1, 2] },
                    { "type": "as-set", "list": [3, 4] },
                ], "length": 3 }),
            ),
            (
                "(64512 64513) 1 {2} 3",
                json!({ "string": "(64512 64513) 1 {2} 3", "segments": [
                    { "type": "as-confed-sequence", "list": [64512, 64513] },
                    { "type": "as-sequence", "list": [1] },
                    { "type": "as-set", "list": [2] },
                    { "type": "as-sequence", "list": [3] },
                ], "length": 3 }),
            ),
        ];
        for (text, expected) in table {
            assert_eq!(as_path(text, "Local"), expected, "{text}");
        }
    }
}
