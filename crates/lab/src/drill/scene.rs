//! The stage of a drill: Holdfast between a stock router and a feeder, both announcing and changing all the time.
//!
//! ```text
//!  BIRD or FRR ──1── Holdfast ──2── feeder
//!  AS 65001          AS 65000       AS 65002
//!     │                 │               │
//!  tcpdump           kernel          tcpdump
//! ```
//!
//! To judge the judge, a [relay](super::relay) may stand between the stock router and Holdfast.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    ops::Range,
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};
use holdfast_bgp_wire::{Attributes, Origin, edit::AttributesBuilder};
use holdfast_types::{Asn, Prefix};

use super::{
    audit::{Audit, audit},
    churn::{Churn, Churner, Ranges, is_used_once, prefixes, printed_serial, serial},
    judge::Judge,
    relay::Relay,
    report::Miscount,
    stock::{self, ROUTER_AS, STOCK_AS, Stock},
    time::now,
    watch::Watch,
};
use crate::{
    kernel,
    router::Router,
    speaker::{Speaker, SpeakerConfig},
    table::{AttributeSet, Table},
    topology::{Side, Star, v4},
    wait,
};

/// The feeder's network and AS number.
const FEEDER: u8 = 2;
const FEEDER_AS: u32 = 65002;
/// Names of the two peers in the router's configuration.
const STOCK_NAME: &str = "stock";
const FEEDER_NAME: &str = "feeder";

/// Where the prefixes begin that stay, and those that change.
const STOCK_FIXED: Ipv4Addr = Ipv4Addr::new(20, 0, 0, 0);
const STOCK_CHANGING: Ranges =
    Ranges { moving: Ipv4Addr::new(100, 64, 0, 0), once: Ipv4Addr::new(118, 0, 0, 0) };
const FEEDER_FIXED: Ipv4Addr = Ipv4Addr::new(60, 0, 0, 0);
const FEEDER_CHANGING: Ranges =
    Ranges { moving: Ipv4Addr::new(100, 96, 0, 0), once: Ipv4Addr::new(119, 0, 0, 0) };

/// Between two changes.
const STOCK_PACE: Duration = Duration::from_millis(150);
const FEEDER_PACE: Duration = Duration::from_millis(20);

/// For all routes to be everywhere at the beginning.
const LOADING: Duration = Duration::from_secs(300);
const LOOKING: Duration = Duration::from_millis(200);
/// For changes to arrive, whatever died meanwhile.
pub const SETTLING: Duration = Duration::from_secs(60);
/// What has not arrived so long after the last UPDATE arrived is lost: no death that the drill makes costs so much.
const QUIET: Duration = Duration::from_secs(10);

/// Prefixes with serial numbers, where they have one.
pub type Routes = BTreeMap<Prefix, Option<u32>>;

/// Everything that runs.
#[derive(Debug)]
pub struct Scene<'a> {
    /// Changes of what the stock router announces.
    pub stock_churn: Churner,
    /// Changes of what the feeder announces.
    pub feeder_churn: Churner,
    /// The stock router.
    pub stock: Arc<Stock>,
    /// The feeder.
    pub feeder: Arc<Speaker>,
    /// Holdfast.
    pub router: Router,
    /// The capture at the stock router.
    pub at_stock: Watch,
    /// The capture at the feeder.
    pub at_feeder: Watch,
    /// The hosts.
    pub star: &'a Star,
    fixed: Announced,
}

/// What both peers announce.
#[derive(Clone, Debug)]
pub struct Announced {
    /// The stock router.
    pub stock: Routes,
    /// The feeder.
    pub feeder: Routes,
}

/// How many routes of each kind, and what else differs between drills.
#[derive(Clone, Debug, Default)]
pub struct Set<'a> {
    /// Routes of the stock router.
    pub stock_routes: u32,
    /// Routes of the feeder.
    pub feeder_routes: u32,
    /// More lines in the section `[bgp]`.
    pub bgp: &'a str,
    /// More in the environment of the router.
    pub environment: &'a [(&'a str, &'a str)],
    /// Seed of all chance.
    pub seed: u64,
    /// Stands between the stock router and Holdfast.
    pub relay: Option<&'a Relay>,
}

impl<'a> Scene<'a> {
    /// Starts all and waits until every route is everywhere. Nothing changes yet.
    pub fn start(star: &'a Star, kind: stock::Kind, set: &Set<'_>) -> Result<Self> {
        let host = set.relay.map_or(star.neighbor(stock::NETWORK), Relay::stock);
        let watch = |host, network| {
            let interface = format!("n{network}");
            Watch::start(host, &interface, v4(network, Side::First))
        };
        let (at_stock, at_feeder) = (watch(host, stock::NETWORK)?, watch(star.neighbor(FEEDER), FEEDER)?);
        let router = Router::start_with(&star.router, &configuration(set.bgp), set.environment)?;

        let churn = Churn::new(STOCK_CHANGING, set.seed ^ 1);
        let stock = Arc::new(Stock::start(kind, host, STOCK_FIXED, set.stock_routes, &churn)?);
        let theirs = Arc::clone(&stock);
        let stock_churn = Churner::start(churn, STOCK_PACE, told(&at_feeder), move |churn, changes| {
            theirs.apply(churn, changes)
        })?;

        let churn = Churn::new(FEEDER_CHANGING, set.seed ^ 2);
        let mut table = Arc::new(churn.table());
        let tables = vec![Arc::new(fixed_table(set.feeder_routes)), Arc::clone(&table)];
        let feeder = star.speaker(FEEDER, FEEDER_AS, |config: &mut SpeakerConfig| config.tables = tables)?;
        let feeder = Arc::new(feeder);
        let theirs = Arc::clone(&feeder);
        let feeder_churn = Churner::start(churn, FEEDER_PACE, told(&at_stock), move |churn, _| {
            let new = Arc::new(churn.table());
            theirs.replace(std::mem::replace(&mut table, Arc::clone(&new)), new);
            Ok(())
        })?;

        let plain = |first, count| prefixes(first, count).map(|prefix| (prefix, None)).collect();
        let fixed = Announced {
            stock: plain(STOCK_FIXED, set.stock_routes),
            feeder: plain(FEEDER_FIXED, set.feeder_routes),
        };
        let scene =
            Self { stock_churn, feeder_churn, stock, feeder, router, at_stock, at_feeder, star, fixed };
        scene.wait_loaded().with_context(|| scene.router.log_tail())?;
        Ok(scene)
    }

    /// What is announced now. Changes must be paused, or it is not true for long.
    pub fn announced(&self) -> Announced {
        let mut all = self.fixed.clone();
        let held = |churn: Churn| churn.now().clone().into_iter().filter(|(_, serial)| serial.is_some());
        all.stock.extend(held(self.stock_churn.now()));
        all.feeder.extend(held(self.feeder_churn.now()));
        all
    }

    /// The prefixes that nobody changes.
    pub fn fixed(&self) -> impl Iterator<Item = &Prefix> {
        self.fixed.stock.keys().chain(self.fixed.feeder.keys())
    }

    fn wait_loaded(&self) -> Result<()> {
        let announced = self.announced();
        wait::until("all routes at the peers", LOADING, || {
            let (stock, feeder) = (self.at_stock.ask(Judge::held), self.feeder.status().routes);
            let all = (announced.feeder.len(), announced.stock.len());
            if (stock, feeder) == all { Ok(()) } else { Err(format!("{stock} and {feeder} of {all:?}")) }
        })?;
        wait::until("all routes in the kernel", LOADING, || {
            let found = kernel::routes(&self.star.router, false).map_err(|error| error.to_string())?.len();
            let all = announced.stock.len() + announced.feeder.len();
            if found == all {
                return Ok(());
            }
            // To read them all is work.
            std::thread::sleep(LOOKING);
            Err(format!("{found} of {all}"))
        })
    }

    /// Lets both peers change routes all the time.
    pub fn change(&self) {
        self.stock_churn.resume();
        self.feeder_churn.resume();
    }

    /// Lets nobody change anything, and waits until the last change of both directions has arrived.
    ///
    /// # Errors
    /// It has not within [`SETTLING`], or nothing has arrived for [`QUIET`].
    pub fn settle(&self) -> Result<()> {
        let (stock, feeder) = (self.stock_churn.pause(), self.feeder_churn.pause());
        for churner in [&self.stock_churn, &self.feeder_churn] {
            ensure!(churner.failure().is_none(), "{}", churner.failure().unwrap_or_default());
        }
        let start = Instant::now();
        wait::until("the last changes at the other peer", SETTLING, || {
            let there = |watch: &Watch, churn: &Churn| watch.ask(|judge| judge.differences(churn.now()));
            let missing = (there(&self.at_stock, &feeder), there(&self.at_feeder, &stock));
            let said = || format!("{missing:?} differences at the stock router and the feeder");
            let last = self.at_stock.ask(Judge::last_update).max(self.at_feeder.ask(Judge::last_update));
            match missing {
                (0, 0) => Ok(Ok(())),
                _ if start.elapsed() > QUIET && Duration::from_micros(now().saturating_sub(last)) > QUIET => {
                    Ok(Err(anyhow!("{}, and no UPDATE comes any more", said())))
                }
                _ => Err(said()),
            }
        })?
    }

    /// Compares what each peer has sent with what the other was told: to the stock router, and to the feeder. Nothing
    /// may be under way.
    pub fn audit(&self, takeovers: &[Range<u64>]) -> [Audit; 2] {
        let compare = |from: &Watch, to: &Watch, churn: &Churner| {
            let sent = from.ask(|judge| judge.sent().clone());
            let mut found = to.ask(|judge| audit(&sent, judge.told(), takeovers));
            // What the peer itself did not send is no fault of the router's, but the drill says nothing of it.
            let (fed, seen) =
                (churn.now().used_once(), sent.prefixes().filter(|prefix| is_used_once(*prefix)));
            let seen = seen.count() as u64;
            if seen != fed {
                found.findings.push(format!("of {fed} prefixes to be used once the peer has sent {seen}"));
            }
            found
        };
        [
            compare(&self.at_feeder, &self.at_stock, &self.feeder_churn),
            compare(&self.at_stock, &self.at_feeder, &self.stock_churn),
        ]
    }

    /// Waits until what both peers changed after these serial numbers has come to the other one.
    ///
    /// # Errors
    /// It has not within [`SETTLING`].
    pub fn wait_passed(&self, serials: Serials) -> Result<()> {
        wait::until("a change made after the death at the other peer", SETTLING, || {
            let at_stock = self.at_stock.ask(|judge| judge.first_after(serials.feeder));
            let at_feeder = self.at_feeder.ask(|judge| judge.first_after(serials.stock));
            match (at_stock, at_feeder) {
                (Some(_), Some(_)) => Ok(()),
                (None, _) => Err("none at the stock router".to_owned()),
                (_, None) => Err("none at the feeder".to_owned()),
            }
        })
    }

    /// Compares how many UPDATEs the router counts that it has received and sent with how many there are in the
    /// captures, from the beginnings of both sessions on. Nothing may be under way.
    pub fn miscounts(&self) -> Result<Vec<Miscount>> {
        let shown = self.router.show(&["bgp", "neighbors"])?;
        let mut found = Vec::new();
        for (peer, network, watch) in
            [("stock router", stock::NETWORK, &self.at_stock), ("feeder", FEEDER, &self.at_feeder)]
        {
            let stats = &shown[v4(network, Side::Second).to_string()]["messageStats"];
            let counts = watch.ask(Judge::counts);
            for (key, on_the_wire, what) in [
                ("updatesRecv", counts.updates_of_peer, format!("from the {peer}")),
                ("updatesSent", counts.updates, format!("to the {peer}")),
            ] {
                let by_the_router = stats[key].as_u64().with_context(|| format!("no {key} in {stats}"))?;
                if by_the_router != on_the_wire {
                    found.push(Miscount { what, by_the_router, on_the_wire });
                }
            }
        }
        Ok(found)
    }

    /// The last serial numbers.
    pub fn serials(&self) -> Serials {
        Serials { stock: self.stock_churn.serial(), feeder: self.feeder_churn.serial() }
    }

    /// Compares all tables with what is announced: where there are differences, and how many. Nothing may change
    /// meanwhile.
    pub fn differences(&self) -> Result<Vec<(&'static str, usize)>> {
        let Announced { stock, feeder } = self.announced();
        let at_feeder = self.feeder.routes().into_iter();
        let at_feeder =
            at_feeder.map(|(prefix, route)| (prefix, serial(Attributes(&route.attributes).as_path())));
        let all: Routes = stock.iter().chain(&feeder).map(|(prefix, _)| (*prefix, None)).collect();
        let kernel = kernel::routes(&self.star.router, false)?.into_keys().map(|prefix| (prefix, None));
        let tables = [
            ("at the stock router", self.stock.table()?, &feeder),
            ("at the feeder", at_feeder.collect(), &stock),
            ("in Holdfast, from the stock router", self.received(STOCK_NAME)?, &stock),
            ("in Holdfast, from the feeder", self.received(FEEDER_NAME)?, &feeder),
            ("in the kernel", kernel.collect(), &all),
        ];
        let found = tables.map(|(place, found, expected)| (place, differences(&found, expected)));
        Ok(found.into_iter().filter(|(_, differences)| *differences > 0).collect())
    }

    /// What Holdfast has from a peer; not what it announced to us first, which FRR sends back and a loop hides.
    fn received(&self, peer: &str) -> Result<Routes> {
        let shown = self.router.show(&["bgp", "routes", "--ipv4", "--neighbor", peer])?;
        let routes = shown["routes"].as_object().context("no routes")?;
        let valid = routes.iter().filter(|(_, paths)| paths[0]["valid"] == true);
        let route = |(prefix, paths): (&String, &serde_json::Value)| {
            let path = paths[0]["path"].as_str().unwrap_or_default();
            Ok((prefix.parse::<Prefix>().ok().with_context(|| prefix.clone())?, printed_serial(path)))
        };
        valid.map(route).collect()
    }

    /// Lines of the router's log, for errors.
    pub fn log_tail(&self) -> String {
        self.router.log_tail()
    }
}

/// What a peer was told last of a prefix, asked of the capture there.
pub(super) fn told(watch: &Watch) -> impl Fn(Prefix, Option<u32>) -> bool + Send + 'static {
    let judge = watch.judge();
    move |prefix, serial| judge.lock().unwrap_or_else(PoisonError::into_inner).was_told(prefix, serial)
}

/// The last serial numbers of both directions.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Serials {
    /// Of the stock router.
    pub stock: u32,
    /// Of the feeder.
    pub feeder: u32,
}

/// Prefixes that are only in one of them, or with another serial number.
fn differences(found: &Routes, expected: &Routes) -> usize {
    let missing = expected.iter().filter(|(prefix, serial)| found.get(prefix) != Some(serial)).count();
    missing + found.keys().filter(|prefix| !expected.contains_key(prefix)).count()
}

/// Routes of the feeder that stay, ten to a set of attributes.
pub(crate) fn fixed_table(count: u32) -> Table {
    table_of_sets(count, 10, 0)
}

/// Routes of the feeder that stay: so many to a set of attributes, each with so many communities.
pub(crate) fn table_of_sets(count: u32, to_a_set: usize, communities: u32) -> Table {
    let mut table = Table::default();
    for (number, prefix) in prefixes(FEEDER_FIXED, count).enumerate() {
        if number % to_a_set == 0 {
            let as_path = vec![Asn(64512), Asn(100_000 + number as u32)];
            let communities = (0..communities).map(|at| 64512 << 16 | at).collect();
            let bytes =
                AttributesBuilder { as_path, communities, ..AttributesBuilder::new(Origin::Igp) }.build();
            table.sets.push(AttributeSet { bytes });
        }
        table.routes.push((prefix, table.sets.len() as u32 - 1));
    }
    table
}

fn configuration(bgp: &str) -> String {
    let peer = |name, network, asn| {
        let address = v4(network, Side::Second);
        format!(
            "[[bgp.peer]]\nname = \"{name}\"\naddress = \"{address}\"\nasn = {asn}\npassive = true\n\
             import = \"accept-all\"\nexport = \"accept-all\"\n"
        )
    };
    format!(
        "[router]\nid = \"10.0.0.1\"\nasn = {ROUTER_AS}\n[log]\nformat = \"json\"\n[bgp]\n{bgp}\n{}{}",
        peer(STOCK_NAME, stock::NETWORK, STOCK_AS),
        peer(FEEDER_NAME, FEEDER, FEEDER_AS)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_a_wrong_and_a_surplus_route_are_a_difference_each() {
        let routes = |serials: &[Option<u32>]| -> Routes {
            prefixes(FEEDER_FIXED, 9).zip(serials.iter().copied()).collect()
        };
        let expected = routes(&[None, Some(1), Some(2)]);
        assert_eq!(differences(&expected, &expected), 0);
        assert_eq!(differences(&routes(&[None, Some(1)]), &expected), 1);
        assert_eq!(differences(&routes(&[Some(7), Some(1), Some(2)]), &expected), 1);
        assert_eq!(differences(&routes(&[None, Some(3), Some(2), None]), &expected), 2);
    }
}
