//! Ways to a store: the engine decides what is asked and when, and here is who carries it.

use std::{cell::RefCell, os::fd::OwnedFd, rc::Rc};

use holdfast_api::replicator::v1::Kind;
use holdfast_process::Resolver;
use holdfast_store::{Answer, Failure, Request, redis::Keys};
use tokio::sync::Notify;

use crate::{
    link::{Link, Servers},
    local::LocalStore,
};

/// What comes of a way to a store.
#[derive(Debug)]
pub(crate) enum Event {
    /// It is there, to this server, if it is one.
    Connected(Option<String>),
    /// The next answer.
    Answered(Result<Answer, Failure>),
    /// It has ended.
    Ended(String),
}

/// A way to a store, from before it comes about to its end.
pub(crate) trait Way {
    /// Asks the store. Answers come in the same order.
    fn ask(&mut self, request: &Request);
    /// The next event, if one is there.
    fn event(&mut self) -> Option<Event>;
    /// Does a slice of what a store of this process has to do; whether there is more.
    fn work(&mut self) -> bool;
}

/// Where a store is.
pub(crate) struct Place<'a> {
    pub(crate) kind: Kind,
    pub(crate) servers: &'a Servers,
    pub(crate) keys: &'a Keys,
    /// Of a store of the kind `file`.
    pub(crate) files: &'a [OwnedFd],
}

/// Opens ways.
pub(crate) trait Open {
    /// Begins a way.
    ///
    /// # Errors
    /// There is none, whatever is waited for.
    fn open(&mut self, place: &Place<'_>) -> Result<Box<dyn Way>, Failure>;
    /// Another store is configured: what is here of the one before goes.
    fn forget(&mut self);
}

/// The ways of the process.
pub(crate) struct Ways {
    resolver: Resolver,
    /// Is told of each event.
    notify: Rc<Notify>,
    /// The store of this host: it stays when the way to it is given up.
    local: Option<Rc<RefCell<LocalStore>>>,
}

impl Ways {
    pub(crate) fn new(resolver: Resolver, notify: Rc<Notify>) -> Self {
        Self { resolver, notify, local: None }
    }

    fn local(&mut self, place: &Place<'_>) -> Result<Rc<RefCell<LocalStore>>, Failure> {
        if let Some(local) = &self.local {
            return Ok(Rc::clone(local));
        }
        let store = match place.kind {
            Kind::File => {
                let failed = |error: std::io::Error| Failure::File(error.to_string());
                let copies = place.files.iter().map(OwnedFd::try_clone).collect::<Result<Vec<_>, _>>();
                let files = <[OwnedFd; 2]>::try_from(copies.map_err(failed)?);
                LocalStore::in_files(files.map_err(|_| Failure::File("it was not given".into()))?)
            }
            _ => LocalStore::in_memory(),
        };
        Ok(Rc::clone(self.local.insert(Rc::new(RefCell::new(store)))))
    }
}

impl Open for Ways {
    fn open(&mut self, place: &Place<'_>) -> Result<Box<dyn Way>, Failure> {
        if place.kind == Kind::Redis {
            let (resolver, notify) = (self.resolver.clone(), Rc::clone(&self.notify));
            return Ok(Box::new(Link::new(resolver, place.servers.clone(), place.keys.clone(), notify)));
        }
        let store = self.local(place)?;
        store.borrow_mut().forget();
        Ok(Box::new(OfHost { store, is_connected: false }))
    }

    fn forget(&mut self) {
        self.local = None;
    }
}

/// A way to a store of this host.
struct OfHost {
    store: Rc<RefCell<LocalStore>>,
    is_connected: bool,
}

impl Way for OfHost {
    fn ask(&mut self, request: &Request) {
        self.store.borrow_mut().ask(request);
    }

    fn event(&mut self) -> Option<Event> {
        if !std::mem::replace(&mut self.is_connected, true) {
            return Some(Event::Connected(None));
        }
        self.store.borrow_mut().take().map(Event::Answered)
    }

    fn work(&mut self) -> bool {
        self.store.borrow_mut().work()
    }
}
