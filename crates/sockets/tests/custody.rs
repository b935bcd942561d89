//! One opener after another, with a keeper between them.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::{fd::OwnedFd, unix::net::UnixStream},
    rc::Rc,
    time::Duration,
};

use holdfast_api::keeper::v1::{Empty, GetRequest, KeeperClient, Kept, ListReply, PutRequest};
use holdfast_sockets::{FdStore, Opener, Peer, Place};
use holdfast_xrl::{
    Channel, Client, Handler, IncomingCall, Node, PeerIdentity, Service, ServiceInfo, XrlError,
};
use rustix::net::{Shutdown, sockopt::socket_cookie};
use tokio::task::LocalSet;

use super::opener::{accept, key, peer};

/// A keeper of descriptors, with the note of each; without one it takes no notes.
#[derive(Clone, Default)]
struct Keeper(Rc<RefCell<Held>>, Rc<RefCell<Vec<Node>>>);

type Held = BTreeMap<String, (OwnedFd, Option<String>)>;

impl Keeper {
    /// An opener in another life of the same process.
    fn opener(&self) -> Opener {
        Opener::new(Place::Here, Some(FdStore::new(self.client(), None)))
    }

    fn client(&self) -> KeeperClient {
        let (node, (near, far)) = (Node::new("keeper"), UnixStream::pair().expect("sockets"));
        node.serve(Self(Rc::clone(&self.0), Rc::default()));
        node.attach(far.into(), PeerIdentity::new("fea")).expect("attached");
        self.1.borrow_mut().push(node);
        KeeperClient::new(Channel::connect(near.into()).expect("connected"))
    }

    fn keys(&self) -> Vec<String> {
        self.0.borrow().keys().cloned().collect()
    }

    fn list(&self) -> ListReply {
        let kept = self.0.borrow();
        let tell = |(key, (_, note)): (&String, &(OwnedFd, Option<String>))| Kept {
            key: key.clone(),
            note: note.clone(),
            ..Kept::default()
        };
        ListReply { kept: kept.iter().map(tell).collect() }
    }
}

impl Service for Keeper {
    fn info(&self) -> &'static ServiceInfo {
        KeeperClient::SERVICE
    }

    fn dispatch(&self, call: IncomingCall<'_>) -> Handler {
        let kept = Rc::clone(&self.0);
        match call.method() {
            KeeperClient::LIST => {
                let list = self.list();
                call.unary(|_, _: Empty, _| async { Ok((list, Vec::new())) })
            }
            KeeperClient::PUT => call.unary(|_, request: PutRequest, fds| async move {
                let socket = fds.into_iter().next().expect("a descriptor");
                kept.borrow_mut().insert(request.key, (socket, Some(request.note)));
                Ok((Empty {}, Vec::new()))
            }),
            KeeperClient::GET => call.unary(|_, request: GetRequest, _| async move {
                let kept = kept.borrow();
                let (socket, _) = kept.get(&request.key).ok_or_else(|| XrlError::not_found(request.key))?;
                Ok((Empty {}, vec![socket.try_clone().expect("a copy")]))
            }),
            KeeperClient::DROP => call.unary(|_, request: GetRequest, _| async move {
                kept.borrow_mut().remove(&request.key);
                Ok((Empty {}, Vec::new()))
            }),
            other => panic!("nobody asks for {other}"),
        }
    }
}

/// Tells an opener its peers, and has it listen there.
async fn listen(opener: &mut Opener, peers: &[Peer], address: SocketAddr) -> OwnedFd {
    let listen = BTreeSet::from([(address, false)]);
    opener.configure(peers.iter().cloned(), Vec::new(), &listen).await.expect("configured");
    opener.listen(address, false).await.expect("listening")
}

fn address() -> SocketAddr {
    super::opener::free_port(Ipv4Addr::LOCALHOST)
}

/// Whether a connection from there comes about that is signed with this key, if one is given.
async fn connects(from: Ipv4Addr, md5: Option<&str>, to: SocketAddr) -> bool {
    let mut opener = Opener::new(Place::Here, None);
    let server = Peer { local: Some(from.into()), md5: md5.and_then(key), ..peer("a", to.ip(), to.port()) };
    opener.configure([server], Vec::new(), &BTreeSet::new()).await.expect("configured");
    let dialled = opener.dial("a", |_| None).await.expect("dialling");
    super::opener::settle(dialled).is_ok()
}

#[tokio::test]
async fn the_next_opener_goes_on_with_the_same_socket_and_other_keys() {
    let story = async {
        let (keeper, address) = (Keeper::default(), address());
        let [one, two, three] = [1, 2, 3].map(|host| Ipv4Addr::new(127, 0, 7, host));
        let with = |from: Ipv4Addr, text: Option<&str>| Peer {
            md5: text.and_then(key),
            ..peer(&from.to_string(), from, 1)
        };
        let before = [with(one, Some("1")), with(two, Some("2")), with(three, None)];
        let first = listen(&mut keeper.opener(), &before, address).await;
        let cookie = socket_cookie(&first).expect("a cookie");
        drop(first);
        let waiting = TcpStream::connect_timeout(&address, Duration::from_millis(300));
        assert!(waiting.is_err(), "a stranger is not answered");
        assert!(connects(three, None, address).await, "nobody has it but the keeper");

        let after = [with(one, None), with(two, Some("other")), with(three, Some("3"))];
        let mut opener = keeper.opener();
        let second = listen(&mut opener, &after, address).await;
        assert_eq!(socket_cookie(&second), Ok(cookie), "the same");
        accept(&second.into());
        assert!(connects(one, None, address).await, "its key is taken away");
        assert!(!connects(two, Some("2"), address).await, "its key is another");
        assert!(connects(two, Some("other"), address).await);
        assert!(!connects(three, None, address).await, "it has a key now");
        assert!(connects(three, Some("3"), address).await);
    };
    LocalSet::new().run_until(story).await;
}

#[tokio::test]
async fn what_is_not_configured_any_more_is_closed_for_good() {
    let story = async {
        let (keeper, address, other) = (Keeper::default(), address(), address());
        listen(&mut keeper.opener(), &[peer("a", Ipv4Addr::LOCALHOST, 1)], address).await;
        assert_eq!(keeper.keys(), [format!("listener-{address}")]);
        listen(&mut keeper.opener(), &[peer("a", Ipv4Addr::LOCALHOST, 1)], other).await;
        assert_eq!(keeper.keys(), [format!("listener-{other}")]);
        assert!(TcpStream::connect(address).is_err(), "closed");
    };
    LocalSet::new().run_until(story).await;
}

#[tokio::test]
async fn what_cannot_be_used_again_is_opened_anew() {
    let story = async {
        let (keeper, address) = (Keeper::default(), address());
        let peers = [peer("a", Ipv4Addr::LOCALHOST, 1)];
        let first = listen(&mut keeper.opener(), &peers, address).await;
        rustix::net::shutdown(&first, Shutdown::Read).expect("it listened");
        let second = listen(&mut keeper.opener(), &peers, address).await;
        assert_ne!(socket_cookie(&second), socket_cookie(&first), "the first was ended");
        drop(first);
        // A keeper that takes no notes: nobody knows which keys there are.
        keeper.0.borrow_mut().values_mut().for_each(|(_, note)| *note = None);
        let cookie = socket_cookie(&second);
        drop(second);
        let third = listen(&mut keeper.opener(), &peers, address).await;
        assert_ne!(socket_cookie(&third), cookie, "its keys are not known");
        assert!(TcpStream::connect(address).is_ok());
    };
    LocalSet::new().run_until(story).await;
}

#[tokio::test]
async fn listeners_of_a_vrf_go_with_it_and_others_stay() {
    let story = async {
        let (keeper, address) = (Keeper::default(), address());
        listen(&mut keeper.opener(), &[peer("a", Ipv4Addr::LOCALHOST, 1)], address).await;
        let copy = keeper.0.borrow().values().next().map(|(socket, _)| socket.try_clone().expect("a copy"));
        let copy = copy.expect("it is kept");
        for key in [format!("plain-{address}@blue"), format!("plain-{address}@red"), "log@blue".to_owned()] {
            keeper.0.borrow_mut().insert(key, (copy.try_clone().expect("a copy"), None));
        }
        FdStore::keep_vrfs(&keeper.client(), |vrf| vrf == "red").await.expect("told");
        let left = ["listener-".to_owned() + &address.to_string(), "log@blue".to_owned()];
        assert_eq!(keeper.keys(), [&left[..], &[format!("plain-{address}@red")]].concat());
    };
    LocalSet::new().run_until(story).await;
}
