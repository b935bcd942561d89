//! `holdfast bgpsec sign`.

use std::{io::Write, net::IpAddr, path::PathBuf};

use clap::{ArgGroup, Args};
use holdfast_bgp_wire::{NextHop, Origin, bgpsec};
use holdfast_bgpsec_wire::{CONFED_SEGMENT, Ingress, Nlri, Path, Segment, Update};
use holdfast_path_validation::{Signer, Validator, Verdict, sign};
use holdfast_types::{Asn, Prefix};
use serde_json::json;

use super::{
    Reading,
    input::{GivenKeys, body, hex, secure, signer, wrong},
};
use crate::{Failure, json::line};

/// `holdfast bgpsec sign`
#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("sign_what").required(true).args(["prefix", "update"]))]
#[command(group = ArgGroup::new("sign_trust").multiple(true).args(["keys", "keys_file", "key_dir", "force"]))]
#[command(group = ArgGroup::new("sign_form").required(true).args(["next_hop", "attribute_only"]))]
pub(super) struct Sign {
    /// The private key: PEM or DER, PKCS#8 or SEC 1.
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Whose key it is, if the name of its file is not one of `holdfast keygen`.
    #[arg(long = "as", value_name = "AS")]
    asn: Option<Asn>,
    /// The AS in the OPEN of the peer that gets the UPDATE.
    #[arg(long, value_name = "AS")]
    to: Asn,
    /// Originate this route.
    #[arg(long, value_name = "PREFIX")]
    prefix: Option<Prefix>,
    /// Go on with the path of this UPDATE: hexadecimal digits, or @FILE. The keys have to say that it was signed for the AS
    /// that signs now.
    #[arg(long, value_name = "HEX|@FILE", requires = "sign_trust")]
    update: Option<String>,
    /// How.
    #[command(flatten)]
    reading: Reading,
    /// Keys of the ASs in its path.
    #[command(flatten)]
    keys: GivenKeys,
    /// Sign whatever the path and the numbers are, and without keys.
    #[arg(long)]
    force: bool,
    /// How often the AS counts; 0 for a route server or inside a confederation.
    #[arg(long, value_name = "TIMES", default_value_t = 1)]
    pcount: u8,
    /// The segment is added inside a confederation.
    #[arg(long)]
    confederation: bool,
    /// Next hop in MP_REACH_NLRI.
    #[arg(long, value_name = "ADDRESS")]
    next_hop: Option<IpAddr>,
    /// Print the value of BGPsec_PATH alone.
    #[arg(long)]
    attribute_only: bool,
}

impl Sign {
    pub(super) fn run(self, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
        let signer = signer(&self.key, self.asn)?;
        let received = self.update.as_deref().map(body).transpose()?;
        let before = received.as_deref().map(|body| secure(body, &self.reading)).transpose()?;
        let unusable = |error: &dyn std::fmt::Display| wrong(format!("--update: {error}"));
        let before = before.transpose().map_err(|error| unusable(&error))?;
        let path =
            before.map(|update| Path::parse(update.path)).transpose().map_err(|error| unusable(&error))?;
        let nlri = before.and_then(|update| update.nlri).or(self.prefix.map(Nlri::unicast));
        let nlri = nlri.ok_or_else(|| unusable(&"there is no route in MP_REACH_NLRI"))?;
        if !self.force {
            self.check_target(signer.asn())?;
            if let (Some(path), Some(update)) = (&path, before) {
                self.check_path(path, update.update, &nlri, signer.asn())?;
            }
        }
        let flags = if self.confederation { CONFED_SEGMENT } else { 0 };
        let segment = Segment { pcount: self.pcount, flags, asn: signer.asn() };
        let octets = sign(path.as_ref(), segment, self.to, &nlri, &[&signer])
            .map_err(|error| wrong(error.to_string()))?;
        let update = match self.next_hop {
            Some(next_hop) if !self.attribute_only => Some(announce(&octets, next_hop, nlri.prefix)?),
            _ => None,
        };
        match json {
            true => line(out, &json!({ "update": update.as_deref().map(hex), "attribute": hex(&octets) }))?,
            false => writeln!(out, "{}", hex(update.as_deref().unwrap_or(&octets)))?,
        }
        Ok(())
    }

    /// Nobody has these numbers in an OPEN to which the signer's AS could send.
    fn check_target(&self, own: Asn) -> Result<(), Failure> {
        if !self.to.is_usable() {
            return Err(refused(format!("--to: AS {} is reserved and names no router", self.to)));
        }
        if self.to == own {
            return Err(refused(format!("--to: AS {own} is the one that signs")));
        }
        Ok(())
    }

    /// Whether the AS that signs may have received the path. Whom the newest signature is for is only in what it covers, so
    /// keys alone tell.
    fn check_path(&self, path: &Path<'_>, update: Update, nlri: &Nlri, own: Asn) -> Result<(), Failure> {
        let unusable = |said: &dyn std::fmt::Display| refused(format!("--update: {said}"));
        if path.newest().asn == own {
            return Err(unusable(&format!("AS {own} has signed it already")));
        }
        // Who has sent it, and how long it may be, is not said: what is left of the checks is what holds inside an AS.
        let ingress = Ingress { most_hops: usize::MAX, most_pcount: u32::MAX, ..Ingress::internal(own) };
        ingress.check(path, update).map_err(|error| unusable(&error))?;
        match Validator::default().validate(path, own, nlri, &self.keys.table()?.keys()) {
            Verdict::Valid => Ok(()),
            // There is nothing to add a signature to, which is said where that is tried.
            Verdict::Unsupported => Ok(()),
            Verdict::NotValid(fault) => Err(unusable(&format!("not valid for AS {own}: {fault}"))),
        }
    }
}

fn refused(said: String) -> Failure {
    wrong(said + "; --force signs all the same")
}

fn announce(path: &[u8], next_hop: IpAddr, prefix: Prefix) -> Result<Vec<u8>, Failure> {
    let next_hop = match (next_hop, prefix) {
        (IpAddr::V4(_), Prefix::V6(_)) => {
            return Err(wrong("--next-hop: a route of IPv6 has a next hop of IPv6"));
        }
        (IpAddr::V4(address), Prefix::V4(_)) => NextHop::V4(address),
        (IpAddr::V6(global), _) => NextHop::V6 { global, link_local: None },
    };
    bgpsec::announce(path, Origin::Igp, next_hop, prefix).map_err(|error| wrong(error.to_string()))
}
