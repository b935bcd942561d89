//! What may happen to a store: nothing leaves meanwhile that it does not have, and all goes on afterwards.

use std::{
    fs::{self, File},
    io::{ErrorKind, Write},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    drill::time::now,
    redis::sentinel::Pair,
    replication::{
        scene::{Kind, LIMIT, Scene, Set, store_address},
        stock::Special,
    },
    router::Files,
    wait,
};

use super::SECOND;

/// What is held back while the store is as it is made here: no octet more is acknowledged from 50 ms after that on. In the
/// end the router says of the store what is expected.
fn hold(scene: &Scene, version: usize, says: &str, make: impl FnOnce() -> Result<()>) -> Result<usize> {
    make()?;
    thread::sleep(Duration::from_millis(50));
    let since = now();
    let version = scene.churn(2 * SECOND, version)?;
    let until = now();
    wait::until("the trouble", LIMIT, || {
        let shown = scene.show().map_err(|error| error.to_string())?;
        let is_it = shown.contains("protection:txt=waiting") && shown.replace('+', " ").contains(says);
        if is_it { Ok(()) } else { Err(shown) }
    })
    .with_context(|| scene.trouble())?;
    for stock in &scene.stocks {
        let connection = stock.capture.stream(stock.address)?;
        let (before, after) = (connection.acknowledged(since), connection.acknowledged(until));
        ensure!(before == after, "{} octets were acknowledged; {}", after - before, scene.trouble());
    }
    Ok(version)
}

/// All is protected again, and nothing has left that the store did not have.
fn mended(scene: &Scene, version: usize) -> Result<usize> {
    let shown = scene.until_protected("full", LIMIT)?;
    let version = scene.churn(SECOND / 2, version)?;
    scene.settle(version)?;
    ensure!(!shown.contains("gaps:"), "{shown}");
    scene.ensure_replicated(&[(scene.gated, now())])?;
    scene.ensure_quiet()?;
    Ok(version)
}

fn password(text: &str) -> Files {
    Files::from([("store.password".to_owned(), format!("{text}\n"))])
}

/// Until the operator gives the right password, at the beginning as well as later.
#[test]
fn a_wrong_password_is_named_and_the_right_one_protects() -> Result<()> {
    let mut scene = Scene::open(&Set {
        more: "password-file = \"store.password\"",
        options: &["--requirepass", "first"],
        files: password("wrong"),
        ..Set::default()
    })?;
    const SAYS: &str = "the store knows no such user and password";
    let shown = scene.until_protected("beginning", LIMIT)?;
    ensure!(shown.replace('+', " ").contains(SAYS), "{shown}");
    let configuration = fs::read_to_string(scene.router.configuration())?;
    scene.router.reload_with_files(&configuration, &password("first"))?;
    scene.until_gated()?;
    let version = scene.churn(SECOND / 2, 0)?;
    scene.settle(version)?;
    let version = hold(&scene, version, SAYS, || {
        let as_first =
            |words: &[&str]| scene.redis_cli(&[&["--no-auth-warning", "-a", "first"], words].concat());
        as_first(&["CONFIG", "SET", "requirepass", "second"])?;
        // Who was let in stays in: this one, until it ends.
        scene.redis_cli(&["--no-auth-warning", "-a", "second", "CLIENT", "KILL", "TYPE", "normal"])?;
        Ok(())
    })?;
    scene.router.reload_with_files(&configuration, &password("second"))?;
    mended(&scene, version).map(drop)
}

/// It is named, and nothing leaves: no memory is left, or somebody else has written where we did.
#[test]
fn a_store_that_refuses_is_waited_for() -> Result<()> {
    let scene = Scene::start_default()?;
    let version = scene.churn(SECOND / 2, 0)?;
    scene.settle(version)?;
    let memory = |limit: &str| scene.redis_cli(&["CONFIG", "SET", "maxmemory", limit]).map(drop);
    let version = hold(&scene, version, "the store has reached its maxmemory", || memory("1"))?;
    memory("0")?;
    let version = mended(&scene, version)?;
    let all = "for _, key in ipairs(redis.call('KEYS', 'holdfast:*')) do redis.call('SET', key, 'x') end";
    let says = "other data is under the keys of this router";
    let version = hold(&scene, version, says, || scene.redis_cli(&["EVAL", all, "0"]).map(drop))?;
    scene.redis_cli(&["FLUSHALL"])?;
    mended(&scene, version).map(drop)
}

/// Somebody else fills the disk of a store of files, and makes room again.
#[test]
fn a_disk_that_is_full_is_waited_for() -> Result<()> {
    let scene = Scene::start(Kind::File, &[Special::Waits], "")?;
    let version = scene.churn(SECOND / 2, 0)?;
    scene.settle(version)?;
    let filler = scene.directory.as_ref().context("a directory")?.join("filler");
    let mut file = File::create(&filler)?;
    let full = loop {
        if let Err(error) = file.write_all(&[0; 4096]) {
            break error;
        }
    };
    ensure!(full.kind() == ErrorKind::StorageFull, "{full}");
    // What has been begun of a page is written to its end.
    let version = scene.churn(SECOND, version)?;
    scene.until_protected("waiting", LIMIT)?;
    let version = hold(&scene, version, "No space left on device", || Ok(()))?;
    drop(file);
    fs::remove_file(filler)?;
    // Nobody reads what goes to a file: that all has come, and was acknowledged, says the rest.
    scene.until_protected("full", LIMIT)?;
    let version = scene.churn(SECOND / 2, version)?;
    scene.settle(version)?;
    scene.ensure_quiet()
}

/// What goes to the store is lost on the way, then what comes from it.
#[test]
fn a_path_that_is_cut_in_one_direction_is_a_store_that_is_away() -> Result<()> {
    let scene = Scene::start_default()?;
    let mut version = scene.churn(SECOND / 2, 0)?;
    for to_store in [true, false] {
        scene.settle(version)?;
        version = hold(&scene, version, "", || scene.part(to_store, true))?;
        scene.part(to_store, false)?;
        version = mended(&scene, version).with_context(|| format!("to the store: {to_store}"))?;
    }
    Ok(())
}

/// The master dies in the middle of a table, and what it had confirmed last is not at the replica that is promoted. Everything
/// is written there before one more octet is acknowledged.
#[test]
fn a_promoted_replica_is_written_anew() -> Result<()> {
    let mut pair = Pair::start()?;
    let mut scene = Scene::open(&Set { pair: Some(&pair), ..Set::default() })?;
    scene.until_gated()?;
    let version = scene.churn(SECOND / 2, 0)?;
    let acknowledged = |scene: &Scene| -> Result<i64> {
        let stock = &scene.stocks[0];
        Ok(stock.capture.stream(stock.address)?.acknowledged(now()))
    };
    pair.part(true)?;
    let parted = acknowledged(&scene)?;
    scene.announce_many(100_000);
    let version = scene.churn(SECOND, version)?;
    ensure!(acknowledged(&scene)? > parted, "nothing was acknowledged without the replica");
    // Nobody listens there any more.
    drop(scene.proxy.take());
    pair.first.kill()?;
    pair.until_promoted()?;
    let version = scene.churn(SECOND / 2, version)?;
    let shown = scene.until_protected("full", LIMIT)?;
    ensure!(shown.contains("losses:"), "nothing was lost: {shown}");
    scene.settle(version)?;
    scene.until_told(100_000)?;
    mended(&scene, version).map(drop)
}

/// A master that has died comes back as a replica, which nobody can write, and is the preferred server: the other is found.
#[test]
fn a_preferred_server_that_is_a_replica_is_passed_over() -> Result<()> {
    let mut pair = Pair::start()?;
    let mut scene = Scene::open(&Set { pair: Some(&pair), ..Set::default() })?;
    scene.until_gated()?;
    drop(scene.proxy.take());
    pair.first.kill()?;
    pair.until_promoted()?;
    let version = scene.churn(SECOND / 2, 0)?;
    scene.until_protected("full", LIMIT)?;
    pair.first.restart()?;
    pair.degrade()?;
    let second = scene.second_proxy.as_ref().context("a proxy")?;
    let _first = second.beside(&scene.store_host, store_address(), &pair.first.socket())?;
    second.cut();
    let since = now();
    scene.change(version + 1)?;
    wait::until("a cut", LIMIT, || if second.has_cut() { Ok(()) } else { Err(String::new()) })?;
    // A server that says nothing would be left after 5 s as well.
    let stock = &scene.stocks[0];
    wait::until("an acknowledgement", 4 * SECOND, || match stock.capture.stream(stock.address) {
        Ok(stream) if stream.acknowledged_after(since).is_some() => Ok(()),
        _ => Err(scene.show().unwrap_or_default()),
    })?;
    mended(&scene, version + 1).map(drop)
}
