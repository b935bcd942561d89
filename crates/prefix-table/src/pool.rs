//! Memory for many small runs of words, addressed by 32 bits.
//!
//! A page holds runs of one size class; classes grow by about a fifth. Pages grow with the pool, from 1 to 32 KiB: a
//! router may have a thousand small tables. A page that becomes empty serves any other class next, or goes back to the
//! allocator. Without pages per class the free runs of
//! outgrown classes pile up: that doubled the memory of a table when it was measured.

use std::fmt;

/// Most words in a page of small runs.
const PAGE: usize = 1 << PAGE_BITS;
const PAGE_BITS: u32 = 13;
/// Words in the first pages, unless one run is longer.
const FIRST_PAGE: usize = 256;
/// A page is this share of the pool, so that classes with one page that is hardly used do not count for much.
const SHARE: usize = 32;
/// Pages a pool may have: what is left of 32 bits.
const MAX_PAGES: usize = 1 << (32 - PAGE_BITS);
/// Sizes of runs in words. What is larger gets a page of its own.
const SIZES: [u16; 40] = sizes();
/// The class of a page that holds one large run.
const LARGE: u8 = SIZES.len() as u8;
/// No page, in the links between pages.
const NONE: u32 = u32::MAX;

const fn sizes() -> [u16; 40] {
    let mut sizes = [0; 40];
    let (mut i, mut size) = (0, 1);
    while i < sizes.len() {
        sizes[i] = size;
        size += if size < 10 { 1 } else { size / 5 };
        i += 1;
    }
    sizes
}

/// The class of runs of up to so many words, for those that are asked for all the time.
static CLASSES: [u8; 128] = classes();

const fn classes() -> [u8; 128] {
    let mut classes = [0; 128];
    let mut words = 1;
    while words < classes.len() {
        let class = classes[words - 1];
        classes[words] = if SIZES[class as usize] as usize >= words { class } else { class + 1 };
        words += 1;
    }
    classes
}

#[inline]
fn class_of(words: usize) -> usize {
    match CLASSES.get(words) {
        Some(&class) => usize::from(class),
        None => SIZES.partition_point(|&size| usize::from(size) < words),
    }
}

/// A run in a [`Pool`]. Means nothing to another pool, and nothing after the run was freed.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(u32);

impl Handle {
    /// The handle as a number, to be packed into records.
    #[inline]
    pub fn bits(self) -> u32 {
        self.0
    }

    /// The handle of which `bits` were taken.
    #[inline]
    pub fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline]
    fn new(page: u32, word: usize) -> Self {
        Self(page << PAGE_BITS | word as u32)
    }

    #[inline]
    fn page(self) -> usize {
        (self.0 >> PAGE_BITS) as usize
    }

    #[inline]
    fn word(self) -> usize {
        self.0 as usize & (PAGE - 1)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.page(), self.word())
    }
}

/// Runs of words of all sizes.
#[derive(Debug)]
pub struct Pool {
    pages: Vec<Page>,
    /// For each class its first page with room; the others follow by `Page::next`.
    rooms: [u32; SIZES.len()],
    /// Pages without memory, linked by `Page::next`.
    vacant: u32,
    /// The memory of a page that became empty, the longest of them, so that a run that comes and goes costs nothing.
    spare: Option<Box<[u32]>>,
    /// Bytes of all pages, and the most they may be.
    bytes: usize,
    limit: usize,
}

#[derive(Debug)]
struct Page {
    words: Box<[u32]>,
    /// Words of each run.
    size: u32,
    class: u8,
    /// Runs in use.
    used: u16,
    /// Runs that were in use at any time: those after were never touched.
    fresh: u16,
    /// First freed run, counted from 1; each holds the number of the next in its first word.
    freed: u16,
    /// Neighbours in the list of pages of this class with room.
    next: u32,
    prev: u32,
}

impl Page {
    #[inline]
    fn size(&self) -> usize {
        self.size as usize
    }

    #[inline]
    fn run(&self, handle: Handle) -> &[u32] {
        &self.words[handle.word()..][..self.size()]
    }

    #[inline]
    fn run_mut(&mut self, handle: Handle) -> &mut [u32] {
        let size = self.size();
        &mut self.words[handle.word()..][..size]
    }

    #[inline]
    fn has_room(&self) -> bool {
        self.freed != 0 || (usize::from(self.fresh) + 1) * self.size() <= self.words.len()
    }

    /// The first word of a run that is free from now on no more.
    #[inline]
    fn take(&mut self) -> usize {
        self.used += 1;
        if self.freed == 0 {
            self.fresh += 1;
            return usize::from(self.fresh - 1) * self.size();
        }
        let word = usize::from(self.freed - 1) * self.size();
        self.freed = self.words[word] as u16;
        word
    }

    #[inline]
    fn give_back(&mut self, word: usize) {
        self.used -= 1;
        self.words[word] = u32::from(self.freed);
        self.freed = (word / self.size()) as u16 + 1;
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

impl Pool {
    /// The longest run: 4 MiB.
    pub const MAX_WORDS: usize = 1 << 20;

    /// An empty pool; it takes no memory yet.
    pub fn new() -> Self {
        Self::with_limit(usize::MAX)
    }

    /// An empty pool that will take at most `bytes`.
    pub fn with_limit(limit: usize) -> Self {
        Self { pages: Vec::new(), rooms: [NONE; SIZES.len()], vacant: NONE, spare: None, bytes: 0, limit }
    }

    /// Bytes held, free runs included.
    pub fn memory(&self) -> usize {
        let spare = self.spare.as_ref().map_or(0, |page| page.len() * 4);
        self.bytes + spare + self.pages.capacity() * size_of::<Page>()
    }

    /// A run of at least `words` words; what they contain is left over from before.
    ///
    /// `None` when the run is over [`Self::MAX_WORDS`], the limit is reached, or the pool holds all it can
    /// address: 2^19 pages, 16 GiB of small runs.
    pub fn try_alloc(&mut self, words: usize) -> Option<Handle> {
        let class = class_of(words);
        match self.rooms.get(class) {
            None => self.alloc_large(words),
            Some(&NONE) => self.alloc_in_new_page(class as u8),
            Some(&page) => Some(self.alloc_in(page)),
        }
    }

    /// A run with these bytes at its start. The caller keeps their number: [`Self::bytes`] gives the whole run.
    pub fn try_store(&mut self, bytes: &[u8]) -> Option<Handle> {
        let handle = self.try_alloc(bytes.len().div_ceil(4))?;
        self.bytes_mut(handle)[..bytes.len()].copy_from_slice(bytes);
        Some(handle)
    }

    fn alloc_large(&mut self, words: usize) -> Option<Handle> {
        if words > Self::MAX_WORDS {
            return None;
        }
        let page = self.add_page(LARGE, vec![0; words].into())?;
        self.pages[page as usize].used = 1;
        Some(Handle::new(page, 0))
    }

    fn alloc_in_new_page(&mut self, class: u8) -> Option<Handle> {
        let wanted = self.page_for(usize::from(SIZES[usize::from(class)]))?;
        let most = (4 * wanted).min((self.limit - self.bytes) / 4);
        let words = match self.spare.take() {
            Some(spare) if (wanted..=most).contains(&spare.len()) => spare,
            Some(_) | None => vec![0; wanted].into(),
        };
        let page = self.add_page(class, words)?;
        self.link(page);
        Some(self.alloc_in(page))
    }

    /// How many words the next page for runs of this size has; `None` at the limit.
    fn page_for(&self, size: usize) -> Option<usize> {
        let wanted = (self.bytes / 4 / SHARE).clamp(FIRST_PAGE, PAGE).max(size);
        let words = wanted.min((self.limit - self.bytes) / 4);
        match words / size {
            0 => None,
            _ if words == PAGE => Some(PAGE),
            runs => Some(runs * size),
        }
    }

    fn alloc_in(&mut self, index: u32) -> Handle {
        let page = &mut self.pages[index as usize];
        let word = page.take();
        if !page.has_room() {
            self.unlink(index);
        }
        Handle::new(index, word)
    }

    /// Gives a run back. Its handle must not be used any more.
    pub fn free(&mut self, handle: Handle) {
        let index = handle.page() as u32;
        let page = &mut self.pages[handle.page()];
        if page.class == LARGE {
            return self.drop_page(index);
        }
        let had_room = page.has_room();
        page.give_back(handle.word());
        if page.used == 0 {
            if had_room {
                self.unlink(index);
            }
            self.drop_page(index);
        } else if !had_room {
            self.link(index);
        }
    }

    fn add_page(&mut self, class: u8, words: Box<[u32]>) -> Option<u32> {
        if words.len() * 4 > self.limit - self.bytes {
            return None;
        }
        let size = SIZES.get(usize::from(class)).map_or(words.len() as u32, |size| u32::from(*size));
        let page = Page { words, size, class, used: 0, fresh: 0, freed: 0, next: NONE, prev: NONE };
        let index = match self.vacant {
            NONE if self.pages.len() == MAX_PAGES => return None,
            NONE => {
                self.pages.push(Page { words: Box::default(), ..page });
                self.pages.len() as u32 - 1
            }
            index => index,
        };
        self.vacant = self.pages[index as usize].next;
        self.bytes += page.words.len() * 4;
        self.pages[index as usize] = page;
        Some(index)
    }

    fn drop_page(&mut self, index: u32) {
        let page = &mut self.pages[index as usize];
        let words = std::mem::take(&mut page.words);
        page.used = 0;
        page.next = std::mem::replace(&mut self.vacant, index);
        self.bytes -= words.len() * 4;
        if words.len() <= PAGE && self.spare.as_ref().is_none_or(|spare| spare.len() <= words.len()) {
            self.spare = Some(words);
        }
        if self.bytes == 0 {
            // None is in use, nor in a list of those with room.
            (self.pages, self.vacant) = (Vec::new(), NONE);
        }
    }

    /// Puts a page in front of those of its class that have room.
    fn link(&mut self, index: u32) {
        let page = &mut self.pages[index as usize];
        let next = std::mem::replace(&mut self.rooms[usize::from(page.class)], index);
        (page.prev, page.next) = (NONE, next);
        if let Some(next) = self.pages.get_mut(next as usize) {
            next.prev = index;
        }
    }

    fn unlink(&mut self, index: u32) {
        let Page { class, next, prev, .. } = self.pages[index as usize];
        match self.pages.get_mut(prev as usize) {
            Some(prev) => prev.next = next,
            None => self.rooms[usize::from(class)] = next,
        }
        if let Some(next) = self.pages.get_mut(next as usize) {
            next.prev = prev;
        }
    }

    /// The whole run: at least as many words as were asked for.
    #[inline]
    pub fn get(&self, handle: Handle) -> &[u32] {
        self.pages[handle.page()].run(handle)
    }

    /// The whole run, to be changed.
    #[inline]
    pub fn get_mut(&mut self, handle: Handle) -> &mut [u32] {
        self.pages[handle.page()].run_mut(handle)
    }

    /// One run to read and another to change, as when the content of one moves to the other.
    ///
    /// Both must be of different sizes, or both large.
    #[inline]
    pub fn get_pair(&mut self, from: Handle, to: Handle) -> Option<(&[u32], &mut [u32])> {
        let [source, target] = self.pages.get_disjoint_mut([from.page(), to.page()]).ok()?;
        Some((source.run(from), target.run_mut(to)))
    }

    /// The whole run as bytes.
    #[inline]
    pub fn bytes(&self, handle: Handle) -> &[u8] {
        bytemuck::cast_slice(self.get(handle))
    }

    /// The whole run as bytes, to be changed.
    #[inline]
    pub fn bytes_mut(&mut self, handle: Handle) -> &mut [u8] {
        bytemuck::cast_slice_mut(self.get_mut(handle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_keeps_its_content_while_others_come_and_go() {
        let mut pool = Pool::new();
        let texts: Vec<Vec<u8>> = (0..3000).map(|i| vec![i as u8; i * 7 % 9000]).collect();
        let mut handles: Vec<Handle> = texts.iter().filter_map(|text| pool.try_store(text)).collect();
        for i in (0..texts.len()).step_by(2) {
            pool.free(handles[i]);
        }
        for i in (0..texts.len()).step_by(2) {
            handles[i] = pool.try_store(&texts[i]).expect("memory");
        }
        for (text, handle) in texts.iter().zip(&handles) {
            assert_eq!(&pool.bytes(*handle)[..text.len()], text);
        }
    }

    #[test]
    fn empty_pages_serve_other_sizes_and_go_back() {
        let mut pool = Pool::new();
        let small: Vec<Handle> = (0..100_000).filter_map(|_| pool.try_alloc(3)).collect();
        let full = pool.memory();
        assert!(full > 1_200_000);
        small.into_iter().for_each(|handle| pool.free(handle));
        assert!(pool.memory() < 40_000, "{}", pool.memory());
        let large: Vec<Handle> = (0..12_000).filter_map(|_| pool.try_alloc(25)).collect();
        assert!(large.len() == 12_000 && pool.memory() < full + full / 10, "{}", pool.memory());
    }

    #[test]
    fn the_class_of_a_run_is_the_first_that_is_large_enough() {
        for words in 0..=PAGE {
            assert_eq!(class_of(words), SIZES.partition_point(|&size| usize::from(size) < words));
        }
    }

    #[test]
    fn a_run_wastes_at_most_a_quarter() {
        for words in 1..=PAGE {
            let mut pool = Pool::new();
            let handle = pool.try_alloc(words).expect("memory");
            let len = pool.get(handle).len();
            assert!(len >= words && len <= words + words / 4, "{len} for {words}");
        }
    }

    #[test]
    fn a_pool_of_few_runs_of_many_sizes_is_small_and_its_pages_grow_with_it() {
        let mut pool = Pool::new();
        for words in (1..40).cycle().take(1000) {
            pool.try_alloc(words).expect("memory");
        }
        let used: usize = (1..40).cycle().take(1000).map(|words| words * 4).sum();
        assert!(pool.memory() < used + used / 2, "{} for {used}", pool.memory());
        for words in (1..40).cycle().take(100_000) {
            pool.try_alloc(words).expect("memory");
        }
        assert!(pool.pages.last().is_some_and(|page| page.words.len() == PAGE));
        assert!(pool.pages.len() < 700, "{}", pool.pages.len());
    }

    #[test]
    fn at_the_limit_there_is_no_run_until_one_is_freed() {
        let mut pool = Pool::with_limit(3 * 4 * PAGE);
        let mut runs: Vec<Handle> = std::iter::from_fn(|| pool.try_alloc(100)).collect();
        assert_eq!(runs.len(), 3 * (PAGE / 105));
        assert_eq!(pool.try_alloc(7), None);
        runs.drain(..PAGE / 105).for_each(|handle| pool.free(handle));
        assert!(pool.try_alloc(5).is_some());
        assert_eq!(pool.try_alloc(Pool::MAX_WORDS + 1), None);
    }
}
