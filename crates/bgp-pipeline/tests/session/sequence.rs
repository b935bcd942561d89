//! The bodies of the fuzz targets `session` and `signed_session`: what a peer can do in one life, in any order.

use std::time::Duration;

use holdfast_bgp_pipeline::PeerKind;
use holdfast_bgp_wire::update::AsSets;

use super::router::{CLEAN_ROUTES, Router, Wild, message, update};

/// Steps of one sequence at most, so that each is quick.
const MOST_STEPS: usize = 200;

/// The first octet says who the wild peer is; then each step is an octet, a length of two, and so many octets.
///
/// # Panics
/// Something of the session beside it, or of what stages promise each other, is broken.
#[allow(dead_code, reason = "each fuzz target has one of the bodies")]
pub(crate) fn session(data: &[u8]) {
    let Some((&who, steps)) = data.split_first() else { return };
    let mut life = Life::of(who, wild(who));
    for step in Steps(steps).take(MOST_STEPS) {
        life.step(step);
    }
    life.end();
}

/// The wild peer that an octet stands for.
pub(crate) fn wild(who: u8) -> Wild {
    Wild {
        kind: match who & 0x81 {
            0 => PeerKind::Ebgp,
            0x80 => PeerKind::ConfedEbgp,
            _ => PeerKind::Ibgp,
        },
        four_octet_as: who & 2 == 0,
        extended_messages: who & 4 != 0,
        v6_next_hops: who & 8 != 0,
        as_sets: if who & 16 == 0 { AsSets::Reject } else { AsSets::Accept },
        // There is no bit left: where there is both of the above.
        paths: who & 12 == 12,
        confederation: who & 0x80 != 0,
        restarts: who & 64 != 0,
        bgpsec: None,
    }
}

/// A step of a sequence: an octet, a length of two, and so many octets, or as many as there are.
#[derive(Copy, Clone)]
pub(crate) struct Step<'a> {
    pub(crate) kind: u8,
    /// Of the length that is said: a number, where one is needed.
    pub(crate) low: u8,
    pub(crate) octets: &'a [u8],
}

/// All of them.
pub(crate) struct Steps<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Steps<'a> {
    type Item = Step<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let (&[kind, high, low], rest) = self.0.split_first_chunk()?;
        let length = usize::from(u16::from_be_bytes([high, low]));
        let (octets, rest) = rest.split_at(rest.len().min(length));
        self.0 = rest;
        Some(Step { kind, low, octets })
    }
}

/// A router, and how many routes the clean peer has announced.
pub(crate) struct Life {
    pub(crate) router: Router,
    routes: usize,
}

impl Life {
    /// The peer's session is up, or not if its octet says so.
    pub(crate) fn of(who: u8, wild: Wild) -> Self {
        let router = if who & 32 == 0 { Router::new(wild) } else { Router::without_wild(wild) };
        Self { router, routes: CLEAN_ROUTES.len() }
    }

    pub(crate) fn step(&mut self, Step { kind, low, octets }: Step<'_>) {
        let Self { router, routes } = self;
        match kind % 8 {
            // In order of how much they find.
            0 | 1 => router.wild_says(&update(octets)),
            2 => router.wild_says(&message(octets.first().copied().unwrap_or(5), octets)),
            3 => router.wild_says(octets),
            4 => router.pass(Duration::from_secs(u64::from(low))),
            5 => {
                router.wild_reconnects();
                router.wild_comes_up();
            }
            6 => {
                let announce = low.is_multiple_of(2);
                router.clean_flaps(announce);
                *routes = CLEAN_ROUTES.len() - usize::from(!announce);
            }
            _ => router.settle(),
        }
    }

    /// After an hour, whatever the peer did, nothing of it is left, and it can come up again.
    pub(crate) fn end(mut self) -> Router {
        let Self { router, routes } = &mut self;
        router.assert_clean(*routes);
        router.wild_leaves();
        router.pass(Duration::from_secs(3600));
        router.assert_clean(*routes);
        router.wild_reconnects();
        router.wild_comes_up();
        assert!(router.wild_is_up());
        router.assert_clean(*routes);
        self.router
    }
}
