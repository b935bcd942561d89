//! The processes of a running router, taken over one by one: what they try in vain, and that the router goes on.

// Registers are those of this architecture.
#![cfg(target_arch = "x86_64")]

mod victim;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    kernel::{self, Monitor},
    netns::Namespace,
    peers::Bird,
    router::Router,
    speaker::Speaker,
    table::Table,
    topology::Star,
    wait,
};
use holdfast_types::Prefix;
use nix::{errno::Errno, libc, sys::signal::Signal};
use victim::{
    Argument::{self, Number, Text},
    Outcome, Victim,
};

const LIMIT: Duration = Duration::from_secs(60);
const PROCESSES: [&str; 5] = ["manager", "fea", "rib", "transport", "bgp"];
/// Those that open nothing.
const WORKERS: [&str; 3] = ["rib", "transport", "bgp"];

const CONFIGURATION: &str = r#"
[router]
id = "10.0.0.1"
asn = 65000
[bgp]
[[bgp.peer]]
name = "feeder"
address = "10.0.1.2"
asn = 65001
passive = true
import = "accept-all"
export = "accept-all"
[[bgp.peer]]
name = "bird"
address = "10.0.2.2"
asn = 65002
passive = true
import = "accept-all"
export = "accept-all"
"#;

/// A system call with its arguments.
type Attempt = (&'static str, i64, &'static [Argument]);

const AT_FDCWD: Argument = Number(libc::AT_FDCWD as i64);
const NOTHING: Argument = Number(0);

const fn socket(family: i32, kind: i32) -> [Argument; 2] {
    [Number(family as i64), Number(kind as i64)]
}

const fn option(level: i32, name: i32) -> [Argument; 5] {
    [NOTHING, Number(level as i64), Number(name as i64), NOTHING, NOTHING]
}

const UNIX: &[Argument] = &socket(libc::AF_UNIX, libc::SOCK_STREAM);
const PACKET: &[Argument] = &socket(libc::AF_PACKET, libc::SOCK_RAW);
const NETLINK: &[Argument] = &socket(libc::AF_NETLINK, libc::SOCK_RAW);
const INTERNET: &[Argument] = &socket(libc::AF_INET, libc::SOCK_STREAM);
/// At the socket that every process has.
const HEADERS_V4: &[Argument] = &option(libc::IPPROTO_IP, libc::IP_HDRINCL);
const HEADERS_V6: &[Argument] = &option(libc::IPPROTO_IPV6, libc::IPV6_HDRINCL);
const EXECUTABLE: i64 = (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) as i64;
const ANONYMOUS: i64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as i64;

/// What nobody may.
const REFUSED: [Attempt; 12] = [
    ("read a file", libc::SYS_openat, &[AT_FDCWD, Text("/etc/passwd"), Number(libc::O_RDONLY as i64)]),
    (
        "write a file",
        libc::SYS_openat,
        &[
            AT_FDCWD,
            Text("/tmp/holdfast-escaped"),
            Number((libc::O_CREAT | libc::O_RDWR) as i64),
            Number(0o600),
        ],
    ),
    ("remove a file", libc::SYS_unlink, &[Text("/etc/hostname")]),
    ("execute", libc::SYS_execve, &[Text("/bin/true"), NOTHING, NOTHING]),
    ("fork", libc::SYS_clone, &[Number(libc::SIGCHLD as i64)]),
    ("open a socket of Unix", libc::SYS_socket, UNIX),
    ("open a socket of packets", libc::SYS_socket, PACKET),
    ("write headers of IPv4", libc::SYS_setsockopt, HEADERS_V4),
    ("write headers of IPv6", libc::SYS_setsockopt, HEADERS_V6),
    ("become root", libc::SYS_setuid, &[NOTHING]),
    ("end process 1", libc::SYS_kill, &[Number(1), Number(libc::SIGCONT as i64)]),
    (
        "make memory executable",
        libc::SYS_mmap,
        &[NOTHING, Number(4096), Number(EXECUTABLE), Number(ANONYMOUS), Number(-1), NOTHING],
    ),
];

/// What workers may not.
const REFUSED_TO_WORKERS: [Attempt; 3] = [
    ("open a socket of TCP", libc::SYS_socket, INTERNET),
    ("open a socket of netlink", libc::SYS_socket, NETLINK),
    ("listen", libc::SYS_bind, &[NOTHING, NOTHING, NOTHING]),
];

/// What nobody survives.
const DEADLY: [Attempt; 3] = [
    ("load a module", libc::SYS_finit_module, &[Number(-1), Text(""), NOTHING]),
    ("trace process 1", libc::SYS_ptrace, &[Number(libc::PTRACE_SEIZE as i64), Number(1), NOTHING, NOTHING]),
    ("mount", libc::SYS_mount, &[Text("none"), Text("/mnt"), Text("tmpfs"), NOTHING, NOTHING]),
];

fn network(second: u8) -> impl Iterator<Item = Prefix> {
    (0..=255).map(move |third| Prefix::new([50, second, third, 0].into(), 24).expect("a length of IPv4"))
}

/// A router with BIRD, whose routes stay, and a speaker, whose routes come and go.
struct Scene {
    star: Star,
    router: Router,
    bird: Bird,
    feeder: Speaker,
}

const STAYS: [&str; 2] = ["60.1.0.0/16", "60.2.0.0/16"];

impl Scene {
    fn start() -> Result<Self> {
        let star = Star::new(2)?;
        let router = Router::start(&star.router, CONFIGURATION)?;
        let feeder =
            star.speaker(1, 65001, |config| config.tables = vec![Arc::new(Table::plain(network(0)))])?;
        let bird = star.bird(2, 65002, &STAYS, "")?;
        let scene = Self { star, router, bird, feeder };
        scene.until_right()?;
        Ok(scene)
    }

    /// Waits until both sessions are up, and what stays is in the kernel.
    fn until_right(&self) -> Result<()> {
        self.router.wait_running()?;
        self.router.until_established("bird", LIMIT)?;
        self.router.until_established("feeder", LIMIT)?;
        wait::until("the routes that stay", LIMIT, || {
            let routes = kernel::routes(&self.star.router, false).map_err(|error| error.to_string())?;
            let there =
                |prefix: &str| prefix.parse().is_ok_and(|prefix: Prefix| routes.contains_key(&prefix));
            if STAYS.iter().all(|prefix| there(prefix)) {
                Ok(())
            } else {
                Err(format!("{} routes", routes.len()))
            }
        })
    }

    /// Since when BIRD has its session, as it says.
    fn session_of_bird(&self) -> Result<String> {
        let said = self.bird.birdc("show protocols holdfast")?;
        Ok(said.lines().find(|line| line.starts_with("holdfast")).context("a line")?.to_owned())
    }

    /// Tells the story while routes come and go.
    fn under_load(&self, story: impl FnOnce() -> Result<()>) -> Result<()> {
        let done = AtomicBool::new(false);
        let table = Arc::new(Table::plain(network(1)));
        thread::scope(|scope| {
            let load = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    self.feeder.announce(Arc::clone(&table));
                    self.feeder.wait_sent(LIMIT)?;
                    self.feeder.withdraw(Arc::clone(&table));
                    self.feeder.wait_sent(LIMIT)?;
                    // Others want to run as well.
                    thread::sleep(Duration::from_millis(5));
                }
                anyhow::Ok(())
            });
            let told = story();
            done.store(true, Ordering::Relaxed);
            load.join().map_err(|_| anyhow::anyhow!("the load panicked"))?.and(told)
        })
    }
}

fn attempt(router: &Router, process: &str, (what, number, arguments): Attempt) -> Result<Outcome> {
    let attempted = || Victim::seize(router.pid(process)?)?.call(number, arguments);
    let outcome = attempted().with_context(|| format!("{process}: {what}"))?;
    println!("{process}: {what}: {outcome:?}");
    Ok(outcome)
}

fn refused(router: &Router, process: &str, attempts: &[Attempt]) -> Result<()> {
    for tried in attempts {
        let outcome = attempt(router, process, *tried)?;
        let refused = matches!(outcome, Outcome::Failed(Errno::EPERM | Errno::EACCES));
        ensure!(refused, "{process} could {}: {outcome:?}", tried.0);
    }
    Ok(())
}

fn in_force(router: &Router) -> Result<()> {
    let shown = router.show(&["processes"])?;
    let mut users: Vec<_> = PROCESSES.iter().filter_map(|name| shown[*name]["user"].as_u64()).collect();
    users.dedup();
    ensure!(users.len() == PROCESSES.len() && users[0] == 0, "users of their own: {shown}");
    for name in PROCESSES {
        ensure!(shown[name]["seccomp"] == true, "{shown}");
    }
    for name in WORKERS {
        ensure!(shown[name]["capabilities"].as_array().is_some_and(Vec::is_empty), "{shown}");
    }
    println!("Landlock: version {}", shown["bgp"]["landlock"]);
    Ok(())
}

#[test]
fn a_process_that_was_taken_over_opens_nothing_and_the_router_goes_on() -> Result<()> {
    let scene = Scene::start()?;
    in_force(&scene.router)?;
    let (session, speaker) = (scene.session_of_bird()?, scene.feeder.status().sessions);
    let pids = || PROCESSES.iter().map(|name| scene.router.pid(name)).collect::<Result<Vec<_>>>();
    let monitor = Monitor::start(&scene.star.router)?;

    let before = pids()?;
    scene.under_load(|| {
        for process in PROCESSES {
            refused(&scene.router, process, &REFUSED)?;
        }
        for process in WORKERS {
            refused(&scene.router, process, &REFUSED_TO_WORKERS)?;
        }
        refused(&scene.router, "manager", &[("open a socket of netlink", libc::SYS_socket, NETLINK)])
    })?;
    scene.until_right()?;
    ensure!(pids()? == before, "they live: {}", scene.router.log_tail());
    ensure!(!std::path::Path::new("/tmp/holdfast-escaped").exists());

    for process in PROCESSES {
        for deadly in DEADLY {
            let pid = scene.router.pid(process)?;
            scene.under_load(|| {
                let outcome = attempt(&scene.router, process, deadly)?;
                ensure!(
                    outcome == Outcome::Killed(Signal::SIGSYS),
                    "{process} could {}: {outcome:?}",
                    deadly.0
                );
                wait::until("another one", LIMIT, || match scene.router.pid(process) {
                    Ok(now) if now != pid => Ok(()),
                    now => Err(format!("{now:?}")),
                })
            })?;
            scene.until_right().with_context(|| format!("after {process} tried to {}", deadly.0))?;
        }
        let shown = scene.router.show(&["processes"])?;
        ensure!(shown[process]["lastExit"] == "signal 31", "{shown}");
    }
    ensure!(scene.session_of_bird()? == session, "BIRD has noticed: {}", scene.bird.log());
    ensure!(scene.feeder.status().sessions == speaker, "{:?}", scene.feeder.status());
    let deleted = monitor.deletions()?;
    let stayed = |line: &&String| STAYS.iter().any(|prefix| line.contains(prefix));
    ensure!(!deleted.iter().any(|line| stayed(&line)), "a route that stays was deleted: {deleted:?}");
    scene.router.stop()
}

#[test]
fn without_root_everything_but_the_users_holds() -> Result<()> {
    const USER: u32 = 60_999;
    let host = Namespace::new("rootless")?;
    let configuration = CONFIGURATION.replace("[bgp]", "[fea]\nbackend = \"none\"\n[bgp]\nport = 1790");
    let router = Router::start_without_rights(&host, &configuration, USER)?;
    let shown = router.show(&["processes"])?;
    for name in PROCESSES {
        ensure!(shown[name]["user"] == USER && shown[name]["seccomp"] == true, "{shown}");
        ensure!(shown[name]["capabilities"].as_array().is_some_and(Vec::is_empty), "{shown}");
        refused(&router, name, &REFUSED)?;
    }
    let keeper = router.pid("keeper")?.as_raw_nonzero().get();
    let outcome =
        Victim::seize(router.pid("bgp")?)?.call(libc::SYS_kill, &[Number(keeper.into()), NOTHING])?;
    ensure!(outcome == Outcome::Failed(Errno::EPERM), "although it is the same user: {outcome:?}");
    router.stop()
}

#[test]
fn a_limit_of_memory_is_that_of_one_process() -> Result<()> {
    const ROOM: i64 = 512 << 20;
    let host = Namespace::new("memory")?;
    let configuration = format!("{CONFIGURATION}[sandbox.limits.bgp]\nmemory = \"256 MiB\"\n");
    let router = Router::start(&host, &configuration)?;
    let shown = router.show(&["processes"])?;
    ensure!(shown["bgp"]["memoryLimitBytes"] == 256 << 20, "{shown}");
    let memory: Attempt = (
        "have memory",
        libc::SYS_mmap,
        &[
            NOTHING,
            Number(ROOM),
            Number((libc::PROT_READ | libc::PROT_WRITE) as i64),
            Number(ANONYMOUS),
            Number(-1),
            NOTHING,
        ],
    );
    // By RLIMIT_DATA: hosts of the laboratory see no cgroups.
    ensure!(attempt(&router, "bgp", memory)? == Outcome::Failed(Errno::ENOMEM), "the limit is not in force");
    ensure!(matches!(attempt(&router, "rib", memory)?, Outcome::Succeeded(_)), "nobody else has that limit");
    router.stop()
}
