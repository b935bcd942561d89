//! `[bgp.damping]`.

use crate::{
    input::{Problem, Section},
    schema::Damping,
};

pub(super) fn read(section: &Section<'_>) -> Damping {
    let damping = Damping::read(section);
    check(section, &damping);
    damping
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
