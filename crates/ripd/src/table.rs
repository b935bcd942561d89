//! RIP in one table: both versions, what the RIB is told, and what it tells.

use std::{cell::RefCell, collections::BTreeMap, convert::Infallible, rc::Rc, time::Duration};

use holdfast_process::{Boot, spawn_task};
use holdfast_rip::{Metric, Ripng, Ripv2};
use holdfast_routing::{Change, Links, Origin, Redistribution, follow};
use tokio::{
    sync::Notify,
    task::AbortHandle,
    time::{sleep, timeout},
};
use tracing::Instrument;

use crate::{
    metrics,
    section::{NAME, OfTable},
    speaker::Speaker,
};

/// How often it is looked whether neighbours have had the time to answer.
const LOOK: Duration = Duration::from_secs(1);

/// How long neighbours are told at most that nothing is reachable any more; the engine takes 2 s where the kernel has room.
const FAREWELL: Duration = Duration::from_secs(4);

/// How often it is looked whether there is room for redistributed routes that have found none; and so the RIB is asked for
/// all of them no more often.
const AGAIN: Duration = Duration::from_secs(10);

/// The tables, by the name of the VRF.
pub(crate) type Tables = BTreeMap<Option<String>, Table>;

/// A table, until it is dropped.
pub(crate) struct Table {
    inner: Rc<Inner>,
    life: AbortHandle,
}

pub(crate) struct Inner {
    boot: Rc<Boot>,
    origin: Rc<Origin>,
    pub(crate) v2: Rc<Speaker<Ripv2>>,
    pub(crate) ng: Rc<Speaker<Ripng>>,
    section: RefCell<OfTable>,
    links: RefCell<Option<Links>>,
    /// The section is another one.
    configured: Notify,
}

impl Table {
    /// Begins to speak where the section says; `boot` is that of the table.
    pub(crate) fn begin(boot: Rc<Boot>, section: OfTable) -> Self {
        let origin = Rc::new(Origin::new(NAME));
        let inner = Rc::new(Inner {
            v2: Speaker::new(Rc::clone(&boot), Rc::clone(&origin), section.timers),
            ng: Speaker::new(Rc::clone(&boot), Rc::clone(&origin), section.timers),
            boot,
            origin,
            section: RefCell::new(section),
            links: RefCell::default(),
            configured: Notify::new(),
        });
        metrics::register(&inner.boot.metrics, &inner);
        inner.boot.join();
        let (life, span) = (Rc::clone(&inner), inner.boot.span());
        let life = spawn_task(async move { life.live().await }.instrument(span)).abort_handle();
        Self { inner, life }
    }

    /// Takes a section in place of the one before.
    pub(crate) fn configure(&self, section: OfTable) {
        self.inner.section.replace(section);
        self.inner.follow();
        self.inner.configured.notify_one();
    }

    /// Tells neighbours that nothing is reachable this way any more, and ends.
    pub(crate) async fn leave(self) {
        let both = async { tokio::join!(self.inner.v2.say_farewell(), self.inner.ng.say_farewell()) };
        // What there is no room for is lost: the neighbours' time-outs do the rest.
        let _ = timeout(FAREWELL, both).await;
    }

    pub(crate) fn v2(&self) -> &Speaker<Ripv2> {
        &self.inner.v2
    }

    pub(crate) fn ng(&self) -> &Speaker<Ripng> {
        &self.inner.ng
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.life.abort();
        // Their sockets have tasks of their own.
        self.inner.v2.leave();
        self.inner.ng.leave();
    }
}

impl Inner {
    async fn live(&self) -> Infallible {
        let links = follow(&self.boot, |links, may_be_others| {
            self.links.replace(Some(links.clone()));
            if may_be_others {
                self.v2.open_again();
                self.ng.open_again();
            }
            self.follow();
        });
        tokio::select! {
            never = links => never,
            never = self.v2.run() => never,
            never = self.ng.run() => never,
            never = self.origin.run(&self.boot) => never,
            never = self.redistribute() => never,
            never = self.complete() => never,
        }
    }

    fn follow(&self) {
        let (section, links) = (self.section.borrow(), self.links.borrow());
        let Some(links) = links.as_ref() else { return };
        self.v2.follow(&section, links);
        self.ng.follow(&section, links);
    }

    /// Says when the neighbours have told what they know.
    async fn complete(&self) -> Infallible {
        while self.links.borrow().is_none() || !self.v2.is_synchronised() || !self.ng.is_synchronised() {
            sleep(LOOK).await;
        }
        self.origin.complete();
        std::future::pending().await
    }

    async fn redistribute(&self) -> Infallible {
        let mut redistribution = Redistribution::default();
        loop {
            let (wanted, metric) = {
                let section = self.section.borrow();
                (section.redistribute.clone(), section.metric)
            };
            tokio::select! {
                never = redistribution.run(&self.boot, &wanted, |change| self.take(change, metric)) => match never {},
                () = self.configured.notified() => {}
                () = self.room() => {}
            }
        }
    }

    /// Waits until there is room for routes that have found none: then the RIB is asked for all of them again.
    async fn room(&self) {
        loop {
            sleep(AGAIN).await;
            // Both are asked: what one has left out is said again for the other, too.
            if [self.v2.has_room_again(), self.ng.has_room_again()].contains(&true) {
                return;
            }
        }
    }

    fn take(&self, change: Change<'_>, metric: Metric) {
        match change {
            Change::Taken(prefix, _, route) => {
                let metric = route.metric.map_or(Some(metric), Metric::new);
                match metric.filter(|metric| metric.is_reachable()) {
                    Some(metric) => {
                        self.v2.redistribute(prefix, metric, route.tag);
                        self.ng.redistribute(prefix, metric, route.tag);
                    }
                    None => self.withdraw(prefix),
                }
            }
            Change::Gone(prefix) => self.withdraw(prefix),
        }
    }

    fn withdraw(&self, prefix: holdfast_types::Prefix) {
        self.v2.withdraw(prefix);
        self.ng.withdraw(prefix);
    }
}
