//! The session at a terminal: line editing, the tabulator, `?`.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use rustyline::{
    Cmd, CompletionType, ConditionalEventHandler, Config, Context, Editor, Event, EventContext, EventHandler,
    Helper, KeyEvent, RepeatCount,
    completion::{Completer, Pair},
    error::ReadlineError,
    highlight::Highlighter,
    hint::Hinter,
    history::MemHistory,
    validate::Validator,
};

use super::{Session, complete, place::Document};
use crate::Failure;

const PROMPT: &str = "configure> ";
const CHANGED: &str = "configure*> ";

/// Completes from the candidate as it is when the line is begun.
struct Completion(Document);

impl Completer for Completion {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (from, choices) = complete::choices(&self.0, &line[..at]);
        let pair = |choice: complete::Choice| Pair { display: choice.text.clone(), replacement: choice.text };
        Ok((from, choices.into_iter().map(pair).collect()))
    }
}

impl Hinter for Completion {
    type Hint = String;
}

impl Highlighter for Completion {}
impl Validator for Completion {}
impl Helper for Completion {}

/// `?` ends the line, and says that it did.
struct Question(Arc<AtomicBool>);

impl ConditionalEventHandler for Question {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, line: &EventContext<'_>) -> Option<Cmd> {
        let quoted = line.line()[..line.pos()].matches('"').count() % 2 == 1;
        if quoted {
            return None;
        }
        self.0.store(true, Ordering::Relaxed);
        Some(Cmd::AcceptLine)
    }
}

fn failed(error: ReadlineError) -> Failure {
    match error {
        ReadlineError::Io(error) => Failure::Output(error),
        other => Failure::Edit(other.to_string()),
    }
}

/// Reads commands until the end.
pub(super) fn run(session: &mut Session<'_>) -> Result<(), Failure> {
    let config = Config::builder().completion_type(CompletionType::List).build();
    let mut editor = Editor::with_history(config, MemHistory::new()).map_err(failed)?;
    let asked = Arc::new(AtomicBool::new(false));
    let question = EventHandler::Conditional(Box::new(Question(Arc::clone(&asked))));
    editor.bind_sequence(KeyEvent::from('?'), question);
    let mut begun = String::new();
    loop {
        session.out.flush()?;
        editor.set_helper(Some(Completion(session.candidate.document().clone())));
        let prompt = if session.candidate.is_changed() { CHANGED } else { PROMPT };
        let line = match editor.readline_with_initial(prompt, (&begun, "")) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => {
                begun.clear();
                continue;
            }
            Err(ReadlineError::Eof) => "exit".to_owned(),
            Err(error) => return Err(failed(error)),
        };
        begun.clear();
        if asked.swap(false, Ordering::Relaxed) {
            let text = complete::explain(session.candidate.document(), &line);
            session.out.write_all(text.as_bytes())?;
            begun = line;
            continue;
        }
        editor.add_history_entry(line.as_str()).map_err(failed)?;
        match session.line(&line) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(failure) => {
                session.out.flush()?;
                eprintln!("{failure}");
            }
        }
    }
}
