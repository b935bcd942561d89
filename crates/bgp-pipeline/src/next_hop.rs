//! The NexthopResolver stage: which next hops are in use, and what the RIB says about each.
//!
//! Attribute sets name a next hop by its number here. The first user makes it known to the RIB, the last
//! one takes it back; both are read with [`NextHops::poll_event`], so a flood of next hops queues nothing
//! beyond this table.
//!
//! Routes whose next hop the RIB has not been asked about before wait for one answer. So that this does not take a walk
//! over the table, a next hop knows which prefixes wait for it, unless they are many.

use std::{collections::BTreeSet, hash::BuildHasher, net::IpAddr};

use holdfast_types::{HashKey, Prefix};

use crate::{
    Event, NextHopMode, Reachability,
    index::{Index, Indexed},
};

/// Prefixes that wait for one next hop's first answer, decided again at once (2 ms); more are found by a walk. One read
/// from a peer brings half as many.
const MOST_WAITING: usize = 8192;

/// A next hop in use; the first two are nobody's.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct NextHopId(pub(crate) u32);

impl NextHopId {
    /// Routes of our own have none.
    pub(crate) const LOCAL: Self = Self(0);
    /// Packets are dropped.
    pub(crate) const DISCARD: Self = Self(1);

    fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where packets go: an address, and for link-local ones the interface (0: the address says it).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Gateway {
    /// The next router.
    pub address: IpAddr,
    /// Kernel's index of the interface; 0 where the address alone decides.
    pub interface: u32,
}

#[derive(Debug)]
struct NextHop {
    gateway: Gateway,
    /// Attribute sets that name it; 0 with `queued`: about to go.
    users: u32,
    /// `None` until the RIB has answered.
    reachability: Option<Reachability>,
    /// Prefixes with routes by it, before the first answer; `None`: some may be missing.
    waiting: Option<Vec<Prefix>>,
    registered: bool,
    queued: bool,
    /// The walk over the table that settles its last change.
    changed: u64,
}

/// What an answer of the RIB means for routes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Concerned {
    /// Nothing.
    Nobody,
    /// Just these prefixes have to be decided again.
    Prefixes(Vec<Prefix>),
    /// Any prefix may have to be.
    Anybody,
}

/// All next hops in use.
#[derive(Debug)]
pub(crate) struct NextHops {
    mode: NextHopMode,
    hops: Vec<NextHop>,
    /// Numbers among them that are given out again, the lowest first, so that the end may be given back.
    free: BTreeSet<u32>,
    index: Index<u32>,
    key: HashKey,
    /// What was found last: an UPDATE tends to have the next hop of the one before.
    recent: Option<(Gateway, u32)>,
    /// Whose registration may have to change.
    queue: Vec<u32>,
    /// Next hops about which the RIB has said nothing.
    unanswered: usize,
    /// Numbers that mean nothing any more, until the RIB's reader has taken note; `None` without a RIB.
    forgotten: Option<Vec<NextHopId>>,
}

impl NextHops {
    pub(crate) fn new(mode: NextHopMode, key: HashKey) -> Self {
        let nobody = || NextHop {
            gateway: Gateway { address: IpAddr::from([0, 0, 0, 0]), interface: 0 },
            users: 1,
            reachability: Some(Reachability::Reachable { metric: 0 }),
            waiting: None,
            registered: false,
            queued: false,
            changed: 0,
        };
        Self {
            mode,
            // [`NextHopId::LOCAL`] and [`NextHopId::DISCARD`].
            hops: vec![nobody(), nobody()],
            free: BTreeSet::new(),
            index: Index::new(),
            key,
            recent: None,
            queue: Vec::new(),
            unanswered: 0,
            forgotten: None,
        }
    }

    /// The number of a gateway, with one more user.
    pub(crate) fn acquire(&mut self, gateway: Gateway) -> NextHopId {
        let number = match self.find(gateway) {
            Some(NextHopId(number)) => number,
            None => self.add(gateway),
        };
        let hop = &mut self.hops[number as usize];
        hop.users += 1;
        if hop.users == 1 {
            self.enqueue(number);
        }
        NextHopId(number)
    }

    /// The number of a gateway that has one.
    #[inline]
    pub(crate) fn find(&mut self, gateway: Gateway) -> Option<NextHopId> {
        match self.recent {
            Some((recent, number)) if recent == gateway => Some(NextHopId(number)),
            Some(_) | None => self.look_up(gateway),
        }
    }

    fn look_up(&mut self, gateway: Gateway) -> Option<NextHopId> {
        let number = self.number(gateway)?;
        self.recent = Some((gateway, number));
        Some(NextHopId(number))
    }

    fn number(&self, gateway: Gateway) -> Option<u32> {
        self.index.find(self.hash(gateway), |number| self.hops[number as usize].gateway == gateway)
    }

    fn hash(&self, gateway: Gateway) -> u32 {
        self.key.hash_one(gateway) as u32
    }

    fn add(&mut self, gateway: Gateway) -> u32 {
        let reachability = self.is_near(gateway).then_some(Reachability::Reachable { metric: 0 });
        self.unanswered += usize::from(reachability.is_none());
        let hop = NextHop {
            gateway,
            users: 0,
            reachability,
            waiting: Some(Vec::new()),
            registered: false,
            queued: false,
            changed: 0,
        };
        let number = match self.free.pop_first() {
            Some(number) => {
                self.hops[number as usize] = hop;
                number
            }
            None => {
                self.hops.push(hop);
                self.hops.len() as u32 - 1
            }
        };
        self.index.insert(Indexed { hash: self.hash(gateway), number });
        number
    }

    /// Whether nobody need be asked: link-local routers are on the link while the session lives.
    fn is_near(&self, gateway: Gateway) -> bool {
        self.mode == NextHopMode::AlwaysReachable || gateway.interface != 0
    }

    /// One more user of a number that already has one.
    pub(crate) fn retain(&mut self, id: NextHopId) -> NextHopId {
        self.hops[id.index()].users += 1;
        id
    }

    /// One user less.
    pub(crate) fn release(&mut self, id: NextHopId) {
        let hop = &mut self.hops[id.index()];
        hop.users -= 1;
        if hop.users == 0 {
            self.enqueue(id.0);
        }
    }

    fn enqueue(&mut self, number: u32) {
        let gateway = self.hops[number as usize].gateway;
        if self.is_near(gateway) {
            if self.hops[number as usize].users == 0 {
                self.forget(number);
            }
        } else if !std::mem::replace(&mut self.hops[number as usize].queued, true) {
            self.queue.push(number);
        }
    }

    fn forget(&mut self, number: u32) {
        if let Some(forgotten) = &mut self.forgotten {
            forgotten.push(NextHopId(number));
        }
        let hop = &mut self.hops[number as usize];
        let gateway = hop.gateway;
        hop.waiting = None;
        self.unanswered -= usize::from(hop.reachability.is_none());
        self.index.remove(Indexed { hash: self.hash(gateway), number });
        self.recent = None;
        self.free.insert(number);
        self.fit();
    }

    /// Gives back the numbers at the end that nobody has, and after a burst their memory.
    fn fit(&mut self) {
        while self.free.last().is_some_and(|last| *last as usize + 1 == self.hops.len()) {
            self.free.pop_last();
            self.hops.pop();
        }
        if self.hops.len() < self.hops.capacity() / 4 {
            self.hops.shrink_to(2 * self.hops.len());
        }
    }

    /// Begins or ends to remember which numbers are given back.
    pub(crate) fn remember_forgotten(&mut self, on: bool) {
        self.forgotten = on.then(Vec::new);
    }

    /// Numbers given back since the last call.
    pub(crate) fn take_forgotten(&mut self) -> Vec<NextHopId> {
        self.forgotten.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The next change of what the RIB should watch for us.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        while let Some(number) = self.queue.pop() {
            let hop = &mut self.hops[number as usize];
            hop.queued = false;
            let address = hop.gateway.address;
            let wanted = hop.users > 0;
            let was_registered = std::mem::replace(&mut hop.registered, wanted);
            if !wanted {
                self.forget(number);
            }
            match (was_registered, wanted) {
                (false, true) => return Some(Event::RegisterNextHop(address)),
                (true, false) => return Some(Event::UnregisterNextHop(address)),
                (true, true) | (false, false) => {}
            }
        }
        None
    }

    /// Whether the RIB has not said yet where it is.
    #[inline]
    pub(crate) fn is_unanswered(&self, id: NextHopId) -> bool {
        self.hops[id.index()].reachability.is_none()
    }

    /// These prefixes have routes by a next hop that is unanswered.
    pub(crate) fn wait(&mut self, id: NextHopId, prefixes: impl ExactSizeIterator<Item = Prefix>) {
        let waiting = &mut self.hops[id.index()].waiting;
        match waiting {
            Some(known) if known.len() + prefixes.len() <= MOST_WAITING => known.extend(prefixes),
            Some(_) | None => *waiting = None,
        }
    }

    /// Prefixes wait for it that nobody has named.
    pub(crate) fn wait_unnamed(&mut self, id: NextHopId) {
        self.hops[id.index()].waiting = None;
    }

    /// Takes the RIB's answer. Who is concerned has to be decided again: anybody by the walk over the table with that
    /// number.
    pub(crate) fn answer(&mut self, address: IpAddr, reachability: Reachability, walk: u64) -> Concerned {
        let Some(number) = self.number(Gateway { address, interface: 0 }) else {
            return Concerned::Nobody;
        };
        let hop = &mut self.hops[number as usize];
        if self.mode == NextHopMode::AlwaysReachable || hop.reachability == Some(reachability) {
            return Concerned::Nobody;
        }
        let before = hop.reachability.replace(reachability);
        self.unanswered -= usize::from(before.is_none());
        hop.changed = walk;
        match (before, hop.waiting.take()) {
            (None, Some(prefixes)) => Concerned::Prefixes(prefixes),
            (None | Some(_), _) => Concerned::Anybody,
        }
    }

    /// Whether its answer has changed and that walk, or an earlier one, is under way.
    #[inline]
    pub(crate) fn has_changed(&self, id: NextHopId, walk: u64) -> bool {
        self.hops[id.index()].changed >= walk
    }

    /// The interior cost; `None` while unreachable or unknown.
    #[inline]
    pub(crate) fn metric(&self, id: NextHopId) -> Option<u32> {
        match self.hops[id.index()].reachability {
            Some(Reachability::Reachable { metric }) => Some(metric),
            Some(Reachability::Unreachable) | None => None,
        }
    }

    /// Whether the RIB has said of every next hop in use what it knows.
    pub(crate) fn are_answered(&self) -> bool {
        self.unanswered == 0
    }

    /// The addresses that the RIB has been asked about.
    pub(crate) fn registered(&self) -> impl Iterator<Item = IpAddr> {
        self.hops.iter().filter(|hop| hop.registered).map(|hop| hop.gateway.address)
    }

    /// Where it is; `None` for ourselves, and where packets are dropped.
    #[inline]
    pub(crate) fn gateway(&self, id: NextHopId) -> Option<Gateway> {
        (id > NextHopId::DISCARD).then(|| self.hops[id.index()].gateway)
    }

    pub(crate) fn memory(&self) -> usize {
        let waiting = self.hops.iter().filter_map(|hop| hop.waiting.as_ref());
        let waiting: usize = waiting.map(|waiting| waiting.capacity() * size_of::<Prefix>()).sum();
        waiting + self.hops.capacity() * size_of::<NextHop>() + self.index.memory()
    }
}

#[cfg(test)]
mod tests {
    use holdfast_types::{IpPrefix, Ipv4Prefix};

    use super::*;

    fn gateway(last: u8) -> Gateway {
        Gateway { address: IpAddr::from([192, 0, 2, last]), interface: 0 }
    }

    #[test]
    fn the_rib_hears_of_the_first_and_of_the_last_user_only() {
        let mut hops = NextHops::new(NextHopMode::Resolved, HashKey::new([1, 0]));
        let id = hops.acquire(gateway(1));
        assert_eq!(hops.acquire(gateway(1)), id);
        assert_eq!(hops.poll_event(), Some(Event::RegisterNextHop(gateway(1).address)));
        hops.release(id);
        assert_eq!(hops.poll_event(), None);
        hops.release(id);
        assert_eq!(hops.poll_event(), Some(Event::UnregisterNextHop(gateway(1).address)));
        assert_eq!(hops.poll_event(), None);
    }

    #[test]
    fn a_next_hop_that_comes_back_before_anyone_looked_stays_registered() {
        let mut hops = NextHops::new(NextHopMode::Resolved, HashKey::new([1, 0]));
        let id = hops.acquire(gateway(1));
        assert!(hops.poll_event().is_some());
        hops.release(id);
        assert_eq!(hops.acquire(gateway(1)), id);
        assert_eq!(hops.poll_event(), None);
    }

    #[test]
    fn what_many_next_hops_have_taken_is_given_back_when_they_go() {
        let mut hops = NextHops::new(NextHopMode::Resolved, HashKey::new([1, 0]));
        let of = |number: u32| Gateway { address: IpAddr::from(number.to_be_bytes()), interface: 0 };
        let first = hops.acquire(of(1));
        let before = hops.memory();
        let ids: Vec<_> = (2..50_000).map(|number| hops.acquire(of(number))).collect();
        while hops.poll_event().is_some() {}
        let full = hops.memory();
        ids.into_iter().for_each(|id| hops.release(id));
        while hops.poll_event().is_some() {}
        // The index has many parts.
        assert!(full > 3 << 20 && hops.memory() < before + (16 << 10), "{before}, {full}, {}", hops.memory());
        assert_eq!((hops.find(of(1)), hops.find(of(2))), (Some(first), None));
        assert_eq!(
            hops.acquire(of(9)),
            NextHopId(first.0 + 1),
            "numbers are given out again from the lowest on"
        );
    }

    #[test]
    fn a_next_hop_is_unreachable_until_the_rib_has_answered() {
        let mut hops = NextHops::new(NextHopMode::Resolved, HashKey::new([1, 0]));
        let id = hops.acquire(gateway(1));
        assert_eq!((hops.metric(id), hops.are_answered()), (None, false));
        let reachable = Reachability::Reachable { metric: 7 };
        assert_eq!(hops.answer(gateway(1).address, reachable, 1), Concerned::Prefixes(Vec::new()));
        assert_eq!(hops.answer(gateway(1).address, reachable, 2), Concerned::Nobody);
        assert_eq!((hops.metric(id), hops.are_answered()), (Some(7), true));
        assert!(hops.has_changed(id, 1) && !hops.has_changed(id, 2));
        assert_eq!(hops.answer(gateway(9).address, Reachability::Unreachable, 1), Concerned::Nobody);
        assert_eq!(hops.answer(gateway(1).address, Reachability::Unreachable, 1), Concerned::Anybody);
    }

    #[test]
    fn only_who_waits_for_a_first_answer_is_concerned_unless_there_are_many() {
        let prefix = |n: u8| Prefix::V4(Ipv4Prefix::from_bits(u128::from(n) << 104, 24));
        let answered = |prepare: &dyn Fn(&mut NextHops, NextHopId)| {
            let mut hops = NextHops::new(NextHopMode::Resolved, HashKey::new([1, 0]));
            let id = hops.acquire(gateway(1));
            assert!(hops.is_unanswered(id));
            prepare(&mut hops, id);
            let concerned = hops.answer(gateway(1).address, Reachability::Reachable { metric: 7 }, 1);
            assert!(!hops.is_unanswered(id));
            concerned
        };
        let named = answered(&|hops, id| {
            hops.wait(id, [prefix(1), prefix(2)].into_iter());
            hops.wait(id, [prefix(3)].into_iter());
        });
        assert_eq!(named, Concerned::Prefixes(vec![prefix(1), prefix(2), prefix(3)]));
        let many = answered(&|hops, id| {
            hops.wait(id, vec![prefix(1); MOST_WAITING + 1].into_iter());
            hops.wait(id, [prefix(2)].into_iter());
        });
        assert_eq!(many, Concerned::Anybody);
        let unnamed = answered(&|hops, id| {
            hops.wait_unnamed(id);
            hops.wait(id, [prefix(2)].into_iter());
        });
        assert_eq!(unnamed, Concerned::Anybody);
    }

    #[test]
    fn without_a_rib_and_on_the_link_all_are_reachable_and_nobody_is_asked() {
        let mut hops = NextHops::new(NextHopMode::AlwaysReachable, HashKey::new([1, 0]));
        let id = hops.acquire(gateway(1));
        assert_eq!((hops.metric(id), hops.poll_event()), (Some(0), None));
        let mut hops = NextHops::new(NextHopMode::Resolved, HashKey::new([1, 0]));
        let near = Gateway { interface: 3, ..gateway(1) };
        let id = hops.acquire(near);
        assert_eq!((hops.metric(id), hops.gateway(id), hops.poll_event()), (Some(0), Some(near), None));
    }
}
