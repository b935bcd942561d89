//! The memory that `replicator` and `gate` share: how far each session is replicated, and what waits for it.
//!
//! ```text
//! header: 16 words │ slot 0: 16 words │ slot 1 │ …
//! ```
//! Words have 64 bits in little endian and are atomics. The replicator writes all but the words that are marked with G.
//!
//! | word of the header | means |
//! |---|---|
//! | 0, 1, 2 | magic, format, number of slots |
//! | 3 | CLOCK_BOOTTIME in nanoseconds until which the lease holds; 0: none |
//! | 4 G | segments that the gate holds now |
//! | 5, 6 | the replicator sleeps, the gate sleeps: whoever has something for it rings its bell |
//! | 7 | how often a slot was claimed, freed, or changed its state |
//! | 8 | 1: all sessions that there are are here, and none of another router is still to be made again |
//! | 9 | 1: another router has the sessions: whatever this one has is none |
//!
//! | word of a slot | means |
//! |---|---|
//! | 0 | state in the low 8 bits, above it the generation: it changes with each new use |
//! | 1 to 5 | local address, remote address (IPv4 mapped into IPv6), VRF number << 32, local port << 16, remote port |
//! | 6, 7 | watermarks: octets of the peer that are replicated (in), octets to the peer that are (out) |
//! | 8, 9 G | highest offsets that the gate holds: acknowledged (in), end of data (out) |
//! | 10 G | what the gate knows of the connection, above it the generation that it speaks of |
//! | 11, 12 G | highest offsets that have left: acknowledged (in), end of data (out) |
//! | 13 G | since when the first segment that is held has waited, CLOCK_BOOTTIME in milliseconds; 0: none is held |
//! | 14, 15 | initial sequence numbers: ours << 32, the peer's; 1: the gate has seen them, 2: the replicator knows them |
//!
//! Offsets count from the first octet behind the SYN of either side.
//!
//! The state of a slot is written last when the slot is claimed, and first when it is freed. A reader takes what it has
//! read only if word 0 is the same before and after ([`Marks::view`]). So it never sees one connection with the
//! watermarks of another.

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::atomic::{AtomicU64, Ordering, fence},
};

/// "hf-marks".
const MAGIC: u64 = u64::from_le_bytes(*b"hf-marks");
const FORMAT: u64 = 1;
/// Words of the header.
pub const HEADER_WORDS: usize = 16;
/// Words of a slot.
pub const SLOT_WORDS: usize = 16;
/// Most slots that a memory may have.
pub const MOST_SLOTS: usize = 16_384;

const LEASE: usize = 3;
const HELD: usize = 4;
const REPLICATOR_SLEEPS: usize = 5;
const GATE_SLEEPS: usize = 6;
const CHANGES: usize = 7;
const WHOLE: usize = 8;
const FENCED: usize = 9;

const STATE: usize = 0;
const LOCAL: usize = 1;
const REMOTE: usize = 3;
const PORTS: usize = 5;
const IN: usize = 6;
const OUT: usize = 7;
const WANTED_IN: usize = 8;
const WANTED_OUT: usize = 9;
const GATING: usize = 10;
const PASSED_IN: usize = 11;
const PASSED_OUT: usize = 12;
const WAITS_SINCE: usize = 13;
const NUMBERS: usize = 14;
const WHOSE: usize = 15;

/// Who knows the numbers: the gate has seen them, or the replicator has told them.
const SEEN: u64 = 1;
const TOLD: u64 = 2;

const STATE_BITS: u32 = 8;

/// Why a memory is none of marks.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadMarks {
    /// It does not begin as marks do, or has another format.
    #[error("the memory has no marks of this format")]
    Foreign,
    /// The number of slots is 0, above [`MOST_SLOTS`], or not what the memory has room for.
    #[error("the memory has another size than it says")]
    Size,
}

/// A TCP connection, seen from us.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Connection {
    /// Our address; IPv4 is mapped into IPv6.
    pub local: Ipv6Addr,
    /// The peer's address, likewise.
    pub remote: Ipv6Addr,
    /// Our port.
    pub local_port: u16,
    /// The peer's port.
    pub remote_port: u16,
    /// The number of the VRF; 0 is the default table.
    pub vrf: u32,
}

impl Connection {
    /// The connection between two sockets' addresses. Scopes of addresses do not count.
    pub fn new(local: SocketAddr, remote: SocketAddr, vrf: u32) -> Self {
        Self {
            local: mapped(local.ip()),
            remote: mapped(remote.ip()),
            local_port: local.port(),
            remote_port: remote.port(),
            vrf,
        }
    }
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// What may leave of a connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum SlotState {
    /// The slot is in use by nobody.
    Free,
    /// Everything.
    Open,
    /// What the watermarks cover.
    Gated,
    /// Nothing.
    Closed,
}

impl SlotState {
    const fn code(self) -> u64 {
        match self {
            Self::Free => 0,
            Self::Open => 1,
            Self::Gated => 2,
            Self::Closed => 3,
        }
    }

    /// An unknown state lets nothing leave.
    const fn from_word(word: u64) -> Self {
        match word & 0xff {
            0 => Self::Free,
            1 => Self::Open,
            2 => Self::Gated,
            _ => Self::Closed,
        }
    }
}

/// What the gate knows of the connection in a slot.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Gating {
    /// The gate has not seen this connection.
    Unseen,
    /// It knows where both directions begin: the connection can be gated, and is when the slot says so.
    Able,
    /// The connection is older than the gate: it cannot be gated, and everything passes.
    Older,
}

impl Gating {
    const fn code(self) -> u64 {
        match self {
            Self::Unseen => 0,
            Self::Able => 1,
            Self::Older => 2,
        }
    }

    const fn from_word(word: u64) -> Self {
        match word & 0xff {
            1 => Self::Able,
            2 => Self::Older,
            _ => Self::Unseen,
        }
    }
}

/// Who sleeps, or is woken.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Side {
    /// The process `replicator`.
    Replicator,
    /// The process `gate`.
    Gate,
}

impl Side {
    const fn word(self) -> usize {
        match self {
            Self::Replicator => REPLICATOR_SLEEPS,
            Self::Gate => GATE_SLEEPS,
        }
    }
}

/// A use of a slot: its number and generation. Calls with the claim of an earlier use do nothing.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Claim {
    /// The number of the slot.
    pub slot: u32,
    /// Which use of the slot: 56 bits.
    pub generation: u64,
}

/// A slot at one moment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// Which use of which slot.
    pub claim: Claim,
    /// What may leave. Never [`SlotState::Free`].
    pub state: SlotState,
    /// The connection.
    pub connection: Connection,
    /// Octets of the peer that are replicated.
    pub received: u64,
    /// Octets to the peer that are replicated.
    pub sent: u64,
    /// Of a connection that another router has begun: initial sequence numbers, ours and the peer's.
    pub restored: Option<(u32, u32)>,
}

/// Marks in words that two processes share. See the module's text for the layout.
#[derive(Copy, Clone, Debug)]
pub struct Marks<'a> {
    words: &'a [AtomicU64],
    slots: usize,
}

impl<'a> Marks<'a> {
    /// Octets of a memory with so many slots.
    pub const fn octets(slots: usize) -> usize {
        (HEADER_WORDS + slots * SLOT_WORDS) * 8
    }

    /// Makes marks of a new memory, which reads as zero: all slots are free, and there is no lease.
    ///
    /// # Errors
    /// [`BadMarks::Size`] when the memory has room for no slot, or for too many.
    pub fn create(words: &'a [AtomicU64]) -> Result<Self, BadMarks> {
        let slots = words.len().checked_sub(HEADER_WORDS).ok_or(BadMarks::Size)? / SLOT_WORDS;
        let marks = Self { words, slots };
        marks.check_size()?;
        marks.store(1, FORMAT);
        marks.store(2, slots as u64);
        // Last: half of a header is none.
        marks.store(0, MAGIC);
        Ok(marks)
    }

    /// Marks that another process has made.
    ///
    /// # Errors
    /// The memory has no marks, or not as many as it says.
    pub fn open(words: &'a [AtomicU64]) -> Result<Self, BadMarks> {
        let marks = Self { words, slots: 0 };
        if words.len() < HEADER_WORDS || marks.load(0) != MAGIC || marks.load(1) != FORMAT {
            return Err(BadMarks::Foreign);
        }
        let slots = usize::try_from(marks.load(2)).map_err(|_| BadMarks::Size)?;
        let marks = Self { words, slots };
        marks.check_size()?;
        Ok(marks)
    }

    /// A memory consists of whole pages, or of as many words as are needed: it may be longer than the slots.
    fn check_size(&self) -> Result<(), BadMarks> {
        let fits = (1..=MOST_SLOTS).contains(&self.slots)
            && HEADER_WORDS + self.slots * SLOT_WORDS <= self.words.len();
        fits.then_some(()).ok_or(BadMarks::Size)
    }

    /// How many slots there are.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// CLOCK_BOOTTIME in nanoseconds until which the lease holds; 0 when there is none.
    pub fn lease(&self) -> u64 {
        self.load(LEASE)
    }

    /// Says until when the lease holds, as [`Self::lease`].
    pub fn set_lease(&self, until: u64) {
        self.store(LEASE, until);
    }

    /// Whether all sessions that there are are here, and none of another router is still to be made again.
    pub fn is_whole(&self) -> bool {
        self.load(WHOLE) == 1
    }

    /// Says that, before the lease.
    pub fn set_whole(&self, is_whole: bool) {
        self.store(WHOLE, is_whole.into());
    }

    /// Whether another router has the sessions. Without a lease nothing leaves this one then, whatever connection it is of.
    pub fn is_fenced(&self) -> bool {
        self.load(FENCED) == 1
    }

    /// Says that.
    pub fn set_fenced(&self, is_fenced: bool) {
        self.store(FENCED, is_fenced.into());
    }

    /// Segments that the gate holds now.
    pub fn held(&self) -> u64 {
        self.load(HELD)
    }

    /// The gate says how many segments it holds.
    pub fn set_held(&self, held: u64) {
        self.store(HELD, held);
    }

    /// A side is about to sleep. It looks for work once more *after* this call, and sleeps only if there is none.
    pub fn begin_sleep(&self, side: Side) {
        self.store(side.word(), 1);
        fence(Ordering::SeqCst);
    }

    /// A side has woken up for a reason of its own.
    pub fn end_sleep(&self, side: Side) {
        self.store(side.word(), 0);
    }

    /// Whether the caller has to ring the bell of a side, *after* it has written what that side shall find. True once
    /// for each sleep.
    pub fn must_ring(&self, side: Side) -> bool {
        fence(Ordering::SeqCst);
        let word = self.word(side.word());
        word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::AcqRel) != 0
    }

    /// How often a slot was claimed, freed or changed its state. While it is the same, no [`View`] has another claim or state.
    pub fn changes(&self) -> u64 {
        self.load(CHANGES)
    }

    fn changed(&self) {
        self.word(CHANGES).fetch_add(1_u64.to_le(), Ordering::AcqRel);
    }

    /// The replicator begins a use of a free slot, with watermarks. `None` when the slot does not exist, is in use, or
    /// `state` is [`SlotState::Free`].
    pub fn claim(
        &self,
        slot: u32,
        connection: &Connection,
        state: SlotState,
        watermarks: (u64, u64),
    ) -> Option<Claim> {
        self.begin_use(slot, connection, state, watermarks, None)
    }

    /// As [`Self::claim`], of a connection whose beginning the gate has not seen, with its initial sequence numbers, ours and the
    /// peer's: the gate knows it from then on, and nothing of it has left yet beyond the watermarks.
    pub fn claim_restored(
        &self,
        slot: u32,
        connection: &Connection,
        state: SlotState,
        watermarks: (u64, u64),
        numbers: (u32, u32),
    ) -> Option<Claim> {
        self.begin_use(slot, connection, state, watermarks, Some(numbers))
    }

    fn begin_use(
        &self,
        slot: u32,
        connection: &Connection,
        state: SlotState,
        (received, sent): (u64, u64),
        numbers: Option<(u32, u32)>,
    ) -> Option<Claim> {
        let at = self.slot(slot)?;
        let before = self.load(at);
        if SlotState::from_word(before) != SlotState::Free || state == SlotState::Free {
            return None;
        }
        // 56 bits: 0 comes again after longer than any machine lives.
        let generation = (before >> STATE_BITS) + 1;
        let [local, remote] = [connection.local, connection.remote].map(halves);
        let ports = u64::from(connection.vrf) << 32
            | u64::from(connection.local_port) << 16
            | u64::from(connection.remote_port);
        let (numbers, whose) = numbers.map_or((0, 0), |numbers| (joined(numbers), TOLD));
        let values = [
            local[0], local[1], remote[0], remote[1], ports, received, sent, 0, 0, 0, 0, 0, 0, numbers, whose,
        ];
        for (place, value) in (at + LOCAL..).zip(values) {
            self.store(place, value);
        }
        self.store(at, generation << STATE_BITS | state.code());
        self.changed();
        Some(Claim { slot, generation })
    }

    /// Any free slot.
    pub fn free_slot(&self) -> Option<u32> {
        (0..self.slots as u32).find(|slot| self.state_word(*slot).is_some_and(|word| word & 0xff == 0))
    }

    /// What may leave from now on. [`SlotState::Free`] ends the use. False when the claim is one of an earlier use.
    pub fn set_state(&self, claim: Claim, state: SlotState) -> bool {
        let Some(at) = self.used(claim) else { return false };
        self.store(at, claim.generation << STATE_BITS | state.code());
        self.changed();
        true
    }

    /// The use of the slot ends: the gate takes the connection for one without a slot.
    pub fn free(&self, claim: Claim) -> bool {
        self.set_state(claim, SlotState::Free)
    }

    /// Raises the watermarks: octets of the peer, octets to the peer, that the store holds. They never fall. False when the
    /// claim is one of an earlier use.
    pub fn set_watermarks(&self, claim: Claim, received: u64, sent: u64) -> bool {
        let Some(at) = self.used(claim) else { return false };
        for (place, value) in [(at + IN, received), (at + OUT, sent)] {
            if self.load(place) < value {
                self.store(place, value);
            }
        }
        true
    }

    /// The slot as it is now; `None` when it is free, is being changed, or does not exist.
    pub fn view(&self, slot: u32) -> Option<View> {
        let at = self.slot(slot)?;
        let word = self.load(at);
        let state = SlotState::from_word(word);
        let ports = self.load(at + PORTS);
        let view = View {
            claim: Claim { slot, generation: word >> STATE_BITS },
            state,
            connection: Connection {
                local: self.address(at + LOCAL),
                remote: self.address(at + REMOTE),
                local_port: (ports >> 16) as u16,
                remote_port: ports as u16,
                vrf: (ports >> 32) as u32,
            },
            received: self.load(at + IN),
            sent: self.load(at + OUT),
            restored: (self.load(at + WHOSE) == TOLD).then(|| split(self.load(at + NUMBERS))),
        };
        (state != SlotState::Free && self.load(at) == word).then_some(view)
    }

    /// State and watermarks (in, out) of a use; `None` when it has ended.
    #[inline]
    pub fn watermarks(&self, claim: Claim) -> Option<(SlotState, u64, u64)> {
        let at = self.used(claim)?;
        let word = self.load(at);
        let (received, sent) = (self.load(at + IN), self.load(at + OUT));
        let same = word >> STATE_BITS == claim.generation && self.load(at) == word;
        same.then_some((SlotState::from_word(word), received, sent))
    }

    /// What the gate waits for: the highest offsets that it holds, acknowledged and end of data. 0 when it holds nothing.
    pub fn wanted(&self, claim: Claim) -> Option<(u64, u64)> {
        let at = self.used(claim)?;
        Some((self.load(at + WANTED_IN), self.load(at + WANTED_OUT)))
    }

    /// The gate says what it waits for, as [`Self::wanted`].
    pub fn set_wanted(&self, claim: Claim, received: u64, sent: u64) {
        if let Some(at) = self.used(claim) {
            self.store(at + WANTED_IN, received);
            self.store(at + WANTED_OUT, sent);
        }
    }

    /// Since when the first segment that the gate holds has waited: CLOCK_BOOTTIME in milliseconds. `None`: it holds none.
    pub fn waits_since(&self, claim: Claim) -> Option<u64> {
        let at = self.used(claim)?;
        Some(self.load(at + WAITS_SINCE)).filter(|since| *since != 0)
    }

    /// The gate says since when, as [`Self::waits_since`].
    pub fn set_waits_since(&self, claim: Claim, since: Option<u64>) {
        if let Some(at) = self.used(claim) {
            self.store(at + WAITS_SINCE, since.unwrap_or(0));
        }
    }

    /// Initial sequence numbers (RFC 9293 section 3.4.1), ours and the peer's, as far as the gate has seen them.
    pub fn numbers(&self, claim: Claim) -> Option<(u32, u32)> {
        let at = self.used(claim)?;
        let numbers = (self.load(at + WHOSE) != 0).then(|| self.load(at + NUMBERS))?;
        self.used(claim).map(|_| split(numbers))
    }

    /// The gate says what they are, as [`Self::numbers`], where the replicator has not.
    pub fn set_numbers(&self, claim: Claim, ours: u32, theirs: u32) {
        if let Some(at) = self.used(claim).filter(|at| self.load(at + WHOSE) != TOLD) {
            self.store(at + NUMBERS, joined((ours, theirs)));
            self.store(at + WHOSE, SEEN);
        }
    }

    /// The highest offsets that have left, acknowledged and end of data, as far as the gate has seen it.
    pub fn passed(&self, claim: Claim) -> Option<(u64, u64)> {
        let at = self.used(claim)?;
        Some((self.load(at + PASSED_IN), self.load(at + PASSED_OUT)))
    }

    /// The gate says what has left, as [`Self::passed`].
    pub fn set_passed(&self, claim: Claim, received: u64, sent: u64) {
        if let Some(at) = self.used(claim) {
            self.store(at + PASSED_IN, received);
            self.store(at + PASSED_OUT, sent);
        }
    }

    /// What the gate knows of the connection of this use.
    pub fn gating(&self, claim: Claim) -> Gating {
        let word = self.used(claim).map_or(0, |at| self.load(at + GATING));
        // The gate may have spoken of the use before.
        if word >> STATE_BITS == claim.generation { Gating::from_word(word) } else { Gating::Unseen }
    }

    /// The gate says what it knows of the connection of this use.
    pub fn set_gating(&self, claim: Claim, gating: Gating) {
        if let Some(at) = self.used(claim) {
            self.store(at + GATING, claim.generation << STATE_BITS | gating.code());
        }
    }

    /// Word 0 of a slot: it differs when the use or its state does. Cheaper than [`Self::view`].
    #[inline]
    pub fn state_word(&self, slot: u32) -> Option<u64> {
        self.slot(slot).map(|at| self.load(at + STATE))
    }

    /// Where a slot begins.
    #[inline]
    fn slot(&self, slot: u32) -> Option<usize> {
        let slot = usize::try_from(slot).ok().filter(|slot| *slot < self.slots)?;
        Some(HEADER_WORDS + slot * SLOT_WORDS)
    }

    /// Where the slot of a use begins, if that use has not ended.
    #[inline]
    fn used(&self, claim: Claim) -> Option<usize> {
        let at = self.slot(claim.slot)?;
        let word = self.load(at);
        (word >> STATE_BITS == claim.generation && word & 0xff != 0).then_some(at)
    }

    fn address(&self, at: usize) -> Ipv6Addr {
        Ipv6Addr::from_bits(u128::from(self.load(at)) << 64 | u128::from(self.load(at + 1)))
    }

    #[inline]
    fn word(&self, at: usize) -> &'a AtomicU64 {
        &self.words[at]
    }

    #[inline]
    fn load(&self, at: usize) -> u64 {
        u64::from_le(self.word(at).load(Ordering::Acquire))
    }

    #[inline]
    fn store(&self, at: usize, value: u64) {
        self.word(at).store(value.to_le(), Ordering::Release);
    }
}

fn joined((ours, theirs): (u32, u32)) -> u64 {
    u64::from(ours) << 32 | u64::from(theirs)
}

fn split(numbers: u64) -> (u32, u32) {
    ((numbers >> 32) as u32, numbers as u32)
}

fn halves(address: Ipv6Addr) -> [u64; 2] {
    let bits = address.to_bits();
    [(bits >> 64) as u64, bits as u64]
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn memory(slots: usize) -> Vec<AtomicU64> {
        (0..Marks::octets(slots) / 8).map(|_| AtomicU64::new(0)).collect()
    }

    fn connection(number: u16) -> Connection {
        let local = SocketAddr::from(([10, 0, 0, 1], 179));
        Connection::new(local, SocketAddr::from(([10, 0, 0, 2], number)), 0)
    }

    #[test]
    fn both_sides_read_what_the_other_wrote() {
        let words = memory(4);
        let (replicator, gate) = (Marks::create(&words).expect("room"), Marks::open(&words).expect("ours"));
        assert_eq!((gate.slots(), gate.lease(), gate.view(0)), (4, 0, None));
        let one = Connection::new("[2001:db8::1]:179".parse().unwrap(), "[::2]:4000".parse().unwrap(), 7);
        let claim = replicator.claim(2, &one, SlotState::Gated, (10, 20)).expect("free");
        assert_eq!(replicator.claim(2, &one, SlotState::Open, (0, 0)), None, "in use");
        assert_eq!(replicator.claim(4, &one, SlotState::Open, (0, 0)), None, "there are four");
        let view =
            View { claim, state: SlotState::Gated, connection: one, received: 10, sent: 20, restored: None };
        assert_eq!(gate.view(2), Some(view));
        assert!(replicator.set_watermarks(claim, 5, 30));
        assert_eq!(gate.watermarks(claim), Some((SlotState::Gated, 10, 30)), "they never fall");
        gate.set_wanted(claim, 11, 31);
        gate.set_passed(claim, 9, 19);
        assert_eq!((replicator.wanted(claim), replicator.passed(claim)), (Some((11, 31)), Some((9, 19))));
        assert_eq!(replicator.waits_since(claim), None);
        gate.set_waits_since(claim, Some(1234));
        assert_eq!((replicator.waits_since(claim), replicator.numbers(claim)), (Some(1234), None));
        gate.set_numbers(claim, u32::MAX, 0);
        assert_eq!(replicator.numbers(claim), Some((u32::MAX, 0)));
        let other = replicator.claim_restored(3, &one, SlotState::Gated, (5, 6), (7, u32::MAX));
        let other = other.expect("free");
        let view = gate.view(3).expect("in use");
        assert_eq!((view.restored, view.received, view.sent), (Some((7, u32::MAX)), 5, 6));
        assert_eq!(replicator.numbers(other), Some((7, u32::MAX)));
        assert!(replicator.free(other));
        assert_eq!(replicator.gating(claim), Gating::Unseen);
        gate.set_gating(claim, Gating::Able);
        assert_eq!(replicator.gating(claim), Gating::Able);
        replicator.set_lease(99);
        gate.set_held(3);
        assert_eq!((gate.lease(), replicator.held(), replicator.free_slot()), (99, 3, Some(0)));
        assert!(replicator.set_state(claim, SlotState::Closed));
        assert_eq!(gate.watermarks(claim), Some((SlotState::Closed, 10, 30)));
    }

    #[test]
    fn an_earlier_use_has_no_effect_on_a_later_one() {
        let words = memory(1);
        let marks = Marks::create(&words).expect("room");
        let first = marks.claim(0, &connection(1), SlotState::Gated, (5, 5)).expect("free");
        marks.set_gating(first, Gating::Able);
        let changes = marks.changes();
        assert!(marks.free(first));
        assert_eq!(
            (marks.view(0), marks.watermarks(first), marks.gating(first)),
            (None, None, Gating::Unseen)
        );
        let second = marks.claim(0, &connection(2), SlotState::Gated, (0, 0)).expect("free");
        assert!(marks.changes() >= changes + 2);
        assert_ne!(first, second);
        assert!(!marks.set_watermarks(first, 9, 9) && !marks.set_state(first, SlotState::Open));
        marks.set_gating(first, Gating::Older);
        marks.set_wanted(first, 8, 8);
        assert_eq!((marks.gating(second), marks.wanted(second)), (Gating::Unseen, Some((0, 0))));
        assert_eq!(marks.watermarks(second), Some((SlotState::Gated, 0, 0)));
    }

    #[test]
    fn a_memory_of_somebody_else_is_refused() {
        assert_eq!(Marks::create(&memory(1)[..31]).err(), Some(BadMarks::Size));
        assert_eq!(Marks::create(&[]).err(), Some(BadMarks::Size));
        assert_eq!(Marks::create(&memory(MOST_SLOTS + 1)).err(), Some(BadMarks::Size));
        let words = memory(2);
        assert_eq!(Marks::open(&words).err(), Some(BadMarks::Foreign));
        Marks::create(&words).expect("room");
        assert!(Marks::open(&words).is_ok());
        assert_eq!(Marks::open(&words[..HEADER_WORDS + SLOT_WORDS]).err(), Some(BadMarks::Size));
        assert_eq!(Marks::open(&words[..3]).err(), Some(BadMarks::Foreign));
        for slots in [0, 3, u64::MAX] {
            words[2].store(slots.to_le(), Ordering::Relaxed);
            assert_eq!(Marks::open(&words).err(), Some(BadMarks::Size), "{slots}");
        }
    }

    #[test]
    fn a_state_that_nobody_knows_lets_nothing_leave() {
        let words = memory(1);
        let marks = Marks::create(&words).expect("room");
        let claim = marks.claim(0, &connection(1), SlotState::Open, (0, 0)).expect("free");
        let word = marks.state_word(0).expect("it exists");
        words[HEADER_WORDS].store((word & !0xff | 77).to_le(), Ordering::Relaxed);
        assert_eq!(marks.watermarks(claim), Some((SlotState::Closed, 0, 0)));
    }

    #[test]
    fn a_bell_rings_once_for_each_sleep() {
        let words = memory(1);
        let marks = Marks::create(&words).expect("room");
        assert!(!marks.must_ring(Side::Gate));
        marks.begin_sleep(Side::Gate);
        assert!(!marks.must_ring(Side::Replicator));
        assert!(marks.must_ring(Side::Gate) && !marks.must_ring(Side::Gate));
        marks.begin_sleep(Side::Gate);
        marks.end_sleep(Side::Gate);
        assert!(!marks.must_ring(Side::Gate));
    }

    #[test]
    fn a_reader_never_sees_a_connection_with_the_watermarks_of_another() {
        let words = memory(1);
        let marks = Marks::create(&words).expect("room");
        thread::scope(|scope| {
            scope.spawn(move || {
                for number in 1..=20_000_u16 {
                    let mark = u64::from(number) << 20;
                    let claim = marks.claim(0, &connection(number), SlotState::Gated, (mark, mark));
                    let claim = claim.expect("free");
                    marks.set_watermarks(claim, mark + 1, mark + 1);
                    marks.free(claim);
                }
            });
            let mut last = 0;
            while last < 20_000 {
                if let Some(view) = marks.view(0) {
                    last = u64::from(view.connection.remote_port);
                    assert_eq!(
                        (view.received >> 20, view.sent >> 20, view.claim.generation),
                        (last, last, last)
                    );
                    if let Some((_, received, sent)) = marks.watermarks(view.claim) {
                        assert_eq!((received >> 20, sent >> 20), (last, last));
                    }
                } else if marks.state_word(0).is_some_and(|word| word >> STATE_BITS == 20_000) {
                    break;
                }
            }
        });
    }
}
