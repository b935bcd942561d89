//! Replies of a server, cut anywhere, lying, or none at all.

use holdfast_store::{
    Answer, Failure, Kind, Refused,
    fuzzing::replies,
    redis::{
        LONGEST_BULK, LONGEST_LINE, MOST_ELEMENTS, MOST_UNREAD, Replies, Reply, Script, answer, confirmed,
    },
};

const ALL: &[u8] = b"+OK\r\n-OOM command not allowed\r\n:-42\r\n$5\r\na\r\nbc\r\n$-1\r\n*-1\r\n*0\r\n$0\r\n\r\n*2\r\n*1\r\n:1\r\n$1\r\nx\r\n";

fn bulk(octets: &[u8]) -> Reply {
    Reply::Bulk(octets.to_vec())
}

fn expected() -> Vec<Reply> {
    vec![
        Reply::Status(b"OK".to_vec()),
        Reply::Error(Failure::OutOfMemory),
        Reply::Integer(-42),
        bulk(b"a\r\nbc"),
        Reply::Nil,
        Reply::Nil,
        Reply::Array(Vec::new()),
        bulk(b""),
        Reply::Array(vec![Reply::Array(vec![Reply::Integer(1)]), bulk(b"x")]),
    ]
}

fn all(reader: &mut Replies) -> Vec<Reply> {
    std::iter::from_fn(|| reader.take().expect("sound")).collect()
}

fn broken(octets: &[u8]) -> bool {
    let mut reader = Replies::new();
    let mut result = Ok(());
    for piece in octets.chunks(1 << 20) {
        result = result.and_then(|()| reader.push(piece)).and_then(|()| {
            while reader.take()?.is_some() {}
            Ok(())
        });
    }
    matches!(result, Err(Failure::Broken(_)))
}

#[test]
fn replies_that_are_cut_at_any_octet_come_out_whole() {
    for cut in 0..=ALL.len() {
        let mut reader = Replies::new();
        reader.push(&ALL[..cut]).expect("short");
        let mut replies = all(&mut reader);
        if cut < ALL.len() {
            assert!(replies.len() < expected().len(), "{cut}");
        }
        reader.push(&ALL[cut..]).expect("short");
        replies.extend(all(&mut reader));
        assert_eq!(replies, expected(), "{cut}");
    }
    assert_eq!(replies(ALL), (expected().len(), false));
}

#[test]
fn what_is_no_reply_breaks_the_connection() {
    let examples: [&[u8]; 17] = [
        b"\r\n",
        b"OK\r\n",
        b"+OK\n",
        b":\r\n",
        b":+1\r\n",
        b":1x\r\n",
        b":99999999999999999999\r\n",
        b"$-2\r\n",
        b"$x\r\n",
        b"$1\r\nabc",
        b"*-2\r\n",
        b"*x\r\n",
        b"%1\r\n",
        b"_\r\n",
        b":--1\r\n",
        b"$536870913\r\n",
        b"*8193\r\n",
    ];
    for example in examples {
        assert!(broken(example), "{}", example.escape_ascii());
        assert_eq!(replies(&[b"+OK\r\n", example].concat()), (1, true), "{}", example.escape_ascii());
    }
    assert!(!broken(b"$1\r\na\r"));
}

#[test]
fn a_lying_server_is_given_up() {
    let mut line = vec![b'+'];
    line.resize(LONGEST_LINE, b'x');
    assert!(!broken(&line));
    assert!(broken(&[&line, &b"xx"[..]].concat()), "no end of the line comes");
    assert!(broken(&b"*1\r\n".repeat(5)), "nested too deep");
    assert!(!broken(&b"*1\r\n".repeat(4)));
    // Each array is short enough, all are not.
    let nested = [&b"*8192\r\n"[..], &b"*2\r\n:1\r\n:2\r\n".repeat(MOST_ELEMENTS / 3 + 1)].concat();
    assert!(broken(&nested));
    let chunk = [format!("${LONGEST_BULK}\r\n").as_bytes(), &vec![7; LONGEST_BULK], b"\r\n"].concat();
    assert!(!broken(&[&b"*9\r\n"[..], &chunk.repeat(3)].concat()));
    let too_long = |reply: &[u8]| {
        let (mut reader, mut found) = (Replies::new(), None);
        for piece in reply.chunks(1 << 20) {
            reader.push(piece).expect("few are unread");
            while let Some(reply) = reader.take().expect("sound") {
                found = Some(reply);
            }
        }
        let Some(Reply::Array(elements)) = found else { panic!("{found:?}") };
        elements.iter().map(|element| *element == Reply::TooLong).collect::<Vec<_>>()
    };
    // What there is no room for is read on behind.
    let many = [&b"*5\r\n"[..], &chunk.repeat(4), b":7\r\n"].concat();
    assert_eq!(too_long(&many), [false, false, false, true, false]);
    let long =
        [format!("${}\r\n", 3 * LONGEST_BULK).as_bytes(), &vec![7; 3 * LONGEST_BULK], b"\r\n"].concat();
    assert_eq!(too_long(&[b"*2\r\n", &long[..], b"$1\r\nx\r\n"].concat()), [true, false]);
    let (all, end) = long.split_at(long.len() - 2);
    assert!(!broken(all) && broken(&[all, b"x\r"].concat()) && !broken(&[all, end].concat()));
    assert!(!broken(&chunk.repeat(9)), "nine replies");
    let mut reader = Replies::new();
    assert!(reader.push(&vec![b':'; MOST_UNREAD]).is_ok());
    assert!(reader.push(b":").is_err());
    assert!(reader.take().is_err(), "it stays so");
}

#[test]
fn errors_have_names() {
    let of = |text: &str| {
        let mut reader = Replies::new();
        reader.push(format!("-{text}\r\n").as_bytes()).expect("short");
        let reply = reader.take().expect("sound").expect("whole");
        answer(Kind::Batch, reply).expect_err("an error")
    };
    let named = [
        ("OOM command not allowed when used memory > 'maxmemory'.", Failure::OutOfMemory),
        ("READONLY You can't write against a read only replica.", Failure::ReadOnly),
        ("MASTERDOWN Link with MASTER is down", Failure::MasterDown),
        ("LOADING Redis is loading the dataset in memory", Failure::Loading),
        ("BUSY Redis is busy running a script.", Failure::Busy),
        ("NOAUTH Authentication required.", Failure::NoAuth),
        ("WRONGPASS invalid username-password pair", Failure::WrongPassword),
        ("NOPERM this user has no permissions", Failure::NoPermission),
        ("WRONGTYPE Operation against a key", Failure::OtherData),
        ("NOSCRIPT No matching script.", Failure::NoScript),
        ("NOREPLICAS Not enough good replicas to write.", Failure::NoReplicas),
        ("MISCONF Redis is configured to save RDB snapshots", Failure::CannotSave),
        ("MOVED 3999 127.0.0.1:6381", Failure::Cluster),
        ("CLUSTERDOWN Hash slot not served", Failure::Cluster),
    ];
    for (text, failure) in named {
        assert_eq!(of(text), failure);
    }
    assert_eq!(of("ERR what\x07"), Failure::Other("ERR what\\x07".to_owned()));
    let Failure::Other(shown) = of(&"x".repeat(1000)) else { panic!("not named") };
    assert_eq!(shown.len(), 200);
}

#[test]
fn a_reply_to_something_else_is_no_answer() {
    let words = |words: &[&str]| Reply::Array(words.iter().map(|word| bulk(word.as_bytes())).collect());
    let refused = |kind, said: &[&str]| answer(kind, words(said));
    assert_eq!(
        refused(Kind::Batch, &["sequence", "9007199254740993"]),
        Ok(Answer::Refused(Refused::Sequence { there: (1 << 53) + 1 }))
    );
    assert_eq!(
        refused(Kind::Claim, &["lost", "00000000000000ff"]),
        Ok(Answer::Refused(Refused::Lost { there: Some(255) }))
    );
    for said in [
        &["ok"][..],
        &["ok", "1"],
        &["ok", "+1", "2"],
        &["ok", "1", "2", "3"],
        &["lost", "ff"],
        &["value", "x"],
        &[],
    ] {
        assert_eq!(refused(Kind::Batch, said), Err(Failure::Unexpected), "{said:?}");
    }
    assert_eq!(refused(Kind::Page, &["lost"]), Err(Failure::Unexpected));
    assert_eq!(refused(Kind::Batch, &["foreign"]), Err(Failure::OtherData));
    assert_eq!(answer(Kind::State, Reply::Status(b"OK".to_vec())), Err(Failure::Unexpected));
    assert_eq!(answer(Kind::List, words(&["0", "x"])), Err(Failure::Unexpected));
    let list = |name: &[u8], entry: &[u8]| {
        answer(Kind::List, Reply::Array(vec![bulk(b"0"), Reply::Array(vec![bulk(name), bulk(entry)])]))
    };
    assert!(list(b"a", b"v7").is_ok() && list(b"a", b"r7 9 8 1").is_ok() && list(b"", b"junk").is_ok());
    let objects = |name: &[u8], entry: &[u8]| match list(name, entry) {
        Ok(Answer::Listed(listed)) => listed.objects.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(objects(b"a", b"r7 9 8 x"), 1, "what counts chunks is not read");
    for entry in [
        &b"x7"[..],
        b"v18446744073709551615",
        b"r0 9007199254740993 0 0",
        b"v",
        b"r9 7 9 1",
        b"r7 9",
        b"r7 9 8 1 1",
        b"\xff",
    ] {
        assert_eq!(objects(b"a", entry), 0, "{}", entry.escape_ascii());
    }
    assert_eq!(objects(&[b'a'; 200], b"v7"), 0, "no name of ours");
    assert_eq!(list(b"a", &[]).map(|_| ()), Ok(()), "an empty entry");
    let values = |all: &[Reply]| answer(Kind::Values, Reply::Array(all.to_vec()));
    let (there, value) = (bulk(b"9"), bulk(b"x"));
    let found = values(&[there.clone(), value.clone(), Reply::Nil, Reply::TooLong]);
    assert_eq!(found, Ok(Answer::Values(vec![Some(b"x".to_vec()), None, None])));
    assert_eq!(values(&[Reply::Nil, value]), Ok(Answer::Values(vec![None])), "no such generation");
    assert_eq!(values(&[there, Reply::Integer(7)]), Err(Failure::Unexpected));
    assert_eq!(values(&[]), Err(Failure::Unexpected));
    assert_eq!(confirmed(&Reply::Integer(2)), Ok(2));
    assert_eq!(confirmed(&Reply::Integer(-2)), Err(Failure::Unexpected));
}

#[test]
fn scripts_are_called_by_their_digests() {
    for script in Script::ALL {
        let mut command = Vec::new();
        script.load(&mut command);
        assert!(command.starts_with(b"*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$"));
        assert!(script.digest().iter().all(u8::is_ascii_hexdigit));
    }
}
