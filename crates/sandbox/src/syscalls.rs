//! seccomp: the system calls that each process is left.
//!
//! The lists are what processes were seen to use (`strace -f` of the laboratory's tests), and what their libraries fall
//! back to. What is on none of them fails with `EPERM`, and the process lives; what no router has any use for ends it, so
//! that somebody hears of it. docs/manual/sandbox.md has the table.

mod lists;

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule,
};

use crate::{Files, Network, Rights};

/// A system call, and when it is allowed.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Call {
    /// With any arguments.
    Any(libc::c_long),
    /// When the argument of this number is one of these.
    OneOf(libc::c_long, u8, &'static [u32]),
    /// When the argument of this number has none of these bits.
    Without(libc::c_long, u8, u32),
    /// When the argument of this number has all of these bits.
    With(libc::c_long, u8, u32),
    /// When its first argument is the calling process, or 0.
    Own(libc::c_long),
    /// When it makes Unix stream sockets. A pair of datagram sockets is not only a pair: each can send to any address.
    StreamPair(libc::c_long),
    /// When its second and third argument are the level and the name of one of these socket options.
    SocketOption(libc::c_long, &'static [(u32, u32)]),
}

/// The part of a socket's type that is no flag (SOCK_TYPE_MASK of linux/net.h).
const SOCKET_TYPE: u64 = 0xf;

impl Call {
    fn number(self) -> libc::c_long {
        match self {
            Self::Any(number)
            | Self::OneOf(number, ..)
            | Self::Without(number, ..)
            | Self::With(number, ..)
            | Self::Own(number)
            | Self::StreamPair(number)
            | Self::SocketOption(number, _) => number,
        }
    }

    /// One of these has to hold; none: nothing has to.
    fn rules(self) -> Result<Vec<SeccompRule>, BackendError> {
        let condition = |argument, operator, value: u32| {
            SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value.into())
        };
        let one = |argument, operator, value| SeccompRule::new(vec![condition(argument, operator, value)?]);
        let is = |argument, value: &u32| one(argument, SeccompCmpOp::Eq, *value);
        match self {
            Self::Any(_) => Ok(Vec::new()),
            Self::OneOf(_, argument, values) => values.iter().map(|value| is(argument, value)).collect(),
            Self::Without(_, argument, bits) => {
                Ok(vec![one(argument, SeccompCmpOp::MaskedEq(bits.into()), 0)?])
            }
            Self::With(_, argument, bits) => {
                Ok(vec![one(argument, SeccompCmpOp::MaskedEq(bits.into()), bits)?])
            }
            Self::Own(_) => [0, std::process::id()].iter().map(|pid| is(0, pid)).collect(),
            Self::StreamPair(_) => {
                let family = condition(0, SeccompCmpOp::Eq, libc::AF_UNIX.unsigned_abs())?;
                let stream = libc::SOCK_STREAM.unsigned_abs();
                let kind = condition(1, SeccompCmpOp::MaskedEq(SOCKET_TYPE), stream)?;
                Ok(vec![SeccompRule::new(vec![family, kind])?])
            }
            Self::SocketOption(_, options) => {
                let is = |argument, value: u32| condition(argument, SeccompCmpOp::Eq, value);
                let rule = |(level, name): &(u32, u32)| SeccompRule::new(vec![is(1, *level)?, is(2, *name)?]);
                options.iter().map(rule).collect()
            }
        }
    }
}

/// The calls that go with some rights.
fn allowed(rights: &Rights) -> Vec<Call> {
    let mut lists = vec![lists::RUNTIME, lists::CHANNELS];
    match rights.network {
        Network::None => {}
        Network::Handed => lists.extend([lists::SESSIONS]),
        Network::Datagrams | Network::Ports(_) => lists.extend([lists::SESSIONS, lists::DATAGRAMS]),
        Network::Internet => lists.extend([lists::SESSIONS, lists::DOOR, lists::INTERNET]),
        Network::InternetAndNetlink => lists.extend([lists::SESSIONS, lists::DOOR, lists::NETLINK]),
    }
    match rights.files {
        Files::Handed => lists.push(lists::DATA),
        Files::HandedAndLocked => lists.extend([lists::DATA, lists::PLACES]),
        Files::Configuration(_) | Files::Output => lists.extend([lists::DATA, lists::FILES]),
        Files::Program(_) => lists.push(lists::PROGRAM),
    }
    lists.concat()
}

/// Holds the calling thread, and those that it starts, to the calls that go with its rights.
pub(crate) fn close(rights: &Rights) -> Result<(), Error> {
    let calls =
        |numbers: &[libc::c_long]| numbers.iter().map(|number| Call::Any(*number)).collect::<Vec<_>>();
    let errno = |number: i32| SeccompAction::Errno(number.unsigned_abs());
    let deadly = filter(&calls(lists::DEADLY), SeccompAction::Allow, SeccompAction::KillProcess)?;
    // Its flags are in memory, where no filter looks; the C library then takes `clone`.
    let unknown = filter(&calls(&[libc::SYS_clone3]), SeccompAction::Allow, errno(libc::ENOSYS))?;
    let options = filter(&[lists::UNSET], SeccompAction::Allow, errno(libc::EPERM))?;
    let others = filter(&allowed(rights), errno(libc::EPERM), SeccompAction::Allow)?;
    // All of them are asked, and the strictest answer holds. The last one forbids to install another.
    for program in [deadly, unknown, options, others] {
        seccompiler::apply_filter(&program)?;
    }
    Ok(())
}

/// `matched` for these calls, `otherwise` for all others. Calls of another architecture end the process.
fn filter(
    calls: &[Call],
    otherwise: SeccompAction,
    matched: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let mut rules = BTreeMap::new();
    for call in calls {
        rules.insert(call.number(), call.rules()?);
    }
    SeccompFilter::new(rules, otherwise, matched, std::env::consts::ARCH.try_into()?)?.try_into()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, os::unix::process::ExitStatusExt, process::Command};

    use socket2::{Domain, Protocol, Socket, Type};

    use super::*;

    fn worker() -> Rights {
        Rights::worker(Network::None)
    }

    /// Runs the story in a process of its own, which is confined, and tells how it ended.
    fn confined(test: &str, story: impl FnOnce()) -> Option<i32> {
        const INSIDE: &str = "HOLDFAST_SANDBOX_TEST";
        if std::env::var_os(INSIDE).is_some() {
            close(&worker()).expect("seccomp");
            story();
            // The harness may want more than a router's process.
            std::process::abort();
        }
        let own = std::env::current_exe().expect("a path");
        let status = Command::new(own).args(["--exact", test, "--nocapture"]).env(INSIDE, "1").status();
        status.expect("it ran").signal()
    }

    #[test]
    fn what_is_not_allowed_fails_and_the_process_lives() {
        let ended = confined("syscalls::tests::what_is_not_allowed_fails_and_the_process_lives", || {
            let denied = |result: std::io::Result<()>| {
                let error = result.expect_err("it is not allowed");
                assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error}");
            };
            denied(std::fs::read("/etc/passwd").map(drop));
            denied(std::net::TcpListener::bind("127.0.0.1:0").map(drop));
            denied(std::os::unix::net::UnixDatagram::unbound().map(drop));
            denied(std::os::unix::net::UnixDatagram::pair().map(drop));
            std::os::unix::net::UnixStream::pair().expect("what channels of XRL are made of");
            denied(Command::new("/bin/true").spawn().map(drop));
            std::thread::spawn(|| vec![1_u8; 1 << 20]).join().expect("threads and memory are allowed");
        });
        assert_eq!(ended, Some(libc::SIGABRT), "its own end");
    }

    #[test]
    fn a_socket_is_left_no_header_and_no_source_of_its_own_making_and_its_filter() {
        const TEST: &str =
            "syscalls::tests::a_socket_is_left_no_header_and_no_source_of_its_own_making_and_its_filter";
        let raw = |domain| Socket::new(domain, Type::RAW, Some(Protocol::from(253)));
        let [v4, v6] = [Domain::IPV4, Domain::IPV6].map(|domain| raw(domain).expect("this test needs root"));
        let all = |socket: &Socket, is_v6: bool| match is_v6 {
            false => [
                socket.set_header_included_v4(true),
                socket.set_freebind_v4(true),
                socket.set_ip_transparent_v4(true),
                socket.detach_filter(),
            ],
            true => [
                socket.set_header_included_v6(true),
                socket.set_freebind_v6(true),
                socket.set_ip_transparent_v6(true),
                socket.detach_filter(),
            ],
        };
        let before = all(&v4, false).into_iter().chain(all(&v6, true)).filter_map(Result::err);
        // There is no filter yet.
        assert_eq!(before.filter_map(|error| error.raw_os_error()).collect::<Vec<_>>(), [libc::ENOENT; 2]);
        let ended = confined(TEST, || {
            for outcome in all(&v4, false).into_iter().chain(all(&v6, true)) {
                assert_eq!(outcome.expect_err("it is not allowed").raw_os_error(), Some(libc::EPERM));
            }
            v4.set_ttl_v4(7).expect("other options are allowed");
            v6.set_unicast_hops_v6(7).expect("other options are allowed");
        });
        assert_eq!(ended, Some(libc::SIGABRT), "its own end");
    }

    #[test]
    fn what_nobody_needs_is_deadly() {
        let ended = confined("syscalls::tests::what_nobody_needs_is_deadly", || {
            let _ = holdfast_sys::process::enter_new_network();
        });
        assert_eq!(ended, Some(libc::SIGSYS));
    }

    #[test]
    fn no_call_is_on_two_lists_of_a_process() {
        for network in [
            Network::None,
            Network::Handed,
            Network::Datagrams,
            Network::Ports(&[3784]),
            Network::Internet,
            Network::InternetAndNetlink,
        ] {
            for files in [Files::Configuration(Vec::new()), Files::Program(Vec::new())] {
                let all = allowed(&Rights { files, ..Rights::worker(network) });
                let numbers: BTreeSet<_> = all.iter().map(|call| call.number()).collect();
                assert_eq!(numbers.len(), all.len(), "the second would replace the first");
                assert!(lists::DEADLY.iter().all(|deadly| !numbers.contains(deadly)));
            }
        }
    }
}
