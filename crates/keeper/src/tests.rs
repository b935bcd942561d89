//! The keeper as a process sees it, over a channel.

use std::{
    cell::Cell,
    fs::File,
    os::{
        fd::OwnedFd,
        unix::{
            net::{UnixListener, UnixStream},
            process::ExitStatusExt,
        },
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_api::keeper::v1::{
    DropOfRequest, Empty, GetManyRequest, GetOfRequest, GetRequest, KeeperClient, KeptChanges, KeptState,
    LimitHangsRequest, ListenRequest, OfRequest, OnDeath as Fate, PutRequest, Sandbox, SocketKind,
    SocketRequest, SpawnRequest, State, UnlistenRequest,
};
use holdfast_process::{
    ConfigReader, End, HangLimit, Network, Process, Processes, Reads, Rights, User,
    formats::KEEPER_STATE,
    progress::{FINISHED, PATIENCE},
    spawn_task,
};
use holdfast_sys::memory::SharedMemory;
use holdfast_xrl::{
    Channel, Client, ErrorKind, Node, PeerIdentity, ReplyStream,
    component::v1::{ComponentClient, ProgressRequest},
};
use tokio::task::LocalSet;

use crate::{
    Options,
    children::{Record, pair},
    parcel,
    progress::attend,
    service::Keeper,
    store::LONGEST_NOTE,
};

/// Not a process of ours: numbers of processes end below.
const PID: u32 = 4_194_305;

const FIRST_USER: u32 = 60_700;

fn only(descriptors: Vec<OwnedFd>) -> OwnedFd {
    let [one] = <[OwnedFd; 1]>::try_from(descriptors).expect("one descriptor");
    one
}

fn descriptor() -> OwnedFd {
    File::open("/dev/null").expect("it is there").into()
}

fn keeper() -> Rc<Keeper> {
    keeper_in(PathBuf::from("/run"))
}

fn processes() -> Processes {
    const fn process(name: &'static str, user: u32, reads_kept_of: &'static [&'static str]) -> Process {
        Process {
            name,
            does: "does nothing",
            user: User::Own(user),
            rights: Rights::worker(Network::None),
            services: &[],
            after: &[],
            feeds: &[],
            end: End::Killed,
            reads: Reads::Config(ConfigReader::NOTHING),
            reads_kept_of,
            routing: None,
            hang_limit: None,
            shows: &[],
            clears: &[],
        }
    }
    static PROCESSES: [Process; 3] =
        [process("bgp", 0, &[]), process("transport", 1, &[]), process("reader", 2, &["bgp"])];
    Processes::new(&PROCESSES.each_ref()).expect("they agree")
}

fn keeper_in(runtime_directory: PathBuf) -> Rc<Keeper> {
    keeper_of(processes(), runtime_directory)
}

fn keeper_of(processes: Processes, runtime_directory: PathBuf) -> Rc<Keeper> {
    let options = Options {
        configuration: PathBuf::from("router.toml"),
        runtime_directory,
        log_filter: "info".into(),
        log_format: "text".into(),
        sandbox: Sandbox::default(),
        first_user: FIRST_USER,
        standby: false,
    };
    let lock = File::open("/dev/null").expect("it is there");
    Keeper::new(options, processes, lock, descriptor()).expect("a keeper")
}

/// What `bgp` calls the keeper with.
fn bgp(keeper: &Keeper) -> KeeperClient {
    let (near, far) = pair().expect("a pair");
    keeper.attach("bgp", PID, far, "build".into()).expect("attached");
    KeeperClient::new(Channel::connect(near).expect("a channel"))
}

/// What a process calls the keeper with that may have copies of what is kept for `bgp`.
fn reader(keeper: &Keeper) -> KeeperClient {
    let (near, far) = pair().expect("a pair");
    keeper.attach("reader", PID + 2, far, "build".into()).expect("attached");
    KeeperClient::new(Channel::connect(near).expect("a channel"))
}

fn of(owner: &str) -> OfRequest {
    OfRequest { owner: owner.into() }
}

fn drop_of(owner: &str, end: bool) -> DropOfRequest {
    DropOfRequest { owner: owner.into(), end }
}

/// The next changes of what a reader watches: keys with what became of them, and whether that is everything.
async fn told(stream: &mut ReplyStream<KeptChanges>) -> (Vec<(String, KeptState)>, bool) {
    let told = stream.next().await.expect("it goes on").expect("more");
    (told.changes.iter().map(|change| (change.key.clone(), change.state())).collect(), told.complete)
}

/// What the manager calls the keeper with.
fn manager(keeper: &Keeper) -> KeeperClient {
    let (near, far) = pair().expect("a pair");
    keeper.attach("manager", PID + 1, far, "build".into()).expect("attached");
    KeeperClient::new(Channel::connect(near).expect("a channel"))
}

#[tokio::test(flavor = "current_thread")]
async fn the_manager_has_programs_of_others_executed_as_their_own_users_only() {
    LocalSet::new()
        .run_until(async {
            let keeper = keeper();
            let client = manager(&keeper);
            let refused = async |name: &str, user_number, descriptor: &str| {
                let (name, descriptor) = (name.to_owned(), Some(descriptor.to_owned()));
                let request = SpawnRequest { name, descriptor, user_number, ..SpawnRequest::default() };
                let error = client.spawn(request).await.expect_err("refused");
                assert_eq!(error.kind(), ErrorKind::Denied);
                error.message().to_owned()
            };
            for number in [256, u32::MAX] {
                assert!(refused("igp", number, "").await.contains("no user for protocols of number"));
            }
            for name in ["manager", "keeper", "transport-old"] {
                assert!(refused(name, 0, "").await.contains("a process of the router"));
            }
            for name in ["", "a/b", "a b", "a-name-that-is-too-long"] {
                assert!(refused(name, 0, "").await.contains("no name for a protocol"));
            }
            for text in ["a\0b".to_owned(), "x".repeat((64 << 10) + 1)] {
                assert!(refused("igp", 0, &text).await.contains("handed on"));
            }
            let request = |open| SpawnRequest {
                name: "igp".into(),
                sandbox: Some(Sandbox {
                    user: 1,
                    open,
                    directories: vec!["/".into()],
                    cpu_percent: 9,
                    ..Sandbox::default()
                }),
                descriptor: Some(String::new()),
                hang_limit_milliseconds: Some(7),
                user_number: 255,
            };
            let outsider = keeper.outsider(request(true)).expect("one of its users");
            let closed = Sandbox { user: FIRST_USER + 455, cpu_percent: 9, ..Sandbox::default() };
            assert_eq!(outsider.sandbox, closed, "another user, and closed as at the start");
            for pid in 1..=64 {
                keeper.attach("igp", PID + pid, pair().expect("a pair").0, String::new()).expect("attached");
            }
            let full = keeper.outsider(request(false)).expect_err("too many").to_string();
            assert!(full.contains("64 programs of others run already"), "{full}");
        })
        .await;
}

#[tokio::test(flavor = "current_thread")]
async fn nothing_is_kept_for_programs_of_others() {
    LocalSet::new()
        .run_until(async {
            let keeper = keeper();
            let (near, far) = pair().expect("a pair");
            keeper.attach("igp", PID, far, String::new()).expect("attached");
            let igp = KeeperClient::new(Channel::connect(near).expect("a channel"));
            let error = igp.put(put("a", Fate::Keep, 0), vec![descriptor()]).await.expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Denied);
            let error = igp.progress_page(Empty {}).await.expect_err("it is never busy");
            assert_eq!(error.kind(), ErrorKind::Denied);
        })
        .await;
}

fn put(key: &str, fate: Fate, hold_milliseconds: u64) -> PutRequest {
    PutRequest { key: key.into(), on_death: fate.into(), hold_milliseconds, note: String::new() }
}

fn run(story: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, story);
}

#[test]
fn a_socket_in_a_namespace_is_for_those_who_open_sockets() {
    run(async {
        let keeper = keeper();
        let request = || SocketRequest { netns: "a/b".into(), kind: SocketKind::TcpV4.into(), protocol: 0 };
        let denied = bgp(&keeper).socket(request()).await.expect_err("not for bgp");
        assert_eq!(denied.kind(), ErrorKind::Denied);
        let refused = manager(&keeper).socket(request()).await.expect_err("no name");
        assert_eq!(refused.kind(), ErrorKind::FailedPrecondition);
        assert!(refused.message().contains("is no name of a network namespace"), "{refused}");
    });
}

#[test]
fn a_process_finds_what_is_its_own_and_gets_many_in_one_call() {
    run(async {
        let keeper = keeper();
        let bgp = bgp(&keeper);
        for key in ["session-1", "session-2", "log"] {
            bgp.put(put(key, Fate::Keep, 90_000), vec![descriptor()]).await.expect("kept");
        }
        let kept = bgp.list(Empty {}).await.expect("a list").kept;
        let keys: Vec<_> = kept.iter().map(|kept| (kept.key.as_str(), kept.hold_milliseconds)).collect();
        assert_eq!(
            keys,
            [("log", 90_000), ("session-1", 90_000), ("session-2", 90_000)],
            "not the manager's"
        );
        let keys = ["session-2", "session-9", "log"].map(str::to_owned).to_vec();
        let (reply, copies) = bgp.get_many(GetManyRequest { keys }).await.expect("copies");
        assert_eq!((reply.found, copies.len()), (vec![true, false, true], 2));
        let many = GetManyRequest { keys: vec!["log".into(); 33] };
        let error = bgp.get_many(many).await.expect_err("more than a frame has room for");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        bgp.drop(GetRequest { key: "log".into() }).await.expect("dropped");
        bgp.get(GetRequest { key: "log".into() }).await.expect_err("gone");
    });
}

#[test]
fn copies_of_what_is_anothers_are_for_whom_the_descriptor_names_and_change_nothing() {
    run(async {
        let keeper = keeper();
        let (bgp, reader, manager) = (bgp(&keeper), reader(&keeper), manager(&keeper));
        let noted = PutRequest { note: "a secret".into(), ..put("log", Fate::Keep, 90_000) };
        bgp.put(noted, vec![descriptor()]).await.expect("kept");
        bgp.put(put("session-1", Fate::Keep, 90_000), vec![descriptor()]).await.expect("kept");
        reader.put(put("own", Fate::Keep, 0), vec![descriptor()]).await.expect("kept");
        let get = |owner: &str, keys: &[&str]| GetOfRequest {
            owner: owner.into(),
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        };
        for (who, owner) in
            [(&bgp, "reader"), (&bgp, "bgp"), (&manager, "bgp"), (&reader, "transport"), (&reader, "")]
        {
            let kind = |error: holdfast_xrl::XrlError| error.kind();
            let denied = who.list_of(of(owner)).await.map(drop).map_err(kind);
            assert_eq!(denied, Err(ErrorKind::Denied), "{owner}");
            let denied = who.get_of(get(owner, &["log"])).await.map(drop).map_err(kind);
            assert_eq!(denied, Err(ErrorKind::Denied), "{owner}");
            let denied = who.watch_kept(of(owner)).next().await.map(drop).map_err(kind);
            assert_eq!(denied, Err(ErrorKind::Denied), "{owner}");
            let denied = who.drop_of(drop_of(owner, true)).await.map(drop).map_err(kind);
            assert_eq!(denied, Err(ErrorKind::Denied), "{owner}");
        }
        keeper.store.borrow_mut().owner_died("bgp", Instant::now());
        let due = keeper.next_deadline();
        assert!(due.is_some(), "its time runs");
        let listed = reader.list_of(of("bgp")).await.expect("a list").kept;
        let listed: Vec<_> =
            listed.iter().map(|kept| (&*kept.owner, &*kept.key, kept.note.as_deref())).collect();
        assert_eq!(listed, [("bgp", "log", None), ("bgp", "session-1", None)]);
        let (reply, copies) = reader.get_of(get("bgp", &["log", "none"])).await.expect("copies");
        assert_eq!((reply.found, copies.len()), (vec![true, false], 1));
        assert_eq!(keeper.next_deadline(), due, "its owner is still away");
        let error =
            reader.get_of(get("bgp", &["log"; 33])).await.expect_err("more than a frame has room for");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    });
}

#[test]
fn who_watches_hears_all_and_then_every_change() {
    run(async {
        let keeper = keeper();
        let (bgp, reader) = (bgp(&keeper), reader(&keeper));
        let mut watched = reader.watch_kept(of("bgp"));
        assert_eq!(told(&mut watched).await, (vec![], true), "that there is nothing is said, too");
        for (key, fate) in [("log", Fate::Keep), ("log", Fate::Keep), ("half", Fate::Close)] {
            bgp.put(put(key, fate, 9), vec![descriptor()]).await.expect("kept");
        }
        let expected =
            [("log", KeptState::KeptPut), ("log", KeptState::KeptReplaced), ("half", KeptState::KeptPut)];
        for (key, state) in expected {
            assert_eq!(told(&mut watched).await, (vec![(key.to_owned(), state)], true));
        }
        keeper.store.borrow_mut().owner_died("bgp", Instant::now());
        assert_eq!(told(&mut watched).await.0, [("half".to_owned(), KeptState::KeptDropped)]);
        tokio::time::sleep(Duration::from_millis(20)).await;
        keeper.expire();
        assert_eq!(told(&mut watched).await.0, [("log".to_owned(), KeptState::KeptDropped)]);
    });
}

#[test]
fn who_watches_keeps_no_keeper_from_being_replaced() {
    run(async {
        let keeper = keeper();
        let (bgp, reader) = (bgp(&keeper), reader(&keeper));
        bgp.put(put("log", Fate::Keep, 0), vec![descriptor()]).await.expect("kept");
        let (mut listens, mut asleep) = (reader.watch_kept(of("bgp")), reader.watch_kept(of("bgp")));
        assert_eq!(told(&mut listens).await.0.len(), 1);
        keeper.leaving.set(true);
        keeper.manager_changed.notify_waiters();
        let mut channels = Vec::new();
        keeper.release(&[PID, PID + 2], &mut channels).await.expect("nothing is under way");
        let error = listens.next().await.expect_err("it has ended");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert_eq!(told(&mut asleep).await.0.len(), 1, "what was said before is there");
    });
}

#[test]
fn a_note_is_for_its_owner_and_not_longer_than_it_may_be() {
    run(async {
        let keeper = keeper();
        let (bgp, manager) = (bgp(&keeper), manager(&keeper));
        let noted = |note: String| PutRequest { note, ..put("log", Fate::Keep, 0) };
        let error = bgp.put(noted("x".repeat(LONGEST_NOTE + 1)), vec![descriptor()]).await;
        assert_eq!(error.expect_err("too long").kind(), ErrorKind::InvalidArgument);
        bgp.put(noted("x".repeat(LONGEST_NOTE)), vec![descriptor()]).await.expect("kept");
        let own = bgp.list(Empty {}).await.expect("a list").kept;
        assert_eq!(own[0].note.as_ref().map(String::len), Some(LONGEST_NOTE));
        let all = manager.list(Empty {}).await.expect("a list").kept;
        let of_bgp = all.iter().find(|kept| kept.owner == "bgp").expect("it is told of it");
        assert_eq!(of_bgp.note, None, "but not what is in it");
    });
}

#[test]
fn a_socket_for_a_protocol_is_kept_until_it_is_given_up() {
    run(async {
        let directory = std::env::temp_dir().join(format!("holdfast-keeper-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let keeper = keeper_in(directory.clone());
        let (manager, file) = (manager(&keeper), directory.join("protocol-igp.sock"));
        let request = ListenRequest { name: "igp".into(), ..ListenRequest::default() };
        let (_, first) = manager.listen(request.clone()).await.expect("a socket");
        drop(first);
        let waiting = UnixStream::connect(&file).expect("somebody keeps it");
        let (_, again) = manager.listen(request).await.expect("the same");
        let listener = UnixListener::from(again.into_iter().next().expect("a descriptor"));
        listener.accept().expect("who connected meanwhile has waited");
        drop((waiting, listener));
        manager.unlisten(UnlistenRequest { name: "igp".into() }).await.expect("closed");
        assert!(!file.exists(), "its file is gone");
        let outside = ListenRequest { name: "../igp".into(), ..ListenRequest::default() };
        let error = manager.listen(outside).await.expect_err("no name");
        assert_eq!(error.kind(), ErrorKind::FailedPrecondition);
        let nobody = ListenRequest { name: "igp".into(), user: "no such user".into(), ..Default::default() };
        manager.listen(nobody).await.expect_err("unknown user");
        let error = bgp(&keeper).listen(ListenRequest::default()).await.expect_err("not bgp's business");
        assert_eq!(error.kind(), ErrorKind::Denied);
        std::fs::remove_dir_all(directory).expect("removed");
    });
}

#[test]
fn what_a_process_puts_in_its_last_moment_has_the_fate_that_it_wanted() {
    run(async {
        let keeper = keeper();
        let bgp = bgp(&keeper);
        let dead = keeper.children.borrow_mut().living.remove(&PID);
        assert!(dead.is_some());
        bgp.put(put("connecting", Fate::Close, 0), vec![descriptor()]).await.expect("an answer");
        bgp.put(put("session-1", Fate::Keep, 90_000), vec![descriptor()]).await.expect("kept");
        let store = keeper.store.borrow();
        let keys: Vec<_> =
            store.iter().filter(|(owner, ..)| *owner == "bgp").map(|(_, key, _)| key).collect();
        assert_eq!(keys, ["session-1"]);
        assert!(store.next_deadline().is_some(), "its time runs");
    });
}

#[test]
fn one_keeper_hands_over_to_the_next_what_it_has() {
    run(async {
        let first = keeper();
        let bgp = bgp(&first);
        let noted = PutRequest { note: "a note".into(), ..put("log", Fate::Keep, 0) };
        bgp.put(noted, vec![descriptor()]).await.expect("kept");
        bgp.put(put("session-1", Fate::Keep, 90_000), vec![descriptor()]).await.expect("kept");
        first.store.borrow_mut().owner_died("bgp", Instant::now());
        first.limit_hangs(Duration::ZERO);
        let (last_exit, last_end) = ("hung".into(), "hung".into());
        let record = Record { deaths: 3, last_exit, last_end, hung: 2, was_busy: true };
        let (_, descriptors) = bgp.progress_page(Empty {}).await.expect("a page");
        let mut page = SharedMemory::from_descriptor(only(descriptors)).expect("memory");
        first.children.borrow_mut().records.insert("bgp".into(), record.clone());
        let mut channels = Vec::new();
        first.release(&[PID], &mut channels).await.expect("nothing is under way");
        let parcel = first.pack(&first.build.borrow(), &channels).expect("packed");
        drop((first, channels));
        let asked = bgp.list(Empty {});
        let second = crate::handover::Handed::open(&parcel)
            .expect("understood")
            .keeper(processes())
            .expect("a keeper");
        let kept = asked.await.expect("an answer").kept;
        let notes: Vec<_> = kept.iter().map(|kept| kept.note.as_deref()).collect();
        assert_eq!(notes, [Some("a note"), Some("")]);
        let left = second.next_deadline().expect("its time runs").duration_since(Instant::now());
        assert!(left > Duration::from_secs(80) && left <= Duration::from_secs(90), "{left:?}");
        assert_eq!(second.children.borrow().living[&PID].name, "bgp");
        assert_eq!(second.children.borrow().record("bgp"), record);
        assert_eq!(second.hangs.borrow().limit(), Duration::ZERO);
        page.octets_mut()[0] = 7;
        let page = second.children.borrow().living[&PID].page.clone().expect("the page that it has");
        assert_eq!(page.load(FINISHED), 7, "the next keeper reads what the process counts");
        let (reply, again) = bgp.progress_page(Empty {}).await.expect("a page");
        assert!(reply.last_was_busy);
        assert_eq!(SharedMemory::from_descriptor(only(again)).expect("memory").octets()[0], 7, "the same");
    });
}

#[test]
fn who_retires_is_another_one_for_everybody_and_keeps_its_role() {
    run(async {
        let first = keeper();
        let (near, far) = pair().expect("a pair");
        first.attach("transport", PID, far, "build".into()).expect("attached");
        let transport = KeeperClient::new(Channel::connect(near).expect("a channel"));
        transport.put(put("note", Fate::Keep, 0), vec![descriptor()]).await.expect("kept");
        {
            let manager = manager(&first);
            let denied = manager.retire(Empty {}).await.expect_err("not for the manager");
            assert_eq!(denied.kind(), ErrorKind::Denied);
            let mut told = manager.processes(Empty {});
            while !told.next().await.expect("it lives").expect("more").synced {}
            transport.retire(Empty {}).await.expect("noted");
            let event = told.next().await.expect("it lives").expect("news");
            let named = (event.name.as_str(), event.retired_from.as_str(), event.pid, event.ended.as_str());
            assert_eq!(named, ("transport-old", "transport", PID, ""));
        }
        // The next keeper knows it, too.
        first.children.borrow_mut().living.remove(&(PID + 1));
        let mut channels = Vec::new();
        first.release(&[PID], &mut channels).await.expect("nothing is under way");
        let parcel = first.pack(&first.build.borrow(), &channels).expect("packed");
        drop((first, channels));
        let asked = transport.list(Empty {});
        let second = crate::handover::Handed::open(&parcel)
            .expect("understood")
            .keeper(processes())
            .expect("a keeper");
        assert_eq!(asked.await.expect("an answer").kept.len(), 1, "what it had put is its own");
        let children = second.children.borrow();
        let child = &children.living[&PID];
        assert_eq!((child.called(), child.retired_from().as_str()), ("transport-old", "transport"));
    });
}

/// A program in the place of a process of that name, which has answered once; and the other end of its channel.
fn child(keeper: &Rc<Keeper>, name: &str, script: &str) -> (Child, OwnedFd) {
    let child = Command::new("sh").args(["-c", script]).stdin(Stdio::null()).spawn().expect("a shell");
    let (near, far) = pair().expect("a pair");
    keeper.attach(name, child.id(), far, "build".into()).expect("attached");
    keeper.hangs.borrow_mut().answered(child.id());
    (child, near)
}

#[test]
fn who_makes_way_for_other_sessions_is_no_more_when_that_is_said() {
    run(async {
        let keeper = keeper();
        let (mut bgp, _near) = child(&keeper, "bgp", "exec sleep 600");
        let reaping = Rc::clone(&keeper);
        spawn_task(async move {
            loop {
                reaping.reap();
                tokio::task::yield_now().await;
            }
        });
        keeper.end_process("rib").await.expect("there is none");
        assert!(bgp.try_wait().expect("a child").is_none(), "another was meant");
        keeper.end_process("bgp").await.expect("ended");
        assert!(keeper.children.borrow().living.is_empty());
        assert_eq!(keeper.children.borrow().record("bgp").last_exit, "made way for other sessions");
    });
}

#[test]
fn who_loops_is_stopped_or_waits_for_ever_is_killed_and_who_answers_is_not() {
    run(async {
        let directory = std::env::temp_dir().join(format!("holdfast-hang-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let pipe = directory.join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().is_ok_and(|made| made.success()));
        let keeper = keeper();
        keeper.limit_hangs(Duration::from_millis(800));
        spawn_task(attend(Rc::clone(&keeper)));
        let (mut healthy, near) = child(&keeper, "rib", "exec sleep 600");
        let _answers = Node::new("rib").attach(near, PeerIdentity::new("keeper")).expect("attached");
        let looping = child(&keeper, "bgp", "while :; do :; done");
        let opening = child(&keeper, "manager", &format!("read line < {}", pipe.display()));
        let stopped = child(&keeper, "fea", "kill -STOP $$; exec sleep 600");
        // Work that was finished once, and not again, saves nobody.
        let (_, page) = keeper.progress_page(looping.0.id(), "bgp").expect("a page");
        SharedMemory::from_descriptor(page).expect("memory").octets_mut()[FINISHED] = 7;
        for (mut hung, _unread) in [looping, opening, stopped] {
            let begin = Instant::now();
            let status = loop {
                if let Some(status) = hung.try_wait().expect("a child") {
                    break status;
                }
                assert!(begin.elapsed() < Duration::from_secs(60), "{hung:?} lives");
                tokio::time::sleep(Duration::from_millis(20)).await;
            };
            assert_eq!(status.signal(), Some(9));
            assert!(keeper.children.borrow().living[&hung.id()].hung, "its death is told as what it was");
            keeper.hangs.borrow_mut().died(hung.id());
        }
        assert!(healthy.try_wait().expect("a child").is_none(), "the one that answers lives");
        healthy.kill().and_then(|()| healthy.wait()).expect("killed");
        std::fs::remove_dir_all(directory).expect("removed");
    });
}

#[test]
fn who_finishes_work_is_busy_until_those_lose_patience_who_wait_for_it() {
    run(async {
        let keeper = keeper();
        keeper.limit_hangs(Duration::from_millis(800));
        spawn_task(attend(Rc::clone(&keeper)));
        let (mut busy, _unread) = child(&keeper, "bgp", "exec sleep 600");
        let pid = busy.id();
        let (_, page) = keeper.progress_page(pid, "bgp").expect("a page");
        let mut page = SharedMemory::from_descriptor(page).expect("memory");
        page.octets_mut()[PATIENCE..][..8].copy_from_slice(&3_000_u64.to_le_bytes());
        let (begin, mut was_busy, mut finished) = (Instant::now(), None, 0_u64);
        while busy.try_wait().expect("a child").is_none() {
            assert!(begin.elapsed() < Duration::from_secs(60), "it lives");
            finished += 1;
            page.octets_mut()[FINISHED..][..8].copy_from_slice(&finished.to_le_bytes());
            was_busy = was_busy.max(keeper.hangs.borrow().busy(pid));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(begin.elapsed() >= Duration::from_millis(2_900), "{:?}", begin.elapsed());
        assert!(was_busy >= Some(Duration::from_millis(800)), "{was_busy:?}");
        let child = keeper.children.borrow().living[&pid].clone();
        assert!(child.hung && child.was_busy);
    });
}

#[test]
fn a_process_is_asked_as_soon_as_it_is_born() {
    run(async {
        let keeper = keeper();
        keeper.limit_hangs(Duration::from_secs(3600));
        spawn_task(attend(Rc::clone(&keeper)));
        tokio::task::yield_now().await;
        let (near, far) = UnixStream::pair().expect("a pair");
        keeper.attach("bgp", PID, far.into(), "build".into()).expect("attached");
        near.set_nonblocking(true).expect("set");
        let near = tokio::net::UnixStream::from_std(near).expect("a stream");
        let asked = tokio::time::timeout(Duration::from_secs(20), near.readable()).await;
        assert!(asked.is_ok_and(|asked| asked.is_ok()), "the next turn is minutes away");
    });
}

#[test]
fn a_process_has_the_hang_limit_of_its_descriptor() {
    static BFD: Process = Process {
        name: "bfd",
        does: "watches neighbours",
        user: User::Own(9),
        rights: Rights::worker(Network::Datagrams),
        services: &[],
        after: &[],
        feeds: &[],
        end: End::Killed,
        hang_limit: Some(HangLimit::Exactly(Duration::from_millis(400))),
        reads: Reads::Config(ConfigReader::NOTHING),
        reads_kept_of: &[],
        routing: None,
        shows: &[],
        clears: &[],
    };
    run(async {
        let keeper = keeper_of(Processes::new(&[&BFD]).expect("one"), PathBuf::from("/run"));
        let (_near, far) = pair().expect("a pair");
        keeper.attach("bgp", PID, far, "build".into()).expect("attached");
        assert_eq!(keeper.hangs.borrow().interval(), Some(Duration::from_millis(250)));
        let (_near, far) = pair().expect("a pair");
        keeper.attach("bfd", PID + 1, far, "build".into()).expect("attached");
        assert_eq!(keeper.hangs.borrow().interval(), Some(Duration::from_millis(50)));
    });
}

#[test]
fn what_is_hung_is_for_the_manager_to_say_and_progress_for_the_keeper_to_ask() {
    run(async {
        let keeper = keeper();
        let request = |limit_milliseconds| LimitHangsRequest { limit_milliseconds };
        let denied = bgp(&keeper).limit_hangs(request(0)).await.expect_err("not for bgp");
        assert_eq!(denied.kind(), ErrorKind::Denied);
        manager(&keeper).limit_hangs(request(5000)).await.expect("taken");
        assert_eq!(keeper.hangs.borrow().limit(), Duration::from_secs(5));

        let node = Node::new("rib");
        for (role, may) in [("keeper", true), ("operator", false)] {
            let (near, far) = pair().expect("a pair");
            let _held = node.attach(far, PeerIdentity::new(role)).expect("attached");
            let asked = ComponentClient::new(Channel::connect(near).expect("a channel"));
            assert_eq!(asked.progress(ProgressRequest {}).await.is_ok(), may, "{role}");
        }
    });
}

#[test]
fn a_state_of_another_version_or_with_descriptors_missing_is_refused() {
    let lock = descriptor();
    let lock = std::os::fd::AsFd::as_fd(&lock);
    for (state, descriptors) in [
        (State { format: KEEPER_STATE + 1, ..State::default() }, vec![lock]),
        (State { format: 1, ..State::default() }, vec![lock]),
        (State { format: KEEPER_STATE, ..State::default() }, vec![]),
        (State { format: KEEPER_STATE, ..State::default() }, vec![lock, lock]),
    ] {
        let parcel = parcel::pack(&state, &descriptors).expect("packed");
        assert!(crate::handover::Handed::open(&parcel).is_err(), "{state:?}");
    }
}

#[test]
fn an_introduction_that_waits_for_a_manager_ends_when_the_keeper_leaves() {
    run(async {
        let keeper = keeper();
        let bgp = bgp(&keeper);
        let waiting = bgp.attach_finder(Empty {});
        let answered = Cell::new(false);
        tokio::join!(
            async {
                let error = waiting.await.expect_err("there is no manager");
                assert_eq!(error.kind(), ErrorKind::Unavailable);
                answered.set(true);
            },
            async {
                // Until the question has arrived.
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
                keeper.leaving.set(true);
                keeper.manager_changed.notify_waiters();
                let mut channels = Vec::new();
                keeper.release(&[PID], &mut channels).await.expect("nobody waits any more");
            }
        );
        assert!(answered.get());
    });
}
