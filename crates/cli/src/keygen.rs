//! `holdfast keygen`: keys of BGPsec routers, many at once.
//!
//! The files of a key are named `AS.SKI.WHAT.pem` or `.der`; [`name_of`] reads the first two parts again.

use std::{
    io::Write,
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::{Args, value_parser};
use holdfast_path_validation::{P256Signer, RouterKey};
use holdfast_tls::keys::{
    self, Access, Algorithm, Item, KeysError, PrivateKey, Validity, bgpsec_certificate, bgpsec_request, pem,
    sec1,
};
use holdfast_types::{Asn, Ski};
use serde_json::json;

use crate::{Failure, json::line, keys::make_directory};

/// What a file has, as its name says: a private key (SEC 1).
pub(crate) const SEC1: &str = "sec1";
/// A private key (PKCS#8).
pub(crate) const PKCS8: &str = "pkcs8";
/// A public key: subjectPublicKeyInfo.
pub(crate) const SPKI: &str = "spki";
const REQUEST: &str = "request";
const CERTIFICATE: &str = "certificate";

/// The first of the private four-octet AS numbers (RFC 6996), and the last.
const PRIVATE: AsRange = AsRange { first: Asn(4_200_000_000), last: Asn(4_294_967_294) };
/// At once: five files each are half a million.
const MOST_KEYS: i64 = 100_000;

/// `holdfast keygen`
#[derive(Clone, Debug, Args)]
pub struct Keygen {
    /// How many.
    #[arg(value_name = "N", value_parser = value_parser!(u32).range(1..=MOST_KEYS))]
    count: u32,
    /// The directory for their files; made if it is not there. Nothing that is there is replaced.
    directory: PathBuf,
    /// All keys are of this AS.
    #[arg(long = "as", value_name = "AS", conflicts_with = "as_range")]
    asn: Option<Asn>,
    /// Each key is of the next AS of these, and after the last one of the first again. Private numbers if nothing is said.
    #[arg(long, value_name = "FIRST-LAST", default_value_t = PRIVATE)]
    as_range: AsRange,
    /// Write DER.
    #[arg(long)]
    der: bool,
    /// Write PEM; this is what is written if nothing is said, and both may be.
    #[arg(long)]
    pem: bool,
    /// How long the certificates are valid.
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = value_parser!(u32).range(1..))]
    days: u32,
    /// Answer as JSON.
    #[arg(long)]
    json: bool,
}

/// AS numbers from one to another.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct AsRange {
    first: Asn,
    last: Asn,
}

impl AsRange {
    /// The one at a place, which may be behind the last.
    fn at(self, place: u32) -> Asn {
        let count = u64::from(self.last.0) - u64::from(self.first.0) + 1;
        Asn(self.first.0 + (u64::from(place) % count) as u32)
    }
}

impl std::fmt::Display for AsRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl FromStr for AsRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no range of AS numbers: FIRST-LAST, as in 64496-64511");
        let (first, last) = text.split_once('-').ok_or_else(wrong)?;
        let range =
            Self { first: first.parse().map_err(|_| wrong())?, last: last.parse().map_err(|_| wrong())? };
        if range.first <= range.last { Ok(range) } else { Err(wrong()) }
    }
}

/// AS and SKI of a file, and what it has.
pub(crate) fn name_of(file: &Path) -> Option<(Asn, Ski, &str)> {
    let mut parts = file.file_name()?.to_str()?.split('.');
    let (asn, ski, what) = (parts.next()?, parts.next()?, parts.next()?);
    let is_known = matches!(parts.next()?, "pem" | "der") && parts.next().is_none();
    Some((asn.parse().ok()?, ski.parse().ok()?, what)).filter(|_| is_known)
}

impl Keygen {
    pub(crate) fn wants_json(&self) -> bool {
        self.json
    }

    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let all: Vec<Asn> =
            (0..self.count).map(|place| self.asn.unwrap_or_else(|| self.as_range.at(place))).collect();
        if let Some(asn) = all.iter().find(|asn| !asn.is_usable()) {
            return Err(Failure::Input(format!("AS {asn} is reserved and names no router")));
        }
        make_directory(&self.directory)?;
        let mut made = Vec::new();
        for asn in all {
            let key = self.make(asn)?;
            match self.json {
                true => made.push(json!({ "as": key.asn.0, "ski": key.ski.to_string() })),
                false => writeln!(out, "{}.{}", key.asn, key.ski)?,
            }
        }
        keys::sync(&self.directory)?;
        let directory = self.directory.display();
        match self.json {
            true => line(out, &json!({ "directory": directory.to_string(), "keys": made }))?,
            false => writeln!(out, "Generated {} router key(s) in directory {directory}", self.count)?,
        }
        Ok(())
    }

    fn make(&self, asn: Asn) -> Result<RouterKey, Failure> {
        let private = PrivateKey::generate(Algorithm::P256)?;
        let signer =
            P256Signer::from_der(asn, private.der()).map_err(|_| KeysError::Missing("private key"))?;
        let public = signer.router_key();
        let certificate = bgpsec_certificate(&private, asn, public.ski, Validity::days(self.days))?;
        let files = [
            (SEC1, Item::PrivateKey(sec1(&private)?)),
            (PKCS8, Item::PrivateKey(private.der().to_vec())),
            (SPKI, Item::PublicKey(public.spki.clone())),
            (REQUEST, Item::Request(bgpsec_request(&private, asn)?)),
            (CERTIFICATE, Item::Certificate(certificate)),
        ];
        for (what, item) in files {
            let access = if matches!(item, Item::PrivateKey(_)) { Access::Secret } else { Access::Public };
            let write = |form: &str, octets: &[u8]| {
                let name = format!("{asn}.{}.{what}.{form}", public.ski);
                keys::create(&self.directory.join(name), octets, access)
            };
            if self.pem || !self.der {
                write("pem", pem(&item).as_bytes())?;
            }
            if self.der {
                write("der", item.der())?;
            }
        }
        Ok(public)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_begins_again_behind_its_last_number() {
        let range: AsRange = "64496-64498".parse().expect("a range");
        assert_eq!([0, 2, 3, 7].map(|place| range.at(place).0), [64496, 64498, 64496, 64497]);
        let all: AsRange = "0-4294967295".parse().expect("a range");
        assert_eq!(all.at(u32::MAX), Asn(u32::MAX));
        for wrong in ["5", "5-4", "a-b", "-", "1-4294967296"] {
            assert!(wrong.parse::<AsRange>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_name_says_whose_key_it_is() {
        let ski = "AB4D910F55CAE71A215EF3CAFE3ACC45B5EEC154";
        let named = format!("d/64496.{ski}.spki.pem");
        assert_eq!(name_of(Path::new(&named)), Some((Asn(64496), ski.parse().expect("an SKI"), SPKI)));
        for wrong in
            ["64496.spki.pem", &format!("x.{ski}.spki.pem"), &format!("1.{ski}.spki.pem.bak"), "readme"]
        {
            assert_eq!(name_of(Path::new(wrong)), None, "{wrong}");
        }
    }
}
