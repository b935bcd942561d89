//! The router: its interfaces, its own routes, its times.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::{Duration, Instant},
};

use crate::{
    AcceptAll, Interface, Metric, Origin, Policy, Protocol, Settings,
    interface::Link,
    random::Random,
    route::{Learned, Own, Route},
    send::{Job, Transmit, Work},
    table::Table,
};

/// Routes that one call of [`Rip::advance`] loses or forgets at most.
const BATCH: usize = 4096;
/// Bounds of the time between two triggered updates, in seconds (RFC 2453 section 3.10.1).
const QUIET: [u64; 2] = [1, 5];

/// The shortest update interval.
const LEAST_UPDATE: Duration = Duration::from_secs(1);

/// What the router tells its caller.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Event<P: Protocol> {
    /// The route to a destination, which takes the place of the route before.
    Route {
        /// The destination.
        prefix: P::Prefix,
        /// Where packets are sent, over `interface`.
        next_hop: P::Address,
        /// Where it was learned.
        interface: u32,
        /// The distance: 1 to 15.
        metric: Metric,
        /// The Route Tag.
        tag: u16,
        /// The router that has told it.
        neighbour: P::Address,
    },
    /// There is no learned route to the destination any more.
    Gone {
        /// The destination.
        prefix: P::Prefix,
    },
    /// A route was ignored because [`Settings::max_routes`] are there. This is told once, until an eighth of them is gone.
    TableFull,
}

/// Why a route of another protocol is not taken.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Refused {
    /// [`Settings::max_routes`] are there.
    #[error("the table is full")]
    Full,
    /// Not a unicast destination, or local to a link or a host.
    #[error("no destination that RIP may tell")]
    Destination,
}

/// One router. See the [crate] for how to drive it.
///
/// Time does not go back: `now` is never less than in the call before.
#[derive(Debug)]
pub struct Rip<P: Protocol, Q = AcceptAll> {
    pub(crate) settings: Settings,
    pub(crate) policy: Q,
    pub(crate) table: Table<P>,
    pub(crate) links: BTreeMap<u32, Link<P>>,
    pub(crate) random: Random,
    pub(crate) started: Instant,
    /// Of the last call.
    pub(crate) now: Instant,
    /// Since when there is an interface.
    active: Option<Instant>,
    /// The interface whose turn it was to send.
    pub(crate) last_sent: Option<u32>,
    /// The datagram that was sent last, and the addresses from which it is still to be sent.
    pub(crate) repeated: Option<(Transmit<P>, std::vec::IntoIter<P::Address>)>,
    pub(crate) excess: Excess,
    /// After [`Rip::withdraw_all`].
    pub(crate) leaving: bool,
}

/// Routes for which there was no room.
#[derive(Copy, Clone, Default, Debug)]
pub(crate) struct Excess {
    pub(crate) ignored: u64,
    /// It was told already.
    known: bool,
    /// It is to be told.
    news: bool,
}

impl<P: Protocol> Rip<P> {
    /// A router without interfaces that accepts all routes.
    pub fn new(settings: Settings, now: Instant) -> Self {
        Self::with_policy(settings, now, AcceptAll)
    }
}

impl<P: Protocol, Q: Policy<P>> Rip<P, Q> {
    /// A router without interfaces.
    pub fn with_policy(settings: Settings, now: Instant, policy: Q) -> Self {
        let settings = Settings { update: settings.update.max(LEAST_UPDATE), ..settings };
        Self {
            settings,
            policy,
            table: Table::new(settings.garbage),
            links: BTreeMap::new(),
            random: Random(settings.seed),
            started: now,
            now,
            active: None,
            last_sent: None,
            repeated: None,
            excess: Excess::default(),
            leaving: false,
        }
    }

    /// The policy, to change it. Routes that are known already are judged again when neighbours repeat them, and when they are
    /// told the next time.
    pub fn policy_mut(&mut self) -> &mut Q {
        &mut self.policy
    }

    /// Other times and another bound, from now on: those of [`Settings`] but what random numbers and digests begin with.
    pub fn set_timers(&mut self, settings: Settings) {
        let Settings { seed, first_sequence, .. } = self.settings;
        self.settings = Settings { seed, first_sequence, ..settings };
        self.table.set_garbage(settings.garbage);
    }

    /// Makes an interface known, or changes one. The router tells its networks over the other interfaces, and asks for the
    /// tables of its neighbours (RFC 2453 section 3.9.1). Learned routes whose next hops the new addresses do not reach are
    /// lost.
    pub fn set_interface(&mut self, now: Instant, id: u32, interface: Interface<P>) {
        self.now = now;
        let connected = Origin::Connected(id);
        // Nothing comes through at an infinite cost.
        let told = interface.networks().filter(|_| interface.cost.is_reachable());
        let networks: Vec<P::Prefix> = told.collect();
        self.edit_of_interface(now, id, |prefix, route| {
            let stays = |learned: &Learned<P>| {
                let hops = [learned.router, learned.next_hop];
                learned.interface != id || hops.iter().all(|hop| interface.has_router(*hop))
            };
            route.learned = route.learned.filter(stays);
            if !networks.contains(&prefix) {
                route.unset_own(connected);
            }
        });
        for network in networks {
            let own = Own { origin: connected, metric: interface.cost, tag: 0 };
            self.table.edit(now, network, |route| route.set_own(own));
        }
        self.put_link(now, id, interface);
        self.note_active(now);
    }

    /// The first regular update comes soon, for neighbours that were there before.
    fn put_link(&mut self, now: Instant, id: u32, interface: Interface<P>) {
        let passive = interface.passive;
        let regular = now + self.random.up_to(self.settings.jitter());
        let told = self.table.change();
        let link = match self.links.entry(id) {
            Entry::Vacant(place) => place.insert(Link::new(interface, now, regular, told)),
            Entry::Occupied(place) => {
                let link = place.into_mut();
                (link.config, link.regular, link.told) = (interface, regular, told);
                link
            }
        };
        if passive {
            link.jobs.clear();
        } else if !self.leaving && !link.jobs.iter().any(Job::asks) {
            link.jobs.push_back(Job::group(Work::Ask, now));
        }
    }

    /// Forgets an interface. Routes that were learned over it are lost, and the other neighbours are told so. False if it is
    /// not known.
    pub fn remove_interface(&mut self, now: Instant, id: u32) -> bool {
        self.now = now;
        let known = self.links.remove(&id).is_some();
        if known {
            self.edit_of_interface(now, id, |_, route| {
                route.learned = route.learned.filter(|learned| learned.interface != id);
                route.unset_own(Origin::Connected(id));
            });
            self.note_active(now);
        }
        known
    }

    /// Changes the routes that an interface has part in.
    fn edit_of_interface(&mut self, now: Instant, id: u32, edit: impl Fn(P::Prefix, &mut Route<P>)) {
        let has_part = |route: &Route<P>| {
            route.learned.is_some_and(|learned| learned.interface == id)
                || route.own.iter().any(|own| own.origin == Origin::Connected(id))
        };
        let chosen = self.table.iter().filter(|(_, route)| has_part(route));
        let prefixes: Vec<P::Prefix> = chosen.map(|(prefix, _)| prefix).collect();
        for prefix in prefixes {
            self.table.edit(now, prefix, |route| edit(prefix, route));
        }
    }

    fn note_active(&mut self, now: Instant) {
        let active = self.active.unwrap_or(now);
        self.active = (!self.links.is_empty()).then_some(active);
    }

    /// Tells neighbours a route that another protocol has, until [`Rip::withdraw_redistributed`]; again, to change it. While it
    /// is there, it is told instead of any learned route to this destination, and a learned route counts only if its metric is
    /// lower. An infinite metric withdraws it.
    ///
    /// # Errors
    /// The route is not taken; an earlier one to this destination stays.
    pub fn redistribute(
        &mut self,
        now: Instant,
        prefix: P::Prefix,
        metric: Metric,
        tag: u16,
    ) -> Result<(), Refused> {
        if !P::is_destination(prefix) {
            return Err(Refused::Destination);
        }
        if !metric.is_reachable() {
            self.withdraw_redistributed(now, prefix);
            return Ok(());
        }
        if !self.has_room(prefix) {
            return Err(Refused::Full);
        }
        self.now = now;
        let own = Own { origin: Origin::Redistributed, metric, tag };
        self.table.edit(now, prefix, |route| route.set_own(own));
        Ok(())
    }

    /// Ends [`Rip::redistribute`]. False if it was not there.
    pub fn withdraw_redistributed(&mut self, now: Instant, prefix: P::Prefix) -> bool {
        self.now = now;
        let is_ours = |own: &Own| own.origin == Origin::Redistributed;
        let there = self.table.get(prefix).is_some_and(|route| route.own.iter().any(is_ours));
        if there {
            self.table.edit(now, prefix, |route| route.unset_own(Origin::Redistributed));
        }
        there
    }

    /// Whether the destination is there or may be made. It is counted if not.
    pub(crate) fn has_room(&mut self, prefix: P::Prefix) -> bool {
        let (len, most) = (self.table.len(), self.settings.max_routes);
        if len < most || self.table.get(prefix).is_some() {
            self.excess.known &= len >= most - most / 8;
            return true;
        }
        self.excess.ignored += 1;
        self.excess.news |= !self.excess.known;
        self.excess.known = true;
        false
    }

    /// When [`Rip::advance`] is to be called, [`Rip::poll_transmit`] has the next datagram, and [`Rip::is_synchronised`] may
    /// change. To be asked after [`Rip::poll_transmit`] has given everything.
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.leaving {
            return self.links.values().filter_map(Link::next_datagram).min();
        }
        let change = self.table.change();
        let synchronised = self.synchronised().filter(|at| *at > self.now);
        let links = self.links.values().filter_map(|link| link.due(change));
        links.chain(self.table.next_deadline()).chain(synchronised).min()
    }

    /// Does what is due: regular and triggered updates, routes that were not repeated, routes to forget. What is left of very
    /// many has a deadline that is over, for the next call.
    pub fn advance(&mut self, now: Instant) {
        self.now = now;
        if self.leaving {
            return;
        }
        self.table.expire(now, BATCH);
        let (jitter, change) = (self.settings.jitter(), self.table.change());
        for link in self.links.values_mut().filter(|link| !link.config.passive && link.regular <= now) {
            link.regular = now + (self.settings.update - jitter) + self.random.up_to(2 * jitter);
            if link.jobs.iter().any(Job::is_regular) {
                continue;
            }
            // It says what a triggered update would.
            link.jobs.retain(|job| !job.is_update());
            link.jobs.push_back(Job::group(Work::Table { after: None }, now));
            link.counters.updates += 1;
            link.told = change;
        }
        self.trigger(now);
    }

    /// Begins triggered updates where changes are not told yet (RFC 2453 section 3.10.1).
    fn trigger(&mut self, now: Instant) {
        let until = self.table.change();
        for link in self.links.values_mut() {
            let may = !link.config.passive && link.quiet <= now;
            if !may || !link.has_news(until) {
                continue;
            }
            link.jobs.push_back(Job::group(Work::Changes { after: link.told, until }, now));
            link.counters.triggered_updates += 1;
            link.told = until;
            let [least, most] = QUIET.map(Duration::from_secs);
            link.quiet = now + least + self.random.up_to(most - least);
        }
    }

    /// Leaves in good order: tells all neighbours once that nothing is reachable through this router, within 2 s, and ends.
    /// After that the router sends nothing and ignores what comes.
    pub fn withdraw_all(&mut self, now: Instant) {
        self.now = now;
        self.leaving = true;
        for link in self.links.values_mut().filter(|link| !link.config.passive) {
            link.jobs.clear();
            link.jobs.push_back(Job::group(Work::Farewell { after: None }, now));
        }
    }

    /// Whether all is sent that [`Rip::withdraw_all`] tells.
    pub fn has_left(&self) -> bool {
        self.leaving && self.links.values().all(|link| link.jobs.is_empty())
    }

    /// Whether the neighbours had time to tell their tables, with one message lost: two update intervals, and what one may be
    /// longer, are over since there is an interface; or there is none.
    pub fn is_synchronised(&self, now: Instant) -> bool {
        self.synchronised().is_none_or(|at| now >= at)
    }

    fn synchronised(&self) -> Option<Instant> {
        self.active.map(|active| active + 2 * self.settings.update + self.settings.jitter())
    }

    /// What has changed since it was asked the last time. Several changes of one destination are one.
    pub fn poll_event(&mut self) -> Option<Event<P>> {
        if std::mem::take(&mut self.excess.news) {
            return Some(Event::TableFull);
        }
        let (prefix, learned) = self.table.pop_news()?;
        Some(learned.map_or(Event::Gone { prefix }, |learned| Event::Route {
            prefix,
            next_hop: learned.next_hop,
            interface: learned.interface,
            metric: learned.metric,
            tag: learned.tag,
            neighbour: learned.router,
        }))
    }
}
