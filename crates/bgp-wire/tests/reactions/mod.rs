//! The classification of RFC 7606, by the rows of `reactions.txt`.

mod table;

use holdfast_bgp_wire::update::{AsSets, Checked, PeerKind, Rules, Verdict, check, sections};
use holdfast_types::Family;
use table::{From, Reaction, Row, rows};

fn rules(from: From) -> Rules {
    let ebgp = Rules::new(PeerKind::Ebgp, AsSets::Reject);
    match from {
        From::Ebgp => ebgp,
        From::TwoOctetEbgp => Rules { four_octet_as: false, ..ebgp },
        From::EbgpWithSets => Rules { as_sets: AsSets::Accept, ..ebgp },
        From::EbgpWithV6Hops => Rules { extended_next_hop: true, ..ebgp },
        From::Ibgp => Rules { kind: PeerKind::Ibgp, ..ebgp },
        From::Confed => Rules { kind: PeerKind::ConfedEbgp, ..ebgp },
        From::Member => Rules { kind: PeerKind::ConfedIbgp, ..ebgp },
    }
}

/// The reaction, and where that is written, as far as an operator is told.
fn reaction(row: &Row) -> (Reaction, Option<&'static str>) {
    let mut checked = Checked::default();
    let verdict = match sections(&row.body) {
        Err(error) => Verdict::SessionReset(error),
        Ok(sections) => {
            check(sections.attributes, !sections.nlri.is_empty(), &rules(row.from), &mut checked);
            checked.verdict.clone()
        }
    };
    match verdict {
        Verdict::SessionReset(error) => (Reaction::Reset(error.code, error.subcode), None),
        Verdict::TreatAsWithdraw(fault) => (Reaction::Withdraw(fault.attribute), Some(fault.reference())),
        Verdict::Ok => match checked.discarded.first() {
            Some(fault) => (Reaction::Discard(fault.attribute), Some(fault.reference())),
            None => (Reaction::Fine, None),
        },
    }
}

#[test]
fn every_update_has_the_reaction_that_its_row_says() {
    let rows = rows();
    let wrong = rows.iter().filter_map(|row| {
        let (reaction, source) = reaction(row);
        let right = reaction == row.reaction && source.is_none_or(|source| row.source == source);
        (!right).then(|| {
            format!("line {}: {reaction:?} by {source:?}, not {:?} by {}", row.line, row.reaction, row.source)
        })
    });
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "of {} rows:\n{}", rows.len(), wrong.join("\n"));
}

#[test]
fn what_counts_as_withdrawn_is_found() {
    for row in rows().iter().filter(|row| !matches!(row.reaction, Reaction::Reset(..))) {
        let sections = sections(&row.body).expect("no reset");
        let has_nlri = !sections.nlri.is_empty();
        let mp = check(sections.attributes, has_nlri, &rules(row.from), &mut Checked::default());
        let has_v6 = mp.reach.is_some_and(|reach| reach.family == Family::IPV6_UNICAST);
        assert_eq!([has_nlri, has_v6], row.announces, "line {}", row.line);
    }
}

#[test]
fn no_row_is_said_twice() {
    let rows = rows();
    for (index, row) in rows.iter().enumerate() {
        let twin = rows[..index].iter().find(|other| (other.from, &other.body) == (row.from, &row.body));
        assert!(twin.is_none(), "lines {:?} and {}", twin.map(|twin| twin.line), row.line);
    }
}
