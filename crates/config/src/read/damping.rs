//! `[bgp.damping]`.

use std::time::Duration;

use super::seconds;
use crate::{
    input::{At, Problem, Section},
    schema::Damping,
};

pub(super) fn read(section: &Section<'_>) -> Damping {
    let default = Damping::default();
    let damping = Damping {
        half_life: time(section, "half-life", default.half_life),
        suppress: section.number("suppress", 1..=u32::MAX, default.suppress),
        reuse: section.number("reuse", 1..=u32::MAX, default.reuse),
        max_suppress: time(section, "max-suppress", default.max_suppress),
    };
    check(section, &damping);
    damping
}

fn time(section: &Section<'_>, key: &'static str, default: Duration) -> Duration {
    let default = u16::try_from(default.as_secs()).unwrap_or(u16::MAX);
    seconds(At { value: section.number(key, 1..=u16::MAX, default), span: section.span_of(key) })
}

/// Whether it ever does something.
fn check(section: &Section<'_>, damping: &Damping) {
    if damping.reuse >= damping.suppress {
        let problem =
            Problem::new(format!("a route would be used again at once: `suppress` is {}", damping.suppress));
        section.add("reuse", problem.expected("a number below `suppress`"));
    } else if damping.ceiling() < f64::from(damping.suppress) {
        // RFC 2439 section 4.2: the ceiling follows from the longest time of suppression.
        let problem = Problem::new(format!(
            "no route is ever held back: its penalty never exceeds {}",
            damping.ceiling() as u64
        ));
        let hint = "that is `reuse` doubled for each half-life in `max-suppress`: make that longer, or `suppress` lower";
        section.add("suppress", problem.hint(hint));
    }
}
