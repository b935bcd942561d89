//! Configured by the manager: where to listen.

use std::rc::Rc;

use holdfast_api::metrics::v1::{Empty, ExporterConfiguration, ExporterServer};
use holdfast_process::{Listening, Resolver};
use holdfast_xrl::{CallContext, XrlError};

use crate::{collect::Collector, server};

/// Serves `metrics.v1.Exporter`.
pub(crate) struct Exporter {
    collector: Rc<Collector>,
    listening: Listening,
}

impl Exporter {
    pub(crate) fn new(resolver: Resolver, collector: Rc<Collector>) -> Self {
        Self { collector, listening: Listening::new(resolver) }
    }
}

impl ExporterServer for Exporter {
    async fn configure(&self, _: &CallContext, request: ExporterConfiguration) -> Result<Empty, XrlError> {
        let (at, collector) = ((&*request.address, request.port), Rc::clone(&self.collector));
        self.listening.serve(at, "Prometheus", |listener| server::serve(listener, collector)).await?;
        Ok(Empty {})
    }
}
