//! Resets, injected messages and replays against a session over every transport; `docs/manual/attacks.md` says what came
//! of it.

use std::{fs, path::Path};

use anyhow::{Result, ensure};
use holdfast_lab::attacks::{Attack, scene::Scene, table};

#[test]
fn attacks_do_to_each_transport_what_the_page_says() -> Result<()> {
    let mut scene = Scene::start()?;
    let mut rows = Vec::new();
    for attack in Attack::ALL {
        let row = scene.attack(attack)?;
        for (transport, outcome) in &row.1 {
            let expected = attack.expected(*transport);
            ensure!(*outcome == expected, "{} over {}: {outcome:?}", attack.title(), transport.name());
        }
        rows.push(row);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual/attacks.md");
    let (page, table) = (fs::read_to_string(path)?, table(&rows));
    ensure!(page.contains(&table), "the table of docs/manual/attacks.md is not what was seen:\n{table}");
    Ok(())
}
