//! A client of a store, by the codec and with the bounds of the replicator: batches of 1 MiB at most, four on their way.

use std::{
    collections::VecDeque,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use holdfast_lab::table::random::Random;
use holdfast_store::{
    Answer, Batch, Claim, Claimed, Cursor, Described, Description, Kind, Name, Operation, Page, Request,
    redis::{Keys, Replies, Script, answer},
};

/// Batches, or pages, on their way.
const ON_THEIR_WAY: usize = 4;
/// Octets that are read at once, as the replicator does.
const READ: usize = 64 << 10;
/// Longer than a reply may take.
const LIMIT: Duration = Duration::from_secs(30);
/// What the store is given: its name, who writes, and what is written.
const INCARNATION: u64 = 7;
const EPOCH: u64 = 1;
const GENERATION: u64 = 1;

/// The claim of an empty store.
pub(super) const CLAIM: Request =
    Request::Claim(Claim { incarnation: INCARNATION, is_empty: true, epoch: EPOCH, generation: GENERATION });

/// Batches of records, as full as they can be. No two records are alike.
#[derive(Debug)]
pub(super) struct Records {
    left: usize,
    octets: usize,
    next: usize,
    pool: Arc<[u8]>,
}

/// Records of one stream: of many there are several sessions.
const OF_A_STREAM: usize = 200;
/// Octets that records are parts of. They begin at different ones.
const POOL: usize = 1 << 20;

impl Records {
    /// What records are made of.
    pub(super) fn pool() -> Arc<[u8]> {
        let mut random = Random::new(1);
        (0..POOL).map(|_| random.below(256) as u8).collect()
    }

    /// So many, behind those that are there.
    pub(super) fn new(pool: &Arc<[u8]>, first: usize, count: usize, octets: usize) -> Self {
        Self { left: count, octets, next: first, pool: Arc::clone(pool) }
    }

    fn record(&self) -> &[u8] {
        let from = self.next * 97 % (POOL - self.octets);
        &self.pool[from..from + self.octets]
    }

    /// The next batch, if there are records left.
    pub(super) fn batch(&mut self, sequence: u64) -> Result<Option<Request>> {
        let mut batch = Batch::new(INCARNATION, EPOCH, GENERATION, sequence);
        while self.left > 0 {
            let (stream, place) = (self.next / OF_A_STREAM, self.next % OF_A_STREAM);
            let name = Name::new(format!("0/s/{stream}/in").as_bytes())?;
            let at = (place * self.octets) as u64;
            if batch.push(Operation::Append { name, at, octets: self.record().to_vec() }).is_err() {
                break;
            }
            (self.left, self.next) = (self.left - 1, self.next + 1);
        }
        Ok((!batch.operations().is_empty()).then_some(Request::Batch(batch)))
    }
}

/// A connection to a server, which has been claimed.
#[derive(Debug)]
pub(super) struct Client {
    stream: TcpStream,
    replies: Replies,
    keys: Keys,
    room: Vec<u8>,
    out: Vec<u8>,
    sequence: u64,
    awaited: VecDeque<Kind>,
}

impl Client {
    /// Connects from within the caller's host to an empty server, loads the scripts, and claims it.
    pub(super) fn claim(at: SocketAddr, router: &str) -> Result<Self> {
        let stream = TcpStream::connect(at)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        let mut client = Self {
            stream,
            replies: Replies::new(),
            keys: Keys::new(router)?,
            room: vec![0; READ],
            out: Vec::new(),
            sequence: 0,
            awaited: VecDeque::new(),
        };
        for script in Script::ALL {
            script.load(&mut client.out);
            client.flush()?;
            client.reply()?;
        }
        client.ask(&CLAIM)?;
        let Answer::Claimed(Claimed { sequence, .. }) = client.answer()? else { bail!("not claimed") };
        client.sequence = sequence;
        Ok(client)
    }

    fn flush(&mut self) -> Result<()> {
        self.stream.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    fn reply(&mut self) -> Result<holdfast_store::redis::Reply> {
        loop {
            if let Some(reply) = self.replies.take()? {
                return Ok(reply);
            }
            let count = self.stream.read(&mut self.room).context("reading a reply")?;
            ensure!(count > 0, "the connection ended");
            self.replies.push(&self.room[..count])?;
        }
    }

    fn ask(&mut self, request: &Request) -> Result<()> {
        self.keys.encode(request, &mut self.out)?;
        self.awaited.push_back(request.kind());
        self.flush()
    }

    fn answer(&mut self) -> Result<Answer> {
        let kind = self.awaited.pop_front().context("nothing was asked")?;
        match answer(kind, self.reply()?)? {
            Answer::Refused(refused) => bail!("refused: {refused}"),
            answer => Ok(answer),
        }
    }

    /// Writes records until the server has confirmed all of them.
    pub(super) fn write(&mut self, mut records: Records) -> Result<()> {
        loop {
            while self.awaited.len() < ON_THEIR_WAY {
                let Some(batch) = records.batch(self.sequence + 1)? else { break };
                self.sequence += 1;
                self.ask(&batch)?;
            }
            if self.awaited.is_empty() {
                return Ok(());
            }
            self.answer()?;
        }
    }

    /// Reads all objects, each on its own; how many octets they have.
    pub(super) fn read(&mut self) -> Result<u64> {
        let mut objects = VecDeque::new();
        let mut from = Cursor::default();
        loop {
            self.ask(&Request::List { generation: GENERATION, from })?;
            let Answer::Listed(listed) = self.answer()? else { bail!("no list") };
            objects.extend(listed.objects);
            let Some(next) = listed.next else { break };
            from = next;
        }
        let (mut octets, mut pages) = (0, VecDeque::new());
        loop {
            while pages.len() < ON_THEIR_WAY
                && let Some(Described { name, description }) = objects.pop_front()
            {
                let at = match description {
                    Description::Value { .. } => 0,
                    Description::Range { start, .. } => start,
                };
                self.ask(&Request::Page { generation: GENERATION, name, at })?;
                pages.push_back((name, at));
            }
            let Some((name, at)) = pages.pop_front() else { return Ok(octets) };
            match self.answer()? {
                Answer::Page(Page::Value(value)) => octets += value.len() as u64,
                Answer::Page(Page::Range { end, octets: page, .. }) => {
                    octets += page.len() as u64;
                    let next = at + page.len() as u64;
                    if next < end {
                        self.ask(&Request::Page { generation: GENERATION, name, at: next })?;
                        pages.push_back((name, next));
                    }
                }
                other => bail!("{other:?}"),
            }
        }
    }
}
