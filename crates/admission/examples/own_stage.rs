//! A stage of one's own: during maintenance only the operator's own station is let in. It stands in front of all others, as
//! nothing is cheaper.
//!
//! `cargo run -p holdfast-admission --example own_stage`

use std::{
    net::{IpAddr, SocketAddr},
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_admission::{
    AddressProof, Attempt, Chain, Hello, Load, Numbers, PeerState, PrefixTable, Pressure, Stage, Verdict,
};
use holdfast_types::Prefix;

/// Refuses everybody but one until a moment.
struct Maintenance {
    until: Instant,
    station: IpAddr,
}

impl Stage for Maintenance {
    fn name(&self) -> &'static str {
        "maintenance"
    }

    fn judge(&mut self, attempt: &mut dyn Attempt, now: Instant) -> Verdict {
        if now >= self.until || attempt.remote().ip() == self.station {
            return Verdict::Next;
        }
        match attempt.proof() {
            // It may not even have asked.
            AddressProof::None => Verdict::Ignore,
            AddressProof::Token | AddressProof::Handshake => Verdict::Refuse("maintenance"),
        }
    }
}

/// A TCP connection that has just been accepted.
struct Accepted(SocketAddr);

impl Attempt for Accepted {
    fn remote(&self) -> SocketAddr {
        self.0
    }

    fn local(&self) -> Option<IpAddr> {
        None
    }

    fn proof(&self) -> AddressProof {
        AddressProof::Handshake
    }

    fn can_retry(&self) -> bool {
        false
    }

    fn hello(&mut self) -> Hello<'_> {
        Hello::Unsupported
    }

    fn load(&self) -> Load {
        Load::default()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let now = Instant::now();
    let numbers = Numbers::default();
    let known: PrefixTable =
        ["192.0.2.0/24".parse::<Prefix>()?, "2001:db8::/32".parse()?].into_iter().collect();
    let maintenance = Maintenance { until: now + Duration::from_secs(60), station: "192.0.2.10".parse()? };

    let mut stages: Vec<Box<dyn Stage>> = vec![Box::new(maintenance)];
    stages.extend(numbers.stages(&Rc::new(Pressure::new(&numbers)), known, [], |_| PeerState::Wanted));
    let mut chain = Chain::new(stages);

    for (after, from) in
        [(0, "192.0.2.1:40000"), (1, "192.0.2.10:40000"), (61, "192.0.2.1:40000"), (62, "203.0.113.5:9")]
    {
        let decision = chain.decide(&mut Accepted(from.parse()?), now + Duration::from_secs(after));
        let stage = decision.stage.unwrap_or("the end of the chain");
        println!("{after:2} s, {from}: {:?} by {stage}", decision.verdict);
    }
    for (name, counters) in chain.counters() {
        println!("{name}: {counters:?}");
    }
    Ok(())
}
