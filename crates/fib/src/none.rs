//! A forwarding plane that forwards nothing.

use crate::{Fib, FibError, Handle, NextHops, Report, RouteChange};

/// Forwards nothing and keeps nothing: for a router that selects and announces only. Routes that it is told all the
/// same are accepted and forgotten.
#[derive(Debug, Default)]
pub struct NoneFib {
    report: Report,
}

impl NoneFib {
    /// The only one there can be.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Fib for NoneFib {
    fn name(&self) -> &'static str {
        "none"
    }

    fn discards(&self) -> bool {
        true
    }

    fn define(&mut self, _handle: Handle, _next_hops: &NextHops) -> Result<(), FibError> {
        Ok(())
    }

    fn undefine(&mut self, _handle: Handle) -> Result<(), FibError> {
        Ok(())
    }

    fn apply(&mut self, _changes: &[RouteChange]) -> Result<(), FibError> {
        Ok(())
    }

    fn sync_begin(&mut self) -> Result<(), FibError> {
        Ok(())
    }

    fn sync_end(&mut self) -> Result<(), FibError> {
        Ok(())
    }

    fn work(&mut self, _budget: usize) -> Result<bool, FibError> {
        Ok(false)
    }

    fn interface_changed(&mut self, _index: u32, _usable: bool) -> Result<(), FibError> {
        Ok(())
    }

    fn interfaces_unknown(&mut self) -> Result<(), FibError> {
        Ok(())
    }

    fn take_loss(&mut self) -> Option<String> {
        None
    }

    fn clear(&mut self) -> Result<(), FibError> {
        Ok(())
    }

    fn report(&self) -> &Report {
        &self.report
    }
}
