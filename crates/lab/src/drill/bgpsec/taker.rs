//! The neighbour that the router signs for. What it is told is judged as everywhere, and each path is verified.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use holdfast_bgp_wire::{
    Attributes, HEADER_LEN,
    attribute::code,
    nlri::prefixes,
    update::{Sections, sections},
};
use holdfast_bgpsec_wire::{Ingress, Nlri, Path, Update};
use holdfast_path_validation::{Change, KeyTable, Validator, Verdict, VerifiedSignatures, random_seed};
use holdfast_types::{Asn, Ipv4Prefix, Prefix, RouterKey};

use super::super::{stock::ROUTER_AS, watch::Watch};
use crate::{
    speaker::Speaker,
    topology::{Side, Star, v4},
};

pub(super) const NETWORK: u8 = 4;
pub(super) const AS: u32 = 65_004;
/// Good signatures that are remembered: a path that changes has older ones that are known.
const REMEMBERED: usize = 1 << 16;
/// Faults that are put into words.
const MOST_FAULTS: usize = 20;

pub(super) struct Taker {
    pub(super) speaker: Speaker,
    pub(super) watch: Watch,
}

/// What the taker was told.
#[derive(Debug, Default)]
pub(super) struct Verified {
    /// Announcements with a path that is valid.
    pub(super) signed: u64,
    /// Prefixes that were announced without signatures.
    pub(super) unsigned: BTreeSet<Prefix>,
    /// In words; the first few.
    pub(super) faults: Vec<String>,
}

impl Taker {
    pub(super) fn start(star: &Star) -> Result<Self> {
        let watch = Watch::start(star.neighbor(NETWORK), &format!("n{NETWORK}"), v4(NETWORK, Side::First))?;
        let speaker = star.speaker(NETWORK, AS, |config| {
            (config.takes_signed, config.records) = (true, true);
        })?;
        Ok(Self { speaker, watch })
    }

    /// Judges all that came in this session, by these keys.
    pub(super) fn verify(&self, keys: Vec<RouterKey>) -> Result<Verified> {
        let table = KeyTable::new(random_seed()?);
        table.apply(keys.into_iter().map(Change::Announce));
        let validator = Validator::default().with_memory(VerifiedSignatures::new(REMEMBERED, random_seed()?));
        let (keys, mut verified) = (table.keys(), Verified::default());
        for message in self.speaker.updates() {
            let update = sections(message.get(HEADER_LEN..).context("a header")?)?;
            match announced(&update) {
                Ok(None) => verified.unsigned.extend(unsigned(&update)),
                Ok(Some((path, prefix))) => {
                    let nlri = Nlri::unicast(prefix);
                    let ingress = Ingress::external(Asn(ROUTER_AS), Asn(AS));
                    let verdict = match ingress.check(&path, Update::PROPER) {
                        Ok(()) => validator.validate(&path, Asn(AS), &nlri, &keys),
                        Err(error) => {
                            verified.find(format!("{prefix}: {error}"));
                            continue;
                        }
                    };
                    match verdict {
                        Verdict::Valid => verified.signed += 1,
                        Verdict::NotValid(_) | Verdict::Unsupported => {
                            verified.find(format!("{prefix}: {verdict:?}"));
                        }
                    }
                }
                Err(error) => verified.find(format!("{error:#}")),
            }
        }
        Ok(verified)
    }
}

impl Verified {
    fn find(&mut self, fault: String) {
        if self.faults.len() < MOST_FAULTS {
            self.faults.push(fault);
        }
    }
}

/// The signed path of an UPDATE and its one prefix (RFC 8205 section 4.1), if it has one.
fn announced<'a>(update: &Sections<'a>) -> Result<Option<(Path<'a>, Prefix)>> {
    let find = |code| Attributes(update.attributes).iter().find(|attribute| attribute.code == code);
    let Some(path) = find(code::BGPSEC_PATH) else { return Ok(None) };
    let reach = find(code::MP_REACH_NLRI).context("a signed path and no MP_REACH_NLRI")?;
    // AFI, SAFI, a next hop of four octets, and one octet that is reserved (RFC 4760 section 3).
    let nlri = reach.value.get(9..).context("a short MP_REACH_NLRI")?;
    let mut prefixes = prefixes::<Ipv4Prefix>(nlri);
    let (prefix, more) = (prefixes.next().context("no prefix")??, prefixes.next());
    anyhow::ensure!(more.is_none(), "{prefix} is not alone in its UPDATE");
    Ok(Some((Path::parse(path.value)?, prefix.into())))
}

fn unsigned(update: &Sections<'_>) -> impl Iterator<Item = Prefix> {
    prefixes::<Ipv4Prefix>(update.nlri).flatten().map(Prefix::from)
}
