//! `fea.v1` over the engine.

use std::rc::Rc;

use holdfast_api::{
    fea::v1::{
        Configuration, Empty, FeaServer, InterfaceEvent, Loss, RefusalEvent, Repairs, ShowInterfacesReply,
        ShutdownRequest, Status, SyncBeginReply,
    },
    routes::v1::RouteBatch,
};
use holdfast_xrl::{CallContext, ReplySink, XrlError};
use tokio::time::sleep;

use crate::{
    engine::Engine,
    interfaces, kernel,
    refusals::{self, Known},
    repairs,
    vrfs::{self, Vrfs},
};

/// Serves `fea.v1`.
pub struct FeaService {
    engine: Rc<Engine>,
    /// Those of the process, if this is its own service and not one of theirs.
    vrfs: Option<Rc<Vrfs>>,
}

impl FeaService {
    /// Over this engine.
    pub fn new(engine: Rc<Engine>) -> Self {
        Self { engine, vrfs: None }
    }

    /// Over the engine of the default table; it is told of these as well.
    pub(crate) fn of_process(engine: Rc<Engine>, vrfs: Rc<Vrfs>) -> Self {
        Self { engine, vrfs: Some(vrfs) }
    }
}

/// Whether a configuration makes sense, as far as it can be known without the kernel.
pub(crate) fn check(configuration: &Configuration) -> Result<(), XrlError> {
    kernel::known(&configuration.backend)?;
    vrfs::check(&configuration.vrfs)
}

impl FeaServer for FeaService {
    async fn configure(&self, _cx: &CallContext, request: Configuration) -> Result<Empty, XrlError> {
        match &self.vrfs {
            Some(vrfs) => vrfs.configure(&request).await?,
            None if request.vrfs.is_empty() => {}
            None => return Err(XrlError::invalid_argument("a VRF has no VRFs")),
        }
        self.engine.configure(&request).await?;
        Ok(Empty {})
    }

    async fn interfaces(
        &self,
        _cx: &CallContext,
        _request: Empty,
        mut replies: ReplySink<InterfaceEvent>,
    ) -> Result<(), XrlError> {
        // Which are shown depends on that.
        if let Some(vrfs) = &self.vrfs {
            vrfs.are_known().await;
        }
        let interfaces = &self.engine.interfaces;
        interfaces.are_known().await;
        let mut versions = interfaces.versions();
        let mut told = interfaces.nothing_told();
        let mut synced = false;
        loop {
            versions.mark_unchanged();
            for event in interfaces.news(&mut told) {
                replies.send(event).await?;
            }
            if !std::mem::replace(&mut synced, true) {
                replies.send(InterfaceEvent { synced, ..InterfaceEvent::default() }).await?;
            }
            if versions.changed().await.is_err() {
                return Ok(());
            }
        }
    }

    async fn sync_begin(&self, _cx: &CallContext, _request: Empty) -> Result<SyncBeginReply, XrlError> {
        Ok(SyncBeginReply { discards: self.engine.sync_begin().await? })
    }

    async fn apply(&self, _cx: &CallContext, request: RouteBatch) -> Result<Empty, XrlError> {
        self.engine.apply(&request).await?;
        Ok(Empty {})
    }

    async fn define_at_once(&self, _cx: &CallContext, request: RouteBatch) -> Result<Empty, XrlError> {
        self.engine.define_at_once(&request)?;
        Ok(Empty {})
    }

    async fn sync_end(&self, _cx: &CallContext, _request: Empty) -> Result<Empty, XrlError> {
        self.engine.sync_end().await?;
        Ok(Empty {})
    }

    /// A loss is said as long as no sync has begun since, so that none is missed by who asks late.
    async fn losses(
        &self,
        _cx: &CallContext,
        _request: Empty,
        mut replies: ReplySink<Loss>,
    ) -> Result<(), XrlError> {
        let mut losses = self.engine.losses.subscribe();
        let mut said = 0;
        loop {
            let loss = losses.borrow_and_update().clone();
            if let Some(reason) = loss.reason.filter(|_| loss.number != said) {
                said = loss.number;
                replies.send(Loss { reason }).await?;
            }
            if losses.changed().await.is_err() {
                return Ok(());
            }
        }
    }

    async fn refusals(
        &self,
        _cx: &CallContext,
        _request: Empty,
        mut replies: ReplySink<RefusalEvent>,
    ) -> Result<(), XrlError> {
        let mut changes = self.engine.refusals.subscribe();
        let mut known = Known::default();
        loop {
            changes.mark_unchanged();
            for message in known.news(self.engine.refused()) {
                replies.send(message).await?;
            }
            if changes.changed().await.is_err() {
                return Ok(());
            }
            sleep(refusals::PAUSE).await;
        }
    }

    async fn show_interfaces(
        &self,
        _cx: &CallContext,
        _request: Empty,
    ) -> Result<ShowInterfacesReply, XrlError> {
        let interfaces = self.engine.interfaces.shown();
        Ok(ShowInterfacesReply { interfaces: interfaces.values().map(interfaces::api).collect() })
    }

    async fn show_status(&self, _cx: &CallContext, _request: Empty) -> Result<Status, XrlError> {
        Ok(self.engine.status())
    }

    async fn compare(&self, _cx: &CallContext, _request: Empty) -> Result<Repairs, XrlError> {
        Ok(repairs::api(self.engine.compare().await?))
    }

    async fn shutdown(&self, _cx: &CallContext, request: ShutdownRequest) -> Result<Empty, XrlError> {
        if let Some(vrfs) = &self.vrfs {
            vrfs.shut_down(request.keep_routes).await;
        }
        self.engine.shut_down(request.keep_routes).await?;
        Ok(Empty {})
    }
}
