//! `holdfast bgpsec verify`.

use std::io::Write;

use clap::{Args, value_parser};
use holdfast_bgp_wire::{
    bgpsec::SecureUpdate,
    update::{PeerKind, Verdict as Outcome},
};
use holdfast_bgpsec_wire::{Ingress, MOST_HOPS, MOST_PCOUNT, Path, Session};
use holdfast_path_validation::{Failure as Fault, Validator, Verdict};
use holdfast_types::{Asn, Prefix};
use serde_json::{Value, json};

use super::{
    Reading,
    input::{GivenKeys, body, secure},
};
use crate::{Failure, json::line};

/// `holdfast bgpsec verify`
#[derive(Clone, Debug, Args)]
pub(super) struct Verify {
    /// The UPDATE in hexadecimal digits, with its header or without; @FILE reads digits or octets from a file.
    #[arg(long, value_name = "HEX|@FILE")]
    update: String,
    /// How.
    #[command(flatten)]
    reading: Reading,
    /// The AS in our OPEN: whom the newest signature is for.
    #[arg(long, value_name = "AS")]
    local_as: Asn,
    /// Another AS number of ours that must not be in the path: of the member AS or the confederation, or the router's own.
    #[arg(long, value_name = "AS")]
    other_as: Option<Asn>,
    /// The AS in the peer's OPEN: whose segment is the newest.
    #[arg(long, value_name = "AS", required_unless_present = "internal")]
    peer_as: Option<Asn>,
    /// Keys.
    #[command(flatten)]
    keys: GivenKeys,
    /// The peer is in another member AS of our confederation.
    #[arg(long)]
    confederation: bool,
    /// The peer is in our AS, and adds no segment.
    #[arg(long, conflicts_with_all = ["peer_as", "confederation"])]
    internal: bool,
    /// The peer is a route server, which may leave itself out of the path (pCount 0).
    #[arg(long)]
    route_server: bool,
    /// Longer paths are not looked at.
    #[arg(long, value_name = "HOPS", default_value_t = MOST_HOPS as u16, value_parser = value_parser!(u16).range(1..=654))]
    most_hops: u16,
    /// A path whose pCounts sum up to more is not looked at.
    #[arg(long, value_name = "SUM", default_value_t = MOST_PCOUNT, value_parser = value_parser!(u32).range(1..=16_000))]
    most_pcount: u32,
    /// The peer may repeat the prefix in the UPDATE's NLRI field.
    #[arg(long)]
    repeated_prefix: bool,
}

/// What is said of an UPDATE.
enum Judgement {
    /// It is treated as a withdrawal, and why.
    Malformed(String),
    /// Signatures have decided.
    Judged(Verdict),
}

impl Judgement {
    fn word(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "Malformed",
            Self::Judged(Verdict::Valid) => "Valid",
            Self::Judged(Verdict::NotValid(_)) => "Not Valid",
            Self::Judged(Verdict::Unsupported) => "Unsupported",
        }
    }

    fn reason(&self) -> Option<String> {
        match self {
            Self::Malformed(reason) => Some(reason.clone()),
            Self::Judged(Verdict::Valid) => None,
            Self::Judged(Verdict::NotValid(fault)) => Some(fault.to_string()),
            Self::Judged(Verdict::Unsupported) => Some(
                "no block is of an algorithm suite that is known; the route counts as unsigned".to_owned(),
            ),
        }
    }

    fn fault(&self) -> Option<Fault> {
        match self {
            Self::Judged(Verdict::NotValid(fault)) => Some(*fault),
            Self::Malformed(_) | Self::Judged(_) => None,
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Judged(Verdict::Valid) => 0,
            Self::Judged(Verdict::NotValid(_)) => 1,
            Self::Malformed(_) => 2,
            Self::Judged(Verdict::Unsupported) => 3,
        }
    }
}

impl Verify {
    pub(super) fn run(self, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
        let (body, table) = (body(&self.update)?, self.keys.table()?);
        let (mut path, mut prefix) = (None, None);
        let judgement = match secure(&body, &self.reading)? {
            Err(error) => Judgement::Malformed(error.to_string()),
            Ok(update) => {
                prefix = update.nlri.map(|nlri| nlri.prefix);
                match (Path::parse(update.path), update.nlri) {
                    (Err(error), _) => Judgement::Malformed(error.to_string()),
                    (Ok(read), nlri) => {
                        path = Some(read);
                        match (self.check(&read, &update), nlri) {
                            (Ok(()), Some(nlri)) => {
                                let keys = table.keys();
                                let verdict =
                                    Validator::default().validate(&read, self.local_as, &nlri, &keys);
                                Judgement::Judged(verdict)
                            }
                            (Ok(()), None) => Judgement::Malformed("there is no route".to_owned()),
                            (Err(reason), _) => Judgement::Malformed(reason),
                        }
                    }
                }
            }
        };
        match json {
            true => line(out, &as_json(&judgement, path, prefix))?,
            false => as_text(&judgement, path, prefix, out)?,
        }
        match judgement.exit_code() {
            0 => Ok(()),
            code => Err(Failure::Judged(code)),
        }
    }

    /// What is wrong before any signature: with the path, of which more can be said here, and with all of the UPDATE, as
    /// `bgp` looks at it.
    fn check(&self, path: &Path<'_>, update: &SecureUpdate<'_>) -> Result<(), String> {
        let (session, kind) = match (self.internal, self.confederation) {
            // Whether we are in a confederation, only AS_PATH would say.
            (true, _) => (Session::Internal, PeerKind::Ibgp),
            (false, true) => (Session::Confederation, PeerKind::ConfedEbgp),
            (false, false) => (Session::External, PeerKind::Ebgp),
        };
        let ingress = Ingress {
            session,
            own_other: self.other_as,
            pcount_zero: self.route_server,
            most_hops: self.most_hops.into(),
            most_pcount: self.most_pcount,
            repeated_prefix: self.repeated_prefix,
            ..Ingress::external(self.peer_as.unwrap_or(self.local_as), self.local_as)
        };
        ingress.check(path, update.update).map_err(|refused| refused.to_string())?;
        match update.check(kind, ingress) {
            Outcome::Ok => Ok(()),
            Outcome::TreatAsWithdraw(fault) => Err(fault.to_string()),
            Outcome::SessionReset(error) => Err(format!("a receiver ends the session: {error}")),
        }
    }
}

fn as_text(
    judgement: &Judgement,
    path: Option<Path<'_>>,
    prefix: Option<Prefix>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    match judgement.reason() {
        Some(reason) => writeln!(out, "{}: {reason}", judgement.word())?,
        None => writeln!(out, "{}", judgement.word())?,
    }
    if let Some(prefix) = prefix {
        writeln!(out, "  {prefix}")?;
    }
    let Some(path) = path else { return Ok(()) };
    for block in path.blocks() {
        for (hop, (segment, signature)) in path.segments().zip(block.signatures()).enumerate() {
            let confed = if segment.is_confed() { " confederation" } else { "" };
            let failing = judgement.fault().filter(|fault| (fault.suite, fault.hop) == (block.suite, hop));
            let failing = failing.map(|fault| format!("  <- {}", fault.reason)).unwrap_or_default();
            writeln!(
                out,
                "  hop {hop}  AS {}  pCount {}{confed}  suite {}  key {}{failing}",
                segment.asn, segment.pcount, block.suite, signature.ski
            )?;
        }
    }
    Ok(())
}

fn as_json(judgement: &Judgement, path: Option<Path<'_>>, prefix: Option<Prefix>) -> Value {
    let hop = |path: Path<'_>, hop: usize, segment: holdfast_bgpsec_wire::Segment| {
        let signatures: Vec<_> = path
            .blocks()
            .filter_map(|block| Some((block.suite, block.signatures().nth(hop)?)))
            .map(|(suite, signature)| json!({ "suite": suite, "ski": signature.ski.to_string() }))
            .collect();
        json!({
            "as": segment.asn.0,
            "pCount": segment.pcount,
            "flags": segment.flags,
            "signatures": signatures,
        })
    };
    let hops = path.map(|path| {
        path.segments().enumerate().map(|(number, segment)| hop(path, number, segment)).collect::<Vec<_>>()
    });
    json!({
        "verdict": judgement.word(),
        "reason": judgement.reason(),
        "failingHop": judgement.fault().map(|fault| fault.hop),
        "prefix": prefix.map(|prefix| prefix.to_string()),
        "hops": hops.unwrap_or_default(),
    })
}
