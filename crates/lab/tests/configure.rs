//! `holdfast configure` against a running router: commits, confirmation, history, two operators, and a manager that is
//! killed in the middle.

use std::{fs, net::TcpListener, time::Duration};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{netns::Namespace, router::Router, table::random::Random, wait};

const LIMIT: Duration = Duration::from_secs(20);

/// A router that needs nobody.
const ALONE: &str = r#"# Edge router.
[router]
id = "10.0.0.1"
asn = 65001 # ours

[bgp]
port = 1179

[[bgp.peer]] # a peer that nobody is
name = "a"
address = "10.9.0.2"
asn = 65102
"#;

/// Runs a script; what it says, or why it fails.
fn script(router: &Router, name: &str, lines: &str) -> Result<String> {
    let file = router.directory().join(name);
    fs::write(&file, lines)?;
    router.cli(&["configure", "-f", file.to_str().context("a path")?])
}

fn refused(router: &Router, name: &str, lines: &str) -> Result<String> {
    Ok(script(router, name, lines).err().context("it should be refused")?.to_string())
}

fn file(router: &Router) -> Result<String> {
    Ok(fs::read_to_string(router.configuration())?)
}

fn description(router: &Router) -> Result<String> {
    Ok(router.neighbor("a")?["nbrDesc"].as_str().unwrap_or_default().to_owned())
}

fn until_description(router: &Router, wanted: &str) -> Result<()> {
    wait::until("the description", LIMIT, || match description(router) {
        Ok(found) if found == wanted => Ok(()),
        Ok(found) => Err(found),
        Err(error) => Err(error.to_string()),
    })
    .with_context(|| router.log_tail())
}

#[test]
fn a_commit_takes_effect_is_in_the_file_and_in_the_history() -> Result<()> {
    let host = Namespace::new("commit")?;
    let router = Router::start(&host, ALONE)?;
    let said = script(
        &router,
        "first",
        "set bgp.peer.a.description \"port 7\"\nset bgp.peer.b address 10.9.0.3\nset bgp.peer.b.asn 65103\n\
         compare\ncheck\ncommit comment a second peer\n",
    )?;
    for part in ["+description = \"port 7\"\n", "peers added: b", "peers changed: a", "version 2 runs"] {
        ensure!(said.contains(part), "{part}: {said}");
    }
    ensure!(description(&router)? == "port 7" && router.neighbor("b").is_ok());
    let text = file(&router)?;
    ensure!(
        text.starts_with("# Edge router.\n")
            && text.contains("65001 # ours")
            && text.contains("# a peer that")
    );

    let history = script(&router, "history", "history\n")?;
    let lines: Vec<_> = history.lines().collect();
    ensure!(
        lines[1].starts_with('*') && lines[1].contains(" root ") && lines[1].ends_with("a second peer"),
        "{history}"
    );
    ensure!(lines[2].contains("found in the file"), "{history}");

    // Back to what was there before, letter by letter.
    script(&router, "back", "rollback 1\ncommit\n")?;
    ensure!(file(&router)? == ALONE && router.neighbor("b").is_err());

    // What is wrong changes nothing.
    let said = refused(&router, "wrong", "set bgp.peer.a.import nobody\ncommit\n")?;
    ensure!(said.contains("no policy `nobody`"), "{said}");
    ensure!(file(&router)? == ALONE);
    let history = script(&router, "after", "history\n")?;
    ensure!(history.lines().count() == 4, "what was refused is no version: {history}");

    // Only the end of the line is missing: that is a version as well, and nobody is told anything.
    fs::write(router.configuration(), format!("{ALONE}# edited\n"))?;
    let said = refused(&router, "edited", "set bgp.peer.a.description x\ncommit\n")?;
    ensure!(said.contains("has been changed and not reloaded"), "{said}");
    ensure!(script(&router, "force", "set bgp.peer.a.description x\ncommit force\n").is_ok());
    ensure!(!file(&router)?.contains("# edited"));
    Ok(())
}

#[test]
fn a_commit_that_nobody_confirms_is_rolled_back_also_by_the_next_manager() -> Result<()> {
    let host = Namespace::new("confirm")?;
    let router = Router::start(&host, ALONE)?;
    script(&router, "one", "set bgp.peer.a.description one\ncommit confirmed 1s\n")?;
    until_description(&router, "")?;
    ensure!(file(&router)? == ALONE);

    // The manager dies while the time runs.
    script(&router, "two", "set bgp.peer.a.description two\ncommit confirmed 2s\n")?;
    ensure!(description(&router)? == "two");
    router.kill("manager")?;
    until_description(&router, "")?;
    wait::until("the old file", LIMIT, || {
        let text = file(&router).map_err(|error| error.to_string())?;
        if text == ALONE { Ok(()) } else { Err(text) }
    })?;
    let history = script(&router, "history", "history\n")?;
    ensure!(
        history.contains("rolled back to version 1: version") && history.contains("was not confirmed"),
        "{history}"
    );

    // Confirmed, it stays; also for a manager that comes later.
    let said = script(&router, "three", "set bgp.peer.a.description three\ncommit confirmed 3s\ncommit\n")?;
    ensure!(said.ends_with("confirmed\n"), "{said}");
    router.kill("manager")?;
    router.wait_running()?;
    std::thread::sleep(Duration::from_secs(4));
    ensure!(description(&router)? == "three" && file(&router)?.contains("three"));

    // What somebody has written by hand meanwhile is not overwritten.
    script(&router, "four", "set bgp.peer.a.description four\ncommit confirmed 2s\n")?;
    fs::write(
        router.configuration(),
        ALONE.replace("asn = 65102", "asn = 65102\ndescription = \"by hand\""),
    )?;
    router.cli(&["reload"])?;
    std::thread::sleep(Duration::from_secs(3));
    ensure!(description(&router)? == "by hand" && file(&router)?.contains("by hand"));
    Ok(())
}

#[test]
fn a_manager_that_is_killed_while_it_commits_leaves_one_file_or_the_other() -> Result<()> {
    let host = Namespace::new("killed")?;
    let router = Router::start(&host, ALONE)?;
    let mut random = Random::new(9);
    let (mut committed, mut lost) = (0, 0);
    for round in 1..=16 {
        let before = file(&router)?;
        let after = match before.split_once("description = \"") {
            Some((head, rest)) => {
                let (_, tail) = rest.split_once('"').context("a quotation mark")?;
                format!("{head}description = \"round {round}\"{tail}")
            }
            None => format!("{before}description = \"round {round}\"\n"),
        };
        let manager = router.pid("manager")?;
        let lines = format!("set bgp.peer.a.description \"round {round}\"\ncommit\n");
        let delay = Duration::from_micros(u64::from(random.below(60_000)));
        let mut said = None;
        std::thread::scope(|scope| {
            let commit = scope.spawn(|| script(&router, "round", &lines));
            std::thread::sleep(delay);
            let killed = rustix::process::kill_process(manager, rustix::process::Signal::KILL);
            said = commit.join().ok();
            killed
        })?;
        let found = file(&router)?;
        ensure!(found == before || found == after, "round {round}: {found}");
        // What the operator is told is what there is, whenever the manager died.
        let said = said.context("the script ends")?;
        let said = said.unwrap_or_else(|error| error.to_string());
        let is_told = said.contains(" runs");
        ensure!(is_told == (found == after), "round {round}: {said}, and the file says\n{found}");
        if found == after {
            committed += 1;
        } else {
            lost += 1;
        }
        router.wait_running()?;
        // What runs is what is in the file, and the history can be read.
        let described = found.split("description = \"").nth(1).and_then(|rest| rest.split('"').next());
        until_description(&router, described.unwrap_or_default())?;
        script(&router, "history", "history\n")?;
    }
    println!("{committed} commits were there, {lost} were not");
    ensure!(committed > 0 && lost > 0, "both happen: {committed}, {lost}");
    let temporary = router.configuration().with_file_name("router.toml.new");
    script(&router, "last", "set bgp.peer.a.description last\ncommit\n")?;
    ensure!(!temporary.exists() && description(&router)? == "last");
    Ok(())
}

/// The manager that has just started tells every process what is in the file, and commits at the same time.
#[test]
fn a_commit_while_a_manager_starts_is_what_runs() -> Result<()> {
    let host = Namespace::new("starts")?;
    let router = Router::start(&host, ALONE)?;
    for round in 1..=24 {
        router.kill("manager")?;
        let lines = format!("set bgp.peer.a.description \"round {round}\"\ncommit\n");
        wait::until("the commit", LIMIT, || {
            let said = script(&router, "round", &lines).map_err(|error| format!("{error:#}"))?;
            if said.contains(" runs") { Ok(()) } else { Err(said) }
        })?;
        router.wait_running()?;
        let found = description(&router)?;
        ensure!(found == format!("round {round}"), "round {round}: {found} runs; {}", router.log_tail());
    }
    Ok(())
}

#[test]
fn of_two_operators_the_second_is_told() -> Result<()> {
    let host = Namespace::new("two")?;
    let router = Router::start(&host, ALONE)?;
    // What the first has made its candidate from.
    let base = router.cli(&["call", "manager/manager.v1/ShowConfiguration", "--json"])?;
    script(&router, "second", "set bgp.peer.a.description second\ncommit\n")?;
    let base: serde_json::Value = serde_json::from_str(&base)?;
    let base = base["base"].to_string();
    let stale = router
        .cli(&["call", &format!("manager/manager.v1/Commit?text:txt=x&base:u64={}", base.trim_matches('"'))]);
    let said = stale.err().context("it should be refused")?.to_string();
    ensure!(said.contains("somebody else has committed"), "{said}");
    ensure!(description(&router)? == "second");
    Ok(())
}

#[test]
fn a_port_that_somebody_has_is_a_fault_and_the_rest_runs() -> Result<()> {
    let host = Namespace::new("taken")?;
    let router = Router::start(&host, ALONE)?;
    let taken = host.run(|| TcpListener::bind("0.0.0.0:1180"))??;
    let lines = "set bgp.port 1180\nset bgp.peer.a.description \"port 7\"\ncommit\n";
    let said = refused(&router, "taken", lines)?;
    for part in ["with faults", "transport: cannot listen at", "port 1180"] {
        ensure!(said.contains(part), "{part}: {said}");
    }
    ensure!(description(&router)? == "port 7" && file(&router)?.contains("1180"));
    let fault = || -> Result<String> {
        let shown = router.show(&["processes"])?;
        Ok(shown["transport"]["detail"].as_str().unwrap_or_default().to_owned())
    };
    ensure!(fault()?.contains("cannot listen at"), "{}", router.show(&["processes"])?);
    // It is tried again until it works.
    drop(taken);
    wait::until("the port", LIMIT, || match fault() {
        Ok(fault) if fault.is_empty() => Ok(()),
        Ok(fault) => Err(fault),
        Err(error) => Err(error.to_string()),
    })?;
    ensure!(
        script(&router, "later", "set bgp.peer.a.description later\ncommit\n")?.contains("version 3 runs\n")
    );
    Ok(())
}
