//! Routers whose service address is routed, and a narrower way to the second one.
//!
//! ```text
//!  peer ──1── middle ──3── router
//!  peer ──2─────┘ └────4── standby      of 1,400 octets at most
//! ```

use std::fmt::Write;

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    netns::{Namespace, output},
    peers::Bird,
    redis::{PORT, Redis},
    replication::scene::{LIMIT, counter},
    router::{Files, LeaseDirectory, Router, binary},
    topology::{Side, join, v4},
    wait,
};

/// The service address.
const SERVICE: &str = "10.9.9.9";
/// Octets of the longest packet on the way to the standby.
const NARROW: &str = "1400";
/// Routes of a peer at first, and in the end.
const ROUTES: [u32; 2] = [5000, 10_000];

fn announced(network: u8, count: u32) -> String {
    let mut text = String::new();
    for number in 0..count {
        let (high, low) = (number / 256, number % 256);
        let _ = writeln!(text, "route {}.{high}.{low}.0/24 blackhole;", 100 + network);
    }
    text
}

fn bird(network: u8, host: &Namespace) -> Result<Bird> {
    let text = format!(
        "router id 10.0.{network}.2;
        protocol device {{ }}
        protocol static {{ ipv4;\ninclude \"routes.conf\";\n}}
        protocol bgp holdfast {{
          debug {{ events }};
          local {} as 6500{network}; neighbor {SERVICE} as 65000; multihop 3;
          connect delay time 1; connect retry time 1; graceful restart off;
          ipv4 {{ import all; export all; }};
        }}",
        v4(network, Side::Second)
    );
    Bird::start_with(host, &text, &[("routes.conf", &announced(network, ROUTES[0]))])
}

fn configuration(network: u8, lease: &str) -> String {
    let middle = v4(network, Side::First);
    let mut text = format!(
        "[router]\nid = \"10.0.0.1\"\nasn = 65000\n\
         [nonstop]\nstandby = \"preheated\"\n\
         [[nonstop.address]]\naddress = \"{SERVICE}/32\"\ninterface = \"n{network}\"\n\
         [nonstop.store]\nkind = \"redis\"\naddresses = [\"{middle}:{PORT}\"]\nlease-directory = \"{lease}\"\n\
         [bgp]\nconnect-retry = 1\n"
    );
    for peer in [1, 2] {
        let address = v4(peer, Side::Second);
        let _ = write!(
            text,
            "[[bgp.peer]]\nname = \"peer{peer}\"\naddress = \"{address}\"\nlocal-address = \"{SERVICE}\"\n\
             asn = 6500{peer}\nmultihop = 3\nimport = \"accept-all\"\nexport = \"accept-all\"\n\
             [[static]]\nprefix = \"10.0.{peer}.0/24\"\nnext-hop = \"{middle}\"\n"
        );
    }
    text
}

#[test]
fn sessions_go_on_where_the_way_to_the_standby_is_narrower() -> Result<()> {
    let [middle, first, second, own, other] =
        ["middle", "first", "second", "own", "other"].map(Namespace::new);
    let (middle, peers, routers) = (middle?, [first?, second?], [own?, other?]);
    for (host, network) in peers.iter().chain(&routers).zip(1..) {
        join(network, &middle, host)?;
        host.ip(&["route", "add", "default", "via", &v4(network, Side::First).to_string()])?;
    }
    for host in [&middle, &routers[0], &routers[1]] {
        output(host.command("sysctl").args(["-qw", "net.ipv4.ip_forward=1"]))?;
    }
    for end in [&middle, &routers[1]] {
        end.ip(&["link", "set", "n4", "mtu", NARROW])?;
    }
    let lead = |network: u8| {
        let via = v4(network, Side::Second).to_string();
        middle.ip(&["route", "replace", &format!("{SERVICE}/32"), "via", &via])
    };
    lead(3)?;
    let _redis = Redis::start(Some(&middle), &[])?;
    let lease = LeaseDirectory::new("ways")?;
    let launch = |at: usize, more: &[&str]| {
        let text = configuration(at as u8 + 3, lease.path().to_str().context("a path that is text")?);
        Router::launch(&binary()?, &routers[at], &text, &Files::new(), more)
    };
    let mut router = launch(0, &[])?;
    router.wait_running()?;
    let [first, second] = [bird(1, &peers[0])?, bird(2, &peers[1])?];
    // What each has of the other one has gone through the router.
    let until_told = |count: u32, router: &Router| {
        wait::until("routes of the other peer", LIMIT, || {
            let counts = [&first, &second].map(|bird| bird.count("protocol holdfast"));
            let all = counts.iter().all(|told| told.as_ref().is_ok_and(|told| *told == u64::from(count)));
            if all { Ok(()) } else { Err(format!("{counts:?}")) }
        })
        .with_context(|| router.log_tail())
    };
    until_told(ROUTES[0], &router)?;
    router.until_role("primary", LIMIT)?;
    let standby = launch(1, &["--standby"])?;
    wait::until("the routes at the standby", LIMIT, || {
        let shown = standby.cli(&["show", "nsr"]).map_err(|error| error.to_string())?;
        if shown.contains("(following): routes of 2 sessions") { Ok(()) } else { Err(shown) }
    })?;
    router.die()?;
    lead(4)?;
    standby.until_role("primary", LIMIT)?;
    // Segments as long as they were before.
    for (bird, network) in [(&first, 1), (&second, 2)] {
        bird.reconfigure("routes.conf", &announced(network, ROUTES[1]))?;
    }
    until_told(ROUTES[1], &standby)?;
    // Their senders were told so (RFC 1191).
    ensure!(counter(&middle, "FragFails")? > 0, "no packet was too long");
    for bird in [&first, &second] {
        ensure!(bird.sessions()? == 1, "{}", bird.log());
    }
    Ok(())
}
