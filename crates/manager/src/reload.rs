//! Another configuration for what runs: all of it or nothing, and only to those for whom it differs.
//!
//! Begin with [`carry::replace`]. What is to be done is found out first, and apart ([`plan`]): who is told what is in
//! [`messages`], and what people read of it in [`differences`]. Whose sessions end is in [`sessions`].

mod carry;
mod differences;
mod limits;
mod messages;
mod plan;
mod prepare;
mod sessions;

use std::{path::Path, rc::Rc, sync::Arc};

use holdfast_api::manager::v1::{DiffReply, DiffRequest, EndingSession, ReloadReply};
use holdfast_config::{Config, Schema};
use holdfast_xrl::XrlError;
use tracing::{info, warn};

pub(crate) use self::carry::{replace, tell};
pub(crate) use self::prepare::Asking;
pub use self::{messages::Messages, plan::Plan, sessions::Ending};

use self::{
    carry::running,
    differences::{REPLACED, line},
    limits::Over,
    plan::plan,
};
use crate::{apart::apart, manager::Manager, read, text::Text};

/// A text that has been read, and is to become the configuration.
pub(crate) struct Candidate {
    pub(crate) text: Arc<Text>,
    pub(crate) config: Arc<Config>,
    /// Another router has it already.
    pub(crate) is_shared: bool,
}

impl Candidate {
    /// Reads a text; `name` is how errors call it, and `file` where it is or is to be.
    ///
    /// # Errors
    /// `InvalidArgument` with all that is wrong with it.
    pub(crate) async fn parse(
        text: String,
        name: &str,
        file: &Path,
        schema: Schema,
    ) -> Result<Self, XrlError> {
        let (name, file) = (name.to_owned(), file.to_owned());
        let read = apart(move || {
            let config = read::parse(&text, &name, &file, schema).map_err(XrlError::invalid_argument)?;
            Ok(Self { text: Arc::new(Text::new(text)), config: Arc::new(config), is_shared: false })
        });
        read.await?
    }

    /// Reads a file.
    ///
    /// # Errors
    /// As for [`Self::parse`].
    pub(crate) async fn read(file: &Path, schema: Schema) -> Result<Self, XrlError> {
        let path = file.to_owned();
        let text = apart(move || read::read_text(&path)).await?;
        let text = text.map_err(XrlError::invalid_argument)?;
        Self::parse(text, &file.display().to_string(), file, schema).await
    }
}

/// Reads the file again. The outcome is logged as well: nobody may be there to read the answer.
pub(crate) async fn reload(manager: &Rc<Manager>, asking: &Asking) -> Result<ReloadReply, XrlError> {
    let _turn = manager.reloading.lock().await;
    let result = match Candidate::read(&manager.file, manager.schema).await {
        Ok(candidate) => replace(manager, candidate, asking, async || Ok(())).await.map(|(reply, ())| reply),
        Err(error) => Err(error),
    };
    match &result {
        Ok(reply) if reply.changes.is_empty() => info!(event = "reload", "reload: nothing has changed"),
        Ok(reply) => {
            reply.changes.iter().for_each(|change| info!(event = "reload", "reload: {change}"));
            reply.notes.iter().for_each(|note| warn!(event = "reload", "reload: {note}"));
        }
        Err(error) => {
            warn!(event = "reload-refused", "reload refused, nothing has changed: {}", error.message());
        }
    }
    result
}

/// What a reload of this text would do.
pub(crate) async fn diff(manager: &Manager, request: DiffRequest) -> Result<DiffReply, XrlError> {
    let (file, schema) = (manager.file.clone(), manager.schema);
    let new = apart(move || read::parse(&request.text, &request.file, &file, schema)).await?;
    let new = Arc::new(new.map_err(XrlError::invalid_argument)?);
    let old = manager.config();
    let Plan { mut changes, replaced, .. } = plan(manager, &old, &new).await?;
    changes.extend(line(REPLACED, &running(manager, replaced)));
    let ending = Ending::ask(manager, &old, &new).await;
    let over = ending.over.iter().map(|Over { peer, vrf, cause, .. }| EndingSession {
        peer: peer.clone(),
        vrf: vrf.clone().unwrap_or_default(),
        cause: cause.clone(),
    });
    let (over, ending) = (over.collect(), ending.names());
    Ok(DiffReply { changes, ending, over, ..DiffReply::default() })
}
