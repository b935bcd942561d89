//! What FRR's `vtysh -c "show … json"` would answer, for tools that read that: exporters, scripts.
//!
//! The commands are FRR's as far as tools use them, whole words only; everything that this router does not have (EVPN,
//! OSPF, BFD) is there and empty, and so are VRFs: the default table is shown.

use std::io::Write;

use holdfast_api::bgp::v1::{
    BgpClient, Empty, NeighborView, Paths, ShowNeighborRoutesRequest, ShowNeighborsRequest,
    ShowRoutesRequest, SummaryFamily,
};
use holdfast_xrl::ReplyStream;
use serde_json::{Map, Value, json};

use super::{
    candidates, neighbors,
    routes::{self, path_json},
    summary::{self, family_json},
    vrf::DEFAULT,
};
use crate::{
    Failure,
    json::{Object, line},
    router::{Router, answer},
    text::camel,
};

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    show: Show,
    json: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Show {
    /// Of BGP, as FRR sorts it.
    Bgp {
        place: Place,
        what: Bgp,
    },
    /// What there is nothing of.
    Empty(&'static str),
    Version,
}

/// Where.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
struct Place {
    /// `vrf all`: each answer is under the name of its VRF, of which there is one.
    by_vrf: bool,
    /// Family, as ours is called; `None`: all.
    family: Option<&'static str>,
    /// A VRF that is not there.
    elsewhere: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Bgp {
    Summary,
    Neighbors(Option<String>),
    NeighborRoutes(String, NeighborView),
    Table,
    Route(String),
}

impl Command {
    /// Reads a command; `None` if it is not known.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut words: Vec<&str> = text.split_whitespace().collect();
        let json = words.last() == Some(&"json");
        if json {
            words.pop();
        }
        let show = match words.as_slice() {
            ["show", "version"] => Show::Version,
            ["show", "bfd", "peers", ..] => Show::Empty("[]"),
            ["show", "evpn", "vni"] | ["show", "ip", "ospf", ..] | ["show", "ip", "pim", ..] => {
                Show::Empty("{}")
            }
            ["show", "vrrp"] => Show::Empty("[]"),
            ["show", "ip", "bgp", rest @ ..] => bgp(rest, Some("ipv4-unicast"))?,
            ["show", "bgp", rest @ ..] => bgp(rest, None)?,
            _ => return None,
        };
        Some(Self { show, json })
    }

    /// Writes the answer.
    pub(crate) async fn run(self, router: &Router, out: &mut dyn Write) -> Result<(), Failure> {
        match self.show {
            Show::Version => Ok(writeln!(out, "Holdfast {}", env!("CARGO_PKG_VERSION"))?),
            Show::Empty(nothing) if self.json => Ok(writeln!(out, "{nothing}")?),
            Show::Empty(_) => Ok(()),
            Show::Bgp { place, .. } if place.elsewhere => {
                Ok(writeln!(out, "{}", if self.json { "{}" } else { "% BGP instance not found" })?)
            }
            Show::Bgp { place, what } if self.json => what.json(router, &place, out).await,
            Show::Bgp { place, what } => what.text(router, &place, out).await,
        }
    }
}

/// What stands behind `show bgp`.
fn bgp(words: &[&str], family: Option<&'static str>) -> Option<Show> {
    let mut place = Place { family, ..Place::default() };
    let mut words = words;
    if let ["vrf", name, rest @ ..] = words {
        place.by_vrf = *name == "all";
        place.elsewhere = !["all", DEFAULT].contains(name);
        words = rest;
    }
    (place.family, words) = match words {
        ["ipv4", "unicast", rest @ ..] | ["ipv4", rest @ ..] => (Some("ipv4-unicast"), rest),
        ["ipv6", "unicast", rest @ ..] | ["ipv6", rest @ ..] => (Some("ipv6-unicast"), rest),
        ["l2vpn", "evpn", rest @ ..] => (Some("l2vpn-evpn"), rest),
        _ => (place.family, words),
    };
    let what = match words {
        [] => Bgp::Table,
        ["summary"] => Bgp::Summary,
        ["neighbors" | "neighbor"] => Bgp::Neighbors(None),
        ["neighbors" | "neighbor", name] => Bgp::Neighbors(Some((*name).to_owned())),
        ["neighbors" | "neighbor", name, routes] => {
            let view = match *routes {
                "advertised-routes" => NeighborView::Advertised,
                "received-routes" => NeighborView::Received,
                "filtered-routes" => NeighborView::Filtered,
                "routes" => NeighborView::Accepted,
                _ => return None,
            };
            Bgp::NeighborRoutes((*name).to_owned(), view)
        }
        [destination] if destination.contains(['.', ':']) => Bgp::Route((*destination).to_owned()),
        _ => return None,
    };
    Some(Show::Bgp { place, what })
}

impl Place {
    /// IANA's number; 0 for all.
    fn afi(&self) -> u32 {
        match self.family {
            Some("ipv4-unicast") => 1,
            Some("ipv6-unicast") => 2,
            _ => 0,
        }
    }

    /// A value where FRR puts it.
    fn put(&self, value: Value) -> Value {
        if self.by_vrf { json!({ DEFAULT: value }) } else { value }
    }
}

impl Bgp {
    async fn json(self, router: &Router, place: &Place, out: &mut dyn Write) -> Result<(), Failure> {
        if place.family == Some("l2vpn-evpn") {
            return Ok(writeln!(out, "{{}}")?);
        }
        let bgp: BgpClient = router.client("bgp").await?;
        match self {
            Self::Summary => Ok(line(out, &place.put(summary(&bgp, place).await?))?),
            Self::Neighbors(name) => Ok(line(out, &place.put(neighbors(&bgp, name, place).await?))?),
            Self::NeighborRoutes(peer, view) => {
                let filtered = match view {
                    NeighborView::Received => filtered(&bgp, &peer, place).await?,
                    _ => 0,
                };
                let request = ShowNeighborRoutesRequest { peer, view: view.into(), afi: place.afi() };
                let routes = bgp.show_neighbor_routes(request);
                neighbor_routes(&bgp, routes, (view, filtered), out).await
            }
            Self::Table => {
                routes::show(
                    router,
                    ShowRoutesRequest { afi: place.afi(), ..ShowRoutesRequest::default() },
                    true,
                    out,
                )
                .await
            }
            Self::Route(destination) => candidates::show(router, destination, true, out).await,
        }
    }

    async fn text(self, router: &Router, place: &Place, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Summary => summary::show(router, false, out).await,
            Self::Neighbors(name) => neighbors::show(router, name, false, out).await,
            Self::NeighborRoutes(peer, view) => {
                routes::show_of_neighbor(router, peer, view, place.afi(), false, out).await
            }
            Self::Table => {
                routes::show(
                    router,
                    ShowRoutesRequest { afi: place.afi(), ..ShowRoutesRequest::default() },
                    false,
                    out,
                )
                .await
            }
            Self::Route(destination) => candidates::show(router, destination, false, out).await,
        }
    }
}

/// FRR's numbers have 32 bits, and exporters give up at larger ones.
fn memory(octets: u64) -> Value {
    u32::try_from(octets).unwrap_or(u32::MAX).into()
}

/// A peer of a summary with FRR's word for one that is kept down, and counters that wrap as FRR's do.
fn as_frr(peer: &mut Value) {
    for key in ["msgRcvd", "msgSent"] {
        peer[key] = (peer[key].as_u64().unwrap_or(0) as u32).into();
    }
    if peer["state"].as_str().is_some_and(|state| ["Idle (disabled)", "Idle (stopped)"].contains(&state)) {
        peer["state"] = "Idle (Admin)".into();
    }
}

/// With what FRR has besides, and in its words.
async fn summary(bgp: &BgpClient, place: &Place) -> Result<Value, Failure> {
    let summary = answer(bgp.show_summary(Empty {})).await?;
    let value = |family: &SummaryFamily| {
        let mut value = family_json(&summary, family, None);
        let more = [
            ("tableVersion", 0.into()),
            ("ribMemory", memory(summary.memory_bytes)),
            ("peerMemory", 0.into()),
            ("dynamicPeers", 0.into()),
        ];
        more.into_iter().for_each(|(key, more)| value[key] = more);
        value["peers"].as_object_mut().into_iter().flat_map(Map::values_mut).for_each(as_frr);
        value
    };
    match place.family {
        Some(name) => {
            let family = summary.families.iter().find(|family| family.family == name);
            Ok(family.map_or_else(|| json!({}), value))
        }
        None => Ok(summary
            .families
            .iter()
            .map(|family| (camel(&family.family), value(family)))
            .collect::<Map<_, _>>()
            .into()),
    }
}

async fn neighbors(bgp: &BgpClient, name: Option<String>, place: &Place) -> Result<Value, Failure> {
    let mut stream = bgp.show_neighbors(ShowNeighborsRequest { peer: name.unwrap_or_default() });
    let mut all = Map::new();
    if place.by_vrf {
        all.insert("vrfId".to_owned(), 0.into());
        all.insert("vrfName".to_owned(), DEFAULT.into());
    }
    while let Some(neighbor) = answer(stream.next()).await? {
        let peer = neighbor.peer.clone().unwrap_or_default();
        all.insert(summary::key(&peer), neighbors::to_json(&neighbor, &peer));
    }
    Ok(all.into())
}

/// How many routes of a peer policy has refused, or were loops.
async fn filtered(bgp: &BgpClient, peer: &str, place: &Place) -> Result<u64, Failure> {
    let mut stream = bgp.show_neighbors(ShowNeighborsRequest { peer: peer.to_owned() });
    let mut filtered = 0;
    while let Some(neighbor) = answer(stream.next()).await? {
        let wanted = neighbor.families.iter().filter(|it| place.family.is_none_or(|name| it.family == name));
        filtered += wanted.map(|it| it.received.saturating_sub(it.accepted)).sum::<u64>();
    }
    Ok(filtered)
}

/// Streamed: there may be a million.
async fn neighbor_routes(
    bgp: &BgpClient,
    mut routes: ReplyStream<Paths>,
    (view, filtered): (NeighborView, u64),
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let summary = answer(bgp.show_summary(Empty {})).await?;
    let mut next = answer(routes.next()).await?;
    let mut object = Object::begin(&mut *out)?;
    object.member("bgpTableVersion", &0)?;
    object.member("bgpLocalRouterId", &summary.router_id)?;
    object.member("defaultLocPrf", &100)?;
    object.member("localAS", &summary.asn)?;
    let mut count = 0;
    let mut table = object.object(match view {
        NeighborView::Advertised | NeighborView::Withheld => "advertisedRoutes",
        NeighborView::Received | NeighborView::Filtered => "receivedRoutes",
        NeighborView::Accepted => "routes",
    })?;
    while let Some(batch) = next {
        for prefix in &batch.prefixes {
            count += 1;
            if let Some(path) = prefix.paths.first() {
                table.member(&prefix.prefix, &path_json(prefix, path))?;
            }
        }
        next = answer(routes.next()).await?;
    }
    table.end()?;
    object.member("totalPrefixCounter", &count)?;
    object.member("filteredPrefixCounter", &filtered)?;
    object.end()?;
    Ok(writeln!(out)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<(bool, bool, Option<&'static str>, Bgp)> {
        match Command::parse(text)? {
            Command { show: Show::Bgp { place, what }, json } => {
                Some((json, place.by_vrf, place.family, what))
            }
            Command { .. } => None,
        }
    }

    #[test]
    fn commands_of_frr_are_read() {
        let v4 = Some("ipv4-unicast");
        for (text, expected) in [
            ("show bgp vrf all ipv4 unicast summary json", (true, true, v4, Bgp::Summary)),
            ("show bgp vrf all ipv6 unicast summary json", (true, true, Some("ipv6-unicast"), Bgp::Summary)),
            ("show bgp vrf all neighbors json", (true, true, None, Bgp::Neighbors(None))),
            ("show bgp summary", (false, false, None, Bgp::Summary)),
            ("show ip bgp json", (true, false, v4, Bgp::Table)),
            ("show bgp ipv4 unicast 192.0.2.0/24 json", (true, false, v4, Bgp::Route("192.0.2.0/24".into()))),
            (
                "show bgp  ipv4 unicast neighbors 10.0.1.2 advertised-routes json",
                (true, false, v4, Bgp::NeighborRoutes("10.0.1.2".into(), NeighborView::Advertised)),
            ),
        ] {
            assert_eq!(parsed(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_not_there_is_empty_and_what_is_unknown_is_refused() {
        for text in ["show bfd peers json", "show ip ospf vrf all interface json", "show evpn vni json"] {
            assert!(matches!(Command::parse(text), Some(Command { show: Show::Empty(_), .. })), "{text}");
        }
        for text in
            ["", "configure terminal", "show", "show bgp frobnicate", "clear bgp *", "show running-config"]
        {
            assert_eq!(Command::parse(text), None, "{text}");
        }
    }

    #[test]
    fn numbers_fit_frrs_and_a_peer_that_was_stopped_is_down_by_hand() {
        assert_eq!(memory(5 << 30), json!(u32::MAX));
        for state in ["Idle (disabled)", "Idle (stopped)"] {
            let mut peer = json!({ "state": state, "msgRcvd": (1_u64 << 32) + 7, "msgSent": 3 });
            as_frr(&mut peer);
            assert_eq!(peer, json!({ "state": "Idle (Admin)", "msgRcvd": 7, "msgSent": 3 }));
        }
    }
}
