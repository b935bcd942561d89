//! Profiling points of this process.

use std::time::SystemTime;

use holdfast_bgp_pipeline::Pipeline;
use holdfast_bgp_wire::{
    nlri,
    update::{self, AsSets, FamilySet, PeerKind, Rules},
};
use holdfast_process::profile::{BGP_IN, BGP_QUEUED, BGP_SENT, Point, Profile};
use holdfast_types::{Family, IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix};

/// Where routes pass here, and what is remembered until they do.
#[derive(Debug)]
pub(crate) struct Points {
    entering: Point,
    queued: Point,
    pub(crate) sent: Point,
    /// When the octets that are being taken in were read.
    read: Option<SystemTime>,
    /// How far the pipeline's changes have been looked at.
    seen: Option<[u64; 2]>,
}

impl Points {
    pub(crate) fn of(profile: &Profile) -> Self {
        let [entering, queued, sent] = [&BGP_IN, &BGP_QUEUED, &BGP_SENT].map(|place| profile.point(place));
        Self { entering, queued, sent, read: None, seen: None }
    }

    /// Octets are about to be read from a peer.
    pub(crate) fn reading(&mut self) {
        self.read = self.entering.now();
    }

    /// What follows was read by the process before.
    pub(crate) fn replaying(&mut self) {
        self.read = None;
    }

    /// Among what was read is this UPDATE.
    pub(crate) fn update(&self, body: &[u8], identifiers: impl FnOnce() -> FamilySet) {
        self.entering.passed(self.read, || routes_of(body, identifiers()));
    }

    pub(crate) fn changing(&mut self, pipeline: &Pipeline) {
        self.seen = self.queued.now().map(|_| pipeline.changes_end());
    }

    pub(crate) fn changed(&mut self, pipeline: &Pipeline) {
        if let Some(seen) = self.seen.take() {
            self.queued.pass(|| pipeline.changes_since(seen));
        }
    }
}

/// The routes of an UPDATE and whether they come or go; none of one that cannot be read.
fn routes_of(body: &[u8], identifiers: FamilySet) -> Vec<(Prefix, bool)> {
    let sections = match identifiers.of(Family::IPV4_UNICAST) {
        true => update::sections_identified(body),
        false => update::sections(body),
    };
    let Ok(sections) = sections else { return Vec::new() };
    let cut = update::cut(sections.attributes, &mut Vec::new()).unwrap_or_default();
    // What else was negotiated decides what is allowed, not where the prefixes are.
    let rules = Rules { extended_next_hop: true, identifiers, ..Rules::new(PeerKind::Ebgp, AsSets::Accept) };
    let Ok(mp) = cut.parse(&rules) else { return Vec::new() };
    let mut routes: Vec<(Prefix, bool)> = Vec::new();
    let ipv4 = Family::IPV4_UNICAST;
    let mut add = |family, octets, comes| {
        let prefixes = match family {
            Family::IPV4_UNICAST => prefixes::<Ipv4Prefix>(octets, identifiers),
            Family::IPV6_UNICAST => prefixes::<Ipv6Prefix>(octets, identifiers),
            _ => Vec::new(),
        };
        routes.extend(prefixes.into_iter().map(|prefix| (prefix, comes)));
    };
    add(ipv4, sections.withdrawn, false);
    mp.unreach.iter().for_each(|unreach| add(unreach.family, unreach.nlri, false));
    add(ipv4, sections.nlri, true);
    mp.reach.iter().for_each(|reach| add(reach.family, reach.nlri, true));
    routes
}

fn prefixes<P: IpPrefix>(octets: &[u8], identifiers: FamilySet) -> Vec<Prefix> {
    match identifiers.of(P::UNICAST) {
        true => nlri::identified::<P>(octets).map_while(Result::ok).map(|path| path.prefix.into()).collect(),
        false => nlri::prefixes::<P>(octets).map_while(Result::ok).map(Into::into).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(text: &str, comes: bool) -> (Prefix, bool) {
        (text.parse().expect("prefix"), comes)
    }

    #[test]
    fn the_routes_of_an_update_are_found_in_all_four_places() {
        let unreach = [0x80, 15, 5, 0, 2, 1, 8, 0x20];
        let reach = {
            let mut value = vec![0, 2, 1, 16];
            value.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
            value.extend([0, 16, 0x20, 1]);
            [&[0x80, 14, value.len() as u8][..], &value].concat()
        };
        let attributes = [&reach[..], &unreach].concat();
        let mut body = vec![0, 2, 8, 10, 0, attributes.len() as u8];
        body.extend(attributes);
        body.extend([16, 11, 1]);
        let expected = [
            route("10.0.0.0/8", false),
            route("2000::/8", false),
            route("11.1.0.0/16", true),
            route("2001::/16", true),
        ];
        assert_eq!(routes_of(&body, FamilySet::NONE), expected);
        assert_eq!(routes_of(&body[..9], FamilySet::NONE), []);
    }
}
