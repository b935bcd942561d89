//! `holdfast schema`: what a configuration may say.

use std::io;

use clap::Args;
use holdfast_config::describe;

use crate::Failure;

/// `holdfast schema`
#[derive(Clone, Debug, Args)]
pub struct Schema {
    /// Tables of all keys as Markdown, as in the manual, instead of the JSON schema.
    #[arg(long)]
    markdown: bool,
}

impl Schema {
    pub(crate) fn run(
        &self,
        schema: holdfast_config::Schema,
        out: &mut dyn io::Write,
    ) -> Result<(), Failure> {
        if self.markdown {
            for (title, table) in describe::reference(schema.file()) {
                writeln!(out, "## {title}\n\n{table}")?;
            }
        } else {
            serde_json::to_writer_pretty(&mut *out, &describe::json_schema(schema.file()))
                .map_err(io::Error::from)?;
            writeln!(out)?;
        }
        Ok(())
    }
}
