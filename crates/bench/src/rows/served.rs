//! A route server: every member has some routes, and is told of all others'.

use std::sync::Arc;

use anyhow::Result;
use holdfast_lab::table::Table;
use holdfast_types::Afi;

use super::{Bench, HOLD, Kind, Meter, Outcome, Tables, grown};
use crate::{daemon::Daemon, feed, hearing::Hearing, net::Links, verify::Expected};

pub(super) fn run(
    daemon: &Daemon,
    tables: &Tables,
    (members, routes, own_view): (usize, usize, bool),
) -> Result<Outcome> {
    let table = tables.get(Kind::Synthetic { ipv6: false, routes })?;
    let shares = shares(&table, members);
    let mut bench = Bench::start_over(Links::One, daemon, (members, Afi::IPV4, HOLD), |setup| {
        (setup.route_server, setup.own_view) = (true, own_view);
    })?;
    let of = |(member, share)| (share, Bench::asn(member), bench.peer(member));
    let expected = Expected::served(&shares.iter().enumerate().map(of).collect::<Vec<_>>());
    let mut feeds = Vec::new();
    for (member, share) in shares.iter().enumerate() {
        let mut octets = feed::announce(share, bench.peer(member), Bench::asn(member))?;
        octets.extend(feed::end(bench.peer(member)));
        feeds.push(Arc::<[u8]>::from(octets));
    }
    bench.load.sessions.iter_mut().for_each(|member| member.hearing = Hearing::once());
    let mut outcome = Outcome::default();
    let before = bench.running.cgroup.memory()?;
    let meter = Meter::start(&bench)?;
    for (session, octets) in bench.load.sessions.iter_mut().zip(feeds) {
        session.send(octets);
    }
    let done = bench.settle(&expected, 0..members)?;
    meter.stop(&bench, done, &mut outcome)?;
    let grown = grown(&mut bench, before, &mut outcome)?;
    outcome.add("MB", grown as f64 / 1e6);
    Ok(outcome)
}

/// As many routes for each, those that follow each other in the table.
fn shares(table: &Table, members: usize) -> Vec<Table> {
    let share = table.routes.len().div_ceil(members);
    let of = |routes: &[(holdfast_types::Prefix, u32)]| {
        let first = routes.iter().map(|route| route.1).min().unwrap_or_default();
        let last = routes.iter().map(|route| route.1 + 1).max().unwrap_or_default();
        let sets = table.sets[first as usize..last as usize].to_vec();
        Table { sets, routes: routes.iter().map(|&(prefix, set)| (prefix, set - first)).collect() }
    };
    table.routes.chunks(share).map(of).collect()
}

#[cfg(test)]
mod tests {
    use holdfast_lab::table::Synthetic;

    use super::*;

    #[test]
    fn the_shares_are_the_whole() {
        let table = Synthetic::ipv4(1, 100).build();
        let shares = shares(&table, 10);
        assert_eq!(shares.len(), 10);
        let routes = |table: &Table| -> Vec<_> {
            let of = |route: usize| (table.routes[route].0, table.attributes(route).to_vec());
            (0..table.routes.len()).map(of).collect()
        };
        assert_eq!(shares.iter().flat_map(routes).collect::<Vec<_>>(), routes(&table));
    }
}
