//! The processes that this program can be: the one list of them, of the descriptors in their crates.

use std::{pin::Pin, process::ExitCode, sync::LazyLock};

use holdfast_bgpd::MakeStages;
use holdfast_config::{ProcessKeys, Schema};
use holdfast_process::{Boot, Process, Processes};

type Life = Pin<Box<dyn Future<Output = anyhow::Result<()>>>>;

/// A process and what it does.
pub(crate) struct Runnable {
    process: &'static Process,
    body: Box<dyn FnOnce(Boot) -> Life>,
}

fn runnable<F>(process: &'static Process, body: impl FnOnce(Boot) -> F + 'static) -> Runnable
where
    F: Future<Output = anyhow::Result<()>> + 'static,
{
    Runnable { process, body: Box::new(move |boot| Box::pin(body(boot))) }
}

/// Every process, `bgp` with stages that are plugged into its pipeline.
fn all(stages: MakeStages) -> Vec<Runnable> {
    vec![
        runnable(&holdfast_fea::PROCESS, holdfast_fea::run),
        runnable(&holdfast_ribd::PROCESS, holdfast_ribd::run),
        runnable(&holdfast_transportd::PROCESS, holdfast_transportd::run),
        runnable(&holdfast_rpkid::PROCESS, holdfast_rpkid::run),
        runnable(&holdfast_bgpd::PROCESS, move |boot| holdfast_bgpd::run_with(boot, stages)),
        runnable(&holdfast_metrics::PROCESS, holdfast_metrics::run),
        runnable(&holdfast_glass::PROCESS, holdfast_glass::run),
        runnable(&holdfast_monitor::PROCESS, holdfast_monitor::run),
    ]
}

/// What the router is made of.
///
/// # Panics
/// When descriptors contradict each other, which a test looks for.
pub fn processes() -> Processes {
    let all: Vec<_> = all(Vec::new).iter().map(|runnable| runnable.process).collect();
    Processes::new(&all).expect("descriptors that agree")
}

/// What a configuration of the router may say.
pub fn schema() -> Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let processes = processes();
        Schema::new(
            processes.as_configured().map(|process| ProcessKeys { name: process.name, does: process.does }),
        )
    });
    *SCHEMA
}

/// Runs the process that the command line names, and only names; `None`: it names none.
pub(crate) fn run(stages: MakeStages) -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let name = arguments.next().filter(|_| arguments.next().is_none())?;
    let Runnable { process, body } = all(stages).into_iter().find(|one| name == one.process.name)?;
    Some(holdfast_process::run(process.name, process.rights.clone(), body))
}
