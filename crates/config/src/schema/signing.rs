//! `[bgpsec]`: what the router signs paths with, and which keys of others it takes.

use std::collections::BTreeSet;

use holdfast_types::Asn;

use super::{KeyFile, Moment, Peer, PeerAsn};
use crate::{
    Config,
    keyed::{keys, number},
};

keys! {
    /// Signing of paths (RFC 8205 section 4.2), and the bound on keys of others.
    pub struct Signing {
        "kept-signatures" kept_signatures: u32 = number!(0..=100000000, 1000000), Reload, "signatures of our own that are kept, about 100 octets each: what is sent again is sent with the same octets";
        "signing-rate" signing_rate: u32 = number!(1..=1000000, 1000), Reload, "signatures a second at most that another key makes necessary";
        "keys-per-ski" keys_per_ski: u8 = number!(1..=64, 8), Reload, "routers' keys of one AS and SKI (Subject Key Identifier) that are taken of caches at most: each of them may have to be tried for each signature";
        + /// `[[bgpsec.keys]]`, in the order of the file. No AS has the same key twice.
        keys: Vec<SigningKey> = Vec::new();
    }
}

/// A private key of the router.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SigningKey {
    /// The AS that it signs for.
    pub asn: Asn,
    /// The key, of P-256.
    pub key: KeyFile,
    /// It signs nothing before; `None`: it may at once.
    pub sign_from: Option<Moment>,
}

impl Config {
    /// The AS numbers that are ours: that of the router, that of its confederation, and those that single peers know us by.
    pub fn our_ases(&self) -> BTreeSet<Asn> {
        let local = self.peers_of_all().filter_map(|peer| peer.paths.local_asn);
        local.chain(self.confederation()).chain([self.router.asn]).collect()
    }

    /// Whether paths are signed: there are keys, and somebody who is sent what they sign.
    pub fn signs(&self) -> bool {
        !self.bgpsec.keys.is_empty() && self.peers_of_all().any(|peer| peer.bgpsec.send)
    }

    fn peers_of_all(&self) -> impl Iterator<Item = &Peer> {
        self.bgp.iter().flat_map(|bgp| &bgp.peers)
    }

    fn confederation(&self) -> Option<Asn> {
        self.bgp.as_ref()?.confederation.as_ref().map(|confederation| confederation.id)
    }

    /// The AS that signs for a peer; `None`: nothing is signed for one inside our AS.
    fn signing_as(&self, peer: &Peer) -> Option<Asn> {
        let confederation = self.bgp.iter().flat_map(|bgp| &bgp.confederation);
        let mut members = confederation.flat_map(|inside| &inside.members);
        match peer.asn {
            PeerAsn::One(asn) if asn == self.router.asn => None,
            PeerAsn::One(asn) if members.any(|member| *member == asn) => Some(self.router.asn),
            PeerAsn::One(_) | PeerAsn::OneOf(_) | PeerAsn::Any => {
                Some(peer.paths.local_asn.or(self.confederation()).unwrap_or(self.router.asn))
            }
        }
    }

    /// Which private keys sign nothing.
    pub(super) fn note_keys(&self, notes: &mut Vec<String>) {
        let ours = self.our_ases();
        for SigningKey { asn, key, .. } in self.bgpsec.keys.iter().filter(|key| !ours.contains(&key.asn)) {
            notes.push(format!("the private key `{}` signs nothing: AS {asn} is none of ours", key.file));
        }
        if !self.bgpsec.keys.is_empty() && !self.signs() {
            notes.push("the keys of [bgpsec] do nothing: no peer has `bgpsec` with `send`".to_owned());
        }
    }

    /// Whether what a peer is sent can be signed.
    pub(super) fn note_signing(&self, peer: &Peer, note: &mut impl FnMut(&str)) {
        let Some(asn) = self.signing_as(peer).filter(|_| peer.bgpsec.send) else { return };
        if !self.bgpsec.keys.iter().any(|key| key.asn == asn) {
            note(&format!("what it is sent is not signed: [bgpsec] has no key of AS {asn}"));
        }
    }
}
