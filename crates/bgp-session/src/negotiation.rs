//! What our OPEN offers, and what both OPENs together mean (RFC 4271 section 6.2, RFC 5492).

use std::time::Duration;

use holdfast_bgp_wire::{
    Capability, GracefulFamily, LongLivedFamily, MAX_EXTENDED_LEN, MAX_LEN, Notification, Open, OrfCapability,
};
use holdfast_config::schema::GracefulRestart;
use holdfast_types::{Afi, Asn, BgpRole, Family, RouterId, Safi};

use crate::PeerConfig;

/// What holds for a session once both OPENs are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// AS number of the peer.
    pub asn: Asn,
    /// BGP Identifier of the peer.
    pub router_id: RouterId,
    /// The peer is in our AS.
    pub is_ibgp: bool,
    /// The smaller of both proposals; zero: neither KEEPALIVEs nor a hold timer.
    pub hold_time: Duration,
    /// A third of it: the longest time between two KEEPALIVEs.
    pub keepalive: Duration,
    /// The families both sides offer, in the order of our configuration; never empty.
    pub families: Vec<Family>,
    /// AS numbers take four octets in AS_PATH and AGGREGATOR (RFC 6793).
    pub four_octet_as: bool,
    /// Octets of the longest message that we may send (RFC 8654).
    pub max_sent: usize,
    /// Octets of the longest message that the peer may send.
    pub max_received: usize,
    /// Families for which both sides take an IPv6 next hop although they are not IPv6 (RFC 8950).
    pub extended_next_hop: Vec<Family>,
    /// Families in which the peer's prefixes have path identifiers: it may send several paths of each (RFC 7911).
    pub identifiers_received: Vec<Family>,
    /// Families in which ours for the peer have them.
    pub identifiers_sent: Vec<Family>,
    /// Families in which the peer sends BGPsec_PATH (RFC 8205 section 2.2).
    pub bgpsec_received: Vec<Family>,
    /// Families in which it takes BGPsec_PATH.
    pub bgpsec_sent: Vec<Family>,
    /// Not every direction of BGPsec that is configured is agreed on in every family.
    pub lacks_bgpsec: bool,
    /// The peer answers ROUTE-REFRESH (RFC 2918).
    pub route_refresh: bool,
    /// It says where an answer begins and ends, and is told so (RFC 7313).
    pub enhanced_refresh: bool,
    /// The session comes up only when BFD is up (draft-ietf-idr-bgp-bfd-strict-mode section 6).
    pub bfd_strict: bool,
    /// What the peer says of graceful restart; `None`: it will not send End-of-RIB either.
    pub graceful_restart: Option<Restart>,
    /// Families of which the peer has us keep routes for so long as the last resort (RFC 9494); `None`: one of us does not
    /// know of that.
    pub long_lived: Option<Vec<LongLivedFamily>>,
    /// We said that we take part in graceful restart after a NOTIFICATION, too (RFC 8538).
    pub offered_retention: bool,
    /// We said that we know where refreshes begin and end.
    pub offered_enhanced_refresh: bool,
    /// Families in which the peer may tell us, by address prefix, what it wants to be told (RFC 5291, RFC 5292).
    pub orf_received: Vec<Family>,
    /// Families in which we may tell the peer.
    pub orf_sent: Vec<Family>,
    /// All that the peer's OPEN listed, for display.
    pub capabilities: Vec<Capability>,
}

/// The graceful restart capability of the peer (RFC 4724 section 3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restart {
    /// It has restarted: do not wait for its End-of-RIB before sending ours.
    pub restarting: bool,
    /// It keeps routes after a NOTIFICATION, too (RFC 8538).
    pub notification: bool,
    /// How long it expects to need.
    pub time: Duration,
    /// Families whose forwarding state survives there. Empty: it only helps others and sends End-of-RIB.
    pub families: Vec<GracefulFamily>,
}

impl Negotiated {
    /// Messages over 4096 octets may be sent (RFC 8654).
    pub fn extended_message(&self) -> bool {
        self.max_sent > MAX_LEN
    }

    /// Whether both sides take a NOTIFICATION for a broken connection (RFC 8538 section 2).
    pub(crate) fn survives_notifications(&self) -> bool {
        self.offered_retention && self.graceful_restart.as_ref().is_some_and(|theirs| theirs.notification)
    }

    /// Whether a new connection of the peer says that it restarted (RFC 4724 section 5).
    pub(crate) fn peer_restarts_gracefully(&self) -> bool {
        self.graceful_restart.as_ref().is_some_and(|restart| !restart.families.is_empty())
    }
}

/// Bits of the ADD-PATH capability's Send/Receive field (RFC 7911 section 4).
mod add_path {
    pub(super) const RECEIVE: u8 = 1;
    pub(super) const SEND: u8 = 2;
}

/// Bits of the Send/Receive field in the capability of RFC 5291 section 5.
mod orf {
    pub(super) use holdfast_bgp_wire::orf::ADDRESS_PREFIX;

    pub(super) const RECEIVE: u8 = 1;
    pub(super) const SEND: u8 = 2;
}

/// RFC 8205.
const BGPSEC_VERSION: u8 = 0;

/// Our side of the negotiation.
pub(crate) struct Offer<'a> {
    config: &'a PeerConfig,
    /// Without capabilities.
    plain: bool,
}

impl<'a> Offer<'a> {
    pub(crate) fn new(config: &'a PeerConfig, plain: bool) -> Self {
        Self { config, plain }
    }

    pub(crate) fn open(&self) -> Open {
        Open {
            asn: self.config.local_asn,
            hold_time: self.config.proposed_hold_time(),
            router_id: self.config.router_id,
            capabilities: self.capabilities(),
        }
    }

    /// Octets of the longest message that the peer may answer with.
    pub(crate) fn max_received(&self) -> usize {
        if self.extended_message() { MAX_EXTENDED_LEN } else { MAX_LEN }
    }

    /// Puts both OPENs together.
    ///
    /// # Errors
    /// The NOTIFICATION of RFC 4271 section 6.2 for an OPEN that is well formed but not acceptable.
    pub(crate) fn negotiate(&self, open: Open) -> Result<Negotiated, Notification> {
        let config = self.config;
        if !config.peer_asn.admits(open.asn, config.local_asn) {
            return Err(Notification::bad_peer_as());
        }
        let is_ibgp = open.asn == config.local_asn;
        // RFC 6286 section 2.2: outside our AS it may be ours by chance.
        if is_ibgp && open.router_id == config.router_id {
            return Err(Notification::bad_bgp_identifier());
        }
        if !is_ibgp && !self.roles_fit(&open.capabilities) {
            return Err(Notification::role_mismatch());
        }
        let families = self.common_families(&open.capabilities);
        if families.is_empty() {
            return Err(Notification::unsupported_capability(&multiprotocol(&config.families)));
        }
        let peer_has = |capability| open.capabilities.contains(&capability);
        let bgpsec_received = self.common_bgpsec(&families, false, &open.capabilities);
        let bgpsec_sent = self.common_bgpsec(&families, true, &open.capabilities);
        let wanted = self.wanted_bgpsec();
        let lacks_bgpsec = bgpsec_received.len() + bgpsec_sent.len() < wanted.len();
        if lacks_bgpsec && config.bgpsec.require_session {
            return Err(Notification::unsupported_capability(&wanted));
        }
        let hold_time = Duration::from_secs(config.proposed_hold_time().min(open.hold_time).into());
        let extended = self.extended_message() && peer_has(Capability::ExtendedMessage);
        let identified =
            |ours, theirs| self.common_identifiers(&families, (ours, theirs), &open.capabilities);
        let (identifiers_received, identifiers_sent) =
            (identified(add_path::RECEIVE, add_path::SEND), identified(add_path::SEND, add_path::RECEIVE));
        let filtered = |ours, theirs| self.common_orfs(&families, (ours, theirs), &open.capabilities);
        let (orf_received, orf_sent) = (filtered(orf::RECEIVE, orf::SEND), filtered(orf::SEND, orf::RECEIVE));
        Ok(Negotiated {
            identifiers_received,
            identifiers_sent,
            bgpsec_received,
            bgpsec_sent,
            lacks_bgpsec,
            asn: open.asn,
            router_id: open.router_id,
            is_ibgp,
            hold_time,
            keepalive: hold_time / 3,
            families,
            four_octet_as: !self.plain && has_four_octet_as(&open.capabilities),
            max_sent: if extended { MAX_EXTENDED_LEN } else { MAX_LEN },
            max_received: self.max_received(),
            extended_next_hop: self.common_extended_next_hop(&open.capabilities),
            route_refresh: peer_has(Capability::RouteRefresh),
            enhanced_refresh: !self.plain && peer_has(Capability::EnhancedRouteRefresh),
            bfd_strict: config.is_bfd_strict() && !self.plain && peer_has(Capability::BfdStrictMode),
            graceful_restart: graceful_restart(&open.capabilities),
            long_lived: self.is_long_lived().then(|| long_lived(&open.capabilities)).flatten(),
            offered_retention: config.rules.graceful_restart != GracefulRestart::Off && !self.plain,
            offered_enhanced_refresh: !self.plain,
            orf_received,
            orf_sent,
            capabilities: open.capabilities,
        })
    }

    fn capabilities(&self) -> Vec<Capability> {
        if self.plain {
            return Vec::new();
        }
        let mut offered = multiprotocol(&self.config.families);
        offered.push(Capability::RouteRefresh);
        offered.push(Capability::EnhancedRouteRefresh);
        offered.push(Capability::FourOctetAs(self.config.local_asn));
        offered.push(self.graceful_restart());
        offered.extend(self.long_lived());
        if self.extended_message() {
            offered.push(Capability::ExtendedMessage);
        }
        if self.config.is_bfd_strict() {
            offered.push(Capability::BfdStrictMode);
        }
        if let Some(role) = self.config.role {
            offered.push(Capability::Role(role.octet()));
        }
        let mode = self.add_path();
        if mode != 0 {
            offered.push(Capability::AddPath(
                self.config.families.iter().map(|family| (*family, mode)).collect(),
            ));
        }
        let mode = self.orf();
        if mode != 0 {
            let entry = |family: &Family| OrfCapability { family: *family, kind: orf::ADDRESS_PREFIX, mode };
            offered
                .push(Capability::OutboundRouteFiltering(self.config.families.iter().map(entry).collect()));
        }
        offered.extend(self.bgpsec());
        let next_hops = self.extended_next_hops();
        if !next_hops.is_empty() {
            offered.push(Capability::ExtendedNextHop(next_hops));
        }
        offered
    }

    /// RFC 4724 section 3: without a family it promises our End-of-RIB and asks for the peer's.
    fn graceful_restart(&self) -> Capability {
        let config = self.config;
        let entry = |family: &Family| GracefulFamily { family: *family, forwarding: config.forwarding };
        let full = config.rules.graceful_restart == GracefulRestart::Full;
        Capability::GracefulRestart {
            restarting: full && config.restarting,
            notification: config.rules.graceful_restart != GracefulRestart::Off,
            time: if full { config.rules.restart_time.as_secs().min(4095) as u16 } else { 0 },
            families: if full { config.families.iter().map(entry).collect() } else { Vec::new() },
        }
    }

    /// RFC 9234 section 4.2. Several capabilities count as one where they say the same.
    fn roles_fit(&self, theirs: &[Capability]) -> bool {
        let Some(ours) = self.config.role else { return true };
        let said = theirs.iter().filter_map(|capability| match capability {
            Capability::Role(role) => Some(*role),
            _ => None,
        });
        let mut said = said.peekable();
        match said.peek() {
            Some(_) => said.all(|role| BgpRole::from_octet(role) == Some(ours.opposite())),
            None => !self.config.rules.role_strict,
        }
    }

    fn is_long_lived(&self) -> bool {
        let config = self.config;
        !self.plain
            && config.rules.graceful_restart != GracefulRestart::Off
            && !config.rules.long_lived_stale_time.is_zero()
    }

    /// RFC 9494 section 4.1: without a family it asks for the routes of others that stay.
    fn long_lived(&self) -> Option<Capability> {
        const LONGEST: u64 = (1 << 24) - 1;
        let config = self.config;
        let time = config.rules.long_lived_stale_time.as_secs().min(LONGEST) as u32;
        let entry =
            |family: &Family| LongLivedFamily { family: *family, forwarding: config.forwarding, time };
        let families = match config.rules.graceful_restart {
            GracefulRestart::Full => config.families.iter().map(entry).collect(),
            GracefulRestart::Off | GracefulRestart::Helper => Vec::new(),
        };
        self.is_long_lived().then_some(Capability::LongLivedGracefulRestart(families))
    }

    fn extended_message(&self) -> bool {
        self.config.extended_message && !self.plain
    }

    /// Send/Receive of the ADD-PATH capability (RFC 7911 section 4); 0: none.
    fn add_path(&self) -> u8 {
        let mode = |wanted, mode| if wanted && !self.plain { mode } else { 0 };
        mode(self.config.add_path.receive, add_path::RECEIVE)
            | mode(self.config.add_path.send.is_some(), add_path::SEND)
    }

    /// The families in which we offer one direction and the peer the other.
    fn common_identifiers(
        &self,
        families: &[Family],
        (ours, theirs): (u8, u8),
        capabilities: &[Capability],
    ) -> Vec<Family> {
        let peer_offers = |family: &&Family| {
            let modes = capabilities.iter().filter_map(|capability| match capability {
                Capability::AddPath(entries) => Some(entries),
                _ => None,
            });
            // RFC 7911 says nothing of several entries for a family: the first counts.
            let first = modes.flatten().find(|(offered, _)| offered == *family);
            first.is_some_and(|(_, mode)| mode & theirs != 0)
        };
        if self.add_path() & ours == 0 {
            return Vec::new();
        }
        families.iter().filter(peer_offers).copied().collect()
    }

    /// Send/Receive of the ORF capability (RFC 5291 section 5); 0: none.
    fn orf(&self) -> u8 {
        let mode = |wanted, mode| if wanted && !self.plain { mode } else { 0 };
        mode(self.config.rules.orf.receives(), orf::RECEIVE) | mode(self.config.rules.orf.sends(), orf::SEND)
    }

    /// The families in which we offer one direction of the address prefix ORF and the peer the other.
    fn common_orfs(
        &self,
        families: &[Family],
        (ours, theirs): (u8, u8),
        capabilities: &[Capability],
    ) -> Vec<Family> {
        if self.orf() & ours == 0 {
            return Vec::new();
        }
        let peer_offers = |family: &&Family| {
            let entries = capabilities.iter().filter_map(|capability| match capability {
                Capability::OutboundRouteFiltering(entries) => Some(entries),
                _ => None,
            });
            entries.flatten().any(|entry| {
                entry.family == **family && entry.kind == orf::ADDRESS_PREFIX && entry.mode & theirs != 0
            })
        };
        families.iter().filter(peer_offers).copied().collect()
    }

    /// Directions and families of BGPsec that we offer.
    fn bgpsec(&self) -> Vec<Capability> {
        if self.plain { Vec::new() } else { self.wanted_bgpsec() }
    }

    /// Those that are configured, for the families of the session.
    fn wanted_bgpsec(&self) -> Vec<Capability> {
        let bgpsec = &self.config.bgpsec;
        let families = || {
            self.config.families.iter().filter(|family| family.safi == Safi::UNICAST && bgpsec.has(**family))
        };
        let of = |send| {
            let capability =
                move |family: &Family| Capability::Bgpsec { version: BGPSEC_VERSION, send, afi: family.afi };
            families().map(capability)
        };
        let directions = [(true, bgpsec.send), (false, bgpsec.receive)].into_iter();
        directions.filter(|(_, is_on)| *is_on).flat_map(|(send, _)| of(send)).collect()
    }

    /// The families in which we offer one direction and the peer the other (RFC 8205 section 2.2). Other versions and AFIs are
    /// ignored. It needs four-octet AS numbers and the multiprotocol capability for the family.
    fn common_bgpsec(&self, families: &[Family], send: bool, theirs: &[Capability]) -> Vec<Family> {
        if !has_four_octet_as(theirs) {
            return Vec::new();
        }
        let ours = self.bgpsec();
        let has = |all: &[Capability], send, afi| {
            all.contains(&Capability::Bgpsec { version: BGPSEC_VERSION, send, afi })
        };
        let is_common = |family: &&Family| {
            has(&ours, send, family.afi)
                && has(theirs, !send, family.afi)
                && family.safi == Safi::UNICAST
                && theirs.contains(&Capability::Multiprotocol(**family))
        };
        families.iter().filter(is_common).copied().collect()
    }

    fn extended_next_hops(&self) -> Vec<(Family, Afi)> {
        let ipv4 = Family::IPV4_UNICAST;
        let wanted = self.config.extended_next_hop && !self.plain && self.config.families.contains(&ipv4);
        if wanted { vec![(ipv4, Afi::IPV6)] } else { Vec::new() }
    }

    /// RFC 4760 section 8: without the capability, a speaker exchanges IPv4 unicast and nothing else.
    fn common_families(&self, theirs: &[Capability]) -> Vec<Family> {
        let is_multiprotocol = |capability: &Capability| matches!(capability, Capability::Multiprotocol(_));
        let implicit = !theirs.iter().any(is_multiprotocol);
        let is_common = |family: &&Family| {
            let ipv4 = **family == Family::IPV4_UNICAST;
            (ipv4 || !self.plain)
                && (ipv4 && implicit || theirs.contains(&Capability::Multiprotocol(**family)))
        };
        self.config.families.iter().filter(is_common).copied().collect()
    }

    fn common_extended_next_hop(&self, theirs: &[Capability]) -> Vec<Family> {
        let peer_takes = |entry: &(Family, Afi)| {
            theirs.iter().any(|capability| match capability {
                Capability::ExtendedNextHop(entries) => entries.contains(entry),
                _ => false,
            })
        };
        self.extended_next_hops().into_iter().filter(peer_takes).map(|(family, _)| family).collect()
    }
}

fn multiprotocol(families: &[Family]) -> Vec<Capability> {
    families.iter().copied().map(Capability::Multiprotocol).collect()
}

fn has_four_octet_as(capabilities: &[Capability]) -> bool {
    capabilities.iter().any(|capability| matches!(capability, Capability::FourOctetAs(_)))
}

fn long_lived(capabilities: &[Capability]) -> Option<Vec<LongLivedFamily>> {
    capabilities.iter().rev().find_map(|capability| match capability {
        Capability::LongLivedGracefulRestart(families) => Some(families.clone()),
        _ => None,
    })
}

/// RFC 4724 section 3: of several, the last counts.
fn graceful_restart(capabilities: &[Capability]) -> Option<Restart> {
    capabilities.iter().rev().find_map(|capability| match capability {
        Capability::GracefulRestart { restarting, notification, time, families } => Some(Restart {
            restarting: *restarting,
            notification: *notification,
            time: Duration::from_secs((*time).into()),
            families: families.clone(),
        }),
        _ => None,
    })
}
