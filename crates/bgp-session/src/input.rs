//! What can happen to a session, and what the operator or the system wants of it.

use std::{fmt, io, time::Duration};

use holdfast_bgp_wire::{CeaseSubcode, MessageType, Notification};
use holdfast_types::Family;

use crate::Counted;

/// A transport connection of one peer. The driver numbers those it accepts (below
/// [`ConnId::FIRST_DIALLED`]), the peer those it dials (from there on); a number is not used again
/// while its connection lives.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u32);

impl ConnId {
    /// The first number that [`Output::Connect`](crate::Output::Connect) uses.
    pub const FIRST_DIALLED: Self = Self(1 << 31);

    /// Whether we dialled it.
    pub fn is_dialled(self) -> bool {
        self >= Self::FIRST_DIALLED
    }
}

/// Everything that can happen. What names a connection that is no longer known is ignored: it crossed
/// our closing it.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// ManualStart (event 1 or 4): leaves Idle at once, also when it is held there.
    Start,
    /// ManualStop or AutomaticStop (events 2 and 8). What happens next depends on the reason.
    Stop(StopReason),
    /// There is a sign of life of the peer: where nothing is tried now, a connection is, without waiting for
    /// ConnectRetryTimer. Who is held in Idle stays there.
    Heard,
    /// The peer connected to us (event 17).
    Accepted(ConnId),
    /// What [`Output::Connect`](crate::Output::Connect) asked for is there (event 16).
    Connected(ConnId),
    /// It could not be had (event 18), with the reason for the operator. The driver has released the
    /// connection.
    ConnectFailed(ConnId, &'a str),
    /// The connection ended (event 18): the peer closed it (`None`) or it broke. The driver has
    /// released it; no `Close` follows.
    Closed(ConnId, Option<io::ErrorKind>),
    /// A message, framed by [`holdfast_bgp_wire::next_message`], without its header (events 19, 22
    /// and 24 to 27).
    Message(ConnId, MessageType, &'a [u8]),
    /// The same, of one that another process has taken in and counted.
    Replayed(ConnId, MessageType, &'a [u8]),
    /// What was received is no message (event 21).
    FramingError(ConnId, Notification),
    /// The pipeline cannot go on with what an UPDATE or ROUTE-REFRESH said (event 28).
    UpdateRefused(ConnId, Notification),
    /// The pipeline has read the peer's End-of-RIB (RFC 4724 section 2).
    EndOfRib(Family),
    /// A BoRR of the Established session (RFC 7313): the peer begins to announce everything of a family again.
    BeginRefresh(Family),
    /// An EoRR: it has done so.
    EndRefresh(Family),
    /// The machine has slept for so long, which its clock did not count: the peer's timers have gone on, and so do ours.
    Slept(Duration),
    /// The link to the peer carries nothing, or is another one: what an ended session has left leads nowhere. A connection over that
    /// link is reported as [`Self::Closed`], with [`io::ErrorKind::NetworkDown`].
    LinkDown,
    /// What BFD says of the path to the peer (events 30 to 32 of draft-ietf-idr-bgp-bfd-strict-mode section 4).
    Bfd(Bfd),
    /// The transport took some of what was queued for the connection: it is not stuck (RFC 9687).
    Sent(ConnId),
    /// The time of [`Peer::poll_timeout`](crate::Peer::poll_timeout) has come.
    Timeout,
}

/// What BFD says of the path to the peer (RFC 5880 section 6.2), and what a session makes of it (RFC 5882).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Bfd {
    /// Nothing: nobody has said anything yet.
    #[default]
    Unknown,
    /// One end is down on purpose, which says nothing of the path (RFC 5882 section 3.2).
    AdminDown,
    /// It is not up. Where it was, packets do not arrive.
    Down {
        /// BFD at the peer goes on when its control plane does not (the C bit): it is no restart of BGP that ended it.
        independent: bool,
    },
    /// Packets arrive, in both directions.
    Up,
}

/// What the driver does with the message it handed in.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Nothing: it has been dealt with.
    Done,
    /// It is an UPDATE or ROUTE-REFRESH of the Established session: it goes to the pipeline.
    Deliver,
}

/// Why a session is stopped; it becomes the Cease NOTIFICATION (RFC 4486, RFC 9003).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The operator shuts the peer down; the text goes to the peer. Idle until `Start`.
    AdminShutdown(String),
    /// The operator resets the session; the text goes to the peer. It comes up again.
    AdminReset(String),
    /// The peer is taken out of the configuration. Idle until `Start`.
    PeerDeconfigured,
    /// Another change of configuration needs a new session. It comes up again.
    OtherConfigChange,
    /// There are more prefixes than there may be: of the peer's, or of ours for it.
    MaxPrefixes {
        /// Of which family.
        family: Family,
        /// Which of them were counted.
        counted: Counted,
        /// How many there may be.
        limit: u32,
        /// After which time it is tried again; `None`: Idle until `Start`.
        restart: Option<Duration>,
    },
    /// The peer has us keep more octets than there may be.
    MaxOctets {
        /// How many there may be.
        limit: u64,
    },
    /// Others wait for it longer than they may.
    MaxCost {
        /// The share of the time of a core during which others may wait for it, in per cent.
        percent: u32,
    },
    /// We lack memory or the like. It is tried again, with back-off.
    OutOfResources,
}

/// What follows a stop.
pub(crate) enum AfterStop {
    /// Idle until `Start`.
    Stay,
    /// Idle for the first pause of the back-off.
    Restart,
    /// As after a failure.
    BackOff,
    /// Idle for a pause of this length.
    RestartAfter(Duration),
}

impl StopReason {
    pub(crate) fn notification(&self) -> Notification {
        match self {
            Self::AdminShutdown(text) => {
                Notification::cease_with_text(CeaseSubcode::AdministrativeShutdown, text)
            }
            Self::AdminReset(text) => Notification::cease_with_text(CeaseSubcode::AdministrativeReset, text),
            Self::PeerDeconfigured => Notification::cease(CeaseSubcode::PeerDeconfigured),
            Self::OtherConfigChange => Notification::cease(CeaseSubcode::OtherConfigurationChange),
            Self::MaxPrefixes { family, limit, .. } => Notification::maximum_prefixes(*family, *limit),
            Self::MaxOctets { .. } | Self::MaxCost { .. } | Self::OutOfResources => {
                Notification::cease(CeaseSubcode::OutOfResources)
            }
        }
    }

    /// Whether routes of the session are of no use any more, on either side.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::AdminShutdown(_) | Self::AdminReset(_) | Self::PeerDeconfigured => true,
            Self::OtherConfigChange | Self::MaxPrefixes { .. } => true,
            Self::MaxOctets { .. } | Self::MaxCost { .. } => true,
            Self::OutOfResources => false,
        }
    }

    pub(crate) fn after(&self) -> AfterStop {
        match self {
            Self::AdminShutdown(_) | Self::PeerDeconfigured => AfterStop::Stay,
            Self::AdminReset(_) | Self::OtherConfigChange => AfterStop::Restart,
            Self::MaxOctets { .. } | Self::MaxCost { .. } | Self::OutOfResources => AfterStop::BackOff,
            Self::MaxPrefixes { restart, .. } => restart.map_or(AfterStop::Stay, AfterStop::RestartAfter),
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AdminShutdown(text) => with_text(f, "administrative shutdown", text),
            Self::AdminReset(text) => with_text(f, "administrative reset", text),
            Self::PeerDeconfigured => f.write_str("peer removed from the configuration"),
            Self::OtherConfigChange => f.write_str("configuration changed"),
            Self::MaxPrefixes { family, counted, limit, .. } => {
                write!(f, "more than {limit} prefixes of {family} {counted}")
            }
            Self::MaxOctets { limit } => write!(f, "more than {limit} octets kept for it"),
            Self::MaxCost { percent } => {
                write!(f, "others waited for it during more than {percent} % of a core's time")
            }
            Self::OutOfResources => f.write_str("out of resources"),
        }
    }
}

fn with_text(f: &mut fmt::Formatter<'_>, what: &str, text: &str) -> fmt::Result {
    match text {
        "" => f.write_str(what),
        text => write!(f, "{what}: {text:?}"),
    }
}
