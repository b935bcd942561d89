//! What the driver of the pipeline does for signatures.

use std::time::Instant;

use holdfast_bgp_wire::nlri::Identified;
use holdfast_types::Prefix;

use super::Pipeline;
use crate::{
    SignatureStore, Signer, SigningCounts, SigningJob,
    onward::Signers,
    signing::Waiter,
    update_group::{Streams, member::StreamId, stream::Stream},
};

impl Pipeline {
    /// Keeps signatures of ours there from now on; to be called before any session that takes signed paths is up.
    pub fn keep_signatures(&mut self, store: Box<dyn SignatureStore>) {
        self.core.signing.keep_in(store);
    }

    /// So many signatures are kept at most.
    pub fn set_kept_signatures(&mut self, most: usize) {
        self.core.signing.set_most(most);
    }

    /// Whether signatures are kept.
    pub fn keeps_signatures(&self) -> bool {
        self.core.signing.keeps()
    }

    /// After a change of keys so many signatures a second are asked for again.
    pub fn set_signing_rate(&mut self, rate: u32) {
        self.core.signing.pace.rate = rate;
    }

    /// The keys that paths are signed with from now on. Routes that others have signed are sent again as
    /// [`Self::pull`] comes by.
    pub fn set_signers(&mut self, signers: impl IntoIterator<Item = Signer>) {
        self.core.signing.is_followed = true;
        self.core.signing.jobs.retry();
        if self.core.signing.set_signers(Signers::new(signers)) {
            self.change_exports();
        }
        self.wake_signing();
    }

    /// Octets that are to be signed; the driver decides how many are under way. Each job is answered by [`Self::signed`], or
    /// given back with all others by [`Self::signing_lost`].
    pub fn poll_to_sign(&mut self) -> Option<SigningJob> {
        let streams = &self.streams;
        let job = self.core.signing.jobs.poll(|waiter, mark| is_awaited(streams, waiter, mark));
        self.offer_room();
        job
    }

    /// Those who could not ask because there were too many jobs can again.
    fn offer_room(&mut self) {
        if self.core.signing.jobs.has_room_again() {
            self.streams.iter_mut().for_each(Stream::retry);
            self.streams.look_anew();
        }
    }

    /// Whether [`Self::poll_to_sign`] has something, or [`Self::set_signers`] is waited for since the start or since
    /// [`Self::signing_lost`].
    pub fn has_to_sign(&self) -> bool {
        let signing = &self.core.signing;
        signing.jobs.is_ready() || signing.is_used && !signing.is_followed
    }

    /// A job is done. Without octets: there is no such key, and the route waits until [`Self::set_signers`] says which there
    /// are.
    pub fn signed(&mut self, number: u64, signature: &[u8]) {
        if signature.is_empty() {
            let streams = &self.streams;
            self.core.signing.jobs.refuse(number, |waiter, mark| is_awaited(streams, waiter, mark));
            return self.offer_room();
        }
        let (v4, v6) = (&self.v4.rib, &self.v6.rib);
        let mut is_used = |prefix: Prefix| match prefix {
            Prefix::V4(prefix) => v4.best(prefix).is_some(),
            Prefix::V6(prefix) => v6.best(prefix).is_some(),
        };
        let was_silent = self.core.signing.silence.is_silent();
        let waiters = self.core.signing.done(number, signature, &mut is_used);
        for Waiter { stream, identifier, prefix } in waiters {
            let Some(stream) = self.streams.get_mut(StreamId(stream)) else { continue };
            match prefix {
                Prefix::V4(prefix) => stream.v4.wake(Identified { identifier, prefix }),
                Prefix::V6(prefix) => stream.v6.wake(Identified { identifier, prefix }),
            }
        }
        if was_silent {
            self.wake_signing();
        }
        self.offer_room();
        self.streams.look_anew();
    }

    /// All jobs that are under way are lost: they are handed out again.
    pub fn signing_lost(&mut self) {
        self.core.signing.is_followed = false;
        self.core.signing.jobs.lost();
    }

    /// What is counted of signatures of ours.
    pub fn signing_counts(&self) -> SigningCounts {
        self.core.signing.counts()
    }

    /// Background work: ends the waiting for those who sign, and goes on with signing again.
    pub(crate) fn signing_slice(&mut self) {
        if !self.core.signing.is_used {
            return;
        }
        let signing = &mut self.core.signing;
        if signing.signers.is_some() && signing.jobs.len() == 0 {
            signing.silence.rests();
        }
        if signing.silence.ends(signing.now) {
            self.wake_signing();
        }
        self.block_walks();
    }

    /// When [`Self::work`] has something to do for signatures of ours. It may be earlier after each call of [`Self::pull`],
    /// which may ask for signatures.
    pub fn signing_timeout(&self) -> Option<Instant> {
        let signing = &self.core.signing;
        if !signing.is_used {
            return None;
        }
        let is_again = || self.streams.iter().any(|(_, stream)| stream.is_signed_again());
        let paced = signing.pace.blocks(signing.now).filter(|_| is_again());
        signing.silence.timeout().into_iter().chain(paced).min()
    }

    /// Whatever waits for signatures is looked at again.
    fn wake_signing(&mut self) {
        self.streams.iter_mut().for_each(Stream::wake_all);
        self.block_walks();
        self.streams.look_anew();
    }

    /// Walks wait until it is known which keys there are, and those that sign again for their turn.
    pub(crate) fn block_walks(&mut self) {
        let signing = &mut self.core.signing;
        if !signing.is_used {
            return;
        }
        let is_paced = signing.pace.blocks(signing.now).is_some();
        let (mut is_awaited, mut has_changed) = (false, false);
        for stream in self.streams.iter_mut().filter(|stream| stream.group.export.signing.is_some()) {
            let is_undecided = signing.signers.is_none() && !signing.silence.is_silent();
            is_awaited |= is_undecided;
            has_changed |= stream.block(is_undecided || is_paced && stream.is_signed_again());
        }
        if is_awaited {
            signing.silence.asks(signing.now);
        }
        if has_changed {
            self.streams.look_anew();
        }
    }
}

fn is_awaited(streams: &Streams, waiter: &Waiter, mark: u64) -> bool {
    let Waiter { stream, identifier, prefix } = *waiter;
    let Some(stream) = streams.get(StreamId(stream)) else { return false };
    match prefix {
        Prefix::V4(prefix) => stream.v4.awaits(Identified { identifier, prefix }, mark),
        Prefix::V6(prefix) => stream.v6.awaits(Identified { identifier, prefix }, mark),
    }
}
