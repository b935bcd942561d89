//! No test is forgotten: cargo finds none by itself (`autotests = false`), so each file is a module of the executable.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::sources;

/// Files that are no module of `mod.rs`, `main.rs` or a root of the lab, since they are executables of their own.
const ALONE: [&str; 4] = ["alone", "together", "no_room", "descriptors"];

fn crates() -> Vec<PathBuf> {
    let all = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).expect("a folder");
    all.map(|entry| entry.expect("an entry").path()).collect()
}

/// The names of what is in a crate's `tests`: `NAME.rs`, `NAME/mod.rs`.
fn modules(tests: &Path) -> Vec<String> {
    let entries = fs::read_dir(tests).expect("a folder").map(|entry| entry.expect("an entry").path());
    let is_module =
        |path: &PathBuf| path.extension().is_some_and(|end| end == "rs") || path.join("mod.rs").exists();
    let stem = |path: PathBuf| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    entries.filter(is_module).filter_map(stem).collect()
}

/// Modules that no root names.
fn forgotten(modules: &[String], roots: &str) -> Vec<String> {
    let named = |name: &str| {
        roots.lines().any(|line| line.trim_start_matches("pub(super) ") == format!("mod {name};"))
    };
    modules.iter().filter(|name| !named(name)).cloned().collect()
}

#[test]
fn every_file_of_tests_is_a_module_of_an_executable() {
    let mut seen = 0;
    for tests in crates().into_iter().map(|one| one.join("tests")).filter(|tests| tests.exists()) {
        let roots = ["mod.rs", "main.rs", "alone.rs", "together.rs"].map(|root| tests.join(root));
        let roots: String = roots.iter().filter_map(|root| fs::read_to_string(root).ok()).collect();
        let apart = ["mod", "main"].iter().chain(&ALONE).map(|name| (*name).to_owned());
        let apart: Vec<String> = apart.collect();
        let modules: Vec<String> = modules(&tests).into_iter().filter(|name| !apart.contains(name)).collect();
        seen += modules.len();
        assert_eq!(forgotten(&modules, &roots), [""; 0], "{}", tests.display());
    }
    assert!(seen > 100, "{seen} found");
}

#[test]
fn a_library_that_is_not_tested_has_no_test() {
    for one in crates() {
        let Ok(manifest) = fs::read_to_string(one.join("Cargo.toml")) else { continue };
        let manifest: toml::Table = manifest.parse().expect("TOML");
        let tested = manifest.get("lib").and_then(|lib| lib.get("test")).and_then(toml::Value::as_bool);
        if tested != Some(false) {
            continue;
        }
        let mut files = Vec::new();
        sources(&one.join("src"), &mut files);
        for file in files {
            let text = fs::read_to_string(&file).expect("a source file");
            assert!(!text.contains("#[test]"), "{}: nobody compiles its tests", file.display());
        }
    }
}

#[test]
fn a_file_without_its_line_is_seen() {
    let modules = ["door".to_owned(), "kills".to_owned()];
    assert_eq!(forgotten(&modules, "mod kills;\nmod doors;\n"), ["door"]);
}
