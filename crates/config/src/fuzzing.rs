//! The body of a fuzz target, also run by a test over its corpus.

/// Any text is a configuration, or all that is wrong with it can be said.
pub fn configuration(text: &str) {
    if let Err(diagnostics) = crate::parse(text, "fuzz.toml", crate::Schema::new([])) {
        assert!(diagnostics.iter().next().is_some(), "refused without a reason");
        assert!(!diagnostics.to_string().is_empty());
    }
}
