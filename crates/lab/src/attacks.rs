//! Attacks on running sessions by somebody on the same segment: resets, injected messages, replays.
//!
//! Two routers have a session over every [`Transport`] at once, on a segment where everybody hears everything ([`hub`]).
//! A third host hears them ([`attacker`]) and sends packets that look as if r2 had sent them to r1 ([`packet`],
//! [`forge`]). What each attack did to each session is what r1 says of it ([`scene`]).

pub mod attacker;
pub mod forge;
pub mod hub;
pub mod initial;
pub mod packet;
pub mod scene;

use std::fmt::Write as _;

/// What carries a session that is attacked.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Transport {
    /// TCP with nothing to protect it.
    Tcp,
    /// TCP with RFC 2385's option.
    TcpMd5,
    /// TLS on TCP.
    Tls,
    /// TLS on TCP with RFC 2385's option.
    TlsMd5,
    /// QUIC by noq.
    Quic,
    /// QUIC by s2n-quic.
    QuicS2n,
}

impl Transport {
    /// All of them, in the order of the table's columns.
    pub const ALL: [Self; 6] = [Self::Tcp, Self::TcpMd5, Self::Tls, Self::TlsMd5, Self::Quic, Self::QuicS2n];

    /// Name of the peer that uses it, and of the column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::TcpMd5 => "tcp-md5",
            Self::Tls => "tls",
            Self::TlsMd5 => "tls-md5",
            Self::Quic => "quic",
            Self::QuicS2n => "quic-s2n",
        }
    }

    /// The word for it in the configuration.
    pub fn word(self) -> &'static str {
        match self {
            Self::Tcp | Self::TcpMd5 => "tcp",
            Self::Tls | Self::TlsMd5 => "tls",
            Self::Quic => "quic",
            Self::QuicS2n => "quic-s2n",
        }
    }

    /// Whether its segments carry a digest.
    pub fn has_md5(self) -> bool {
        matches!(self, Self::TcpMd5 | Self::TlsMd5)
    }

    /// Whether both ends show certificates.
    pub fn has_tls(self) -> bool {
        !matches!(self, Self::Tcp | Self::TcpMd5)
    }

    /// Whether it runs on UDP.
    pub fn is_quic(self) -> bool {
        matches!(self, Self::Quic | Self::QuicS2n)
    }
}

/// What is done to every session. The order is that of the table's rows and of the test.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Attack {
    /// Resets by somebody who knows addresses and ports and guesses the rest.
    GuessedReset,
    /// A reset by somebody who hears the session.
    ExactReset,
    /// A message that ends the session.
    Close,
    /// A message that announces a route.
    Route,
    /// Everything that r2 has sent, once more.
    Replay,
}

impl Attack {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::GuessedReset, Self::ExactReset, Self::Close, Self::Route, Self::Replay];

    /// The row's name.
    pub fn title(self) -> &'static str {
        match self {
            Self::GuessedReset => "resets by guess",
            Self::ExactReset => "exact reset",
            Self::Close => "false end of the session",
            Self::Route => "false route",
            Self::Replay => "replay",
        }
    }

    /// What comes of it where everything is as it should be, and as the page says.
    pub fn expected(self, transport: Transport) -> Outcome {
        match (self, transport) {
            (Self::ExactReset | Self::Close, Transport::Tcp | Transport::Tls)
            | (Self::Route, Transport::Tls) => Outcome::Down,
            (Self::Route, Transport::Tcp) => Outcome::FalseRoute,
            _ => Outcome::Unharmed,
        }
    }
}

/// What an attack has done to a session.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is up, has been all the time, and brings routes.
    Unharmed,
    /// It went down.
    Down,
    /// r1 has taken a route that r2 has not announced.
    FalseRoute,
}

impl Outcome {
    /// The words of a cell.
    pub fn words(self) -> &'static str {
        match self {
            Self::Unharmed => "no effect",
            Self::Down => "**session lost**",
            Self::FalseRoute => "**route accepted**",
        }
    }
}

/// What was seen of an attack, by transport.
pub type Row = (Attack, Vec<(Transport, Outcome)>);

/// The table of the manual's page.
pub fn table(rows: &[Row]) -> String {
    let columns = rows.first().map_or(&[][..], |(_, cells)| cells);
    let mut table = String::from("| |");
    for (transport, _) in columns {
        let _ = write!(table, " {} |", transport.name());
    }
    table.push_str("\n|---|");
    table.push_str(&"---|".repeat(columns.len()));
    for (attack, cells) in rows {
        let _ = write!(table, "\n| {} |", attack.title());
        for (_, outcome) in cells {
            let _ = write!(table, " {} |", outcome.words());
        }
    }
    table.push('\n');
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_row_for_each_attack() {
        let cells = vec![(Transport::Tcp, Outcome::Down), (Transport::Quic, Outcome::Unharmed)];
        let rows = [(Attack::ExactReset, cells)];
        let wanted = "| | tcp | quic |\n|---|---|---|\n| exact reset | **session lost** | no effect |\n";
        assert_eq!(table(&rows), wanted);
    }
}
