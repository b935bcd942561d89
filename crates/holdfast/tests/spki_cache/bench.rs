//! The cache as a child, and routers at it.

use std::{
    fs,
    io::{BufRead as _, BufReader, ErrorKind, Read, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver},
    time::{Duration, Instant},
};

use holdfast_rtr::{Client, ClientConfig, Delta, Event, Input, Output};
use holdfast_rtr_wire::Version;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// An empty folder of a test's own.
pub(crate) fn folder(name: &str) -> String {
    let path = format!("{}/spki-cache-{name}", env!("CARGO_TARGET_TMPDIR"));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_holdfast"))
}

/// What a command prints that succeeds.
pub(crate) fn holdfast(arguments: &[&str]) -> String {
    let output = program().args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What a command says that fails.
pub(crate) fn fails(arguments: &[&str]) -> String {
    let output = program().args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Lines as they come, without waiting for ever for one.
struct Lines(Receiver<String>);

impl Lines {
    fn new(source: impl Read + Send + 'static) -> Self {
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            BufReader::new(source).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self(receiver)
    }

    fn next(&self, until: Instant) -> Option<String> {
        self.0.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
    }

    /// The next line that has this in it.
    fn with(&self, text: &str) -> String {
        let until = Instant::now() + PATIENCE;
        let mut before = Vec::new();
        while let Some(line) = self.next(until) {
            if line.contains(text) {
                return line;
            }
            before.push(line);
        }
        panic!("nobody says `{text}`, but:\n{}", before.join("\n"));
    }
}

/// A child that does not outlive its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a program until its lines have all of this.
pub(crate) fn lines_of(mut command: Command, wanted: &[&str]) {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = Running(child.expect("the program is installed (scripts/install-deps test)"));
    let lines = Lines::new(child.0.stdout.take().unwrap());
    let until = Instant::now() + PATIENCE;
    let mut said = String::new();
    while !wanted.iter().all(|text| said.contains(text)) {
        let line = lines.next(until).unwrap_or_else(|| panic!("{wanted:?} are not all in:\n{said}"));
        said.push_str(&line);
        said.push('\n');
    }
}

/// `holdfast spki-cache`
pub(crate) struct Cache {
    _child: Running,
    log: Lines,
    pub(crate) address: String,
}

impl Cache {
    pub(crate) fn start(folder: &str, options: &[&str]) -> Self {
        let arguments = ["spki-cache", folder, "--listen", "127.0.0.1:0"];
        let child = program().args(arguments).args(options).stderr(Stdio::piped()).spawn().unwrap();
        let mut child = Running(child);
        let log = Lines::new(child.0.stderr.take().unwrap());
        let line = log.with("routers can connect");
        let (_, address) = line.rsplit_once("address=").unwrap();
        let address = address.trim().to_owned();
        Self { _child: child, log, address }
    }

    pub(crate) fn address(&self) -> String {
        self.address.clone()
    }

    /// Waits for a line of the log.
    pub(crate) fn says(&self, text: &str) {
        self.log.with(text);
    }
}

/// Our own half of a router, in the version that it is told to begin with.
pub(crate) struct Router {
    stream: TcpStream,
    client: Client,
}

impl Router {
    pub(crate) fn connect(cache: &Cache, version: Version) -> Self {
        let stream = TcpStream::connect(&cache.address).unwrap();
        let mut client = Client::new(ClientConfig { version, ..ClientConfig::default() }, Instant::now());
        client.handle(Input::Timeout, Instant::now());
        assert_eq!(client.poll_output(), Some(Output::Connect));
        client.handle(Input::Connected, Instant::now());
        Self { stream, client }
    }

    /// What has changed with the next End of Data; all, at first.
    pub(crate) fn update(&mut self) -> Delta {
        let mut octets = [0; 4096];
        loop {
            while let Some(output) = self.client.poll_output() {
                match output {
                    Output::Send(octets) => self.stream.write_all(&octets).unwrap(),
                    Output::Event(Event::Updated { .. }) => {}
                    other => panic!("{other:?}"),
                }
            }
            if let Some(delta) = self.client.poll_delta() {
                return delta;
            }
            // Queries that notifies bring about have a second between them.
            let due = self.client.poll_timeout().map(|due| due.saturating_duration_since(Instant::now()));
            let wait = due.map_or(PATIENCE, |due| due.clamp(Duration::from_millis(1), PATIENCE));
            self.stream.set_read_timeout(Some(wait)).unwrap();
            match self.stream.read(&mut octets) {
                Ok(0) => panic!("the cache hangs up"),
                Ok(length) => self.client.handle(Input::Received(&octets[..length]), Instant::now()),
                Err(error) => {
                    let is_due = error.kind() == ErrorKind::WouldBlock && wait < PATIENCE;
                    assert!(is_due, "an answer in time: {error}");
                    self.client.handle(Input::Timeout, Instant::now());
                }
            }
        }
    }

    pub(crate) fn version(&self) -> Option<Version> {
        self.client.version()
    }
}
