//! What one side of a session has told the other, prefix by prefix and in order, in a form in which both sides of a
//! router can be compared: without what every router sets anew.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    net::Ipv4Addr,
};

use holdfast_bgp_wire::{
    AsPath, Attributes,
    attribute::{Attribute, code, flag},
};
use holdfast_types::Prefix;

use super::{churn::serial, stock::ROUTER_AS};

/// An announced route.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// Hash of all that must be the same on both sides of the router under test.
    pub content: u64,
    /// Serial number, where it has one.
    pub serial: Option<u32>,
}

impl Route {
    /// The route that a peer sends to the router: NEXT_HOP, MULTI_EXIT_DISC and LOCAL_PREF go no further (RFC 4271
    /// sections 5.1.3 to 5.1.5). `None` if the router must take it for a loop (section 9.1.2).
    pub fn sent(attributes: &[u8]) -> Option<Self> {
        let path = path(attributes);
        let is_loop = path.asns().any(|asn| asn.0 == ROUTER_AS);
        let goes_on = |attribute: &Attribute<'_>| {
            !matches!(attribute.code, code::NEXT_HOP | code::MULTI_EXIT_DISC | code::LOCAL_PREF)
        };
        (!is_loop).then(|| Self {
            content: content(attributes, Some(path_of(path, 0)), goes_on),
            serial: serial(path),
        })
    }

    /// The route that the router with this address passes on: with itself as next hop and its AS in front of the path.
    /// What differs from that is a part of the content, and so differs from all that was sent.
    pub fn passed(attributes: &[u8], router: Ipv4Addr) -> Self {
        let path = path(attributes);
        let has_own = path.first_as().is_some_and(|asn| asn.0 == ROUTER_AS);
        let own_hop = (flag::TRANSITIVE, code::NEXT_HOP, &router.octets()[..]);
        let is_not_own = |attribute: &Attribute<'_>| {
            (attribute.flags & MEANING, attribute.code, attribute.value) != own_hop
        };
        Self {
            content: content(attributes, has_own.then(|| path_of(path, 1)), is_not_own),
            serial: serial(path),
        }
    }
}

/// The flags that mean something, but for how the length is written.
const MEANING: u8 = flag::OPTIONAL | flag::TRANSITIVE | flag::PARTIAL;

fn path(attributes: &[u8]) -> AsPath<'_> {
    let found = Attributes(attributes).iter().find(|attribute| attribute.code == code::AS_PATH);
    found.map(|attribute| AsPath::new(attribute.value)).unwrap_or_default()
}

/// The segments of a path behind its first `without` AS numbers.
fn path_of(path: AsPath<'_>, without: usize) -> Vec<(u8, Vec<u32>)> {
    let mut segments: Vec<_> = path
        .segments()
        .map(|segment| (segment.kind as u8, segment.asns().map(|asn| asn.0).collect::<Vec<_>>()))
        .collect();
    if let Some((_, first)) = segments.first_mut() {
        first.drain(..without);
    }
    segments.retain(|(_, numbers)| !numbers.is_empty());
    segments
}

/// Of these attributes, in whatever order they are and however their lengths are written, with this path; `None` where
/// the router is not in it.
fn content(
    attributes: &[u8],
    path: Option<Vec<(u8, Vec<u32>)>>,
    keep: impl Fn(&Attribute<'_>) -> bool,
) -> u64 {
    let mut all: Vec<_> = Attributes(attributes).iter().collect();
    let unread = attributes.len() - all.iter().map(|attribute| attribute.wire.len()).sum::<usize>();
    let has_next_hop = all.iter().any(|attribute| attribute.code == code::NEXT_HOP);
    all.retain(keep);
    all.sort_by_key(|attribute| attribute.code);
    let mut hasher = DefaultHasher::new();
    (path, unread, has_next_hop).hash(&mut hasher);
    for attribute in all {
        let value = if attribute.code == code::AS_PATH { &[] } else { attribute.value };
        (attribute.flags & MEANING, attribute.code, value).hash(&mut hasher);
    }
    hasher.finish()
}

/// What was said of a prefix.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Said {
    /// It is reached so.
    Announced(Route),
    /// It is not reached any more, or by a loop.
    Withdrawn,
    /// Nothing: a new session has begun.
    Forgotten,
}

/// One thing that was said.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Greater than that of all events before it in the same record.
    pub number: u64,
    /// When it was seen: microseconds since 1970.
    pub at: u64,
    /// What.
    pub said: Said,
}

/// All that was said in one direction.
#[derive(Clone, Debug, Default)]
pub struct Record {
    prefixes: BTreeMap<Prefix, Vec<Event>>,
    events: u64,
}

impl Record {
    /// Takes down what is said of a prefix.
    pub fn say(&mut self, prefix: Prefix, said: Said, at: u64) {
        self.events += 1;
        self.prefixes.entry(prefix).or_default().push(Event { number: self.events, at, said });
    }

    /// A new session begins: the other side knows nothing any more.
    pub fn forget(&mut self, at: u64) {
        for events in self.prefixes.values_mut() {
            if held(events).is_some() {
                self.events += 1;
                events.push(Event { number: self.events, at, said: Said::Forgotten });
            }
        }
    }

    /// The same without the prefixes of which something was said in another record.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest.prefixes.retain(|prefix, _| !other.prefixes.contains_key(prefix));
        rest
    }

    /// The prefixes of which something was said.
    pub fn prefixes(&self) -> impl Iterator<Item = Prefix> {
        self.prefixes.keys().copied()
    }

    /// What was said of a prefix, in order.
    pub fn of(&self, prefix: Prefix) -> &[Event] {
        self.prefixes.get(&prefix).map_or(&[], Vec::as_slice)
    }

    /// The route that the other side has now.
    pub fn route(&self, prefix: Prefix) -> Option<Route> {
        held(self.of(prefix))
    }

    /// How many routes the other side has now.
    pub fn held(&self) -> usize {
        self.prefixes.values().filter(|events| held(events).is_some()).count()
    }
}

fn held(events: &[Event]) -> Option<Route> {
    match events.last()?.said {
        Said::Announced(route) => Some(route),
        Said::Withdrawn | Said::Forgotten => None,
    }
}

#[cfg(test)]
mod tests {
    use holdfast_bgp_wire::{Origin, edit::AttributesBuilder};
    use holdfast_types::Asn;

    use super::*;

    const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);

    fn attributes(path: &[u32], change: impl FnOnce(&mut AttributesBuilder)) -> Vec<u8> {
        let mut builder = AttributesBuilder {
            as_path: path.iter().copied().map(Asn).collect(),
            next_hop: Some(ROUTER),
            ..AttributesBuilder::new(Origin::Igp)
        };
        change(&mut builder);
        builder.build()
    }

    #[test]
    fn what_a_router_sets_anew_makes_no_difference_and_all_else_does() {
        let path = [65002, 4_200_000_007];
        let sent = attributes(&path, |builder| {
            (builder.next_hop, builder.med) = (Some([10, 0, 2, 2].into()), Some(0));
            builder.communities = vec![7];
        });
        let sent = Route::sent(&sent).expect("no loop");
        assert_eq!(sent.serial, Some(7));
        let through = [ROUTER_AS, path[0], path[1]];
        let with_community = |builder: &mut AttributesBuilder| builder.communities = vec![7];
        let passed = |attributes: &[u8]| Route::passed(attributes, ROUTER);
        assert_eq!(passed(&attributes(&through, with_community)), sent);
        for other in [
            attributes(&path, with_community),
            attributes(&[ROUTER_AS, ROUTER_AS, path[0], path[1]], with_community),
            attributes(&[ROUTER_AS, path[0], path[1] + 1], with_community),
            attributes(&through, |_| ()),
            attributes(&through, |builder| builder.communities = vec![8]),
            attributes(&through, |builder| (builder.communities, builder.med) = (vec![7], Some(0))),
            attributes(&through, |builder| {
                (builder.communities, builder.next_hop) = (vec![7], Some([10, 0, 2, 2].into()));
            }),
            attributes(&through, |builder| {
                (builder.communities, builder.origin) = (vec![7], Origin::Incomplete);
            }),
            [&attributes(&through, with_community)[..], &[0xc0]].concat(),
        ] {
            assert_ne!(passed(&other).content, sent.content, "{other:?}");
        }
        assert_eq!(Route::sent(&attributes(&through, with_community)), None);
    }

    #[test]
    fn a_new_session_begins_with_nothing() {
        let prefix = |last: u8| Prefix::host([192, 0, 2, last].into());
        let route = Route { content: 1, serial: None };
        let mut record = Record::default();
        record.say(prefix(1), Said::Announced(route), 1);
        record.say(prefix(2), Said::Announced(route), 1);
        record.say(prefix(2), Said::Withdrawn, 2);
        assert_eq!((record.held(), record.route(prefix(1)), record.route(prefix(2))), (1, Some(route), None));
        let mut of_another = Record::default();
        of_another.say(prefix(2), Said::Announced(route), 1);
        assert!(record.without(&of_another).prefixes().eq([prefix(1)]));
        record.forget(3);
        assert_eq!((record.held(), record.route(prefix(1))), (0, None));
        let forgotten = Event { number: 4, at: 3, said: Said::Forgotten };
        assert_eq!(record.of(prefix(1)).last(), Some(&forgotten));
        assert_eq!((record.of(prefix(2)).len(), record.of(prefix(3)).len()), (2, 0));
    }
}
