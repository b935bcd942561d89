//! Configured by the manager: where to listen.

use std::rc::Rc;

use holdfast_api::glass::v1::{Configuration, Empty, GlassServer};
use holdfast_process::{Listening, Resolver};
use holdfast_xrl::{CallContext, XrlError};

use crate::{answer::Answerer, server};

/// Serves `glass.v1`.
pub(crate) struct Glass {
    answerer: Rc<Answerer>,
    listening: Listening,
}

impl Glass {
    pub(crate) fn new(resolver: Resolver, answerer: Rc<Answerer>) -> Self {
        Self { answerer, listening: Listening::new(resolver) }
    }
}

impl GlassServer for Glass {
    async fn configure(&self, _: &CallContext, request: Configuration) -> Result<Empty, XrlError> {
        let (at, answerer) = ((&*request.address, request.port), Rc::clone(&self.answerer));
        self.listening.serve(at, "looking glasses", |listener| server::serve(listener, answerer)).await?;
        Ok(Empty {})
    }
}
