//! Sessions over TLS and QUIC: who is let in, who is not and what the operator reads then, and what a session does not mind.
//!
//! ```text
//!  r1, which dials ──1── r2, which waits
//!  AS 65000              AS 65001
//! ```

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    keys::{Shown, Signer, now},
    router::{Files, Router},
    topology::Star,
    wait,
};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(20);

/// One of both, as it is configured.
#[derive(Clone)]
struct End {
    /// As in the file.
    transport: String,
    /// What the other one has to prove.
    trust: String,
    files: Files,
}

impl End {
    fn new(transport: &str, shown: &Shown, trust: &str, signer: &Signer) -> Self {
        Self { transport: transport.to_owned(), trust: trust.to_owned(), files: signer.files_of(shown) }
    }

    /// Showing something else.
    fn showing(&self, shown: &Shown) -> Self {
        let mut end = self.clone();
        end.files.extend(shown.files());
        end
    }

    fn over(&self, transport: &str) -> Self {
        Self { transport: transport.to_owned(), ..self.clone() }
    }

    fn trusting(&self, trust: &str) -> Self {
        Self { trust: trust.to_owned(), ..self.clone() }
    }
}

const R1: (u8, &str) = (1, "");
const R2: (u8, &str) = (2, "passive = true");

fn configuration((number, peer): (u8, &str), end: &End) -> String {
    let other = 3 - number;
    let (asn, other_asn) = (64_999 + u32::from(number), 64_999 + u32::from(other));
    let End { transport, trust, .. } = end;
    format!(
        r#"
[router]
id = "10.0.1.{number}"
asn = {asn}
[tls]
certificate = "certificate.pem"
key = "key.pem"
[bgp]
connect-retry = 1
quic-s2n-port = 1179
[[bgp.network]]
prefix = "20.0.{number}.0/24"
[[bgp.peer]]
name = "other"
address = "10.0.1.{other}"
asn = {other_asn}
{peer}
transport = {transport}
{trust}
import = "accept-all"
export = "accept-all"
"#
    )
}

/// Both routers, and who has signed for them.
struct Pair {
    _star: Star,
    signer: Signer,
    r1: Router,
    r2: Router,
    /// As they are configured at first.
    ends: [End; 2],
}

fn names(other: &str) -> String {
    format!("tls-authorities = \"authority.pem\"\ntls-name = \"{other}.example\"")
}

impl Pair {
    fn start(transport: &str) -> Result<Self> {
        let star = Star::new(1)?;
        let signer = Signer::new("Lab CA")?;
        let ends = [("r1", "r2"), ("r2", "r1")].map(|(name, other)| -> Result<End> {
            let shown = signer.sign(&format!("{name}.example"))?;
            Ok(End::new(transport, &shown, &names(other), &signer))
        });
        let [first, second] = ends;
        let ends = [first?, second?];
        let r1 = Router::start_with_files(&star.router, &configuration(R1, &ends[0]), &ends[0].files)?;
        let r2 = Router::start_with_files(star.neighbor(1), &configuration(R2, &ends[1]), &ends[1].files)?;
        Ok(Self { _star: star, signer, r1, r2, ends })
    }

    /// Another configuration for both.
    fn reload(&self, r1: &End, r2: &End) -> Result<()> {
        self.r2.reload_with_files(&configuration(R2, r2), &r2.files)?;
        self.r1.reload_with_files(&configuration(R1, r1), &r1.files)?;
        Ok(())
    }

    /// Waits until both have a session and the other's route; what r1 and r2 say of it.
    fn until_established(&self, transport: &str) -> Result<[Value; 2]> {
        let is_up = |shown: &Value| {
            let routes = &shown["addressFamilyInfo"]["ipv4Unicast"]["acceptedPrefixCounter"];
            shown["bgpState"] == "Established" && shown["transport"] == transport && *routes == 1
        };
        let r1 = self.r1.until_neighbor("other", LIMIT, is_up).with_context(|| self.r2.log_tail())?;
        Ok([r1, self.r2.until_neighbor("other", LIMIT, |shown| shown["bgpState"] == "Established")?])
    }

    /// Has the next handshake begin.
    fn clear(&self) -> Result<()> {
        self.r1.cli(&["clear", "bgp", "other"]).map(drop)
    }

    /// Waits until r1 has tried and says this of it; there is no session.
    fn until_r1_says(&self, text: &str) -> Result<()> {
        let said = |shown: &Value| shown["lastError"].as_str().is_some_and(|error| error.contains(text));
        let shown = self.r1.until_neighbor("other", LIMIT, said);
        let shown = shown.with_context(|| format!("{text}\n{}", self.r2.log_tail()))?;
        ensure!(shown["bgpState"] != "Established", "{shown}");
        Ok(())
    }

    /// Waits until r2 has logged this since its log had so many octets; there is no session.
    fn until_r2_logs(&self, before: usize, text: &str) -> Result<()> {
        wait::until(text, LIMIT, || {
            let log = self.r2.log();
            if log.get(before..).is_some_and(|new| new.contains(text)) {
                Ok(())
            } else {
                Err(self.r2.log_tail())
            }
        })?;
        let shown = self.r2.neighbor("other")?;
        ensure!(shown["bgpState"] != "Established", "{shown}");
        Ok(())
    }
}

/// How often the session has come up and gone down.
fn flaps(shown: &Value) -> (Option<u64>, Option<u64>) {
    (shown["connectionsEstablished"].as_u64(), shown["connectionsDropped"].as_u64())
}

#[test]
fn a_session_comes_up_over_each_transport_and_over_no_other() -> Result<()> {
    let pair = Pair::start("\"tls\"")?;
    let [r1, r2] = &pair.ends;
    let [shown, _] = pair.until_established("tls")?;
    let proof = shown["proof"].as_str().context("a proof")?;
    ensure!(proof.contains("r2.example") && proof.contains("Lab CA"), "{proof}");

    pair.reload(&r1.over("\"quic\""), &r2.over("\"quic\""))?;
    pair.until_established("quic")?;
    let carried = pair.r1.show(&["connections", "other"])?;
    ensure!(carried["connections"][0]["protocol"] == "quic", "{carried}");
    let listeners = pair.r2.show(&["listeners"])?;
    let all = listeners["listeners"].as_array().context("listeners")?;
    let quic = all.iter().filter(|listener| listener["protocol"] == "quic");
    ensure!(quic.clone().any(|listener| listener["let_in"] == 1), "{listeners}");

    // Keys are changed by whoever is asked to, for both.
    let update = ["call", "transport/transport.v1/UpdateKeys?peer=other"];
    pair.r1.cli(&update)?;
    // With whatever is said next.
    pair.r1.cli(&["clear", "bgp", "other", "in"])?;
    for router in [&pair.r1, &pair.r2] {
        wait::until("other keys", LIMIT, || {
            let shown = router.show(&["connections", "other"]).map_err(|error| error.to_string())?;
            if shown["connections"][0]["keyUpdates"] == 1 { Ok(()) } else { Err(shown.to_string()) }
        })?;
    }

    // One library with the other, both ways, and with itself.
    let at = |port: u16, end: &End| end.trusting(&format!("{}\nquic-port = {port}", end.trust));
    pair.reload(&at(179, &r1.over("\"quic-s2n\"")), &r2.over("\"quic\""))?;
    pair.until_established("quic-s2n")?;
    pair.reload(&at(1179, &r1.over("\"quic\"")), &r2.over("\"quic-s2n\""))?;
    pair.until_established("quic")?;
    pair.reload(&at(1179, &r1.over("\"quic-s2n\"")), &r2.over("\"quic-s2n\""))?;
    pair.until_established("quic-s2n")?;
    let refused = pair.r1.cli(&update).err().context("a library that cannot")?.to_string();
    ensure!(refused.contains("changes its keys by itself"), "{refused}");

    // What the other one does not have is passed over, in the order of the list.
    pair.reload(&r1.over("[\"quic\", \"tls\", \"tcp\"]"), &r2.over("[\"tcp\", \"tls\"]"))?;
    pair.until_established("tls")?;

    // And nothing outside it is ever used, from either end.
    pair.reload(&r1.over("\"quic\""), &r2.over("\"tcp\"").trusting(""))?;
    pair.until_r1_says("no answer")?;
    ensure!(pair.r1.log().contains("connecting failed: no answer"), "{}", pair.r1.log_tail());
    let before = pair.r2.log().len();
    pair.reload(&r1.over("\"tcp\"").trusting(""), &r2.over("[\"quic\", \"tls\"]"))?;
    pair.until_r2_logs(before, "does it speak plain TCP?")?;
    ensure!(pair.r1.neighbor("other")?["bgpState"] != "Established");
    Ok(())
}

#[test]
fn bare_keys_prove_a_neighbour_that_is_pinned() -> Result<()> {
    let pair = Pair::start("\"quic\"")?;
    let [r1, r2] = &pair.ends;
    let [one, two] = [pair.signer.sign("r1.example")?, pair.signer.sign("r2.example")?];
    let pinned = |shown: &Shown| format!("tls-raw-public-key = true\ntls-pins = \"{}\"", shown.pin());
    let (r1, r2) = (r1.showing(&one).trusting(&pinned(&two)), r2.showing(&two).trusting(&pinned(&one)));
    for transport in ["quic", "tls", "quic"] {
        let word = format!("\"{transport}\"");
        pair.reload(&r1.over(&word), &r2.over(&word))?;
        pair.clear()?;
        let [shown, _] = pair.until_established(transport)?;
        let proof = shown["proof"].as_str().context("a proof")?;
        ensure!(proof.contains("public key") && proof.contains(&two.pin()), "{proof}");
    }
    let stranger = pair.signer.sign("r2.example")?;
    pair.reload(&r1.over("\"quic\""), &r2.over("\"quic\"").showing(&stranger))?;
    pair.clear()?;
    pair.until_r1_says("its key is not the pinned one")
}

/// Over each of the transports, one after the other, since sessions of one would hide the other's.
fn refusals(transport: &str) -> Result<()> {
    let pair = Pair::start(&format!("\"{transport}\""))?;
    let [r1, r2] = &pair.ends;
    pair.until_established(transport)?;
    let other = Signer::new("Other CA")?;

    // r1 judges what r2 shows.
    let cases = [
        (other.sign("r2.example")?, "CN=Other CA, which is none of the peer's authorities"),
        (pair.signer.sign("r9.example")?, "not for r2.example"),
    ];
    for (shown, text) in cases {
        pair.reload(r1, &r2.showing(&shown))?;
        pair.clear()?;
        pair.until_r1_says(text)?;
    }

    // r2 judges what r1 shows.
    let good = pair.signer.sign("r1.example")?;
    let pins = format!("{}\ntls-pins = \"{}\"", names("r1"), good.pin());
    let before = pair.r2.log().len();
    pair.reload(&r1.showing(&pair.signer.sign("r1.example")?), &r2.trusting(&pins))?;
    pair.until_r2_logs(before, "its key is not the pinned one")?;

    let mut revoking = r2.trusting(&format!("{}\ntls-revocations = \"crl.pem\"", names("r1")));
    revoking.files.insert("crl.pem".to_owned(), pair.signer.revoke(&good)?);
    let before = pair.r2.log().len();
    pair.reload(&r1.showing(&good), &revoking)?;
    pair.until_r2_logs(before, "its certificate is revoked by its authority")?;

    // All is well again.
    pair.reload(r1, r2)?;
    pair.until_established(transport).map(drop)
}

#[test]
fn who_is_somebody_else_is_refused_over_tls_with_the_reason() -> Result<()> {
    refusals("tls")
}

#[test]
fn who_is_somebody_else_is_refused_over_quic_with_the_reason() -> Result<()> {
    refusals("quic")
}

#[test]
fn a_session_outlives_its_certificates_and_others_take_their_place_without_a_flap() -> Result<()> {
    let pair = Pair::start("\"quic\"")?;
    let [r1, r2] = &pair.ends;
    pair.until_established("quic")?;

    // Another authority signs for both.
    let next = Signer::new("Next CA")?;
    let renewed = |end: &End, name: &str| -> Result<End> {
        let mut end = end.showing(&next.sign(name)?);
        end.files.insert("authority.pem".to_owned(), next.certificate());
        Ok(end)
    };
    let before = pair.until_established("quic")?;
    let (new1, new2) = (renewed(r1, "r1.example")?, renewed(r2, "r2.example")?);
    pair.reload(&new1, &new2)?;
    let after = pair.until_established("quic")?;
    for (before, after) in before.iter().zip(&after) {
        ensure!(flaps(before) == flaps(after), "{before} {after}");
        let since = |shown: &Value| shown["bgpTimerUpEstablishedEpoch"].as_u64().context("an epoch");
        // Each call finds it from the time of day, to the millisecond.
        ensure!(since(before)?.abs_diff(since(after)?) <= 1, "{before} {after}");
    }
    pair.clear()?;
    let renewed = |shown: &Value| {
        let proof = shown["proof"].as_str().unwrap_or_default();
        shown["bgpState"] == "Established" && proof.contains("Next CA")
    };
    pair.r1.until_neighbor("other", LIMIT, renewed)?;
    pair.r2.until_neighbor("other", LIMIT, renewed)?;

    // Secrets are written from the reload on that asks for it.
    let logging = configuration(R1, &new1).replace("[bgp]", "key-log = \"secrets.log\"\n[bgp]");
    pair.r1.reload_with_files(&logging, &new1.files)?;
    pair.clear()?;
    let secrets = pair.r1.directory().join("secrets.log");
    wait::until("secrets of a session", LIMIT, || match std::fs::read_to_string(&secrets) {
        Ok(text) if text.contains("CLIENT_TRAFFIC_SECRET_0 ") => Ok(()),
        other => Err(format!("{other:?}")),
    })?;

    // A certificate that is good for a few seconds more.
    let until = now()? + 6;
    let expiring = new1.showing(&next.sign_until("r1.example", until)?);
    pair.reload(&expiring, &new2)?;
    pair.clear()?;
    let before = pair.until_established("quic")?;
    ensure!(now()? <= until, "too slow for this test: the certificate has expired before its session was up");
    wait::until("the end of the certificate", LIMIT, || {
        let now = now().map_err(|error| error.to_string())?;
        if now > until + 1 { Ok(()) } else { Err(format!("{} s to go", until + 1 - now)) }
    })?;
    let after = pair.until_established("quic")?;
    ensure!(before.iter().zip(&after).all(|(before, after)| flaps(before) == flaps(after)), "{after:?}");
    let mark = pair.r2.log().len();
    pair.clear()?;
    pair.until_r2_logs(mark, "its certificate has expired")
}

#[test]
fn another_md5_key_below_tls_ends_no_session() -> Result<()> {
    let pair = Pair::start("\"tls\"")?;
    let with = |key: &str| {
        pair.ends.each_ref().map(|end| end.trusting(&format!("{}\nhold-time = 9\n{key}", end.trust)))
    };
    let [first, second] = with("");
    pair.reload(&first, &second)?;
    let before = pair.until_established("tls")?;
    for key in ["md5 = \"one\"", ""] {
        let [first, second] = with(key);
        pair.reload(&first, &second)?;
        // Longer than the hold time.
        std::thread::sleep(Duration::from_secs(11));
        let after = pair.until_established("tls")?;
        ensure!(after.each_ref().map(flaps) == before.each_ref().map(flaps), "{key}: {after:?}");
        ensure!(pair.r1.neighbor("other")?["bgpState"] == "Established", "{key}");
    }
    Ok(())
}
