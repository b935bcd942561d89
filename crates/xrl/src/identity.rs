//! Who is at the other end of a channel, and what a key opens.

use std::fmt;

use rustix::rand::{GetRandomFlags, getrandom};

use crate::XrlError;
use crate::component::v1 as proto;

/// Who is at the other end of a channel: said by whoever attached the channel, never by the peer itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerIdentity {
    /// What it may call is decided by this ("bgp", "operator").
    pub role: String,
    /// Name of the component instance; may be empty.
    pub instance: String,
    /// Process id; 0 if unknown.
    pub pid: u32,
    /// Classes as which it may register with the Finder: names in which it may speak.
    pub classes: Vec<String>,
}

impl PeerIdentity {
    /// Somebody with this role, who may register as the class of the same name.
    pub fn new(role: &str) -> Self {
        Self { role: role.to_owned(), classes: vec![role.to_owned()], ..Self::default() }
    }

    /// Sets the process id.
    #[must_use]
    pub fn pid(self, pid: u32) -> Self {
        Self { pid, ..self }
    }

    /// Sets the instance name.
    #[must_use]
    pub fn instance(self, instance: &str) -> Self {
        Self { instance: instance.to_owned(), ..self }
    }

    /// Adds a class as which it may register.
    #[must_use]
    pub fn class(mut self, class: &str) -> Self {
        self.classes.push(class.to_owned());
        self
    }
}

/// Opens methods of a component to whoever presents it. Minted by the Finder.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key([u8; 16]);

impl Key {
    /// A key that nobody can guess.
    ///
    /// # Errors
    /// When the kernel has no random numbers to give.
    pub fn random() -> Result<Self, XrlError> {
        let mut key = [0; 16];
        match getrandom(&mut key, GetRandomFlags::empty()) {
            Ok(16) => Ok(Self(key)),
            Ok(_) => Err(XrlError::internal("too few random numbers")),
            Err(error) => Err(XrlError::internal(format!("no random numbers: {error}"))),
        }
    }

    /// The key that these octets are.
    ///
    /// # Errors
    /// `InvalidArgument` unless they are 16.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, XrlError> {
        let key = bytes.try_into().map_err(|_| XrlError::invalid_argument("a key has 16 octets"))?;
        Ok(Self(key))
    }

    /// The 16 octets.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Compares without telling by the time taken where the difference is.
    pub(crate) fn matches(&self, bytes: &[u8]) -> bool {
        let difference = self.0.iter().zip(bytes).fold(0, |all, (a, b)| all | (a ^ b));
        bytes.len() == self.0.len() && std::hint::black_box(difference) == 0
    }
}

impl fmt::Debug for Key {
    /// Never the key itself: this may go to a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// What a key opens, and to whom it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The key.
    pub key: Key,
    /// Role of the caller.
    pub role: String,
    /// Instance of the caller; may be empty.
    pub instance: String,
    /// Numbers of the methods it opens.
    pub methods: Vec<u32>,
    /// Classes as which the caller may register.
    pub classes: Vec<String>,
}

impl Grant {
    /// The message for it.
    pub fn to_proto(&self) -> proto::Grant {
        proto::Grant {
            key: self.key.as_bytes().to_vec(),
            role: self.role.clone(),
            instance: self.instance.clone(),
            methods: self.methods.clone(),
            classes: self.classes.clone(),
        }
    }

    /// Reads the message.
    ///
    /// # Errors
    /// `InvalidArgument` when the key is not one.
    pub fn from_proto(grant: proto::Grant) -> Result<Self, XrlError> {
        let proto::Grant { key, role, instance, methods, classes } = grant;
        Ok(Self { key: Key::from_bytes(&key)?, role, instance, methods, classes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_matches_itself_only() {
        let key = Key::from_bytes(&[7; 16]).expect("16 octets");
        assert!(key.matches(&[7; 16]));
        assert!(!key.matches(&[8; 16]));
        assert!(!key.matches(&[7; 15]));
        assert!(!key.matches(&[7; 17]));
        assert_eq!(format!("{key:?}"), "Key(…)");
    }
}
