//! A build of holdfast with a fault, for tests of `holdfast upgrade`: everything is done by the real one, whose path is
//! in the link `NAME.real` beside this program, but for the fault, which is the first part of this program's own name.
//!
//! `bgp-…`, `transport-…`: that process ends at once. `trial-…`: no keeper of this build understands what it is handed.
//! `frames-…`: it speaks frames of another version. `silent-…`: it never says what it reads and writes.

use std::{
    env,
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
    time::Duration,
};

use anyhow::{Context, Result, bail};

fn main() -> Result<ExitCode> {
    let own = env::current_exe()?;
    let name = own.file_name().and_then(|name| name.to_str()).context("a name")?;
    let real = own.with_file_name(format!("{name}.real"));
    let fault = name.split('-').next().context("a fault")?;
    let arguments: Vec<_> = env::args().skip(1).collect();
    match (fault, arguments.first().context("a command")?.as_str()) {
        ("bgp", "bgp") | ("transport", "transport") => Ok(ExitCode::FAILURE),
        ("trial", "keeper") => Ok(ExitCode::FAILURE),
        ("silent", "formats") => loop {
            std::thread::sleep(Duration::from_secs(60));
        },
        (_, "formats") => {
            let answer = Command::new(&real).arg("formats").output()?.stdout;
            let mut formats: serde_json::Value = serde_json::from_slice(&answer)?;
            formats["build"] = name.into();
            if fault == "frames" {
                formats["xrl"] = 9.into();
            }
            println!("{formats}");
            Ok(ExitCode::SUCCESS)
        }
        _ => bail!(Command::new(&real).args(arguments).exec()),
    }
}
