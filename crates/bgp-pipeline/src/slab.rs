//! Records by number, in pages: growing copies nothing but the first one, and empty pages are given back.

use std::collections::BTreeSet;

/// Records of a page.
const PAGE: usize = 512;

/// The numbers are dense: those free are given out again, the lowest page first, so that others may empty.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    pages: Vec<Page<T>>,
    /// Pages with room.
    rooms: BTreeSet<u32>,
    len: usize,
}

#[derive(Debug)]
struct Page<T> {
    /// No memory while the page is empty.
    records: Vec<T>,
    /// Numbers within the page that were given back.
    free: Vec<u16>,
}

impl<T> Page<T> {
    fn used(&self) -> usize {
        self.records.len() - self.free.len()
    }
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { pages: Vec::new(), rooms: BTreeSet::new(), len: 0 }
    }

    /// The record's number.
    pub(crate) fn add(&mut self, record: T) -> u32 {
        let number = self.rooms.first().copied().unwrap_or_else(|| {
            self.pages.push(Page { records: Vec::new(), free: Vec::new() });
            self.rooms.insert(self.pages.len() as u32 - 1);
            self.pages.len() as u32 - 1
        });
        let page = &mut self.pages[number as usize];
        let at = match page.free.pop() {
            Some(at) => {
                page.records[usize::from(at)] = record;
                usize::from(at)
            }
            None => {
                // The first page grows: most of a thousand tables may be small.
                if page.records.is_empty() && number > 0 {
                    page.records.reserve_exact(PAGE);
                }
                page.records.push(record);
                page.records.len() - 1
            }
        };
        if page.used() == PAGE {
            self.rooms.remove(&number);
        }
        self.len += 1;
        number * PAGE as u32 + at as u32
    }

    /// Gives a number back. Its record must not be asked for any more.
    pub(crate) fn remove(&mut self, number: u32) {
        let (number, at) = (number / PAGE as u32, number % PAGE as u32);
        let page = &mut self.pages[number as usize];
        if page.used() == PAGE {
            self.rooms.insert(number);
        }
        page.free.push(at as u16);
        if page.used() == 0 {
            *page = Page { records: Vec::new(), free: Vec::new() };
        }
        self.len -= 1;
        while self.pages.last().is_some_and(|page| page.used() == 0) {
            self.pages.pop();
            self.rooms.remove(&(self.pages.len() as u32));
        }
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> &T {
        &self.pages[number as usize / PAGE].records[number as usize % PAGE]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> &mut T {
        &mut self.pages[number as usize / PAGE].records[number as usize % PAGE]
    }

    /// Records held.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// All numbers are below this.
    pub(crate) fn numbers(&self) -> usize {
        self.pages.len() * PAGE
    }

    pub(crate) fn memory(&self) -> usize {
        let page = |page: &Page<T>| page.records.capacity() * size_of::<T>() + page.free.capacity() * 2;
        self.pages.iter().map(page).sum::<usize>() + self.pages.capacity() * size_of::<Page<T>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_and_are_given_out_again_the_lowest_page_first() {
        let mut slab = Slab::new();
        let numbers: Vec<u32> = (0..3 * PAGE).map(|value| slab.add(value)).collect();
        assert_eq!((slab.len(), slab.numbers()), (3 * PAGE, 3 * PAGE));
        for at in [5, PAGE + 5] {
            slab.remove(numbers[at]);
        }
        assert_eq!([slab.add(7), slab.add(8)], [numbers[5], numbers[PAGE + 5]]);
        assert_eq!((*slab.get(numbers[5]), *slab.get(numbers[6])), (7, 6));
    }

    #[test]
    fn memory_goes_back_as_pages_empty_and_all_of_it_in_the_end() {
        let mut slab = Slab::new();
        let numbers: Vec<u32> = (0..4 * PAGE).map(|value| slab.add(value)).collect();
        let full = slab.memory();
        numbers[PAGE..2 * PAGE].iter().for_each(|number| slab.remove(*number));
        assert!(slab.memory() <= full - PAGE * size_of::<usize>());
        numbers[2 * PAGE..].iter().for_each(|number| slab.remove(*number));
        assert_eq!(slab.numbers(), PAGE);
        numbers[..PAGE].iter().for_each(|number| slab.remove(*number));
        assert_eq!((slab.len(), slab.numbers()), (0, 0));
    }
}
