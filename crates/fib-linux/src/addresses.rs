//! Addresses of interfaces, put there and removed (linux/if_addr.h).

use std::{io, os::fd::OwnedFd};

use holdfast_types::octets;
use rustix::io::Errno;

use crate::{
    InterfaceAddress,
    message::{AF_INET, AF_INET6, Batch, flag, kind},
    request::Requests,
};

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
/// The address is there at once: nobody is asked whether they have it.
const IFA_F_NODAD: u32 = 2;

/// Writes addresses of interfaces in one network namespace.
pub struct AddressWriter(Requests);

impl AddressWriter {
    /// Over a socket that nobody has used.
    ///
    /// # Errors
    /// When the kernel does not take its options.
    pub fn over(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self(Requests::over(socket)?))
    }

    /// Puts an address on the interface of this number; whether it was not there. An IPv6 address is there at once, without
    /// duplicate address detection (RFC 4862 section 5.4): whoever puts it there knows that nobody else has it.
    ///
    /// # Errors
    /// As the kernel says, in its words.
    pub fn put(&mut self, index: u32, address: InterfaceAddress) -> io::Result<bool> {
        let written = self.0.one(|batch, sequence| {
            write(batch, (kind::NEW_ADDRESS, flag::CREATE | flag::EXCLUSIVE, sequence), index, address);
        })?;
        match written {
            Err(refusal) if refusal.errno == Errno::EXIST => Ok(false),
            Err(refusal) => Err(io::Error::new(refusal.errno.kind(), refusal.to_string())),
            Ok(()) => Ok(true),
        }
    }

    /// Removes an address. One that is not there, or whose interface is not, is no error.
    ///
    /// # Errors
    /// As the kernel says, in its words.
    pub fn remove(&mut self, index: u32, address: InterfaceAddress) -> io::Result<()> {
        let written =
            self.0.one(|batch, sequence| write(batch, (kind::DEL_ADDRESS, 0, sequence), index, address))?;
        match written {
            Err(refusal) if [Errno::ADDRNOTAVAIL, Errno::NODEV].contains(&refusal.errno) => Ok(()),
            Err(refusal) => Err(io::Error::new(refusal.errno.kind(), refusal.to_string())),
            Ok(()) => Ok(()),
        }
    }
}

fn write(
    batch: &mut Batch,
    (kind, flags, sequence): (u16, u16, u32),
    index: u32,
    InterfaceAddress { address, length, peer }: InterfaceAddress,
) {
    let family = if address.is_ipv4() { AF_INET } else { AF_INET6 };
    batch.message(kind, flags, sequence, |body| {
        let [a, b, c, d] = index.to_ne_bytes();
        body.header(&[family, length, 0, 0, a, b, c, d]);
        body.attribute(IFA_LOCAL, &octets(address));
        body.attribute(IFA_ADDRESS, &octets(peer.unwrap_or(address)));
        if address.is_ipv6() {
            body.attribute_u32(IFA_FLAGS, IFA_F_NODAD);
        }
    });
}
