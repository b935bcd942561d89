//! A commit at the router that has the sessions, and its standby.

use std::{fs, thread, time::Duration};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    netns::Namespace,
    redis::{PORT, Redis},
    replication::scene::LIMIT,
    router::{Files, LeaseDirectory, Router, binary},
    wait,
};

const KEY: &str = "a secret of both routers\n";

struct Scene {
    primary: Router,
    standby: Router,
    redis: Redis,
    host: Namespace,
    _lease: LeaseDirectory,
}

impl Scene {
    /// Two routers with keys, one of which has the lease and the other waits.
    fn start(name: &str, keys: [&str; 2]) -> Result<Self> {
        let (host, lease) = (Namespace::new(name)?, LeaseDirectory::new(name)?);
        let redis = Redis::start(Some(&host), &[])?;
        let launch = |own: &str, key: &str, more: &[&str]| {
            let directory = lease.path().display();
            let configuration = format!(
                "[router]\nid = \"10.0.0.1\"\nasn = 65001\n{own}\n\
                 [nonstop.store]\nkind = \"redis\"\naddresses = [\"127.0.0.1:{PORT}\"]\nkey-file = \"store.key\"\n\
                 lease-directory = \"{directory}\"\n[bgp]\n[[bgp.peer]]\nname = \"a\"\naddress = \"127.0.0.2\"\n\
                 asn = 65002\nmd5 = \"hunter2\"\nimport = \"shared\"\nexport = \"reject-all\"\n\
                 [[policy]]\nname = \"shared\"\nlast = \"accept\"\n"
            );
            let files = Files::from([("store.key".to_owned(), key.to_owned())]);
            Router::launch(&binary()?, &host, &configuration, &files, more)
        };
        let primary = launch("[log]\nlevel = \"debug\"\n", keys[0], &[])?;
        primary.wait_running()?;
        primary.until_role("primary", LIMIT)?;
        // What is its own needs something that is shared.
        let own = "[[rip.interface]]\nname = \"eth9\"\nimport = \"shared\"\nexport = \"reject-all\"\n[rip]\nupdate = 17\n";
        let standby = launch(own, keys[1], &["--standby"])?;
        standby.until_standby()?;
        Ok(Self { primary, standby, redis, host, _lease: lease })
    }

    /// Waits until the routers say of their configurations that they are the same, or not.
    fn until_same(&self, is_same: bool) -> Result<()> {
        wait::until("the configurations", LIMIT, || {
            let shown = self.primary.cli(&["show", "nsr"]).map_err(|error| error.to_string())?;
            if shown.contains("as here") == is_same { Ok(()) } else { Err(shown) }
        })
        .with_context(|| self.standby.log_tail())
    }
}

fn commit(router: &Router, lines: &str) -> Result<(bool, String)> {
    let output = router.begin_commit(lines, "commit")?.wait_with_output()?;
    let said =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    Ok((output.status.success(), said))
}

fn file(router: &Router) -> Result<String> {
    Ok(fs::read_to_string(router.configuration())?)
}

#[test]
fn a_commit_is_at_the_standby_when_it_takes_effect_and_only_what_both_can_have_does() -> Result<()> {
    let scene = Scene::start("commits", [KEY, KEY])?;
    let Scene { primary, standby, redis, .. } = &scene;
    scene.until_same(true)?;
    // A change of shared tables, with a secret in it.
    let (done, said) =
        commit(primary, "set bgp.peer.a.md5 hunter3\nset prefix-set.more.prefixes 192.0.2.0/24")?;
    ensure!(done && !said.contains("standby"), "{said}");
    let found = file(standby)?;
    ensure!(found.contains("hunter3") && found.contains("192.0.2.0/24"), "{found}");
    ensure!(found.contains("update = 17") && !found.contains("debug"), "its own tables stay: {found}");
    let history = standby.cli(&["call", "manager/manager.v1/History"])?.replace('+', " ");
    ensure!(history.contains("from the router with the sessions"), "{history}");
    scene.until_same(true)?;
    // It is in the store, and cannot be read there.
    let mut has_configuration = false;
    for key in redis.cli(&["KEYS", "*:data"])?.lines() {
        let held = redis.cli(&["HGETALL", key])?;
        has_configuration |= held.contains("configuration") && held.len() > found.len() / 2;
        ensure!(!held.contains("hunter") && !held.contains("192.0.2.0"), "{key}: {held}");
    }
    ensure!(has_configuration, "the store does not have it");
    // What the standby cannot have is refused, at the router that has the sessions, and nothing has changed.
    let (before, theirs) = (file(primary)?, file(standby)?);
    let (done, said) = commit(primary, "set bgp.peer.a.import accept-all\ndelete policy.shared")?;
    ensure!(!done && said.contains("standby cannot take it"), "{said}");
    ensure!(file(primary)? == before && file(standby)? == theirs, "{}", file(primary)?);
    ensure!(standby.log().contains("configuration-not-taken"), "{}", standby.log_tail());
    scene.until_same(true)?;
    // The standby has no say, by a commit or by its file. Its own tables are its own.
    let (done, said) = commit(standby, "set bgp.peer.a.md5 hunter4")?;
    ensure!(!done && said.contains("commit there"), "{said}");
    let (done, said) = commit(standby, "set rip.update 18")?;
    ensure!(done, "{said}");
    // With its own tables as it can have them the same commit is taken.
    let (done, said) = commit(standby, "set rip.interface.eth9.import accept-all")?;
    ensure!(done, "{said}");
    let (done, said) = commit(primary, "set bgp.peer.a.import accept-all\ndelete policy.shared")?;
    ensure!(done && !said.contains("note"), "{said}");
    ensure!(!file(standby)?.contains("[[policy]]"), "{}", file(standby)?);
    let before = file(primary)?;
    // A reload is no less.
    fs::write(primary.configuration(), before.replace("hunter3", "hunter5"))?;
    primary.cli(&["reload"])?;
    ensure!(file(standby)?.contains("hunter5"), "{}", file(standby)?);
    ensure!(file(standby)?.contains("update = 18"), "{}", file(standby)?);
    scene.until_same(true)?;
    // What replaces `bgp` does so at the standby, too, where it waits, and has no peers.
    for line in ["set router.asn 65009", "set router.id 10.0.0.9"] {
        let (done, said) = commit(primary, line)?;
        ensure!(done && !said.contains("note"), "{said}");
        scene.until_same(true)?;
    }
    ensure!(!standby.log().contains("peers-configured"), "{}", standby.log_tail());
    // Another key, at both.
    for router in [primary, standby] {
        let files = Files::from([("store.key".to_owned(), "another secret of both\n".to_owned())]);
        router.reload_with_files(&file(router)?, &files)?;
    }
    scene.until_same(true)?;
    let (done, said) = commit(primary, "set prefix-set.more.prefixes 203.0.113.0/24")?;
    ensure!(done && !said.contains("note"), "{said}");
    ensure!(file(standby)?.contains("203.0.113.0"), "{}", file(standby)?);
    scene.until_same(true)
}

#[test]
fn a_store_and_a_standby_that_are_away_have_a_commit_later_and_another_key_is_no_key() -> Result<()> {
    let mut scene = Scene::start("away", [KEY, KEY])?;
    scene.until_same(true)?;
    let redis = scene.redis.pid()?;
    rustix::process::kill_process(redis, rustix::process::Signal::STOP)?;
    let (done, said) = commit(&scene.primary, "set prefix-set.more.prefixes 192.0.2.0/24")?;
    rustix::process::kill_process(redis, rustix::process::Signal::CONT)?;
    ensure!(done && said.contains("the store does not have it yet"), "{said}");
    scene.until_same(true)?;
    ensure!(file(&scene.standby)?.contains("192.0.2.0/24"), "{}", file(&scene.standby)?);
    // One that was away when something was committed takes it when it is back. One with another key does not.
    scene.standby.die()?;
    let (done, said) = commit(&scene.primary, "set prefix-set.more.prefixes 198.51.100.0/24")?;
    ensure!(done, "{said}");
    let before = file(&scene.standby)?;
    let launch = |key: &str| {
        let files = Files::from([("store.key".to_owned(), key.to_owned())]);
        let router = Router::launch(&binary()?, &scene.host, &before, &files, &["--standby"])?;
        router.until_standby()?;
        Ok::<_, anyhow::Error>(router)
    };
    let stranger = launch("another secret of somebody\n")?;
    wait::until("a refusal", LIMIT, || {
        let log = stranger.log();
        if log.contains("another secret in its `key-file`") { Ok(()) } else { Err(log) }
    })?;
    ensure!(file(&stranger)? == before, "{}", file(&stranger)?);
    stranger.stop()?;
    let again = launch(KEY)?;
    wait::until("the commit", LIMIT, || {
        let found = file(&again).map_err(|error| error.to_string())?;
        if found.contains("198.51.100.0/24") { Ok(()) } else { Err(found) }
    })
}

/// The time to confirm in begins when a commit takes effect, and not when it begins to wait for the store.
#[test]
fn a_commit_that_has_waited_has_all_its_time_to_be_confirmed() -> Result<()> {
    let scene = Scene::start("confirmed", [KEY, KEY])?;
    scene.until_same(true)?;
    let before = file(&scene.primary)?;
    let redis = scene.redis.pid()?;
    rustix::process::kill_process(redis, rustix::process::Signal::STOP)?;
    let output =
        scene.primary.begin_commit("set bgp.hold-time 33", "commit confirmed 2s")?.wait_with_output()?;
    rustix::process::kill_process(redis, rustix::process::Signal::CONT)?;
    ensure!(output.status.success(), "{output:?}");
    ensure!(file(&scene.primary)?.contains("hold-time = 33"), "{}", scene.primary.log_tail());
    wait::until("the roll-back", LIMIT, || {
        let found = file(&scene.primary).map_err(|error| error.to_string())?;
        if found == before { Ok(()) } else { Err(found) }
    })?;
    scene.until_same(true)
}

/// Nobody was silent: a router that was stopped as a whole has asked nobody meanwhile.
#[test]
fn a_standby_that_was_stopped_for_long_still_waits() -> Result<()> {
    let scene = Scene::start("stopped", [KEY, KEY])?;
    let standby = &scene.standby;
    let pids = standby.pids()?;
    standby.pause(&pids)?;
    // Longer than it waits for a replicator that does not answer.
    thread::sleep(Duration::from_secs(11));
    pids.iter().try_for_each(|pid| standby.resume(*pid))?;
    standby.until_standby()?;
    let (done, said) = commit(&scene.primary, "set prefix-set.more.prefixes 192.0.2.0/24")?;
    ensure!(done && !said.contains("note"), "{said}");
    scene.until_same(true)?;
    let shown = standby.show(&["processes"])?;
    ensure!(shown["bgp"]["state"] == "waiting", "{shown}");
    ensure!(!standby.log().contains("configuration-forced"), "{}", standby.log_tail());
    Ok(())
}
