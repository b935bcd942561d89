//! Traces for people and as JSON.

use std::io::{self, Write};

use holdfast_policy::{Decision, Place, Trace};
use serde_json::{Value, json};

use super::case::Tried;

/// One case: a line if it is as expected, everything if nothing was expected or it is not.
pub(super) fn tried(tried: &Tried<'_>, out: &mut dyn Write) -> io::Result<()> {
    let Tried { case, trace, wrong } = tried;
    let expects = case.expect.is_some() || case.expect_term.is_some() || !case.expect_result.is_empty();
    if expects && wrong.is_empty() {
        return writeln!(out, "ok      {}: {}", case.title(), outcome(case.policy(), trace));
    }
    writeln!(out, "{}{}", if wrong.is_empty() { "" } else { "FAILED  " }, case.title())?;
    wrong.iter().try_for_each(|line| writeln!(out, "  {line}"))?;
    self::trace(case.policy(), trace, out)
}

pub(super) fn tried_json(tried: &Tried<'_>) -> Value {
    json!({
        "name": tried.case.title(),
        "policy": tried.case.policy(),
        "prefix": tried.case.prefix(),
        "asExpected": tried.wrong.is_empty(),
        "wrong": tried.wrong,
        "trace": tried.trace,
    })
}

fn outcome(policy: &str, trace: &Trace) -> String {
    let verb = if trace.accepted { "accepted" } else { "refused" };
    format!("{verb} by policy {policy}, term {}", trace.decided_by)
}

/// Which term decided, what each that was asked said, and what the route is in the end.
pub(super) fn trace(policy: &str, trace: &Trace, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "  {}", outcome(policy, trace))?;
    let name = |place: &Place| format!("{}{}", "  ".repeat(place.depth as usize), place.term);
    let width = trace.places.iter().map(|place| name(place).chars().count()).max().unwrap_or(0);
    for place in &trace.places {
        writeln!(out, "    {:width$}  {}", name(place), said(place))?;
    }
    if !trace.result.is_empty() {
        writeln!(out, "  result")?;
        trace.result.iter().try_for_each(|line| writeln!(out, "    {line}"))?;
    }
    Ok(())
}

fn said(place: &Place) -> String {
    if let Some(failed) = &place.failed {
        return format!("no: {}, the route has {}", failed.condition, failed.found);
    }
    let decision = match place.decision {
        Some(Decision::Accept) => Some("accept".to_owned()),
        Some(Decision::Reject) => Some("reject".to_owned()),
        None => None,
    };
    let what: Vec<_> = place.changes.iter().cloned().chain(decision).collect();
    match what.is_empty() {
        true => "yes".to_owned(),
        false => format!("yes: {}", what.join("; ")),
    }
}
