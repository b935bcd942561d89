//! Policies at work: what they make of routes that are there, and how far a change of them has come.

use holdfast_policy::{PolicySource, Program, Trace};
use holdfast_types::Prefix;

use crate::{
    PeerIndex, Pipeline,
    path::{Path, SetId},
};

/// Which of a peer's policies.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// What is learned from it.
    Import,
    /// What it is told.
    Export,
}

/// How much of the tables a walk has behind it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Prefixes done.
    pub done: u64,
    /// Prefixes there are.
    pub total: u64,
}

impl Progress {
    /// 0 to 99: a walk at its end is none any more.
    pub fn percent(self) -> u32 {
        (100 * self.done).checked_div(self.total).map_or(0, |percent| percent.min(99) as u32)
    }
}

impl Pipeline {
    /// What a policy makes of the routes to a prefix as they were received, from one peer or from all. `source` is
    /// what the policy was compiled from.
    pub fn trace_import(
        &mut self,
        prefix: Prefix,
        from: Option<PeerIndex>,
        program: &Program,
        source: &PolicySource,
    ) -> Vec<(Option<PeerIndex>, Trace)> {
        let core = &self.core;
        let wanted = |path: &Path| {
            let sender = core.sources.get(path.source);
            sender.counts() && (from.is_none() || sender.peer == from)
        };
        let trace = |path: Path| {
            let route = core.route(prefix, path.set);
            (core.sources.get(path.source).peer, program.trace(&route, source))
        };
        self.paths(prefix).into_iter().filter(wanted).map(trace).collect()
    }

    /// What a policy makes of the best route to a prefix, on its way to a peer, and where that route came from. `None`
    /// if there is no such route.
    pub fn trace_export(
        &mut self,
        prefix: Prefix,
        to: PeerIndex,
        program: &Program,
        source: &PolicySource,
    ) -> Option<(Option<PeerIndex>, Trace)> {
        let best = self.paths(prefix).into_iter().find(|path| path.is_best())?;
        let receiver = self.peer(to)?.asn;
        let set: SetId = self.core.imported(prefix, best)?;
        let route = self.core.route(prefix, set).to(receiver);
        Some((self.core.sources.get(best.source).peer, program.trace(&route, source)))
    }

    fn paths(&self, prefix: Prefix) -> Vec<Path> {
        match prefix {
            Prefix::V4(prefix) => self.v4.rib.paths(prefix),
            Prefix::V6(prefix) => self.v6.rib.paths(prefix),
        }
    }

    /// How far a change of the peer's policy has come; `None` if none is under way.
    pub fn policy_progress(&self, peer: PeerIndex, direction: Direction) -> Option<Progress> {
        let prefixes = [self.v4.rib.table.len(), self.v6.rib.table.len()];
        let total = prefixes.iter().sum::<usize>() as u64;
        let done = match direction {
            Direction::Import => self.import_walked(peer)?,
            Direction::Export => {
                let member = self.members.get(peer.index())?.as_ref()?;
                self.streams.policy_walked(member, prefixes)?
            }
        };
        Some(Progress { done: done.min(total), total })
    }

    fn import_walked(&self, peer: PeerIndex) -> Option<u64> {
        let moving = self.core.sources.get(self.session(peer)?.source).moving;
        if moving <= self.background.ended() {
            return None;
        }
        // Still waiting for the walk before to end.
        Some(if moving > self.core.walk { 0 } else { self.background.walked() })
    }
}
