//! Entries: what sessions have passed, in lists that they share.

use std::collections::BTreeSet;

use holdfast_api::stored::v1 as stored;
use holdfast_nsr::{EntryId, EntryNumber, Shared, View};
use holdfast_store::Operation;
use prost::Message;

use super::{Copier, Stop};
use crate::draft::{Draft, Held};

/// Entries of a list at most: a folded history has some thousand. A list without an end is damaged.
const MOST_ENTRIES: usize = 1 << 20;

impl<R: Shared> Copier<R> {
    /// Copies the entries that a session has passed, the oldest first; the number of the last.
    pub(super) fn copy_entries(
        &mut self,
        batch: &mut Draft,
        view: &View,
        mut met: Option<&mut BTreeSet<EntryNumber>>,
    ) -> Result<u64, Stop> {
        let (mut at, mut new, mut last, mut walked) = (view.passed, Vec::new(), 0, Vec::new());
        let mut above: Option<(EntryId, EntryNumber)> = None;
        let outcome = loop {
            let head = (at != EntryId::NONE).then(|| self.reader.entry_head(view, at)).transpose();
            let Some(head) = head.ok().filter(|_| walked.len() < MOST_ENTRIES) else {
                break Err((Stop::Changed, walked.len()));
            };
            let number = head.map_or(0, |(number, _)| number.0);
            match above {
                None => last = number,
                // Also one that is there goes once more if there is another before it now.
                Some((id, of)) if self.entries.get(&of) != Some(&number) => {
                    new.push((id, of, number, walked.len()));
                }
                Some(_) => {}
            }
            let Some((number, previous)) = head else { break Ok(()) };
            let is_known = match &mut met {
                // What is behind it has been walked already.
                Some(met) => !met.insert(number),
                None => self.entries.contains_key(&number),
            };
            if is_known {
                break Ok(());
            }
            walked.push(number);
            above = Some((at, number));
            at = previous;
        };
        let mut copy_all = || {
            while let Some((id, number, previous, count)) = new.pop() {
                let copied = self.copy_entry(batch, view, (id, number, previous));
                copied.map_err(|stop| (stop, count))?;
            }
            Ok(())
        };
        let outcome = outcome.and_then(|()| copy_all());
        outcome.map(|()| last).map_err(|(stop, count)| {
            // The next walk is not to stop at what leads to one that is not there, whether the store has it or not.
            if let Some(met) = met {
                for number in &walked[..count] {
                    met.remove(number);
                }
            }
            stop
        })
    }

    fn copy_entry(
        &mut self,
        batch: &mut Draft,
        view: &View,
        (id, number, previous): (EntryId, EntryNumber, u64),
    ) -> Result<(), Stop> {
        let value = stored::Entry { previous, octets: self.reader.entry(view, id)? }.encode_to_vec();
        batch.push(Operation::Put { name: self.names.entry(number.0), value })?;
        self.entries.insert(number, previous);
        Ok(())
    }

    /// Removes all other entries.
    pub(super) fn keep_entries(&mut self, met: &BTreeSet<EntryNumber>) {
        let names = &self.names;
        let gone: Vec<_> = self.entries.keys().copied().filter(|number| !met.contains(number)).collect();
        self.useless.extend(gone.iter().map(|number| (names.entry(number.0), Held::default())));
        self.entries.retain(|number, _| met.contains(number));
    }
}
