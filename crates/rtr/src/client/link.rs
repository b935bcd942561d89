//! A connection with a cache, and what was asked over it.

use std::time::Instant;

use holdfast_rtr_wire::{Frame, Malformed, PduType, Serial, Version};

use super::SILENCE;
use crate::{Dataset, Delta, Fault, answer::Answer};

#[derive(Debug)]
pub(super) enum Stage {
    /// No Cache Response has come yet.
    Asked { all: bool },
    /// Records come.
    Answering(Answer),
    /// Between polls. Nothing is owed.
    Resting { poll: Instant },
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) version: Version,
    /// The cache has answered in that version: it is settled (RFC 8210 section 7).
    pub(super) agreed: bool,
    /// Once a Cache Response has said it.
    session: Option<u16>,
    pub(super) stage: Stage,
    /// Less than a PDU, between two inputs.
    pub(super) incoming: Vec<u8>,
    /// When octets came the last time, or something was asked.
    pub(super) heard: Instant,
    pub(super) since: Instant,
    /// There may be something new since what is being answered.
    pub(super) notified: Option<Serial>,
    /// When a notify has brought a query about the last time.
    pub(super) hastened: Option<Instant>,
    /// The cache has said that it has no data, and nothing else since.
    pub(super) empty: bool,
}

impl Link {
    pub(super) fn new(version: Version, now: Instant) -> Self {
        Self {
            version,
            agreed: false,
            session: None,
            stage: Stage::Asked { all: true },
            incoming: Vec::new(),
            heard: now,
            since: now,
            notified: None,
            hastened: None,
            empty: false,
        }
    }

    pub(super) fn due(&self) -> Instant {
        match self.stage {
            Stage::Asked { .. } | Stage::Answering(_) => self.heard + SILENCE,
            Stage::Resting { poll } => poll,
        }
    }

    pub(super) fn answer(&self) -> Option<&Answer> {
        match &self.stage {
            Stage::Answering(answer) => Some(answer),
            Stage::Asked { .. } | Stage::Resting { .. } => None,
        }
    }

    pub(super) fn is_difference(&self) -> bool {
        matches!(self.stage, Stage::Asked { all: false } | Stage::Answering(Answer::Difference(_)))
    }

    /// Section 7: the version of the cache's first answer is that of the session, if it is not higher than ours. Error
    /// Reports settle nothing, and are read in any version.
    pub(super) fn settle(&mut self, frame: Frame<'_>) -> Result<Version, Fault> {
        let version = Version::from_octet(frame.version());
        if frame.pdu_type() == PduType::ErrorReport.octet() {
            return Ok(version.unwrap_or(self.version));
        }
        match version {
            Some(version) if version == self.version => {}
            Some(version) if !self.agreed && version < self.version => {
                // Serial numbers of one version mean nothing in another (section 5.1).
                if self.is_difference() {
                    return Err(Fault::Downgrade(self.version));
                }
                self.version = version;
            }
            _ if self.agreed => return Err(Fault::Version(frame.version())),
            _ => return Err(Malformed::Version(frame.version()).into()),
        }
        self.agreed = true;
        Ok(self.version)
    }

    pub(super) fn same_session(&self, theirs: u16) -> Result<(), Fault> {
        match self.session {
            Some(ours) if ours != theirs => Err(Fault::Session { ours, theirs }),
            _ => Ok(()),
        }
    }

    /// A Cache Response.
    pub(super) fn begin(&mut self, session: u16, held: Option<u16>) -> Result<(), Fault> {
        let Stage::Asked { all } = self.stage else { return Err(Fault::Unexpected(PduType::CacheResponse)) };
        let answer = if all {
            Answer::Full(Dataset::default())
        } else {
            if let Some(ours) = held.filter(|ours| *ours != session) {
                return Err(Fault::Session { ours, theirs: session });
            }
            Answer::Difference(Delta::default())
        };
        self.session = Some(session);
        self.stage = Stage::Answering(answer);
        Ok(())
    }

    /// A Cache Reset, which answers Serial Queries only.
    pub(super) fn reset(&self) -> Result<(), Fault> {
        match self.stage {
            Stage::Asked { all: false } => Ok(()),
            _ => Err(Fault::Unexpected(PduType::CacheReset)),
        }
    }

    /// No Data Available, which answers queries only (section 8.4). Whether that is news.
    pub(super) fn no_data(&mut self, version: Version, poll: Instant) -> Result<bool, Fault> {
        if let Stage::Resting { .. } = self.stage {
            return Err(Fault::Unexpected(PduType::ErrorReport));
        }
        if !self.agreed {
            self.version = self.version.min(version);
        }
        self.agreed = true;
        self.stage = Stage::Resting { poll };
        Ok(!std::mem::replace(&mut self.empty, true))
    }

    /// An End of Data.
    pub(super) fn finish(&mut self, poll: Instant) -> Result<Answer, Fault> {
        self.empty = false;
        match std::mem::replace(&mut self.stage, Stage::Resting { poll }) {
            Stage::Answering(answer) => Ok(answer),
            Stage::Asked { .. } | Stage::Resting { .. } => Err(Fault::Unexpected(PduType::EndOfData)),
        }
    }
}
