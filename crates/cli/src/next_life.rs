//! Questions to a process that ends before it answers: its next life is asked.
//!
//! Only commands that change nothing are asked again, and only while nothing of the answer is written.

use std::{
    io::{self, Write},
    thread,
    time::{Duration, Instant},
};

use crate::Failure;

/// How long the next life may take until it answers.
const PATIENCE: Duration = Duration::from_secs(2);
/// From a failure to the next question.
const PAUSE: Duration = Duration::from_millis(20);

/// An output that knows whether anything was written.
struct Watched<'o> {
    out: &'o mut dyn Write,
    is_begun: bool,
}

impl Write for Watched<'_> {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.is_begun = true;
        self.out.write(octets)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Asks until the answer, or a failure that does not [pass](Failure::is_passing), or for [`PATIENCE`].
pub(crate) fn answers(
    out: &mut dyn Write,
    ask: impl FnMut(&mut dyn Write) -> Result<(), Failure>,
) -> Result<(), Failure> {
    answers_within(PATIENCE, out, ask)
}

fn answers_within(
    patience: Duration,
    out: &mut dyn Write,
    mut ask: impl FnMut(&mut dyn Write) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut out = Watched { out, is_begun: false };
    let mut deadline = None;
    loop {
        let Err(failure) = ask(&mut out) else { return Ok(()) };
        let now = Instant::now();
        // Counted from the first failure: what came before it is the patience with one life.
        let is_late = now >= *deadline.get_or_insert(now + patience);
        if out.is_begun || is_late || !failure.is_passing() {
            return Err(failure);
        }
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interrupted() -> Failure {
        Failure::Interrupted("closed".to_owned())
    }

    /// Asks one who fails in these ways, then answers; the result, the questions, and what was written.
    fn ask(failures: Vec<Failure>) -> (Result<(), Failure>, usize, Vec<u8>) {
        let (mut failures, mut asked, mut out) = (failures.into_iter(), 0, Vec::new());
        let done = answers_within(Duration::from_secs(60), &mut out, |out| {
            asked += 1;
            failures.next().map_or_else(|| Ok(out.write_all(b"answer")?), Err)
        });
        (done, asked, out)
    }

    #[test]
    fn the_next_life_is_asked() {
        let starting =
            Failure::NotRunning { class: "bgp".to_owned(), reason: String::new(), is_expected: true };
        let (done, asked, out) = ask(vec![interrupted(), starting]);
        assert!(done.is_ok());
        assert_eq!((asked, out.as_slice()), (3, &b"answer"[..]));
    }

    #[test]
    fn what_does_not_pass_is_said_at_once() {
        let missing =
            Failure::NotRunning { class: "bgp".to_owned(), reason: String::new(), is_expected: false };
        for failure in [missing, Failure::NoAnswer("late".to_owned()), Failure::NothingFound(String::new())] {
            let (done, asked, _) = ask(vec![failure]);
            assert!(done.is_err());
            assert_eq!(asked, 1);
        }
    }

    #[test]
    fn an_answer_that_has_begun_is_not_begun_again() {
        let (mut asked, mut out) = (0, Vec::new());
        let done = answers_within(Duration::from_secs(60), &mut out, |out| {
            asked += 1;
            out.write_all(b"half")?;
            Err(interrupted())
        });
        assert!(done.is_err());
        assert_eq!((asked, out.as_slice()), (1, &b"half"[..]));
    }

    #[test]
    fn a_process_that_never_answers_is_not_waited_for_for_ever() {
        let mut asked = 0;
        let done = answers_within(Duration::ZERO, &mut Vec::new(), |_| {
            asked += 1;
            Err(interrupted())
        });
        assert_eq!((done.is_err(), asked), (true, 1));
    }
}
