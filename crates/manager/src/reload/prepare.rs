//! Every process is asked whether it could run another configuration, before that takes effect in any of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use holdfast_api::prepare::v1::{ForgetRequest, Part, PreparationClient, PrepareRequest, Refusal};
use holdfast_config::Config;
use holdfast_process::spawn_task;
use holdfast_xrl::{ErrorKind, XrlError, scoped};
use tokio::time::timeout;
use tracing::warn;

use super::{Candidate, messages::Messages};
use crate::{apart::apart, birth::MANAGER, manager::Manager};

/// A process answers within this time, and a second more for each [`OCTETS_A_SECOND`] that it has to read.
const ANSWER: Duration = Duration::from_secs(5);
const OCTETS_A_SECOND: usize = 4 << 20;
/// The same where nobody is there to leave a process out.
const ANSWER_SOON: Duration = Duration::from_secs(1);
/// Refusals in an answer to an operator, and characters of each.
const MOST_REFUSALS: usize = 10;
const LONGEST_REASON: usize = 200;
/// The class of whoever opens sockets: the manager, where it is asked itself.
const SOCKETS: &str = "socket";

/// Who is asked, and what silence means.
#[derive(Clone, Debug)]
pub(crate) enum Asking {
    /// An operator waits: silence is a refusal, unless the operator has named the process.
    Everybody {
        /// Names of processes that are not asked.
        without: BTreeSet<String>,
    },
    /// Nobody is there to name a process: whoever does not answer soon is left out.
    WhoAnswers,
    /// It has run before, and has to run again: whoever refuses it is told it all the same. They are asked so that nobody waits
    /// for those that do not answer.
    Regardless,
}

impl Asking {
    /// Everybody but these.
    pub(crate) fn everybody(without: Vec<String>) -> Self {
        Self::Everybody { without: without.into_iter().collect() }
    }
}

/// Those that have said yes, as long as what they keep for it may be needed.
pub(super) struct Prepared {
    id: u64,
    asked: Vec<PreparationClient>,
    /// Those that have not been asked, or have not answered: nobody waits for them later either.
    pub(super) left_out: BTreeSet<&'static str>,
}

impl Drop for Prepared {
    fn drop(&mut self) {
        let id = self.id;
        self.asked.iter().for_each(|process| process.forget(ForgetRequest { id }).detach());
    }
}

/// What one process is asked, or its instance in a VRF.
#[derive(Debug)]
struct Question {
    process: &'static str,
    /// Under which class it is found.
    target: String,
    parts: Vec<Part>,
}

/// What has become of a question.
enum Answer {
    Yes(Option<PreparationClient>),
    No(Vec<Refusal>),
    Silence,
}

/// Asks all whom a candidate concerns.
///
/// # Errors
/// `FailedPrecondition`: some refuse, or do not answer, in words of the operator. `InvalidArgument`: there is no process of a
/// name that is to be left out.
pub(super) async fn prepare(
    manager: &Rc<Manager>,
    candidate: &Candidate,
    messages: [&Messages; 2],
    asking: &Asking,
) -> Result<Prepared, XrlError> {
    let mut prepared = Prepared { id: candidate.text.base(), asked: Vec::new(), left_out: BTreeSet::new() };
    let patience = match asking {
        Asking::Everybody { .. } => ANSWER,
        Asking::WhoAnswers | Asking::Regardless => ANSWER_SOON,
    };
    let (questions, left_out) = questions_of(manager, messages, asking)?;
    prepared.left_out = left_out;
    let ask = |question: Question| {
        let (manager, id, name) = (Rc::clone(manager), prepared.id, question.process);
        (name, spawn_task(async move { ask(&manager, id, question, patience).await }))
    };
    let asked: Vec<_> = questions.into_iter().map(ask).collect();
    let mut refusals = Vec::new();
    for (name, answer) in asked {
        let answer = answer.await.map_err(|error| XrlError::internal(error.to_string()))?;
        match (answer, asking) {
            (Answer::Yes(client), _) => prepared.asked.extend(client),
            (Answer::No(why), Asking::Regardless) => {
                let why = why.first().map_or("", |why| why.reason.as_str());
                warn!(event = "configuration-refused", process = name, "refuses what has run before: {why}");
            }
            (Answer::No(why), Asking::Everybody { .. } | Asking::WhoAnswers) => {
                refusals.extend(why.into_iter().map(|why| (name, why)));
            }
            (Answer::Silence, Asking::Everybody { .. }) => {
                let reason =
                    format!("does not answer; `--without {name}` (or `without {name}`) leaves it out");
                refusals.push((name, Refusal { key: String::new(), reason }));
            }
            (Answer::Silence, Asking::WhoAnswers | Asking::Regardless) => {
                prepared.left_out.insert(name);
            }
        }
    }
    if refusals.is_empty() {
        return Ok(prepared);
    }
    let (file, text) = (manager.file.display().to_string(), Arc::clone(&candidate.text));
    Err(XrlError::failed_precondition(
        apart(move || wording(&refusals, &file, &text.read().unwrap_or_default())).await?,
    ))
}

/// The questions to processes that run, and those that are left out.
fn questions_of(
    manager: &Manager,
    messages: [&Messages; 2],
    asking: &Asking,
) -> Result<(Vec<Question>, BTreeSet<&'static str>), XrlError> {
    let supervisor = manager.supervisor.borrow();
    let is_told = |name: &str| name == MANAGER || supervisor.is_told(name);
    let mut questions = questions(&manager.config(), messages);
    questions.retain(|question| is_told(question.process));
    let Asking::Everybody { without } = asking else { return Ok((questions, BTreeSet::new())) };
    if let Some(unknown) = without.iter().find(|name| supervisor.process(name).is_none()) {
        return Err(XrlError::invalid_argument(format!("there is no process `{unknown}` to leave out")));
    }
    let out = questions.extract_if(.., |question| without.contains(question.process));
    let left_out = out.map(|question| question.process).collect();
    Ok((questions, left_out))
}

/// Who is asked what: all that a process is to be told at once, since one part may only make sense with another.
fn questions(old: &Config, messages: [&Messages; 2]) -> Vec<Question> {
    let mut questions: BTreeMap<(&'static str, String), Vec<Part>> = BTreeMap::new();
    for (process, message) in messages.into_iter().flatten() {
        // What is yet to begin there is judged by the process itself.
        let vrf = message.vrf.as_deref().filter(|name| old.vrfs.iter().any(|vrf| vrf.name == *name));
        let class = if *process == MANAGER { SOCKETS } else { process };
        let parts = questions.entry((process, scoped(class, vrf))).or_default();
        let part = Part {
            service: message.request.service.name.to_owned(),
            vrf: message.vrf.clone().unwrap_or_default(),
            configuration: message.request.octets.clone(),
        };
        // A VRF that moves is told twice: what counts is what it is told last.
        parts.retain(|before| (&before.service, &before.vrf) != (&part.service, &part.vrf));
        parts.push(part);
    }
    let question = |((process, target), parts)| Question { process, target, parts };
    questions.into_iter().map(question).collect()
}

async fn ask(manager: &Manager, id: u64, question: Question, patience: Duration) -> Answer {
    let octets: usize = question.parts.iter().map(|part| part.configuration.len()).sum();
    let seconds = u64::try_from(octets / OCTETS_A_SECOND).unwrap_or(u64::MAX);
    let Question { process, target, parts } = question;
    let asked = async {
        let client: PreparationClient = manager.resolver.client(&target).await?;
        let reply = client.prepare(PrepareRequest { id, parts }).await?;
        Ok((client, reply.refusals))
    };
    let error: XrlError = match timeout(patience.saturating_add(Duration::from_secs(seconds)), asked).await {
        Ok(Ok((client, refusals))) if refusals.is_empty() => return Answer::Yes(Some(client)),
        Ok(Ok((_, refusals))) => return Answer::No(refusals),
        Ok(Err(error)) => error,
        Err(_) => return Answer::Silence,
    };
    let refusal = |reason: &str| Answer::No(vec![Refusal { key: String::new(), reason: reason.to_owned() }]);
    match error.kind() {
        // One of an earlier build, or a program that says nothing before; or it has ended, and is told at its birth.
        ErrorKind::NotFound => Answer::Yes(None),
        ErrorKind::Timeout => Answer::Silence,
        ErrorKind::Disconnected | ErrorKind::Cancelled | ErrorKind::Unavailable => {
            warn!(event = "configuration-refused", process, "has ended while it was asked: {error}");
            refusal("has ended while it was asked")
        }
        _ => refusal(error.message()),
    }
}

/// Who refuses, why, and where that is in the file.
fn wording(refusals: &[(&str, Refusal)], file: &str, text: &str) -> String {
    let mut said = "not every process can run it, and nothing has changed".to_owned();
    for (process, Refusal { key, reason }) in refusals.iter().take(MOST_REFUSALS) {
        let _ = write!(said, "\n  {process}: ");
        if let Some(line) = holdfast_config::line_of(text, key) {
            let _ = write!(said, "{file}:{line}: ");
        }
        if !key.is_empty() {
            let _ = write!(said, "{}: ", clipped(key));
        }
        said.push_str(&clipped(reason));
    }
    if refusals.len() > MOST_REFUSALS {
        let _ = write!(said, "\n  and {} more", refusals.len() - MOST_REFUSALS);
    }
    said
}

/// What a process says may be of anybody, and as long as it likes.
fn clipped(text: &str) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut clipped: String = plain.take(LONGEST_REASON).collect();
    if text.chars().nth(LONGEST_REASON).is_some() {
        clipped.push('…');
    }
    clipped
}

#[cfg(test)]
mod tests {
    use holdfast_api::{bgp::v1::BgpClient, fea::v1::FeaClient, socket::v1::SocketClient};
    use holdfast_config::Schema;
    use holdfast_process::ConfigureRequest;
    use holdfast_xrl::{Client, Configure};

    use super::*;
    use crate::configure::Message;

    fn message<C: Configure>(
        process: &'static str,
        vrf: Option<&str>,
        octets: &[u8],
    ) -> (&'static str, Message)
    where
        C::Configuration: Default,
    {
        let request = ConfigureRequest::new::<C>(&C::Configuration::default());
        let request = ConfigureRequest { octets: octets.to_vec().into(), ..request };
        (process, Message { vrf: vrf.map(str::to_owned), request })
    }

    #[test]
    fn a_process_is_asked_about_everything_at_once_and_what_it_is_told_last_counts() {
        let text = "[router]\nid = \"10.0.0.1\"\nasn = 65000\n[[vrf]]\nname = \"blue\"\ntable = 7\n";
        let old = holdfast_config::parse(text, "test", Schema::new([])).expect("right");
        let first = vec![message::<SocketClient>("fea", None, &[1])];
        let then = vec![
            message::<BgpClient>("bgp", Some("blue"), &[2]),
            message::<FeaClient>("fea", None, &[3]),
            message::<BgpClient>("bgp", Some("blue"), &[4]),
            message::<BgpClient>("bgp", Some("green"), &[5]),
            message::<SocketClient>(MANAGER, None, &[6]),
        ];
        let questions = questions(&old, [&first, &then]);
        let asked = questions.iter().map(|question| {
            let parts = question.parts.iter();
            let parts = parts.map(|part| (part.service.as_str(), part.vrf.as_str(), part.configuration[0]));
            (question.process, question.target.as_str(), parts.collect::<Vec<_>>())
        });
        let asked: Vec<_> = asked.collect();
        let (bgp, fea) = (BgpClient::SERVICE.name, FeaClient::SERVICE.name);
        let sockets = SocketClient::SERVICE.name;
        assert_eq!(
            asked,
            [
                ("bgp", "bgp", vec![(bgp, "green", 5)]),
                ("bgp", "bgp@blue", vec![(bgp, "blue", 4)]),
                ("fea", "fea", vec![(sockets, "", 1), (fea, "", 3)]),
                (MANAGER, "socket", vec![(sockets, "", 6)]),
            ]
        );
    }

    #[test]
    fn an_operator_reads_who_refuses_which_line_and_nothing_that_speaks_to_the_terminal() {
        let text = "[hello]\nword = \"near\"\n[[hello.interface]]\nname = \"eth1\"\ncost = 7\n";
        let refusal = |key: &str, reason: &str| ("hello", Refusal { key: key.into(), reason: reason.into() });
        let said = |refusals: &[_]| wording(refusals, "router.toml", text);
        let all = [refusal("hello.interface.eth1.cost", "too\u{1b}[31m much\n"), refusal("", "no")];
        assert_eq!(
            said(&all),
            "not every process can run it, and nothing has changed\n  hello: router.toml:5: \
             hello.interface.eth1.cost: too [31m much \n  hello: no"
        );
        let long = said(&vec![refusal("", &"x".repeat(5000)); MOST_REFUSALS + 3]);
        assert!(long.len() < 4096 && long.ends_with("and 3 more"), "{long}");
    }
}
