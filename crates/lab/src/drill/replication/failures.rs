//! Each failure, and how it is mended.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::process::{Signal, kill_process};

use super::{Drill, Failure, LIMIT, Outcome, STORE_TIMEOUT, now, strangers};
use crate::{
    drill::time::micros,
    netns::output,
    replication::{scene::table_of_paths, stock::Special},
    wait,
};

/// How long most of them last.
const WHILE: Duration = Duration::from_secs(2);
/// Nothing may leave so long after somebody has removed the rules.
const NOTICED: u64 = 100_000;
/// What keeps a peer that reads nothing from being sent everything: so many routes with a path of their own.
const MUCH: u32 = 40_000;

impl Drill<'_> {
    /// Does it, and mends it. Changes go on meanwhile.
    pub(super) fn make(&mut self, failure: Failure) -> Result<Outcome> {
        let (mut unprotected, mut ended, mut mended) = (None, None, None);
        match failure {
            Failure::Slow1 | Failure::Slow20 | Failure::Slow500 => {
                let milliseconds = match failure {
                    Failure::Slow1 => 1,
                    Failure::Slow20 => 20,
                    _ => 500,
                };
                self.scene.proxy()?.delay(Duration::from_millis(milliseconds));
                self.churn(WHILE)?;
                self.scene.proxy()?.delay(Duration::ZERO);
            }
            Failure::Stopped => unprotected = self.stopped()?,
            Failure::Empty => {
                self.scene.redis.as_mut().context("a server")?.restart()?;
                mended = Some(now());
                self.step()?;
            }
            Failure::Flushed => {
                self.scene.redis_cli(&["FLUSHALL"])?;
                mended = Some(now());
                self.step()?;
            }
            Failure::Forgetful => {
                self.scene.redis_cli(&["SCRIPT", "FLUSH"])?;
                mended = Some(now());
                self.step()?;
            }
            Failure::Full => {
                self.scene.redis_cli(&["CONFIG", "SET", "maxmemory", "1"])?;
                self.wait_for("the store has reached its maxmemory")?;
                self.scene.redis_cli(&["CONFIG", "SET", "maxmemory", "0"])?;
            }
            Failure::Cut => {
                self.scene.proxy()?.cut();
                self.step()?;
                wait::until("a cut", LIMIT, || match self.scene.proxy() {
                    Ok(proxy) if proxy.has_cut() => Ok(()),
                    _ => Err(String::new()),
                })?;
            }
            Failure::PartedTo | Failure::PartedFrom => {
                let to_store = failure == Failure::PartedTo;
                self.scene.part(to_store, true)?;
                let waited = self.churn(WHILE);
                self.scene.part(to_store, false)?;
                waited?;
            }
            Failure::Password => {
                self.scene.redis_cli(&["CONFIG", "SET", "requirepass", "new"])?;
                let as_new = ["--no-auth-warning", "-a", "new"];
                self.scene.redis_cli(&[&as_new[..], &["CLIENT", "KILL", "TYPE", "normal"]].concat())?;
                self.wait_for("the store wants a password")?;
                self.scene.redis_cli(&[&as_new[..], &["CONFIG", "SET", "requirepass", ""]].concat())?;
            }
            Failure::OtherData => {
                let all = "for _, key in ipairs(redis.call('KEYS', 'holdfast:*')) do redis.call('SET', key, 'x') end";
                self.scene.redis_cli(&["EVAL", all, "0"])?;
                self.wait_for("other data is under the keys of this router")?;
                self.scene.redis_cli(&["FLUSHALL"])?;
            }
            Failure::Promoted => {
                self.scene.redis_cli(&["SAVE"])?;
                self.churn(WHILE / 4)?;
                let server = self.scene.redis.as_mut().context("a server")?;
                // It reads what was saved.
                server.restart()?;
                mended = Some(now());
                server.forget_saved()?;
                self.step()?;
            }
            Failure::Clock => {
                for clock in ["+3600", "-3600", "+0"] {
                    self.scene.redis()?.set_clock(clock)?;
                    self.churn(WHILE)?;
                }
            }
            Failure::KillGate | Failure::KillReplicator => {
                let process = if failure == Failure::KillGate { "gate" } else { "replicator" };
                self.kill(process)?;
                mended = Some(now());
                self.step()?;
                self.scene.router.wait_running()?;
            }
            Failure::FlushRules => unprotected = Some(self.flush_rules()?),
            Failure::OtherQueue => {
                ensure!(!strangers::take_queue(&self.scene.host)?.1, "another program got our packet queue");
                self.churn(WHILE / 4)?;
            }
            Failure::TakenQueue => self.taken_queue()?,
            Failure::StrangerReset => {
                let stocks = self.scene.stocks.iter().filter(|stock| stock.special != Special::V6);
                let sent: Vec<_> =
                    stocks.map(|stock| (stock.host.name().to_owned(), stock.address)).collect();
                for (_, address) in sent {
                    let stock = self.scene.stocks.iter().find(|stock| stock.address == address);
                    strangers::provoke_resets(&stock.context("a peer")?.host, address, &mut self.random)?;
                }
                self.churn(WHILE / 2)?;
            }
            Failure::PeerFin | Failure::PeerReset | Failure::PeerNotification => {
                ended = Some(self.peer_ends(failure)?);
            }
            Failure::ZeroWindow => self.zero_window()?,
        }
        Ok(Outcome { mended: mended.unwrap_or_else(now), unprotected, ended })
    }

    /// Waits, under changes, until sessions wait for the store, and the router says why.
    fn wait_for(&mut self, trouble: &str) -> Result<()> {
        let start = std::time::Instant::now();
        loop {
            self.churn(WHILE / 4)?;
            let shown = self.scene.show()?;
            if shown.contains("protection:txt=waiting") && shown.contains(trouble) {
                return Ok(());
            }
            ensure!(
                start.elapsed() < Duration::from_secs(STORE_TIMEOUT - 2),
                "{trouble} is not said: {shown}"
            );
        }
    }

    /// The store stands still, for longer than it is waited for or not. Since when there was no protection, if so.
    fn stopped(&mut self) -> Result<Option<super::Time>> {
        let (pid, start) = (self.scene.redis()?.pid()?, now());
        kill_process(pid, Signal::STOP)?;
        let waited = self.churn(Duration::from_secs(self.options.stop));
        kill_process(pid, Signal::CONT)?;
        waited?;
        let was_long = self.options.stop >= STORE_TIMEOUT;
        if was_long {
            self.scene.until_protected("full", LIMIT)?;
        }
        // It was waited for in any case until a little before its time.
        Ok(was_long.then(|| (start + (STORE_TIMEOUT - 1) * 1_000_000, now())))
    }

    fn kill(&mut self, process: &str) -> Result<()> {
        self.report.deaths += 1;
        self.scene.router.kill(process)
    }

    /// Rules are removed while much is held: what is let out until somebody notices is not judged, and that has to be soon.
    fn flush_rules(&mut self) -> Result<super::Time> {
        self.scene.proxy()?.delay(Duration::from_millis(150));
        self.churn(WHILE / 4)?;
        let start = now();
        output(self.scene.host.command("nft").args(["flush", "ruleset"]))?;
        let restored = wait::until("the rules", LIMIT, || {
            let log = self.scene.router.log();
            let lines = log.lines().filter(|line| line.contains("is in place again"));
            lines.filter_map(micros).find(|at| *at >= start).ok_or_else(|| "they are not back".to_owned())
        })?;
        self.report.noticed_ms = self.report.noticed_ms.max((restored - start) / 1000);
        // What was changed from then on is held again.
        self.churn(WHILE)?;
        self.scene.proxy()?.delay(Duration::ZERO);
        self.judge(&[(start + NOTICED, now())], None, 0)?;
        Ok((start, now()))
    }

    /// The gate dies, and somebody else has its queue before the next one has: nothing leaves until that is over.
    fn taken_queue(&mut self) -> Result<()> {
        let seizing = strangers::seize_queue(&self.scene.host)?;
        self.kill("gate")?;
        let taken = seizing.join().map_err(|_| anyhow!("the thread that takes the queue panicked"))??;
        self.report.queues_taken += 1;
        self.churn(WHILE)?;
        drop(taken);
        self.scene.router.wait_running()
    }

    /// The store stands still, so acknowledgements are held, and a peer ends the session: which one, and its number in the log.
    fn peer_ends(&mut self, failure: Failure) -> Result<(usize, u32)> {
        let at = self.random.below(self.scene.stocks.len() as u32) as usize;
        let address = self.scene.stocks[at].address;
        let session = self.scene.book()?.session(address).context("a session in the store")?;
        let sessions = self.scene.stocks[at].sessions()?;
        let pid = self.scene.redis()?.pid()?;
        kill_process(pid, Signal::STOP)?;
        let stopped = self.churn(WHILE / 2).and_then(|()| {
            let stock = &mut self.scene.stocks[at];
            match failure {
                Failure::PeerFin => stock.kill(),
                Failure::PeerNotification => stock.restart(),
                Failure::PeerReset => {
                    let port = ["(", "sport", "=", ":179", "or", "dport", "=", ":179", ")"];
                    let mut command = stock.host.command("ss");
                    let said =
                        output(command.args(["-t", "-n", "-H", "-K", "state", "established"]).args(port))?;
                    ensure!(said.contains("179"), "no connection was torn down: {said}");
                    Ok(())
                }
                _ => bail!("it ends no session"),
            }
        });
        std::thread::sleep(WHILE / 4);
        kill_process(pid, Signal::CONT)?;
        stopped?;
        let stock = &mut self.scene.stocks[at];
        // Lines of the log of a program that was killed count as well.
        if failure == Failure::PeerFin {
            stock.start_again()?;
        }
        self.report.ends[at] += 1;
        wait::until("the next session", LIMIT, || match self.scene.stocks[at].sessions() {
            Ok(found) if found == sessions + 1 => Ok(()),
            other => Err(format!("{other:?}")),
        })?;
        Ok((at, session))
    }

    /// A peer reads nothing while it is sent much, and reads again.
    fn zero_window(&mut self) -> Result<()> {
        let at = self.random.below(self.scene.stocks.len() as u32) as usize;
        let table = std::sync::Arc::new(table_of_paths(MUCH));
        self.scene.stocks[at].pause(true)?;
        self.scene.other.announce(std::sync::Arc::clone(&table));
        std::thread::sleep(Duration::from_secs(self.options.stop) / 3);
        self.scene.stocks[at].pause(false)?;
        self.scene.until_told(u64::from(MUCH))?;
        self.scene.other.withdraw(table);
        Ok(())
    }
}
