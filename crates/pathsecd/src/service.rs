//! `pathsec.v1`.

use std::{os::fd::OwnedFd, rc::Rc};

use holdfast_api::pathsec::v1::{
    Configuration, Empty, KeysChanged, PathSecServer, PathSecStatus, SignReply, SignRequest, Signers,
    ValidateReply, ValidateRequest,
};
use holdfast_xrl::{CallContext, ReplySink, XrlError};

use crate::{log::Next, pathsec::PathSec, signing};

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

    async fn sign(&self, _: &CallContext, request: SignRequest) -> Result<SignReply, XrlError> {
        signing::check(&request.jobs)?;
        let jobs = request.jobs.into_iter().map(|job| self.0.private_keys.job(job)).collect();
        self.0.workers.sign(jobs).await
    }

    async fn watch_signers(
        &self,
        _: &CallContext,
        _: Empty,
        mut replies: ReplySink<Signers>,
    ) -> Result<(), XrlError> {
        let mut in_use = self.0.private_keys.subscribe();
        loop {
            // Who is slow is told what holds when there is room, and nothing of what was meanwhile.
            replies.ready().await?;
            let signers = in_use.borrow_and_update().clone();
            if let Some(signers) = signers {
                replies.send(signers).await?;
            }
            in_use.changed().await.map_err(|_| XrlError::unavailable("the process ends"))?;
        }
    }

    async fn configure(&self, _: &CallContext, request: Configuration) -> Result<Empty, XrlError> {
        self.0.keys.configure(&request);
        self.0.private_keys.configure(&request, &self.0.keys.now());
        Ok(Empty {})
    }

    async fn keep(&self, _: &CallContext, _: Empty, fds: Vec<OwnedFd>) -> Result<Empty, XrlError> {
        self.0.private_keys.keep(fds)?;
        Ok(Empty {})
    }

    async fn status(&self, _: &CallContext, _: Empty) -> Result<PathSecStatus, XrlError> {
        Ok(self.0.status())
    }
}
