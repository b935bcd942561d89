//! A client of a router: prints the peers that are up, then stays to the end of the table and counts it.
//!
//! `cargo run -p holdfast-api --example peers -- /run/holdfast/holdfast.sock`. Whoever may open the socket has the role
//! `operator`.

use std::{error::Error, os::unix::net::UnixStream};

use holdfast_api::bgp::v1::{BgpClient, Empty, ShowRoutesRequest};
use holdfast_xrl::Resolver;
use tokio::task::LocalSet;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let socket = std::env::args().nth(1).unwrap_or_else(|| "/run/holdfast/holdfast.sock".to_owned());
    LocalSet::new().run_until(ask(&socket)).await
}

async fn ask(socket: &str) -> Result<(), Box<dyn Error>> {
    let resolver = Resolver::connect(UnixStream::connect(socket)?.into())?;
    // The Finder gives a key for what an operator may call, and a connection to the process itself.
    let bgp: BgpClient = resolver.client("bgp").await?;
    for family in bgp.show_summary(Empty {}).await?.families {
        for peer in family.peers.iter().filter(|peer| peer.state == "Established") {
            println!("{}: {} has sent {} prefixes", family.family, peer.name, peer.prefixes_received);
        }
    }
    // A stream: the next message is sent when this one has been taken.
    let mut table = bgp.show_routes(ShowRoutesRequest::default());
    let mut prefixes = 0;
    while let Some(batch) = table.next().await? {
        prefixes += batch.prefixes.len();
    }
    println!("{prefixes} prefixes in the table");
    Ok(())
}
