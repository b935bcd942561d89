//! The interfaces between processes, generated from the `.proto` files of the `api` folder.
//!
//! `service Bgp` of the package `bgp.v1` is here as `bgp::v1::{BgpServer, BgpDispatcher, BgpClient}` beside its
//! messages. Implement the first, hand it in the second to `holdfast_xrl::Node::serve`, call it with the third. The
//! documentation of what is generated is in the `.proto` files. Nothing else belongs in this crate.

#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::use_self)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/api/mod.rs"));
}

pub use generated::*;
pub use holdfast_xrl::{component, finder_api as finder};
