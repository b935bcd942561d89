//! Which known word was meant.

/// The candidate that differs from `word` by few enough edits to be a slip: one for a short word, one
/// more for every three letters.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Longer words are no keys, and the comparison is quadratic.
    const LONGEST: usize = 64;
    if word.len() > LONGEST {
        return None;
    }
    let close = |candidate: &str| {
        let edits = distance(word, candidate);
        (edits <= 1 + candidate.chars().count().min(word.chars().count()) / 3).then_some(edits)
    };
    let scored = candidates.into_iter().filter_map(|candidate| Some((close(candidate)?, candidate)));
    scored.min_by_key(|&(edits, _)| edits).map(|(_, candidate)| candidate)
}

/// Insertions, deletions and replacements between two words (Levenshtein); case and `_` for `-` are free.
fn distance(a: &str, b: &str) -> usize {
    let fold = |c: char| if c == '_' { '-' } else { c.to_ascii_lowercase() };
    let b: Vec<char> = b.chars().map(fold).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a) in a.chars().map(fold).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, &b) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_single_edits() {
        for (a, b, edits) in
            [("", "", 0), ("abc", "", 3), ("pasive", "passive", 1), ("hold_time", "hold-time", 0)]
        {
            assert_eq!((distance(a, b), distance(b, a)), (edits, edits), "{a} {b}");
        }
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn slips_are_recognised_and_other_words_are_not() {
        let keys = ["name", "address", "local-address", "passive", "md5"];
        for (word, meant) in [("pasive", "passive"), ("adress", "address"), ("Name", "name"), ("md-5", "md5")]
        {
            assert_eq!(nearest(word, keys), Some(meant));
        }
        assert_eq!(nearest("timeout", keys), None);
        assert_eq!(nearest(&"a".repeat(10_000), keys), None);
    }
}
