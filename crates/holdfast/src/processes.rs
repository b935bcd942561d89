//! The processes that a program can be, and what a configuration of its router may say: the one list of them, of the
//! descriptors in their crates.

use std::{pin::Pin, process::ExitCode};

use holdfast_bgpd::{MakeRewriters, MakeStages, Plugs};
use holdfast_cli::Verb;
use holdfast_config::{ProcessKeys, Schema};
use holdfast_process::{Boot, DescriptorError, Process, Processes};

type Life = Pin<Box<dyn Future<Output = anyhow::Result<()>>>>;

/// A process and what it does.
pub struct Runnable {
    process: &'static Process,
    body: Box<dyn FnOnce(Boot) -> Life>,
}

impl Runnable {
    /// A process that lives as long as `body`, once it is started.
    pub fn new<F>(process: &'static Process, body: impl FnOnce(Boot) -> F + 'static) -> Self
    where
        F: Future<Output = anyhow::Result<()>> + 'static,
    {
        Self { process, body: Box::new(move |boot| Box::pin(body(boot))) }
    }
}

/// What is added to a router, for a program that is more than `holdfast`.
#[derive(Default)]
pub struct Additions {
    /// Stages that are plugged into the pipeline of `bgp`.
    pub stages: Option<MakeStages>,
    /// Stages that rewrite, with the slots that they are plugged into.
    pub rewriters: Option<MakeRewriters>,
    /// Processes with sections of the configuration of their own.
    pub processes: Vec<Runnable>,
}

/// All that a program can be.
pub(crate) struct Parts {
    runnable: Vec<Runnable>,
    pub(crate) processes: Processes,
    pub(crate) schema: Schema,
}

impl Parts {
    /// Our processes, and what is added.
    ///
    /// # Errors
    /// Descriptors that contradict each other.
    pub(crate) fn new(additions: Additions) -> Result<Self, DescriptorError> {
        let none = Plugs::default();
        let plugs = Plugs {
            stages: additions.stages.unwrap_or(none.stages),
            rewriters: additions.rewriters.unwrap_or(none.rewriters),
        };
        let own = [
            Runnable::new(&holdfast_gated::PROCESS, holdfast_gated::run),
            Runnable::new(&holdfast_fea::PROCESS, holdfast_fea::run),
            Runnable::new(&holdfast_ribd::PROCESS, holdfast_ribd::run),
            Runnable::new(&holdfast_bfdd::PROCESS, holdfast_bfdd::run),
            Runnable::new(&holdfast_ripd::PROCESS, holdfast_ripd::run),
            Runnable::new(&holdfast_transportd::PROCESS, holdfast_transportd::run),
            Runnable::new(&holdfast_rpkid::PROCESS, holdfast_rpkid::run),
            Runnable::new(&holdfast_replicator::PROCESS, holdfast_replicator::run),
            Runnable::new(&holdfast_pathsecd::PROCESS, holdfast_pathsecd::run),
            Runnable::new(&holdfast_bgpd::PROCESS, move |boot| holdfast_bgpd::run_with(boot, plugs)),
            Runnable::new(&holdfast_metrics::PROCESS, holdfast_metrics::run),
            Runnable::new(&holdfast_glass::PROCESS, holdfast_glass::run),
            Runnable::new(&holdfast_monitor::PROCESS, holdfast_monitor::run),
        ];
        let runnable: Vec<_> = own.into_iter().chain(additions.processes).collect();
        let all: Vec<_> = runnable.iter().map(|runnable| runnable.process).collect();
        let processes = Processes::new(&all)?;
        let keys = |process: &Process| ProcessKeys {
            name: process.name,
            does: process.does,
            section: process.section(),
            routing: process.routing,
        };
        let schema = Schema::new(processes.as_configured().map(keys));
        Ok(Self { runnable, processes, schema })
    }

    /// What `holdfast show` or `holdfast clear` takes behind the name of a process: the commands, each with what it does.
    pub(crate) fn commands(&self, verb: Verb, process: &str) -> Vec<(String, String)> {
        let commands = self.processes.named(process).map_or([].as_slice(), |process| match verb {
            Verb::Show => process.shows,
            Verb::Clear => process.clears,
        });
        commands.iter().map(|command| (command.name.to_owned(), command.doc.to_owned())).collect()
    }

    /// Runs the process that the command line names, and only names; all parts again: it names none.
    pub(crate) fn run(mut self) -> Result<ExitCode, Self> {
        let mut arguments = std::env::args_os().skip(1);
        let Some(name) = arguments.next().filter(|_| arguments.next().is_none()) else { return Err(self) };
        let Some(at) = self.runnable.iter().position(|runnable| name == runnable.process.name) else {
            return Err(self);
        };
        let Runnable { process, body } = self.runnable.swap_remove(at);
        Ok(holdfast_process::run(process.name, process.rights.clone(), body))
    }
}

/// What the router is made of, and what its configuration may say.
///
/// # Panics
/// When descriptors contradict each other, which a test looks for.
pub fn router() -> (Processes, Schema) {
    let parts = Parts::new(Additions::default()).expect("descriptors that agree");
    (parts.processes, parts.schema)
}
