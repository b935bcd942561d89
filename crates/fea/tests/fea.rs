//! The services of the process as the rib and the manager see them, over the kernel of a network namespace:
//! needs root and `ip` of iproute2.

use std::{collections::BTreeSet, process::Command, rc::Rc, thread, time::Duration};

use holdfast_api::{
    fea::v1::{
        Configuration, Empty, FeaClient, FeaDispatcher, Interface, InterfaceEvent, RefusalEvent,
        ShutdownRequest, Status,
    },
    keeper::v1::KeeperClient,
    routes::v1::{NextHop, NextHopSet, RouteBatch},
};
use holdfast_fea::{Engine, FeaService, follow};
use holdfast_fib::REFUSED_KEPT;
use holdfast_fib_linux::Monitor;
use holdfast_process::Boot;
use holdfast_xrl::{Channel, Client, ErrorKind, Link, Node, PeerIdentity, ReplyStream};
use tokio::{
    task::{LocalSet, spawn_local},
    time::timeout,
};

/// The process without its keeper: eth0 10.0.0.1/24 with a neighbour 10.0.0.2.
struct Fea {
    rib: FeaClient,
    manager: FeaClient,
}

fn in_a_namespace<F: Future<Output = ()>>(story: impl FnOnce(Fea) -> F + Send + 'static) {
    let inside = move || {
        holdfast_sys::process::enter_new_network().expect("this test needs root");
        ip("link add eth0 type veth peer name peer0");
        ip("link set peer0 up");
        ip("link set eth0 up");
        ip("addr add 10.0.0.1/24 dev eth0");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        LocalSet::new().block_on(&runtime, async move { story(start()).await });
    };
    thread::spawn(inside).join().expect("the story holds");
}

fn start() -> Fea {
    let monitor = Monitor::open().expect("netlink");
    let node = Node::new("fea");
    let (keeper, _nobody) = Link::pair();
    let boot = Boot::new(node.clone(), KeeperClient::new(Channel::over(keeper)));
    let engine = Rc::new(Engine::of_router(&boot));
    node.serve(FeaDispatcher::new(FeaService::new(Rc::clone(&engine))));
    let client = |role: &str| {
        let (near, far) = Link::pair();
        node.attach_link(far, PeerIdentity::new(role));
        FeaClient::new(Channel::over(near))
    };
    let fea = Fea { rib: client("rib"), manager: client("manager") };
    let kept = Rc::clone(&engine);
    spawn_local(async move { kept.keep_in_step().await });
    spawn_local(async move {
        let _serving = boot;
        follow(monitor, &engine).await.expect("netlink works");
    });
    fea
}

impl Fea {
    async fn configure(&self, backend: &str) {
        let request = Configuration { backend: backend.into(), table: 0, ..Configuration::default() };
        self.manager.configure(request).await.expect("configured");
    }

    async fn status(&self) -> Status {
        self.manager.show_status(Empty {}).await.expect("a status")
    }

    async fn sync(&self, routes: RouteBatch) {
        self.rib.sync_begin(Empty {}).await.expect("begins");
        self.rib.apply(routes).await.expect("applied");
        self.rib.sync_end(Empty {}).await.expect("ends");
    }
}

/// `count` routes 20.0.n.0/24 by handle 1, which leads to 10.0.0.2 at eth0.
fn routes(count: u8) -> RouteBatch {
    let member = NextHop { gateway: vec![10, 0, 0, 2], interface: "eth0".into(), ..NextHop::default() };
    RouteBatch {
        afi: 1,
        define: vec![NextHopSet { handle: 1, kind: 0, members: vec![member], backups: Vec::new() }],
        addresses: (0..count).flat_map(|third| [20, 0, third, 0]).collect(),
        lengths: vec![24; count.into()],
        runs: vec![count.into()],
        next_hops: vec![1],
        ..RouteBatch::default()
    }
}

fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().expect("ip runs");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn installed() -> usize {
    ip("route show proto 75").lines().count()
}

/// Reads until the question has its answer.
async fn wait_for(stream: &mut ReplyStream<InterfaceEvent>, question: impl Fn(&InterfaceEvent) -> bool) {
    let found = async {
        loop {
            let event = stream.next().await.expect("the stream lives").expect("it has no end");
            if question(&event) {
                return;
            }
        }
    };
    timeout(Duration::from_secs(5), found).await.expect("the event comes");
}

fn eth0(event: &InterfaceEvent, question: impl Fn(&Interface) -> bool) -> bool {
    event.interface.as_ref().is_some_and(|interface| interface.name == "eth0" && question(interface))
}

#[test]
fn a_table_is_synced_changed_and_removed_at_the_end() {
    in_a_namespace(|fea| async move {
        fea.configure("linux").await;
        fea.sync(routes(3)).await;
        assert_eq!(installed(), 3);
        let withdrawn =
            RouteBatch { define: Vec::new(), runs: vec![1, 2], next_hops: vec![0, 1], ..routes(3) };
        fea.rib.apply(withdrawn).await.expect("applied");
        let status = fea.status().await;
        assert_eq!((installed(), status.routes, status.next_hops, status.errors), (2, 2, 1, 0));
        fea.manager.shutdown(ShutdownRequest { keep_routes: false }).await.expect("shut down");
        assert_eq!((installed(), ip("nexthop show").as_str()), (0, ""));
        let late = fea.rib.apply(routes(1)).await.expect_err("nothing is applied any more");
        assert_eq!(late.kind(), ErrorKind::FailedPrecondition);
    });
}

#[test]
fn routes_that_are_to_be_kept_are_found_again_by_the_next_process() {
    in_a_namespace(|fea| async move {
        fea.configure("linux").await;
        fea.sync(routes(3)).await;
        fea.manager.shutdown(ShutdownRequest { keep_routes: true }).await.expect("shut down");
        drop(fea);
        let fea = start();
        fea.configure("linux").await;
        assert_eq!(installed(), 3);
        fea.sync(routes(2)).await;
        let status = fea.status().await;
        assert_eq!((installed(), status.added, status.deleted), (2, 0, 1));
    });
}

#[test]
fn a_rib_that_comes_before_the_configuration_waits() {
    in_a_namespace(|fea| async move {
        let begin = fea.rib.sync_begin(Empty {});
        tokio::time::sleep(Duration::from_millis(20)).await;
        fea.configure("none").await;
        let begun = timeout(Duration::from_secs(5), begin).await.expect("goes on").expect("begins");
        assert!(begun.discards, "nothing is forwarded, so nothing need be sent");
        fea.rib.apply(routes(2)).await.expect("is harmless");
        assert_eq!((fea.status().await.routes, installed()), (0, 0));
    });
}

#[test]
fn interfaces_come_whole_and_then_as_they_change() {
    in_a_namespace(|fea| async move {
        let mut stream = fea.rib.interfaces(Empty {});
        let ours = [10, 0, 0, 1];
        let with_address =
            |now: &Interface| now.addresses.iter().any(|a| a.address == ours && a.length == 24);
        wait_for(&mut stream, |event| eth0(event, |now| now.up && now.running && with_address(now))).await;
        wait_for(&mut stream, |event| event.synced).await;
        ip("link set peer0 down");
        wait_for(&mut stream, |event| eth0(event, |now| now.up && !now.running)).await;
        let index =
            ip("-o link show dev eth0").split(':').next().and_then(|text| text.parse().ok()).unwrap_or(0);
        ip("link del eth0");
        wait_for(&mut stream, |event| event.gone == index).await;
        let shown = fea.manager.show_interfaces(Empty {}).await.expect_err("for the operator only");
        assert_eq!(shown.kind(), ErrorKind::Denied);
    });
}

#[test]
fn a_loss_is_said_to_who_listens_and_to_who_asks_later_until_a_sync() {
    in_a_namespace(|fea| async move {
        fea.configure("linux").await;
        fea.sync(routes(3)).await;
        let mut listening = fea.rib.losses(Empty {});
        let table = Configuration { backend: "linux".into(), table: 100, ..Configuration::default() };
        fea.manager.configure(table).await.expect("configured");
        timeout(Duration::from_secs(5), listening.next()).await.expect("is said").expect("lives");
        let mut late = fea.rib.losses(Empty {});
        timeout(Duration::from_secs(5), late.next()).await.expect("is said again").expect("lives");
        assert_eq!(installed(), 0, "the old table's are gone");
        fea.configure("linux").await;
        fea.sync(routes(3)).await;
        assert_eq!(installed(), 3);
        let mut after = fea.rib.losses(Empty {});
        assert!(timeout(Duration::from_millis(200), after.next()).await.is_err(), "nothing is lost now");
    });
}

#[test]
fn calls_in_a_window_are_applied_in_their_order() {
    in_a_namespace(|fea| async move {
        fea.configure("linux").await;
        let begin = fea.rib.sync_begin(Empty {});
        let first = fea.rib.apply(routes(200));
        let second = fea.rib.apply(RouteBatch { next_hops: vec![0], ..routes(200) });
        let third = fea.rib.apply(RouteBatch { define: Vec::new(), ..routes(100) });
        let end = fea.rib.sync_end(Empty {});
        end.await.expect("ends");
        begin.await.expect("begins");
        for call in [first, second, third] {
            call.await.expect("applied");
        }
        assert_eq!(installed(), 100);
    });
}

#[test]
fn what_the_kernel_refuses_is_in_the_status_and_does_not_stop_the_rest() {
    in_a_namespace(|fea| async move {
        fea.configure("linux").await;
        let mut batch = routes(2);
        (batch.runs, batch.next_hops) = (vec![1, 1], vec![9, 1]);
        fea.sync(batch).await;
        let status = fea.status().await;
        assert_eq!((status.routes, status.errors), (1, 1));
        assert_eq!(status.last_errors[0].prefix, "20.0.0.0/24");
        let error = fea.rib.apply(RouteBatch { afi: 7, ..routes(1) }).await.expect_err("makes no sense");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    });
}

#[test]
fn another_backend_asks_for_everything_again() {
    in_a_namespace(|fea| async move {
        fea.configure("linux").await;
        fea.sync(routes(3)).await;
        fea.configure("linux").await;
        assert_eq!(installed(), 3, "the same again");
        let mut losses = fea.rib.losses(Empty {});
        for (backend, discards) in [("none", true), ("linux", false)] {
            fea.configure(backend).await;
            assert_eq!(installed(), 0);
            timeout(Duration::from_secs(5), losses.next()).await.expect("is said").expect("lives");
            assert_eq!(fea.rib.sync_begin(Empty {}).await.expect("begins").discards, discards);
        }
        let request = Configuration { backend: "abacus".into(), table: 0, ..Configuration::default() };
        let error = fea.manager.configure(request).await.expect_err("no such backend");
        assert!(error.message().contains("`abacus` is no backend"));
    });
}

/// So many routes from 20.0.0.0/24 on, by a handle; by none they are withdrawn.
fn many(count: u32, handle: u32) -> RouteBatch {
    RouteBatch {
        afi: 1,
        addresses: (0..count).flat_map(|number| (0x1400_0000 + (number << 8)).to_be_bytes()).collect(),
        lengths: vec![24; count as usize],
        runs: vec![count],
        next_hops: vec![handle],
        ..RouteBatch::default()
    }
}

#[test]
fn what_is_refused_is_said_until_it_is_over_and_who_does_not_listen_holds_nothing_up() {
    let kept = REFUSED_KEPT as u32;
    in_a_namespace(move |fea| async move {
        fea.configure("linux").await;
        fea.sync(RouteBatch::default()).await;
        let (mut deaf, mut listening) = (fea.rib.refusals(Empty {}), fea.rib.refusals(Empty {}));
        let mut known = BTreeSet::new();
        // Nobody has defined the handle.
        let applied = timeout(Duration::from_secs(30), fea.rib.apply(many(kept + 1, 9))).await;
        applied.expect("the reader that does not read is not waited for").expect("applied");
        let hear = async |stream: &mut ReplyStream<RefusalEvent>, known: &mut BTreeSet<String>| {
            let event = timeout(Duration::from_secs(30), stream.next()).await.expect("is said");
            let event = event.expect("the stream lives").expect("it has no end");
            event.routes_over.iter().for_each(|route| assert!(known.remove(route), "{route}"));
            known.extend(event.routes);
            (event.next_hops, event.incomplete)
        };
        let mut is_incomplete = false;
        while known.len() < REFUSED_KEPT || !is_incomplete {
            is_incomplete = hear(&mut listening, &mut known).await.1;
        }
        assert_eq!(fea.status().await.routes_refused, u64::from(kept));

        // Half of that is over: there may be some that nobody remembers, so everything is to be said again.
        let mut losses = fea.rib.losses(Empty {});
        fea.rib.apply(many(kept / 2, 0)).await.expect("applied");
        let loss = timeout(Duration::from_secs(30), losses.next()).await.expect("is said").expect("lives");
        assert!(loss.is_some_and(|loss| loss.reason.contains("more routes were refused")));
        while known.len() > REFUSED_KEPT / 2 {
            is_incomplete = hear(&mut listening, &mut known).await.1;
        }
        assert!(!is_incomplete);
        fea.sync(RouteBatch::default()).await;
        while !known.is_empty() {
            hear(&mut listening, &mut known).await;
        }

        // Next hops, which are no route's own affair.
        // An address of this host is no gateway.
        ip("addr add 99.0.0.1/32 dev lo");
        let member = NextHop { gateway: vec![99, 0, 0, 1], interface: "eth0".into(), ..NextHop::default() };
        let ourselves = NextHopSet { handle: 4, kind: 0, members: vec![member], backups: Vec::new() };
        fea.rib.apply(RouteBatch { define: vec![ourselves], ..many(3, 4) }).await.expect("applied");
        assert_eq!(hear(&mut listening, &mut known).await, (vec![4], false));
        assert!(known.is_empty());

        // Who listens at last is told until it knows the same.
        let (mut late, mut handles) = (BTreeSet::new(), Vec::new());
        while handles != [4] || !late.is_empty() {
            handles.extend(hear(&mut deaf, &mut late).await.0);
        }
    });
}

#[test]
fn next_hops_lead_elsewhere_between_two_slices_of_what_was_sent_before() {
    in_a_namespace(|fea| async move {
        fea.configure("linux").await;
        fea.sync(routes(1)).await;
        let many: u16 = 30_000;
        let batch = RouteBatch {
            afi: 1,
            addresses: (0..many).flat_map(|host| [[20, 1], host.to_be_bytes()].concat()).collect(),
            lengths: vec![32; many.into()],
            runs: vec![many.into()],
            next_hops: vec![1],
            ..RouteBatch::default()
        };
        let member = NextHop { gateway: vec![10, 0, 0, 3], interface: "eth0".into(), ..NextHop::default() };
        let elsewhere = NextHopSet { handle: 1, kind: 0, members: vec![member], backups: Vec::new() };
        let define = RouteBatch { afi: 1, define: vec![elsewhere], ..RouteBatch::default() };
        let mut applying = fea.rib.apply(batch);
        tokio::select! {
            biased;
            done = &mut applying => panic!("it did not wait: {done:?}"),
            defined = fea.rib.define_at_once(define) => defined.expect("defined"),
        };
        assert!(ip("route show 20.0.0.0/24 proto 75").contains("via 10.0.0.3 dev eth0"));
        assert!(installed() < usize::from(many), "they are on their way");
        applying.await.expect("applied");
        assert_eq!(installed(), usize::from(many) + 1);
        assert!(ip("route show 20.1.0.7 proto 75").contains("via 10.0.0.3 dev eth0"));
    });
}

/// Waits until the kernel has so many routes of ours.
async fn until_installed(count: usize) {
    let found = async {
        while installed() != count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let found = timeout(Duration::from_secs(5), found).await;
    assert!(found.is_ok(), "{} of {count} routes", installed());
}

async fn repairs(fea: &Fea) -> holdfast_api::fea::v1::Repairs {
    fea.status().await.repairs.expect("they are counted")
}

#[test]
fn what_other_programs_remove_comes_back_by_itself() {
    in_a_namespace(|fea| async move {
        fea.configure("linux").await;
        fea.sync(routes(3)).await;
        ip("route del 20.0.1.0/24");
        until_installed(3).await;
        ip("nexthop flush proto 75");
        until_installed(3).await;
        ip("link set eth0 down");
        until_installed(0).await;
        ip("link set eth0 up");
        until_installed(3).await;
        let repairs = repairs(&fea).await;
        assert_eq!((repairs.removed, repairs.unseen, repairs.overruns), (1, 0, 0));
        assert!(repairs.next_hops >= 1, "{repairs:?}");
        // A foreign removal of next hops is followed by a comparison.
        let compared = async {
            while fea.status().await.repairs.expect("counted").comparisons == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(5), compared).await.expect("a comparison");
    });
}

#[test]
fn an_operator_has_the_table_compared() {
    in_a_namespace(|fea| async move {
        fea.configure("linux").await;
        fea.sync(routes(3)).await;
        let found = fea.manager.compare(Empty {}).await.expect("compared");
        assert_eq!((found.comparisons, found.unseen, found.strays), (1, 0, 0));
        let found = fea.manager.compare(Empty {}).await.expect("compared");
        assert_eq!(found.comparisons, 1, "those of this one");
        fea.manager.shutdown(ShutdownRequest { keep_routes: true }).await.expect("shut down");
    });
}

#[test]
fn a_second_router_with_the_same_table_installs_nothing_until_the_first_has_gone() {
    in_a_namespace(|first| async move {
        first.configure("linux").await;
        first.sync(routes(3)).await;
        let second = start();
        second.configure("linux").await;
        let status = second.status().await;
        let (claimed, who) = (status.claimed_by.as_str(), format!("process {}", std::process::id()));
        assert!(status.backend.is_empty() && claimed.contains(&who), "{claimed}");
        // With another table it has nothing to do with the first.
        let third = start();
        let other = Configuration { backend: "linux".into(), table: 100, ..Configuration::default() };
        third.manager.configure(other).await.expect("configured");
        third.sync(routes(1)).await;
        assert_eq!((installed(), ip("route show table 100").lines().count()), (3, 1));

        first.manager.shutdown(ShutdownRequest { keep_routes: true }).await.expect("shut down");
        timeout(Duration::from_secs(20), second.sync(routes(2))).await.expect("it has the table now");
        assert_eq!((installed(), second.status().await.claimed_by.as_str()), (2, ""));
    });
}

#[test]
fn a_router_that_shares_the_lease_has_the_table_as_well() {
    in_a_namespace(|first| async move {
        let shared = |lease: &str| Configuration {
            backend: "linux".into(),
            lease: lease.into(),
            ..Configuration::default()
        };
        first.manager.configure(shared("/run/lease")).await.expect("configured");
        let (second, third) = (start(), start());
        second.manager.configure(shared("/run/lease")).await.expect("configured");
        third.manager.configure(shared("/run/another")).await.expect("configured");
        assert_eq!(
            (second.status().await.backend.as_str(), third.status().await.backend.as_str()),
            ("linux", "")
        );
        // The second one does not undo what the first one writes.
        second.sync(routes(2)).await;
        first.sync(routes(3)).await;
        for _ in 0..30 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            assert_eq!(installed(), 3);
        }
        // It has the table when the first one has gone, and keeps it.
        first.manager.shutdown(ShutdownRequest { keep_routes: true }).await.expect("shut down");
        let until = async |count| {
            while installed() != count {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(20), until(2)).await.expect("it compares the table");
        ip("route del 20.0.1.0/24 proto 75");
        timeout(Duration::from_secs(20), until(2)).await.expect("the route is written again");
    });
}

#[test]
fn another_metric_moves_the_routes_without_a_gap() {
    in_a_namespace(|fea| async move {
        fea.configure("linux").await;
        fea.sync(routes(3)).await;
        let request = Configuration { backend: "linux".into(), metric: 7, ..Configuration::default() };
        fea.manager.configure(request).await.expect("configured");
        assert_eq!(installed(), 3);
        fea.sync(routes(3)).await;
        let shown = ip("route show proto 75");
        assert_eq!(shown.lines().filter(|line| line.contains("metric 7")).count(), 3, "{shown}");
        assert_eq!(installed(), 3, "the old ones are gone");
    });
}
