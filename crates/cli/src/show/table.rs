//! `show route`: the routes of all protocols, streamed.

use std::io::{self, Write};

use holdfast_api::{
    rib::v1::{RibClient, ShowRoutesRequest, ShownRoute, ShownRoutes},
    routes::v1::{NextHop, NextHopKind},
};
use holdfast_xrl::ReplyStream;
use serde_json::{Value, json};

use super::vrf;
use crate::{
    Failure,
    json::Object,
    router::{Router, answer},
    text::{address, afi},
};

pub(super) async fn show(
    router: &Router,
    destination: Option<String>,
    afi: u32,
    protocol: Option<String>,
    as_json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let rib: RibClient = router.client("rib").await?;
    let wanted = destination.clone().unwrap_or_default();
    let request = ShowRoutesRequest { destination: wanted, afi, origin: protocol.unwrap_or_default() };
    let mut prefixes =
        Prefixes { stream: rib.show_routes(request), left: Vec::new().into_iter(), ahead: None };
    let first = prefixes.next().await?;
    if let (None, Some(destination)) = (&first, destination) {
        return Err(Failure::NothingFound(format!("there is no route to {destination}")));
    }
    match as_json {
        true => write_json(router.vrf(), first, prefixes, out).await,
        false => write_text(first, prefixes, out).await,
    }
}

/// The routes of one prefix after the other, whatever the messages they come in.
struct Prefixes {
    stream: ReplyStream<ShownRoutes>,
    left: std::vec::IntoIter<ShownRoute>,
    /// The first route of the next prefix.
    ahead: Option<ShownRoute>,
}

impl Prefixes {
    async fn next(&mut self) -> Result<Option<Vec<ShownRoute>>, Failure> {
        let first = match self.ahead.take() {
            Some(route) => Some(route),
            None => self.route().await?,
        };
        let Some(first) = first else { return Ok(None) };
        let mut routes = vec![first];
        while let Some(route) = self.route().await? {
            if route.prefix != routes[0].prefix {
                self.ahead = Some(route);
                break;
            }
            routes.push(route);
        }
        Ok(Some(routes))
    }

    async fn route(&mut self) -> Result<Option<ShownRoute>, Failure> {
        loop {
            if let Some(route) = self.left.next() {
                return Ok(Some(route));
            }
            match answer(self.stream.next()).await? {
                Some(batch) => self.left = batch.routes.into_iter(),
                None => return Ok(None),
            }
        }
    }
}

async fn write_json(
    vrf: Option<&str>,
    first: Option<Vec<ShownRoute>>,
    mut prefixes: Prefixes,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut object = Object::begin(&mut *out)?;
    let mut next = first;
    while let Some(routes) = next {
        object
            .member(&routes[0].prefix, &routes.iter().map(|route| to_json(route, vrf)).collect::<Vec<_>>())?;
        next = prefixes.next().await?;
    }
    object.end()?;
    Ok(writeln!(out)?)
}

fn to_json(route: &ShownRoute, vrf: Option<&str>) -> Value {
    let length = route.prefix.split_once('/').and_then(|(_, length)| length.parse::<u8>().ok());
    let mut value = json!({
        "prefix": route.prefix,
        "prefixLen": length.unwrap_or(0),
        "protocol": route.origin,
        "distance": route.distance,
        "metric": route.metric,
        "nexthops": next_hops_json(route),
    });
    vrf::members(vrf).into_iter().for_each(|(key, member)| value[key] = member);
    let flags = [
        ("selected", route.selected),
        ("destSelected", route.selected),
        ("installed", route.installed),
        ("queued", route.requested),
        ("failed", route.rejected),
        ("stale", route.stale),
    ];
    for (key, _) in flags.into_iter().filter(|(_, set)| *set) {
        value[key] = true.into();
    }
    if !route.rejected_reason.is_empty() {
        value["failedReason"] = route.rejected_reason.as_str().into();
    }
    if route.tag != 0 {
        value["tag"] = route.tag.into();
    }
    value
}

/// A next hop that had to be resolved is followed by what it was resolved to, as in FRR.
fn next_hops_json(route: &ShownRoute) -> Vec<Value> {
    match route.kind() {
        NextHopKind::Blackhole => {
            return vec![json!({ "unreachable": true, "blackhole": true, "active": true })];
        }
        NextHopKind::Unreachable => {
            return vec![json!({ "unreachable": true, "reject": true, "active": true })];
        }
        NextHopKind::Forward => {}
    }
    let active = !route.resolved.is_empty();
    if !is_recursive(route) {
        let hops = if active { &route.resolved } else { &route.next_hops };
        return hops
            .iter()
            .map(|hop| hop_json(hop, &[("fib", route.installed), ("active", active)]))
            .collect();
    }
    let given = route.next_hops.iter().map(|hop| hop_json(hop, &[("recursive", true), ("active", active)]));
    let resolved = route
        .resolved
        .iter()
        .map(|hop| hop_json(hop, &[("fib", route.installed), ("resolver", true), ("active", true)]));
    given.chain(resolved).collect()
}

/// Whether packets go by other gateways than the route names.
fn is_recursive(route: &ShownRoute) -> bool {
    let gateways = |hops: &[NextHop]| hops.iter().map(|hop| hop.gateway.clone()).collect::<Vec<_>>();
    !route.resolved.is_empty() && gateways(&route.resolved) != gateways(&route.next_hops)
}

fn hop_json(hop: &NextHop, flags: &[(&str, bool)]) -> Value {
    let mut value = json!({});
    match address(&hop.gateway) {
        Some(gateway) => {
            let gateway = gateway.to_string();
            value["afi"] = afi(&gateway).into();
            value["ip"] = gateway.into();
        }
        None => value["directlyConnected"] = true.into(),
    }
    if hop.interface_index != 0 {
        value["interfaceIndex"] = hop.interface_index.into();
    }
    if !hop.interface.is_empty() {
        value["interfaceName"] = hop.interface.as_str().into();
    }
    if !hop.gateway.is_empty() {
        value["weight"] = hop.weight.max(1).into();
    }
    for (key, _) in flags.iter().filter(|(_, set)| *set) {
        value[*key] = true.into();
    }
    value
}

async fn write_text(
    first: Option<Vec<ShownRoute>>,
    mut prefixes: Prefixes,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    writeln!(out, "> selected, * installed, q requested, r rejected by the kernel, s stale\n")?;
    writeln!(out, "    {:<18} {:<10} {:>12}  Next hop", "Prefix", "Protocol", "Dist/Metric")?;
    let (mut count, mut next) = (0, first);
    while let Some(routes) = next {
        count += 1;
        routes.iter().try_for_each(|route| write_route(route, out))?;
        next = prefixes.next().await?;
    }
    Ok(writeln!(out, "\n{count} prefixes")?)
}

fn write_route(route: &ShownRoute, out: &mut dyn Write) -> io::Result<()> {
    let flag = |set: bool, letter: char| if set { letter } else { ' ' };
    let kernel = match (route.rejected, route.requested) {
        (true, _) => 'r',
        (false, true) => 'q',
        (false, false) => flag(route.installed, '*'),
    };
    let flags = [flag(route.selected, '>'), kernel, flag(route.stale, 's')];
    let preference = format!("{}/{}", route.distance, route.metric);
    let tag = if route.tag == 0 { String::new() } else { format!(", tag {}", route.tag) };
    let mut ways = ways(route).into_iter();
    writeln!(
        out,
        "{} {:<18} {:<10} {preference:>12}  {}{tag}",
        String::from_iter(flags),
        route.prefix,
        route.origin,
        ways.next().unwrap_or_default()
    )?;
    ways.try_for_each(|way| writeln!(out, "{:47}{way}", ""))?;
    match route.rejected_reason.as_str() {
        "" => Ok(()),
        reason => writeln!(out, "{:47}rejected: {reason}", ""),
    }
}

/// Each way out on a line of its own.
fn ways(route: &ShownRoute) -> Vec<String> {
    match route.kind() {
        NextHopKind::Blackhole => vec!["blackhole".to_owned()],
        NextHopKind::Unreachable => vec!["unreachable".to_owned()],
        NextHopKind::Forward if is_recursive(route) => {
            let given = route.next_hops.iter().map(|hop| format!("{} (recursive)", way(hop)));
            given.chain(route.resolved.iter().map(|hop| format!("  {}", way(hop)))).collect()
        }
        NextHopKind::Forward if route.resolved.is_empty() => {
            route.next_hops.iter().map(|hop| format!("{} (unreachable)", way(hop))).collect()
        }
        NextHopKind::Forward => route.resolved.iter().map(way).collect(),
    }
}

fn way(hop: &NextHop) -> String {
    let interface = match (hop.interface.as_str(), hop.interface_index) {
        ("", 0) => None,
        ("", index) => Some(format!("interface {index}")),
        (name, _) => Some(name.to_owned()),
    };
    match (address(&hop.gateway), interface) {
        (Some(gateway), Some(interface)) => format!("{gateway} via {interface}"),
        (Some(gateway), None) => gateway.to_string(),
        (None, Some(interface)) => format!("connected, {interface}"),
        (None, None) => "nowhere".to_owned(),
    }
}
