//! A neighbour that takes signed paths and has the second verifier judge them.

use std::time::Duration;

use anyhow::{Result, ensure};
use holdfast_lab::{
    netns::Namespace,
    row::{BGPSEC, Row, SigningKey, peer},
    speaker::{Speaker, SpeakerConfig},
    topology::{self, Side, v4},
};
use holdfast_types::Family;

use super::{Directory, second::second};

const LIMIT: Duration = Duration::from_secs(60);
const ASN: u32 = 65_099;
/// Octets of the longest End-of-RIB, that of IPv6 (RFC 4724 section 2). What has a signature is longer.
const END_OF_RIB: usize = 30;

/// A host beside a router of a row, with its speaker.
pub(super) struct Listener {
    _host: Namespace,
    speaker: Speaker,
}

impl Listener {
    /// Joined by this network, which no row has.
    pub(super) fn start(row: &Row, router: u8, network: u8) -> Result<Self> {
        let host = Namespace::new(&format!("listener{network}"))?;
        topology::join(network, row.host(router), &host)?;
        let [near, far] = [Side::Second, Side::First].map(|side| v4(network, side).into());
        let config = SpeakerConfig {
            takes_signed: true,
            records: true,
            families: Family::ALL.to_vec(),
            ..SpeakerConfig::connect(near, far, ASN)
        };
        let speaker = host.run(|| Speaker::spawn(config))??;
        Ok(Self { _host: host, speaker })
    }

    /// The router's lines about it.
    pub(super) fn peer(network: u8, more: &str) -> String {
        peer("listener", network, Side::Second, ASN, &[BGPSEC, "passive = true\n", more].concat())
    }

    /// Waits for so many routes; the router is of this AS as it is known outside. All they have come by, and all that
    /// came before, is valid to who knows these keys.
    pub(super) fn check(&self, name: &str, router: u32, keys: &[SigningKey], routes: usize) -> Result<()> {
        self.speaker.wait_routes(routes, LIMIT)?;
        let directory = Directory::new(name)?;
        let keys: Vec<_> = keys.iter().map(|key| key.public.clone()).collect();
        let updates = self.speaker.updates();
        let with_routes = updates.iter().filter(|update| update.len() > END_OF_RIB);
        let found = second(&directory.0, [ASN, router], &keys, with_routes.map(Vec::as_slice))?;
        ensure!(found.len() >= routes, "{} of {routes}", found.len());
        ensure!(found.iter().all(|(_, state)| state == "valid"), "{name}: {found:?}");
        Ok(())
    }
}
