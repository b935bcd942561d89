//! The Finder: knows who lives, introduces callers to them, tells of births and deaths.
//!
//! A library: the manager hosts it and attaches everybody's channel, saying who they are. What is registered goes
//! when that channel closes. Deciding is in `table.rs`, without any channel; carrying out is here.

mod table;

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use hashbrown::HashMap;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use tokio::sync::broadcast;
use tokio::task::spawn_local;

use crate::component::v1 as component;
use crate::component::v1::ComponentClient;
use crate::finder_api::v1 as proto;
use crate::finder_api::v1::watch_event::Kind;
use crate::{CallContext, Channel, Client, Grant, Key, Link, Node, PeerIdentity, ReplySink, XrlError};
use table::{Owner, Table};

/// Events that a slow watcher may be behind before it has to begin anew.
const EVENTS: usize = 1024;
/// Most valid keys of one caller.
const MAX_KEYS: usize = 1024;
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
        let broker = Rc::new(Broker {
            table: RefCell::default(),
            channels: RefCell::default(),
            keys: RefCell::default(),
            events: broadcast::Sender::new(EVENTS),
        });
        let node = Node::new("finder");
        node.serve(proto::FinderDispatcher(Rc::clone(&broker)));
        Self { node, broker }
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

    /// Everybody who has registered.
    pub fn instances(&self) -> Vec<proto::Instance> {
        self.broker.table.borrow().instances()
    }
}

/// A key that is valid.
struct Minted {
    key: Key,
    caller: Owner,
    target: Owner,
}

struct Broker {
    table: RefCell<Table>,
    channels: RefCell<HashMap<Owner, Channel>>,
    keys: RefCell<Vec<Minted>>,
    events: broadcast::Sender<proto::WatchEvent>,
}

impl Broker {
    fn announce(&self, kind: Kind, instance: &proto::Instance) {
        tracing::debug!(instance = instance.name, ?kind, "component");
        let event = event(kind, instance);
        // An error means that nobody watches.
        let _ = self.events.send(event);
    }

    /// A channel has closed: whoever was there is dead.
    fn depart(&self, owner: Owner) {
        self.channels.borrow_mut().remove(&owner);
        let dead = self.table.borrow_mut().remove(owner);
        if let Some(instance) = dead {
            self.announce(Kind::Death, &instance);
        }
        for minted in self.take_keys_of(owner) {
            if let Some(target) = self.component(minted.target) {
                target.revoke(component::RevokeRequest { key: minted.key.as_bytes().to_vec() }).detach();
            }
        }
    }

    /// Forgets the keys to and of somebody; returns those of them as a caller.
    fn take_keys_of(&self, owner: Owner) -> Vec<Minted> {
        let mut keys = self.keys.borrow_mut();
        keys.retain(|minted| minted.target != owner);
        let (theirs, others) = keys.drain(..).partition(|minted| minted.caller == owner);
        *keys = others;
        theirs
    }

    fn component(&self, owner: Owner) -> Option<ComponentClient> {
        self.channels.borrow().get(&owner).cloned().map(ComponentClient::new)
    }

    /// Runs a query on the table, again after each birth if the caller wants to wait for one.
    async fn find<T>(
        &self,
        wait: bool,
        query: impl Fn(&Table) -> Result<T, XrlError>,
    ) -> Result<T, XrlError> {
        let mut events = self.events.subscribe();
        loop {
            let found = query(&self.table.borrow());
            match found {
                Err(error) if wait && error.kind() == crate::ErrorKind::NotFound => {}
                found => return found,
            }
            // Having missed events is as good as an event. The sender lives as long as `self`.
            let _ = events.recv().await;
        }
    }

    /// Gives the target one end of a new connection and the grant for it; returns the other end.
    async fn introduce(&self, target: Owner, grant: &Grant) -> Result<OwnedFd, XrlError> {
        let client = self.component(target).ok_or_else(|| XrlError::not_found("the target has just died"))?;
        let (near, far) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .map_err(|error| XrlError::unavailable(format!("no socket pair: {error}")))?;
        let request = component::AcceptRequest { grant: Some(grant.to_proto()) };
        client.accept(request, vec![far]).within(ACCEPT_TIME).await?;
        Ok(near)
    }

    fn remember_key(&self, minted: Minted) -> Result<(), XrlError> {
        let mut keys = self.keys.borrow_mut();
        if keys.iter().filter(|known| known.caller == minted.caller).count() >= MAX_KEYS {
            return Err(XrlError::unavailable(format!("the caller has {MAX_KEYS} connections already")));
        }
        keys.push(minted);
        Ok(())
    }
}

fn event(kind: Kind, instance: &proto::Instance) -> proto::WatchEvent {
    let instance = proto::Instance { services: Vec::new(), ..instance.clone() };
    proto::WatchEvent { kind: kind.into(), instance: Some(instance) }
}

impl proto::FinderServer for Broker {
    async fn register(
        &self,
        cx: &CallContext,
        request: proto::RegisterRequest,
    ) -> Result<proto::RegisterReply, XrlError> {
        let proto::RegisterRequest { class, instance: name, services } = request;
        let instance = proto::Instance { name, class, pid: cx.peer().pid, services };
        let replaced = self.table.borrow_mut().register(cx.channel().id(), instance.clone(), cx.peer())?;
        if let Some(before) = replaced.filter(|before| before.name != instance.name) {
            self.announce(Kind::Death, &before);
        }
        self.announce(Kind::Birth, &instance);
        Ok(proto::RegisterReply {})
    }

    async fn resolve(
        &self,
        cx: &CallContext,
        request: proto::ResolveRequest,
    ) -> Result<(proto::ResolveReply, Vec<OwnedFd>), XrlError> {
        let role = &cx.peer().role;
        let found = self.find(request.wait, |table| {
            table.resolve(&request.target, &request.service, &request.methods, role)
        });
        let found = found.await?;
        let caller = cx.channel().id();
        let instance = self.table.borrow().name_of(caller).unwrap_or_default();
        let grant = Grant { key: Key::random()?, role: role.clone(), instance, methods: found.methods };
        let fd = self.introduce(found.owner, &grant).await?;
        // If this fails the descriptor closes, and with it the key ends at the target.
        self.remember_key(Minted { key: grant.key.clone(), caller, target: found.owner })?;
        let key = grant.key.as_bytes().to_vec();
        Ok((proto::ResolveReply { key, instance: found.instance, methods: grant.methods }, vec![fd]))
    }

    async fn watch(
        &self,
        _: &CallContext,
        request: proto::WatchRequest,
        mut replies: ReplySink<proto::WatchEvent>,
    ) -> Result<(), XrlError> {
        let mut events = self.events.subscribe();
        let living = self.table.borrow().of_class(&request.class);
        for instance in living {
            replies.send(event(Kind::Birth, &instance)).await?;
        }
        loop {
            let event =
                events.recv().await.map_err(|_| XrlError::unavailable("too slow: events were lost"))?;
            if event.instance.as_ref().is_some_and(|instance| table::is_of_class(instance, &request.class)) {
                replies.send(event).await?;
            }
        }
    }

    async fn list(&self, _: &CallContext, _: proto::ListRequest) -> Result<proto::ListReply, XrlError> {
        Ok(proto::ListReply { instances: self.table.borrow().instances() })
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
