//! A session in a few octets, for the process that goes on with it.

use std::net::IpAddr;

use holdfast_bfd_wire::{Diagnostic, State};

use crate::{Hops, Path, Session, authentication::Sequence, session::Remote, timing::Timing};

/// Octets of a session.
pub const FROZEN: usize = 120;

/// The format of these octets. A process that finds another one begins all sessions anew.
pub const FORMAT: u32 = 1;

const FAMILY_NONE: u8 = 0;

/// A session as [`Session::freeze`] leaves it.
///
/// ```text
///   0 discriminator      4 the neighbour's     8 state, its state, diagnostic, its diagnostic
///  12 its Detect Mult   13 its bits, failed   14 hops, sequence known
///  16 its Desired Min TX, Required Min RX, Required Min Echo RX
///  28 our Desired Min TX, Required Min RX, and those in use
///  44 next sequence number, last received one
///  52 interface + 1, or 0
///  56 family and address of the neighbour (17), of ours (17)      the rest is zero
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Frozen(pub [u8; FROZEN]);

struct Writer<'a>(&'a mut [u8]);

impl Writer<'_> {
    fn octets(&mut self, octets: &[u8]) {
        let (place, rest) = std::mem::take(&mut self.0).split_at_mut(octets.len());
        place.copy_from_slice(octets);
        self.0 = rest;
    }

    fn word(&mut self, word: u32) {
        self.octets(&word.to_le_bytes());
    }

    fn address(&mut self, address: Option<IpAddr>) {
        let mut octets = [0; 17];
        match address {
            None => octets[0] = FAMILY_NONE,
            Some(IpAddr::V4(address)) => {
                octets[0] = 4;
                octets[1..5].copy_from_slice(&address.octets());
            }
            Some(IpAddr::V6(address)) => {
                octets[0] = 6;
                octets[1..].copy_from_slice(&address.octets());
            }
        }
        self.octets(&octets);
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn octets<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (octets, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*octets)
    }

    fn word(&mut self) -> Option<u32> {
        self.octets().map(u32::from_le_bytes)
    }

    fn address(&mut self) -> Option<Option<IpAddr>> {
        let [family, octets @ ..] = self.octets::<17>()?;
        match family {
            FAMILY_NONE => Some(None),
            4 => Some(Some(IpAddr::from(*octets.first_chunk::<4>()?))),
            6 => Some(Some(IpAddr::from(octets))),
            _ => None,
        }
    }
}

impl Session {
    /// All that the next process needs.
    pub fn freeze(&self) -> Frozen {
        let mut frozen = Frozen([0; FROZEN]);
        let mut writer = Writer(&mut frozen.0);
        let Remote { demand, control_plane_independent, detect_multiplier, .. } = self.remote;
        writer.word(self.discriminator);
        writer.word(self.remote.discriminator);
        let diagnostics = [self.diagnostic, self.remote.diagnostic].map(Diagnostic::bits);
        writer.octets(&[self.state as u8, self.remote.state as u8, diagnostics[0], diagnostics[1]]);
        let bits =
            u8::from(demand) | u8::from(control_plane_independent) << 1 | u8::from(self.has_failed) << 2;
        let hops = u8::from(self.path.hops == Hops::Multiple);
        writer.octets(&[detect_multiplier, bits, hops, self.sequence.received.is_some().into()]);
        let remote = &self.remote;
        [remote.desired_min_tx, remote.required_min_rx, remote.required_min_echo_rx]
            .into_iter()
            .for_each(|word| writer.word(word));
        let timing = &self.timing;
        [timing.desired_tx, timing.required_rx, timing.tx, timing.rx]
            .into_iter()
            .for_each(|word| writer.word(word));
        [self.sequence.next, self.sequence.received.unwrap_or(0)]
            .into_iter()
            .for_each(|word| writer.word(word));
        writer.word(self.path.interface.map_or(0, |interface| interface.wrapping_add(1)));
        writer.address(Some(self.path.remote));
        writer.address(self.path.local);
        frozen
    }
}

/// What the octets say.
pub(crate) struct Thawed {
    pub(crate) path: Path,
    pub(crate) discriminator: u32,
    pub(crate) state: State,
    pub(crate) diagnostic: Diagnostic,
    pub(crate) has_failed: bool,
    pub(crate) remote: Remote,
    pub(crate) timing: Timing,
    pub(crate) sequence: Sequence,
}

impl Frozen {
    /// Between which places the session is; `None`: these octets are no session.
    pub fn path(&self) -> Option<Path> {
        self.thaw().map(|thawed| thawed.path)
    }

    pub(crate) fn thaw(&self) -> Option<Thawed> {
        let mut reader = Reader(&self.0);
        let (discriminator, remote_discriminator) = (reader.word()?, reader.word()?);
        let [state, remote_state, diagnostic, remote_diagnostic] = reader.octets()?;
        let [detect_multiplier, bits, hops, known] = reader.octets()?;
        let remote = Remote {
            discriminator: remote_discriminator,
            state: State::from_bits(remote_state),
            diagnostic: Diagnostic::from_bits(remote_diagnostic),
            demand: bits & 1 != 0,
            control_plane_independent: bits & 2 != 0,
            detect_multiplier,
            desired_min_tx: reader.word()?,
            required_min_rx: reader.word()?,
            required_min_echo_rx: reader.word()?,
        };
        let mut timing = Timing::new(reader.word()?, reader.word()?);
        (timing.tx, timing.rx) = (reader.word()?, reader.word()?);
        let (next, received) = (reader.word()?, reader.word()?);
        let interface = reader.word()?.checked_sub(1);
        let (remote_address, local) = (reader.address()??, reader.address()?);
        if (timing.tx, timing.rx) != (timing.desired_tx, timing.required_rx) {
            timing.begin_poll();
        }
        let hops = if hops == 0 { Hops::Single } else { Hops::Multiple };
        // Without these nothing would end a session that is not Down.
        let has_neighbour = remote.discriminator != 0 && remote.detect_multiplier != 0;
        let is_state =
            state == State::Down as u8 || state <= 3 && state != State::AdminDown as u8 && has_neighbour;
        let is_possible = discriminator != 0 && is_state;
        is_possible.then_some(Thawed {
            path: Path { remote: remote_address, local, interface, hops },
            discriminator,
            state: State::from_bits(state),
            diagnostic: Diagnostic::from_bits(diagnostic),
            has_failed: bits & 4 != 0,
            remote,
            timing,
            sequence: Sequence { next, received: (known != 0).then_some(received) },
        })
    }
}
