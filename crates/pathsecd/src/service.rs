//! `pathsec.v1`.

use std::rc::Rc;

use holdfast_api::pathsec::v1::{
    Empty, KeysChanged, PathSecServer, PathSecStatus, ValidateReply, ValidateRequest,
};
use holdfast_xrl::{CallContext, ReplySink, XrlError};

use crate::{log::Next, pathsec::PathSec};

/// Serves `pathsec.v1`.
pub(crate) struct PathSecService(pub(crate) Rc<PathSec>);

impl PathSecServer for PathSecService {
    async fn validate(&self, _: &CallContext, request: ValidateRequest) -> Result<ValidateReply, XrlError> {
        self.0.workers.validate(request.jobs, || self.0.keys.now()).await
    }

    async fn watch(
        &self,
        _: &CallContext,
        _: Empty,
        mut replies: ReplySink<KeysChanged>,
    ) -> Result<(), XrlError> {
        let keys = &self.0.keys;
        let mut numbers = keys.subscribe();
        loop {
            replies.ready().await?;
            let (mut at, all) = keys.all();
            replies.send(all).await?;
            loop {
                match keys.after(at) {
                    Next::Change(change) => {
                        at += 1;
                        replies.send(KeysChanged::clone(&change)).await?;
                    }
                    Next::Nothing => {
                        let news = numbers.wait_for(|number| *number != at).await;
                        news.map_err(|_| XrlError::unavailable("the process ends"))?;
                    }
                    Next::Lost => break,
                }
            }
        }
    }

    async fn status(&self, _: &CallContext, _: Empty) -> Result<PathSecStatus, XrlError> {
        Ok(self.0.status())
    }
}
