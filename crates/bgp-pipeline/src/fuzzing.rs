//! The body of a fuzz target, also run by a test over its corpus.

use holdfast_types::HashKey;

use crate::AdjRibOutSnapshot;

/// Any entries of the journal are taken in, written anew and taken in again, or refused.
pub fn told(data: &[u8]) {
    let mut told = AdjRibOutSnapshot::new(HashKey::new([1, 2]));
    let mut rest = data;
    while let Some((&[high, low], after)) = rest.split_first_chunk() {
        let (entry, after) = after.split_at(after.len().min(usize::from(u16::from_be_bytes([high, low]))));
        rest = after;
        if told.entry(entry).is_err() {
            return;
        }
    }
    let count = told.count();
    let (mut rewrite, mut entries) = (told.rewrite(), Vec::new());
    while rewrite.work(&mut entries).is_some() {}
    let mut again = AdjRibOutSnapshot::new(HashKey::new([1, 2]));
    entries.iter().for_each(|entry| again.entry(entry).expect("what we write"));
    assert_eq!(again.count(), count);
}
