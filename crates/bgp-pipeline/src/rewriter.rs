//! The slots for stages that rewrite: where they sit, what they are asked, and what they may answer.
//!
//! A [`Rewriter`] is asked about an attribute set, not about each route with it: once in a slot, and before export once for
//! each kind of receiver. Its answer stays with the set until no route, and no reader of the change log, has that any more.
//! So whatever a rewriter makes of a set, the withdrawal of a route is of what was passed on, also if the rewriter would say
//! something else by now.
//!
//! ```text
//! peer ─> BeforeImport ─> import policy ─> AfterImport ─> stages that hold back ─> decision ─┬─> BeforeExport ─> export policy
//!                                                                                            └─> BeforeRib ─> RIB policy
//! ```

use std::{borrow::Cow, collections::VecDeque, fmt, net::IpAddr};

use holdfast_bgp_wire::{
    Attributes,
    attribute::code,
    update::{self, AsSets, Checked, PeerKind as WireKind, Rules, Verdict},
};
use holdfast_types::Asn;

use crate::{
    PeerKind,
    secure_path::{insert_secure_path, starts_inside},
};

/// Answers that were no attributes and wait to be reported; further ones are not reported one by one.
const MOST_FAULTS: usize = 64;

/// Where a stage that rewrites sits.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Slot {
    /// Between a peer and import policy: what it makes of a set counts as received.
    BeforeImport,
    /// Between import policy and decision; for routes of peers.
    AfterImport,
    /// Between decision and export policy, for each kind of receiver.
    BeforeExport,
    /// Between decision and the RIB's policy.
    BeforeRib,
}

impl Slot {
    /// All of them, upstream first.
    pub const ALL: [Self; 4] = [Self::BeforeImport, Self::AfterImport, Self::BeforeExport, Self::BeforeRib];

    fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BeforeImport => "before-import",
            Self::AfterImport => "after-import",
            Self::BeforeExport => "before-export",
            Self::BeforeRib => "before-rib",
        })
    }
}

/// To whom routes go; all peers that are alike in this share an answer.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Receiver {
    /// Their AS.
    pub asn: Asn,
    /// Where they are.
    pub kind: PeerKind,
}

/// A set of attributes on its way through a slot.
#[derive(Copy, Clone, Debug)]
pub struct Offered<'a> {
    /// Which.
    pub slot: Slot,
    /// The sender's AS, up to [`Slot::AfterImport`].
    pub sender: Option<Asn>,
    /// [`Slot::BeforeExport`]: to whom.
    pub receiver: Option<Receiver>,
    /// In canonical form. NEXT_HOP is among them only where the sender put it there, and does not say more than `next_hop`.
    pub attributes: Attributes<'a>,
    /// Where packets go; `None` for routes of our own.
    pub next_hop: Option<IpAddr>,
    /// The tag carried between protocols; 0 is none.
    pub tag: u32,
}

/// Another set in the place of the offered one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Replacement {
    /// All attributes. [`holdfast_bgp_wire::edit::rewrite`] makes them of the offered ones.
    pub attributes: Vec<u8>,
    /// Another next hop; not before import.
    pub next_hop: Option<IpAddr>,
    /// Another tag; not before import.
    pub tag: Option<u32>,
}

/// What a stage makes of a set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It passes as it is.
    Unchanged,
    /// This one passes.
    Replaced(Replacement),
    /// No route with it passes.
    Refused,
}

/// A stage that rewrites.
pub trait Rewriter: fmt::Debug {
    /// What it is called where the operator is told of it: the name of its type, unless it has another.
    fn name(&self) -> &'static str {
        let path = std::any::type_name::<Self>();
        path.rsplit("::").next().unwrap_or(path)
    }

    /// Asked once for a set (and receiver): the answer holds as long as the set is in use.
    fn rewrite(&mut self, set: &Offered<'_>) -> Answer;

    /// What it is and does, for the operator.
    fn describe(&self) -> String;
}

/// A stage has answered with what cannot be a route's attributes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct BadAnswer {
    pub(crate) stage: &'static str,
    pub(crate) slot: Slot,
}

/// What all stages of a slot together make of a set.
#[derive(Debug)]
pub(crate) enum Made {
    Unchanged,
    Replaced(Replacement),
    Refused,
}

/// The stages that rewrite, by slot.
#[derive(Debug, Default)]
pub(crate) struct Rewriters {
    slots: [Vec<Box<dyn Rewriter>>; 4],
    checked: Checked,
    faults: VecDeque<BadAnswer>,
}

impl Rewriters {
    pub(crate) fn add(&mut self, slot: Slot, stage: Box<dyn Rewriter>) {
        self.slots[slot.index()].push(stage);
    }

    /// Whether a slot has a stage.
    #[inline]
    pub(crate) fn are_in(&self, slot: Slot) -> bool {
        !self.slots[slot.index()].is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slot, &dyn Rewriter)> {
        let slots = Slot::ALL.into_iter().zip(&self.slots);
        slots.flat_map(|(slot, stages)| stages.iter().map(move |stage| (slot, stage.as_ref())))
    }

    /// The next answer that was none.
    pub(crate) fn poll_fault(&mut self) -> Option<BadAnswer> {
        self.faults.pop_front()
    }

    /// Asks the stages of the slot, each about what the one before has made. What cannot be a route's attributes does not
    /// pass.
    pub(crate) fn ask(&mut self, offered: Offered<'_>) -> Made {
        let Self { slots, checked, faults } = self;
        let mut made: Option<Replacement> = None;
        for stage in &mut slots[offered.slot.index()] {
            let present = made.as_ref().map_or(offered, |made| Offered {
                attributes: Attributes(&made.attributes),
                next_hop: made.next_hop.or(offered.next_hop),
                tag: made.tag.unwrap_or(offered.tag),
                ..offered
            });
            let replacement = match stage.rewrite(&present) {
                Answer::Unchanged => continue,
                Answer::Refused => return Made::Refused,
                Answer::Replaced(replacement) => replacement,
            };
            let Some(attributes) = sound(&present, &replacement, checked) else {
                if faults.len() < MOST_FAULTS {
                    faults.push_back(BadAnswer { stage: stage.name(), slot: offered.slot });
                }
                return Made::Refused;
            };
            let (next_hop, tag) = made.map_or((None, None), |made| (made.next_hop, made.tag));
            made = Some(Replacement {
                attributes,
                next_hop: replacement.next_hop.or(next_hop),
                tag: replacement.tag.or(tag),
            });
        }
        made.map_or(Made::Unchanged, Made::Replaced)
    }
}

/// The attributes of an answer in canonical form; `None` if a route could not have them, or not there.
fn sound(offered: &Offered<'_>, answer: &Replacement, checked: &mut Checked) -> Option<Vec<u8>> {
    let attributes = Attributes(&answer.attributes);
    let is_early = offered.slot == Slot::BeforeImport;
    let is_moved = answer.next_hop.is_some() || attributes.next_hop() != offered.attributes.next_hop();
    if is_early && (is_moved || answer.tag.is_some()) {
        return None;
    }
    // As whoever may say all of it would.
    let is_of_member = attributes.as_path().segments().next().is_some_and(|first| first.kind.is_confed());
    let kind = match attributes.local_pref() {
        Some(_) => WireKind::ConfedIbgp,
        None if is_of_member => WireKind::ConfedEbgp,
        None => WireKind::Ebgp,
    };
    let rules = Rules::new(kind, AsSets::Accept);
    // No peer may send how it is noted that a route starts in our AS.
    let is_inside = starts_inside(offered.attributes) && starts_inside(attributes);
    let said = match is_inside {
        false => Cow::Borrowed(&answer.attributes),
        true => Cow::Owned(without_secure_path(attributes)?),
    };
    let mp = update::check(&said, attributes.next_hop().is_some(), &rules, checked);
    if is_inside && checked.verdict == Verdict::Ok {
        insert_secure_path(&mut checked.canonical, &[]);
    }
    let is_clean = checked.verdict == Verdict::Ok && checked.discarded.is_empty();
    let has = |code| attributes.get(code).is_some();
    let is_whole = has(code::ORIGIN) && has(code::AS_PATH) && mp.reach.is_none() && mp.unreach.is_none();
    (is_clean && is_whole).then(|| checked.canonical.clone())
}

/// `None` if the attributes are cut off.
fn without_secure_path(attributes: Attributes<'_>) -> Option<Vec<u8>> {
    let octets: usize = attributes.iter().map(|attribute| attribute.wire.len()).sum();
    let others = attributes.iter().filter(|attribute| attribute.code != code::BGPSEC_PATH);
    (octets == attributes.0.len()).then(|| others.flat_map(|attribute| attribute.wire).copied().collect())
}

#[cfg(test)]
mod tests {
    use holdfast_bgp_wire::{
        Origin,
        edit::{AttributesBuilder, Edit, Values, rewrite},
    };

    use super::*;

    /// Answers with what it is given.
    #[derive(Debug)]
    struct Says(Answer);

    impl Rewriter for Says {
        fn rewrite(&mut self, _: &Offered<'_>) -> Answer {
            self.0.clone()
        }

        fn describe(&self) -> String {
            String::new()
        }
    }

    /// Adds a community.
    #[derive(Debug)]
    struct Adds(u32);

    impl Rewriter for Adds {
        fn rewrite(&mut self, set: &Offered<'_>) -> Answer {
            let communities = Values { add: &[self.0], ..Values::default() };
            let mut attributes = Vec::new();
            rewrite(set.attributes.0, &Edit { communities, ..Edit::default() }, &mut attributes);
            Answer::Replaced(Replacement { attributes, ..Replacement::default() })
        }

        fn describe(&self) -> String {
            String::new()
        }
    }

    fn offered(slot: Slot, attributes: &[u8]) -> Offered<'_> {
        let attributes = Attributes(attributes);
        Offered { slot, sender: None, receiver: None, attributes, next_hop: None, tag: 0 }
    }

    fn plain() -> AttributesBuilder {
        AttributesBuilder {
            as_path: vec![Asn(65001)],
            next_hop: Some([192, 0, 2, 1].into()),
            ..AttributesBuilder::new(Origin::Igp)
        }
    }

    #[test]
    fn each_stage_of_a_slot_is_asked_about_what_the_one_before_has_made() {
        let mut rewriters = Rewriters::default();
        rewriters.add(Slot::BeforeRib, Box::new(Adds(1)));
        rewriters.add(Slot::BeforeRib, Box::new(Adds(2)));
        let set = plain().build();
        let Made::Replaced(made) = rewriters.ask(offered(Slot::BeforeRib, &set)) else { panic!("another") };
        assert_eq!(Attributes(&made.attributes).communities().collect::<Vec<_>>(), [1, 2]);
        assert!(matches!(rewriters.ask(offered(Slot::BeforeExport, &set)), Made::Unchanged));
    }

    #[test]
    fn a_stage_keeps_that_a_route_starts_in_our_as_and_cannot_say_so() {
        let mut set = AttributesBuilder { as_path: vec![], ..plain() }.build();
        let without = set.clone();
        insert_secure_path(&mut set, &[]);
        for slot in Slot::ALL {
            let made = |before: &[u8], after: &[u8]| {
                let answer = Replacement { attributes: after.to_vec(), ..Replacement::default() };
                let mut rewriters = Rewriters::default();
                rewriters.add(slot, Box::new(Says(Answer::Replaced(answer))));
                match rewriters.ask(offered(slot, before)) {
                    Made::Replaced(made) => Some(made.attributes),
                    Made::Unchanged | Made::Refused => None,
                }
            };
            assert_eq!(made(&set, &set), Some(set.clone()));
            assert_eq!(made(&set, &without), Some(without.clone()));
            assert_eq!(made(&without, &set), None);
            assert_eq!(made(&set, &[&set[..], &[0x40]].concat()), None, "cut off");
        }
    }

    #[test]
    fn what_cannot_be_a_route_does_not_pass_and_is_reported() {
        let set = plain().build();
        let without = |code| {
            let kept = Attributes(&set).iter().filter(|attribute| attribute.code != code);
            kept.flat_map(|attribute| attribute.wire.to_vec()).collect::<Vec<u8>>()
        };
        let elsewhere = AttributesBuilder { next_hop: Some([192, 0, 2, 9].into()), ..plain() }.build();
        let answer = |attributes| Replacement { attributes, ..Replacement::default() };
        let moved = |next_hop| Replacement { next_hop: Some(next_hop), ..answer(set.clone()) };
        let cases = [
            (answer(vec![]), [false; 4]),
            (answer(set[..set.len() - 1].to_vec()), [false; 4]),
            (answer(without(code::AS_PATH)), [false; 4]),
            (answer(set.clone()), [true; 4]),
            // Where routes go is said by the session before import.
            (answer(elsewhere), [false, true, true, true]),
            (moved([192, 0, 2, 9].into()), [false, true, true, true]),
            (Replacement { tag: Some(7), ..answer(set.clone()) }, [false, true, true, true]),
        ];
        for (answer, wanted) in cases {
            let passed = Slot::ALL.map(|slot| {
                let mut rewriters = Rewriters::default();
                rewriters.add(slot, Box::new(Says(Answer::Replaced(answer.clone()))));
                let passes = matches!(rewriters.ask(offered(slot, &set)), Made::Replaced(_));
                let fault = (!passes).then_some(BadAnswer { stage: "Says", slot });
                assert_eq!(rewriters.poll_fault(), fault);
                passes
            });
            assert_eq!(passed, wanted, "{answer:?}");
        }
    }

    #[test]
    fn so_many_bad_answers_wait_to_be_reported() {
        let mut rewriters = Rewriters::default();
        rewriters.add(Slot::AfterImport, Box::new(Says(Answer::Replaced(Replacement::default()))));
        let set = plain().build();
        for _ in 0..MOST_FAULTS + 9 {
            assert!(matches!(rewriters.ask(offered(Slot::AfterImport, &set)), Made::Refused));
        }
        assert_eq!(std::iter::from_fn(|| rewriters.poll_fault()).count(), MOST_FAULTS);
    }
}
