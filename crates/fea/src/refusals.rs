//! What a reader of the refusals has been told, and what it is told next.
//!
//! A reader is told differences between what holds now and what it knows. So whatever changes back and forth while it does
//! not read costs nothing, and one that never reads holds nothing up.

use std::{collections::BTreeMap, time::Duration};

use holdfast_api::fea::v1::RefusalEvent;
use holdfast_fib::{Handle, Reason, Refused};
use holdfast_types::Prefix;

/// Entries in one message.
const MOST: usize = 4096;
/// Pause between two looks: what changes meanwhile is told together.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// What a reader knows. Bounded as [`Refused`] is.
#[derive(Debug, Default)]
pub(crate) struct Known {
    handles: BTreeMap<Handle, Reason>,
    routes: BTreeMap<Prefix, Reason>,
    is_incomplete: bool,
}

impl Known {
    /// The messages that tell it what holds now; it is taken to know that then. None: it knows.
    pub(crate) fn news(&mut self, now: Refused) -> Vec<RefusalEvent> {
        let is_incomplete = now.is_incomplete();
        let mut news = News { messages: Vec::new(), rows: MOST, is_incomplete };
        for handle in self.handles.keys().filter(|handle| !now.handles().contains_key(handle)) {
            news.message().next_hops_over.push(handle.0);
        }
        for (handle, reason) in now.handles().iter().filter(|(it, why)| self.handles.get(it) != Some(why)) {
            let message = news.message();
            message.next_hops.push(handle.0);
            message.next_hop_reasons.push(reason.to_string());
        }
        for prefix in self.routes.keys().filter(|prefix| !now.routes().contains_key(prefix)) {
            news.message().routes_over.push(prefix.to_string());
        }
        for (prefix, reason) in now.routes().iter().filter(|(it, why)| self.routes.get(it) != Some(why)) {
            let message = news.message();
            message.routes.push(prefix.to_string());
            message.route_reasons.push(reason.to_string());
        }
        if news.messages.is_empty() && is_incomplete != self.is_incomplete {
            news.message();
        }
        let (handles, routes) = now.into_parts();
        *self = Self { handles, routes, is_incomplete };
        news.messages
    }
}

struct News {
    messages: Vec<RefusalEvent>,
    /// In the last of the messages.
    rows: usize,
    is_incomplete: bool,
}

impl News {
    /// One with room for a row more.
    fn message(&mut self) -> &mut RefusalEvent {
        if self.rows == MOST {
            self.messages.push(RefusalEvent { incomplete: self.is_incomplete, ..RefusalEvent::default() });
            self.rows = 0;
        }
        self.rows += 1;
        let last = self.messages.len() - 1;
        &mut self.messages[last]
    }
}

#[cfg(test)]
mod tests {
    use holdfast_fib::REFUSED_KEPT;
    use holdfast_types::{IpPrefix, Ipv4Prefix};

    use super::*;

    fn prefix(number: usize) -> Prefix {
        Prefix::V4(Ipv4Prefix::from_bits((number as u128) << 104, 24))
    }

    #[test]
    fn a_reader_is_told_differences_and_nothing_of_what_changed_back() {
        let (mut known, mut now) = (Known::default(), Refused::default());
        assert_eq!(known.news(now.clone()), []);
        now.refuse(prefix(1), "no");
        now.set_handle(Handle(7), Some("down"));
        let all = RefusalEvent {
            next_hops: vec![7],
            next_hop_reasons: vec!["down".to_owned()],
            routes: vec![prefix(1).to_string()],
            route_reasons: vec!["no".to_owned()],
            ..RefusalEvent::default()
        };
        assert_eq!(known.news(now.clone()), [all]);
        now.clear();
        now.refuse(prefix(1), "no");
        now.refuse(prefix(2), "no");
        now.settle(prefix(2));
        let over = RefusalEvent { next_hops_over: vec![7], ..RefusalEvent::default() };
        assert_eq!(known.news(now.clone()), [over]);
        now.refuse(prefix(1), "never");
        let other = RefusalEvent {
            routes: vec![prefix(1).to_string()],
            route_reasons: vec!["never".to_owned()],
            ..RefusalEvent::default()
        };
        assert_eq!(known.news(now), [other], "for another reason");
        let over = RefusalEvent { routes_over: vec![prefix(1).to_string()], ..RefusalEvent::default() };
        assert_eq!(known.news(Refused::default()), [over]);
    }

    #[test]
    fn many_are_told_in_several_messages_and_that_more_are_not_remembered() {
        let (mut known, mut now) = (Known::default(), Refused::default());
        (0..REFUSED_KEPT).for_each(|number| now.refuse(prefix(number), "no"));
        let rows: Vec<_> =
            known.news(now.clone()).iter().map(|it| (it.routes.len(), it.incomplete)).collect();
        assert_eq!(rows, [(MOST, false); REFUSED_KEPT / MOST]);
        now.refuse(prefix(REFUSED_KEPT), "no");
        let more = RefusalEvent { incomplete: true, ..RefusalEvent::default() };
        assert_eq!(known.news(now), [more]);
    }
}
