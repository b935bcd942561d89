//! The neighbour that the router signs for. What it is told is judged as everywhere, and each path is verified.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};
use holdfast_bgp_wire::{
    Attributes, HEADER_LEN,
    attribute::code,
    nlri::prefixes,
    update::{Sections, sections},
};
use holdfast_bgpsec_wire::{Ingress, Nlri, Path, Update};
use holdfast_path_validation::{Change, KeyTable, Keys, Validator, Verdict, VerifiedSignatures, random_seed};
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
        verify(&self.speaker.updates(), keys)
    }
}

fn verify(updates: &[Vec<u8>], keys: Vec<RouterKey>) -> Result<Verified> {
    let table = KeyTable::new(random_seed()?);
    table.apply(keys.into_iter().map(Change::Announce));
    let validator = Validator::default().with_memory(VerifiedSignatures::new(REMEMBERED, random_seed()?));
    let (keys, mut verified) = (table.keys(), Verified::default());
    for message in updates {
        let update = sections(message.get(HEADER_LEN..).context("a header")?)?;
        match announced(&update) {
            Ok(None) => verified.unsigned.extend(unsigned(&update)),
            Ok(Some((path, prefix))) => match judge(&path, prefix, &validator, &keys) {
                Ok(()) => verified.signed += 1,
                Err(error) => verified.find(format!("{prefix}: {error:#}")),
            },
            Err(error) => verified.find(format!("{error:#}")),
        }
    }
    Ok(verified)
}

fn judge(path: &Path<'_>, prefix: Prefix, validator: &Validator, keys: &Keys) -> Result<()> {
    Ingress::external(Asn(ROUTER_AS), Asn(AS)).check(path, Update::PROPER)?;
    match validator.validate(path, Asn(AS), &Nlri::unicast(prefix), keys) {
        Verdict::Valid => Ok(()),
        verdict @ (Verdict::NotValid(_) | Verdict::Unsupported) => bail!("{verdict:?}"),
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
    ensure!(more.is_none(), "{prefix} is not alone in its UPDATE");
    Ok(Some((Path::parse(path.value)?, prefix.into())))
}

fn unsigned(update: &Sections<'_>) -> impl Iterator<Item = Prefix> {
    prefixes::<Ipv4Prefix>(update.nlri).flatten().map(Prefix::from)
}

#[cfg(test)]
mod tests {
    use holdfast_bgp_wire::{MAX_LEN, NextHop, Origin, UpdateEncoder, edit::AttributesBuilder};
    use holdfast_path_validation::P256Signer;
    use holdfast_types::IpPrefix as _;

    use super::*;
    use crate::signed::{path, signer, update};

    fn prefix(last: u8) -> Prefix {
        Prefix::host([192, 0, 2, last].into())
    }

    fn told(routers: &[&P256Signer], target: u32, signed: u8, told: u8) -> Vec<u8> {
        let value = path(routers, Asn(target), prefix(signed)).expect("a path");
        update(&value, NextHop::V4([10, 0, 4, 1].into()), prefix(told)).expect("room")
    }

    #[test]
    fn what_is_not_well_signed_is_found() -> Result<()> {
        let (origin, router) = (signer(64_512)?, signer(ROUTER_AS)?);
        let keys = || vec![origin.router_key(), router.router_key()];
        let both = [&origin, &router];
        let found = |update: Vec<u8>| verify(&[update], keys());
        let good = found(told(&both, AS, 1, 1))?;
        assert!(good.signed == 1 && good.faults.is_empty() && good.unsigned.is_empty(), "{good:?}");
        let unknown = signer(ROUTER_AS)?;
        for bad in [
            told(&both, AS + 1, 1, 1),
            told(&both, AS, 1, 2),
            told(&[&origin, &unknown], AS, 1, 1),
            // The router has not signed.
            told(&[&origin], AS, 1, 1),
        ] {
            let bad = found(bad)?;
            assert!(bad.signed == 0 && bad.faults.len() == 1, "{bad:?}");
        }
        let mut plain = Vec::new();
        let attributes = AttributesBuilder {
            as_path: vec![Asn(ROUTER_AS), Asn(64_512)],
            next_hop: Some([10, 0, 4, 1].into()),
            ..AttributesBuilder::new(Origin::Igp)
        };
        UpdateEncoder::new(MAX_LEN).announce(
            &attributes.build(),
            [Ipv4Prefix::from_prefix(prefix(3))].into_iter().flatten(),
            &mut plain,
        )?;
        let stripped = found(plain)?;
        assert!(stripped.signed == 0 && stripped.unsigned.contains(&prefix(3)), "{stripped:?}");
        Ok(())
    }
}
