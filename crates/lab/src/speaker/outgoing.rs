//! What is still to be sent: tables as positions, encoded no earlier than the peer takes them.

use std::{collections::VecDeque, io, io::Write, net::IpAddr, net::TcpStream, ops::Range, sync::Arc};

use holdfast_bgp_wire::{
    NextHop, UpdateEncoder,
    edit::{Change, Edit, rewrite},
    encode::end_of_rib,
};
use holdfast_types::{Family, IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix};

use super::SpeakerConfig;
use crate::table::{Table, family_of};

/// Octets encoded ahead of the kernel.
const AHEAD: usize = 128 * 1024;
/// Routes encoded in one go.
const RUN: usize = 1024;
/// LOCAL_PREF towards a peer of the own AS, which must have one (RFC 4271 section 5.1.5).
const LOCAL_PREF: u32 = 100;

/// How the session encodes.
#[derive(Clone, Debug)]
pub(super) struct Encoding {
    pub(super) encoder: UpdateEncoder,
    pub(super) external: bool,
    pub(super) four_octet_as: bool,
    pub(super) families: Vec<Family>,
}

#[derive(Debug)]
enum Job {
    Announce { table: Arc<Table>, at: usize },
    Withdraw { table: Arc<Table>, at: usize },
    Octets(Vec<u8>),
}

/// Jobs in order, and the octets of the first of them.
#[derive(Debug)]
pub(super) struct Outgoing {
    encoding: Encoding,
    jobs: VecDeque<Job>,
    octets: Vec<u8>,
    sent: usize,
    attributes: Vec<u8>,
}

impl Outgoing {
    pub(super) fn new(encoding: Encoding) -> Self {
        Self { encoding, jobs: VecDeque::new(), octets: Vec::new(), sent: 0, attributes: Vec::new() }
    }

    pub(super) fn announce(&mut self, table: Arc<Table>) {
        self.jobs.push_back(Job::Announce { table, at: 0 });
    }

    pub(super) fn withdraw(&mut self, table: Arc<Table>) {
        self.jobs.push_back(Job::Withdraw { table, at: 0 });
    }

    pub(super) fn end_of_rib(&mut self) {
        let mut octets = Vec::new();
        self.encoding.families.iter().for_each(|family| end_of_rib(*family, &mut octets));
        self.raw(octets);
    }

    pub(super) fn raw(&mut self, octets: Vec<u8>) {
        self.jobs.push_back(Job::Octets(octets));
    }

    /// A whole message that does not wait for the jobs: they are encoded in whole messages too.
    pub(super) fn urgent(&mut self, message: &[u8]) {
        self.octets.extend_from_slice(message);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.octets.is_empty()
    }

    /// Gives the kernel what it takes.
    pub(super) fn write(&mut self, stream: &mut TcpStream, config: &SpeakerConfig) -> io::Result<()> {
        loop {
            self.encode(config)?;
            if self.octets.is_empty() {
                return Ok(());
            }
            match stream.write(&self.octets[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.sent == self.octets.len() {
                self.octets.clear();
                self.sent = 0;
            }
        }
    }

    fn encode(&mut self, config: &SpeakerConfig) -> io::Result<()> {
        while self.octets.len() - self.sent < AHEAD {
            let Some(job) = self.jobs.front_mut() else { break };
            let (table, run) = match job {
                Job::Octets(octets) => {
                    self.octets.append(octets);
                    self.jobs.pop_front();
                    continue;
                }
                Job::Announce { table, at } | Job::Withdraw { table, at } => {
                    let run = run(table, *at);
                    *at = run.end;
                    (Arc::clone(table), run)
                }
            };
            if run.is_empty() {
                self.jobs.pop_front();
            } else if matches!(job, Job::Announce { .. }) {
                self.encode_announcement(&table, run, config)?;
            } else {
                self.encode_withdrawal(&table, run);
            }
        }
        Ok(())
    }

    fn encode_announcement(
        &mut self,
        table: &Table,
        run: Range<usize>,
        config: &SpeakerConfig,
    ) -> io::Result<()> {
        let Encoding { encoder, external, four_octet_as, .. } = self.encoding;
        let family = family_of(table.routes[run.start].0);
        if !self.encoding.families.contains(&family) {
            return Ok(());
        }
        let mp_next_hop = match (family, config.next_hop_v4) {
            (Family::IPV4_UNICAST, IpAddr::V4(_)) => None,
            (Family::IPV4_UNICAST, IpAddr::V6(global)) => Some(NextHop::V6 { global, link_local: None }),
            _ => Some(NextHop::V6 { global: config.next_hop_v6, link_local: None }),
        };
        let ours = [(config.asn, 1)];
        let edit = Edit {
            prepend: if external { &ours } else { &[] },
            next_hop: match (mp_next_hop, config.next_hop_v4) {
                (None, IpAddr::V4(address)) => Change::Set(address),
                _ => Change::Remove,
            },
            local_pref: if external { Change::Keep } else { Change::Set(LOCAL_PREF) },
            external,
            reflection: if external { Change::Remove } else { Change::Keep },
            four_octet_as,
            ..Edit::default()
        };
        self.attributes.clear();
        rewrite(table.attributes(run.start), &edit, &mut self.attributes);
        let routes = &table.routes[run];
        let (attributes, out) = (&self.attributes[..], &mut self.octets);
        let result = match mp_next_hop {
            None => encoder.announce(attributes, of::<Ipv4Prefix>(routes), out),
            Some(hop) if family == Family::IPV4_UNICAST => {
                encoder.announce_mp(attributes, hop, of::<Ipv4Prefix>(routes), out)
            }
            Some(hop) => encoder.announce_mp(attributes, hop, of::<Ipv6Prefix>(routes), out),
        };
        result.map(drop).map_err(io::Error::other)
    }

    fn encode_withdrawal(&mut self, table: &Table, run: Range<usize>) {
        let Encoding { encoder, ref families, .. } = self.encoding;
        let routes = &table.routes[run];
        if families.contains(&Family::IPV4_UNICAST) {
            encoder.withdraw(of::<Ipv4Prefix>(routes), &mut self.octets);
        }
        if families.contains(&Family::IPV6_UNICAST) {
            encoder.withdraw_mp(of::<Ipv6Prefix>(routes), &mut self.octets);
        }
    }
}

/// The next routes that share a set and a family.
fn run(table: &Table, at: usize) -> Range<usize> {
    let routes = &table.routes[at..];
    let same = |(prefix, set): &&(Prefix, u32)| (prefix.afi(), *set) == (routes[0].0.afi(), routes[0].1);
    at..at + routes.iter().take(RUN).take_while(same).count()
}

/// The prefixes of one family.
fn of<P: IpPrefix>(routes: &[(Prefix, u32)]) -> impl Iterator<Item = P> + '_ {
    routes.iter().filter_map(|(prefix, _)| P::from_prefix(*prefix))
}
