//! `metrics.v1`.

use std::time::Duration;

use holdfast_api::metrics::v1::{Empty, Families, MetricsClient, MetricsServer, QueueList};
use holdfast_xrl::{CallContext, ReplySink, XrlError};
use tokio::time::timeout;

use super::Metrics;

/// Samples or queues in one message.
const PAGE: usize = 512;
/// How long to wait for who is asked besides.
const LIMIT: Duration = Duration::from_secs(1);

/// Serves `metrics.v1` over what the process has registered.
pub(crate) struct MetricsService(pub(crate) Metrics);

impl MetricsService {
    fn behind(&self) -> Vec<MetricsClient> {
        self.0.0.behind.borrow().clone()
    }
}

/// The next message of who is asked besides; one that is of another build may not know the question.
async fn next<T>(message: impl Future<Output = Result<Option<T>, XrlError>>) -> Option<T> {
    timeout(LIMIT, message).await.ok().and_then(Result::ok).flatten()
}

impl MetricsServer for MetricsService {
    async fn collect(
        &self,
        _: &CallContext,
        _: Empty,
        mut replies: ReplySink<Families>,
    ) -> Result<(), XrlError> {
        let pages = self.0.read().await.pages(PAGE);
        replies
            .send_all(pages.into_iter().map(|family| Families { families: vec![family] }).collect())
            .await?;
        for behind in self.behind() {
            let mut families = behind.collect(Empty {});
            while let Some(families) = next(families.next()).await {
                replies.send(families).await?;
            }
        }
        Ok(())
    }

    async fn queues(
        &self,
        _: &CallContext,
        _: Empty,
        mut replies: ReplySink<QueueList>,
    ) -> Result<(), XrlError> {
        let queues = self.0.read().await.queues;
        let pages = queues.chunks(PAGE).map(|queues| QueueList { queues: queues.to_vec() }).collect();
        replies.send_all(pages).await?;
        for behind in self.behind() {
            let mut queues = behind.queues(Empty {});
            while let Some(queues) = next(queues.next()).await {
                replies.send(queues).await?;
            }
        }
        Ok(())
    }
}
