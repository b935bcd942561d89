//! Ends of stock routers.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{
    netns::Namespace,
    peers::{Bird, Frr, Programs},
    wait,
};

/// BFD of a stock router.
#[derive(Debug)]
pub enum Stock {
    /// BIRD.
    Bird(Bird),
    /// FRR's bfdd.
    Frr(Box<Frr>),
}

/// BIRD's protocol: these options of all its sessions, and these sessions, one a line (`10.0.1.1 dev "n1"`).
pub fn bird_protocol(options: &str, sessions: &[&str]) -> String {
    let sessions: String = sessions.iter().map(|session| format!("neighbor {session};\n")).collect();
    format!(
        "protocol bfd lab {{\n debug {{ states, events }};\n interface \"n*\" {{ {options} }};\n \
         multihop {{ {options} }};\n {sessions}}}\n"
    )
}

/// FRR's profile `lab`, with these lines, and the sessions that use it, each as behind `peer`.
pub fn frr_bfd(profile: &[&str], sessions: &[&str]) -> String {
    let lines: String = profile.iter().map(|line| format!("  {line}\n")).collect();
    let peers: String =
        sessions.iter().map(|session| format!(" peer {session}\n  profile lab\n exit\n")).collect();
    format!("bfd\n profile lab\n{lines} exit\n{peers}exit\n")
}

impl Stock {
    /// BIRD with BFD and these other lines.
    ///
    /// # Errors
    /// It does not start.
    pub fn bird(programs: &Programs, host: &Namespace, bfd: &str, rest: &str) -> Result<Self> {
        let configuration = format!(
            "router id 10.0.9.2;\ntimeformat protocol iso long ms;\nprotocol device {{ }}\ninclude \"bfd.conf\";\n{rest}"
        );
        Ok(Self::Bird(Bird::start_of(programs.clone(), host, &configuration, &[("bfd.conf", bfd)])?))
    }

    /// FRR with zebra, bgpd of this configuration, and bfdd of that.
    ///
    /// # Errors
    /// It does not start.
    pub fn frr(programs: &Programs, host: &Namespace, bfd: &str, bgp: &str) -> Result<Self> {
        let mut frr = Frr::start_with_zebra(programs.clone(), host, bgp)?;
        frr.add(host, &[("bfdd", bfd)])?;
        Ok(Self::Frr(Box::new(frr)))
    }

    /// Its session with a neighbour: `up`, `down`, `init` or `admindown`.
    ///
    /// # Errors
    /// It does not answer, or there is no such session.
    pub fn state(&self, neighbor: &str) -> Result<String> {
        match self {
            Self::Bird(bird) => {
                let text = bird.birdc("show bfd sessions")?;
                let line = text.lines().find(|line| line.split_whitespace().next() == Some(neighbor));
                let state = line.and_then(|line| line.split_whitespace().nth(2));
                Ok(state.with_context(|| format!("{neighbor}: {text}"))?.to_lowercase())
            }
            Self::Frr(frr) => {
                let session = of_frr(frr, "show bfd peers json", neighbor)?;
                let state = session["status"].as_str().unwrap_or_default();
                Ok(if state == "shutdown" { "admindown" } else { state }.to_owned())
            }
        }
    }

    /// How often its session with a neighbour was Up no more.
    ///
    /// # Errors
    /// It does not answer, or there is no such session.
    pub fn downs(&self, neighbor: &str) -> Result<u64> {
        match self {
            Self::Bird(bird) => {
                let marks = [format!("Session to {neighbor} changed state from Up")];
                let log = bird.log();
                Ok(log.lines().filter(|line| marks.iter().all(|mark| line.contains(mark))).count() as u64)
            }
            Self::Frr(frr) => {
                let session = of_frr(frr, "show bfd peers counters json", neighbor)?;
                session["session-down"].as_u64().with_context(|| session.to_string())
            }
        }
    }

    /// Waits until its session with a neighbour is Up.
    ///
    /// # Errors
    /// It is not in time.
    pub fn until(&self, neighbor: &str, state: &str, limit: Duration) -> Result<()> {
        wait::until(&format!("{neighbor} {state} at the stock router"), limit, || {
            match self.state(neighbor) {
                Ok(now) if now == state => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
    }

    /// BIRD, if it is that.
    ///
    /// # Errors
    /// It is another one.
    pub fn as_bird(&mut self) -> Result<&mut Bird> {
        match self {
            Self::Bird(bird) => Ok(bird),
            Self::Frr(_) => anyhow::bail!("this is FRR"),
        }
    }

    /// FRR, if it is that.
    ///
    /// # Errors
    /// It is another one.
    pub fn as_frr(&mut self) -> Result<&mut Frr> {
        match self {
            Self::Frr(frr) => Ok(frr),
            Self::Bird(_) => anyhow::bail!("this is BIRD"),
        }
    }
}

fn of_frr(frr: &Frr, command: &str, neighbor: &str) -> Result<Value> {
    let sessions: Value = serde_json::from_str(&frr.ask("bfdd", command)?)?;
    let found = sessions.as_array().into_iter().flatten().find(|session| session["peer"] == neighbor);
    found.cloned().with_context(|| format!("{neighbor}: {sessions}"))
}
