//! The body of a fuzz target, also run by a test over its corpus.

use std::{rc::Rc, time::Instant};

use holdfast_bfd_wire::State;
use holdfast_types::HashKey;

use crate::{Engine, FROZEN, Frozen, Session};

/// A session as the process before wrote it down: it is refused, or goes on. Written down again it is the same from then on.
/// Of a neighbour that says nothing it finds so. Returns whether it was a session.
///
/// # Panics
/// A promise is broken.
pub fn frozen(octets: &[u8], now: Instant) -> bool {
    let Some(octets) = octets.first_chunk::<FROZEN>() else { return false };
    let mut engine = Engine::new(HashKey::new([1, 2]), 1);
    let Ok(id) = engine.thaw(now, &Frozen(*octets), Rc::default()) else { return false };
    let session = engine.session(id).expect("it goes on");
    let (again, detection_time) = (session.freeze(), session.detection_time());
    let mut next = Engine::new(HashKey::new([3, 4]), 1);
    let thawed = next.thaw(now, &again, Rc::default()).expect("what was written down is a session");
    assert_eq!(next.session(thawed).map(Session::freeze), Some(again));
    engine.poll_transmit(now);
    engine.advance(now + detection_time);
    assert_eq!(engine.session(id).map(Session::state), Some(State::Down));
    true
}
