//! Refreshes with a beginning and an end (RFC 7313) beside BIRD, and outbound route filters (RFC 5291) beside FRR.
//!
//! ```text
//!  BIRD (AS 65001) ──1── Holdfast ──2── FRR (AS 65002)
//! ```

use std::time::Duration;

use anyhow::{Result, ensure};
use holdfast_lab::{
    peers::{Bird, Frr},
    router::Router,
    topology::{ROUTER, Star},
};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

const PEERS: &str = r#"
[[prefix-set]]
name = "wanted"
prefixes = ["198.51.100.0/24", "192.0.2.0/24 ge 25 le 26"]

[[bgp.peer]]
name = "bird"
address = "10.0.1.2"
asn = 65001
import = "accept-all"
export = "accept-all"

[[bgp.peer]]
name = "frr"
address = "10.0.2.2"
asn = 65002
import = "accept-all"
export = "accept-all"
orf = "both"
orf-prefix-set = "wanted"
"#;

const BIRD: &str = r#"
router id 10.0.1.2;
protocol device { scan time 1; }
protocol static {
  ipv4;
  route 203.0.113.0/24 blackhole;
  route 203.0.113.128/25 blackhole;
  route 10.99.0.0/16 blackhole;
}
protocol bgp holdfast {
  local 10.0.1.2 as 65001; neighbor 10.0.1.1 as 65000;
  connect retry time 1; connect delay time 1;
  ipv4 { import all; export where source = RTS_STATIC; };
}
"#;

const FRR: &str = "ip prefix-list WANTED seq 5 permit 203.0.113.0/24
router bgp 65002
 bgp router-id 10.0.2.2
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor 10.0.2.1 remote-as 65000
 neighbor 10.0.2.1 timers connect 1
 address-family ipv4 unicast
  network 198.51.100.0/24
  network 192.0.2.0/24
  network 192.0.2.64/26
  neighbor 10.0.2.1 capability orf prefix-list both
  neighbor 10.0.2.1 prefix-list WANTED in
 exit-address-family
";

fn number(shown: &Value, key: &str) -> u64 {
    shown["addressFamilyInfo"]["ipv4Unicast"][key].as_u64().unwrap_or(0)
}

fn refreshes(shown: &Value, way: &str) -> u64 {
    shown["messageStats"][format!("routeRefresh{way}")].as_u64().unwrap_or(0)
}

#[test]
fn bird_says_where_refreshes_begin_and_end_and_frr_which_routes_it_wants() -> Result<()> {
    let star = Star::new(2)?;
    let router = Router::start(&star.router, &[ROUTER, PEERS].concat())?;
    let (bird, frr) = (Bird::start(star.neighbor(1), BIRD)?, Frr::start(star.neighbor(2), FRR)?);
    router.until_neighbor("bird", LIMIT, |shown| number(shown, "receivedPrefixCounter") == 3)?;

    // Of FRR's three networks we have asked for two, and it for one of BIRD's.
    let shown = router.until_neighbor("frr", LIMIT, |shown| {
        (number(shown, "receivedPrefixCounter"), number(shown, "sentPrefixCounter")) == (2, 1)
    })?;
    ensure!(number(&shown, "outboundRouteFilterEntries") == 1, "{shown}");
    frr.vtysh("show bgp ipv4 unicast 203.0.113.0/24")?;

    // It wants more: the difference comes.
    frr.vtysh_all(&["configure terminal", "ip prefix-list WANTED seq 10 permit 203.0.113.0/24 ge 25"])?;
    frr.vtysh("clear bgp ipv4 unicast 10.0.2.1 in prefix-filter")?;
    router.until_neighbor("frr", LIMIT, |shown| number(shown, "sentPrefixCounter") == 2)?;

    // Asked again, BIRD says BoRR and EoRR, and everything is where it was.
    let before = refreshes(&router.neighbor("bird")?, "Recv");
    router.cli(&["clear", "bgp", "bird", "in"])?;
    let shown = router.until_neighbor("bird", LIMIT, |shown| refreshes(shown, "Recv") >= before + 2)?;
    ensure!(number(&shown, "receivedPrefixCounter") == 3, "{shown}");
    // And asking, it is told ours: to it that is a refresh that ends as well.
    let before = refreshes(&router.neighbor("bird")?, "Sent");
    bird.birdc("reload in holdfast")?;
    router.until_neighbor("bird", LIMIT, |shown| refreshes(shown, "Sent") >= before + 2)?;
    ensure!(bird.count("protocol holdfast")? == 2, "{}", bird.birdc("show route protocol holdfast")?);

    // What FRR has said is known to the process after this one.
    let first = router.pid("bgp")?;
    router.kill("bgp")?;
    router.wait_running()?;
    let shown = router.until_neighbor("frr", LIMIT, |shown| {
        router.pid("bgp").is_ok_and(|pid| pid != first)
            && (number(shown, "receivedPrefixCounter"), number(shown, "sentPrefixCounter")) == (2, 2)
    })?;
    ensure!(number(&shown, "outboundRouteFilterEntries") == 2, "{shown}");
    ensure!(
        router.log().contains("session-resumed") || router.log().contains("session resumed"),
        "it went on"
    );
    Ok(())
}
