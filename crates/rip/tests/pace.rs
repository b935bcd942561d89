//! How fast datagrams follow each other: receivers discard what finds no room in their sockets, and nothing is repeated
//! before the next update.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use holdfast_rip::{AcceptAll, Interface, Metric, Protocol, Ripng, Ripv2, Settings, Transmit};
use holdfast_rip_wire::Writer;

use super::{
    networks::{Plan, entries, secs},
    one::One,
};

/// A socket as FRR has it: room for so many datagrams, of which its owner reads one each millisecond.
struct Socket {
    room: usize,
    waiting: usize,
    read: Instant,
    lost: usize,
}

impl Socket {
    fn new(room: usize, now: Instant) -> Self {
        Self { room, waiting: 0, read: now, lost: 0 }
    }

    fn hear(&mut self, now: Instant) {
        let read = (now - self.read).as_millis() as usize;
        self.waiting = self.waiting.saturating_sub(read);
        self.read += Duration::from_millis(read as u64);
        if self.waiting == self.room {
            self.lost += 1;
        } else {
            self.waiting += 1;
        }
    }
}

/// What was sent, and how long after the beginning.
type Log<P> = Vec<(Duration, Transmit<P>)>;

impl<P: Plan> One<P> {
    /// A router with so many destinations that it tells on both wires, and whose first triggered updates are over.
    fn full(count: u32, settings: Settings) -> Self {
        let max_routes = count as usize + 10;
        let mut one = Self::with(Settings { max_routes, ..settings }, AcceptAll);
        for number in 0..count {
            one.rip.redistribute(one.now, P::destination(number), Metric::ONE, 0).expect("taken");
        }
        one
    }

    /// Everything that is sent in this time.
    fn log(&mut self, time: Duration) -> Log<P> {
        let (begin, end) = (self.now, self.now + time);
        let mut log = Vec::new();
        loop {
            log.extend(std::iter::from_fn(|| self.rip.poll_transmit()).map(|sent| (self.now - begin, sent)));
            let Some(due) = self.rip.next_deadline().filter(|due| *due <= end) else { break };
            self.now = self.now.max(due);
            self.rip.advance(self.now);
        }
        self.now = end;
        log
    }
}

/// The destinations that a log tells somebody over wire 1.
fn told<P: Plan>(log: &Log<P>, to: P::Address) -> BTreeSet<P::Prefix> {
    let here = log.iter().filter(|(_, sent)| sent.interface == 1 && sent.destination == to);
    here.flat_map(|(_, sent)| entries::<P>(&sent.octets)).map(|entry| entry.prefix).collect()
}

fn nothing_is_lost<P: Plan>(room: usize) {
    let mut one = One::<P>::full(10_000, Settings { update: secs(5), ..Settings::default() });
    let begin = one.now;
    one.rip.advance(begin);
    let log = one.log(secs(30));
    let mut socket = Socket::new(room, begin);
    let heard = log.iter().filter(|(_, sent)| sent.interface == 1);
    heard.for_each(|(at, _)| socket.hear(begin + *at));
    assert_eq!(socket.lost, 0);
    // The changes at once, and at least five whole tables.
    let datagrams = log.iter().filter(|(_, sent)| sent.interface == 1).count();
    assert!(datagrams * 100 > 6 * 10_000, "{datagrams}");
    let first: Log<P> = log.into_iter().filter(|(at, _)| *at < secs(1)).collect();
    assert!(told(&first, P::GROUP).len() >= 10_000, "all of it is there in a second");
}

#[test]
fn a_socket_of_frr_loses_no_datagram_of_10_000_routes() {
    nothing_is_lost::<Ripv2>(65);
    nothing_is_lost::<Ripng>(7);
}

#[test]
fn a_table_of_any_size_is_told_in_a_quarter_of_the_update_interval() {
    let mut one = One::<Ripv2>::full(30_000, Settings { update: secs(2), ..Settings::default() });
    one.rip.advance(one.now);
    // The first regular update comes within a third of a second, and says it again from the beginning.
    let log = one.log(Duration::from_millis(900));
    assert!(told(&log, Ripv2::GROUP).len() >= 30_000, "{}", told(&log, Ripv2::GROUP).len());
    let at_once = log.iter().filter(|(at, sent)| at.is_zero() && sent.interface == 1).count();
    assert!(at_once < 40, "{at_once}");
}

#[test]
fn who_asks_for_a_table_waits_for_nobody_and_nobody_for_it() {
    let mut one = One::<Ripv2>::full(10_000, Settings::default());
    one.rip.advance(one.now);
    one.log(secs(2));
    let octets = Writer::<Ripv2>::whole_table(None).finish(0);
    for router in 3..9 {
        one.rip.receive(one.now, &one.datagram(1, router, &octets)).expect("taken");
    }
    let log = one.log(secs(1));
    for router in 3..9 {
        let answer = told(&log, Ripv2::source(1, router));
        assert!(answer.len() >= 10_000, "all of them in a second: {}", answer.len());
        let at_once =
            log.iter().filter(|(at, sent)| at.is_zero() && sent.destination == Ripv2::source(1, router));
        assert!(at_once.count() <= 4);
    }
}

#[test]
fn who_asks_again_while_it_is_answered_has_one_answer_that_begins_again() {
    let mut one = One::<Ripv2>::full(60_000, Settings::default());
    one.rip.advance(one.now);
    one.log(secs(8));
    let octets = Writer::<Ripv2>::whole_table(None).finish(0);
    one.rip.receive(one.now, &one.datagram(1, 3, &octets)).expect("taken");
    one.log(secs(2));
    one.rip.receive(one.now, &one.datagram(1, 3, &octets)).expect("taken");
    let log = one.log(secs(8));
    let answer: Vec<_> = log.iter().filter(|(_, sent)| sent.destination == Ripv2::source(1, 3)).collect();
    assert!((2_400..2_410).contains(&answer.len()), "{}", answer.len());
    assert!(told(&log, Ripv2::source(1, 3)).len() >= 60_000);
}

#[test]
fn a_change_does_not_wait_for_the_end_of_a_regular_update() {
    let mut one = One::<Ripv2>::full(20_000, Settings::default());
    one.rip.advance(one.now);
    one.log(secs(12));
    let due = one.rip.interfaces().filter_map(|shown| shown.next_update).min().expect("active");
    one.log(due - one.now);
    let wire = one.rip.interfaces().position(|shown| shown.next_update.is_some_and(|next| next > due));
    let wire = 1 + wire.expect("one that has begun") as u32;
    // The first of the table, which is told already.
    one.log(Duration::from_millis(100));
    one.rip.redistribute(one.now, Ripv2::destination(0), Metric::INFINITY, 0).expect("taken");
    one.rip.advance(one.now);
    let log = one.log(Duration::from_millis(30));
    let lost = |(_, sent): &&(Duration, Transmit<Ripv2>)| {
        sent.interface == wire
            && entries::<Ripv2>(&sent.octets)
                .iter()
                .any(|it| it.prefix == Ripv2::destination(0) && !it.metric.is_reachable())
    };
    assert_eq!(log.iter().filter(lost).count(), 1);
}

#[test]
fn a_farewell_is_told_in_two_seconds_and_no_faster_than_it_is_heard() {
    for (count, within) in [(10_000, 600), (50_000, 2_100)] {
        let mut one = One::<Ripv2>::full(count, Settings::default());
        one.rip.advance(one.now);
        one.log(secs(8));
        one.rip.withdraw_all(one.now);
        assert!(!one.rip.has_left());
        let log = one.log(Duration::from_millis(within));
        assert!(told(&log, Ripv2::GROUP).len() >= count as usize);
        assert!(log.iter().filter(|(at, _)| at.is_zero()).count() < 40);
        assert!(one.rip.has_left());
        let addresses = Interface::new(Ripv2::addresses(3, 0));
        one.rip.set_interface(one.now, 3, addresses);
        assert!(one.rip.has_left() && one.rip.poll_transmit().is_none(), "it says nothing more");
    }
}
