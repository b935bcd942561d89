//! Attributes as sent: canonical bytes with the changes of an export ([`rewrite`]), and those of routes that
//! start here ([`AttributesBuilder`]).

use std::net::Ipv4Addr;

use holdfast_types::{Asn, RouterId};

use crate::{
    as_path::SegmentType,
    attribute::{Attribute, Walk, class, code, flag, push, push_header},
    attributes::Origin,
};

mod path;

/// What happens to an attribute that is there or not.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Change<T> {
    /// As it is.
    #[default]
    Keep,
    /// To this value.
    Set(T),
    /// Away.
    Remove,
}

/// Changes to a list of values. Removal comes first; a value that is there is not added again; an empty list
/// is no attribute.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Values<'a, T> {
    /// Start from nothing instead of what is there.
    pub replace: bool,
    /// Values to leave out.
    pub remove: &'a [T],
    /// Values to append.
    pub add: &'a [T],
}

impl<T> Default for Values<'_, T> {
    fn default() -> Self {
        Self { replace: false, remove: &[], add: &[] }
    }
}

impl<T> Values<'_, T> {
    fn is_noop(&self) -> bool {
        !self.replace && self.remove.is_empty() && self.add.is_empty()
    }
}

/// What becomes of the numbers that are in AS_PATH, before others come in front.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct PathEdit {
    /// Confederation segments stay inside the confederation (RFC 5065 section 4.1).
    pub strip_confederation: bool,
    /// What becomes of private numbers (RFC 6996).
    pub private: PrivateAsns,
    /// The first number is replaced by the second wherever it stands.
    pub replace: Option<(Asn, Asn)>,
}

/// What becomes of private AS numbers.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum PrivateAsns {
    /// They stay.
    #[default]
    Keep,
    /// They are left out, but for this one: the receiver's, which needs it to find loops.
    Remove(Asn),
    /// The second number stands in their place, but for the first.
    Replace(Asn, Asn),
}

/// How attributes differ between what was received and what is sent to a peer.
///
/// The default changes nothing for a four-octet iBGP peer, but for what every export does: unknown
/// non-transitive attributes are left out, unknown transitive ones get the Partial bit (RFC 4271 section 5).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Edit<'a> {
    /// ORIGIN.
    pub origin: Option<Origin>,
    /// What becomes of AS_PATH as it is.
    pub path: PathEdit,
    /// Then these AS numbers, each so many times, in front of it; the first stands outermost.
    pub prepend: &'a [(Asn, u8)],
    /// The kind of segment that those go into: AS_CONFED_SEQUENCE towards another member AS (RFC 5065 section 4.1).
    pub prepend_into: SegmentType,
    /// NEXT_HOP; [`Change::Remove`] for routes that go into MP_REACH_NLRI.
    pub next_hop: Change<Ipv4Addr>,
    /// LOCAL_PREF. Not sent to an external peer whatever this says (RFC 4271 section 5.1.5).
    pub local_pref: Change<u32>,
    /// MULTI_EXIT_DISC.
    pub med: Change<u32>,
    /// COMMUNITIES.
    pub communities: Values<'a, u32>,
    /// EXTENDED_COMMUNITIES.
    pub ext_communities: Values<'a, [u8; 8]>,
    /// The origin validation state among them (RFC 8097), of which there is one at most after [`Change::Set`].
    pub validation_state: Change<u8>,
    /// LARGE_COMMUNITIES.
    pub large_communities: Values<'a, (u32, u32, u32)>,
    /// The peer is outside our AS or confederation: LOCAL_PREF stays inside.
    pub external: bool,
    /// The peer reads four-octet AS numbers; if not, AS4_PATH and AS4_AGGREGATOR carry what AS_PATH and
    /// AGGREGATOR then cannot (RFC 6793 section 4.2.2).
    pub four_octet_as: bool,
    /// [`Change::Set`] reflects the route (RFC 4456 section 8): ORIGINATOR_ID if there is none yet, and our CLUSTER_ID
    /// in front of CLUSTER_LIST. [`Change::Remove`] leaves both out: they stay inside the AS.
    pub reflection: Change<(RouterId, u32)>,
    /// ONLY_TO_CUSTOMER with this number, if there is none yet (RFC 9234 section 5).
    pub only_to_customer: Option<Asn>,
    /// BGPsec_PATH stays; else AS_PATH alone goes on.
    pub secure_path: bool,
}

impl Default for Edit<'_> {
    fn default() -> Self {
        Self {
            origin: None,
            path: PathEdit::default(),
            prepend: &[],
            prepend_into: SegmentType::Sequence,
            next_hop: Change::Keep,
            local_pref: Change::Keep,
            med: Change::Keep,
            communities: Values::default(),
            ext_communities: Values::default(),
            validation_state: Change::Keep,
            large_communities: Values::default(),
            external: false,
            four_octet_as: true,
            reflection: Change::Keep,
            only_to_customer: None,
            secure_path: false,
        }
    }
}

/// Type of the extended community that says what origin validation said (RFC 8097 section 2).
const VALIDATION_STATE: [u8; 2] = [0x43, 0x00];

/// What an extended community says of origin validation: 0 valid, 1 not found, 2 invalid, others nothing; `None` if it is
/// of another type (RFC 8097 section 2).
pub fn validation_state(value: [u8; 8]) -> Option<u8> {
    let [high, low, .., state] = value;
    ([high, low] == VALIDATION_STATE).then_some(state)
}

const OPTIONAL_TRANSITIVE: u8 = flag::OPTIONAL | flag::TRANSITIVE;

/// Appends canonical attributes with the changes of `edit`, ascending by type code, in one pass.
///
/// A list that outgrows 65535 octets is written all the same: [`crate::encode`] refuses it.
pub fn rewrite(canonical: &[u8], edit: &Edit<'_>, out: &mut Vec<u8>) {
    let mut rewrite = Rewrite { edit, out, as_path: &[], aggregator: &[] };
    let touched = edit.touched();
    // Attributes that the edit may have to write although they are not there, a bit each.
    let mut pending = touched;
    for attribute in Walk(canonical).map_while(Result::ok) {
        let bit = 1u64.checked_shl(attribute.code.into()).unwrap_or(0);
        let before = bit.wrapping_sub(1);
        rewrite.write_missing(pending & before);
        pending &= !(before | bit);
        if touched & bit != 0 {
            rewrite.write(attribute.code, Some(attribute));
        } else {
            rewrite.pass_on(attribute);
        }
    }
    rewrite.write_missing(pending);
}

impl Edit<'_> {
    /// The type codes whose attributes are not copied as they are, a bit each. All are below 64.
    fn touched(&self) -> u64 {
        let bit = |touched: bool, code: u8| u64::from(touched) << code;
        let reflection = self.reflection != Change::Keep;
        let path = !self.prepend.is_empty() || self.path != PathEdit::default();
        bit(self.origin.is_some(), code::ORIGIN)
            | bit(path || !self.four_octet_as, code::AS_PATH)
            | bit(self.next_hop != Change::Keep, code::NEXT_HOP)
            | bit(self.med != Change::Keep, code::MULTI_EXIT_DISC)
            | bit(self.external || self.local_pref != Change::Keep, code::LOCAL_PREF)
            | bit(!self.four_octet_as, code::AGGREGATOR)
            | bit(!self.communities.is_noop(), code::COMMUNITIES)
            | bit(reflection, code::ORIGINATOR_ID)
            | bit(reflection, code::CLUSTER_LIST)
            | bit(
                !self.ext_communities.is_noop() || self.validation_state != Change::Keep,
                code::EXTENDED_COMMUNITIES,
            )
            | bit(!self.four_octet_as, code::AS4_PATH)
            | bit(!self.four_octet_as, code::AS4_AGGREGATOR)
            | bit(!self.large_communities.is_noop(), code::LARGE_COMMUNITIES)
            | bit(self.only_to_customer.is_some(), code::ONLY_TO_CUSTOMER)
    }
}

struct Rewrite<'a, 'r> {
    edit: &'r Edit<'r>,
    out: &'r mut Vec<u8>,
    /// As received, for AS4_PATH, which comes after it.
    as_path: &'a [u8],
    /// Likewise for AS4_AGGREGATOR.
    aggregator: &'a [u8],
}

impl<'a> Rewrite<'a, '_> {
    fn write_missing(&mut self, mut codes: u64) {
        while codes != 0 {
            self.write(codes.trailing_zeros() as u8, None);
            codes &= codes - 1;
        }
    }

    /// An attribute that the edit does not touch.
    fn pass_on(&mut self, attribute: Attribute<'a>) {
        if class(attribute.code).is_some() {
            self.out.extend_from_slice(attribute.wire);
        } else if attribute.flags & flag::TRANSITIVE != 0 {
            let at = self.out.len();
            self.out.extend_from_slice(attribute.wire);
            self.out[at] |= flag::PARTIAL;
        } else if attribute.code == code::BGPSEC_PATH && self.edit.secure_path {
            self.out.extend_from_slice(attribute.wire);
        }
    }

    /// An attribute that the edit touches; `old` is what is there.
    fn write(&mut self, code: u8, old: Option<Attribute<'a>>) {
        let value = old.map_or(&[][..], |old| old.value);
        let flags = old.map_or(OPTIONAL_TRANSITIVE, |old| old.flags);
        let edit = self.edit;
        match code {
            code::ORIGIN => {
                if let Some(origin) = edit.origin {
                    push(self.out, flag::TRANSITIVE, code, &[origin as u8]);
                }
            }
            code::AS_PATH => {
                self.as_path = value;
                path::push(value, edit, self.out);
            }
            code::NEXT_HOP => {
                self.change(code, flag::TRANSITIVE, edit.next_hop, |address| address.octets(), old);
            }
            code::MULTI_EXIT_DISC => self.change(code, flag::OPTIONAL, edit.med, u32::to_be_bytes, old),
            code::LOCAL_PREF if edit.external => {}
            code::LOCAL_PREF => {
                self.change(code, flag::TRANSITIVE, edit.local_pref, u32::to_be_bytes, old);
            }
            code::AGGREGATOR => {
                self.aggregator = value;
                path::push_two_octet_aggregator(value, flags, self.out);
            }
            code::COMMUNITIES => self.values(code, flags, value, &edit.communities, u32::to_be_bytes),
            code::ORIGINATOR_ID => self.originator_id(old),
            code::CLUSTER_LIST => self.cluster_list(value),
            code::EXTENDED_COMMUNITIES => self.ext_communities(flags, value, old),
            code::AS4_PATH => path::push_as4_path(self.as_path, edit, self.out),
            code::AS4_AGGREGATOR => path::push_as4_aggregator(self.aggregator, self.out),
            code::LARGE_COMMUNITIES => {
                self.values(code, flags, value, &edit.large_communities, large_octets);
            }
            code::ONLY_TO_CUSTOMER => match (old, edit.only_to_customer) {
                // RFC 9234 section 5: once set, it is never changed.
                (Some(old), _) => self.out.extend_from_slice(old.wire),
                (None, Some(asn)) => push(self.out, flags, code, &asn.0.to_be_bytes()),
                (None, None) => {}
            },
            _ => {}
        }
    }

    fn change<T>(
        &mut self,
        code: u8,
        flags: u8,
        change: Change<T>,
        octets: impl Fn(T) -> [u8; 4],
        old: Option<Attribute<'a>>,
    ) {
        match (change, old) {
            (Change::Set(value), _) => push(self.out, flags, code, &octets(value)),
            (Change::Keep, Some(old)) => self.out.extend_from_slice(old.wire),
            (Change::Keep, None) | (Change::Remove, _) => {}
        }
    }

    fn ext_communities(&mut self, flags: u8, value: &'a [u8], old: Option<Attribute<'a>>) {
        let (code, mut edit) = (code::EXTENDED_COMMUNITIES, self.edit.ext_communities);
        let is_state = |value: &&[u8; 8]| validation_state(**value).is_some();
        let told = match self.edit.validation_state {
            Change::Set(state) => Some(state),
            // By far the most: nobody says anything.
            Change::Remove if edit.is_noop() && !value.as_chunks().0.iter().any(|value| is_state(&value)) => {
                return old.into_iter().for_each(|attribute| self.pass_on(attribute));
            }
            Change::Remove => None,
            Change::Keep => return self.values(code, flags, value, &edit, |value| value),
        };
        let others = |value: &&[u8; 8]| !is_state(value);
        let kept: Vec<[u8; 8]> = value.as_chunks().0.iter().filter(others).copied().collect();
        let [high, low] = VALIDATION_STATE;
        let told = told.map(|state| [high, low, 0, 0, 0, 0, 0, state]);
        let add: Vec<_> = edit.add.iter().copied().chain(told).collect();
        edit.add = &add;
        self.values(code, flags, kept.as_flattened(), &edit, |value| value);
    }

    fn values<T: Copy, const N: usize>(
        &mut self,
        code: u8,
        flags: u8,
        value: &[u8],
        edit: &Values<'_, T>,
        octets: impl Fn(T) -> [u8; N],
    ) {
        let old: &[[u8; N]] = if edit.replace { &[] } else { value.as_chunks().0 };
        let removed = |value: &[u8; N]| edit.remove.iter().any(|removed| octets(*removed) == *value);
        let most = (old.len() + edit.add.len()) * N;
        let start = self.out.len();
        push_header(self.out, flags, code, most);
        let values = self.out.len();
        if edit.remove.is_empty() {
            self.out.extend_from_slice(old.as_flattened());
        } else {
            old.iter().filter(|value| !removed(value)).for_each(|value| self.out.extend_from_slice(value));
        }
        for added in edit.add {
            let added = octets(*added);
            if !self.out[values..].as_chunks::<N>().0.contains(&added) {
                self.out.extend_from_slice(&added);
            }
        }
        self.fit_header(start, values, most);
    }

    /// Corrects a header that was written for `most` octets of values.
    fn fit_header(&mut self, start: usize, values: usize, most: usize) {
        let len = self.out.len() - values;
        if len == 0 {
            self.out.truncate(start);
        } else if most < 256 {
            self.out[values - 1] = len as u8;
        } else if len < 256 {
            // Fewer than expected: the short form is the canonical one.
            self.out[start] &= !flag::EXTENDED_LENGTH;
            self.out[start + 2] = len as u8;
            self.out.remove(start + 3);
        } else {
            self.out[start + 2..values].copy_from_slice(&(len as u16).to_be_bytes());
        }
    }

    /// RFC 4456 section 8: set once, by the first reflector, and never sent to another AS.
    fn originator_id(&mut self, old: Option<Attribute<'a>>) {
        match (old, self.edit.reflection) {
            (_, Change::Remove) => {}
            (Some(old), _) => self.out.extend_from_slice(old.wire),
            (None, Change::Set((id, _))) => {
                push(self.out, flag::OPTIONAL, code::ORIGINATOR_ID, &id.bits().to_be_bytes());
            }
            (None, Change::Keep) => {}
        }
    }

    fn cluster_list(&mut self, old: &[u8]) {
        if let Change::Set((_, cluster)) = self.edit.reflection {
            push_header(self.out, flag::OPTIONAL, code::CLUSTER_LIST, old.len() + 4);
            self.out.extend_from_slice(&cluster.to_be_bytes());
            self.out.extend_from_slice(old);
        }
    }
}

fn large_octets((global, local1, local2): (u32, u32, u32)) -> [u8; 12] {
    let mut octets = [0; 12];
    for (place, part) in octets.as_chunks_mut::<4>().0.iter_mut().zip([global, local1, local2]) {
        *place = part.to_be_bytes();
    }
    octets
}

/// The attributes of a route that starts here, in canonical form.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AttributesBuilder {
    /// ORIGIN.
    pub origin: Origin,
    /// AS_PATH as one AS_SEQUENCE; usually empty, as the export prepends our AS number.
    pub as_path: Vec<Asn>,
    /// NEXT_HOP; `None` for routes whose next hop is in MP_REACH_NLRI.
    pub next_hop: Option<Ipv4Addr>,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// LOCAL_PREF.
    pub local_pref: Option<u32>,
    /// COMMUNITIES.
    pub communities: Vec<u32>,
    /// LARGE_COMMUNITIES.
    pub large_communities: Vec<(u32, u32, u32)>,
    /// AGGREGATOR, the AS and the speaker in it, and ATOMIC_AGGREGATE with it: AS numbers are left out.
    pub aggregator: Option<(Asn, Ipv4Addr)>,
}

impl AttributesBuilder {
    /// No more than the mandatory ones.
    pub fn new(origin: Origin) -> Self {
        Self {
            origin,
            as_path: Vec::new(),
            next_hop: None,
            med: None,
            local_pref: None,
            communities: Vec::new(),
            large_communities: Vec::new(),
            aggregator: None,
        }
    }

    /// The canonical bytes.
    pub fn build(&self) -> Vec<u8> {
        fn set<T>(value: Option<T>) -> Change<T> {
            value.map_or(Change::Keep, Change::Set)
        }
        let mut mandatory = Vec::new();
        push(&mut mandatory, flag::TRANSITIVE, code::ORIGIN, &[self.origin as u8]);
        path::push_sequences(&self.as_path, &mut mandatory);
        if let Some((asn, address)) = self.aggregator {
            push(&mut mandatory, flag::TRANSITIVE, code::ATOMIC_AGGREGATE, &[]);
            let value = [asn.0.to_be_bytes(), address.octets()];
            push(&mut mandatory, OPTIONAL_TRANSITIVE, code::AGGREGATOR, value.as_flattened());
        }
        let edit = Edit {
            next_hop: set(self.next_hop),
            med: set(self.med),
            local_pref: set(self.local_pref),
            communities: Values { add: &self.communities, ..Values::default() },
            large_communities: Values { add: &self.large_communities, ..Values::default() },
            ..Edit::default()
        };
        let mut out = Vec::with_capacity(64);
        rewrite(&mandatory, &edit, &mut out);
        out
    }
}
