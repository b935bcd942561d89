//! What an operator does with a running router, beside peers and routes.

use std::time::Duration;

use anyhow::Result;
use holdfast_lab::{netns::Namespace, router::Router, wait};

/// A router that needs nobody.
const ALONE: &str = "[router]\nid = \"10.0.0.1\"\nasn = 65001\n[bgp]\nport = 1179\n";

#[test]
fn a_call_stops_the_router_in_order() -> Result<()> {
    let host = Namespace::new("stop")?;
    let router = Router::start(&host, ALONE)?;
    router.cli(&["call", "manager/manager.v1/Stop"])?;
    let socket = router.directory().join("holdfast.sock");
    wait::until("the operator's socket is gone", Duration::from_secs(20), || {
        if socket.exists() { Err("still there".to_owned()) } else { Ok(()) }
    })?;
    router.stop()
}
