//! Every stock router beside every feature; `docs/interop.md` says what came of it.

use std::{fs, path::Path};

use anyhow::{Result, ensure};
use holdfast_lab::interop::{Cell, TRIED, matrix, page, stocks};

#[test]
fn every_stock_router_does_with_us_what_the_page_says() -> Result<()> {
    let matrix = matrix()?;
    let mut failures = Vec::new();
    for (feature, cells) in &matrix {
        for (stock, cell) in stocks().iter().zip(cells) {
            if let Cell::Failed(why) = cell {
                failures.push(format!("{} with {}: {why}", feature.title(), stock.version()?));
            }
        }
    }
    ensure!(failures.is_empty(), "{}", failures.join("\n\n"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/interop.md");
    let page = page(&matrix)?;
    if std::env::var_os("HOLDFAST_ACCEPT").is_some() {
        fs::write(&path, &page)?;
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    let all_but_versions = |page: &str| -> Vec<String> {
        page.lines().filter(|line| !line.starts_with(TRIED)).map(str::to_owned).collect()
    };
    ensure!(
        all_but_versions(&there) == all_but_versions(&page),
        "docs/interop.md is not what was seen; HOLDFAST_ACCEPT=1 writes it:\n{page}"
    );
    Ok(())
}
