//! Signatures of processes that follow each other.

use std::os::{fd::OwnedFd, unix::net::UnixStream};

use holdfast_nsr::SignatureName;
use holdfast_sys::memory::SharedMemory;
use holdfast_types::Asn;

use super::process::{Scene, configuration, run, until};
use crate::{
    config::{Peers, Policies},
    custody::FdStore,
    kept_signatures::{KeptSignatures, open},
};

/// More than any test keeps.
const MOST: usize = 1000;

fn peers(send: bool) -> Peers {
    let read = Policies::default().read_at_once(configuration("a", 65_001, &[]), None);
    let mut peers = read.expect("a configuration").0.peers;
    peers.neighbors[0].source.bgpsec.send = send;
    peers
}

fn name() -> SignatureName {
    SignatureName { prefix: "192.0.2.0/24".parse().expect("a prefix"), target: Asn(65_001), slot: 0 }
}

async fn opened(custody: &FdStore) -> KeptSignatures {
    open(custody, &peers(true), MOST).await.expect("a keeper").expect("a peer is sent some")
}

/// What the keeper holds of ours.
fn kept(scene: &Scene) -> Vec<String> {
    scene.kept.borrow().keys().filter(|key| key.starts_with("signatures")).cloned().collect()
}

/// The process with a VRF, and what the keeper holds for both.
async fn both(scene: &Scene) -> [FdStore; 2] {
    scene.configure("bgp", configuration("a", 65_001, &["blue"])).await.expect("taken");
    scene.configure("bgp@blue", configuration("a", 65_001, &[])).await.expect("taken");
    let blue = scene.server.vrfs().expect("VRFs").servers().remove(0);
    [scene.server.bgp(), blue.bgp()].map(|bgp| bgp.expect("it runs").surroundings.custody.clone())
}

#[test]
fn each_table_finds_its_own_signatures_again_until_its_vrf_goes() {
    run(async {
        let scene = Scene::new(Default::default());
        let custodies = both(&scene).await;
        for (custody, octets) in custodies.iter().zip([&b"default"[..], b"blue"]) {
            let mut signatures = opened(custody).await;
            assert!(signatures.is_empty() && signatures.keep(name(), 1, octets, &mut |_| true));
        }
        assert_eq!(kept(&scene), ["signatures", "signatures@blue"]);
        for (custody, octets) in custodies.iter().zip([&b"default"[..], b"blue"]) {
            let signatures = opened(custody).await;
            assert_eq!((signatures.get(&name(), 1), signatures.most()), (Some(octets), MOST));
        }
        scene.configure("bgp", configuration("a", 65_001, &[])).await.expect("taken");
        let is_of_blue = |name: &String| name == "signatures@blue";
        until("those of blue are given back", async || !kept(&scene).iter().any(is_of_blue)).await;
    });
}

#[test]
fn nothing_is_kept_where_no_peer_is_sent_signatures() {
    run(async {
        let scene = Scene::new(Default::default());
        let [custody, blue] = both(&scene).await;
        assert!(opened(&custody).await.is_empty() && opened(&blue).await.is_empty());
        for custody in [&custody, &custody] {
            let none = open(custody, &peers(false), MOST).await.expect("a keeper");
            assert!(none.is_none());
            until("they are given back", async || kept(&scene) == ["signatures@blue"]).await;
        }
    });
}

#[test]
fn what_cannot_be_read_is_replaced() {
    run(async {
        let scene = Scene::new(Default::default());
        let [custody, _] = both(&scene).await;
        let memory = SharedMemory::create("of another version", 4096).expect("memory");
        let memory = memory.descriptor().try_clone_to_owned().expect("a copy");
        let socket = OwnedFd::from(UnixStream::pair().expect("sockets").0);
        for left in [memory, socket] {
            custody.put_signatures(left).await.expect("a keeper");
            assert!(opened(&custody).await.keep(name(), 1, b"new", &mut |_| true));
            assert_eq!(opened(&custody).await.get(&name(), 1), Some(&b"new"[..]));
        }
    });
}
