//! What a keeper hands to the next one: a message and descriptors, inside a socket that the next one is born with.
//!
//! Everything is in the socket before there is anybody to read it. The message is in a memory file, the first of the
//! descriptors: a message of any length and any number of descriptors fit into the socket's buffer.

use std::{
    fs::File,
    io::{IoSlice, IoSliceMut, Read, Seek, Write},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use anyhow::{Context, Result, ensure};
use holdfast_api::keeper::v1::State;
use prost::Message;
use rustix::{
    fs::MemfdFlags,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags,
    },
};

use crate::children::pair;

/// Descriptors in one message: the kernel takes 253.
const BATCH: usize = 250;

/// The end to be born with.
pub(crate) fn pack(state: &State, descriptors: &[BorrowedFd<'_>]) -> Result<OwnedFd> {
    let mut text = File::from(rustix::fs::memfd_create("keeper", MemfdFlags::CLOEXEC)?);
    text.write_all(&state.encode_to_vec())?;
    let mut all = vec![text.as_fd()];
    all.extend(descriptors);
    let (near, far) = pair()?;
    for batch in all.chunks(BATCH) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        ensure!(control.push(SendAncillaryMessage::ScmRights(batch)), "no room for descriptors");
        // Nobody reads yet: what does not fit must not be waited for.
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::sendmsg(&near, &[IoSlice::new(&[0])], &mut control, flags).context("packing")?;
    }
    Ok(far)
}

/// What is in it.
///
/// # Errors
/// When it is not what [`pack`] makes, or descriptors were lost on the way.
pub(crate) fn unpack(socket: &OwnedFd) -> Result<(State, Vec<OwnedFd>)> {
    let mut descriptors = Vec::new();
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        // One octet at a time: each message brings its own descriptors.
        let mut octet = [0];
        let mut octet = [IoSliceMut::new(&mut octet)];
        let received = rustix::net::recvmsg(socket, &mut octet, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        ensure!(!received.flags.contains(ReturnFlags::CTRUNC), "descriptors were lost");
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(arrived) = message {
                descriptors.extend(arrived);
            }
        }
        if received.bytes == 0 {
            break;
        }
    }
    ensure!(!descriptors.is_empty(), "nothing was handed over");
    let mut text = File::from(descriptors.remove(0));
    let mut bytes = Vec::new();
    text.rewind()?;
    text.read_to_end(&mut bytes)?;
    Ok((State::decode(bytes.as_slice())?, descriptors))
}

#[cfg(test)]
mod tests {
    use holdfast_api::keeper::v1::Record;

    use super::*;

    #[test]
    fn everything_arrives_in_order_although_nobody_reads_meanwhile() {
        let pipes: Vec<_> = (0..600).map(|_| std::io::pipe().expect("a pipe")).collect();
        let descriptors: Vec<_> = pipes.iter().map(|(reader, _)| reader.as_fd()).collect();
        let record = |restarts| Record { name: "bgp".repeat(100), restarts, ..Record::default() };
        let state = State { format: 1, records: (0..2000).map(record).collect(), ..State::default() };
        let far = pack(&state, &descriptors).expect("packed");
        for (number, (_, writer)) in pipes.iter().enumerate() {
            let mut writer = writer;
            writer.write_all(&(number as u32).to_ne_bytes()).expect("room in the pipe");
        }
        let (arrived, descriptors) = unpack(&far).expect("unpacked");
        assert_eq!((arrived, descriptors.len()), (state, 600));
        for (number, descriptor) in descriptors.into_iter().enumerate() {
            let mut octets = [0; 4];
            File::from(descriptor).read_exact(&mut octets).expect("what was written");
            assert_eq!(u32::from_ne_bytes(octets), number as u32);
        }
    }

    #[test]
    fn what_is_no_parcel_is_an_error() {
        let (near, far) = pair().expect("a pair");
        drop(near);
        assert!(unpack(&far).is_err());
    }
}
