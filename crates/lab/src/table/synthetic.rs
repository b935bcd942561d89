//! A table that looks like the Internet's.

use holdfast_types::{Ipv4Prefix, Ipv6Prefix, Prefix};

use super::{
    AttributeSet, Table,
    attributes::Route,
    prefixes::{Prefixes, Space},
    random::Random,
};

/// What to make. The same values give the same table everywhere.
///
/// Calibrated on the IPv4 and IPv6 tables of June 2026: lengths, 7.6 and 5.3 routes to a set of attributes, paths of
/// 4.1 hops with the speaker's own AS, communities on 62 % of the routes (3.7 each).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Synthetic {
    /// Another seed gives another Internet.
    pub seed: u64,
    /// IPv4 routes.
    pub ipv4: usize,
    /// IPv6 routes.
    pub ipv6: usize,
    /// Whether one set in 10,000 has an AS_SET in its path: routers that follow RFC 9774 refuse those routes.
    pub as_sets: bool,
}

/// Weights of ranges of sizes: how many routes share a set.
type Sizes = [(u32, u32)];
const IPV4_SIZES: &Sizes = &[(520, 3), (340, 12), (122, 40), (18, 190)];
const IPV6_SIZES: &Sizes = &[(560, 3), (330, 10), (98, 28), (12, 130)];

impl Synthetic {
    /// So many IPv4 routes.
    pub fn ipv4(seed: u64, count: usize) -> Self {
        Self { seed, ipv4: count, ipv6: 0, as_sets: false }
    }

    /// So many IPv6 routes.
    pub fn ipv6(seed: u64, count: usize) -> Self {
        Self { seed, ipv4: 0, ipv6: count, as_sets: false }
    }

    /// The whole Internet of June 2026.
    pub fn full(seed: u64) -> Self {
        Self { seed, ipv4: 1_168_945, ipv6: 279_855, as_sets: true }
    }

    /// The table, all routes of a set together, IPv4 first.
    pub fn build(&self) -> Table {
        let mut table = Table::default();
        self.add::<Ipv4Prefix>(&mut table, self.ipv4, IPV4_SIZES);
        self.add::<Ipv6Prefix>(&mut table, self.ipv6, IPV6_SIZES);
        table
    }

    fn add<P: Space>(&self, table: &mut Table, count: usize, sizes: &Sizes) {
        // Each family has numbers of its own, so that one does not change with the size of the other.
        let mut random = Random::new(self.seed ^ u64::from(P::WIDTH) << 56);
        let mut prefixes = Prefixes::<P>::new();
        let mut last = Route::draw(&mut random, 100);
        let end = table.routes.len() + count;
        while table.routes.len() < end {
            self.next_set(&mut random, &mut last);
            let set = table.sets.len() as u32;
            table.sets.push(AttributeSet { bytes: last.encode() });
            let most = random.weighted(sizes);
            let size = (1 + random.below(most) as usize).min(end - table.routes.len());
            let routes = (0..size).map(|_| (prefixes.draw(&mut random), set));
            table.routes.extend::<Vec<(Prefix, u32)>>(routes.collect());
        }
    }

    /// About half of the sets are of the origin of the one before, 30 % also of its path.
    fn next_set(&self, random: &mut Random, last: &mut Route) {
        match random.below(10) {
            0..3 => last.vary(random),
            3..5 => *last = Route::draw(random, last.path[last.path.len() - 1]),
            _ => {
                let origin = fresh_origin(random);
                *last = Route::draw(random, origin);
            }
        }
        let as_set = self.as_sets && random.chance(1);
        last.as_set = if as_set { an_as_set(random) } else { Vec::new() };
    }
}

/// Numbers for documentation (RFC 5398): a router with one of the path's numbers would refuse the route.
fn an_as_set(random: &mut Random) -> Vec<u32> {
    vec![64_496 + random.below(16), 65_536]
}

/// One of 78,000 networks, with AS numbers of two and of four octets that may be used (RFC 7607, RFC 6996).
fn fresh_origin(random: &mut Random) -> u32 {
    match random.below(78_000) {
        number @ 0..40_000 if number + 100 != 23_456 => number + 100,
        number => 150_000 + number,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use holdfast_bgp_wire::{
        Attributes,
        update::{AsSets, Checked, PeerKind, Rules, Verdict, check},
    };

    use super::*;

    fn share(part: usize, whole: usize) -> f64 {
        part as f64 / whole as f64
    }

    fn mean(table: &Table, count: impl Fn(Attributes<'_>) -> usize) -> f64 {
        let all = 0..table.routes.len();
        share(all.map(|route| count(Attributes(table.attributes(route)))).sum(), table.routes.len())
    }

    #[test]
    fn the_same_seed_gives_the_same_table_and_another_one_another() {
        let table = |seed| Synthetic { seed, ipv4: 500, ipv6: 300, as_sets: true }.build();
        assert_eq!(table(1), table(1));
        assert_ne!(table(1), table(2));
    }

    #[test]
    fn the_table_has_the_shape_of_the_internet() {
        let mut table = Synthetic { seed: 1, ipv4: 200_000, ipv6: 0, as_sets: false }.build();
        let different: HashSet<Prefix> = table.routes.iter().map(|(prefix, _)| *prefix).collect();
        assert_eq!(different.len(), 200_000);
        let sets: HashSet<&AttributeSet> = table.sets.iter().collect();
        let per_set = share(200_000, sets.len());
        assert!((7.0..8.2).contains(&per_set), "{per_set} routes per set");
        let hops = 1.0 + mean(&table, |attributes| attributes.as_path().hops());
        assert!((3.95..4.25).contains(&hops), "{hops} hops");
        let tagged = mean(&table, |attributes| usize::from(attributes.communities().len() > 0));
        let communities = mean(&table, |attributes| attributes.communities().len()) / tagged;
        assert!(
            (0.58..0.66).contains(&tagged) && (3.3..4.1).contains(&communities),
            "{tagged} {communities}"
        );
        let long = table.routes.iter().filter(|(prefix, _)| prefix.length() == 24).count();
        assert!((0.57..0.65).contains(&share(long, 200_000)), "{long} of /24");
        table.sort_by_prefix();
        let near = table
            .routes
            .windows(2)
            .filter(|pair| Prefix::new(pair[0].0.address(), 17) == Prefix::new(pair[1].0.address(), 17));
        assert!(near.count() > 130_000, "prefixes are clustered");
    }

    #[test]
    fn ipv6_routes_share_sets_less() {
        let table = Synthetic::ipv6(1, 100_000).build();
        let per_set = share(100_000, table.sets.len());
        assert!((4.8..5.8).contains(&per_set), "{per_set} routes per set");
        let long = table.routes.iter().filter(|(prefix, _)| prefix.length() == 48).count();
        assert!((0.44..0.54).contains(&share(long, 100_000)), "{long} of /48");
    }

    #[test]
    fn private_as_numbers_are_left_to_the_routers() {
        let table = Synthetic::full(1).build();
        let numbers = |set: &AttributeSet| Attributes(&set.bytes).as_path().asns().collect::<Vec<_>>();
        let private: Vec<_> = table.sets.iter().flat_map(numbers).filter(|asn| asn.is_private()).collect();
        assert_eq!(private, []);
    }

    #[test]
    fn every_set_is_without_fault_and_in_canonical_form() {
        let table = Synthetic { seed: 1, ipv4: 20_000, ipv6: 20_000, as_sets: true }.build();
        let rules = Rules::new(PeerKind::Ebgp, AsSets::Accept);
        let mut checked = Checked::default();
        for set in &table.sets {
            check(&set.bytes, false, &rules, &mut checked);
            assert_eq!((&checked.verdict, &checked.canonical), (&Verdict::Ok, &set.bytes));
        }
    }
}
