//! The header says what the library has; `HOLDFAST_ACCEPT=1` writes it anew.

use std::{fs, path::Path};

use cbindgen::{Builder, Config, Language, Style};

/// In the order of the header.
const SOURCES: [&str; 5] = ["code", "table", "path", "read", "signer"];

const HEAD: &str = "\
/*
 * BGPsec path validation and signing (RFC 8205): libholdfast_bgpsec(3).
 *
 * Octets go in as they are in an UPDATE, and come out so. Handles are freed by whoever made them, by their _free; nothing else is
 * to be freed. All calls may be made from several threads, on the same handle too; it is freed when nobody uses it any more.
 *
 * Made from the library's source, not by hand: cargo test -p holdfast-path-validation-c --features programs.
 */";

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn header() -> String {
    let config = Config {
        language: Language::C,
        style: Style::Tag,
        cpp_compat: true,
        header: Some(HEAD.to_owned()),
        include_guard: Some("HOLDFAST_BGPSEC_H".to_owned()),
        no_includes: true,
        sys_includes: vec!["stddef.h".to_owned(), "stdint.h".to_owned()],
        usize_is_size_t: true,
        line_length: 120,
        ..Config::default()
    };
    let builder = Builder::new().with_config(config);
    let sources = SOURCES.iter().map(|name| folder().join("src").join(name).with_extension("rs"));
    let bindings = sources.fold(builder, Builder::with_src).generate().expect("sources that can be read");
    let mut octets = Vec::new();
    bindings.write(&mut octets);
    String::from_utf8(octets).expect("text").replace(" * # Safety\n * ", " * Relied on: ")
}

fn committed() -> String {
    fs::read_to_string(folder().join("include/holdfast_bgpsec.h")).expect("the header")
}

#[test]
fn the_header_is_that_of_the_source() {
    let header = header();
    if std::env::var_os("HOLDFAST_ACCEPT").is_some() {
        fs::write(folder().join("include/holdfast_bgpsec.h"), &header).expect("a place to write to");
    }
    assert_eq!(header, committed(), "HOLDFAST_ACCEPT=1 makes it anew");
}

/// Names that begin as those of the library do.
fn names(text: &str) -> std::collections::BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.to_ascii_lowercase().starts_with("hf_bgpsec_")).collect()
}

#[test]
fn the_manual_page_names_what_the_header_has() {
    let page = fs::read_to_string(folder().join("man/libholdfast_bgpsec.3")).expect("the page");
    let header = committed();
    // Groups of codes are told by what they mean; each is in the header.
    let in_page = names(&page);
    let missing: Vec<_> = names(&header)
        .into_iter()
        .filter(|name| name.starts_with("hf_") && !in_page.contains(name))
        .collect();
    assert!(missing.is_empty(), "not in the page: {missing:?}");
    let unknown: Vec<_> = in_page.difference(&names(&header)).copied().collect();
    assert!(unknown.is_empty(), "not in the header: {unknown:?}");
}
