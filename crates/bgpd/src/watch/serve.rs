//! A watcher is served: first what is there, then what happens.

use std::{collections::VecDeque, rc::Rc, time::Duration};

use holdfast_api::bgp::v1::{DumpedPrefix, WatchRequest, Watched};
use holdfast_bgp_pipeline::{DumpView, DumpedPath as TablePath, NeighborView, PathView, PeerIndex, Pipeline};
use holdfast_types::{Family, Prefix};
use holdfast_xrl::{ReplySink, XrlError};
use tokio::time::sleep;

use super::{dumped, network};
use crate::{bgp::Bgp, speaker::Speaker};

/// Pause while a takeover is not complete.
const REPLAY: Duration = Duration::from_millis(50);
/// Prefixes in one item.
const ROWS: usize = 256;

/// What is walked for a watcher.
#[derive(Copy, Clone, Debug)]
enum Told {
    /// All paths, as received.
    Received,
    /// What a peer is told.
    Sent(PeerIndex),
    /// The best paths.
    Best,
}

/// Where a walk over the table is.
struct Walk {
    parts: VecDeque<(Told, Family)>,
    after: Option<Prefix>,
}

impl Walk {
    fn new(wants: &WatchRequest, speaker: &Speaker) -> Self {
        let sent = speaker.sessions.slots().filter(|_| wants.dump_sent).map(|(index, _)| Told::Sent(index));
        let received = wants.dump_received.then_some(Told::Received);
        let all = received.into_iter().chain(sent).chain(wants.dump_best.then_some(Told::Best));
        let parts = all.flat_map(|told| Family::ALL.map(|family| (told, family)));
        Self { parts: parts.collect(), after: None }
    }

    /// The next part; `None` when all has been told.
    fn next(&mut self, pipeline: &mut Pipeline) -> Option<Watched> {
        let &(told, family) = self.parts.front()?;
        let mut watched = Watched::default();
        let (next, prefixes) = match told {
            Told::Received | Told::Best => {
                watched.best = matches!(told, Told::Best);
                let view = if watched.best { DumpView::Best } else { DumpView::Received };
                let page = pipeline.dump(family, view, self.after, ROWS);
                (page.next, page.prefixes)
            }
            Told::Sent(index) => {
                watched.sent_to = Some(index.0.into());
                let view = NeighborView::Advertised;
                // That a session has ended is told besides; then there is nothing more of it.
                let session = pipeline.shown_session(index, view);
                let page = session
                    .and_then(|session| pipeline.neighbor_routes(session, view, family, self.after, ROWS));
                let (next, routes) = page.map_or((None, Vec::new()), |page| (page.next, page.routes));
                let path = |(prefix, view): (Prefix, PathView)| {
                    let next_hop = view.next_hop.map(|gateway| gateway.address);
                    let PathView { peer, bytes, identifier, .. } = view;
                    (prefix, vec![TablePath { peer, bytes, next_hop, identifier }])
                };
                (next, routes.into_iter().map(path).collect())
            }
        };
        let row = |(prefix, paths): (Prefix, Vec<TablePath>)| DumpedPrefix {
            paths: paths.into_iter().map(dumped).collect(),
            ..network(prefix)
        };
        watched.dumped = prefixes.into_iter().map(row).collect();
        self.after = next;
        if next.is_none() {
            self.parts.pop_front();
            watched.ended_afi = family.afi.0.into();
        }
        Some(watched)
    }
}

/// Serves a watcher until it goes.
pub(crate) async fn serve(
    bgp: &Rc<Bgp>,
    wants: WatchRequest,
    mut replies: ReplySink<Watched>,
) -> Result<(), XrlError> {
    let mut walk = Walk::new(&wants, &bgp.speaker.borrow());
    let watcher = bgp.speaker.borrow_mut().watch(wants);
    let watcher = watcher.ok_or_else(|| XrlError::unavailable("too many watch already"))?;
    loop {
        // What has happened goes before what is there now, which has it in it.
        while let Some(watched) = watcher.take() {
            replies.send(watched).await?;
        }
        // What the process before has received comes into the tables without a word.
        if bgp.speaker.borrow().sessions.are_replaying() {
            sleep(REPLAY).await;
            continue;
        }
        let page = walk.next(&mut bgp.speaker.borrow_mut().pipeline);
        match page {
            Some(page) => {
                replies.send(page).await?;
                tokio::task::yield_now().await;
            }
            None => watcher.wake.notified().await,
        }
    }
}
