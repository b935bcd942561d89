//! The monitor.

use std::time::{Duration, Instant};

use holdfast_fib_linux::{Interface, Monitor, MonitorEvent};

use crate::tests::kernel::{in_a_namespace, ip, ip_batch};

/// Reads until an event satisfies the question.
fn wait_for(monitor: &mut Monitor, question: impl Fn(&MonitorEvent) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(5);
    let mut events = Vec::new();
    while !events.iter().any(&question) {
        assert!(Instant::now() < deadline, "{events:?}");
        if !monitor.read(&mut events).expect("netlink works") {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn eth0(event: &MonitorEvent, question: impl Fn(&Interface) -> bool) -> bool {
    matches!(event, MonitorEvent::Changed(interface) if interface.name == "eth0" && question(interface))
}

fn addresses(interface: &Interface) -> Vec<String> {
    let all = interface.addresses.iter().filter(|address| !address.address.to_string().starts_with("fe80"));
    all.map(|address| format!("{}/{}", address.address, address.length)).collect()
}

#[test]
fn what_there_is_comes_first_and_then_every_change() {
    in_a_namespace(|| {
        let mut monitor = Monitor::open().expect("netlink");
        let known = monitor.interfaces().find(|interface| interface.name == "eth0").expect("eth0").clone();
        assert!(known.usable() && known.mtu == 1500 && known.mac.len() == 6);
        assert_eq!(addresses(&known), ["10.0.0.1/24", "fd00::1/64"]);
        ip("addr add 10.9.0.1/16 dev eth0");
        wait_for(&mut monitor, |event| eth0(event, |now| addresses(now).contains(&"10.9.0.1/16".into())));
        ip("addr del 10.0.0.1/24 dev eth0");
        wait_for(&mut monitor, |event| eth0(event, |now| addresses(now) == ["10.9.0.1/16", "fd00::1/64"]));
        ip("link set eth0 mtu 1400");
        wait_for(&mut monitor, |event| eth0(event, |now| now.mtu == 1400));
        ip("link set peer0 down");
        wait_for(&mut monitor, |event| eth0(event, |now| now.up && !now.running));
        ip("link set eth0 down");
        wait_for(&mut monitor, |event| eth0(event, |now| !now.up));
        ip("link del eth0");
        wait_for(&mut monitor, |event| matches!(event, MonitorEvent::Gone(gone) if gone.name == "eth0"));
        assert!(monitor.interfaces().all(|interface| interface.name != "eth0"));
    });
}

#[test]
fn a_new_name_is_a_change_of_the_same_interface() {
    in_a_namespace(|| {
        let mut monitor = Monitor::open().expect("netlink");
        let index = crate::tests::kernel::index("eth1");
        ip("link set eth1 down");
        ip("link set eth1 name uplink");
        let renamed = |event: &MonitorEvent| matches!(event, MonitorEvent::Changed(now) if now.index == index && now.name == "uplink" && !now.addresses.is_empty());
        wait_for(&mut monitor, renamed);
    });
}

#[test]
fn an_overrun_is_told_and_nothing_is_missing_afterwards() {
    in_a_namespace(|| {
        let mut monitor = Monitor::open().expect("netlink");
        // Nobody reads meanwhile: more than the socket holds.
        let batch: String = (0..6000).map(|n| format!("link set eth1 mtu {}\n", 1300 + n % 2)).collect();
        ip_batch(&(batch + "addr add 10.77.0.1/24 dev eth1\n"));
        let mut events = Vec::new();
        while monitor.read(&mut events).expect("netlink works") {}
        assert!(events.contains(&MonitorEvent::Overrun));
        let eth1 = monitor.interfaces().find(|interface| interface.name == "eth1").expect("eth1");
        assert!(addresses(eth1).contains(&"10.77.0.1/24".into()));
    });
}
