//! The places of a session that were being processed when processes died.
//!
//! A word for each of the last few: the place (its low 32 bits), how many died there (8 bits), and the turn in which the
//! last one did (24 bits), so that a death counts once, also where the next process dies while it counts.

use crate::{Memory, cell::SUSPECTS, store::Store};

/// How many places are known of a session. Of those with the fewest deaths the oldest makes room for another.
pub(crate) const PLACES: usize = 5;

const TURNS: u32 = 0xff_ff_ff;

/// A place, or none: without deaths.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Suspect {
    pub(crate) place: u32,
    pub(crate) deaths: u8,
    turn: u32,
}

impl Suspect {
    fn word(self) -> u64 {
        u64::from(self.place) << 32 | u64::from(self.turn & TURNS) << 8 | u64::from(self.deaths)
    }

    fn from_word(word: u64) -> Self {
        Self { place: (word >> 32) as u32, deaths: word as u8, turn: (word >> 8) as u32 & TURNS }
    }
}

/// All of a cell.
pub(crate) fn of<M: Memory>(store: &Store<M>, cell: usize) -> [Suspect; PLACES] {
    std::array::from_fn(|i| Suspect::from_word(store.word(at(cell, i))))
}

/// Deaths at the place with the most.
pub(crate) fn most<M: Memory>(store: &Store<M>, cell: usize) -> u32 {
    of(store, cell).iter().map(|suspect| suspect.deaths.into()).max().unwrap_or(0)
}

/// Where they stand: a new session has none.
pub(crate) fn places(cell: usize) -> impl Iterator<Item = usize> {
    (0..PLACES).map(move |i| at(cell, i))
}

/// Counts a death in this turn, once.
pub(crate) fn count<M: Memory>(store: &mut Store<M>, cell: usize, place: u64, turn: u32) {
    let (suspects, place, turn) = (of(store, cell), place as u32, turn & TURNS);
    let known = suspects.iter().position(|suspect| suspect.deaths > 0 && suspect.place == place);
    let age = |suspect: &Suspect| turn.wrapping_sub(suspect.turn) & TURNS;
    let least = || (0..PLACES).min_by_key(|i| (suspects[*i].deaths, TURNS - age(&suspects[*i])));
    let Some(i) = known.or_else(least) else { return };
    let before = suspects[i];
    let deaths = match known {
        Some(_) if before.turn == turn => return,
        Some(_) => before.deaths.saturating_add(1),
        None => 1,
    };
    store.set_word(at(cell, i), Suspect { place, deaths, turn }.word());
}

fn at(cell: usize, i: usize) -> usize {
    cell + SUSPECTS + 8 * i
}
