//! One connection: where it begins, what of it is held, and what may leave.

use std::collections::VecDeque;

use super::Verdicts;
use crate::{Claim, Connection, Record, Segment, nfnetlink::Verdict};

/// A segment that is held.
#[derive(Copy, Clone, Debug)]
pub(super) struct Held {
    pub(super) packet: u32,
    /// Offset that it acknowledges; `None`: it does not.
    pub(super) ack: Option<i64>,
    /// Offsets of its data.
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) window: u16,
    pub(super) pure_ack: bool,
    pub(super) fin: bool,
    /// When it came: CLOCK_BOOTTIME in milliseconds.
    pub(super) since: u64,
}

/// What is known of where a connection begins.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Beginning {
    /// Our SYN went out: the number of it.
    Half { iss: u32 },
    /// Both SYNs: their numbers.
    Whole { iss: u32, irs: u32 },
    /// It is older than the gate.
    Older,
}

#[derive(Debug)]
pub(super) struct Flow {
    pub(super) connection: Connection,
    /// Which of all flows it is: a number that no other has.
    pub(super) birth: u64,
    pub(super) beginning: Beginning,
    /// Nothing but SYNs was seen.
    pub(super) handshake: bool,
    /// Our FIN has left.
    pub(super) finished: bool,
    /// The use of a slot that was for this connection, if there was one; whether it still is.
    pub(super) claim: Option<Claim>,
    pub(super) bound: bool,
    pub(super) held: VecDeque<Held>,
    /// Highest offsets that were seen, acknowledged and end of data: 64 bits are counted from here.
    pub(super) seen: (i64, i64),
    /// Highest offsets that have left.
    pub(super) passed: (i64, i64),
    /// Offsets of the data that is held: the lowest and the highest. `None`: to be looked for.
    pub(super) range: Option<(i64, i64)>,
    /// It is of the process before: what was seen is not known.
    pub(super) is_restored: bool,
    /// It is in `Flows::holding`.
    pub(super) is_holding: bool,
    /// It is in `Flows::changed`.
    pub(super) is_changed: bool,
    /// It is in `Flows::told`.
    pub(super) is_told: bool,
}

impl Flow {
    pub(super) fn new(connection: Connection, birth: u64, beginning: Beginning) -> Self {
        Self {
            connection,
            birth,
            beginning,
            handshake: beginning != Beginning::Older,
            finished: false,
            claim: None,
            bound: false,
            held: VecDeque::new(),
            seen: (0, 0),
            passed: (0, 0),
            range: None,
            is_restored: false,
            is_holding: false,
            is_changed: false,
            is_told: false,
        }
    }

    /// The segment by offsets; learns where the peer begins from the first one that acknowledges.
    pub(super) fn offsets(&mut self, segment: &Segment) -> Option<(Option<i64>, i64, i64)> {
        let acknowledges = segment.acknowledges();
        let (iss, irs) = match self.beginning {
            Beginning::Older => return None,
            // The first ACK of who has dialed is that of the SYN-ACK: the peer may send no data before it.
            Beginning::Half { iss } if acknowledges => (iss, segment.ack.wrapping_sub(1)),
            // Nothing that does not acknowledge leaves but SYNs.
            Beginning::Half { .. } => return None,
            Beginning::Whole { iss, irs } => (iss, irs),
        };
        self.beginning = Beginning::Whole { iss, irs };
        let start = near(self.seen.1, segment.seq.wrapping_sub(iss).wrapping_sub(1));
        let ack = acknowledges.then(|| near(self.seen.0, segment.ack.wrapping_sub(irs).wrapping_sub(1)));
        Some((ack, start, start + i64::from(segment.payload)))
    }

    /// The lowest and the highest offset of the data that is held.
    pub(super) fn data_held(&mut self) -> (i64, i64) {
        let (held, none) = (&self.held, (i64::MAX, i64::MIN));
        *self.range.get_or_insert_with(|| {
            let data = held.iter().filter(|held| held.end > held.start);
            data.fold(none, |(start, end), held| (start.min(held.start), end.max(held.end)))
        })
    }

    pub(super) fn record(&self) -> Record {
        let (iss, irs, has_irs, older) = match self.beginning {
            Beginning::Half { iss } => (iss, 0, false, false),
            Beginning::Whole { iss, irs } => (iss, irs, true, false),
            Beginning::Older => (0, 0, false, true),
        };
        Record {
            connection: self.connection,
            iss,
            irs,
            has_irs,
            older,
            handshake: self.handshake,
            finished: self.finished,
            claim: self.claim,
            bound: self.bound,
        }
    }
}

/// The offset with these low 32 bits that is nearest to another one.
pub(super) fn near(known: i64, low: u32) -> i64 {
    known + i64::from(low.wrapping_sub(known as u32).cast_signed())
}

/// Offsets below 0 are those of SYNs.
pub(super) fn told(offset: i64) -> u64 {
    u64::try_from(offset).unwrap_or(0)
}

/// Whether it may leave: `None`, everything may.
#[inline]
pub(super) fn may_leave(held: &Held, upto: Option<(u64, u64)>) -> bool {
    let Some((received, sent)) = upto else { return true };
    // Offsets below 0 are those of SYNs.
    let covers =
        |mark: u64, offset: i64| u64::try_from(offset).is_ok_and(|offset| offset <= mark) || offset < 0;
    let has_data = held.end > held.start;
    !held.fin && held.ack.is_none_or(|ack| covers(received, ack)) && (!has_data || covers(sent, held.end))
}

/// A retransmission of what is held, which acknowledges nothing new.
pub(super) fn is_held_already(flow: &mut Flow, new: &Held) -> bool {
    let is_news = new.ack.is_some_and(|ack| ack > flow.seen.0);
    if is_news || (new.end == new.start && !new.fin) {
        return false;
    }
    if new.fin {
        return flow.held.iter().any(|held| held.fin && held.end == new.end);
    }
    let (start, end) = flow.data_held();
    new.start >= start && new.end <= end
}

/// Drops every second of the last `acks`, but not the last; how many.
pub(super) fn thin(held: &mut VecDeque<Held>, acks: usize, verdicts: &mut Verdicts) -> usize {
    let first = held.len() - acks;
    let last = held.len() - 1;
    let mut place = 0;
    let before = held.len();
    held.retain(|one| {
        let goes = place >= first && place < last && (place - first) % 2 == 1;
        place += 1;
        if goes {
            verdicts.push((one.packet, Verdict::Drop));
        }
        !goes
    });
    before - held.len()
}

/// Whether a SYN is that of a connection that is known.
pub(super) fn is_same(known: Beginning, syn: Beginning) -> bool {
    match (known, syn) {
        (Beginning::Half { iss } | Beginning::Whole { iss, .. }, Beginning::Half { iss: again }) => {
            iss == again
        }
        (Beginning::Whole { .. }, Beginning::Whole { .. }) => known == syn,
        (Beginning::Half { .. } | Beginning::Older, _) | (Beginning::Whole { .. }, Beginning::Older) => false,
    }
}
