//! Clients over TCP: who may connect, and to whom a connection goes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::table::Owner;
use super::{Broker, Finder};
use crate::tcp::{self, GREETING_TIME, Introduction, TcpClient};
use crate::{Channel, Grant, Link, PeerIdentity, XrlError};

/// Connections that have not yet said who they are, for each listener: for one more the oldest is closed.
pub const MOST_UNPROVEN: usize = 64;
/// Connections of one client to the Finder: for one more the oldest is closed.
pub const MOST_OF_CLIENT: usize = 64;
/// Tickets that one caller may hold at a time.
const MOST_TICKETS: usize = 64;
/// A ticket is good for so long.
const TICKET_TIME: Duration = Duration::from_secs(10);
/// Pause after a connection could not be accepted: out of descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Everything that is known of TCP.
#[derive(Default)]
pub(super) struct Door {
    clients: RefCell<Vec<TcpClient>>,
    /// Their connections to the Finder, oldest first.
    open: RefCell<VecDeque<(TcpClient, Channel)>>,
    tickets: RefCell<Vec<Ticket>>,
    listening: RefCell<Vec<SocketAddr>>,
}

/// A connection that a client may make.
struct Ticket {
    client: String,
    caller: Owner,
    target: Owner,
    grant: Grant,
    expires: Instant,
}

impl Finder {
    /// Who may connect over TCP from now on. Connections of others are closed.
    pub fn set_tcp_clients(&self, clients: Vec<TcpClient>) {
        let door = &self.broker.door;
        let gone: Vec<Channel> = {
            let open = door.open.borrow();
            let gone = open.iter().filter(|(client, _)| !clients.contains(client));
            gone.map(|(_, channel)| channel.clone()).collect()
        };
        *door.clients.borrow_mut() = clients;
        gone.iter().for_each(Channel::close);
    }

    /// Serves clients that connect to this listener until dropped.
    pub async fn listen(&self, listener: TcpListener) {
        let _listening = Listening::begin(&self.broker, &listener);
        let mut unproven = VecDeque::<Weak<Notify>>::new();
        let mut greetings = JoinSet::new();
        loop {
            while greetings.try_join_next().is_some() {}
            match listener.accept().await {
                Ok((stream, from)) => {
                    unproven.retain(|other| other.strong_count() > 0);
                    if unproven.len() >= MOST_UNPROVEN
                        && let Some(oldest) = unproven.pop_front().and_then(|oldest| oldest.upgrade())
                    {
                        oldest.notify_one();
                    }
                    let (finder, makes_way) = (self.clone(), Rc::new(Notify::new()));
                    unproven.push_back(Rc::downgrade(&makes_way));
                    greetings.spawn_local(async move { finder.receive(stream, from, makes_way).await });
                    // What it has said with its connection is read before others may take its place.
                    tokio::task::yield_now().await;
                }
                Err(error) => {
                    tracing::warn!(event = "accept-failed", "accepting a connection over tcp: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Asks who has connected, and takes the connection where it is to go.
    async fn receive(&self, mut stream: TcpStream, from: SocketAddr, makes_way: Rc<Notify>) {
        let greeted = tokio::select! {
            greeted = self.admit(&mut stream) => greeted,
            () = tokio::time::sleep(GREETING_TIME) => Err(XrlError::timeout("no hello in time")),
            () = makes_way.notified() => {
                Err(XrlError::unavailable("too many connections that say nothing: try again"))
            }
        };
        drop(makes_way);
        if let Err(error) = greeted {
            tracing::warn!(event = "xrl-refused", %from, "a connection over tcp is refused: {error}");
            let limit = tokio::time::timeout(GREETING_TIME, tcp::refuse(&mut stream, &error));
            // Its outcome does not matter: the connection ends here.
            let _ = limit.await;
        }
    }

    async fn admit(&self, stream: &mut TcpStream) -> Result<(), XrlError> {
        let introduction = tcp::greet(stream).await?;
        let door = &self.broker.door;
        let client = door.clients.borrow().iter().find(|client| client.name == introduction.name).cloned();
        let client = client.filter(|client| introduction.is_proven(&client.secret));
        let client = client.ok_or_else(|| XrlError::denied("unknown client, or not its key"))?;
        let socket = copy(stream)?;
        if introduction.ticket.is_empty() {
            tcp::welcome(stream, &introduction, &client.secret).await?;
            return self.attach_client(socket, client);
        }
        self.connect_client(&introduction, &client, socket).await?;
        tcp::welcome(stream, &introduction, &client.secret).await
    }

    /// A client's connection to the Finder.
    fn attach_client(&self, socket: OwnedFd, client: TcpClient) -> Result<(), XrlError> {
        let link = Link::tcp(socket).map_err(|error| XrlError::internal(error.to_string()))?;
        let TcpClient { name, role, .. } = client.clone();
        // Who only calls may have any name, also that of a component.
        let classes = if role == "operator" { Vec::new() } else { vec![name.clone()] };
        let identity = PeerIdentity { role, instance: name, pid: 0, classes };
        let channel = self.attach_link(link, identity);
        let mut open = self.broker.door.open.borrow_mut();
        open.retain(|(_, channel)| !channel.is_closed());
        let theirs = |(other, _): &(TcpClient, Channel)| other.name == client.name;
        let oldest = match open.iter().filter(|entry| theirs(entry)).count() {
            0..MOST_OF_CLIENT => None,
            _ => open.iter().position(theirs).and_then(|at| open.remove(at)),
        };
        open.push_back((client, channel));
        drop(open);
        if let Some((_, oldest)) = oldest {
            oldest.close();
        }
        Ok(())
    }

    /// A client's connection to a component.
    async fn connect_client(
        &self,
        introduction: &Introduction,
        client: &TcpClient,
        socket: OwnedFd,
    ) -> Result<(), XrlError> {
        let ticket = self.broker.door.take_ticket(&introduction.ticket, &client.name);
        let ticket = ticket.ok_or_else(|| {
            XrlError::denied("a ticket that was not given to this client, was used, or is too old")
        })?;
        let reserved = self.broker.remember_key(&ticket.grant, ticket.caller, ticket.target)?;
        self.broker.accept(ticket.target, &ticket.grant, true, socket).await?;
        reserved.keep();
        Ok(())
    }
}

impl Door {
    /// Where somebody listens.
    pub(super) fn listening(&self) -> Vec<SocketAddr> {
        self.listening.borrow().clone()
    }

    /// Lets a client connect to a target.
    pub(super) fn give_ticket(
        &self,
        client: &str,
        caller: Owner,
        target: Owner,
        grant: Grant,
    ) -> Result<(), XrlError> {
        let now = Instant::now();
        let mut tickets = self.tickets.borrow_mut();
        tickets.retain(|ticket| ticket.expires > now);
        if tickets.iter().filter(|ticket| ticket.caller == caller).count() >= MOST_TICKETS {
            return Err(XrlError::unavailable(format!(
                "the caller has {MOST_TICKETS} tickets that it did not use"
            )));
        }
        let expires = now + TICKET_TIME;
        tickets.push(Ticket { client: client.to_owned(), caller, target, grant, expires });
        Ok(())
    }

    fn take_ticket(&self, key: &[u8], client: &str) -> Option<Ticket> {
        let now = Instant::now();
        let mut tickets = self.tickets.borrow_mut();
        tickets.retain(|ticket| ticket.expires > now);
        let at = tickets.iter().position(|known| known.client == client && known.grant.key.matches(key))?;
        Some(tickets.swap_remove(at))
    }

    /// Tickets of somebody who has gone, and to somebody who has.
    pub(super) fn forget(&self, owner: Owner) {
        self.tickets.borrow_mut().retain(|ticket| ticket.caller != owner && ticket.target != owner);
    }
}

fn copy(stream: &TcpStream) -> Result<OwnedFd, XrlError> {
    use std::os::fd::AsFd;
    stream.as_fd().try_clone_to_owned().map_err(|error| XrlError::unavailable(error.to_string()))
}

/// The address of a listener while it is served.
struct Listening {
    broker: Rc<Broker>,
    address: Option<SocketAddr>,
}

impl Listening {
    fn begin(broker: &Rc<Broker>, listener: &TcpListener) -> Self {
        tracing::info!(event = "xrl-listening", address = tcp::name(listener.local_addr()), "xrl over tcp");
        let address = listener.local_addr().ok();
        broker.door.listening.borrow_mut().extend(address);
        Self { broker: Rc::clone(broker), address }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut listening = self.broker.door.listening.borrow_mut();
        listening.retain(|address| Some(*address) != self.address);
    }
}
