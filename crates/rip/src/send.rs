//! Datagrams, made when somebody asks for them.

use std::{
    ops::Bound,
    time::{Duration, Instant},
};

use holdfast_rip_wire::{Command, Entry, Writer};

use crate::{
    Candidate, Interface, Metric, Policy, Protocol, Rip, SplitHorizon,
    interface::Link,
    route::{Route, Told},
    table::Table,
};

/// A datagram to send, from the port of the protocol. RIPng is sent from a link-local address, to the group with a hop limit
/// of 255 (RFC 2080 sections 2.4.2, 2.5.2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmit<P: Protocol> {
    /// Over this interface.
    pub interface: u32,
    /// From this address of the interface; `None`: from the one that the kernel chooses.
    pub source: Option<P::Address>,
    /// [`Protocol::GROUP`], or somebody who has asked.
    pub destination: P::Address,
    /// The UDP port there.
    pub port: u16,
    /// The payload.
    pub octets: Vec<u8>,
}

/// Octets a second to one destination: 20 000 routes. FRR's socket for RIPng has room for 7 datagrams of 1500 octets, which
/// is 25 ms at this rate; the one for RIPv2 for 65 of 504, which is 80 ms.
const RATE: f64 = 400e3;
/// What a destination is sent in so long is sent at once; then it is left in peace for so long.
const GAP: Duration = Duration::from_millis(5);
/// Octets of an entry, with its part of the headers.
const ENTRY: usize = 24;
/// The part of the update interval in which a whole table is told, however large it is.
const SHARE: u32 = 4;
/// How long [`Rip::withdraw_all`] takes at most.
const FAREWELL: Duration = Duration::from_secs(2);

/// How fast one destination is sent to: the receiver discards what finds no room in its socket, and RIP repeats nothing
/// before the next update.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Pace {
    /// Nothing before.
    open: Instant,
    /// Octets since the last pause.
    sent: usize,
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Self {
        Self { open: now, sent: 0 }
    }

    /// So many octets were sent. `rate`: octets a second.
    fn sent(&mut self, now: Instant, octets: usize, rate: f64) {
        self.sent += octets;
        let pause = self.sent as f64 / rate;
        if pause >= GAP.as_secs_f64() {
            *self = Self { open: now + Duration::from_secs_f64(pause), sent: 0 };
        }
    }
}

/// What is to be sent over an interface, one datagram after the other.
#[derive(Debug)]
pub(crate) struct Job<P: Protocol> {
    to: P::Address,
    port: u16,
    work: Work<P>,
    /// Of an answer; all that is for the group has the pace of the interface.
    pace: Pace,
}

#[derive(Debug)]
pub(crate) enum Work<P: Protocol> {
    /// A Request for the whole table.
    Ask,
    /// The whole table, after a destination.
    Table { after: Option<P::Prefix> },
    /// What has changed after a number, and not after another.
    Changes { after: u64, until: u64 },
    /// That nothing is reachable, after a destination.
    Farewell { after: Option<P::Prefix> },
    /// What was asked for.
    Answer(std::vec::IntoIter<Entry<P>>),
}

impl<P: Protocol> Job<P> {
    /// To all neighbours.
    pub(crate) fn group(work: Work<P>, now: Instant) -> Self {
        Self::to(P::GROUP, P::PORT, work, now)
    }

    pub(crate) fn to(to: P::Address, port: u16, work: Work<P>, now: Instant) -> Self {
        Self { to, port, work, pace: Pace::new(now) }
    }

    /// Whether it answers somebody.
    pub(crate) fn is_answer(&self) -> bool {
        self.to != P::GROUP
    }

    pub(crate) fn asks(&self) -> bool {
        matches!(self.work, Work::Ask)
    }

    /// Whether it tells the whole table to who has asked from there. It begins again then: who asks again has lost the
    /// beginning.
    pub(crate) fn begin_again(&mut self, to: P::Address, port: u16) -> bool {
        let after = match &mut self.work {
            Work::Table { after } if (self.to, self.port) == (to, port) => after,
            _ => return false,
        };
        *after = None;
        true
    }

    /// Whether it tells changes to all neighbours.
    pub(crate) fn is_triggered(&self) -> bool {
        matches!(self.work, Work::Changes { .. })
    }

    /// Whether it tells routes to all neighbours.
    pub(crate) fn is_update(&self) -> bool {
        !self.is_answer() && matches!(self.work, Work::Table { .. } | Work::Changes { .. })
    }

    pub(crate) fn is_regular(&self) -> bool {
        !self.is_answer() && matches!(self.work, Work::Table { .. })
    }
}

impl<P: Protocol, Q: Policy<P>> Rip<P, Q> {
    /// The next datagram that may be sent now. Each says what is so at this time; interfaces, and on one interface updates
    /// and answers, take turns. Each destination has a pace of its own: what is left for it has a [`Rip::next_deadline`].
    pub fn poll_transmit(&mut self) -> Option<Transmit<P>> {
        self.next_source().or_else(|| self.next_datagram())
    }

    /// The datagram that was sent last, from an address in another network of the link: neighbors discard datagrams whose
    /// source is in no network of theirs (RFC 2453 section 3.9.2).
    fn next_source(&mut self) -> Option<Transmit<P>> {
        let (transmit, sources) = self.repeated.as_mut()?;
        let source = sources.next();
        let transmit = source.map(|source| Transmit { source: Some(source), ..transmit.clone() });
        if transmit.is_none() {
            self.repeated = None;
        }
        transmit
    }

    fn next_datagram(&mut self) -> Option<Transmit<P>> {
        let (now, rate) = (self.now, self.rate());
        let sequence = sequence(self.settings.first_sequence, self.started, now);
        loop {
            let after = self.last_sent.map_or(Bound::Unbounded, Bound::Excluded);
            let mut links = self.links.range_mut((after, Bound::Unbounded));
            let open = links.find_map(|(id, link)| Some((*id, link.next_job(now)?, link)));
            let Some((id, mut job, link)) = open else {
                // Once more from the first one.
                self.last_sent.take()?;
                continue;
            };
            self.last_sent = Some(id);
            let mut page = Page { id, link: &link.config, table: &self.table, policy: &mut self.policy };
            let (writer, more) = page.fill(&mut job.work);
            let octets = writer.filter(|writer| !writer.is_empty()).map(|writer| writer.finish(sequence));
            let (destination, port) = (job.to, job.port);
            // Who has asked is reached from the address that the kernel's route to it names.
            let sources = if job.is_answer() { Vec::new() } else { link.config.sources() };
            if let Some(octets) = &octets {
                let copies = sources.len().max(1);
                link.counters.sent += copies as u64;
                let pace = if job.is_answer() { &mut job.pace } else { &mut link.pace };
                pace.sent(now, octets.len() * copies, rate);
            }
            if more {
                link.jobs.push_back(job);
            }
            if let Some(octets) = octets {
                let mut sources = sources.into_iter();
                let transmit = Transmit { interface: id, source: sources.next(), destination, port, octets };
                if sources.len() > 0 {
                    self.repeated = Some((transmit.clone(), sources));
                }
                return Some(transmit);
            }
        }
    }

    /// Octets a second to one destination.
    fn rate(&self) -> f64 {
        let most = if self.leaving { FAREWELL } else { self.settings.update / SHARE };
        RATE.max((self.table.len() * ENTRY) as f64 / most.as_secs_f64())
    }
}

impl<P: Protocol> Link<P> {
    /// When a datagram of a job may be sent.
    fn opens(&self, job: &Job<P>) -> Instant {
        if job.is_answer() { job.pace.open } else { self.pace.open }
    }

    /// When the next datagram may be sent, if there is one.
    pub(crate) fn next_datagram(&self) -> Option<Instant> {
        self.jobs.iter().map(|job| self.opens(job)).min()
    }

    fn next_job(&mut self, now: Instant) -> Option<Job<P>> {
        let open = self.jobs.iter().position(|job| self.opens(job) <= now)?;
        self.jobs.remove(open)
    }
}

/// RFC 4822 section 2.1: it does not decrease.
fn sequence(first: u32, started: Instant, now: Instant) -> u32 {
    let seconds = now.saturating_duration_since(started).as_secs();
    first.saturating_add(u32::try_from(seconds).unwrap_or(u32::MAX))
}

/// Where a datagram is filled.
struct Page<'a, P: Protocol, Q> {
    id: u32,
    link: &'a Interface<P>,
    table: &'a Table<P>,
    policy: &'a mut Q,
}

impl<'a, P: Protocol, Q: Policy<P>> Page<'a, P, Q> {
    /// One datagram, and whether there is more to say.
    fn fill(&mut self, work: &mut Work<P>) -> (Option<Writer<'a, P>>, bool) {
        let ours = self.link.authentication.as_ref();
        let mut writer = Writer::new(Command::Response, ours, self.link.mtu);
        let table = self.table;
        let more = match work {
            Work::Ask => return (Some(Writer::whole_table(ours)), false),
            Work::Table { after } => table.after(*after).any(|(prefix, route)| {
                let full = self.entry(prefix, route).is_some_and(|entry| !writer.push(&entry));
                *after = if full { *after } else { Some(prefix) };
                full
            }),
            Work::Changes { after, until } => table.changes(*after, *until).any(|(change, prefix, route)| {
                let full = self.entry(prefix, route).is_some_and(|entry| !writer.push(&entry));
                *after = if full { *after } else { change };
                full
            }),
            Work::Farewell { after } => table.after(*after).any(|(prefix, route)| {
                let full = self.farewell(prefix, route).is_some_and(|entry| !writer.push(&entry));
                *after = if full { *after } else { Some(prefix) };
                full
            }),
            Work::Answer(entries) => loop {
                match entries.as_slice().first() {
                    Some(entry) if !writer.push(entry) => break true,
                    Some(_) => drop(entries.next()),
                    None => break false,
                }
            },
        };
        (Some(writer), more)
    }

    /// What is told of a route over this interface (RFC 2453 section 3.10.2).
    fn entry(&mut self, prefix: P::Prefix, route: &Route<P>) -> Option<Entry<P>> {
        let Told { metric, tag, over, next_hop } = route.told()?;
        let back = over == Some(self.id);
        let connected = back && route.best_own().is_some();
        let lost = Entry { prefix, tag, metric: Metric::INFINITY, next_hop: None };
        match self.link.split_horizon {
            SplitHorizon::Simple if back => return None,
            // Who is on that network knows.
            SplitHorizon::PoisonedReverse if connected => return None,
            SplitHorizon::PoisonedReverse if back => return Some(lost),
            SplitHorizon::PoisonedReverse | SplitHorizon::Simple | SplitHorizon::Off => {}
        }
        let mut candidate = Candidate { metric, tag };
        if metric.is_reachable() && !self.policy.export(self.id, prefix, &mut candidate) {
            return None;
        }
        let next_hop = next_hop.filter(|_| back && candidate.metric.is_reachable());
        Some(Entry { prefix, tag: candidate.tag, metric: candidate.metric, next_hop })
    }

    /// That a route is lost which the neighbours have from here.
    fn farewell(&self, prefix: P::Prefix, route: &Route<P>) -> Option<Entry<P>> {
        let Told { tag, over, .. } = route.told()?;
        let known = over != Some(self.id) || self.link.split_horizon == SplitHorizon::Off;
        known.then_some(Entry { prefix, tag, metric: Metric::INFINITY, next_hop: None })
    }
}

/// What the table says of a destination that somebody asks for, without split horizon (RFC 2453 section 3.9.1).
pub(crate) fn answer<P: Protocol, Q: Policy<P>>(
    table: &Table<P>,
    policy: &mut Q,
    interface: u32,
    prefix: P::Prefix,
) -> Entry<P> {
    let told = table.get(prefix).and_then(Route::told).filter(|told| told.metric.is_reachable());
    let candidate = told.map(|told| Candidate { metric: told.metric, tag: told.tag });
    let exported = candidate
        .and_then(|mut candidate| policy.export(interface, prefix, &mut candidate).then_some(candidate));
    let (metric, tag) = exported.map_or((Metric::INFINITY, 0), |told| (told.metric, told.tag));
    Entry { prefix, tag, metric, next_hop: None }
}
