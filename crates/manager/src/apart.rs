//! What takes long is done beside the event loop.

use holdfast_xrl::XrlError;

/// Does something that takes the longer the more is configured, while others are answered: a turn of the event loop has to be
/// short.
pub(crate) async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, XrlError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| XrlError::internal(error.to_string()))
}
