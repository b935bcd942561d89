//! What an operator does with a running router, beside peers and routes.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Result, ensure};
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

/// How long a process may take to be replaced.
const LIMIT: Duration = Duration::from_secs(20);
/// Deaths of `bgp` while the operator asks.
const DEATHS: usize = 5;

#[test]
fn an_operator_who_asks_a_process_that_is_killed_is_answered_by_its_next_life() -> Result<()> {
    let host = Namespace::new("asked")?;
    let router = Router::start(&host, ALONE)?;
    let is_over = AtomicBool::new(false);
    let kill = || {
        (0..DEATHS).try_for_each(|_| {
            let killed = router.pid("bgp")?;
            router.kill("bgp")?;
            wait::until("the next bgp", LIMIT, || match router.pid("bgp") {
                Ok(pid) if pid != killed => Ok(()),
                other => Err(format!("{other:?}")),
            })
        })
    };
    let ask = || {
        let mut answers = 0;
        // A question that is asked after the last death as well.
        loop {
            let is_last = is_over.load(Ordering::Relaxed);
            router.show(&["bgp", "summary"])?;
            answers += 1;
            if is_last {
                return anyhow::Ok(answers);
            }
        }
    };
    let (killed, answers) = thread::scope(|scope| {
        let asking = scope.spawn(ask);
        let killed = kill();
        is_over.store(true, Ordering::Relaxed);
        (killed, asking.join())
    });
    killed?;
    let answers = answers.map_err(|_| anyhow::anyhow!("the operator panicked"))??;
    // A question may be under way for as long as several deaths take.
    ensure!(answers > 1, "{answers} answers beside {DEATHS} deaths");
    Ok(())
}
