//! `log.v1`.

use holdfast_api::log::v1::{Empty, Level, LogServer};
use holdfast_xrl::{CallContext, XrlError};

/// Serves `log.v1` for the process of this name.
pub(crate) struct LogService(pub(crate) String);

impl LogServer for LogService {
    async fn set_level(&self, _: &CallContext, request: Level) -> Result<Empty, XrlError> {
        super::check(&request.filter).map_err(|error| XrlError::invalid_argument(error.to_string()))?;
        super::set(&self.0, &request.filter, &request.format);
        Ok(Empty {})
    }
}
