//! Routes of other protocols, as the RIB selects them and a policy lets them through.
//!
//! A RIB that is another one says everything again, and then that this is all. Each prefix is marked with the telling that
//! named it last; what a whole telling did not name is withdrawn at its end. So a route that stays is never absent.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    convert::Infallible,
    net::IpAddr,
};

use holdfast_api::{
    rib::v1::{RedistributeRequest, Redistributed as Told, RibClient},
    routes::v1::RouteBatch,
};
use holdfast_policy::{Edits, Origin, PathElement, Program, Protocol, Route, Verdict};
use holdfast_process::Boot;
use holdfast_types::{Asn, Prefix};
use holdfast_xrl::XrlError;
use tracing::info;

use crate::{Retry, client};

/// What is taken: from which protocol, under which policy.
pub type Wanted = BTreeMap<String, Program>;

/// A route of another protocol.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Redistributed {
    /// The metric, if the policy has set one (`med`).
    pub metric: Option<u32>,
    /// Its tag, or what the policy has set; 0: none.
    pub tag: u32,
}

/// What becomes of a prefix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change<'a> {
    /// It is taken, from this protocol.
    Taken(Prefix, &'a str, Redistributed),
    /// It is not any more.
    Gone(Prefix),
}

/// The prefixes that are taken.
#[derive(Debug, Default)]
pub struct Redistribution {
    /// The number of the telling that named each last.
    named: BTreeMap<Prefix, u64>,
    telling: u64,
}

impl Redistribution {
    /// Tells of what is taken, for ever. What an earlier run has told, and this one does not take, goes when the RIB has said
    /// everything; at once where nothing is wanted.
    pub async fn run(
        &mut self,
        boot: &Boot,
        wanted: &Wanted,
        mut tell: impl FnMut(Change<'_>),
    ) -> Infallible {
        let mut retry = Retry::default();
        if wanted.is_empty() {
            self.telling += 1;
            self.sweep(&mut tell);
            return std::future::pending().await;
        }
        loop {
            let error = self.follow(boot, wanted, &mut tell).await;
            retry.after("redistribution", error).await;
        }
    }

    async fn follow(&mut self, boot: &Boot, wanted: &Wanted, tell: &mut impl FnMut(Change<'_>)) -> XrlError {
        let client: RibClient = match client(boot, "rib").await {
            Ok(client) => client,
            Err(error) => return error,
        };
        self.telling += 1;
        let request = RedistributeRequest { origins: wanted.keys().cloned().collect(), afi: 0 };
        let mut messages = client.redistribute(request);
        loop {
            let message = match messages.next().await {
                Ok(Some(message)) => message,
                Ok(None) => return XrlError::unavailable("the rib ended it"),
                Err(error) => return error,
            };
            if let Err(error) = self.take(wanted, &message, tell) {
                return error;
            }
            if message.synced {
                self.sweep(tell);
                info!(
                    event = "redistribution-synced",
                    protocols = wanted.len(),
                    "the rib has said what is redistributed"
                );
            }
        }
    }

    fn take(
        &mut self,
        wanted: &Wanted,
        told: &Told,
        tell: &mut impl FnMut(Change<'_>),
    ) -> Result<(), XrlError> {
        let Some(batch) = &told.batch else { return Ok(()) };
        let origin = told.origin.as_str();
        let protocol = origin.parse();
        let protocol =
            protocol.map_err(|_| XrlError::internal(format!("the rib has routes of {origin:?}")))?;
        let mut rows = rows(batch)?.into_iter();
        for (at, &routes) in batch.runs.iter().enumerate() {
            let metric = batch.metrics.get(at).copied().unwrap_or(0);
            let policy = wanted.get(origin).filter(|_| batch.next_hops[at] != 0);
            for prefix in rows.by_ref().take(routes as usize) {
                let route = Plain::new(prefix, protocol, metric, batch.tag);
                match policy.and_then(|policy| route.under(policy)) {
                    Some(taken) => {
                        self.named.insert(prefix, self.telling);
                        tell(Change::Taken(prefix, origin, taken));
                    }
                    None => self.forget(prefix, tell),
                }
            }
        }
        Ok(())
    }

    fn forget(&mut self, prefix: Prefix, tell: &mut impl FnMut(Change<'_>)) {
        if let Entry::Occupied(named) = self.named.entry(prefix) {
            named.remove();
            tell(Change::Gone(prefix));
        }
    }

    /// Withdraws what this telling has not named.
    fn sweep(&mut self, tell: &mut impl FnMut(Change<'_>)) {
        let telling = self.telling;
        for (prefix, _) in self.named.extract_if(.., |_, named| *named != telling) {
            tell(Change::Gone(prefix));
        }
    }
}

/// The prefixes of a batch whose columns fit together.
fn rows(batch: &RouteBatch) -> Result<Vec<Prefix>, XrlError> {
    let routes: usize = batch.runs.iter().map(|&routes| routes as usize).sum();
    let width = if batch.afi == 1 { 4 } else { 16 };
    let rows = batch.addresses.chunks(width).zip(&batch.lengths);
    let prefixes: Option<Vec<Prefix>> =
        rows.map(|(octets, &length)| Prefix::new(holdfast_types::address(octets)?, length)).collect();
    let fits = batch.lengths.len() == routes && batch.next_hops.len() == batch.runs.len();
    let prefixes = prefixes.filter(|prefixes| fits && prefixes.len() == routes);
    prefixes.ok_or_else(|| XrlError::internal("the rib has sent a batch that does not fit together"))
}

/// A route as a policy sees it: it has no attributes of BGP, and its metric is its MED as well.
#[derive(Copy, Clone, Debug)]
pub struct Plain {
    prefix: Prefix,
    protocol: Protocol,
    metric: u32,
    tag: u32,
}

impl Plain {
    /// A route of this protocol; the tag 0 is none.
    pub fn new(prefix: Prefix, protocol: Protocol, metric: u32, tag: u32) -> Self {
        Self { prefix, protocol, metric, tag }
    }

    /// What a policy makes of it; `None`: it is refused.
    pub fn under(&self, policy: &Program) -> Option<Redistributed> {
        let mut edits = Edits::default();
        let verdict = policy.evaluate(self, &mut edits);
        let taken = Redistributed {
            metric: edits.med.and_then(|med| med.value(Some(self.metric))),
            tag: edits.tag.unwrap_or(self.tag),
        };
        matches!(verdict, Verdict::Accept).then_some(taken)
    }
}

impl Route for Plain {
    fn prefix(&self) -> Prefix {
        self.prefix
    }

    fn as_path(&self) -> impl Iterator<Item = PathElement> {
        std::iter::empty()
    }

    fn as_path_length(&self) -> u32 {
        0
    }

    fn origin(&self) -> Origin {
        Origin::Incomplete
    }

    fn med(&self) -> Option<u32> {
        Some(self.metric)
    }

    fn local_pref(&self) -> Option<u32> {
        None
    }

    fn next_hop(&self) -> Option<IpAddr> {
        None
    }

    fn communities(&self) -> impl Iterator<Item = u32> {
        std::iter::empty()
    }

    fn large_communities(&self) -> impl Iterator<Item = (u32, u32, u32)> {
        std::iter::empty()
    }

    fn ext_communities(&self) -> impl Iterator<Item = u64> {
        std::iter::empty()
    }

    fn peer_asn(&self) -> Option<Asn> {
        None
    }

    fn protocol(&self) -> Protocol {
        self.protocol
    }

    fn tag(&self) -> Option<u32> {
        Some(self.tag).filter(|tag| *tag != 0)
    }

    fn metric(&self) -> Option<u32> {
        Some(self.metric)
    }
}

#[cfg(test)]
mod tests {
    use holdfast_policy::{Action, Condition, Library, MedAction, Outcome, Policy, PolicySource, Term};

    use super::*;

    fn batch(prefixes: &[[u8; 4]], next_hop: u32, tag: u32) -> Told {
        let batch = RouteBatch {
            afi: 1,
            addresses: prefixes.concat(),
            lengths: vec![24; prefixes.len()],
            runs: vec![prefixes.len() as u32],
            next_hops: vec![next_hop],
            metrics: vec![5],
            tag,
            ..RouteBatch::default()
        };
        Told { batch: Some(batch), origin: "static".to_owned(), synced: false }
    }

    fn wanted() -> Wanted {
        Wanted::from([("static".to_owned(), Program::accept_all())])
    }

    fn told(redistribution: &mut Redistribution, message: &Told) -> Vec<String> {
        let mut said = Vec::new();
        let tell = &mut |change: Change<'_>| said.push(format!("{change:?}"));
        redistribution.take(&wanted(), message, tell).expect("a good batch");
        said
    }

    #[test]
    fn a_route_is_taken_and_given_up_once() {
        let mut redistribution = Redistribution::default();
        let taken = told(&mut redistribution, &batch(&[[10, 0, 0, 0]], 1, 7));
        assert_eq!(taken, ["Taken(10.0.0.0/24, \"static\", Redistributed { metric: None, tag: 7 })"]);
        let gone = batch(&[[10, 0, 0, 0]], 0, 0);
        assert_eq!(told(&mut redistribution, &gone), ["Gone(10.0.0.0/24)"]);
        assert!(told(&mut redistribution, &gone).is_empty());
    }

    #[test]
    fn what_a_whole_telling_does_not_name_goes_at_its_end() {
        let mut redistribution = Redistribution::default();
        told(&mut redistribution, &batch(&[[10, 0, 0, 0], [10, 0, 1, 0]], 1, 0));
        redistribution.telling += 1;
        told(&mut redistribution, &batch(&[[10, 0, 1, 0]], 1, 0));
        let mut gone = Vec::new();
        redistribution.sweep(&mut |change: Change<'_>| gone.push(format!("{change:?}")));
        assert_eq!(gone, ["Gone(10.0.0.0/24)"]);
    }

    #[test]
    fn a_policy_refuses_and_sets_metric_and_tag() {
        let term = Term {
            name: "tagged".to_owned(),
            from: vec![Condition::Tag(vec![7])],
            then: vec![Action::Med(MedAction::Set(3)), Action::Tag(9)],
            outcome: Outcome::Accept,
        };
        let policy = Policy { name: "some".to_owned(), first: Vec::new(), terms: vec![term], last: None };
        let source = PolicySource { policies: vec![policy], ..PolicySource::default() };
        let library = Library::compile(&source, 0).expect("compiles");
        let policy = library.get("some").expect("is there");
        let prefix = "10.0.0.0/8".parse().expect("a prefix");
        let route = Plain { prefix, protocol: Protocol::Static, metric: 5, tag: 0 };
        assert_eq!(route.under(policy), None);
        let taken = Plain { tag: 7, ..route }.under(policy);
        assert_eq!(taken, Some(Redistributed { metric: Some(3), tag: 9 }));
    }

    #[test]
    fn a_batch_that_does_not_fit_together_is_refused() {
        let mut wrong = batch(&[[10, 0, 0, 0]], 1, 0);
        if let Some(batch) = &mut wrong.batch {
            batch.lengths.push(8);
        }
        assert!(Redistribution::default().take(&wanted(), &wrong, &mut |_| {}).is_err());
    }
}
