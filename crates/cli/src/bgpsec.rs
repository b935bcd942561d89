//! `holdfast bgpsec`: paths of UPDATEs, judged and signed by hand. No router is needed.
//!
//! Exit codes of `verify` are the verdict. What is wrong with the command line or a file is [`Failure::Input`].

mod input;
mod sign;
mod verify;

use std::io::Write;

use clap::{Args, Subcommand};
use holdfast_bgp_wire::attribute::code::BGPSEC_PATH;

use crate::Failure;

/// `holdfast bgpsec`
#[derive(Clone, Debug, Args)]
#[command(infer_subcommands = true)]
pub struct Bgpsec {
    /// What to do.
    #[command(subcommand)]
    what: What,
    /// Answer as JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Judges the path of an UPDATE: exit code 0 Valid, 1 Not Valid, 2 Malformed, 3 no suite that is known, 64 wrong input.
    Verify(verify::Verify),
    /// Adds an AS to a path, or begins one, and prints the UPDATE.
    Sign(sign::Sign),
}

/// How an UPDATE is read.
#[derive(Clone, Debug, Args)]
struct Reading {
    /// The type of BGPsec_PATH: 30 reads the examples of RFC 8208 and RFC 8608, which are older than its number.
    #[arg(long, value_name = "TYPE", default_value_t = BGPSEC_PATH)]
    attribute: u8,
}

impl Bgpsec {
    pub(crate) fn wants_json(&self) -> bool {
        self.json
    }

    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        match self.what {
            What::Verify(verify) => verify.run(self.json, out),
            What::Sign(sign) => sign.run(self.json, out),
        }
    }
}
