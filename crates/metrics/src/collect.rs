//! Asks all processes what they count.

use std::{
    cell::{Cell, RefCell},
    collections::HashSet,
    time::{Duration, Instant},
};

use bytes::Bytes;
use holdfast_api::{
    finder::v1::ListRequest,
    metrics::v1::{
        Empty, Families, Family, Kind, Label, MetricsClient, Queue, QueueList, Sample, sample::Value,
    },
};
use holdfast_process::Resolver;
use holdfast_xrl::XrlError;
use tokio::{sync::Mutex, time::timeout};

use crate::text;

/// The service as the Finder knows it.
const SERVICE: &str = "metrics.v1.Metrics";
/// What a process may take for its whole answer: less than a scraper waits.
const LIMIT: Duration = Duration::from_secs(4);

/// The way to all processes.
pub(crate) struct Collector {
    resolver: Resolver,
    /// One scrape at a time: two at once cost twice as much and say the same.
    turn: Mutex<()>,
    /// How many have begun.
    begun: Cell<u64>,
    /// How many ask.
    asking: Cell<usize>,
    /// The number of the last one and what came of it, for those who have asked before it began.
    last: RefCell<Option<(u64, Said)>>,
}

/// What a scraper is told, as text.
type Said = Result<Bytes, String>;

/// What a process has said.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) process: String,
    pub(crate) families: Vec<Family>,
    pub(crate) queues: Vec<Queue>,
    pub(crate) is_complete: bool,
}

impl Collector {
    pub(crate) fn new(resolver: Resolver) -> Self {
        Self {
            resolver,
            turn: Mutex::new(()),
            begun: Cell::default(),
            asking: Cell::default(),
            last: RefCell::default(),
        }
    }

    /// All metrics of all processes; of a process that does not answer in time, what it has said. Those who ask while a
    /// scrape is under way are told the next one, all the same: so nobody waits longer where many ask.
    pub(crate) async fn collect(&self) -> Said {
        let _asking = Asking::begin(&self.asking, &self.last);
        let asked = self.begun.get();
        let _turn = self.turn.lock().await;
        if let Some((_, said)) = self.last.borrow().as_ref().filter(|(number, _)| *number > asked) {
            return said.clone();
        }
        self.begun.update(|begun| begun + 1);
        let number = self.begun.get();
        let said = self.scrape().await.map_err(|error| error.to_string());
        let said = said.and_then(|families| text::text(families).map_err(|error| error.to_string()));
        let said = said.map(Bytes::from);
        self.last.replace(Some((number, said.clone())));
        said
    }

    async fn scrape(&self) -> Result<Vec<Family>, XrlError> {
        let begin = Instant::now();
        let listed = self.resolver.finder()?.list(ListRequest {}).within(LIMIT).await?;
        let serves =
            listed.instances.iter().filter(|it| it.services.iter().any(|service| service.name == SERVICE));
        // One after the other: on a router that has one processor to spare, all at once take as long. What a process has for
        // each VRF it says with the same thread: of one that was late once nobody waits for more.
        let (mut answers, mut late) = (Vec::new(), HashSet::new());
        for instance in serves {
            let is_late = instance.pid != 0 && late.contains(&instance.pid);
            let answer = match is_late {
                true => Answer { process: instance.class.clone(), ..Answer::default() },
                false => self.ask(&instance.class, &instance.name).await,
            };
            if !answer.is_complete {
                late.insert(instance.pid);
            }
            answers.push(answer);
        }
        Ok(merge(answers, begin.elapsed()))
    }

    async fn ask(&self, process: &str, instance: &str) -> Answer {
        let mut answer = Answer { process: process.to_owned(), ..Answer::default() };
        let asked = timeout(LIMIT, async {
            let client: MetricsClient = self.resolver.client(instance).await?;
            let mut families = client.collect(Empty {});
            while let Some(Families { families }) = families.next().await? {
                answer.families.extend(families);
            }
            let mut queues = client.queues(Empty {});
            while let Some(QueueList { queues }) = queues.next().await? {
                answer.queues.extend(queues);
            }
            Ok::<_, XrlError>(())
        });
        answer.is_complete = matches!(asked.await, Ok(Ok(())));
        answer
    }
}

/// Somebody asks. When nobody does, nothing is kept.
struct Asking<'a> {
    asking: &'a Cell<usize>,
    last: &'a RefCell<Option<(u64, Said)>>,
}

impl<'a> Asking<'a> {
    fn begin(asking: &'a Cell<usize>, last: &'a RefCell<Option<(u64, Said)>>) -> Self {
        asking.update(|asking| asking + 1);
        Self { asking, last }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.asking.update(|asking| asking - 1);
        if self.asking.get() == 0 {
            self.last.take();
        }
    }
}

/// What tells a process from others, or the part of one that is for a VRF.
fn labels_of(class: &str) -> Vec<(&str, &str)> {
    match class.split_once('@') {
        Some((process, vrf)) => vec![("process", process), ("vrf", vrf)],
        None => vec![("process", class)],
    }
}

fn sample(labels: &[(&str, &str)], value: Value) -> Sample {
    let label = |&(name, value): &(&str, &str)| Label { name: name.into(), value: value.into() };
    Sample { labels: labels.iter().map(label).collect(), value: Some(value) }
}

fn family(name: &str, help: &str, kind: Kind, samples: Vec<Sample>) -> Family {
    Family { name: name.into(), help: help.into(), kind: kind.into(), samples }
}

/// One family for each name, in the order of the first word about it: parts of one come apart otherwise, which the text
/// form forbids.
fn merge(answers: Vec<Answer>, took: Duration) -> Vec<Family> {
    let mut families: Vec<Family> = queue_families(&answers).into();
    let complete = answers
        .iter()
        .map(|answer| sample(&labels_of(&answer.process), Value::Integer(answer.is_complete.into())));
    let help = "Whether the process has answered this scrape";
    families.push(family("holdfast_scrape_complete", help, Kind::Gauge, complete.collect()));
    let help = "How long asking all processes has taken";
    let took = vec![sample(&[], Value::Real(took.as_secs_f64()))];
    families.push(family("holdfast_scrape_duration_seconds", help, Kind::Gauge, took));
    for part in answers.into_iter().flat_map(|answer| answer.families) {
        match families.iter_mut().find(|family| family.name == part.name) {
            Some(family) => family.samples.extend(part.samples),
            None => families.push(part),
        }
    }
    families
}

fn queue_families(answers: &[Answer]) -> [Family; 4] {
    type Column = (&'static str, &'static str, Kind, fn(&Queue) -> u64);
    let columns: [Column; 4] = [
        ("holdfast_queue_length", "How much waits in a queue, in its unit", Kind::Gauge, |queue| {
            queue.length
        }),
        ("holdfast_queue_high", "The most that was seen to wait", Kind::Gauge, |queue| queue.high),
        ("holdfast_queue_bound", "How much there is room for", Kind::Gauge, |queue| queue.bound),
        ("holdfast_queue_drops", "How often a queue was full", Kind::Counter, |queue| queue.drops),
    ];
    columns.map(|(name, help, kind, value)| {
        let of_one = |queue: &Queue| {
            let Queue { process, name, of, unit, .. } = queue;
            let labels = [labels_of(process), vec![("queue", name), ("of", of), ("unit", unit)]].concat();
            sample(&labels, Value::Integer(value(queue)))
        };
        family(name, help, kind, answers.iter().flat_map(|answer| &answer.queues).map(of_one).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(process: &str, families: &[(&str, u64)]) -> Answer {
        let families = families.iter().map(|&(name, value)| {
            family(name, "help", Kind::Gauge, vec![sample(&[("process", process)], Value::Integer(value))])
        });
        let queue = Queue { name: "calls".into(), length: 3, bound: 8, ..Queue::default() };
        Answer {
            process: process.into(),
            families: families.collect(),
            queues: vec![queue],
            is_complete: true,
        }
    }

    #[test]
    fn what_several_processes_or_messages_say_of_one_metric_is_one_family() {
        let answers = vec![answer("rib", &[("a", 1), ("b", 2), ("a", 3)]), answer("bgp", &[("a", 4)])];
        let families = merge(answers, Duration::from_millis(5));
        let values = |name: &str| {
            let family = families.iter().find(|family| family.name == name).expect(name);
            let values = family.samples.iter().map(|sample| match sample.value {
                Some(Value::Integer(value)) => value,
                _ => 0,
            });
            values.collect::<Vec<_>>()
        };
        assert_eq!((values("a"), values("b")), (vec![1, 3, 4], vec![2]));
        assert_eq!(
            (values("holdfast_queue_length"), values("holdfast_queue_bound")),
            (vec![3, 3], vec![8, 8])
        );
        assert_eq!(values("holdfast_scrape_complete"), [1, 1]);
    }

    #[test]
    fn what_a_process_has_of_a_vrf_is_told_by_a_label() {
        let mut blue = answer("bgp@blue", &[]);
        blue.queues[0].process = "bgp@blue".into();
        let families = merge(vec![answer("bgp", &[]), blue], Duration::from_millis(5));
        for name in ["holdfast_scrape_complete", "holdfast_queue_length"] {
            let family = families.iter().find(|family| family.name == name).expect(name);
            let label = |sample: &Sample, wanted: &str| {
                let found = sample.labels.iter().find(|label| label.name == wanted);
                found.map(|label| label.value.clone())
            };
            let vrfs: Vec<_> = family.samples.iter().map(|sample| label(sample, "vrf")).collect();
            assert_eq!(vrfs, [None, Some("blue".to_owned())], "{name}");
            assert_eq!(label(&family.samples[1], "process").as_deref(), Some("bgp"), "{name}");
        }
    }
}
