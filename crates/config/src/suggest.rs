//! Which known word was meant.

/// The candidate that differs from `word` by few enough edits to be a slip: one for a short word, one
/// more for every three letters.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
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

/// Insertions, deletions, replacements and swaps of neighbours between two words (optimal string
/// alignment); case, and `_` for `-`, are free.
fn distance(a: &str, b: &str) -> usize {
    let fold = |c: char| if c == '_' { '-' } else { c.to_ascii_lowercase() };
    let [a, b] = [a, b].map(|word| word.chars().map(fold).collect::<Vec<_>>());
    let mut before_last = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let replaced = last[j] + usize::from(a[i] != b[j]);
            let mut least = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                least = least.min(before_last[j - 1] + 1);
            }
            row.push(least);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
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
        assert_eq!((distance("kitten", "sitting"), distance("bpg", "bgp")), (3, 1));
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
