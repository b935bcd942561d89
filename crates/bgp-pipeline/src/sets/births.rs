//! Which numbers were given to new attribute sets.

use crate::path::SetId;

/// Which numbers were given to new sets, for who has noted something by number.
#[derive(Debug, Default)]
pub(super) struct Births {
    are_watched: bool,
    /// Since they were last asked for.
    sets: Vec<SetId>,
    are_too_many: bool,
}

/// Sets that are born between two questions; of more, all may be new.
const MOST_BIRTHS: usize = 1 << 14;

impl Births {
    /// Begins anew, or ends.
    pub(super) fn watch(&mut self, are_watched: bool) {
        *self = Self { are_watched, ..Self::default() };
    }

    /// Those since this was last asked; `None`: there were too many.
    pub(super) fn take(&mut self) -> Option<std::vec::Drain<'_, SetId>> {
        let are_too_many = std::mem::take(&mut self.are_too_many);
        let births = self.sets.drain(..);
        (!are_too_many).then_some(births)
    }

    #[inline]
    pub(super) fn note(&mut self, set: SetId) {
        if self.are_watched {
            self.are_too_many |= self.sets.len() == MOST_BIRTHS;
            if !self.are_too_many {
                self.sets.push(set);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn births_are_noted_while_they_are_watched_and_so_is_that_they_were_too_many() {
        let mut births = Births::default();
        births.note(SetId(1));
        births.watch(true);
        assert_eq!(births.take().map(Vec::from_iter), Some(Vec::new()));
        births.note(SetId(2));
        assert_eq!(births.take().map(Vec::from_iter), Some(vec![SetId(2)]));
        (0..=MOST_BIRTHS as u32).for_each(|number| births.note(SetId(number)));
        assert!(births.take().is_none());
        births.note(SetId(3));
        assert_eq!(births.take().map(Vec::from_iter), Some(vec![SetId(3)]));
    }
}
