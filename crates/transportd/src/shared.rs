//! What all doors of the process have in common.

use holdfast_api::keeper::v1::KeeperClient;
use holdfast_transport::Side;
use tokio::sync::{Notify, watch};

use crate::secrets::Secrets;

/// What all doors of the process have in common.
pub(crate) struct Shared {
    pub(crate) keeper: KeeperClient,
    /// Of the ports of QUIC.
    pub(crate) side: Side,
    pub(crate) secrets: Secrets,
    /// Connections that are carried.
    pub(crate) carried: watch::Sender<usize>,
    /// Another process takes this one's place.
    pub(crate) retires: Notify,
}
