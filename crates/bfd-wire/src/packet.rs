//! What a Control packet says.

use std::fmt;

/// State of a session (RFC 5880 section 4.1).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum State {
    /// Held down by an operator.
    AdminDown = 0,
    /// No packets arrive, or the neighbour says that none do.
    #[default]
    Down = 1,
    /// Packets of the neighbour arrive.
    Init = 2,
    /// Packets arrive in both directions.
    Up = 3,
}

impl State {
    /// The state of the two lowest bits.
    pub fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::AdminDown,
            1 => Self::Down,
            2 => Self::Init,
            _ => Self::Up,
        }
    }
}

/// As operators of BFD know them.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AdminDown => "AdminDown",
            Self::Down => "Down",
            Self::Init => "Init",
            Self::Up => "Up",
        })
    }
}

/// Why the state was changed last (RFC 5880 section 4.1): five bits.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Diagnostic(u8);

impl Diagnostic {
    /// 0.
    pub const NONE: Self = Self(0);
    /// 1: no packet came for the detection time.
    pub const DETECTION_TIME_EXPIRED: Self = Self(1);
    /// 3: the neighbour has said Down or AdminDown.
    pub const NEIGHBOR_SIGNALED_DOWN: Self = Self(3);
    /// 5: the interface is down.
    pub const PATH_DOWN: Self = Self(5);
    /// 7: an operator, or the last who followed the session, has ended it.
    pub const ADMINISTRATIVELY_DOWN: Self = Self(7);

    /// The diagnostic of the five lowest bits.
    pub fn from_bits(bits: u8) -> Self {
        Self(bits & 31)
    }

    /// Its number.
    pub fn bits(self) -> u8 {
        self.0
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            0 => "ok",
            1 => "control detection time expired",
            2 => "echo function failed",
            3 => "neighbor signaled session down",
            4 => "forwarding plane reset",
            5 => "path down",
            6 => "concatenated path down",
            7 => "administratively down",
            8 => "reverse concatenated path down",
            other => return write!(f, "diagnostic {other}"),
        })
    }
}

/// The bits of the second octet that are neither state nor authentication.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Flags {
    /// P: the sender wants an answer with F.
    pub poll: bool,
    /// F: the answer to a packet with P.
    pub is_final: bool,
    /// C: the sender's BFD does not share the fate of its control plane.
    pub control_plane_independent: bool,
    /// D: the sender wants no periodic packets.
    pub demand: bool,
}

/// The mandatory section of a Control packet. Times are in microseconds.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Packet {
    /// Why the sender's state was changed last.
    pub diagnostic: Diagnostic,
    /// The sender's state.
    pub state: State,
    /// Bits.
    pub flags: Flags,
    /// So many packets in a row may be lost; not 0.
    pub detect_multiplier: u8,
    /// The sender's number of the session; not 0.
    pub my_discriminator: u32,
    /// The receiver's number of the session; 0 as long as the sender does not know it.
    pub your_discriminator: u32,
    /// The sender would like to send no more often than once in this time.
    pub desired_min_tx: u32,
    /// The sender can receive a packet once in this time; 0: it wants none.
    pub required_min_rx: u32,
    /// The sender sends Echo packets back once in this time; 0: it sends none back.
    pub required_min_echo_rx: u32,
}

/// A packet of a session that is down, without a discriminator yet.
impl Default for Packet {
    fn default() -> Self {
        Self {
            diagnostic: Diagnostic::NONE,
            state: State::Down,
            flags: Flags::default(),
            detect_multiplier: 3,
            my_discriminator: 0,
            your_discriminator: 0,
            desired_min_tx: 1_000_000,
            required_min_rx: 1_000_000,
            required_min_echo_rx: 0,
        }
    }
}
