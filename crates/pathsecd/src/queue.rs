//! What threads have to do. To sign goes before to judge: a signature takes 20 us, and somebody's flood of paths is not to
//! delay what we announce. Whoever fills it has bounds ([`Turns`]).

use std::{
    cell::Cell,
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use holdfast_xrl::XrlError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Batches that are under way, or have their parts in the queue.
pub(crate) const MOST_UNDER_WAY: usize = 64;
/// Batches that wait until one of those is done.
pub(crate) const MOST_WAITING: usize = 64;

/// What a thread takes next.
pub(crate) enum Task<J, S> {
    /// To judge a part of a batch.
    Judge(J),
    /// To sign a batch.
    Sign(S),
}

/// The queue of all threads: of parts to judge, and of batches to sign.
pub(crate) struct Queue<J, S> {
    state: Mutex<State<J, S>>,
    news: Condvar,
}

struct State<J, S> {
    judge: VecDeque<J>,
    sign: VecDeque<S>,
    is_closed: bool,
}

impl<J, S> Queue<J, S> {
    pub(crate) fn new() -> Self {
        let (judge, sign) = (VecDeque::new(), VecDeque::new());
        Self { state: Mutex::new(State { judge, sign, is_closed: false }), news: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State<J, S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, task: Task<J, S>) {
        let mut state = self.state();
        match task {
            Task::Judge(part) => state.judge.push_back(part),
            Task::Sign(batch) => state.sign.push_back(batch),
        }
        drop(state);
        self.news.notify_one();
    }

    /// Has every thread end.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.news.notify_all();
    }

    /// Waits for something to do; `None`: there will be nothing any more.
    pub(crate) fn next(&self) -> Option<Task<J, S>> {
        let mut state = self.state();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(batch) = state.sign.pop_front() {
                return Some(Task::Sign(batch));
            }
            if let Some(part) = state.judge.pop_front() {
                return Some(Task::Judge(part));
            }
            state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A batch to sign, if there is one: for who judges, between two jobs.
    pub(crate) fn to_sign(&self) -> Option<S> {
        self.state().sign.pop_front()
    }
}

/// Whose batch is under way: [`MOST_UNDER_WAY`] at a time, and [`MOST_WAITING`] wait in the order of their calls.
pub(crate) struct Turns {
    turns: Arc<Semaphore>,
    waiting: Cell<usize>,
}

/// That a batch is under way. It is given back when the last thread is done with it, even if nobody waits any more.
pub(crate) type Turn = OwnedSemaphorePermit;

impl Turns {
    pub(crate) fn new() -> Self {
        Self { turns: Arc::new(Semaphore::new(MOST_UNDER_WAY)), waiting: Cell::default() }
    }

    /// # Errors
    /// Too many wait already.
    pub(crate) async fn turn(&self) -> Result<Turn, XrlError> {
        if let Ok(turn) = Arc::clone(&self.turns).try_acquire_owned() {
            return Ok(turn);
        }
        if self.waiting.get() >= MOST_WAITING {
            return Err(XrlError::unavailable("too many batches wait"));
        }
        let _waits = Counted::new(&self.waiting, 1);
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        turn.map_err(|_| XrlError::internal("nobody closes it"))
    }
}

/// So many are counted for as long as it lives.
pub(crate) struct Counted<'a>(&'a Cell<usize>, usize);

impl<'a> Counted<'a> {
    pub(crate) fn new(count: &'a Cell<usize>, more: usize) -> Self {
        count.set(count.get() + more);
        Self(count, more)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signing_goes_first_and_nothing_follows_the_end() {
        let queue: Queue<u8, char> = Queue::new();
        queue.push(Task::Judge(1));
        queue.push(Task::Judge(2));
        queue.push(Task::Sign('a'));
        queue.push(Task::Sign('b'));
        assert!(matches!(queue.next(), Some(Task::Sign('a'))));
        assert_eq!((queue.to_sign(), queue.to_sign()), (Some('b'), None));
        assert!(matches!(queue.next(), Some(Task::Judge(1))));
        queue.close();
        assert!(queue.next().is_none());
    }
}
