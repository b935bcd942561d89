//! The door of one table: who is configured, where it listens, and who has come in.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    net::SocketAddr,
    os::fd::OwnedFd,
    rc::Rc,
    time::Instant,
};

use holdfast_admission::RefusalLog;
use holdfast_api::{
    socket::v1::SocketClient,
    transport::v1::{Configuration, Connection, TransportClient},
};
use holdfast_process::{
    Boot, Checks, OLD_TRANSPORT, Prepared, Refusal, Resolver, log::Limits, serve_preparation, spawn_task,
};
use holdfast_tls::{PeerTls, Seeds};
use holdfast_transport::Protocol;
use holdfast_xrl::{Node, XrlError, scoped};
use tokio::{
    sync::{Notify, futures::Notified, watch},
    task::AbortHandle,
};
use tracing::{Instrument, Span, info};

use crate::{
    admission::{Admission, MOST_LINES},
    carried::Carrying,
    entry::Entry,
    handover::Handover,
    peers::{Peer, Peers, listening},
    plain::{self, Plain},
    quic::Dialer,
    shared::Shared,
};

/// Everything that there is for one table.
pub(crate) struct ConnectionBroker {
    resolver: Resolver,
    pub(crate) shared: Rc<Shared>,
    /// The class of whoever opens sockets for this table.
    sockets: String,
    /// That of one that has retired.
    retired_class: String,
    /// Names the VRF in each line of the log.
    span: Span,
    peers: RefCell<Rc<Peers>>,
    /// What the peers' configurations of TLS were made of.
    material: RefCell<Material>,
    admission: RefCell<Rc<Admission>>,
    /// How many lines there may be about who is refused.
    refusals: RefCell<RefusalLog>,
    plain: RefCell<Vec<Plain>>,
    /// Ports of QUIC that are not 0, by either library.
    quic: RefCell<Vec<(Protocol, u16)>>,
    configured: watch::Sender<bool>,
    pub(crate) listeners: RefCell<BTreeMap<(Protocol, SocketAddr), Open>>,
    /// Listeners of QUIC that let nobody in any more, and are there for their connections; `None`: it has not retired.
    retired: RefCell<Option<Vec<Open>>>,
    pub(crate) handover: RefCell<Handover>,
    /// Connections whose octets come about here.
    pub(crate) carried: Carrying,
    /// What connections of QUIC are made from, by where that is.
    pub(crate) dialers: RefCell<BTreeMap<(Protocol, SocketAddr), Rc<Dialer>>>,
    /// Somebody waits to be taken, or another one takes from now on.
    pub(crate) offered: Notify,
    /// The place of the sockets is another one under the same name.
    moved: Notify,
    /// One of them has been taken, or closed.
    pub(crate) taken: Notify,
    /// Who takes: the last one who has asked.
    taker: Cell<u64>,
    /// Of each peer and range that has failed lately, which of its transports is tried first next time.
    pub(crate) next: RefCell<BTreeMap<String, usize>>,
    /// Lines that somebody outside can have us write.
    lines: RefCell<Limits>,
}

/// Our certificates, and which private key and log there were.
type Material = (Vec<Vec<u8>>, u64);

/// A place where peers are expected.
pub(crate) struct Open {
    pub(crate) entry: Rc<Entry>,
    pub(crate) task: AbortHandle,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What a configuration says.
struct Wanted {
    peers: Vec<Peer>,
    certificates: Vec<Vec<u8>>,
    admission: Admission,
    quic: Vec<(Protocol, u16)>,
    expected: Vec<SocketAddr>,
    plain: Vec<Plain>,
}

impl TryFrom<Configuration> for Wanted {
    type Error = XrlError;

    fn try_from(request: Configuration) -> Result<Self, XrlError> {
        let invalid = |text: String| XrlError::invalid_argument(text);
        let peers: Result<Vec<Peer>, _> = request.peers.into_iter().map(Peer::try_from).collect();
        let peers = peers.map_err(|error| invalid(error.to_string()))?;
        let admission = Admission::new(request.admission.unwrap_or_default(), &peers).map_err(invalid)?;
        let port = |port| u16::try_from(port).map_err(|_| invalid("the port is over 65535".to_owned()));
        let mut quic = vec![
            (Protocol::Quic, port(request.quic_port)?),
            (Protocol::QuicS2n, port(request.quic_s2n_port)?),
        ];
        quic.retain(|(_, port)| *port != 0);
        let (mut expected, mut plain) = (Vec::new(), Vec::new());
        for request in request.listen {
            let address = listening(&request)?;
            match request.plain {
                true => plain.push(Plain { address, role: request.role }),
                false => expected.push(address),
            }
        }
        Ok(Self { peers, certificates: request.certificates, admission, quic, expected, plain })
    }
}

/// Whether a configuration could take effect. What its certificates prove is not looked at: their private key comes with the
/// configuration only, and `check` has compared the two.
fn check(request: Configuration) -> Result<(), Refusal> {
    Wanted::try_from(request)?;
    Ok(())
}

/// Has the manager ask what this table says of another configuration.
pub(crate) fn serve_checks(node: &Node) {
    serve_preparation(node, Checks::default().of::<TransportClient>(check), Prepared::default());
}

impl ConnectionBroker {
    /// Of the process, or of the instance that this is for. Nobody is let in before it is configured.
    pub(crate) fn open(boot: &Boot, shared: Rc<Shared>) -> Rc<Self> {
        Rc::new(Self {
            resolver: boot.resolver.clone(),
            shared,
            sockets: scoped("socket", boot.vrf.as_deref()),
            retired_class: scoped(OLD_TRANSPORT, boot.vrf.as_deref()),
            span: boot.span(),
            peers: RefCell::default(),
            material: RefCell::default(),
            admission: RefCell::default(),
            refusals: RefCell::new(RefusalLog::new(MOST_LINES)),
            plain: RefCell::default(),
            quic: RefCell::default(),
            configured: watch::Sender::new(false),
            listeners: RefCell::default(),
            retired: RefCell::default(),
            handover: RefCell::default(),
            carried: Carrying::default(),
            dialers: RefCell::default(),
            offered: Notify::new(),
            moved: Notify::new(),
            taken: Notify::new(),
            taker: Cell::new(0),
            next: RefCell::default(),
            lines: RefCell::default(),
        })
    }

    /// Listens no more.
    pub(crate) fn close(&self) {
        self.listeners.borrow_mut().clear();
        self.dialers.borrow_mut().clear();
        self.peers.take();
    }

    /// Gives its place up: nobody is let in or dialled any more, and who waits to be taken is lost. What is carried
    /// goes on; listeners of QUIC have others at their ports from now on.
    pub(crate) fn retire(&self) {
        let listeners = self.listeners.take().into_values();
        let retired = listeners.filter(|open| open.entry.retire()).collect();
        self.retired.replace(Some(retired));
        self.close();
        self.handover.take();
        self.taken.notify_waiters();
    }

    /// Whether it has.
    pub(crate) fn is_retired(&self) -> bool {
        self.retired.borrow().is_some()
    }

    /// Replaces what is known of peers, and where it listens.
    ///
    /// # Errors
    /// `InvalidArgument` for what makes no sense; then nothing has changed.
    pub(crate) fn configure(self: &Rc<Self>, request: Configuration) -> Result<(), XrlError> {
        let Wanted { mut peers, certificates, admission, quic, expected, plain } = request.try_into()?;
        let material = (certificates, self.shared.secrets.version());
        self.have_proven(&mut peers, &material).map_err(XrlError::invalid_argument)?;
        let peers = Peers::new(peers);
        info!(event = "transport-configured", peers = peers.len(), "peers configured");
        self.next.borrow_mut().retain(|name, _| peers.named(name).is_some());
        let known = self.peers();
        self.carried.rename(|name| Some(peers.at_place_of(known.named(name)?)?.name.clone()));
        self.material.replace(material);
        self.peers.replace(Rc::new(peers));
        self.plain.replace(plain);
        self.refusals.replace(RefusalLog::new(admission.numbers.log_per_second));
        self.admission.replace(Rc::new(admission));
        self.dialers.borrow_mut().retain(|_, dialer| dialer.filter(&self.peers()));
        self.listen_at(&expected, &quic);
        self.quic.replace(quic);
        self.configured.send_replace(true);
        Ok(())
    }

    /// Makes configurations of TLS for the peers that need one. What has not changed stays as it is.
    fn have_proven(&self, peers: &mut [Peer], material: &Material) -> Result<(), String> {
        if !peers.iter().any(Peer::has_to_prove) {
            return Ok(());
        }
        let identity = self.shared.secrets.identity(&material.0).map_err(|error| error.to_string())?;
        let identity = identity.ok_or("there is no private key of ours")?;
        let (known, log) = (self.peers(), self.shared.secrets.key_log());
        let is_same = *self.material.borrow() == *material;
        for peer in peers.iter_mut().filter(|peer| peer.has_to_prove()) {
            let before = known.named(&peer.name).filter(|before| is_same && before.trust == peer.trust);
            peer.tls = before.and_then(|before| before.tls.clone());
            if peer.tls.is_none() {
                let made = PeerTls::new(&identity, &peer.trust, log.as_ref());
                peer.tls = Some(made.map_err(|error| format!("peer `{}`: {error}", peer.name))?);
            }
        }
        Ok(())
    }

    /// A task of this table.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + 'static) -> AbortHandle {
        spawn_task(task.instrument(self.span.clone())).abort_handle()
    }

    /// Names the VRF in each line of the log.
    pub(crate) fn span(&self) -> Span {
        self.span.clone()
    }

    /// Takes private keys, seeds, and where secrets of sessions are written.
    ///
    /// # Errors
    /// `InvalidArgument` for what cannot be read.
    pub(crate) fn keep(&self, descriptors: Vec<OwnedFd>) -> Result<(), XrlError> {
        self.shared.secrets.keep(descriptors)?;
        let seeds = self.seeds().borrow().clone();
        self.dialers.borrow().values().for_each(|dialer| dialer.set_seeds(&seeds));
        Ok(())
    }

    /// Where this is spoken, if it is.
    pub(crate) fn quic_port(&self, protocol: Protocol) -> Option<u16> {
        self.quic.borrow().iter().find(|(spoken, _)| *spoken == protocol).map(|(_, port)| *port)
    }

    /// What keys of QUIC derive from.
    pub(crate) fn seeds(&self) -> watch::Receiver<Seeds> {
        self.shared.secrets.seeds()
    }

    /// How it is decided who is let in.
    pub(crate) fn admission(&self) -> Rc<Admission> {
        Rc::clone(&self.admission.borrow())
    }

    /// Somebody was refused: with how many since the last line, if there is to be one about it.
    pub(crate) fn refused(&self, now: Instant) -> Option<u64> {
        self.refusals.borrow_mut().refused(now)
    }

    /// Waits for the first configuration.
    pub(crate) async fn is_configured(&self) {
        // The sender lives as long as we do: this cannot fail.
        let _ = self.configured.subscribe().wait_for(|configured| *configured).await;
    }

    /// Whoever opens sockets.
    pub(crate) async fn sockets(&self) -> Result<SocketClient, XrlError> {
        self.resolver.client(&self.sockets).await
    }

    /// The one whose place this one has taken, for the same table.
    pub(crate) async fn retired_one(&self) -> Result<TransportClient, XrlError> {
        self.resolver.client(&self.retired_class).await
    }

    /// Whoever opens sockets, as soon as it is there.
    pub(crate) async fn wait_for_sockets(&self) -> Result<SocketClient, XrlError> {
        self.resolver.wait_for(&self.sockets).await
    }

    /// Who is configured.
    pub(crate) fn peers(&self) -> Rc<Peers> {
        Rc::clone(&self.peers.borrow())
    }

    /// Where it listens.
    pub(crate) fn entries(&self) -> Vec<Rc<Entry>> {
        self.listeners.borrow().values().map(|open| Rc::clone(&open.entry)).collect()
    }

    /// Whether a role may listen there; the first configuration is waited for.
    pub(crate) async fn admit_plain(
        &self,
        role: &str,
        address: SocketAddr,
        plain: bool,
    ) -> Result<(), XrlError> {
        if plain && role != "manager" {
            self.is_configured().await;
        }
        plain::admit(&self.plain.borrow(), role, address, plain)
    }

    /// Whether a line about this name may be written now.
    pub(crate) fn may_log(&self, name: &str) -> bool {
        self.lines.borrow_mut().may_write(name, Instant::now())
    }

    /// A listening socket was ended: the device or the namespace that it was at is another one now, and sockets of datagrams
    /// of the same place are not told.
    pub(crate) fn has_moved(&self) {
        self.dialers.borrow_mut().clear();
        self.moved.notify_waiters();
    }

    /// Waits for that.
    pub(crate) fn moves(&self) -> Notified<'_> {
        self.moved.notified()
    }

    /// Waits until one more may wait to be taken: until then who comes waits in the kernel.
    pub(crate) async fn has_room(&self) {
        loop {
            let taken = self.taken.notified();
            if self.handover.borrow().has_room() {
                return;
            }
            taken.await;
        }
    }

    /// Somebody takes what comes in from now on, and nobody else.
    pub(crate) fn begin_taking(&self) -> u64 {
        self.taker.set(self.taker.get() + 1);
        self.offered.notify_waiters();
        self.taker.get()
    }

    /// The next connection for the taker of this number; `None` when another one takes now.
    pub(crate) async fn take(&self, taker: u64) -> Option<(Connection, OwnedFd)> {
        loop {
            let offered = self.offered.notified();
            if self.taker.get() != taker {
                return None;
            }
            let handed = self.handover.borrow_mut().take(Instant::now());
            if handed.is_some() {
                self.taken.notify_waiters();
                return handed;
            }
            offered.await;
        }
    }
}
