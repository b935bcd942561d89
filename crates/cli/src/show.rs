//! `holdfast show`.

mod aggregates;
mod bgpsec;
mod candidates;
mod connections;
mod counters;
mod dampened;
mod interfaces;
mod listeners;
mod neighbors;
mod nsr;
pub(crate) mod own;
mod policy;
mod processes;
mod routes;
mod rpki;
mod summary;
mod table;
mod vrf;
pub(crate) mod vtysh;

use std::io::Write;

use clap::{Args, Subcommand};
use holdfast_api::bgp::v1::ShowRoutesRequest;

pub(crate) use self::{listeners::protocol, summary::ESTABLISHED};

use crate::{
    Failure,
    router::{Router, Table},
};

/// What to show.
#[derive(Clone, Debug, Subcommand)]
pub enum What {
    /// Sessions, routes and paths of BGP.
    // What was short for it before `bgpsec` was there still is.
    #[command(infer_subcommands = true, aliases = ["b", "bg"])]
    Bgp {
        /// Which table.
        #[command(flatten)]
        table: Table,
        /// What of BGP.
        #[command(subcommand)]
        what: Bgp,
    },
    /// The routing table: the routes of all protocols.
    Route {
        /// A prefix, or an address for the route that covers it; everything if left out.
        destination: Option<String>,
        /// Which table.
        #[command(flatten)]
        table: Table,
        /// Which part of the table.
        #[command(flatten)]
        family: Family,
        /// Only routes of this protocol (bgp, static, connected).
        #[arg(long)]
        protocol: Option<String>,
    },
    /// The kernel's interfaces and their addresses.
    Interfaces(Table),
    /// Where peers are expected, and what admission has decided there.
    Listeners(Table),
    /// Connections over TLS and QUIC: where they lead, what proves the peer, and how they go.
    Connections {
        /// Only of this peer.
        peer: Option<String>,
        /// Only of one VRF.
        #[command(flatten)]
        table: Table,
    },
    /// The router's processes and how they fare.
    Processes,
    /// The VRFs: where their routes and sockets are, and how many of their sessions are up.
    Vrf,
    /// Which sessions outlive the bgp process, and what is kept for the next one.
    Nsr(Table),
    /// Every bounded queue of every process: how full it is, was and may be.
    Queues(Table),
    /// What RPKI caches say of origins, providers and routers' keys.
    #[command(infer_subcommands = true)]
    Rpki {
        /// What of it.
        #[command(subcommand)]
        what: rpki::Rpki,
    },
    /// BGPsec: routers' keys, what has been verified, and what is to be.
    Bgpsec(Table),
    /// Everything that the processes count, as Prometheus is told it.
    Counters {
        /// Only what has this in its name.
        name: Option<String>,
        /// Only of one VRF.
        #[command(flatten)]
        table: Table,
    },
    /// What a process with a section of its own says of itself: its name, and one of its commands.
    #[command(external_subcommand)]
    Own(Vec<String>),
}

/// What of BGP to show.
#[derive(Clone, Debug, Subcommand)]
pub enum Bgp {
    /// One line for each session.
    Summary,
    /// Everything about sessions, or the routes of one.
    Neighbors {
        /// Name or address; all if left out.
        name: Option<String>,
        /// Its routes: what it sent, what import policy took and refused, what it is told and what not.
        routes: Option<routes::OfNeighbor>,
        /// Which part of the table.
        #[command(flatten)]
        family: Family,
    },
    /// The table: every path of every prefix.
    Routes {
        /// Which part of the table.
        #[command(flatten)]
        family: Family,
        /// Only paths from this peer (name or address).
        #[arg(long, value_name = "NAME")]
        neighbor: Option<String>,
        /// Only paths whose origin is `valid`, `invalid` or `not-found` by the RPKI.
        #[arg(long, value_name = "STATE")]
        validity: Option<String>,
        /// Only paths that are `valid`, `invalid` or `unknown` by ASPA.
        #[arg(long, value_name = "STATE")]
        aspa: Option<String>,
        /// Only paths that are `valid`, `not-valid`, `unverified` or `unsigned` by BGPsec.
        #[arg(long, value_name = "STATE")]
        bgpsec: Option<String>,
    },
    /// Configured aggregates, and how many routes contribute to each.
    Aggregates,
    /// Routes that are held back because they flap.
    Dampened {
        /// Also those that have flapped and are used.
        #[arg(long)]
        all: bool,
    },
    /// How far changes of policies have come, and how long they took.
    Policy,
    /// All paths of one prefix, and why each is or is not used.
    Route {
        /// A prefix, or an address for the longest match.
        destination: String,
    },
}

/// A part of a table.
#[derive(Clone, Debug, Args)]
pub struct Family {
    /// Only IPv4.
    #[arg(long, conflicts_with = "ipv6")]
    ipv4: bool,
    /// Only IPv6.
    #[arg(long)]
    ipv6: bool,
}

impl Family {
    /// IANA's number; 0 for both.
    fn afi(&self) -> u32 {
        match (self.ipv4, self.ipv6) {
            (true, _) => 1,
            (false, true) => 2,
            (false, false) => 0,
        }
    }
}

impl What {
    pub(crate) async fn show(self, router: &Router, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Bgp { table, what } => what.show(&router.of(&table), json, out).await,
            Self::Route { destination, table, family, protocol } => {
                table::show(&router.of(&table), destination, family.afi(), protocol, json, out).await
            }
            Self::Interfaces(table) => interfaces::show(&router.of(&table), json, out).await,
            Self::Listeners(table) => listeners::show(&router.of(&table), json, out).await,
            Self::Connections { peer, table } => connections::show(&router.of(&table), peer, json, out).await,
            Self::Processes => processes::show(router, json, out).await,
            Self::Vrf => vrf::show(router, json, out).await,
            Self::Nsr(table) => nsr::show(&router.of(&table), json, out).await,
            Self::Queues(table) => counters::show_queues(&router.of(&table), json, out).await,
            Self::Rpki { what } => rpki::show(what, router, json, out).await,
            Self::Bgpsec(table) => bgpsec::show(router, &table, json, out).await,
            Self::Own(words) => own::show(router, &words, json, out).await,
            Self::Counters { name, table } => counters::show(&router.of(&table), name, json, out).await,
        }
    }
}

impl Bgp {
    async fn show(self, router: &Router, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Summary => summary::show(router, json, out).await,
            Self::Neighbors { name: Some(name), routes: Some(routes), family } => {
                routes::show_of_neighbor(router, name, routes.view(), family.afi(), json, out).await
            }
            Self::Neighbors { name, .. } => neighbors::show(router, name, json, out).await,
            Self::Routes { family, neighbor, validity, aspa, bgpsec } => {
                let wanted = ShowRoutesRequest {
                    afi: family.afi(),
                    peer: neighbor.unwrap_or_default(),
                    validity: validity.unwrap_or_default(),
                    aspa: aspa.unwrap_or_default(),
                    bgpsec: bgpsec.unwrap_or_default(),
                };
                routes::show(router, wanted, json, out).await
            }
            Self::Aggregates => aggregates::show(router, json, out).await,
            Self::Dampened { all } => dampened::show(router, all, json, out).await,
            Self::Policy => policy::show(router, json, out).await,
            Self::Route { destination } => candidates::show(router, destination, json, out).await,
        }
    }
}
