//! Values that belong to attribute sets, found by the number of the set. Numbers are dense, and few sets have a value.

use crate::path::SetId;

/// Sets of a page.
const PAGE: usize = 64;

/// Values by set, in pages: growing moves no value, and a page without values takes no memory.
#[derive(Debug)]
pub(crate) struct BySet<V> {
    pages: Vec<Option<Box<Page<V>>>>,
    /// Pages with values.
    used: usize,
}

#[derive(Debug)]
struct Page<V> {
    values: [Option<V>; PAGE],
    used: usize,
}

impl<V> Default for BySet<V> {
    fn default() -> Self {
        Self { pages: Vec::new(), used: 0 }
    }
}

impl<V> BySet<V> {
    pub(crate) fn is_empty(&self) -> bool {
        self.used == 0
    }

    #[inline]
    pub(crate) fn get(&self, set: SetId) -> Option<&V> {
        self.pages.get(set.index() / PAGE)?.as_ref()?.values[set.index() % PAGE].as_ref()
    }

    /// The value, which is made if there is none.
    pub(crate) fn get_or_insert_with(&mut self, set: SetId, make: impl FnOnce() -> V) -> &mut V {
        let (number, at) = (set.index() / PAGE, set.index() % PAGE);
        if self.pages.len() <= number {
            self.pages.resize_with(number + 1, || None);
        }
        let page = self.pages[number].get_or_insert_with(|| {
            self.used += 1;
            Box::new(Page { values: std::array::from_fn(|_| None), used: 0 })
        });
        page.used += usize::from(page.values[at].is_none());
        page.values[at].get_or_insert_with(make)
    }

    pub(crate) fn remove(&mut self, set: SetId) -> Option<V> {
        let place = self.pages.get_mut(set.index() / PAGE)?;
        let page = place.as_mut()?;
        let value = page.values[set.index() % PAGE].take()?;
        page.used -= 1;
        if page.used == 0 {
            *place = None;
            self.used -= 1;
            self.fit();
        }
        Some(value)
    }

    /// Gives back what is after the last page.
    #[cold]
    fn fit(&mut self) {
        while self.pages.last().is_some_and(Option::is_none) {
            self.pages.pop();
        }
        if self.pages.len() < self.pages.capacity() / 4 {
            self.pages.shrink_to(2 * self.pages.len());
        }
    }

    /// Octets of memory, without those that values have elsewhere.
    pub(crate) fn memory(&self) -> usize {
        self.used * size_of::<Page<V>>() + self.pages.capacity() * size_of::<Option<Box<Page<V>>>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stays_beside_its_set_until_it_is_removed() {
        let mut values = BySet::default();
        assert_eq!((values.get(SetId(3)).copied(), values.remove(SetId(3))), (None, None));
        *values.get_or_insert_with(SetId(3), || 1) += 1;
        *values.get_or_insert_with(SetId(3), || 100) += 1;
        values.get_or_insert_with(SetId(1000), || 7);
        assert_eq!(
            (values.get(SetId(3)), values.get(SetId(1000)), values.get(SetId(4))),
            (Some(&3), Some(&7), None)
        );
        assert_eq!((values.remove(SetId(3)), values.remove(SetId(3))), (Some(3), None));
        assert!(!values.is_empty());
        assert_eq!(values.remove(SetId(1000)), Some(7));
        assert!(values.is_empty());
    }

    #[test]
    fn memory_goes_back_as_pages_empty_whatever_stays() {
        let mut values = BySet::default();
        for number in 0..100_000 {
            values.get_or_insert_with(SetId(number), || u64::from(number));
        }
        let full = values.memory();
        assert!(full < 100_000 * 18, "{full}");
        (0..100_000).filter(|number| *number != 70_000).for_each(|number| {
            values.remove(SetId(number));
        });
        assert!(values.memory() < 32 << 10, "{}", values.memory());
        values.remove(SetId(70_000));
        assert!(values.memory() < 64, "{}", values.memory());
    }
}
