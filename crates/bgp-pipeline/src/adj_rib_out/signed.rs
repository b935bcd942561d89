//! Routes that are sent with signatures: each in an UPDATE of its own (RFC 8205 section 4.1), or put off.

use holdfast_bgp_wire::{
    NextHop, UpdateEncoder, as_path::AsPath, encode::AttributesTooLong, nlri::Identified,
};
use holdfast_types::{IpPrefix, Prefix};

use super::{
    TooLong, Unfit, Window,
    chain::{Chain, END, Placed, as_path, attributes, attributes_with_path, encode_one_chain},
    complete::{Completed, complete},
    outgoing::{Outgoing, Target, withdraw, withdraw_paths},
    recipients::Recipients,
    secure::{Sending, ToSign, onward},
};
use crate::{
    core::Core,
    journal::{AttributeHasher, format},
    onward::{Onward, Unsigned},
    path::SourceId,
    rewrite::export::ExportedNextHop,
    seam::StreamKey,
    secure_path::{insert_secure_path, secure_path},
    signing::{Had, Outlook, Pending, Waiter, Waiting},
};

/// Routes of a reader that are put off, and those that fit no message.
pub(crate) type Lent<P> = (Option<Box<Pending<P>>>, Option<Box<TooLong<P>>>);

/// How the routes of a chain are sent. The window's attributes are those that go with it.
struct Prepared {
    onward: Onward,
    named: ExportedNextHop,
    next_hop: NextHop,
}

impl<P: IpPrefix> Window<P> {
    /// Routes that are put off, or fit no message, are those of this reader until [`Self::give_back`].
    pub(crate) fn lend(&mut self, (pending, too_long): Lent<P>) {
        (self.pending, self.too_long) = (pending, too_long);
    }

    pub(crate) fn give_back(&mut self) -> Lent<P> {
        let pending = self.pending.take().filter(|pending| !pending.is_empty());
        (pending, self.too_long.take().filter(|too_long| !too_long.is_empty()))
    }

    /// What can be done of those.
    pub(crate) fn waiting(&self) -> Outlook {
        Pending::outlook(self.pending.as_deref())
    }

    /// The next one that can be looked at again, and whose path it was.
    pub(crate) fn poll_waiting(&mut self) -> Option<(Identified<P>, SourceId)> {
        let (route, waiting) = self.pending.as_mut()?.poll()?;
        Some((route, waiting.source))
    }

    /// A walk has come to its end; whether announcements were put off that come before the members are told so.
    pub(crate) fn end_walk(&mut self) -> bool {
        self.pending.as_mut().is_some_and(|pending| pending.end_walk())
    }

    /// Whether some are put off.
    #[inline]
    pub(super) fn puts_off(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| !pending.is_empty())
    }

    /// What is known of a route if it was put off. It is not any more.
    #[inline]
    pub(super) fn take_waiting(&mut self, route: Identified<P>) -> Option<Waiting> {
        self.pending.as_mut()?.take(route)
    }

    /// What had been put off is settled: the route is announced as it is `now`, or not at all.
    pub(super) fn settle(
        &mut self,
        core: &Core,
        recipients: &Recipients<'_>,
        (source, prefix): (SourceId, P),
        waiting: Waiting,
        now: Option<super::Place>,
    ) {
        let had = waiting.had;
        self.count_had(recipients, had, -1);
        let Some(place) = now else {
            return match had {
                Had::Nobody => {}
                Had::All => self.retire_one(core, recipients, Target::All, (source, prefix)),
                Had::Except(_) if recipients.is_alone_and_silent() => {}
                Had::Except(peer) => {
                    self.retire_one(core, recipients, Target::Except(peer), (source, prefix));
                }
            };
        };
        let had = match place.member {
            Some(peer) if had != Had::Nobody && had != Had::Except(peer) => {
                self.retire_one(core, recipients, Target::Only(peer), (source, prefix));
                Had::Except(peer)
            }
            Some(_) | None => had,
        };
        self.announce_one(place, (source, prefix), had, Some(waiting));
    }

    /// Counts what was told before. Who was not told may be in another stream by now.
    fn count_had(&mut self, recipients: &Recipients<'_>, had: Had, by: i64) {
        if had != Had::Nobody {
            self.tally.announce(had.except().filter(|peer| recipients.members.contains(*peer)), by);
        }
    }

    fn announce_one(
        &mut self,
        place: super::Place,
        (source, prefix): (SourceId, P),
        had: Had,
        before: Option<Waiting>,
    ) {
        let chain = &mut self.chains[place.chain as usize];
        if chain.signable.is_some() {
            self.to_sign.push(ToSign { chain: place.chain, prefix, source, had, before });
        } else {
            self.tally.announce(place.member, 1);
            self.announced.extend(chain, std::iter::once(prefix));
        }
    }

    /// The same of routes that were not put off.
    #[cold]
    pub(super) fn announce_signable(
        &mut self,
        chain: u32,
        source: SourceId,
        prefixes: impl Iterator<Item = P>,
        had: Had,
    ) {
        self.to_sign.extend(prefixes.map(|prefix| ToSign { chain, prefix, source, had, before: None }));
    }

    /// Encodes the routes that may be sent with signatures, or puts them off.
    #[cold]
    pub(super) fn encode_signable(&mut self, sending: &mut Sending<'_, '_>) {
        let mut to_sign = std::mem::take(&mut self.to_sign);
        // Stable: of one chain the order of the log stays.
        to_sign.sort_by_key(|route| route.chain);
        for routes in to_sign.chunk_by(|a, b| a.chain == b.chain) {
            let chain = self.chains[routes[0].chain as usize];
            match self.prepare(sending.core, sending.recipients, &chain) {
                Some(Prepared { onward: Onward::Plain(why), .. }) => {
                    let chain = Chain { stays_inside: why == Unsigned::Internal, ..chain };
                    self.encode_plain(sending, chain, routes.iter().map(|route| route.prefix));
                }
                None => self.encode_plain(sending, chain, routes.iter().map(|route| route.prefix)),
                Some(prepared) => {
                    routes.iter().for_each(|route| self.encode_one(sending, (&chain, &prepared), route));
                }
            }
        }
        to_sign.clear();
        self.to_sign = to_sign;
    }

    /// How the routes of a chain are sent; their attributes but for the path are left in `self.attributes`.
    fn prepare(&mut self, core: &Core, recipients: &Recipients<'_>, chain: &Chain) -> Option<Prepared> {
        let judged = (chain.judged, chain.side);
        let (named, next_hop) =
            attributes_with_path::<P>(core, recipients, judged, Placed::MpReach, &mut self.attributes)?;
        let (place, value) = as_path(&self.attributes)?;
        let export = &recipients.group(chain.side).export;
        let signable = chain.signable?;
        // With the keys that there are now, also while a walk for a change of keys has not come by.
        let signing = recipients.current.export.signs::<P>();
        let onward = onward(core, (export, signing), signable, chain.judged.set, AsPath::new(value));
        self.attributes.drain(place);
        if onward == Onward::Unchanged {
            let path = secure_path(core.sets.attributes(chain.judged.set))?;
            insert_secure_path(&mut self.attributes, path);
        }
        Some(Prepared { onward, named, next_hop })
    }

    /// With an AS_PATH, together.
    fn encode_plain(
        &mut self,
        sending: &mut Sending<'_, '_>,
        chain: Chain,
        prefixes: impl ExactSizeIterator<Item = P>,
    ) {
        self.tally.announce(chain.member, prefixes.len() as i64);
        let mut chain = Chain { first: END, last: END, signable: None, ..chain };
        self.announced.extend(&mut chain, prefixes);
        let Sending { core, recipients, encoder, out } = sending;
        let fits =
            encode_one_chain(core, recipients, *encoder, &chain, &self.announced, &mut self.secured, out);
        if let Err(too_long) = fits {
            let unfit = Unfit { too_long: &mut self.too_long, tally: &mut self.tally };
            unfit.take_back(core, &chain, too_long.of(&chain, self.announced.of(&chain)));
        }
    }

    fn encode_one(
        &mut self,
        sending: &mut Sending<'_, '_>,
        (chain, prepared): (&Chain, &Prepared),
        route: &ToSign<P>,
    ) {
        let Sending { core, recipients, encoder, out } = sending;
        let Core { sets, signing, .. } = &mut **core;
        let (signed, prefix) = (secure_path(sets.attributes(chain.judged.set)), route.prefix.into());
        let nobody = chain.member.is_some() && recipients.members.len() == 1;
        if nobody && recipients.journal.is_none() {
            return self.tally.announce(chain.member, 1);
        }
        let may_ask = self.pending.as_ref().is_none_or(|pending| pending.has_room());
        self.secured.clear();
        self.secured.extend_from_slice(&self.attributes);
        let mut mark = None;
        match &prepared.onward {
            Onward::Plain(_) | Onward::Undecided => return self.put_off(sending, chain, route, Some(0)),
            Onward::Unchanged => {}
            Onward::Signed(plan) => {
                let marked = plan.mark(signing.hasher(), signed, prefix);
                mark = Some(marked);
                if !nobody {
                    let waiter = waiter(recipients, chain, prefix);
                    match complete(signing, plan, (signed, marked), (prefix, waiter, may_ask)) {
                        Completed::Whole(value) => insert_secure_path(&mut self.secured, &value),
                        Completed::Missing { is_asked } => {
                            return self.put_off(sending, chain, route, is_asked.then_some(marked));
                        }
                        Completed::TooLong => return self.leave_out(sending, chain, route.prefix),
                    }
                }
            }
        }
        let start = out.bytes.len();
        let sent = match nobody {
            true => Ok(0),
            false => announce(*encoder, &self.secured, (chain, prepared.next_hop), route.prefix, out),
        };
        let Ok(messages) = sent else { return self.leave_out(sending, chain, route.prefix) };
        if prepared.named == ExportedNextHop::Ourselves {
            out.note_own_next_hops(start);
        }
        out.messages += messages as u64;
        self.tally.announce(chain.member, 1);
        if let (Some(recorder), Some((hasher, _))) = (&mut out.recorder, recipients.journal) {
            let hash = hash(hasher, &mut self.attributes, mark, prepared.named);
            let told = format::Announced { hash, source: chain.source };
            recorder.announced(told, chain.identifier.unwrap_or(0), std::iter::once(route.prefix));
        }
        out.close(chain.member.map_or(Target::All, Target::Except));
    }

    /// What cannot be said must not leave the old route standing. Its signatures are not left out to make it fit (section 4.1).
    fn leave_out(&mut self, sending: &mut Sending<'_, '_>, chain: &Chain, prefix: P) {
        let Sending { core, encoder, out, .. } = sending;
        let encoder = *encoder;
        Unfit { too_long: &mut self.too_long, tally: &mut self.tally }.note(core, chain, prefix);
        out.too_long += 1;
        match chain.identifier {
            None => withdraw(encoder, std::iter::once(prefix), out),
            Some(identifier) => {
                withdraw_paths(encoder, std::iter::once(Identified { identifier, prefix }), out);
            }
        }
        out.close(chain.member.map_or(Target::All, Target::Except));
    }

    /// The route waits for its signatures. If nobody signs, it is announced with an AS_PATH meanwhile.
    fn put_off(
        &mut self,
        sending: &mut Sending<'_, '_>,
        chain: &Chain,
        route: &ToSign<P>,
        asked: Option<u64>,
    ) {
        let key = sending.core.speaker.hash_key;
        let signing = &mut sending.core.signing;
        signing.silence.asks(signing.now);
        let (mut had, mut is_plain) = (route.had, route.before.is_some_and(|before| before.is_plain));
        if signing.silence.is_silent() {
            self.encode_plain(sending, *chain, std::iter::once(route.prefix));
            (had, is_plain) = (Had::all_but(chain.member), true);
        } else {
            // They have what they were told before.
            self.count_had(sending.recipients, had, 1);
        }
        let told = Identified { identifier: chain.identifier.unwrap_or(0), prefix: route.prefix };
        let pending = self.pending.get_or_insert_with(|| Box::new(Pending::new(key)));
        pending.add(told, (had, route.source), is_plain, route.before, asked);
    }

    /// Stands for what a route is announced with, in the same way for all processes; `None` where it cannot be announced.
    pub(super) fn hash_signable(
        &mut self,
        core: &Core,
        recipients: &Recipients<'_>,
        chain: u32,
        prefix: P,
    ) -> Option<u64> {
        let chain = self.chains[chain as usize];
        let (hasher, _) = recipients.journal?;
        let Prepared { onward, named, .. } = self.prepare(core, recipients, &chain)?;
        let mark = match onward {
            Onward::Undecided => return None,
            Onward::Unchanged => None,
            Onward::Signed(plan) => {
                let signed = secure_path(core.sets.attributes(chain.judged.set));
                Some(plan.mark(core.signing.hasher(), signed, prefix.into()))
            }
            Onward::Plain(why) => {
                let (judged, is_inside) = ((chain.judged, chain.side), why == Unsigned::Internal);
                let (named, _) = attributes::<P>(core, recipients, judged, is_inside, &mut self.attributes)?;
                return Some(hasher.hash(&self.attributes, named));
            }
        };
        Some(hash(hasher, &mut self.attributes, mark, named))
    }
}

/// The attributes without our own signatures, which are others each time, and what stands for what these cover.
fn hash(
    hasher: &AttributeHasher,
    attributes: &mut Vec<u8>,
    mark: Option<u64>,
    named: ExportedNextHop,
) -> u64 {
    let octets = attributes.len();
    attributes.extend(mark.iter().flat_map(|mark| mark.to_be_bytes()));
    let hash = hasher.hash(attributes, named);
    attributes.truncate(octets);
    hash
}

fn waiter(recipients: &Recipients<'_>, chain: &Chain, prefix: Prefix) -> Option<Waiter> {
    let StreamKey::Group(stream) = recipients.lane else { return None };
    Some(Waiter { stream, identifier: chain.identifier.unwrap_or(0), prefix })
}

/// One UPDATE with one prefix in MP_REACH_NLRI, whatever its family.
fn announce<P: IpPrefix>(
    encoder: UpdateEncoder,
    attributes: &[u8],
    (chain, next_hop): (&Chain, NextHop),
    prefix: P,
    out: &mut Outgoing,
) -> Result<usize, AttributesTooLong> {
    match chain.identifier {
        None => encoder.announce_alone(attributes, next_hop, prefix, &mut out.bytes),
        Some(identifier) => {
            encoder.announce_alone(attributes, next_hop, Identified { identifier, prefix }, &mut out.bytes)
        }
    }
}
