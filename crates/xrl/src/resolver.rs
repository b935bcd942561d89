//! A process's way to the Finder, and from there to everybody else.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::{Mutex, Notify};
use tracing::debug;

use crate::finder_api::v1 as finder;
use crate::finder_api::v1::FinderClient;
use crate::finder_api::v1::watch_event::Kind;
use crate::{
    Channel, Client, Dialer, ErrorKind, Key, Link, Node, PeerIdentity, ReplyStream, ServiceInfo, XrlError,
};

/// Pause before a Finder that lives, and has refused, is asked again.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// The longest one, after a series of refusals.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Finds components and keeps the channels to them. Clones are the same resolver.
///
/// A channel is opened at first use and kept for each target and service. When it closes (the target died), the next
/// use resolves again. Channels stay open when the Finder dies.
#[derive(Clone)]
pub struct Resolver(Rc<Inner>);

struct Inner {
    /// What registers whenever a Finder is there; `None` for an operator.
    node: Option<Node>,
    finder: RefCell<Option<Channel>>,
    /// How to connect where descriptors do not travel.
    dialer: Option<Dialer>,
    /// A Finder is there.
    attached: Notify,
    cache: RefCell<HashMap<Slot, Channel>>,
    /// Channels that are being opened, by whether the opener waits for the target: who wants the same comes after.
    opening: RefCell<HashMap<(Slot, bool), Turn>>,
}

/// A target and a service of it.
type Slot = (String, u16);
/// Held by who opens a channel.
type Turn = Rc<Mutex<()>>;

impl Resolver {
    /// For somebody who calls and is never called: an operator's tool. `fd` is one end of a socket whose other end
    /// the Finder has.
    ///
    /// # Errors
    /// When the descriptor cannot be polled.
    pub fn connect(fd: OwnedFd) -> std::io::Result<Self> {
        Ok(Self::over(Channel::connect(fd)?))
    }

    /// As [`connect`](Self::connect), over a channel.
    pub fn over(channel: Channel) -> Self {
        Self::new(None, Some(channel), None)
    }

    /// As [`connect`](Self::connect), over TCP.
    ///
    /// # Errors
    /// `Unavailable` when nobody is there; `Denied` when name and key are not known there, or the other side does not
    /// know the key; `Timeout`.
    pub async fn dial(dialer: Dialer) -> Result<Self, XrlError> {
        let channel = dialer.channel(&[]).await?;
        Ok(Self::new(None, Some(channel), Some(dialer)))
    }

    pub(crate) fn of_node(node: Node) -> Self {
        Self::new(Some(node), None, None)
    }

    fn new(node: Option<Node>, finder: Option<Channel>, dialer: Option<Dialer>) -> Self {
        let (attached, cache, opening) = (Notify::new(), RefCell::default(), RefCell::default());
        Self(Rc::new(Inner { node, finder: RefCell::new(finder), dialer, attached, cache, opening }))
    }

    /// Goes to a new Finder, after the old one died, and registers there.
    ///
    /// # Errors
    /// Of the registration; `Internal` when the descriptor cannot be polled.
    pub async fn rejoin(&self, fd: OwnedFd) -> Result<(), XrlError> {
        let link = Link::unix(fd).map_err(|error| XrlError::internal(error.to_string()))?;
        self.rejoin_link(link).await
    }

    /// As [`rejoin`](Self::rejoin), on any link.
    ///
    /// # Errors
    /// Of the registration.
    pub async fn rejoin_link(&self, link: Link) -> Result<(), XrlError> {
        let channel = match &self.0.node {
            Some(node) => {
                let channel = node.attach_link(link, PeerIdentity::new("finder"));
                let registered = FinderClient::new(channel.clone()).register(node.registration()).await;
                registered.inspect_err(|_| channel.close())?;
                channel
            }
            None => Channel::over(link),
        };
        let before = self.0.finder.replace(Some(channel));
        self.0.attached.notify_waiters();
        if let Some(before) = before {
            before.close();
        }
        Ok(())
    }

    /// The Finder itself.
    ///
    /// # Errors
    /// `Unavailable` while there is none.
    pub fn finder(&self) -> Result<FinderClient, XrlError> {
        match &*self.0.finder.borrow() {
            Some(channel) if !channel.is_closed() => Ok(FinderClient::new(channel.clone())),
            _ => Err(XrlError::unavailable("the Finder (manager) is not running")),
        }
    }

    /// Waits until the Finder has gone.
    pub async fn finder_gone(&self) {
        let channel = self.0.finder.borrow().clone();
        if let Some(channel) = channel {
            channel.closed().await;
        }
    }

    /// A client for a service of a class or instance ("rib", "rib-4711").
    ///
    /// # Errors
    /// `NotFound` when it does not run, `Denied` when this role may call nothing of it, `Unavailable` when there is
    /// no Finder.
    pub async fn client<C: Client>(&self, target: &str) -> Result<C, XrlError> {
        self.channel(target, C::SERVICE, false).await.map(C::new)
    }

    /// As [`client`](Self::client), but waits for the Finder to be there and the target to run.
    ///
    /// # Errors
    /// `Denied` when this role may call nothing of it.
    pub async fn wait_for<C: Client>(&self, target: &str) -> Result<C, XrlError> {
        self.channel(target, C::SERVICE, true).await.map(C::new)
    }

    /// Returns when there is a Finder. For an operator there is no other to wait for.
    async fn wait_for_finder(&self) -> Result<(), XrlError> {
        while let Err(error) = self.finder() {
            if self.0.node.is_none() {
                return Err(error);
            }
            self.0.attached.notified().await;
        }
        // So that a caller who tries again and again lets others run.
        tokio::task::yield_now().await;
        Ok(())
    }

    /// The channel to a service of a class or instance, for a caller that does not know the service's types; `wait`: until
    /// the Finder is there and the target runs.
    ///
    /// # Errors
    /// As [`client`](Self::client), or as [`wait_for`](Self::wait_for).
    pub async fn channel(
        &self,
        target: &str,
        service: &ServiceInfo,
        wait: bool,
    ) -> Result<Channel, XrlError> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.find(target, service, wait).await {
                Err(error) if wait && is_finder_loss(&error) => {
                    if self.finder().is_ok() {
                        // It lives, and cannot: it has no room for us, or the target was dying.
                        debug!(target, "no channel, tried again: {error}");
                        tokio::time::sleep(pause).await;
                        pause = (2 * pause).min(LONGEST_PAUSE);
                    }
                    self.wait_for_finder().await?;
                }
                found => return found,
            }
        }
    }

    async fn find(&self, target: &str, service: &ServiceInfo, wait: bool) -> Result<Channel, XrlError> {
        let slot = (target.to_owned(), service.id);
        if let Some(channel) = self.cached(&slot) {
            return Ok(channel);
        }
        // Thousands may ask at once: one opens the channel, the others find it here after that.
        let turn = Rc::clone(self.0.opening.borrow_mut().entry((slot.clone(), wait)).or_default());
        let _turn = turn.lock().await;
        if let Some(channel) = self.cached(&slot) {
            return Ok(channel);
        }
        let channel = self.open(target, service.name, &[], wait).await?;
        let mut cache = self.0.cache.borrow_mut();
        cache.retain(|_, channel| !channel.is_closed());
        cache.insert(slot, channel.clone());
        Ok(channel)
    }

    fn cached(&self, slot: &Slot) -> Option<Channel> {
        self.0.cache.borrow().get(slot).filter(|channel| !channel.is_closed()).cloned()
    }

    /// A new channel to a target, with a key for these methods of one service (none: all that this role may call).
    ///
    /// # Errors
    /// As [`client`](Self::client).
    pub async fn open(
        &self,
        target: &str,
        service: &str,
        methods: &[u32],
        wait: bool,
    ) -> Result<Channel, XrlError> {
        let request = finder::ResolveRequest {
            target: target.to_owned(),
            service: service.to_owned(),
            methods: methods.to_vec(),
            wait,
        };
        let (reply, fds) = self.finder()?.resolve(request).await?;
        if let (Some(dialer), true) = (&self.0.dialer, fds.is_empty()) {
            return dialer.channel(&reply.key).await;
        }
        let fd = fds.into_iter().next().ok_or_else(|| XrlError::internal("the Finder sent no descriptor"))?;
        let channel = Channel::connect(fd).map_err(|error| XrlError::internal(error.to_string()))?;
        channel.present(&Key::from_bytes(&reply.key)?);
        Ok(channel)
    }

    /// Births and deaths of a class ("*": of all), beginning with those who live.
    pub fn watch(&self, class: &str) -> Watch {
        let class = class.to_owned();
        Watch { resolver: self.clone(), class, stream: None, known: HashSet::new() }
    }
}

/// Whether a call to the Finder failed because of the Finder.
fn is_finder_loss(error: &XrlError) -> bool {
    matches!(error.kind(), ErrorKind::Disconnected | ErrorKind::Unavailable)
}

/// What happened to a component.
#[derive(Clone, Debug, PartialEq)]
pub enum Lifecycle {
    /// It has registered, or lived when the watch began.
    Birth(finder::Instance),
    /// Its channel to the Finder has closed.
    Death(finder::Instance),
}

/// Births and deaths, across the lives of Finders.
///
/// A new Finder does not know who has died before it came: between Finders a death may go unsaid. Who depends on a
/// component also sees the channel to it close.
pub struct Watch {
    resolver: Resolver,
    class: String,
    stream: Option<ReplyStream<finder::WatchEvent>>,
    known: HashSet<String>,
}

impl Watch {
    /// What happens next. May be dropped while it waits; nothing is lost.
    ///
    /// # Errors
    /// `Unavailable` when an operator's Finder has gone; otherwise waits for the next one.
    pub async fn next(&mut self) -> Result<Lifecycle, XrlError> {
        loop {
            let stream = match &mut self.stream {
                Some(stream) => stream,
                None => {
                    self.resolver.wait_for_finder().await?;
                    let request = finder::WatchRequest { class: self.class.clone() };
                    self.stream.insert(self.resolver.finder()?.watch(request))
                }
            };
            match stream.next().await {
                Ok(Some(event)) => {
                    if let Some(news) = self.news(event) {
                        return Ok(news);
                    }
                }
                Ok(None) => self.stream = None,
                Err(error) if is_finder_loss(&error) => self.stream = None,
                Err(error) => return Err(error),
            }
        }
    }

    /// What of an event was not known before.
    fn news(&mut self, event: finder::WatchEvent) -> Option<Lifecycle> {
        let kind = event.kind();
        let instance = event.instance?;
        match kind {
            Kind::Birth => self.known.insert(instance.name.clone()).then_some(Lifecycle::Birth(instance)),
            Kind::Death => self.known.remove(&instance.name).then_some(Lifecycle::Death(instance)),
            Kind::Unspecified => None,
        }
    }
}
