//! Tables of routers' keys.

use std::{
    iter, mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

use holdfast_path_validation::{
    Change, KeyTable, Keys, RouterKey, Validator, VerifiedSignatures, random_seed,
};
use holdfast_types::{Asn, Ski};

use crate::{
    code::{
        call,
        hf_bgpsec_code::{self, *},
    },
    pointers::{Out, octets, value},
};

/// Octets of a subject key identifier.
pub const HF_BGPSEC_SKI: usize = 20;
/// Octets of a subjectPublicKeyInfo, at most: no PDU of a cache has more.
pub const HF_BGPSEC_MOST_SPKI: usize = 65_535;
/// Changes that may wait for a commit.
pub const HF_BGPSEC_MOST_PENDING: usize = 4_194_304;
/// Good signatures that are remembered, at most.
pub const HF_BGPSEC_MOST_REMEMBERED: usize = 67_108_864;

/// Routers' public keys, by AS and subject key identifier. Any thread may change it and validate with it at any time.
pub struct hf_bgpsec_table {
    keys: KeyTable,
    pub(crate) validator: Validator,
    pending: Mutex<Vec<Change>>,
}

impl hf_bgpsec_table {
    pub(crate) fn keys(&self) -> std::sync::Arc<Keys> {
        self.keys.keys()
    }

    fn pending(&self) -> MutexGuard<'_, Vec<Change>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, change: Change) -> Result<(), hf_bgpsec_code> {
        let mut pending = self.pending();
        if pending.len() == HF_BGPSEC_MOST_PENDING {
            return Err(HF_BGPSEC_PENDING);
        }
        pending.push(change);
        Ok(())
    }
}

/// What a commit has come to.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
pub struct hf_bgpsec_applied {
    /// Pairs of AS and SKI for which keys have come or gone.
    pub changed: usize,
    /// Keys that were added and were there already.
    pub duplicates: usize,
    /// Keys that were removed and were not there.
    pub unknown: usize,
}

/// Makes a table without keys. It remembers about so many good signatures (`HF_BGPSEC_MOST_REMEMBERED` at most), 16 octets each, and does
/// not verify them again; 0: none.
///
/// # Safety
/// `table` is null or points at room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_bgpsec_table_new(
    remembered: usize,
    table: *mut *mut hf_bgpsec_table,
) -> hf_bgpsec_code {
    call(|| {
        // SAFETY: as the caller says.
        let mut out = unsafe { Out::new(table)? };
        out.write(std::ptr::null_mut());
        let validator = match remembered {
            0 => Validator::default(),
            1..=HF_BGPSEC_MOST_REMEMBERED => {
                Validator::default().with_memory(VerifiedSignatures::new(remembered, random_seed()?))
            }
            _ => return Err(HF_BGPSEC_LENGTH),
        };
        let keys = KeyTable::new(random_seed()?);
        out.write(Box::into_raw(Box::new(hf_bgpsec_table { keys, validator, pending: Mutex::default() })));
        Ok(())
    })
}

/// Frees a table. Null is nothing to free.
///
/// # Safety
/// `table` is null, or a table that nobody uses now or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_bgpsec_table_free(table: *mut hf_bgpsec_table) {
    if !table.is_null() {
        // SAFETY: it is from `hf_bgpsec_table_new`, and this is its last use.
        drop(unsafe { Box::from_raw(table) });
    }
}

/// Adds a router's key, with the next commit. `ski` are `HF_BGPSEC_SKI` octets, `spki` is a subjectPublicKeyInfo in DER: what a cache
/// says (RFC 8210 section 5.10). A key that no suite can use is taken, and verifies nothing.
///
/// # Safety
/// `table` is null or a table; `ski` is null or points at 20 octets, `spki` is null or at `spki_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_bgpsec_table_add(
    table: *mut hf_bgpsec_table,
    asn: u32,
    ski: *const u8,
    spki: *const u8,
    spki_len: usize,
) -> hf_bgpsec_code {
    // SAFETY: as the caller says.
    call(|| unsafe { change(table, Change::Announce, asn, ski, spki, spki_len) })
}

/// Removes a router's key, with the next commit: that with the same AS, SKI and subjectPublicKeyInfo.
///
/// # Safety
/// As of `hf_bgpsec_table_add`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_bgpsec_table_remove(
    table: *mut hf_bgpsec_table,
    asn: u32,
    ski: *const u8,
    spki: *const u8,
    spki_len: usize,
) -> hf_bgpsec_code {
    // SAFETY: as the caller says.
    call(|| unsafe { change(table, Change::Withdraw, asn, ski, spki, spki_len) })
}

/// # Safety
/// As of `hf_bgpsec_table_add`.
unsafe fn change(
    table: *const hf_bgpsec_table,
    change: impl FnOnce(RouterKey) -> Change,
    asn: u32,
    ski: *const u8,
    spki: *const u8,
    spki_len: usize,
) -> Result<(), hf_bgpsec_code> {
    // SAFETY: as the caller says.
    let (table, ski) = unsafe { (value(table)?, value(ski.cast::<[u8; HF_BGPSEC_SKI]>())?) };
    if spki_len > HF_BGPSEC_MOST_SPKI {
        return Err(HF_BGPSEC_LENGTH);
    }
    // SAFETY: as the caller says.
    let spki = unsafe { octets(spki, spki_len)? };
    table.push(change(RouterKey { asn: Asn(asn), ski: Ski(*ski), spki: spki.to_vec() }))
}

/// All that was added and removed since the last commit takes effect, in that order and as one: who validates meanwhile sees
/// none of it, who validates afterwards all. `applied` may be null.
///
/// # Safety
/// `table` is null or a table; `applied` is null or points at room for its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_bgpsec_table_commit(
    table: *mut hf_bgpsec_table,
    applied: *mut hf_bgpsec_applied,
) -> hf_bgpsec_code {
    call(|| {
        // SAFETY: as the caller says.
        let table = unsafe { value(table.cast_const())? };
        // Taken when it is our turn: of two that commit at once the second one has what came later.
        let changes = iter::once_with(|| mem::take(&mut *table.pending())).flatten();
        let result = table.keys.apply(changes);
        // SAFETY: as the caller says.
        if let Ok(mut out) = unsafe { Out::new(applied) } {
            let changed = result.changed.len();
            out.write(hf_bgpsec_applied { changed, duplicates: result.duplicates, unknown: result.unknown });
        }
        Ok(())
    })
}

/// How many keys there are, as of the last commit.
///
/// # Safety
/// `table` is null or a table; `count` is null or points at a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_bgpsec_table_count(
    table: *const hf_bgpsec_table,
    count: *mut usize,
) -> hf_bgpsec_code {
    call(|| {
        // SAFETY: as the caller says.
        let (table, mut count) = unsafe { (value(table)?, Out::new(count)?) };
        count.write(table.keys().len());
        Ok(())
    })
}
