//! `holdfast bgpsec verify`.

use std::io::Write;

use clap::Args;
use holdfast_bgpsec_wire::{Ingress, MOST_HOPS, Path};
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
    /// The AS in the peer's OPEN: whose segment is the newest.
    #[arg(long, value_name = "AS")]
    peer_as: Asn,
    /// Keys.
    #[command(flatten)]
    keys: GivenKeys,
    /// The peer is in another member AS of our confederation.
    #[arg(long)]
    confederation: bool,
    /// The peer is a route server, which may leave itself out of the path (pCount 0).
    #[arg(long)]
    route_server: bool,
    /// Longer paths are not looked at.
    #[arg(long, value_name = "HOPS", default_value_t = MOST_HOPS)]
    most_hops: usize,
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
                        match (self.ingress().check(&read, update.update), nlri) {
                            (Ok(()), Some(nlri)) => {
                                let keys = table.keys();
                                let verdict =
                                    Validator::default().validate(&read, self.local_as, &nlri, &keys);
                                Judgement::Judged(verdict)
                            }
                            (Ok(()), None) => Judgement::Malformed("there is no route".to_owned()),
                            (Err(refused), _) => Judgement::Malformed(refused.to_string()),
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

    fn ingress(&self) -> Ingress {
        Ingress {
            in_confederation: self.confederation,
            pcount_zero: self.route_server,
            most_hops: self.most_hops,
            ..Ingress::external(self.peer_as, self.local_as)
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
