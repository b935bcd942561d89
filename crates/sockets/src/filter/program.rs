//! Regions as a program of classic BPF: a search tree over the first 32 bits of the source, and below a value that is in
//! more than one region, another one over the next 32.
//!
//! Jumps lead forward only, and tests no further than 255 instructions. So the program is written from behind, and there are
//! copies of its ends, or jumps to where it goes on, wherever they would be out of reach.

use holdfast_sys::{filter::Instruction, tcp::IpVersion};

use super::{GTSM_TTL, Verdict, regions::Regions};

/// Where the source is in an IP header.
const SOURCE_V4: u16 = 12;
const SOURCE_V6: u16 = 8;
/// Where the TTL is, or the hop limit.
const TTL_V4: u16 = 8;
const TTL_V6: u16 = 7;

/// A test reaches 255 instructions; the other branch may have to be brought near before it.
const REACH: usize = 240;
/// So many single values are tested one after the other rather than by a tree.
const MOST_IN_A_ROW: usize = 4;

/// Gives each packet the verdict of the region that its source is in.
pub(super) fn program(version: IpVersion, regions: &Regions) -> Vec<Instruction> {
    let mut starts = regions.iter();
    let before = starts.next().map_or(Verdict::Take, |(_, verdict)| verdict);
    let mut code = Code { version, reversed: Vec::new(), ends: [None; 3] };
    let begin = code.search(before, &starts.collect::<Vec<_>>(), 0);
    code.near(begin);
    code.reversed.reverse();
    code.reversed
}

/// Where a program goes on.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Goal {
    End(Verdict),
    /// At the instruction with so many behind it.
    At(usize),
}

/// Values of a word, from the first to the last.
struct Cell<'a> {
    first: u32,
    last: u32,
    below: Below<'a>,
}

/// What is to be done about those.
enum Below<'a> {
    End(Verdict),
    /// It depends on the next word: regions that begin there, behind one that is there from its first address on.
    Search(Verdict, &'a [(u128, Verdict)]),
}

struct Code {
    version: IpVersion,
    /// The last instruction first.
    reversed: Vec<Instruction>,
    /// Where the first copy of each end is.
    ends: [Option<usize>; 3],
}

impl Code {
    /// A search among regions that begin at one value of all words before this one; `before` is that of the first address.
    fn search(&mut self, before: Verdict, starts: &[(u128, Verdict)], word: u16) -> Goal {
        match *cells(before, starts, word) {
            [Cell { below: Below::End(verdict), .. }] => Goal::End(verdict),
            ref cells => {
                // Of more than one cell it begins with a test, which is what was written last.
                self.tree(cells, word);
                let source = match self.version {
                    IpVersion::V4 => SOURCE_V4,
                    IpVersion::V6 => SOURCE_V6,
                };
                Goal::At(self.push(Instruction::LoadWord(source + 4 * word)))
            }
        }
    }

    fn tree(&mut self, cells: &[Cell<'_>], word: u16) -> Goal {
        if let [cell] = cells {
            return self.below(cell, word);
        }
        if let Some(rest) = row(cells) {
            let singles =
                cells.iter().rev().filter(|cell| !matches!(cell.below, Below::End(end) if end == rest));
            return singles.fold(Goal::End(rest), |no, cell| {
                let yes = self.below(cell, word);
                self.test(yes, no, |yes, no| Instruction::Equal { value: cell.first, yes, no })
            });
        }
        let (low, high) = cells.split_at(cells.len() / 2);
        let value = high[0].first;
        let high = self.tree(high, word);
        let low = self.tree(low, word);
        self.test(high, low, |yes, no| Instruction::AtLeast { value, yes, no })
    }

    fn below(&mut self, cell: &Cell<'_>, word: u16) -> Goal {
        match cell.below {
            Below::End(verdict) => Goal::End(verdict),
            Below::Search(before, starts) => self.search(before, starts, word + 1),
        }
    }

    fn test(&mut self, yes: Goal, no: Goal, make: impl Fn(u8, u8) -> Instruction) -> Goal {
        let (yes, no) = (self.near(yes), self.near(no));
        let far = |at: usize| (self.reversed.len() - 1 - at) as u8;
        Goal::At(self.push(make(far(yes), far(no))))
    }

    /// Brings a goal into reach of the next test; where it is then.
    fn near(&mut self, goal: Goal) -> usize {
        match goal {
            Goal::End(verdict) => self.end(verdict),
            Goal::At(at) if self.reaches(at) => at,
            Goal::At(at) => self.push(Instruction::Jump((self.reversed.len() - 1 - at) as u32)),
        }
    }

    fn end(&mut self, verdict: Verdict) -> usize {
        let known = self.ends[verdict as usize].filter(|&at| self.reaches(at));
        known.unwrap_or_else(|| {
            let at = match verdict {
                Verdict::Drop => self.push(Instruction::Drop),
                Verdict::Take => self.push(Instruction::Take),
                Verdict::OneHop => {
                    let (take, drop) = (Goal::End(Verdict::Take), Goal::End(Verdict::Drop));
                    self.test(take, drop, |yes, no| Instruction::Equal { value: GTSM_TTL.into(), yes, no });
                    self.push(Instruction::LoadOctet(match self.version {
                        IpVersion::V4 => TTL_V4,
                        IpVersion::V6 => TTL_V6,
                    }))
                }
            };
            self.ends[verdict as usize] = Some(at);
            at
        })
    }

    fn reaches(&self, at: usize) -> bool {
        self.reversed.len() - 1 - at <= REACH
    }

    fn push(&mut self, instruction: Instruction) -> usize {
        self.reversed.push(instruction);
        self.reversed.len() - 1
    }
}

/// The verdict of all cells but a few single values, if that is how it is.
fn row(cells: &[Cell<'_>]) -> Option<Verdict> {
    let rest = cells.iter().find_map(|cell| match cell.below {
        Below::End(verdict) if cell.first != cell.last => Some(verdict),
        _ => None,
    })?;
    let others = cells.iter().filter(|cell| !matches!(cell.below, Below::End(end) if end == rest));
    let are_single = others.clone().all(|cell| cell.first == cell.last);
    (are_single && others.count() <= MOST_IN_A_ROW).then_some(rest)
}

/// All values of a word, in order.
fn cells<'a>(before: Verdict, starts: &'a [(u128, Verdict)], word: u16) -> Vec<Cell<'a>> {
    let shift = 96 - 32 * u32::from(word);
    let value = |start: &(u128, Verdict)| (start.0 >> shift) as u32;
    let begins_with_it = |start: &(u128, Verdict)| start.0 & ((1 << shift) - 1) == 0;
    let ends = |first: Option<u32>, last: Option<u32>, verdict| {
        let (first, last) = first.zip(last).filter(|(first, last)| first <= last)?;
        Some(Cell { first, last, below: Below::End(verdict) })
    };
    let mut cells = Vec::new();
    let (mut verdict, mut next) = (before, Some(0));
    for starts in starts.chunk_by(|a, b| value(a) == value(b)) {
        let here = value(&starts[0]);
        cells.extend(ends(next, here.checked_sub(1), verdict));
        let (whole, inside) = match starts {
            [first, inside @ ..] if begins_with_it(first) => (first.1, inside),
            inside => (verdict, inside),
        };
        next = if inside.is_empty() {
            Some(here)
        } else {
            cells.push(Cell { first: here, last: here, below: Below::Search(whole, inside) });
            here.checked_add(1)
        };
        verdict = starts[starts.len() - 1].1;
    }
    cells.extend(ends(next, Some(u32::MAX), verdict));
    cells
}
