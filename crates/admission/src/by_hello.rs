use std::time::Instant;

use holdfast_tls_wire::Protocols;

use crate::{Attempt, Hello, Stage, Verdict};

/// Refuses who asks for what is not there, and lets who has priority pass while the most handshakes are under way. Where
/// the first flight can be waited for, it is. Who could not be looked at passes: TLS will say what it asks for.
#[derive(Clone, Debug)]
pub struct ByHello {
    protocols: Vec<Vec<u8>>,
    server_names: Vec<String>,
    priority: Vec<Vec<u8>>,
    /// There is no room for others any more.
    full: usize,
    /// There is no room for anybody any more.
    over_full: usize,
}

impl ByHello {
    /// For these protocols (ALPN); none: for any.
    pub fn new(protocols: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Self {
            protocols: protocols.into_iter().collect(),
            server_names: Vec::new(),
            priority: Vec::new(),
            full: usize::MAX,
            over_full: usize::MAX,
        }
    }

    /// For these servers only (SNI), in any case of letters. Who names none passes: that is no wrong name.
    #[must_use]
    pub fn server_names(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.server_names = names.into_iter().collect();
        self
    }

    /// These protocols may have a quarter more than the most handshakes, and one at least; the stages behind this one are
    /// not asked then.
    #[must_use]
    pub fn priority(mut self, protocols: impl IntoIterator<Item = Vec<u8>>, most_handshakes: usize) -> Self {
        self.priority = protocols.into_iter().collect();
        let more = if self.priority.is_empty() { 0 } else { (most_handshakes / 4).max(1) };
        (self.full, self.over_full) = (most_handshakes, most_handshakes.saturating_add(more));
        self
    }

    fn wants_name(&self, name: &str) -> bool {
        self.server_names.is_empty()
            || self.server_names.iter().any(|wanted| wanted.eq_ignore_ascii_case(name))
    }
}

impl Stage for ByHello {
    fn name(&self) -> &'static str {
        "hello"
    }

    fn judge(&mut self, attempt: &mut dyn Attempt, _: Instant) -> Verdict {
        let handshakes = attempt.load().handshakes;
        // Whatever it says, it is turned away: not worth a look.
        if handshakes >= self.over_full {
            return Verdict::Next;
        }
        if attempt.awaits_hello() {
            return Verdict::Wait(self.name());
        }
        let Hello::Known { alpn, server_name } = attempt.hello() else { return Verdict::Next };
        if !self.protocols.is_empty() && !any_of(&self.protocols, alpn) {
            return Verdict::Refuse("none of the protocols that it offers (ALPN) is spoken here");
        }
        if server_name.is_some_and(|name| !self.wants_name(name)) {
            return Verdict::Refuse("the server that it asks for (SNI) is not here");
        }
        if handshakes >= self.full && any_of(&self.priority, alpn) { Verdict::Accept } else { Verdict::Next }
    }
}

fn any_of(protocols: &[Vec<u8>], offered: &[u8]) -> bool {
    Protocols::new(offered).any(|name| protocols.iter().any(|protocol| protocol == name))
}
