//! Records as `rpki.v1` says them: columns, in messages of bounded size. Pure.

use std::net::IpAddr;

use holdfast_api::rpki::v1 as api;
use holdfast_rtr::{Caches, Dataset};
use holdfast_types::{Aspa, Prefix, RouterKey, Vrp};

/// Octets in one message, more or less: the largest record may come on top.
const MOST_OCTETS: usize = 64 << 10;

/// Makes messages of records.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    full: Vec<api::Records>,
    now: api::Records,
    octets: usize,
}

impl Columns {
    /// Of what of this somebody wants.
    pub(crate) fn of(records: &Dataset, wants: &api::WatchRequest) -> Vec<api::Records> {
        let mut columns = Self::default();
        if wants.vrps {
            records.vrps().for_each(|vrp| columns.push_vrp(vrp));
        }
        if wants.aspas {
            records.aspas().for_each(|aspa| columns.push_aspa(aspa));
        }
        if wants.router_keys {
            records.router_keys().for_each(|key| columns.push_key(key));
        }
        columns.into_messages()
    }

    pub(crate) fn push_vrp(&mut self, vrp: Vrp) {
        let (column, address) = match vrp.prefix().address() {
            IpAddr::V4(address) => (&mut self.now.ipv4, Octets::V4(address.octets())),
            IpAddr::V6(address) => (&mut self.now.ipv6, Octets::V6(address.octets())),
        };
        let column = column.get_or_insert_default();
        let address: &[u8] = match &address {
            Octets::V4(octets) => octets,
            Octets::V6(octets) => octets,
        };
        column.addresses.extend(address);
        column.lengths.push(vrp.prefix().length());
        column.max_lengths.push(vrp.max_length());
        column.asns.push(vrp.asn().0);
        self.grow(address.len() + 7);
    }

    pub(crate) fn push_aspa(&mut self, aspa: &Aspa) {
        let providers: Vec<_> = aspa.providers().iter().map(|asn| asn.0).collect();
        let octets = 16 + 5 * providers.len();
        self.now.aspas.push(api::Aspa { customer: aspa.customer().0, providers });
        self.grow(octets);
    }

    pub(crate) fn push_key(&mut self, key: RouterKey) {
        let octets = 40 + key.spki.len();
        let told = api::RouterKey { asn: key.asn.0, ski: key.ski.0.to_vec(), spki: key.spki };
        self.now.router_keys.push(told);
        self.grow(octets);
    }

    fn grow(&mut self, octets: usize) {
        self.octets += octets;
        if self.octets >= MOST_OCTETS {
            self.octets = 0;
            self.full.push(std::mem::take(&mut self.now));
        }
    }

    /// Of what of all that is published somebody wants.
    pub(crate) fn of_all(caches: &Caches, wants: &api::WatchRequest) -> Vec<api::Records> {
        let mut columns = Self::default();
        if wants.vrps {
            caches.vrps().for_each(|vrp| columns.push_vrp(vrp));
        }
        if wants.aspas {
            caches.aspas().for_each(|aspa| columns.push_aspa(aspa));
        }
        if wants.router_keys {
            caches.router_keys().for_each(|key| columns.push_key(key));
        }
        columns.into_messages()
    }

    /// All of them; none, if there is no record.
    pub(crate) fn into_messages(mut self) -> Vec<api::Records> {
        if self.octets > 0 {
            self.full.push(self.now);
        }
        self.full
    }
}

enum Octets {
    V4([u8; 4]),
    V6([u8; 16]),
}

/// The prefix that somebody asks for; `None`: all. No address is all.
pub(crate) fn asked(request: &api::PrefixRequest) -> Option<Result<Prefix, &'static str>> {
    let address = match request.address.len() {
        0 => return None,
        4 => <[u8; 4]>::try_from(&*request.address).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(&*request.address).ok().map(IpAddr::from),
    };
    let prefix =
        address.zip(u8::try_from(request.length).ok()).and_then(|(at, length)| Prefix::new(at, length));
    Some(prefix.ok_or("this is no prefix"))
}

#[cfg(test)]
mod tests {
    use holdfast_rtr_wire::Record;
    use holdfast_types::{Asn, Ski};

    use super::*;

    const ALL: api::WatchRequest = api::WatchRequest { vrps: true, aspas: true, router_keys: true };

    fn vrp(prefix: &str, max_length: u8, asn: u32) -> Record {
        Record::Vrp(
            Vrp::new(prefix.parse().expect("a prefix"), max_length, Asn(asn)).expect("it goes with it"),
        )
    }

    #[test]
    fn each_kind_has_columns_of_its_own() {
        let records = [
            vrp("192.0.2.0/24", 26, 1),
            vrp("2001:db8::/32", 48, 2),
            vrp("198.51.100.0/24", 24, 3),
            Record::Aspa(Aspa::new(Asn(4), vec![Asn(6), Asn(5)])),
            Record::RouterKey(RouterKey { asn: Asn(7), ski: Ski([8; 20]), spki: vec![9] }),
        ];
        let records: Dataset = records.into_iter().collect();
        let messages = Columns::of(&records, &ALL);
        let [message] = messages.as_slice() else { panic!("one message: {messages:?}") };
        let ipv4 = message.ipv4.as_ref().expect("IPv4");
        assert_eq!(ipv4.addresses, [192, 0, 2, 0, 198, 51, 100, 0], "in order");
        assert_eq!(
            (&*ipv4.lengths, &*ipv4.max_lengths, &*ipv4.asns),
            (&[24, 24][..], &[26, 24][..], &[1, 3][..])
        );
        let ipv6 = message.ipv6.as_ref().expect("IPv6");
        assert_eq!((ipv6.addresses.len(), &*ipv6.max_lengths), (16, &[48][..]));
        assert_eq!(message.aspas, [api::Aspa { customer: 4, providers: vec![5, 6] }]);
        assert_eq!((message.router_keys[0].asn, &*message.router_keys[0].spki), (7, &[9][..]));
        assert!(Columns::of(&Dataset::default(), &ALL).is_empty());
        let keys = Columns::of(&records, &api::WatchRequest { vrps: false, aspas: false, ..ALL });
        assert_eq!(keys.len(), 1);
        assert_eq!((&keys[0].ipv4, &keys[0].ipv6, keys[0].aspas.len()), (&None, &None, 0), "not wanted");
    }

    #[test]
    fn a_message_has_a_bound() {
        let records: Dataset = (0..20_000).map(|asn| vrp("192.0.2.0/24", 24, asn)).collect();
        let messages = Columns::of(&records, &ALL);
        let rows = messages.iter().map(|message| message.ipv4.as_ref().map_or(0, |column| column.asns.len()));
        let rows: Vec<_> = rows.collect();
        assert_eq!(rows.iter().sum::<usize>(), 20_000);
        assert!(rows.iter().all(|rows| rows * 11 < MOST_OCTETS + 11), "{rows:?}");
    }

    #[test]
    fn who_asks_for_no_address_asks_for_all() {
        let request = |address: &[u8], length| api::PrefixRequest { address: address.to_vec(), length };
        assert!(asked(&request(&[], 0)).is_none());
        let prefix = asked(&request(&[192, 0, 2, 0], 24)).expect("one").expect("a prefix");
        assert_eq!(prefix.to_string(), "192.0.2.0/24");
        for (address, length) in [(&[1, 2, 3][..], 8), (&[1, 2, 3, 4], 33), (&[1, 2, 3, 4], 256)] {
            assert!(asked(&request(address, length)).expect("one").is_err(), "{address:?}/{length}");
        }
    }
}
