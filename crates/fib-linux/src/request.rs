//! Requests to the kernel and their answers, over one socket.

use std::{fmt, io, os::fd::OwnedFd};

use holdfast_sys::netlink;
use rustix::io::Errno;

use crate::{
    message::{Batch, HEADER, Message, attributes, flag, kind, messages, u32_at},
    socket::Socket,
};

/// Room for the kernel's answers to a batch. Each refused request costs about 1 KiB of it, so that a batch of
/// [`MESSAGES_MAX`] refusals fits.
const RECEIVE_BUFFER: usize = 4 << 20;

/// Requests in one write. Larger batches gain nothing (the kernel's work per route dominates from ten on).
pub(crate) const MESSAGES_MAX: usize = 1000;

/// Octets read at once; the kernel fills at most 32 KiB of it in a dump.
const READ: usize = 64 << 10;

/// The kernel's refusal of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) errno: Errno,
    /// The kernel's own words, if it gave any.
    text: Option<String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => write!(f, "{text} ({})", io::Error::from(self.errno)),
            None => io::Error::from(self.errno).fmt(f),
        }
    }
}

impl Refusal {
    /// Of the body of an `NLMSG_ERROR`; `None` for an acknowledgement.
    fn read(message: &Message<'_>) -> Option<Self> {
        let code = u32_at(message.body, 0) as i32;
        // NETLINK_CAP_ACK: only the header of the refused request is repeated, attributes follow it.
        let tlvs = if message.flags & flag::ACK_TLVS != 0 { message.body } else { &[] };
        (code != 0).then(|| Self {
            errno: Errno::from_raw_os_error(code.saturating_neg()),
            text: attributes(tlvs, 4 + HEADER).find(|(kind, _)| *kind == 1).map(|(_, text)| c_text(text)),
        })
    }
}

fn c_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

/// A socket for requests that the kernel answers before the write returns: reading never waits long.
pub(crate) struct Requests {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
    /// The kernel has more of a dump to give, and refuses to begin another.
    dumping: bool,
}

impl Requests {
    /// Over a socket that nobody has used.
    pub(crate) fn over(socket: OwnedFd) -> io::Result<Self> {
        let socket = Socket::new(socket, RECEIVE_BUFFER)?;
        netlink::set_strict(&socket)?;
        Ok(Self { socket, sequence: 0, buffer: vec![0; READ], dumping: false })
    }

    /// A number for the next request.
    pub(crate) fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    /// Sends the batch and calls `refused` with the sequence number of each request that failed.
    pub(crate) fn exchange(
        &mut self,
        batch: &mut Batch,
        mut refused: impl FnMut(u32, Refusal),
    ) -> io::Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        batch.acknowledge_last();
        self.socket.send(batch.bytes())?;
        let last = self.sequence;
        let mut answered = false;
        while !answered {
            for message in messages(self.socket.receive(&mut self.buffer)?) {
                if message.kind != kind::ERROR {
                    continue;
                }
                answered |= message.sequence == last;
                if let Some(refusal) = Refusal::read(&message) {
                    refused(message.sequence, refusal);
                }
            }
        }
        Ok(())
    }

    /// Sends one request: what the kernel thought of it.
    pub(crate) fn one(&mut self, write: impl FnOnce(&mut Batch, u32)) -> io::Result<Result<(), Refusal>> {
        let mut batch = Batch::new();
        write(&mut batch, self.next_sequence());
        let mut result = Ok(());
        self.exchange(&mut batch, |_, refusal| result = Err(refusal))?;
        Ok(result)
    }

    /// Asks for a dump, whose answers [`Requests::dumped`] reads. No other request until it is done; another dump
    /// waits for the rest of the one before.
    pub(crate) fn dump(&mut self, kind: u16, header: &[u8]) -> io::Result<()> {
        while self.dumping {
            self.dumped(|_| ())?;
        }
        let mut batch = Batch::new();
        batch.message(kind, flag::DUMP, self.next_sequence(), |body| body.header(header));
        self.socket.send(batch.bytes())?;
        self.dumping = true;
        Ok(())
    }

    /// Reads a part of the dump.
    pub(crate) fn dumped(&mut self, each: impl FnMut(Message<'_>)) -> io::Result<Dumped> {
        let read = self.read_dump(each);
        self.dumping = matches!(read, Ok(Dumped::More | Dumped::Interrupted));
        read
    }

    fn read_dump(&mut self, mut each: impl FnMut(Message<'_>)) -> io::Result<Dumped> {
        let mut state = Dumped::More;
        for message in messages(self.socket.receive(&mut self.buffer)?) {
            if message.sequence != self.sequence {
                continue;
            }
            if message.flags & flag::DUMP_INTERRUPTED != 0 {
                state = Dumped::Interrupted;
            }
            match message.kind {
                kind::DONE | kind::ERROR if !is_done(&message) => return Err(dump_refused(&message)),
                kind::DONE | kind::ERROR if state == Dumped::Interrupted => {
                    return Ok(Dumped::DoneInterrupted);
                }
                kind::DONE | kind::ERROR => return Ok(Dumped::Done),
                _ => each(message),
            }
        }
        Ok(state)
    }

    /// The whole of a dump, again when the table changed meanwhile (at most four times).
    pub(crate) fn dump_all<T>(
        &mut self,
        kind: u16,
        header: &[u8],
        mut parse: impl FnMut(Message<'_>) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        const ATTEMPTS: usize = 4;
        let mut all = Vec::new();
        for _ in 0..ATTEMPTS {
            all.clear();
            self.dump(kind, header)?;
            let mut whole = true;
            let done = loop {
                match self.dumped(|message| all.extend(parse(message)))? {
                    Dumped::More => {}
                    Dumped::Interrupted => whole = false,
                    Dumped::Done => break whole,
                    Dumped::DoneInterrupted => break false,
                }
            };
            if done {
                break;
            }
        }
        Ok(all)
    }
}

/// How far a dump is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Dumped {
    /// There is more to read.
    More,
    /// There is more to read, and the table changed in a way that the dump may miss.
    Interrupted,
    /// That was all.
    Done,
    /// That was all, and the table changed in a way that the dump may miss.
    DoneInterrupted,
}

/// Whether the end of a dump is one that all was said before. Of a table that does not exist, too: it is empty.
fn is_done(message: &Message<'_>) -> bool {
    match Refusal::read(message) {
        None => message.kind == kind::DONE,
        Some(refusal) => refusal.errno == Errno::NOENT,
    }
}

fn dump_refused(message: &Message<'_>) -> io::Error {
    match Refusal::read(message) {
        Some(refusal) => io::Error::other(refusal.to_string()),
        None => io::Error::other("a dump was acknowledged, not answered"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `-EINVAL` for sequence 9, capped, with the text of NLMSGERR_ATTR_MSG.
    fn refusal(flags: u16) -> Vec<u8> {
        let mut batch = Batch::new();
        batch.message(kind::ERROR, flags, 9, |body| {
            body.header(&(-22_i32).to_ne_bytes());
            body.header(&[0; HEADER]);
            body.attribute(2, &[0; 4]);
            body.attribute(1, b"Nexthop id does not exist\0");
        });
        batch.bytes().to_vec()
    }

    #[test]
    fn a_refusal_carries_the_kernels_words() {
        let bytes = refusal(flag::ACK_TLVS | 0x100);
        let refusal = messages(&bytes).find_map(|message| Refusal::read(&message)).expect("an error");
        assert_eq!(refusal.errno, Errno::INVAL);
        assert_eq!(refusal.to_string(), "Nexthop id does not exist (Invalid argument (os error 22))");
    }

    #[test]
    fn without_its_flag_there_are_no_words() {
        let bytes = refusal(0);
        let refusal = messages(&bytes).find_map(|message| Refusal::read(&message)).expect("an error");
        assert_eq!(refusal.to_string(), "Invalid argument (os error 22)");
    }

    #[test]
    fn zero_is_an_acknowledgement() {
        let mut batch = Batch::new();
        batch.message(kind::ERROR, 0, 9, |body| body.header(&[0; 4 + HEADER]));
        assert_eq!(messages(batch.bytes()).find_map(|message| Refusal::read(&message)), None);
    }
}
