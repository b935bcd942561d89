//! The commands of the manual page about containers of Docker. Whether Docker runs says `scripts/test`: where it does not, it
//! leaves this out, and says so.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{router::binary, wait};

/// Until a router of containers is what a comment says.
const LIMIT: Duration = Duration::from_secs(30);
/// What all hosts of a machine have in common has names of its own here.
const NAMES: [&str; 4] = ["router-a", "router-b", "bgp-lan", "holdfast:local"];

/// Where the commands run. What they have made goes with it, whatever has come of them.
struct Place {
    directory: PathBuf,
    names: Vec<String>,
}

impl Place {
    fn new() -> Result<Self> {
        let own = format!("holdfast-lab-{}", std::process::id());
        let directory = std::env::temp_dir().join(format!("{own}-manual"));
        fs::create_dir_all(directory.join("program"))?;
        // As an installed one is called.
        std::os::unix::fs::symlink(binary()?, directory.join("program/holdfast"))?;
        Ok(Self { directory, names: NAMES.map(|name| format!("{own}-{name}")).into() })
    }

    fn named(&self, text: &str) -> String {
        NAMES.iter().zip(&self.names).fold(text.to_owned(), |text, (name, own)| text.replace(name, own))
    }

    fn run(&self, command: &str) -> Result<String> {
        let path = format!("{}/program:{}", self.directory.display(), std::env::var("PATH")?);
        let mut bash = Command::new("bash");
        let output = bash.args(["-euo", "pipefail", "-c", command]).current_dir(&self.directory);
        let output = output.env("PATH", path).output()?;
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
        ensure!(output.status.success(), "{command}\n{}", said.concat());
        Ok(said.concat())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let [a, b, network, image] = [0, 1, 2, 3].map(|at| &self.names[at]);
        let _ = self.run(&format!(
            "{{ docker rm -f {a} {b}; docker network rm {network}; docker image rm {image}; \
             for file in *.pid; do kill $(cat $file); done; }} || true"
        ));
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The blocks of a section, each with the word behind its fence.
fn blocks(page: &str, title: &str) -> Option<Vec<(String, String)>> {
    let (_, section) = page.split_once(&format!("\n## {title}\n"))?;
    let section = section.split("\n## ").next()?;
    let blocks = section.split("\n```").skip(1).step_by(2);
    blocks
        .map(|block| block.split_once('\n').map(|(word, text)| (word.to_owned(), text.to_owned())))
        .collect()
}

#[test]
fn a_session_survives_containers_as_the_manual_says() -> Result<()> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual/standby.md");
    let blocks = blocks(&fs::read_to_string(page)?, "Survive a container").context("the section")?;
    let place = Place::new()?;
    let (mut said, mut since) = (0, Vec::new());
    for (word, text) in &blocks {
        let file = match word.as_str() {
            "toml complete" => Some("router.toml"),
            "bird" => Some("bird.conf"),
            "sh" => None,
            other => anyhow::bail!("a block of {other}"),
        };
        if let Some(file) = file {
            fs::write(place.directory.join(file), text)?;
            continue;
        }
        for line in place.named(&text.replace("\\\n", " ")).lines() {
            let (command, expected) = line.split_once(" # ").unwrap_or((line, ""));
            println!("{line}");
            if expected.is_empty() {
                place.run(command)?;
                continue;
            }
            said += 1;
            let found = wait::until(expected, LIMIT, || {
                let found = place.run(command).map_err(|error| format!("{error:#}"))?;
                if found.contains(expected) { Ok(found) } else { Err(found) }
            })?;
            // Name, protocol, table, state, and since when.
            since.extend(
                found
                    .lines()
                    .filter(|line| line.starts_with("holdfast "))
                    .map(|line| line.split_whitespace().nth(4).unwrap_or_default().to_owned()),
            );
        }
    }
    ensure!(said > 8, "{blocks:?}");
    ensure!(
        since.len() == 3 && since.iter().all(|one| *one == since[0]),
        "it was not the same session: {since:?}"
    );
    Ok(())
}
