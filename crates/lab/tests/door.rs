//! Sessions over TLS and QUIC across deaths: what `transport` carries outlives `bgp`, and what it does not carry outlives
//! `transport`.
//!
//! ```text
//!  feeder ──2──(TCP)── Holdfast ──1──(TLS, QUIC)── Holdfast
//!  AS 65002            AS 65000                    AS 65001
//! ```

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    keys::Signer,
    router::Router,
    speaker::Speaker,
    table::Table,
    topology::{Side, Star, v4},
    wait,
};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
/// Far less than the hold time of 90 s.
const SOON: Duration = Duration::from_secs(30);
/// No crash loop: fewer deaths than end sessions, without a rest between them.
const DEATHS: u8 = 3;

/// A router with a peer that it speaks with over this transport, and whatever else.
fn configuration(transport: &str, (own, peer): (&str, &str), rest: &str) -> String {
    let (id, asn, peer_asn, address) = match own {
        "near" => ("10.0.0.1", 65_000, 65_001, v4(1, Side::Second)),
        _ => ("10.0.0.2", 65_001, 65_000, v4(1, Side::First)),
    };
    format!(
        r#"
[router]
id = "{id}"
asn = {asn}
[tls]
certificate = "certificate.pem"
key = "key.pem"
[bgp]
connect-retry = 1
quic-s2n-port = 1179
[[bgp.peer]]
name = "{peer}"
address = "{address}"
asn = {peer_asn}
transport = "{transport}"
tls-authorities = "authority.pem"
tls-name = "{peer}.example"
import = "accept-all"
export = "accept-all"
{rest}"#
    )
}

fn table(number: u8) -> Arc<Table> {
    Arc::new(Table::of_24s(number, 256))
}

/// Everything that runs.
struct Scene {
    near: Router,
    far: Router,
    feeder: Speaker,
}

impl Scene {
    /// With the session over this transport up, and 256 routes of the feeder gone through it.
    fn start(star: &Star, transport: &str) -> Result<Self> {
        let authority = Signer::new("Lab CA")?;
        let feeder = format!(
            "[[bgp.peer]]\nname = \"feeder\"\naddress = \"{}\"\nasn = 65002\npassive = true\nimport = \"accept-all\"\n",
            v4(2, Side::Second)
        );
        let start = |host, (own, peer), rest| {
            let configuration = configuration(transport, (own, peer), rest);
            Router::start_with_files(host, &configuration, &authority.files(own)?)
        };
        let near = start(&star.router, ("near", "far"), &feeder)?;
        let far = start(star.neighbor(1), ("far", "near"), "")?;
        let feeder = star.speaker(2, 65002, |config| config.tables = vec![table(0)])?;
        let shown = near.until_established("far", LIMIT)?;
        ensure!(shown["transport"] == transport, "{shown}");
        let scene = Self { near, far, feeder };
        scene.until_routes(256)?;
        Ok(scene)
    }

    /// Waits until so many of the feeder's routes have gone through the session.
    fn until_routes(&self, count: u64) -> Result<Value> {
        let family =
            |shown: &Value| shown["addressFamilyInfo"]["ipv4Unicast"]["acceptedPrefixCounter"].clone();
        self.far.until_neighbor("near", LIMIT, |shown| family(shown) == count)
    }

    /// Waits until both sessions are protected, and what is shown of that is as wanted.
    fn until_protected(&self, wanted: impl Fn(&Value) -> bool) -> Result<()> {
        wait::until("protected", LIMIT, || {
            let shown = self.near.show(&["nsr"]).map_err(|error| format!("{error:#}"))?;
            let sessions = shown["peers"].as_object().ok_or_else(|| shown.to_string())?;
            let all = sessions.len() == 2 && sessions.values().all(|session| session["protected"] == true);
            if all && wanted(&shown) { Ok(()) } else { Err(shown.to_string()) }
        })
    }

    /// `bgp` dies, and the peer is told of what changes as if it had not.
    fn bgp_dies_unnoticed(&self) -> Result<()> {
        self.until_protected(|_| true)?;
        for death in 1..=DEATHS {
            // Some of it is on its way when it dies.
            self.feeder.announce(table(death));
            let before = self.near.pid("bgp")?;
            self.near.kill("bgp")?;
            wait::until("another bgp", LIMIT, || match self.near.pid("bgp") {
                Ok(pid) if pid != before => Ok(()),
                other => Err(format!("{other:?}")),
            })?;
            self.until_protected(|shown| shown["resumedSessions"] == 2)?;
            let shown = self.until_routes(256 * u64::from(death + 1))?;
            ensure!(shown["connectionsDropped"] == 0, "death {death}: {shown}; {}", self.near.log_tail());
        }
        ensure!(self.feeder.status().sessions == 1, "the feeder has noticed");
        Ok(())
    }

    /// `transport` dies: its session ends and comes back, TCP's does not end.
    fn transport_dies(&self) -> Result<()> {
        self.near.kill("transport")?;
        let again = |shown: &Value| {
            shown["bgpState"] == "Established" && shown["connectionsDropped"].as_u64() >= Some(1)
        };
        self.near.until_neighbor("far", LIMIT, again)?;
        self.until_routes(256 * u64::from(DEATHS + 1))?;
        let feeder = self.near.neighbor("feeder")?;
        ensure!(feeder["bgpState"] == "Established" && feeder["connectionsDropped"] == 0, "{feeder}");
        Ok(())
    }
}

fn over(transport: &str) -> Result<()> {
    let star = Star::new(2)?;
    let scene = Scene::start(&star, transport)?;
    scene.bgp_dies_unnoticed()?;
    scene.transport_dies()
}

#[test]
fn a_session_over_tls_outlives_bgp_and_not_its_door() -> Result<()> {
    over("tls")
}

#[test]
fn a_session_over_quic_outlives_bgp_and_not_its_door() -> Result<()> {
    over("quic")
}

/// Two routers, the first of which dials, and how often their session has ended at each.
struct Deaths<'a> {
    transport: &'a str,
    dialer: Router,
    listener: Router,
    ended: [u64; 2],
    _star: Star,
}

impl<'a> Deaths<'a> {
    fn start(transport: &'a str) -> Result<Self> {
        let star = Star::new(1)?;
        let authority = Signer::new("Lab CA")?;
        let start = |host, (own, peer), rest| {
            let configuration = configuration(transport, (own, peer), rest);
            Router::start_with_files(host, &configuration, &authority.files(own)?)
        };
        let dialer = start(&star.router, ("near", "far"), "")?;
        let listener = start(star.neighbor(1), ("far", "near"), "passive = true")?;
        dialer.until_established("far", LIMIT)?;
        listener.until_established("near", LIMIT)?;
        Ok(Self { transport, dialer, listener, ended: [0, 0], _star: star })
    }

    /// Waits until both have noticed that the session was lost, and have the next one.
    fn until_up_again(&mut self) -> Result<()> {
        let routers = [(&self.dialer, "far"), (&self.listener, "near")];
        for ((router, peer), ended) in routers.into_iter().zip(&mut self.ended) {
            let again = |shown: &Value| {
                let more = shown["connectionsDropped"].as_u64() > Some(*ended);
                shown["bgpState"] == "Established" && shown["transport"] == self.transport && more
            };
            let shown = router.until_neighbor(peer, SOON, again).with_context(|| router.log_tail())?;
            *ended = shown["connectionsDropped"].as_u64().context("a number")?;
        }
        Ok(())
    }
}

#[test]
fn both_ends_notice_that_the_dialers_door_has_died_once_or_twice() -> Result<()> {
    let mut routers = Deaths::start("quic")?;
    routers.dialer.kill("transport")?;
    routers.until_up_again()?;

    // The second time in the middle of whatever it does then.
    let first = routers.dialer.pid("transport")?;
    routers.dialer.kill("transport")?;
    wait::until("another transport", LIMIT, || match routers.dialer.pid("transport") {
        Ok(pid) if pid != first => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    routers.dialer.kill("transport")?;
    routers.until_up_again()
}

#[test]
fn both_ends_notice_that_either_door_has_died_by_the_other_library() -> Result<()> {
    let mut routers = Deaths::start("quic-s2n")?;
    routers.dialer.kill("transport")?;
    routers.until_up_again()?;
    routers.listener.kill("transport")?;
    routers.until_up_again()
}
