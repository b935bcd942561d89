//! Where sockets are: each table of the router has its own place.

use std::{
    fmt,
    net::IpAddr,
    num::NonZeroU32,
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
};

use holdfast_api::keeper::v1::{KeeperClient, SocketKind, SocketRequest};
use holdfast_sys::{bind_to_device, bound_to, netns_cookie, tcp::IpVersion};
use holdfast_xrl::XrlError;
use rustix::{
    io::Errno,
    net::{AddressFamily, Protocol, SocketFlags, SocketType, ipproto, netdevice},
};

use tokio::sync::watch;

use crate::{SocketError, error::Step};

/// Where the sockets of an opener are made.
#[derive(Clone, Default)]
pub enum Place {
    /// In the process's own network namespace, at no device: routes are those of the main table.
    #[default]
    Here,
    /// Bound to this device of the process's own namespace: routes are those of the VRF that it is. Those for ICMPv6 are
    /// not, see [`Place::icmp`].
    Device(String),
    /// In a network namespace of /run/netns. The keeper makes them.
    Namespace {
        /// As in /run/netns.
        name: String,
        /// Who enters it.
        keeper: KeeperClient,
        /// In which one the last socket was made, of those that have had the name.
        last: Last,
    },
}

/// Tells a namespace from all others; `None`: no socket was made yet, or the kernel does not say.
type Last = Rc<watch::Sender<Option<u64>>>;

impl Place {
    /// In the network namespace of this name.
    pub fn namespace(name: String, keeper: KeeperClient) -> Self {
        Self::Namespace { name, keeper, last: Rc::default() }
    }

    /// A netlink socket (NETLINK_ROUTE) in the namespace of this name; nothing when it is the process's own, for which nobody
    /// has to be asked.
    ///
    /// # Errors
    /// As the keeper says: `FailedPrecondition` when the namespace is not there.
    pub async fn netlink(&self) -> Result<Option<OwnedFd>, XrlError> {
        match self {
            Self::Here | Self::Device(_) => Ok(None),
            Self::Namespace { name, keeper, last } => {
                enter(name, keeper, last, SocketKind::NetlinkRoute, 0).await.map(Some)
            }
        }
    }

    /// A socket for Ethernet frames, which hears none: the keeper makes it wherever this is.
    ///
    /// # Errors
    /// As the keeper says.
    pub async fn frames(&self, keeper: &KeeperClient) -> Result<OwnedFd, XrlError> {
        match self {
            Self::Here | Self::Device(_) => enter("", keeper, &Last::default(), SocketKind::Packet, 0).await,
            Self::Namespace { name, keeper, last } => enter(name, keeper, last, SocketKind::Packet, 0).await,
        }
    }

    /// Waits until a socket was made in another namespace than one before: that of this name was deleted and made again.
    /// What was made before is in the old one.
    pub async fn moved(&self) {
        let Self::Namespace { last, .. } = self else { return std::future::pending().await };
        let mut changes = last.subscribe();
        let mut first = *changes.borrow_and_update();
        // The sender lives as long as we do: this cannot fail.
        while changes.changed().await.is_ok() {
            let now = *changes.borrow_and_update();
            if first.is_some() && now != first {
                return;
            }
            first = now;
        }
    }

    /// A TCP socket for addresses of this family, without any option.
    pub(crate) async fn tcp(&self, address: IpAddr) -> Result<OwnedFd, SocketError> {
        match address {
            IpAddr::V4(_) => self.open(SocketKind::TcpV4).await,
            IpAddr::V6(_) => self.open(SocketKind::TcpV6).await,
        }
    }

    /// A UDP socket for addresses of this family, without any option.
    pub(crate) async fn udp(&self, address: IpAddr) -> Result<OwnedFd, SocketError> {
        match address {
            IpAddr::V4(_) => self.open(SocketKind::UdpV4).await,
            IpAddr::V6(_) => self.open(SocketKind::UdpV6).await,
        }
    }

    /// A raw socket for ICMPv6, which hears all interfaces of the namespace. Takes CAP_NET_RAW.
    ///
    /// It is bound to no device: to the kernel messages of neighbour discovery come in at the interface that is enslaved to
    /// a VRF device, and not at the device, as all others do.
    pub(crate) async fn icmp(&self) -> Result<OwnedFd, SocketError> {
        match self {
            Self::Here | Self::Device(_) => non_blocking(new(SocketKind::IcmpV6, 0)?),
            Self::Namespace { .. } => self.open(SocketKind::IcmpV6).await,
        }
    }

    /// A raw socket for packets of this protocol number, without any option. Takes CAP_NET_RAW.
    pub(crate) async fn raw(&self, version: IpVersion, protocol: u8) -> Result<OwnedFd, SocketError> {
        let kind = match version {
            IpVersion::V4 => SocketKind::RawV4,
            IpVersion::V6 => SocketKind::RawV6,
        };
        self.open_for(kind, protocol).await
    }

    /// Whether what a socket was made at is still there, as far as is known: a device or a namespace that is made again is
    /// another one, and a socket stays with the old one.
    pub(crate) fn still_has(&self, socket: &OwnedFd) -> bool {
        match self {
            Self::Device(device) => match (bound_to(socket), netdevice::name_to_index(socket, device)) {
                (Ok(bound), Ok(now)) => bound == now,
                (Ok(_), Err(error)) => error != Errno::NODEV,
                // The kernel does not say.
                (Err(_), _) => true,
            },
            Self::Here | Self::Namespace { .. } => !self.is_left(socket),
        }
    }

    /// Whether this is where a socket is that somebody else has made.
    pub(crate) async fn has(&self, socket: &OwnedFd, address: IpAddr) -> Result<bool, SocketError> {
        if let Self::Namespace { .. } = self {
            // Only one that was made there now says which namespace has the name.
            self.tcp(address).await?;
        }
        Ok(self.still_has(socket))
    }

    /// Whether a socket is in a namespace that has lost its name to another one.
    pub fn is_left(&self, socket: impl AsFd) -> bool {
        let Self::Namespace { last, .. } = self else { return false };
        last.borrow().is_some_and(|last| netns_cookie(socket).is_ok_and(|cookie| cookie != last))
    }

    /// A socket of this kind, non-blocking.
    async fn open(&self, kind: SocketKind) -> Result<OwnedFd, SocketError> {
        self.open_for(kind, 0).await
    }

    /// The same; of one that is raw, for this protocol number.
    async fn open_for(&self, kind: SocketKind, protocol: u8) -> Result<OwnedFd, SocketError> {
        let socket = match self {
            Self::Here => new(kind, protocol)?,
            Self::Device(device) => {
                let socket = new(kind, protocol)?;
                bind_to_device(&socket, device)
                    .map_err(|source| SocketError::NoInterface { name: device.clone(), source })?;
                socket
            }
            Self::Namespace { name, keeper, last } => {
                let made = enter(name, keeper, last, kind, protocol).await;
                made.map_err(|error| SocketError::Keeper(error.message().to_owned()))?
            }
        };
        non_blocking(socket)
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here => f.write_str("Here"),
            Self::Device(device) => write!(f, "Device({device:?})"),
            Self::Namespace { name, .. } => write!(f, "Namespace({name:?})"),
        }
    }
}

/// One in the namespace of this name.
async fn enter(
    name: &str,
    keeper: &KeeperClient,
    last: &Last,
    kind: SocketKind,
    protocol: u8,
) -> Result<OwnedFd, XrlError> {
    let request = SocketRequest { netns: name.to_owned(), kind: kind.into(), protocol: protocol.into() };
    let (_, sockets) = keeper.socket(request).await?;
    let socket = sockets.into_iter().next();
    let socket = socket.ok_or_else(|| XrlError::internal("the keeper sent no descriptor"))?;
    // Without an answer the namespace is taken for the one it was.
    if let Ok(cookie) = netns_cookie(&socket) {
        last.send_if_modified(|last| last.replace(cookie) != Some(cookie));
    }
    Ok(socket)
}

fn non_blocking(socket: OwnedFd) -> Result<OwnedFd, SocketError> {
    rustix::io::ioctl_fionbio(&socket, true).step("setting O_NONBLOCK")?;
    Ok(socket)
}

/// One of the process's own namespace.
fn new(kind: SocketKind, protocol: u8) -> Result<OwnedFd, SocketError> {
    let raw = NonZeroU32::new(protocol.into()).map(Protocol::from_raw);
    let (family, sort, protocol) = match kind {
        SocketKind::TcpV4 => (AddressFamily::INET, SocketType::STREAM, None),
        SocketKind::TcpV6 => (AddressFamily::INET6, SocketType::STREAM, None),
        SocketKind::UdpV4 => (AddressFamily::INET, SocketType::DGRAM, None),
        SocketKind::UdpV6 => (AddressFamily::INET6, SocketType::DGRAM, None),
        SocketKind::IcmpV6 => (AddressFamily::INET6, SocketType::RAW, Some(ipproto::ICMPV6)),
        SocketKind::RawV4 => (AddressFamily::INET, SocketType::RAW, raw),
        SocketKind::RawV6 => (AddressFamily::INET6, SocketType::RAW, raw),
        SocketKind::NetlinkRoute
        | SocketKind::NetlinkNetfilter
        | SocketKind::NetlinkSockDiag
        | SocketKind::Packet => {
            return Err(Errno::PROTONOSUPPORT).step("opening a socket");
        }
    };
    rustix::net::socket_with(family, sort, SocketFlags::CLOEXEC, protocol).step("opening a socket")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        net::Ipv4Addr,
        pin::pin,
        task::{Context, Poll, Waker},
    };

    fn now<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => panic!("it waits"),
        }
    }

    #[test]
    fn what_hears_neighbours_is_bound_to_no_device() {
        let place = Place::Device("nowhere0".into());
        now(place.icmp()).expect("this test needs root");
        now(place.tcp(Ipv4Addr::LOCALHOST.into())).expect_err("there is no such device");
    }
}
