//! A router's session with one cache.

mod config;
mod io;
mod link;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use holdfast_rtr_wire::{ErrorCode, ErrorReport, Frame, Pdu, PduType, Record, Serial, Timing, Version};

use crate::{Dataset, Delta, Fault, answer::Answer, fault::Again};
pub use config::{ClientConfig, Times};
pub use io::{Event, Input, Output};
use link::{Link, Stage};

/// How long a cache may say nothing while it owes an answer.
const SILENCE: Duration = Duration::from_secs(60);

/// Between two queries that Serial Notifies bring about.
const BETWEEN_HASTENED: Duration = Duration::from_secs(1);

/// A session that has lasted so long was none that failed.
const LASTING: Duration = Duration::from_secs(60);

/// Characters of a cache's diagnostic text that are kept.
const MOST_TEXT: usize = 200;

/// Where a session is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Phase {
    /// No connection; another attempt comes.
    Down,
    /// A connection was asked for.
    Connecting,
    /// Asked; the answer comes.
    Syncing,
    /// Up to date.
    Established,
    /// The cache has no data; it is asked again.
    Waiting,
}

#[derive(Debug)]
enum State {
    Down {
        next: Instant,
    },
    Connecting,
    Up(Box<Link>),
    /// No connection is wanted any more.
    Over,
}

/// What the cache has said as a whole.
#[derive(Debug)]
struct Held {
    version: Version,
    session: u16,
    serial: Serial,
    data: Dataset,
    updated: Instant,
    expires: Instant,
}

/// The router's half of the protocol with one cache.
///
/// Data change with End of Data only, and [`Client::poll_delta`] says how. They stay when the connection is lost, until
/// they expire; only a cache that is suddenly another one (its Session ID differs) loses them at once (RFC 8210 section
/// 5.1). After that, and after anything that shows that both sides have lost count, all is asked for again; what comes
/// then is compared with what is held, so that it is a difference like any other.
///
/// Each connection begins with the highest version. A cache that refuses it, or hangs up without a word, is tried with
/// lower ones (section 7).
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    state: State,
    held: Option<Held>,
    /// What is held cannot be gone on from with a Serial Query.
    resync: bool,
    /// The next connection begins with it.
    attempt: Version,
    /// As the cache said the last time.
    timing: Timing,
    /// In a row.
    failures: u32,
    outputs: VecDeque<Output>,
    deltas: VecDeque<Delta>,
    fault: Option<Fault>,
    resets: u64,
    connects: u64,
}

impl Client {
    /// It wants a connection at once: [`Client::poll_timeout`] says so.
    pub fn new(config: ClientConfig, now: Instant) -> Self {
        Self {
            state: State::Down { next: now },
            held: None,
            resync: false,
            attempt: config.version,
            timing: Timing::RECOMMENDED,
            failures: 0,
            outputs: VecDeque::new(),
            deltas: VecDeque::new(),
            fault: None,
            resets: 0,
            connects: 0,
            config,
        }
    }

    /// Has another configuration from now on. What is held stays, a session goes on; another version is for the next. What
    /// was put off for longer than would be now comes sooner; later comes nothing.
    pub fn reconfigure(&mut self, config: ClientConfig, now: Instant) {
        self.config = config;
        let Times { refresh, retry, expire } = self.times();
        if let Some(held) = &mut self.held {
            held.expires = held.updated + expire;
        }
        match &mut self.state {
            State::Down { next } => *next = (*next).min(now + retry),
            State::Connecting | State::Over => {}
            State::Up(link) => {
                let wait = if link.empty { retry } else { refresh };
                if let Stage::Resting { poll } = &mut link.stage {
                    *poll = (*poll).min(now + wait);
                }
                return;
            }
        }
        self.attempt = self.config.version;
    }

    /// Ends its session, for ever; what is held stays until it expires. The connection is the caller's to close.
    pub fn retire(&mut self) {
        self.state = State::Over;
        self.outputs.clear();
    }

    /// Takes in what has happened.
    pub fn handle(&mut self, input: Input<'_>, now: Instant) {
        self.handle_beside(&[], input, now);
    }

    /// The same. Keys that are in any of these sets as well are in memory there alone.
    pub(crate) fn handle_beside(&mut self, others: &[&Dataset], input: Input<'_>, now: Instant) {
        self.expire(now);
        match (input, &mut self.state) {
            (Input::Connected, State::Connecting) => {
                self.state = State::Up(Box::new(Link::new(self.attempt, now)));
                self.ask(now);
            }
            (Input::Received(octets), State::Up(link)) => {
                link.incoming.extend_from_slice(octets);
                link.heard = now;
                self.read(others, now);
            }
            (Input::Closed, State::Connecting | State::Up(_)) => self.lost(Fault::Closed, now),
            (Input::Timeout, State::Down { next }) if *next <= now => self.connect(),
            (Input::Refresh, State::Down { .. }) => self.connect(),
            (Input::Timeout, State::Up(link)) if link.due() <= now => match link.stage {
                Stage::Resting { .. } => self.ask(now),
                Stage::Asked { .. } | Stage::Answering(_) => self.end(Fault::Stalled, &[], now),
            },
            (Input::Refresh, State::Up(link)) if matches!(link.stage, Stage::Resting { .. }) => self.ask(now),
            // Of a connection that has ended, too early, or without need.
            _ => {}
        }
    }

    /// What is to be done next; until `None`.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// What has changed of [`Client::data`]; until `None`. One comes with each End of Data, and may be empty.
    pub fn poll_delta(&mut self) -> Option<Delta> {
        self.deltas.pop_front()
    }

    /// When [`Input::Timeout`] is to be handed in.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let state = match &self.state {
            State::Down { next } => Some(*next),
            State::Connecting | State::Over => None,
            State::Up(link) => Some(link.due()),
        };
        state.into_iter().chain(self.expires()).min()
    }

    /// What the cache has said; `None` before it has said all of something, and after that has expired.
    pub fn data(&self) -> Option<&Dataset> {
        self.held.as_ref().map(|held| &held.data)
    }

    /// What is held, and what has come of an answer.
    pub(crate) fn sets(&self) -> impl Iterator<Item = &Dataset> {
        let answer = match &self.state {
            State::Up(link) => link.answer(),
            State::Down { .. } | State::Connecting | State::Over => None,
        };
        self.data().into_iter().chain(answer.map(Answer::announced))
    }

    /// What is left of it when it is not wanted any more.
    pub fn into_data(self) -> Option<Dataset> {
        self.held.map(|held| held.data)
    }

    /// Where the session is.
    pub fn phase(&self) -> Phase {
        match &self.state {
            State::Down { .. } | State::Over => Phase::Down,
            State::Connecting => Phase::Connecting,
            State::Up(link) => match link.stage {
                Stage::Asked { .. } | Stage::Answering(_) => Phase::Syncing,
                Stage::Resting { .. } if link.empty => Phase::Waiting,
                Stage::Resting { .. } => Phase::Established,
            },
        }
    }

    /// The version that was agreed upon, while there is a session.
    pub fn version(&self) -> Option<Version> {
        let State::Up(link) = &self.state else { return None };
        link.agreed.then_some(link.version)
    }

    /// Session ID and serial number of what is held.
    pub fn serial(&self) -> Option<(u16, Serial)> {
        self.held.as_ref().map(|held| (held.session, held.serial))
    }

    /// When the last End of Data came, of what is held.
    pub fn updated(&self) -> Option<Instant> {
        self.held.as_ref().map(|held| held.updated)
    }

    /// When what is held expires.
    pub fn expires(&self) -> Option<Instant> {
        self.held.as_ref().map(|held| held.expires)
    }

    /// The intervals in force.
    pub fn times(&self) -> Times {
        Times::new(&self.config, self.timing)
    }

    /// Why a session was lost the last time.
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// How often all was asked for.
    pub fn resets(&self) -> u64 {
        self.resets
    }

    /// How often a connection was asked for.
    pub fn connects(&self) -> u64 {
        self.connects
    }

    fn connect(&mut self) {
        self.state = State::Connecting;
        self.connects += 1;
        self.outputs.push_back(Output::Connect);
    }

    /// A Serial Query if there is something to go on from, in the same version (section 5.1), otherwise a Reset Query.
    fn ask(&mut self, now: Instant) {
        let State::Up(link) = &mut self.state else { return };
        let known = self.held.as_ref().filter(|held| held.version == link.version && !self.resync);
        let query = match known {
            Some(held) => Pdu::SerialQuery { session: held.session, serial: held.serial },
            None => {
                self.resets += 1;
                Pdu::ResetQuery
            }
        };
        link.heard = now;
        link.notified = None;
        link.stage = Stage::Asked { all: known.is_none() };
        let mut octets = Vec::new();
        query.write(link.version, &mut octets).expect("all versions have it");
        self.outputs.push_back(Output::Send(octets));
    }

    /// Takes PDUs off what has come, as long as there is a whole one.
    fn read(&mut self, others: &[&Dataset], now: Instant) {
        let State::Up(link) = &mut self.state else { return };
        let incoming = std::mem::take(&mut link.incoming);
        let mut rest = &incoming[..];
        loop {
            let frame = match Frame::split(rest) {
                Ok(Some((frame, after))) => {
                    rest = after;
                    frame
                }
                Ok(None) => break,
                // Its length cannot be relied upon: the header is all that is sent back.
                Err(fault) => {
                    return self.end(
                        fault.into(),
                        rest.first_chunk::<8>().map_or(rest, |header| header),
                        now,
                    );
                }
            };
            if let Err(fault) = self.take(frame, others, now) {
                return self.end(fault, frame.octets(), now);
            }
        }
        if let State::Up(link) = &mut self.state {
            link.incoming = rest.to_vec();
        }
    }

    fn take(&mut self, frame: Frame<'_>, others: &[&Dataset], now: Instant) -> Result<(), Fault> {
        let State::Up(link) = &mut self.state else { return Ok(()) };
        // Section 7: what comes before the versions are settled says nothing.
        if !link.agreed && frame.pdu_type() == PduType::SerialNotify.octet() {
            return Ok(());
        }
        let version = link.settle(frame)?;
        match frame.pdu(version)? {
            Pdu::SerialNotify { session, serial } => self.notified(session, serial, now),
            Pdu::CacheResponse { session } => {
                link.begin(session, self.held.as_ref().map(|held| held.session))
            }
            Pdu::Announce(record) => self.announced(record, others),
            Pdu::Withdraw(record) => self.withdrawn(record),
            Pdu::EndOfData { session, serial, timing } => self.end_of_data(session, serial, timing, now),
            Pdu::CacheReset => {
                link.reset()?;
                self.resync = true;
                self.ask(now);
                Ok(())
            }
            Pdu::ErrorReport(report) => self.reported(version, report, now),
            pdu @ (Pdu::SerialQuery { .. } | Pdu::ResetQuery) => Err(Fault::Unexpected(pdu.pdu_type())),
        }
    }

    fn notified(&mut self, session: u16, serial: Serial, now: Instant) -> Result<(), Fault> {
        let State::Up(link) = &mut self.state else { return Ok(()) };
        link.same_session(session)?;
        link.notified = Some(serial);
        if matches!(link.stage, Stage::Resting { .. }) {
            self.ask_if_notified(now);
        }
        Ok(())
    }

    /// A Serial Notify overrides the Refresh Interval (section 6), if there is something new. A cache that sends many
    /// brings about a query in a second.
    fn ask_if_notified(&mut self, now: Instant) {
        let State::Up(link) = &mut self.state else { return };
        let Some(notified) = link.notified else { return };
        if !self.resync && self.held.as_ref().is_some_and(|held| held.serial == notified) {
            link.notified = None;
            return;
        }
        let due = link.hastened.map_or(now, |at| at + BETWEEN_HASTENED);
        if due <= now {
            link.hastened = Some(now);
            self.ask(now);
        } else if let Stage::Resting { poll } = &mut link.stage {
            *poll = (*poll).min(due);
        }
    }

    fn announced(&mut self, record: Record, others: &[&Dataset]) -> Result<(), Fault> {
        self.record(record, |answer, held, record| answer.announce(held, others, record))
    }

    fn withdrawn(&mut self, record: Record) -> Result<(), Fault> {
        self.record(record, Answer::withdraw)
    }

    fn record(
        &mut self,
        record: Record,
        say: impl FnOnce(&mut Answer, &Dataset, Record) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let State::Up(link) = &mut self.state else { return Ok(()) };
        let Stage::Answering(answer) = &mut link.stage else {
            return Err(Fault::Unexpected(record.pdu_type()));
        };
        let nothing = Dataset::default();
        let held = self.held.as_ref().map_or(&nothing, |held| &held.data);
        say(answer, held, record)?;
        let limit = self.config.limit;
        if answer.weight(held) > limit { Err(Fault::TooMany(limit)) } else { Ok(()) }
    }

    fn end_of_data(
        &mut self,
        session: u16,
        serial: Serial,
        timing: Option<Timing>,
        now: Instant,
    ) -> Result<(), Fault> {
        let State::Up(link) = &mut self.state else { return Ok(()) };
        link.same_session(session)?;
        let timing = timing.unwrap_or(Timing::RECOMMENDED);
        let times = Times::new(&self.config, timing);
        let answer = link.finish(now + times.refresh)?;
        self.timing = timing;
        let version = link.version;
        let mut data = self.held.take().map(|held| held.data).unwrap_or_default();
        let delta = answer.complete(&mut data);
        let counts = data.counts();
        self.held = Some(Held { version, session, serial, data, updated: now, expires: now + times.expire });
        self.resync = false;
        self.deltas.push_back(delta);
        self.outputs.push_back(Output::Event(Event::Updated { version, serial, counts }));
        self.ask_if_notified(now);
        Ok(())
    }

    fn reported(&mut self, version: Version, report: ErrorReport, now: Instant) -> Result<(), Fault> {
        let retry = self.times().retry;
        let State::Up(link) = &mut self.state else { return Ok(()) };
        match report.code {
            // What is held stays until it expires; section 8.4 asks for Reset Queries from here on.
            ErrorCode::NoDataAvailable => {
                let news = link.no_data(version, now + retry)?;
                self.resync = true;
                self.outputs.extend(news.then_some(Output::Event(Event::NoData)));
                Ok(())
            }
            ErrorCode::UnsupportedProtocolVersion if !link.agreed => Err(Fault::Downgrade(link.version)),
            code => {
                let text = report.text.chars().take(MOST_TEXT).collect();
                // StayRTR says so that its session is another (section 5.1).
                Err(match link.is_difference() {
                    true => Fault::Desynchronized { code, text },
                    false => Fault::Reported { code, text },
                })
            }
        }
    }

    /// Ends a session that is up; the cache is told why, unless it was its own report.
    fn end(&mut self, fault: Fault, pdu: &[u8], now: Instant) {
        let State::Up(link) = &self.state else { return };
        let of_report = pdu.get(1) == Some(&PduType::ErrorReport.octet());
        if let Some(code) = fault.code().filter(|_| !of_report) {
            let report = ErrorReport { code, pdu: pdu.to_vec(), text: fault.to_string() };
            let mut octets = Vec::new();
            Pdu::ErrorReport(report).write(link.version, &mut octets).expect("it is cut to fit");
            self.outputs.push_back(Output::Send(octets));
        }
        self.outputs.push_back(Output::Close);
        if matches!(fault, Fault::Downgrade(_)) {
            let told = pdu.first().copied().and_then(Version::from_octet).filter(|told| *told < link.version);
            if let Some(lower) = told.or_else(|| link.version.lower()) {
                self.attempt = lower;
                self.state = State::Down { next: now };
                return;
            }
        }
        self.lost(fault, now);
    }

    /// There is no connection any more.
    fn lost(&mut self, fault: Fault, now: Instant) {
        self.attempt = self.config.version;
        if let State::Up(link) = &self.state {
            if now.saturating_duration_since(link.since) >= LASTING {
                self.failures = 0;
            }
            // Who knows only lower versions may hang up without a word (section 7).
            if fault == Fault::Closed && !link.agreed {
                self.attempt = link.version.lower().unwrap_or(self.config.version);
            }
        }
        self.resync |= !fault.leaves_serial();
        if let Fault::Session { .. } = fault {
            self.flush();
        }
        let wait = match fault.again() {
            // That of the lowest version: there is none left.
            Again::AtOnce | Again::AfterRetry => self.times().retry,
            Again::Soon => Duration::from_secs(1 << self.failures.min(16)).min(self.times().retry),
        };
        self.failures = self.failures.saturating_add(1);
        self.state = State::Down { next: now + wait };
        self.outputs.push_back(Output::Event(Event::Lost(fault.clone())));
        self.fault = Some(fault);
    }

    /// Section 6: data must not be kept past their time.
    fn expire(&mut self, now: Instant) {
        if self.held.as_ref().is_none_or(|held| held.expires > now) {
            return;
        }
        self.flush();
        self.outputs.push_back(Output::Event(Event::Expired));
        match &self.state {
            State::Up(link) if link.is_difference() => self.end(Fault::Expired, &[], now),
            State::Up(link) if matches!(link.stage, Stage::Resting { .. }) => self.ask(now),
            State::Up(_) | State::Connecting | State::Down { .. } | State::Over => {}
        }
    }

    fn flush(&mut self) {
        if let Some(held) = self.held.take() {
            self.deltas.push_back(Delta { announced: Dataset::default(), withdrawn: held.data });
        }
    }
}
