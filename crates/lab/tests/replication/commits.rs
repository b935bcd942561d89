//! A commit at the router that has the sessions, and its standby.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    netns::Namespace,
    redis::{PORT, Redis},
    replication::scene::LIMIT,
    router::{Files, Router, binary},
    wait,
};

const KEY: &str = "a secret of both routers\n";

/// The lock file of both is here; removed when dropped.
struct LeaseDirectory(PathBuf);

impl LeaseDirectory {
    fn new(name: &str) -> Result<Self> {
        let directory = std::env::temp_dir().join(format!("holdfast-lab-{}-{name}", std::process::id()));
        fs::create_dir_all(&directory)?;
        Ok(Self(directory))
    }
}

impl Drop for LeaseDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

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
            let directory = lease.0.display();
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
    let output = router.begin_commit(lines)?.wait_with_output()?;
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
    // In the store there is nothing to be read.
    for key in redis.cli(&["KEYS", "*"])?.lines() {
        let dump = redis.cli(&["DUMP", key])?;
        ensure!(!dump.contains("hunter") && !dump.contains("peer"), "{key}: {dump}");
    }
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
    let (done, said) = commit(primary, "set router.asn 65009")?;
    ensure!(done && !said.contains("note"), "{said}");
    scene.until_same(true)?;
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
    // One that was away when something was committed takes it before it takes over.
    scene.standby.die()?;
    let (done, said) = commit(&scene.primary, "set prefix-set.more.prefixes 198.51.100.0/24")?;
    ensure!(done, "{said}");
    let files = Files::from([("store.key".to_owned(), "another secret of somebody\n".to_owned())]);
    let configuration = file(&scene.standby)?;
    let stranger = Router::launch(&binary()?, &scene.host, &configuration, &files, &["--standby"])?;
    stranger.until_standby()?;
    wait::until("a refusal", LIMIT, || {
        let log = stranger.log();
        if log.contains("another secret in its `key-file`") { Ok(()) } else { Err(log) }
    })?;
    ensure!(file(&stranger)? == configuration, "{}", file(&stranger)?);
    Ok(())
}
