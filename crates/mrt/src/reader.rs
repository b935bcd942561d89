//! Fields of a record, one after the other, with the offset for errors.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use holdfast_types::{Afi, IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix};

use crate::{Error, Fault};

#[derive(Copy, Clone, Debug)]
pub(crate) struct Reader<'a> {
    pub(crate) rest: &'a [u8],
    /// Of the first byte of `rest` in the dump.
    pub(crate) offset: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(rest: &'a [u8], offset: usize) -> Self {
        Self { rest, offset }
    }

    pub(crate) fn error(&self, fault: Fault) -> Error {
        Error { offset: self.offset, fault }
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let missing = count.saturating_sub(self.rest.len());
        let (bytes, rest) =
            self.rest.split_at_checked(count).ok_or(self.error(Fault::Truncated { missing }))?;
        self.rest = rest;
        self.offset += count;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Error> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Error> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_be_bytes)
    }

    /// A field of so many bytes, to be read on its own.
    pub(crate) fn part(&mut self, count: usize) -> Result<Self, Error> {
        let offset = self.offset;
        self.bytes(count).map(|rest| Self { rest, offset })
    }

    pub(crate) fn address(&mut self, afi: Afi) -> Result<IpAddr, Error> {
        match afi {
            Afi::IPV4 => self.u32().map(|bits| Ipv4Addr::from_bits(bits).into()),
            Afi::IPV6 => self.array().map(|bytes| Ipv6Addr::from(bytes).into()),
            Afi(number) => Err(self.error(Fault::Family(number))),
        }
    }

    /// A length octet and as many octets as hold it; bits after the length are ignored.
    pub(crate) fn prefix(&mut self, afi: Afi) -> Result<Prefix, Error> {
        match afi {
            Afi::IPV4 => self.prefix_of::<Ipv4Prefix>().map(Prefix::V4),
            Afi::IPV6 => self.prefix_of::<Ipv6Prefix>().map(Prefix::V6),
            Afi(number) => Err(self.error(Fault::Family(number))),
        }
    }

    fn prefix_of<P: IpPrefix>(&mut self) -> Result<P, Error> {
        let at_length = *self;
        let length = self.u8()?;
        if length > P::WIDTH {
            return Err(at_length.error(Fault::PrefixLength(length)));
        }
        let octets = self.bytes(usize::from(length.div_ceil(8)))?;
        let mut address = [0; 16];
        address[..octets.len()].copy_from_slice(octets);
        Ok(P::from_bits(u128::from_be_bytes(address), length))
    }
}
