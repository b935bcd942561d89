//! A node: what one process serves, and on which channels.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};

use hashbrown::HashMap;

use crate::channel::Acceptor;
use crate::component::v1 as component;
use crate::component::v1::ComponentServer;
use crate::finder_api::v1 as finder;
use crate::{
    CallContext, Channel, Grant, Key, Link, MethodInfo, PeerIdentity, Resolver, Service, ServiceInfo,
    XrlError,
};

/// Most channels of a node.
pub(crate) const MAX_CHANNELS: usize = 4096;
/// Most keys presented on one connection.
const MAX_KEYS: usize = 64;

/// The services of a process and the channels on which they can be called. Clones are the same node.
#[derive(Clone)]
pub struct Node(Rc<Inner>);

struct Inner {
    class: String,
    instance: String,
    services: RefCell<BTreeMap<u16, Rc<dyn Service>>>,
    granted: RefCell<Vec<Rc<Granted>>>,
    channels: RefCell<HashMap<u64, Channel>>,
    next_channel: Cell<u64>,
}

/// A grant as connections hold it.
#[derive(Debug)]
struct Granted {
    grant: Grant,
    peer: Rc<PeerIdentity>,
    /// The connection it was made for.
    channel: u64,
    revoked: Cell<bool>,
}

impl Node {
    /// A node of this class, named after the class and the process id ("bgp-4711").
    pub fn new(class: &str) -> Self {
        Self::named(class, &format!("{class}-{}", std::process::id()))
    }

    /// A node with an instance name of its own.
    pub fn named(class: &str, instance: &str) -> Self {
        let inner = Rc::new_cyclic(|inner: &Weak<Inner>| Inner {
            class: class.to_owned(),
            instance: instance.to_owned(),
            services: RefCell::new(component_service(inner.clone())),
            granted: RefCell::default(),
            channels: RefCell::default(),
            next_channel: Cell::default(),
        });
        Self(inner)
    }

    /// The class.
    pub fn class(&self) -> &str {
        &self.0.class
    }

    /// The instance name.
    pub fn instance(&self) -> &str {
        &self.0.instance
    }

    /// Serves this on all channels from now on, in place of one of the same number. Call it before
    /// [`join`](Self::join), which tells the Finder what there is.
    pub fn serve(&self, service: impl Service + 'static) {
        self.0.services.borrow_mut().insert(service.info().id, Rc::new(service));
    }

    /// Takes one end of a connected Unix stream socket whose other end is known to be this peer: it may call what its
    /// role allows, without a key. The node keeps the channel until it closes; the result is to call the peer.
    ///
    /// # Errors
    /// When the descriptor cannot be polled.
    pub fn attach(&self, fd: OwnedFd, peer: PeerIdentity) -> io::Result<Channel> {
        Ok(self.attach_link(Link::unix(fd)?, peer))
    }

    /// As [`attach`](Self::attach), on any link.
    pub fn attach_link(&self, link: Link, peer: PeerIdentity) -> Channel {
        self.0.open(link, |_| Trust::Role(Rc::new(peer)))
    }

    /// Takes one end of a connected Unix stream socket whose other end is going to present the grant's key.
    ///
    /// # Errors
    /// `Unavailable` when there are too many channels; `Internal` when the descriptor cannot be polled.
    pub fn admit(&self, fd: OwnedFd, grant: Grant) -> Result<Channel, XrlError> {
        self.0.admit(fd, grant)
    }

    /// Makes a key invalid, on all connections.
    pub fn revoke(&self, key: &Key) {
        self.0.revoke(key.as_bytes());
    }

    /// A resolver that has no Finder yet: [`Resolver::rejoin`] takes it to one.
    pub fn resolver(&self) -> Resolver {
        Resolver::of_node(self.clone())
    }

    /// Connects to the Finder over one end of a socket whose other end it has, and registers there.
    ///
    /// # Errors
    /// Of the registration; `Internal` when the descriptor cannot be polled.
    pub async fn join(&self, fd: OwnedFd) -> Result<Resolver, XrlError> {
        let resolver = Resolver::of_node(self.clone());
        resolver.rejoin(fd).await?;
        Ok(resolver)
    }

    /// As [`join`](Self::join), on any link.
    ///
    /// # Errors
    /// Of the registration.
    pub async fn join_link(&self, link: Link) -> Result<Resolver, XrlError> {
        let resolver = Resolver::of_node(self.clone());
        resolver.rejoin_link(link).await?;
        Ok(resolver)
    }

    /// Closes all channels.
    pub fn close(&self) {
        // Collected first: a channel that closes takes itself out.
        let channels: Vec<Channel> = self.0.channels.borrow().values().cloned().collect();
        channels.iter().for_each(Channel::close);
    }

    /// How many channels are open.
    pub fn channels(&self) -> usize {
        self.0.channels.borrow().len()
    }

    /// What the Finder is told of this node's services.
    pub(crate) fn registration(&self) -> finder::RegisterRequest {
        finder::RegisterRequest {
            class: self.0.class.clone(),
            instance: self.0.instance.clone(),
            services: self.0.offered().map(|service| describe_service(service.info())).collect(),
        }
    }
}

impl Inner {
    fn open(self: &Rc<Self>, link: Link, trust: impl FnOnce(u64) -> Trust) -> Channel {
        let id = self.next_channel.get();
        self.next_channel.set(id + 1);
        let connection =
            Connection { node: Rc::downgrade(self), id, trust: trust(id), presented: RefCell::default() };
        let channel = Channel::serving(link, Rc::new(connection));
        self.channels.borrow_mut().insert(id, channel.clone());
        channel
    }

    fn admit(self: &Rc<Self>, fd: OwnedFd, grant: Grant) -> Result<Channel, XrlError> {
        if self.channels.borrow().len() >= MAX_CHANNELS {
            return Err(XrlError::unavailable(format!("{} has too many connections", self.instance)));
        }
        let link = Link::unix(fd).map_err(|error| XrlError::internal(error.to_string()))?;
        Ok(self.open(link, |channel| {
            let (role, instance) = (grant.role.clone(), grant.instance.clone());
            let peer = Rc::new(PeerIdentity { role, instance, ..PeerIdentity::default() });
            let granted = Granted { grant, peer, channel, revoked: Cell::new(false) };
            self.granted.borrow_mut().push(Rc::new(granted));
            Trust::Keys
        }))
    }

    fn revoke(&self, key: &[u8]) {
        self.granted.borrow_mut().retain(|granted| {
            let found = granted.grant.key.matches(key);
            granted.revoked.set(granted.revoked.get() || found);
            !found
        });
    }

    /// Services that callers may find: all but the Finder's own interface to components.
    fn offered(&self) -> impl Iterator<Item = Rc<dyn Service>> {
        let services: Vec<_> = self.services.borrow().values().cloned().collect();
        services.into_iter().filter(|service| service.info().id != COMPONENT)
    }
}

/// A service as the Finder knows it.
pub(crate) fn describe_service(info: &ServiceInfo) -> finder::Service {
    let method = |method: &MethodInfo| finder::Method {
        id: method.id,
        name: method.name.to_owned(),
        roles: method.roles.iter().map(|role| (*role).to_owned()).collect(),
        since: method.since,
        streaming: method.streaming,
    };
    finder::Service {
        name: info.name.to_owned(),
        class: info.class.to_owned(),
        methods: info.methods.iter().map(method).collect(),
    }
}

/// Why the peer of a connection may call anything.
enum Trust {
    /// It is known who it is.
    Role(Rc<PeerIdentity>),
    /// By the keys it presents.
    Keys,
}

/// A channel as the node sees it.
struct Connection {
    node: Weak<Inner>,
    id: u64,
    trust: Trust,
    presented: RefCell<Vec<Rc<Granted>>>,
}

impl Connection {
    fn node(&self) -> Result<Rc<Inner>, XrlError> {
        self.node.upgrade().ok_or_else(|| XrlError::unavailable("this process is ending"))
    }

    /// As whom the peer calls a method.
    fn caller(&self, method: u32, name: &str) -> Result<Rc<PeerIdentity>, XrlError> {
        if let Trust::Role(peer) = &self.trust {
            return Ok(Rc::clone(peer));
        }
        let presented = self.presented.borrow();
        let mut valid = presented.iter().filter(|granted| !granted.revoked.get());
        if let Some(granted) = valid.clone().find(|granted| granted.grant.methods.contains(&method)) {
            return Ok(Rc::clone(&granted.peer));
        }
        Err(XrlError::denied(match (valid.next(), presented.is_empty()) {
            (Some(granted), _) => {
                format!("the key given to role \"{}\" does not cover {name}", granted.grant.role)
            }
            (None, false) => format!("{name}: the key was revoked"),
            (None, true) => format!("{name}: no key was presented"),
        }))
    }
}

impl Acceptor for Connection {
    fn hello(&self, key: &[u8]) -> Result<(), XrlError> {
        let node = self.node()?;
        let granted = node.granted.borrow().iter().find(|granted| granted.grant.key.matches(key)).cloned();
        let granted = granted.ok_or_else(|| XrlError::denied("unknown key"))?;
        let mut presented = self.presented.borrow_mut();
        if presented.len() >= MAX_KEYS {
            return Err(XrlError::denied("too many keys"));
        }
        presented.push(granted);
        Ok(())
    }

    fn route(&self, method: u32) -> Result<(Rc<dyn Service>, Rc<PeerIdentity>), XrlError> {
        let node = self.node()?;
        let missing = || XrlError::not_found(format!("{} has no method {method:#x}", node.instance));
        let service =
            u16::try_from(method >> 16).ok().and_then(|id| node.services.borrow().get(&id).cloned());
        let service = service.ok_or_else(missing)?;
        let info = service.info().method(method).ok_or_else(missing)?;
        let name = format_args!("{}/{}", service.info().interface(), info.name).to_string();
        let peer = self.caller(method, &name)?;
        // Once more here, although the Finder gives no key for it: this process need not trust the Finder's table.
        if !info.allows(&peer.role) {
            let allowed = info.roles.join(", ");
            return Err(XrlError::denied(format!(
                "role \"{}\" may not call {name} ({allowed} may)",
                peer.role
            )));
        }
        Ok((service, peer))
    }

    fn closed(&self) {
        if let Some(node) = self.node.upgrade() {
            node.granted.borrow_mut().retain(|granted| granted.channel != self.id);
            let channel = node.channels.borrow_mut().remove(&self.id);
            drop(channel);
        }
    }
}

/// Number of the service `component.v1.Component`.
const COMPONENT: u16 = 2;

fn component_service(node: Weak<Inner>) -> BTreeMap<u16, Rc<dyn Service>> {
    let service: Rc<dyn Service> = Rc::new(component::ComponentDispatcher::new(ForFinder(node)));
    BTreeMap::from([(COMPONENT, service)])
}

/// What the Finder may ask of a node.
struct ForFinder(Weak<Inner>);

impl ForFinder {
    fn node(&self) -> Result<Rc<Inner>, XrlError> {
        self.0.upgrade().ok_or_else(|| XrlError::unavailable("this process is ending"))
    }
}

impl ComponentServer for ForFinder {
    async fn accept(
        &self,
        _: &CallContext,
        request: component::AcceptRequest,
        fds: Vec<OwnedFd>,
    ) -> Result<component::AcceptReply, XrlError> {
        let grant = request.grant.ok_or_else(|| XrlError::invalid_argument("no grant"))?;
        let fd = fds.into_iter().next().ok_or_else(|| XrlError::invalid_argument("no descriptor"))?;
        self.node()?.admit(fd, Grant::from_proto(grant)?)?;
        Ok(component::AcceptReply {})
    }

    async fn revoke(
        &self,
        _: &CallContext,
        request: component::RevokeRequest,
    ) -> Result<component::RevokeReply, XrlError> {
        self.node()?.revoke(&request.key);
        Ok(component::RevokeReply {})
    }

    async fn introspect(
        &self,
        _: &CallContext,
        _: component::IntrospectRequest,
    ) -> Result<component::IntrospectReply, XrlError> {
        let node = self.node()?;
        let descriptor_sets = node.offered().map(|service| service.info().descriptor_set.to_vec()).collect();
        Ok(component::IntrospectReply { descriptor_sets })
    }
}
