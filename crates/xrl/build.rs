//! Compiles the Finder's own interfaces and, for the tests and examples of this crate, one that exercises every shape
//! of method.

use std::path::PathBuf;

use holdfast_xrl_gen::Build;

fn main() -> anyhow::Result<()> {
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let here = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?);
    let api = here.join("../../api");
    Build::new(&api, out.join("api")).compile(&["finder/v1/finder.proto", "component/v1/component.proto"])?;
    Build::new(here.join("tests/proto"), out.join("exercise")).include(&api).compile_all()
}
