//! Another configuration before it takes effect: each process says whether it could run it, and keeps what it has made of it.
//!
//! What is kept is there for the `Configure` that follows. It goes with that, with `Forget`, with another `Prepare`, after
//! [`KEPT`], and with the channel of the manager that has asked.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    pin::Pin,
    rc::Rc,
    time::Duration,
};

use holdfast_api::prepare::v1::{
    self as api, Empty, ForgetRequest, PreparationDispatcher, PreparationServer, PrepareReply, PrepareRequest,
};
use holdfast_xrl::{CallContext, Channel, Configure, Node, XrlError};
use prost::{Message, bytes::Bytes};
use tokio::task::AbortHandle;

use crate::spawn_task;

/// How long a process keeps what it has made of a configuration that does not come.
pub const KEPT: Duration = Duration::from_secs(30);

pub use api::Part;

/// Why a process cannot run a configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The key that is wrong, as `holdfast configure` names it; empty: no single one.
    pub key: String,
    /// What is wrong, for people.
    pub reason: String,
}

impl Refusal {
    /// Because of this key.
    pub fn of(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { key: key.into(), reason: reason.into() }
    }
}

impl From<XrlError> for Refusal {
    fn from(error: XrlError) -> Self {
        Self::of("", error.message())
    }
}

/// A process, or its instance in a VRF, that says whether it could run another configuration.
pub trait Prepare: 'static {
    /// What it keeps of a configuration that it could run.
    type Prepared: 'static;

    /// Checks all that differs for it. It changes nothing.
    ///
    /// # Errors
    /// Why it cannot run it.
    fn prepare(&self, parts: Vec<Part>) -> impl Future<Output = Result<Self::Prepared, Refusal>>;
}

/// The one configuration that a process keeps before it takes effect.
pub struct Prepared<T>(Rc<Slot<T>>);

struct Slot<T> {
    kept: RefCell<Option<Kept<T>>>,
    /// Of the newest that is kept.
    number: Cell<u64>,
}

struct Kept<T> {
    id: u64,
    what: T,
    _expiry: Expiry,
}

/// The task that waits for the end of what is kept.
struct Expiry(AbortHandle);

impl Drop for Expiry {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<T> Clone for Prepared<T> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<T> Default for Prepared<T> {
    fn default() -> Self {
        Self(Rc::new(Slot { kept: RefCell::default(), number: Cell::default() }))
    }
}

impl<T: 'static> Prepared<T> {
    /// What was kept, for the `Configure` that has come: whether it is of the same configuration is for the caller to see.
    pub fn take(&self) -> Option<T> {
        self.0.kept.take().map(|kept| kept.what)
    }

    /// Keeps it, in place of what was kept before, until `owner` closes or [`KEPT`] is over.
    fn keep(&self, id: u64, what: T, owner: Channel) {
        let (slot, number) = (Rc::downgrade(&self.0), self.0.number.get() + 1);
        self.0.number.set(number);
        let expiry = spawn_task(async move {
            tokio::select! { _ = owner.closed() => {} () = tokio::time::sleep(KEPT) => {} }
            if let Some(slot) = slot.upgrade().filter(|slot| slot.number.get() == number) {
                slot.kept.take();
            }
        });
        self.0.kept.replace(Some(Kept { id, what, _expiry: Expiry(expiry.abort_handle()) }));
    }

    fn forget(&self, id: u64) {
        self.0.kept.borrow_mut().take_if(|kept| kept.id == id);
    }
}

struct Served<P: Prepare> {
    process: P,
    kept: Prepared<P::Prepared>,
}

/// Has the manager ask a process what it says of another configuration.
pub fn serve_preparation<P: Prepare>(node: &Node, process: P, kept: Prepared<P::Prepared>) {
    node.serve(PreparationDispatcher::new(Served { process, kept }));
}

impl<P: Prepare> PreparationServer for Served<P> {
    async fn prepare(&self, cx: &CallContext, request: PrepareRequest) -> Result<PrepareReply, XrlError> {
        // There is room for one.
        self.kept.0.kept.take();
        match self.process.prepare(request.parts).await {
            Ok(prepared) => {
                self.kept.keep(request.id, prepared, cx.channel().clone());
                Ok(PrepareReply::default())
            }
            Err(Refusal { key, reason }) => Ok(PrepareReply { refusals: vec![api::Refusal { key, reason }] }),
        }
    }

    async fn forget(&self, _: &CallContext, request: ForgetRequest) -> Result<Empty, XrlError> {
        self.kept.forget(request.id);
        Ok(Empty {})
    }
}

/// What a process checks of each message that `Configure` may bring, by service. It keeps nothing.
#[derive(Default)]
pub struct Checks(BTreeMap<&'static str, Check>);

type Check = Box<dyn Fn(&Bytes) -> Checking>;
type Checking = Pin<Box<dyn Future<Output = Result<(), Refusal>>>>;

impl Checks {
    /// With another service, whose message has to pass this.
    #[must_use]
    pub fn of<C: Configure>(self, check: impl Fn(C::Configuration) -> Result<(), Refusal> + 'static) -> Self
    where
        C::Configuration: Default,
    {
        self.tried::<C, _>(move |configuration| std::future::ready(check(configuration)))
    }

    /// With another service, whose message has to pass what takes its time.
    #[must_use]
    pub fn tried<C: Configure, F>(mut self, check: impl Fn(C::Configuration) -> F + 'static) -> Self
    where
        C::Configuration: Default,
        F: Future<Output = Result<(), Refusal>> + 'static,
    {
        let check = move |octets: &Bytes| -> Checking {
            match read::<C>(octets) {
                Ok(configuration) => Box::pin(check(configuration)),
                Err(refusal) => Box::pin(std::future::ready(Err(refusal))),
            }
        };
        self.0.insert(C::SERVICE.name, Box::new(check));
        self
    }
}

impl Prepare for Checks {
    type Prepared = ();

    async fn prepare(&self, parts: Vec<Part>) -> Result<(), Refusal> {
        for part in parts {
            // What this build does not know it is not told either.
            if let Some(check) = self.0.get(&*part.service) {
                check(&part.configuration).await?;
            }
        }
        Ok(())
    }
}

/// The message that `Configure` would bring.
///
/// # Errors
/// The octets are no such message.
pub fn read<C: Configure>(octets: &Bytes) -> Result<C::Configuration, Refusal>
where
    C::Configuration: Default,
{
    C::Configuration::decode(octets.clone()).map_err(|error| Refusal::of("", error.to_string()))
}

#[cfg(test)]
mod tests {
    use holdfast_api::{
        fea::v1::{Configuration, FeaClient},
        prepare::v1::PreparationClient,
    };
    use holdfast_xrl::{Client, Link, PeerIdentity};
    use tokio::task::{LocalSet, yield_now};

    use super::*;

    /// Keeps what it is asked about, and refuses the table 13.
    struct Cautious;

    impl Prepare for Cautious {
        type Prepared = Rc<u32>;

        async fn prepare(&self, parts: Vec<Part>) -> Result<Rc<u32>, Refusal> {
            match read::<FeaClient>(&parts[0].configuration)?.table {
                13 => Err(Refusal::of("fea.table", "nobody likes it")),
                table => Ok(Rc::new(table)),
            }
        }
    }

    fn ask(table: u32) -> PrepareRequest {
        let configuration = Configuration { table, ..Configuration::default() }.encode_to_vec().into();
        let part = Part { service: FeaClient::SERVICE.name.into(), vrf: String::new(), configuration };
        PrepareRequest { id: table.into(), parts: vec![part] }
    }

    /// A process, what it keeps, and a manager.
    fn scene() -> (Node, Prepared<Rc<u32>>, PreparationClient) {
        let (node, kept) = (Node::new("fea"), Prepared::default());
        serve_preparation(&node, Cautious, kept.clone());
        let client = manager(&node);
        (node, kept, client)
    }

    fn manager(node: &Node) -> PreparationClient {
        let (near, far) = Link::pair();
        node.attach_link(far, PeerIdentity::new("manager"));
        PreparationClient::new(Channel::over(near))
    }

    fn kept(kept: &Prepared<Rc<u32>>) -> Option<u32> {
        kept.0.kept.borrow().as_ref().map(|kept| *kept.what)
    }

    fn run(story: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().expect("a runtime");
        LocalSet::new().block_on(&runtime, story);
    }

    /// Until everybody waits for somebody else.
    async fn settle() {
        for _ in 0..1000 {
            yield_now().await;
        }
    }

    #[test]
    fn one_configuration_is_kept_and_goes_with_what_ends_its_wait() {
        run(async {
            let (node, slot, client) = scene();
            assert!(client.prepare(ask(7)).await.expect("an answer").refusals.is_empty());
            assert_eq!(kept(&slot), Some(7));
            client.prepare(ask(8)).await.expect("an answer");
            assert_eq!(kept(&slot), Some(8), "there is room for one");

            // Somebody has given up another one.
            client.forget(ForgetRequest { id: 7 }).await.expect("an answer");
            assert_eq!(kept(&slot), Some(8));
            client.forget(ForgetRequest { id: 8 }).await.expect("an answer");
            assert_eq!(kept(&slot), None);

            // It takes effect.
            client.prepare(ask(9)).await.expect("an answer");
            assert_eq!((slot.take().map(|what| *what), kept(&slot)), (Some(9), None));

            // Time is over; a later one has a time of its own.
            client.prepare(ask(10)).await.expect("an answer");
            tokio::time::sleep(KEPT - Duration::from_secs(1)).await;
            client.prepare(ask(11)).await.expect("an answer");
            tokio::time::sleep(KEPT - Duration::from_secs(1)).await;
            assert_eq!(kept(&slot), Some(11));
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert_eq!(kept(&slot), None);

            // The manager that has asked ends, and not another one.
            let other = manager(&node);
            client.prepare(ask(12)).await.expect("an answer");
            other.channel().close();
            settle().await;
            assert_eq!(kept(&slot), Some(12));
            client.channel().close();
            settle().await;
            assert_eq!(kept(&slot), None);
        });
    }

    #[test]
    fn who_refuses_says_why_and_keeps_nothing() {
        run(async {
            let (_node, slot, client) = scene();
            client.prepare(ask(7)).await.expect("an answer");
            let refusals = client.prepare(ask(13)).await.expect("an answer").refusals;
            let [api::Refusal { key, reason }] = &refusals[..] else { panic!("{refusals:?}") };
            assert_eq!((key.as_str(), reason.as_str()), ("fea.table", "nobody likes it"));
            assert_eq!(kept(&slot), None);
        });
    }

    #[test]
    fn checks_are_of_the_services_that_a_process_has() {
        run(async {
            let checks = Checks::default().of::<FeaClient>(|configuration| match configuration.table {
                13 => Err(Refusal::of("fea.table", "nobody likes it")),
                _ => Ok(()),
            });
            let parts = |table| ask(table).parts;
            assert_eq!(checks.prepare(parts(7)).await, Ok(()));
            checks.prepare(parts(13)).await.expect_err("it is wrong");
            let unknown = Part { service: "later.v1.Later".into(), ..parts(13).remove(0) };
            assert_eq!(checks.prepare(vec![unknown]).await, Ok(()));
            let garbage = Part { configuration: vec![0xff; 3].into(), ..parts(7).remove(0) };
            checks.prepare(vec![garbage]).await.expect_err("it is no message");
        });
    }
}
