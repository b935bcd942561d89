//! Peers on links: as soon as whoever opens sockets hears the neighbour of one without address, it is dialled, and
//! sessions over a link that is down or gone are over.

use std::{rc::Rc, time::Duration};

use holdfast_api::transport::v1::{Empty, TransportClient};
use holdfast_xrl::XrlError;
use tracing::debug;

use crate::bgp::Bgp;

/// Pause between two attempts to ask.
const RETRY: Duration = Duration::from_secs(1);

/// Listens for ever.
pub(crate) async fn run(bgp: Rc<Bgp>) {
    loop {
        let error = listen(&bgp).await;
        debug!("neighbours are not told: {error}");
        tokio::time::sleep(RETRY).await;
    }
}

/// The life of one who hears them; what ended it.
async fn listen(bgp: &Rc<Bgp>) -> XrlError {
    let client = match bgp.surroundings.client::<TransportClient>("transport").await {
        Ok(client) => client,
        Err(error) => return error,
    };
    let mut stream = client.neighbors(Empty {});
    loop {
        match stream.next().await {
            Ok(Some(neighbor)) => {
                bgp.with(|speaker, now| {
                    if let Some(link) = neighbor.link {
                        speaker.link_is(&neighbor.interface, link, now);
                    }
                    // A router that was not heard for long is not gone: its session's hold timer says whether it is.
                    if !neighbor.address.is_empty() {
                        speaker.heard(&neighbor.interface, now);
                    }
                });
                bgp.closed.notify_one();
            }
            Ok(None) => return XrlError::unavailable("the stream ended"),
            Err(error) => return error,
        }
    }
}
