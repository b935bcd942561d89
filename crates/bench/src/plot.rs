//! Plots as SVG.

use anyhow::Result;
use minijinja::{Environment, UndefinedBehavior, context};
use serde::Serialize;

/// Of the drawing, in its own units; the legend is to the right of the plane.
const SIZE: (f64, f64) = (820.0, 380.0);
const LEFT: f64 = 76.0;
const RIGHT: f64 = 600.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 330.0;
/// Told apart also by who sees no colours: light and dark alternate.
const COLORS: [&str; 6] = ["#0b5fa5", "#f08c2e", "#1d7a4f", "#d36bc0", "#7a1f1f", "#8a8a8a"];

/// What is drawn.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    pub(crate) title: String,
    pub(crate) x_label: &'static str,
    pub(crate) y_label: &'static str,
    pub(crate) style: Style,
    /// Whether the vertical scale is logarithmic.
    pub(crate) logarithmic: bool,
    /// Whether the horizontal one is.
    pub(crate) x_logarithmic: bool,
    pub(crate) series: Vec<(String, Vec<(f64, f64)>)>,
}

/// How the points of a series are drawn.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Style {
    /// Each on its own.
    Points,
    /// Joined by lines, each with a mark.
    Marked,
    /// Joined by lines.
    Line,
}

/// Where a value stands on an axis, and how it is written there.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Tick {
    at: f64,
    text: String,
}

/// One series with its points in units of the drawing.
#[derive(Serialize)]
struct Line<'a> {
    name: &'a str,
    color: &'static str,
    points: Vec<(f64, f64)>,
}

/// From values to places.
#[derive(Copy, Clone, Debug)]
struct Axis {
    /// Values at both ends, and their places.
    values: (f64, f64),
    places: (f64, f64),
    logarithmic: bool,
}

impl Axis {
    fn place(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.logarithmic { value.max(self.values.0).log10() } else { value };
        let (from, to) = (scale(self.values.0), scale(self.values.1));
        let share = (scale(value) - from) / (to - from);
        round(self.places.0 + share * (self.places.1 - self.places.0))
    }

    fn ticks(&self) -> Vec<Tick> {
        let tick = |value: f64| Tick { at: self.place(value), text: number(value) };
        if self.logarithmic {
            let (from, to) = (self.values.0.log10().round() as i32, self.values.1.log10().round() as i32);
            return (from..=to).map(|power| tick(10f64.powi(power))).collect();
        }
        let step = step(self.values.1);
        (0..=(self.values.1 / step).round() as u32).map(|n| tick(f64::from(n) * step)).collect()
    }
}

impl Style {
    /// Radius of the mark of a point, if it has one.
    fn mark(self) -> Option<f64> {
        match self {
            Self::Points => Some(1.6),
            Self::Marked => Some(3.0),
            Self::Line => None,
        }
    }
}

impl Plot {
    /// As an SVG document.
    pub(crate) fn svg(&self) -> Result<String> {
        let (x, y) = self.axes();
        let place = |&(at, value): &(f64, f64)| (x.place(at), y.place(value));
        let numbered = self.series.iter().enumerate();
        let lines = numbered.map(|(number, (name, points))| {
            minijinja::Value::from_serialize(Line {
                name,
                color: COLORS[number % COLORS.len()],
                points: points.iter().map(place).collect(),
            })
        });
        let series: Vec<_> = lines.collect();
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_trim_blocks(true);
        environment.add_template("plot.svg", include_str!("plot.svg"))?;
        let places = context! {
            width => SIZE.0, height => SIZE.1, left => LEFT, right => RIGHT, top => TOP, bottom => BOTTOM,
        };
        let text = context! {
            title => self.title, x_label => self.x_label, y_label => self.y_label,
            joined => self.style != Style::Points, mark => self.style.mark(),
            x_ticks => x.ticks(), y_ticks => y.ticks(), series,
        };
        Ok(environment.get_template("plot.svg")?.render(context! { ..places, ..text })?)
    }

    /// Both begin at zero, unless there is none.
    fn axes(&self) -> (Axis, Axis) {
        let all = || self.series.iter().flat_map(|(_, points)| points);
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::MIN_POSITIVE, f64::max);
        let (right, high) = (most(&mut all().map(|at| at.0)), most(&mut all().map(|at| at.1)));
        let left = all().map(|at| at.0).fold(right, f64::min);
        let low = all().map(|at| at.1).fold(high, f64::min);
        let values = match self.logarithmic {
            true => powers(low, high),
            false => (0.0, (high / step(high)).ceil() * step(high)),
        };
        let reach = if self.x_logarithmic { powers(left, right) } else { (0.0, right) };
        let x = Axis { values: reach, places: (LEFT, RIGHT), logarithmic: self.x_logarithmic };
        (x, Axis { values, places: (BOTTOM, TOP), logarithmic: self.logarithmic })
    }
}

/// The powers of ten around such values, two at least.
fn powers(low: f64, high: f64) -> (f64, f64) {
    let (from, to) = (low.log10().floor(), high.log10().ceil());
    (10f64.powf(from), 10f64.powf(to.max(from + 1.0)))
}

/// A round number of which some five make up the range.
fn step(range: f64) -> f64 {
    let power = 10f64.powf((range / 5.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    steps.into_iter().find(|step| range / step <= 6.0).unwrap_or(power)
}

fn number(value: f64) -> String {
    match value {
        1e6.. => format!("{}M", round(value / 1e6)),
        1e3.. => format!("{}k", round(value / 1e3)),
        _ => format!("{}", (value * 1e6).round() / 1e6),
    }
}

fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(logarithmic: bool, style: Style) -> Plot {
        let points = vec![(0.0, 0.3), (10.0, 470_000.0)];
        let series = vec![("Unix".to_owned(), points)];
        let title = "calls".to_owned();
        Plot { title, x_label: "x", y_label: "y", style, logarithmic, x_logarithmic: false, series }
    }

    #[test]
    fn ticks_are_round_numbers_around_all_values() {
        let texts = |axis: Axis| axis.ticks().into_iter().map(|tick| tick.text).collect::<Vec<_>>();
        let (x, y) = plot(false, Style::Marked).axes();
        assert_eq!(texts(x), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!(texts(y), ["0", "100k", "200k", "300k", "400k", "500k"]);
        let (_, y) = plot(true, Style::Marked).axes();
        assert_eq!(texts(y), ["0.1", "1", "10", "100", "1k", "10k", "100k", "1M"]);
        assert_eq!((y.place(0.1), y.place(1e6)), (BOTTOM, TOP));
    }

    #[test]
    fn a_logarithmic_scale_has_room_for_one_value() {
        let series = vec![("Unix".to_owned(), vec![(1000.0, 1.0)])];
        let plot = Plot { series, x_logarithmic: true, ..plot(true, Style::Marked) };
        let (x, y) = plot.axes();
        assert_eq!((x.values, y.values), ((1000.0, 10_000.0), (1.0, 10.0)));
        assert_eq!((x.place(1000.0), x.place(10_000.0)), (LEFT, RIGHT));
    }

    #[test]
    fn a_plot_names_its_series_and_has_all_their_points() {
        let svg = plot(false, Style::Marked).svg().expect("an SVG");
        assert!(svg.contains(">Unix</text>") && svg.contains("600.0,57.4"), "{svg}");
        assert_eq!(svg.matches("r=\"3.0\"").count(), 2);
        let svg = plot(false, Style::Line).svg().expect("an SVG");
        assert!(svg.contains("600.0,57.4") && svg.matches("<circle").count() == 1, "{svg}");
    }
}
