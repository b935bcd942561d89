//! `holdfast takeover`.

use std::io::Write;

use clap::Args;
use holdfast_api::replicator::v1::{Empty, ReplicatorClient, TakeOverRequest, take_over_request::What};

use crate::{
    Failure, Options, json,
    router::{self, Router},
};

/// Says which router has the sessions, where routers cannot find it out.
#[derive(Clone, Debug, Args)]
#[group(id = "takeover_what", required = true, multiple = false, args = ["confirm_dead", "reset"])]
pub struct Takeover {
    /// How to answer.
    #[command(flatten)]
    pub(crate) options: Options,
    /// The router that had the sessions is dead: this standby takes them over, as soon as the lease is free.
    #[arg(long)]
    confirm_dead: bool,
    /// This router has lost its sessions to another one (`fenced`): it waits as a standby from now on.
    #[arg(long)]
    reset: bool,
}

impl Takeover {
    pub(crate) async fn run(self, router: &Router, out: &mut dyn Write) -> Result<(), Failure> {
        let replicator: ReplicatorClient = router.client("replicator").await?;
        let what = if self.reset { What::Reset(Empty {}) } else { What::ConfirmDead(Empty {}) };
        let reply = router::answer(replicator.take_over(TakeOverRequest { what: Some(what) })).await?;
        let role = if self.reset { "standby" } else { "primary" };
        match self.options.json {
            true => json::line(out, &serde_json::json!({ "role": role, "epoch": reply.epoch }))?,
            false if self.reset => writeln!(out, "this router is a standby")?,
            false => writeln!(out, "this router has the lease, epoch {}", reply.epoch)?,
        }
        Ok(())
    }
}
