//! `holdfast profile`: where routes spend their time (XORP, section 8.2).

mod join;

use std::{
    io::{self, Write},
    time::Duration,
};

use clap::{Args, Subcommand};
use holdfast_api::profile::v1::{Empty, EnableRequest, Point, Points, ProfileClient, Record};
use serde_json::{Value, json};

use crate::{
    Failure,
    json::line,
    router::{Router, answer, split},
    text::Table,
};
use join::{Journey, Passage, Statistics, journeys};

/// The service as the Finder knows it.
const SERVICE: &str = "profile.v1.Profile";

/// What to do about the points.
#[derive(Clone, Debug, Subcommand)]
pub enum Profile {
    /// Begins to record when routes pass.
    On {
        /// Which points, by name; all if left out.
        points: Vec<String>,
        /// how many passages each process remembers, 48 octets each; the oldest are overwritten.
        #[arg(long, value_name = "RECORDS", value_parser = clap::value_parser!(u32).range(1..=1 << 22))]
        capacity: Option<u32>,
    },
    /// Ends recording; what was recorded stays.
    Off,
    /// How long routes took to each point.
    Show(Show),
    /// The points of all processes, and which are on.
    Points,
    /// Forgets what was recorded.
    Clear,
    /// Clears, records for a while (or until Ctrl-C), shows.
    Run {
        /// How long: `500ms`, `60s`, `5m`.
        #[arg(long = "for", value_name = "TIME", value_parser = duration)]
        duration: Duration,
        /// What to show then.
        #[command(flatten)]
        show: Show,
    },
}

/// What to show of the records.
#[derive(Clone, Debug, Args)]
pub struct Show {
    /// The point at which time begins to count.
    #[arg(long, value_name = "POINT", default_value = "bgp-in")]
    from: String,
    /// Every route instead of the sums.
    #[arg(long)]
    records: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let number: u64 = digits.parse().map_err(|_| "a number with ms, s or m".to_owned())?;
    match &text[digits.len()..] {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(number.saturating_mul(60))),
        _ => Err("a number with ms, s or m".to_owned()),
    }
}

/// A process that has points.
struct Source {
    class: String,
    client: ProfileClient,
    points: Points,
}

impl Profile {
    pub(crate) async fn run(self, router: &Router, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
        let sources = sources(router).await?;
        match self {
            Self::On { points, capacity } => enable(&sources, &points, capacity.unwrap_or(0)).await,
            Self::Off => disable(&sources).await,
            Self::Show(show) => show.show(&sources, json, out).await,
            Self::Points => points(&sources, json, out),
            Self::Clear => clear(&sources).await,
            Self::Run { duration, show } => {
                disable(&sources).await?;
                clear(&sources).await?;
                enable(&sources, &[], 0).await?;
                let interrupted = tokio::time::timeout(duration, tokio::signal::ctrl_c()).await;
                disable(&sources).await?;
                interrupted.unwrap_or(Ok(()))?;
                show.show(&sources, json, out).await
            }
        }
    }
}

/// All processes that have points for this table.
async fn sources(router: &Router) -> Result<Vec<Source>, Failure> {
    let instances = router.instances().await?.into_iter().filter(|it| split(&it.class).1 == router.vrf());
    let serves = instances.filter(|it| it.services.iter().any(|service| service.name == SERVICE));
    let mut sources = Vec::new();
    for instance in serves {
        let client: ProfileClient = answer(router.resolver().client(&instance.name)).await?;
        let points = answer(client.list(Empty {})).await?;
        if !points.points.is_empty() {
            sources.push(Source { class: instance.class, client, points });
        }
    }
    Ok(sources)
}

/// All points, in the order in which routes pass.
fn all(sources: &[Source]) -> Vec<(&Point, &Source)> {
    let mut points: Vec<_> = sources
        .iter()
        .flat_map(|source| source.points.points.iter().map(move |point| (point, source)))
        .collect();
    points.sort_by_key(|(point, _)| point.number);
    points
}

fn find<'a>(sources: &'a [Source], name: &str) -> Result<&'a Point, Failure> {
    let points = all(sources);
    let found = points.iter().find(|(point, _)| point.name == name);
    found.map(|(point, _)| *point).ok_or_else(|| {
        let names: Vec<_> = points.iter().map(|(point, _)| point.name.as_str()).collect();
        Failure::NothingFound(format!("there is no point {name:?}; there are {}", names.join(", ")))
    })
}

async fn enable(sources: &[Source], names: &[String], capacity: u32) -> Result<(), Failure> {
    names.iter().try_for_each(|name| find(sources, name).map(|_| ()))?;
    for source in sources {
        let has = |name: &&String| source.points.points.iter().any(|point| point.name == **name);
        let points: Vec<String> = names.iter().filter(has).cloned().collect();
        if names.is_empty() || !points.is_empty() {
            answer(source.client.enable(EnableRequest { points, capacity })).await?;
        }
    }
    Ok(())
}

async fn disable(sources: &[Source]) -> Result<(), Failure> {
    for source in sources {
        answer(source.client.disable(Empty {})).await?;
    }
    Ok(())
}

async fn clear(sources: &[Source]) -> Result<(), Failure> {
    for source in sources {
        answer(source.client.clear(Empty {})).await?;
    }
    Ok(())
}

fn points(sources: &[Source], as_json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    if as_json {
        let point = |(point, source): (&Point, &Source)| {
            json!({
                "number": point.number,
                "name": point.name,
                "title": point.title,
                "process": source.class,
                "enabled": point.enabled,
            })
        };
        return Ok(line(out, &all(sources).into_iter().map(point).collect::<Vec<_>>())?);
    }
    let mut table = Table::new(&[">No", "Name", "Process", "On", "Meaning"]);
    for (point, source) in all(sources) {
        let on = if point.enabled { "yes" } else { "no" };
        let Point { number, name, title, .. } = point;
        table.row([number.to_string(), name.clone(), source.class.clone(), on.into(), title.clone()]);
    }
    Ok(table.write(out)?)
}

impl Show {
    async fn show(&self, sources: &[Source], json: bool, out: &mut dyn Write) -> Result<(), Failure> {
        let from = find(sources, &self.from)?.number;
        let mut points: Vec<&Point> = all(sources).into_iter().map(|(point, _)| point).collect();
        points.retain(|point| point.number >= from);
        let numbers: Vec<u32> = points.iter().map(|point| point.number).collect();
        let journeys = journeys(passages(sources).await?, &numbers, from);
        match (self.records, json) {
            (true, json) => write_records(&points, &journeys, json, out)?,
            (false, true) => line(out, &sums_json(&points, &journeys, overwritten(sources).await?))?,
            (false, false) => write_sums(&points, &journeys, overwritten(sources).await?, out)?,
        }
        Ok(())
    }
}

async fn passages(sources: &[Source]) -> Result<Vec<Passage>, Failure> {
    let mut passages = Vec::new();
    for source in sources {
        let mut stream = source.client.read(Empty {});
        while let Some(records) = answer(stream.next()).await? {
            passages.extend(records.records.into_iter().map(passage));
        }
    }
    Ok(passages)
}

fn passage(record: Record) -> Passage {
    let Record { point, time, prefix, withdrawn } = record;
    Passage { prefix, time, point, withdrawn }
}

/// Records that are lost.
async fn overwritten(sources: &[Source]) -> Result<u64, Failure> {
    let mut sum = 0;
    for source in sources {
        sum += answer(source.client.list(Empty {})).await?.overwritten;
    }
    Ok(sum)
}

fn statistics(journeys: &[Journey], column: usize) -> Statistics {
    Statistics::of(journeys.iter().filter_map(|journey| journey.after[column]))
}

fn sums_json(points: &[&Point], journeys: &[Journey], overwritten: u64) -> Value {
    let sums = points.iter().enumerate().map(|(column, point)| {
        let Statistics { count, average, deviation, min, max } = statistics(journeys, column);
        json!({
            "number": point.number,
            "name": point.name,
            "title": point.title,
            "routes": count,
            "averageMsec": average,
            "deviationMsec": deviation,
            "minMsec": min,
            "maxMsec": max,
        })
    });
    json!({ "points": sums.collect::<Vec<_>>(), "overwritten": overwritten })
}

fn write_sums(
    points: &[&Point],
    journeys: &[Journey],
    overwritten: u64,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut table = Table::new(&["Profile point", ">Routes", ">Avg ms", ">SD ms", ">Min ms", ">Max ms"]);
    for (column, point) in points.iter().enumerate() {
        let Statistics { count, average, deviation, min, max } = statistics(journeys, column);
        let [average, deviation, min, max] = match count {
            0 => ["-"; 4].map(str::to_owned),
            _ => [average, deviation, min, max].map(|value| format!("{value:.3}")),
        };
        table.row([point.title.clone(), count.to_string(), average, deviation, min, max]);
    }
    table.write(out)?;
    match overwritten {
        0 => Ok(()),
        lost => writeln!(out, "{lost} older records were overwritten: see `profile on --capacity`"),
    }
}

/// One line for each route. In JSON the times are nanoseconds.
fn write_records(
    points: &[&Point],
    journeys: &[Journey],
    as_json: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    if as_json {
        return journeys.iter().try_for_each(|journey| line(out, &record_json(points, journey)));
    }
    write!(out, "{:<8} {:<43}", "change", "prefix")?;
    points.iter().try_for_each(|point| write!(out, " {:>10}", point.name))?;
    writeln!(out, "  (ms)")?;
    for journey in journeys {
        let change = if journey.withdrawn { "delete" } else { "add" };
        write!(out, "{change:<8} {:<43}", journey.prefix)?;
        for after in &journey.after {
            match after {
                Some(after) => write!(out, " {:>10.3}", *after as f64 / 1e6)?,
                None => write!(out, " {:>10}", "-")?,
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

fn record_json(points: &[&Point], journey: &Journey) -> Value {
    let times = points.iter().zip(&journey.after);
    let times = times.filter_map(|(point, after)| Some((point.name.clone(), Value::from((*after)?))));
    json!({
        "prefix": journey.prefix,
        "change": if journey.withdrawn { "delete" } else { "add" },
        "beginEpochNsec": journey.begin,
        "afterNsec": Value::Object(times.collect()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("60s"), Ok(Duration::from_secs(60)));
        assert_eq!(duration("5m"), Ok(Duration::from_secs(300)));
        assert!(["", "s", "5", "5h", "-5s", "1.5s"].into_iter().all(|text| duration(text).is_err()));
    }
}
