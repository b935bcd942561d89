//! What is known of a connection of s2n-quic, from its handshake to its end.

use std::{
    fmt,
    net::SocketAddr,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    task::Waker,
};

use holdfast_tls::{
    ALPN_QUIC, Finding,
    rustls::{self, AlertDescription, ClientConfig, ServerConfig, pki_types::CertificateDer},
};
use s2n_quic::connection::Error;
use tokio::sync::{Notify, futures::Notified, watch};

use super::door::lock;
use crate::{Closed, Expected, Failure, Permit, Stats, failure, kept::Kept};

/// Transport errors that carry an alert of TLS (RFC 9001 section 4.8).
const ALERTS: std::ops::RangeInclusive<u64> = 0x100..=0x1ff;
/// RFC 9000 section 20.1.
const NO_ERROR: u64 = 0x0;
const CONNECTION_REFUSED: u64 = 0x2;
const APPLICATION_ERROR: u64 = 0xc;

/// How far a connection has come.
#[derive(Copy, Clone, Debug)]
enum Stage {
    Handshake,
    /// Both sides have judged each other.
    Confirmed,
    /// Without an error: the endpoint is gone.
    Ended(Option<Error>),
}

/// One connection, shared by the library's task and whoever has the connection.
pub(super) struct State {
    /// Where the handshake came from, or went to.
    pub(super) remote: SocketAddr,
    /// Who has to be there.
    pub(super) expected: Expected,
    finding: Finding,
    presented: OnceLock<Vec<CertificateDer<'static>>>,
    lost_packets: AtomicU64,
    smoothed_rtt_us: AtomicU32,
    migrations: watch::Sender<u32>,
    key_updates: AtomicU32,
    stage: watch::Sender<Stage>,
    heard: Notify,
    permit: Mutex<Option<Kept<Box<dyn Permit>>>>,
    taken: AtomicBool,
    given_up: AtomicBool,
    /// Of the connection while it shakes hands.
    waker: Mutex<Option<Waker>>,
}

impl State {
    pub(super) fn new(remote: SocketAddr, expected: Expected) -> Arc<Self> {
        Arc::new(Self {
            remote,
            expected,
            finding: Finding::default(),
            presented: OnceLock::new(),
            lost_packets: AtomicU64::new(0),
            smoothed_rtt_us: AtomicU32::new(0),
            migrations: watch::Sender::new(0),
            key_updates: AtomicU32::new(0),
            stage: watch::Sender::new(Stage::Handshake),
            heard: Notify::new(),
            permit: Mutex::new(None),
            taken: AtomicBool::new(false),
            given_up: AtomicBool::new(false),
            waker: Mutex::new(None),
        })
    }

    /// Of TLS, for this handshake alone: what is found wrong with the peer is noted here.
    pub(super) fn client(&self) -> Option<Arc<ClientConfig>> {
        self.expected.tls.as_ref().map(|tls| tls.client_finding(ALPN_QUIC, &self.finding))
    }

    /// The same for who accepts.
    pub(super) fn server(&self) -> Option<Arc<ServerConfig>> {
        self.expected.tls.as_ref().map(|tls| tls.server_finding(ALPN_QUIC, &self.finding))
    }

    /// What is settled when the handshake is over.
    pub(super) fn hold(&self, permit: Option<Kept<Box<dyn Permit>>>) {
        *lock(&self.permit) = permit;
    }

    /// Nothing has come of it, unless it was taken.
    pub(super) fn release(&self) {
        let permit = lock(&self.permit).take();
        drop(permit);
    }

    /// Whoever listens takes the connection: until then it counts as a handshake, so that those who wait are not too many.
    pub(super) fn take(&self) -> Option<Box<dyn Permit>> {
        self.taken.store(true, Ordering::Relaxed);
        let permit = lock(&self.permit).take();
        permit?.take()
    }

    /// Nobody waits for its handshake any more; nothing if that is over.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
        let waker = lock(&self.waker).take();
        waker.iter().for_each(Waker::wake_by_ref);
    }

    /// Whether nobody waits for its handshake; the waker is woken when that is so.
    pub(super) fn is_given_up(&self, waker: &Waker) -> bool {
        *lock(&self.waker) = Some(waker.clone());
        self.given_up.load(Ordering::Relaxed)
    }

    pub(super) fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Relaxed)
    }

    /// What the peer has shown in the handshake, after it was found good.
    pub(super) fn presents(&self, chain: Vec<Vec<u8>>) {
        // Said once: there are no renegotiations.
        let _ = self.presented.set(chain.into_iter().map(CertificateDer::from).collect());
    }

    /// What has proven who the peer is, in words of the operator; `None`: nothing has.
    pub(super) fn proof(&self) -> Option<String> {
        let presented = self.presented.get().filter(|presented| !presented.is_empty())?;
        Some(self.expected.tls.as_ref()?.proof(presented))
    }

    pub(super) fn confirm(&self) {
        self.stage.send_if_modified(|stage| {
            let first = matches!(stage, Stage::Handshake);
            if first {
                *stage = Stage::Confirmed;
            }
            first
        });
    }

    /// The first end counts. Whether it was one of the handshake.
    pub(super) fn end(&self, error: Option<Error>) -> bool {
        let mut in_handshake = false;
        self.stage.send_if_modified(|stage| {
            in_handshake = matches!(stage, Stage::Handshake);
            let first = !matches!(stage, Stage::Ended(_));
            if first {
                *stage = Stage::Ended(error);
            }
            first
        });
        in_handshake
    }

    /// Waits until the peer has found us good as well (RFC 9001 section 4.1.2).
    pub(super) async fn confirmed(&self) -> Result<(), Failure> {
        match self.later_than(|stage| matches!(stage, Stage::Handshake)).await {
            Stage::Ended(error) => Err(self.failure(error)),
            Stage::Handshake | Stage::Confirmed => Ok(()),
        }
    }

    pub(super) async fn ended(&self) -> Closed {
        match self.later_than(|stage| !matches!(stage, Stage::Ended(_))).await {
            Stage::Ended(error) => closed(error),
            Stage::Handshake | Stage::Confirmed => Closed::Failed(GONE.to_owned()),
        }
    }

    async fn later_than(&self, early: impl Fn(&Stage) -> bool) -> Stage {
        let mut stages = self.stage.subscribe();
        // It only fails without a sender, which is here.
        let stage = stages.wait_for(|stage| !early(stage)).await.map(|stage| *stage);
        stage.unwrap_or(Stage::Ended(None))
    }

    /// The peer has acknowledged something.
    pub(super) fn is_heard(&self) {
        self.heard.notify_waiters();
    }

    /// Waits for that, from now on.
    pub(super) fn heard(&self) -> Notified<'_> {
        self.heard.notified()
    }

    pub(super) fn lost_packet(&self) {
        self.lost_packets.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn round_trip(&self, smoothed: std::time::Duration) {
        let micros = u32::try_from(smoothed.as_micros()).unwrap_or(u32::MAX);
        self.smoothed_rtt_us.store(micros, Ordering::Relaxed);
    }

    pub(super) fn migrated(&self) {
        self.migrations.send_modify(|migrations| *migrations += 1);
    }

    /// Waits until the peer is at another address than before.
    pub(super) async fn moved(&self) {
        // It only fails without a sender, which is here.
        let _ = self.migrations.subscribe().wait_for(|migrations| *migrations > 0).await;
    }

    pub(super) fn keys_updated(&self, generation: u16) {
        self.key_updates.store(u32::from(generation), Ordering::Relaxed);
    }

    pub(super) fn stats(&self) -> Stats {
        Stats {
            lost_packets: self.lost_packets.load(Ordering::Relaxed),
            smoothed_rtt_us: self.smoothed_rtt_us.load(Ordering::Relaxed),
            migrations: *self.migrations.borrow(),
            key_updates: self.key_updates.load(Ordering::Relaxed),
        }
    }

    /// Why there is no connection, after an error of the library in its handshake.
    pub(super) fn failure(&self, error: Option<Error>) -> Failure {
        match self.finding.get() {
            Some(found) => failure::of_tls(found),
            None => of_handshake(error),
        }
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("remote", &self.remote)
            .field("stage", &*self.stage.borrow())
            .finish_non_exhaustive()
    }
}

const GONE: &str = "the endpoint of QUIC has ended";
const ENDED: &str = "the peer ends the connection during its handshake";

fn alert(code: u64) -> Option<AlertDescription> {
    ALERTS.contains(&code).then(|| AlertDescription::from(code as u8))
}

/// Of a handshake in which nothing was found wrong with what the peer shows.
fn of_handshake(error: Option<Error>) -> Failure {
    use AlertDescription as Alert;
    match error {
        None => Failure::Unreachable(GONE.to_owned()),
        Some(Error::MaxHandshakeDurationExceeded { .. } | Error::IdleTimerExpired { .. }) => {
            Failure::TimedOut
        }
        Some(Error::StatelessReset { .. }) => {
            Failure::Refused("the peer knows nothing of the connection".to_owned())
        }
        Some(Error::Transport { code, initiator, .. }) if initiator.is_remote() => match alert(code.as_u64())
        {
            Some(alert) => failure::of_tls(&rustls::Error::AlertReceived(alert)),
            // What an application says before the handshake is done is not told (RFC 9000 section 10.2.3).
            None if matches!(code.as_u64(), NO_ERROR | APPLICATION_ERROR) => {
                Failure::GivenUp(ENDED.to_owned())
            }
            None => Failure::Refused(told(code.as_u64(), &code.to_string())),
        },
        Some(Error::Transport { code, reason, .. }) => match alert(code.as_u64()) {
            Some(Alert::NoApplicationProtocol) => failure::of_tls(&rustls::Error::NoApplicationProtocol),
            Some(Alert::CertificateRequired) => failure::of_tls(&rustls::Error::NoCertificatesPresented),
            Some(alert) if failure::is_about_us(alert) => {
                Failure::Untrusted(format!("what it shows is refused: {reason} ({alert:?})"))
            }
            Some(alert) => Failure::Refused(format!("its TLS is refused: {reason} ({alert:?})")),
            None => Failure::Refused(broken(&code.to_string(), reason)),
        },
        Some(Error::Application { .. } | Error::Closed { .. }) => Failure::GivenUp(ENDED.to_owned()),
        Some(other) => Failure::Unreachable(other.to_string()),
    }
}

/// Of a connection that was established.
fn closed(error: Option<Error>) -> Closed {
    match error {
        None => Closed::Failed(GONE.to_owned()),
        Some(Error::Closed { initiator, .. }) if initiator.is_remote() => Closed::Peer(0, String::new()),
        Some(Error::Application { error, initiator, .. }) if initiator.is_remote() => {
            Closed::Peer(u64::from(error), String::new())
        }
        Some(Error::Closed { .. } | Error::Application { .. }) => Closed::Here,
        Some(Error::StatelessReset { .. }) => Closed::Reset,
        Some(Error::IdleTimerExpired { .. } | Error::MaxHandshakeDurationExceeded { .. }) => Closed::TimedOut,
        Some(Error::Transport { code, initiator, .. }) if initiator.is_remote() => {
            Closed::Failed(match alert(code.as_u64()) {
                Some(alert) => holdfast_tls::explain(&rustls::Error::AlertReceived(alert)),
                None => told(code.as_u64(), &code.to_string()),
            })
        }
        Some(Error::Transport { code, reason, .. }) => Closed::Failed(broken(&code.to_string(), reason)),
        Some(other) => Closed::Failed(other.to_string()),
    }
}

/// A transport error that the peer tells us.
fn told(code: u64, name: &str) -> String {
    match code {
        CONNECTION_REFUSED => "the peer lets nobody in from here (CONNECTION_REFUSED)".to_owned(),
        _ => format!("the peer ends the connection ({name})"),
    }
}

/// A transport error that is found here.
fn broken(name: &str, reason: &str) -> String {
    match reason {
        "" => format!("the peer breaks the rules of QUIC ({name})"),
        reason => format!("the peer breaks the rules of QUIC: {reason} ({name})"),
    }
}

#[cfg(test)]
mod tests {
    use s2n_quic_core::{
        application, crypto::tls, endpoint::Location, frame::ConnectionClose, transport, varint::VarInt,
    };

    use super::*;

    fn ours(error: impl Into<transport::Error>) -> Option<Error> {
        Some(Error::from(error.into()))
    }

    fn theirs(code: u32) -> Option<Error> {
        let frame = ConnectionClose {
            error_code: VarInt::from_u32(code),
            frame_type: Some(VarInt::from_u8(0)),
            reason: None,
        };
        Some(Error::from(frame))
    }

    #[test]
    fn an_alert_is_in_words_whichever_side_sends_it() {
        let unknown_authority = of_handshake(theirs(0x100 + 48));
        assert!(
            matches!(&unknown_authority, Failure::Untrusted(text) if text.contains("refuses our certificate"))
        );
        let no_protocol = of_handshake(theirs(0x100 + 120));
        assert!(matches!(&no_protocol, Failure::Refused(text) if text.contains("that we offer")));
        let no_protocol = of_handshake(ours(tls::Error::NO_APPLICATION_PROTOCOL));
        assert!(matches!(&no_protocol, Failure::Refused(text) if text.contains("spoken here")));
        let expired = of_handshake(ours(tls::Error { code: 45, reason: "invalid certificate" }));
        assert!(matches!(&expired, Failure::Untrusted(text) if text.contains("invalid certificate")));
    }

    #[test]
    fn a_refusal_is_told_from_silence() {
        assert!(matches!(of_handshake(theirs(2)), Failure::Refused(text) if text.contains("lets nobody in")));
        for code in [0, 12] {
            assert_eq!(of_handshake(theirs(code)), Failure::GivenUp(ENDED.to_owned()));
        }
        assert_eq!(of_handshake(Some(Error::idle_timer_expired())), Failure::TimedOut);
        let long = std::time::Duration::from_secs(10);
        assert_eq!(of_handshake(Some(Error::max_handshake_duration_exceeded(long))), Failure::TimedOut);
    }

    #[test]
    fn ends_are_told_apart() {
        let application = |code: u32| Error::application(application::Error::from(code));
        assert_eq!(closed(Some(application(6))), Closed::Here);
        assert_eq!(closed(Some(Error::closed(Location::Local))), Closed::Here);
        let frame = ConnectionClose { error_code: VarInt::from_u32(6), frame_type: None, reason: None };
        assert_eq!(closed(Some(Error::from(frame))), Closed::Peer(6, String::new()));
        assert_eq!(closed(Some(Error::stateless_reset())), Closed::Reset);
        assert_eq!(closed(Some(Error::idle_timer_expired())), Closed::TimedOut);
        assert!(matches!(closed(theirs(4)), Closed::Failed(text) if text.contains("STREAM_LIMIT_ERROR")));
        assert!(
            matches!(closed(ours(transport::Error::STREAM_LIMIT_ERROR)), Closed::Failed(text) if text.contains("breaks"))
        );
    }

    #[test]
    fn the_first_end_counts() {
        let expected = Expected {
            peer: "r1".to_owned(),
            tls: None,
            idle: std::time::Duration::from_secs(90),
            ttl_security: false,
        };
        let state = State::new("192.0.2.1:4242".parse().expect("an address"), expected);
        assert!(state.end(Some(Error::idle_timer_expired())), "in the handshake");
        assert!(!state.end(None));
        state.confirm();
        assert!(matches!(*state.stage.borrow(), Stage::Ended(Some(Error::IdleTimerExpired { .. }))));
    }
}
