//! XRL: how the processes of a router talk to each other, and how an operator talks to them.
//!
//! A [`Channel`] carries many calls at a time, both ways, with descriptors, streams and back-pressure. A [`Node`] is
//! what a process serves; the [`Finder`] knows who lives and introduces callers to them, with a [`Key`] that the
//! receiver checks; a [`Resolver`] is a process's way to the Finder and from there to everybody else. [`text`] calls
//! any method without generated code.
//!
//! Everything runs on one thread, within a tokio `LocalSet`. This crate knows no routing: interfaces are in the `api`
//! crate. Read [`Channel`] and [`Node`] first.
//!
//! ```ignore
//! let node = Node::new("bgp");
//! node.serve(BgpDispatcher::new(speaker));
//! let resolver = node.join(fd_of_the_channel_to_the_finder).await?;
//! let rib: RibClient = resolver.wait_for("rib").await?;
//! let resolution = rib.register(RegisterRequest { address }).await?;
//! ```

// Generated code names this crate as others do.
extern crate self as holdfast_xrl;

mod call;
mod calls;
mod channel;
mod counts;
mod driver;
mod error;
mod finder;
mod frame;
pub mod fuzzing;
mod identity;
mod link;
mod node;
mod outbox;
mod parts;
mod readers;
mod resolver;
mod service;
mod serving;
mod tcp;
pub mod text;
pub mod traffic;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

pub use call::{Call, CallWithFds, ReplyStream};
pub use calls::{MAX_WAITING, STREAM_WINDOW, WINDOW_BYTES, WINDOW_CALLS};
pub use channel::Channel;
pub use error::{ErrorKind, XrlError};
pub use finder::{Finder, MOST_OF_CLIENT, MOST_UNPROVEN};
pub use frame::{FRAME_VERSION, FrameDecoder, FrameError, HEADER_LEN, Header, Kind, MAX_BODY, MAX_FDS};
pub use identity::{Grant, Key, PeerIdentity};
pub use link::{Family, Link};
pub use node::{Node, scoped};
pub use parts::MAX_REQUEST;
pub use readers::{MOST_CALLS, MOST_UNREAD};
pub use resolver::{Lifecycle, Resolver, Watch};
pub use service::{
    CallContext, Client, Configure, Handler, IncomingCall, MethodInfo, ReplySink, Service, ServiceInfo,
};
pub use tcp::{Dialer, SHORTEST_SECRET, Secret, TcpClient};

#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::use_self)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/api/mod.rs"));
}

pub use generated::{component, finder as finder_api};
