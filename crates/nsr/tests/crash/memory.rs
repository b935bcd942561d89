//! Memory that sees every change the log makes, and a fuse that ends the process at one of them.

use std::{
    cell::{Cell, RefCell},
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    rc::Rc,
};

use holdfast_nsr::Memory;

/// Numbers that look random and are the same for the same seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// How many steps are left to the process. A step is a change of the memory, or a system call that is over.
#[derive(Clone, Debug)]
pub(crate) struct Fuse(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    left: Cell<u64>,
    burnt: Cell<u64>,
    random: RefCell<Random>,
}

/// Why the process ended.
struct Death;

impl Fuse {
    pub(crate) fn new(seed: u64) -> Self {
        let random = RefCell::new(Random::new(seed));
        Self(Rc::new(Inner { left: Cell::new(u64::MAX), burnt: Cell::new(0), random }))
    }

    /// The process dies at step `left`, counted from 1.
    pub(crate) fn set(&self, left: u64) {
        self.0.left.set(left);
    }

    /// Steps made since the beginning.
    pub(crate) fn burnt(&self) -> u64 {
        self.0.burnt.get()
    }

    fn is_burnt_down(&self) -> bool {
        self.0.burnt.set(self.0.burnt.get() + 1);
        self.0.left.set(self.0.left.get() - 1);
        self.0.left.get() == 0
    }

    /// The process may die here.
    pub(crate) fn step(&self) {
        if self.is_burnt_down() {
            resume_unwind(Box::new(Death));
        }
    }
}

/// Runs the process; `None` when it died.
pub(crate) fn live<T>(process: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(process)) {
        Ok(result) => Some(result),
        Err(reason) if reason.is::<Death>() => None,
        Err(reason) => resume_unwind(reason),
    }
}

/// Where memory stays when the process that had it is gone.
pub(crate) type Keeper = Rc<RefCell<Vec<u8>>>;

/// Memory that goes back to the keeper when the process ends.
#[derive(Debug)]
pub(crate) struct Shared {
    octets: Vec<u8>,
    keeper: Keeper,
    fuse: Fuse,
}

impl Shared {
    pub(crate) fn take(keeper: &Keeper, fuse: &Fuse) -> Self {
        Self { octets: keeper.take(), keeper: keeper.clone(), fuse: fuse.clone() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.keeper.replace(std::mem::take(&mut self.octets));
    }
}

impl Memory for Shared {
    fn octets(&self) -> &[u8] {
        &self.octets
    }

    fn octets_mut(&mut self) -> &mut [u8] {
        &mut self.octets
    }

    fn release(&mut self, range: Range<usize>) {
        self.octets[range].fill(0xa5);
    }

    /// A word is stored or not; of more than a word any part may be, in any order.
    fn write(&mut self, at: usize, octets: &[u8]) {
        let dies = self.fuse.is_burnt_down();
        let mut random = self.fuse.0.random.borrow_mut();
        let (first, how) = (at / 8, if dies { random.below(4) } else { 0 });
        for (i, octet) in octets.iter().enumerate() {
            // Whether the word of this octet is stored: a hash, so that all octets of the word agree.
            let word = Random::new(((at + i) / 8 - first) as u64 ^ self.fuse.burnt() << 32).next();
            let is_stored = match how {
                0 => true,
                1 => false,
                2 => word.is_multiple_of(2),
                _ => !word.is_multiple_of(16),
            };
            if is_stored {
                self.octets[at + i] = *octet;
            }
        }
        drop(random);
        if dies {
            resume_unwind(Box::new(Death));
        }
    }
}
