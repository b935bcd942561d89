//! What a sync knows of the routes that were in the kernel before it.

use std::{collections::HashMap, io};

use holdfast_types::{Afi, Ipv4Prefix, Ipv6Prefix, Prefix};

use crate::{
    message::kind,
    request::{Dumped, Requests},
    route::{self, Ownership, Route, Target},
};

/// How often a family is dumped anew when its table changed meanwhile. What a dump has missed then is
/// written once more or left until the next sync.
const ATTEMPTS: u32 = 4;

/// Routes of ours found in the kernel that the sync has not named yet: the only time that routes are held
/// here. About 35 octets for an IPv4 route.
pub(crate) struct Leftover {
    /// Our metric.
    metric: u32,
    ipv4: HashMap<Ipv4Prefix, Target>,
    ipv6: HashMap<Ipv6Prefix, Target>,
    /// With another metric than ours, from another version of this program.
    strays: Vec<(Prefix, u32)>,
}

impl Leftover {
    /// None yet; routes of ours with another metric are strays.
    pub(crate) fn new(metric: u32) -> Self {
        Self { metric, ipv4: HashMap::new(), ipv6: HashMap::new(), strays: Vec::new() }
    }

    fn insert(&mut self, route: Route) {
        if route.priority != self.metric {
            self.strays.push((route.prefix, route.priority));
            return;
        }
        match route.prefix {
            Prefix::V4(prefix) => drop(self.ipv4.insert(prefix, route.target)),
            Prefix::V6(prefix) => drop(self.ipv6.insert(prefix, route.target)),
        }
    }

    /// The sync has named the route: where it led before.
    pub(crate) fn take(&mut self, prefix: Prefix) -> Option<Target> {
        match prefix {
            Prefix::V4(prefix) => self.ipv4.remove(&prefix),
            Prefix::V6(prefix) => self.ipv6.remove(&prefix),
        }
    }

    /// Takes up to `most` routes out, as (prefix, metric).
    pub(crate) fn take_some(&mut self, most: usize) -> Vec<(Prefix, u32)> {
        let mut some = self.strays.split_off(self.strays.len().saturating_sub(most));
        let metric = self.metric;
        let ipv4 = self.ipv4.extract_if(|_, _| true).map(|(prefix, _)| (Prefix::V4(prefix), metric));
        some.extend(ipv4.take(most - some.len()));
        let ipv6 = self.ipv6.extract_if(|_, _| true).map(|(prefix, _)| (Prefix::V6(prefix), metric));
        some.extend(ipv6.take(most - some.len()));
        some
    }

    pub(crate) fn len(&self) -> usize {
        self.strays.len() + self.ipv4.len() + self.ipv6.len()
    }

    fn forget(&mut self, afi: Afi) {
        self.strays.retain(|(prefix, _)| prefix.afi() != afi);
        match afi {
            Afi::IPV4 => self.ipv4.clear(),
            _ => self.ipv6.clear(),
        }
    }
}

/// Reads the routes of ours in one table from the kernel in slices, on a socket of its own.
pub(crate) struct RouteDump {
    requests: Requests,
    ours: Ownership,
    afi: Afi,
    attempts: u32,
    interrupted: bool,
}

/// What a part of a dump was.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// There is more of the family.
    More,
    /// The last part of a family. Interrupted: the table changed meanwhile, and routes that were there all the time may be
    /// missing.
    Last { interrupted: bool },
}

impl RouteDump {
    /// Of ours; nothing is read yet.
    pub(crate) fn new(requests: Requests, ours: Ownership) -> Self {
        Self { requests, ours, afi: Afi::IPV4, attempts: 0, interrupted: false }
    }

    /// Reads from the beginning from now on.
    pub(crate) fn begin(&mut self) -> io::Result<()> {
        self.attempts = 0;
        self.begin_family(Afi::IPV4)
    }

    /// Reads the routes of this family from now on.
    pub(crate) fn begin_family(&mut self, afi: Afi) -> io::Result<()> {
        (self.afi, self.interrupted) = (afi, false);
        self.requests.dump(kind::GET_ROUTE, &route::dump_header(afi, self.ours.table))
    }

    /// Reads a part, about 500 routes.
    pub(crate) fn read(&mut self, mut each: impl FnMut(Route)) -> io::Result<Part> {
        let table = self.ours.table;
        let dumped = self.requests.dumped(|message| {
            route::parse(message).filter(|route| route.table == table).into_iter().for_each(&mut each);
        })?;
        let interrupted = matches!(dumped, Dumped::Interrupted | Dumped::DoneInterrupted);
        self.interrupted |= interrupted;
        Ok(match dumped {
            Dumped::More | Dumped::Interrupted => Part::More,
            Dumped::Done | Dumped::DoneInterrupted => Part::Last { interrupted: self.interrupted },
        })
    }

    /// Reads about `budget` routes, at least one part; whether there is more.
    pub(crate) fn work(&mut self, leftover: &mut Leftover, budget: usize) -> io::Result<bool> {
        let mut seen = 0;
        while seen < budget.max(1) {
            let part = self.read(|route| {
                seen += 1;
                leftover.insert(route);
            })?;
            match part {
                // A part may be of routes in other tables only.
                Part::More => seen += 1,
                Part::Last { interrupted: false } => return self.next_family(),
                Part::Last { interrupted: true } => return self.again(leftover),
            }
        }
        Ok(true)
    }

    fn next_family(&mut self) -> io::Result<bool> {
        if self.afi == Afi::IPV6 {
            return Ok(false);
        }
        self.attempts = 0;
        self.begin_family(Afi::IPV6)?;
        Ok(true)
    }

    fn again(&mut self, leftover: &mut Leftover) -> io::Result<bool> {
        self.attempts += 1;
        if self.attempts >= ATTEMPTS {
            return self.next_family();
        }
        leftover.forget(self.afi);
        self.begin_family(self.afi)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use holdfast_fib::TableId;

    use super::*;
    use crate::route::{METRIC, PROTOCOL};

    fn route(text: &str, priority: u32) -> Route {
        let prefix = text.parse().expect("prefix");
        Route { table: TableId::MAIN, protocol: PROTOCOL, prefix, priority, target: Target::Group(1) }
    }

    #[test]
    fn what_is_taken_is_not_left_over() {
        let mut leftover = Leftover::new(METRIC);
        for text in ["10.0.0.0/8", "11.0.0.0/8", "2001:db8::/32"] {
            leftover.insert(route(text, METRIC));
        }
        let ten = "10.0.0.0/8".parse().expect("prefix");
        assert_eq!(leftover.take(ten), Some(Target::Group(1)));
        assert_eq!(leftover.take(ten), None);
        assert_eq!(leftover.len(), 2);
    }

    #[test]
    fn everything_comes_out_in_portions_once() {
        let mut leftover = Leftover::new(METRIC);
        for third in 0..100 {
            leftover.insert(route(&format!("10.0.{third}.0/24"), METRIC));
            leftover.insert(route(&format!("2001:db8:{third}::/48"), METRIC + third % 2));
        }
        let mut all = Vec::new();
        while leftover.len() > 0 {
            let some = leftover.take_some(7);
            assert!(!some.is_empty() && some.len() <= 7);
            all.extend(some);
        }
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 200);
    }
}
