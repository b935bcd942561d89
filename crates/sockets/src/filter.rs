//! What the kernel drops before anybody is asked: whoever comes to a listener of TCP from where nobody is expected, and what
//! claims to be of a neighbour and has passed a router (GTSM, RFC 5082).
//!
//! ```text
//!  peers, networks ── paint ──> regions of the address space ── coarsen, if there are too many ──> program of classic BPF
//! ```
//!
//! There is a filter for any number of networks. Of those that no program has room for, the ones that are closest together
//! become one, with what is between them: who gets through in excess is for the stages of admission to judge. All of it is
//! pure but for [`Filter::attach`].

pub(crate) mod destinations;
mod program;
mod regions;

use std::{io, os::fd::AsFd};

use holdfast_sys::{
    filter::{Instruction, MOST_INSTRUCTIONS, set_filter},
    tcp::IpVersion,
};
use holdfast_types::Prefix;
use rustix::io::Errno;

use regions::{Purpose, Regions};

/// TTL of a neighbour's packets on the wire (RFC 5082 section 3).
pub const GTSM_TTL: u8 = 255;

/// A program is halved so often at most, because the kernel has no room for it.
const HALVINGS: u32 = 8;

/// What becomes of a packet.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Verdict {
    /// Nobody sees it.
    Drop,
    /// The same, unless it has passed no router.
    OneHop,
    /// It goes on.
    Take,
}

/// A peer, or all peers of a range.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FilteredPeer {
    /// Where it may come from.
    pub network: Prefix,
    /// GTSM: nothing of it may have passed a router.
    pub ttl_security: bool,
}

/// What a socket of one family does not get to see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter {
    version: IpVersion,
    regions: Regions,
}

impl Filter {
    /// For a listener of TCP: peers are answered, as are others in the networks that shall be heard, and nobody else. Of
    /// nested networks the most specific one counts, as everywhere.
    pub fn listener(
        version: IpVersion,
        peers: impl IntoIterator<Item = FilteredPeer>,
        heard: impl IntoIterator<Item = Prefix>,
    ) -> Self {
        Self { version, regions: Regions::new(version, Purpose::Listener, peers, heard) }
    }

    /// For datagrams: those of peers with GTSM have passed no router. All others are taken: who they are of, the stages of
    /// admission see, and a connection may have moved to an address where nobody is expected.
    pub fn datagrams(version: IpVersion, peers: impl IntoIterator<Item = FilteredPeer>) -> Self {
        Self { version, regions: Regions::new(version, Purpose::Datagrams, peers, []) }
    }

    /// Whether there is nothing that it drops.
    pub fn is_open(&self) -> bool {
        self.regions.is_all(Verdict::Take)
    }

    /// Has the kernel drop that at a socket, in place of what it was told before. A kernel that has no room for the whole
    /// program gets a coarser one.
    ///
    /// # Errors
    /// What the kernel says, or that too many peers with GTSM and without it are one beside the other.
    pub fn attach(&self, socket: impl AsFd) -> io::Result<()> {
        let mut result = Err(io::Error::other("too many peers with and without `ttl-security` alternate"));
        for halvings in 0..=HALVINGS {
            let Some(program) = self.program(MOST_INSTRUCTIONS >> halvings) else { break };
            result = set_filter(&socket, &program);
            match &result {
                Err(error) if Errno::from_io_error(error) == Some(Errno::NOMEM) => {}
                _ => break,
            }
        }
        result
    }

    /// One of so many instructions at most; `None`: what may be given up is not enough.
    fn program(&self, most: usize) -> Option<Vec<Instruction>> {
        let mut regions = self.regions.clone();
        loop {
            let program = program::program(self.version, &regions);
            if program.len() <= most {
                return Some(program);
            }
            // Each takes about the same, and what is left over has to become less every time.
            let fewer =
                (regions.len() * most / program.len()).min(regions.len() - regions.len().div_ceil(64));
            regions.coarsen(fewer.max(1))?;
        }
    }
}

#[cfg(test)]
mod tests;
