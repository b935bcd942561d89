//! Every stock router beside every feature; `docs/interop.md` says what came of it.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};
use holdfast_lab::interop::{Cell, Generation, Matrix, PART, TRIED, head, matrix, part};

/// What did not work, in words.
fn failures(generation: &Generation, matrix: &Matrix) -> Result<Vec<String>> {
    let mut failures = Vec::new();
    for (feature, cells) in matrix {
        for (stock, cell) in generation.stocks().iter().zip(cells) {
            if let Cell::Failed(why) = cell {
                failures.push(format!("{} with {}: {why}", feature.title(), stock.version()?));
            }
        }
    }
    Ok(failures)
}

/// The page with these parts in place of those of the same titles.
fn renewed(page: &str, head: String, seen: &[(&Generation, String)]) -> String {
    let kept = page.split(PART).skip(1).map(|part| format!("{PART}{part}"));
    let mut parts: Vec<String> = kept.collect();
    for (generation, part) in seen {
        let begins = format!("{PART}{}\n", generation.title);
        match parts.iter_mut().find(|kept| kept.starts_with(&begins)) {
            Some(kept) => kept.clone_from(part),
            None => parts.push(part.clone()),
        }
    }
    parts.insert(0, head);
    parts.concat()
}

#[test]
fn every_stock_router_does_with_us_what_the_page_says() -> Result<()> {
    let generations = Generation::all()?;
    let mut seen = Vec::new();
    for generation in &generations {
        let matrix = matrix(generation)?;
        let failures = failures(generation, &matrix)?;
        ensure!(failures.is_empty(), "{}", failures.join("\n\n"));
        seen.push((generation, part(generation, &matrix)?));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/interop.md");
    let there = fs::read_to_string(&path).context("docs/interop.md")?;
    let page = renewed(&there, head()?, &seen);
    if std::env::var_os("HOLDFAST_ACCEPT").is_some() {
        fs::write(&path, &page)?;
        return Ok(());
    }
    let all_but_versions = |page: &str| -> Vec<String> {
        page.lines().filter(|line| !line.starts_with(TRIED)).map(str::to_owned).collect()
    };
    ensure!(
        all_but_versions(&there) == all_but_versions(&page),
        "docs/interop.md is not what was seen; HOLDFAST_ACCEPT=1 writes it:\n{page}"
    );
    Ok(())
}
