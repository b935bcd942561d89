//! A client of a real server, which waits for each reply.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use holdfast_lab::redis::Redis;
use holdfast_store::{
    Answer, Applied, Batch, Claim, Claimed, Cursor, Described, Failure, Name, Operation, Page, Refused,
    Request, State,
    redis::{Keys, Replies, Reply, Script, answer},
};

/// Longer than a reply may take.
const LIMIT: Duration = Duration::from_secs(30);

pub(super) struct Client {
    stream: UnixStream,
    replies: Replies,
    keys: Keys,
}

impl Client {
    pub(super) fn new(server: &Redis, router: &str) -> Result<Self> {
        let stream = UnixStream::connect(server.socket())?;
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(Self { stream, replies: Replies::new(), keys: Keys::new(router)? })
    }

    /// With the scripts loaded.
    pub(super) fn loaded(server: &Redis, router: &str) -> Result<Self> {
        let mut client = Self::new(server, router)?;
        client.load()?;
        Ok(client)
    }

    pub(super) fn load(&mut self) -> Result<()> {
        for script in Script::ALL {
            let mut out = Vec::new();
            script.load(&mut out);
            let reply = self.send(&out)?;
            ensure!(reply == Reply::Bulk(script.digest().to_vec()), "{reply:?}");
        }
        Ok(())
    }

    pub(super) fn write(&mut self, octets: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(octets)?)
    }

    pub(super) fn reply(&mut self) -> Result<Reply> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            if let Some(reply) = self.replies.take()? {
                return Ok(reply);
            }
            let read = self.stream.read(&mut buffer).context("reading a reply")?;
            ensure!(read > 0, "the connection ended");
            self.replies.push(&buffer[..read])?;
        }
    }

    pub(super) fn send(&mut self, octets: &[u8]) -> Result<Reply> {
        self.write(octets)?;
        self.reply()
    }

    /// A command of these words.
    pub(super) fn command(&mut self, words: &[&str]) -> Result<Reply> {
        let mut out = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| out += &format!("${}\r\n{word}\r\n", word.len()));
        self.send(out.as_bytes())
    }

    /// One that the server has to answer with `OK`.
    pub(super) fn ok(&mut self, words: &[&str]) -> Result<()> {
        let reply = self.command(words)?;
        ensure!(reply == Reply::Status(b"OK".to_vec()), "{words:?}: {reply:?}");
        Ok(())
    }

    pub(super) fn encode(&self, request: &Request) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        self.keys.encode(request, &mut out)?;
        Ok(out)
    }

    /// The answer to a request, or why there is none.
    pub(super) fn ask(&mut self, request: &Request) -> Result<Result<Answer, Failure>> {
        let out = self.encode(request)?;
        Ok(answer(request.kind(), self.send(&out)?))
    }

    /// The answer to a request.
    pub(super) fn answer(&mut self, request: &Request) -> Result<Answer> {
        Ok(self.ask(request)??)
    }

    pub(super) fn state(&mut self) -> Result<Option<State>> {
        match self.answer(&Request::State)? {
            Answer::State(state) => Ok(state),
            other => bail!("{other:?}"),
        }
    }

    /// All objects of a generation.
    pub(super) fn list(&mut self, generation: u64) -> Result<Vec<Described>> {
        let (mut from, mut all) = (Cursor::default(), Vec::new());
        loop {
            let Answer::Listed(listed) = self.answer(&Request::List { generation, from })? else {
                bail!("no list");
            };
            all.extend(listed.objects);
            let Some(next) = listed.next else { break };
            from = next;
        }
        all.sort_by_key(|object| object.name);
        all.dedup();
        Ok(all)
    }

    pub(super) fn page(&mut self, generation: u64, name: Name, at: u64) -> Result<Page> {
        match self.answer(&Request::Page { generation, name, at })? {
            Answer::Page(page) => Ok(page),
            other => bail!("{other:?}"),
        }
    }

    pub(super) fn number(&mut self, words: &[&str]) -> Result<i64> {
        match self.command(words)? {
            Reply::Integer(number) => Ok(number),
            other => bail!("{words:?}: {other:?}"),
        }
    }
}

/// A writer with a client.
pub(super) struct Writer {
    pub(super) client: Client,
    pub(super) incarnation: u64,
    pub(super) sequence: u64,
}

impl Writer {
    /// Claims an empty store.
    pub(super) fn new(mut client: Client, incarnation: u64) -> Result<Self> {
        let claim = Claim { incarnation, is_empty: true, epoch: 1, generation: 1 };
        let Answer::Claimed(Claimed { sequence, is_new: true, .. }) =
            client.answer(&Request::Claim(claim))?
        else {
            bail!("not claimed");
        };
        Ok(Self { client, incarnation, sequence })
    }

    pub(super) fn batch(&self, operations: impl IntoIterator<Item = Operation>) -> Result<Request> {
        let mut batch = Batch::new(self.incarnation, 1, 1, self.sequence + 1);
        operations.into_iter().try_for_each(|operation| batch.push(operation))?;
        Ok(Request::Batch(batch))
    }

    /// What the server says to the next batch.
    pub(super) fn write(
        &mut self,
        operations: impl IntoIterator<Item = Operation>,
    ) -> Result<Result<Applied, Problem>> {
        let batch = self.batch(operations)?;
        match self.client.ask(&batch)? {
            Ok(Answer::Applied(applied)) => {
                self.sequence = applied.sequence;
                Ok(Ok(applied))
            }
            Ok(Answer::Refused(refused)) => Ok(Err(Problem::Refused(refused))),
            Ok(other) => bail!("{other:?}"),
            Err(failure) => Ok(Err(Problem::Failure(failure))),
        }
    }

    /// Whether the next batch fails like this.
    pub(super) fn fails(
        &mut self,
        operations: impl IntoIterator<Item = Operation>,
        expected: impl Into<Problem>,
    ) -> Result<()> {
        let (said, expected) = (self.write(operations)?, expected.into());
        ensure!(said == Err(expected.clone()), "{said:?}, and not {expected:?}");
        Ok(())
    }

    /// Whether the next batch passes.
    pub(super) fn passes(&mut self, operations: impl IntoIterator<Item = Operation>) -> Result<Applied> {
        match self.write(operations)? {
            Ok(applied) => Ok(applied),
            Err(problem) => bail!("{problem:?}"),
        }
    }
}

/// Why a batch was not applied.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Problem {
    Refused(Refused),
    Failure(Failure),
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}
