//! A router in a thread: a Finder behind a socket, and processes that answer from memory.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
    thread::{self, JoinHandle},
};

use clap::Parser;
use holdfast_api::{
    bgp::v1::BgpDispatcher, fea::v1::FeaDispatcher, manager::v1::ManagerDispatcher, rib::v1::RibDispatcher,
};
use holdfast_cli::{Command, Failure, Vtysh};
use holdfast_xrl::{Finder, Link, Node, PeerIdentity};
use tokio::{sync::oneshot, task::LocalSet};

use crate::tests::commands::answers::{Bgp, Fea, Manager, Rib, Transport};

/// The binary's command line as far as it is the operator's.
#[derive(Parser)]
pub(crate) struct Line {
    #[command(subcommand)]
    command: Command,
}

impl Line {
    pub(crate) fn parse(line: &str) -> Result<Command, clap::Error> {
        let words = std::iter::once("holdfast").chain(line.split_whitespace()).map(OsString::from);
        Self::try_parse_from(words).map(|line| line.command)
    }
}

/// A directory that goes with its owner.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("holdfast-cli-{}-{number}", process::id()));
        fs::create_dir(&path).expect("a fresh directory");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) struct Router {
    directory: Directory,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Copy, Clone, PartialEq)]
enum Kind {
    Whole,
    WithoutBgp,
    /// Takes connections and ends them.
    Deaf,
}

impl Router {
    pub(crate) fn start() -> Self {
        Self::of(Kind::Whole)
    }

    pub(crate) fn without_bgp() -> Self {
        Self::of(Kind::WithoutBgp)
    }

    pub(crate) fn deaf() -> Self {
        Self::of(Kind::Deaf)
    }

    fn of(kind: Kind) -> Self {
        let directory = Directory::new();
        let listener = UnixListener::bind(directory.path().join("holdfast.sock")).expect("binds");
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || serve(kind, listener, stopped));
        Self { directory, stop: Some(stop), thread: Some(thread) }
    }

    pub(crate) fn run(&self, line: &str, out: &mut dyn io::Write) -> Result<(), Failure> {
        let line = format!("{line} --runtime-dir {}", self.directory.path().display());
        Line::parse(&line).expect("a command").run_on(holdfast_config::Schema::new([]), out)
    }

    pub(crate) fn text(&self, line: &str) -> String {
        let mut out = Vec::new();
        self.run(line, &mut out).expect(line);
        String::from_utf8(out).expect("text")
    }

    pub(crate) fn json(&self, line: &str) -> serde_json::Value {
        serde_json::from_str(&self.text(&format!("{line} --json"))).expect(line)
    }

    /// What `holdfast-vtysh -c COMMAND` writes.
    pub(crate) fn vtysh(&self, command: &str) -> Result<String, Failure> {
        let directory = self.directory.path().to_str().expect("text");
        let words = ["holdfast-vtysh", "-c", command, "--vty_socket", directory];
        let mut out = Vec::new();
        Vtysh::parse_from(words).run_on(&mut out)?;
        Ok(String::from_utf8(out).expect("text"))
    }

    /// Exit code and message; nothing may have been written.
    pub(crate) fn fails(&self, line: &str) -> (u8, String) {
        let mut out = Vec::new();
        let failure = self.run(line, &mut out).expect_err(line);
        assert!(out.is_empty(), "{}", String::from_utf8_lossy(&out));
        (failure.exit_code(), failure.to_string())
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the router ends");
        }
    }
}

fn serve(kind: Kind, listener: UnixListener, stopped: oneshot::Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, async {
        let finder = Finder::new();
        let blue = Node::of_scope("bgp", "blue".into());
        let [bgp, rib, fea, manager, transport] =
            ["bgp", "rib", "fea", "manager", "transport"].map(Node::new);
        let nodes = [bgp, rib, fea, manager, transport, blue];
        let [bgp, rib, fea, manager, transport, blue] = &nodes;
        bgp.serve(BgpDispatcher::new(Bgp("10.0.0.1")));
        blue.serve(BgpDispatcher::new(Bgp("10.0.0.9")));
        rib.serve(RibDispatcher::new(Rib));
        fea.serve(FeaDispatcher::new(Fea));
        manager.serve(ManagerDispatcher::new(Manager));
        transport.serve(Transport);
        for node in nodes.iter().filter(|node| kind == Kind::Whole || node.class() != "bgp") {
            let (near, far) = Link::pair();
            let role = node.class().split('@').next().unwrap_or_default();
            finder.attach_link(far, PeerIdentity::new(role));
            node.join_link(near).await.expect("joins");
        }
        listener.set_nonblocking(true).expect("a socket");
        let listener = tokio::net::UnixListener::from_std(listener).expect("a socket");
        let operators = async {
            while let Ok((socket, _)) = listener.accept().await {
                let socket = socket.into_std().expect("a socket");
                if kind != Kind::Deaf {
                    finder.attach(socket.into(), PeerIdentity::new("operator")).expect("attaches");
                }
            }
        };
        tokio::select! { () = operators => {}, _ = stopped => {} }
    });
}
