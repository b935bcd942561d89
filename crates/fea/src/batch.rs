//! Reading `routes.v1.RouteBatch`.

use std::{iter::repeat_n, net::IpAddr};

use holdfast_api::routes::v1::{NextHop as ApiNextHop, NextHopKind, NextHopSet, RouteBatch};
use holdfast_fib::{Handle, NextHop, NextHops, RouteChange};
use holdfast_types::Prefix;
use holdfast_xrl::XrlError;

/// The rows of a batch, in order.
///
/// # Errors
/// `InvalidArgument` when the columns do not fit each other or a row is no prefix.
pub(crate) fn changes(batch: &RouteBatch) -> Result<Vec<RouteChange>, XrlError> {
    let rows = batch.lengths.len();
    let in_runs: u64 = batch.runs.iter().map(|&rows| u64::from(rows)).sum();
    let runs_fit = batch.runs.len() == batch.next_hops.len() && in_runs == rows as u64;
    let fits = |width: usize| runs_fit && batch.addresses.len() == rows * width;
    match batch.afi {
        _ if rows == 0 && fits(4) => Ok(Vec::new()),
        1 if fits(4) => rows_of::<4>(batch),
        2 if fits(16) => rows_of::<16>(batch),
        1 | 2 => Err(invalid("the columns of the batch have different numbers of rows")),
        _ => Err(invalid("the address family is neither 1 (IPv4) nor 2 (IPv6)")),
    }
}

fn rows_of<const WIDTH: usize>(batch: &RouteBatch) -> Result<Vec<RouteChange>, XrlError>
where
    IpAddr: From<[u8; WIDTH]>,
{
    let (addresses, _) = batch.addresses.as_chunks::<WIDTH>();
    let runs = batch.runs.iter().zip(&batch.next_hops);
    let handles =
        runs.flat_map(|(&rows, &handle)| repeat_n((handle != 0).then_some(Handle(handle)), rows as usize));
    let rows = addresses.iter().zip(&batch.lengths).zip(handles);
    rows.map(|((address, length), next_hops)| {
        let prefix = Prefix::new((*address).into(), *length);
        let prefix = prefix.ok_or_else(|| invalid("a prefix is longer than its address"))?;
        Ok(RouteChange { prefix, next_hops })
    })
    .collect()
}

/// A definition of the batch. `index` finds the number of an interface that is named; what it does not
/// find the forwarding plane refuses.
///
/// # Errors
/// `InvalidArgument` for a handle or kind that does not exist and a gateway that is no address.
pub(crate) fn next_hops(
    set: &NextHopSet,
    index: impl Fn(&str) -> Option<u32>,
) -> Result<(Handle, NextHops), XrlError> {
    if set.handle == 0 {
        return Err(invalid("next hops have the handle 0"));
    }
    let next_hops = match NextHopKind::try_from(set.kind) {
        Ok(NextHopKind::Forward) => {
            let members: Result<_, _> = set.members.iter().map(|member| next_hop(member, &index)).collect();
            NextHops::Forward(members?)
        }
        Ok(NextHopKind::Blackhole) => NextHops::Blackhole,
        Ok(NextHopKind::Unreachable) => NextHops::Unreachable,
        Err(_) => return Err(invalid("next hops are of a kind that does not exist")),
    };
    Ok((Handle(set.handle), next_hops))
}

fn next_hop(member: &ApiNextHop, index: impl Fn(&str) -> Option<u32>) -> Result<NextHop, XrlError> {
    let gateway = match member.gateway.as_slice() {
        [] => None,
        octets => Some(address(octets).ok_or_else(|| invalid("a gateway has neither 4 nor 16 octets"))?),
    };
    let interface = match member.interface_index {
        0 => index(&member.interface).unwrap_or(0),
        number => number,
    };
    Ok(NextHop { gateway, interface, weight: u16::try_from(member.weight).unwrap_or(u16::MAX) })
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(octets).ok().map(IpAddr::from);
    let v6 = || <[u8; 16]>::try_from(octets).ok().map(IpAddr::from);
    v4().or_else(v6)
}

fn invalid(text: &str) -> XrlError {
    XrlError::invalid_argument(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(afi: u32, addresses: &[u8], lengths: &[u8], next_hops: &[u32]) -> RouteBatch {
        RouteBatch {
            afi,
            addresses: addresses.to_vec(),
            lengths: lengths.to_vec(),
            runs: vec![1; next_hops.len()],
            next_hops: next_hops.to_vec(),
            ..RouteBatch::default()
        }
    }

    #[test]
    fn rows_are_read_in_order_and_zero_withdraws() {
        let read = changes(&batch(1, &[10, 0, 0, 0, 192, 0, 2, 0], &[8, 24], &[7, 0])).expect("fine");
        let read: Vec<_> = read.iter().map(|row| (row.prefix.to_string(), row.next_hops)).collect();
        assert_eq!(read, [("10.0.0.0/8".into(), Some(Handle(7))), ("192.0.2.0/24".into(), None)]);
        let read = changes(&batch(2, &[0; 16], &[0], &[1])).expect("fine");
        assert_eq!(read[0].prefix.to_string(), "::/0");
        assert_eq!(changes(&RouteBatch::default()).map(|rows| rows.len()), Ok(0), "definitions only");
    }

    #[test]
    fn columns_that_do_not_fit_are_refused() {
        for batch in [
            batch(1, &[10, 0, 0], &[8], &[7]),
            batch(1, &[10, 0, 0, 0], &[8, 8], &[7, 7]),
            batch(1, &[10, 0, 0, 0], &[8], &[]),
            batch(2, &[10, 0, 0, 0], &[8], &[7]),
            batch(1, &[10, 0, 0, 0], &[33], &[7]),
            batch(3, &[10, 0, 0, 0], &[8], &[7]),
            batch(1, &[10, 0, 0, 0], &[], &[]),
        ] {
            assert!(changes(&batch).is_err(), "{batch:?}");
        }
    }

    #[test]
    fn a_run_leads_all_its_rows_the_same_way() {
        let one_by_one = batch(1, &[10, 0, 0, 0, 11, 0, 0, 0, 12, 0, 0, 0], &[8, 8, 8], &[7, 7, 0]);
        let in_runs = RouteBatch { runs: vec![2, 1], next_hops: vec![7, 0], ..one_by_one.clone() };
        assert_eq!(changes(&in_runs), changes(&one_by_one));
        assert!(changes(&RouteBatch { runs: vec![u32::MAX, 1], ..in_runs.clone() }).is_err());
        assert!(changes(&RouteBatch { runs: vec![1, 1], ..in_runs }).is_err());
    }

    #[test]
    fn an_interface_is_found_by_number_or_by_name() {
        let member = |interface_index, interface: &str| ApiNextHop {
            gateway: vec![10, 0, 0, 1],
            interface_index,
            interface: interface.into(),
            weight: 3,
        };
        let members = vec![member(4, ""), member(0, "eth9"), member(0, "gone0")];
        let set = NextHopSet { handle: 1, kind: 0, members, backups: Vec::new() };
        let (_, read) = next_hops(&set, |name| (name == "eth9").then_some(9)).expect("fine");
        let NextHops::Forward(read) = read else { panic!("{read:?}") };
        assert_eq!(read.iter().map(|member| member.interface).collect::<Vec<_>>(), [4, 9, 0]);
        assert_eq!((read[0].gateway, read[0].weight), (Some([10, 0, 0, 1].into()), 3));
    }

    #[test]
    fn next_hops_that_make_no_sense_are_refused() {
        let bad_gateway = ApiNextHop { gateway: vec![1], ..ApiNextHop::default() };
        for set in [
            NextHopSet { handle: 0, kind: 0, members: Vec::new(), backups: Vec::new() },
            NextHopSet { handle: 1, kind: 3, members: Vec::new(), backups: Vec::new() },
            NextHopSet { handle: 1, kind: 0, members: vec![bad_gateway], backups: Vec::new() },
        ] {
            assert!(next_hops(&set, |_| None).is_err(), "{set:?}");
        }
    }
}
