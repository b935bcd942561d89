//! Where things stand in the memory, and the sums over them.
//!
//! ```text
//! header page │ directory: which session has a cell │ table: whose is a block │ cells │ blocks
//! ```
//! Directory and table stand apart from cells and blocks so that those not in use have no page, and so that recovery
//! reads a few pages only: the kernel takes a page also for one that is read and was never written.

/// What the kernel gives and takes back at a time.
pub(crate) const PAGE: usize = 4096;
/// Octets of a block unless a test asks for others.
pub(crate) const BLOCK: usize = 128 << 10;
/// Octets of an entry of the directory, and of the table.
const DIRECTORY_ENTRY: usize = 8;
const TABLE_ENTRY: usize = 16;
/// Most sessions there is a cell for.
const MAX_CELLS: usize = 1 << 14;

/// Places and sizes. All follow from the size of the memory and of a block.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Layout {
    block_bits: u32,
    pub(crate) cells: usize,
    pub(crate) blocks: usize,
    table: usize,
    first_cell: usize,
    first_block: usize,
}

impl Layout {
    /// `None` when there is no room for four blocks, or a block is no power of two of at least a page.
    pub(crate) fn new(memory: usize, block: usize) -> Option<Self> {
        if !block.is_power_of_two() || !(PAGE..=1 << 30).contains(&block) {
            return None;
        }
        // A session that receives and sends holds two blocks: no use in more cells than that. Besides the header
        // two pages are lost at most, where the cells and the blocks begin.
        let share_of_cell = (cell_size(block) + DIRECTORY_ENTRY).div_ceil(2);
        let blocks = memory.checked_sub(3 * PAGE)? / (block + TABLE_ENTRY + share_of_cell);
        let blocks = blocks.min(u32::MAX as usize / 2);
        let cells = (blocks / 2).min(MAX_CELLS);
        let table = PAGE + cells * DIRECTORY_ENTRY;
        let first_cell = (table + blocks * TABLE_ENTRY).next_multiple_of(PAGE);
        let first_block = (first_cell + cells * cell_size(block)).next_multiple_of(PAGE);
        let layout =
            Self { block_bits: block.trailing_zeros(), cells, blocks, table, first_cell, first_block };
        (blocks >= 4).then_some(layout)
    }

    /// Octets of a block.
    #[inline]
    pub(crate) fn block(&self) -> usize {
        1 << self.block_bits
    }

    /// Octets of a cell.
    #[inline]
    pub(crate) fn cell(&self) -> usize {
        cell_size(self.block())
    }

    /// Where the directory says which session has the cell of a slot.
    #[inline]
    pub(crate) fn directory_at(&self, slot: usize) -> usize {
        PAGE + slot * DIRECTORY_ENTRY
    }

    /// Where the cell of a slot begins.
    #[inline]
    pub(crate) fn cell_at(&self, slot: usize) -> usize {
        self.first_cell + slot * self.cell()
    }

    /// Where the table says what a block is for.
    #[inline]
    pub(crate) fn table_at(&self, block: u32) -> usize {
        self.table + block as usize * TABLE_ENTRY
    }

    /// Where a block begins.
    #[inline]
    pub(crate) fn block_at(&self, block: u32) -> usize {
        self.first_block + ((block as usize) << self.block_bits)
    }

    /// Blocks that an offset is ahead of another, and the octets that remain.
    #[inline]
    pub(crate) fn split(&self, octets: u64) -> (usize, usize) {
        ((octets >> self.block_bits) as usize, octets as usize & (self.block() - 1))
    }

    /// The block at a place of the memory, and the place in it.
    pub(crate) fn place(&self, at: u64) -> Option<(u32, usize)> {
        let (block, within) = self.split(at.checked_sub(self.first_block as u64)?);
        (block < self.blocks).then_some((block as u32, within))
    }
}

fn cell_size(block: usize) -> usize {
    block / 8
}

/// A sum over words that tells a whole record from a torn or foreign one.
#[inline]
pub(crate) fn checksum(seed: u64, words: impl IntoIterator<Item = u64>) -> u64 {
    let sum = words.into_iter().fold(seed ^ 0x9e37_79b9_7f4a_7c15, |sum, word| {
        let product = (sum ^ word).wrapping_mul(0xd6e8_feb8_6659_fd93);
        product ^ product >> 32
    });
    sum.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ sum >> 29
}

/// [`checksum`] over octets.
pub(crate) fn checksum_octets(seed: u64, octets: &[u8]) -> u64 {
    let words = octets.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    checksum(seed ^ octets.len() as u64, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_lie_inside_the_memory_and_apart() {
        for block in [PAGE, BLOCK] {
            for memory in (0..400).map(|i| i * 10_007 * block / PAGE) {
                let Some(layout) = Layout::new(memory, block) else {
                    assert!(memory < 6 * block + 3 * PAGE, "{memory} is enough");
                    continue;
                };
                assert!(layout.directory_at(layout.cells) <= layout.table_at(0));
                assert!(layout.table_at(layout.blocks as u32) <= layout.cell_at(0));
                assert!(layout.cell_at(layout.cells) <= layout.block_at(0));
                assert_eq!(layout.cell_at(0) % PAGE, 0);
                assert!(layout.block_at(layout.blocks as u32) <= memory);
                assert_eq!(layout.block_at(0) % PAGE, 0);
                assert_eq!(layout.place(layout.block_at(3) as u64 + 5), Some((3, 5)));
                assert_eq!(layout.place(layout.block_at(layout.blocks as u32) as u64), None);
            }
        }
    }

    #[test]
    fn a_large_log_has_a_cell_for_every_second_block_until_there_are_enough() {
        let gigabyte = Layout::new(1 << 30, BLOCK).expect("enough");
        assert_eq!((gigabyte.blocks / 2, gigabyte.blocks > 7_600), (gigabyte.cells, true));
        assert_eq!(Layout::new(16 << 30, BLOCK).expect("enough").cells, MAX_CELLS);
    }

    #[test]
    fn a_sum_changes_with_every_word_and_its_place() {
        let sum = checksum(1, [1, 2, 3]);
        for other in
            [checksum(1, [1, 2, 4]), checksum(1, [2, 1, 3]), checksum(2, [1, 2, 3]), checksum(1, [1, 2])]
        {
            assert_ne!(sum, other);
        }
        assert_ne!(checksum_octets(1, b"abc"), checksum_octets(1, b"abc\0"));
    }
}
