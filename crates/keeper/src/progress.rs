//! Asks every process whether its event loop turns, and ends who is [hung](crate::hang): it is then replaced like any dead one.
//! While a process does not answer, the page is read in which it counts what it has finished.

use std::{
    fs, io,
    os::fd::OwnedFd,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_process::{
    progress::{FINISHED, PAGE, PATIENCE},
    spawn_task,
};
use holdfast_sys::memory::{ForeignMemory, SharedMemory};
use holdfast_xrl::Client;
use holdfast_xrl::component::v1::{ComponentClient, ProgressRequest};
use rustix::process::Signal;
use tracing::warn;

use crate::{
    children::signal,
    hang::{Busy, Doing, Hung, Said, Sample, Turn},
    service::Keeper,
    store::{Full, Kept, OnDeath},
    until,
};

/// How the death of a process is described that was ended because it was hung.
const HUNG: &str = "hung";

/// Whose descriptors the pages are: nobody else gets them, and a keeper that takes over has them.
const OWNER: &str = "keeper";

/// The key of the page of a process.
fn key(pid: u32) -> String {
    format!("progress-{pid}")
}

/// Asks all processes again and again, for ever.
pub(crate) async fn attend(keeper: Rc<Keeper>) {
    loop {
        let interval = keeper.hangs.borrow().interval();
        let due = interval.map(|interval| Instant::now() + interval);
        tokio::select! {
            () = until(due) => {}
            // Who has just been born is asked before it has anything to do: until its answer it has much time.
            () = keeper.hangs_changed.notified() => {}
        }
        // A keeper that is about to be replaced waits until nothing is under way.
        if !keeper.leaving.get() {
            keeper.turn(Instant::now(), |pid, name| keeper.look(pid, name));
        }
    }
}

impl Keeper {
    /// Asks who has answered, and ends one that is hung.
    pub(crate) fn turn(self: &Rc<Self>, now: Instant, look: impl Fn(u32, &str) -> Sample) {
        let Turn { ask, busy, end } = self.hangs.borrow_mut().turn(now, look);
        ask.into_iter().for_each(|pid| drop(spawn_task(Rc::clone(self).ask(pid))));
        busy.iter().for_each(|busy| self.note_busy(busy));
        if let Some(hung) = end {
            self.end(&hung);
        }
    }

    async fn ask(self: Rc<Self>, pid: u32) {
        let channel = self.children.borrow().living.get(&pid).map(|child| child.channel.clone());
        let Some(channel) = channel else { return };
        let answer = ComponentClient::new(channel.clone()).progress(ProgressRequest {}).await;
        if let Ok(progress) = &answer
            && let Some(child) = self.children.borrow_mut().living.get_mut(&pid)
        {
            child.longest_turn = progress.longest_turn_microseconds;
        }
        let mut hangs = self.hangs.borrow_mut();
        // An older build answers that it does not know the question, which is an answer.
        match answer {
            Err(_) if channel.is_closed() => hangs.left(pid),
            _ => hangs.answered(pid),
        }
    }

    fn note_busy(&self, busy: &Busy) {
        let children = self.children.borrow();
        let Some(child) = children.living.get(&busy.pid) else { return };
        warn!(
            event = "process-busy",
            process = child.called(),
            pid = busy.pid,
            "it has not answered for {:.1} s, and finishes work: it may be busy for {:.1} s in all",
            busy.silent.as_secs_f32(),
            busy.most.as_secs_f32()
        );
    }

    fn end(&self, hung: &Hung) {
        let &Hung { pid, silent, doing, was_busy } = hung;
        let mut children = self.children.borrow_mut();
        let Some(child) = children.living.get_mut(&pid) else { return };
        let (process, what) = (child.called().to_owned(), words(doing));
        warn!(
            event = "process-hung",
            process,
            pid,
            "killed: it {what}, and has not answered for {:.1} s",
            silent.as_secs_f32()
        );
        (child.hung, child.was_busy) = (true, was_busy);
        child.reason = HUNG.to_owned();
        // One that has died meanwhile is reaped as ever.
        let _ = signal(pid, Signal::KILL);
    }

    /// What the kernel says of a process.
    fn look(&self, pid: u32, name: &str) -> Sample {
        let throttled = self.cgroup().map(|cgroup| cgroup.throttled(name));
        let read = |file| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let sample = sample(&read("stat"), &read("schedstat"), throttled.unwrap_or_default());
        Sample { said: self.said(pid), ..sample.unwrap_or(Sample::UNKNOWN) }
    }

    /// What a process has written into its page.
    fn said(&self, pid: u32) -> Option<Said> {
        let children = self.children.borrow();
        let page = children.living.get(&pid)?.page.as_ref()?;
        let patience = Some(page.load(PATIENCE)).filter(|patience| *patience != 0).map(Duration::from_millis);
        Some(Said { finished: page.load(FINISHED), patience })
    }

    /// The page of a process that asks for it, and whether the one of its name before was killed after it had been busy.
    pub(crate) fn progress_page(&self, pid: u32, name: &str) -> io::Result<(bool, OwnedFd)> {
        let was_busy = self.children.borrow().record(name).was_busy;
        let kept = self.store.borrow().copy(OWNER, &key(pid));
        if let Some(kept) = kept {
            return Ok((was_busy, kept?));
        }
        let page = SharedMemory::create("holdfast-progress", PAGE)?;
        let [descriptor, theirs] = [(); 2].map(|()| page.descriptor().try_clone_to_owned());
        let kept =
            Kept { descriptor: descriptor?, on_death: OnDeath::Keep(None), deadline: None, note: None };
        let put = self.store.borrow_mut().put(OWNER, &key(pid), kept);
        put.map_err(|Full| io::Error::other("too many processes"))?;
        self.find_page(pid);
        Ok((was_busy, theirs?))
    }

    /// Reads the page of a process from now on, if it has one.
    pub(crate) fn find_page(&self, pid: u32) {
        let Some(Ok(descriptor)) = self.store.borrow().copy(OWNER, &key(pid)) else { return };
        let page = ForeignMemory::from_descriptor(descriptor).ok().filter(|page| page.octets() >= PAGE);
        if let Some(child) = self.children.borrow_mut().living.get_mut(&pid) {
            child.page = page.map(Rc::new);
        }
    }

    /// The page of a process that is dead is closed.
    pub(crate) fn forget_page(&self, pid: u32) {
        self.store.borrow_mut().drop_key(OWNER, &key(pid));
    }
}

fn words(doing: Doing) -> &'static str {
    match doing {
        Doing::Running => "runs",
        Doing::Waiting => "sleeps",
        Doing::Stopped => "was stopped",
        Doing::Uninterruptible => "waits for the kernel",
        Doing::Ended => "is dead",
    }
}

/// A sample of what is in the files of proc(5).
fn sample(stat: &str, schedstat: &str, throttled: Duration) -> Option<Sample> {
    // What is before the last bracket is the name of the program.
    let doing = match stat.rsplit_once(')')?.1.trim_start().chars().next()? {
        'R' => Doing::Running,
        'T' | 't' => Doing::Stopped,
        'D' => Doing::Uninterruptible,
        'Z' | 'X' => Doing::Ended,
        _ => Doing::Waiting,
    };
    let mut times = schedstat.split(' ').map(|field| field.parse().ok().map(Duration::from_nanos));
    let (ran, queued) = (times.next()??, times.next()??);
    // Nothing is without a processor: a kernel that does not count says so.
    (!ran.is_zero()).then_some(Sample { doing, ran, queued, throttled, said: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_what_a_process_does_and_how_long_it_had_a_processor() {
        let stat = |state| format!("42 (a) b) {state} 1 42 42 0 -1 4194560 100 0 0 0 1 2");
        let second = Duration::from_secs(1);
        let expected =
            |doing| Sample { doing, ran: second, queued: 2 * second, throttled: second, said: None };
        for (state, doing) in [
            ('R', Doing::Running),
            ('S', Doing::Waiting),
            ('T', Doing::Stopped),
            ('t', Doing::Stopped),
            ('D', Doing::Uninterruptible),
            ('Z', Doing::Ended),
        ] {
            let read = sample(&stat(state), "1000000000 2000000000 17\n", second);
            assert_eq!(read, Some(expected(doing)), "{state}");
        }
        assert_eq!(sample(&stat('S'), "0 0 0\n", second), None, "a kernel that does not count");
        assert_eq!(sample("", "1 1 1\n", second), None, "it has gone");
        assert_eq!(sample(&stat('S'), "", second), None);
    }
}
