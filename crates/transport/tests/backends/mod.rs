//! What holds for every backend, told once and run with each.
//!
//! A story is given a [`Backend`](backend::Backend), listens and dials; where backends differ it asks what this one can. All
//! sockets are on the loopback, on ports that the kernel chooses.

mod backend;
mod bounds;
mod carried;
mod door;
mod ends;
mod garbage;
mod mixed;
mod octets;
mod people;
mod refusals;
mod strays;
mod trust;

use std::time::Duration;

use tokio::{runtime::Builder, task::LocalSet, time::timeout};

/// So long a story may hang before it is given up, by tokio's clock.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs a story on one thread, as the process does.
fn run(story: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let ended = LocalSet::new().block_on(&runtime, async { timeout(PATIENCE, story).await });
    ended.expect("the story hangs");
}

/// Makes tests of stories, one for each backend.
macro_rules! for_every_backend {
    ($($story:ident),+ $(,)?) => {
        mod memory {
            $(#[test] fn $story() { crate::tests::backends::run(super::$story(&crate::tests::backends::backend::Memory::default())) })+
        }
        mod tcp {
            $(#[test] fn $story() { crate::tests::backends::run(super::$story(&crate::tests::backends::backend::Tcp)) })+
        }
        mod tls {
            $(#[test] fn $story() { crate::tests::backends::run(super::$story(&crate::tests::backends::backend::Tls)) })+
        }
        mod quic {
            $(#[test] fn $story() { crate::tests::backends::run(super::$story(&crate::tests::backends::backend::Quic)) })+
        }
        #[cfg(feature = "quic-s2n")]
        mod quic_s2n {
            $(#[test] fn $story() { crate::tests::backends::run(super::$story(&crate::tests::backends::backend::S2n)) })+
        }
    };
}
pub(crate) use for_every_backend;
