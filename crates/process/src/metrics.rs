//! What the process counts, and how full its queues are: for Prometheus, `show counters` and `show queues`.
//!
//! Nothing is kept here. Whoever has a number [registers](Metrics::register) how to read it, and it is read when somebody
//! asks (`metrics.v1`). The cost of an answer may grow with peers, never with routes; who has many peers answers in slices
//! ([`Metrics::register_in_slices`]), between which everything else has its turn.

mod common;
mod service;
pub(crate) mod turns;

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use holdfast_api::metrics::v1::{
    Family, Histogram, Kind, Label, MetricsClient, MetricsDispatcher, Sample, sample::Value,
};
use holdfast_xrl::{Channel, Client, Node};

use service::MetricsService;

pub use holdfast_api::metrics::v1::Queue;
pub(crate) use turns::longest_turn;
pub use turns::turn;

/// A metric: what one or more numbers mean.
#[derive(Debug)]
pub struct Metric {
    /// As Prometheus has it, without the `_total` of a counter.
    pub name: &'static str,
    /// One sentence without its full stop.
    pub help: &'static str,
    /// Whether it only goes up.
    pub kind: Kind,
}

impl Metric {
    /// One that goes up and down.
    pub const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: Kind::Gauge }
    }

    /// One that only goes up, from 0 at the start of the process.
    pub const fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: Kind::Counter }
    }

    /// How often a value was in which range, since the start of the process.
    pub const fn histogram(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: Kind::Histogram }
    }
}

/// Numbers that were read at one time.
#[derive(Debug, Default)]
pub struct Sheet {
    families: Vec<(&'static Metric, Vec<Sample>)>,
    queues: Vec<Queue>,
}

impl Sheet {
    /// A metric that is there even if nothing has a value for it.
    pub fn declare(&mut self, metric: &'static Metric) {
        self.samples(metric);
    }

    /// A value, told from others of its metric by its labels.
    pub fn add(&mut self, metric: &'static Metric, labels: &[(&str, &str)], value: u64) {
        self.push(metric, labels, Value::Integer(value));
    }

    /// A value with a fraction.
    pub fn add_real(&mut self, metric: &'static Metric, labels: &[(&str, &str)], value: f64) {
        self.push(metric, labels, Value::Real(value));
    }

    /// Values by range.
    pub fn add_histogram(&mut self, metric: &'static Metric, labels: &[(&str, &str)], values: Histogram) {
        self.push(metric, labels, Value::Histogram(values));
    }

    /// A queue.
    pub fn queue(&mut self, queue: Queue) {
        self.queues.push(queue);
    }

    fn push(&mut self, metric: &'static Metric, labels: &[(&str, &str)], value: Value) {
        let label = |&(name, value): &(&str, &str)| Label { name: name.into(), value: value.into() };
        let labels = labels.iter().map(label).collect();
        self.samples(metric).push(Sample { labels, value: Some(value) });
    }

    fn samples(&mut self, metric: &'static Metric) -> &mut Vec<Sample> {
        let at = self.families.iter().position(|(known, _)| std::ptr::eq(*known, metric));
        let at = at.unwrap_or_else(|| {
            self.families.push((metric, Vec::new()));
            self.families.len() - 1
        });
        &mut self.families[at].1
    }

    /// Adds a label to all values.
    fn label(&mut self, name: &str, value: &str) {
        let label = Label { name: name.into(), value: value.into() };
        let samples = self.families.iter_mut().flat_map(|(_, samples)| samples);
        samples.for_each(|sample| sample.labels.push(label.clone()));
    }

    /// What is on it, in messages of at most `most` samples.
    fn pages(self, most: usize) -> Vec<Family> {
        let mut pages = Vec::new();
        for (metric, mut samples) in self.families {
            let mut page = |samples| {
                let (name, help) = (metric.name.into(), metric.help.into());
                pages.push(Family { name, help, kind: metric.kind.into(), samples });
            };
            while samples.len() > most {
                let rest = samples.split_off(most);
                page(std::mem::replace(&mut samples, rest));
            }
            page(samples);
        }
        pages
    }
}

/// The greatest value that was seen.
#[derive(Debug, Default)]
pub struct High(Cell<u64>);

impl High {
    /// The value is this now.
    pub fn see(&self, value: u64) {
        self.0.set(self.0.get().max(value));
    }

    /// The value is this now; the greatest so far.
    pub fn with(&self, value: u64) -> u64 {
        self.see(value);
        self.0.get()
    }
}

/// Puts a slice of its numbers on the sheet, the first being 0; whether there is another one.
type Source = Rc<dyn Fn(&mut Sheet, usize) -> bool>;

/// How to read the process's numbers. Clones are the same.
#[derive(Clone)]
pub struct Metrics(Rc<Inner>);

struct Inner {
    process: String,
    /// The VRF of all its numbers.
    vrf: Option<Rc<str>>,
    sources: RefCell<Vec<Source>>,
    /// Who is asked as well, because nobody else can.
    behind: RefCell<Vec<MetricsClient>>,
}

impl Metrics {
    /// What every process counts, served by this node from now on.
    pub fn of(node: &Node) -> Self {
        let metrics = Self::named(node.class(), None);
        metrics.register_common();
        node.serve(MetricsDispatcher::new(MetricsService(metrics.clone())));
        metrics
    }

    /// What is counted for a VRF, told with its name and served by this node, which shares its process with others.
    pub(crate) fn of_vrf(node: &Node, vrf: Rc<str>) -> Self {
        let metrics = Self::named(node.class(), Some(vrf));
        node.serve(MetricsDispatcher::new(MetricsService(metrics.clone())));
        metrics
    }

    fn named(process: &str, vrf: Option<Rc<str>>) -> Self {
        let (sources, behind) = Default::default();
        Self(Rc::new(Inner { process: process.to_owned(), vrf, sources, behind }))
    }

    /// Passes on what the process at the other end of this channel says, which nobody else reaches.
    pub fn relay(&self, channel: Channel) {
        self.0.behind.borrow_mut().push(MetricsClient::new(channel));
    }

    /// Numbers that are read at once.
    pub fn register(&self, source: impl Fn(&mut Sheet) + 'static) {
        self.register_in_slices(move |sheet, _| {
            source(sheet);
            false
        });
    }

    /// Numbers of which there may be many: `source` is asked for slice after slice until it says that there is no more.
    pub fn register_in_slices(&self, source: impl Fn(&mut Sheet, usize) -> bool + 'static) {
        self.0.sources.borrow_mut().push(Rc::new(source));
    }

    /// Reads everything.
    async fn read(&self) -> Sheet {
        let mut sheet = Sheet::default();
        let sources = self.0.sources.borrow().clone();
        for source in sources {
            let mut slice = 0;
            while source(&mut sheet, slice) {
                slice += 1;
                tokio::task::yield_now().await;
            }
        }
        sheet.queues.iter_mut().for_each(|queue| queue.process.clone_from(&self.0.process));
        if let Some(vrf) = &self.0.vrf {
            sheet.label("vrf", vrf);
        }
        sheet
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static UP: Metric = Metric::gauge("up", "Whether it is up");
    static SEEN: Metric = Metric::counter("seen", "How many were seen");

    fn shape(pages: &[Family]) -> Vec<(&str, usize)> {
        pages.iter().map(|family| (family.name.as_str(), family.samples.len())).collect()
    }

    #[test]
    fn a_metric_with_many_samples_is_told_in_pages() {
        let mut sheet = Sheet::default();
        sheet.declare(&SEEN);
        (0..5).for_each(|peer| sheet.add(&UP, &[("peer", &peer.to_string())], peer));
        let pages = sheet.pages(2);
        assert_eq!(shape(&pages), [("seen", 0), ("up", 2), ("up", 2), ("up", 1)]);
        let last = &pages[3].samples[0];
        assert_eq!((last.labels[0].value.as_str(), &last.value), ("4", &Some(Value::Integer(4))));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn sources_are_asked_slice_by_slice() {
        let metrics = Metrics::named("test", None);
        metrics.register(|sheet| sheet.add(&UP, &[], 1));
        metrics.register_in_slices(|sheet, slice| {
            sheet.add(&SEEN, &[("slice", &slice.to_string())], 1);
            slice < 2
        });
        assert_eq!(shape(&metrics.read().await.pages(9)), [("up", 1), ("seen", 3)]);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_is_counted_for_a_vrf_is_told_with_its_name() {
        let metrics = Metrics::named("rib@blue", Some("blue".into()));
        metrics.register(|sheet| sheet.add(&UP, &[("peer", "a")], 1));
        metrics.register(|sheet| sheet.queue(Queue::default()));
        let sheet = metrics.read().await;
        assert_eq!(sheet.queues[0].process, "rib@blue");
        let labels = |family: &Family| {
            let labels = family.samples[0].labels.iter();
            labels.map(|label| (label.name.clone(), label.value.clone())).collect::<Vec<_>>()
        };
        let expected =
            [("peer", "a"), ("vrf", "blue")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(labels(&sheet.pages(9)[0]), expected);
    }

    #[test]
    fn the_greatest_value_stays() {
        let high = High::default();
        assert_eq!((high.with(3), high.with(7), high.with(5)), (3, 7, 7));
    }
}
