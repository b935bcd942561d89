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
    /// The JSON schema of descriptors of protocols, instead of that of a configuration.
    #[arg(long, conflicts_with = "markdown")]
    descriptor: bool,
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
            let schema = match self.descriptor {
                true => describe::descriptor_schema(),
                false => describe::json_schema(schema.file()),
            };
            serde_json::to_writer_pretty(&mut *out, &schema).map_err(io::Error::from)?;
            writeln!(out)?;
        }
        Ok(())
    }
}
