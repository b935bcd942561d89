//! Who signs, as the process `pathsec` does: here a test plays that.

use std::{cell::RefCell, rc::Rc};

use holdfast_api::{
    bgp::v1 as api,
    pathsec::v1::{self as pathsec, PathSecClient},
};
use holdfast_bgp_wire::{Capability, KEEPALIVE, MessageType, Open, next_message};
use holdfast_types::{Afi, Asn, Family, RouterId};
use holdfast_xrl::{Client, Handler, IncomingCall, Link, Node, PeerIdentity, Service, ServiceInfo, XrlError};
use tokio::{io::AsyncWriteExt, net::TcpStream, sync::mpsc};

use super::process::{Kept, Scene, configuration, run, until};
use crate::config::before;

/// Several windows of a walk.
const NETWORKS: usize = 500;

/// Where the names of keys go to whoever watches.
type Watcher = Rc<RefCell<Option<mpsc::UnboundedSender<pathsec::Signers>>>>;

/// A process `pathsec` that has the keys that the test says.
struct PathSec(Watcher);

impl Service for PathSec {
    fn info(&self) -> &'static ServiceInfo {
        PathSecClient::SERVICE
    }

    fn dispatch(&self, call: IncomingCall<'_>) -> Handler {
        let watcher = Rc::clone(&self.0);
        match call.method() {
            PathSecClient::WATCH_SIGNERS => {
                call.streaming(|_, _: pathsec::Empty, _, mut replies| async move {
                    let (sender, mut told) = mpsc::unbounded_channel();
                    *watcher.borrow_mut() = Some(sender);
                    while let Some(signers) = told.recv().await {
                        replies.send(signers).await?;
                    }
                    Err::<(), _>(XrlError::unavailable("gone"))
                })
            }
            PathSecClient::SIGN => call.unary(|_, asked: pathsec::SignRequest, _| async move {
                let signatures = asked.jobs.iter().map(|job| job.ski[..8].to_vec()).collect();
                Ok((pathsec::SignReply { signatures }, Vec::new()))
            }),
            _ => call.unknown(),
        }
    }
}

/// A peer that takes signed paths is told of our networks.
fn told() -> api::Configuration {
    let mut message = configuration("a", 65_001, &[]);
    message.peers[0].export = "accept-all".into();
    let mut peer = before::peer(&message.peers[0]).expect("sound");
    peer.bgpsec.send = true;
    message.peers[0].settings = serde_json::to_vec(&peer).expect("JSON");
    let network = |at: usize| api::Network { prefix: format!("10.{}.{}.0/24", at / 256, at % 256) };
    message.networks = (0..NETWORKS).map(network).collect();
    // All of them in half a second.
    message.signing = Some(api::Signing { kept_signatures: 10_000, rate: 1000, pace_seconds: None });
    message
}

fn greeting() -> Vec<u8> {
    let asn = Asn(65_001);
    let capabilities = vec![
        Capability::Multiprotocol(Family::IPV4_UNICAST),
        Capability::FourOctetAs(asn),
        Capability::Bgpsec { version: 0, send: false, afi: Afi::IPV4 },
    ];
    let router_id = RouterId::new(0x0a00_0002).expect("not 0");
    [Open { asn, hold_time: 90, router_id, capabilities }.encode(), KEEPALIVE.to_vec()].concat()
}

/// How many UPDATEs have come that are signed with this key.
fn signed(stream: &TcpStream, heard: &mut Vec<u8>, ski: u8) -> usize {
    let mut octets = [0; 65_536];
    while let Ok(count @ 1..) = stream.try_read(&mut octets) {
        heard.extend_from_slice(&octets[..count]);
    }
    let (mut rest, mut found) = (&heard[..], 0);
    while let Some(message) = next_message(rest, 4096).expect("good ones") {
        let is_signed = message.body.windows(20).any(|octets| octets == [ski; 20]);
        found += usize::from(message.kind == MessageType::Update && is_signed);
        rest = &rest[message.wire.len()..];
    }
    found
}

#[test]
fn with_another_key_all_is_signed_again_while_nothing_else_happens() {
    run(async {
        let mut scene = Scene::new(Kept::new());
        let door = scene.door(Node::new("transport")).await;
        let (node, watcher) = (Node::new("pathsec"), Watcher::default());
        node.serve(PathSec(Rc::clone(&watcher)));
        let (near, far) = Link::pair();
        scene.finder.attach_link(far, PeerIdentity::new("pathsec").class("pathsec"));
        node.join_link(near).await.expect("registered");
        scene.configure("bgp", told()).await.expect("taken");
        let mut stream = door.tcp("a").await;
        stream.write_all(&greeting()).await.expect("room in the socket");
        until("somebody watches", async || watcher.borrow().is_some()).await;
        let mut heard = Vec::new();
        for ski in 1..4 {
            let key = pathsec::Signer { asn: 65_000, ski: vec![ski; 20], suite: 1 };
            let keys = pathsec::Signers { keys: vec![key] };
            watcher.borrow().as_ref().expect("it watches").send(keys).expect("it listens");
            until("all is signed", async || signed(&stream, &mut heard, ski) == NETWORKS).await;
        }
    });
}
