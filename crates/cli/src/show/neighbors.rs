//! `show bgp neighbors`.

use std::io::{self, Write};

use holdfast_api::bgp::v1::{
    BgpClient, Cost, Drop, FamilyState, Neighbor, NeighborBfd, NeighborBgpsec, PrefixLimit, RangeTotals,
    ShowNeighborsRequest, ShowRangesRequest, SummaryPeer,
};
use holdfast_xrl::{ErrorKind, XrlError};
use serde_json::{Map, Value, json};

use super::summary::{ESTABLISHED, established_epoch, key};
use crate::{
    Failure,
    json::Object,
    router::{Router, answer},
    text::{camel, or_dash, uptime},
};

pub(super) async fn show(
    router: &Router,
    name: Option<String>,
    as_json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let bgp: BgpClient = router.client("bgp").await?;
    let mut neighbors = bgp.show_neighbors(ShowNeighborsRequest { peer: name.clone().unwrap_or_default() });
    // The first answer says whether the peer exists; before that nothing is written.
    let mut next = match (answer(neighbors.next()).await, name) {
        (Err(Failure::Refused(error)), Some(name)) if error.kind() == ErrorKind::NotFound => {
            return show_range(&bgp, name, error, as_json, out).await;
        }
        (Ok(None), Some(name)) => {
            return Err(Failure::NothingFound(format!("there is no peer `{name}`")));
        }
        (first, _) => first?,
    };
    if !as_json {
        while let Some(neighbor) = next {
            write(&neighbor, out)?;
            next = answer(neighbors.next()).await?;
        }
        return Ok(());
    }
    let mut object = Object::begin(&mut *out)?;
    while let Some(neighbor) = next {
        let peer = neighbor.peer.clone().unwrap_or_default();
        object.member(&key(&peer), &to_json(&neighbor, &peer))?;
        next = answer(neighbors.next()).await?;
    }
    object.end()?;
    Ok(writeln!(out)?)
}

/// A listen range, of which there may be one where there is no such peer.
async fn show_range(
    bgp: &BgpClient,
    range: String,
    no_peer: XrlError,
    as_json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let ranges = match answer(bgp.show_ranges(ShowRangesRequest { range })).await {
        Ok(reply) => reply.ranges,
        Err(Failure::Refused(error)) if error.kind() == ErrorKind::NotFound => {
            return Err(Failure::Refused(no_peer));
        }
        Err(failure) => return Err(failure),
    };
    if !as_json {
        return Ok(ranges.iter().try_for_each(|range| write_range(range, out))?);
    }
    let mut object = Object::begin(&mut *out)?;
    for range in &ranges {
        object.member(&range.name, &range_json(range))?;
    }
    object.end()?;
    Ok(writeln!(out)?)
}

fn range_json(range: &RangeTotals) -> Value {
    let mut value = json!({
        "name": range.name,
        "listenRange": range.prefix,
        "peers": range.peers,
        "peersSeen": range.peers_seen,
        "connectionsEstablished": range.connections_established,
        "connectionsDropped": range.connections_dropped,
        "drops": drops(&range.drops),
        "faults": range.faults,
    });
    if !range.last_error.is_empty() {
        value["lastError"] = range.last_error.as_str().into();
        value["lastErrorOf"] = range.last_error_of.as_str().into();
    }
    value
}

fn write_range(range: &RangeTotals, out: &mut dyn Write) -> io::Result<()> {
    let RangeTotals { name, prefix, peers, peers_seen, .. } = range;
    writeln!(out, "Listen range {name} ({prefix})")?;
    writeln!(out, "  Peers: {peers} now, {peers_seen} so far")?;
    let (up, down) = (range.connections_established, range.connections_dropped);
    writeln!(out, "  Connections: {up} established, {down} dropped")?;
    if !range.last_error.is_empty() {
        writeln!(out, "  Last error: {} ({})", range.last_error, range.last_error_of)?;
    }
    write_drops(&range.drops, &range.faults, out)?;
    writeln!(out)
}

/// The BFD session, with FRR's keys where it has them.
fn bfd_json(bfd: &NeighborBfd) -> Value {
    let status = match bfd.state.as_str() {
        "up" => "Up",
        "down" => "Down",
        "init" => "Init",
        "admin-down" => "Admin-Down",
        _ => "Unknown",
    };
    let mut value = json!({
        "type": match bfd.hops.as_str() {
            "single" => "single hop",
            "multiple" => "multi hop",
            _ => "automatic",
        },
        "status": status,
        "profile": bfd.profile,
        "strict": bfd.strict,
        "awaited": bfd.awaited,
        "since_ms": bfd.since_milliseconds,
        "detection_us": bfd.detection_microseconds,
        "remote_control_plane_independent": bfd.remote_control_plane_independent,
    });
    let texts = [
        ("remote_state", &bfd.remote_state),
        ("diagnostic", &bfd.diagnostic),
        ("remote_diagnostic", &bfd.remote_diagnostic),
        ("local_address", &bfd.local_address),
    ];
    for (key, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        value[key] = text.as_str().into();
    }
    value
}

/// BGPsec on the session, and what is known of the peer's routes.
pub(super) fn bgpsec_json(bgpsec: &NeighborBgpsec) -> Value {
    json!({
        "sent": bgpsec.sent,
        "received": bgpsec.received,
        "valid": bgpsec.valid,
        "not_valid": bgpsec.not_valid,
        "unverified": bgpsec.unverified,
        "queued_hops": bgpsec.queued_hops,
        "incomplete": bgpsec.incomplete,
    })
}

/// By reason.
fn drops(drops: &[Drop]) -> Map<String, Value> {
    drops.iter().map(|drop| (drop.reason.clone(), drop.count.into())).collect()
}

fn write_drops(drops: &[Drop], faults: &[String], out: &mut dyn Write) -> io::Result<()> {
    for drop in drops {
        writeln!(out, "  Dropped: {} x {}", drop.count, drop.reason)?;
    }
    for fault in faults {
        writeln!(out, "  Fault: {fault}")?;
    }
    Ok(())
}

pub(super) fn to_json(neighbor: &Neighbor, peer: &SummaryPeer) -> Value {
    let mut value = json!({
        "name": peer.name,
        "remoteAs": peer.asn,
        "localAs": peer.local_asn,
        "nbrExternalLink": neighbor.link == "external",
        "bgpVersion": 4,
        "remoteRouterId": neighbor.router_id,
        "localRouterId": neighbor.local_router_id,
        "bgpState": peer.state,
        "bgpTimerLastRead": neighbor.last_read_milliseconds,
        "bgpTimerLastWrite": neighbor.last_write_milliseconds,
        "bgpTimerConfiguredHoldTimeMsecs": u64::from(neighbor.configured_hold_time) * 1000,
        "bgpTimerHoldTimeMsecs": u64::from(neighbor.hold_time) * 1000,
        "bgpTimerKeepAliveIntervalMsecs": u64::from(neighbor.keepalive) * 1000,
        "neighborCapabilities": capabilities(neighbor),
        "messageStats": messages(neighbor, peer),
        "addressFamilyInfo": families(neighbor),
        "connectionsEstablished": peer.connections_established,
        "connectionsDropped": peer.connections_dropped,
        "hostLocal": neighbor.local_address,
        "portLocal": neighbor.local_port,
        "hostForeign": far(neighbor, peer),
        "portForeign": neighbor.remote_port,
        "passive": neighbor.passive,
        "ttlSecurity": neighbor.ttl_security,
        "dynamicPeer": neighbor.in_listen_range,
        "admin_state": peer.admin_state,
        "pathRules": neighbor.options,
        "drops": drops(&neighbor.drops),
        "faults": neighbor.faults,
    });
    if let Some(cost) = &neighbor.cost {
        value["cost"] = json!({
            "cpu_ms": cost.cpu_microseconds / 1000,
            "octets_in": cost.octets_in,
            "turns": cost.turns,
            "longest_turn_us": cost.longest_turn_microseconds,
            "longest_turn_cause": cost.longest_turn_cause,
            "kept_octets": cost.kept_octets,
            "waited_for_percent": f64::from(cost.waited_for_permille) / 10.0,
        });
    }
    if let Some(bgpsec) = &neighbor.bgpsec {
        value["bgpsec"] = bgpsec_json(bgpsec);
    }
    if let Some(bfd) = &neighbor.bfd {
        value["peerBfdInfo"] = bfd_json(bfd);
    }
    let texts = [
        ("nbrDesc", &peer.description),
        ("lastResetDueTo", &neighbor.last_reset),
        ("lastError", &peer.last_error),
        ("admin_text", &peer.admin_text),
        ("peerGroup", &neighbor.group),
        ("transport", &neighbor.transport),
        ("proof", &neighbor.proof),
    ];
    for (key, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        value[key] = text.as_str().into();
    }
    if let Some(role) = role(neighbor) {
        value["localRole"] = role.into();
    }
    if let Some(epoch) = established_epoch(peer) {
        value["bgpTimerUpMsec"] = peer.uptime_milliseconds.into();
        value["bgpTimerUpString"] = uptime(peer.uptime_milliseconds).into();
        value["bgpTimerUpEstablishedEpoch"] = epoch.into();
    }
    value
}

/// Who has sent a capability, in FRR's words.
fn exchange(sent: bool, received: bool) -> &'static str {
    match (sent, received) {
        (true, true) => "advertisedAndReceived",
        (true, false) => "advertised",
        (false, _) => "received",
    }
}

/// FRR's key of a capability that is shown as text, and the family it is about where it stands for one.
fn capability_key(text: &str) -> (String, Option<&str>) {
    const KEYS: [(&str, &str); 13] = [
        ("long-lived graceful restart", "longLivedGracefulRestart"),
        ("four-octet AS", "4byteAs"),
        ("route refresh", "routeRefresh"),
        ("enhanced route refresh", "enhancedRouteRefresh"),
        ("extended message", "extendedMessage"),
        ("extended next hop", "extendedNexthop"),
        ("graceful restart", "gracefulRestart"),
        ("add-path", "addPath"),
        ("BGPsec", "bgpsec"),
        ("BFD strict mode", "bfdStrictMode"),
        ("outbound route filtering", "outboundRouteFiltering"),
        ("host name", "hostName"),
        ("role", "role"),
    ];
    if let Some(family) = text.strip_prefix("multiprotocol ") {
        return ("multiprotocolExtensions".to_owned(), Some(family));
    }
    let known = KEYS.iter().find(|(name, _)| text.starts_with(name));
    (known.map_or(text, |(_, key)| key).to_owned(), None)
}

fn capabilities(neighbor: &Neighbor) -> Map<String, Value> {
    let (sent, received) = (&neighbor.capabilities_sent, &neighbor.capabilities_received);
    let has = |list: &[String], wanted: &(String, Option<&str>)| {
        list.iter().any(|capability| capability_key(capability) == *wanted)
    };
    let mut all = Map::new();
    for capability in sent.iter().chain(received) {
        let wanted = capability_key(capability);
        let state = exchange(has(sent, &wanted), has(received, &wanted));
        match wanted {
            (key, None) => all.insert(key, state.into()),
            (key, Some(family)) => {
                let families = all.entry(key).or_insert_with(|| json!({}));
                families[camel(family)] = json!({ state: true });
                None
            }
        };
    }
    all
}

fn messages(neighbor: &Neighbor, peer: &SummaryPeer) -> Map<String, Value> {
    let mut stats = Map::new();
    stats.insert("depthInq".to_owned(), 0.into());
    stats.insert("depthOutq".to_owned(), peer.out_queue.into());
    for count in &neighbor.messages {
        let key = message_key(&count.kind);
        stats.insert(format!("{key}Sent"), count.sent.into());
        stats.insert(format!("{key}Recv"), count.received.into());
    }
    stats.insert("totalSent".to_owned(), peer.messages_sent.into());
    stats.insert("totalRecv".to_owned(), peer.messages_received.into());
    stats
}

/// FRR's name of a kind of message.
fn message_key(kind: &str) -> String {
    match kind.to_ascii_lowercase().as_str() {
        "open" => "opens".to_owned(),
        "notification" => "notifications".to_owned(),
        "update" => "updates".to_owned(),
        "keepalive" => "keepalives".to_owned(),
        other => camel(other),
    }
}

fn families(neighbor: &Neighbor) -> Map<String, Value> {
    let info = |family: &FamilyState| {
        let mut info = json!({
            "updateGroupId": family.update_group,
            "addPathRx": family.identifiers_received,
            "addPathTx": family.identifiers_sent,
            "receivedPrefixCounter": family.received,
            "acceptedPrefixCounter": family.accepted,
            "bestPrefixCounter": family.best,
            "sentPrefixCounter": family.sent,
            "endOfRibSend": family.end_of_rib_sent,
            "endOfRibRecv": family.end_of_rib_received,
            "importPolicy": neighbor.import,
            "exportPolicy": neighbor.export,
        });
        if neighbor.refreshing.contains(&family.family) {
            info["refreshing"] = true.into();
        }
        if let Some(filter) = neighbor.filters.iter().find(|filter| filter.family == family.family) {
            info["outboundRouteFilterEntries"] = filter.entries.into();
            info["outboundRouteFilterAsked"] = filter.has_asked.into();
        }
        if family.stale > 0 {
            info["stalePrefixCounter"] = family.stale.into();
        }
        if let Some(limit) = &family.limit {
            let numbers = [
                ("prefixAllowedMax", limit.received),
                ("prefixAcceptedMax", limit.accepted),
                ("prefixOutAllowedMax", limit.announced),
            ];
            for (key, most) in numbers.into_iter().filter(|(_, most)| *most > 0) {
                info[key] = most.into();
            }
            info["prefixAllowedMaxWarning"] = (limit.action == "warn").into();
            info["prefixAllowedWarningThresh"] = limit.warn_percent.into();
        }
        info
    };
    neighbor.families.iter().map(|family| (camel(&family.family), info(family))).collect()
}

fn write(neighbor: &Neighbor, out: &mut dyn Write) -> io::Result<()> {
    let peer = neighbor.peer.clone().unwrap_or_default();
    let link = or_dash(&neighbor.link);
    writeln!(out, "{} ({}), AS {}, {link} link", peer.name, or_dash(&peer.address), peer.asn)?;
    if !peer.description.is_empty() {
        writeln!(out, "  Description: {}", peer.description)?;
    }
    if !neighbor.group.is_empty() {
        writeln!(out, "  Group: {}", neighbor.group)?;
    }
    write_state(neighbor, &peer, out)?;
    write_session(neighbor, &peer, out)?;
    for family in &neighbor.families {
        write_family(family, out)?;
        write_refresh(neighbor, &family.family, out)?;
    }
    if neighbor.filter_entries_sent > 0 {
        writeln!(out, "  Outbound route filter sent: {} prefixes", neighbor.filter_entries_sent)?;
    }
    let (import, export) = (policy(&neighbor.import, neighbor), policy(&neighbor.export, neighbor));
    writeln!(out, "  Policy: import {import}, export {export}")?;
    if let Some(cost) = neighbor.cost.as_ref().filter(|cost| cost.turns > 0) {
        write_cost(cost, out)?;
    }
    write_drops(&neighbor.drops, &neighbor.faults, out)?;
    writeln!(out)
}

fn write_state(neighbor: &Neighbor, peer: &SummaryPeer, out: &mut dyn Write) -> io::Result<()> {
    if peer.state == ESTABLISHED {
        writeln!(out, "  State {ESTABLISHED}, up for {}", uptime(peer.uptime_milliseconds))?;
    } else {
        writeln!(out, "  State {}, last up {}", peer.state, uptime(peer.uptime_milliseconds))?;
    }
    if !peer.admin_text.is_empty() {
        writeln!(out, "  Stopped by the operator: {}", peer.admin_text)?;
    }
    if !peer.last_error.is_empty() {
        writeln!(out, "  Last error: {}", peer.last_error)?;
    }
    if !neighbor.last_reset.is_empty() {
        writeln!(out, "  Last reset: {}", neighbor.last_reset)?;
    }
    let (up, down) = (peer.connections_established, peer.connections_dropped);
    writeln!(out, "  Connections: {up} established, {down} dropped")
}

/// What we are to it (RFC 9234).
fn role(neighbor: &Neighbor) -> Option<&str> {
    neighbor.options.iter().find_map(|option| option.strip_prefix("role "))
}

/// Who is at the other end: where the peer is known by its interface alone, only the session says.
fn far<'a>(neighbor: &'a Neighbor, peer: &'a SummaryPeer) -> &'a str {
    match neighbor.remote_address.as_str() {
        "" => &peer.address,
        remote => remote,
    }
}

/// Nothing while there is no connection.
fn write_connection(neighbor: &Neighbor, remote: &str, out: &mut dyn Write) -> io::Result<()> {
    let Neighbor { local_address: local, local_port, remote_port, .. } = neighbor;
    if local.is_empty() {
        return Ok(());
    }
    writeln!(out, "  Local {local} port {local_port}, remote {remote} port {remote_port}")?;
    if !neighbor.transport.is_empty() {
        writeln!(out, "  Transport {}", neighbor.transport)?;
    }
    if !neighbor.proof.is_empty() {
        writeln!(out, "  Proof: {}", neighbor.proof)?;
    }
    let (read, written) = (neighbor.last_read_milliseconds, neighbor.last_write_milliseconds);
    writeln!(out, "  Last read {} ago, last write {} ago", uptime(read.max(1)), uptime(written.max(1)))
}

fn write_cost(cost: &Cost, out: &mut dyn Write) -> io::Result<()> {
    let &Cost { cpu_microseconds: cpu, octets_in, turns, longest_turn_microseconds: longest, .. } = cost;
    let [cpu, longest] = [cpu, longest].map(|micros| micros as f64 / 1000.0);
    let cause = or_dash(&cost.longest_turn_cause);
    writeln!(
        out,
        "  Cost: {cpu:.0} ms in {turns} turns, the longest {longest:.1} ms ({cause}), {octets_in} octets received, {} kept",
        cost.kept_octets
    )
}

fn write_session(neighbor: &Neighbor, peer: &SummaryPeer, out: &mut dyn Write) -> io::Result<()> {
    write_connection(neighbor, far(neighbor, peer), out)?;
    let (ours, theirs) = (or_dash(&neighbor.local_router_id), or_dash(&neighbor.router_id));
    writeln!(out, "  Router id: local {ours}, remote {theirs}")?;
    let (hold, keepalive, configured) =
        (neighbor.hold_time, neighbor.keepalive, neighbor.configured_hold_time);
    writeln!(out, "  Hold time {hold} s (configured {configured} s), keepalive {keepalive} s")?;
    let flags = [
        (neighbor.passive, "passive"),
        (neighbor.ttl_security, "ttl-security"),
        (neighbor.in_listen_range, "from a listen-range"),
    ];
    let flags = flags.into_iter().filter(|(set, _)| *set).map(|(_, flag)| flag.to_owned());
    let flags: Vec<_> = flags.chain(neighbor.options.iter().cloned()).collect();
    if !flags.is_empty() {
        writeln!(out, "  Options: {}", flags.join(", "))?;
    }
    let (sent, received) = (&neighbor.capabilities_sent, &neighbor.capabilities_received);
    writeln!(out, "  Capabilities sent: {}", or_dash(&sent.join(", ")))?;
    writeln!(out, "  Capabilities received: {}", or_dash(&received.join(", ")))?;
    if let Some(bgpsec) = &neighbor.bgpsec {
        write_bgpsec(bgpsec, out)?;
    }
    if let Some(bfd) = &neighbor.bfd {
        write_bfd(bfd, out)?;
    }
    writeln!(out, "  Messages: sent {}, received {}", peer.messages_sent, peer.messages_received)?;
    for count in &neighbor.messages {
        writeln!(out, "    {:<14} sent {}, received {}", count.kind, count.sent, count.received)?;
    }
    Ok(())
}

/// The first line what it says, the second why it was not up.
fn write_bfd(bfd: &NeighborBfd, out: &mut dyn Write) -> io::Result<()> {
    let state = if bfd.state.is_empty() { "not known yet" } else { bfd.state.as_str() };
    let since = match bfd.state.as_str() {
        "" => String::new(),
        _ => format!(" for {}", uptime(bfd.since_milliseconds.max(1))),
    };
    let detection = match bfd.detection_microseconds {
        0 => String::new(),
        micros => format!(", a failure is found after {:.1} ms", micros as f64 / 1000.0),
    };
    let strict = match (bfd.strict, bfd.awaited) {
        (_, true) => ", the session waits for it",
        (true, false) => ", strict",
        (false, false) => "",
    };
    writeln!(out, "  BFD: {state}{since}, profile {}, hops {}{strict}{detection}", bfd.profile, bfd.hops)?;
    if !bfd.diagnostic.is_empty() {
        writeln!(out, "    last down: {}", bfd.diagnostic)?;
    }
    Ok(())
}

/// What both agree on, and what is known of the routes.
fn write_bgpsec(bgpsec: &NeighborBgpsec, out: &mut dyn Write) -> io::Result<()> {
    let &NeighborBgpsec { valid, not_valid, unverified, incomplete, .. } = bgpsec;
    let (sent, received) = (bgpsec.sent.join(", "), bgpsec.received.join(", "));
    let less = if incomplete { ", less than is configured" } else { "" };
    writeln!(out, "  BGPsec: sent {}, received {}{less}", or_dash(&sent), or_dash(&received))?;
    writeln!(out, "    routes: {valid} valid, {not_valid} not valid, {unverified} unverified")
}

fn write_family(family: &FamilyState, out: &mut dyn Write) -> io::Result<()> {
    let FamilyState { family: name, received, accepted, best, sent, .. } = family;
    writeln!(out, "  {name}: {received} received, {accepted} accepted, {best} best, {sent} sent")?;
    let yes_or_no = |done: bool| if done { "yes" } else { "no" };
    let (sent, received) = (yes_or_no(family.end_of_rib_sent), yes_or_no(family.end_of_rib_received));
    match (family.identifiers_received, family.identifiers_sent) {
        (false, false) => {}
        (true, false) => writeln!(out, "    several paths of a prefix: received")?,
        (false, true) => writeln!(out, "    several paths of a prefix: sent")?,
        (true, true) => writeln!(out, "    several paths of a prefix: received and sent")?,
    }
    writeln!(out, "    update group {}, End-of-RIB sent: {sent}, received: {received}", family.update_group)?;
    if family.stale > 0 {
        writeln!(out, "    {} stale, of the session before", family.stale)?;
    }
    family.limit.iter().try_for_each(|limit| write_limit(limit, out))
}

/// What it wants of the family, and whether it announces it again.
fn write_refresh(neighbor: &Neighbor, family: &str, out: &mut dyn Write) -> io::Result<()> {
    if neighbor.refreshing.iter().any(|other| other == family) {
        writeln!(out, "    being announced again: what does not come goes at the end (RFC 7313)")?;
    }
    match neighbor.filters.iter().find(|filter| filter.family == family) {
        None => Ok(()),
        Some(filter) if !filter.has_asked => {
            writeln!(out, "    outbound route filter: waits for the neighbour to ask for routes")
        }
        Some(filter) => writeln!(out, "    outbound route filter: {} entries", filter.entries),
    }
}

fn write_limit(limit: &PrefixLimit, out: &mut dyn Write) -> io::Result<()> {
    let numbers =
        [(limit.received, "received"), (limit.accepted, "accepted"), (limit.announced, "announced")];
    let numbers: Vec<_> = numbers.into_iter().filter(|(most, _)| *most > 0).collect();
    let numbers: Vec<_> = numbers.iter().map(|(most, what)| format!("{most} {what}")).collect();
    let action = match limit.action.as_str() {
        "restart" => format!("restart after {} s", limit.restart_seconds),
        action => action.to_owned(),
    };
    writeln!(out, "    limit {}, warning at {} %, {action}", numbers.join(", "), limit.warn_percent)
}

/// Without a policy everything passes inside our AS, nothing to and from another (RFC 8212).
fn policy<'a>(name: &'a str, neighbor: &Neighbor) -> &'a str {
    match name {
        "" if neighbor.link == "external" => "none (nothing passes)",
        "" => "none (everything passes)",
        name => name,
    }
}
