//! The Finder: knows who lives, introduces callers to them, tells of births and deaths.
//!
//! A library: the manager hosts it and attaches everybody's channel, saying who they are. What is registered goes
//! when that channel closes. Deciding is in `table.rs`, without any channel; carrying out is here.

mod keys;
mod living;
mod table;
mod tcp;
mod waiting;

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use tokio::sync::broadcast;
use tokio::task::spawn_local;

use crate::component::v1 as component;
use crate::component::v1::ComponentClient;
use crate::finder_api::v1 as proto;
use crate::finder_api::v1::watch_event::Kind;
use crate::node::WeakNode;
use crate::{
    CallContext, Channel, Client, Family, Grant, Key, Link, Node, PeerIdentity, ReplySink, XrlError,
};
use keys::Keys;
use table::{News, Owner, Table};
use tcp::Door;
pub use tcp::{MOST_OF_CLIENT, MOST_UNPROVEN};
use waiting::Waiting;

/// Events that a slow watcher may be behind before it has to begin anew.
const EVENTS: usize = 1024;
/// How long a component may take to accept a connection.
const ACCEPT_TIME: Duration = Duration::from_secs(10);

/// The Finder. Clones are the same Finder.
#[derive(Clone)]
pub struct Finder {
    node: Node,
    broker: Rc<Broker>,
}

impl Default for Finder {
    fn default() -> Self {
        Self::new()
    }
}

impl Finder {
    /// A Finder that nobody is attached to yet.
    pub fn new() -> Self {
        let node = Node::new("finder");
        let broker = Rc::new(Broker {
            node: node.downgrade(),
            table: RefCell::default(),
            channels: RefCell::default(),
            keys: RefCell::default(),
            waiting: Waiting::default(),
            events: broadcast::Sender::new(EVENTS),
            door: Door::default(),
        });
        node.serve(proto::FinderDispatcher(Rc::clone(&broker)));
        Self { node, broker }
    }

    /// How many events the slowest watcher is behind, and how many it may be.
    pub fn events(&self) -> (usize, usize) {
        (self.broker.events.len(), EVENTS)
    }

    /// Takes one end of a socket whose other end this peer has: a component, which may register and be called back,
    /// or an operator.
    ///
    /// # Errors
    /// When the descriptor cannot be polled.
    pub fn attach(&self, fd: OwnedFd, peer: PeerIdentity) -> io::Result<Channel> {
        Ok(self.attach_link(Link::unix(fd)?, peer))
    }

    /// As [`attach`](Self::attach), on any link: a component of the process that hosts the Finder takes
    /// [`Link::pair`].
    pub fn attach_link(&self, link: Link, peer: PeerIdentity) -> Channel {
        let channel = self.node.attach_link(link, peer);
        self.broker.channels.borrow_mut().insert(channel.id(), channel.clone());
        let (broker, watched) = (Rc::clone(&self.broker), channel.clone());
        spawn_local(async move {
            watched.closed().await;
            broker.depart(watched.id());
        });
        channel
    }

    /// Ends: closes all channels. Components live on and wait for the next Finder.
    pub fn close(&self) {
        self.node.close();
    }

    /// Who answers to a class or a name.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn instance(&self, target: &str) -> Result<proto::Instance, XrlError> {
        Ok(self.broker.table.borrow().find(target)?.1)
    }

    /// How many connections there are to the Finder itself.
    pub fn channels(&self) -> usize {
        self.node.channels()
    }

    /// Everybody who has registered.
    pub fn instances(&self) -> Vec<proto::Instance> {
        self.broker.table.borrow().instances()
    }
}

struct Broker {
    node: WeakNode,
    table: RefCell<Table>,
    channels: RefCell<HashMap<Owner, Channel>>,
    keys: RefCell<Keys>,
    /// Who waits for somebody to come to life.
    waiting: Waiting,
    events: broadcast::Sender<(Kind, Rc<News>)>,
    door: Door,
}

impl Broker {
    fn announce(&self, kind: Kind, news: News) {
        tracing::debug!(instance = news.instance.name, ?kind, "component");
        if kind == Kind::Birth {
            self.waiting.born(&news.instance);
        }
        // An error means that nobody watches.
        let _ = self.events.send((kind, Rc::new(news)));
    }

    /// A channel has closed: whoever was there is dead.
    fn depart(&self, owner: Owner) {
        self.channels.borrow_mut().remove(&owner);
        self.door.forget(owner);
        let dead = self.table.borrow_mut().remove(owner);
        if let Some(news) = dead {
            self.announce(Kind::Death, news);
        }
        let keys = self.keys.borrow_mut().take_of(owner);
        for (key, target) in keys {
            if let Some(target) = self.component(target) {
                target.revoke(component::RevokeRequest { key: key.as_bytes().to_vec() }).detach();
            }
        }
    }

    fn component(&self, owner: Owner) -> Option<ComponentClient> {
        self.channels.borrow().get(&owner).cloned().map(ComponentClient::new)
    }

    /// Runs a query on the table for a class or name; again after each birth of one that answers to it if the caller wants
    /// to wait.
    async fn find<T>(
        &self,
        wait: bool,
        target: &str,
        query: impl Fn(&Table) -> Result<T, XrlError>,
    ) -> Result<T, XrlError> {
        loop {
            let found = query(&self.table.borrow());
            match found {
                Err(error) if wait && error.kind() == crate::ErrorKind::NotFound => {}
                found => return found,
            }
            self.waiting.for_birth(target).await;
        }
    }

    /// Gives the target one end of a new connection and the grant for it; returns the other end.
    async fn introduce(&self, target: Owner, grant: &Grant) -> Result<OwnedFd, XrlError> {
        let (near, far) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .map_err(|error| XrlError::unavailable(format!("no socket pair: {error}")))?;
        self.accept(target, grant, false, far).await?;
        Ok(near)
    }

    /// Gives the target one end of a connection and the grant for it.
    async fn accept(&self, target: Owner, grant: &Grant, tcp: bool, end: OwnedFd) -> Result<(), XrlError> {
        let client = self.component(target).ok_or_else(|| XrlError::not_found("the target has just died"))?;
        let request = component::AcceptRequest { grant: Some(grant.to_proto()), tcp };
        client.accept(request, vec![end]).within(ACCEPT_TIME).await?;
        Ok(())
    }

    /// Counts a key among those of a caller, until what is returned is dropped without having been kept.
    fn remember_key(&self, grant: &Grant, caller: Owner, target: Owner) -> Result<Reserved<'_>, XrlError> {
        self.keys.borrow_mut().add(grant, caller, target)?;
        Ok(Reserved { broker: self, key: Some(grant.key.clone()), caller })
    }

    /// Connects a caller and a target: by a descriptor if one can travel, by a ticket otherwise.
    async fn connect(
        &self,
        cx: &CallContext,
        target: Owner,
        grant: &Grant,
    ) -> Result<Vec<OwnedFd>, XrlError> {
        let caller = cx.channel().id();
        if cx.channel().family() == Family::Tcp {
            self.door.give_ticket(&cx.peer().instance, caller, target, grant.clone())?;
            return Ok(Vec::new());
        }
        let reserved = self.remember_key(grant, caller, target)?;
        // Without it, or without whoever wanted it, the descriptor closes, and with it the key ends at the target.
        let fd = self.introduce(target, grant).await?;
        reserved.keep();
        Ok(vec![fd])
    }
}

/// The place of a key that its target has not been told yet. The caller may go while it is.
struct Reserved<'a> {
    broker: &'a Broker,
    key: Option<Key>,
    caller: Owner,
}

impl Reserved<'_> {
    fn keep(mut self) {
        self.key = None;
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if let Some(key) = &self.key {
            self.broker.keys.borrow_mut().forget(self.caller, key);
        }
    }
}

/// What watchers are told. What the instance serves is for those who ask.
fn event(kind: Kind, News { instance, classes }: &News) -> proto::WatchEvent {
    let instance = proto::Instance {
        name: instance.name.clone(),
        class: instance.class.clone(),
        pid: instance.pid,
        sole: instance.sole,
        services: Vec::new(),
    };
    proto::WatchEvent { kind: kind.into(), instance: Some(instance), classes: classes.clone() }
}

impl proto::FinderServer for Broker {
    async fn register(
        &self,
        cx: &CallContext,
        request: proto::RegisterRequest,
    ) -> Result<proto::RegisterReply, XrlError> {
        let proto::RegisterRequest { class, instance: name, services, sole } = request;
        let instance = proto::Instance { name, class, pid: cx.peer().pid, services, sole };
        let registered = self.table.borrow_mut().register(cx.channel().id(), instance, cx.peer())?;
        if let Some(gone) = registered.gone {
            self.announce(Kind::Death, gone);
        }
        self.announce(Kind::Birth, registered.born);
        Ok(proto::RegisterReply {})
    }

    async fn resolve(
        &self,
        cx: &CallContext,
        request: proto::ResolveRequest,
    ) -> Result<(proto::ResolveReply, Vec<OwnedFd>), XrlError> {
        let role = &cx.peer().role;
        let found = self.find(request.wait, &request.target, |table| {
            table.resolve(&request.target, &request.service, &request.methods, role)
        });
        let found = found.await?;
        let instance = self.table.borrow().name_of(cx.channel().id());
        let instance = instance.unwrap_or_else(|| cx.peer().instance.clone());
        let (role, classes) = (role.clone(), cx.peer().classes.clone());
        let grant = Grant { key: Key::random()?, role, instance, methods: found.methods, classes };
        let fds = self.connect(cx, found.owner, &grant).await?;
        let key = grant.key.as_bytes().to_vec();
        Ok((proto::ResolveReply { key, instance: found.instance, methods: grant.methods }, fds))
    }

    async fn watch(
        &self,
        _: &CallContext,
        request: proto::WatchRequest,
        mut replies: ReplySink<proto::WatchEvent>,
    ) -> Result<(), XrlError> {
        let mut events = self.events.subscribe();
        let living = self.table.borrow().births(&request.class);
        for birth in living {
            replies.send(event(Kind::Birth, &birth)).await?;
        }
        loop {
            let (kind, news) =
                events.recv().await.map_err(|_| XrlError::unavailable("too slow: events were lost"))?;
            if table::answers_to(&news.instance, &request.class) {
                replies.send(event(kind, &news)).await?;
            }
        }
    }

    async fn list(&self, _: &CallContext, _: proto::ListRequest) -> Result<proto::ListReply, XrlError> {
        Ok(proto::ListReply { instances: self.table.borrow().instances() })
    }

    async fn channels(
        &self,
        _: &CallContext,
        request: proto::ChannelsRequest,
    ) -> Result<proto::ChannelsReply, XrlError> {
        let own = self.node.upgrade().filter(|node| node.class() == request.target);
        if let Some(node) = own {
            return Ok(proto::ChannelsReply { channels: node.describe_channels() });
        }
        let (owner, _) = self.table.borrow().find(&request.target)?;
        let client = self.component(owner).ok_or_else(|| XrlError::not_found("the target has just died"))?;
        let reply = client.channels(component::ChannelsRequest {}).within(ACCEPT_TIME).await?;
        Ok(proto::ChannelsReply { channels: reply.channels })
    }

    async fn families(
        &self,
        _: &CallContext,
        _: proto::FamiliesRequest,
    ) -> Result<proto::FamiliesReply, XrlError> {
        let family = |family: Family, address| proto::Family { name: family.name().to_owned(), address };
        let unix = family(Family::Unix, String::new());
        let tcp = self.door.listening().into_iter().map(|address| family(Family::Tcp, address.to_string()));
        Ok(proto::FamiliesReply { families: std::iter::once(unix).chain(tcp).collect() })
    }

    async fn describe(
        &self,
        _: &CallContext,
        request: proto::DescribeRequest,
    ) -> Result<proto::DescribeReply, XrlError> {
        let (owner, instance) = self.table.borrow().find(&request.target)?;
        let client = self.component(owner).ok_or_else(|| XrlError::not_found("the target has just died"))?;
        let reply = client.introspect(component::IntrospectRequest {}).within(ACCEPT_TIME).await?;
        Ok(proto::DescribeReply { instance: Some(instance), descriptor_sets: reply.descriptor_sets })
    }
}
