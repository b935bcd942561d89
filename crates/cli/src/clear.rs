//! `holdfast clear`.

use std::io::Write;

use clap::{Args, Subcommand, ValueEnum};
use holdfast_api::bgp::v1::{BgpClient, ClearDampenedRequest, ClearRequest};

use crate::{
    Failure, json,
    router::{self, Router},
    show::own,
};

/// What to clear.
#[derive(Clone, Debug, Subcommand)]
pub enum Clear {
    /// Ends sessions with a NOTIFICATION; they come up again by themselves.
    #[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
    Bgp {
        /// What else of BGP.
        #[command(subcommand)]
        what: Option<Bgp>,
        /// Which sessions.
        #[command(flatten)]
        sessions: Sessions,
    },
    /// What a process with a section of its own clears: its name, and one of its commands.
    #[command(external_subcommand)]
    Own(Vec<String>),
}

/// What of BGP to clear besides sessions.
#[derive(Clone, Debug, Subcommand)]
pub enum Bgp {
    /// Forgets that routes have flapped: those that are held back are used again.
    Dampened {
        /// Only routes to this prefix; all if left out.
        prefix: Option<String>,
    },
}

/// Sessions to end.
#[derive(Clone, Debug, Args)]
pub struct Sessions {
    /// Name or address of the peer; `all` for every one.
    #[arg(required = true)]
    name: Option<String>,
    /// Keep the session: `in` asks the peer to announce everything again (RFC 2918), `out` announces everything again.
    direction: Option<Direction>,
    /// Keep the session: announce everything again, evaluate policies again.
    #[arg(long)]
    soft: bool,
    /// What the peer is told (RFC 9003).
    #[arg(long, conflicts_with_all = ["soft", "direction"], default_value = "")]
    text: String,
}

/// Which way routes are to go again.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Direction {
    /// From the peer to us.
    In,
    /// From us to the peer.
    Out,
}

impl Clear {
    pub(crate) async fn clear(self, router: &Router, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
        let cleared = match self {
            Self::Bgp { what, sessions } => clear_bgp(router, what, sessions).await?,
            Self::Own(words) => own::clear(router, &words).await?,
        };
        if json {
            json::line(out, &serde_json::json!({ "cleared": cleared }))?;
        } else {
            cleared.iter().try_for_each(|name| writeln!(out, "cleared {name}"))?;
        }
        Ok(())
    }
}

/// What was cleared.
async fn clear_bgp(router: &Router, what: Option<Bgp>, sessions: Sessions) -> Result<Vec<String>, Failure> {
    let bgp: BgpClient = router.client("bgp").await?;
    Ok(match what {
        Some(Bgp::Dampened { prefix }) => {
            let prefix = prefix.unwrap_or_default();
            router::answer(bgp.clear_dampened(ClearDampenedRequest { prefix: prefix.clone() })).await?;
            vec![if prefix.is_empty() { "all dampened routes".into() } else { prefix }]
        }
        None => {
            let peer = sessions.name.filter(|name| name != "all").unwrap_or_else(|| "*".to_owned());
            let (soft_in, soft) = match sessions.direction {
                Some(Direction::In) => (true, sessions.soft),
                Some(Direction::Out) => (false, true),
                None => (false, sessions.soft),
            };
            let request = ClearRequest { peer, soft, soft_in, text: sessions.text };
            router::answer(bgp.clear(request)).await?.cleared
        }
    })
}
