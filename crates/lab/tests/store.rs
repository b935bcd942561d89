//! The store on a real server: its scripts do what the model does, and what can go wrong with a server has a name.

mod client;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use holdfast_lab::{netns::Namespace, redis::Redis, wait};
use holdfast_store::{
    Answer, Claim, Contents, Cursor, Description, Failure, Kind, Listed, MERGED, MOST_FREED, Name, Operation,
    Page, Refused, Request,
    fuzzing::Requests,
    redis::{Reply, Script, answer, authenticate, confirmed, wait as wait_for},
};

use client::{Client, Writer};

const LIMIT: Duration = Duration::from_secs(20);

/// Of an empty store.
const CLAIM: Request = Request::Claim(Claim { incarnation: 1, is_empty: true, epoch: 1, generation: 1 });

fn name(name: &str) -> Name {
    Name::new(name.as_bytes()).expect("a name")
}

fn append(at: u64, octets: &[u8]) -> Operation {
    Operation::Append { name: name("s/3/in"), at, octets: octets.to_vec() }
}

fn put(of: &str, octets: usize) -> Operation {
    Operation::Put { name: name(of), value: vec![7; octets] }
}

fn remove(of: &str) -> Operation {
    Operation::Remove { name: name(of) }
}

/// Answers are the same; lists in any order.
fn ensure_same(theirs: Answer, ours: Answer) -> Result<()> {
    let sorted = |answer| match answer {
        Answer::Listed(Listed { mut objects, next }) => {
            objects.sort_by_key(|object| object.name);
            objects.dedup();
            Answer::Listed(Listed { objects, next })
        }
        other => other,
    };
    let (theirs, ours) = (sorted(theirs), sorted(ours));
    ensure!(theirs == ours, "the server: {theirs:?}\nthe model: {ours:?}");
    Ok(())
}

/// Everything on the server is what is in the model.
fn ensure_equal(client: &mut Client, contents: &Contents) -> Result<()> {
    let state = client.state()?;
    ensure!(state == contents.state(), "{state:?}");
    for generation in state.context("it is there")?.generations {
        let objects = client.list(generation)?;
        ensure!(objects == contents.list(generation, &Cursor::default()).objects, "{objects:?}");
        for object in objects {
            let mut at = match object.description {
                Description::Value { .. } => 0,
                Description::Range { start, .. } => start,
            };
            loop {
                let page = client.page(generation, object.name, at)?;
                ensure!(Ok(&page) == contents.page(generation, &object.name, at).as_ref(), "{object:?}");
                match page {
                    Page::Range { octets, .. } if !octets.is_empty() => at += octets.len() as u64,
                    Page::Range { .. } | Page::Value(_) => break,
                }
            }
        }
    }
    Ok(())
}

#[test]
fn the_scripts_do_what_the_model_does() -> Result<()> {
    let server = Redis::start(None, &[])?;
    let mut answers = BTreeMap::new();
    for seed in 0..40 {
        let mut client = Client::loaded(&server, &format!("router {seed}"))?;
        client.ok(&["FLUSHALL"])?;
        let (mut contents, mut requests) = (Contents::new(u64::MAX), Requests::new(seed));
        for step in 0..150 {
            let request = requests.next(&contents);
            let ours = contents.answer(&request);
            let what = format!("{ours:?}");
            *answers.entry(what.chars().take(17).collect::<String>()).or_insert(0) += 1;
            let theirs =
                client.ask(&request)?.with_context(|| format!("seed {seed}, step {step}: {request:?}"))?;
            ensure_same(theirs, ours).with_context(|| format!("seed {seed}, step {step}: {request:?}"))?;
        }
        ensure_equal(&mut client, &contents).with_context(|| format!("seed {seed}"))?;
        let keys = 1 + 2 * contents.state().context("it is there")?.generations.len() as i64;
        ensure!(client.number(&["DBSIZE"])? == keys, "what was discarded is gone");
    }
    // The walk was through everything.
    for refused in ["Lost", "Epoch", "Sequen", "Genera", "Unfit ", "Used {", "NotThe"] {
        ensure!(
            answers.keys().any(|answer| answer.starts_with(&format!("Refused({refused}"))),
            "{refused}: {answers:?}"
        );
    }
    Ok(())
}

#[test]
fn a_script_frees_so_much_and_no_more() -> Result<()> {
    let server = Redis::start(None, &[])?;
    let mut writer = Writer::new(Client::loaded(&server, "r")?, 1)?;
    let (chunk, mut at) = (vec![1; MERGED], 0);
    while at < (MOST_FREED + 10) * MERGED as u64 {
        let chunks: Vec<_> = (0..200).map(|i| append(at + i * MERGED as u64, &chunk)).collect();
        at += (chunks.len() * MERGED) as u64;
        writer.passes(chunks)?;
    }
    writer.fails([put("v", 1), remove("s/3/in")], Refused::TooMuch { operation: 1 })?;
    let start = Instant::now();
    writer.passes([Operation::Trim { name: name("s/3/in"), to: at }])?;
    println!("{MOST_FREED} chunks are freed in {:?}", start.elapsed());
    let range = Description::Range { start: MOST_FREED * MERGED as u64, end: at };
    ensure!(writer.client.list(1)?.iter().any(|object| object.description == range));
    writer.passes([remove("s/3/in")])?;
    Ok(())
}

#[test]
fn a_server_that_has_lost_something_says_so() -> Result<()> {
    let mut server = Redis::start(None, &[])?;
    let mut writer = Writer::new(Client::loaded(&server, "r")?, 0xabc)?;
    writer.passes([append(0, b"a"), put("v", 3), Operation::Adopt])?;

    writer.client.ok(&["SCRIPT", "FLUSH"])?;
    // All that were on their way are not done; all are sent again.
    let batches = (0..20)
        .map(|i| {
            let batch = writer.batch([append(1 + i, b"b")]);
            writer.sequence += 1;
            batch
        })
        .collect::<Result<Vec<_>>>()?;
    for again in [false, true] {
        for batch in &batches {
            let octets = writer.client.encode(batch)?;
            writer.client.write(&octets)?;
        }
        for _ in &batches {
            let said = answer(Kind::Batch, writer.client.reply()?);
            let is_right = if again { said.is_ok() } else { said == Err(Failure::NoScript) };
            ensure!(is_right, "{said:?}");
        }
        writer.client.load()?;
    }
    writer.passes([append(21, b"c")])?;

    // A key of the generation goes, as with another `maxmemory-policy`.
    ensure!(writer.client.number(&["DEL", "holdfast:{r}:1:data"])? == 1);
    writer.fails([append(22, b"d")], Refused::Lost { there: Some(0xabc) })?;
    let state = writer.client.state()?.context("it is there")?;
    ensure!(state.sequence == writer.sequence, "a refused batch has no effect");
    writer.client.ok(&["FLUSHALL"])?;
    writer.fails([append(22, b"d")], Refused::Lost { there: None })?;
    ensure!(writer.client.number(&["DBSIZE"])? == 0);

    let mut writer = Writer::new(Client::loaded(&server, "r")?, 7)?;
    writer.passes([append(0, b"a")])?;
    let batch = writer.batch([append(1, b"b")])?;
    server.restart()?;
    let mut client = Client::new(&server, "r")?;
    ensure!(client.ask(&batch)? == Err(Failure::NoScript));
    client.load()?;
    ensure!(client.answer(&batch)? == Answer::Refused(Refused::Lost { there: None }));
    ensure!(client.state()?.is_none());
    Ok(())
}

#[test]
fn a_full_server_takes_what_frees_and_nothing_by_halves() -> Result<()> {
    let server = Redis::start(None, &["--maxmemory-policy", "noeviction"])?;
    let mut writer = Writer::new(Client::loaded(&server, "r")?, 1)?;
    writer.passes([append(0, &[1; 5000]), append(5000, &[1; 5000]), put("v", 100), put("w", 100)])?;
    writer.client.ok(&["CONFIG", "SET", "maxmemory", "1"])?;
    let state = writer.client.state()?;
    let (objects, page) = (writer.client.list(1)?, writer.client.page(1, name("s/3/in"), 0)?);
    for operations in [vec![append(10_000, b"b")], vec![remove("v"), put("x", 10)], vec![put("w", 50)]] {
        writer.fails(operations, Failure::OutOfMemory)?;
    }
    ensure!(writer.client.state()? == state && writer.client.list(1)? == objects);
    ensure!(writer.client.page(1, name("s/3/in"), 0)? == page);
    let trim = Operation::Trim { name: name("s/3/in"), to: 6000 };
    writer.passes([remove("v"), trim, Operation::Adopt])?;
    ensure!(writer.client.list(1)?.len() == 2);
    writer.client.ok(&["CONFIG", "SET", "maxmemory", "0"])?;
    writer.passes([append(10_000, b"b")])?;
    Ok(())
}

#[test]
fn other_data_under_our_keys_is_left_alone() -> Result<()> {
    let server = Redis::start(None, &[])?;
    let mut other = Client::new(&server, "other")?;
    let keys: [(&str, &[&str]); 4] = [
        ("holdfast:{r}:head", &["SET", "holdfast:{r}:head", "x"]),
        ("holdfast:{r}:head", &["HSET", "holdfast:{r}:head", "x", "y"]),
        ("holdfast:{r}:1:index", &["SET", "holdfast:{r}:1:index", "x"]),
        ("holdfast:{r}:1:data", &["RPUSH", "holdfast:{r}:1:data", "x"]),
    ];
    for (key, words) in keys {
        other.ok(&["FLUSHALL"])?;
        other.command(words)?;
        let mut client = Client::loaded(&server, "r")?;
        ensure!(client.ask(&CLAIM)? == Err(Failure::OtherData), "{words:?}");
        ensure!(other.number(&["DBSIZE"])? == 1, "{words:?}");

        // The same under a writer that is there.
        other.ok(&["FLUSHALL"])?;
        let mut writer = Writer::new(Client::loaded(&server, "r")?, 1)?;
        ensure!(other.number(&["DEL", key])? == 1);
        other.command(words)?;
        writer.fails([append(0, b"a")], Failure::OtherData).with_context(|| words.join(" "))?;
    }
    Ok(())
}

#[test]
fn an_empty_chunk_of_somebody_else_holds_nobody_up() -> Result<()> {
    let server = Redis::start(None, &[])?;
    let mut writer = Writer::new(Client::loaded(&server, "r")?, 1)?;
    writer.passes([append(0, &[1; 10]), Operation::Adopt])?;
    ensure!(writer.client.number(&["HSET", "holdfast:{r}:1:data", "c0:s/3/in", ""])? == 0, "it is there");
    let page = Request::Page { generation: 1, name: name("s/3/in"), at: 0 };
    ensure!(writer.client.ask(&page)? == Err(Failure::OtherData));
    Ok(())
}

/// It would end the connection, again and again.
#[test]
fn what_is_longer_than_anything_of_ours_is_passed_over() -> Result<()> {
    let server = Redis::start(None, &[])?;
    let mut writer = Writer::new(Client::loaded(&server, "r")?, 1)?;
    writer.passes([append(0, &[1; 10]), put("a", 7), put("b", 7), Operation::Adopt])?;
    let long = "x".repeat((1 << 20) + 1);
    for field in ["va", "c0:s/3/in"] {
        ensure!(writer.client.number(&["HSET", "holdfast:{r}:1:data", field, &long])? == 0, "it is there");
    }
    for of in ["a", "s/3/in"] {
        let page = Request::Page { generation: 1, name: name(of), at: 0 };
        ensure!(writer.client.ask(&page)? == Err(Failure::OtherData), "{of}");
    }
    ensure!(writer.client.number(&["HSET", "holdfast:{r}:1:index", "0/e/1", &long.repeat(20)])? == 1);
    ensure!(writer.client.list(1)?.len() == 3, "that is none of ours");
    let values = Request::Values { generation: 1, names: ["a", "b", "c"].map(name).to_vec() };
    ensure!(writer.client.ask(&values)? == Ok(Answer::Values(vec![None, Some(vec![7; 7]), None])));
    Ok(())
}

#[test]
fn passwords_and_rights_have_names() -> Result<()> {
    let server = Redis::start(None, &["--requirepass", "secret"])?;
    let mut client = Client::new(&server, "r")?;
    ensure!(client.ask(&Request::State)? == Err(Failure::NoAuth));
    let mut log_in = |user, password: &str| {
        let mut out = Vec::new();
        authenticate(user, password, &mut out);
        client.send(&out)
    };
    ensure!(log_in(None, "wrong")? == Reply::Error(Failure::WrongPassword));
    ensure!(log_in(Some("nobody"), "secret")? == Reply::Error(Failure::WrongPassword));
    ensure!(log_in(None, "secret")? == Reply::Status(b"OK".to_vec()));
    ensure!(client.state()?.is_none());
    // What a router needs, and a user that may do less.
    client.ok(&["ACL", "SETUSER", "router", "on", ">pw", "~holdfast:{r}:*", "+@all", "-@dangerous"])?;
    client.ok(&["ACL", "SETUSER", "reader", "on", ">pw", "~holdfast:{r}:*", "+hmget"])?;
    let mut out = Vec::new();
    authenticate(Some("router"), "pw", &mut out);
    ensure!(client.send(&out)? == Reply::Status(b"OK".to_vec()));
    client.load()?;
    let mut writer = Writer::new(client, 1)?;
    writer.passes([append(0, b"a"), Operation::Adopt])?;
    out.clear();
    authenticate(Some("reader"), "pw", &mut out);
    ensure!(writer.client.send(&out)? == Reply::Status(b"OK".to_vec()));
    writer.fails([append(1, b"b")], Failure::NoPermission)
}

/// Waits until the one replica has everything, and asks for so many.
fn until_confirmed(client: &mut Client, replicas: u32, replica: &Redis) -> Result<()> {
    wait::until("the replica", LIMIT, || {
        let mut out = Vec::new();
        wait_for(replicas, 100, &mut out);
        match client.send(&out).and_then(|reply| Ok(confirmed(&reply)?)) {
            Ok(1) => Ok(()),
            other => Err(format!("{other:?}; {}", replica.log())),
        }
    })
}

#[test]
fn a_server_that_cannot_says_why() -> Result<()> {
    let host = Namespace::new("store")?;
    let mut master = Redis::start(Some(&host), &["--repl-ping-replica-period", "1"])?;
    let other = Namespace::new("replica")?;
    host.ip(&["link", "add", "eth1", "type", "veth", "peer", "name", "eth2", "netns", other.name()])?;
    for (host, link, address) in [(&host, "eth1", "10.9.0.1/24"), (&other, "eth2", "10.9.0.2/24")] {
        host.ip(&["address", "add", address, "dev", link])?;
        host.ip(&["link", "set", link, "up"])?;
    }
    let options = ["--replicaof", "10.9.0.1 6379", "--replica-serve-stale-data", "no", "--repl-timeout", "3"];
    let replica = Redis::start(Some(&other), &options)?;
    let mut writer = Writer::new(Client::loaded(&master, "r")?, 1)?;
    writer.passes([append(0, b"a"), put("v", 3), Operation::Adopt])?;

    // What a replica has confirmed is there.
    until_confirmed(&mut writer.client, 1, &replica)?;
    until_confirmed(&mut writer.client, 2, &replica)?;
    let mut reader = Client::loaded(&replica, "r")?;
    ensure!(reader.state()? == writer.client.state()?);
    ensure!(reader.page(1, name("s/3/in"), 0)? == writer.client.page(1, name("s/3/in"), 0)?);
    ensure!(reader.ask(&writer.batch([append(1, b"b")])?)? == Err(Failure::ReadOnly));

    // A master that wants more replicas, and one that is busy.
    writer.client.ok(&["CONFIG", "SET", "min-replicas-to-write", "2"])?;
    writer.fails([append(1, b"b")], Failure::NoReplicas)?;
    writer.client.ok(&["CONFIG", "SET", "min-replicas-to-write", "0"])?;
    writer.client.ok(&["CONFIG", "SET", "busy-reply-threshold", "10"])?;
    let mut busy = Client::new(&master, "r")?;
    let script = "while true do end";
    busy.write(format!("*3\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0\r\n", script.len()).as_bytes())?;
    wait::until("a busy server", LIMIT, || match writer.write([]) {
        Ok(Err(client::Problem::Failure(Failure::Busy))) => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    writer.client.ok(&["SCRIPT", "KILL"])?;
    ensure!(matches!(busy.reply()?, Reply::Error(Failure::Other(_))), "it was killed");

    // The replica does not get the last batches, and is promoted. (The kernel of a dead master would still send them.)
    until_confirmed(&mut writer.client, 1, &replica)?;
    other.ip(&["link", "set", "eth2", "down"])?;
    let before = writer.sequence;
    writer.passes([append(1, b"b")])?;
    writer.passes([append(2, b"c")])?;
    master.kill()?;
    wait::until("the loss of the master", LIMIT, || match reader.ask(&Request::State) {
        Ok(Err(Failure::MasterDown)) => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    reader.ok(&["REPLICAOF", "NO", "ONE"])?;
    reader.load()?;
    let late = reader.answer(&writer.batch([append(3, b"d")])?)?;
    ensure!(late == Answer::Refused(Refused::Sequence { there: before }), "{late:?}");
    Ok(())
}

#[test]
fn what_a_server_is_sent_without_a_script_is_named() -> Result<()> {
    let server = Redis::start(None, &[])?;
    let mut client = Client::new(&server, "r")?;
    ensure!(client.ask(&CLAIM)? == Err(Failure::NoScript));
    let Reply::Array(known) =
        client.command(&["SCRIPT", "EXISTS", str::from_utf8(&Script::Claim.digest())?])?
    else {
        bail!("no list");
    };
    ensure!(known == [Reply::Integer(0)]);
    Ok(())
}
