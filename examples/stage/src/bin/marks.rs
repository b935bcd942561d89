//! A router that marks what passes: in each of the four slots every route gets the community `64900:N`, where N is 1 before
//! import, 2 after import, 3 before export and 4 before the RIB. There the tag says how many marks a route has.
//!
//! `marks run -c router.toml` and everything else is as with `holdfast`. For tests of what becomes of a stage that fails:
//! `FAIL` in the environment is `panic` or `hang`, and `FAIL_IN` the slot in which it does that.

use std::process::ExitCode;

use holdfast::Additions;
use holdfast_bgp_pipeline::{Answer, Offered, Replacement, Rewriter, Slot};
use holdfast_bgp_wire::edit::{Edit, Values, rewrite};

/// The AS whose communities they are.
const MARKS: u32 = 64900 << 16;

fn main() -> ExitCode {
    holdfast::main_with(Additions { rewriters: Some(rewriters), ..Additions::default() })
}

fn rewriters() -> Vec<(Slot, Box<dyn Rewriter>)> {
    let said = |name| std::env::var(name).unwrap_or_default();
    let (how, place) = (said("FAIL"), said("FAIL_IN"));
    let failure = |slot: Slot| match how.as_str() {
        _ if place != slot.to_string() => None,
        "panic" => Some(Failure::Panic),
        "hang" => Some(Failure::Hang),
        _ => None,
    };
    Slot::ALL.map(|slot| (slot, Box::new(Marks { failure: failure(slot) }) as Box<dyn Rewriter>)).into()
}

/// How it fails.
#[derive(Copy, Clone, Debug)]
enum Failure {
    Panic,
    Hang,
}

/// Adds the mark of the slot in which it is asked.
#[derive(Debug)]
struct Marks {
    failure: Option<Failure>,
}

impl Rewriter for Marks {
    fn rewrite(&mut self, set: &Offered<'_>) -> Answer {
        match self.failure {
            None => {}
            Some(Failure::Panic) => panic!("as it was told"),
            // Over one page, again and again: its loop has much to do, and finishes nothing.
            Some(Failure::Hang) => loop {
                for octet in set.attributes.0 {
                    std::hint::black_box(octet);
                }
            },
        }
        let mark = |slot: Slot| MARKS + 1 + slot as u32;
        let communities = Values { add: &[mark(set.slot)], ..Values::default() };
        let mut attributes = Vec::new();
        rewrite(set.attributes.0, &Edit { communities, ..Edit::default() }, &mut attributes);
        let has = |slot: &Slot| set.attributes.communities().any(|value| value == mark(*slot));
        let marks = Slot::ALL.into_iter().filter(has).count() as u32 + 1;
        let tag = (set.slot == Slot::BeforeRib).then_some(marks);
        Answer::Replaced(Replacement { attributes, tag, ..Replacement::default() })
    }

    fn describe(&self) -> String {
        "marks every route".into()
    }
}
