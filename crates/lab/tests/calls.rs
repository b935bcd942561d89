//! XRL against a running router: over TCP, signals, and callers that do not behave.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    netns::Namespace,
    router::{Router, binary},
    wait,
};

const LIMIT: Duration = Duration::from_secs(30);
const PORT: u16 = 4400;
const KEY: &str = "a key of sixteen octets or more";
const CONFIGURATION: &str = r#"
[router]
id = "10.0.0.1"
asn = 65000
[fea]
backend = "none"
[[protocol]]
name = "toy"
[bgp]
[xrl]
listen = "127.0.0.1:4400"
[[xrl.client]]
name = "alice"
key = "a key of sixteen octets or more"
[[xrl.client]]
name = "toy"
role = "protocol"
key = "another key, of the toy protocol"
"#;

/// A router that listens on TCP in a host of its own.
fn router(configuration: &str) -> Result<(Namespace, Router)> {
    let host = Namespace::new("router")?;
    host.ip(&["link", "set", "lo", "up"])?;
    let router = Router::start(&host, configuration)?;
    wait::until("xrl over tcp", LIMIT, || {
        if router.log().contains("xrl over tcp") { Ok(()) } else { Err(router.log_tail()) }
    })?;
    Ok((host, router))
}

/// `holdfast ARGS` over TCP as this client: whether it succeeded, and what it said.
fn over_tcp(host: &Namespace, client: &str, key: &str, args: &[&str]) -> Result<(bool, String)> {
    let binary = binary()?;
    let mut command: Command = host.command(binary.to_str().context("a path")?);
    command.args(args).env("HOLDFAST_KEY", key);
    command.env("HOLDFAST_RUNTIME_DIR", format!("tcp://{client}@127.0.0.1:{PORT}"));
    let done = command.output()?;
    let said = [done.stdout, done.stderr].concat();
    Ok((done.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

fn open_descriptors(router: &Router, process: &str) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{}/fd", router.pid(process)?.as_raw_nonzero()))?.count())
}

#[test]
fn an_operator_over_tcp_sees_and_calls_what_one_beside_the_router_does() -> Result<()> {
    let (host, _router) = router(CONFIGURATION)?;
    let (done, shown) = over_tcp(&host, "alice", KEY, &["show", "processes", "--json"])?;
    ensure!(done && shown.contains("\"bgp\""), "{shown}");
    let (done, shown) = over_tcp(&host, "alice", KEY, &["call", "rib/rib.v1/ShowStatus"])?;
    ensure!(done, "{shown}");
    let (done, resolved) = over_tcp(&host, "alice", KEY, &["call", "--resolve", "bgp/bgp.v1/Clear"])?;
    ensure!(done && resolved.contains("unix://bgp-"), "{resolved}");
    ensure!(resolved.contains(&format!("tcp://127.0.0.1:{PORT}/bgp-")), "{resolved}");
    ensure!(resolved.lines().any(|line| line.starts_with("signal://bgp-")), "{resolved}");

    for (client, key, args, expected) in [
        ("alice", "not the key of anybody", ["call", "--list"].as_slice(), "unknown client, or not its key"),
        ("bob", KEY, &["call", "--list"], "unknown client, or not its key"),
        ("toy", KEY, &["call", "--list"], "unknown client, or not its key"),
        ("alice", "short", &["call", "--list"], "a key has at least 16 octets"),
        ("alice", KEY, &["call", "bgp/bgp.v1/Configure"], "may not call"),
        (
            "alice",
            KEY,
            &["call", "manager/manager.v1/Upgrade"],
            "may not be called over tcp (local, unix may)",
        ),
        ("toy", "another key, of the toy protocol", &["show", "processes"], "may not call"),
    ] {
        let (done, said) = over_tcp(&host, client, key, args)?;
        ensure!(!done && said.contains(expected), "{client} {args:?}: {said}");
    }
    Ok(())
}

#[test]
fn a_reload_opens_closes_and_changes_keys() -> Result<()> {
    let (host, router) = router(CONFIGURATION)?;
    fs::write(router.configuration(), CONFIGURATION.replace("127.0.0.1:4400", "127.0.0.1:4401"))?;
    let said = router.cli(&["reload"])?;
    ensure!(said.contains("xrl listeners changed"), "{said}");
    wait::until("the old port closed", LIMIT, || {
        let (done, said) = over_tcp(&host, "alice", KEY, &["call", "--list"]).map_err(|e| e.to_string())?;
        if !done && said.contains("refused") { Ok(()) } else { Err(said) }
    })?;
    fs::write(router.configuration(), CONFIGURATION.replace("a key of sixteen", "a new key of sixteen"))?;
    router.cli(&["reload"])?;
    wait::until("the new key", LIMIT, || {
        let key = KEY.replace("a key", "a new key");
        let (done, said) =
            over_tcp(&host, "alice", &key, &["show", "processes"]).map_err(|e| e.to_string())?;
        if done { Ok(()) } else { Err(said) }
    })?;
    let (done, said) = over_tcp(&host, "alice", KEY, &["call", "--list"])?;
    ensure!(!done && said.contains("not its key"), "{said}");
    Ok(())
}

#[test]
fn strangers_on_tcp_cost_little_and_leave_nothing() -> Result<()> {
    let (host, router) = router(CONFIGURATION)?;
    over_tcp(&host, "alice", KEY, &["show", "processes"])?;
    let before = open_descriptors(&router, "manager")?;
    let pid = router.pid("manager")?;
    host.run(|| -> Result<()> {
        let address = SocketAddr::from(([127, 0, 0, 1], PORT));
        let mut silent = Vec::new();
        for number in 0..500u32 {
            let mut stream = TcpStream::connect(address)?;
            match number % 4 {
                0 => stream.write_all(b"GET / HTTP/1.1\r\n\r\n")?,
                1 => stream.write_all(&[0, 0, 0, 66, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0])?,
                2 => stream.write_all(&[0xff; 4096])?,
                _ => {}
            }
            silent.push(stream);
        }
        // Each hears an end, at the latest when its time is over.
        for mut stream in silent {
            stream.set_read_timeout(Some(LIMIT))?;
            let mut said = Vec::new();
            let ended = stream.read_to_end(&mut said);
            let timeout = ended.as_ref().err().is_some_and(|e| e.kind() == std::io::ErrorKind::WouldBlock);
            ensure!(!timeout, "a connection hangs after {} octets", said.len());
        }
        Ok(())
    })??;
    let asked = Instant::now();
    let (done, said) = over_tcp(&host, "alice", KEY, &["show", "processes"])?;
    ensure!(done, "{said}");
    println!("after 500 strangers: answered within {:?}", asked.elapsed());
    ensure!(router.pid("manager")? == pid, "the manager died");
    wait::until("descriptors as before", LIMIT, || {
        let now = open_descriptors(&router, "manager").map_err(|error| error.to_string())?;
        if now <= before { Ok(()) } else { Err(format!("{now}, before {before}")) }
    })
}

#[test]
fn a_signal_is_sent_to_who_is_named() -> Result<()> {
    let (_host, router) = router(CONFIGURATION)?;
    let before = router.pid("bgp")?;
    let said = router.cli(&["call", "signal://bgp/TERM"])?;
    ensure!(said.contains(&format!("pid:u32={}", before.as_raw_nonzero())), "{said}");
    wait::until("another bgp", LIMIT, || match router.pid("bgp") {
        Ok(now) if now != before => Ok(()),
        now => Err(format!("{now:?}")),
    })?;
    router.wait_running()?;
    let instance = format!("signal://rib-{}/SIGKILL", router.pid("rib")?.as_raw_nonzero());
    let before = router.pid("rib")?;
    router.cli(&["call", &instance])?;
    wait::until("another rib", LIMIT, || match router.pid("rib") {
        Ok(now) if now != before => Ok(()),
        now => Err(format!("{now:?}")),
    })?;
    router.wait_running()?;
    for (xrl, expected) in [
        ("signal://keeper/KILL", "the keeper is sent no signals"),
        ("signal://keeper/STOP", "the keeper is sent no signals"),
        ("signal://nobody/TERM", "no component \"nobody\" is running"),
        ("signal://bgp/15", "\"15\" is no signal that can be sent"),
        ("signal://bgp", "is not signal://TARGET/SIGNAL"),
        ("signal://finder/TERM", "no component \"finder\" is running"),
    ] {
        let refused = router.cli(&["call", xrl]).err().context("it was carried out")?.to_string();
        ensure!(refused.contains(expected), "{xrl}: {refused}");
    }
    Ok(())
}

#[test]
fn a_call_to_a_process_that_dies_meanwhile_ends() -> Result<()> {
    let (host, router) = router(CONFIGURATION)?;
    let binary = binary()?;
    // A stream that has no end of its own, once beside the router and once over TCP.
    let watch = "rib/rib.v1/Redistribute?origins=static&afi=1";
    let places = [router.directory().display().to_string(), format!("tcp://alice@127.0.0.1:{PORT}")];
    let callers = places.map(|place| {
        let mut command = host.command(binary.to_str().unwrap_or_default());
        command.args(["call", watch]).env("HOLDFAST_RUNTIME_DIR", place).env("HOLDFAST_KEY", KEY);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped()).spawn()
    });
    let mut callers = callers.into_iter().collect::<std::io::Result<Vec<_>>>()?;
    wait::until("both streams", LIMIT, || {
        let told = router.cli(&["call", "finder/finder.v1/Channels?target=rib", "--json"]);
        let told: serde_json::Value =
            serde_json::from_str(&told.map_err(|e| e.to_string())?).map_err(|e| e.to_string())?;
        let operators = told["channels"].as_array().into_iter().flatten();
        let busy = operators.filter(|c| c["role"] == "operator" && c["serving"] == 1).count();
        if busy == 2 { Ok(()) } else { Err(told.to_string()) }
    })?;
    router.kill("rib")?;
    for caller in &mut callers {
        let ended = wait::until("the end of a call", LIMIT, || {
            caller.try_wait().map_err(|error| error.to_string())?.ok_or_else(|| "it hangs".to_owned())
        })?;
        let mut said = String::new();
        caller.stderr.take().context("its words")?.read_to_string(&mut said)?;
        ensure!(ended.code() == Some(3) && said.contains("the router does not answer"), "{ended}: {said}");
    }
    Ok(())
}
