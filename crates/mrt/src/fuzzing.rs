//! Bodies of the fuzz targets, also run by tests over mutated dumps.

use crate::{Body, Error, records};

/// Reads all there is in a dump; returns how many records were read without error.
pub fn dump(bytes: &[u8]) -> usize {
    records(bytes).filter(|record| record.as_ref().is_ok_and(|record| whole(record.body()).is_ok())).count()
}

fn whole(body: Result<Body<'_>, Error>) -> Result<(), Error> {
    match body? {
        Body::PeerIndex(index) => index.peers().try_for_each(|peer| peer.map(drop)),
        Body::Rib(rib) => {
            rib.entries().try_for_each(|entry| entry.map(|entry| assert!(entry.attributes.len() < 65536)))
        }
        Body::Message(_) | Body::StateChange(_) | Body::Other => Ok(()),
    }
}
