//! A session over QUIC stays when the router that has connected gets another address (RFC 9000 section 9).
//!
//! ```text
//!  r1 (AS 65001) 10.0.1.1 ──n1── 10.0.1.2, later 10.0.1.9 r2 (AS 65002)
//! ```
//!
//! r1 waits for r2 to connect, so the address of whoever dialed goes. The hold time is short: a session whose octets do
//! not pass any more ends within the test.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    keys::Signer,
    netns::Namespace,
    router::{Files, Router},
    topology::join,
    wait,
};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

/// Of a router that has one peer, over QUIC.
fn configuration(number: u8, peer: u8, extra: &str, networks: &[&str]) -> String {
    let networks: String =
        networks.iter().map(|prefix| format!("[[bgp.network]]\nprefix = \"{prefix}\"\n")).collect();
    format!(
        r#"
[router]
id = "10.0.0.{number}"
asn = 6500{number}
[bgp]
connect-retry = 1
hold-time = 9
[tls]
certificate = "certificate.pem"
key = "key.pem"
[[bgp.peer]]
name = "r{peer}"
address = "10.0.1.{peer}"
asn = 6500{peer}
transport = "quic"
tls-authorities = "authority.pem"
tls-name = "r{peer}.example"
import = "accept-all"
export = "accept-all"
{extra}
{networks}"#
    )
}

fn received(shown: &Value) -> u64 {
    shown["addressFamilyInfo"]["ipv4Unicast"]["receivedPrefixCounter"].as_u64().unwrap_or(0)
}

/// The connection that a router's door carries.
fn carried(router: &Router) -> Result<Value> {
    let shown = router.show(&["connections"])?;
    shown["connections"].get(0).cloned().with_context(|| format!("no connection: {shown}"))
}

/// r1, which waits, and r2, which has these lines about it. They have each other's network.
struct Routers {
    r1: Router,
    r2: Router,
    second: Namespace,
    _first: Namespace,
}

const WAITS: &str = "passive = true";

impl Routers {
    fn new(r1: &str) -> Result<Self> {
        let (first, second) = (Namespace::new("r1")?, Namespace::new("r2")?);
        join(1, &first, &second)?;
        let signer = Signer::new("Lab CA")?;
        let [keys1, keys2] = [signer.sign("r1.example")?, signer.sign("r2.example")?];
        let start = |host, configuration: &str, keys| {
            Router::start_with_files(host, configuration, &signer.files_of(keys))
        };
        let one = start(&first, &configuration(1, 2, WAITS, &["198.51.100.0/25"]), &keys1)?;
        let two = start(&second, &configuration(2, 1, r1, &["203.0.113.0/24"]), &keys2)?;
        two.until_neighbor("r1", LIMIT, |shown| received(shown) == 1)?;
        one.until_neighbor("r2", LIMIT, |shown| received(shown) == 1)?;
        Ok(Self { r1: one, r2: two, second, _first: first })
    }

    /// r2 has 10.0.1.9 instead of 10.0.1.2.
    fn move_second(&self) -> Result<()> {
        self.second.ip(&["addr", "del", "10.0.1.2/24", "dev", "n1"])?;
        self.second.ip(&["addr", "add", "10.0.1.9/24", "dev", "n1"])?;
        Ok(())
    }
}

#[test]
fn a_session_over_quic_outlives_the_address_of_its_dialer() -> Result<()> {
    let routers = Routers::new("")?;
    let (r1, r2) = (&routers.r1, &routers.r2);
    let before = carried(r1)?;
    ensure!((&before["peer"], &before["hostForeignNow"]) == (&"r2".into(), &"10.0.1.2".into()), "{before}");
    ensure!(before["migrations"] == 0, "{before}");

    routers.move_second()?;
    // What r1 has to say arrives, so r2 has said where it is now.
    let more = configuration(1, 2, WAITS, &["198.51.100.0/25", "198.51.100.128/25"]);
    r1.reload_with_files(&more, &Files::new())?;
    r2.until_neighbor("r1", LIMIT, |shown| received(shown) == 2)?;
    let after = wait::until("the new address", LIMIT, || {
        let shown = carried(r1).map_err(|error| error.to_string())?;
        if shown["hostForeignNow"] == "10.0.1.9" { Ok(shown) } else { Err(shown.to_string()) }
    })?;
    // It is the same connection, and the same session at both ends.
    ensure!(
        after["number"] == before["number"] && after["portForeignNow"] == before["portForeignNow"],
        "{after}"
    );
    ensure!((&after["hostForeign"], &after["migrations"]) == (&"10.0.1.2".into(), &1.into()), "{after}");
    for (router, peer) in [(r1, "r2"), (r2, "r1")] {
        let shown = router.until_established(peer, LIMIT)?;
        ensure!(
            (&shown["connectionsEstablished"], &shown["connectionsDropped"]) == (&1.into(), &0.into()),
            "{shown}"
        );
    }

    // And the other way: what r2 says arrives too.
    let more = configuration(2, 1, "", &["203.0.113.0/24", "192.0.2.0/24"]);
    r2.reload_with_files(&more, &Files::new())?;
    r1.until_neighbor("r2", LIMIT, |shown| received(shown) == 2)?;
    ensure!(carried(r1)?["number"] == before["number"], "it is another connection");
    Ok(())
}

/// The limit of it, and how such a session ends.
#[test]
fn a_session_that_was_dialed_from_a_fixed_address_ends_with_it() -> Result<()> {
    let routers = Routers::new("local-address = \"10.0.1.2\"")?;
    routers.move_second()?;
    routers.r1.until_neighbor("r2", LIMIT, |shown| shown["connectionsDropped"] == 1)?;
    routers.r2.until_neighbor("r1", LIMIT, |shown| shown["connectionsDropped"] == 1)?;
    Ok(())
}
