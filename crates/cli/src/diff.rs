//! `holdfast diff`: what a reload of a file would do.

use std::{fs, io::Write, path::PathBuf};

use clap::Args;
use holdfast_api::manager::v1::{DiffReply, EndingSession};
use holdfast_config::Schema;
use serde_json::json;

use crate::{
    Failure, Options,
    configure::{Remote, difference, hide_both},
    json::line,
};

/// Compares a configuration file with what runs: what a reload of it would change, and whose sessions would end. Nothing
/// is changed. The exit code is 0 if nothing differs, 4 if a reload would take the difference, 1 if it would refuse.
#[derive(Clone, Debug, Args)]
pub struct Diff {
    /// How to answer.
    #[command(flatten)]
    pub(crate) options: Options,
    /// The file.
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Show the lines that differ between the texts, as diff -u does.
    #[arg(short, long)]
    unified: bool,
}

impl Diff {
    pub(crate) fn run(self, schema: Schema, out: &mut dyn Write) -> Result<(), Failure> {
        let file = self.config;
        let text = fs::read_to_string(&file);
        let text = text.map_err(|error| Failure::Unreadable { file: file.clone(), error })?;
        let (remote, name) = (Remote::new(self.options.runtime_dir), file.display().to_string());
        let diff = remote.diff(text.clone(), &name)?;
        if self.options.json {
            let DiffReply { changes, ending, restart, over } = &diff;
            let over =
                over.iter().map(|over| json!({ "peer": over.peer, "vrf": vrf(over), "cause": over.cause }));
            let over: Vec<_> = over.collect();
            line(
                out,
                &json!({ "changes": changes, "sessions_ended": ending, "over_limits": over, "restart": restart }),
            )?;
        } else if self.unified {
            let described = remote.schema(schema)?.file();
            let texts = hide_both(&remote.text()?, &text, described);
            let [running, text] = texts.ok_or_else(|| Failure::Edit(format!("{name} is no TOML")))?;
            out.write_all(difference(&running, &text, "running", &name).as_bytes())?;
        } else {
            write(&diff, out)?;
        }
        needs_no_restart(&diff)?;
        if diff.changes.is_empty() { Ok(()) } else { Err(Failure::Differs) }
    }
}

/// For people.
pub(crate) fn write(diff: &DiffReply, out: &mut dyn Write) -> Result<(), Failure> {
    let DiffReply { changes, ending, restart, over } = diff;
    if changes.is_empty() && restart.is_empty() {
        writeln!(out, "nothing would change")?;
    }
    changes.iter().try_for_each(|change| writeln!(out, "{change}"))?;
    if !ending.is_empty() {
        writeln!(out, "sessions that would end: {}", ending.join(", "))?;
    }
    for over in over {
        let vrf = vrf(over).map_or(String::new(), |vrf| format!(" in VRF {vrf}"));
        writeln!(out, "  {}{vrf}: {}", over.peer, over.cause)?;
    }
    Ok(())
}

/// The VRF that a session is in.
fn vrf(session: &EndingSession) -> Option<&str> {
    Some(&*session.vrf).filter(|vrf| !vrf.is_empty())
}

/// Whether a reload would take it.
pub(crate) fn needs_no_restart(diff: &DiffReply) -> Result<(), Failure> {
    match diff.restart.is_empty() {
        true => Ok(()),
        false => Err(Failure::NeedsRestart(diff.restart.join(", "))),
    }
}
