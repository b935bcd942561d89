//! The configuration: TOML to checked values, with errors that point at the text
