//! The walk in address order.

use holdfast_types::IpPrefix;

use crate::{
    block::{Block, Blocks, View},
    index::Index,
    place::{Place, Region, is_child, prefix_at},
    table::Value,
};

/// Entries in address order, shorter first.
#[derive(Clone, Debug)]
pub struct Iter<'a, P, V> {
    blocks: &'a Blocks<V>,
    /// Where the walk is; `None` at the end.
    here: Option<Spot<'a, V>>,
    /// The blocks above, each with the index to go on at.
    above: [(Block, u16); 15],
    depth: usize,
    family: std::marker::PhantomData<P>,
}

/// An index in a block.
#[derive(Clone, Debug)]
struct Spot<'a, V> {
    block: Block,
    region: Region,
    view: View<'a, V>,
    at: usize,
}

impl<'a, V: Value> Spot<'a, V> {
    fn new(blocks: &'a Blocks<V>, block: Block) -> Self {
        Self { block, region: blocks.region(block), view: blocks.view(block), at: 0 }
    }
}

impl<'a, P: IpPrefix, V: Value> Iter<'a, P, V> {
    /// All entries.
    pub(crate) fn new(blocks: &'a Blocks<V>, index: &Index) -> Self {
        let top = index.find(Region { level: 0, bits: 0 }, blocks);
        Self {
            blocks,
            here: top.map(|block| Spot::new(blocks, block)),
            above: [(Block::from_bits(0), 0); 15],
            depth: 0,
            family: std::marker::PhantomData,
        }
    }

    /// Goes from the top to the first entry at or after (or only after) a prefix.
    pub(crate) fn seek(mut self, from: P, inclusive: bool) -> Self {
        let place = Place::of(from);
        while let Some(here) = &mut self.here {
            if here.region.level == place.region.level {
                let first = place.mark + u16::from(!inclusive);
                here.at = here.view.marks.partition_point(|&mark| mark < first);
                break;
            }
            let mark = place.region.mark_in(here.region.level);
            here.at = here.view.marks.partition_point(|&m| m < mark);
            if here.view.marks.get(here.at) != Some(&mark) {
                break;
            }
            let child = here.view.child(here.at);
            let region = self.blocks.region(child);
            if !region.contains(place.region) {
                // All of the child lies before the prefix, or all of it after.
                here.at += usize::from(region.bits < from.bits());
                break;
            }
            self.descend(child);
        }
        self
    }

    /// Enters the child at the present index.
    fn descend(&mut self, child: Block) {
        if let Some(here) = self.here.replace(Spot::new(self.blocks, child)) {
            self.above[self.depth] = (here.block, here.at as u16 + 1);
            self.depth += 1;
        }
    }

    fn ascend(&mut self) {
        self.here = self.depth.checked_sub(1).map(|depth| {
            self.depth = depth;
            let (block, at) = self.above[depth];
            Spot { at: usize::from(at), ..Spot::new(self.blocks, block) }
        });
    }

    /// Goes on to the next value, if the present index is none.
    fn settle(&mut self) -> Option<()> {
        loop {
            let here = self.here.as_ref()?;
            match here.view.marks.get(here.at) {
                None => self.ascend(),
                Some(&mark) if is_child(mark) => self.descend(here.view.child(here.at)),
                Some(_) => return Some(()),
            }
        }
    }

    /// Shows entry after entry until `show` says that it is enough: then returns the last, `None` at the end.
    #[inline]
    pub(crate) fn scan(mut self, mut show: impl FnMut(P, V) -> bool) -> Option<P> {
        loop {
            self.settle()?;
            let here = self.here.as_mut()?;
            let run = here.view.marks[here.at..].iter().take_while(|mark| !is_child(**mark));
            for &mark in run {
                let prefix = prefix_at(here.region, mark);
                let value = here.view.value(here.at);
                here.at += 1;
                if !show(prefix, value) {
                    return Some(prefix);
                }
            }
        }
    }

    /// The same place, to be gone on from while the table is changed.
    pub(crate) fn trail(self) -> Trail {
        let here = self.here.map(|here| (here.block, here.at));
        Trail { here, above: self.above, depth: self.depth }
    }
}

/// A place in the trie and the way there, without a hold on the table.
#[derive(Debug)]
pub(crate) struct Trail {
    /// A block and an index in it; `None` at the end.
    pub(crate) here: Option<(Block, usize)>,
    above: [(Block, u16); 15],
    depth: usize,
}

impl Trail {
    /// Enters the child at the present index.
    pub(crate) fn descend(&mut self, child: Block) {
        if let Some((block, at)) = self.here.replace((child, 0)) {
            self.above[self.depth] = (block, at as u16 + 1);
            self.depth += 1;
        }
    }

    /// Goes to the block above, to the index after the one left; returns what was left.
    pub(crate) fn ascend(&mut self) -> Option<(Block, usize)> {
        let above = self.depth.checked_sub(1).map(|depth| {
            self.depth = depth;
            let (block, at) = self.above[depth];
            (block, usize::from(at))
        });
        std::mem::replace(&mut self.here, above)
    }
}

impl<P: IpPrefix, V: Value> Iterator for Iter<'_, P, V> {
    type Item = (P, V);

    fn next(&mut self) -> Option<(P, V)> {
        self.settle()?;
        let here = self.here.as_mut()?;
        let at = here.at;
        here.at += 1;
        Some((prefix_at(here.region, here.view.marks[at]), here.view.value(at)))
    }
}
