//! Whose routes are here, for the process after this one: peers whose session is up, and peers whose routes stay while they
//! are away. One memory that the keeper holds as well, written in place.
//!
//! After a death it says whom to wait for: who is not in it had no routes here. The place of a peer in it is the number by
//! which the rib knows the peer's routes, so that what is left of one peer can be swept while another is waited for.
//!
//! ```text
//! header  format:u64  incomplete:u64
//! row     number:u32 (0: free)  address length:u8  interface length:u8  -:u16  address:16  interface:16
//! ```

use std::{
    collections::HashMap,
    io,
    os::fd::OwnedFd,
    sync::atomic::{Ordering, compiler_fence},
};

use holdfast_sys::memory::SharedMemory;

use crate::location::Location;

/// Version of what is in it. A process that does not know it waits for everybody.
const FORMAT: u64 = 1;
const HEADER: usize = 16;
const ROW: usize = 40;
/// There are not more sources of routes.
const ROWS: usize = 1 << 16;
const OCTETS: usize = HEADER + ROWS * ROW;
/// Octets of an address, and of the name of an interface.
const NAME: usize = 16;

/// The peers that have routes here, and their numbers.
#[derive(Debug)]
pub(crate) struct Present {
    memory: SharedMemory,
    numbers: HashMap<Location, u32>,
    free: Vec<u32>,
    /// Rows that were ever used.
    used: u32,
}

impl Present {
    /// With nobody in it.
    pub(crate) fn create() -> io::Result<Self> {
        let mut memory = SharedMemory::create("holdfast-peers", OCTETS)?;
        memory.octets_mut()[..8].copy_from_slice(&FORMAT.to_le_bytes());
        Ok(Self { memory, numbers: HashMap::new(), free: Vec::new(), used: 0 })
    }

    /// As the process before has left it; `None` if it is of another version, or does not name everybody.
    pub(crate) fn recover(descriptor: OwnedFd) -> io::Result<Option<Self>> {
        let memory = SharedMemory::from_descriptor(descriptor)?;
        let word = |at: usize| memory.octets().get(at..)?.first_chunk().copied().map(u64::from_le_bytes);
        if memory.octets().len() != OCTETS || (word(0), word(8)) != (Some(FORMAT), Some(0)) {
            return Ok(None);
        }
        let mut present = Self { memory, numbers: HashMap::new(), free: Vec::new(), used: 0 };
        for row in 0..ROWS as u32 {
            let Some(location) = present.read(row) else { continue };
            present.free.extend(present.used..row);
            present.used = row + 1;
            // Of two the later one cannot be: a peer is entered once.
            present.numbers.entry(location).or_insert(row + 1);
        }
        Ok(Some(present))
    }

    /// For the keeper.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.memory.descriptor().try_clone_to_owned()
    }

    /// Everybody in it.
    pub(crate) fn peers(&self) -> impl Iterator<Item = &Location> {
        self.numbers.keys()
    }

    /// The number of a peer; 0 for one that is not in it.
    pub(crate) fn number(&self, location: &Location) -> u32 {
        self.numbers.get(location).copied().unwrap_or(0)
    }

    /// The peer has routes from now on: its number, which stays until [`Self::leave`]; 0 if there is no room.
    pub(crate) fn enter(&mut self, location: &Location) -> u32 {
        if let Some(&number) = self.numbers.get(location) {
            return number;
        }
        let (address, interface) = (location.octets(), location.interface().as_bytes());
        let row = self.free.pop().or_else(|| {
            let next = self.used;
            ((next as usize) < ROWS).then(|| {
                self.used += 1;
                next
            })
        });
        let Some(row) = row.filter(|_| interface.len() <= NAME && address.len() <= NAME) else {
            self.free.extend(row);
            // Whoever comes next does not know of everybody.
            self.memory.octets_mut()[8] = 1;
            return 0;
        };
        let octets = &mut self.memory.octets_mut()[HEADER + row as usize * ROW..][..ROW];
        octets[4..6].copy_from_slice(&[address.len() as u8, interface.len() as u8]);
        octets[8..][..address.len()].copy_from_slice(&address);
        octets[8 + NAME..][..interface.len()].copy_from_slice(interface);
        // Death may come between any two instructions: the row counts when all of it is there.
        compiler_fence(Ordering::SeqCst);
        octets[..4].copy_from_slice(&(row + 1).to_le_bytes());
        self.numbers.insert(location.clone(), row + 1);
        row + 1
    }

    /// The peer has no routes any more.
    pub(crate) fn leave(&mut self, location: &Location) {
        let Some(number) = self.numbers.remove(location) else { return };
        let row = number - 1;
        self.memory.octets_mut()[HEADER + row as usize * ROW..][..4].fill(0);
        self.free.push(row);
    }

    fn read(&self, row: u32) -> Option<Location> {
        let octets = &self.memory.octets()[HEADER + row as usize * ROW..][..ROW];
        if octets[..4] != (row + 1).to_le_bytes() {
            return None;
        }
        let address = octets[8..][..NAME].get(..octets[4].into())?;
        let interface = octets[8 + NAME..].get(..octets[5].into())?;
        Location::read(address, std::str::from_utf8(interface).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Location {
        let Ok(location) = text.parse();
        location
    }

    /// As the next process finds it.
    fn found(present: &Present) -> Vec<(String, u32)> {
        let descriptor = present.descriptor().expect("a copy");
        let next = Present::recover(descriptor).expect("memory").expect("of this version, and complete");
        let mut peers: Vec<_> = next.peers().map(|peer| (peer.to_string(), next.number(peer))).collect();
        peers.sort_by_key(|(_, number)| *number);
        peers
    }

    #[test]
    fn the_next_process_finds_who_was_there_under_the_same_numbers() {
        let mut present = Present::create().expect("memory");
        let places = ["10.0.0.2", "2001:db8::2", "fe80::2%eth0", "eth0"];
        for (number, place) in places.iter().enumerate() {
            assert_eq!(present.enter(&at(place)), number as u32 + 1);
            assert_eq!(present.enter(&at(place)), number as u32 + 1, "once");
        }
        present.leave(&at("2001:db8::2"));
        present.leave(&at("10.9.9.9"));
        let left = [("10.0.0.2", 1), ("fe80::2%eth0", 3), ("eth0", 4)];
        assert_eq!(found(&present), left.map(|(place, number)| (place.to_owned(), number)));
        let descriptor = present.descriptor().expect("a copy");
        let mut next = Present::recover(descriptor).expect("memory").expect("readable");
        assert_eq!(next.enter(&at("10.0.0.9")), 2, "a free place");
        assert_eq!(next.enter(&at("10.0.0.10")), 5);
    }

    #[test]
    fn a_row_that_was_being_written_is_nobody() {
        let mut present = Present::create().expect("memory");
        present.enter(&at("10.0.0.2"));
        present.memory.octets_mut()[HEADER..][..4].fill(0);
        assert_eq!(found(&present), []);
    }

    #[test]
    fn what_does_not_name_everybody_is_not_believed() {
        let mut present = Present::create().expect("memory");
        assert_eq!(present.enter(&at("an-interface-that-linux-does-not-have")), 0);
        let recover = |present: &Present| Present::recover(present.descriptor().expect("a copy"));
        assert!(recover(&present).expect("memory").is_none());
        let mut later = Present::create().expect("memory");
        later.memory.octets_mut()[0] = 99;
        assert!(recover(&later).expect("memory").is_none(), "another version");
        let mut full = Present::create().expect("memory");
        for number in 0..ROWS as u32 {
            assert_ne!(full.enter(&Location::Address(std::net::Ipv4Addr::from(number).into())), 0);
        }
        assert!(recover(&full).expect("memory").is_some());
        assert_eq!(full.enter(&at("10.0.0.2")), 0);
        assert!(recover(&full).expect("memory").is_none());
    }
}
