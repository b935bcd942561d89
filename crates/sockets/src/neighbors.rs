//! The socket under [`Discovery`], and who wants to know what it says.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, RandomState},
    io,
    net::{Ipv6Addr, SocketAddrV6, UdpSocket as StdUdpSocket},
    os::fd::OwnedFd,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_api::socket::v1::Neighbor;
use holdfast_sys::icmp::{self, Received};
use rustix::net::{SendFlags, netdevice, sockopt};
use tokio::{
    io::Interest,
    net::UdpSocket,
    sync::{Notify, watch},
    time::{sleep, sleep_until},
};
use tracing::{debug, info, warn};

use crate::{
    SocketError,
    discovery::{Action, Discovery, LOOK, News},
    error::Step,
    icmp::{ADVERTISEMENT, ALL_ROUTERS, HOP_LIMIT, Message, SOLICITATION},
    place::Place,
};

/// Messages taken in before others have their turn.
const BATCH: usize = 32;
/// Octets of a message that are looked at: a link carries 1500, mostly; what is longer is malformed.
const LONGEST: usize = 2048;
/// When a socket is asked for again.
const RETRY: Duration = Duration::from_secs(10);

/// What is known of an interface of peers.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Known {
    router: Option<Ipv6Addr>,
    /// The kernel's number of the link, 0 while it carries nothing; `None`: nobody has said.
    link: Option<u32>,
}

/// The routers on the links of peers without address. Nothing is sent, and no socket is open, as long as there are none.
#[derive(Debug, Default)]
pub(crate) struct Neighbors {
    place: Place,
    discovery: RefCell<Discovery>,
    /// Interfaces of peers, with and without address.
    watched: watch::Sender<BTreeSet<String>>,
    /// Their numbers, 0 while they can carry nothing. Nobody has said anything of those that are not here.
    links: RefCell<BTreeMap<String, u32>>,
    /// Somebody may have to be told.
    version: watch::Sender<()>,
    /// Other links are wanted.
    wanted: Notify,
    malformed: Cell<u64>,
}

impl Neighbors {
    /// Those that are there.
    pub(crate) fn new(place: Place) -> Self {
        Self { place, ..Self::default() }
    }

    /// Makes these the links that are wanted.
    pub(crate) fn want(&self, links: BTreeSet<String>) {
        self.discovery.borrow_mut().want(links, Instant::now());
        self.wanted.notify_one();
        self.version.send_replace(());
    }

    /// Makes these the interfaces whose links are followed.
    pub(crate) fn watch(&self, interfaces: BTreeSet<String>) {
        self.watched.send_if_modified(|watched| {
            let differs = *watched != interfaces;
            *watched = interfaces;
            differs
        });
    }

    /// See [`SocketService::follow_links`](crate::SocketService::follow_links).
    pub(crate) async fn follow_links(
        self: Rc<Self>,
        mut changes: watch::Receiver<u64>,
        find: impl Fn(&BTreeSet<String>) -> BTreeMap<String, u32>,
    ) {
        let mut watched = self.watched.subscribe();
        // 0 is before the kernel was asked.
        if changes.wait_for(|version| *version > 0).await.is_err() {
            return;
        }
        loop {
            changes.mark_unchanged();
            let links = {
                let watched = watched.borrow_and_update();
                let found = find(&watched);
                let number = |name: &String| found.get(name).copied().unwrap_or(0);
                watched.iter().map(|name| (name.clone(), number(name))).collect::<BTreeMap<_, _>>()
            };
            if self.links.replace(links.clone()) != links {
                self.version.send_replace(());
            }
            tokio::select! {
                more = changes.changed() => if more.is_err() { return },
                more = watched.changed() => if more.is_err() { return },
            }
        }
    }

    /// The router on a link.
    pub(crate) fn on(&self, link: &str) -> Option<Ipv6Addr> {
        self.known(link).router
    }

    /// Who was heard on a link that carries nothing now is not there.
    fn known(&self, interface: &str) -> Known {
        let link = self.links.borrow().get(interface).copied();
        let router = self.discovery.borrow().router(interface);
        Known { router: router.filter(|_| link != Some(0)), link }
    }

    /// Messages that were no advertisements and solicitations as they have to be.
    pub(crate) fn malformed(&self) -> u64 {
        self.malformed.get()
    }

    /// Is told whenever there may be news.
    pub(crate) fn versions(&self) -> watch::Receiver<()> {
        self.version.subscribe()
    }

    /// What a listener has not been told yet; it has been told afterwards.
    pub(crate) fn news(&self, told: &mut BTreeMap<String, Known>) -> Vec<Neighbor> {
        let watched = self.watched.borrow();
        // There are no peers there any more.
        told.retain(|interface, _| watched.contains(interface));
        let mut news = Vec::new();
        for interface in watched.iter() {
            let known = self.known(interface);
            if told.insert(interface.clone(), known).unwrap_or_default() != known {
                let address = known.router.map(|router| router.octets().to_vec()).unwrap_or_default();
                news.push(Neighbor { interface: interface.clone(), address, link: known.link });
            }
        }
        news
    }

    /// Looks for them, for ever.
    pub(crate) async fn run(self: Rc<Self>) {
        let mut said = String::new();
        loop {
            while self.discovery.borrow().is_idle() {
                self.wanted.notified().await;
            }
            // For tokio a socket is a socket: it has no safe way to wait for one of another kind.
            let wait = |socket| UdpSocket::from_std(StdUdpSocket::from(socket)).step("polling");
            let error = match open(&self.place).await.and_then(wait) {
                Ok(socket) => {
                    // Nothing is joined yet.
                    if self.discovery.borrow_mut().act(Instant::now(), 0, |_| None, &mut Vec::new()) {
                        self.version.send_replace(());
                    }
                    self.serve(&socket).await;
                    continue;
                }
                Err(error) => error.to_string(),
            };
            if said != error {
                warn!(event = "discovery-failed", "neighbours without address are not looked for: {error}");
                said = error;
            }
            sleep(RETRY).await;
        }
    }

    /// As long as there are links, and the socket is where they are.
    async fn serve(&self, socket: &UdpSocket) {
        let random = RandomState::new();
        let (mut turn, mut buffer) = (0_u64, vec![0; LONGEST]);
        loop {
            turn += 1;
            let (now, number) = (Instant::now(), random.hash_one(turn) as u32);
            if self.place.is_left(socket) {
                return;
            }
            self.act(socket, now, number);
            let Some(next) = self.next(now) else { return };
            tokio::select! {
                () = sleep_until(next.into()) => {}
                () = self.wanted.notified() => {}
                _ = socket.readable() => {
                    let taken = socket.try_io(Interest::READABLE, || self.take(socket, &mut buffer, number));
                    match taken {
                        Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                            debug!("receiving from routers: {error}");
                            sleep(LOOK).await;
                        }
                        // Many of them must not keep others waiting.
                        Ok(()) | Err(_) => tokio::task::yield_now().await,
                    }
                }
            }
        }
    }

    /// When there may be something to do again; `None`: no link is left.
    fn next(&self, now: Instant) -> Option<Instant> {
        let discovery = self.discovery.borrow();
        let look = now + LOOK;
        (!discovery.is_idle()).then(|| discovery.next().map_or(look, |next| next.min(look)))
    }

    /// Does what is due.
    fn act(&self, socket: &UdpSocket, now: Instant, random: u32) {
        let find = |name: &str| netdevice::name_to_index(socket, name).ok();
        let (mut discovery, mut actions) = (self.discovery.borrow_mut(), Vec::new());
        if discovery.act(now, random, find, &mut actions) {
            self.version.send_replace(());
        }
        for action in actions {
            match action {
                Action::Join(interface) => {
                    if let Err(error) = sockopt::set_ipv6_add_membership(socket, &ALL_ROUTERS, interface) {
                        debug!(interface, "solicitations are not heard: {error}");
                    }
                }
                Action::Leave(interface) => {
                    // The interface may be gone.
                    let _ = sockopt::set_ipv6_drop_membership(socket, &ALL_ROUTERS, interface);
                }
                Action::Send(link, interface, message) => {
                    let to = SocketAddrV6::new(message.destination(), 0, 0, interface);
                    if let Err(error) =
                        rustix::net::sendto(socket, &message.encode(), SendFlags::DONTWAIT, &to)
                    {
                        debug!(link, "sending to routers: {error}");
                        discovery.failed(&link, now);
                    }
                }
            }
        }
    }

    /// Takes messages in; fails when there are none left for now.
    fn take(&self, socket: &UdpSocket, buffer: &mut [u8], random: u32) -> io::Result<()> {
        for _ in 0..BATCH {
            let Some(received) = icmp::receive(socket, buffer)? else { continue };
            self.heard(received, &buffer[..received.octets], random);
        }
        Ok(())
    }

    fn heard(&self, received: Received, octets: &[u8], random: u32) {
        let Received { source, hop_limit, .. } = received;
        let address = *source.ip();
        // The socket hears all interfaces of the namespace.
        if !self.discovery.borrow().has(source.scope_id()) {
            return;
        }
        let message = match Message::parse(octets, address, hop_limit) {
            Ok(message) => message,
            Err(error) => {
                self.malformed.set(self.malformed.get() + 1);
                return debug!(%source, "a message of a router is ignored: {error}");
            }
        };
        let (mut discovery, now) = (self.discovery.borrow_mut(), Instant::now());
        match discovery.heard(source.scope_id(), address, message, now, random) {
            News::None => return,
            News::Router(address) => {
                info!(event = "neighbor-heard", %address, interface = source.scope_id(), "a router is heard");
            }
            News::Second(address) => warn!(
                event = "neighbor-heard",
                %address,
                interface = source.scope_id(),
                "a second router is heard on the link of a peer without address: the session is with whichever was heard \
                 last"
            ),
            News::Another(address) => {
                debug!(%address, interface = source.scope_id(), "another router is heard");
            }
        }
        self.version.send_replace(());
    }
}

/// A socket for router discovery, non-blocking.
async fn open(place: &Place) -> Result<OwnedFd, SocketError> {
    let socket = place.icmp().await?;
    icmp::set_types(&socket, &[SOLICITATION, ADVERTISEMENT]).step("setting ICMP6_FILTER")?;
    icmp::tell_hop_limits(&socket).step("setting IPV6_RECVHOPLIMIT")?;
    sockopt::set_ipv6_multicast_hops(&socket, HOP_LIMIT.into()).step("setting the hop limit")?;
    sockopt::set_ipv6_multicast_loop(&socket, false).step("setting IPV6_MULTICAST_LOOP")?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::icmp::Message;

    /// What somebody who has been told this is told now: interface, whether there is a router, link.
    fn told(neighbors: &Neighbors, told: &mut BTreeMap<String, Known>) -> Vec<(String, bool, Option<u32>)> {
        let news = neighbors.news(told).into_iter();
        news.map(|news| (news.interface, !news.address.is_empty(), news.link)).collect()
    }

    #[tokio::test(flavor = "current_thread")]
    async fn links_are_told_with_their_routers_and_a_link_that_carries_nothing_has_none() {
        let local = tokio::task::LocalSet::new();
        local.run_until(follow()).await;
    }

    async fn follow() {
        let neighbors = Rc::new(Neighbors::default());
        neighbors.watch(["eth1".to_owned(), "eth2".to_owned()].into());
        neighbors.want(["eth1".to_owned()].into());
        let router = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
        let now = Instant::now();
        neighbors.discovery.borrow_mut().act(now, 0, |_| Some(3), &mut Vec::new());
        neighbors.discovery.borrow_mut().heard(3, router, Message::Advertisement, now, 0);

        let mut said = BTreeMap::new();
        let heard = ("eth1".to_owned(), true, None);
        assert_eq!(told(&neighbors, &mut said), [heard], "nobody has said anything of links");

        let links = Rc::new(RefCell::new(BTreeMap::from([("eth1".to_owned(), 3), ("eth3".to_owned(), 5)])));
        let changes = watch::Sender::new(0);
        let find = {
            let links = Rc::clone(&links);
            move |wanted: &BTreeSet<String>| {
                let mut links = links.borrow().clone();
                links.retain(|name, _| wanted.contains(name));
                links
            }
        };
        let mut versions = neighbors.versions();
        tokio::task::spawn_local(Rc::clone(&neighbors).follow_links(changes.subscribe(), find));
        let eth1 = |heard, link| ("eth1".to_owned(), heard, Some(link));
        let eth2 = |link| ("eth2".to_owned(), false, Some(link));
        for (name, index, wanted) in [
            ("eth1", Some(3), vec![eth1(true, 3), eth2(0)]),
            ("eth1", None, vec![eth1(false, 0)]),
            ("eth1", Some(3), vec![eth1(true, 3)]),
            ("eth2", Some(9), vec![eth2(9)]),
        ] {
            match index {
                Some(index) => _ = links.borrow_mut().insert(name.to_owned(), index),
                None => _ = links.borrow_mut().remove(name),
            }
            changes.send_modify(|version| *version += 1);
            versions.changed().await.expect("somebody follows them");
            assert_eq!(told(&neighbors, &mut said), wanted);
        }
        neighbors.watch(["eth3".to_owned()].into());
        assert_eq!(told(&neighbors, &mut said), [], "nobody has said anything of this one yet");
        versions.changed().await.expect("somebody follows them");
        assert_eq!(told(&neighbors, &mut said), [("eth3".to_owned(), false, Some(5))]);
    }
}
