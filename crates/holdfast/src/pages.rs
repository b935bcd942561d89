//! What is made from the command line's own description: manual pages and completions.

use std::{fs, io, path::PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;
use holdfast_config::Schema;

/// `holdfast man`
#[derive(Args)]
pub(crate) struct Man {
    /// Pages go to `man1` and `man5` below it.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// `holdfast completions`
#[derive(Args)]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

impl Man {
    /// Writes a page for each command, and holdfast.toml(5).
    pub(crate) fn write(&self, command: Command, schema: Schema) -> io::Result<()> {
        let [commands, files] = ["man1", "man5"].map(|section| self.directory.join(section));
        fs::create_dir_all(&commands)?;
        fs::create_dir_all(&files)?;
        clap_mangen::generate_to(command, commands)?;
        fs::write(files.join("holdfast.toml.5"), holdfast_config::describe::man_page(schema.file()))
    }
}

impl Completions {
    /// Writes the script to standard output.
    pub(crate) fn write(&self, mut command: Command) {
        clap_complete::generate(self.shell, &mut command, "holdfast", &mut io::stdout());
    }
}
