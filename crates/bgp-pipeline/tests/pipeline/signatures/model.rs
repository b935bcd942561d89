//! Random announcements, withdrawals, sessions, keys and verdicts in random order: at rest all is as if it had been verified
//! at once.

use super::*;

/// What happens in the model.
#[derive(Clone, Debug)]
enum Step {
    Announce {
        peer: u8,
        route: u8,
        behind: u8,
        is_good: bool,
        version: u8,
    },
    Withdraw {
        peer: u8,
        route: u8,
    },
    Unsigned {
        peer: u8,
        route: u8,
    },
    Session {
        peer: u8,
        restarts: bool,
    },
    /// What the peer's session before has brought, and this one has not, goes.
    Forget {
        peer: u8,
    },
    Key {
        asn: u8,
        is_there: bool,
        /// Where it is not: it has expired.
        lapses: bool,
    },
    Ask {
        count: u8,
    },
    /// Of those under way, which is answered.
    Answer {
        which: u8,
    },
    Lose,
    Work,
    Time {
        ms: u16,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let (peer, route, behind) = (0..3_u8, 0..4_u8, 0..4_u8);
    prop_oneof![
        6 => (peer.clone(), route.clone(), behind.clone(), prop::bool::weighted(0.8), 0..2_u8).prop_map(
            |(peer, route, behind, is_good, version)| Step::Announce { peer, route, behind, is_good, version },
        ),
        2 => (peer.clone(), route.clone()).prop_map(|(peer, route)| Step::Withdraw { peer, route }),
        1 => (peer.clone(), route).prop_map(|(peer, route)| Step::Unsigned { peer, route }),
        1 => (peer.clone(), any::<bool>()).prop_map(|(peer, restarts)| Step::Session { peer, restarts }),
        1 => peer.prop_map(|peer| Step::Forget { peer }),
        2 => (behind, any::<bool>(), any::<bool>())
            .prop_map(|(asn, is_there, lapses)| Step::Key { asn, is_there, lapses }),
        4 => (1..5_u8).prop_map(|count| Step::Ask { count }),
        6 => any::<u8>().prop_map(|which| Step::Answer { which }),
        1 => Just(Step::Lose),
        3 => Just(Step::Work),
        2 => (0..3000_u16).prop_map(|ms| Step::Time { ms }),
    ]
}

fn route(number: u8) -> Prefix {
    match number {
        3 => prefix("2001:db8:7::/48"),
        number => prefix(&format!("10.0.{number}.0/24")),
    }
}

/// A path with signatures that is in the table.
#[derive(Clone)]
struct InTable {
    signed: Vec<u8>,
    ases: String,
    state: PathSecurity,
    /// When it came.
    at: Instant,
}

/// By peer and route.
#[derive(Default)]
struct Renewals(std::collections::BTreeMap<(PeerIndex, u8), InTable>);

impl Renewals {
    /// Whether the pipeline has kept the pace: no path was replaced too early by a path with the same verdict and the same other
    /// attributes.
    fn are_paced(&mut self, paths: &[PathView], route: u8, now: Instant, pace: Duration) -> bool {
        self.0.retain(|(peer, of), _| *of != route || paths.iter().any(|path| path.peer == Some(*peer)));
        let mut are_paced = true;
        for path in paths {
            let Some(peer) = path.peer else { continue };
            let signed = path.attributes().get(33).filter(|_| !path.is_stale).map(|path| path.value.to_vec());
            let Some(signed) = signed else {
                self.0.remove(&(peer, route));
                continue;
            };
            let ases = path.attributes().as_path().to_string();
            let state = path.states.unwrap_or_default().signatures;
            let at = match self.0.get(&(peer, route)).filter(|before| before.ases == ases) {
                Some(before) if before.signed == signed => before.at,
                Some(before) => {
                    are_paced &= before.state != state || now >= before.at + pace;
                    now
                }
                None => now,
            };
            self.0.insert((peer, route), InTable { signed, ases, state, at });
        }
        are_paced
    }
}

proptest! {
    #![proptest_config(holdfast_testing::cases(256))]

    /// At rest everything is as if it had been verified at once; under `require` no route is in use that is not valid.
    #[test]
    fn at_rest_verdicts_are_those_of_verifying_all_at_once(
        steps in prop::collection::vec(step(), 1..80),
        pace in prop_oneof![Just(Duration::ZERO), Just(Duration::from_secs(5))],
    ) {
        let mut now = Instant::now();
        let mut pipeline = checked(always());
        pipeline.set_bgpsec_pace(pace);
        let mut renewals = Renewals::default();
        pipeline.set_now(now);
        let modes = [BgpsecValidation::Require, BgpsecValidation::Log, BgpsecValidation::Prefer];
        let peers: Vec<_> = (0..3).map(|n| up_secured(&mut pipeline, n, modes[usize::from(n)])).collect();
        let watcher = up(&mut pipeline, 9);
        let mut sinks = [(watcher, Sink::default())];
        let mut verifier = Verifier::default();
        let mut under_way: Vec<(SignatureJob, SignatureVerdict, u64)> = Vec::new();
        let mut epoch = 0_u64;
        // What each peer has said last: the octets and whether these are good.
        let mut said = std::collections::BTreeMap::new();
        for step in steps {
            pipeline.set_now(now);
            match step {
                Step::Announce { peer, route: of, behind, is_good, version } => {
                    let path = path_by(&[Asn(u32::from(behind) + 10), asn(peer)], route(of), is_good, version);
                    pipeline.update(peers[usize::from(peer)], &update(&path, route(of))).expect("taken");
                    said.insert((peer, of), Some((behind, is_good, path)));
                }
                Step::Withdraw { peer, route: of } => {
                    pipeline.update(peers[usize::from(peer)], &withdrawal(route(of))).expect("taken");
                    said.remove(&(peer, of));
                }
                Step::Unsigned { peer, route: of } => {
                    let body = announcement_by(peer, &[asn(peer)], route(of));
                    pipeline.update(peers[usize::from(peer)], &body).expect("taken");
                    said.insert((peer, of), None);
                }
                Step::Session { peer, restarts } => {
                    let index = peers[usize::from(peer)];
                    match restarts {
                        true => pipeline.peer_away(index, &Family::ALL),
                        false => pipeline.peer_down(index),
                    }
                    pipeline.peer_up(index, secured(peer)).expect("room");
                    said.retain(|(of, _), _| *of != peer);
                    renewals.0.retain(|(of, _), _| *of != index);
                }
                Step::Forget { peer } => {
                    let index = peers[usize::from(peer)];
                    Family::ALL.into_iter().for_each(|family| pipeline.forget_stale(index, family));
                }
                Step::Key { asn, is_there, lapses } => {
                    let asn = Asn(u32::from(asn) + 10);
                    let changes = match is_there {
                        true => verifier.missing.remove(&asn),
                        false => verifier.missing.insert(asn),
                    };
                    if changes {
                        epoch += 1;
                        let name = [0, 1].map(|version| (asn, ski_of(asn, version)));
                        let (added, removed): (&[_], &[_]) = if is_there { (&name, &[]) } else { (&[], &name) };
                        match lapses {
                            true => {
                                pipeline.keys_lapsed(removed.iter().copied(), false);
                                pipeline.keys_changed(added.iter().copied(), [], false);
                            }
                            false => {
                                pipeline.keys_changed(added.iter().copied(), removed.iter().copied(), false);
                            }
                        }
                    }
                }
                Step::Ask { count } => {
                    for _ in 0..count {
                        let Some(job) = pipeline.poll_signatures(now) else { break };
                        let verdict = verifier.judge(&job);
                        under_way.push((job, verdict, epoch));
                    }
                }
                Step::Answer { which } if !under_way.is_empty() => {
                    let (job, verdict, by) = under_way.swap_remove(usize::from(which) % under_way.len());
                    pipeline.verified(job.number, verdict, cost(1), by == epoch, now);
                }
                Step::Answer { .. } => {}
                Step::Lose => pipeline.signatures_lost(),
                Step::Work => {
                    pipeline.work(3);
                }
                Step::Time { ms } => now += Duration::from_millis(ms.into()),
            }
            for number in 0..4 {
                for path in pipeline.explain(route(number)) {
                    let is_valid = path.states.unwrap_or_default().signatures == PathSecurity::Valid;
                    prop_assert!(path.peer != Some(peers[0]) || !path.is_best || is_valid);
                }
                let are_paced = renewals.are_paced(&pipeline.explain(route(number)), number, now, pace);
                // What is doubted for a change of keys does not wait.
                prop_assert!(are_paced || epoch > 0);
            }
        }
        now += pace + HOLD;
        pipeline.set_now(now);
        // What has expired is looked for in all slots.
        for _ in 0..61 {
            settle(&mut pipeline, &mut sinks);
            now += Duration::from_secs(1);
            pipeline.set_now(now);
        }
        for (peer, family) in peers.iter().flat_map(|peer| Family::ALL.map(|family| (*peer, family))) {
            pipeline.forget_stale(peer, family);
        }
        for (job, verdict, by) in under_way {
            pipeline.verified(job.number, verdict, cost(1), by == epoch, now);
        }
        for _ in 0..3 {
            settle(&mut pipeline, &mut sinks);
            verifier.answer(&mut pipeline, now);
        }
        settle(&mut pipeline, &mut sinks);
        for number in 0..4 {
            let paths = pipeline.explain(route(number));
            for (n, index) in peers.iter().enumerate() {
                let found = paths.iter().find(|path| path.peer == Some(*index));
                let signed = |path: &PathView| path.attributes().get(33).map(|path| path.value.to_vec());
                let wanted = said.get(&(n as u8, number)).and_then(|said| said.as_ref().map(|(.., path)| path.clone()));
                prop_assert_eq!(found.and_then(signed), wanted);
                let found = found.map(|path| path.states.unwrap_or_default().signatures);
                let expected = said.get(&(n as u8, number)).map(|said| match said {
                    None => PathSecurity::Unsigned,
                    Some((behind, is_good, _)) => {
                        let has_key = !verifier.missing.contains(&Asn(u32::from(*behind) + 10));
                        if has_key && *is_good { PathSecurity::Valid } else { PathSecurity::NotValid }
                    }
                });
                prop_assert_eq!(found, expected, "peer {} route {}", n, number);
            }
        }
        let pending: u64 = peers.iter().map(|peer| pipeline.signature_counts(*peer).queued_hops).sum();
        prop_assert_eq!(pending, 0);
    }
}
