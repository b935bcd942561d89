//! `show bgp routes`: the table, streamed.

use std::io::{self, Write};

use clap::ValueEnum;
use holdfast_api::bgp::v1::{
    BgpClient, Empty, NeighborView, Path, Paths, Prefix, ShowNeighborRoutesRequest, ShowRoutesRequest,
};
use holdfast_xrl::ReplyStream;
use serde_json::{Value, json};

use super::vrf;
use crate::{
    Failure,
    json::Object,
    router::{Router, answer},
    text::{afi, or_dash},
};

pub(super) async fn show(
    router: &Router,
    wanted: ShowRoutesRequest,
    as_json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let bgp: BgpClient = router.client("bgp").await?;
    let routes = bgp.show_routes(wanted);
    match as_json {
        true => stream_json(router, &bgp, routes, out).await,
        false => stream_text(routes, false, out).await,
    }
}

/// Which routes of a neighbour.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub enum OfNeighbor {
    /// All that it has sent, as received.
    #[value(name = "received-routes")]
    Received,
    /// Those that import policy took, as it made them.
    #[value(name = "accepted-routes")]
    Accepted,
    /// Those that import policy refused, and why.
    #[value(name = "filtered-routes")]
    Filtered,
    /// What it is told, as it is told it.
    #[value(name = "advertised-routes")]
    Advertised,
    /// The best routes that it is not told, and why.
    #[value(name = "withheld-routes")]
    Withheld,
}

impl OfNeighbor {
    pub(super) fn view(self) -> NeighborView {
        match self {
            Self::Received => NeighborView::Received,
            Self::Accepted => NeighborView::Accepted,
            Self::Filtered => NeighborView::Filtered,
            Self::Advertised => NeighborView::Advertised,
            Self::Withheld => NeighborView::Withheld,
        }
    }
}

pub(super) async fn show_of_neighbor(
    router: &Router,
    peer: String,
    view: NeighborView,
    afi: u32,
    as_json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let bgp: BgpClient = router.client("bgp").await?;
    let stream = bgp.show_neighbor_routes(ShowNeighborRoutesRequest { peer, view: view.into(), afi });
    let with_reason = matches!(view, NeighborView::Filtered | NeighborView::Withheld);
    match as_json {
        true => stream_json(router, &bgp, stream, out).await,
        false => stream_text(stream, with_reason, out).await,
    }
}

async fn stream_json(
    router: &Router,
    bgp: &BgpClient,
    mut routes: ReplyStream<Paths>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let summary = answer(bgp.show_summary(Empty {})).await?;
    let mut next = answer(routes.next()).await?;
    let mut object = Object::begin(&mut *out)?;
    vrf::members(router.vrf()).iter().try_for_each(|(key, member)| object.member(key, member))?;
    object.member("routerId", &summary.router_id)?;
    object.member("localAS", &summary.asn)?;
    let (mut prefixes, mut paths) = (0, 0);
    let mut table = object.object("routes")?;
    while let Some(batch) = next {
        for prefix in &batch.prefixes {
            prefixes += 1;
            paths += prefix.paths.len();
            let shown: Vec<_> = prefix.paths.iter().map(|path| path_json(prefix, path)).collect();
            table.member(&prefix.prefix, &shown)?;
        }
        next = answer(routes.next()).await?;
    }
    table.end()?;
    object.member("totalRoutes", &prefixes)?;
    object.member("totalPaths", &paths)?;
    object.end()?;
    Ok(writeln!(out)?)
}

pub(super) fn path_json(prefix: &Prefix, path: &Path) -> Value {
    let (network, length) = prefix.prefix.split_once('/').unwrap_or((&prefix.prefix, "0"));
    let mut value = json!({
        "valid": path.valid,
        "bestpath": path.best,
        "multipath": path.multipath,
        "pathFrom": if path.external { "external" } else { "internal" },
        "prefix": network,
        "prefixLen": length.parse::<u8>().unwrap_or(0),
        "network": prefix.prefix,
        "peerId": peer_id(path),
        "peerName": path.peer,
        "path": path.as_path,
        "origin": origin_word(&path.origin),
        "nexthops": [],
    });
    if !path.next_hop.is_empty() {
        let used = path.best || path.multipath;
        value["nexthops"] = json!([{ "ip": path.next_hop, "afi": afi(&path.next_hop), "used": used }]);
    }
    if let Some(med) = path.med {
        value["metric"] = med.into();
    }
    if let Some(preference) = path.local_pref {
        value["locPrf"] = preference.into();
    }
    if !path.validity.is_empty() {
        value["validity"] = path.validity.as_str().into();
        value["aspa"] = path.aspa.as_str().into();
    }
    if let Some(bgpsec) = &path.bgpsec {
        value["bgpsec"] = super::candidates::bgpsec(bgpsec);
    }
    if !path.reason.is_empty() {
        value["reason"] = path.reason.as_str().into();
    }
    value
}

/// As FRR: the address, and this for our own routes.
pub(super) fn peer_id(path: &Path) -> &str {
    if path.peer_address.is_empty() { "(unspec)" } else { &path.peer_address }
}

/// As FRR writes ORIGIN.
pub(super) fn origin_word(origin: &str) -> &'static str {
    match origin.to_ascii_lowercase().as_str() {
        "igp" | "i" => "IGP",
        "egp" | "e" => "EGP",
        _ => "incomplete",
    }
}

async fn stream_text(
    mut routes: ReplyStream<Paths>,
    with_reason: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut next = answer(routes.next()).await?;
    let is_validated = |prefix: &Prefix| prefix.paths.iter().any(|path| !path.validity.is_empty());
    let validated = next.as_ref().is_some_and(|first| first.prefixes.iter().any(is_validated));
    writeln!(out, "* valid, > best, = multipath, i internal; origin: i IGP, e EGP, ? incomplete")?;
    if validated {
        writeln!(out, "RPKI: V valid, I invalid, N not found; P the path is invalid by ASPA")?;
    }
    let (mut prefixes, mut paths) = (0, 0);
    let mut shown_family = "";
    while let Some(batch) = next {
        for prefix in &batch.prefixes {
            let family = afi(&prefix.prefix);
            if family != shown_family {
                shown_family = family;
                heading(family, validated, out)?;
            }
            prefixes += 1;
            paths += prefix.paths.len();
            write_prefix(prefix, family, (with_reason, validated), out)?;
        }
        next = answer(routes.next()).await?;
    }
    Ok(writeln!(out, "\n{prefixes} prefixes, {paths} paths")?)
}

/// Widths of prefix and next hop. A table that is written as it comes cannot wait for its widest entry; the rare
/// IPv6 prefix that is longer moves its own line only.
fn widths(family: &str) -> (usize, usize) {
    if family == "ipv4" { (18, 15) } else { (26, 26) }
}

fn heading(family: &str, validated: bool, out: &mut dyn Write) -> io::Result<()> {
    let (prefix, next_hop) = widths(family);
    writeln!(
        out,
        "\n{}    {:<prefix$} {:<next_hop$} {:>10} {:>10} {:<16} Path",
        if validated { "   " } else { "" },
        "Network",
        "Next hop",
        "Metric",
        "LocPrf",
        "Peer"
    )
}

fn write_prefix(
    prefix: &Prefix,
    family: &str,
    (with_reason, validated): (bool, bool),
    out: &mut dyn Write,
) -> io::Result<()> {
    let (prefix_width, hop_width) = widths(family);
    for (index, path) in prefix.paths.iter().enumerate() {
        // Further paths of a prefix do not repeat it.
        let network = if index == 0 { prefix.prefix.as_str() } else { "" };
        let number = |value: Option<u32>| value.map(|value| value.to_string()).unwrap_or_default();
        writeln!(
            out,
            "{}{} {network:<prefix_width$} {:<hop_width$} {:>10} {:>10} {:<16} {}{}{}",
            if validated { validity_flags(path) } else { String::new() },
            flags(path),
            or_dash(&path.next_hop),
            number(path.med),
            number(path.local_pref),
            path.peer,
            path.as_path,
            if path.as_path.is_empty() { "" } else { " " },
            origin_letter(&path.origin),
        )?;
        if with_reason {
            writeln!(out, "      {}", path.reason)?;
        }
    }
    Ok(())
}

/// Three characters, as FRR puts them before a path.
pub(super) fn flags(path: &Path) -> String {
    let valid = if path.valid { '*' } else { ' ' };
    let used = match (path.best, path.multipath) {
        (true, _) => '>',
        (false, true) => '=',
        (false, false) => ' ',
    };
    let internal = if path.external || path.peer_address.is_empty() { ' ' } else { 'i' };
    String::from_iter([valid, used, internal])
}

/// What the RPKI says, in three characters.
fn validity_flags(path: &Path) -> String {
    let validity = match path.validity.as_str() {
        "valid" => 'V',
        "invalid" => 'I',
        "not-found" => 'N',
        _ => ' ',
    };
    String::from_iter([validity, if path.aspa == "invalid" { 'P' } else { ' ' }, ' '])
}

fn origin_letter(origin: &str) -> char {
    match origin_word(origin) {
        "IGP" => 'i',
        "EGP" => 'e',
        _ => '?',
    }
}
