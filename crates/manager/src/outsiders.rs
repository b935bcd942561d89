//! Protocols with a descriptor: programs of somebody else that the keeper starts for the router.

use std::time::Duration;

use holdfast_api::keeper::v1::{KeeperClient, Sandbox, SignalRequest, SpawnRequest};
use holdfast_config::{Config, Descriptor};
use holdfast_process::spawn_task;
use rustix::process::Signal;

/// How long a program may take to end that is not wanted any more.
const END_LIMIT: Duration = Duration::from_secs(8);

/// Whoever changes the configuration waits no longer for such a program: others wait behind, with changes of the router's own
/// processes. It is told its configuration on and on all the same.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a change of the configuration waits for a process for which it may take so long.
pub(crate) fn patience(name: &str, config: &Config, limit: Duration) -> Duration {
    descriptor(name, config).map_or(limit, |_| limit.min(PATIENCE))
}

/// Their names, in the order of the file.
pub(crate) fn names(config: &Config) -> impl Iterator<Item = &'static str> {
    config.described().map(|(name, _)| name)
}

/// What describes the protocol of this name, where it is one.
pub(crate) fn descriptor(name: &str, config: &Config) -> Option<&'static Descriptor> {
    config.described().find(|(described, _)| *described == name).map(|(_, descriptor)| descriptor)
}

/// What the keeper is asked for to start a process, of ours or of somebody else.
pub(crate) fn request(name: &str, config: &Config, sandbox: Sandbox) -> SpawnRequest {
    let descriptor = descriptor(name, config);
    let limit = descriptor.and_then(|descriptor| descriptor.hang_limit);
    SpawnRequest {
        name: name.to_owned(),
        sandbox: Some(sandbox),
        descriptor: descriptor.map(|descriptor| descriptor.text().to_owned()),
        user_number: descriptor.map_or(0, |descriptor| descriptor.user_of(name).into()),
        hang_limit_milliseconds: limit.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
    }
}

/// Ends a program that may not listen to a signal.
pub(crate) fn end_for_good(keeper: KeeperClient, pid: u32) {
    spawn_task(async move {
        tokio::time::sleep(END_LIMIT).await;
        let signal = Signal::KILL.as_raw().unsigned_abs();
        // Most have ended by now, which the keeper says.
        let _ = keeper.signal(SignalRequest { pid, signal, reason: String::new() }).await;
    });
}

#[cfg(test)]
mod tests {
    use holdfast_config::{Holds, Schema, parse_with};

    use super::*;

    #[test]
    fn nobody_waits_long_for_a_program_of_somebody_else() {
        let igp = "does = \"d\"\ndoc = \"d\"\nprogram = \"/bin/true\"\n";
        let read = |_: &str, _: Holds<'_>| Ok(vec![igp.as_bytes().to_vec()]);
        let text = "router = { id = \"10.0.0.1\", asn = 65000 }\n\
            [[protocol]]\nname = \"igp\"\ndescriptor = \"igp.toml\"\n[igp]\n";
        let config = parse_with(text, "test", Schema::new([]), &read).expect("no errors");
        let (long, short) = (Duration::from_secs(60), Duration::from_secs(1));
        assert_eq!((patience("igp", &config, long), patience("igp", &config, short)), (PATIENCE, short));
        assert_eq!(patience("bgp", &config, long), long);
    }
}
