//! The page with the tables, and its plots.

use std::{
    fmt::{self, Write},
    fs,
    path::Path,
};

use anyhow::Result;

use super::{
    Figures, Measured,
    routes::{Arrivals, Way},
    xrl::{Family, Series},
};
use crate::plot::{Plot, Style};

/// Writes everything that there are numbers for.
pub(super) fn write(figures: &Figures, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let mut page = String::from(HEAD);
    if !figures.calls.values.is_empty() {
        fs::write(folder.join("calls.svg"), calls_plot(&figures.calls.values).svg()?)?;
        calls(&figures.calls, &mut page)?;
    }
    if !figures.ways.values.is_empty() {
        fs::write(folder.join("kernel.svg"), kernel_plot(&figures.ways.values).svg()?)?;
        ways(&figures.ways, &mut page)?;
    }
    if !figures.arrivals.values.is_empty() {
        fs::write(folder.join("arrivals.svg"), arrivals_plot(&figures.arrivals.values).svg()?)?;
        arrivals(&figures.arrivals, &mut page)?;
    }
    Ok(fs::write(folder.join("README.md"), page)?)
}

const HEAD: &str = "\
<!-- Made by `make bench-figures` from figures.json. -->
# The figures of the XORP paper, measured here

`make bench-figures` measures them and makes this page; what they are in the paper is said in its section 8.
";

/// Where numbers are from.
fn origin(measured: &Measured<impl Sized>, page: &mut String) -> fmt::Result {
    let date = date(measured.time);
    writeln!(
        page,
        "\n{}, {date}; {:.1} processes wanted to run when it began.",
        measured.machine, measured.load
    )
}

/// Of a day of Unix time, as in a calendar.
fn date(seconds: u64) -> String {
    // Days since 0000-03-01, in years that begin in March: leap days are their last.
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (number, name) = (day - (153 * month + 2) / 5 + 1, (month + 2) % 12 + 1);
    format!("{}-{name:02}-{number:02}", era * 400 + year + u64::from(name <= 2))
}

fn title(series: &Series) -> String {
    let family = match series.family {
        Family::InProcess => "in one process",
        Family::Unix => "Unix socket",
        Family::Tcp => "TCP",
    };
    format!("{family}, {} under way", series.window)
}

fn calls_plot(series: &[Series]) -> Plot {
    let points = |series: &Series| series.rates.iter().map(|&(count, rate)| (count as f64, rate)).collect();
    Plot {
        title: "Calls a second by number of arguments (Figure 9)".into(),
        x_label: "arguments of 32 bits",
        y_label: "calls a second",
        style: Style::Marked,
        logarithmic: false,
        x_logarithmic: false,
        series: series.iter().map(|series| (title(series), points(series))).collect(),
    }
}

fn calls(measured: &Measured<Vec<Series>>, page: &mut String) -> fmt::Result {
    let series = &measured.values;
    page.push_str(
        "\n## Calls between processes (Figure 9)\n\nThousands of calls a second, medians of 9 transactions of 10,000 calls (one under way: 2,000). Caller and \
         receiver are two processes, except in the first column. Each call is answered.\n\n![calls](calls.svg)\n\n| arguments |",
    );
    series.iter().for_each(|series| *page += &format!(" {} |", title(series)));
    *page += &format!("\n|---|{}\n", "---|".repeat(series.len()));
    let counts = series.first().map(|first| &first.rates[..]).unwrap_or_default();
    for (row, (count, _)) in counts.iter().enumerate() {
        write!(page, "| {count} |")?;
        for series in series {
            write!(page, " {:.0} |", series.rates[row].1 / 1e3)?;
        }
        writeln!(page)?;
    }
    origin(measured, page)
}

/// Values by their number, from 1.
fn numbered(values: &[f64]) -> Vec<(f64, f64)> {
    (1..).map(f64::from).zip(values.iter().copied()).collect()
}

fn kernel_plot(ways: &[Way]) -> Plot {
    Plot {
        title: "From entering BGP to entering the kernel (Figures 10 to 12)".into(),
        x_label: "route",
        y_label: "ms",
        style: Style::Points,
        logarithmic: false,
        x_logarithmic: false,
        series: ways.iter().map(|way| (short(way), numbered(&way.kernel))).collect(),
    }
}

/// For the legend.
fn short(way: &Way) -> String {
    match way.title.rsplit_once(", routes of ") {
        Some((_, peering)) => format!("{:.0}k routes, {peering}", way.loaded as f64 / 1e3),
        None => way.title.clone(),
    }
}

fn ways(measured: &Measured<Vec<Way>>, page: &mut String) -> fmt::Result {
    page.push_str(
        "\n## The way of a route into the kernel (Figures 10 to 12)\n\nOne route after the other, profiling points on (`holdfast profile`); milliseconds since \
         the first point. The router announces each to another peer as well.\n\n![kernel](kernel.svg)\n",
    );
    for way in &measured.values {
        let Way { figure, title, loaded, pace, .. } = way;
        writeln!(
            page,
            "\n### Figure {figure}: {title}\n\n{loaded} routes loaded, then one every {pace} ms.\n"
        )?;
        page.push_str("| point | routes | average | deviation | min | max |\n|---|---|---|---|---|---|\n");
        for point in &way.points {
            writeln!(
                page,
                "| {} | {} | {:.3} | {:.3} | {:.3} | {:.3} |",
                point.title,
                point.routes,
                point.average_msec,
                point.deviation_msec,
                point.min_msec,
                point.max_msec
            )?;
        }
    }
    origin(measured, page)
}

fn arrivals_plot(arrivals: &[Arrivals]) -> Plot {
    Plot {
        title: "From one peer to another (Figure 13)".into(),
        x_label: "route",
        y_label: "ms",
        style: Style::Points,
        logarithmic: true,
        x_logarithmic: false,
        series: arrivals.iter().map(|of| (of.router.clone(), numbered(&of.milliseconds))).collect(),
    }
}

fn arrivals(measured: &Measured<Vec<Arrivals>>, page: &mut String) -> fmt::Result {
    page.push_str(
        "\n## Routes at another peer (Figure 13)\n\nOne route after the other from one peer; milliseconds until it is at another. In the paper, of XORP and three \
         other routers only XORP and MRTd delayed none; those with a scanner delayed them up to 30 s.\n\n![arrivals](arrivals.svg)\n\n| router | version | interval ms | routes | median | 99 % | max |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for Arrivals { router, version, interval, milliseconds } in &measured.values {
        let mut sorted = milliseconds.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share).round() as usize];
        let (count, median, most) = (sorted.len(), at(0.5), at(0.99));
        writeln!(
            page,
            "| {router} | {version} | {interval} | {count} | {median:.3} | {most:.3} | {:.3} |",
            at(1.0)
        )?;
    }
    origin(measured, page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(1_795_305_599), "2026-11-21");
        assert_eq!(date(1_798_761_600), "2027-01-01");
    }
}
