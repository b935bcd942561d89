//! One router has a table: the claim on it, and what another one is told that wants the same.

use std::{
    os::{fd::AsFd, unix::net::UnixDatagram as StdDatagram},
    rc::Rc,
    time::Duration,
};

use holdfast_api::keeper::v1::{Empty, GetRequest, KeeperClient, OnDeath, PutRequest};
use holdfast_fib::TableId;
use holdfast_fib_linux::{Claim, Question};
use holdfast_sockets::Place;
use holdfast_xrl::{XrlError, scoped};
use tokio::{io::Interest, net::UnixDatagram, time::sleep};
use tracing::{info, warn};

use crate::kernel;

/// How long the owner of a table may take to say who that is.
const ANSWER: Duration = Duration::from_millis(200);
/// Between two looks for the answer.
const LOOK: Duration = Duration::from_millis(10);

/// A table that this router has, or shares with the router that has it.
pub(crate) struct Claimed {
    pub(crate) table: TableId,
    /// `None`: a router with the same lease has it.
    held: Option<Held>,
}

struct Held {
    claim: Claim,
    /// The same socket, to wait on.
    asked: Rc<UnixDatagram>,
}

impl Claimed {
    /// A router with the same lease has the table.
    pub(crate) fn is_shared(&self) -> bool {
        self.held.is_none()
    }

    /// Readable when another router asks who has the table.
    pub(crate) fn asked(&self) -> Option<Rc<UnixDatagram>> {
        self.held.as_ref().map(|held| Rc::clone(&held.asked))
    }

    /// Tells those who ask.
    pub(crate) fn answer(&self, lease: &str) {
        let Some(Held { claim, asked }) = &self.held else { return };
        let answered = asked.try_io(Interest::READABLE, || {
            claim.answer(&identity(lease))?;
            // All have been answered, or the next round does it.
            Err::<(), _>(std::io::ErrorKind::WouldBlock.into())
        });
        if let Err(error) = answered
            && error.kind() != std::io::ErrorKind::WouldBlock
        {
            warn!(event = "table-claim", "who asks for the table is not answered: {error}");
        }
    }
}

/// What a router says of itself: its lease, if it shares one, and its process, a line each.
fn identity(lease: &str) -> String {
    format!("{lease}\nthe router whose fea is process {}", std::process::id())
}

/// Claims a table, which the keeper holds from then on: the claim outlives this process, and no other router has the table
/// in between.
///
/// # Errors
/// `FailedPrecondition` when a router with another lease has it; the error names that router.
pub(crate) async fn claim(
    place: &Place,
    keeper: &KeeperClient,
    (table, vrf): (TableId, Option<&str>),
    lease: &str,
) -> Result<Claimed, XrlError> {
    if let Some(claim) = kept(place, keeper, &key(table, vrf)).await {
        return held(table, claim);
    }
    if let Some(claimed) = take(place, keeper, (table, vrf)).await? {
        return Ok(claimed);
    }
    let owner = ask(place, table).await?;
    let (owners_lease, who) = owner.split_once('\n').unwrap_or(("", "another program"));
    if !lease.is_empty() && owners_lease == lease {
        info!(event = "table-shared", table = table.0, "{who} has the table, and shares the lease");
        return Ok(Claimed { table, held: None });
    }
    let table = table.0;
    Err(XrlError::failed_precondition(format!("{who} has the table {table} of this namespace")))
}

/// Claims a table that nobody has; `None` while another router has it.
///
/// # Errors
/// What the kernel says.
pub(crate) async fn take(
    place: &Place,
    keeper: &KeeperClient,
    (table, vrf): (TableId, Option<&str>),
) -> Result<Option<Claimed>, XrlError> {
    let Some(claim) = Claim::take(kernel::one(place).await?, table).map_err(refused)? else {
        return Ok(None);
    };
    let copy = claim.as_fd().try_clone_to_owned().map_err(refused)?;
    let request =
        PutRequest { key: key(table, vrf), on_death: OnDeath::Keep.into(), ..PutRequest::default() };
    // Without the keeper the claim lives as long as this process.
    if let Err(error) = keeper.put(request, vec![copy]).await {
        warn!(event = "table-claim", "the claim on the table ends with this process: {error}");
    }
    held(table, claim).map(Some)
}

/// Gives a table up.
pub(crate) async fn give_up(keeper: &KeeperClient, claimed: Claimed, vrf: Option<&str>) {
    let key = key(claimed.table, vrf);
    if claimed.held.is_some()
        && let Err(error) = keeper.drop(GetRequest { key }).await
    {
        warn!(event = "table-claim", "the claim on the table may have stayed: {error}");
    }
}

fn key(table: TableId, vrf: Option<&str>) -> String {
    scoped(&format!("claim-{}", table.0), vrf)
}

fn held(table: TableId, claim: Claim) -> Result<Claimed, XrlError> {
    let copy = claim.as_fd().try_clone_to_owned().map_err(refused)?;
    let asked = UnixDatagram::from_std(StdDatagram::from(copy)).map_err(refused)?;
    Ok(Claimed { table, held: Some(Held { claim, asked: Rc::new(asked) }) })
}

/// The claim of an earlier life, unless its namespace has lost its name.
async fn kept(place: &Place, keeper: &KeeperClient, key: &str) -> Option<Claim> {
    let kept = keeper.list(Empty {}).await.ok()?.kept;
    kept.iter().find(|kept| kept.key == key)?;
    let (_, sockets) = keeper.get(GetRequest { key: key.to_owned() }).await.ok()?;
    let socket = sockets.into_iter().next().filter(|socket| !place.is_left(socket))?;
    Some(Claim::again(socket))
}

/// What the owner says; nothing when it does not answer in time.
async fn ask(place: &Place, table: TableId) -> Result<String, XrlError> {
    let Some(question) = Question::ask(kernel::one(place).await?, table).map_err(refused)? else {
        return Ok(String::new());
    };
    for _ in 0..ANSWER.as_millis() / LOOK.as_millis() {
        if let Some(answer) = question.answer().map_err(refused)? {
            return Ok(answer);
        }
        sleep(LOOK).await;
    }
    Ok(String::new())
}

fn refused(error: std::io::Error) -> XrlError {
    XrlError::unavailable(format!("claiming the table: {error}"))
}
