//! Octets, read from the front.

/// What is left to be read. `None`: there is less than was asked for, and nothing more can be told.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(octets: &'a [u8]) -> Self {
        Self(octets)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// As many of these as there are.
    pub(crate) fn take_up_to(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// All octets at the front that have this value.
    pub(crate) fn skip_all(&mut self, value: u8) {
        let length = self.0.iter().take_while(|octet| **octet == value).count();
        self.0 = &self.0[length..];
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u24(&mut self) -> Option<u32> {
        self.array().map(|[high, middle, low]| u32::from_be_bytes([0, high, middle, low]))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// Octets behind their length in one (RFC 8446 section 3.4).
    pub(crate) fn vector8(&mut self) -> Option<&'a [u8]> {
        let length = self.u8()?;
        self.take(length.into())
    }

    /// Octets behind their length in two.
    pub(crate) fn vector16(&mut self) -> Option<&'a [u8]> {
        let length = self.u16()?;
        self.take(length.into())
    }

    /// A number of 1, 2, 4 or 8 octets; the first two bits say which (RFC 9000 section 16).
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let octets = self.take(1 << (*self.0.first()? >> 6))?;
        let value = octets.iter().fold(0, |value, octet| (value << 8) | u64::from(*octet));
        Some(value & ((1 << (octets.len() * 8 - 2)) - 1))
    }

    /// Octets behind their length as such a number.
    pub(crate) fn vector(&mut self) -> Option<&'a [u8]> {
        let length = self.varint()?;
        // What does not fit into memory is not here either.
        self.take(usize::try_from(length).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::Reader;

    #[test]
    fn numbers_of_each_length_are_those_of_the_rfc() {
        // RFC 9000 appendix A.1.
        let cases: [(&[u8], u64); 5] = [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ];
        for (octets, value) in cases {
            let mut reader = Reader::new(octets);
            assert_eq!(reader.varint(), Some(value));
            assert!(reader.is_empty());
            assert_eq!(Reader::new(&octets[..octets.len() - 1]).varint(), None);
        }
        assert_eq!(Reader::new(&[0xff; 8]).varint(), Some((1 << 62) - 1));
    }
}
