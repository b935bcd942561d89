//! Memory that nobody can change any more, not even who has made it: how secrets travel to the process that may know them.

use std::{
    fs::File,
    io::{self, Read, Seek, Write},
    os::fd::OwnedFd,
};

use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create},
    io::Errno,
};

/// What is longer is nothing that was meant to be read here.
const MOST_OCTETS: u64 = 64 * 1024;
/// Nobody changes it while it is read.
const SEALED: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::WRITE);

/// Memory with these octets, sealed.
///
/// # Errors
/// The system has none.
pub fn seal(octets: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = match memfd_create("secrets", flags | MemfdFlags::NOEXEC_SEAL) {
        // Linux before 6.3 does not know NOEXEC_SEAL.
        Err(Errno::INVAL) => memfd_create("secrets", flags)?,
        result => result?,
    };
    let mut memory = File::from(memory);
    memory.write_all(octets)?;
    // Whoever gets the descriptor begins where this one stands.
    memory.rewind()?;
    fcntl_add_seals(&memory, SEALED | SealFlags::SEAL)?;
    Ok(memory.into())
}

/// What is in sealed memory, up to 64 KiB; `None`: it is something else, or more.
pub fn unseal(memory: OwnedFd) -> Option<Vec<u8>> {
    if !fcntl_get_seals(&memory).ok()?.contains(SEALED) {
        return None;
    }
    let mut file = File::from(memory);
    file.rewind().ok()?;
    let mut octets = Vec::new();
    file.take(MOST_OCTETS + 1).read_to_end(&mut octets).ok()?;
    (octets.len() as u64 <= MOST_OCTETS).then_some(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_is_read_from_its_beginning_and_never_changes() {
        let memory = File::from(seal(b"secret").expect("memory"));
        assert!((&memory).write_all(b"x").is_err() && memory.set_len(0).is_err());
        let mut first = [0; 3];
        (&memory).read_exact(&mut first).expect("read");
        assert_eq!(unseal(memory.into()).as_deref(), Some(&b"secret"[..]));
    }

    #[test]
    fn what_is_too_long_or_not_sealed_is_not_read() {
        let octets = vec![7; MOST_OCTETS as usize + 1];
        assert_eq!(unseal(seal(&octets).expect("memory")), None);
        assert_eq!(
            unseal(seal(&octets[1..]).expect("memory")).map(|read| read.len()),
            Some(octets.len() - 1)
        );
        let open = memfd_create("secrets", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("memory");
        fcntl_add_seals(&open, SealFlags::SHRINK).expect("sealed in part");
        assert_eq!(unseal(open), None);
        assert_eq!(unseal(File::open("/dev/null").expect("a file").into()), None);
    }
}
