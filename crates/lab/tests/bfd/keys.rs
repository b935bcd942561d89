//! Authentication with BIRD (FRR has none): algorithms, keys that are changed while the session is Up, wrong ones.

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    bfd::{
        Follower, configuration, counter, profile,
        stock::{Stock, bird_protocol},
        until_session, until_state,
    },
    peers::Programs,
    router::{Files, Router},
    topology::Star,
    wait,
};

use super::LIMIT;

const REMOTE: &str = "10.0.1.2";
const LOCAL: &str = "10.0.1.1";

/// A key of ours, with these further lines.
fn key(id: u8, algorithm: &str, secret: &str, more: &str) -> String {
    format!("[[bfd.profile.key]]\nid = {id}\nalgorithm = \"{algorithm}\"\nsecret = \"{secret}\"\n{more}\n")
}

fn ours(keys: &[String]) -> String {
    configuration(&profile("lab", 300, &format!("detect-multiplier = 5\n{}", keys.concat())))
}

/// BIRD's end with keys, the first of which it sends with.
fn bird(authentication: &str, keys: &[(u8, &str)]) -> String {
    let keys: String =
        keys.iter().map(|(id, secret)| format!("password \"{secret}\" {{ id {id}; }};\n")).collect();
    let options = format!("interval 300 ms; multiplier 5; authentication {authentication}; {keys}");
    bird_protocol(&options, &["10.0.1.1 dev \"n1\" local 10.0.1.2"])
}

#[test]
fn sessions_with_bird_are_up_with_every_algorithm() -> Result<()> {
    Programs::all().try_for_each(|programs| {
        let all = ["meticulous keyed sha1", "keyed sha1", "meticulous keyed md5", "keyed md5"];
        all.into_iter().try_for_each(|name| with_algorithm(&programs, name).context(name))
    })
}

fn with_algorithm(programs: &Programs, name: &str) -> Result<()> {
    let star = Star::new(1)?;
    let algorithm = name.replace(' ', "-");
    let router = Router::start(&star.router, &ours(&[key(7, &algorithm, "of both", "")]))?;
    let bird = Stock::bird(programs, star.neighbor(1), &bird(name, &[(7, "of both")]), "")?;
    let follower = Follower::start(&router, "remote:ip=10.0.1.2&profile=lab")?;
    follower.until("UP", LIMIT).with_context(|| router.log_tail())?;
    bird.until(LOCAL, "up", LIMIT)?;
    let session = until_session(&router, REMOTE, LIMIT, |row| row["detection-time"] == 1500)?;
    ensure!(session["authentication"] == true, "{session}");
    // So many packets that a sequence number was used more than once, or was none.
    let before = counter(&router, REMOTE, "control-packet-input")?;
    wait::until("packets", LIMIT, || match counter(&router, REMOTE, "control-packet-input") {
        Ok(now) if now > before + 10 => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    ensure!(bird.downs(LOCAL)? == 0 && counter(&router, REMOTE, "session-down")? == 0);
    router.stop()
}

#[test]
fn keys_change_while_a_session_is_up_and_another_secret_ends_it() -> Result<()> {
    Programs::all().try_for_each(|programs| keys_change(&programs))
}

fn keys_change(programs: &Programs) -> Result<()> {
    let star = Star::new(1)?;
    let algorithm = "meticulous-keyed-sha1";
    let (old, new) = (key(1, algorithm, "the old one", ""), key(2, algorithm, "the new one", ""));
    let new_too = key(2, algorithm, "the new one", "send = false");
    let old_too = key(1, algorithm, "the old one", "send = false");
    let router = Router::start(&star.router, &ours(std::slice::from_ref(&old)))?;
    let (first, second) = ((1, "the old one"), (2, "the new one"));
    let theirs = |keys: &[(u8, &str)]| bird("meticulous keyed sha1", keys);
    let mut bird = Stock::bird(programs, star.neighbor(1), &theirs(&[first]), "")?;
    let follower = Follower::start(&router, "remote:ip=10.0.1.2&profile=lab")?;
    follower.until("UP", LIMIT).with_context(|| router.log_tail())?;
    bird.until(LOCAL, "up", LIMIT)?;

    // Each accepts the next key before the other sends with it.
    let reload = |keys: &[String]| router.reload_with_files(&ours(keys), &Files::new());
    reload(&[old, new_too])?;
    bird.as_bird()?.reconfigure("bfd.conf", &theirs(&[first, second]))?;
    reload(&[new.clone(), old_too])?;
    bird.as_bird()?.reconfigure("bfd.conf", &theirs(&[second, first]))?;
    reload(std::slice::from_ref(&new))?;
    bird.as_bird()?.reconfigure("bfd.conf", &theirs(&[second]))?;
    let before = counter(&router, REMOTE, "control-packet-input")?;
    wait::until("packets", LIMIT, || match counter(&router, REMOTE, "control-packet-input") {
        Ok(now) if now > before + 10 => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    let states = follower.states();
    ensure!(states.iter().filter(|state| *state == "UP").count() == 1, "{states:?}");
    ensure!(bird.downs(LOCAL)? == 0, "{}", bird.as_bird()?.log());

    // A secret that is not theirs, no key, and the right one again.
    for wrong in [vec![key(2, algorithm, "something else", "")], vec![]] {
        reload(&wrong)?;
        until_state(&router, REMOTE, "down", LIMIT)?;
        let before = counter(&router, REMOTE, "not-authentic")?;
        wait::until("packets of theirs", LIMIT, || match counter(&router, REMOTE, "not-authentic") {
            Ok(now) if now > before => Ok(()),
            other => Err(format!("{other:?}")),
        })?;
        ensure!(bird.state(LOCAL)? != "up");
    }
    reload(&[new])?;
    follower.until("UP", LIMIT)?;
    bird.until(LOCAL, "up", LIMIT)?;
    router.stop()
}
