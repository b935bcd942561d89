//! The port answers at all times: somebody connects again and again while the processes behind it die and are replaced.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    netns::Namespace,
    router::{Router, binary},
    topology::{Side, Star, v4},
};
use rustix::process::{Signal, kill_process};

/// One answer is not waited for longer.
const LIMIT: Duration = Duration::from_secs(10);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(2);

/// A session, and a range whose members come and go.
const CONFIGURATION: &str = r#"
[router]
id = "10.0.0.1"
asn = 65000
[bgp]
[[bgp.peer]]
name = "range"
listen-range = "10.0.1.0/24"
asn = "any"
import = "accept-all"
export = "accept-all"
[[bgp.peer]]
name = "signed"
address = "10.0.2.2"
asn = 65002
md5 = "hush"
ttl-security = true
import = "accept-all"
export = "accept-all"
"#;

/// Connects from a host again and again.
struct Caller {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Calls>,
}

/// What has come of it.
#[derive(Default)]
struct Calls {
    answered: usize,
    /// How, and when since the first.
    refused: Vec<(Duration, String)>,
    longest: Duration,
}

impl Caller {
    fn start(host: &Namespace, to: SocketAddr) -> Result<Self> {
        let ends = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ends);
        let thread = host.run(move || thread::spawn(move || call(to, &end)))?;
        Ok(Self { ends, thread })
    }

    fn end(self) -> Result<Calls> {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow::anyhow!("the caller has panicked"))
    }
}

fn call(to: SocketAddr, end: &AtomicBool) -> Calls {
    let (begin, mut calls) = (Instant::now(), Calls::default());
    while !end.load(Ordering::Relaxed) {
        let asked = Instant::now();
        match TcpStream::connect_timeout(&to, LIMIT) {
            Ok(_) => calls.answered += 1,
            // It has answered, and was not wanted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => calls.answered += 1,
            Err(error) => calls.refused.push((begin.elapsed(), error.to_string())),
        }
        calls.longest = calls.longest.max(asked.elapsed());
        thread::sleep(PAUSE);
    }
    calls
}

/// Ends these at the same time.
fn kill(router: &Router, names: &[&str]) -> Result<()> {
    let pids: Vec<_> = names.iter().map(|name| router.pid(name)).collect::<Result<_>>()?;
    for pid in pids {
        kill_process(pid, Signal::KILL)?;
    }
    router.wait_running()
}

/// The calls while this is done: none was refused.
fn while_called<T>(star: &Star, what: impl FnOnce() -> Result<T>) -> Result<T> {
    let caller = Caller::start(star.neighbor(1), (v4(1, Side::First), 179).into())?;
    let done = what();
    let calls = caller.end()?;
    let done = done?;
    println!("{} answers, the longest wait {:?}", calls.answered, calls.longest);
    ensure!(calls.answered > 10, "only {} answers", calls.answered);
    ensure!(calls.refused.is_empty(), "refused: {:?}", calls.refused);
    Ok(done)
}

/// The kernel's number of the socket that listens on the port.
fn listening(star: &Star) -> Result<String> {
    let shown = star.router.command("ss").args(["-Htlne", "sport = :179 and src 0.0.0.0"]).output()?;
    let shown = String::from_utf8(shown.stdout)?;
    let number = shown.split_whitespace().find(|word| word.starts_with("sk:"));
    number.map(str::to_owned).with_context(|| format!("nobody listens: {shown}"))
}

/// A copy of the binary that is another build.
fn another_build(router: &Router) -> Result<PathBuf> {
    let path = router.directory().join("another");
    std::fs::copy(binary()?, &path)?;
    let mut file = std::fs::OpenOptions::new().append(true).open(&path)?;
    io::Write::write_all(&mut file, b"\n")?;
    let made = Command::new("chmod").arg("755").arg(&path).status()?;
    ensure!(made.success(), "chmod");
    Ok(path)
}

#[test]
fn the_port_answers_whoever_dies() -> Result<()> {
    let star = Star::new(2)?;
    let router = Router::start(&star.router, CONFIGURATION)?;
    let before = listening(&star)?;
    while_called(&star, || {
        for names in [
            &["fea"][..],
            &["transport"],
            &["bgp"],
            &["rib"],
            &["manager"],
            &["transport", "bgp"],
            &["fea", "transport"],
            &["transport", "manager"],
            &["fea", "transport", "bgp", "rib", "manager"],
        ] {
            kill(&router, names).with_context(|| format!("killing {names:?}"))?;
        }
        Ok(())
    })
    .with_context(|| router.log_tail())?;
    ensure!(listening(&star)? == before, "it is another socket");
    Ok(())
}

#[test]
fn the_port_answers_while_the_binary_is_replaced() -> Result<()> {
    let star = Star::new(2)?;
    let router = Router::start(&star.router, CONFIGURATION)?;
    let build = another_build(&router)?;
    let build = build.to_str().context("a path")?;
    while_called(&star, || {
        router.cli(&["upgrade", "--binary", build])?;
        kill(&router, &["fea", "transport"])
    })
    .with_context(|| router.log_tail())
}

#[test]
fn the_port_answers_where_the_manager_opens_it() -> Result<()> {
    let star = Star::new(2)?;
    let router = Router::start(&star.router, &format!("{CONFIGURATION}[rib]\nenabled = false\n"))?;
    while_called(&star, || {
        kill(&router, &["manager"])?;
        kill(&router, &["transport"])?;
        kill(&router, &["manager", "transport"])
    })
    .with_context(|| router.log_tail())
}

#[test]
fn an_address_where_nobody_is_expected_any_more_answers_no_more() -> Result<()> {
    let star = Star::new(2)?;
    let at = |port: u16| CONFIGURATION.replace("[bgp]\n", &format!("[bgp]\nport = {port}\n"));
    let router = Router::start(&star.router, &at(179))?;
    let answers = |port: u16| {
        let to = SocketAddr::from((v4(1, Side::First), port));
        star.neighbor(1).run(move || TcpStream::connect_timeout(&to, LIMIT).is_ok())
    };
    ensure!(answers(179)?, "it listens");
    router.reload_with_files(&at(1179), &std::collections::BTreeMap::new())?;
    holdfast_lab::wait::until("the other port", LIMIT, || {
        let now = [179, 1179].map(|port| answers(port).map_err(|error| error.to_string()));
        if now == [Ok(false), Ok(true)] { Ok(()) } else { Err(format!("{now:?}")) }
    })?;
    kill(&router, &["fea", "transport"])?;
    ensure!(!answers(179)?, "the keeper has forgotten it");
    Ok(())
}
