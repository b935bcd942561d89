//! What a sink has heard, against what it must have.

use std::{
    cell::RefCell,
    collections::{BTreeSet, HashMap, HashSet},
    net::IpAddr,
};

use anyhow::{Context, Result, bail, ensure};
use holdfast_bgp_wire::{
    Attributes, NextHop, Origin,
    nlri::prefixes,
    update::{AsSets, PeerKind, Rules, cut, sections},
};
use holdfast_lab::table::Table;
use holdfast_types::{Asn, HashKey, Ipv4Prefix, Ipv6Prefix, Prefix};

use crate::{
    hearing::{Digest, Hearing, Sum},
    load::updates,
};

/// The attributes that every router passes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Route {
    pub(crate) origin: Option<Origin>,
    pub(crate) path: Vec<Asn>,
    /// `None` where the router puts in its own.
    pub(crate) next_hop: Option<IpAddr>,
    pub(crate) communities: BTreeSet<u32>,
    pub(crate) large_communities: BTreeSet<(u32, u32, u32)>,
}

impl Route {
    fn read(attributes: Attributes<'_>, next_hop: Option<IpAddr>) -> Self {
        Self {
            origin: attributes.origin(),
            path: attributes.as_path().asns().collect(),
            next_hop,
            communities: attributes.communities().collect(),
            large_communities: attributes.large_communities().collect(),
        }
    }
}

/// The routes of a session after all that came.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    routes: HashMap<Prefix, usize>,
    sets: Vec<Route>,
}

impl Heard {
    /// Reads all messages.
    pub(crate) fn read(octets: &[u8]) -> Result<Self> {
        let mut heard = Self::default();
        let mut rest = Vec::new();
        let rules = Rules::new(PeerKind::Ebgp, AsSets::Accept);
        for body in updates(octets) {
            let sections = sections(body)?;
            let mp = cut(sections.attributes, &mut rest).context("attributes")?.parse(&rules)?;
            heard.withdraw(prefixes::<Ipv4Prefix>(sections.withdrawn).flatten().map(Prefix::V4));
            if let Some(unreach) = mp.unreach {
                heard.withdraw(prefixes::<Ipv6Prefix>(unreach.nlri).flatten().map(Prefix::V6));
            }
            let attributes = Attributes(&rest);
            if !sections.nlri.is_empty() {
                let set = heard.set(attributes, attributes.next_hop().map(IpAddr::V4));
                heard.announce(prefixes::<Ipv4Prefix>(sections.nlri).flatten().map(Prefix::V4), set);
            }
            if let Some(reach) = mp.reach {
                let set = heard.set(attributes, reach.next_hop.map(NextHop::address));
                heard.announce(prefixes::<Ipv6Prefix>(reach.nlri).flatten().map(Prefix::V6), set);
            }
        }
        Ok(heard)
    }

    fn set(&mut self, attributes: Attributes<'_>, next_hop: Option<IpAddr>) -> usize {
        self.sets.push(Route::read(attributes, next_hop));
        self.sets.len() - 1
    }

    fn announce(&mut self, prefixes: impl Iterator<Item = Prefix>, set: usize) {
        self.routes.extend(prefixes.map(|prefix| (prefix, set)));
    }

    fn withdraw(&mut self, prefixes: impl Iterator<Item = Prefix>) {
        prefixes.for_each(|prefix| {
            self.routes.remove(&prefix);
        });
    }
}

/// What sinks must have: for each prefix the routes that are right, of which any will do.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    routes: HashMap<Prefix, Vec<usize>>,
    sets: Vec<Route>,
    /// The session that a set is from, if that session is not told of it.
    owners: Vec<Option<usize>>,
    /// What sums and hashes must be, by the next hop that the router puts in.
    digests: RefCell<HashMap<IpAddr, Digests>>,
}

/// Sums and hashes for one next hop.
#[derive(Debug)]
struct Digests {
    /// Of each set.
    sets: Vec<u64>,
    all: Sum,
    /// Of the routes of a session that is not told of them.
    own: HashMap<usize, Sum>,
}

/// Who has heard what.
#[derive(Debug)]
pub(crate) struct Listener<'a> {
    /// Its number.
    pub(crate) session: usize,
    pub(crate) hearing: &'a Hearing,
    /// Prefixes withdrawn.
    pub(crate) withdrawn: u64,
    /// The router's address towards it.
    pub(crate) router: IpAddr,
}

impl Expected {
    /// The best routes among those of several feeders with these AS numbers: the shortest paths, as far as all
    /// routers agree. The router is `asn`.
    pub(crate) fn best(tables: &[(&Table, Asn)], asn: Asn) -> Self {
        let mut expected = Self::default();
        for (table, feeder) in tables {
            expected.add_table(table, None, |route| drop(route.path.splice(0..0, [asn, *feeder])));
        }
        expected
    }

    /// What a route server tells its clients, which are the first sessions, of each other's tables: paths and next hops
    /// as they came, and to nobody the own routes.
    pub(crate) fn served(clients: &[(&Table, Asn, IpAddr)]) -> Self {
        let mut expected = Self::default();
        for (session, (table, client, address)) in clients.iter().enumerate() {
            expected.add_table(table, Some(session), |route| {
                route.path.insert(0, *client);
                route.next_hop = Some(*address);
            });
        }
        expected
    }

    fn add_table(&mut self, table: &Table, owner: Option<usize>, change: impl Fn(&mut Route)) {
        let first = self.sets.len();
        for set in &table.sets {
            let mut route = Route::read(Attributes(&set.bytes), None);
            change(&mut route);
            self.sets.push(route);
            self.owners.push(owner);
        }
        for (prefix, set) in &table.routes {
            self.add(*prefix, first + *set as usize);
        }
    }

    fn add(&mut self, prefix: Prefix, set: usize) {
        let rank = |set: usize| {
            let route = &self.sets[set];
            (route.path.len(), route.origin.map(|origin| origin as u8))
        };
        let (rank_of_new, known) = (rank(set), self.routes.get(&prefix));
        match known.map(|sets| rank_of_new.cmp(&rank(sets[0]))) {
            None | Some(std::cmp::Ordering::Less) => {
                self.routes.insert(prefix, vec![set]);
            }
            Some(std::cmp::Ordering::Equal) => self.routes.entry(prefix).or_default().push(set),
            Some(std::cmp::Ordering::Greater) => {}
        }
    }

    /// Takes out what a policy refuses, and changes what it changes.
    pub(crate) fn apply(&mut self, passes: impl Fn(Prefix, &Route) -> bool, change: impl Fn(&mut Route)) {
        let sets = &self.sets;
        self.routes.retain(|prefix, of| of.iter().any(|set| passes(*prefix, &sets[*set])));
        self.sets.iter_mut().for_each(change);
        self.digests.get_mut().clear();
    }

    /// How many routes there must be.
    pub(crate) fn len(&self) -> usize {
        self.routes.len()
    }

    /// How many of them come from these first clients of a route server; none if the router is another one.
    pub(crate) fn owned(&self, clients: usize) -> Vec<usize> {
        let mut owned = vec![0; clients];
        for owner in self.routes.values().filter_map(|sets| self.owners[sets[0]]) {
            owned[owner] += 1;
        }
        owned
    }

    /// Compares with what a session has heard.
    pub(crate) fn check(&self, listener: &Listener<'_>) -> Result<()> {
        match listener.hearing {
            Hearing::Count | Hearing::Signed(_) | Hearing::When(_) => {
                bail!("session {} was not listened to", listener.session)
            }
            Hearing::All(octets) => self.check_all(&Heard::read(octets)?, listener),
            Hearing::Sum(sum) => self.check_sum(*sum, listener),
            Hearing::Last(routes) => self.check_last(routes, listener),
        }
    }

    /// Does something with the sums and hashes for a next hop, which are made once.
    fn with_digests<T>(&self, next_hop: IpAddr, body: impl FnOnce(&Digests) -> T) -> T {
        let mut digests = self.digests.borrow_mut();
        body(digests.entry(next_hop).or_insert_with(|| self.digests(next_hop)))
    }

    fn digests(&self, next_hop: IpAddr) -> Digests {
        let mut digest = Digest::default();
        let mut hash = |route: &Route| {
            let (path, communities) = (route.path.iter().copied(), route.communities.iter().copied());
            let (large, hop) = (route.large_communities.iter().copied(), route.next_hop.unwrap_or(next_hop));
            digest.of(route.origin.map(|origin| origin as u8), path, communities, large, Some(hop))
        };
        let sets: Vec<u64> = self.sets.iter().map(&mut hash).collect();
        let (mut all, mut own) = (Sum::default(), HashMap::<usize, Sum>::new());
        for (prefix, of) in &self.routes {
            all.add(*prefix, sets[of[0]]);
            if let Some(owner) = self.owners[of[0]] {
                own.entry(owner).or_default().add(*prefix, sets[of[0]]);
            }
        }
        Digests { sets, all, own }
    }

    fn check_sum(&self, heard: Sum, listener: &Listener<'_>) -> Result<()> {
        ensure!(self.routes.values().all(|sets| sets.len() == 1), "a sum cannot leave a choice");
        let wanted = self.with_digests(listener.router, |digests| match digests.own.get(&listener.session) {
            Some(own) => digests.all.without(*own),
            None => digests.all,
        });
        ensure!(listener.withdrawn == 0, "{} routes are withdrawn", listener.withdrawn);
        ensure!(heard.routes == wanted.routes, "{} routes instead of {}", heard.routes, wanted.routes);
        ensure!(heard == wanted, "of {} routes some are not right: see --explain", heard.routes);
        Ok(())
    }

    fn check_last(&self, heard: &HashMap<Prefix, u64, HashKey>, listener: &Listener<'_>) -> Result<()> {
        self.check_prefixes(heard.len(), |prefix| heard.contains_key(prefix), heard.keys(), listener)?;
        self.with_digests(listener.router, |digests| {
            for (prefix, hash) in heard {
                let wanted = self.routes.get(prefix).with_context(|| format!("{prefix} is not announced"))?;
                let right = wanted.iter().any(|set| digests.sets[*set] == *hash);
                ensure!(right, "{prefix} came with other attributes: see --explain");
            }
            Ok(())
        })
    }

    /// Compares the number of prefixes, and names one that is missing and one that is too much.
    fn check_prefixes<'a>(
        &self,
        count: usize,
        has: impl Fn(&Prefix) -> bool,
        mut heard: impl Iterator<Item = &'a Prefix>,
        listener: &Listener<'_>,
    ) -> Result<()> {
        let is_told = |sets: &[usize]| self.owners[sets[0]] != Some(listener.session);
        let wanted = self.routes.values().filter(|sets| is_told(sets)).count();
        let missing = || self.routes.iter().find(|(prefix, sets)| is_told(sets) && !has(prefix));
        let mut surplus = || heard.find(|prefix| !self.routes.get(prefix).is_some_and(|sets| is_told(sets)));
        if count != wanted {
            let (missing, surplus) = (missing().map(|(prefix, _)| prefix), surplus());
            bail!("{count} routes instead of {wanted}: {missing:?} is missing, {surplus:?} is too much");
        }
        Ok(())
    }

    fn check_all(&self, heard: &Heard, listener: &Listener<'_>) -> Result<()> {
        let has = |prefix: &Prefix| heard.routes.contains_key(prefix);
        self.check_prefixes(heard.routes.len(), has, heard.routes.keys(), listener)?;
        let mut right: HashSet<(usize, usize)> = HashSet::new();
        for (prefix, set) in &heard.routes {
            let wanted = self.routes.get(prefix).with_context(|| format!("{prefix} is not announced"))?;
            let same = |wanted: &usize| {
                right.contains(&(*set, *wanted)) || {
                    let route = self.sets[*wanted].clone();
                    let next_hop = Some(route.next_hop.unwrap_or(listener.router));
                    heard.sets[*set] == Route { next_hop, ..route }
                }
            };
            let found = wanted.iter().find(|wanted| same(wanted));
            let found = found.with_context(|| {
                format!("{prefix} came as {:?}, not as {:?}", heard.sets[*set], self.sets[wanted[0]])
            })?;
            right.insert((*set, *found));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use holdfast_bgp_wire::{
        HEADER_LEN, MAX_LEN,
        edit::{Edit, rewrite},
        next_message,
    };
    use holdfast_lab::table::Synthetic;

    use super::*;
    use crate::{feed, hearing::key};

    const ROUTER: Asn = Asn(65_500);
    const FEEDER: Asn = Asn(64_512);

    /// What a sink hears from a router that does its work: its own AS in front, itself as the next hop.
    fn said(table: &Table, hop: IpAddr) -> Vec<u8> {
        let mut longer = table.clone();
        for set in &mut longer.sets {
            let edit = Edit { prepend: &[(FEEDER, 1)], ..Edit::default() };
            let mut bytes = Vec::new();
            rewrite(&set.bytes, &edit, &mut bytes);
            set.bytes = bytes;
        }
        feed::announce(&longer, hop, ROUTER).unwrap()
    }

    fn hop(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    /// What each kind of session makes of these octets; they are to agree.
    fn check(expected: &Expected, octets: &[u8], router: IpAddr, session: usize) -> Result<()> {
        let [mut all, mut last, mut sum] = [
            Hearing::All(Vec::new()),
            Hearing::Last(HashMap::with_hasher(key())),
            Hearing::Sum(Sum::default()),
        ];
        let mut withdrawn = 0;
        for message in messages(octets) {
            for hearing in [&mut all, &mut last, &mut sum] {
                hearing.take(message, &message[HEADER_LEN..], &mut Digest::default())?;
            }
            withdrawn += u64::from(!sections(&message[HEADER_LEN..])?.withdrawn.is_empty());
        }
        let verdict = |hearing| expected.check(&Listener { session, hearing, withdrawn, router });
        let verdicts = [verdict(&all), verdict(&last), verdict(&sum)];
        assert!(verdicts.iter().all(|verdict| verdict.is_ok() == verdicts[0].is_ok()), "{verdicts:?}");
        verdict(&all)
    }

    fn messages(mut octets: &[u8]) -> Vec<&[u8]> {
        let mut messages = Vec::new();
        while let Some(message) = next_message(octets, MAX_LEN).unwrap() {
            octets = &octets[message.wire.len()..];
            messages.push(message.wire);
        }
        messages
    }

    #[test]
    fn only_exactly_the_right_routes_pass() {
        for (table, hops) in [
            (Synthetic::ipv4(1, 500).build(), [hop(1), hop(2)]),
            (Synthetic::ipv6(1, 500).build(), ["2001:db8::1", "2001:db8::2"].map(|hop| hop.parse().unwrap())),
        ] {
            let expected = Expected::best(&[(&table, FEEDER)], ROUTER);
            let verdict = |table: &Table| check(&expected, &said(table, hops[0]), hops[0], 1);
            verdict(&table).unwrap();
            check(&expected, &said(&table, hops[0]), hops[1], 1).expect_err("another next hop");
            let mut short = table.clone();
            short.truncate(499);
            verdict(&short).expect_err("one is missing");
            let mut other = table.clone();
            other.routes[7].1 = (other.routes[7].1 + 1) % other.sets.len() as u32;
            verdict(&other).expect_err("one has other attributes");
            let mut swapped = table.clone();
            let last = swapped.routes.len() - 1;
            (swapped.routes[0].1, swapped.routes[last].1) = (table.routes[last].1, table.routes[0].1);
            verdict(&swapped).expect_err("two have each other's attributes");
            other.routes[7] = (Prefix::new(hops[0], 24).unwrap(), table.routes[7].1);
            verdict(&other).expect_err("another prefix instead");
        }
    }

    #[test]
    fn order_and_packing_make_no_difference() {
        let table = Synthetic::ipv4(1, 500).build();
        let expected = Expected::best(&[(&table, FEEDER)], ROUTER);
        let mut other = table.clone();
        other.routes.reverse();
        other.sort_by_prefix();
        assert_ne!(said(&other, hop(1)), said(&table, hop(1)));
        check(&expected, &said(&other, hop(1)), hop(1), 1).unwrap();
    }

    /// A sum takes no route for another that came twice; who keeps what came last does not mind.
    #[test]
    fn a_sum_counts_a_route_each_time() {
        let table = Synthetic::ipv4(1, 500).build();
        let expected = Expected::best(&[(&table, FEEDER)], ROUTER);
        let octets = |table: &Table| said(table, hop(1));
        let verdict = |hearing: &mut Hearing, octets: &[u8]| {
            for message in messages(octets) {
                hearing.take(message, &message[HEADER_LEN..], &mut Digest::default()).unwrap();
            }
            expected.check(&Listener { session: 1, hearing, withdrawn: 0, router: hop(1) })
        };
        let mut one = table.clone();
        one.truncate(1);
        let twice = [octets(&table), octets(&one)].concat();
        verdict(&mut Hearing::Sum(Sum::default()), &twice).expect_err("one came twice");
        verdict(&mut Hearing::Last(HashMap::with_hasher(key())), &twice).unwrap();
        // As many as there must be, one twice and another not at all.
        let mut short = table.clone();
        short.routes.remove(499);
        let short = [octets(&short), octets(&one)].concat();
        verdict(&mut Hearing::Sum(Sum::default()), &short).expect_err("one came in the place of another");
        verdict(&mut Hearing::Last(HashMap::with_hasher(key())), &short).expect_err("one is missing");
    }

    #[test]
    fn what_is_withdrawn_is_missing() {
        let table = Synthetic::ipv4(1, 50).build();
        let expected = Expected::best(&[(&table, FEEDER)], ROUTER);
        let mut octets = said(&table, hop(1));
        let Prefix::V4(prefix) = table.routes[3].0 else { panic!("a table of IPv4") };
        holdfast_bgp_wire::UpdateEncoder::new(MAX_LEN).withdraw([prefix], &mut octets);
        check(&expected, &octets, hop(1), 1).expect_err("one is withdrawn");
    }

    #[test]
    fn of_several_feeders_the_shortest_paths_are_right() {
        let mut tables = [Synthetic::ipv4(1, 300).build(), Synthetic::ipv4(2, 300).build()];
        let prefixes: Vec<Prefix> = tables[0].routes.iter().map(|(prefix, _)| *prefix).collect();
        tables[1].routes.iter_mut().zip(prefixes).for_each(|(route, prefix)| route.0 = prefix);
        let expected = Expected::best(&[(&tables[0], FEEDER), (&tables[1], FEEDER)], ROUTER);
        assert_eq!(expected.len(), 300);
        let verdict = check(&expected, &said(&tables[0], hop(1)), hop(1), 2);
        verdict.expect_err("not all of the first are best");
    }

    #[test]
    fn a_client_of_a_route_server_is_told_of_all_but_its_own() {
        let whole = Synthetic::ipv4(1, 300).build();
        let part =
            |from: usize, to: usize| Table { routes: whole.routes[from..to].to_vec(), ..whole.clone() };
        let (tables, asns) = ([part(0, 100), part(100, 300)], [FEEDER, Asn(FEEDER.0 + 1)]);
        let clients = [(&tables[0], asns[0], hop(2)), (&tables[1], asns[1], hop(3))];
        let expected = Expected::served(&clients);
        assert_eq!((expected.len(), expected.owned(2)), (300, vec![100, 200]));
        let said =
            |client: usize| feed::announce(&tables[client], hop(2 + client as u8), asns[client]).unwrap();
        check(&expected, &said(1), hop(1), 0).unwrap();
        check(&expected, &said(0), hop(1), 1).unwrap();
        check(&expected, &[said(0), said(1)].concat(), hop(1), 0).expect_err("its own");
        check(&expected, &said(0), hop(1), 0).expect_err("nothing but its own");
        let hidden = feed::announce(&tables[1], hop(1), asns[1]).unwrap();
        check(&expected, &hidden, hop(1), 0).expect_err("the route server as the next hop");
    }

    #[test]
    fn a_policy_takes_routes_out_and_changes_others() {
        let table = Synthetic::ipv4(1, 200).build();
        let mut expected = Expected::best(&[(&table, FEEDER)], ROUTER);
        let refused = table.routes[0].0;
        expected.apply(|prefix, _| prefix != refused, |_| {});
        assert_eq!(expected.len(), 199);
        let mut rest = table.clone();
        rest.routes.remove(0);
        check(&expected, &said(&rest, hop(1)), hop(1), 1).unwrap();
        expected.apply(
            |_, _| true,
            |route| {
                route.communities.insert(7);
            },
        );
        check(&expected, &said(&rest, hop(1)), hop(1), 1).expect_err("the community is missing");
    }
}
