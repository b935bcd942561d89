//! By which interface a neighbour is reached, and how far it is.

use std::net::IpAddr;

use holdfast_api::bfd::v1::Hops as Wish;
use holdfast_bfd::{Hops, Path};
use holdfast_routing::{Link, Links};

/// A neighbour as a client names it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Neighbor {
    pub(crate) remote: IpAddr,
    pub(crate) local: Option<IpAddr>,
    /// The name of the interface; empty: as the addresses of interfaces say.
    pub(crate) interface: String,
    pub(crate) hops: Distance,
}

/// How far a client takes it to be.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Distance {
    Automatic,
    Single,
    Multiple,
}

impl From<Wish> for Distance {
    fn from(wish: Wish) -> Self {
        match wish {
            Wish::Automatic => Self::Automatic,
            Wish::Single => Self::Single,
            Wish::Multiple => Self::Multiple,
        }
    }
}

/// Where the packets of a session go.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Route {
    /// This way.
    Path(Path),
    /// This way, and the interface is down.
    Down(Path),
    /// No interface leads to the neighbour.
    Nowhere,
}

/// The way to a neighbour.
pub(crate) fn route(neighbor: &Neighbor, links: &Links) -> Route {
    let path = |interface, hops| Path { remote: neighbor.remote, local: neighbor.local, interface, hops };
    if neighbor.hops == Distance::Multiple {
        return Route::Path(path(None, Hops::Multiple));
    }
    let link = match neighbor.interface.as_str() {
        "" => links.values().find(|link| is_in_network(neighbor.remote, link)),
        name => links.values().find(|link| link.name == name),
    };
    match (link, neighbor.hops) {
        (Some(link), _) if link.is_up => Route::Path(path(Some(link.index), Hops::Single)),
        (Some(link), _) => Route::Down(path(Some(link.index), Hops::Single)),
        (None, Distance::Automatic) if neighbor.interface.is_empty() => {
            Route::Path(path(None, Hops::Multiple))
        }
        (None, _) => Route::Nowhere,
    }
}

/// Whether an address is in the network of one of the interface's addresses, and not that address itself.
fn is_in_network(remote: IpAddr, link: &Link) -> bool {
    link.addresses.iter().any(|own| own.address != remote && own.network.contains_address(remote))
}

#[cfg(test)]
mod tests {
    use holdfast_routing::LinkAddress;

    use super::*;

    fn links() -> Links {
        let link = |index, name: &str, is_up, addresses: &[(&str, u8)]| {
            let addresses = addresses.iter().map(|(address, length)| {
                LinkAddress::new(address.parse().expect("it"), *length).expect("a network")
            });
            (index, Link { index, name: name.to_owned(), is_up, mtu: 1500, addresses: addresses.collect() })
        };
        let links = [
            link(1, "lo", true, &[("127.0.0.1", 8), ("192.0.2.77", 32)]),
            link(2, "n1", true, &[("10.0.1.1", 24), ("2001:db8:1::1", 64), ("fe80::1", 64)]),
            link(3, "n2", false, &[("10.0.2.1", 24), ("fe80::2", 64)]),
        ];
        links.into()
    }

    fn neighbor(remote: &str, interface: &str, hops: Distance) -> Neighbor {
        let remote = remote.parse().expect("an address");
        Neighbor { remote, local: None, interface: interface.to_owned(), hops }
    }

    #[test]
    fn a_neighbour_is_one_hop_away_where_its_address_is_in_a_network_of_ours() {
        use Distance::{Automatic, Multiple, Single};
        let way = |remote, interface, hops| match route(&neighbor(remote, interface, hops), &links()) {
            Route::Path(path) => Some((path.interface, path.hops, true)),
            Route::Down(path) => Some((path.interface, path.hops, false)),
            Route::Nowhere => None,
        };
        let single = |index, is_up| Some((Some(index), Hops::Single, is_up));
        let multiple = Some((None, Hops::Multiple, true));
        for hops in [Automatic, Single] {
            assert_eq!(way("10.0.1.2", "", hops), single(2, true));
            assert_eq!(way("10.0.2.2", "", hops), single(3, false));
            assert_eq!(way("2001:db8:1::2", "", hops), single(2, true));
            assert_eq!(way("fe80::9", "n2", hops), single(3, false));
            assert_eq!(way("198.51.100.1", "n1", hops), single(2, true), "the client knows better");
            assert_eq!(way("fe80::9", "n3", hops), None);
        }
        assert_eq!(way("198.51.100.1", "", Automatic), multiple);
        assert_eq!(way("10.0.1.1", "", Automatic), multiple, "that is our own address");
        assert_eq!(way("198.51.100.1", "", Single), None);
        assert_eq!(way("10.0.1.2", "", Multiple), multiple);
    }
}
