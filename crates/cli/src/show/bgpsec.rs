//! `show bgpsec`: routers' keys, what has been verified, and what is to be; and what is signed with which private key.
//!
//! Two processes are asked at once. What `bgp` knows is shown whether `pathsec` answers or not.

use std::{io, io::Write, time::Duration};

use holdfast_api::{
    bgp::v1::{BgpClient, Empty as Nothing, NeighborBgpsec, ShowNeighborsRequest, SigningReply},
    pathsec::v1::{Empty, KeyState, PathSecClient, PathSecStatus, PrivateKey},
};
use holdfast_types::Ski;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::neighbors::bgpsec_json;
use crate::{
    Failure,
    json::line,
    router::{self, Router, answer},
    text::Table,
};

/// How long `pathsec` is waited for: it answers at once, or it is being replaced.
const PATIENCE: Duration = Duration::from_secs(1);

/// A peer for which BGPsec is configured.
struct Peer {
    name: String,
    bgpsec: NeighborBgpsec,
}

pub(super) async fn show(
    router: &Router,
    table: &router::Table,
    as_json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let of_table = router.of(table);
    let (bgp, status) = tokio::join!(bgp(&of_table), timeout(PATIENCE, status(router)));
    let ((peers, kept), status) = (bgp?, status.unwrap_or_else(|_| Err(late())));
    match as_json {
        true => line(out, &to_json(status.as_ref().ok(), &peers, &kept))?,
        false => write(&status, &peers, &kept, out)?,
    }
    Ok(())
}

async fn bgp(router: &Router) -> Result<(Vec<Peer>, SigningReply), Failure> {
    let bgp: BgpClient = router.client("bgp").await?;
    Ok((peers(&bgp).await?, answer(bgp.show_signing(Nothing {})).await?))
}

async fn peers(bgp: &BgpClient) -> Result<Vec<Peer>, Failure> {
    let mut neighbors = bgp.show_neighbors(ShowNeighborsRequest::default());
    let mut peers = Vec::new();
    while let Some(neighbor) = answer(neighbors.next()).await? {
        if let (Some(peer), Some(bgpsec)) = (neighbor.peer, neighbor.bgpsec) {
            peers.push(Peer { name: peer.name, bgpsec });
        }
    }
    Ok(peers)
}

/// One process verifies for all tables.
async fn status(router: &Router) -> Result<PathSecStatus, Failure> {
    let pathsec: PathSecClient = router.client("pathsec").await?;
    answer(pathsec.status(Empty {})).await
}

fn late() -> Failure {
    Failure::NoAnswer(format!("nothing from pathsec within {} s", PATIENCE.as_secs()))
}

fn queued_hops(peers: &[Peer]) -> u64 {
    peers.iter().map(|peer| peer.bgpsec.queued_hops).sum()
}

/// What `pathsec` has not said is `null`.
fn to_json(status: Option<&PathSecStatus>, peers: &[Peer], kept: &SigningReply) -> Value {
    let said = |count: fn(&PathSecStatus) -> u64| status.map(count);
    let peer = |peer: &Peer| {
        let mut value = bgpsec_json(&peer.bgpsec);
        value["name"] = peer.name.as_str().into();
        value
    };
    json!({
        "router_keys": said(|status| status.router_keys),
        "verified": said(|status| status.verified),
        "remembered": said(|status| status.remembered),
        "failed": said(|status| status.failed),
        "signed": said(|status| status.signed),
        "private_keys": status.map(|status| status.private_keys.iter().map(key_json).collect::<Vec<_>>()),
        "kept": kept.kept,
        "lost": kept.lost,
        "waiting": kept.waiting,
        "kept_octets": kept.memory_octets,
        "queued_hops": queued_hops(peers),
        "memory_octets": said(|status| status.memory_octets),
        "peers": peers.iter().map(peer).collect::<Vec<_>>(),
    })
}

fn key_json(key: &PrivateKey) -> Value {
    json!({ "asn": key.asn, "ski": ski(key), "state": state(key.state()), "signed": key.signed })
}

/// As files of keys have it in their names.
fn ski(key: &PrivateKey) -> String {
    <[u8; 20]>::try_from(&*key.ski).map(|octets| Ski(octets).to_string()).unwrap_or_default()
}

fn state(state: KeyState) -> &'static str {
    match state {
        // Nobody has heard of the caches yet.
        KeyState::Unspecified => "unknown",
        KeyState::InUse => "in-use",
        KeyState::Superseded => "superseded",
        KeyState::Waiting => "waiting",
        KeyState::Unpublished => "unpublished",
        KeyState::Withdrawn => "withdrawn",
        KeyState::Foreign => "foreign",
    }
}

/// Whether somebody has to do something about it.
fn is_alarming(state: KeyState) -> bool {
    match state {
        KeyState::Unpublished | KeyState::Withdrawn | KeyState::Foreign => true,
        KeyState::Unspecified | KeyState::InUse | KeyState::Superseded | KeyState::Waiting => false,
    }
}

/// The private keys, if there are any; `!` marks those that somebody has to do something about.
fn write_keys(keys: &[PrivateKey], out: &mut dyn Write) -> io::Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&["", ">AS", "Private key", "State", ">Signatures"]);
    for key in keys {
        table.row([
            if is_alarming(key.state()) { "!" } else { "" }.to_owned(),
            key.asn.to_string(),
            ski(key),
            state(key.state()).to_owned(),
            key.signed.to_string(),
        ]);
    }
    table.write(out)
}

/// Signatures of ours, if there are any.
fn write_kept(kept: &SigningReply, out: &mut dyn Write) -> io::Result<()> {
    let SigningReply { kept, lost, waiting, memory_octets: _ } = kept;
    if *kept + *lost + *waiting == 0 {
        return Ok(());
    }
    writeln!(out, "Signatures of ours: {kept} kept, {lost} lost, {waiting} waited for")
}

fn write(
    status: &Result<PathSecStatus, Failure>,
    peers: &[Peer],
    kept: &SigningReply,
    out: &mut dyn Write,
) -> io::Result<()> {
    match status {
        Ok(status) => {
            let known = if status.known { "" } else { " (no cache has been heard yet)" };
            writeln!(out, "Routers' keys: {}{known}", status.router_keys)?;
            writeln!(
                out,
                "Signatures: {} verified, {} of them bad, {} remembered",
                status.verified, status.failed, status.remembered
            )?;
            write_keys(&status.private_keys, out)?;
        }
        Err(_) if peers.is_empty() => writeln!(out, "No peer has `bgpsec`")?,
        Err(failure) => writeln!(out, "Routers' keys and signatures: not known ({failure})")?,
    }
    write_kept(kept, out)?;
    writeln!(out, "Hops that wait to be verified: {}", queued_hops(peers))?;
    if peers.is_empty() {
        return Ok(());
    }
    let mut table =
        Table::new(&["Neighbor", ">Valid", ">Not valid", ">Unverified", ">Queued hops", "Agreed"]);
    for Peer { name, bgpsec } in peers {
        let agreed = match (bgpsec.sent.is_empty(), bgpsec.received.is_empty()) {
            (true, true) => "nothing",
            (false, true) => "send",
            (true, false) => "receive",
            (false, false) => "both",
        };
        table.row([
            name.clone(),
            bgpsec.valid.to_string(),
            bgpsec.not_valid.to_string(),
            bgpsec.unverified.to_string(),
            bgpsec.queued_hops.to_string(),
            agreed.to_owned(),
        ]);
    }
    table.write(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: &str, valid: u64, queued_hops: u64) -> Peer {
        Peer {
            name: name.to_owned(),
            bgpsec: NeighborBgpsec { valid, queued_hops, ..NeighborBgpsec::default() },
        }
    }

    /// Of one private key in use, and one that is not published.
    fn keys() -> PathSecStatus {
        let key = |asn, octet, state: KeyState, signed| PrivateKey {
            asn,
            ski: vec![octet; 20],
            state: state.into(),
            signed,
        };
        let private_keys =
            vec![key(64_496, 1, KeyState::InUse, 5), key(64_497, 0xab, KeyState::Unpublished, 0)];
        PathSecStatus { private_keys, signed: 5, ..PathSecStatus::default() }
    }

    #[test]
    fn a_private_key_that_signs_nothing_is_marked_where_somebody_has_to_act() {
        let mut out = Vec::new();
        write(&Ok(keys()), &[], &SigningReply::default(), &mut out).expect("a buffer");
        let text = String::from_utf8(out).expect("text");
        let line = |word: &str| text.lines().find(|line| line.contains(word)).expect("there is one");
        assert!(!line("in-use").contains('!') && line("in-use").ends_with(" 5"), "{text}");
        assert!(line("unpublished").starts_with('!'), "{text}");
        assert!(line("unpublished").contains(&format!("64497  {}", "AB".repeat(20))), "{text}");
        let words: Vec<_> = (0..=6)
            .map(|number| KeyState::try_from(number).expect("a state"))
            .map(|key| format!("{}{}", state(key), if is_alarming(key) { "!" } else { "" }))
            .collect();
        let expected =
            ["unknown", "in-use", "superseded", "waiting", "unpublished!", "withdrawn!", "foreign!"];
        assert_eq!(words, expected);
    }

    #[test]
    fn all_counts_are_there_and_null_is_what_pathsec_has_not_said() {
        let kept = SigningReply { kept: 3, lost: 1, waiting: 0, memory_octets: 400 };
        let none = json!({
            "router_keys": null, "verified": null, "remembered": null, "failed": null,
            "signed": null, "private_keys": null, "queued_hops": 9, "memory_octets": null,
            "kept": 3, "lost": 1, "waiting": 0, "kept_octets": 400,
            "peers": [
                { "name": "a", "sent": [], "received": [], "valid": 1, "not_valid": 0, "unverified": 0,
                  "queued_hops": 4, "incomplete": false },
                { "name": "b", "sent": [], "received": [], "valid": 0, "not_valid": 0, "unverified": 0,
                  "queued_hops": 5, "incomplete": false },
            ],
        });
        assert_eq!(to_json(None, &[peer("a", 1, 4), peer("b", 0, 5)], &kept), none);
        let status = PathSecStatus { router_keys: 2, ..keys() };
        let shown = json!({
            "router_keys": 2, "verified": 0, "remembered": 0, "failed": 0,
            "signed": 5, "queued_hops": 0, "memory_octets": 0, "peers": [],
            "kept": 0, "lost": 0, "waiting": 0, "kept_octets": 0,
            "private_keys": [
                { "asn": 64496, "ski": "01".repeat(20), "state": "in-use", "signed": 5 },
                { "asn": 64497, "ski": "AB".repeat(20), "state": "unpublished", "signed": 0 },
            ],
        });
        assert_eq!(to_json(Some(&status), &[], &SigningReply::default()), shown);
    }

    #[test]
    fn without_pathsec_the_peers_are_shown_and_why_there_is_nothing_else() {
        let text = |status, peers: &[Peer]| {
            let mut out = Vec::new();
            write(&status, peers, &SigningReply::default(), &mut out).expect("a buffer");
            String::from_utf8(out).expect("text")
        };
        let shown = text(Err(late()), &[peer("upstream", 7, 3)]);
        assert!(
            shown.starts_with("Routers' keys and signatures: not known (the router does not answer"),
            "{shown}"
        );
        assert!(shown.contains("verified: 3\n") && shown.contains("upstream"), "{shown}");
        assert!(text(Err(late()), &[]).starts_with("No peer has"));
        assert!(text(Ok(PathSecStatus::default()), &[]).contains("no cache has been heard"));
    }
}
