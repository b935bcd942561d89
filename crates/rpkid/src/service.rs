//! `rpki.v1`.

use std::{rc::Rc, time::Instant};

use holdfast_api::rpki::v1::{
    AsRequest, Cache, CacheState, Configuration, Empty, Piece, PrefixRequest, Records, RpkiServer,
    WatchRequest,
};
use holdfast_rtr::{Client, Counts, Dataset, Phase};
use holdfast_types::{Asn, Prefix};
use holdfast_xrl::{CallContext, ReplySink, XrlError};

use crate::{
    columns::{Columns, asked},
    log::Next,
    rpki::{Known, Rpki},
};

/// Serves `rpki.v1`.
pub(crate) struct RpkiService(pub(crate) Rc<Rpki>);

impl RpkiServer for RpkiService {
    async fn configure(&self, _: &CallContext, request: Configuration) -> Result<Empty, XrlError> {
        self.0.configure(request).map(|()| Empty {})
    }

    async fn watch(
        &self,
        _: &CallContext,
        wants: WatchRequest,
        mut replies: ReplySink<Piece>,
    ) -> Result<(), XrlError> {
        let mut epochs = self.0.epoch.subscribe();
        let gone = |_| XrlError::unavailable("the process ends");
        epochs.wait_for(|epoch| *epoch > 0).await.map_err(gone)?;
        let mut at = 0;
        loop {
            let before = at;
            let (expires, expired) = {
                let log = &self.0.state.borrow().log;
                at = log.epoch();
                (log.expires(), log.has_expired_since(before, Instant::now()))
            };
            let all = Columns::of_all(&self.0.state.borrow().caches, &wants);
            tell(&mut replies, pieces(at, true, all, Vec::new()), expires, expired).await?;
            loop {
                let next = self.0.state.borrow().log.after(at);
                match next {
                    Next::Change(change) => {
                        at = change.epoch;
                        let announced = Columns::of(&change.delta.announced, &wants);
                        let withdrawn = Columns::of(&change.delta.withdrawn, &wants);
                        let pieces = pieces(at, false, announced, withdrawn);
                        tell(&mut replies, pieces, change.expires, change.expired).await?;
                    }
                    Next::Nothing => drop(epochs.wait_for(|epoch| *epoch != at).await.map_err(gone)?),
                    Next::Lost => break,
                }
            }
        }
    }

    async fn show_caches(
        &self,
        _: &CallContext,
        _: Empty,
        mut replies: ReplySink<Cache>,
    ) -> Result<(), XrlError> {
        replies.send_all(self.caches()).await
    }

    async fn show_vrps(
        &self,
        _: &CallContext,
        request: PrefixRequest,
        mut replies: ReplySink<Records>,
    ) -> Result<(), XrlError> {
        let wanted = asked(&request).transpose().map_err(XrlError::invalid_argument)?;
        replies.send_all(self.vrps(wanted)).await
    }

    async fn show_keys(
        &self,
        _: &CallContext,
        request: AsRequest,
        mut replies: ReplySink<Records>,
    ) -> Result<(), XrlError> {
        replies.send_all(self.keys(request.asn.map(Asn))).await
    }

    async fn show_aspas(
        &self,
        _: &CallContext,
        request: AsRequest,
        mut replies: ReplySink<Records>,
    ) -> Result<(), XrlError> {
        replies.send_all(self.aspas(request.asn.map(Asn))).await
    }
}

/// An epoch: one piece at least, and the last says so.
fn pieces(epoch: u64, full: bool, announced: Vec<Records>, withdrawn: Vec<Records>) -> Vec<Piece> {
    let piece = Piece { epoch, full, ..Piece::default() };
    let announced = announced.into_iter().map(|records| Piece { announced: Some(records), ..piece.clone() });
    let withdrawn = withdrawn.into_iter().map(|records| Piece { withdrawn: Some(records), ..piece.clone() });
    let mut pieces: Vec<_> = announced.chain(withdrawn).collect();
    if pieces.is_empty() {
        pieces.push(piece);
    }
    pieces.iter_mut().rev().take(1).for_each(|piece| piece.last = true);
    pieces
}

/// Tells an epoch that holds until then. For how long that is is said with the last piece, when all others are told.
async fn tell(
    replies: &mut ReplySink<Piece>,
    pieces: Vec<Piece>,
    expires: Option<Instant>,
    expired: bool,
) -> Result<(), XrlError> {
    for mut piece in pieces {
        piece.expired = expired;
        if piece.last {
            let left = expires.map(|expires| expires.saturating_duration_since(Instant::now()).as_secs());
            piece.expire_seconds = left.and_then(|left| u32::try_from(left).ok()).unwrap_or(u32::MAX);
        }
        replies.send(piece).await?;
    }
    Ok(())
}

impl RpkiService {
    fn caches(&self) -> Vec<Cache> {
        let (state, now) = (self.0.state.borrow(), Instant::now());
        let clients = state.caches.clients();
        let shown = |(id, _, client): (_, _, &Client)| {
            let known = state.known.get(&id)?;
            Some(Cache { used: state.caches.uses(id), ..cache(known, client, now) })
        };
        clients.filter_map(shown).collect()
    }

    fn vrps(&self, wanted: Option<Prefix>) -> Vec<Records> {
        let mut columns = Columns::default();
        let is_wanted =
            |prefix: Prefix| wanted.is_none_or(|wanted| wanted.contains(prefix) || prefix.contains(wanted));
        let state = self.0.state.borrow();
        state.caches.vrps().filter(|vrp| is_wanted(vrp.prefix())).for_each(|vrp| columns.push_vrp(vrp));
        columns.into_messages()
    }

    fn keys(&self, wanted: Option<Asn>) -> Vec<Records> {
        let mut columns = Columns::default();
        let state = self.0.state.borrow();
        let keys = state.caches.router_keys().filter(|key| wanted.is_none_or(|asn| key.asn == asn));
        keys.for_each(|key| columns.push_key(key));
        columns.into_messages()
    }

    fn aspas(&self, wanted: Option<Asn>) -> Vec<Records> {
        let mut columns = Columns::default();
        let state = self.0.state.borrow();
        let aspas = state.caches.aspas().filter(|aspa| wanted.is_none_or(|asn| aspa.customer() == asn));
        aspas.for_each(|aspa| columns.push_aspa(aspa));
        columns.into_messages()
    }
}

fn cache(known: &Known, client: &Client, now: Instant) -> Cache {
    let state = match client.phase() {
        Phase::Down => CacheState::Down,
        Phase::Connecting => CacheState::Connecting,
        Phase::Syncing => CacheState::Syncing,
        Phase::Established => CacheState::Established,
        Phase::Waiting => CacheState::Waiting,
    };
    let seconds = |duration: std::time::Duration| u32::try_from(duration.as_secs()).unwrap_or(u32::MAX);
    let counts = client.data().map_or(Counts::default(), Dataset::counts);
    let (session, serial) = client.serial().unzip();
    let times = client.times();
    Cache {
        name: known.configuration.name.clone(),
        endpoint: known.configuration.endpoint.clone(),
        preference: known.configuration.preference,
        state: state.into(),
        version: client.version().map(|version| version.octet().into()),
        session_id: session.map_or(0, u32::from),
        serial: serial.map(|serial| serial.0),
        vrps_ipv4: counts.ipv4 as u64,
        vrps_ipv6: counts.ipv6 as u64,
        aspas: counts.aspas as u64,
        router_keys: counts.router_keys as u64,
        updated_seconds_ago: client.updated().map(|at| seconds(now.saturating_duration_since(at))),
        expires_in_seconds: client.expires().map(|at| seconds(at.saturating_duration_since(now))),
        refresh_seconds: seconds(times.refresh),
        retry_seconds: seconds(times.retry),
        expire_seconds: seconds(times.expire),
        last_error: known.error.clone(),
        proof: known.proof.clone(),
        resets: client.resets(),
        reconnects: client.connects().saturating_sub(1),
        ..Cache::default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use holdfast_api::rpki::v1::{CacheConfiguration, RpkiClient, RpkiDispatcher};
    use holdfast_rtr::{CacheId, Input};
    use holdfast_rtr_wire::{Pdu, Record, Serial, Version};
    use holdfast_types::Vrp;
    use holdfast_xrl::{Client as _, Link, Node, PeerIdentity, ReplyStream};
    use tokio::task::LocalSet;

    use super::*;

    /// What the cache says in one answer.
    fn says(rpki: &Rc<Rpki>, begin: &[Pdu], serial: u32) {
        let end = Pdu::EndOfData { session: 7, serial: Serial(serial), timing: None };
        let mut octets = Vec::new();
        for pdu in [Pdu::CacheResponse { session: 7 }].iter().chain(begin).chain([&end]) {
            pdu.write(Version::V1, &mut octets).expect("written");
        }
        let id = *rpki.state.borrow().known.keys().next().expect("a cache");
        rpki.handle(id, Input::Received(&octets));
    }

    fn vrp(asn: u32) -> Record {
        let prefix = "192.0.2.0/24".parse().expect("a prefix");
        Record::Vrp(Vrp::new(prefix, 24, Asn(asn)).expect("it goes with it"))
    }

    /// The next epoch: its number, whether it is full, and the ASes of what is announced and withdrawn.
    async fn next(stream: &mut ReplyStream<Piece>) -> (u64, bool, Vec<u32>, Vec<u32>) {
        let (mut announced, mut withdrawn) = (Vec::new(), Vec::new());
        loop {
            let piece = stream.next().await.expect("an item").expect("not the end");
            let asns = |records: Option<Records>| records.and_then(|it| it.ipv4).unwrap_or_default().asns;
            announced.extend(asns(piece.announced));
            withdrawn.extend(asns(piece.withdrawn));
            if piece.last {
                return (piece.epoch, piece.full, announced, withdrawn);
            }
        }
    }

    /// A client of a process with one cache, which has said two VRPs.
    async fn scene() -> (Node, Rc<Rpki>, RpkiClient, CacheConfiguration) {
        let node = Node::new("rpki");
        let rpki = Rpki::new(node.resolver());
        node.serve(RpkiDispatcher::new(RpkiService(Rc::clone(&rpki))));
        let (near, far) = Link::pair();
        node.attach_link(far, PeerIdentity::new("bgp"));
        let client = RpkiClient::new(holdfast_xrl::Channel::over(near));
        let cache = CacheConfiguration { name: "a".into(), version: 1, ..CacheConfiguration::default() };
        configure(&rpki, &cache);
        rpki.handle(CACHE, Input::Timeout);
        rpki.handle(CACHE, Input::Connected);
        says(&rpki, &[Pdu::Announce(vrp(1)), Pdu::Announce(vrp(2))], 1);
        (node, rpki, client, cache)
    }

    const CACHE: CacheId = CacheId(1);
    const WANTS: WatchRequest = WatchRequest { vrps: true, aspas: false, router_keys: false };

    fn configure(rpki: &Rc<Rpki>, cache: &CacheConfiguration) {
        let caches = vec![cache.clone()];
        rpki.configure(Configuration { caches, exceptions: Vec::new() }).expect("taken");
    }

    async fn changes() {
        let (_node, rpki, client, cache) = scene().await;
        let mut watch = client.watch(WANTS);
        assert_eq!(next(&mut watch).await, (1, true, vec![1, 2], vec![]), "all that is there");
        rpki.handle(CACHE, Input::Refresh);
        says(&rpki, &[Pdu::Announce(vrp(3)), Pdu::Withdraw(vrp(1))], 2);
        assert_eq!(next(&mut watch).await, (2, false, vec![3], vec![1]), "what has changed");
        rpki.handle(CACHE, Input::Refresh);
        says(&rpki, &[], 2);
        assert_eq!(next(&mut watch).await, (3, false, vec![], vec![]), "it holds for longer");
        let mut late = client.watch(WANTS);
        assert_eq!(next(&mut late).await, (3, true, vec![2, 3], vec![]));

        configure(&rpki, &CacheConfiguration { expire_seconds: 700, ..cache });
        let piece = watch.next().await.expect("an item").expect("not the end");
        assert_eq!((piece.epoch, piece.full, &piece.announced, piece.last), (4, false, &None, true));
        assert!((600..=700).contains(&piece.expire_seconds), "for another time: {}", piece.expire_seconds);

        // More than the log holds, while one of them does not read.
        let many: Vec<_> = (0..1_200_000).map(|asn| Pdu::Announce(vrp(10 + asn))).collect();
        rpki.handle(CACHE, Input::Refresh);
        says(&rpki, &many, 3);
        let (epoch, full, announced, _) = next(&mut watch).await;
        assert_eq!((epoch, full, announced.len()), (5, true, 1_200_002), "all once more");
    }

    async fn expiry() {
        let (_node, rpki, client, _) = scene().await;
        let mut watch = client.watch(WANTS);
        next(&mut watch).await;
        let later = Instant::now() + Duration::from_secs(8000);
        rpki.state.borrow_mut().caches.handle_timeout(later);
        rpki.follow(later);
        let piece = watch.next().await.expect("an item").expect("not the end");
        let withdrawn = piece.withdrawn.and_then(|it| it.ipv4).map(|vrps| vrps.asns);
        assert_eq!((withdrawn, piece.expired), (Some(vec![1, 2]), true));
        // Who was not there hears it as well: what it has from a process before may have expired.
        let mut late = client.watch(WANTS);
        let piece = late.next().await.expect("an item").expect("not the end");
        assert!(piece.full && piece.expired && piece.last);
    }

    fn run(story: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        LocalSet::new().block_on(&runtime, story);
    }

    #[test]
    fn what_has_expired_is_said_to_have() {
        run(expiry());
    }

    #[test]
    fn a_watcher_is_told_all_then_changes_and_all_again_if_it_was_too_slow() {
        run(changes());
    }
}
