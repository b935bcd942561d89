//! What a standby wants of the store: when it is read, followed, and read anew. It never writes there. A cold one follows the
//! configuration only.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use holdfast_restore::{Followed, Following, News, Objects, Reading};
use holdfast_store::{Answer, Failure, Refused, Request};
use tracing::{debug, info, warn};

use crate::{
    engine::Follows,
    way::{Event, Way},
};

/// Between two rounds in which peers' octets are asked for.
const ROUND: Duration = Duration::from_millis(100);
/// The same for who follows no routes.
const SLOW_ROUND: Duration = Duration::from_millis(200);
/// How often it looks for other sessions, and whether the generation still counts.
const LOOK: Duration = Duration::from_secs(2);
/// Between two readings of everything: what the processes of the standby are given is made anew each time. Doubled each time
/// that it is wanted again soon, up to the most: a peer whose session comes and goes chooses nothing.
const ANEW: Duration = Duration::from_secs(5);
const MOST_ANEW: Duration = Duration::from_secs(60);
/// Between two attempts to reach the store, or to find something there.
const RETRY: Duration = Duration::from_secs(1);
/// A store that does not answer for so long is connected to anew.
const SILENCE: Duration = Duration::from_secs(5);
/// How often in a row everything is read anew because sessions did not fit: they change all the time, or are damaged.
const ATTEMPTS: u32 = 3;

/// What follows.
#[derive(Debug)]
pub(crate) enum Order {
    /// Sessions are to be made of this: [`Follower::made`] says which could be.
    Make(Objects),
    /// The peer of a session has said this.
    Put(Followed, Vec<u8>),
    /// A session has ended.
    End(Followed),
    /// The router with the sessions is configured so: a `stored.v1/Configuration`.
    Configure(Vec<u8>),
}

/// How far it is.
#[derive(Debug)]
enum State {
    /// There is nothing to do before this.
    Pausing(Instant),
    /// The store is asked what it has.
    Asking,
    Reading(u64, Box<Reading>),
    /// Sessions are made of what was read.
    Making(u64),
    Following(Box<Following>),
}

/// Follows a store.
pub(crate) struct Follower {
    follows: Follows,
    way: Option<Box<dyn Way>>,
    is_connected: bool,
    state: State,
    /// Answers to what is not asked for any more.
    ignored: u32,
    asked: u32,
    heard_at: Instant,
    round_at: Instant,
    looked_at: Instant,
    /// When everything was read the last time.
    read_at: Option<Instant>,
    /// How long after that it is read anew at the earliest.
    pause: Duration,
    attempts: u32,
    orders: Vec<Order>,
}

impl Follower {
    pub(crate) fn new(follows: Follows, now: Instant) -> Self {
        Self {
            follows,
            way: None,
            is_connected: false,
            state: State::Pausing(now),
            ignored: 0,
            asked: 0,
            heard_at: now,
            round_at: now,
            looked_at: now,
            read_at: None,
            pause: ANEW,
            attempts: 0,
            orders: Vec::new(),
        }
    }

    /// What it follows.
    pub(crate) fn follows(&self) -> Follows {
        self.follows
    }

    /// How far it is, for people.
    pub(crate) fn word(&self) -> &'static str {
        match self.state {
            State::Pausing(_) | State::Asking => "waiting",
            State::Reading(..) | State::Making(_) => "reading",
            State::Following(_) => "following",
        }
    }

    /// What there is to do now. `open` begins a way to the store; `can_take` says whether a session has taken what it was given.
    pub(crate) fn turn(
        &mut self,
        now: Instant,
        open: impl FnOnce() -> Result<Box<dyn Way>, Failure>,
        can_take: impl Fn(Followed) -> bool,
    ) -> Vec<Order> {
        if self.way.is_none() && !matches!(self.state, State::Pausing(_) | State::Making(_)) {
            // It was lost while sessions were made.
            self.state = State::Pausing(now);
        }
        if let State::Pausing(until) = self.state
            && now >= until
        {
            match self.way.as_mut() {
                Some(_) if self.is_connected => self.ask_state(now),
                Some(_) => {}
                None => self.connect(now, open),
            }
        }
        self.events(now);
        self.go_on(now, can_take);
        if self.way.is_some() && self.asked > 0 && now.duration_since(self.heard_at) >= SILENCE {
            self.lost("it does not answer", now);
        }
        std::mem::take(&mut self.orders)
    }

    /// These sessions are made of what was read; others are not.
    pub(crate) fn made(&mut self, objects: &Objects, sessions: &BTreeSet<Followed>, now: Instant) {
        let State::Making(generation) = self.state else { return };
        let others = objects.sessions().filter(|one| !sessions.contains(one)).count();
        info!(
            event = "store-followed",
            sessions = sessions.len(),
            others,
            "this standby has the routes of these sessions"
        );
        self.attempts = if others > 0 { self.attempts + 1 } else { 0 };
        (self.round_at, self.looked_at) = (now, now);
        self.state = State::Following(Box::new(Following::new(generation, objects, sessions)));
        if (1..=ATTEMPTS).contains(&self.attempts) {
            self.anew(now);
        }
    }

    /// Nothing could be made of it.
    pub(crate) fn failed(&mut self, now: Instant) {
        self.anew(now);
    }

    fn connect(&mut self, now: Instant, open: impl FnOnce() -> Result<Box<dyn Way>, Failure>) {
        (self.is_connected, self.asked, self.ignored, self.heard_at) = (false, 0, 0, now);
        match open() {
            Ok(way) => self.way = Some(way),
            Err(failure) => self.lost(&failure.to_string(), now),
        }
    }

    fn lost(&mut self, why: &str, now: Instant) {
        debug!("the store that this standby follows: {why}");
        self.way = None;
        self.is_connected = false;
        self.state = match self.state {
            // What was read is there.
            State::Making(generation) => State::Making(generation),
            // It may end again at the same place.
            State::Reading(..) => State::Pausing(self.reads_anew_at(now).max(now + RETRY)),
            State::Pausing(_) | State::Asking | State::Following(_) => State::Pausing(now + RETRY),
        };
    }

    /// Everything is to be read again, not too soon.
    fn anew(&mut self, now: Instant) {
        let at = match self.follows {
            Follows::Routes => self.reads_anew_at(now),
            // Nothing is made of it that would be made anew.
            Follows::Configuration => now + SLOW_ROUND,
        };
        self.ignored = self.asked;
        self.state = State::Pausing(at);
    }

    /// When everything may be read the next time.
    fn reads_anew_at(&mut self, now: Instant) -> Instant {
        let Some(read_at) = self.read_at else { return now };
        if now.duration_since(read_at) >= 2 * self.pause {
            self.pause = ANEW;
        }
        let at = (read_at + self.pause).max(now);
        self.pause = (2 * self.pause).min(MOST_ANEW);
        at
    }

    fn ask(&mut self, request: &Request, now: Instant) {
        if let Some(way) = &mut self.way {
            if self.asked == 0 {
                self.heard_at = now;
            }
            self.asked += 1;
            way.ask(request);
        }
    }

    fn ask_state(&mut self, now: Instant) {
        self.state = State::Asking;
        self.ask(&Request::State, now);
    }

    fn events(&mut self, now: Instant) {
        while let Some(event) = self.way.as_mut().and_then(|way| way.event()) {
            match event {
                Event::Connected(_) => {
                    self.is_connected = true;
                    self.heard_at = now;
                    if matches!(self.state, State::Pausing(until) if now >= until) {
                        self.ask_state(now);
                    }
                }
                Event::Ended(why) => self.lost(&why, now),
                Event::Answered(answer) => self.answered(answer, now),
            }
        }
    }

    fn answered(&mut self, answer: Result<Answer, Failure>, now: Instant) {
        self.heard_at = now;
        self.asked = self.asked.saturating_sub(1);
        if self.ignored > 0 {
            self.ignored -= 1;
            return;
        }
        let answer = match answer {
            Ok(answer) => answer,
            // In the place of an object: that is missing.
            Err(Failure::OtherData) if matches!(&self.state, State::Reading(_, reading) if reading.awaits_range()) => {
                Answer::Refused(Refused::NotThere)
            }
            Err(failure) => return self.lost(&failure.to_string(), now),
        };
        match (std::mem::replace(&mut self.state, State::Pausing(now + RETRY)), answer) {
            (State::Asking, Answer::State(Some(state))) => {
                if let Some(generation) = state.counts {
                    self.read_at = Some(now);
                    self.state = match self.follows {
                        Follows::Routes => State::Reading(generation, Box::new(Reading::live(generation))),
                        Follows::Configuration => {
                            (self.round_at, self.looked_at) = (now - SLOW_ROUND, now);
                            State::Following(Box::new(Following::of_configuration(generation)))
                        }
                    };
                }
            }
            // There is nothing yet.
            (State::Asking, Answer::State(None)) => {}
            (State::Reading(generation, mut reading), answer) => match reading.answered(answer) {
                Ok(()) => {
                    self.state = match reading.finish_if_over() {
                        Ok(objects) => {
                            self.orders.push(Order::Make(objects));
                            State::Making(generation)
                        }
                        Err(reading) => State::Reading(generation, reading),
                    };
                }
                Err(damaged) => {
                    warn!(event = "store-not-followed", "the store cannot be followed: {damaged}");
                    self.anew(now);
                }
            },
            (State::Following(mut following), answer) => {
                let news = following.answered(answer);
                self.state = State::Following(following);
                match news {
                    Ok(news) => news.into_iter().for_each(|news| self.hear(news, now)),
                    Err(_) => self.anew(now),
                }
            }
            (state, _) => self.state = state,
        }
    }

    fn hear(&mut self, news: News, now: Instant) {
        match news {
            News::Octets(session, octets) => self.orders.push(Order::Put(session, octets)),
            News::Ended(session) => self.orders.push(Order::End(session)),
            News::Configuration(octets) => self.orders.push(Order::Configure(octets)),
            News::Anew => self.anew(now),
        }
    }

    /// Asks for what comes next.
    fn go_on(&mut self, now: Instant, can_take: impl Fn(Followed) -> bool) {
        let mut requests = Vec::new();
        match &mut self.state {
            State::Reading(_, reading) => requests.extend(std::iter::from_fn(|| reading.ask())),
            State::Following(following) => {
                let round = match self.follows {
                    Follows::Routes => ROUND,
                    Follows::Configuration => SLOW_ROUND,
                };
                if following.is_idle() && now.duration_since(self.round_at) >= round {
                    let looks = now.duration_since(self.looked_at) >= LOOK;
                    if looks {
                        self.looked_at = now;
                    }
                    self.round_at = now;
                    following.begin(can_take, looks);
                }
                requests.extend(std::iter::from_fn(|| following.ask()));
            }
            State::Pausing(_) | State::Asking | State::Making(_) => {}
        }
        requests.iter().for_each(|request| self.ask(request, now));
    }
}

#[cfg(test)]
mod tests;
