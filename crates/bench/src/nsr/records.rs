//! Figure 5 (b): records of 4 KiB, written to a store and read again.
//!
//! ```text
//! veth      this thread in a host ── veth ── redis-server in another
//! loopback  this thread ── redis-server in the same host
//! file      the contents in memory, and what was granted in a file, which is read again
//! memory    the contents alone
//! ```
//! One record is a batch, and the next one is written when it is confirmed. Of many, batches are as full as they can be, and
//! four are on their way. Reading is what a router does that takes over: a list, and pages of all objects.

use std::{
    fs::File,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::FileExt,
    path::PathBuf,
    time::Instant,
};

use anyhow::{Context, Result, bail, ensure};
use holdfast_lab::{
    netns::{End, Namespace, link},
    redis::{PORT, Redis},
};
use holdfast_store::{
    Answer, Contents, Cursor, Description, Page, Request,
    file::{self, Recovery},
};

use super::{
    Size,
    client::{CLAIM, Client, Records},
    figure::{Figure, Print},
};
use crate::rows::{milliseconds, percentile};

/// Octets of a record, as in the paper.
const RECORD: usize = 4096;
/// Octets of a store of this host at most.
const ROOM: u64 = 1 << 30;
/// Octets of a file that are read at once.
const READ: usize = 1 << 20;
/// Milliseconds: one record confirmed, in the middle and nearly always; 10,000 written, and read. Over veth.
const GOALS: [f64; 4] = [0.1, 2.0, 300.0, 100.0];
/// What the paper has for 10,000: written, and read.
const MANY: usize = 10_000;

/// Where records go.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Place {
    Veth,
    Loopback,
    File,
    Memory,
}

impl Place {
    const ALL: [Self; 4] = [Self::Veth, Self::Loopback, Self::File, Self::Memory];

    fn name(self) -> &'static str {
        match self {
            Self::Veth => "Redis over veth",
            Self::Loopback => "Redis over loopback",
            Self::File => "file",
            Self::Memory => "memory",
        }
    }
}

/// What one round gave, in milliseconds.
#[derive(Clone, Debug, Default)]
struct Round {
    /// Of each single record.
    single: Vec<f64>,
    /// Of each number of records.
    written: Vec<f64>,
    read: Vec<f64>,
}

pub(super) fn run(size: &Size, print: Print<'_>) -> Result<()> {
    let mut rounds: Vec<(Place, Vec<Round>)> = Place::ALL.map(|place| (place, Vec::new())).into();
    for number in 1..=size.rounds {
        eprintln!("records ({number} of {})", size.rounds);
        for (place, rounds) in &mut rounds {
            rounds.push(round(*place, size).with_context(|| place.name())?);
        }
    }
    for (place, rounds) in &mut rounds {
        let [middle, most, written, read] = GOALS.map(|goal| (*place == Place::Veth).then_some(goal));
        let name = place.name();
        for (share, text, goal) in [(0.5, "p50", middle), (0.99, "p99", most)] {
            let of: Vec<_> = rounds.iter_mut().map(|round| percentile(&mut round.single, share)).collect();
            print(bounded(Figure::new(format!("{name}: one record confirmed, {text}"), &of, "ms"), goal))?;
        }
        for (at, count) in size.records.iter().enumerate() {
            let of = |values: fn(&Round) -> &[f64]| {
                rounds.iter().map(|round| values(round)[at]).collect::<Vec<_>>()
            };
            for (what, values, goal) in
                [("written", of(|round| &round.written), written), ("read", of(|round| &round.read), read)]
            {
                let figure = Figure::new(format!("{name}: {count} records {what}"), &values, "ms");
                print(bounded(figure, goal.filter(|_| *count == MANY)))?;
            }
        }
    }
    Ok(())
}

fn bounded(figure: Figure, most: Option<f64>) -> Figure {
    match most {
        Some(most) => figure.at_most(most),
        None => figure,
    }
}

fn round(place: Place, size: &Size) -> Result<Round> {
    match place {
        Place::Veth => {
            let (near, far) = (Namespace::new("writer")?, Namespace::new("store")?);
            let end = |host, addresses| End { host, interface: "store", addresses };
            link(&end(&near, &["10.9.0.1/24"]), &end(&far, &["10.9.0.2/24"]))?;
            of_server(&near, &far, Ipv4Addr::new(10, 9, 0, 2), size)
        }
        Place::Loopback => {
            let host = Namespace::new("store")?;
            of_server(&host, &host, Ipv4Addr::LOCALHOST, size)
        }
        Place::File => of_contents(true, size),
        Place::Memory => of_contents(false, size),
    }
}

fn of_server(near: &Namespace, far: &Namespace, address: Ipv4Addr, size: &Size) -> Result<Round> {
    let _server = Redis::start(Some(far), &[])?;
    let (at, size) = (SocketAddr::new(address.into(), PORT), size.clone());
    near.run(move || {
        let (mut round, pool) = (Round::default(), Records::pool());
        let mut client = Client::claim(at, "single")?;
        for number in 0..size.single {
            let start = Instant::now();
            client.write(Records::new(&pool, number, 1, RECORD))?;
            round.single.push(milliseconds(start.elapsed()));
        }
        for count in size.records {
            // Another router's keys: an empty store in the same server.
            let mut client = Client::claim(at, &count.to_string())?;
            let start = Instant::now();
            client.write(Records::new(&pool, 0, *count, RECORD))?;
            round.written.push(milliseconds(start.elapsed()));
            let start = Instant::now();
            let octets = client.read()?;
            round.read.push(milliseconds(start.elapsed()));
            ensure!(octets == (count * RECORD) as u64, "{octets} octets of {count} records");
        }
        Ok(round)
    })?
}

/// A store of this host, as the replicator has one: what is granted is in memory, and where there is a file, there as well.
struct Local {
    contents: Contents,
    file: Option<(File, u64, PathBuf)>,
    sequence: u64,
}

impl Drop for Local {
    fn drop(&mut self) {
        if let Some((_, _, path)) = &self.file {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Local {
    fn claim(with_file: bool) -> Result<Self> {
        let mut local = Self { contents: Contents::new(ROOM), file: None, sequence: 0 };
        if with_file {
            let path = std::env::temp_dir().join(format!("holdfast-bench-{}-records", std::process::id()));
            let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
            let header = file::header();
            file.write_all_at(&header, 0)?;
            local.file = Some((file, header.len() as u64, path));
        }
        let Answer::Claimed(claimed) = local.ask(&CLAIM)? else { bail!("not claimed") };
        local.sequence = claimed.sequence;
        Ok(local)
    }

    fn ask(&mut self, request: &Request) -> Result<Answer> {
        let answer = self.contents.answer(request);
        if let (Some((file, length, _)), Answer::Claimed(_) | Answer::Applied(_)) = (&mut self.file, &answer)
        {
            let mut octets = Vec::new();
            file::append(request, &mut octets);
            file.write_all_at(&octets, *length)?;
            *length += octets.len() as u64;
        }
        match answer {
            Answer::Refused(refused) => bail!("refused: {refused}"),
            answer => Ok(answer),
        }
    }

    fn write(&mut self, mut records: Records) -> Result<()> {
        while let Some(batch) = records.batch(self.sequence + 1)? {
            self.sequence += 1;
            self.ask(&batch)?;
        }
        Ok(())
    }

    /// Reads the file, if there is one, and then all objects; how many octets these have.
    fn read(&mut self) -> Result<u64> {
        if let Some((file, length, _)) = &self.file {
            let (mut recovery, mut at, mut room) = (Recovery::new(), 0, vec![0; READ]);
            while at < *length {
                let count = file.read_at(&mut room, at)?;
                ensure!(count > 0 && recovery.push(&room[..count]), "the file ends too soon");
                at += count as u64;
            }
            self.contents = recovery.finish(ROOM)?.contents;
        }
        let mut octets = 0;
        let mut from = Cursor::default();
        loop {
            let listed = self.contents.list(1, &from);
            for object in listed.objects {
                let Description::Range { start, end } = object.description else { continue };
                let mut at = start;
                while at < end {
                    let Ok(Page::Range { octets: page, .. }) = self.contents.page(1, &object.name, at) else {
                        bail!("no page of {:?} at {at}", object.name)
                    };
                    at += page.len() as u64;
                }
                octets += at - start;
            }
            match listed.next {
                Some(next) => from = next,
                None => return Ok(octets),
            }
        }
    }
}

fn of_contents(with_file: bool, size: &Size) -> Result<Round> {
    let (mut round, pool) = (Round::default(), Records::pool());
    let mut local = Local::claim(with_file)?;
    for number in 0..size.single {
        let start = Instant::now();
        local.write(Records::new(&pool, number, 1, RECORD))?;
        round.single.push(milliseconds(start.elapsed()));
    }
    drop(local);
    for count in size.records {
        let mut local = Local::claim(with_file)?;
        let start = Instant::now();
        local.write(Records::new(&pool, 0, *count, RECORD))?;
        round.written.push(milliseconds(start.elapsed()));
        let start = Instant::now();
        let octets = local.read()?;
        round.read.push(milliseconds(start.elapsed()));
        ensure!(octets == (count * RECORD) as u64, "{octets} octets of {count} records");
    }
    Ok(round)
}
