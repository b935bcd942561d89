//! `holdfast peer`.

use std::io::Write;

use clap::Subcommand;
use holdfast_api::bgp::v1::{BgpClient, StartPeerRequest, StopPeerRequest};

use crate::{
    Failure, json,
    router::{self, Router},
};

/// What to do with peers, until the configuration or a restart says otherwise.
#[derive(Clone, Debug, Subcommand)]
pub enum Peer {
    /// Ends sessions with a NOTIFICATION (Administrative Shutdown) and keeps them down.
    Stop {
        /// Name or address of the peer; `all` for every one.
        name: String,
        /// What the peer is told (RFC 9003).
        #[arg(long, default_value = "")]
        text: String,
    },
    /// Has peers tried at once that were stopped, or are held back.
    Start {
        /// Name or address of the peer; `all` for every one.
        name: String,
    },
}

impl Peer {
    pub(crate) async fn run(self, router: &Router, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
        let bgp: BgpClient = router.client("bgp").await?;
        let (done, names) = match self {
            Self::Stop { name, text } => {
                let request = StopPeerRequest { peer: all(name), text };
                ("stopped", router::answer(bgp.stop_peer(request)).await?.cleared)
            }
            Self::Start { name } => {
                let request = StartPeerRequest { peer: all(name) };
                ("started", router::answer(bgp.start_peer(request)).await?.cleared)
            }
        };
        match json {
            true => json::line(out, &serde_json::json!({ done: names }))?,
            false => names.iter().try_for_each(|name| writeln!(out, "{done} {name}"))?,
        }
        Ok(())
    }
}

fn all(name: String) -> String {
    if name == "all" { "*".to_owned() } else { name }
}
