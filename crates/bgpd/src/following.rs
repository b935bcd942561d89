//! Follows the BFD sessions of peers: asks `bfd`, and again the next one when it has died.

use std::{rc::Rc, time::Duration};

use holdfast_api::bfd::v1::{BfdClient, FollowRequest};
use holdfast_bgp_pipeline::PeerIndex;
use holdfast_xrl::{Client, ErrorKind, XrlError};
use tokio::time::sleep;
use tracing::{debug, warn};

use crate::{
    bfd::{Following, Task},
    bgp::Bgp,
};

/// Pause between two lives of `bfd`.
const RETRY: Duration = Duration::from_millis(200);
/// The longest, where it refuses each time.
const LONGEST_RETRY: Duration = Duration::from_secs(10);

/// RFC 5880 section 4.1: the session has not been up since it began.
const NO_DIAGNOSTIC: u32 = 0;

impl Bgp {
    /// Follows the BFD session of a peer from now on.
    pub(crate) fn follow_bfd(self: &Rc<Self>, index: PeerIndex, following: &mut Following) {
        let request = following.wanted.request(self.surroundings.vrf().unwrap_or_default());
        let before = following.take_before();
        following.begin(self.spawn(follow(Rc::clone(self), index, request, before)));
    }
}

async fn follow(bgp: Rc<Bgp>, index: PeerIndex, request: FollowRequest, mut before: Option<Task>) {
    let (mut said, mut pause) = (String::new(), RETRY);
    loop {
        let error = life(&bgp, index, &request, &mut before).await;
        let is_gone =
            matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Disconnected | ErrorKind::NotFound);
        pause = if is_gone { RETRY } else { LONGEST_RETRY.min(2 * pause) };
        let error = error.to_string();
        if !is_gone && said != error {
            let peer = bgp.speaker.borrow().sessions.slot(index).map(|slot| slot.neighbor.name.clone());
            warn!(event = "bfd-refused", peer, "there is no BFD session to the peer: {error}");
            said = error;
        } else {
            debug!(peer = index.0, "BFD of a peer is not told: {error}");
        }
        sleep(pause).await;
    }
}

/// The life of one `bfd`; what ended it.
async fn life(
    bgp: &Rc<Bgp>,
    index: PeerIndex,
    request: &FollowRequest,
    before: &mut Option<Task>,
) -> XrlError {
    let channel = match bgp.bfd.channel(&bgp.surroundings.resolver).await {
        Ok(channel) => channel,
        Err(error) => return error,
    };
    let mut stream = BfdClient::new((*channel).clone()).follow(request.clone());
    let mut is_first = true;
    loop {
        match stream.next().await {
            Ok(Some(state)) => {
                drop(before.take());
                let is_new = std::mem::take(&mut is_first) && state.diagnostic == NO_DIAGNOSTIC;
                bgp.with(|speaker, now| speaker.bfd_says(index, state, is_new, now));
            }
            Ok(None) => return XrlError::unavailable("it has ended its stream"),
            Err(error) => return error,
        }
    }
}
