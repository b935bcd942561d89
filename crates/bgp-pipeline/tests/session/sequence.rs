//! The body of the fuzz target `session`: what a peer can do in one life, in any order.

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
pub(crate) fn session(data: &[u8]) {
    let Some((&who, mut steps)) = data.split_first() else { return };
    let wild = Wild {
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
    };
    let mut router = if who & 32 == 0 { Router::new(wild) } else { Router::without_wild(wild) };
    let mut routes = CLEAN_ROUTES.len();
    for _ in 0..MOST_STEPS {
        let Some((&[step, high, low], rest)) = steps.split_first_chunk() else { break };
        let octets = rest.split_at(rest.len().min(usize::from(u16::from_be_bytes([high, low]))));
        steps = octets.1;
        let octets = octets.0;
        match step % 8 {
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
                let announce = low % 2 == 0;
                router.clean_flaps(announce);
                routes = CLEAN_ROUTES.len() - usize::from(!announce);
            }
            _ => router.settle(),
        }
    }
    router.assert_clean(routes);
    // After an hour, whatever the peer did, nothing of it is left, and it can come up again.
    router.wild_leaves();
    router.pass(Duration::from_secs(3600));
    router.assert_clean(routes);
    router.wild_reconnects();
    router.wild_comes_up();
    assert!(router.wild_is_up());
    router.assert_clean(routes);
}
