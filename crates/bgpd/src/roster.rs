//! Peers of whom something is noted for the process after this one. One memory each that the keeper holds as well, written
//! in place.
//!
//! * [`Present`]: whose routes are here: peers whose session is up, and peers whose routes stay while they are away. After a
//!   death it says whom to wait for: who is not in it had no routes here. The place of a peer in it is the number by which
//!   the rib knows the peer's routes, so that what is left of one peer can be swept while another is waited for.
//! * [`Stopped`]: whom the operator keeps down, with the text that was given for it.
//!
//! ```text
//! header  format:u64  incomplete:u32  rows ever used:u32
//! row     number:u32 (0: free)  address length:u8  interface length:u8  note length:u16  address:16  interface:16
//! notes   one of NOTE octets for each row
//! ```

use std::{
    collections::HashMap,
    io,
    os::fd::OwnedFd,
    sync::atomic::{Ordering, compiler_fence},
};

use holdfast_sys::memory::SharedMemory;

use crate::location::Location;

/// Version of what is in it. A process that does not know it takes it for nothing.
const FORMAT: u64 = 2;
const HEADER: usize = 16;
const ROW: usize = 40;
/// There are not more sources of routes.
const ROWS: usize = 1 << 16;
/// Octets of an address, and of the name of an interface.
const NAME: usize = 16;
/// Octets of a text that goes out with a NOTIFICATION (RFC 9003).
const TEXT: usize = 255;

/// The peers that have routes here, and their numbers.
pub(crate) type Present = Roster<0>;
/// The peers that the operator keeps down, and why.
pub(crate) type Stopped = Roster<TEXT>;

/// Peers with numbers, and a note of up to so many octets about each.
#[derive(Debug)]
pub(crate) struct Roster<const NOTE: usize> {
    memory: SharedMemory,
    numbers: HashMap<Location, u32>,
    free: Vec<u32>,
    /// Rows that were ever used.
    used: u32,
}

impl<const NOTE: usize> Roster<NOTE> {
    const OCTETS: usize = HEADER + ROWS * (ROW + NOTE);

    /// With nobody in it.
    pub(crate) fn create(name: &str) -> io::Result<Self> {
        let mut memory = SharedMemory::create(name, Self::OCTETS)?;
        memory.octets_mut()[..8].copy_from_slice(&FORMAT.to_le_bytes());
        Ok(Self { memory, numbers: HashMap::new(), free: Vec::new(), used: 0 })
    }

    /// As the process before has left it; `None` if it is of another version, or does not name everybody.
    pub(crate) fn recover(descriptor: OwnedFd) -> io::Result<Option<Self>> {
        let memory = SharedMemory::from_descriptor(descriptor)?;
        let word = |at: usize| memory.octets().get(at..)?.first_chunk().copied().map(u32::from_le_bytes);
        let format = memory.octets().first_chunk().copied().map(u64::from_le_bytes);
        let is_whole = memory.octets().len() == Self::OCTETS && (format, word(8)) == (Some(FORMAT), Some(0));
        let Some(used) = word(12).filter(|used| is_whole && *used as usize <= ROWS) else { return Ok(None) };
        let mut roster = Self { memory, numbers: HashMap::new(), free: Vec::new(), used };
        for row in 0..used {
            match roster.read(row) {
                // Of two the later one cannot be: a peer is entered once.
                Some(location) => _ = roster.numbers.entry(location).or_insert(row + 1),
                None => roster.free.push(row),
            }
        }
        Ok(Some(roster))
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

    /// The peer is in it from now on: its number, which stays until [`Self::leave`]; 0 if there is no room.
    pub(crate) fn enter(&mut self, location: &Location) -> u32 {
        if let Some(&number) = self.numbers.get(location) {
            return number;
        }
        let (address, interface) = (location.octets(), location.interface().as_bytes());
        let has_room = interface.len() <= NAME && address.len() <= NAME;
        let Some(row) = has_room.then(|| self.free_row()).flatten() else {
            // Whoever comes next does not know of everybody.
            self.memory.octets_mut()[8] = 1;
            return 0;
        };
        let octets = self.row_mut(row);
        octets[4..8].copy_from_slice(&[address.len() as u8, interface.len() as u8, 0, 0]);
        octets[8..][..address.len()].copy_from_slice(&address);
        octets[8 + NAME..][..interface.len()].copy_from_slice(interface);
        // Death may come between any two instructions: the row counts when all of it is there.
        compiler_fence(Ordering::SeqCst);
        octets[..4].copy_from_slice(&(row + 1).to_le_bytes());
        self.numbers.insert(location.clone(), row + 1);
        row + 1
    }

    /// A row that is free, and counts as used.
    fn free_row(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            let row = self.used;
            ((row as usize) < ROWS).then(|| {
                self.used += 1;
                let used = self.used.to_le_bytes();
                self.memory.octets_mut()[12..HEADER].copy_from_slice(&used);
                row
            })
        })
    }

    /// The peer is in it no more.
    pub(crate) fn leave(&mut self, location: &Location) {
        let Some(number) = self.numbers.remove(location) else { return };
        self.row_mut(number - 1)[..4].fill(0);
        self.free.push(number - 1);
    }

    /// Notes this of a peer that is in it, as far as there is room. After a death in the middle of it nothing is noted.
    pub(crate) fn note(&mut self, location: &Location, text: &str) {
        let Some(&number) = self.numbers.get(location) else { return };
        let text = &text[..text.floor_char_boundary(NOTE)];
        let (row, start) = (number - 1, Self::note_of(number - 1));
        self.row_mut(row)[6..8].fill(0);
        compiler_fence(Ordering::SeqCst);
        self.memory.octets_mut()[start..][..text.len()].copy_from_slice(text.as_bytes());
        compiler_fence(Ordering::SeqCst);
        self.row_mut(row)[6..8].copy_from_slice(&(text.len() as u16).to_le_bytes());
    }

    /// What is noted of a peer; `None` if it is not in it.
    pub(crate) fn noted(&self, location: &Location) -> Option<&str> {
        let row = self.numbers.get(location)? - 1;
        let length = u16::from_le_bytes(*self.row(row)[6..].first_chunk()?).into();
        let octets = self.memory.octets()[Self::note_of(row)..][..NOTE].get(..length)?;
        Some(std::str::from_utf8(octets).unwrap_or_default())
    }

    fn row(&self, row: u32) -> &[u8] {
        &self.memory.octets()[HEADER + row as usize * ROW..][..ROW]
    }

    fn row_mut(&mut self, row: u32) -> &mut [u8] {
        &mut self.memory.octets_mut()[HEADER + row as usize * ROW..][..ROW]
    }

    fn note_of(row: u32) -> usize {
        HEADER + ROWS * ROW + row as usize * NOTE
    }

    fn read(&self, row: u32) -> Option<Location> {
        let octets = self.row(row);
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
        let mut present = Present::create("peers").expect("memory");
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
        let mut present = Present::create("peers").expect("memory");
        present.enter(&at("10.0.0.2"));
        present.memory.octets_mut()[HEADER..][..4].fill(0);
        assert_eq!(found(&present), []);
    }

    #[test]
    fn what_does_not_name_everybody_is_not_believed() {
        let mut present = Present::create("peers").expect("memory");
        assert_eq!(present.enter(&at("an-interface-that-linux-does-not-have")), 0);
        let recover = |present: &Present| Present::recover(present.descriptor().expect("a copy"));
        assert!(recover(&present).expect("memory").is_none());
        let mut later = Present::create("peers").expect("memory");
        later.memory.octets_mut()[0] = 99;
        assert!(recover(&later).expect("memory").is_none(), "another version");
        let mut full = Present::create("peers").expect("memory");
        for number in 0..ROWS as u32 {
            assert_ne!(full.enter(&Location::Address(std::net::Ipv4Addr::from(number).into())), 0);
        }
        assert!(recover(&full).expect("memory").is_some());
        assert_eq!(full.enter(&at("10.0.0.2")), 0);
        assert!(recover(&full).expect("memory").is_none());
    }

    #[test]
    fn what_was_noted_of_a_peer_is_found_as_it_was_said_last() {
        let mut stopped = Stopped::create("stopped").expect("memory");
        let next = |stopped: &Stopped| {
            let descriptor = stopped.descriptor().expect("a copy");
            Stopped::recover(descriptor).expect("memory").expect("readable")
        };
        let (one, other) = (at("10.0.0.2"), at("fe80::2%eth0"));
        assert_eq!(stopped.enter(&one), 1);
        assert_eq!(next(&stopped).noted(&one), Some(""), "nothing was said");
        assert_eq!(stopped.enter(&other), 2);
        stopped.note(&one, "back at 5");
        stopped.note(&one, "at 6");
        stopped.note(&other, &"ß".repeat(200));
        stopped.note(&at("10.0.0.9"), "nobody");
        let found = next(&stopped);
        assert_eq!(found.noted(&one), Some("at 6"));
        assert_eq!(found.noted(&other), Some(&*"ß".repeat(127)), "as far as there is room");
        assert_eq!(found.noted(&at("10.0.0.9")), None);
        stopped.leave(&one);
        assert_eq!(stopped.enter(&at("10.0.0.3")), 1, "the row is another's");
        assert_eq!(next(&stopped).noted(&at("10.0.0.3")), Some(""), "and the note is not");
        assert_eq!(next(&stopped).noted(&one), None);
    }
}
