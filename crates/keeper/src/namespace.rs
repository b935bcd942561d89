//! Sockets made inside network namespaces, for processes that may not enter any.

use std::{
    fs::{self, File},
    io,
    num::NonZeroU32,
    os::fd::{AsFd, OwnedFd},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Context, Result, ensure};
use holdfast_api::keeper::v1::{SocketKind, SocketRequest};
use holdfast_process::CapabilitySet;
use holdfast_sys::process::raise_capabilities;
use rustix::{
    fs::OFlags,
    net::{AddressFamily, Protocol, SocketFlags, SocketType, ipproto, netlink},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

/// What the keeper keeps of its rights and has put away, but for the moment in which a thread enters a network namespace.
pub(crate) const ENTERING: CapabilitySet = CapabilitySet::SYS_ADMIN;
/// Where namespaces have names (ip-netns(8)).
const DIRECTORY: &str = "/run/netns";
/// The keeper's own, which all its children have.
const OWN: &str = "/proc/self/ns/net";
/// Longest name of a file.
const NAME_MOST: usize = 255;

/// A socket of the namespace of that name. It stays in it, whoever has it. The router's own is refused: its tables are those
/// of the processes already, and two would each delete the routes of the other.
pub(crate) fn socket(request: &SocketRequest) -> Result<OwnedFd> {
    let kind = SocketKind::try_from(request.kind).context("there is no such kind of socket")?;
    let protocol = u8::try_from(request.protocol).context("there is no such protocol number")?;
    if kind == SocketKind::Packet && request.netns.is_empty() {
        return make(kind, protocol).context("opening a socket");
    }
    let path = path(&request.netns)?;
    // What is no namespace is found out on entering; a pipe must not be waited for before that.
    let namespace =
        File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(&path);
    let namespace = namespace.with_context(|| format!("the network namespace {}", path.display()))?;
    let is_own = is_same(&namespace).with_context(|| format!("comparing {} with {OWN}", path.display()))?;
    ensure!(!is_own, "the network namespace {} is the one that the router itself is in", path.display());
    // A thread has a namespace of its own, and this one ends in it: the keeper itself never leaves its own.
    let inside =
        thread::Builder::new().name("namespace".to_owned()).spawn(move || open(&namespace, kind, protocol));
    let socket = inside.context("starting a thread")?.join();
    let socket = socket.map_err(|_| anyhow::anyhow!("the thread has panicked"))?;
    socket.with_context(|| format!("in the network namespace {}", path.display()))
}

fn path(name: &str) -> Result<PathBuf> {
    let plain = !matches!(name, "" | "." | "..") && name.len() <= NAME_MOST && !name.contains(['/', '\0']);
    ensure!(plain, "{name:?} is no name of a network namespace");
    Ok(Path::new(DIRECTORY).join(name))
}

/// Whether it is the keeper's own.
fn is_same(namespace: &File) -> io::Result<bool> {
    let (there, own) = (namespace.metadata()?, fs::metadata(OWN)?);
    Ok((there.dev(), there.ino()) == (own.dev(), own.ino()))
}

/// Enters the namespace with the calling thread, for good.
fn open(namespace: &File, kind: SocketKind, protocol: u8) -> io::Result<OwnedFd> {
    raise_capabilities(ENTERING)?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
    make(kind, protocol)
}

/// A socket of the calling thread's namespace.
fn make(kind: SocketKind, protocol: u8) -> io::Result<OwnedFd> {
    let raw = NonZeroU32::new(protocol.into()).map(Protocol::from_raw);
    let (family, sort, protocol) = match kind {
        // Without a number the protocol is NETLINK_ROUTE.
        SocketKind::NetlinkRoute => (AddressFamily::NETLINK, SocketType::RAW, None),
        SocketKind::NetlinkNetfilter => (AddressFamily::NETLINK, SocketType::RAW, Some(netlink::NETFILTER)),
        SocketKind::NetlinkSockDiag => (AddressFamily::NETLINK, SocketType::RAW, Some(netlink::SOCK_DIAG)),
        SocketKind::TcpV4 => (AddressFamily::INET, SocketType::STREAM, None),
        SocketKind::TcpV6 => (AddressFamily::INET6, SocketType::STREAM, None),
        SocketKind::IcmpV6 => (AddressFamily::INET6, SocketType::RAW, Some(ipproto::ICMPV6)),
        SocketKind::UdpV4 => (AddressFamily::INET, SocketType::DGRAM, None),
        SocketKind::UdpV6 => (AddressFamily::INET6, SocketType::DGRAM, None),
        SocketKind::RawV4 => (AddressFamily::INET, SocketType::RAW, raw),
        SocketKind::RawV6 => (AddressFamily::INET6, SocketType::RAW, raw),
        // Without a protocol it hears nothing.
        SocketKind::Packet => (AddressFamily::PACKET, SocketType::RAW, None),
    };
    Ok(rustix::net::socket_with(family, sort, SocketFlags::CLOEXEC, protocol)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    use rustix::net::netdevice::name_to_index;

    /// A namespace with a name, which has an interface `inside0` and goes with this.
    struct Namespace(String);

    impl Namespace {
        fn new() -> Self {
            let namespace = Self(format!("holdfast-keeper-{}", std::process::id()));
            ip(&["netns", "add", &namespace.0]);
            ip(&["-n", &namespace.0, "link", "add", "inside0", "type", "veth", "peer", "name", "inside1"]);
            namespace
        }
    }

    impl Drop for Namespace {
        fn drop(&mut self) {
            let _ = Command::new("ip").args(["netns", "delete", &self.0]).status();
        }
    }

    fn ip(arguments: &[&str]) {
        let status = Command::new("ip").args(arguments).status().expect("ip runs");
        assert!(status.success(), "this test needs root: ip {arguments:?}");
    }

    fn request(netns: &str, kind: SocketKind) -> SocketRequest {
        SocketRequest { netns: netns.to_owned(), kind: kind.into(), protocol: 253 }
    }

    #[test]
    fn a_socket_is_inside_and_the_keeper_stays_outside() {
        let namespace = Namespace::new();
        for kind in [
            SocketKind::NetlinkRoute,
            SocketKind::TcpV4,
            SocketKind::TcpV6,
            SocketKind::IcmpV6,
            SocketKind::UdpV4,
            SocketKind::UdpV6,
            SocketKind::RawV4,
            SocketKind::RawV6,
            SocketKind::NetlinkNetfilter,
            SocketKind::NetlinkSockDiag,
        ] {
            let made = socket(&request(&namespace.0, kind)).expect("a socket");
            assert!(name_to_index(&made, "inside0").is_ok(), "{kind:?}");
            assert!(
                rustix::io::fcntl_getfd(&made).expect("it is open").contains(rustix::io::FdFlags::CLOEXEC)
            );
        }
        let here = std::net::UdpSocket::bind(("127.0.0.1", 0)).expect("a socket");
        assert!(name_to_index(&here, "inside0").is_err());
    }

    #[test]
    fn names_that_are_none_are_refused_before_anything_is_opened() {
        for name in ["", ".", "..", "a/b", "../run/netns/a", "/proc/1/ns/net", "a\0b", &"a".repeat(256)] {
            let error = socket(&request(name, SocketKind::TcpV4)).expect_err(name);
            assert!(error.to_string().contains("is no name of a network namespace"), "{error:#}");
        }
    }

    #[test]
    fn its_own_namespace_is_refused_under_whatever_name() {
        let own = Namespace(format!("holdfast-own-{}", std::process::id()));
        ip(&["netns", "attach", &own.0, &std::process::id().to_string()]);
        let error = socket(&request(&own.0, SocketKind::TcpV4)).expect_err("it is here");
        assert!(error.to_string().contains("the router itself is in"), "{error:#}");
    }

    #[test]
    fn a_pipe_under_the_name_of_a_namespace_is_not_waited_for() {
        let pipe = Namespace(format!("holdfast-pipe-{}", std::process::id()));
        fs::create_dir_all(DIRECTORY).expect("made");
        let made = Command::new("mkfifo").arg(Path::new(DIRECTORY).join(&pipe.0)).status();
        assert!(made.is_ok_and(|status| status.success()), "this test needs root");
        let error = socket(&request(&pipe.0, SocketKind::TcpV4));
        fs::remove_file(Path::new(DIRECTORY).join(&pipe.0)).expect("removed");
        assert!(format!("{:#}", error.expect_err("no namespace")).contains("Invalid argument"));
    }

    #[test]
    fn what_is_not_there_or_no_namespace_is_told() {
        let error = socket(&request("holdfast-none", SocketKind::TcpV4)).expect_err("it is not there");
        assert!(format!("{error:#}").contains("/run/netns/holdfast-none: No such file"), "{error:#}");
        let error = socket(&SocketRequest { netns: "a".to_owned(), kind: 99, protocol: 0 })
            .expect_err("no such kind");
        assert!(format!("{error:#}").contains("no such kind"), "{error:#}");
        let null = File::open("/dev/null").expect("it is there");
        let error = thread::spawn(move || open(&null, SocketKind::TcpV4, 0)).join().expect("no panic");
        assert_eq!(error.expect_err("no namespace").raw_os_error(), Some(22));
    }
}
