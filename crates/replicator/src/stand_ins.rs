//! What `bgp` of a preheated standby has in the place of connections: pairs of sockets. What the peers of the other router say is
//! put in; what `bgp` would say to them is taken out, and nobody hears it.

use std::{
    collections::BTreeMap,
    io,
    os::{fd::OwnedFd, unix::net::UnixStream},
};

use holdfast_restore::Followed;
use holdfast_sys::pair;
use rustix::io::{Errno, read, write};

/// Octets that are taken out at once.
const PIECE: usize = 64 << 10;
/// Pieces that a turn takes out of a pair.
const PIECES: usize = 16;
/// Numbers of these connections begin here: the door has none of them.
const NUMBERS: u64 = 1 << 63;

/// A connection that is none.
#[derive(Debug)]
struct Pair {
    number: u64,
    socket: OwnedFd,
    /// Offsets of the streams: what was put in, and what was taken out.
    received: u64,
    sent: u64,
    /// What is still to be put in, and how much of it was.
    pending: Vec<u8>,
    put: usize,
}

/// The pairs of all sessions.
#[derive(Debug, Default)]
pub(crate) struct StandIns {
    pairs: BTreeMap<Followed, Pair>,
    numbers: u64,
    /// Room for what is taken out.
    piece: Vec<u8>,
}

/// What has become of a pair.
enum Turn {
    Idle,
    /// There may be more to take out.
    More,
    /// Nobody has the other end.
    Ended,
}

impl StandIns {
    /// A connection whose streams go on at these offsets: its number, and the end for `bgp`.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub(crate) fn add(&mut self, session: Followed, received: u64, sent: u64) -> io::Result<(u64, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let number = NUMBERS | self.numbers;
        self.numbers += 1;
        let pair = Pair { number, socket: ours.into(), received, sent, pending: Vec::new(), put: 0 };
        self.pairs.insert(session, pair);
        Ok((number, theirs.into()))
    }

    /// Nobody has a connection any more.
    pub(crate) fn clear(&mut self) {
        self.pairs.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether all that was put in for a session is on its way to `bgp`.
    pub(crate) fn can_take(&self, session: Followed) -> bool {
        self.pairs.get(&session).is_none_or(|pair| pair.pending.is_empty())
    }

    /// The peer of a session has said this.
    pub(crate) fn put(&mut self, session: Followed, octets: Vec<u8>) {
        if let Some(pair) = self.pairs.get_mut(&session) {
            pair.pending.extend(octets);
        }
    }

    /// The session has ended at the other router: so it does here.
    pub(crate) fn end(&mut self, session: Followed) {
        self.pairs.remove(&session);
    }

    /// What went through a connection: the offset up to which octets were put in, and that of those which `bgp` has written.
    pub(crate) fn meter(&self, number: u64) -> Option<(u64, u64)> {
        let pair = self.pairs.values().find(|pair| pair.number == number)?;
        let waiting = pair::unread(&pair.socket).ok()?;
        Some((pair.received, pair.sent + u64::from(waiting)))
    }

    /// Puts in and takes out what can be; whether there may be more at once. A session that `bgp` has ended is no more.
    pub(crate) fn turn(&mut self) -> bool {
        let Self { pairs, piece, .. } = self;
        piece.resize(PIECE, 0);
        let mut more = false;
        pairs.retain(|_, pair| match pair.turn(piece) {
            Turn::Idle => true,
            Turn::More => {
                more = true;
                true
            }
            Turn::Ended => false,
        });
        more
    }
}

impl Pair {
    fn turn(&mut self, piece: &mut [u8]) -> Turn {
        while self.put < self.pending.len() {
            // Whoever has the other end and does not read has no room; that nobody has it is seen below.
            let Ok(count) = write(&self.socket, &self.pending[self.put..]) else { break };
            self.put += count;
            self.received += count as u64;
        }
        if self.put == self.pending.len() {
            (self.pending, self.put) = (Vec::new(), 0);
        }
        for _ in 0..PIECES {
            match read(&self.socket, &mut *piece) {
                Ok(count @ 1..) => self.sent += count as u64,
                Err(Errno::AGAIN) => return Turn::Idle,
                Ok(0) | Err(_) => return Turn::Ended,
            }
        }
        Turn::More
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use holdfast_nsr::SessionId;

    use super::*;

    #[test]
    fn what_peers_say_goes_in_and_what_they_are_told_goes_nowhere() {
        let mut all = StandIns::default();
        let session = (0, SessionId(7));
        let (number, theirs) = all.add(session, 1000, 50).expect("a pair");
        let mut bgp = UnixStream::from(theirs);
        assert_eq!(all.meter(number), Some((1000, 50)));
        all.put(session, b"hello".to_vec());
        assert!(!all.can_take(session), "it is not in the pair yet");
        assert!(!all.turn());
        assert!(all.can_take(session));
        let mut heard = [0; 5];
        bgp.read_exact(&mut heard).expect("octets");
        assert_eq!((&heard, all.meter(number)), (b"hello", Some((1005, 50))));
        bgp.write_all(b"abc").expect("room");
        assert_eq!(all.meter(number), Some((1005, 53)), "what waits was written, too");
        all.turn();
        assert_eq!(all.meter(number), Some((1005, 53)));
        all.end(session);
        assert_eq!(bgp.read(&mut heard).expect("the end"), 0);
        assert_eq!((all.meter(number), all.len()), (None, 0));
    }

    #[test]
    fn a_session_that_bgp_has_ended_stands_in_for_nobody() {
        let mut all = StandIns::default();
        let (session, other) = ((0, SessionId(1)), (0, SessionId(2)));
        let (number, theirs) = all.add(session, 0, 0).expect("a pair");
        let (_, _bgp) = all.add(other, 0, 0).expect("a pair");
        all.turn();
        assert_eq!(all.len(), 2, "nobody has said anything");
        drop(theirs);
        all.turn();
        assert_eq!((all.len(), all.meter(number)), (1, None));
    }

    #[test]
    fn who_does_not_read_has_what_is_left_later() {
        let mut all = StandIns::default();
        let session = (0, SessionId(1));
        let (number, theirs) = all.add(session, 0, 0).expect("a pair");
        let octets: Vec<u8> = (0..2_000_000_u32).map(|at| at as u8).collect();
        all.put(session, octets.clone());
        all.turn();
        assert!(!all.can_take(session), "a pair has less room");
        let mut bgp = UnixStream::from(theirs);
        let mut heard = vec![0; octets.len()];
        let mut at = 0;
        while at < heard.len() {
            at += bgp.read(&mut heard[at..]).expect("octets");
            all.turn();
        }
        assert!(heard == octets && all.can_take(session));
        assert_eq!(all.meter(number), Some((octets.len() as u64, 0)));
    }
}
