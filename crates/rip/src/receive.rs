//! Datagrams that come (RFC 2453 section 3.9, RFC 2080 section 2.4).

use std::time::{Duration, Instant};

use holdfast_rip_wire::{Command, Entry, Malformed, Message, Proof, Unauthentic};
use holdfast_types::IpPrefix;

use crate::{
    Candidate, Metric, Policy, Protocol, Rip, Settings,
    interface::Link,
    route::Learned,
    send::{Job, Work, answer},
};

/// Answers that wait on one interface at most.
const ANSWERS: usize = 16;

/// A datagram that has come to the port of the protocol.
#[derive(Copy, Clone, Debug)]
pub struct Datagram<'a, P: Protocol> {
    /// Over this interface.
    pub interface: u32,
    /// The address that it comes from.
    pub source: P::Address,
    /// The UDP port that it comes from.
    pub port: u16,
    /// The hop limit when it came. It counts of RIPng only.
    pub hop_limit: u8,
    /// Whether it was sent to the group.
    pub multicast: bool,
    /// The payload.
    pub octets: &'a [u8],
}

/// Why a datagram was discarded. All but [`Rejected::Interface`], [`Rejected::Ours`] and [`Rejected::Leaving`] are counted.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Rejected {
    /// The interface is not known.
    #[error("the interface is not known")]
    Interface,
    /// The router has sent it itself.
    #[error("it was sent by this router")]
    Ours,
    /// The router has ended ([`Rip::withdraw_all`]).
    #[error("the router has ended")]
    Leaving,
    /// It cannot be read.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Its source is on none of the networks of the interface; of a Response of RIPng, it is not link-local.
    #[error("the source is no neighbour")]
    Source,
    /// A Response from another port than that of routers.
    #[error("a response from port {0}")]
    Port(u16),
    /// A Response of RIPng that was sent to the group, and may come from far away (RFC 2080 section 2.4.2).
    #[error("a hop limit of {0}, not 255")]
    HopLimit(u8),
    /// It is not authentic.
    #[error(transparent)]
    Unauthentic(#[from] Unauthentic),
    /// It is older than what came before (RFC 4822 section 2.3.2): somebody may have kept it.
    #[error("sequence number {received} under key {key}, after {last}")]
    Sequence {
        /// The Key-ID.
        key: u8,
        /// The last number.
        last: u32,
        /// The number of this message.
        received: u32,
    },
    /// Its source is not known yet, and [`Settings::max_neighbours`](crate::Settings::max_neighbours) are there whose sequence
    /// numbers count.
    #[error("too many neighbours")]
    Neighbours,
    /// A Request over an interface that is passive.
    #[error("a request on a passive interface")]
    Passive,
    /// A Request too soon after another one, or after too many of others.
    #[error("too many requests")]
    Requests,
}

impl<P: Protocol, Q: Policy<P>> Rip<P, Q> {
    /// Takes a datagram. A Request is answered to who has sent it: the whole table with split horizon, single routes without
    /// (RFC 2453 section 3.9.1). Only who is on a network of the interface is answered, so that nobody else is flooded.
    ///
    /// # Errors
    /// The datagram was discarded. A router says so to its operator (RFC 2453 section 3.9.2, RFC 4822 section 2.3.2).
    pub fn receive(&mut self, now: Instant, datagram: &Datagram<'_, P>) -> Result<(), Rejected> {
        self.now = now;
        if self.leaving {
            return Err(Rejected::Leaving);
        }
        if self.is_ours(datagram.interface, datagram.source) {
            return Err(Rejected::Ours);
        }
        let link = self.links.get_mut(&datagram.interface).ok_or(Rejected::Interface)?;
        link.counters.received += 1;
        match accept(link, datagram, now, &self.settings) {
            Ok(message) => match message.command() {
                Command::Request => self.request(now, datagram, &message),
                Command::Response => {
                    self.response(now, datagram, &message);
                    Ok(())
                }
            },
            Err(reason) => {
                count_bad(link, datagram.source, reason);
                Err(reason)
            }
        }
    }

    /// RFC 2453 section 3.9.1.
    fn request(
        &mut self,
        now: Instant,
        datagram: &Datagram<'_, P>,
        message: &Message<'_, P>,
    ) -> Result<(), Rejected> {
        let (source, port) = (datagram.source, datagram.port);
        let link = self.links.get_mut(&datagram.interface).ok_or(Rejected::Interface)?;
        if link.config.passive {
            link.counters.refused_requests += 1;
            return Err(Rejected::Passive);
        }
        let work = if message.asks_for_everything() {
            Work::Table { after: None }
        } else {
            let bad = message.queries().filter(Result::is_err).count() as u64;
            count_bad_routes(link, source, bad);
            let known = message.queries().filter_map(Result::ok);
            let entries: Vec<_> = known
                .map(|prefix| answer(&self.table, &mut self.policy, datagram.interface, prefix))
                .collect();
            if entries.is_empty() {
                return Ok(());
            }
            Work::Answer(entries.into_iter())
        };
        let again = |job: &mut Job<P>| matches!(work, Work::Table { .. }) && job.begin_again(source, port);
        let waiting = link.jobs.iter().filter(|job| job.is_answer()).count();
        let may = waiting < ANSWERS
            && link.neighbours.get_mut(source).is_some_and(|known| known.asks(now))
            && link.answers.take(now);
        if !may {
            link.counters.refused_requests += 1;
            return Err(Rejected::Requests);
        }
        if !link.jobs.iter_mut().any(again) {
            link.jobs.push_back(Job::to(source, port, work, now));
        }
        Ok(())
    }

    /// RFC 2453 section 3.9.2.
    fn response(&mut self, now: Instant, datagram: &Datagram<'_, P>, message: &Message<'_, P>) {
        let mut bad = 0;
        for entry in message.entries() {
            match entry {
                Ok(entry) => bad += u64::from(!self.entry(now, datagram, &entry)),
                Err(_) => bad += 1,
            }
        }
        if let Some(link) = self.links.get_mut(&datagram.interface) {
            count_bad_routes(link, datagram.source, bad);
        }
    }

    /// Whether an address is one of the router's own. A link-local one belongs to its link: another link may have it, too.
    fn is_ours(&self, interface: u32, address: P::Address) -> bool {
        let here = |id: u32| id == interface || !P::is_link_local(address);
        self.links.iter().any(|(id, link)| here(*id) && link.config.owns(address))
    }

    /// Whether a destination is one of the router's own addresses: others would be told that it is elsewhere.
    fn leads_here(&self, prefix: P::Prefix) -> bool {
        let own = self.links.values().flat_map(|link| &link.config.addresses);
        prefix.length() == P::Prefix::WIDTH && own.into_iter().any(|own| P::host(own.address) == prefix)
    }

    /// One route; false if it leads through this router itself, or to it.
    fn entry(&mut self, now: Instant, datagram: &Datagram<'_, P>, entry: &Entry<P>) -> bool {
        let interface = datagram.interface;
        if self.leads_here(entry.prefix) {
            return false;
        }
        let ours = entry.next_hop.is_some_and(|hop| self.is_ours(interface, hop));
        let Some(Link { config, .. }) = self.links.get(&interface) else { return false };
        let next_hop = entry.next_hop.filter(|hop| config.has_router(*hop)).unwrap_or(datagram.source);
        let mut candidate = Candidate { metric: entry.metric.plus(config.cost), tag: entry.tag };
        let usable = !ours
            && candidate.metric.is_reachable()
            && self.policy.import(interface, entry.prefix, &mut candidate);
        let learned = Learned {
            interface,
            router: datagram.source,
            next_hop,
            metric: if usable { candidate.metric } else { Metric::INFINITY },
            tag: candidate.tag,
            since: now,
            deadline: now + self.settings.timeout,
        };
        self.learn(now, entry.prefix, learned);
        !ours
    }

    /// Compares a route with the one that is there. Of a router that has told that one, anything is taken; of others, what is
    /// shorter, or as long as one that was not repeated for half of its time.
    fn learn(&mut self, now: Instant, prefix: P::Prefix, new: Learned<P>) {
        let route = self.table.get(prefix);
        let own = route.and_then(|route| route.best_own());
        let usable = new.metric.is_reachable() && own.is_none_or(|own| new.metric < own.metric);
        let old = route.and_then(|route| route.learned);
        let is_better = |old: &Learned<P>| {
            let stale = now + self.settings.timeout / 2 >= old.deadline;
            new.metric < old.metric || new.metric == old.metric && stale
        };
        let adopt = match &old {
            None => usable,
            Some(old) if old.is_from(new.interface, new.router) => true,
            Some(old) => usable && is_better(old),
        };
        if !adopt || usable && !self.has_room(prefix) {
            return;
        }
        let since = old.filter(|old| old.is_like(&new)).map_or(now, |old| old.since);
        let learned = usable.then_some(Learned { since, ..new });
        self.table.edit(now, prefix, |route| route.learned = learned);
    }
}

/// Everything before the entries; the sender is known afterwards.
fn accept<'a, P: Protocol>(
    link: &mut Link<P>,
    datagram: &Datagram<'a, P>,
    now: Instant,
    settings: &Settings,
) -> Result<Message<'a, P>, Rejected> {
    let (message, proof) = check(link, datagram, now, settings.timeout)?;
    let known = link.neighbours.hear(now, datagram.source, proof, settings.max_neighbours, settings.timeout);
    known.map(|_| message).ok_or(Rejected::Neighbours)
}

fn check<'a, P: Protocol>(
    link: &mut Link<P>,
    datagram: &Datagram<'a, P>,
    now: Instant,
    timeout: Duration,
) -> Result<(Message<'a, P>, Option<Proof>), Rejected> {
    let message = Message::<P>::read(datagram.octets)?;
    if !link.config.reaches(datagram.source) {
        return Err(Rejected::Source);
    }
    if message.command() == Command::Response {
        if datagram.port != P::PORT {
            return Err(Rejected::Port(datagram.port));
        }
        if !link.config.has_router(datagram.source) {
            return Err(Rejected::Source);
        }
        if P::LINK_LOCAL && datagram.multicast && datagram.hop_limit != u8::MAX {
            return Err(Rejected::HopLimit(datagram.hop_limit));
        }
    }
    let proof = message.authenticate(link.config.authentication.as_ref())?;
    if let (Some(proof), Some(known)) = (proof, link.neighbours.get_mut(datagram.source)) {
        let Proof { key, sequence: received } = proof;
        known.check(now, timeout, proof).map_err(|last| Rejected::Sequence { key, last, received })?;
    }
    Ok((message, proof))
}

fn count_bad<P: Protocol>(link: &mut Link<P>, source: P::Address, reason: Rejected) {
    match reason {
        Rejected::Unauthentic(_) | Rejected::Sequence { .. } => link.counters.authentication_failures += 1,
        _ => link.counters.bad_packets += 1,
    }
    if let Some(known) = link.neighbours.get_mut(source) {
        known.packets += 1;
        known.bad_packets += 1;
    }
}

fn count_bad_routes<P: Protocol>(link: &mut Link<P>, source: P::Address, count: u64) {
    link.counters.bad_routes += count;
    if let Some(known) = link.neighbours.get_mut(source) {
        known.bad_routes += count;
    }
}
