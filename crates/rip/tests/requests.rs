//! Questions and answers (RFC 2453 section 3.9.1).

use std::time::Duration;

use holdfast_rip::{Datagram, Interface, Rejected, Ripng, Ripv2, Transmit};
use holdfast_rip_wire::{Command, Entry, Message, Protocol, Writer};

use super::{
    networks::{Plan, entries, secs},
    one::{One, entry, response},
};

fn request<P: Protocol>(prefixes: &[P::Prefix]) -> Vec<u8> {
    let mut writer = Writer::<P>::new(Command::Request, None, 1500);
    assert!(prefixes.iter().all(|prefix| writer.push(&entry(*prefix, 1))));
    writer.finish(0)
}

fn everything<P: Protocol>() -> Vec<u8> {
    Writer::<P>::whole_table(None).finish(0)
}

impl<P: Plan> One<P> {
    fn asked(&mut self, from: &Datagram<'_, P>) -> Result<Vec<Transmit<P>>, Rejected> {
        self.rip.receive(self.now, from)?;
        let sent = std::iter::from_fn(|| self.rip.poll_transmit());
        Ok(sent.filter(|sent| sent.destination != P::GROUP).collect())
    }
}

/// A router that knows 30 destinations from wire 1 and 30 from wire 2.
fn one() -> One {
    let mut one = One::new();
    for (wire, from) in [(1, 0), (2, 30)] {
        for chunk in [0, 15].map(|chunk| from + chunk) {
            let routes: Vec<Entry<Ripv2>> =
                (chunk..chunk + 15).map(|number| entry(Ripv2::destination(number), 2)).collect();
            let octets = response(&routes);
            one.rip.receive(one.now, &one.datagram(wire, 1, &octets)).expect("good");
        }
    }
    one.wait(secs(10));
    one
}

#[test]
fn a_router_that_comes_up_asks_for_everything() {
    let mut one = One::<Ripv2>::new();
    for (id, interface) in [(3, false), (4, true)] {
        let interface = Interface { passive: interface, ..Interface::new(Ripv2::addresses(id, 0)) };
        one.rip.set_interface(one.now, id, interface);
    }
    let sent: Vec<_> = std::iter::from_fn(|| one.rip.poll_transmit()).collect();
    let asks =
        |sent: &&Transmit<Ripv2>| Message::<Ripv2>::read(&sent.octets).expect("read").asks_for_everything();
    let asks: Vec<_> =
        sent.iter().filter(asks).map(|sent| (sent.interface, sent.destination, sent.port)).collect();
    assert_eq!(asks, [(3, Ripv2::GROUP, 520)]);
}

#[test]
fn who_asks_for_everything_gets_it_with_split_horizon() {
    let mut one = one();
    let octets = everything::<Ripv2>();
    let sent = one.asked(&one.datagram(1, 3, &octets)).expect("answered");
    assert_eq!(sent.len(), 3);
    assert!(
        sent.iter()
            .all(|sent| (sent.interface, sent.destination, sent.port) == (1, Ripv2::source(1, 3), 520))
    );
    let told: Vec<_> = sent.iter().flat_map(|sent| entries::<Ripv2>(&sent.octets)).collect();
    let metrics = |from: u32| {
        let of = |number: u32| told.iter().find(|entry| entry.prefix == Ripv2::destination(number));
        let mut metrics: Vec<_> = (from..from + 30).map(|n| of(n).map(|entry| entry.metric.get())).collect();
        metrics.dedup();
        metrics
    };
    assert_eq!((metrics(0), metrics(30)), (vec![Some(16)], vec![Some(3)]));
    assert_eq!(told.len(), 61, "and the network of the other wire");
}

#[test]
fn who_asks_for_some_routes_gets_them_as_they_are() {
    let mut one = one();
    let octets = request::<Ripv2>(&[1, 31, 99].map(Ripv2::destination));
    let from = Datagram { port: 40_000, ..one.datagram(1, 3, &octets) };
    let sent = one.asked(&from).expect("answered");
    assert_eq!((sent.len(), sent[0].port), (1, 40_000));
    let told = entries::<Ripv2>(&sent[0].octets);
    let told: Vec<_> = told.iter().map(|entry| (entry.prefix, entry.metric.get())).collect();
    assert_eq!(told, [(1, 3), (31, 3), (99, 16)].map(|(n, metric)| (Ripv2::destination(n), metric)));
}

#[test]
fn a_request_without_entries_is_not_answered() {
    let mut one = one();
    let octets = request::<Ripv2>(&[]);
    assert_eq!(one.asked(&one.datagram(1, 3, &octets)), Ok(vec![]));
    let mut octets = request::<Ripv2>(&[Ripv2::destination(1)]);
    octets[4..6].fill(7);
    assert_eq!(one.asked(&one.datagram(1, 3, &octets)), Ok(vec![]), "nor one with bad entries only");
    assert_eq!(one.rip.interfaces().next().map(|shown| shown.counters.bad_routes), Some(1));
}

#[test]
fn a_question_of_ripng_may_come_from_a_global_address() {
    let mut one = One::<Ripng>::new();
    let octets = request::<Ripng>(&[Ripng::network(2)]);
    let source = "2001:db8:0:1::99".parse().expect("an address");
    let from =
        Datagram { source, port: 40_000, hop_limit: 64, multicast: false, ..one.datagram(1, 3, &octets) };
    let sent = one.asked(&from).expect("answered");
    assert_eq!((sent[0].destination, sent[0].port), (source, 40_000));
    assert_eq!(entries::<Ripng>(&sent[0].octets)[0].metric.get(), 1);
}

#[test]
fn nobody_is_answered_who_is_elsewhere() {
    let mut one = one();
    let octets = everything::<Ripv2>();
    let from =
        Datagram { source: "198.51.100.1".parse().expect("an address"), ..one.datagram(1, 3, &octets) };
    assert_eq!(one.asked(&from), Err(Rejected::Source));
}

#[test]
fn requests_are_answered_at_a_bounded_rate() {
    let mut one = one();
    let octets = everything::<Ripv2>();
    assert!(one.asked(&one.datagram(1, 3, &octets)).is_ok());
    one.now += Duration::from_millis(1999);
    assert_eq!(one.asked(&one.datagram(1, 3, &octets)), Err(Rejected::Requests));
    assert!(one.asked(&one.datagram(1, 4, &octets)).is_ok(), "somebody else");
    one.now += Duration::from_millis(1);
    assert!(one.asked(&one.datagram(1, 3, &octets)).is_ok());
    // So many ask at the same time that the answers would wait.
    one.now += secs(10);
    let answered = (10..50).filter(|host| one.rip.receive(one.now, &one.datagram(1, *host, &octets)).is_ok());
    assert_eq!(answered.count(), 16);
    assert_eq!(one.rip.interfaces().next().map(|shown| shown.counters.refused_requests), Some(1 + 24));
}

#[test]
fn all_sources_of_an_interface_together_are_answered_at_a_bounded_rate() {
    let mut one = one();
    let octets = everything::<Ripv2>();
    let mut answered = [0, 0];
    // A new source every 10 ms for a minute, on each wire from then on.
    for (host, at) in (0..6000).enumerate() {
        one.now += Duration::from_millis(10);
        let wire = 1 + u32::from(at >= 3000);
        let asked = one.asked(&one.datagram(wire, 2 + host % 200, &octets));
        answered[wire as usize - 1] += usize::from(asked.is_ok());
    }
    assert_eq!(answered, [16 + 14, 16 + 14], "those that may follow at once, and one in 2 s");
    one.now += secs(60);
    assert!(one.asked(&one.datagram(1, 3, &octets)).is_ok(), "a flood that is over is forgotten");
}

#[test]
fn a_passive_interface_does_not_answer() {
    let mut one = one();
    let interface = Interface { passive: true, ..Interface::new(Ripv2::addresses(1, 0)) };
    one.rip.set_interface(one.now, 1, interface);
    let octets = everything::<Ripv2>();
    assert_eq!(one.asked(&one.datagram(1, 3, &octets)), Err(Rejected::Passive));
}
