//! Who is let in, as configured: the numbers of admission, and whose addresses are known.

use std::rc::Rc;

use holdfast_admission::{Numbers, PrefixTable, Pressure, Rate, RetryPolicy};
use holdfast_api::transport::v1 as api;
use holdfast_types::Prefix;

use crate::peers::Peer;

/// Lines about refusals, in a second, before anything is configured.
pub(crate) const MOST_LINES: u32 = 5;

/// How it is decided at every listener of a door.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) numbers: Numbers,
    /// Configured peers, and the sets of the configuration.
    pub(crate) known: PrefixTable,
    /// All listeners are on one processor.
    pub(crate) pressure: Rc<Pressure>,
}

impl Default for Admission {
    /// Nobody is known.
    fn default() -> Self {
        let numbers = Numbers::default();
        Self { pressure: Rc::new(Pressure::new(&numbers)), known: PrefixTable::default(), numbers }
    }
}

impl Admission {
    /// As told; what is left out has its default.
    ///
    /// # Errors
    /// A prefix that is none.
    pub(crate) fn new(told: api::Admission, peers: &[Peer]) -> Result<Self, String> {
        let coming = peers.iter().filter(|peer| peer.may_come());
        let mut known: Vec<Prefix> = coming.map(Peer::network).collect();
        for set in &told.sets {
            for prefix in &set.prefixes {
                let read = prefix.parse::<Prefix>();
                known.push(read.map_err(|_| format!("set `{}`: {prefix:?} is no prefix", set.name))?);
            }
        }
        let numbers = numbers(told);
        Ok(Self { pressure: Rc::new(Pressure::new(&numbers)), known: known.into_iter().collect(), numbers })
    }
}

fn numbers(told: api::Admission) -> Numbers {
    let default = Numbers::default();
    let or = |value: u32, default: u32| if value == 0 { default } else { value };
    let many = |value: u32, default: usize| if value == 0 { default } else { value as usize };
    let rate = |told: Option<api::Rate>, default: Rate| match told {
        Some(told) => Rate { per_second: told.per_second, burst: told.burst },
        None => default,
    };
    Numbers {
        retry: match told.retry() {
            api::Retry::Unspecified => RetryPolicy::UnderLoad,
            api::Retry::Always => RetryPolicy::Always,
            api::Retry::Never => RetryPolicy::Never,
        },
        load_handshakes: many(told.load_handshakes, default.load_handshakes),
        load_attempts: or(told.load_attempts, default.load_attempts),
        unvalidated: rate(told.unvalidated, default.unvalidated),
        by_address: rate(told.by_address, default.by_address),
        most_handshakes: many(told.most_handshakes, default.most_handshakes),
        priority_alpn: told.priority_alpn.into_iter().map(String::into_bytes).collect(),
        log_per_second: or(told.log_per_second, default.log_per_second),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_has_its_default() {
        let admission = Admission::new(api::Admission::default(), &[]).expect("fine");
        assert_eq!(admission.numbers, Numbers::default());
        let told = api::Admission {
            retry: api::Retry::Always.into(),
            by_address: Some(api::Rate { per_second: 1, burst: 2 }),
            most_handshakes: 3,
            ..api::Admission::default()
        };
        let numbers = Admission::new(told, &[]).expect("fine").numbers;
        assert_eq!(numbers.retry, RetryPolicy::Always);
        assert_eq!((numbers.by_address, numbers.most_handshakes), (Rate { per_second: 1, burst: 2 }, 3));
        assert_eq!(numbers.unvalidated, Numbers::default().unvalidated);
    }

    #[test]
    fn who_is_in_a_set_or_a_peer_is_known() {
        let peer = api::Peer { name: "a".into(), address: vec![10, 0, 0, 2], ..api::Peer::default() };
        let peer = Peer::try_from(peer).expect("fine");
        let set = |prefix: &str| api::Admission {
            sets: vec![api::PrefixSet { name: "region".into(), prefixes: vec![prefix.into()] }],
            ..api::Admission::default()
        };
        let known = Admission::new(set("192.0.2.0/24"), &[peer]).expect("fine").known;
        let is_known = |address: &str| known.contains(address.parse().expect("an address"));
        assert_eq!(["10.0.0.2", "192.0.2.9", "10.0.0.3"].map(is_known), [true, true, false]);
        let error = Admission::new(set("nowhere"), &[]).expect_err("no prefix");
        assert_eq!(error, "set `region`: \"nowhere\" is no prefix");
    }
}
