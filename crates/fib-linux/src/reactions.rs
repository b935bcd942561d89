//! What follows from what other programs do.

use std::{io, time::Instant};

use holdfast_fib::Interference;
use holdfast_types::Prefix;

use crate::{
    LinuxFib,
    fights::{Loss, Verdict},
    message::{Message, flag, kind},
    mirror::State,
    nexthop::{self, Object},
    route::{self, PROTOCOL, Route},
    watch::Read,
};

/// Datagrams that are read in one go.
const DATAGRAMS: usize = 512;
/// Strays that wait to be deleted. More are found by the next comparison.
const MOST_STRAYS: usize = 4096;

/// A change that another program has made.
#[derive(Clone, Debug)]
struct Change {
    port: u32,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Put { route: Route, replaces: bool },
    Removed(Route),
    NextHop { object: Object, removed: bool },
}

fn read(message: &Message<'_>) -> Option<Change> {
    let body = message.body;
    let kind = match message.kind {
        kind::NEW_ROUTE => {
            Kind::Put { route: route::read(body)?, replaces: message.flags & flag::REPLACE != 0 }
        }
        kind::DEL_ROUTE => Kind::Removed(route::read(body)?),
        kind::NEW_NEXTHOP => Kind::NextHop { object: nexthop::read(body), removed: false },
        kind::DEL_NEXTHOP => Kind::NextHop { object: nexthop::read(body), removed: true },
        _ => return None,
    };
    Some(Change { port: message.port, kind })
}

impl LinuxFib {
    /// Reads some of what others have done; whether there may be more.
    pub(crate) fn hear_some(&mut self, now: Instant) -> io::Result<bool> {
        let mut changes = Vec::new();
        let mut more = true;
        for _ in 0..DATAGRAMS {
            match self.watch.read(|message| changes.extend(read(&message)))? {
                Read::Notices => {}
                Read::Nothing => {
                    more = false;
                    break;
                }
                Read::Overrun => {
                    self.report.repairs.overruns += 1;
                    (self.table_doubtful, self.objects_doubtful) = (true, true);
                }
            }
        }
        for Change { port, kind } in changes {
            let what = match kind {
                Kind::Put { route, replaces } => self.on_put(route, replaces, now),
                Kind::Removed(route) => self.on_removed(route, now),
                Kind::NextHop { object, removed } => self.on_next_hop(&object, removed),
            };
            if let Some(what) = what {
                self.report.interference = Some(Interference { port, what });
            }
        }
        self.resume(now);
        Ok(more)
    }

    /// A route that another program has put there: how it is called, if it concerns one of ours.
    fn on_put(&mut self, route: Route, replaces: bool, now: Instant) -> Option<String> {
        let (prefix, is_ours) = (route.prefix, route.protocol == PROTOCOL);
        if route.priority != self.ours.metric {
            return is_ours.then(|| self.on_stray(prefix, route.priority)).flatten();
        }
        if replaces && let Some(sync) = &mut self.sync {
            sync.leftover.take(prefix);
        }
        let Some(entry) = self.mirror.get(prefix) else {
            return is_ours.then(|| self.on_stray(prefix, route.priority)).flatten();
        };
        let is_as_wanted = self.mirror.tally.slots.target(entry.slot) == Some(route.target);
        let is_lost = if is_ours { !is_as_wanted } else { replaces };
        (is_lost && entry.state.is_present()).then(|| self.on_loss(prefix, Loss::Replaced, now))
    }

    fn on_stray(&mut self, prefix: Prefix, metric: u32) -> Option<String> {
        // A sync finds it, or names it.
        if self.sync.is_some() || self.strays.len() == MOST_STRAYS {
            return None;
        }
        self.strays.push((prefix, metric));
        Some(prefix.to_string())
    }

    fn on_removed(&mut self, route: Route, now: Instant) -> Option<String> {
        let (prefix, is_ours) = (route.prefix, route.protocol == PROTOCOL);
        if route.priority != self.ours.metric {
            return None;
        }
        if is_ours && let Some(sync) = &mut self.sync {
            sync.leftover.take(prefix);
        }
        match self.mirror.get(prefix)?.state {
            State::Installed | State::Outdated if is_ours => Some(self.on_loss(prefix, Loss::Removed, now)),
            State::Taken | State::Overwritten if !is_ours => {
                // The place is free.
                self.mirror.set_state(prefix, State::Missing);
                self.unsettled.push(prefix);
                None
            }
            _ => None,
        }
    }

    /// A route of ours is gone, or another one is in its place.
    fn on_loss(&mut self, prefix: Prefix, loss: Loss, now: Instant) -> String {
        let repairs = &mut self.report.repairs;
        match self.fights.repair(prefix, loss, now) {
            Verdict::Now => {
                match loss {
                    Loss::Removed => repairs.removed += 1,
                    Loss::Replaced => repairs.replaced += 1,
                }
                self.mark(prefix, loss);
            }
            Verdict::Pause { begins } => {
                if begins {
                    repairs.pauses += 1;
                    self.report.contested = Some(prefix);
                }
                self.mirror.set_state(prefix, State::Contested);
                let reason =
                    "other programs remove or replace the route again and again: written again later";
                self.report.refuse_route(prefix, reason.to_owned());
            }
        }
        prefix.to_string()
    }

    /// The route is to be written again.
    fn mark(&mut self, prefix: Prefix, loss: Loss) {
        let state = match loss {
            Loss::Removed => State::Missing,
            Loss::Replaced => State::Overwritten,
        };
        self.mirror.set_state(prefix, state);
        self.unsettled.push(prefix);
    }

    fn on_next_hop(&mut self, object: &Object, removed: bool) -> Option<String> {
        if !self.objects.is_ours(object) {
            return None;
        }
        self.objects_doubtful = true;
        // Routes that are not of the group as we know it went without a word.
        self.table_doubtful |= removed;
        Some(match object {
            Object::Exit(id, _) | Object::Group(id, _) => format!("next hop {id}"),
        })
    }

    /// Routes whose pause is over are written again.
    fn resume(&mut self, now: Instant) {
        let due = self.fights.take_due(now);
        for (prefix, loss) in due.routes {
            if self.mirror.get(prefix).is_some_and(|entry| entry.state == State::Contested) {
                self.mark(prefix, loss);
            }
        }
        if due.others {
            self.unsettled.resume_others();
        }
    }
}
