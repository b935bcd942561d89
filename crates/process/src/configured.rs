//! Processes that have a section of the configuration for themselves: how they are told it, and asked.

use std::{cell::Cell, os::fd::OwnedFd, rc::Rc, time::Duration};

use holdfast_api::process::v1::{
    ClearRequest, Cleared, Configuration, Configured as Reply, Empty, ProcessClient, ProcessDispatcher,
    ProcessServer, Rows, ShowRequest,
};
use holdfast_xrl::{CallContext, Client, Node, ReplySink, XrlError};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::timeout;

use crate::{
    Command, Prepare, Prepared, Process, Refusal,
    preparation::{self, serve_preparation},
};

/// Rows in a message of an answer, and about as many as a part of it should have.
pub const ROWS: usize = 256;
/// Answers that are under way at once; further ones are refused.
const READERS: usize = 16;
/// How long a reader may take for a message before its answer ends.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that is configured by its section, and answers its commands.
pub trait Configured: 'static {
    /// The section: the names of its fields are the keys, with `_` for `-` where it says so to serde.
    type Settings: DeserializeOwned;
    /// A row of an answer; all rows of a command have the same names.
    type Row: Serialize;
    /// How far an answer has come. It outlives what it names: routes come and go between two parts.
    type Cursor;

    /// Takes settings in place of those before. `policies` are those of the router, as JSON, where the process speaks a routing protocol.
    ///
    /// # Errors
    /// Why it cannot. It is told again until it can.
    fn configure(
        &self,
        settings: Self::Settings,
        policies: &str,
    ) -> impl Future<Output = Result<(), XrlError>>;

    /// Whether it could take these settings: asked before they are those of any process. It changes nothing. What the rows
    /// of the section and its `check` say is not asked again.
    ///
    /// # Errors
    /// The key that is wrong, and why.
    fn check(&self, _settings: &Self::Settings, _policies: &str) -> Result<(), Refusal> {
        Ok(())
    }

    /// The next part of the answer to one of the commands of its descriptor; the first one for `None`. A reader is given it
    /// before the part after it is made, so no more than one part is in memory for each reader.
    ///
    /// # Errors
    /// Why there is none.
    fn show(
        &self,
        command: &str,
        from: Option<Self::Cursor>,
    ) -> Result<Part<Self::Row, Self::Cursor>, XrlError>;

    /// Clears what one of the commands of its descriptor names; what was cleared, for people. Who describes none is not
    /// asked.
    ///
    /// # Errors
    /// Why it is not.
    fn clear(&self, _command: &str) -> Result<Vec<String>, XrlError> {
        Ok(Vec::new())
    }
}

/// A part of an answer.
#[derive(Debug)]
pub struct Part<R, C> {
    /// Some rows, about [`ROWS`] where there are many.
    pub rows: Vec<R>,
    /// Where the next part begins; `None`: this is the last one.
    pub next: Option<C>,
}

impl<R, C> Part<R, C> {
    /// An answer that has no other part.
    pub fn whole(rows: Vec<R>) -> Self {
        Self { rows, next: None }
    }
}

struct Served<T: Configured> {
    process: Rc<T>,
    shows: &'static [Command],
    clears: &'static [Command],
    readers: Readers,
    prepared: Prepared<Checked<T>>,
}

/// A section that was checked, as it came and as it was read.
struct Checked<T: Configured>(Configuration, T::Settings);

/// What a process says of another section.
struct Judge<T>(Rc<T>);

impl<T: Configured> Prepare for Judge<T> {
    type Prepared = Checked<T>;

    async fn prepare(&self, parts: Vec<preparation::Part>) -> Result<Checked<T>, Refusal> {
        let part = parts.into_iter().find(|part| part.service == ProcessClient::SERVICE.name);
        let part = part.ok_or_else(|| Refusal::of("", "no section has come"))?;
        let configuration = preparation::read::<ProcessClient>(&part.configuration)?;
        let settings = settings::<T>(&configuration)?;
        self.0.check(&settings, &configuration.policies)?;
        Ok(Checked(configuration, settings))
    }
}

fn settings<T: Configured>(configuration: &Configuration) -> Result<T::Settings, XrlError> {
    let settings = serde_json::from_slice(&configuration.settings);
    settings.map_err(|error| XrlError::invalid_argument(format!("settings: {error}")))
}

/// The answers that are under way.
#[derive(Clone, Default)]
struct Readers(Rc<Cell<usize>>);

/// One of them, until it is dropped.
struct Reader(Readers);

impl Readers {
    /// One more, or the refusal of it.
    fn admit(&self) -> Result<Reader, XrlError> {
        if self.0.get() >= READERS {
            return Err(XrlError::unavailable(format!("{READERS} read answers already: try again")));
        }
        self.0.update(|readers| readers + 1);
        Ok(Reader(self.clone()))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.0.update(|readers| readers - 1);
    }
}

/// Has others reach a process: the manager to configure it, operators to ask it what its descriptor says.
pub fn serve_configured<T: Configured>(node: &Node, descriptor: &Process, process: Rc<T>) {
    let (readers, &Process { shows, clears, .. }) = (Readers::default(), descriptor);
    let prepared = Prepared::default();
    serve_preparation(node, Judge(Rc::clone(&process)), prepared.clone());
    node.serve(ProcessDispatcher::new(Served { process, shows, clears, readers, prepared }));
}

/// The command of this name, or the first one for none. `verb` is what they do.
fn find(commands: &'static [Command], name: &str, verb: &str) -> Result<&'static str, XrlError> {
    let found = commands.iter().find(|command| name.is_empty() || command.name == name);
    found.map(|command| command.name).ok_or_else(|| {
        let known: Vec<_> = commands.iter().map(|command| command.name).collect();
        XrlError::not_found(match known[..] {
            [] => format!("there is nothing to {verb}"),
            _ => format!("there is no `{name}` to {verb}; there is: {}", known.join(", ")),
        })
    })
}

/// Commands of processes of ours are words alone.
fn takes_no(arguments: &[u8]) -> Result<(), XrlError> {
    match arguments {
        [] => Ok(()),
        _ => Err(XrlError::invalid_argument("the command takes no arguments")),
    }
}

impl<T: Configured> ProcessServer for Served<T> {
    async fn configure(&self, _: &CallContext, request: Configuration) -> Result<Reply, XrlError> {
        let settings = match self.prepared.take() {
            Some(Checked(checked, settings)) if checked == request => settings,
            Some(_) | None => settings::<T>(&request)?,
        };
        self.process.configure(settings, &request.policies).await?;
        Ok(Reply::default())
    }

    /// A process of ours has its secrets among its settings.
    async fn keep(&self, _: &CallContext, _: Empty, _: Vec<OwnedFd>) -> Result<Empty, XrlError> {
        Err(XrlError::not_found("secrets come with the settings"))
    }

    async fn clear(&self, _: &CallContext, request: ClearRequest) -> Result<Cleared, XrlError> {
        takes_no(&request.arguments)?;
        Ok(Cleared { cleared: self.process.clear(find(self.clears, &request.command, "clear")?)? })
    }

    async fn show(
        &self,
        _: &CallContext,
        request: ShowRequest,
        mut replies: ReplySink<Rows>,
    ) -> Result<(), XrlError> {
        let command = find(self.shows, &request.command, "show")?;
        takes_no(&request.arguments)?;
        let _reader = self.readers.admit()?;
        let mut from = None;
        loop {
            let Part { rows, next } = self.process.show(command, from)?;
            for rows in rows.chunks(ROWS) {
                let rows = rows.iter().map(serde_json::to_vec).collect::<Result<_, _>>();
                let rows = rows.map_err(|error| XrlError::internal(format!("a row: {error}")))?;
                let sent = timeout(PATIENCE, replies.send(Rows { rows })).await;
                sent.map_err(|_| XrlError::unavailable("the answer was not read"))??;
            }
            if next.is_none() {
                return Ok(());
            }
            from = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_xrl::{Channel, ErrorKind, Link, PeerIdentity, ReplyStream};
    use tokio::task::{LocalSet, yield_now};

    use super::*;

    /// Rows of a long answer: each is as long as a route's.
    const LONG: usize = 100 * ROWS;
    static COMMANDS: [Command; 1] = [Command { name: "numbers", doc: "numbers" }];

    /// Counts the parts that it was asked for.
    #[derive(Default)]
    struct Numbers(Cell<usize>);

    impl Configured for Numbers {
        type Settings = ();
        type Row = (usize, String);
        type Cursor = usize;

        async fn configure(&self, (): (), _: &str) -> Result<(), XrlError> {
            Ok(())
        }

        fn show(&self, _: &str, from: Option<usize>) -> Result<Part<Self::Row, usize>, XrlError> {
            self.0.update(|parts| parts + 1);
            let from = from.unwrap_or(0);
            let rows = (from..from + ROWS).map(|number| (number, "x".repeat(200))).collect();
            Ok(Part { rows, next: Some(from + ROWS).filter(|next| *next < LONG) })
        }
    }

    /// A process that answers, and somebody who asks it.
    fn process() -> (Rc<Numbers>, Node, ProcessClient) {
        let (near, far) = Link::pair();
        let (numbers, node) = (Rc::new(Numbers::default()), Node::new("numbers"));
        let served = Served {
            process: Rc::clone(&numbers),
            shows: &COMMANDS,
            clears: &[],
            readers: Readers::default(),
            prepared: Prepared::default(),
        };
        node.serve(ProcessDispatcher::new(served));
        node.attach_link(far, PeerIdentity::new("operator"));
        (numbers, node, ProcessClient::new(Channel::over(near)))
    }

    fn ask(client: &ProcessClient) -> ReplyStream<Rows> {
        client.show(ShowRequest::default())
    }

    fn run(story: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().expect("a runtime");
        LocalSet::new().block_on(&runtime, story);
    }

    /// Until everybody waits for somebody else.
    async fn settle() {
        for _ in 0..1000 {
            yield_now().await;
        }
    }

    #[test]
    fn a_part_is_made_when_the_one_before_it_was_read() {
        run(async {
            let (numbers, _node, client) = process();
            let mut replies = ask(&client);
            let first = replies.next().await.expect("an answer").expect("a message");
            settle().await;
            assert_eq!(first.rows.len(), ROWS);
            assert!(numbers.0.get() < 10, "{} parts for a reader who has read one", numbers.0.get());
            let mut rows = first.rows.len();
            while let Some(more) = replies.next().await.expect("an answer") {
                rows += more.rows.len();
            }
            assert_eq!((rows, numbers.0.get()), (LONG, LONG / ROWS));
        });
    }

    #[test]
    fn readers_beyond_the_bound_are_refused_until_one_has_gone() {
        run(async {
            let (_numbers, _node, client) = process();
            let mut asleep: Vec<_> = (0..READERS).map(|_| ask(&client)).collect();
            settle().await;
            let refused = ask(&client).next().await.expect_err("no room");
            assert_eq!(refused.kind(), ErrorKind::Unavailable);
            asleep.pop();
            settle().await;
            ask(&client).next().await.expect("there is room").expect("a message");
        });
    }

    #[test]
    fn a_reader_who_does_not_read_makes_room_in_the_end() {
        run(async {
            let (_numbers, _node, client) = process();
            let asleep: Vec<_> = (0..READERS).map(|_| ask(&client)).collect();
            settle().await;
            tokio::time::sleep(PATIENCE + Duration::from_secs(1)).await;
            ask(&client).next().await.expect("there is room").expect("a message");
            drop(asleep);
        });
    }
}
