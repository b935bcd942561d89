//! `show bgp dampened`: routes that have flapped, streamed.

use std::io::{self, Write};

use holdfast_api::bgp::v1::{BgpClient, DampenedRoute, ShowDampenedRequest};
use serde_json::{Value, json};

use crate::{
    Failure,
    json::line,
    router::{Router, answer},
    text::{Table, or_dash, uptime},
};

pub(super) async fn show(
    router: &Router,
    all: bool,
    as_json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let bgp: BgpClient = router.client("bgp").await?;
    let mut parts = bgp.show_dampened(ShowDampenedRequest { all });
    let mut routes = Vec::new();
    while let Some(part) = answer(parts.next()).await? {
        routes.extend(part.routes);
    }
    match as_json {
        true => line(out, &to_json(&routes))?,
        false => write(&routes, out)?,
    }
    Ok(())
}

/// FRR's keys of what it says of a path with a dampening history.
fn to_json(routes: &[DampenedRoute]) -> Value {
    let mut prefixes = serde_json::Map::new();
    for route in routes {
        let paths = prefixes.entry(&route.prefix).or_insert_with(|| json!([]));
        paths.as_array_mut().into_iter().for_each(|paths| paths.push(route_json(route)));
    }
    json!({ "routes": prefixes, "totalPaths": routes.len() })
}

fn route_json(route: &DampenedRoute) -> Value {
    let mut value = json!({
        "peerHost": route.peer_address,
        "peerName": route.peer,
        "dampened": route.suppressed,
        "dampeningPenalty": route.penalty,
        "dampeningFlapCount": route.flaps,
        "dampeningFlapPeriodMsec": route.period_milliseconds,
    });
    if route.suppressed {
        value["reuseTimerMsecs"] = route.reuse_milliseconds.into();
    }
    value
}

fn write(routes: &[DampenedRoute], out: &mut dyn Write) -> io::Result<()> {
    let mut table =
        Table::new(&["Network", "Neighbor", "Address", "State", ">Penalty", ">Flaps", ">Since", ">Reuse in"]);
    for route in routes {
        table.row(row(route));
    }
    table.write(out)
}

fn row(route: &DampenedRoute) -> [String; 8] {
    let (state, reuse) = match route.suppressed {
        true => ("damped", uptime(route.reuse_milliseconds.max(1))),
        false => ("history", "-".to_owned()),
    };
    [
        route.prefix.clone(),
        route.peer.clone(),
        or_dash(&route.peer_address).to_owned(),
        state.to_owned(),
        route.penalty.to_string(),
        route.flaps.to_string(),
        uptime(route.period_milliseconds.max(1)),
        reuse,
    ]
}
