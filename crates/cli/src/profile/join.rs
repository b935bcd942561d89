//! The ways of routes, from what several processes have recorded.

/// A route has passed a point.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Passage {
    pub(super) prefix: String,
    /// Nanoseconds of Unix time.
    pub(super) time: u64,
    /// Number of the point.
    pub(super) point: u32,
    pub(super) withdrawn: bool,
}

/// The way of one change of a route.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Journey {
    pub(super) prefix: String,
    pub(super) withdrawn: bool,
    /// When it passed the point at which journeys begin, in nanoseconds of Unix time.
    pub(super) begin: u64,
    /// Nanoseconds from then until it passed each of the points asked for.
    pub(super) after: Vec<Option<u64>>,
}

/// Puts together what belongs together: a journey is what follows a passage of the point `from`, until the prefix passes
/// that again. Of a change that overtook it, it has nothing. In the order of their beginning.
pub(super) fn journeys(mut passages: Vec<Passage>, points: &[u32], from: u32) -> Vec<Journey> {
    passages.sort_unstable();
    let of_prefixes = passages.chunk_by(|a, b| a.prefix == b.prefix);
    let mut journeys: Vec<Journey> = of_prefixes.flat_map(|own| of_one(own, points, from)).collect();
    journeys.sort_by_key(|journey| journey.begin);
    journeys
}

fn of_one(passages: &[Passage], points: &[u32], from: u32) -> Vec<Journey> {
    let mut journeys: Vec<Journey> = Vec::new();
    for passage in passages {
        let Some(column) = points.iter().position(|&point| point == passage.point) else { continue };
        if passage.point == from {
            journeys.push(Journey {
                prefix: passage.prefix.clone(),
                withdrawn: passage.withdrawn,
                begin: passage.time,
                after: vec![None; points.len()],
            });
        }
        if let Some(journey) = journeys.last_mut()
            && journey.withdrawn == passage.withdrawn
        {
            journey.after[column].get_or_insert(passage.time - journey.begin);
        }
    }
    journeys
}

/// What is to be said of many times, in milliseconds.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub(super) struct Statistics {
    pub(super) count: usize,
    pub(super) average: f64,
    /// Of the population.
    pub(super) deviation: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Statistics {
    /// Of times in nanoseconds; all 0 if there are none.
    pub(super) fn of(times: impl Iterator<Item = u64> + Clone) -> Self {
        let milliseconds = times.map(|time| time as f64 / 1e6);
        let count = milliseconds.clone().count();
        if count == 0 {
            return Self::default();
        }
        let average = milliseconds.clone().sum::<f64>() / count as f64;
        let variance = milliseconds.clone().map(|time| (time - average).powi(2)).sum::<f64>() / count as f64;
        Self {
            count,
            average,
            deviation: variance.sqrt(),
            min: milliseconds.clone().fold(f64::INFINITY, f64::min),
            max: milliseconds.fold(0.0, f64::max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passage(prefix: &str, time: u64, point: u32) -> Passage {
        Passage { prefix: prefix.into(), time, point, withdrawn: false }
    }

    #[test]
    fn what_several_processes_recorded_is_joined_by_prefix() {
        let passages = vec![
            passage("b", 120, 4),
            passage("a", 105, 4),
            passage("a", 100, 1),
            passage("b", 110, 1),
            passage("c", 130, 4),
        ];
        let journeys = journeys(passages, &[1, 4, 8], 1);
        let seen: Vec<_> = journeys.iter().map(|j| (j.prefix.as_str(), j.begin, j.after.clone())).collect();
        let expected = [("a", 100, vec![Some(0), Some(5), None]), ("b", 110, vec![Some(0), Some(10), None])];
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_prefix_that_enters_again_begins_again_and_words_of_the_other_kind_are_not_its_own() {
        let mut gone = passage("a", 200, 1);
        gone.withdrawn = true;
        let late = passage("a", 210, 4);
        let mut told = passage("a", 220, 4);
        told.withdrawn = true;
        let passages =
            vec![passage("a", 100, 1), passage("a", 150, 4), passage("a", 160, 4), gone, late, told];
        let journeys = journeys(passages, &[1, 4], 1);
        let seen: Vec<_> = journeys.iter().map(|j| (j.withdrawn, j.after[1])).collect();
        assert_eq!(seen, [(false, Some(50)), (true, Some(20))]);
    }

    #[test]
    fn statistics_are_in_milliseconds() {
        let statistics = Statistics::of([1_000_000, 3_000_000].into_iter());
        let expected = Statistics { count: 2, average: 2.0, deviation: 1.0, min: 1.0, max: 3.0 };
        assert_eq!(statistics, expected);
        assert_eq!(Statistics::of(std::iter::empty()), Statistics::default());
    }
}
