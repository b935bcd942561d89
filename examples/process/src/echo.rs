//! The process: what it is, what may be configured, and what it does.

use std::{
    cell::{Cell, RefCell},
    convert::Infallible,
    rc::Rc,
};

use holdfast_config::{
    OwnSection,
    describe::{Default, Effect, Table, Type, key},
};
use holdfast_process::{
    Boot, Command, Configured, End, Network, Part, Process, Reads, Rights, User, serve_configured,
};
use holdfast_xrl::XrlError;
use serde::{Deserialize, Serialize};

/// Everything that the router has to know of it.
pub static PROCESS: Process = Process {
    name: "echo",
    does: "says a word",
    user: User::Own(100),
    rights: Rights::worker(Network::Handed),
    services: &[],
    after: &[],
    feeds: &[],
    end: End::Killed,
    hang_limit: None,
    reads: Reads::Section(OwnSection { key: "echo", table: &SECTION, check: None, implied: None }),
    reads_kept_of: &[],
    routing: None,
    shows: &[Command { name: "words", doc: "what is said" }, Command { name: "count", doc: "how often" }],
    clears: &[Command { name: "answers", doc: "begins to count the answers anew" }],
};

static SECTION: Table = Table {
    doc: "A process that says a word.",
    keys: &[
        key("word", Type::Text("text", "hello"), Default::Required, Effect::Reload, "what it says"),
        key("times", Type::Number(1, 10), Default::Is("1"), Effect::Reload, "how often"),
        key("loud", Type::Bool, Default::Is("false"), Effect::Reload, "in capital letters"),
    ],
};

/// The section, as it arrives.
#[derive(Clone, Deserialize)]
struct Settings {
    word: String,
    times: usize,
    loud: bool,
}

/// A row of an answer.
#[derive(Serialize)]
struct Row {
    number: usize,
    said: String,
}

#[derive(Default)]
struct Echo {
    settings: RefCell<Option<Settings>>,
    answers: Cell<usize>,
}

impl Configured for Echo {
    type Settings = Settings;
    type Row = Row;
    /// Its answers are short.
    type Cursor = Infallible;

    async fn configure(&self, settings: Settings, _: &str) -> Result<(), XrlError> {
        self.settings.replace(Some(settings));
        Ok(())
    }

    fn show(&self, command: &str, _: Option<Infallible>) -> Result<Part<Row, Infallible>, XrlError> {
        let settings = self.settings.borrow().clone();
        let Settings { word, times, loud } =
            settings.ok_or_else(|| XrlError::unavailable("it is not configured yet"))?;
        let said = if loud { word.to_uppercase() } else { word };
        let first = if command == "count" { times } else { 1 };
        self.answers.update(|answers| answers + 1);
        Ok(Part::whole((first..=times).map(|number| Row { number, said: said.clone() }).collect()))
    }

    fn clear(&self, _: &str) -> Result<Vec<String>, XrlError> {
        Ok(vec![format!("{} answers", self.answers.take())])
    }
}

/// The life of the process.
///
/// # Errors
/// None: it ends with the keeper.
pub async fn run(boot: Boot) -> anyhow::Result<()> {
    serve_configured(&boot.node, &PROCESS, Rc::new(Echo::default()));
    boot.join();
    std::future::pending().await
}
