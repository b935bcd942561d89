//! The interoperability matrix: every stock router that Debian has, in two generations, beside every feature that both may have.
//!
//! A cell is a session of its own between Holdfast and the stock router, in two fresh hosts, over which routes go both ways.
//! [`Feature`] says what is asked of either side and how it is judged; a [`Stock`] says how it is configured, and what it
//! cannot do, with the reason.

use std::{fmt::Write as _, time::Duration};

use anyhow::{Context, Result, ensure};

use crate::{
    netns::{self, End, Namespace},
    peers::Programs,
    router::Router,
    topology::{self, Side},
    wait,
};

mod bird;
mod exabgp;
mod feature;
mod frr;
mod gobgp;
mod openbgpd;

pub use feature::Feature;

/// Our AS in every cell.
pub const OUR_ASN: u32 = 65_000;
/// What the stock router originates, by family.
pub const THEIRS: [&str; 2] = ["203.0.113.0/24", "2001:db8:113::/48"];
/// What Holdfast originates, by family.
pub const OURS: [&str; 2] = ["198.51.100.0/24", "2001:db8:198::/48"];
/// The confederation of those who are in one.
pub const CONFEDERATION: u32 = 64_999;
/// Announced to us by others than the stock router, where that is asked for.
pub const OTHERS: &str = "192.0.2.0/24";
/// On the stock router's routes where large communities are asked for.
pub const THEIR_LARGE: [u32; 3] = [64_500, 1, 2];
/// On Holdfast's routes then.
pub const OUR_LARGE: [u32; 3] = [65_000, 7, 9];

/// The interface at both ends of a link without other addresses.
pub const LINK: &str = "n1";
/// The addresses there: ours and theirs.
pub const LINK_LOCAL: [&str; 2] = ["fe80::1", "fe80::2"];

const LIMIT: Duration = Duration::from_secs(40);

/// What a cell asks of the stock router.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Its AS.
    pub asn: u32,
    /// The AS that it knows us by.
    pub our_asn: u32,
    /// The session and its routes are of IPv6.
    pub ipv6: bool,
    /// TCP-MD5 key.
    pub md5: Option<&'static str>,
    /// GTSM.
    pub gtsm: bool,
    /// Extended messages, where they have to be asked for.
    pub extended: bool,
    /// Its route carries [`THEIR_LARGE`].
    pub large: bool,
    /// It and we are members of [`CONFEDERATION`].
    pub confederation: bool,
    /// Several paths of a prefix each way.
    pub add_path: bool,
    /// It is our customer, and says so (RFC 9234).
    pub customer: bool,
    /// It keeps our routes when we restart, and we are to keep its own when it does.
    pub graceful_restart: bool,
    /// Between us are link-local addresses only, [`LINK_LOCAL`] on [`LINK`], and routes of both families (RFC 8950).
    pub unnumbered: bool,
}

impl Default for Wish {
    fn default() -> Self {
        Self {
            asn: 65_001,
            our_asn: OUR_ASN,
            ipv6: false,
            md5: None,
            gtsm: false,
            extended: false,
            large: false,
            confederation: false,
            add_path: false,
            customer: false,
            graceful_restart: false,
            unnumbered: false,
        }
    }
}

impl Wish {
    /// Its address.
    pub fn near(&self) -> String {
        self.address(Side::Second)
    }

    /// Ours.
    pub fn far(&self) -> String {
        self.address(Side::First)
    }

    fn address(&self, side: Side) -> String {
        if self.ipv6 { topology::v6(1, side).to_string() } else { topology::v4(1, side).to_string() }
    }

    /// What it originates.
    pub fn prefix(&self) -> &'static str {
        THEIRS[usize::from(self.ipv6)]
    }

    /// `ipv4` or `ipv6`.
    pub fn family(&self) -> &'static str {
        if self.ipv6 { "ipv6" } else { "ipv4" }
    }
}

/// A kind of stock router.
pub trait Stock: Sync {
    /// Its name.
    fn name(&self) -> &'static str;
    /// Debian package and version.
    fn version(&self) -> Result<String>;
    /// Why it cannot do this; `None` if it can.
    fn lacks(&self, feature: Feature) -> Option<&'static str>;
    /// Starts it in a host with one session to us.
    fn start(&self, host: &Namespace, wish: &Wish) -> Result<Box<dyn Running>>;
}

/// A stock router that runs.
pub trait Running {
    /// What it says of its route to a prefix, in its own words.
    ///
    /// # Errors
    /// It has none.
    fn route(&self, prefix: &str) -> Result<String>;
    /// Has it ask us for a refresh of what it was told.
    fn refresh(&self) -> Result<()>;
    /// kill -9.
    fn kill(&mut self) -> Result<()>;
}

/// The stock routers of one time.
#[derive(Debug)]
pub struct Generation {
    /// Heading of its part of the page.
    pub title: &'static str,
    programs: Programs,
}

impl Generation {
    /// This machine's packages and, where `HOLDFAST_PEERS` names what `scripts/current-peers` has made, those.
    ///
    /// # Errors
    /// This machine is no Debian 12: what its routers cannot do is not known.
    pub fn all() -> Result<Vec<Self>> {
        let system = std::fs::read_to_string("/etc/os-release").context("/etc/os-release")?;
        ensure!(
            system.lines().any(|line| line == "VERSION_CODENAME=bookworm"),
            "the stock routers of Debian 12 are tried, and this is another system:\n{system}"
        );
        let titles = ["Debian 12", "Debian 13"];
        Ok(titles
            .into_iter()
            .zip(Programs::all())
            .map(|(title, programs)| Self { title, programs })
            .collect())
    }

    /// Its routers.
    pub fn stocks(&self) -> [Box<dyn Stock>; 5] {
        let programs = || self.programs.clone();
        [
            Box::new(bird::Bird(programs())),
            Box::new(frr::Frr(programs())),
            Box::new(gobgp::GoBgp(programs())),
            Box::new(openbgpd::OpenBgpd(programs())),
            Box::new(exabgp::ExaBgp(programs())),
        ]
    }
}

/// What became of a cell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cell {
    /// Seen to work.
    Works,
    /// The stock router cannot do it.
    Lacking(&'static str),
    /// It should have worked.
    Failed(String),
}

/// Both routers of a cell.
pub struct Scene<'a> {
    /// Holdfast.
    pub router: &'a Router,
    /// Where it runs.
    pub host: &'a Namespace,
    /// The other.
    pub stock: &'a mut dyn Running,
    /// What was asked of the other.
    pub wish: &'a Wish,
    /// Hosts of further neighbours of ours, in networks 2 and 3.
    pub others: &'a [Namespace; 2],
}

impl Scene<'_> {
    /// Waits until we have the stock router's route; what we say of it.
    pub fn until_ours(&self) -> Result<serde_json::Value> {
        self.until_here(self.wish.prefix())
    }

    /// The same of any route.
    pub fn until_here(&self, prefix: &str) -> Result<serde_json::Value> {
        wait::until("their route here", LIMIT, || {
            let shown = self.router.show(&["bgp", "route", prefix]).map_err(|error| error.to_string())?;
            shown["paths"].get(0).cloned().ok_or_else(|| shown.to_string())
        })
        .with_context(|| self.router.log_tail())
    }

    /// Waits until the stock router has our route, with text about it for which `wanted` holds.
    pub fn until_theirs(&self, wanted: impl Fn(&str) -> bool) -> Result<String> {
        self.until_there(OURS[usize::from(self.wish.ipv6)], wanted)
    }

    /// The same of any route.
    pub fn until_there(&self, prefix: &str, wanted: impl Fn(&str) -> bool) -> Result<String> {
        wait::until("our route there", LIMIT, || {
            let text = self.stock.route(prefix).map_err(|error| error.to_string())?;
            if wanted(&text) { Ok(text) } else { Err(text) }
        })
        .with_context(|| self.router.log_tail())
    }
}

/// Whether these numbers stand one after the other in a text, whatever is between them: every router writes communities and paths in its
/// own way.
pub fn mentions(text: &str, numbers: &[u32]) -> bool {
    let all: Vec<&str> = text.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty()).collect();
    let wanted: Vec<String> = numbers.iter().map(u32::to_string).collect();
    all.windows(wanted.len()).any(|window| window.iter().zip(&wanted).all(|(a, b)| a == b))
}

/// Runs one cell.
pub fn cell(stock: &dyn Stock, feature: Feature) -> Cell {
    if let Some(reason) = stock.lacks(feature) {
        return Cell::Lacking(reason);
    }
    match run(stock, feature) {
        Ok(()) => Cell::Works,
        Err(error) => Cell::Failed(format!("{error:#}")),
    }
}

fn run(stock: &dyn Stock, feature: Feature) -> Result<()> {
    let us = Namespace::new("us")?;
    let them = Namespace::new(stock.name())?;
    let others = [Namespace::new("other")?, Namespace::new("other")?];
    let wish = feature.wish();
    match wish.unnumbered {
        true => join_unnumbered(&us, &them)?,
        false => topology::join(1, &us, &them)?,
    }
    topology::join(2, &us, &others[0])?;
    topology::join(3, &us, &others[1])?;
    let mut running = stock.start(&them, &wish)?;
    let router = Router::start(&us, &feature.configuration(&wish))?;
    let mut scene = Scene { router: &router, host: &us, stock: &mut *running, wish: &wish, others: &others };
    feature.judge(&mut scene)
}

/// Each host has one link-local address and no other, so that a router that asks its kernel for neighbours finds ours.
fn join_unnumbered(us: &Namespace, them: &Namespace) -> Result<()> {
    for host in [us, them] {
        // IN6_ADDR_GEN_MODE_NONE
        host.run(|| std::fs::write("/proc/sys/net/ipv6/conf/default/addr_gen_mode", "1"))??;
    }
    let [near, far] = LINK_LOCAL.map(|address| format!("{address}/64"));
    netns::link(
        &End { host: us, interface: LINK, addresses: &[&near] },
        &End { host: them, interface: LINK, addresses: &[&far] },
    )
}

/// A row for each feature, in it a cell for each router.
pub type Matrix = Vec<(Feature, Vec<Cell>)>;

/// The whole matrix of a generation. Routers are tried side by side.
///
/// # Errors
/// A program is not there.
pub fn matrix(generation: &Generation) -> Result<Matrix> {
    let stocks = generation.stocks();
    let columns: Vec<Vec<Cell>> = std::thread::scope(|scope| {
        let column = |stock| move || Feature::ALL.map(|feature| cell(stock, feature)).to_vec();
        let running: Vec<_> = stocks.iter().map(|stock| scope.spawn(column(&**stock))).collect();
        running
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow::anyhow!("a column panicked")))
            .collect::<Result<_>>()
    })?;
    let row = |(at, feature): (usize, Feature)| {
        (feature, columns.iter().map(|column| column[at].clone()).collect())
    };
    Ok(Feature::ALL.into_iter().enumerate().map(row).collect())
}

/// How a part of the page begins.
pub const PART: &str = "\n## ";

/// The beginning of the page `docs/interop.md`, before the parts of the generations.
pub fn head() -> Result<String> {
    let mut page = String::from(
        "# Interoperability\n\nEach cell is a session between Holdfast and a stock router, in network namespaces, with routes in both directions.\n\
         `make test` runs the routers of Debian 12 and compares the result with this page; `make drills` runs those of Debian 13 as well.\n\
         `HOLDFAST_ACCEPT=1 HOLDFAST_PEERS=DIR scripts/test only every_stock_router` writes the page; `scripts/current-peers DIR` makes DIR.\n\n\
         | row | what is judged |\n|---|---|\n",
    );
    for feature in Feature::ALL {
        writeln!(page, "| {} | {} |", feature.title(), feature.judgement())?;
    }
    Ok(page)
}

/// A generation's part of the page.
///
/// # Errors
/// A program has no version.
pub fn part(generation: &Generation, matrix: &Matrix) -> Result<String> {
    let stocks = generation.stocks();
    let mut page = format!("{PART}{}\n\n", generation.title);
    let names: Vec<_> = stocks.iter().map(|stock| stock.name()).collect();
    writeln!(page, "| | {} |", names.join(" | "))?;
    writeln!(page, "|---|{}", "---|".repeat(names.len()))?;
    let mut notes: Vec<&str> = Vec::new();
    for (feature, cells) in matrix {
        let cells: Vec<String> = cells
            .iter()
            .map(|cell| match cell {
                Cell::Works => "yes".to_owned(),
                Cell::Failed(_) => "**fails**".to_owned(),
                Cell::Lacking(reason) => {
                    let known = notes.iter().position(|note| note == reason);
                    let number = known.unwrap_or_else(|| {
                        notes.push(reason);
                        notes.len() - 1
                    });
                    format!("no [{}]", number + 1)
                }
            })
            .collect();
        writeln!(page, "| {} | {} |", feature.title(), cells.join(" | "))?;
    }
    writeln!(page)?;
    for (number, note) in notes.iter().enumerate() {
        writeln!(page, "[{}] {note}  ", number + 1)?;
    }
    let versions: Vec<String> = stocks.iter().map(|stock| stock.version()).collect::<Result<_>>()?;
    writeln!(page, "\n{TRIED} {}.", versions.join(", "))?;
    Ok(page)
}

/// How the page's lines begin that may be others on another machine.
pub const TRIED: &str = "Tried with the Debian packages";
