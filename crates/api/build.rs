//! Compiles every interface of the api folder.

use std::path::PathBuf;

use holdfast_xrl_gen::Build;

fn main() -> anyhow::Result<()> {
    let out = PathBuf::from(std::env::var("OUT_DIR")?).join("api");
    let api = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("../../api");
    Build::new(api, out)
        .external("finder.v1", "::holdfast_xrl::finder_api::v1")
        .external("component.v1", "::holdfast_xrl::component::v1")
        .shared(".prepare.v1.Part.configuration")
        .shared(".bgp.v1.PrefixSet.entries")
        .compile_all()
}
