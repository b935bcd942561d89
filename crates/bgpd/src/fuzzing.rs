//! The body of the fuzz target `pathsec_replies`, also run by a test over its corpus.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::{Duration, Instant},
};

use holdfast_api::pathsec::v1::{KeysChanged, ValidateReply};
use holdfast_bgp_pipeline::{
    PathRules, PeerConfig, PeerIndex, PeerKind, Pipeline, Secured, SendPaths, SessionFacts, SignatureJob,
    SpeakerConfig,
};
use holdfast_bgp_wire::{HEADER_LEN, MAX_LEN, NextHop, Origin, bgpsec::announce};
use holdfast_bgpsec_wire::{Ingress, Path, Segment, SignatureBlock, Ski, extend};
use holdfast_policy::Program;
use holdfast_types::{Asn, Family, HashKey, Prefix, RouterId};
use prost::Message;

use crate::signatures::{Keys, asked, take, tell, verdicts};

const OUR_AS: Asn = Asn(65_000);
const PEER_AS: Asn = Asn(65_001);
/// Routes of the peer; it announces one of them anew where the process asks for more and there is none.
const ROUTES: u8 = 8;
/// Frames of one life.
const MOST_FRAMES: usize = 64;
/// Until a peer has paid what an answer says that its signatures have cost, whatever that is.
const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);

/// Says anything in the place of `pathsec`: each frame is an octet, a length of two, and so many octets. An even octet is an
/// answer to what was asked first, an odd one a change of keys. Whatever cannot be understood ends the life of that
/// `pathsec`, and a sound one has all verified that is left. Returns how many verdicts were taken.
pub fn pathsec_replies(mut octets: &[u8]) -> usize {
    let mut now = Instant::now();
    let (mut pipeline, peer) = pipeline();
    pipeline.set_now(now);
    for number in 0..ROUTES {
        announce_anew(&mut pipeline, peer, number, 0);
    }
    let (mut judged, mut taken, mut frames) = (Vec::new(), 0, 0_u8);
    let mut keys = Keys { epoch: 0, known: false, judged: &mut judged };
    let mut batches = std::collections::VecDeque::new();
    while let Some((&[kind, high, low], rest)) = octets.split_first_chunk()
        && usize::from(frames) < MOST_FRAMES
    {
        let (frame, rest) = rest.split_at(rest.len().min(usize::from(u16::from_be_bytes([high, low]))));
        (octets, frames, now) = (rest, frames + 1, now + Duration::from_millis(10));
        pipeline.set_now(now);
        let mut is_alive = true;
        if kind % 2 == 1 {
            match KeysChanged::decode(frame) {
                Ok(changed) => {
                    if let Some(changed) = keys.heard(&changed) {
                        changed.tell(&mut pipeline);
                    }
                }
                Err(_) => is_alive = false,
            }
        } else {
            let jobs = take(&mut pipeline, now);
            if jobs.is_empty() {
                announce_anew(&mut pipeline, peer, kind / 2 % ROUTES, frames);
            }
            batches.extend(
                [jobs, take(&mut pipeline, now)].into_iter().filter(|jobs| !jobs.is_empty()).map(numbers),
            );
            let numbers: Vec<u64> = batches.pop_front().unwrap_or_default();
            let reply = ValidateReply::decode(frame).ok();
            match reply.and_then(|reply| Some((verdicts(&reply, numbers.len()).ok()?, reply.epoch))) {
                Some((verdicts, epoch)) => {
                    taken += numbers.len();
                    tell(&mut pipeline, &numbers, verdicts, epoch >= keys.epoch, now);
                }
                None => is_alive = false,
            }
        }
        if !is_alive {
            pipeline.signatures_lost();
            batches.clear();
            (keys.epoch, keys.known) = (0, false);
        }
        while pipeline.work(100) {}
    }
    pipeline.signatures_lost();
    now += FOR_EVER;
    pipeline.set_now(now);
    for _ in 0..4 {
        while pipeline.work(100) {}
        while let Some(job) = pipeline.poll_signatures(now) {
            let reply = ValidateReply { epoch: 0, verdicts: vec![good()] };
            tell(&mut pipeline, &[job.number], verdicts(&reply, 1).expect("one for one"), true, now);
        }
    }
    let counts = pipeline.signature_counts(peer);
    assert_eq!((counts.unverified, counts.queued_hops), (0, 0), "{counts:?}");
    taken
}

fn good() -> holdfast_api::pathsec::v1::Verdict {
    holdfast_api::pathsec::v1::Verdict {
        state: holdfast_api::pathsec::v1::State::Valid.into(),
        ..Default::default()
    }
}

/// Their numbers, once it is seen that they can be asked.
fn numbers(jobs: Vec<SignatureJob>) -> Vec<u64> {
    let number = |job: SignatureJob| {
        let (number, octets) = (job.number, job.prefix.length().div_ceil(8));
        assert_eq!(asked(job).prefix.len(), usize::from(octets));
        number
    };
    jobs.into_iter().map(number).collect()
}

/// The peer announces its route of this number over two ASs, which are others than before if `version` is.
fn announce_anew(pipeline: &mut Pipeline, peer: PeerIndex, number: u8, version: u8) {
    let prefix: Prefix = match number {
        0 => "2001:db8:7::/48".parse().expect("a prefix"),
        number => format!("10.0.{number}.0/24").parse().expect("a prefix"),
    };
    let next_hop = match prefix {
        Prefix::V4(_) => NextHop::V4([192, 0, 2, 9].into()),
        Prefix::V6(_) => NextHop::V6 { global: "2001:db8::9".parse().expect("an address"), link_local: None },
    };
    let segment = |asn| Segment { pcount: 1, flags: 0, asn };
    let block = SignatureBlock { suite: 1, ski: Ski([number % 2; 20]), signature: &[version; 8] };
    let origin = extend(None, segment(Asn(u32::from(number) + 1)), &[block]).expect("it fits");
    let origin = Path::parse(&origin).expect("what we built");
    let path = extend(Some(&origin), segment(PEER_AS), &[block]).expect("it fits");
    let update = announce(&path, Origin::Igp, next_hop, prefix).expect("it fits");
    pipeline.update(peer, &update[HEADER_LEN..]).expect("taken");
}

fn pipeline() -> (Pipeline, PeerIndex) {
    let id = RouterId::new(1).expect("not zero");
    let mut pipeline = Pipeline::new(SpeakerConfig::new(OUR_AS, id, HashKey::new([1, 2])));
    let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9));
    let peer = pipeline.add_peer(PeerConfig {
        name: "peer".to_owned(),
        address,
        asn: PEER_AS,
        kind: PeerKind::Ebgp,
        import: Some(Program::accept_all()),
        export: Some(Program::accept_all()),
        paths: PathRules::default(),
        send_paths: SendPaths::All,
    });
    let families = Family::ALL.into_iter().collect();
    let facts = SessionFacts {
        families: Family::ALL.to_vec(),
        four_octet_as: true,
        max_message_len: MAX_LEN,
        extended_next_hop: false,
        enhanced_refresh: false,
        long_lived: false,
        bgpsec_received: Some(Secured { families, ingress: Ingress::external(PEER_AS, OUR_AS) }),
        bgpsec_sent: None,
        identifiers_received: [].into_iter().collect(),
        identifiers_sent: [].into_iter().collect(),
        orf_received: Vec::new(),
        router_id: id,
        peer_address: address,
        next_hop_v4: Some([192, 0, 2, 1].into()),
        next_hop_v6: None,
        link_local: None,
        interface: 0,
        number: 0,
        first_identifier: 0,
    };
    pipeline.peer_up(peer, facts).expect("room");
    (pipeline, peer)
}
