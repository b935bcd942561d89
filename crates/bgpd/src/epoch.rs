//! What the RPKI says, in memory that outlives this process: the pieces of the epoch that is in effect, as `rpki` has said
//! them. The keeper holds it, and whoever validates next goes by it until it expires.
//!
//! A full epoch is written into memory of its own, which takes the place of the one before when it is complete;
//! differences are appended, and count with their last piece.
//!
//! ```text
//! header  format:u64  octets that count:u64
//! record  octets:u32  heard:u64 (milliseconds of the monotonic clock, which all processes share)  Piece
//! ```

use std::{
    io,
    os::fd::OwnedFd,
    sync::atomic::{Ordering, compiler_fence},
};

use holdfast_api::rpki::v1::{self as api, Piece, Records, Vrps};
use holdfast_origin_validation::Authorizations;
use holdfast_sys::memory::SharedMemory;
use holdfast_types::{Prefix, Vrp};
use prost::Message;

/// Version of what is in it.
const FORMAT: u64 = 1;
const HEADER: usize = 16;
const RECORD: usize = 12;
/// More than all records that may be validated by; only what is written takes memory.
const OCTETS: usize = 512 << 20;
/// Octets of differences after which everything is written anew, unless the epoch in full is longer.
const LONG: usize = 4 << 20;
/// Records of one piece.
const PIECE: usize = 4096;

/// It does not fit.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Full;

/// The pieces of one full epoch, and of differences to it.
#[derive(Debug)]
pub(crate) struct Epochs {
    memory: SharedMemory,
    /// Octets written, and those of them that count.
    written: usize,
    counted: usize,
    /// Octets of the full epoch.
    full: usize,
    /// When the last piece was heard, and for how many seconds it holds.
    heard: (u64, u32),
}

impl Epochs {
    pub(crate) fn create() -> io::Result<Self> {
        Self::of_size(OCTETS)
    }

    fn of_size(octets: usize) -> io::Result<Self> {
        let mut memory = SharedMemory::create("holdfast-rpki", octets)?;
        memory.octets_mut()[..8].copy_from_slice(&FORMAT.to_le_bytes());
        Ok(Self { memory, written: 0, counted: 0, full: 0, heard: (0, 0) })
    }

    /// What an earlier process has left; `None` if it is of another version.
    pub(crate) fn recover(descriptor: OwnedFd) -> io::Result<Option<Self>> {
        let memory = SharedMemory::from_descriptor(descriptor)?;
        let word = |at: usize| memory.octets().get(at..)?.first_chunk().copied().map(u64::from_le_bytes);
        let counted = word(8).and_then(|counted| usize::try_from(counted).ok());
        let fits = |counted: &usize| *counted <= memory.octets().len().saturating_sub(HEADER);
        Ok(match (word(0), counted.filter(fits)) {
            (Some(FORMAT), Some(counted)) => {
                Some(Self { memory, written: counted, counted, full: counted, heard: (0, 0) })
            }
            _ => None,
        })
    }

    /// For the keeper.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.memory.descriptor().try_clone_to_owned()
    }

    /// Writes a piece that was heard then. With the last of an epoch all of it counts.
    pub(crate) fn push(&mut self, piece: &Piece, heard: u64) -> Result<(), Full> {
        let length = piece.encoded_len();
        let room = self.memory.octets().len() - HEADER - self.written;
        let octets = u32::try_from(length).ok().filter(|_| RECORD + length <= room).ok_or(Full)?;
        let record = &mut self.memory.octets_mut()[HEADER + self.written..][..RECORD + length];
        record[..4].copy_from_slice(&octets.to_le_bytes());
        record[4..RECORD].copy_from_slice(&heard.to_le_bytes());
        piece.encode(&mut &mut record[RECORD..]).map_err(|_| Full)?;
        self.written += RECORD + length;
        if piece.last {
            self.heard = (heard, piece.expire_seconds);
            self.counted = self.written;
            if self.full == 0 {
                self.full = self.written;
            }
            let counted = (self.counted as u64).to_le_bytes();
            // Death may come between any two instructions: what counts is there.
            compiler_fence(Ordering::SeqCst);
            self.memory.octets_mut()[8..HEADER].copy_from_slice(&counted);
        }
        Ok(())
    }

    /// What was said of an epoch that never came to its end is not said.
    pub(crate) fn forget_rest(&mut self) {
        self.written = self.counted;
    }

    /// Whether differences take so much more than everything would that it is worth to be written anew.
    pub(crate) fn is_long(&self) -> bool {
        self.counted - self.full > self.full.max(LONG)
    }

    /// When the epoch that counts was heard, and for how many seconds it holds.
    pub(crate) fn heard(&self) -> (u64, u32) {
        self.heard
    }

    /// The piece that begins there, when it was heard, and where the next one begins; `None` behind the last.
    pub(crate) fn piece(&mut self, at: usize) -> Option<Result<(Piece, usize), prost::DecodeError>> {
        let rest = self.memory.octets()[HEADER..][..self.counted].get(at..)?;
        let octets = u32::from_le_bytes(*rest.first_chunk()?) as usize;
        let heard = u64::from_le_bytes(*rest.get(4..)?.first_chunk()?);
        let piece = rest.get(RECORD..)?.get(..octets)?;
        Some(Piece::decode(piece).map(|piece| {
            if piece.last {
                self.heard = (heard, piece.expire_seconds);
            }
            (piece, at + RECORD + octets)
        }))
    }
}

/// An epoch in full, in pieces.
pub(crate) fn pieces(
    authorizations: &Authorizations,
    epoch: u64,
    expire_seconds: u32,
) -> impl Iterator<Item = Piece> + use<> {
    let vrps: Vec<Vrp> = authorizations.vrps.iter().collect();
    let aspa = |(customer, providers): (holdfast_types::Asn, &[holdfast_types::Asn])| api::Aspa {
        customer: customer.0,
        providers: providers.iter().map(|provider| provider.0).collect(),
    };
    let aspas: Vec<api::Aspa> = authorizations.aspas.iter().map(aspa).collect();
    let count = vrps.len().div_ceil(PIECE);
    let of_vrps = (0..count).map(move |at| {
        let part = &vrps[at * PIECE..vrps.len().min((at + 1) * PIECE)];
        records(part)
    });
    let rest = Records { aspas, ..Records::default() };
    let announced = of_vrps.chain([rest]).enumerate();
    announced.map(move |(at, announced)| Piece {
        epoch,
        full: true,
        announced: Some(announced),
        last: at == count,
        expire_seconds: if at == count { expire_seconds } else { 0 },
        ..Piece::default()
    })
}

fn records(vrps: &[Vrp]) -> Records {
    let (mut ipv4, mut ipv6) = (Vrps::default(), Vrps::default());
    for vrp in vrps {
        let columns = match vrp.prefix() {
            Prefix::V4(_) => &mut ipv4,
            Prefix::V6(_) => &mut ipv6,
        };
        columns.addresses.extend(holdfast_types::octets(vrp.prefix().address()));
        columns.lengths.push(vrp.prefix().length());
        columns.max_lengths.push(vrp.max_length());
        columns.asns.push(vrp.asn().0);
    }
    Records { ipv4: Some(ipv4), ipv6: Some(ipv6), ..Records::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(epoch: u64, last: bool) -> Piece {
        Piece { epoch, last, expire_seconds: 600, ..Piece::default() }
    }

    fn found(epochs: &Epochs) -> (Vec<u64>, (u64, u32)) {
        let descriptor = epochs.descriptor().expect("a copy");
        let mut next = Epochs::recover(descriptor).expect("memory").expect("of this version");
        let (mut at, mut found) = (0, Vec::new());
        while let Some(piece) = next.piece(at) {
            let (piece, behind) = piece.expect("readable");
            (at, _) = (behind, found.push(piece.epoch));
        }
        (found, next.heard())
    }

    #[test]
    fn an_epoch_counts_as_a_whole() {
        let mut epochs = Epochs::of_size(4096).expect("memory");
        epochs.push(&piece(1, false), 5).expect("room");
        assert_eq!(found(&epochs), (vec![], (0, 0)));
        epochs.push(&piece(1, true), 6).expect("room");
        assert_eq!(found(&epochs), (vec![1, 1], (6, 600)));
        epochs.push(&piece(2, false), 7).expect("room");
        assert_eq!(found(&epochs), (vec![1, 1], (6, 600)));
        epochs.forget_rest();
        epochs.push(&piece(3, true), 8).expect("room");
        assert_eq!(found(&epochs), (vec![1, 1, 3], (8, 600)));
    }

    #[test]
    fn what_has_no_room_is_refused_and_what_was_there_stays() {
        let mut epochs = Epochs::of_size(64).expect("memory");
        epochs.push(&piece(1, true), 5).expect("room");
        while epochs.push(&piece(2, true), 6).is_ok() {}
        let (pieces, _) = found(&epochs);
        assert!(pieces.len() > 1 && pieces.len() < 5, "{pieces:?}");
    }
}
