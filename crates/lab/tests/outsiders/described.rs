//! A protocol by its descriptor alone: `examples/hello-protocol`, copied to a directory of its own, at two routers.
//!
//! ```text
//!  near (10.0.1.1) ──n1── far (10.0.1.2)
//!    hello: 198.51.100.0/24   hello: 198.51.101.0/24
//! ```

use std::{
    fs::{self, OpenOptions},
    io::Write,
    net::{Ipv4Addr, UdpSocket},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    kernel::Monitor,
    netns::{Namespace, output},
    router::{Files, Router, binary},
    topology::Star,
    vrf::{Scene, TABLES},
    wait,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use socket2::SockRef;

use super::{LIMIT, examples, in_kernel, python, until_kernel};

/// What is installed of a protocol, outside of this repository, and of the router's directories.
pub(super) struct Installed(PathBuf);

impl Installed {
    fn new() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("holdfast-hello-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let installed = Self(std::env::temp_dir().join(name));
        fs::create_dir_all(&installed.0)?;
        fs::set_permissions(&installed.0, fs::Permissions::from_mode(0o755))?;
        Ok(installed)
    }

    fn put(&self, name: &str, text: &str) -> Result<String> {
        let file = self.0.join(name);
        fs::write(&file, text)?;
        Ok(file.to_str().context("a path of text")?.to_owned())
    }

    /// Where it is.
    pub(super) fn place(&self) -> Result<&str> {
        self.0.to_str().context("a path of text")
    }

    /// A program in Python with what it needs.
    pub(super) fn of(program: &Path) -> Result<Self> {
        let installed = Self::new()?;
        for from in [program, &examples().join("python/holdfast_xrl.py")] {
            fs::copy(from, installed.0.join(from.file_name().context("a name")?))?;
        }
        // It may start no compiler.
        let mut command = Command::new(python());
        command.arg(examples().join("python/holdfast_xrl.py")).arg("interfaces.fds");
        output(command.current_dir(&installed.0))?;
        Ok(installed)
    }

    /// `hello.py`, and its descriptor.
    fn hello() -> Result<(Self, Files)> {
        let installed = Self::of(&examples().join("hello-protocol/hello.py"))?;
        let place = installed.place()?;
        let descriptor = fs::read_to_string(examples().join("hello-protocol/hello.toml"))?;
        let descriptor = descriptor.replace("/opt/hello", place).replace("/usr/bin/python3", &python());
        Ok((installed, Files::from([("hello.toml".to_owned(), descriptor)])))
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const ROUTER: &str = "[router]\nid = \"10.0.0.1\"\nasn = 65000\n";
const DESCRIBED: &str = "[[protocol]]\nname = \"hello\"\ndescriptor = \"hello.toml\"\n";

fn configuration(word: &str, network: &str) -> String {
    format!(
        "{ROUTER}[rib]\nstale-time = 20\n{DESCRIBED}[hello]\nword = \"{word}\"\ninterval = 1\n\
        networks = [\"{network}\"]\n[[hello.interface]]\nname = \"n1\"\ncost = 7\n"
    )
}

const NEAR: &str = "198.51.100.0/24";
const FAR: &str = "198.51.101.0/24";

/// Two routers that have said hello to each other.
fn two(files: &Files) -> Result<(Star, Router, Router)> {
    let star = Star::new(1)?;
    let near = Router::start_with_files(&star.router, &configuration("near", NEAR), files)?;
    let far = Router::start_with_files(star.neighbor(1), &configuration("far", FAR), files)?;
    let by = |way: &'static str| move |route: Option<&str>| route.is_some_and(|route| route.contains(way));
    until_kernel(&star.router, FAR, by("via 10.0.1.2")).with_context(|| near.log_tail())?;
    until_kernel(star.neighbor(1), NEAR, by("via 10.0.1.1")).with_context(|| far.log_tail())?;
    Ok((star, near, far))
}

fn process(router: &Router) -> Result<Value> {
    Ok(router.show(&["processes"])?["hello"].clone())
}

/// Another one that runs in the place of this one.
fn until_another(router: &Router, before: Pid) -> Result<Pid> {
    wait::until("another hello", LIMIT, || {
        let shown = process(router).map_err(|error| error.to_string())?;
        match router.pid("hello") {
            // What is shown is of this one: one that has hardly begun is not looked after as those that run.
            Ok(pid)
                if pid != before
                    && shown["pid"] == pid.as_raw_nonzero().get()
                    && shown["state"] == "running" =>
            {
                Ok(pid)
            }
            _ => Err(shown.to_string()),
        }
    })
    .with_context(|| router.log_tail())
}

fn until_word(router: &Router, word: &str) -> Result<()> {
    wait::until("a neighbor's word", LIMIT, || match router.show(&["hello", "neighbors"]) {
        Ok(shown) if shown[0]["neighbor"] == word => Ok(()),
        other => Err(format!("{other:?}")),
    })
}

#[test]
fn a_protocol_lives_by_its_descriptor_alone() -> Result<()> {
    let (_installed, files) = Installed::hello()?;
    let (star, near, far) = two(&files)?;

    // It is nobody, and has a way to the keeper and nothing else.
    let pid = near.pid("hello")?;
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()))?;
    for line in
        ["Uid:\t60987\t60987\t60987\t60987\n", "Groups:\t \n", "CapEff:\t0000000000000000\n", "Seccomp:\t2\n"]
    {
        ensure!(status.contains(line), "{status}");
    }
    let shown = process(&near)?;
    ensure!(shown["user"] == 60_987 && shown["memoryLimitBytes"] == 256 << 20, "{shown}");

    // It is an origin, and answers for itself.
    let route = near.cli(&["show", "route", FAR])?;
    ensure!(
        route.contains("hello") && route.contains("130/7") && route.contains("10.0.1.2 via n1"),
        "{route}"
    );
    let networks = near.show(&["hello", "networks"])?;
    ensure!(
        networks
            == serde_json::json!([{ "network": FAR, "address": "10.0.1.2", "interface": "n1", "cost": 7 }])
    );
    for (arguments, rows) in [
        (&["--interface", "n1"][..], 1),
        (&["--network", FAR, "--interface", "n1"], 1),
        (&["--network", NEAR], 0),
    ] {
        let shown = near.show(&[&["hello", "networks"], arguments].concat())?;
        ensure!(shown.as_array().is_some_and(|shown| shown.len() == rows), "{arguments:?}: {shown}");
    }
    let refused = near.cli(&["show", "hello", "networks", "--network", "198.51.101.1/24"]);
    let refused = refused.expect_err("no prefix").to_string();
    ensure!(refused.contains("the prefix is 198.51.101.0/24"), "{refused}");
    let help = near.cli(&["show", "hello", "networks", "--help"])?;
    ensure!(help.contains("--network <network>") && help.contains("only this one (prefix)"), "{help}");
    ensure!(
        near.cli(&["clear", "hello", "counters", "--interface", "n2"])?
            == "cleared counters of 0 neighbors\n"
    );
    ensure!(
        near.cli(&["show", "hello"])?.contains("Neighbor"),
        "the first command is that of the name alone"
    );
    ensure!(
        near.cli(&["show", "hello", "--help"])?.ends_with("networks   the networks that neighbors lead to\n")
    );
    ensure!(
        near.cli(&["clear", "hello", "-h"])?
            .ends_with("Commands:\n  counters  begins to count hellos anew\n")
    );
    ensure!(near.cli(&["clear", "hello"])? == "cleared counters of 1 neighbors\n");
    let refused = near.cli(&["clear", "hello", "networks"]).expect_err("no such command").to_string();
    ensure!(refused.contains("there is: counters"), "{refused}");
    let refused = near.cli(&["show", "helo"]).expect_err("nobody").to_string();
    ensure!(refused.contains("unrecognized subcommand 'helo'"), "{refused}");

    // A change of its keys is told to it, and to nobody else.
    let changed = configuration("other", NEAR);
    ensure!(near.reload_with_files(&changed, &files)?.contains("sections changed: hello"));
    until_word(&far, "other")?;
    ensure!(near.pid("hello")? == pid);

    // Killed, stopped, and without its manager: nobody notices.
    let monitor = Monitor::start(&star.router)?;
    near.kill("hello")?;
    let pid = until_another(&near, pid)?;
    kill_process(pid, Signal::STOP)?;
    let pid = until_another(&near, pid)?;
    let shown = process(&near)?;
    ensure!(shown["last_end"] == "hung" && shown["restarts"] == 2, "{shown}");
    near.kill("manager")?;
    near.wait_running()?;
    ensure!(near.pid("hello")? == pid, "it outlives the manager");
    until_word(&near, "far")?;
    ensure!(
        near.reload_with_files(&configuration("third", NEAR), &files)?.contains("sections changed: hello")
    );
    until_word(&far, "third")?;
    let changes = monitor.changes()?;
    ensure!(changes.deleted.is_empty() && changes.written.is_empty(), "{changes:?}");

    // Another descriptor is another process; without a section there is none.
    let other = files.iter().map(|(name, text)| (name.clone(), text.replace("256 MiB", "300 MiB"))).collect();
    let said = near.reload_with_files(&configuration("third", NEAR), &other)?;
    ensure!(
        said.contains("protocols changed: hello") && said.contains("processes replaced: hello"),
        "{said}"
    );
    ensure!(near.pid("hello")? != pid && process(&near)?["memoryLimitBytes"] == 300 << 20);
    let said = near.reload_with_files(&format!("{ROUTER}{DESCRIBED}"), &other)?;
    ensure!(said.contains("sections removed: hello"), "{said}");
    wait::until("the end of hello", LIMIT, || {
        near.pid("hello").map_or(Ok(()), |pid| Err(format!("{pid:?}")))
    })?;
    until_kernel(&star.router, FAR, |route| route.is_none())?;
    near.stop()?;
    far.stop()
}

#[test]
fn a_secret_reaches_the_program_and_no_screen() -> Result<()> {
    let with =
        |key: &str, text: String| text.replace("interval = 1\n", &format!("interval = 1\nkey = \"{key}\"\n"));
    let (_installed, files) = Installed::hello()?;
    let star = Star::new(1)?;
    let near = Router::start_with_files(&star.router, &with("s3cret", configuration("near", NEAR)), &files)?;
    let far = Router::start_with_files(star.neighbor(1), &with("0ther", configuration("far", FAR)), &files)?;
    for router in [&near, &far] {
        wait::until("hello runs", LIMIT, || match process(router) {
            Ok(shown) if shown["state"] == "running" => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .with_context(|| router.log_tail())?;
    }
    let file = far.directory().join("changed.toml");
    let changed = with("s3cret", configuration("far", FAR));
    fs::write(&file, &changed)?;
    let differs = Command::new(binary()?)
        .args(["diff", "--unified", "--config"])
        .arg(&file)
        .env("HOLDFAST_RUNTIME_DIR", far.directory())
        .output()?;
    let said = String::from_utf8_lossy(&differs.stdout).into_owned();
    ensure!(said.contains("-key = \"(secret)\"\n+key = \"(another secret)\"\n"), "{said}");
    ensure!(near.show(&["hello", "neighbors"])? == json!([]), "they have different keys");
    far.reload_with_files(&changed, &files)?;
    until_word(&near, "far")?;
    until_word(&far, "near")?;

    let script = near.directory().join("script");
    fs::write(&script, "show\nset hello.key n3w\ncompare\nshow hello\ndiscard\n")?;
    let shown = near.cli(&["configure", "-f", script.to_str().context("a path of text")?])?;
    ensure!(shown.contains("+key = \"(another secret)\"") && !shown.contains("n3w"), "{shown}");
    for text in [said, shown, near.log(), far.log()] {
        ensure!(!text.contains("s3cret") && !text.contains("0ther"), "{text}");
    }
    near.stop()?;
    far.stop()
}

/// What a command of the router's binary says of a file in this directory, right or wrong.
fn check(option: &str, file: &Path) -> Result<String> {
    let output = Command::new(binary()?).args(["check", option]).arg(file).output()?;
    Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn keys_of_a_protocol_are_checked_compared_committed_and_rolled_back() -> Result<()> {
    let (_installed, files) = Installed::hello()?;
    let star = Star::new(1)?;
    let router = Router::start_with_files(&star.router, &configuration("near", NEAR), &files)?;
    let file = router.directory().join("checked.toml");
    let right = configuration("near", NEAR);
    for (old, new, expected) in [
        ("cost = 7", "cost = 256", "checked.toml:15:8: the number is out of range"),
        ("cost = 7", "cots = 7", "did you mean `cost`?"),
        ("interval = 1", "intervall = 1", "did you mean `interval`?"),
        ("word = \"near\"\n", "", "hello needs `word`"),
    ] {
        fs::write(&file, right.replace(old, new))?;
        let said = check("-c", &file)?;
        ensure!(said.contains(expected), "{said}");
    }
    // So does the router, which goes on.
    fs::write(router.configuration(), right.replace("cost = 7", "cost = 256"))?;
    let refused = router.cli(&["reload"]).expect_err("wrong").to_string();
    ensure!(refused.contains("expected 1 to 255"), "{refused}");
    fs::write(router.configuration(), &right)?;

    // A descriptor that others may write is none, wherever it is asked for.
    let descriptor = router.directory().join("hello.toml");
    ensure!(check("--descriptor", &descriptor)?.ends_with("hello.toml: no errors\n"));

    // Nor does one run whose program is not there; where it is written it need not be.
    let text = fs::read_to_string(&descriptor)?;
    fs::write(&descriptor, text.replace("program = \"", "program = \"/nowhere"))?;
    fs::write(&file, &right)?;
    let said = check("-c", &file)?;
    ensure!(
        said.contains("hello.toml:3:11: /nowhere") && said.contains("No such file or directory"),
        "{said}"
    );
    let said = check("--descriptor", &descriptor)?;
    ensure!(said.starts_with("note: /nowhere") && said.ends_with("hello.toml: no errors\n"), "{said}");
    fs::write(&descriptor, text)?;
    fs::set_permissions(&descriptor, fs::Permissions::from_mode(0o666))?;
    fs::write(&file, &right)?;
    for said in [check("-c", &file)?, router.cli(&["reload"]).expect_err("refused").to_string()] {
        ensure!(said.contains("hello.toml: others than its owner may write to it"), "{said}");
    }
    ensure!(check("--descriptor", &descriptor)?.contains("the router would refuse it"));
    fs::set_permissions(&descriptor, fs::Permissions::from_mode(0o644))?;
    ensure!(process(&router)?["restarts"] == 0);

    // Set, compared, completed, committed, and rolled back.
    let script = |text: &str| {
        let script = router.directory().join("script");
        fs::write(&script, text)?;
        router.cli(&["configure", "-f", script.to_str().context("a path of text")?])
    };
    let said = script(
        "set hello.int?\nset hello.interval 2\nset hello.interface.n1.cost 9\ncompare\ncheck\ncommit\n",
    )?;
    for expected in [
        "seconds between two hellos",
        "+interval = 2",
        "+cost = 9",
        "sections changed: hello",
        "version 2 runs",
    ] {
        ensure!(said.contains(expected), "{said}");
    }
    ensure!(
        router
            .cli(&["diff", "-c", router.configuration().to_str().context("a path")?])?
            .contains("nothing would")
    );
    let said = script("rollback 1\ncommit\n")?;
    ensure!(said.contains("sections changed: hello"), "{said}");
    ensure!(fs::read_to_string(router.configuration())? == right);
    router.stop()
}

/// Tries what a program of somebody else must not, and says what came of it.
const HOSTILE: &str = r#"
import ctypes, fcntl, os, signal, socket, struct, sys, threading, time
def tried(what, do):
    try:
        print("tried", what, "done", do(), flush=True)
    except OSError as error:
        print("tried", what, error.errno, flush=True)
tried("its own file", lambda: len(open(sys.argv[0]).read()) > 0)
tried("the configuration", lambda: open(sys.argv[1]).read())
tried("passwd", lambda: open("/etc/passwd").read())
tried("a new file", lambda: open(os.path.dirname(sys.argv[0]) + "/new", "w"))
tried("a socket", lambda: socket.socket(socket.AF_UNIX))
tried("tcp", lambda: socket.socket(socket.AF_INET))
tried("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 89))
tried("a process", os.fork)
tried("its parent", lambda: os.kill(os.getppid(), 0))
tried("root", lambda: os.setuid(0))
tried("a shell", lambda: os.execv("/bin/sh", ["sh"]))
tried("the log", lambda: os.ftruncate(1, 0))
tried("the log of errors", lambda: os.ftruncate(2, 0))
tried("the number of an interface", lambda: socket.if_nametoindex("lo"))
tried("the same of standard input", lambda: struct.unpack("16si12x", fcntl.ioctl(0, 0x8933, struct.pack("16si12x", b"lo", 0)))[1])
tried("threads", lambda: threading.Thread(target=time.time).start())
print("tried all", flush=True)
time.sleep(1000)
"#;

#[test]
fn a_program_of_somebody_else_reads_what_is_described_and_does_nothing_else() -> Result<()> {
    let installed = Installed::new()?;
    let star = Star::new(0)?;
    let router = Router::start(&star.router, ROUTER)?;
    let program = installed.put("hostile.py", HOSTILE)?;
    let secret = router.configuration();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o644))?;
    let secret = secret.to_str().context("a path of text")?;
    let descriptor = format!(
        "does = \"tries\"\ndoc = \"d\"\nprogram = \"{}\"\narguments = [\"{program}\", \"{secret}\"]\n\
        reads = [\"{program}\"]\nhang-limit = 0\n",
        python()
    );
    let files = Files::from([("hostile.toml".to_owned(), descriptor)]);
    let described = "[[protocol]]\nname = \"hostile\"\ndescriptor = \"hostile.toml\"\n[hostile]\n";
    router.reload_with_files(&format!("{ROUTER}{described}"), &files)?;
    wait::until("all that it tries", LIMIT, || match router.log() {
        log if log.contains("tried all") => Ok(()),
        log => Err(log),
    })?;
    let log = router.log();
    let tried = |what: &str| {
        let printed = format!(": tried {what} ");
        let said = log
            .lines()
            .find_map(|line| line.split_once(&printed)?.1.split_once(" event=\"program-printed\""));
        said.map(|(outcome, _)| outcome.to_owned()).unwrap_or_default()
    };
    ensure!(tried("its own file") == "done True" && tried("threads").starts_with("done"), "{log}");
    // What the manual says of numbers of interfaces. Of `if_nametoindex` Python tells no error number.
    ensure!(!tried("the number of an interface").starts_with("done"), "{log}");
    ensure!(tried("the same of standard input") == "done 1", "{log}");
    // Landlock says EACCES, seccomp EPERM.
    for what in ["the configuration", "passwd", "a new file", "a shell"] {
        ensure!(tried(what) == "13", "{what}: {log}");
    }
    for what in ["a socket", "tcp", "raw", "a process", "its parent", "root"] {
        ensure!(tried(what) == "1", "{what}: {log}");
    }
    // It prints into a pipe: there is nothing to truncate.
    for what in ["the log", "the log of errors"] {
        ensure!(tried(what) == "22", "{what}: {log}");
    }
    // What it wrote last has not been its end.
    ensure!(router.show(&["processes"])?["hostile"]["state"] == "starting");
    router.stop()
}

#[test]
fn a_program_of_somebody_else_outlives_an_upgrade() -> Result<()> {
    let (_installed, files) = Installed::hello()?;
    let (star, near, _far) = two(&files)?;
    let new = near.directory().join("new");
    fs::copy(binary()?, &new)?;
    OpenOptions::new().append(true).open(&new)?.write_all(b"\0")?;
    let pid = near.pid("hello")?;
    near.cli(&["upgrade", "--binary", new.to_str().context("a path of text")?])?;
    near.wait_running()?;
    ensure!(near.pid("hello")? == pid && in_kernel(&star.router, FAR)?.is_some());
    // The keeper after it knows how long it may be silent, and starts the next one.
    kill_process(pid, Signal::STOP)?;
    until_another(&near, pid)?;
    ensure!(process(&near)?["last_end"] == "hung");
    until_word(&near, "far")?;
    near.stop()
}

/// A host that says hello from 10.0.1.2 with a network, until it is told to end; whether it has heard the router.
fn greeter(
    host: &Namespace,
    word: &str,
    network: &str,
) -> Result<(Arc<AtomicBool>, JoinHandle<Result<bool>>)> {
    let hello = json!({ "word": word, "networks": [network] }).to_string();
    let ends = Arc::<AtomicBool>::default();
    let is_over = Arc::clone(&ends);
    let thread = host.spawn(move || {
        let (group, ours) = (Ipv4Addr::new(224, 0, 0, 120), Ipv4Addr::new(10, 0, 1, 2));
        let socket = UdpSocket::bind(("0.0.0.0", 5355))?;
        socket.join_multicast_v4(&group, &ours)?;
        socket.set_multicast_loop_v4(false)?;
        SockRef::from(&socket).set_multicast_if_v4(&ours)?;
        socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        let mut has_heard = false;
        while !is_over.load(Ordering::Relaxed) {
            socket.send_to(hello.as_bytes(), (group, 5355))?;
            let mut datagram = [0; 512];
            let heard = socket.recv_from(&mut datagram);
            has_heard |= heard.is_ok_and(|(octets, from)| {
                from.ip() == Ipv4Addr::new(10, 0, 1, 1)
                    && String::from_utf8_lossy(&datagram[..octets]).contains("near")
            });
        }
        Ok(has_heard)
    })?;
    Ok((ends, thread))
}

#[test]
fn a_program_of_somebody_else_has_routes_of_its_own_in_each_vrf() -> Result<()> {
    let (_installed, files) = Installed::hello()?;
    let scene = Scene::new()?;
    let networks = ["20.0.0.0/24", "20.0.1.0/24", "20.0.2.0/24"];
    let configuration = |tables: &[&str]| {
        let mut rest = format!("{DESCRIBED}[hello]\nword = \"near\"\ninterval = 1\nnetworks = []\n");
        for table in tables {
            let vrf = if *table == "main" { String::new() } else { format!("vrf = \"{table}\"\n") };
            rest += &format!("[[hello.interface]]\nname = \"{}\"\n{vrf}", scene.interface(table));
        }
        scene.configuration(true, &rest)
    };
    let router = Router::start_with_files(&scene.host, &configuration(&TABLES), &files)?;
    let mut greeters = Vec::new();
    for ((host, table), network) in scene.neighbors.iter().zip(TABLES).zip(networks) {
        greeters.push(greeter(host, table, network)?);
    }
    let all: [(&str, &[&str]); 3] = std::array::from_fn(|at| (TABLES[at], &networks[at..=at]));
    scene.until_routes(&all).with_context(|| router.log_tail())?;
    let shown = router.show(&["hello", "networks"])?;
    let vrfs: Vec<_> = shown.as_array().context("rows")?.iter().map(|row| row["vrf"].as_str()).collect();
    ensure!(vrfs == [None, Some("blue"), Some("red")], "{shown}");
    let route = router.cli(&["show", "route", "--vrf", "red", networks[2]])?;
    ensure!(route.contains("hello") && route.contains("130/1"), "{route}");

    // It dies, and comes back to all of them.
    let pid = router.pid("hello")?;
    router.kill("hello")?;
    until_another(&router, pid)?;
    scene.until_routes(&all)?;

    // What is named in a VRF no more is gone there, and nowhere else.
    router.reload_with_files(&configuration(&TABLES[..2]), &files)?;
    scene.until_routes(&[all[0], all[1], ("red", &[])]).with_context(|| router.log_tail())?;
    for (ends, thread) in greeters {
        ends.store(true, Ordering::Relaxed);
        ensure!(thread.join().map_err(|_| anyhow::anyhow!("it panicked"))??, "the router says hello there");
    }
    router.stop()
}

/// The user of `hello`, and whether seccomp closes it.
fn confinement(router: &Router) -> Result<(u32, bool)> {
    let status = fs::read_to_string(format!("/proc/{}/status", router.pid("hello")?.as_raw_nonzero()))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).context("a field")?;
        line.split_whitespace().next().context("a value")?.parse::<u32>().context("a number")
    };
    Ok((field("Uid:")?, field("Seccomp:")? == 2))
}

#[test]
fn a_reload_closes_the_programs_of_others_and_opens_none() -> Result<()> {
    let (_installed, files) = Installed::hello()?;
    let star = Star::new(1)?;
    let section = configuration("near", NEAR);
    let with = |sandbox: &str| format!("{section}[sandbox]\n{sandbox}\n");
    let router = Router::start_with_files(&star.router, &with("mode = \"off\""), &files)?;
    let pid = router.pid("hello")?;
    ensure!(confinement(&router)? == (60_987, false));
    let said = router.reload_with_files(&with("mode = \"enforce\""), &files)?;
    ensure!(said.contains("processes replaced") && said.contains("hello"), "{said}");
    until_another(&router, pid)?;
    ensure!(confinement(&router)? == (60_987, true));
    router.stop()?;

    // A manager cannot open what was closed when the router was started, nor choose other users.
    let router = Router::start_with_files(&star.router, &section, &files)?;
    router.reload_with_files(&with("mode = \"off\"\nfirst-user = 61000"), &files)?;
    router.wait_running()?;
    ensure!(confinement(&router)? == (60_987, true));
    let of_ours = fs::read_to_string(format!("/proc/{}/status", router.pid("rib")?.as_raw_nonzero()))?;
    ensure!(of_ours.contains("Uid:\t61001\t"), "{of_ours}");
    router.stop()
}

/// Everything of a router that a refused commit leaves as it is.
fn left_alone(router: &Router) -> Result<(String, String, Value)> {
    let file = fs::read_to_string(router.configuration())?;
    let runs = router.cli(&["call", "manager/manager.v1/ShowConfiguration", "--json"])?;
    let history = router.cli(&["call", "manager/manager.v1/History", "--json"])?;
    let processes = router.show(&["processes"])?;
    let states = processes.as_object().context("an object")?.iter();
    let states = states.map(|(name, it)| (name.clone(), json!([it["pid"], it["state"], it["detail"]])));
    Ok((file, runs + &history, states.collect::<serde_json::Map<_, _>>().into()))
}

#[test]
fn a_program_refuses_a_commit_or_is_left_out_and_nothing_is_done_by_half() -> Result<()> {
    let (_installed, mut files) = Installed::hello()?;
    for descriptor in files.values_mut() {
        // It is stopped, and not to be ended for it.
        *descriptor = descriptor.replace("hang-limit = 3", "hang-limit = 0");
    }
    let star = Star::new(1)?;
    let router = Router::start_with_files(&star.router, &configuration("near", NEAR), &files)?;
    let script = |text: &str| {
        let script = router.directory().join("script");
        fs::write(&script, text)?;
        router.cli(&["configure", "-f", script.to_str().context("a path of text")?])
    };
    script("set hello.interval 2\ncommit\n")?;

    // It says which key, the manager which line. What others would have taken is not taken either.
    let before = left_alone(&router)?;
    let word = "x".repeat(33);
    let change = format!("set rib.stale-time 33\nset hello.word {word}\n");
    let expected = ["hello: ", "router.toml:10: hello.word: neighbors keep 32 characters of it"];
    for commit in ["commit", "commit force", "commit confirmed 5"] {
        let said = script(&format!("{change}{commit}\n")).expect_err("it is too long").to_string();
        ensure!(expected.iter().all(|part| said.contains(part)), "{said}");
        ensure!(left_alone(&router)? == before, "{commit}: {:?}", left_alone(&router)?);
    }
    let right = fs::read_to_string(router.configuration())?;
    fs::write(router.configuration(), right.replace("\"near\"", &format!("\"{word}\"")))?;
    let said = router.cli(&["reload"]).expect_err("it is too long").to_string();
    ensure!(expected.iter().all(|part| said.contains(part)), "{said}");
    fs::write(router.configuration(), &right)?;
    ensure!(left_alone(&router)? == before, "{:?}", left_alone(&router)?);
    // Whoever is born is told what runs.
    router.kill("rib")?;
    router.wait_running()?;
    ensure!(router.cli(&["diff", "-c", router.configuration().to_str().context("a path")?]).is_ok());

    // One that does not answer is named, and left out where the operator says so.
    let hello = router.pid("hello")?;
    kill_process(hello, Signal::STOP)?;
    let change = "set rib.stale-time 33\nset hello.word far\n";
    let before = left_alone(&router)?;
    let said = script(&format!("{change}commit\n")).expect_err("it is silent").to_string();
    ensure!(said.contains("hello: does not answer") && said.contains("without hello"), "{said}");
    ensure!(left_alone(&router)? == before);
    let said = script(&format!("{change}commit without nobody\n")).expect_err("nobody").to_string();
    ensure!(said.contains("no process `nobody`"), "{said}");
    let said = script(&format!("{change}commit without hello\n")).expect_err("with faults").to_string();
    ensure!(said.contains("version 3 runs, with faults") && said.contains("hello: left out"), "{said}");
    ensure!(fs::read_to_string(router.configuration())?.contains("far"));
    ensure!(process(&router)?["state"] == "configuring", "{}", process(&router)?);
    kill_process(hello, Signal::CONT)?;
    router.wait_running()?;
    ensure!(router.pid("hello")? == hello, "it lives on");
    router.stop()
}
