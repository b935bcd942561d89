//! Peers on links: whose session it is, and that none outlives its link.

use std::net::Ipv4Addr;

use holdfast_config::schema::Remote;

use super::*;

/// The peer without address on eth1, with a session over link 3 to this address.
async fn on_eth1(scene: &mut Scene) -> Line {
    let neighbor = scene.range.at(Location::Neighbor("eth1".into()));
    let index = scene.speaker.add_peer(neighbor, false, 3, scene.now);
    let mut line = scene.connect(index).await;
    scene.establish(&mut line).await;
    let connection = scene.speaker.sessions.connection_mut(line.key).expect("it is open");
    connection.remote = "[fe80::2%3]:179".parse().expect("an address");
    line
}

#[tokio::test]
async fn a_session_ends_with_its_link_and_not_with_others() {
    for (link, lost) in [(3, false), (0, true), (4, true)] {
        let mut scene = Scene::new();
        let line = on_eth1(&mut scene).await;
        let mut other = scene.connect(scene.peer).await;
        scene.establish(&mut other).await;
        scene.speaker.link_is("eth2", 0, scene.now);
        assert_eq!(scene.state(line.key.0), Some(State::Established), "another interface");
        scene.speaker.link_is("eth1", link, scene.now);
        let wanted = if lost { State::Idle } else { State::Established };
        assert_eq!(scene.state(line.key.0), Some(wanted), "eth1 is {link}");
        assert_eq!(scene.speaker.sessions.connection(line.key).is_none(), lost);
        assert_eq!(scene.state(scene.peer), Some(State::Established), "it is on no link");
    }
}

#[tokio::test]
async fn a_second_router_does_not_get_a_session_that_is_up() {
    let mut scene = Scene::new();
    let line = on_eth1(&mut scene).await;
    let (near, _far) = pair().await;
    assert!(
        scene.speaker.accepted(line.key.0, handed(near), &[], scene.now).is_err(),
        "from another address"
    );
    assert_eq!(scene.state(line.key.0), Some(State::Established));
    scene.speaker.link_is("eth1", 0, scene.now);
    scene.speaker.start_peer(line.key.0, scene.now);
    let (near, _far) = pair().await;
    assert!(scene.speaker.accepted(line.key.0, handed(near), &[], scene.now).is_ok(), "the session is over");
}

#[tokio::test]
async fn who_is_on_a_link_is_named_by_the_address_it_has_and_no_other() {
    let mut scene = Scene::new();
    let line = on_eth1(&mut scene).await;
    for text in ["eth1", "fe80::2%eth1"] {
        assert_eq!(scene.speaker.sessions.peer_named(text), Some(line.key.0), "{text}");
    }
    for text in ["eth2", "fe80::9%eth1", "fe80::2%eth2", "fe80::2"] {
        assert_eq!(scene.speaker.sessions.peer_named(text), None, "{text}");
    }
}

#[tokio::test]
async fn a_session_between_addresses_of_wider_scope_ends_with_the_link_that_is_configured() {
    let mut scene = Scene::new();
    let mut line = scene.connect(scene.peer).await;
    scene.establish(&mut line).await;
    let mut neighbor = scene.slot().neighbor.clone();
    neighbor.source.remote = Remote::OnLink(Ipv4Addr::LOCALHOST.into(), "eth1".into());
    scene.speaker.change_peer(scene.peer, neighbor, scene.now);
    for (interface, link) in [("eth2", 0), ("eth1", 3), ("eth1", 3)] {
        scene.speaker.link_is(interface, link, scene.now);
        assert_eq!(scene.state(scene.peer), Some(State::Established), "{interface} is {link}");
    }
    scene.speaker.link_is("eth1", 4, scene.now);
    assert_eq!(scene.state(scene.peer), Some(State::Idle), "made again between two notices");
    assert!(scene.speaker.sessions.connection(line.key).is_none());
}
