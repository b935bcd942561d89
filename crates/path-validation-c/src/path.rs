//! Paths: what is looked at before any signature, verdicts, and what else they say.

use std::net::{Ipv4Addr, Ipv6Addr};

use holdfast_bgpsec_wire::{
    Ingress, MOST_HOPS, MOST_PCOUNT, Nlri, Outside, Path, Session, Update, leave_confederation,
};
use holdfast_path_validation::{Failure, Reason, Validator, Verdict};
use holdfast_types::{Afi, Asn, Family, Ipv4Prefix, Ipv6Prefix, Prefix, Safi, Ski};

use crate::{
    code::{
        call,
        hf_bgpsec_code::{self, *},
    },
    pointers::{Out, Room, octets, value},
    table::hf_bgpsec_table,
};

/// Who has sent an UPDATE over an external session, to whom, and what else is in it. Numbers that are yes or no: anything but 0
/// is yes.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
pub struct hf_bgpsec_ingress {
    /// The AS in the peer's OPEN.
    pub peer_as: u32,
    /// The AS in ours.
    pub own_as: u32,
    /// Whether the peer is in another member AS of our confederation.
    pub in_confederation: u8,
    /// Whether the peer may leave itself out of the path: a route server, or an AS that migrates.
    pub pcount_zero: u8,
    /// Whether the UPDATE has an AS_PATH as well.
    pub as_path: u8,
    /// Whether it has routes in its own fields, outside MP_REACH_NLRI.
    pub outside_mp_reach: u8,
    /// Routes in MP_REACH_NLRI.
    pub reachable: u32,
    /// Segments that are looked at, at most; 0: 64.
    pub most_hops: u32,
    /// The sum of pCounts that is looked at, at most; 0: 1000.
    pub most_pcount: u32,
    /// Another AS number of ours that no path may have; 0: none.
    pub own_other: u32,
    /// Whether the peer is in our AS, or in our member AS.
    pub internal: u8,
    /// Whether the routes outside MP_REACH_NLRI are its one prefix once more, and nothing else.
    pub outside_same: u8,
    /// Whether the peer may send them.
    pub repeated_prefix: u8,
}

/// The route that a path is about, and to whom it goes.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
pub struct hf_bgpsec_route {
    /// 1: IPv4, 2: IPv6.
    pub afi: u16,
    /// 1: unicast.
    pub safi: u8,
    /// The prefix as in MP_REACH_NLRI: its length in bits, and as many octets as that needs. Bits behind it are passed over.
    pub nlri: *const u8,
    /// How many octets that are.
    pub nlri_len: usize,
    /// The AS that the receiver has in its OPEN: ours when we validate, the peer's when we sign.
    pub target_as: u32,
}

impl hf_bgpsec_route {
    /// # Safety
    /// `nlri` is null or points at `nlri_len` octets.
    pub(crate) unsafe fn read(&self) -> Result<Nlri, hf_bgpsec_code> {
        // SAFETY: as the caller says.
        let octets = unsafe { octets(self.nlri, self.nlri_len)? };
        let family = Family { afi: Afi(self.afi), safi: Safi(self.safi) };
        let prefix = match family.afi {
            Afi::IPV4 => read(octets).and_then(|(address, length)| {
                Some(Prefix::V4(Ipv4Prefix::new(Ipv4Addr::from_octets(address), length)?))
            }),
            Afi::IPV6 => read(octets).and_then(|(address, length)| {
                Some(Prefix::V6(Ipv6Prefix::new(Ipv6Addr::from_octets(address), length)?))
            }),
            _ => return Err(HF_BGPSEC_AFI),
        };
        Ok(Nlri { family, prefix: prefix.ok_or(HF_BGPSEC_NLRI)? })
    }
}

/// Address and length of one prefix. `None`: it is none, or something follows.
fn read<const N: usize>(octets: &[u8]) -> Option<([u8; N], u8)> {
    let (length, rest) = octets.split_first()?;
    let mut address = [0; N];
    address.get_mut(..rest.len())?.copy_from_slice(rest);
    (rest.len() == usize::from(length.div_ceil(8))).then_some((address, *length))
}

/// What is to be thought of a path.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum hf_bgpsec_state {
    /// Nothing: the call has failed.
    HF_BGPSEC_NOT_JUDGED = 0,
    /// All signatures of a Signature_Block are good.
    HF_BGPSEC_VALID = 1,
    /// In each block of a suite that is known, one is not.
    HF_BGPSEC_NOT_VALID = 2,
    /// No block has a suite that is known: the route goes on as one without signatures, and is not "Not Valid".
    HF_BGPSEC_UNSUPPORTED = 3,
}

/// What is wrong with a signature.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum hf_bgpsec_reason {
    /// Nothing.
    HF_BGPSEC_NO_REASON = 0,
    /// The AS has no key of that name.
    HF_BGPSEC_NO_KEY = 1,
    /// It has one, of which the suite can make nothing.
    HF_BGPSEC_UNUSABLE_KEY = 2,
    /// It was not made with the key, or over other octets.
    HF_BGPSEC_BAD_SIGNATURE = 3,
}

/// A verdict; of a path that is not valid, where validation has ended.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
pub struct hf_bgpsec_verdict {
    /// What is to be thought of the path. What follows is about a path that is not valid, and 0 otherwise.
    pub state: hf_bgpsec_state,
    /// What is wrong.
    pub reason: hf_bgpsec_reason,
    /// The segment; 0 is the most recent one.
    pub hop: u32,
    /// Its AS.
    pub asn: u32,
    /// What its signature calls the key.
    pub ski: [u8; 20],
    /// The block's algorithm suite.
    pub suite: u8,
}

impl hf_bgpsec_verdict {
    fn plain(state: hf_bgpsec_state) -> Self {
        let reason = hf_bgpsec_reason::HF_BGPSEC_NO_REASON;
        Self { state, reason, hop: 0, asn: 0, ski: [0; 20], suite: 0 }
    }
}

impl From<Verdict> for hf_bgpsec_verdict {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Valid => Self::plain(hf_bgpsec_state::HF_BGPSEC_VALID),
            Verdict::Unsupported => Self::plain(hf_bgpsec_state::HF_BGPSEC_UNSUPPORTED),
            Verdict::NotValid(Failure { suite, hop, asn: Asn(asn), ski: Ski(ski), reason }) => {
                let state = hf_bgpsec_state::HF_BGPSEC_NOT_VALID;
                let reason = match reason {
                    Reason::NoKey => hf_bgpsec_reason::HF_BGPSEC_NO_KEY,
                    Reason::UnusableKey => hf_bgpsec_reason::HF_BGPSEC_UNUSABLE_KEY,
                    Reason::BadSignature => hf_bgpsec_reason::HF_BGPSEC_BAD_SIGNATURE,
                };
                // No path has so many hops.
                let hop = u32::try_from(hop).unwrap_or(u32::MAX);
                Self { state, reason, hop, asn, ski, suite }
            }
        }
    }
}

/// What is looked at before any signature: the form of the attribute, then the checks of RFC 8205 section 5.2. Anything but
/// `HF_BGPSEC_OK`: the UPDATE is treated as a withdrawal of its routes (RFC 7606). `path` is the value of the attribute, without type
/// and length.
///
/// # Safety
/// `path` is null or points at `path_len` octets; `ingress` is null or points at its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_bgpsec_check(
    path: *const u8,
    path_len: usize,
    ingress: *const hf_bgpsec_ingress,
) -> hf_bgpsec_code {
    call(|| {
        // SAFETY: as the caller says.
        let (path, ingress) = unsafe { (octets(path, path_len)?, value(ingress)?) };
        let update = Update {
            as_path: ingress.as_path != 0,
            reachable: ingress.reachable as usize,
            outside: match (ingress.outside_mp_reach, ingress.outside_same) {
                (0, _) => Outside::None,
                (_, 0) => Outside::Other,
                (..) => Outside::Same,
            },
        };
        let session = match (ingress.internal, ingress.in_confederation) {
            (0, 0) => Session::External,
            (0, _) => Session::Confederation,
            (..) => Session::Internal,
        };
        let ingress = Ingress {
            session,
            peer: Asn(ingress.peer_as),
            own: Asn(ingress.own_as),
            own_other: Some(Asn(ingress.own_other)).filter(|asn| asn.0 != 0),
            pcount_zero: ingress.pcount_zero != 0,
            most_hops: if ingress.most_hops == 0 { MOST_HOPS } else { ingress.most_hops as usize },
            most_pcount: if ingress.most_pcount == 0 { MOST_PCOUNT } else { ingress.most_pcount },
            repeated_prefix: ingress.repeated_prefix != 0,
        };
        Ok(ingress.check(&Path::parse(path)?, update)?)
    })
}

/// The verdict on a path, by the keys as of the last commit (RFC 8205 section 5.2). That it is not valid is no failure of the
/// call. A path of any length is verified, hop by hop: the bound on hops is that of `hf_bgpsec_check`, which comes first.
///
/// # Safety
/// `table` is null or a table; `path` is null or points at `path_len` octets; `route` is null or points at its type, and that
/// at its octets; `verdict` is null or points at room for its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_bgpsec_validate(
    table: *const hf_bgpsec_table,
    path: *const u8,
    path_len: usize,
    route: *const hf_bgpsec_route,
    verdict: *mut hf_bgpsec_verdict,
) -> hf_bgpsec_code {
    call(|| {
        // SAFETY: as the caller says.
        let mut out = unsafe { Out::new(verdict)? };
        out.write(hf_bgpsec_verdict::plain(hf_bgpsec_state::HF_BGPSEC_NOT_JUDGED));
        // SAFETY: as the caller says.
        let (table, path, route) = unsafe { (value(table)?, octets(path, path_len)?, value(route)?) };
        // SAFETY: as the caller says.
        let nlri = unsafe { route.read()? };
        let path = Path::parse(path)?;
        out.write(table.validator.validate(&path, Asn(route.target_as), &nlri, &table.keys()).into());
        Ok(())
    })
}

/// The algorithm suites that the library validates, an octet each.
///
/// # Safety
/// `out` is null or at room for `capacity` octets, `out_len` is null or at a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_bgpsec_suites(
    out: *mut u8,
    capacity: usize,
    out_len: *mut usize,
) -> hf_bgpsec_code {
    call(|| {
        // SAFETY: as the caller says.
        let room = unsafe { Room::new(out, capacity, out_len)? };
        room.write(&Validator::default().suites().collect::<Vec<_>>())
    })
}

/// The AS_PATH that a path stands for (RFC 8205 section 4.4), with ASs of four octets, without type and length.
///
/// # Safety
/// `path` is null or points at `path_len` octets, `out` is null or at room for `capacity`, `out_len` is null or at a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_bgpsec_as_path(
    path: *const u8,
    path_len: usize,
    out: *mut u8,
    capacity: usize,
    out_len: *mut usize,
) -> hf_bgpsec_code {
    call(|| {
        // SAFETY: as the caller says.
        let (path, room) = unsafe { (octets(path, path_len)?, Room::new(out, capacity, out_len)?) };
        room.write(&Path::parse(path)?.as_path())
    })
}

/// The path without what members of a confederation have added since it came in (RFC 8205 section 4.3): what the AS at the border
/// signs before it leaves. `HF_BGPSEC_INSIDE`: nothing is left.
///
/// # Safety
/// `path` is null or points at `path_len` octets, `out` is null or at room for `capacity`, `out_len` is null or at a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_bgpsec_leave_confederation(
    path: *const u8,
    path_len: usize,
    out: *mut u8,
    capacity: usize,
    out_len: *mut usize,
) -> hf_bgpsec_code {
    call(|| {
        // SAFETY: as the caller says.
        let (path, room) = unsafe { (octets(path, path_len)?, Room::new(out, capacity, out_len)?) };
        room.write(&leave_confederation(&Path::parse(path)?).ok_or(HF_BGPSEC_INSIDE)?)
    })
}
