//! `fea.v1` over the engine.

use std::{collections::BTreeMap, rc::Rc};

use holdfast_api::{
    fea::v1::{
        Configuration, Empty, FeaServer, InterfaceEvent, Loss, ShowInterfacesReply, ShutdownRequest, Status,
        SyncBeginReply,
    },
    routes::v1::RouteBatch,
};
use holdfast_xrl::{CallContext, ReplySink, XrlError};

use crate::{engine::Engine, interfaces};

/// Serves `fea.v1`.
pub struct FeaService {
    engine: Rc<Engine>,
}

impl FeaService {
    /// Over this engine.
    pub fn new(engine: Rc<Engine>) -> Self {
        Self { engine }
    }
}

impl FeaServer for FeaService {
    async fn configure(&self, _cx: &CallContext, request: Configuration) -> Result<Empty, XrlError> {
        self.engine.configure(&request).await?;
        Ok(Empty {})
    }

    async fn interfaces(
        &self,
        _cx: &CallContext,
        _request: Empty,
        mut replies: ReplySink<InterfaceEvent>,
    ) -> Result<(), XrlError> {
        let interfaces = &self.engine.interfaces;
        let mut versions = interfaces.versions();
        let mut told = BTreeMap::new();
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

    async fn show_interfaces(
        &self,
        _cx: &CallContext,
        _request: Empty,
    ) -> Result<ShowInterfacesReply, XrlError> {
        let interfaces = self.engine.interfaces.all();
        Ok(ShowInterfacesReply { interfaces: interfaces.iter().map(interfaces::api).collect() })
    }

    async fn show_status(&self, _cx: &CallContext, _request: Empty) -> Result<Status, XrlError> {
        Ok(self.engine.status())
    }

    async fn shutdown(&self, _cx: &CallContext, request: ShutdownRequest) -> Result<Empty, XrlError> {
        self.engine.shut_down(request.keep_routes).await?;
        Ok(Empty {})
    }
}
