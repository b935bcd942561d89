//! Names of objects.

use std::{borrow::Borrow, cmp::Ordering, fmt};

/// Octets of a name at most.
pub const LONGEST_NAME: usize = 64;

/// The name of an object: 1 to [`LONGEST_NAME`] octets of any kind, sensibly like `s/3/in`. Names are in the order of their
/// octets.
#[derive(Copy, Clone)]
pub struct Name {
    length: u8,
    octets: [u8; LONGEST_NAME],
}

/// No name has no octets, or more than [`LONGEST_NAME`].
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a name has 1 to {LONGEST_NAME} octets, not {0}")]
pub struct BadName(pub usize);

impl Name {
    /// This name.
    ///
    /// # Errors
    /// [`BadName`] when it is empty or too long.
    pub fn new(name: &[u8]) -> Result<Self, BadName> {
        let bad = BadName(name.len());
        let mut octets = [0; LONGEST_NAME];
        let length = u8::try_from(name.len()).map_err(|_| bad)?;
        octets.get_mut(..name.len()).filter(|place| !place.is_empty()).ok_or(bad)?.copy_from_slice(name);
        Ok(Self { length, octets })
    }

    /// Its octets.
    pub fn as_slice(&self) -> &[u8] {
        &self.octets[..usize::from(self.length)]
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        self.as_slice()
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "{}", self.as_slice().escape_ascii())
    }
}
