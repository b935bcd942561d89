//! An answer of a cache while it comes in: nothing of it holds before its End of Data.

use holdfast_rtr_wire::Record;

use crate::{Dataset, Delta, Fault};

/// What has come of it.
#[derive(Debug)]
pub(crate) enum Answer {
    /// To a Reset Query.
    Full(Dataset),
    /// To a Serial Query: against what is held.
    Difference(Delta),
}

impl Answer {
    /// Takes in that a record is announced. Who says what was said already has lost count (RFC 8210 section 12, error
    /// 7), but for an ASPA, which takes the place of the one before.
    ///
    /// A key that is held, or in `others`, is the same one in memory.
    pub(crate) fn announce(
        &mut self,
        held: &Dataset,
        others: &[&Dataset],
        record: Record,
    ) -> Result<(), Fault> {
        let known = || [held].into_iter().chain(others.iter().copied());
        match (self, record) {
            (Self::Full(set), record @ Record::Aspa(_)) => {
                set.insert(record);
            }
            (Self::Full(set), record) => {
                let again = set.contains(&record).then(|| Fault::duplicate(&record));
                set.insert_as_in(known(), record);
                return again.map_or(Ok(()), Err);
            }
            (Self::Difference(delta), Record::Aspa(aspa)) => {
                delta.withdrawn.remove_aspa(aspa.customer());
                if held.aspa(aspa.customer()) == Some(&aspa) {
                    delta.announced.remove_aspa(aspa.customer());
                } else {
                    delta.announced.insert(Record::Aspa(aspa));
                }
            }
            (Self::Difference(delta), record) => {
                if delta.withdrawn.remove(&record) {
                    return Ok(());
                }
                if held.contains(&record) || delta.announced.contains(&record) {
                    return Err(Fault::duplicate(&record));
                }
                delta.announced.insert_as_in(known(), record);
            }
        }
        Ok(())
    }

    /// Takes in that a record is withdrawn: it must be there (error 6), and an answer to a Reset Query has none
    /// (section 5.5).
    pub(crate) fn withdraw(&mut self, held_set: &Dataset, record: Record) -> Result<(), Fault> {
        let Self::Difference(delta) = self else { return Err(Fault::WithdrawnInFull) };
        let was_announced = delta.announced.remove(&record);
        let held = match record {
            // Withdrawn by customer alone: what is withdrawn is what is held.
            Record::Aspa(aspa) => {
                held_set.aspa(aspa.customer()).cloned().map(Record::Aspa).ok_or(Record::Aspa(aspa))
            }
            other if held_set.contains(&other) => Ok(other),
            other => Err(other),
        };
        match held {
            // It was changed, and is now withdrawn.
            Ok(record) if was_announced || !delta.withdrawn.contains(&record) => {
                delta.withdrawn.insert_as_in([held_set], record);
                Ok(())
            }
            Err(_) if was_announced => Ok(()),
            Ok(record) | Err(record) => Err(Fault::unknown(&record)),
        }
    }

    /// What is announced so far.
    pub(crate) fn announced(&self) -> &Dataset {
        match self {
            Self::Full(set) => set,
            Self::Difference(delta) => &delta.announced,
        }
    }

    /// What a bound is held against, together with what is held already.
    pub(crate) fn weight(&self, held: &Dataset) -> usize {
        match self {
            Self::Full(set) => set.weight(),
            Self::Difference(delta) => held.weight() + delta.announced.weight(),
        }
    }

    /// End of Data: makes the data what the answer says, and tells how they have changed.
    pub(crate) fn complete(self, held: &mut Dataset) -> Delta {
        match self {
            Self::Full(mut new) => {
                new.pack();
                let delta = held.difference(&new);
                *held = new;
                delta
            }
            Self::Difference(delta) => {
                held.apply(&delta);
                delta
            }
        }
    }
}
