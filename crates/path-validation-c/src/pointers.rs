//! What callers point at. The only place that reads or writes there.
//!
//! Each function asks of its caller what the calls of the header ask of theirs: a pointer is null, or points at so many
//! octets or such a value, which nobody changes meanwhile.

use std::slice;

use crate::code::hf_bgpsec_code::{self, *};

/// Octets that come in. None at all may be at a null pointer.
///
/// # Safety
/// `at` is null or points at `length` octets, which stay as they are for `'a`.
pub(crate) unsafe fn octets<'a>(at: *const u8, length: usize) -> Result<&'a [u8], hf_bgpsec_code> {
    // SAFETY: as the caller says.
    unsafe { values(at, length) }
}

/// Values of any type that come in, one behind the other.
///
/// # Safety
/// `at` is null or points at so many values, which stay as they are for `'a`.
pub(crate) unsafe fn values<'a, T>(at: *const T, count: usize) -> Result<&'a [T], hf_bgpsec_code> {
    match (at.is_null(), count.checked_mul(size_of::<T>())) {
        (_, Some(0)) => Ok(&[]),
        (true, _) => Err(HF_BGPSEC_NULL),
        // SAFETY: it is not null, so there are so many values, and no more octets than an address space has.
        (false, Some(..=ADDRESS_SPACE)) => Ok(unsafe { slice::from_raw_parts(at, count) }),
        (false, _) => Err(HF_BGPSEC_LENGTH),
    }
}

/// Octets of anything in memory, at most.
const ADDRESS_SPACE: usize = isize::MAX as usize;

/// A value that comes in.
///
/// # Safety
/// `at` is null or points at a value that nobody changes for `'a`.
pub(crate) unsafe fn value<'a, T>(at: *const T) -> Result<&'a T, hf_bgpsec_code> {
    // SAFETY: as the caller says.
    unsafe { at.as_ref() }.ok_or(HF_BGPSEC_NULL)
}

/// Room for a value that goes out.
#[derive(Debug)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// # Safety
    /// `at` is null or points at room for a value, which nobody else uses while this is there.
    pub(crate) unsafe fn new(at: *mut T) -> Result<Self, hf_bgpsec_code> {
        if at.is_null() { Err(HF_BGPSEC_NULL) } else { Ok(Self(at)) }
    }

    pub(crate) fn write(&mut self, value: T) {
        // SAFETY: there is room (`new`). What is there is not dropped: it may be anything.
        unsafe { self.0.write(value) }
    }
}

/// Room for octets that go out, with a place for how many there are.
#[derive(Debug)]
pub(crate) struct Room {
    at: *mut u8,
    capacity: usize,
    length: Out<usize>,
}

impl Room {
    /// # Safety
    /// `at` is null and `capacity` 0, or it points at so many octets; `length` is null or points at a number; nobody else uses
    /// either while this is there.
    pub(crate) unsafe fn new(
        at: *mut u8,
        capacity: usize,
        length: *mut usize,
    ) -> Result<Self, hf_bgpsec_code> {
        if at.is_null() && capacity > 0 {
            return Err(HF_BGPSEC_NULL);
        }
        // SAFETY: as the caller says.
        Ok(Self { at, capacity, length: unsafe { Out::new(length)? } })
    }

    /// Says so if there is no room for so many.
    pub(crate) fn wants(&mut self, most: usize) -> Result<(), hf_bgpsec_code> {
        if most <= self.capacity {
            return Ok(());
        }
        self.length.write(most);
        Err(HF_BGPSEC_ROOM)
    }

    /// Writes these octets, and how many they are.
    pub(crate) fn write(mut self, octets: &[u8]) -> Result<(), hf_bgpsec_code> {
        self.wants(octets.len())?;
        if !octets.is_empty() {
            // SAFETY: there is room for them, so it is not null; nobody else uses it (`new`), so it overlaps nothing of ours.
            unsafe { self.at.copy_from_nonoverlapping(octets.as_ptr(), octets.len()) };
        }
        self.length.write(octets.len());
        Ok(())
    }
}
