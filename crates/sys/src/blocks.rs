//! How often each block of this program was executed, where it was built with `-C instrument-coverage` and
//! `--cfg holdfast_counted` (`scripts/fuzz-cost`): the compiler's own counters, of 64 bits. In other builds there are none.
//!
//! They are only looked at while one thread runs: the compiler counts without caring for others.

/// Where the counters are, and how many.
#[cfg(holdfast_counted)]
fn counters() -> (*mut u64, usize) {
    unsafe extern "C" {
        // The linker names the ends of the section into which the compiler puts its counters.
        static mut __start___llvm_prf_cnts: u64;
        static mut __stop___llvm_prf_cnts: u64;
    }
    let (start, end) = (&raw mut __start___llvm_prf_cnts, &raw mut __stop___llvm_prf_cnts);
    (start, (end.addr() - start.addr()) / size_of::<u64>())
}

#[cfg(not(holdfast_counted))]
fn counters() -> (*mut u64, usize) {
    (std::ptr::NonNull::dangling().as_ptr(), 0)
}

/// From now on all begin with 0.
pub fn forget() {
    let (start, count) = counters();
    for at in 0..count {
        // SAFETY: it is within the section, which can be written and lives as long as the program. A count that is changed at
        // the same time is wrong, and nothing else.
        unsafe { start.add(at).write_volatile(0) };
    }
}

/// How often each was executed since.
pub fn counts() -> Vec<u64> {
    let (start, count) = counters();
    // SAFETY: as above.
    (0..count).map(|at| unsafe { start.add(at).read_volatile() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_program_that_was_built_for_it_counts() {
        forget();
        assert_eq!(counts().iter().any(|count| *count > 0), cfg!(holdfast_counted));
    }
}
