//! `show queues` and `show counters`.

use std::io::Write;

use holdfast_api::metrics::v1::{Empty, Family, Kind, MetricsClient, Queue, Sample, sample::Value as Number};
use serde_json::{Value, json};

use crate::{
    Failure,
    json::line,
    router::{Router, answer, split},
    text::{Table, or_dash},
};

/// The service as the Finder knows it.
const SERVICE: &str = "metrics.v1.Metrics";

/// All processes, by class; only what they have of a VRF if one is asked about.
async fn processes(router: &Router) -> Result<Vec<(String, MetricsClient)>, Failure> {
    let mut processes = Vec::new();
    let is_meant = |class: &str| router.vrf().is_none() || split(class).1 == router.vrf();
    for instance in router.instances().await?.into_iter().filter(|it| is_meant(&it.class)) {
        if instance.services.iter().any(|service| service.name == SERVICE) {
            let client = answer(router.resolver().client(&instance.name)).await?;
            processes.push((instance.class, client));
        }
    }
    Ok(processes)
}

pub(super) async fn show_queues(router: &Router, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let mut queues = Vec::new();
    for (_, client) in processes(router).await? {
        let mut stream = client.queues(Empty {});
        while let Some(list) = answer(stream.next()).await? {
            queues.extend(list.queues);
        }
    }
    queues.sort_by(|a, b| (&a.process, &a.name, &a.of).cmp(&(&b.process, &b.name, &b.of)));
    if json {
        return Ok(line(out, &queues.iter().map(queue_json).collect::<Vec<_>>())?);
    }
    let mut table = Table::new(&["Process", "Queue", "Of", ">Length", ">High", ">Bound", "Unit", ">Drops"]);
    for Queue { process, name, of, unit, length, high, bound, drops } in queues {
        let of = or_dash(&of).to_owned();
        let [length, high, bound, drops] = [length, high, bound, drops].map(|number| number.to_string());
        table.row([process, name, of, length, high, bound, unit, drops]);
    }
    Ok(table.write(out)?)
}

fn queue_json(queue: &Queue) -> Value {
    json!({
        "process": queue.process,
        "queue": queue.name,
        "of": queue.of,
        "unit": queue.unit,
        "length": queue.length,
        "high": queue.high,
        "bound": queue.bound,
        "drops": queue.drops,
    })
}

/// Written as they arrive: there may be many peers.
pub(super) async fn show(
    router: &Router,
    wanted: Option<String>,
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let is_wanted = |family: &Family| wanted.as_ref().is_none_or(|part| family.name.contains(part));
    let mut found = false;
    for (process, client) in processes(router).await? {
        let mut stream = client.collect(Empty {});
        while let Some(families) = answer(stream.next()).await? {
            for family in families.families.iter().filter(|family| is_wanted(family)) {
                found = true;
                family.samples.iter().try_for_each(|sample| write(family, sample, &process, json, out))?;
            }
        }
    }
    match (found, wanted) {
        (false, Some(name)) => {
            Err(Failure::NothingFound(format!("nothing that is counted has {name:?} in its name")))
        }
        _ => Ok(()),
    }
}

fn write(
    family: &Family,
    sample: &Sample,
    process: &str,
    as_json: bool,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let suffix = if family.kind() == Kind::Counter { "_total" } else { "" };
    let name = format!("{}{suffix}", family.name);
    let value = match &sample.value {
        Some(Number::Integer(value)) => Value::from(*value),
        Some(Number::Real(value)) => Value::from(*value),
        Some(Number::Histogram(values)) => {
            // JSON has no infinity: how many there are in all is the count.
            let ends = values.buckets.iter().filter(|bucket| bucket.at_most.is_finite());
            let buckets: Vec<_> = ends.map(|bucket| json!([bucket.at_most, bucket.count])).collect();
            json!({ "count": values.count, "sum": values.sum, "buckets": buckets })
        }
        None => Value::Null,
    };
    if as_json {
        let labels = sample.labels.iter().map(|label| (label.name.clone(), label.value.as_str().into()));
        let labels = Value::Object(labels.collect());
        return line(out, &json!({ "process": process, "name": name, "labels": labels, "value": value }));
    }
    let labels: Vec<_> =
        sample.labels.iter().map(|label| format!("{}={:?}", label.name, label.value)).collect();
    match labels.as_slice() {
        [] => writeln!(out, "{name} {value}"),
        labels => writeln!(out, "{name}{{{}}} {value}", labels.join(",")),
    }
}
