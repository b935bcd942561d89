//! A node: what one process serves, and on which channels.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::time::Duration;

use crate::channel::Acceptor;
use crate::component::v1 as component;
use crate::component::v1::ComponentServer;
use crate::finder_api::v1 as finder;
use crate::readers::Reader;
use crate::{
    CallContext, Channel, Family, Grant, Key, Link, MethodInfo, PeerIdentity, Resolver, Service, ServiceInfo,
    XrlError,
};

/// Most channels of a node.
pub(crate) const MAX_CHANNELS: usize = 4096;
/// Those of them that callers from outside of the router may have: for one more the one closes that is idle for longest.
pub(crate) const MOST_OF_READERS: usize = 1024;
/// Most keys presented on one connection.
const MAX_KEYS: usize = 64;

/// The services of a process and the channels on which they can be called. Clones are the same node.
#[derive(Clone)]
pub struct Node(Rc<Inner>);

struct Inner {
    class: String,
    instance: String,
    /// The scope that its classes are of.
    scope: Option<Rc<str>>,
    /// Its services are found under its own class only.
    is_retired: bool,
    sole: Cell<bool>,
    longest_turn: Cell<fn() -> Duration>,
    services: RefCell<BTreeMap<u16, Rc<dyn Service>>>,
    granted: RefCell<Vec<Rc<Granted>>>,
    channels: RefCell<HashMap<u64, Open>>,
    next_channel: Cell<u64>,
}

/// A channel that is open.
struct Open {
    channel: Channel,
    peer: Rc<PeerIdentity>,
    connection: Rc<Connection>,
}

/// A node that does not live for this.
#[derive(Clone)]
pub(crate) struct WeakNode(Weak<Inner>);

impl WeakNode {
    pub(crate) fn upgrade(&self) -> Option<Node> {
        self.0.upgrade().map(Node)
    }
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
        Self::create(class.to_owned(), instance.to_owned(), None, false)
    }

    /// One of several nodes of a process that do the same, each in a scope of its own (a VRF, say). Its class and those
    /// of its services are [`scoped`]: who looks for another scope, or for the process itself, does not find it.
    pub fn of_scope(class: &str, scope: Rc<str>) -> Self {
        let class = scoped(class, Some(&scope));
        let instance = format!("{class}-{}", std::process::id());
        Self::create(class, instance, Some(scope), false)
    }

    /// A node of who has given its place up to another process, and goes on with what it has begun. Its services are
    /// found under this class, [`scoped`] as in [`of_scope`](Self::of_scope), and not under those that they have
    /// otherwise: these are the other one's.
    pub fn retired(class: &str, scope: Option<Rc<str>>) -> Self {
        let class = scoped(class, scope.as_deref());
        let instance = format!("{class}-{}", std::process::id());
        Self::create(class, instance, scope, true)
    }

    fn create(class: String, instance: String, scope: Option<Rc<str>>, is_retired: bool) -> Self {
        let inner = Rc::new_cyclic(|inner: &Weak<Inner>| Inner {
            class,
            instance,
            scope,
            is_retired,
            sole: Cell::default(),
            longest_turn: Cell::new(|| Duration::ZERO),
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

    /// No other instance of the class may register beside this one. Call it before [`join`](Self::join).
    pub fn be_sole(&self) {
        self.0.sole.set(true);
    }

    /// Says how long the event loop was busy with one thing at most, in processor time.
    pub fn counts_turns(&self, longest: fn() -> Duration) {
        self.0.longest_turn.set(longest);
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
        let peer = Rc::new(peer);
        self.0.open(link, Rc::clone(&peer), |_| Trust::Role(peer))
    }

    /// Takes one end of a connected Unix stream socket whose other end is going to present the grant's key.
    ///
    /// # Errors
    /// `Unavailable` when there are too many channels; `Internal` when the descriptor cannot be polled.
    pub fn admit(&self, fd: OwnedFd, grant: Grant) -> Result<Channel, XrlError> {
        let link = Link::unix(fd).map_err(|error| XrlError::internal(error.to_string()))?;
        self.0.admit(link, grant)
    }

    /// Makes a key invalid, and closes the connections that have no other: what was begun there ends too.
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
        let channels: Vec<Channel> =
            self.0.channels.borrow().values().map(|open| open.channel.clone()).collect();
        channels.iter().for_each(Channel::close);
    }

    /// Closes all channels and lets go of what is served, which may hold this node itself: a node that goes before its
    /// process does.
    pub fn end(&self) {
        self.close();
        let services = self.0.services.take();
        drop(services);
    }

    /// Closes all channels but this one, and lets go of what is served: who is left is whoever looks after the process.
    pub fn leave(&self, but: &Channel) {
        let channels = self.0.channels.borrow();
        let others = channels.values().filter(|open| open.channel.id() != but.id());
        let others: Vec<Channel> = others.map(|open| open.channel.clone()).collect();
        drop(channels);
        others.iter().for_each(Channel::close);
        let left = self.0.services.borrow_mut().extract_if(.., |id, _| *id != COMPONENT).collect::<Vec<_>>();
        drop(left);
    }

    /// How many channels are open.
    pub fn channels(&self) -> usize {
        self.0.channels.borrow().len()
    }

    /// What is known of each channel.
    pub(crate) fn describe_channels(&self) -> Vec<component::Channel> {
        self.0.describe_channels()
    }

    /// The same node, for somebody whom it holds.
    pub(crate) fn downgrade(&self) -> WeakNode {
        WeakNode(Rc::downgrade(&self.0))
    }

    /// What the Finder is told of this node's services.
    pub(crate) fn registration(&self) -> finder::RegisterRequest {
        finder::RegisterRequest {
            class: self.0.class.clone(),
            instance: self.0.instance.clone(),
            services: self.0.offered().map(|service| self.describe(service.info())).collect(),
            sole: self.0.sole.get(),
        }
    }

    /// A service of this node as the Finder knows it.
    fn describe(&self, info: &ServiceInfo) -> finder::Service {
        let service = describe_service(info);
        let class = match service.class.as_str() {
            "" => String::new(),
            _ if self.0.is_retired => String::new(),
            class => scoped(class, self.0.scope.as_deref()),
        };
        finder::Service { class, ..service }
    }
}

impl Inner {
    fn open(
        self: &Rc<Self>,
        link: Link,
        peer: Rc<PeerIdentity>,
        trust: impl FnOnce(u64) -> Trust,
    ) -> Channel {
        let id = self.next_channel.get();
        self.next_channel.set(id + 1);
        let (node, family, trust) = (Rc::downgrade(self), link.family(), trust(id));
        let connection = Rc::new(Connection { node, id, family, peer: Rc::clone(&peer), trust });
        let channel = Channel::serving(link, Rc::clone(&connection) as Rc<dyn Acceptor>);
        self.channels.borrow_mut().insert(id, Open { channel: channel.clone(), peer, connection });
        channel
    }

    /// Takes a connection for which this is granted. Over TCP its peer has shown that it is meant; over others it is
    /// going to present the key.
    fn admit(self: &Rc<Self>, link: Link, grant: Grant) -> Result<Channel, XrlError> {
        if self.channels.borrow().len() >= MAX_CHANNELS {
            return Err(XrlError::unavailable(format!("{} has too many connections", self.instance)));
        }
        let proven = link.family() == Family::Tcp;
        let Grant { role, instance, classes, .. } = grant.clone();
        let peer = Rc::new(PeerIdentity { role, instance, classes, ..PeerIdentity::default() });
        if Reader::with_role(&peer.role).is_some() {
            self.have_room_for_reader();
        }
        Ok(self.open(link, Rc::clone(&peer), |channel| {
            let granted = Rc::new(Granted { grant, peer, channel, revoked: Cell::new(false) });
            self.granted.borrow_mut().push(Rc::clone(&granted));
            Trust::Keys(RefCell::new(proven.then_some(granted).into_iter().collect()))
        }))
    }

    /// Callers from outside leave room for processes of the router.
    fn have_room_for_reader(&self) {
        let channels = self.channels.borrow();
        let readers = channels.values().filter_map(|open| Some((open.channel.idle_since()?, &open.channel)));
        let readers: Vec<_> = readers.collect();
        let idlest =
            readers.iter().min_by_key(|(since, _)| *since).filter(|_| readers.len() >= MOST_OF_READERS);
        let idlest = idlest.map(|&(_, channel)| channel.clone());
        drop(channels);
        if let Some(idlest) = idlest {
            idlest.close();
        }
    }

    /// What is known of all channels.
    fn describe_channels(&self) -> Vec<component::Channel> {
        self.channels.borrow().values().map(|open| open.channel.describe(&open.peer)).collect()
    }

    fn revoke(&self, key: &[u8]) {
        let is_it = |granted: &mut Rc<Granted>| granted.grant.key.matches(key);
        let revoked: Vec<_> = self.granted.borrow_mut().extract_if(.., is_it).collect();
        for granted in revoked {
            granted.revoked.set(true);
            // Collected first: a channel that closes takes itself out.
            let channels = self.channels.borrow();
            let ending = channels.values().filter(|open| open.connection.ends_with(&granted));
            let ending: Vec<Channel> = ending.map(|open| open.channel.clone()).collect();
            drop(channels);
            ending.iter().for_each(Channel::close);
        }
    }

    /// Services that callers may find: all but the Finder's own interface to components.
    fn offered(&self) -> impl Iterator<Item = Rc<dyn Service>> {
        let services: Vec<_> = self.services.borrow().values().cloned().collect();
        services.into_iter().filter(|service| service.info().id != COMPONENT)
    }
}

/// The class of those of a class that are of a scope: "rib@blue" of the scope "blue". Without one the class itself.
pub fn scoped(class: &str, scope: Option<&str>) -> String {
    match scope {
        Some(scope) => format!("{class}@{scope}"),
        None => class.to_owned(),
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
        families: method.families.iter().map(|family| (*family).to_owned()).collect(),
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
    /// By the keys that it has presented.
    Keys(RefCell<Vec<Rc<Granted>>>),
}

/// A channel as the node sees it.
struct Connection {
    node: Weak<Inner>,
    id: u64,
    family: Family,
    /// For whom it was made.
    peer: Rc<PeerIdentity>,
    trust: Trust,
}

impl Connection {
    fn node(&self) -> Result<Rc<Inner>, XrlError> {
        self.node.upgrade().ok_or_else(|| XrlError::unavailable("this process is ending"))
    }

    /// As whom the peer calls a method.
    fn caller(&self, method: u32, name: impl Fn() -> String) -> Result<Rc<PeerIdentity>, XrlError> {
        let presented = match &self.trust {
            Trust::Role(peer) => return Ok(Rc::clone(peer)),
            Trust::Keys(presented) => presented.borrow(),
        };
        let mut valid = presented.iter().filter(|granted| !granted.revoked.get());
        if let Some(granted) = valid.clone().find(|granted| granted.grant.methods.contains(&method)) {
            return Ok(Rc::clone(&granted.peer));
        }
        let name = name();
        Err(XrlError::denied(match valid.next() {
            Some(granted) => {
                format!("the key given to role \"{}\" does not cover {name}", granted.grant.role)
            }
            None => format!("{name}: no key was presented"),
        }))
    }

    /// Whether it was opened, or is used, by this grant, which has been revoked, and has no other.
    fn ends_with(&self, revoked: &Rc<Granted>) -> bool {
        let Trust::Keys(presented) = &self.trust else { return false };
        let presented = presented.borrow();
        let is_its =
            self.id == revoked.channel || presented.iter().any(|granted| Rc::ptr_eq(granted, revoked));
        is_its && presented.iter().all(|granted| granted.revoked.get())
    }
}

impl Acceptor for Connection {
    fn peer(&self) -> String {
        format!("{} {}", self.peer.role, self.peer.instance)
    }

    fn reader(&self) -> Option<Reader> {
        Reader::with_role(&self.peer.role)
    }

    fn hello(&self, key: &[u8]) -> Result<(), XrlError> {
        let node = self.node()?;
        let granted = node.granted.borrow().iter().find(|granted| granted.grant.key.matches(key)).cloned();
        let granted = granted.ok_or_else(|| XrlError::denied("unknown key"))?;
        let Trust::Keys(presented) = &self.trust else {
            return Err(XrlError::denied("no key opens anything here"));
        };
        let mut presented = presented.borrow_mut();
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
        let name = || format!("{}/{}", service.info().interface(), info.name);
        let peer = self.caller(method, name)?;
        if !info.travels(self.family) {
            let (family, families) = (self.family.name(), info.families.join(", "));
            let name = name();
            return Err(XrlError::denied(format!("{name} may not be called over {family} ({families} may)")));
        }
        // Once more here, although the Finder gives no key for it: this process need not trust the Finder's table.
        if !info.allows(&peer.role) {
            let allowed = info.roles.join(", ");
            return Err(XrlError::denied(format!(
                "role \"{}\" may not call {} ({allowed} may)",
                peer.role,
                name()
            )));
        }
        Ok((service, peer))
    }

    fn closed(&self) {
        if let Some(node) = self.node.upgrade() {
            node.granted.borrow_mut().retain(|granted| granted.channel != self.id);
            let open = node.channels.borrow_mut().remove(&self.id);
            drop(open);
        }
    }
}

/// Number of the service `component.v1.Component`.
const COMPONENT: u16 = 2;

fn component_service(node: Weak<Inner>) -> BTreeMap<u16, Rc<dyn Service>> {
    let service: Rc<dyn Service> = Rc::new(component::ComponentDispatcher::new(ForFinder(node)));
    BTreeMap::from([(COMPONENT, service)])
}

/// What the Finder may ask of a node, and the keeper.
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
        let link = if request.tcp { Link::tcp(fd) } else { Link::unix(fd) };
        let link = link.map_err(|error| XrlError::internal(error.to_string()))?;
        self.node()?.admit(link, Grant::from_proto(grant)?)?;
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

    async fn channels(
        &self,
        _: &CallContext,
        _: component::ChannelsRequest,
    ) -> Result<component::ChannelsReply, XrlError> {
        Ok(component::ChannelsReply { channels: self.node()?.describe_channels() })
    }

    async fn progress(
        &self,
        _: &CallContext,
        _: component::ProgressRequest,
    ) -> Result<component::ProgressReply, XrlError> {
        let longest = (self.node()?.longest_turn.get())();
        let longest_turn_microseconds = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
        Ok(component::ProgressReply { longest_turn_microseconds })
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
