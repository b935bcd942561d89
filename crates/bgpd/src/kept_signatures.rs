//! The signatures that we have made, in memory that outlives this process: `signatures` is the keeper's name for those of
//! the default table, `signatures@blue` for those of a VRF.

use std::os::fd::OwnedFd;

use holdfast_bgp_pipeline::{SignatureName, SignatureStore};
use holdfast_nsr::Signatures;
use holdfast_process::hash_key;
use holdfast_sys::memory::SharedMemory;
use holdfast_types::Prefix;
use holdfast_xrl::XrlError;
use tracing::warn;

use crate::{config::Peers, custody::FdStore, nonstop::Shared, seed::seed};

/// Records that every such memory has room for, the most that can be configured: another bound needs no other memory,
/// and only what is written takes any.
const ROOM: usize = 100_000_000;

pub(crate) type KeptSignatures = Signatures<Shared>;

/// What the pipeline keeps them in.
#[derive(Debug)]
pub(crate) struct Store(pub(crate) KeptSignatures);

impl SignatureStore for Store {
    fn get(&self, name: &SignatureName, mark: u64) -> Option<&[u8]> {
        self.0.get(&named(name), mark)
    }

    fn keep(
        &mut self,
        name: SignatureName,
        mark: u64,
        signature: &[u8],
        is_used: &mut dyn FnMut(Prefix) -> bool,
    ) -> bool {
        self.0.keep(named(&name), mark, signature, is_used)
    }

    fn set_most(&mut self, most: usize) {
        self.0.set_most(most);
    }

    fn key(&self) -> [u64; 2] {
        self.0.key()
    }

    fn note(&mut self, signers: &[u8]) {
        self.0.note(signers);
    }

    fn noted(&self) -> &[u8] {
        self.0.noted()
    }

    fn counts(&self) -> (usize, u64) {
        (self.0.len(), self.0.lost())
    }

    fn memory(&self) -> usize {
        self.0.memory_octets()
    }
}

fn named(&SignatureName { prefix, target, slot }: &SignatureName) -> holdfast_nsr::SignatureName {
    holdfast_nsr::SignatureName { prefix, target, slot }
}

/// The signatures that the process before has left, or none yet, with room for `most`. `None`: no peer is sent any, and
/// what was left is given back.
///
/// # Errors
/// As the keeper says, or when there is no memory.
pub(crate) async fn open(
    custody: &FdStore,
    peers: &Peers,
    most: usize,
) -> Result<Option<KeptSignatures>, XrlError> {
    let left = custody.signatures().await?;
    if !sends(peers) {
        left.iter().for_each(|_| custody.drop_signatures());
        return Ok(None);
    }
    match left.and_then(|left| recover(left, most)) {
        Some(signatures) => Ok(Some(signatures)),
        None => create(custody, most).await.map(Some),
    }
}

/// Whether any of them is sent signed paths.
fn sends(peers: &Peers) -> bool {
    let of_ranges = peers.ranges.iter().map(|range| &range.template);
    peers.neighbors.iter().chain(of_ranges).any(|neighbor| neighbor.source.bgpsec.send)
}

/// Those that the process before has left; `None` if they cannot be read.
fn recover(left: OwnedFd, most: usize) -> Option<KeptSignatures> {
    let memory = SharedMemory::from_descriptor(left).map_err(|error| error.to_string());
    let recovered = memory.and_then(|memory| {
        Signatures::recover(Shared(memory), most, hash_key()).map_err(|error| error.to_string())
    });
    match recovered {
        Ok(signatures) => {
            let lost = signatures.lost();
            if lost > 0 {
                warn!(
                    event = "signatures-lost",
                    lost, "{lost} of our signatures were not kept: they are made anew"
                );
            }
            Some(signatures)
        }
        Err(error) => {
            warn!(event = "signatures-lost", "our signatures cannot be read, all are made anew: {error}");
            None
        }
    }
}

async fn create(custody: &FdStore, most: usize) -> Result<KeptSignatures, XrlError> {
    let failed =
        |error: &dyn std::fmt::Display| XrlError::internal(format!("memory for signatures: {error}"));
    let octets = KeptSignatures::octets_for(ROOM);
    let memory = SharedMemory::create("holdfast-signatures", octets).map_err(|error| failed(&error))?;
    let copy = memory.descriptor().try_clone_to_owned().map_err(|error| failed(&error))?;
    let mut signatures =
        Signatures::create(Shared(memory), most, hash_key()).map_err(|error| failed(&error))?;
    // Of all processes that go on with it.
    signatures.set_key([seed(), seed()]);
    custody.put_signatures(copy).await?;
    Ok(signatures)
}
