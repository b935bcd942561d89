//! Protocols that others start: each has a socket of its own, and whoever connects there is of that class.
//!
//! The socket says who one is, so its file's mode, owner and group are the lock. A protocol registers at the Finder and
//! calls what the role `protocol` may; it speaks in the name of its class only.

use std::{cell::RefCell, collections::BTreeMap, os::fd::OwnedFd, rc::Rc, time::Duration};

use holdfast_api::keeper::v1::{Empty, ListenRequest, UnlistenRequest};
use holdfast_config::{Config, schema::Protocol};
use holdfast_process::{PROTOCOL, spawn_task};
use holdfast_xrl::{Channel, Finder, PeerIdentity, XrlError};
use tokio::{
    net::{UnixListener, UnixStream},
    task::AbortHandle,
};
use tracing::{info, warn};

use crate::manager::Manager;

/// Pause after a connection could not be accepted: out of descriptors, most likely.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How the keeper calls such a socket, before its protocol's name.
const SOCKET: &str = "protocol-";
/// Connections that one protocol may have at a time; one more is closed at once.
const MOST_CONNECTIONS: usize = 16;

/// The sockets that are open, by name.
#[derive(Debug, Default)]
pub(crate) struct Protocols {
    open: BTreeMap<String, Open>,
}

#[derive(Debug)]
struct Open {
    configured: Protocol,
    accepting: AbortHandle,
    connections: Connections,
}

type Connections = Rc<RefCell<Vec<Channel>>>;

/// Those that somebody else starts.
fn sockets(config: &Config) -> impl Iterator<Item = &Protocol> {
    config.protocols.iter().filter(|protocol| protocol.descriptor.is_none())
}

/// Opens the sockets that are configured and closes the others, with the connections made there; what could not be done.
pub(crate) async fn follow(manager: &Manager) -> Vec<String> {
    let wanted = manager.config();
    let same = |open: &Open| {
        let owners = |protocol: &Protocol| (protocol.user.clone(), protocol.group.clone());
        let now = sockets(&wanted).find(|now| now.name == open.configured.name);
        now.is_some_and(|now| owners(now) == owners(&open.configured))
    };
    let gone = manager.protocols.borrow_mut().open.extract_if(.., |_, open| !same(open)).collect::<Vec<_>>();
    for (name, open) in gone {
        close(manager, name, &open).await;
    }
    forget(manager).await;
    let mut problems = Vec::new();
    for protocol in sockets(&wanted) {
        if manager.protocols.borrow().open.contains_key(&protocol.name) {
            continue;
        }
        match listen(manager, protocol).await {
            Ok(open) => drop(manager.protocols.borrow_mut().open.insert(protocol.name.clone(), open)),
            Err(error) => {
                warn!(
                    event = "protocol-failed",
                    protocol = protocol.name,
                    "has no socket: {}",
                    error.message()
                );
                problems.push(format!("protocol {}: {}", protocol.name, error.message()));
            }
        }
    }
    problems
}

/// Has the keeper close sockets that the manager before had and that are not configured any more.
async fn forget(manager: &Manager) {
    let Ok(kept) = manager.keeper.list(Empty {}).await else { return };
    let wanted = manager.config();
    let names = kept.kept.iter().filter(|kept| kept.owner == "manager");
    let names = names.filter_map(|kept| kept.key.strip_prefix(SOCKET));
    for name in names.filter(|name| sockets(&wanted).all(|protocol| protocol.name != **name)) {
        let closed = manager.keeper.unlisten(UnlistenRequest { name: name.to_owned() }).await;
        if let Err(error) = closed {
            warn!(event = "protocol-failed", protocol = name, "the keeper does not close it: {error}");
        }
    }
}

async fn close(manager: &Manager, name: String, open: &Open) {
    open.accepting.abort();
    open.connections.borrow().iter().for_each(Channel::close);
    info!(event = "protocol-removed", protocol = name, "its socket is closed");
    if let Err(error) = manager.keeper.unlisten(UnlistenRequest { name }).await {
        warn!(event = "protocol-failed", "the keeper does not close it: {error}");
    }
}

async fn listen(manager: &Manager, protocol: &Protocol) -> Result<Open, XrlError> {
    let request = ListenRequest {
        name: protocol.name.clone(),
        user: protocol.user.clone().unwrap_or_default(),
        group: protocol.group.clone().unwrap_or_default(),
    };
    let (_, descriptors) = manager.keeper.listen(request).await?;
    let listener = descriptors.into_iter().next().ok_or_else(|| XrlError::internal("no descriptor came"))?;
    let listener =
        UnixListener::from_std(listener.into()).map_err(|error| XrlError::internal(error.to_string()))?;
    let connections = Connections::default();
    let accepting = accept(listener, protocol.name.clone(), manager.finder.clone(), Rc::clone(&connections));
    let accepting = spawn_task(accepting).abort_handle();
    Ok(Open { configured: protocol.clone(), accepting, connections })
}

async fn accept(listener: UnixListener, name: String, finder: Finder, connections: Connections) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => admit(stream, &name, &finder, &mut connections.borrow_mut()),
            Err(error) => {
                warn!(event = "accept-failed", protocol = name, "accepting a connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Attaches a program that the router has started to the Finder, as often as one that comes by a socket may be.
pub(crate) fn adopt(manager: &Manager, name: &str, pid: u32, descriptor: OwnedFd) -> Result<(), XrlError> {
    let mut connections = manager.outsiders.borrow_mut();
    connections.retain(|(_, channel)| !channel.is_closed());
    if connections.iter().filter(|(of, _)| of == name).count() >= MOST_CONNECTIONS {
        return Err(XrlError::unavailable(format!("{name} has {MOST_CONNECTIONS} connections already")));
    }
    let identity = PeerIdentity { role: PROTOCOL.into(), ..PeerIdentity::new(name).pid(pid) };
    let attached = manager.finder.attach(descriptor, identity);
    let channel = attached.map_err(|error| XrlError::internal(error.to_string()))?;
    connections.push((name.to_owned(), channel));
    Ok(())
}

fn admit(stream: UnixStream, name: &str, finder: &Finder, connections: &mut Vec<Channel>) {
    connections.retain(|channel| !channel.is_closed());
    if connections.len() >= MOST_CONNECTIONS {
        return warn!(
            event = "connection-refused",
            protocol = name,
            "connection refused: it has {MOST_CONNECTIONS} already"
        );
    }
    let pid = stream.peer_cred().ok().and_then(|peer| peer.pid()).and_then(|pid| u32::try_from(pid).ok());
    let identity = PeerIdentity {
        role: PROTOCOL.into(),
        pid: pid.unwrap_or(0),
        classes: vec![name.to_owned()],
        ..PeerIdentity::default()
    };
    match stream.into_std().and_then(|stream| finder.attach(stream.into(), identity)) {
        Ok(channel) => connections.push(channel),
        Err(error) => warn!(event = "accept-failed", protocol = name, "a connection: {error}"),
    }
}
