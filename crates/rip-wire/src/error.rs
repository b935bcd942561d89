//! Why a message, an entry or a key is refused.

/// A message that a router discards as a whole.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Malformed {
    /// The header and a whole number of entries do not make up this length, in octets.
    #[error("a message of {0} octets")]
    Length(usize),
    /// More entries than a message has (RFC 2453 section 3.6).
    #[error("a message of {0} entries")]
    Entries(usize),
    /// A version that is not spoken here: 0 and 1 of RIP, anything but 1 of RIPng.
    #[error("version {0}")]
    Version(u8),
    /// Neither Request nor Response.
    #[error("command {0}")]
    Command(u8),
    /// The authentication entry and the trailer do not fit the message (RFC 4822 section 2.1).
    #[error("an authentication trailer that does not fit its message")]
    Trailer,
}

/// An entry that a router ignores; it reads the entries after it (RFC 2453 section 3.9.2, RFC 2080 section 2.4.2).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum BadEntry {
    /// Another address family than IPv4.
    #[error("address family {0}")]
    AddressFamily(u16),
    /// Not 1 to 16.
    #[error("metric {0}")]
    Metric(u32),
    /// The ones of the subnet mask are not all at its start.
    #[error("subnet mask {0:#010x}")]
    Mask(u32),
    /// An address without a subnet mask, as version 1 has it; only the default route has none.
    #[error("an address without a subnet mask")]
    NoMask,
    /// Over 128 bits.
    #[error("a prefix of {0} bits")]
    PrefixLength(u8),
    /// No unicast destination that may be routed: of IPv4 nets 0 and 127, link-local, multicast and above; of IPv6 the
    /// unspecified address, loopback, addresses of IPv4, link-local, multicast.
    #[error("not a unicast destination")]
    Destination,
}

/// A key or a set of keys that cannot be used.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum BadKey {
    /// A password or an MD5 key over 16 octets.
    #[error("a secret of {0} octets, where 16 are the most")]
    TooLong(usize),
    /// No octet at all.
    #[error("an empty secret")]
    Empty,
    /// Two keys with one identifier: a receiver could not tell which to use (RFC 4822 section 2.2).
    #[error("two keys with the identifier {0}")]
    Twice(u8),
    /// No key is for sending.
    #[error("no key to send with")]
    NoneToSend,
}

/// A message that is not authentic (RFC 2453 section 5.2, RFC 4822 section 2.3.2).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Unauthentic {
    /// It has authentication, and the interface has none.
    #[error("authentication where none is expected")]
    Unexpected,
    /// It has none, and the interface has.
    #[error("no authentication")]
    Missing,
    /// Another authentication type than the interface has.
    #[error("authentication type {0}")]
    Type(u16),
    /// Another password.
    #[error("a wrong password")]
    Password,
    /// The interface has no key with this identifier that is accepted.
    #[error("key {0} is not known")]
    Key(u8),
    /// The digest under this key is another.
    #[error("a wrong digest under key {0}")]
    Digest(u8),
}
