//! Which router is on a link, and when we say that we are one there (RFC 4861 sections 6.2.4, 6.2.6 and 6.3.7).
//!
//! [`Discovery`] has no clock and no socket: [`Neighbors`](crate::neighbors::Neighbors) tells it the time and what comes
//! in, and sends what it asks for. There is one entry for each link that is wanted, whatever comes in.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv6Addr,
    time::{Duration, Instant},
};

use crate::icmp::Message;

/// Between two advertisements, or up to a quarter less.
const INTERVAL: Duration = Duration::from_secs(10);
/// MIN_DELAY_BETWEEN_RAS.
const LEAST_INTERVAL: Duration = Duration::from_secs(3);
/// MAX_RA_DELAY_TIME: so long at most a solicitation waits for its answer.
const ANSWER: Duration = Duration::from_millis(500);
/// MAX_INITIAL_RTR_ADVERTISEMENTS: so many are sent as fast as may be.
const INITIAL: u8 = 3;
/// MAX_RTR_SOLICITATIONS and RTR_SOLICITATION_INTERVAL.
const SOLICITATIONS: u8 = 3;
const SOLICITATION_INTERVAL: Duration = Duration::from_secs(4);
/// How often it is looked whether an interface is there, and when sending is tried again.
pub(crate) const LOOK: Duration = Duration::from_secs(1);
/// After so long a router that is not heard is none any more: three of the longest intervals between advertisements that
/// RFC 4861 allows. What the advertisement says of its lifetime is for hosts, and 0 between routers.
const SILENCE: Duration = Duration::from_secs(3 * 1800);

/// What is to be done with the socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// Hear solicitations on this interface.
    Join(u32),
    /// Do not any more.
    Leave(u32),
    /// Send this on the link.
    Send(String, u32, Message),
}

/// Routers on the links that are wanted.
#[derive(Debug, Default)]
pub(crate) struct Discovery {
    links: BTreeMap<String, Link>,
    /// Interfaces of links that are not wanted any more.
    left: Vec<u32>,
}

#[derive(Debug)]
struct Link {
    /// The kernel's number; 0: it is not there.
    interface: u32,
    router: Option<Router>,
    /// A second router was heard, and that was said.
    crowded: bool,
    advertise_at: Instant,
    advertised: Option<Instant>,
    /// So many advertisements go out one after the other.
    initial: u8,
    solicit_at: Instant,
    solicitations: u8,
}

#[derive(Copy, Clone, Debug)]
struct Router {
    address: Ipv6Addr,
    heard: Instant,
}

/// What a message has changed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum News {
    /// Nothing.
    None,
    /// This router is the neighbour now.
    Router(Ipv6Addr),
    /// The same, and another was there before: there are more than two routers on the link.
    Second(Ipv6Addr),
    /// The same, and that was said before.
    Another(Ipv6Addr),
}

impl Discovery {
    /// Makes these the links that are wanted.
    pub(crate) fn want(&mut self, links: BTreeSet<String>, now: Instant) {
        let gone = self.links.extract_if(.., |name, _| !links.contains(name));
        self.left.extend(gone.map(|(_, link)| link.interface).filter(|&interface| interface != 0));
        for name in links {
            self.links.entry(name).or_insert_with(|| Link::new(0, now));
        }
    }

    /// Whether there are no links to look at.
    pub(crate) fn is_idle(&self) -> bool {
        self.links.is_empty() && self.left.is_empty()
    }

    /// The router on a link.
    pub(crate) fn router(&self, link: &str) -> Option<Ipv6Addr> {
        Some(self.links.get(link)?.router?.address)
    }

    /// When [`Self::act`] has something to do at the latest.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.links.values().filter(|link| link.interface != 0).map(Link::next).min()
    }

    /// What is due. `find` says which interface has a name now, `random` is one of all numbers; whether a router was
    /// lost.
    pub(crate) fn act(
        &mut self,
        now: Instant,
        random: u32,
        find: impl Fn(&str) -> Option<u32>,
        actions: &mut Vec<Action>,
    ) -> bool {
        actions.extend(self.left.drain(..).map(Action::Leave));
        let mut lost = false;
        for (name, link) in &mut self.links {
            let interface = find(name).unwrap_or(0);
            if interface != link.interface {
                lost |= link.router.is_some();
                actions.extend((link.interface != 0).then_some(Action::Leave(link.interface)));
                actions.extend((interface != 0).then_some(Action::Join(interface)));
                *link = Link::new(interface, now);
            }
            if link.router.is_some_and(|router| now.saturating_duration_since(router.heard) >= SILENCE) {
                link.router = None;
                lost = true;
            }
            if interface != 0 {
                let due = link.due(now, random);
                actions.extend(due.map(|message| Action::Send(name.clone(), interface, message)));
            }
        }
        lost
    }

    /// A message could not be sent: the interface is down, or its address is not there yet.
    pub(crate) fn failed(&mut self, link: &str, now: Instant) {
        if let Some(link) = self.links.get_mut(link) {
            (link.advertise_at, link.solicit_at) = (now + LOOK, now + LOOK);
            (link.initial, link.solicitations, link.advertised) = (INITIAL, SOLICITATIONS, None);
        }
    }

    /// Whether an interface is that of a link that is wanted.
    pub(crate) fn has(&self, interface: u32) -> bool {
        interface != 0 && self.links.values().any(|link| link.interface == interface)
    }

    /// A well-formed message has come in.
    pub(crate) fn heard(
        &mut self,
        interface: u32,
        source: Ipv6Addr,
        message: Message,
        now: Instant,
        random: u32,
    ) -> News {
        let link = self.links.values_mut().find(|link| interface != 0 && link.interface == interface);
        let Some(link) = link else { return News::None };
        match message {
            Message::Solicitation => {
                link.hasten(now + ANSWER.mul_f64(share(random)));
                News::None
            }
            Message::Advertisement => link.advertised_by(source, now),
        }
    }
}

impl Link {
    fn new(interface: u32, now: Instant) -> Self {
        Self {
            interface,
            router: None,
            crowded: false,
            advertise_at: now,
            advertised: None,
            initial: INITIAL,
            solicit_at: now,
            solicitations: SOLICITATIONS,
        }
    }

    fn wants_router(&self) -> bool {
        self.router.is_none() && self.solicitations > 0
    }

    fn next(&self) -> Instant {
        if self.wants_router() { self.advertise_at.min(self.solicit_at) } else { self.advertise_at }
    }

    fn due(&mut self, now: Instant, random: u32) -> impl Iterator<Item = Message> + use<> {
        let solicit = self.wants_router() && self.solicit_at <= now;
        if solicit {
            self.solicitations -= 1;
            self.solicit_at = now + SOLICITATION_INTERVAL;
        }
        let advertise = self.advertise_at <= now;
        if advertise {
            self.initial = self.initial.saturating_sub(1);
            self.advertised = Some(now);
            self.advertise_at = now
                + match self.initial {
                    0 => INTERVAL - INTERVAL.mul_f64(share(random) / 4.0),
                    _ => LEAST_INTERVAL,
                };
        }
        let solicitation = solicit.then_some(Message::Solicitation);
        solicitation.into_iter().chain(advertise.then_some(Message::Advertisement))
    }

    /// The next advertisement goes out then, or as soon afterwards as it may.
    fn hasten(&mut self, at: Instant) {
        let earliest = self.advertised.map_or(at, |last| at.max(last + LEAST_INTERVAL));
        self.advertise_at = self.advertise_at.min(earliest);
    }

    fn advertised_by(&mut self, source: Ipv6Addr, now: Instant) -> News {
        let before = self.router.replace(Router { address: source, heard: now });
        match before {
            Some(before) if before.address == source => News::None,
            Some(_) if !self.crowded => {
                self.crowded = true;
                News::Second(source)
            }
            Some(_) => News::Another(source),
            None => {
                // It has come up just now, perhaps, and missed ours.
                self.hasten(now);
                News::Router(source)
            }
        }
    }
}

/// Between 0 and 1.
fn share(random: u32) -> f64 {
    f64::from(random) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    const OTHER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);

    /// One link and its time.
    struct Scene {
        discovery: Discovery,
        now: Instant,
        interface: Option<u32>,
    }

    impl Scene {
        fn new(interface: Option<u32>) -> Self {
            let now = Instant::now();
            let mut discovery = Discovery::default();
            discovery.want(BTreeSet::from(["eth0".to_owned()]), now);
            Self { discovery, now, interface }
        }

        /// What is done in the next seconds, each with the second.
        fn pass(&mut self, seconds: u64) -> Vec<(u64, Action)> {
            let mut done = Vec::new();
            for second in 0..seconds {
                let mut actions = Vec::new();
                let interface = self.interface;
                self.discovery.act(self.now, 0, |_| interface, &mut actions);
                done.extend(actions.into_iter().map(|action| (second, action)));
                self.now += Duration::from_secs(1);
            }
            done
        }

        fn hear(&mut self, source: Ipv6Addr, message: Message) -> News {
            self.discovery.heard(3, source, message, self.now, 0)
        }
    }

    fn times(done: &[(u64, Action)], wanted: Message) -> Vec<u64> {
        let is = |action: &Action| matches!(action, Action::Send(_, _, message) if *message == wanted);
        done.iter().filter(|(_, action)| is(action)).map(|(second, _)| *second).collect()
    }

    #[test]
    fn three_advertisements_come_fast_and_the_rest_at_leisure_with_three_solicitations_beside() {
        let mut scene = Scene::new(Some(3));
        let done = scene.pass(40);
        assert_eq!(done[0], (0, Action::Join(3)));
        assert_eq!(times(&done, Message::Advertisement), [0, 3, 6, 16, 26, 36]);
        assert_eq!(times(&done, Message::Solicitation), [0, 4, 8]);
    }

    #[test]
    fn who_solicits_is_answered_but_not_more_often_than_every_three_seconds() {
        let mut scene = Scene::new(Some(3));
        scene.pass(18);
        scene.hear(OTHER, Message::Solicitation);
        let done = scene.pass(6);
        assert_eq!(times(&done, Message::Advertisement), [1], "the last was at 16, and this is 18");
        for _ in 0..100 {
            scene.hear(OTHER, Message::Solicitation);
        }
        assert_eq!(times(&scene.pass(3), Message::Advertisement), [0]);
        assert_eq!(scene.discovery.router("eth0"), None, "a solicitation makes no router");
    }

    #[test]
    fn the_last_router_that_is_heard_is_the_neighbour_and_a_second_one_is_said_once() {
        let mut scene = Scene::new(Some(3));
        scene.pass(2);
        assert_eq!(scene.hear(ROUTER, Message::Advertisement), News::Router(ROUTER));
        assert_eq!(scene.hear(ROUTER, Message::Advertisement), News::None);
        assert_eq!(times(&scene.pass(20), Message::Solicitation), [] as [u64; 0], "it is known");
        assert_eq!(scene.hear(OTHER, Message::Advertisement), News::Second(OTHER));
        assert_eq!(scene.hear(ROUTER, Message::Advertisement), News::Another(ROUTER));
        assert_eq!(scene.discovery.router("eth0"), Some(ROUTER));
        let elsewhere = scene.discovery.heard(4, OTHER, Message::Advertisement, scene.now, 0);
        assert_eq!((elsewhere, scene.discovery.router("eth0")), (News::None, Some(ROUTER)));
        assert_eq!([3, 4, 0].map(|interface| scene.discovery.has(interface)), [true, false, false]);
    }

    #[test]
    fn a_router_is_lost_with_its_interface_and_after_a_long_silence() {
        let mut scene = Scene::new(Some(3));
        scene.pass(1);
        scene.hear(ROUTER, Message::Advertisement);
        scene.interface = None;
        assert_eq!(scene.pass(2), [(0, Action::Leave(3))]);
        assert_eq!(scene.discovery.router("eth0"), None);
        scene.interface = Some(5);
        let done = scene.pass(1);
        let sent = |message| (0, Action::Send("eth0".into(), 5, message));
        assert_eq!(
            done,
            [(0, Action::Join(5)), sent(Message::Solicitation), sent(Message::Advertisement)],
            "it begins anew"
        );
        scene.discovery.heard(5, ROUTER, Message::Advertisement, scene.now, 0);
        scene.pass(5399);
        assert_eq!(scene.discovery.router("eth0"), Some(ROUTER));
        scene.pass(2);
        assert_eq!(scene.discovery.router("eth0"), None);
    }

    #[test]
    fn what_cannot_be_sent_is_tried_again_every_second() {
        let mut scene = Scene::new(Some(3));
        for _ in 0..5 {
            assert_eq!(times(&scene.pass(1), Message::Advertisement), [0]);
            scene.discovery.failed("eth0", scene.now - LOOK);
        }
        assert_eq!(times(&scene.pass(7), Message::Advertisement), [0, 3, 6]);
    }

    #[test]
    fn a_link_that_is_not_wanted_any_more_is_left() {
        let mut scene = Scene::new(Some(3));
        scene.pass(1);
        scene.discovery.want(BTreeSet::new(), scene.now);
        assert!(!scene.discovery.is_idle());
        assert_eq!(scene.pass(1), [(0, Action::Leave(3))]);
        assert!(scene.discovery.is_idle() && scene.discovery.next().is_none());
    }
}
