//! Memory behind a descriptor: whoever holds the descriptor keeps it, whatever becomes of the process that wrote it.

use std::{
    io,
    ops::Range,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    ptr::NonNull,
    slice,
    sync::atomic::{AtomicU8, AtomicU64, Ordering},
};

use rustix::fs::{MemfdFlags, SealFlags};

/// Its size is for ever.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// A memfd of fixed size, mapped into this process. Pages never written take no memory.
///
/// Nothing is locked. It is for one process at a time: the descriptor goes to another when this one is dead, and to
/// a keeper that maps nothing.
#[derive(Debug)]
pub struct SharedMemory {
    descriptor: OwnedFd,
    start: NonNull<u8>,
    octets: usize,
}

// SAFETY: the mapping belongs to this value and to no thread.
unsafe impl Send for SharedMemory {}

impl SharedMemory {
    /// New memory that reads as zero. The name is for people: /proc/PID/maps shows it.
    ///
    /// # Errors
    /// `EINVAL` for no octets, and those of `memfd_create`, `ftruncate`, `fcntl` and `mmap`.
    pub fn create(name: &str, octets: usize) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::NOEXEC_SEAL;
        let descriptor = match rustix::fs::memfd_create(name, flags) {
            // Linux before 6.3 does not know NOEXEC_SEAL.
            Err(rustix::io::Errno::INVAL) => rustix::fs::memfd_create(name, flags - MemfdFlags::NOEXEC_SEAL)?,
            result => result?,
        };
        rustix::fs::ftruncate(&descriptor, octets as u64)?;
        rustix::fs::fcntl_add_seals(&descriptor, SEALS)?;
        Self::map(descriptor, octets)
    }

    /// Memory that another process made with [`Self::create`].
    ///
    /// # Errors
    /// `EINVAL` for a descriptor of anything else, and those of `fstat` and `mmap`.
    pub fn from_descriptor(descriptor: OwnedFd) -> io::Result<Self> {
        // A file that can shrink would end us with SIGBUS.
        if !rustix::fs::fcntl_get_seals(&descriptor)?.contains(SEALS) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let octets = rustix::fs::fstat(&descriptor)?.st_size;
        Self::map(descriptor, octets.try_into().unwrap_or(0))
    }

    fn map(descriptor: OwnedFd, octets: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at a place of the kernel's choice replaces none; `EINVAL` for no octets.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                octets,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                descriptor.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Self { descriptor, start, octets })
    }

    /// The descriptor to be kept elsewhere.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// All of it.
    #[inline]
    pub fn octets(&self) -> &[u8] {
        // SAFETY: mapped as long as this value lives, of a size that is sealed; written only through `&mut self`.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.octets) }
    }

    /// All of it, to be changed.
    #[inline]
    pub fn octets_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` is the only way to it.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.octets) }
    }

    /// All of it as words, as many as fit, for memory that another process reads and writes at the same time: both sides
    /// use it in this way alone.
    #[inline]
    pub fn words(&mut self) -> &[AtomicU64] {
        // SAFETY: mapped as long as this value lives, of a size that is sealed, at the start of a page, and so aligned. As long as
        // this borrow lives, `&mut self` lets nobody of this process read it otherwise than as atomics. Every value is
        // an `AtomicU64`.
        unsafe { slice::from_raw_parts(self.start.as_ptr().cast(), self.octets / size_of::<AtomicU64>()) }
    }

    /// Gives back the pages that lie in the range as a whole: they read as zero again. A kernel that refuses keeps
    /// them as they are.
    ///
    /// # Panics
    /// When the range does not lie in the memory.
    pub fn release(&mut self, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= self.octets, "the range lies in the memory");
        let page = rustix::param::page_size();
        let (start, end) = (range.start.next_multiple_of(page), range.end / page * page);
        if start < end {
            // SAFETY: whole pages of this mapping, to which `&mut self` is the only way.
            unsafe { libc::madvise(self.start.as_ptr().add(start).cast(), end - start, libc::MADV_REMOVE) };
        }
    }
}

/// The beginning of a file that several processes share, as words. Who shortens the file ends whoever has it mapped (SIGBUS).
#[derive(Debug)]
pub struct SharedFile(SharedMemory);

impl SharedFile {
    /// Maps the file, which is made longer where it has fewer octets.
    ///
    /// # Errors
    /// `ENOSPC`, and those of `fstat`, `pwrite` and `mmap`.
    pub fn map(descriptor: OwnedFd, octets: usize) -> io::Result<Self> {
        let there = usize::try_from(rustix::fs::fstat(&descriptor)?.st_size).unwrap_or(0);
        if there < octets {
            // Written, and not only made longer: a full disk says so now.
            let zeros = vec![0; octets - there];
            let written = rustix::io::pwrite(&descriptor, &zeros, there as u64)?;
            (written == zeros.len()).then_some(()).ok_or(io::ErrorKind::WriteZero)?;
        }
        SharedMemory::map(descriptor, octets).map(Self)
    }

    /// Its words.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped as long as this value lives, at the start of a page, and so aligned. Nobody in this process reads it
        // otherwise than as atomics, and every value is one.
        unsafe { slice::from_raw_parts(self.0.start.as_ptr().cast(), self.0.octets / size_of::<AtomicU64>()) }
    }
}

impl AsFd for SharedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.descriptor()
    }
}

/// The memory of another process, which writes it while this one reads. It is mapped for reading only.
#[derive(Debug)]
pub struct ForeignMemory {
    start: NonNull<u8>,
    octets: usize,
}

// SAFETY: the mapping belongs to this value and to no thread, and is read as atomics only.
unsafe impl Send for ForeignMemory {}

impl ForeignMemory {
    /// Memory that another process made with [`SharedMemory::create`]. The descriptor is not needed afterwards.
    ///
    /// # Errors
    /// `EINVAL` for a descriptor of anything else, and those of `fstat` and `mmap`.
    pub fn from_descriptor(descriptor: impl AsFd) -> io::Result<Self> {
        // A file that can shrink would end us with SIGBUS.
        if !rustix::fs::fcntl_get_seals(&descriptor)?.contains(SEALS) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let octets = rustix::fs::fstat(&descriptor)?.st_size.try_into().unwrap_or(0);
        let descriptor = descriptor.as_fd().as_raw_fd();
        // SAFETY: a new mapping at a place of the kernel's choice replaces none; `EINVAL` for no octets.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), octets, libc::PROT_READ, libc::MAP_SHARED, descriptor, 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Self { start, octets })
    }

    /// Octets of it.
    pub fn octets(&self) -> usize {
        self.octets
    }

    /// The word at a multiple of eight, in one piece. No barrier.
    ///
    /// # Panics
    /// When it does not lie in the memory, or at a multiple of eight.
    #[inline]
    pub fn load(&self, at: usize) -> u64 {
        assert!(at.is_multiple_of(8), "a word");
        u64::from_le(self.words()[at / 8].load(Ordering::Relaxed))
    }

    /// Copies octets, each as it is at some time meanwhile. No barrier.
    ///
    /// # Panics
    /// When they do not lie in the memory.
    pub fn copy(&self, at: usize, into: &mut [u8]) {
        let (first, last) = (at.next_multiple_of(8).min(at + into.len()), (at + into.len()) / 8 * 8);
        let (head, rest) = into.split_at_mut(first - at);
        let (body, tail) = rest.split_at_mut(last.saturating_sub(first));
        let octets = |from: usize, into: &mut [u8]| {
            let places = self.singles()[from..].iter();
            into.iter_mut().zip(places).for_each(|(into, from)| *into = from.load(Ordering::Relaxed));
        };
        octets(at, head);
        let words = self.words()[first / 8..].iter();
        for (into, from) in body.as_chunks_mut().0.iter_mut().zip(words) {
            *into = from.load(Ordering::Relaxed).to_ne_bytes();
        }
        octets(first + body.len(), tail);
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped as long as this value lives, of a size that is sealed, at the start of a page, and so aligned. Every value
        // is an `AtomicU64`; nobody of this process reads it otherwise than as atomics, or writes it.
        unsafe { slice::from_raw_parts(self.start.as_ptr().cast(), self.octets / size_of::<AtomicU64>()) }
    }

    fn singles(&self) -> &[AtomicU8] {
        // SAFETY: as above.
        unsafe { slice::from_raw_parts(self.start.as_ptr().cast(), self.octets) }
    }
}

impl Drop for ForeignMemory {
    fn drop(&mut self) {
        // SAFETY: this mapping, and nothing borrows from it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.octets) };
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: this mapping, and nothing borrows from it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.octets) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(memory: &SharedMemory) -> i64 {
        rustix::fs::fstat(memory.descriptor()).expect("fstat").st_blocks / 8
    }

    #[test]
    fn the_next_process_finds_what_was_written() {
        let mut memory = SharedMemory::create("test", 1 << 20).expect("memfd");
        memory.octets_mut()[777_777..][..5].copy_from_slice(b"hello");
        let kept = memory.descriptor().try_clone_to_owned().expect("dup");
        drop(memory);
        let found = SharedMemory::from_descriptor(kept).expect("the same");
        assert_eq!((found.octets().len(), &found.octets()[777_777..][..5]), (1 << 20, &b"hello"[..]));
    }

    #[test]
    fn only_what_is_written_takes_memory_and_whole_pages_are_given_back() {
        let mut memory = SharedMemory::create("test", 64 << 20).expect("memfd");
        assert_eq!(pages(&memory), 0);
        memory.octets_mut()[40_000..60_000].fill(1);
        let before = pages(&memory);
        memory.release(41_000..59_000);
        assert_eq!(before - pages(&memory), 3, "from octet 45,056 to 57,344");
        assert_eq!(memory.octets()[41_000..45_056], [1; 4056], "part of a page stays");
        assert_eq!(memory.octets()[45_056..57_344], [0; 12_288]);
        assert_eq!(memory.octets()[57_344..60_000], [1; 2656]);
    }

    #[test]
    fn another_process_reads_what_is_written_at_any_place() {
        let mut memory = SharedMemory::create("test", 4096).expect("memfd");
        let foreign = ForeignMemory::from_descriptor(memory.descriptor()).expect("mapped");
        for (place, octet) in memory.octets_mut().iter_mut().enumerate() {
            *octet = (place * 7) as u8;
        }
        assert_eq!(foreign.octets(), 4096);
        assert_eq!(foreign.load(8), u64::from_le_bytes(memory.octets()[8..16].try_into().expect("eight")));
        for (at, length) in (0..20).flat_map(|at| (0..40).map(move |length| (at, length))) {
            let mut into = vec![0; length];
            foreign.copy(at, &mut into);
            assert_eq!(into, memory.octets()[at..at + length], "{length} from {at}");
        }
        foreign.copy(4090, &mut [0; 6]);
        assert!(ForeignMemory::from_descriptor(std::fs::File::open("/dev/null").expect("there")).is_err());
    }

    #[test]
    fn words_are_those_of_every_mapping() {
        let mut memory = SharedMemory::create("test", 4099).expect("memfd");
        let mut other = SharedMemory::from_descriptor(memory.descriptor().try_clone_to_owned().expect("dup"));
        let other = other.as_mut().expect("the same");
        memory.words()[511].store(7, Ordering::Release);
        assert_eq!((other.words().len(), other.words()[511].load(Ordering::Acquire)), (512, 7));
        assert_eq!(other.octets()[511 * 8..][..8], 7_u64.to_ne_bytes());
    }

    #[test]
    fn its_size_is_for_ever_and_others_are_refused() {
        let memory = SharedMemory::create("test", 8192).expect("memfd");
        assert!(rustix::fs::ftruncate(memory.descriptor(), 4096).is_err());
        assert!(rustix::fs::ftruncate(memory.descriptor(), 16_384).is_err());
        let loose = rustix::fs::memfd_create("test", MemfdFlags::ALLOW_SEALING).expect("memfd");
        rustix::fs::ftruncate(&loose, 8192).expect("ftruncate");
        let refused = SharedMemory::from_descriptor(loose).expect_err("it can shrink");
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("bind");
        assert!(SharedMemory::from_descriptor(socket.into()).is_err());
        assert!(SharedMemory::create("test", 0).is_err());
    }
}
