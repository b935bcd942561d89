//! Between the messages of the interface files and the values of the table.

use std::net::IpAddr;

use holdfast_api::{
    fea::v1::RefusalEvent,
    routes::v1::{NextHop, NextHopKind, NextHopSet, RouteBatch},
};
use holdfast_rib::{
    InterfaceRef, Nexthop, NexthopSet, Nexthops, Reason, Rejections, Resolution, ResolvedNexthop,
};
use holdfast_types::Prefix;
use holdfast_xrl::XrlError;

pub(crate) fn invalid(text: impl ToString) -> XrlError {
    XrlError::invalid_argument(text.to_string())
}

/// 4 or 16 octets.
pub(crate) fn address(octets: &[u8]) -> Result<IpAddr, XrlError> {
    holdfast_types::address(octets)
        .ok_or_else(|| invalid(format!("an address has 4 or 16 octets, not {}", octets.len())))
}

/// Next hops as an origin defines them, with those that are taken when none of them works.
pub(crate) fn defined(set: &NextHopSet) -> Result<Nexthops, XrlError> {
    let backups = set.backups.iter().map(nexthop).collect::<Result<_, _>>()?;
    Ok(Nexthops { set: nexthops(set.kind, &set.members)?, backups })
}

/// Next hops as an origin or the configuration gives them.
pub(crate) fn nexthops(kind: i32, members: &[NextHop]) -> Result<NexthopSet, XrlError> {
    match NextHopKind::try_from(kind) {
        Ok(NextHopKind::Forward) => {
            members.iter().map(nexthop).collect::<Result<_, _>>().map(NexthopSet::Forward)
        }
        Ok(NextHopKind::Blackhole) => Ok(NexthopSet::Blackhole),
        Ok(NextHopKind::Unreachable) => Ok(NexthopSet::Unreachable),
        Err(_) => Err(invalid(format!("unknown kind {kind} of next hop"))),
    }
}

fn nexthop(member: &NextHop) -> Result<Nexthop, XrlError> {
    let gateway = (!member.gateway.is_empty()).then(|| address(&member.gateway)).transpose()?;
    let interface = match (member.interface_index, &*member.interface) {
        (0, "") => None,
        (0, name) => Some(InterfaceRef::Name(name.into())),
        (index, _) => Some(InterfaceRef::Index(index)),
    };
    let weight = u8::try_from(member.weight).unwrap_or(u8::MAX).max(1);
    Ok(Nexthop { gateway, interface, weight })
}

/// Next hops as the origin gave them, to be sent on.
pub(crate) fn given(nexthops: &NexthopSet) -> (NextHopKind, Vec<NextHop>) {
    match nexthops {
        NexthopSet::Forward(members) => (NextHopKind::Forward, members.iter().map(given_member).collect()),
        NexthopSet::Blackhole => (NextHopKind::Blackhole, Vec::new()),
        NexthopSet::Unreachable => (NextHopKind::Unreachable, Vec::new()),
    }
}

fn given_member(member: &Nexthop) -> NextHop {
    let (interface_index, interface) = match &member.interface {
        Some(InterfaceRef::Index(index)) => (*index, String::new()),
        Some(InterfaceRef::Name(name)) => (0, name.to_string()),
        None => (0, String::new()),
    };
    let gateway = member.gateway.map(holdfast_types::octets).unwrap_or_default();
    NextHop { gateway, interface_index, interface, weight: member.weight.into() }
}

/// Next hops as they are used.
pub(crate) fn resolved(resolution: &Resolution) -> (NextHopKind, Vec<NextHop>) {
    let member = |member: &ResolvedNexthop| NextHop {
        gateway: member.gateway.map(holdfast_types::octets).unwrap_or_default(),
        interface_index: member.interface,
        interface: String::new(),
        weight: member.weight.into(),
    };
    match resolution {
        Resolution::Forward(members) => (NextHopKind::Forward, members.iter().map(member).collect()),
        Resolution::Blackhole => (NextHopKind::Blackhole, Vec::new()),
        Resolution::Unresolved | Resolution::Unreachable => (NextHopKind::Unreachable, Vec::new()),
    }
}

/// What is no prefix is left out. An earlier build gives no reasons.
pub(crate) fn rejections(said: &RefusalEvent) -> Rejections {
    let reason =
        |reasons: &[String], row: usize| Some(Reason::from(reasons.get(row).map_or("", String::as_str)));
    let over = said.next_hops_over.iter().map(|handle| (*handle, None));
    let handles = said.next_hops.iter().enumerate();
    let handles = handles.map(|(row, handle)| (*handle, reason(&said.next_hop_reasons, row)));
    let handles = over.chain(handles).collect();
    let prefix = |text: &String| text.parse::<Prefix>().ok();
    let over = said.routes_over.iter().filter_map(|text| Some((prefix(text)?, None)));
    let routes = said.routes.iter().enumerate();
    let routes = routes.filter_map(|(row, text)| Some((prefix(text)?, reason(&said.route_reasons, row))));
    Rejections { handles, routes: over.chain(routes).collect(), incomplete: said.incomplete }
}

pub(crate) fn next_hop_set(handle: u32, (kind, members): (NextHopKind, Vec<NextHop>)) -> NextHopSet {
    NextHopSet { handle, kind: kind.into(), members, backups: Vec::new() }
}

/// What is said of a run of routes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// 0 withdraws.
    pub(crate) handle: u32,
    pub(crate) metric: u32,
    pub(crate) distance: Option<u8>,
    pub(crate) source: u32,
}

/// The routes of a batch of one family, whose columns fit together.
#[derive(Debug)]
pub(crate) struct Rows<'a, const WIDTH: usize> {
    addresses: &'a [[u8; WIDTH]],
    lengths: &'a [u8],
    batch: &'a RouteBatch,
}

impl<'a, const WIDTH: usize> Rows<'a, WIDTH>
where
    IpAddr: From<[u8; WIDTH]>,
{
    /// # Errors
    /// Columns that do not fit together, and what is no prefix: it is longer than its address, or bits after its length are set.
    pub(crate) fn of(batch: &'a RouteBatch) -> Result<Self, XrlError> {
        let (addresses, rest) = batch.addresses.as_chunks();
        let runs = batch.runs.len();
        let in_runs: u64 = batch.runs.iter().map(|&routes| u64::from(routes)).sum();
        let fits = rest.is_empty() && batch.lengths.len() == addresses.len();
        let fits_or_empty = |column: usize| column == 0 || column == runs;
        if !fits
            || in_runs != addresses.len() as u64
            || batch.next_hops.len() != runs
            || !fits_or_empty(batch.metrics.len())
            || !fits_or_empty(batch.distances.len())
            || !fits_or_empty(batch.sources.len())
        {
            return Err(invalid("the columns of the batch differ in length"));
        }
        for (address, &length) in addresses.iter().zip(&batch.lengths) {
            let address = IpAddr::from(*address);
            match Prefix::new(address, length) {
                Some(prefix) if prefix.address() == address => {}
                Some(prefix) => {
                    let text = format!("{address}/{length} has bits set after its length");
                    return Err(invalid(format!("{text}; the prefix is {prefix}")));
                }
                None => return Err(invalid(format!("a prefix of {length} bits is too long"))),
            }
        }
        Ok(Self { addresses, lengths: &batch.lengths, batch })
    }

    /// What is said, and of which prefixes.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (Run, impl Iterator<Item = Prefix>)> {
        let Self { addresses, lengths, batch } = *self;
        let mut start = 0;
        batch.runs.iter().enumerate().map(move |(at, &routes)| {
            let routes = routes as usize;
            let rows = addresses[start..][..routes].iter().zip(&lengths[start..][..routes]);
            start += routes;
            let run = Run {
                handle: batch.next_hops[at],
                metric: batch.metrics.get(at).copied().unwrap_or(0),
                distance: batch.distances.get(at).copied(),
                source: batch.sources.get(at).copied().unwrap_or(0),
            };
            // They are known to be prefixes.
            (run, rows.filter_map(|(&address, &length)| Prefix::new(address.into(), length)))
        })
    }
}

/// Adds a route (handle 0: its withdrawal) to a batch of its family; says whether a run begins with it, for which the
/// caller fills the other columns.
pub(crate) fn push(batch: &mut RouteBatch, prefix: Prefix, handle: u32) -> bool {
    match prefix.address() {
        IpAddr::V4(address) => batch.addresses.extend(address.octets()),
        IpAddr::V6(address) => batch.addresses.extend(address.octets()),
    }
    batch.lengths.push(prefix.length());
    let goes_on = batch.next_hops.last() == Some(&handle);
    match batch.runs.last_mut().filter(|_| goes_on) {
        Some(routes) => *routes += 1,
        None => {
            batch.runs.push(1);
            batch.next_hops.push(handle);
        }
    }
    !goes_on
}

pub(crate) fn afi(prefix: Prefix) -> u32 {
    prefix.afi().0.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().expect("prefix")
    }

    fn batch(routes: &[(&str, u32)]) -> RouteBatch {
        let mut batch = RouteBatch { afi: afi(prefix(routes[0].0)), ..RouteBatch::default() };
        routes.iter().for_each(|&(text, handle)| {
            push(&mut batch, prefix(text), handle);
        });
        batch
    }

    fn read<const WIDTH: usize>(batch: &RouteBatch) -> Result<Vec<(Run, Vec<String>)>, XrlError>
    where
        IpAddr: From<[u8; WIDTH]>,
    {
        let rows = Rows::<WIDTH>::of(batch)?;
        Ok(rows.runs().map(|(run, prefixes)| (run, prefixes.map(|p| p.to_string()).collect())).collect())
    }

    #[test]
    fn routes_come_out_as_they_went_in_and_neighbours_with_the_same_next_hops_as_one_run() {
        let run = |handle| Run { handle, metric: 0, distance: None, source: 0 };
        let routes = [("10.0.0.0/8", 7), ("192.0.2.1/32", 7), ("192.0.2.0/24", 0)];
        let first = (run(7), vec!["10.0.0.0/8".into(), "192.0.2.1/32".into()]);
        let second = (run(0), vec!["192.0.2.0/24".into()]);
        assert_eq!(read::<4>(&batch(&routes)).expect("fits"), [first, second]);
        let all = (run(1), vec!["::/0".into(), "2001:db8::/32".into()]);
        assert_eq!(read::<16>(&batch(&[("::/0", 1), ("2001:db8::/32", 1)])).expect("fits"), [all]);
    }

    #[test]
    fn the_other_columns_are_those_of_the_run() {
        let mut batch = batch(&[("10.0.0.0/8", 7), ("10.0.0.0/9", 7), ("192.0.2.0/24", 8)]);
        (batch.metrics, batch.distances, batch.sources) = (vec![5, 6], vec![20, 200], vec![3, 0]);
        let runs: Vec<_> = read::<4>(&batch).expect("fits").into_iter().map(|(run, _)| run).collect();
        assert_eq!(runs[0], Run { handle: 7, metric: 5, distance: Some(20), source: 3 });
        assert_eq!(runs[1], Run { handle: 8, metric: 6, distance: Some(200), source: 0 });
    }

    #[test]
    fn a_batch_that_does_not_fit_together_is_refused() {
        let good = batch(&[("10.0.0.0/8", 1), ("10.0.0.0/16", 2)]);
        let broken: [fn(&mut RouteBatch); 10] = [
            |batch| batch.addresses.truncate(7),
            |batch| batch.lengths.truncate(1),
            |batch| batch.next_hops.truncate(1),
            |batch| batch.runs.truncate(1),
            |batch| batch.runs = vec![1, 2],
            |batch| batch.runs = vec![u32::MAX, 3],
            |batch| batch.metrics = vec![1],
            |batch| batch.distances = vec![1, 2, 3],
            |batch| batch.sources = vec![1],
            |batch| batch.lengths[1] = 33,
        ];
        for (case, damage) in broken.into_iter().enumerate() {
            let mut batch = good.clone();
            damage(&mut batch);
            assert!(Rows::<4>::of(&batch).is_err(), "case {case}");
        }
        assert!(Rows::<16>::of(&good).is_err());
    }

    #[test]
    fn bits_after_the_length_of_a_prefix_refuse_its_batch() {
        for (address, length, text, meant) in [
            ("10.0.0.1", 8, "10.0.0.1/8", "10.0.0.0/8"),
            ("192.0.2.1", 0, "192.0.2.1/0", "0.0.0.0/0"),
            ("2001:db8::1", 64, "2001:db8::1/64", "2001:db8::/64"),
        ] {
            let mut batch = batch(&[("10.0.0.0/8", 1)]);
            batch.lengths = vec![length];
            let refused = match address.parse().expect("an address") {
                IpAddr::V4(address) => {
                    batch.addresses = address.octets().into();
                    Rows::<4>::of(&batch).map(drop)
                }
                IpAddr::V6(address) => {
                    batch.addresses = address.octets().into();
                    Rows::<16>::of(&batch).map(drop)
                }
            };
            let expected = format!("{text} has bits set after its length; the prefix is {meant}");
            assert_eq!(refused.expect_err("no prefix").message(), expected);
        }
    }

    #[test]
    fn next_hops_survive_the_way_there_and_back() {
        let members = vec![
            Nexthop { gateway: Some("10.0.0.1".parse().expect("address")), interface: None, weight: 3 },
            Nexthop::on(InterfaceRef::Name("eth0".into())),
            Nexthop {
                gateway: Some("fe80::1".parse().expect("address")),
                ..Nexthop::on(InterfaceRef::Index(7))
            },
        ];
        for set in [NexthopSet::Forward(members), NexthopSet::Blackhole, NexthopSet::Unreachable] {
            let (kind, members) = given(&set);
            assert_eq!(nexthops(kind.into(), &members).expect("valid"), set);
        }
        assert!(nexthops(9, &[]).is_err());
        assert!(nexthops(0, &[NextHop { gateway: vec![1, 2, 3], ..NextHop::default() }]).is_err());
    }
}
