//! Which RPKI caches are asked, and what holds whatever they say.

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use super::{Transport, Trust};

/// What caches say, and local exceptions to it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rpki {
    /// `exceptions`: files with local exceptions (RFC 8416), each once.
    pub exceptions: Vec<ExceptionsFile>,
    /// `[[rpki.cache]]`: names are unique.
    pub caches: Vec<Cache>,
}

/// A file with local exceptions, and what it holds.
#[derive(Clone, PartialEq, Eq)]
pub struct ExceptionsFile {
    /// As in the configuration.
    pub file: String,
    /// JSON. Empty where nobody has read it ([`crate::parse`]).
    pub text: Arc<str>,
}

impl fmt::Debug for ExceptionsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ExceptionsFile").field(&self.file).finish()
    }
}

/// A cache that is asked over RTR.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cache {
    /// For the operator.
    pub name: String,
    /// Where it listens.
    pub address: IpAddr,
    /// 323 by default, over TLS 324 (RFC 8210 section 9).
    pub port: u16,
    /// Our end of the connection, of the cache's family; chosen by the kernel if there is none.
    pub local_address: Option<IpAddr>,
    /// The lowest of those that have data is used; 100 by default.
    pub preference: u16,
    /// The highest version of RTR to begin with: 0, 1 or 2.
    pub version: u8,
    /// In place of what the cache says (RFC 8210 section 6).
    pub refresh: Option<Duration>,
    /// The same for attempts after one that failed.
    pub retry: Option<Duration>,
    /// The same for how long data are used without news; longer than the others.
    pub expire: Option<Duration>,
    /// TCP or TLS; TCP by default.
    pub transport: Transport,
    /// What it has to prove over TLS: never nothing there.
    pub trust: Trust,
}

impl Cache {
    /// What those who connect it call it: no name of a BGP peer has a space.
    pub fn peer_name(&self) -> String {
        format!("cache {}", self.name)
    }
}
