//! Between the messages of the interface files and the values of the table.

use std::net::IpAddr;

use holdfast_api::routes::v1::{NextHop, NextHopKind, NextHopSet, RouteBatch};
use holdfast_rib::{InterfaceRef, Nexthop, NexthopSet, Resolution, ResolvedNexthop};
use holdfast_types::Prefix;
use holdfast_xrl::XrlError;

pub(crate) fn invalid(text: impl ToString) -> XrlError {
    XrlError::invalid_argument(text.to_string())
}

/// 4 or 16 octets.
pub(crate) fn address(octets: &[u8]) -> Result<IpAddr, XrlError> {
    if let Ok(v4) = <[u8; 4]>::try_from(octets) {
        return Ok(v4.into());
    }
    let v6 = <[u8; 16]>::try_from(octets);
    v6.map(IpAddr::from).map_err(|_| invalid(format!("an address has 4 or 16 octets, not {}", octets.len())))
}

pub(crate) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
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
    let gateway = member.gateway.map(octets).unwrap_or_default();
    NextHop { gateway, interface_index, interface, weight: member.weight.into() }
}

/// Next hops as they are used.
pub(crate) fn resolved(resolution: &Resolution) -> (NextHopKind, Vec<NextHop>) {
    let member = |member: &ResolvedNexthop| NextHop {
        gateway: member.gateway.map(octets).unwrap_or_default(),
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

pub(crate) fn next_hop_set(handle: u32, (kind, members): (NextHopKind, Vec<NextHop>)) -> NextHopSet {
    NextHopSet { handle, kind: kind.into(), members }
}

/// One row of a batch.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) prefix: Prefix,
    /// 0 withdraws.
    pub(crate) handle: u32,
    pub(crate) metric: u32,
    pub(crate) distance: Option<u8>,
}

/// The rows of a batch whose columns fit together.
pub(crate) fn rows(batch: &RouteBatch) -> Result<impl Iterator<Item = Result<Row, XrlError>> + '_, XrlError> {
    let size = match batch.afi {
        1 => 4,
        2 => 16,
        afi => return Err(invalid(format!("unknown address family {afi}"))),
    };
    let count = batch.lengths.len();
    let fits = |column: usize| column == count;
    let fits_or_empty = |column: usize| column == 0 || fits(column);
    if batch.addresses.len() != count * size
        || !fits(batch.next_hops.len())
        || !fits_or_empty(batch.metrics.len())
        || !fits_or_empty(batch.distances.len())
    {
        return Err(invalid("the columns of the batch differ in length"));
    }
    Ok(batch.addresses.chunks_exact(size).enumerate().map(move |(row, octets)| {
        let length = batch.lengths[row];
        let prefix = Prefix::new(address(octets)?, length);
        Ok(Row {
            prefix: prefix.ok_or_else(|| invalid(format!("a prefix of {length} bits is too long")))?,
            handle: batch.next_hops[row],
            metric: batch.metrics.get(row).copied().unwrap_or(0),
            distance: batch.distances.get(row).copied(),
        })
    }))
}

/// Adds a route (handle 0: its withdrawal) to a batch of its family. The caller keeps the other columns.
pub(crate) fn push(batch: &mut RouteBatch, prefix: Prefix, handle: u32) {
    match prefix.address() {
        IpAddr::V4(address) => batch.addresses.extend(address.octets()),
        IpAddr::V6(address) => batch.addresses.extend(address.octets()),
    }
    batch.lengths.push(prefix.length());
    batch.next_hops.push(handle);
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

    fn batch(prefixes: &[&str]) -> RouteBatch {
        let mut batch = RouteBatch { afi: afi(prefix(prefixes[0])), ..RouteBatch::default() };
        (1..).zip(prefixes).for_each(|(handle, text)| push(&mut batch, prefix(text), handle));
        batch
    }

    #[test]
    fn rows_come_out_as_they_went_in() {
        for prefixes in [&["10.0.0.0/8", "192.0.2.1/32"][..], &["::/0", "2001:db8::/32"]] {
            let batch = batch(prefixes);
            let rows: Vec<_> = rows(&batch).expect("fits").map(|row| row.expect("valid")).collect();
            assert_eq!(rows.iter().map(|row| row.prefix.to_string()).collect::<Vec<_>>(), prefixes);
            assert_eq!(rows[1], Row { prefix: prefix(prefixes[1]), handle: 2, metric: 0, distance: None });
        }
    }

    #[test]
    fn a_batch_that_does_not_fit_together_is_refused() {
        let good = batch(&["10.0.0.0/8", "10.0.0.0/16"]);
        let broken: [fn(&mut RouteBatch); 6] = [
            |batch| batch.afi = 3,
            |batch| batch.afi = 2,
            |batch| batch.addresses.truncate(7),
            |batch| batch.next_hops.truncate(1),
            |batch| batch.metrics = vec![1],
            |batch| batch.distances = vec![1, 2, 3],
        ];
        for (case, damage) in broken.into_iter().enumerate() {
            let mut batch = good.clone();
            damage(&mut batch);
            assert!(rows(&batch).is_err(), "case {case}");
        }
        let mut batch = good;
        batch.lengths[1] = 33;
        let rows: Vec<_> = rows(&batch).expect("columns fit").collect();
        assert!(rows[0].is_ok() && rows[1].is_err());
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
