//! Everybody with a session: four stock routers and a feeder with a whole table, who tell what is used once.

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, MutexGuard},
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use holdfast_types::{Family, Prefix};

use super::{
    Options,
    audit::Audit,
    judge::{Judge, Mac, Tally},
    lan::{Lan, service, v4, v6},
    stock::{ROUTES, Stock, Watch, asn},
};
use crate::{
    drill::scene::{fixed_table, table_of_sets},
    netns::Namespace,
    replication::{scene::table_v6, stock::Special},
    shaper::{self, Shaper},
    speaker::{Speaker, SpeakerConfig},
    table::Table,
    traffic::Traffic,
    wait,
};

/// For a whole table to be everywhere, or a store to have it.
pub const LOADING: Duration = Duration::from_secs(180);
/// For the last changes to be everywhere, after whatever was done.
pub const SETTLING: Duration = Duration::from_secs(60);
/// The stock routers, by number on the LAN.
pub const STOCKS: [(u8, Special); 4] =
    [(21, Special::Md5), (22, Special::V6), (23, Special::Waits), (24, Special::Dials)];
/// The number of the feeder.
pub const FEEDER: u8 = 25;
/// Prefixes of a stock router, and of the feeder for each family, that one step announces, and as many that it withdraws.
const AT_ONCE: u32 = 25;
/// Whoever has said nothing for so long has said all.
const QUIET: Duration = Duration::from_millis(500);
const FIXED: Ipv4Addr = Ipv4Addr::new(60, 0, 0, 0);

/// Numbers of prefixes that are used once.
#[derive(Clone, Debug, Default)]
struct Numbers {
    /// How many were ever announced.
    next: u32,
    /// How many of them were withdrawn: the first ones.
    gone: u32,
    /// Those before this one are at all peers, and may be withdrawn.
    settled: u32,
}

impl Numbers {
    /// Takes the next ones, and as many old ones, of those that are everywhere.
    fn step(&mut self) -> (Vec<u32>, Vec<u32>) {
        let (next, gone) = (self.next, self.gone);
        self.next += AT_ONCE;
        self.gone = (gone + AT_ONCE).min(self.settled);
        ((next..self.next).collect(), (gone..self.gone).collect())
    }

    fn all(&self) -> Vec<u32> {
        (self.gone..self.next).collect()
    }
}

/// Everybody with a session. What is used by others comes before them.
#[derive(Debug)]
pub struct Peers {
    /// The stock routers.
    pub stocks: Vec<Stock>,
    /// Their wires, if these are not as they should be.
    shapers: Vec<Shaper>,
    /// The feeder.
    pub feeder: Speaker,
    /// What came to it.
    pub at_feeder: Watch,
    /// By stock router, and of the feeder.
    numbers: Vec<Numbers>,
    steps: usize,
    announced: Arc<Table>,
    /// IPv4 routes of the feeder that stay.
    routes: u32,
    /// How many of them go to stock routers.
    told: u32,
}

/// The number of a prefix that the feeder uses once.
fn number_of(prefix: Prefix) -> Option<u32> {
    match prefix {
        Prefix::V4(prefix) if prefix.address().octets()[0] == 119 => {
            Some(prefix.address().to_bits() & 0xff_ffff)
        }
        Prefix::V6(prefix) => {
            let [0x2a10, 0, high, low, ..] = prefix.address().segments() else { return None };
            Some(u32::from(high) << 16 | u32::from(low))
        }
        Prefix::V4(_) => None,
    }
}

fn feeder_prefixes(number: u32) -> [Prefix; 2] {
    let v6 = Ipv6Addr::new(0x2a10, 0, (number >> 16) as u16, number as u16, 0, 0, 0, 0);
    let v6 = Prefix::new(v6.into(), 64).expect("a length of IPv6");
    [Prefix::host(Ipv4Addr::from_bits(119 << 24 | number).into()), v6]
}

impl Peers {
    /// Starts them one by one, and waits for each session, and until every route is everywhere.
    ///
    /// # Errors
    /// It does not come about.
    pub fn start(
        options: &Options,
        lan: &Lan,
        at: &Namespace,
        until_up: impl Fn(&Stock) -> Result<()>,
    ) -> Result<Self> {
        let at_feeder = Watch::start(at, service(false), number_of)?;
        let (mut stocks, mut shapers) = (Vec::new(), Vec::new());
        for (number, special) in STOCKS {
            let role = format!("stock{number}");
            let host = match options.wires.way() {
                None => lan.host(&role, number)?,
                Some(way) => {
                    let seed = options.seed << 8 | u64::from(number);
                    let (host, shaper) = lan.distant_host(&role, number, way, seed)?;
                    shapers.push(shaper);
                    host
                }
            };
            let stock = Stock::start((options.peer, &options.programs()), special, number, host, number_of)?;
            // The sessions with stock routers have the lower numbers.
            until_up(&stock)?;
            stocks.push(stock);
        }
        let fixed = match options.communities {
            0 => fixed_table(options.routes),
            communities => table_of_sets(options.routes, 1, communities),
        };
        let tables = vec![Arc::new(fixed), Arc::new(table_v6(options.routes / 5))];
        let feeder = at.run(|| {
            let mut config = SpeakerConfig::connect(v4(FEEDER).into(), service(false), asn(FEEDER));
            config.families = vec![Family::IPV4_UNICAST, Family::IPV6_UNICAST];
            config.next_hop_v6 = v6(FEEDER);
            config.tables = tables;
            Speaker::spawn(config)
        })??;
        let peers = Self {
            numbers: vec![Numbers::default(); stocks.len() + 1],
            stocks,
            shapers,
            feeder,
            at_feeder,
            steps: 0,
            announced: Arc::default(),
            routes: options.routes,
            told: if options.communities == 0 { options.routes } else { 0 },
        };
        peers.until_loaded()?;
        peers.until_quiet()?;
        (0..peers.judges()).for_each(|at| peers.judge(at).begin());
        Ok(peers)
    }

    /// Waits until nobody says anything for a while.
    fn until_quiet(&self) -> Result<()> {
        let updates = || -> u64 {
            let of = |at| {
                let judge = self.judge(at);
                judge.counts.updates + judge.counts.updates_of_peer
            };
            (0..self.judges()).map(of).sum()
        };
        let (mut last, mut since) = (updates(), Instant::now());
        wait::until("silence", LOADING, || {
            let now = updates();
            if now != last {
                (last, since) = (now, Instant::now());
            }
            if since.elapsed() > QUIET { Ok(()) } else { Err(format!("{now} UPDATEs")) }
        })
    }

    /// Waits until every route that stays is at all peers.
    ///
    /// # Errors
    /// It is not.
    pub fn until_loaded(&self) -> Result<()> {
        let fed = |is_v6: bool| if is_v6 { self.routes / 5 } else { self.told };
        wait::until("all routes at all peers", LOADING, || {
            let mut said = Vec::new();
            for (at, is_v6) in self.receivers().into_iter().enumerate() {
                let of_stocks =
                    self.senders(at).filter(|from| *from < self.stocks.len()).count() as u32 * ROUTES;
                let expected = of_stocks + is_v6.map_or(0, fed);
                let held = self.judge(at).told.prefixes.len();
                if held < expected as usize {
                    said.push(format!("{held} of {expected} at {}", self.name(at)));
                }
            }
            if said.is_empty() { Ok(()) } else { Err(said.join(", ")) }
        })
    }

    /// All who are told something: whether it is IPv6, or `None` for both families.
    fn receivers(&self) -> Vec<Option<bool>> {
        let stocks = self.stocks.iter().map(|stock| Some(stock.special == Special::V6));
        stocks.chain([None]).collect()
    }

    /// Whose routes go to a receiver.
    fn senders(&self, to: usize) -> impl Iterator<Item = usize> {
        let all = self.receivers();
        (0..all.len()).filter(move |from| {
            *from != to && (all[to].is_none() || all[*from].is_none() || all[*from] == all[to])
        })
    }

    /// The judge of a peer: the stock routers', then the feeder's.
    pub fn judge(&self, at: usize) -> MutexGuard<'_, Judge> {
        self.stocks.get(at).map_or_else(|| self.at_feeder.judge(), Stock::judge)
    }

    /// IPv4 routes of the feeder that do not change.
    pub fn routes(&self) -> u32 {
        self.routes
    }

    /// Whether an address is of one of these.
    fn is_fixed(&self, address: Ipv4Addr) -> bool {
        let number = address.to_bits().wrapping_sub(FIXED.to_bits()) >> 8;
        number < self.routes
    }

    /// How many judges there are.
    pub fn judges(&self) -> usize {
        self.stocks.len() + 1
    }

    /// The name of a peer.
    pub fn name(&self, at: usize) -> &str {
        self.stocks.get(at).map_or("feeder", |stock| &stock.name)
    }

    /// One stock router and the feeder announce some prefixes, and withdraw others that are everywhere.
    ///
    /// # Errors
    /// The stock router does not take it.
    pub fn step(&mut self) -> Result<()> {
        let at = self.steps % self.stocks.len();
        self.steps += 1;
        let (new, old) = self.numbers[at].step();
        let all = self.numbers[at].all();
        self.stocks[at].change(&all, &new, &old)?;
        self.feed();
        Ok(())
    }

    /// The feeder announces some prefixes, and withdraws others that are everywhere.
    pub fn feed(&mut self) {
        let last = self.numbers.len() - 1;
        self.numbers[last].step();
        let all = self.numbers[last].all();
        let new = Arc::new(Table::plain(all.into_iter().flat_map(feeder_prefixes)));
        let old = std::mem::replace(&mut self.announced, Arc::clone(&new));
        self.feeder.replace(old, new);
    }

    /// A failure was made at this time: asks what comes after it. See [`Judge::failed`].
    pub fn failed(&self, at: u64, dead: Option<Mac>) {
        let number = self.numbers[self.stocks.len()].next;
        for judge in 0..self.judges() {
            self.judge(judge).failed(at, number, dead);
        }
    }

    /// Packets through the router.
    ///
    /// # Errors
    /// The first one does not arrive.
    pub fn packets(&self, from: &Namespace, to: &Namespace) -> Result<Traffic> {
        Traffic::start(from, to, SocketAddr::new(destination(self.routes).into(), 9999))
    }

    /// Sessions end and begin anew: what everybody was told counts no more.
    pub fn forget(&self) {
        for judge in 0..self.judges() {
            self.judge(judge).forget();
        }
    }

    /// Waits until all that is announced now is everywhere, after [`Self::forget`].
    ///
    /// # Errors
    /// It does not come.
    pub fn until_again(&mut self) -> Result<()> {
        let last = self.stocks.len();
        wait::until("all routes at all peers", LOADING, || {
            let mut said = Vec::new();
            for (at, is_v6) in self.receivers().into_iter().enumerate() {
                let of = |from: usize| {
                    let Numbers { next, gone, .. } = self.numbers[from];
                    let stay = match (from == last, is_v6) {
                        (false, _) => ROUTES,
                        (true, Some(true)) => self.routes / 5,
                        (true, _) => self.told,
                    };
                    stay + next - gone
                };
                let expected: u32 = self.senders(at).map(of).sum();
                let held = self.judge(at).told.held;
                if held < expected as usize {
                    said.push(format!("{held} of {expected} at {}", self.name(at)));
                }
            }
            if said.is_empty() { Ok(()) } else { Err(said.join(", ")) }
        })?;
        self.are_settled();
        Ok(())
    }

    fn are_settled(&mut self) {
        for numbers in &mut self.numbers {
            numbers.settled = numbers.next;
        }
    }

    /// Waits until the last changes are everywhere.
    ///
    /// # Errors
    /// They do not come.
    pub fn settle(&mut self) -> Result<()> {
        let last = self.stocks.len();
        wait::until("the last changes at all peers", SETTLING, || {
            let mut said = Vec::new();
            for (at, is_v6) in self.receivers().into_iter().enumerate() {
                let mut expected = (0, 0);
                for from in self.senders(at) {
                    // The feeder has two prefixes for each number.
                    let times = if from == last && is_v6.is_none() { 2 } else { 1 };
                    expected.0 += u64::from(self.numbers[from].next) * times;
                    expected.1 += u64::from(self.numbers[from].gone) * times;
                }
                let told = self.judge(at).told.once;
                if told.0 < expected.0 || told.1 < expected.1 {
                    said.push(format!("{told:?} of {expected:?} at {}", self.name(at)));
                }
            }
            if said.is_empty() { Ok(()) } else { Err(said.join(", ")) }
        })?;
        self.are_settled();
        Ok(())
    }

    /// Compares what every peer has sent with what the others were told. Nothing may be under way.
    pub fn audit(&self) -> Vec<(String, Audit)> {
        let sent: Vec<Tally> = (0..self.judges()).map(|at| self.judge(at).sent.clone()).collect();
        let one = |(at, is_v6): (usize, Option<bool>)| {
            let sent: Vec<&Tally> = self.senders(at).map(|from| &sent[from]).collect();
            let is_wanted = |prefix: &Prefix| match (is_v6, prefix) {
                (None, _) | (Some(true), Prefix::V6(_)) => true,
                (Some(false), Prefix::V4(prefix)) => self.told > 0 || !self.is_fixed(prefix.address()),
                (Some(true), Prefix::V4(_)) | (Some(false), Prefix::V6(_)) => false,
            };
            let mut audit = Audit::of(&self.judge(at).told, &sent, is_wanted);
            let planned = u64::from(self.numbers[at].next) * if at == self.stocks.len() { 2 } else { 1 };
            let seen = self.judge(at).sent.once.0;
            if seen != planned {
                audit
                    .findings
                    .push(format!("it has announced {seen} prefixes of {planned} that it uses once"));
            }
            (self.name(at).to_owned(), audit)
        };
        self.receivers().into_iter().enumerate().map(one).collect()
    }

    /// Routes that were ever announced and are not withdrawn are in the kernel: how many are not, or are there and should not.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn differences(&self, host: &Namespace) -> Result<usize> {
        let kernel = crate::kernel::routes(host, false)?;
        let held = u64::from(self.routes)
            + self
                .numbers
                .iter()
                .zip(self.receivers())
                .map(|(numbers, is_v6)| match is_v6 {
                    Some(true) => 0,
                    Some(false) => u64::from(ROUTES + numbers.next - numbers.gone),
                    None => u64::from(numbers.next - numbers.gone),
                })
                .sum::<u64>();
        Ok(kernel.len().abs_diff(held as usize))
    }

    /// Ends the wires that are not as they should be, and what became of the frames there.
    pub fn end_wires(&mut self) -> Option<shaper::Counts> {
        let each = self.shapers.drain(..).map(Shaper::end);
        each.reduce(|mut all, one| {
            all += one;
            all
        })
    }

    /// Every peer has one session, and has said nothing.
    ///
    /// # Errors
    /// A session has ended.
    pub fn ensure_quiet(&self) -> Result<()> {
        self.stocks.iter().try_for_each(Stock::ensure_quiet)?;
        ensure!(self.feeder.status().sessions == 1, "feeder: {:?}", self.feeder.status().ended);
        Ok(())
    }
}

/// Where packets go to: the last route that a new table has.
pub fn destination(routes: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(FIXED.to_bits() + ((routes - 1) << 8) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_prefix_is_read_off_it() {
        for number in [0, 25, 70_000] {
            assert_eq!(feeder_prefixes(number).map(number_of), [Some(number); 2]);
        }
        assert_eq!(number_of(Prefix::host([171, 0, 0, 1].into())), None);
    }

    #[test]
    fn only_what_is_everywhere_is_withdrawn_and_once() {
        let mut numbers = Numbers::default();
        assert_eq!(numbers.step(), ((0..25).collect(), vec![]));
        numbers.settled = 20;
        assert_eq!(numbers.step(), ((25..50).collect(), (0..20).collect()));
        assert_eq!(numbers.step().1, Vec::<u32>::new());
        assert_eq!(numbers.all(), (20..75).collect::<Vec<_>>());
    }
}
