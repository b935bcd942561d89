//! Profiling points of this process.

use std::time::SystemTime;

use holdfast_bgp_pipeline::Pipeline;
use holdfast_bgp_wire::{
    nlri,
    update::{self, AsSets, PeerKind, Rules},
};
use holdfast_process::profile::{BGP_IN, BGP_QUEUED, BGP_SENT, Point, Profile};
use holdfast_types::{Family, IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix};

use crate::speaker::Speaker;

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
    pub(crate) fn update(&self, body: &[u8]) {
        self.entering.passed(self.read, || routes_of(body));
    }

    fn changing(&mut self, pipeline: &Pipeline) {
        self.seen = self.queued.now().map(|_| pipeline.changes_end());
    }

    fn changed(&mut self, pipeline: &Pipeline) {
        if let Some(seen) = self.seen.take() {
            self.queued.pass(|| pipeline.changes_since(seen));
        }
    }
}

impl Speaker {
    /// The pipeline is about to change.
    pub(crate) fn watch_changes(&mut self) {
        self.points.changing(&self.pipeline);
        self.watchers.changing(&self.pipeline);
    }

    /// It has changed.
    pub(crate) fn note_changes(&mut self) {
        self.points.changed(&self.pipeline);
        self.watchers.changed(&mut self.pipeline);
    }
}

/// The routes of an UPDATE and whether they come or go; none of one that cannot be read.
fn routes_of(body: &[u8]) -> Vec<(Prefix, bool)> {
    let Ok(sections) = update::sections(body) else { return Vec::new() };
    let cut = update::cut(sections.attributes, &mut Vec::new()).unwrap_or_default();
    // What was negotiated decides what is allowed, not where the prefixes are.
    let rules =
        Rules { kind: PeerKind::Ebgp, four_octet_as: true, as_sets: AsSets::Accept, extended_next_hop: true };
    let Ok(mp) = cut.parse(&rules) else { return Vec::new() };
    let mut routes: Vec<(Prefix, bool)> = Vec::new();
    routes.extend(prefixes::<Ipv4Prefix>(sections.withdrawn, false));
    if let Some(unreach) = mp.unreach {
        routes.extend(multiprotocol(unreach.family, unreach.nlri, false));
    }
    routes.extend(prefixes::<Ipv4Prefix>(sections.nlri, true));
    if let Some(reach) = mp.reach {
        routes.extend(multiprotocol(reach.family, reach.nlri, true));
    }
    routes
}

fn multiprotocol(family: Family, octets: &[u8], comes: bool) -> Vec<(Prefix, bool)> {
    match family {
        Family::IPV4_UNICAST => prefixes::<Ipv4Prefix>(octets, comes).collect(),
        Family::IPV6_UNICAST => prefixes::<Ipv6Prefix>(octets, comes).collect(),
        _ => Vec::new(),
    }
}

fn prefixes<P: IpPrefix>(octets: &[u8], comes: bool) -> impl Iterator<Item = (Prefix, bool)> {
    nlri::prefixes::<P>(octets).map_while(Result::ok).map(move |prefix| (prefix.into(), comes))
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
        assert_eq!(routes_of(&body), expected);
        assert_eq!(routes_of(&body[..9]), []);
    }
}
