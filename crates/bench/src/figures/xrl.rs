//! Figure 9: calls by their number of arguments, over each family.

use std::{
    collections::VecDeque,
    net::{TcpListener, TcpStream},
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use holdfast_xrl::{
    Call, Channel, Handler, IncomingCall, Link, MethodInfo, Node, PeerIdentity, Service, ServiceInfo,
};
use serde::{Deserialize, Serialize};
use tokio::task::LocalSet;

/// The most arguments of a call; the paper has as many.
const MOST: usize = 25;
/// Numbers of arguments that are measured.
const COUNTS: [usize; 6] = [0, 5, 10, 15, 20, MOST];
/// Calls under way in the paper's pipeline.
const PIPELINE: usize = 100;
/// Calls of one transaction: of the paper, and for a window of one.
const CALLS: [usize; 2] = [10_000, 2_000];
/// Transactions of each kind; the median counts.
const RUNS: usize = 9;

/// What carries calls.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Family {
    /// Memory of one process.
    InProcess,
    /// A Unix socket between two processes.
    Unix,
    /// A TCP connection between two processes.
    Tcp,
}

/// Calls a second over a family, with so many under way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Series {
    pub(crate) family: Family,
    pub(crate) window: usize,
    /// Number of arguments, and calls a second.
    pub(crate) rates: Vec<(usize, f64)>,
}

macro_rules! arguments {
    ($($name:ident $tag:tt),*) => {
        /// Arguments of a call, each there or not.
        #[derive(Clone, Copy, PartialEq, prost::Message)]
        struct Arguments {
            $(#[prost(uint32, optional, tag = $tag)] $name: Option<u32>,)*
        }

        impl Arguments {
            fn new(count: usize) -> Self {
                let mut left = count;
                let mut next = || left.checked_sub(1).map(|rest| { left = rest; 4711 });
                Self { $($name: next(),)* }
            }
        }
    };
}

arguments!(a 1, b 2, c 3, d 4, e 5, f 6, g 7, h 8, i 9, j 10, k 11, l 12, m 13, n 14, o 15, p 16, q 17, r 18, s 19,
    t 20, u 21, v 22, w 23, x 24, y 25);

const ID: u16 = 0x7fff;
const TAKE: u32 = (ID as u32) << 16 | 1;
static METHODS: [MethodInfo; 1] = [MethodInfo {
    id: TAKE,
    name: "Take",
    roles: &["*"],
    since: 1,
    streaming: false,
    families: &["local", "unix", "tcp"],
}];
static INFO: ServiceInfo =
    ServiceInfo { name: "bench.v1.Bench", id: ID, class: "", methods: &METHODS, descriptor_set: &[] };

/// Takes calls and says that it has.
struct Taker;

impl Service for Taker {
    fn info(&self) -> &'static ServiceInfo {
        &INFO
    }

    fn dispatch(&self, call: IncomingCall<'_>) -> Handler {
        call.unary(|_, _: Arguments, _| async { Ok(((), Vec::new())) })
    }
}

pub(crate) fn measure() -> Result<Vec<Series>> {
    let kinds = [Family::InProcess, Family::Unix, Family::Tcp].map(|family| (family, PIPELINE));
    let kinds = kinds.into_iter().chain([(Family::Unix, 1), (Family::Tcp, 1)]);
    kinds.map(|(family, window)| series(family, window)).collect()
}

fn series(family: Family, window: usize) -> Result<Series> {
    eprintln!("figure 9: {family:?}, {window} under way");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = LocalSet::new();
    let (receiver, rates) = local.block_on(&runtime, async {
        let (channel, receiver) = connect(family)?;
        let mut rates = Vec::new();
        for count in COUNTS {
            rates.push((count, median(&channel, window, Arguments::new(count)).await?));
        }
        anyhow::Ok((receiver, rates))
    })?;
    // A receiver that is another process ends with its channel.
    drop(local);
    match receiver {
        Receiver::Here(node) => node.close(),
        Receiver::There(mut child) => _ = child.wait()?,
    }
    Ok(Series { family, window, rates })
}

async fn median(channel: &Channel, window: usize, arguments: Arguments) -> Result<f64> {
    let calls = CALLS[usize::from(window == 1)];
    let mut rates = Vec::new();
    for _ in 0..RUNS {
        let took = transaction(channel, window, calls, &arguments).await?;
        rates.push(calls as f64 / took.as_secs_f64());
    }
    rates.sort_unstable_by(f64::total_cmp);
    Ok(rates[RUNS / 2])
}

async fn transaction(
    channel: &Channel,
    window: usize,
    calls: usize,
    arguments: &Arguments,
) -> Result<Duration> {
    let start = Instant::now();
    let mut under_way: VecDeque<Call<()>> = VecDeque::with_capacity(window);
    for _ in 0..calls {
        if under_way.len() == window {
            under_way.pop_front().context("a call under way")?.await?;
        }
        under_way.push_back(channel.call(TAKE, arguments, Vec::new()));
    }
    for call in under_way {
        call.await?;
    }
    Ok(start.elapsed())
}

/// Who takes the calls, as long as this is not dropped.
enum Receiver {
    Here(Node),
    There(Child),
}

/// A channel to a receiver, which is another process unless the family has only one.
fn connect(family: Family) -> Result<(Channel, Receiver)> {
    match family {
        Family::InProcess => {
            let (near, far) = Link::pair();
            let node = node();
            node.attach_link(far, PeerIdentity::new("bench"));
            Ok((Channel::over(near), Receiver::Here(node)))
        }
        Family::Unix => {
            let (near, far) = UnixStream::pair()?;
            Ok((Channel::over(Link::unix(near.into())?), receiver(family, far.into())?))
        }
        Family::Tcp => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let near = TcpStream::connect(listener.local_addr()?)?;
            let (far, _) = listener.accept()?;
            Ok((Channel::over(Link::tcp(near.into())?), receiver(family, far.into())?))
        }
    }
}

fn node() -> Node {
    let node = Node::new("bench");
    node.serve(Taker);
    node
}

fn receiver(family: Family, end: OwnedFd) -> Result<Receiver> {
    let family = clap::ValueEnum::to_possible_value(&family).context("a family of the command line")?;
    let mut receiver = Command::new(std::env::current_exe()?);
    receiver.args(["figures", "--receive", family.get_name()]).stdin(Stdio::from(end));
    Ok(Receiver::There(receiver.spawn()?))
}

/// The life of the process at the other end.
pub(crate) fn receive(family: Family, end: OwnedFd) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let link = if family == Family::Tcp { Link::tcp(end)? } else { Link::unix(end)? };
        let node = node();
        node.attach_link(link, PeerIdentity::new("bench")).closed().await;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    #[test]
    fn a_call_has_as_many_arguments_as_are_asked_for() {
        // Of each argument: its number and wire type in one or two octets, its value in two.
        let octets = |count| Arguments::new(count).encoded_len();
        assert_eq!((octets(0), octets(15), octets(MOST)), (0, 15 * 3, 15 * 3 + 10 * 4));
    }
}
