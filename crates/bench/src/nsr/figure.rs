//! What was measured, what stands beside it, and what it was to be.

use anyhow::Result;
use serde::Serialize;

use crate::admission::median;

/// What figures are given to.
pub(super) type Print<'a> = &'a mut dyn FnMut(Figure) -> Result<()>;

/// A measured value.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figure {
    pub(super) name: String,
    value: f64,
    unit: &'static str,
    /// Others of the same rounds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    beside: Vec<Beside>,
    #[serde(skip_serializing_if = "Option::is_none")]
    goal: Option<Goal>,
}

/// Another value of the same rounds, in the same unit.
#[derive(Clone, Debug, Serialize)]
struct Beside {
    name: String,
    value: f64,
    /// The figure to it, the median of the rounds.
    ratio: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    goal: Option<Goal>,
}

#[derive(Copy, Clone, Debug, Serialize)]
struct Goal {
    #[serde(skip_serializing_if = "Option::is_none")]
    at_most: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_least: Option<f64>,
    is_reached: bool,
}

impl Goal {
    fn at_most(value: f64, most: f64) -> Self {
        Self { at_most: Some(most), at_least: None, is_reached: value <= most }
    }

    fn at_least(value: f64, least: f64) -> Self {
        Self { at_most: None, at_least: Some(least), is_reached: value >= least }
    }

    fn text(self) -> String {
        let bound = match (self.at_most, self.at_least) {
            (Some(most), _) => format!("at most {most}"),
            (None, least) => format!("at least {}", least.unwrap_or_default()),
        };
        format!("{bound}: {}", if self.is_reached { "reached" } else { "MISSED" })
    }
}

impl Figure {
    /// The median of the rounds.
    pub(super) fn new(name: impl Into<String>, rounds: &[f64], unit: &'static str) -> Self {
        Self { name: name.into(), value: median(rounds.to_vec()), unit, beside: Vec::new(), goal: None }
    }

    /// The value is not to be above this.
    pub(super) fn at_most(mut self, most: f64) -> Self {
        self.goal = Some(Goal::at_most(self.value, most));
        self
    }

    /// Puts the rounds of another beside ours.
    pub(super) fn beside(mut self, name: &str, ours: &[f64], theirs: &[f64]) -> Self {
        let ratios = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
        let (value, ratio) = (median(theirs.to_vec()), median(ratios));
        self.beside.push(Beside { name: name.to_owned(), value, ratio, goal: None });
        self
    }

    /// The ratio to what was put beside last is not to be above this.
    pub(super) fn ratio_at_most(mut self, most: f64) -> Self {
        if let Some(beside) = self.beside.last_mut() {
            beside.goal = Some(Goal::at_most(beside.ratio, most));
        }
        self
    }

    /// The ratio to what was put beside last is not to be below this.
    pub(super) fn ratio_at_least(mut self, least: f64) -> Self {
        if let Some(beside) = self.beside.last_mut() {
            beside.goal = Some(Goal::at_least(beside.ratio, least));
        }
        self
    }

    pub(super) fn print_head() {
        println!("  {:58} {:>11} {:8}  goal, ratios to others", "", "value", "unit");
    }

    pub(super) fn print(&self, json: bool) -> Result<()> {
        if json {
            println!("{}", serde_json::to_string(self)?);
            return Ok(());
        }
        let goal = self.goal.map(Goal::text).into_iter();
        let beside = self.beside.iter().map(|Beside { name, ratio, goal, .. }| {
            let goal = goal.map_or_else(String::new, |goal| format!(" ({})", goal.text()));
            format!("{ratio:.2} {name}{goal}")
        });
        let notes = goal.chain(beside).collect::<Vec<_>>().join(", ");
        println!("  {:58} {:>11.3} {:8}  {notes}", self.name, self.value, self.unit);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_medians_of_the_rounds_and_goals_are_of_ratios() {
        let ours = [2.0, 30.0, 4.0];
        let figure = Figure::new("wall", &ours, "s").at_most(3.0);
        let figure = figure.beside("off", &ours, &[1.0, 10.0, 4.0]).ratio_at_most(2.0);
        let figure = figure.beside("BIRD", &ours, &[4.0, 60.0, 8.0]).ratio_at_least(0.6);
        assert!(figure.value == 4.0 && figure.goal.is_some_and(|goal| !goal.is_reached));
        let [off, bird] = &figure.beside[..] else { panic!("two are beside it") };
        assert!((off.value, off.ratio) == (4.0, 2.0) && off.goal.is_some_and(|goal| goal.is_reached));
        assert!(bird.ratio == 0.5 && bird.goal.is_some_and(|goal| !goal.is_reached));
    }
}
