//! `gate.v1`.

use std::{os::fd::OwnedFd, rc::Rc};

use holdfast_api::gate::v1::{AttachReply, AttachRequest, Empty, GateServer, GateStatus};
use holdfast_xrl::{CallContext, XrlError};

use crate::{gate::Gate, orders::Orders};

/// Serves `gate.v1`.
pub(crate) struct GateService(pub(crate) Rc<Gate>);

impl GateServer for GateService {
    async fn attach(
        &self,
        _context: &CallContext,
        request: AttachRequest,
        descriptors: Vec<OwnedFd>,
    ) -> Result<AttachReply, XrlError> {
        let orders = Orders::read(&request).map_err(|wrong| XrlError::invalid_argument(wrong.to_owned()))?;
        let descriptors: [OwnedFd; 3] = descriptors
            .try_into()
            .map_err(|_| XrlError::invalid_argument("three descriptors are to come along".to_owned()))?;
        self.0.attach(orders, descriptors).await?;
        Ok(AttachReply { missing: self.0.status().missing })
    }

    async fn close(&self, _context: &CallContext, _: Empty) -> Result<Empty, XrlError> {
        self.0.set_closed(true).map(|()| Empty {})
    }

    async fn open(&self, _context: &CallContext, _: Empty) -> Result<Empty, XrlError> {
        self.0.set_closed(false).map(|()| Empty {})
    }

    async fn show(&self, _context: &CallContext, _: Empty) -> Result<GateStatus, XrlError> {
        Ok(self.0.status())
    }
}
