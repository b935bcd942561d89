//! Scripts, carried out.

use std::{
    collections::BTreeMap,
    fmt, fs,
    future::Future,
    io::{self, Read, Seek, Write},
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    pin::Pin,
    time::Duration,
};

use holdfast_bgp_wire::{MessageType, Open};
use holdfast_path_validation::P256Signer;
use holdfast_sys::tcp::{IpVersion, Md5Peer, set_md5, set_ttl};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    time::{Instant, sleep, timeout_at},
};

use crate::{
    build::{self, Ends},
    connection::Connection,
    received::Received,
    script::{
        Expected, FIRST_SESSION, FilePart, Keepalives, Line, OpenSpec, Outgoing, SocketOptions, Statement,
        hex,
    },
    whole,
};

/// How often a connection is tried again that does not come about.
const AGAIN: Duration = Duration::from_millis(200);
/// Octets of a message that are told.
const MOST_TOLD: usize = 4096;
/// Sessions of a script.
const MOST_SESSIONS: usize = 64;

/// Why a script has not come to its end.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct Stop {
    /// Where.
    pub line: usize,
    /// Why.
    pub why: Why,
}

/// Why it has not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Why {
    /// Something else came than was expected, or nothing.
    Unmet(String),
    /// What the script wants cannot be done here: a file is not there, a peer does not listen.
    Cannot(String),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unmet(text) | Self::Cannot(text) => f.write_str(text),
        }
    }
}

fn cannot(what: impl fmt::Display) -> Why {
    Why::Cannot(what.to_string())
}

/// How a script is carried out.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where its files are.
    pub directory: PathBuf,
    /// How long it may take.
    pub limit: Duration,
    /// Tell each message.
    pub trace: bool,
}

/// Carries a script out, and tells on `out` what it prints.
///
/// # Errors
/// The first thing that is not as it says.
pub async fn run(lines: &[Line], options: &Options, out: &mut dyn Write) -> Result<(), Stop> {
    let sessions = BTreeMap::from([(FIRST_SESSION.to_owned(), Session::default())]);
    let mut runner = Runner { options, out, sessions, current: FIRST_SESSION.to_owned(), line: 0 };
    let done = tokio::time::timeout(options.limit, runner.block(lines)).await;
    let limit = || Why::Unmet(format!("the script is not done after {:?}", options.limit));
    done.unwrap_or_else(|_| Err(limit())).map_err(|why| Stop { line: runner.line, why })
}

/// One connection at a time, with what is known of both ends.
#[derive(Default)]
struct Session {
    open: Option<OpenSpec>,
    link: Link,
    peer: Option<Open>,
    last: Option<Received>,
}

#[derive(Default)]
enum Link {
    #[default]
    None,
    /// Whoever connects is taken when the script needs somebody.
    Listening {
        listener: TcpListener,
        from: Option<IpAddr>,
        within: Duration,
    },
    Up(Connection),
}

struct Runner<'a> {
    options: &'a Options,
    out: &'a mut dyn Write,
    sessions: BTreeMap<String, Session>,
    current: String,
    /// The statement under way.
    line: usize,
}

impl Runner<'_> {
    fn block<'b>(&'b mut self, lines: &'b [Line]) -> Pin<Box<dyn Future<Output = Result<(), Why>> + 'b>> {
        Box::pin(async move {
            for line in lines {
                self.line = line.number;
                self.statement(&line.statement).await?;
            }
            Ok(())
        })
    }

    async fn statement(&mut self, statement: &Statement) -> Result<(), Why> {
        match statement {
            Statement::Session(name) => self.change_session(name)?,
            Statement::Connect { to, from, options, within } => {
                let stream = connect(*to, *from, options, *within).await?;
                self.begin(Link::Up(Connection::new(stream).map_err(cannot)?));
            }
            Statement::Listen { at, from, options, within } => {
                let listener =
                    listen(*at, *from, options).map_err(|error| cannot(format!("{at}: {error}")))?;
                self.begin(Link::Listening { listener, from: *from, within: *within });
            }
            Statement::Open(spec) => self.session().open = Some(spec.clone()),
            Statement::Establish { within } => self.establish(*within).await?,
            Statement::Send(what) => self.send(what).await?,
            Statement::SendFile(part) => {
                let file = self.options.directory.join(&part.path);
                let octets = of_file(&file, part);
                let octets = octets.map_err(|error| cannot(format!("{}: {error}", file.display())))?;
                self.send_octets(&octets).await?;
            }
            Statement::Expect { what, is_patient, within } => self.expect(what, *is_patient, *within).await?,
            Statement::Silence(duration) => self.silence(*duration).await?,
            Statement::Wait(duration) => sleep(*duration).await,
            Statement::Keepalives(keepalives) => self.keepalives(*keepalives).await?,
            Statement::Repeat { times, body } => {
                for _ in 0..*times {
                    self.block(body).await?;
                    // A peer that is always ready must not keep the limit of the whole from being looked at.
                    tokio::task::yield_now().await;
                }
            }
            Statement::Save(file) => {
                let last = self.session().last.as_ref().map(|last| last.octets().to_vec());
                let octets = last.ok_or_else(|| cannot("nothing has come that could be saved"))?;
                let file = self.options.directory.join(file);
                fs::write(&file, octets).map_err(|error| cannot(format!("{}: {error}", file.display())))?;
            }
            Statement::Print(text) => {
                let last = self.session().last.as_ref().map(ToString::to_string);
                let text = text.clone().or(last).unwrap_or_else(|| "nothing has come".to_owned());
                writeln!(self.out, "{text}").map_err(cannot)?;
            }
            Statement::Close => self.begin(Link::None),
        }
        Ok(())
    }

    fn change_session(&mut self, name: &str) -> Result<(), Why> {
        if !self.sessions.contains_key(name) && self.sessions.len() == MOST_SESSIONS {
            return Err(cannot(format!("a script has {MOST_SESSIONS} sessions at most")));
        }
        self.current = name.to_owned();
        self.sessions.entry(self.current.clone()).or_default();
        Ok(())
    }

    fn session(&mut self) -> &mut Session {
        self.sessions.entry(self.current.clone()).or_default()
    }

    /// Another connection, of which nothing has come.
    fn begin(&mut self, link: Link) {
        let session = self.session();
        (session.link, session.peer, session.last) = (link, None, None);
    }

    /// The session with its connection; if none stands yet, whoever connects first has it.
    async fn up(&mut self) -> Result<&mut Connection, Why> {
        let session = self.session();
        if let Link::Listening { listener, from, within } = &session.link {
            let (deadline, within) = (Instant::now() + *within, *within);
            let stream = loop {
                let accepted = timeout_at(deadline, listener.accept()).await;
                let nobody = |_| Why::Unmet(format!("nobody has connected within {within:?}"));
                let (stream, peer) = accepted.map_err(nobody)?.map_err(cannot)?;
                if from.is_none_or(|from| from == peer.ip()) {
                    break stream;
                }
            };
            session.link = Link::Up(Connection::new(stream).map_err(cannot)?);
        }
        match &mut session.link {
            Link::Up(connection) => Ok(connection),
            Link::None | Link::Listening { .. } => {
                Err(cannot("there is no connection: `connect` or `listen`"))
            }
        }
    }

    async fn establish(&mut self, within: Duration) -> Result<(), Why> {
        self.send(&Outgoing::Open).await?;
        self.expect(&Expected::Open { asn: None, capabilities: Vec::new() }, false, within).await?;
        self.send(&Outgoing::Keepalive).await?;
        self.expect(&Expected::Keepalive, false, within).await?;
        self.keepalives(Keepalives::On).await
    }

    async fn keepalives(&mut self, keepalives: Keepalives) -> Result<(), Why> {
        let session = self.session();
        let ours = session.open.as_ref().map(|open| open.hold);
        let theirs = session.peer.as_ref().map(|open| open.hold_time);
        let hold = ours.into_iter().chain(theirs).min().unwrap_or_default();
        let every = match keepalives {
            Keepalives::Off => None,
            // RFC 4271 section 4.4; with a hold time of 0 there are none.
            Keepalives::On => Some(Duration::from_secs(hold.into()) / 3).filter(|every| !every.is_zero()),
            Keepalives::Every(every) => Some(every.max(Duration::from_millis(10))),
        };
        self.up().await?.keep_alive(every);
        Ok(())
    }

    async fn send(&mut self, what: &Outgoing) -> Result<(), Why> {
        let address = self.up().await?.address();
        let session = &self.sessions[&self.current];
        let peer = session.peer.as_ref().map(|open| open.asn);
        let ends = Ends { open: session.open.as_ref(), address, peer };
        let signers = signers(what, &ends, &self.options.directory).map_err(cannot)?;
        let octets = build::octets(what, &ends, &signers).map_err(cannot)?;
        self.send_octets(&octets).await
    }

    async fn send_octets(&mut self, octets: &[u8]) -> Result<(), Why> {
        if self.options.trace {
            self.trace('>', &told(octets))?;
        }
        let sent = self.up().await?.send(octets).await;
        sent.map_err(|error| cannot(format!("{} octets cannot be sent: {error}", octets.len())))
    }

    /// What comes until then, if anything does.
    async fn next(&mut self, deadline: Instant) -> Result<Option<Received>, Why> {
        let Ok(received) = timeout_at(deadline, self.up().await?.next()).await else { return Ok(None) };
        if self.options.trace {
            self.trace('<', &received.to_string())?;
        }
        let session = self.session();
        if let Some(open) = received.open() {
            session.peer = Some(open);
        }
        session.last = Some(received.clone());
        Ok(Some(received))
    }

    fn trace(&mut self, direction: char, text: &str) -> Result<(), Why> {
        writeln!(self.out, "{} {direction} {text}", self.current).map_err(cannot)
    }

    async fn expect(&mut self, what: &Expected, is_patient: bool, within: Duration) -> Result<(), Why> {
        let deadline = Instant::now() + within;
        let mut before: Option<Received> = None;
        loop {
            let Some(received) = self.next(deadline).await? else {
                let last = before.map(|last| format!("; before that came {}", with_octets(&last)));
                let last = last.unwrap_or_default();
                return Err(Why::Unmet(format!("expected {what}; nothing came within {within:?}{last}")));
            };
            if received.is(what) {
                return Ok(());
            }
            let passes = received.is_keepalive() || is_patient && !received.is_last();
            if !passes {
                return Err(Why::Unmet(format!("expected {what}; came {}", with_octets(&received))));
            }
            before = Some(received);
        }
    }

    async fn silence(&mut self, duration: Duration) -> Result<(), Why> {
        let deadline = Instant::now() + duration;
        while let Some(received) = self.next(deadline).await? {
            if !received.is_keepalive() {
                let came = with_octets(&received);
                return Err(Why::Unmet(format!("expected nothing for {duration:?}; came {came}")));
            }
        }
        Ok(())
    }
}

impl Received {
    /// An OPEN that can be read.
    fn open(&self) -> Option<Open> {
        let message = self.message().filter(|message| message.kind == MessageType::Open)?;
        Open::parse(message.body).ok()
    }
}

/// In words, and the octets below.
fn with_octets(received: &Received) -> String {
    let octets = received.octets();
    let digits: String = octets.iter().take(MOST_TOLD).map(|octet| format!("{octet:02x}")).collect();
    let rest = if octets.len() > MOST_TOLD { "…" } else { "" };
    match octets {
        [] => received.to_string(),
        _ => format!("{received}\n  {digits}{rest}"),
    }
}

/// What is sent, in words.
fn told(octets: &[u8]) -> String {
    let whole = holdfast_bgp_wire::next_message(octets, holdfast_bgp_wire::MAX_EXTENDED_LEN).ok().flatten();
    match whole {
        Some(message) if message.wire.len() == octets.len() => Received::Message(octets.to_vec()).to_string(),
        _ => format!("{} octets", octets.len()),
    }
}

/// The keys of an UPDATE's hops.
fn signers(what: &Outgoing, ends: &Ends<'_>, directory: &Path) -> Result<Vec<P256Signer>, String> {
    let Outgoing::Update(spec) = what else { return Ok(Vec::new()) };
    let hops = spec.bgpsec.iter().flat_map(|(_, hops)| hops);
    let signer = |hop| -> Result<P256Signer, String> {
        let hop: &crate::script::Hop = hop;
        let file = directory.join(&hop.key);
        let said = |error: &dyn fmt::Display| format!("{}: {error}", file.display());
        let der = holdfast_tls::files::private_key(&file, &[]).map_err(|error| said(&error))?;
        P256Signer::from_der(ends.asn_of(hop)?, &der).map_err(|error| said(&error))
    };
    hops.map(signer).collect()
}

fn of_file(path: &Path, part: &FilePart) -> Result<Vec<u8>, String> {
    // To open a pipe is to wait for who writes into it, maybe for ever.
    if !fs::metadata(path).map_err(|error| error.to_string())?.is_file() {
        return Err("it is no regular file".to_owned());
    }
    let mut file = fs::File::open(path).map_err(|error| error.to_string())?;
    // Of a file with a length no more is read; any other has to be whole.
    let most = part.length.unwrap_or(u64::MAX);
    let octets: Vec<u8> = if part.is_hex {
        let text = whole(file).map_err(|error| error.to_string())?;
        let mut text = String::from_utf8(text).map_err(|error| error.to_string())?;
        text.retain(|letter| !letter.is_ascii_whitespace());
        hex(&text)?.into_iter().skip(part.at as usize).take(most as usize).collect()
    } else {
        file.seek(io::SeekFrom::Start(part.at)).map_err(|error| error.to_string())?;
        whole(file.take(most)).map_err(|error| error.to_string())?
    };
    let is_short = part.length.is_some_and(|length| (octets.len() as u64) < length);
    if is_short { Err(format!("it has only {} octets from there on", octets.len())) } else { Ok(octets) }
}

fn socket(like: SocketAddr, peer: Option<IpAddr>, options: &SocketOptions) -> io::Result<TcpSocket> {
    let socket = if like.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if let (Some(key), Some(peer)) = (&options.md5, peer) {
        let length = if peer.is_ipv4() { 32 } else { 128 };
        set_md5(&socket, Md5Peer { address: peer, length }, key.as_bytes())?;
    }
    if let Some(ttl) = options.ttl {
        set_ttl(&socket, IpVersion::of(like.ip()), ttl)?;
    }
    Ok(socket)
}

async fn connect(
    to: SocketAddr,
    from: Option<IpAddr>,
    options: &SocketOptions,
    within: Duration,
) -> Result<TcpStream, Why> {
    let deadline = Instant::now() + within;
    let late = || format!("{to} does not answer within {within:?}");
    loop {
        let once = async {
            let socket = socket(to, Some(to.ip()), options)?;
            if let Some(from) = from {
                socket.bind(SocketAddr::new(from, 0))?;
            }
            socket.connect(to).await
        };
        match timeout_at(deadline, once).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) if Instant::now() + AGAIN >= deadline => {
                return Err(cannot(format!("{to}: {error}")));
            }
            Ok(Err(_)) => sleep(AGAIN).await,
            Err(_) => return Err(cannot(late())),
        }
    }
}

fn listen(at: SocketAddr, from: Option<IpAddr>, options: &SocketOptions) -> io::Result<TcpListener> {
    let socket = socket(at, from, options)?;
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    socket.listen(8)
}
