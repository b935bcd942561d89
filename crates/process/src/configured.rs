//! Processes that have a section of the configuration for themselves: how they are told it, and asked.

use std::rc::Rc;

use holdfast_api::process::v1::{
    Configuration, Configured as Reply, ProcessDispatcher, ProcessServer, Rows, ShowRequest,
};
use holdfast_xrl::{CallContext, Node, ReplySink, XrlError};
use serde::{Serialize, de::DeserializeOwned};

use crate::{Command, Process};

/// Rows in a message of an answer.
const ROWS: usize = 256;

/// A process that is configured by its section, and answers its commands.
pub trait Configured: 'static {
    /// The section: the names of its fields are the keys, with `_` for `-` where it says so to serde.
    type Settings: DeserializeOwned;
    /// A row of an answer; all rows of a command have the same names.
    type Row: Serialize;

    /// Takes settings in place of those before. `policies` are those of the router, as JSON, where the process speaks a routing protocol.
    ///
    /// # Errors
    /// Why it cannot. It is told again until it can.
    fn configure(
        &self,
        settings: Self::Settings,
        policies: &str,
    ) -> impl Future<Output = Result<(), XrlError>>;

    /// The answer to one of the commands of its descriptor.
    ///
    /// # Errors
    /// Why there is none.
    fn show(&self, command: &str) -> Result<Vec<Self::Row>, XrlError>;
}

struct Served<T> {
    process: Rc<T>,
    commands: &'static [Command],
}

/// Has others reach a process: the manager to configure it, operators to ask it what its descriptor says.
pub fn serve_configured<T: Configured>(node: &Node, descriptor: &Process, process: Rc<T>) {
    node.serve(ProcessDispatcher::new(Served { process, commands: descriptor.shows }));
}

/// The command of this name, or the first one for none.
fn find(commands: &'static [Command], name: &str) -> Result<&'static str, XrlError> {
    let found = commands.iter().find(|command| name.is_empty() || command.name == name);
    found.map(|command| command.name).ok_or_else(|| {
        let known: Vec<_> = commands.iter().map(|command| command.name).collect();
        XrlError::not_found(format!("there is no `{name}` to show; there is: {}", known.join(", ")))
    })
}

impl<T: Configured> ProcessServer for Served<T> {
    async fn configure(&self, _: &CallContext, request: Configuration) -> Result<Reply, XrlError> {
        let settings = serde_json::from_slice(&request.settings);
        let settings = settings.map_err(|error| XrlError::invalid_argument(format!("settings: {error}")))?;
        self.process.configure(settings, &request.policies).await?;
        Ok(Reply {})
    }

    async fn show(
        &self,
        _: &CallContext,
        request: ShowRequest,
        mut replies: ReplySink<Rows>,
    ) -> Result<(), XrlError> {
        for rows in self.process.show(find(self.commands, &request.command)?)?.chunks(ROWS) {
            let rows = rows.iter().map(serde_json::to_vec).collect::<Result<_, _>>();
            let rows = rows.map_err(|error| XrlError::internal(format!("a row: {error}")))?;
            replies.send(Rows { rows }).await?;
        }
        Ok(())
    }
}
