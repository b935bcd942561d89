//! Keeps the kernel's table as the rib wants it, whatever other programs do to it.

use std::{
    convert::Infallible,
    future::pending,
    io,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_fib::{Interference, Repairs};
use holdfast_xrl::XrlError;
use tokio::{
    io::Interest,
    net::UnixDatagram,
    time::{sleep, sleep_until, timeout},
};
use tracing::{info, warn};

use crate::{claiming::Claimed, engine::Engine, repairs::since};

/// Between two rounds: what other programs do meanwhile is read together.
const ROUND: Duration = Duration::from_millis(10);
/// Until it is tried again after the kernel did not answer.
const RETRY: Duration = Duration::from_secs(1);
/// Between two attempts to get what is not there yet: a table that another router has.
const SETTLE: Duration = Duration::from_secs(2);
/// Between two lines about repairs.
const LINES: Duration = Duration::from_secs(10);
/// How long a comparison that an operator asks for may take.
const LONGEST_COMPARISON: Duration = Duration::from_secs(60);

/// When the whole table is compared with the kernel's. Pure: times come in.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// When the last one began.
    last: Instant,
    /// The table may have changed without a word.
    is_doubtful: bool,
}

impl Schedule {
    /// From one comparison to the next when nothing happens.
    const PERIOD: Duration = Duration::from_secs(100);
    /// The shortest time between two, but for those that an operator asks for.
    const SHORTEST: Duration = Duration::from_secs(10);

    /// As if one had begun now; the first in doubt needs not wait.
    pub(crate) fn new(now: Instant) -> Self {
        Self { last: now, is_doubtful: false }
    }

    pub(crate) fn doubt(&mut self) {
        self.is_doubtful = true;
    }

    pub(crate) fn due(&self) -> Instant {
        self.last + if self.is_doubtful { Self::SHORTEST } else { Self::PERIOD }
    }

    /// One begins.
    pub(crate) fn begin(&mut self, now: Instant) {
        *self = Self::new(now);
    }
}

/// What has been said of repairs.
#[derive(Debug, Default)]
struct Said {
    repairs: Repairs,
    at: Option<Instant>,
}

impl Engine {
    /// Hears what other programs do to the table, and writes again what they take away, for ever.
    pub async fn keep_in_step(&self) -> Infallible {
        // Long enough ago that the first doubt is looked into at once.
        let mut schedule =
            Schedule::new(Instant::now().checked_sub(Schedule::SHORTEST).unwrap_or_else(Instant::now));
        let (mut said, mut settles_at) = (Said::default(), None);
        loop {
            self.wait_for_work(&schedule, &said, settles_at).await;
            if let Err(error) = self.round(&mut schedule).await {
                self.lose_for(&error);
                sleep(RETRY).await;
            }
            self.say_repairs(&mut said);
            self.answer_claims();
            let now = Instant::now();
            if settles_at.is_some_and(|at| at <= now) {
                settles_at = None;
                match self.shares_table() {
                    true if self.inherit_table().await => schedule.doubt(),
                    true => {}
                    // A refusal was said when it began.
                    false => _ = self.settle().await,
                }
            }
            let is_unsettled = self.waits() || self.shares_table();
            settles_at = is_unsettled.then(|| settles_at.unwrap_or(now + SETTLE));
            sleep(ROUND).await;
        }
    }

    /// Compares the whole table with the kernel's: what was repaired for that.
    ///
    /// # Errors
    /// `Unavailable` when that takes too long, as while the rib sends its whole table.
    pub(crate) async fn compare(&self) -> Result<Repairs, XrlError> {
        let mut compared = self.compared.subscribe();
        let before = self.repairs();
        // One that is under way may have passed by what the operator means.
        let target = before.comparisons + 1 + u64::from(self.is_comparing());
        self.asked.set(Some(target));
        self.stirred.notify_one();
        let done = compared.wait_for(|ended| *ended >= target);
        match timeout(LONGEST_COMPARISON, done).await {
            Ok(_) => Ok(since(self.repairs(), before)),
            Err(_) => Err(XrlError::unavailable("the comparison has not ended: is the table being written?")),
        }
    }

    async fn wait_for_work(&self, schedule: &Schedule, said: &Said, settles_at: Option<Instant>) {
        let watched = self.heard();
        let asked = self.claimed.borrow().as_ref().and_then(Claimed::asked);
        let next_line = said.at.filter(|_| self.repairs() != said.repairs).map(|at| at + LINES);
        let comparison = (!self.shares_table()).then(|| schedule.due());
        let next = [self.next_due(), next_line, settles_at, comparison].into_iter().flatten().min();
        tokio::select! {
            () = self.stirred.notified() => {}
            () = readable(watched) => {}
            () = readable(asked) => {}
            () = until(next) => {}
        }
    }

    /// Where the doings of other programs are heard. Of a table that a router with the same lease has, they are not: each of the
    /// two would undo what the other writes.
    fn heard(&self) -> Option<Rc<UnixDatagram>> {
        self.watched.borrow().clone().filter(|_| !self.shares_table())
    }

    /// Reads what there is to read, and does what follows from that, slice by slice.
    async fn round(&self, schedule: &mut Schedule) -> Result<(), XrlError> {
        let now = Instant::now();
        if let Some(watched) = self.heard() {
            let read =
                watched.try_io(Interest::READABLE, || match self.with(|backend| backend.fib.hear(now)) {
                    Ok(true) => Ok(Ok(())),
                    Ok(false) => Err(io::ErrorKind::WouldBlock.into()),
                    Err(error) => Ok(Err(error)),
                });
            // Nothing more to read is no fault.
            read.unwrap_or(Ok(()))?;
        }
        if self.next_due().is_some_and(|due| due <= now) {
            self.with(|backend| backend.fib.hear(now))?;
        }
        if self.with_fib(|fib| fib.take_is_doubtful()) == Some(true) {
            schedule.doubt();
        }
        let is_asked = self.asked.get().is_some_and(|target| target > self.repairs().comparisons);
        let is_due = schedule.due() <= now && !self.shares_table();
        if (is_asked || is_due) && self.backend.borrow().is_some() {
            let _turn = self.turn.lock().await;
            self.with(|backend| backend.fib.compare_begin())?;
            if self.is_comparing() {
                schedule.begin(now);
            } else {
                // A sync is under way, and does the same.
                schedule.begin(now - Schedule::PERIOD / 2);
            }
        }
        while self.with_fib(|fib| fib.has_work()) == Some(true) {
            let _turn = self.turn.lock().await;
            self.slice(|fib, routes| fib.work(routes)).await?;
        }
        Ok(())
    }

    fn is_comparing(&self) -> bool {
        self.with_fib(|fib| fib.is_comparing()) == Some(true)
    }

    fn next_due(&self) -> Option<Instant> {
        self.with_fib(|fib| fib.next_due()).flatten()
    }

    /// A burst is one line, and there is one line in [`LINES`].
    fn say_repairs(&self, said: &mut Said) {
        let (now, repairs) = (Instant::now(), self.repairs());
        if said.at.is_some_and(|at| now < at + LINES) {
            return;
        }
        let Repairs { removed, replaced, next_hops, unseen, strays, pauses, overruns, .. } =
            since(repairs, said.repairs);
        *said = Said { repairs, at: said.at };
        if overruns > 0 {
            let text = "the kernel's notices about routes overran: the whole table is compared";
            warn!(event = "routes-overrun", "{text}");
        }
        let all = removed + replaced + next_hops + unseen + strays + pauses;
        if all == 0 {
            return;
        }
        said.at = Some(now);
        let (interference, contested) = self.interference();
        let Interference { port, what } =
            interference.unwrap_or_else(|| Interference { port: 0, what: String::new() });
        if pauses > 0
            && let Some(route) = contested
        {
            warn!(
                event = "route-contested",
                %route,
                port,
                "other programs remove or replace the route again and again: it is written again later"
            );
        }
        info!(
            event = "kernel-repaired",
            removed,
            replaced,
            next_hops,
            unseen,
            strays,
            port,
            last = what,
            "what others changed is as it was"
        );
    }
}

async fn readable(socket: Option<Rc<UnixDatagram>>) {
    match socket {
        // An error is for who reads.
        Some(socket) => drop(socket.readable().await),
        None => pending().await,
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time.into()).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubt_is_looked_into_at_once_and_at_most_once_in_ten_seconds() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut schedule = Schedule::new(start);
        assert_eq!(schedule.due(), after(100));
        schedule.doubt();
        schedule.doubt();
        assert_eq!(schedule.due(), after(10));
        schedule.begin(after(42));
        assert_eq!(schedule.due(), after(142));
        schedule.doubt();
        assert_eq!(schedule.due(), after(52));
    }
}
