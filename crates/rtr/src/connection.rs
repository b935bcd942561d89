//! A router at a cache.

use std::time::{Duration, Instant};

use holdfast_rtr_wire::{ErrorCode, ErrorReport, Frame, Malformed, Pdu, PduType, Serial, Version};

use crate::{
    Cache, Fault,
    walk::{Told, Walk},
};

/// How long a router may take to ask for the first time.
const FIRST_QUERY: Duration = Duration::from_secs(60);

/// How long it may take to read an answer, for which all data of that time are kept.
const READING: Duration = Duration::from_secs(600);

/// Octets that are written at once.
const CHUNK: usize = 64 * 1024;

/// Characters of a router's diagnostic text that are kept.
const MOST_TEXT: usize = 200;

/// What is to be done for a router.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Write; what comes next is for when that is done.
    Send(Vec<u8>),
    /// Close.
    Close,
}

/// The cache's half of the protocol with one router.
///
/// A slow router costs a chunk of 64 KiB and what it was told at the time it asked; one that takes longer than ten minutes
/// for an answer is given up, as is one that asks nothing within a minute. Nothing is read while an answer is written.
///
/// A router that comes with a Session ID that is not the cache's, which has begun anew, is told with a Cache Reset to ask
/// for all; RFC 8210 section 5.1 has the session ended only where the ID changes after the first query.
#[derive(Debug)]
pub struct Connection {
    /// Once a query has said it.
    version: Option<Version>,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    answer: Option<Answer>,
    /// What the router knows of, or was told of.
    known: Option<Serial>,
    /// No Serial Notify before.
    notify: Instant,
    deadline: Option<Instant>,
    closing: bool,
    fault: Option<Fault>,
}

#[derive(Debug)]
struct Answer {
    walk: Walk,
    session: u16,
    serial: Serial,
}

impl Connection {
    /// A router has connected.
    pub fn new(now: Instant) -> Self {
        Self {
            version: None,
            incoming: Vec::new(),
            outgoing: Vec::new(),
            answer: None,
            known: None,
            notify: now,
            deadline: Some(now + FIRST_QUERY),
            closing: false,
            fault: None,
        }
    }

    /// Whether more may be read from it now.
    pub fn wants_octets(&self) -> bool {
        self.answer.is_none() && self.outgoing.is_empty() && !self.closing
    }

    /// Takes in what the router says.
    pub fn received(&mut self, cache: &mut Cache, octets: &[u8], now: Instant) {
        self.incoming.extend_from_slice(octets);
        self.read(cache, now);
    }

    /// What is to be done next; until `None`. Something may come of it as well when the cache publishes.
    pub fn poll_reply(&mut self, cache: &mut Cache, now: Instant) -> Option<Reply> {
        self.fill(cache);
        if self.wants_octets() {
            self.read(cache, now);
            self.fill(cache);
        }
        if now >= self.notify {
            self.notify(cache, now);
        }
        if !self.outgoing.is_empty() {
            return Some(Reply::Send(std::mem::take(&mut self.outgoing)));
        }
        self.closing.then_some(Reply::Close)
    }

    /// When [`Connection::handle_timeout`] is to be called.
    pub fn poll_timeout(&self, cache: &Cache) -> Option<Instant> {
        let notify = self.has_news(cache).then_some(self.notify);
        self.deadline.into_iter().chain(notify).min()
    }

    /// Takes in that time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.answer = None;
            self.outgoing.clear();
            self.closing = true;
            self.fault = Some(Fault::Stalled);
            self.deadline = None;
        }
    }

    /// Why it ended.
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// The version that it speaks.
    pub fn version(&self) -> Option<Version> {
        self.version
    }

    fn has_news(&self, cache: &Cache) -> bool {
        let news = cache.data().is_some() && self.known != Some(cache.serial());
        news && self.version.is_some() && self.wants_octets()
    }

    fn notify(&mut self, cache: &Cache, now: Instant) {
        let Some(version) = self.version.filter(|_| self.has_news(cache)) else { return };
        let serial = cache.serial();
        self.put(version, &Pdu::SerialNotify { session: cache.session(version), serial });
        self.known = Some(serial);
        self.notify = now + cache.config().notify;
    }

    /// Queries, one after the other, as long as there is nothing to be written.
    fn read(&mut self, cache: &mut Cache, now: Instant) {
        let incoming = std::mem::take(&mut self.incoming);
        let mut rest = &incoming[..];
        while self.wants_octets() {
            let frame = match Frame::split(rest) {
                Ok(Some((frame, after))) => {
                    rest = after;
                    frame
                }
                Ok(None) => break,
                Err(fault) => {
                    self.end(cache, fault.into(), rest.first_chunk::<8>().map_or(rest, |header| header));
                    break;
                }
            };
            if let Err(fault) = self.take(cache, frame, now) {
                self.end(cache, fault, frame.octets());
            }
        }
        self.incoming = rest.to_vec();
    }

    fn take(&mut self, cache: &mut Cache, frame: Frame<'_>, now: Instant) -> Result<(), Fault> {
        let version = self.settle(cache, frame)?;
        match frame.pdu(version)? {
            Pdu::SerialQuery { session, serial } => {
                let known = self.version.replace(version).is_some();
                let ours = cache.session(version);
                if session != ours && known {
                    return Err(Fault::Session { ours, theirs: session });
                }
                let told = (session == ours).then(|| cache.since(serial)).flatten().map(Told::Changes);
                self.answer(cache, version, told, now);
            }
            Pdu::ResetQuery => {
                self.version = Some(version);
                let told = cache.shared().map(Told::All);
                self.answer(cache, version, told, now);
            }
            Pdu::ErrorReport(ErrorReport { code, text, .. }) => {
                return Err(Fault::Reported { code, text: text.chars().take(MOST_TEXT).collect() });
            }
            other => return Err(Fault::Unexpected(other.pdu_type())),
        }
        Ok(())
    }

    /// RFC 8210 section 7: the first query settles the version, which has to be one of the cache's.
    fn settle(&self, cache: &Cache, frame: Frame<'_>) -> Result<Version, Fault> {
        let version = Version::from_octet(frame.version());
        if frame.pdu_type() == PduType::ErrorReport.octet() {
            return Ok(version.unwrap_or(cache.config().version));
        }
        match (version, self.version) {
            (Some(version), None) if version <= cache.config().version => Ok(version),
            (_, None) => Err(Malformed::Version(frame.version()).into()),
            (Some(version), Some(agreed)) if version == agreed => Ok(version),
            (_, Some(_)) => Err(Fault::Version(frame.version())),
        }
    }

    /// Without data, says so; without a way from where the router is, has it ask for all.
    fn answer(&mut self, cache: &Cache, version: Version, told: Option<Told>, now: Instant) {
        self.deadline = None;
        let (session, serial) = (cache.session(version), cache.serial());
        match told {
            _ if cache.data().is_none() => {
                let text = "no data yet".into();
                let report = ErrorReport { code: ErrorCode::NoDataAvailable, pdu: Vec::new(), text };
                self.put(version, &Pdu::ErrorReport(report));
            }
            None => {
                self.put(version, &Pdu::CacheReset);
                self.known = Some(serial);
            }
            Some(told) => {
                self.put(version, &Pdu::CacheResponse { session });
                self.answer = Some(Answer { walk: Walk::new(told, version), session, serial });
                self.known = Some(serial);
                self.deadline = Some(now + READING);
            }
        }
    }

    /// Writes of the answer until there is enough, and its end.
    fn fill(&mut self, cache: &Cache) {
        let (Some(answer), Some(version)) = (&mut self.answer, self.version) else { return };
        while self.outgoing.len() < CHUNK {
            let Some(pdu) = answer.walk.next() else {
                let timing = Some(cache.config().timing);
                let end = Pdu::EndOfData { session: answer.session, serial: answer.serial, timing };
                self.answer = None;
                self.deadline = None;
                return self.put(version, &end);
            };
            // A walk says only what the version has; `Cache::publish` says what becomes of what no PDU can hold.
            let _ = pdu.write(version, &mut self.outgoing);
        }
    }

    fn put(&mut self, version: Version, pdu: &Pdu) {
        pdu.write(version, &mut self.outgoing).expect("all versions have it, and it is short or cut");
    }

    fn end(&mut self, cache: &Cache, fault: Fault, pdu: &[u8]) {
        let code = match fault {
            // What is wrong with a cache is a wrong request when a router says it.
            Fault::Unexpected(_) => Some(ErrorCode::InvalidRequest),
            _ => fault.code(),
        };
        if let Some(code) = code.filter(|_| pdu.get(1) != Some(&PduType::ErrorReport.octet())) {
            let report = ErrorReport { code, pdu: pdu.to_vec(), text: fault.to_string() };
            self.put(self.version.unwrap_or(cache.config().version), &Pdu::ErrorReport(report));
        }
        self.closing = true;
        self.deadline = None;
        self.fault = Some(fault);
    }
}
