//! Two speakers, one against the other, over the loopback.

use std::sync::atomic::{AtomicU8, Ordering};

use holdfast_bgp_wire::{Attributes, NextHop};

use super::*;
use crate::table::Synthetic;

const LIMIT: Duration = Duration::from_secs(20);
const PORT: u16 = 11_790;

/// A loopback address for every test, so that all can run at once and beside other runs.
fn address() -> IpAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    IpAddr::from([127, high, low, NEXT.fetch_add(1, Ordering::Relaxed)])
}

/// A sink that waits and a feeder that connects, changed as the test wants it.
fn pair(feeder_as: u32, change: impl FnOnce(&mut SpeakerConfig, &mut SpeakerConfig)) -> (Speaker, Speaker) {
    let (here, there) = (address(), address());
    let families = vec![Family::IPV4_UNICAST, Family::IPV6_UNICAST];
    let mut sink = SpeakerConfig { families: families.clone(), ..SpeakerConfig::listen(here, 65002) };
    let mut feeder = SpeakerConfig { families, ..SpeakerConfig::connect(there, here, feeder_as) };
    (sink.side, feeder.side) = (Side::Listen(PORT), Side::Connect(SocketAddr::new(here, PORT)));
    change(&mut sink, &mut feeder);
    let sink = Speaker::spawn(sink).expect("a free address");
    let feeder = Speaker::spawn(feeder).expect("a thread");
    (sink, feeder)
}

fn table(seed: u64) -> Arc<Table> {
    Arc::new(Synthetic { seed, ipv4: 3000, ipv6: 2000, as_sets: false }.build())
}

/// The attributes of all routes, with the path as text.
fn path(received: &Received) -> String {
    Attributes(&received.attributes).as_path().to_string()
}

#[test]
fn a_sink_receives_every_route_with_the_feeders_as_and_next_hop() {
    let table = table(1);
    let (sink, feeder) = pair(65001, |_, feeder| feeder.tables = vec![Arc::clone(&table)]);
    sink.wait_end_of_rib(Family::IPV6_UNICAST, LIMIT).expect("all of it");
    let (routes, status) = (sink.routes(), sink.status());
    assert_eq!((routes.len(), status.announced, status.withdrawn), (5000, 5000, 0));
    assert_eq!(status.end_of_rib, Family::ALL);
    let id = sink.status().open.expect("an OPEN").router_id;
    let local = Ipv4Addr::from_bits(id.bits());
    feeder.wait_sent(LIMIT).expect("nothing left");
    for (index, (prefix, _)) in table.routes.iter().enumerate() {
        let received = &routes[prefix];
        let own = Attributes(table.attributes(index)).as_path().to_string();
        assert_eq!(path(received), format!("65001 {own}"));
        match prefix {
            Prefix::V4(_) => assert_eq!(Attributes(&received.attributes).next_hop(), Some(local)),
            Prefix::V6(_) => {
                let global = local.to_ipv6_mapped();
                assert_eq!(received.next_hop, Some(NextHop::V6 { global, link_local: None }));
            }
        }
    }
}

#[test]
fn a_flap_takes_the_routes_away_and_brings_them_back() {
    let (sink, feeder) = pair(65001, |_, feeder| feeder.tables = vec![table(1)]);
    sink.wait_routes(5000, LIMIT).expect("the table");
    feeder.flap();
    sink.shared
        .wait("second session", LIMIT, |state| (state.status.sessions == 2).then_some(()))
        .expect("back");
    sink.wait_routes(5000, LIMIT).expect("the table again");
    feeder.stop();
    sink.wait_down(LIMIT).expect("Cease");
    let last = sink.status().notification.expect("a NOTIFICATION");
    assert_eq!((last.code, sink.status().routes), (6, 0));
}

#[test]
fn tables_come_and_go_while_the_session_is_up() {
    let (sink, feeder) = pair(65001, |_, _| ());
    feeder.wait_established(LIMIT).expect("a session");
    let (all, mut half) = (table(1), Table::clone(&table(1)));
    half.truncate(1500);
    feeder.announce(all);
    feeder.withdraw(Arc::new(half));
    feeder.wait_sent(LIMIT).expect("sent");
    sink.wait_routes(3500, LIMIT).expect("the rest");
    assert_eq!(sink.status().withdrawn, 1500);
}

#[test]
fn a_slow_sink_holds_the_feeder_back() {
    let (sink, feeder) = pair(65001, |sink, feeder| {
        (sink.read_rate, sink.receive_buffer) = (Some(20_000), Some(4096));
        feeder.tables = vec![Arc::new(Synthetic::ipv4(1, 300_000).build())];
    });
    assert!(feeder.wait_sent(Duration::from_secs(1)).is_err(), "{:?}", feeder.status());
    let slow = sink.status();
    assert!(slow.octets > 0 && slow.octets < 60_000, "{} octets", slow.octets);
    sink.set_read_rate(None);
    sink.wait_routes(300_000, LIMIT).expect("the table");
}

#[test]
fn inside_an_as_the_path_stays_and_local_pref_is_there() {
    let mut table = Table::plain(["192.0.2.0/24".parse().expect("a prefix")]);
    table.sort_by_prefix();
    let (sink, _feeder) = pair(65002, |_, feeder| feeder.tables = vec![Arc::new(table)]);
    sink.wait_routes(1, LIMIT).expect("the route");
    let received = sink.route("192.0.2.0/24".parse().expect("a prefix")).expect("the route");
    assert_eq!((path(&received).as_str(), Attributes(&received.attributes).local_pref()), ("", Some(100)));
}

#[test]
fn with_an_old_speaker_large_as_numbers_travel_beside_the_path() {
    let (sink, _feeder) = pair(65001, |_, feeder| {
        feeder.four_octet_as = false;
        feeder.tables = vec![Arc::new(Synthetic::ipv4(1, 2000).build())];
    });
    sink.wait_routes(2000, LIMIT).expect("the table");
    let as4_path = holdfast_bgp_wire::attribute::code::AS4_PATH;
    let routes = sink.routes();
    let with = routes.values().filter(|route| Attributes(&route.attributes).get(as4_path).is_some()).count();
    assert!((200..1800).contains(&with), "{with} routes with AS4_PATH");
}
