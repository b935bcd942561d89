//! Memory of routers' keys, in all processes.

use anyhow::{Context, Result};
use holdfast_rtr::Dataset;

use super::{
    Print, Size,
    scene::{Plan, Role, Scene, dataset, fillers},
};
use crate::bgpsec::{Figure, Goal};

/// Octets of a key with one cache, and of a further cache.
const MOST_FIRST: f64 = 215.0;
const MOST_FURTHER: f64 = 8.0;

pub(super) fn run(size: &Size, print: Print<'_>) -> Result<()> {
    let plan = Plan { caches: 2, ..Plan::of(&[Role::Signs { validation: "log" }]) };
    let mut scene = Scene::start(&plan)?;
    // Both have said all there is: nothing.
    for cache in [0, 1] {
        scene.say(cache, Dataset::default());
        scene.until_heard(cache, 0)?;
    }
    let most = size.keys.iter().max().context("keys")?;
    let keys = fillers(*most)?;
    let nothing = scene.memory()?;
    let before_keys = scene.memory_of_each()?;
    let (mut points, mut largest) = (Vec::new(), Vec::new());
    for count in size.keys {
        let loaded = scene.give(0, keys[..*count as usize].to_vec())?;
        scene.until_given_back(*count)?;
        let memory = scene.memory()?.saturating_sub(nothing) as f64;
        points.push((f64::from(*count), memory));
        largest = scene.memory_of_each()?;
        let of_each = memory / f64::from(*count);
        let figure = Figure::new(format!("a key, of {count}, one cache"), of_each, "octets");
        // Of few keys it is pages and chance.
        print(match count {
            ..10_000 => figure,
            _ => Figure { goal: Goal::at_most(of_each, MOST_FIRST), ..figure },
        })?;
        print(Figure::new(format!("from the cache to pathsec, {count} keys"), loaded.as_secs_f64(), "s"))?;
    }
    let (_, slope) = line(&points);
    print(Figure {
        goal: Goal::at_most(slope, MOST_FIRST),
        ..Figure::new("a key more, one cache".to_owned(), slope, "octets")
    })?;
    for (name, octets) in &largest {
        let before = before_keys.iter().find(|(other, _)| other == name).map_or(0, |(_, octets)| *octets);
        let of_it = (*octets as f64 - before as f64) / f64::from(*most);
        // Who has none of them is not worth a line.
        if of_it.abs() >= 1.0 {
            print(Figure::new(format!("a key, of {most}, in {name}"), of_it, "octets"))?;
        }
    }
    let before = scene.memory_now()?;
    scene.say(1, dataset(keys));
    scene.until_heard(1, *most as usize)?;
    scene.until_given_back(*most)?;
    let further = scene.memory()?.saturating_sub(before) as f64 / f64::from(*most);
    print(Figure {
        goal: Goal::at_most(further, MOST_FURTHER),
        ..Figure::new("the same key of a further cache".to_owned(), further, "octets")
    })
}

/// Where the straight line through points begins, and how steep it is: the least squares.
pub(super) fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let count = points.len() as f64;
    let mean = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(&|point| point.0), mean(&|point| point.1));
    let above = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>();
    let below = points.iter().map(|point| (point.0 - x).powi(2)).sum::<f64>();
    let slope = if below > 0.0 { above / below } else { 0.0 };
    (y - slope * x, slope)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_through_its_points() {
        assert_eq!(line(&[(1.0, 5.0), (2.0, 7.0), (3.0, 9.0)]), (3.0, 2.0));
        assert_eq!(line(&[(1.0, 4.0)]), (4.0, 0.0));
        let (begin, slope) = line(&[(0.0, 0.0), (1.0, 2.0), (2.0, 1.0)]);
        assert!((begin - 0.5).abs() < 1e-9 && (slope - 0.5).abs() < 1e-9);
    }
}
