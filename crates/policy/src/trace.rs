//! What a program did with one route, term by term, for people.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    Community, Condition, Edits, MedEdit, NextHopEdit, Policy, PolicySource, PrependAs, Program, Route,
    Verdict,
    program::{Code, Watch},
    test::View,
    write_path,
};

/// What a program did with one route.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trace {
    /// Whether the route passes.
    pub accepted: bool,
    /// What decided: `TERM`, `POLICY: TERM` in a policy that was applied, `last`, or `default`.
    pub decided_by: String,
    /// Every place that was asked, in order.
    pub places: Vec<Place>,
    /// What the route is in the end, if it is accepted: `key value`.
    pub result: Vec<String>,
}

/// A term that was asked, or what comes `first` or `last`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// The policy.
    pub policy: String,
    /// The term's name, `first` or `last`.
    pub term: String,
    /// 0 for the policy itself, more for those that it applies.
    pub depth: u32,
    /// The first condition that did not hold; `None`: the term matched.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failed: Option<Failed>,
    /// What was changed.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub changes: Vec<String>,
    /// It decided.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub decision: Option<Decision>,
}

/// A condition that did not hold.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failed {
    /// As the operator could have written it.
    pub condition: String,
    /// What the route has there.
    pub found: String,
}

/// What was decided.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// The route passes.
    Accept,
    /// It does not.
    Reject,
}

impl Program {
    /// Decides about a route as [`Program::evaluate`] does, and tells how. `source` is what the program was compiled
    /// from: it has the words.
    pub fn trace(&self, route: &impl Route, source: &PolicySource) -> Trace {
        let mut edits = Edits::default();
        let mut tracer =
            Tracer { route, source, open: Vec::new(), places: Vec::new(), before: Edits::default() };
        let verdict = self.evaluate_watched(route, &mut edits, &mut tracer);
        let decided_by = match verdict {
            Verdict::Accept => tracer.accepted_by(),
            Verdict::Reject(term) => self.term_name(term).to_owned(),
        };
        let accepted = verdict == Verdict::Accept;
        let view = View { route, edits: &edits };
        let result = if accepted { describe(&view) } else { Vec::new() };
        Trace { accepted, decided_by, places: tracer.places, result }
    }
}

struct Tracer<'a, R> {
    route: &'a R,
    source: &'a PolicySource,
    /// The policies that are running, outermost first, each with the place that it is at.
    open: Vec<Running<'a>>,
    places: Vec<Place>,
    /// What was changed before the present place.
    before: Edits,
}

struct Running<'a> {
    name: String,
    policy: Option<&'a Policy>,
    place: Option<usize>,
}

impl<R: Route> Tracer<'_, R> {
    /// The innermost place that accepted.
    fn accepted_by(&self) -> String {
        let accepted = |place: &&Place| place.decision == Some(Decision::Accept);
        match self.places.iter().rev().filter(accepted).max_by_key(|place| place.depth) {
            Some(Place { depth: 0, term, .. }) => term.clone(),
            Some(Place { policy, term, .. }) => format!("{policy}: {term}"),
            None => String::new(),
        }
    }

    fn enter(&mut self, term: &str, failed: Option<Failed>) {
        let depth = self.open.len().saturating_sub(1) as u32;
        let Some(running) = self.open.last_mut() else { return };
        running.place = Some(self.places.len());
        self.places.push(Place {
            policy: running.name.clone(),
            term: term.to_owned(),
            depth,
            failed,
            changes: Vec::new(),
            decision: None,
        });
    }
}

impl<R: Route> Watch for Tracer<'_, R> {
    fn begin(&mut self, code: &Code) {
        let policy = self.source.policies.iter().find(|policy| policy.name == code.name);
        self.open.push(Running { name: code.name.clone(), policy, place: None });
        if policy.is_some_and(|policy| !policy.first.is_empty()) {
            self.enter("first", None);
        }
    }

    fn asked(&mut self, term: usize, failed: Option<usize>, edits: &Edits) {
        let policy = self.open.last().and_then(|running| running.policy);
        let term = policy.and_then(|policy| policy.terms.get(term));
        let view = View { route: self.route, edits };
        let failed = failed.map(|at| match term.and_then(|term| term.from.get(at)) {
            Some(condition) => Failed { condition: condition.to_string(), found: found(condition, &view) },
            None => Failed { condition: String::new(), found: String::new() },
        });
        let name = match (term, self.open.last()) {
            (Some(term), _) => term.name.clone(),
            // A built-in policy has one term of its own name.
            (None, Some(running)) => running.name.clone(),
            (None, None) => String::new(),
        };
        self.enter(&name, failed);
    }

    fn last(&mut self) {
        self.enter("last", None);
    }

    fn changed(&mut self, edits: &Edits) {
        let place = self.open.last().and_then(|running| running.place);
        if let Some(place) = place.and_then(|at| self.places.get_mut(at)) {
            let (before, after) =
                (View { route: self.route, edits: &self.before }, View { route: self.route, edits });
            place.changes.extend(differences(&before, &after));
        }
        self.before.clone_from(edits);
    }

    fn end(&mut self, verdict: Option<Verdict>) {
        let Some(running) = self.open.pop() else { return };
        let decision = match verdict {
            None => return,
            Some(Verdict::Accept) => Decision::Accept,
            Some(Verdict::Reject(_)) => Decision::Reject,
        };
        if let Some(place) = running.place.and_then(|at| self.places.get_mut(at)) {
            place.decision = Some(decision);
        }
    }
}

/// What a route is that passes: all that a policy can change and that it has.
fn describe<R: Route>(view: &View<'_, R>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line =
        |key: &str, value: Option<String>| lines.extend(value.map(|value| format!("{key} {value}")));
    let edits = view.edits;
    line("local-preference", view.local_pref().map(|value| value.to_string()));
    line("weight", edits.weight.map(|value| value.to_string()));
    line("med", med(view));
    line("origin", Some(view.origin().to_string()));
    line("as-path", Some(path(view)).filter(|path| !path.is_empty()));
    line("prepend", prepend(edits));
    line("communities", Some(communities(view).join(" ")).filter(|list| !list.is_empty()));
    line("next-hop", next_hop(view));
    line("tag", view.tag().map(|value| value.to_string()));
    lines
}

/// What one place has changed.
fn differences<R: Route>(before: &View<'_, R>, after: &View<'_, R>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = |key: &str, old: Option<String>, new: Option<String>| {
        if old != new {
            lines.push(format!("{key} {}", new.as_deref().unwrap_or("removed")));
        }
    };
    let text = |value: Option<u32>| value.map(|value| value.to_string());
    line("local-preference", text(before.local_pref()), text(after.local_pref()));
    line("weight", text(before.edits.weight), text(after.edits.weight));
    line("med", med(before), med(after));
    line("origin", Some(before.origin().to_string()), Some(after.origin().to_string()));
    line("prepend", prepend(before.edits), prepend(after.edits));
    line("next-hop", next_hop(before), next_hop(after));
    line("tag", text(before.tag()), text(after.tag()));
    let (old, new) = (communities(before), communities(after));
    let gone = old.iter().filter(|one| !new.contains(one)).map(|one| format!("-{one}"));
    let come = new.iter().filter(|one| !old.contains(one)).map(|one| format!("+{one}"));
    let changed: Vec<_> = gone.chain(come).collect();
    if !changed.is_empty() {
        lines.push(format!("communities {}", changed.join(" ")));
    }
    lines
}

fn med<R: Route>(view: &View<'_, R>) -> Option<String> {
    match view.edits.med {
        Some(MedEdit::Metric(0)) => Some("metric to the next hop".to_owned()),
        Some(MedEdit::Metric(offset)) => Some(format!("metric to the next hop {offset:+}")),
        _ => view.med().map(|value| value.to_string()),
    }
}

fn prepend(edits: &Edits) -> Option<String> {
    let prepend = edits.prepend?;
    let asn = match prepend.asn {
        PrependAs::Own => "our own AS".to_owned(),
        PrependAs::Last => "the nearest AS".to_owned(),
        PrependAs::Asn(asn) => asn.to_string(),
    };
    Some(format!("{asn} {} times", prepend.count))
}

fn next_hop<R: Route>(view: &View<'_, R>) -> Option<String> {
    match view.edits.next_hop {
        Some(NextHopEdit::SelfAddress) => Some("self".to_owned()),
        _ => view.next_hop().map(|address| address.to_string()),
    }
}

fn path<R: Route>(view: &View<'_, R>) -> String {
    let mut text = String::new();
    // Writing to a text does not fail.
    let _ = write_path(view.route.as_path(), &mut text);
    text
}

fn communities<R: Route>(view: &View<'_, R>) -> Vec<String> {
    let standard = view.communities().map(Community::Standard);
    let large = view.large_communities().map(|(a, b, c)| Community::Large(a, b, c));
    let extended = view.ext_communities().map(Community::Extended);
    standard.chain(large).chain(extended).map(|community| community.to_string()).collect()
}

/// What the route has where a condition looks.
fn found<R: Route>(condition: &Condition, view: &View<'_, R>) -> String {
    let route = view.route;
    let or_none = |value: Option<String>| value.unwrap_or_else(|| "none".to_owned());
    match condition {
        Condition::PrefixSet(_) | Condition::Prefix(_) => route.prefix().to_string(),
        Condition::PrefixLength(_) => route.prefix().length().to_string(),
        Condition::CommunitySet(_) | Condition::Community(_) | Condition::CommunityRegex(_) => {
            or_none(Some(communities(view).join(" ")).filter(|list| !list.is_empty()))
        }
        Condition::AsPathSet(_)
        | Condition::AsPath(_)
        | Condition::AsPathRegex(_)
        | Condition::NeighborAs(_)
        | Condition::OriginAs(_) => or_none(Some(path(view)).filter(|path| !path.is_empty())),
        Condition::AsPathLength(_) => route.as_path_length().to_string(),
        Condition::PeerAs(_) => or_none(route.peer_asn().map(|asn| asn.to_string())),
        Condition::Origin(_) => view.origin().to_string(),
        Condition::LocalPreference(_) => or_none(view.local_pref().map(|value| value.to_string())),
        Condition::Med(_) => or_none(med(view)),
        Condition::NextHop(_) => or_none(next_hop(view)),
        Condition::Protocol(_) => route.protocol().to_string(),
        Condition::Tag(_) => or_none(view.tag().map(|value| value.to_string())),
        Condition::Interface(_) => or_none(route.interface().map(str::to_owned)),
        Condition::Metric(_) => or_none(route.metric().map(|value| value.to_string())),
        Condition::Validity(_) => route.validity().to_string(),
        Condition::Aspa(_) => route.aspa().to_string(),
        Condition::Bgpsec(_) => route.bgpsec().to_string(),
        Condition::Policy(_) => "no policy accepts it".to_owned(),
        Condition::Not(_) => "all of these hold".to_owned(),
    }
}

/// As the operator could have written it; of a list of more than a few entries the first.
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PrefixSet(names) => list(f, "prefix-set", names),
            Self::Prefix(ranges) => list(f, "prefix", ranges),
            Self::PrefixLength(range) => bounds(f, "prefix-length", range.start(), range.end()),
            Self::CommunitySet(names) => list(f, "community-set", names),
            Self::Community(patterns) => list(f, "community", patterns),
            Self::CommunityRegex(regexes) => list(f, "community-regex", regexes),
            Self::AsPathSet(names) => list(f, "as-path-set", names),
            Self::AsPath(patterns) => list(f, "as-path", patterns),
            Self::AsPathRegex(regexes) => list(f, "as-path-regex", regexes),
            Self::AsPathLength(range) => bounds(f, "as-path-length", range.start(), range.end()),
            Self::NeighborAs(ranges) => list(f, "neighbor-as", ranges),
            Self::OriginAs(ranges) => list(f, "origin-as", ranges),
            Self::PeerAs(ranges) => list(f, "peer-as", ranges),
            Self::Origin(origins) => list(f, "origin", origins),
            Self::LocalPreference(range) => bounds(f, "local-preference", range.start(), range.end()),
            Self::Med(range) => bounds(f, "med", range.start(), range.end()),
            Self::NextHop(ranges) => {
                list(f, "next-hop", &ranges.iter().map(|range| range.prefix()).collect::<Vec<_>>())
            }
            Self::Protocol(protocols) => list(f, "protocol", protocols),
            Self::Tag(tags) => list(f, "tag", tags),
            Self::Interface(names) => list(f, "interface", names),
            Self::Metric(range) => bounds(f, "metric", range.start(), range.end()),
            Self::Validity(states) => list(f, "validity", states),
            Self::Aspa(states) => list(f, "aspa", states),
            Self::Bgpsec(states) => list(f, "bgpsec", states),
            Self::Policy(names) => list(f, "policy", names),
            Self::Not(conditions) => {
                f.write_str("unless { ")?;
                for (at, condition) in conditions.iter().enumerate() {
                    f.write_str(if at > 0 { ", " } else { "" })?;
                    condition.fmt(f)?;
                }
                f.write_str(" }")
            }
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, key: &str, entries: &[impl fmt::Display]) -> fmt::Result {
    /// More would not be read.
    const SHOWN: usize = 4;
    write!(f, "{key} = [")?;
    for (at, entry) in entries.iter().take(SHOWN).enumerate() {
        write!(f, "{}\"{entry}\"", if at > 0 { ", " } else { "" })?;
    }
    f.write_str(if entries.len() > SHOWN { ", …]" } else { "]" })
}

fn bounds<T: PartialEq + fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    key: &str,
    min: &T,
    max: &T,
) -> fmt::Result {
    match min == max {
        true => write!(f, "{key} = {min}"),
        false => write!(f, "{key} = {{ min = {min}, max = {max} }}"),
    }
}
