//! One cache: honest, slow, old, confused.

use std::time::Duration;

use holdfast_rtr::{ClientConfig, Event, Fault, Input, Phase};
use holdfast_rtr_wire::{ErrorCode, Pdu, PduType, Serial, Timing, Version};

use crate::tests::rtr::script::{Bench, Done, V0, V1, V2, answer, aspa, delta, error, key, octets, set, vrp};

const NET: &str = "192.0.2.0/24 AS1";
const OTHER: &str = "2001:db8::/32-48 AS2";

fn notify(serial: u32) -> Pdu {
    Pdu::SerialNotify { session: 7, serial: Serial(serial) }
}

fn serial_query(serial: u32) -> Pdu {
    Pdu::SerialQuery { session: 7, serial: Serial(serial) }
}

#[test]
fn nothing_holds_before_end_of_data() {
    let mut bench = Bench::connected(ClientConfig::default());
    let mut whole =
        answer(7, 1, [Pdu::Announce(vrp(NET)), Pdu::Announce(key(1, 9)), Pdu::Announce(aspa(1, &[2]))]);
    let end = whole.pop().unwrap();
    // An octet at a time.
    for octet in octets(V2, &whole) {
        assert_eq!(bench.handle(Input::Received(&[octet])), []);
    }
    assert_eq!((bench.client.data(), bench.client.phase()), (None, Phase::Syncing));
    bench.hears(V2, &[end]);
    let records = set([vrp(NET), key(1, 9), aspa(1, &[2])]);
    assert_eq!((bench.client.data(), bench.client.phase()), (Some(&records), Phase::Established));
    assert_eq!(bench.deltas(), [delta([vrp(NET), key(1, 9), aspa(1, &[2])], [])]);
    assert_eq!(bench.client.serial(), Some((7, Serial(1))));
}

#[test]
fn what_changes_comes_as_a_difference_and_an_aspa_takes_the_place_of_another() {
    let mut bench = Bench::holding(V2, [vrp(NET), key(1, 9), aspa(1, &[2]), aspa(3, &[4])]);
    assert_eq!(bench.wait(), (Duration::from_secs(1000), vec![Done::Sent(V2, serial_query(1))]));
    bench.hears(
        V2,
        &answer(
            7,
            2,
            [
                Pdu::Withdraw(vrp(NET)),
                Pdu::Announce(vrp(OTHER)),
                Pdu::Announce(aspa(1, &[2, 5])),
                Pdu::Withdraw(aspa(3, &[])),
                // Comes and goes; goes and comes.
                Pdu::Announce(key(2, 9)),
                Pdu::Withdraw(key(2, 9)),
                Pdu::Withdraw(key(1, 9)),
                Pdu::Announce(key(1, 9)),
            ],
        ),
    );
    assert_eq!(bench.deltas(), [delta([vrp(OTHER), aspa(1, &[2, 5])], [vrp(NET), aspa(3, &[4])])]);
    assert_eq!(bench.client.data(), Some(&set([vrp(OTHER), key(1, 9), aspa(1, &[2, 5])])));
}

#[test]
fn a_notify_is_asked_about_unless_it_says_nothing_new() {
    let mut bench = Bench::holding(V1, [vrp(NET)]);
    assert_eq!(bench.hears(V1, &[notify(1)]), []);
    assert_eq!(bench.hears(V1, &[notify(2)]), [Done::Sent(V1, serial_query(1))]);
    // One comes in the middle of the answer: there is more to ask for, but not more than once in a second.
    let mut pdus = answer(7, 2, []);
    pdus.insert(1, notify(3));
    assert_eq!(bench.hears(V1, &pdus), []);
    assert_eq!(bench.wait(), (Duration::from_secs(1), vec![Done::Sent(V1, serial_query(2))]));
    assert_eq!(bench.hears(V1, &answer(7, 3, [])), []);
}

#[test]
fn who_cannot_go_on_from_a_serial_is_asked_for_all_soon_and_who_refuses_that_too_is_left_alone() {
    let mut bench = Bench::holding(V1, [vrp(NET)]);
    assert_eq!(bench.handle(Input::Closed), []);
    assert_eq!(bench.wait(), (Duration::from_secs(1), vec![Done::Connect]));
    assert_eq!(bench.handle(Input::Connected), [Done::Sent(V1, serial_query(1))]);
    assert_eq!(bench.hears(V1, &[error(ErrorCode::CorruptData)]), [Done::Close], "it was started anew");
    assert_eq!(bench.client.data(), Some(&set([vrp(NET)])), "until it has said all");
    assert_eq!(bench.wait(), (Duration::from_secs(2), vec![Done::Connect]));
    assert_eq!(bench.handle(Input::Connected), [Done::Sent(V1, Pdu::ResetQuery)]);
    assert_eq!(bench.hears(V1, &[error(ErrorCode::CorruptData)]), [Done::Close]);
    assert_eq!(bench.wait().0, bench.client.times().retry);
}

#[test]
fn what_expires_in_a_session_is_asked_for_at_once() {
    let mut bench = Bench::holding(V1, [vrp(NET)]);
    bench.now += Duration::from_secs(20);
    let expire = Some(Duration::from_secs(10));
    bench.client.reconfigure(ClientConfig { expire, version: V1, ..ClientConfig::default() }, bench.now);
    assert_eq!(bench.handle(Input::Timeout), [Done::Sent(V1, Pdu::ResetQuery)]);
    assert_eq!(bench.deltas(), [delta([], [vrp(NET)])]);
    bench.hears(V1, &answer(7, 1, [Pdu::Announce(vrp(NET))]));
    assert_eq!(bench.client.data(), Some(&set([vrp(NET)])));
}

#[test]
fn after_a_cache_reset_all_is_asked_for_and_only_the_difference_is_told() {
    let mut bench = Bench::holding(V1, [vrp(NET), key(1, 9)]);
    bench.wait();
    assert_eq!(bench.hears(V1, &[Pdu::CacheReset]), [Done::Sent(V1, Pdu::ResetQuery)]);
    assert_eq!(bench.client.data(), Some(&set([vrp(NET), key(1, 9)])), "the old hold");
    bench.hears(V1, &answer(8, 1, [Pdu::Announce(vrp(OTHER)), Pdu::Announce(key(1, 9))]));
    assert_eq!(bench.deltas(), [delta([vrp(OTHER)], [vrp(NET)])]);
    assert_eq!(bench.client.serial(), Some((8, Serial(1))));
}

#[test]
fn a_lost_connection_is_made_anew_and_goes_on_where_it_was() {
    let mut bench = Bench::holding(V1, [vrp(NET)]);
    assert_eq!(bench.handle(Input::Closed), []);
    assert_eq!(bench.client.data(), Some(&set([vrp(NET)])));
    // It does not come about: a second, two, four.
    for seconds in [1, 2, 4] {
        assert_eq!(bench.wait(), (Duration::from_secs(seconds), vec![Done::Connect]));
        bench.handle(Input::Closed);
    }
    assert_eq!(bench.handle(Input::Refresh), [Done::Connect], "the operator does not wait");
    assert_eq!(bench.handle(Input::Connected), [Done::Sent(V1, serial_query(1))]);
    bench.hears(V1, &answer(7, 1, []));
    assert_eq!(bench.deltas(), [delta([], [])]);
}

#[test]
fn data_expire_and_are_told_as_withdrawn() {
    let mut bench = Bench::holding(V1, [vrp(NET)]);
    bench.handle(Input::Closed);
    let mut waited = Duration::ZERO;
    while bench.client.data().is_some() {
        let (step, done) = bench.wait();
        waited += step;
        if done == [Done::Connect] {
            bench.handle(Input::Closed);
        }
    }
    assert_eq!(waited, Duration::from_secs(3000));
    assert_eq!(bench.deltas(), [delta([], [vrp(NET)])]);
    assert!(bench.events.contains(&Event::Expired));
    // What comes later begins from nothing.
    if bench.client.phase() == Phase::Down {
        bench.wait();
    }
    assert_eq!(bench.handle(Input::Connected), [Done::Sent(V1, Pdu::ResetQuery)]);
}

#[test]
fn a_cache_that_falls_silent_is_given_up_and_the_old_hold() {
    let mut bench = Bench::holding(V1, [vrp(NET)]);
    bench.wait();
    bench.hears(V1, &[Pdu::CacheResponse { session: 7 }, Pdu::Withdraw(vrp(NET))]);
    assert_eq!(bench.wait(), (Duration::from_secs(60), vec![Done::Close]));
    assert_eq!(bench.client.fault(), Some(&Fault::Stalled));
    assert_eq!(bench.client.data(), Some(&set([vrp(NET)])));
    assert_eq!(bench.deltas(), []);
}

#[test]
fn a_cache_without_data_is_asked_again_and_what_it_said_before_holds() {
    let mut bench = Bench::holding(V1, [vrp(NET)]);
    bench.wait();
    assert_eq!(bench.hears(V1, &[error(ErrorCode::NoDataAvailable)]), []);
    assert_eq!(bench.client.phase(), Phase::Waiting);
    assert_eq!(bench.client.data(), Some(&set([vrp(NET)])));
    assert_eq!(bench.wait(), (Duration::from_secs(100), vec![Done::Sent(V1, Pdu::ResetQuery)]));
    bench.hears(V1, &[error(ErrorCode::NoDataAvailable)]);
    assert_eq!(bench.hears(V1, &[notify(1)]), [Done::Sent(V1, Pdu::ResetQuery)], "as soon as it has some");
    let said = |bench: &Bench| bench.events.iter().filter(|event| **event == Event::NoData).count();
    assert_eq!(said(&bench), 1, "until it has something else to say");
    bench.hears(V1, &answer(9, 1, [Pdu::Announce(vrp(OTHER))]));
    assert_eq!(bench.deltas(), [delta([vrp(OTHER)], [vrp(NET)])]);
    bench.wait();
    bench.hears(V1, &[error(ErrorCode::NoDataAvailable)]);
    assert_eq!(said(&bench), 2);
}

/// RFC 8210 section 8.4: it answers a query.
#[test]
fn that_there_are_no_data_is_no_news_from_a_cache_that_was_not_asked() {
    let no_data = error(ErrorCode::NoDataAvailable);
    let mut bench = Bench::holding(V1, [vrp(NET)]);
    bench.events.clear();
    assert_eq!(bench.hears(V1, &vec![no_data.clone(); 4096]), [Done::Close]);
    let fault = Fault::Unexpected(PduType::ErrorReport);
    assert_eq!(bench.events, [Event::Lost(fault.clone())]);
    assert_eq!(bench.client.data(), Some(&set([vrp(NET)])));
    assert_eq!(bench.wait(), (Duration::from_secs(100), vec![Done::Connect]));
    // Nor twice for one query.
    bench.handle(Input::Connected);
    assert_eq!(bench.hears(V1, &[no_data.clone(), no_data]), [Done::Close]);
    assert_eq!(bench.events[1..], [Event::NoData, Event::Lost(fault)]);
}

#[test]
fn versions_are_settled_by_an_answer_in_a_lower_one() {
    for version in [V0, V1] {
        let mut bench = Bench::connected(ClientConfig::default());
        // Section 7: what a cache says unasked is nothing yet, whatever its version.
        assert_eq!(bench.hears(V0, &[notify(5)]), []);
        assert_eq!(bench.hears(version, &answer(7, 1, [Pdu::Announce(vrp(NET))])), []);
        assert_eq!(bench.client.version(), Some(version));
        let (waited, done) = bench.wait();
        assert_eq!(done, [Done::Sent(version, serial_query(1))]);
        // Version 0 says no times.
        assert_eq!(waited, Duration::from_secs(if version == V0 { 3600 } else { 1000 }));
    }
}

#[test]
fn versions_are_settled_by_a_refusal() {
    let mut bench = Bench::connected(ClientConfig::default());
    // The cache says which version it speaks; the next attempt is at once.
    assert_eq!(bench.hears(V1, &[error(ErrorCode::UnsupportedProtocolVersion)]), [Done::Close]);
    assert_eq!(bench.wait(), (Duration::ZERO, vec![Done::Connect]));
    assert_eq!(bench.handle(Input::Connected), [Done::Sent(V1, Pdu::ResetQuery)]);
    bench.hears(V1, &answer(7, 1, [Pdu::Announce(vrp(NET))]));
    // The next connection begins with the highest again, and then goes on where it was.
    bench.handle(Input::Closed);
    bench.wait();
    assert_eq!(bench.handle(Input::Connected), [Done::Sent(V2, Pdu::ResetQuery)]);
    bench.hears(V1, &[error(ErrorCode::UnsupportedProtocolVersion)]);
    bench.wait();
    assert_eq!(bench.handle(Input::Connected), [Done::Sent(V1, serial_query(1))]);
}

#[test]
fn a_cache_that_speaks_no_version_of_ours_is_not_hammered() {
    let mut bench = Bench::connected(ClientConfig::default());
    for version in [V1, V0] {
        // Its own version is higher than ours: the report tells nothing.
        assert_eq!(bench.hears(V2, &[error(ErrorCode::UnsupportedProtocolVersion)]), [Done::Close]);
        bench.wait();
        assert_eq!(bench.handle(Input::Connected), [Done::Sent(version, Pdu::ResetQuery)]);
    }
    bench.hears(V0, &[error(ErrorCode::UnsupportedProtocolVersion)]);
    assert_eq!(bench.wait(), (Duration::from_secs(600), vec![Done::Connect]));
    assert_eq!(bench.handle(Input::Connected), [Done::Sent(V2, Pdu::ResetQuery)]);
}

#[test]
fn a_cache_that_hangs_up_without_a_word_is_tried_with_lower_versions() {
    let mut bench = Bench::connected(ClientConfig::default());
    for version in [V1, V0, V2] {
        bench.handle(Input::Closed);
        bench.wait();
        assert_eq!(bench.handle(Input::Connected), [Done::Sent(version, Pdu::ResetQuery)]);
    }
}

/// Serial numbers of one version mean nothing in another.
#[test]
fn a_serial_query_that_is_answered_in_another_version_is_asked_anew() {
    let mut bench = Bench::holding(V2, [vrp(NET)]);
    bench.handle(Input::Closed);
    bench.wait();
    assert_eq!(bench.handle(Input::Connected), [Done::Sent(V2, serial_query(1))]);
    assert_eq!(bench.hears(V1, &[Pdu::CacheResponse { session: 7 }]), [Done::Close]);
    bench.wait();
    assert_eq!(bench.handle(Input::Connected), [Done::Sent(V1, Pdu::ResetQuery)]);
    assert_eq!(bench.client.data(), Some(&set([vrp(NET)])));
}

#[test]
fn caches_that_lie_are_told_so_and_what_they_said_before_holds() {
    use ErrorCode::*;
    let response = Pdu::CacheResponse { session: 7 };
    let end = Pdu::EndOfData { session: 7, serial: Serial(2), timing: None };
    let other_end = Pdu::EndOfData { session: 8, serial: Serial(2), timing: None };
    let again = "192.0.2.0/24 AS1 was announced twice";
    for (pdus, code, why, waits) in [
        (vec![response.clone(), Pdu::Announce(vrp(NET))], DuplicateAnnouncementReceived, again, 1),
        (
            vec![response.clone(), Pdu::Withdraw(vrp(NET)), Pdu::Announce(vrp(NET)), Pdu::Announce(vrp(NET))],
            DuplicateAnnouncementReceived,
            again,
            1,
        ),
        (
            vec![response.clone(), Pdu::Announce(key(3, 1)), Pdu::Announce(key(3, 1))],
            DuplicateAnnouncementReceived,
            "the key 0101010101010101010101010101010101010101 of AS3 was announced twice",
            1,
        ),
        (
            vec![response.clone(), Pdu::Withdraw(vrp(OTHER))],
            WithdrawalOfUnknownRecord,
            "2001:db8::/32-48 AS2 was withdrawn, and not there",
            1,
        ),
        (
            vec![response.clone(), Pdu::Withdraw(vrp(NET)), Pdu::Withdraw(vrp(NET))],
            WithdrawalOfUnknownRecord,
            "192.0.2.0/24 AS1 was withdrawn, and not there",
            1,
        ),
        (
            vec![response.clone(), Pdu::Withdraw(aspa(1, &[]))],
            WithdrawalOfUnknownRecord,
            "the ASPA of AS1 was withdrawn, and not there",
            1,
        ),
        (vec![Pdu::Announce(vrp(OTHER))], CorruptData, "an unexpected IPv6 Prefix", 100),
        (vec![end.clone()], CorruptData, "an unexpected End of Data", 100),
        (vec![response.clone(), response.clone()], CorruptData, "an unexpected Cache Response", 100),
        (vec![response.clone(), Pdu::CacheReset], CorruptData, "an unexpected Cache Reset", 100),
        (vec![Pdu::ResetQuery], CorruptData, "an unexpected Reset Query", 100),
    ] {
        let mut bench = Bench::holding(V2, [vrp(NET)]);
        bench.wait();
        let (told, fault) = bench.refuses(V2, &pdus);
        assert_eq!((told, fault.to_string().as_str()), (code, why));
        assert_eq!(bench.client.data(), Some(&set([vrp(NET)])), "{why}");
        // Both have lost count: all is asked for.
        assert_eq!(bench.wait(), (Duration::from_secs(waits), vec![Done::Connect]), "{why}");
        assert_eq!(bench.handle(Input::Connected), [Done::Sent(V2, Pdu::ResetQuery)], "{why}");
    }
    // Another session is another cache: section 5.1 has the router forget what the one before said.
    for pdus in [
        vec![Pdu::CacheResponse { session: 8 }],
        vec![response, other_end],
        vec![Pdu::SerialNotify { session: 8, serial: Serial(2) }],
    ] {
        let mut bench = Bench::holding(V2, [vrp(NET)]);
        bench.wait();
        assert_eq!(bench.refuses(V2, &pdus), (CorruptData, Fault::Session { ours: 7, theirs: 8 }));
        assert_eq!(bench.deltas(), [delta([], [vrp(NET)])]);
        assert_eq!(bench.client.data(), None);
    }
}

#[test]
fn an_answer_to_a_reset_query_says_each_record_once_and_withdraws_none() {
    let mut bench = Bench::connected(ClientConfig::default());
    let pdus = [Pdu::CacheResponse { session: 7 }, Pdu::Announce(vrp(NET)), Pdu::Withdraw(vrp(NET))];
    assert_eq!(bench.refuses(V2, &pdus), (ErrorCode::CorruptData, Fault::WithdrawnInFull));
    let mut bench = Bench::connected(ClientConfig::default());
    let pdus = [Pdu::CacheResponse { session: 7 }, Pdu::Announce(vrp(NET)), Pdu::Announce(vrp(NET))];
    assert_eq!(bench.refuses(V2, &pdus).0, ErrorCode::DuplicateAnnouncementReceived);
}

#[test]
fn what_cannot_be_read_ends_the_session() {
    for (version, octets, code) in [
        // Another version in the middle; one that nobody knows; one that is higher than what was asked.
        (V1, octets(V2, &[Pdu::CacheReset]), ErrorCode::UnexpectedProtocolVersion),
        (V1, octets(V0, &[Pdu::CacheReset]), ErrorCode::UnexpectedProtocolVersion),
        (V1, vec![9, 8, 0, 0, 0, 0, 0, 8], ErrorCode::UnexpectedProtocolVersion),
        (V1, vec![1, 99, 0, 0, 0, 0, 0, 8], ErrorCode::UnsupportedPduType),
        (V1, vec![1, 3, 0, 0, 0xff, 0xff, 0xff, 0xff], ErrorCode::CorruptData),
    ] {
        let mut bench = Bench::holding(version, [vrp(NET)]);
        bench.wait();
        assert_eq!(bench.refuses_octets(&octets).0, code, "{octets:?}");
        assert!(bench.client.data().is_some());
    }
    let mut bench = Bench::connected(ClientConfig { version: V1, ..ClientConfig::default() });
    assert_eq!(bench.refuses(V2, &[Pdu::CacheReset]).0, ErrorCode::UnsupportedProtocolVersion);
    // Nobody answers an Error Report with another one, however bad it is (section 5.11).
    for report in [octets(V1, &[error(ErrorCode::InternalError)]), vec![1, 10, 0, 0, 0, 0, 0, 8]] {
        let mut bench = Bench::holding(V1, [vrp(NET)]);
        assert_eq!(bench.handle(Input::Received(&report)), [Done::Close]);
        assert_eq!(bench.wait(), (Duration::from_secs(100), vec![Done::Connect]));
        assert_eq!(bench.handle(Input::Connected), [Done::Sent(V1, Pdu::ResetQuery)]);
    }
}

#[test]
fn a_cache_has_no_more_records_than_it_may() {
    let mut bench = Bench::connected(ClientConfig { limit: 5, ..ClientConfig::default() });
    let net = |n: u32| Pdu::Announce(vrp(&format!("10.0.{n}.0/24 AS{n}")));
    bench.hears(V2, &answer(7, 1, (0..5).map(net)));
    assert_eq!(bench.client.data().unwrap().len(), 5);
    bench.wait();
    let pdus = [Pdu::CacheResponse { session: 7 }, net(5)];
    assert_eq!(bench.refuses(V2, &pdus), (ErrorCode::InternalError, Fault::TooMany(5)));
    // One long record is as much as several.
    let mut bench = Bench::connected(ClientConfig { limit: 5, ..ClientConfig::default() });
    let providers: Vec<u32> = (1..=40).collect();
    let pdus = [Pdu::CacheResponse { session: 7 }, Pdu::Announce(aspa(1, &providers))];
    assert_eq!(bench.refuses(V2, &pdus).1, Fault::TooMany(5));
}

#[test]
fn times_are_kept_within_their_bounds_and_the_operator_has_the_last_word() {
    let times = |config: &ClientConfig, refresh, retry, expire| {
        let mut bench = Bench::connected(config.clone());
        let timing = Some(Timing { refresh, retry, expire });
        bench.hears(
            V2,
            &[Pdu::CacheResponse { session: 7 }, Pdu::EndOfData { session: 7, serial: Serial(1), timing }],
        );
        let times = bench.client.times();
        [times.refresh, times.retry, times.expire].map(|time| time.as_secs())
    };
    let config = ClientConfig::default();
    assert_eq!(times(&config, 0, 0, 0), [1, 1, 600]);
    assert_eq!(times(&config, u32::MAX, u32::MAX, u32::MAX), [86400, 7200, 172_800]);
    assert_eq!(times(&config, 3600, 600, 600), [300, 600, 600], "refreshed before it expires");
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let config = ClientConfig { refresh: seconds(5), retry: seconds(6), expire: seconds(700), ..config };
    assert_eq!(times(&config, 3600, 600, 7200), [5, 6, 700]);
}

#[test]
fn another_configuration_leaves_session_and_data() {
    let mut bench = Bench::holding(V2, [vrp(NET)]);
    let expire = Some(Duration::from_secs(700));
    let config = ClientConfig { expire, version: Version::V1, ..ClientConfig::default() };
    bench.client.reconfigure(config, bench.now);
    assert_eq!(bench.client.expires(), Some(bench.now + Duration::from_secs(700)));
    assert_eq!((bench.client.version(), bench.client.data().is_some()), (Some(V2), true));
}

#[test]
fn shorter_times_hold_at_once_and_longer_ones_from_the_next_time() {
    let seconds = Duration::from_secs;
    let times = |refresh, retry| ClientConfig {
        refresh: Some(seconds(refresh)),
        retry: Some(seconds(retry)),
        ..ClientConfig::default()
    };
    let mut bench = Bench::holding(V2, [vrp(NET)]);
    bench.client.reconfigure(times(2000, 200), bench.now);
    assert_eq!(bench.client.poll_timeout(), Some(bench.now + seconds(1000)));
    bench.client.reconfigure(times(5, 3), bench.now);
    assert_eq!(bench.wait(), (seconds(5), vec![Done::Sent(V2, serial_query(1))]));
    // Without data, and without a connection, it is the Retry Interval.
    bench.client.reconfigure(times(5, 100), bench.now);
    bench.hears(V2, &[error(ErrorCode::NoDataAvailable)]);
    bench.client.reconfigure(times(5, 30), bench.now);
    assert_eq!(bench.wait(), (seconds(30), vec![Done::Sent(V2, Pdu::ResetQuery)]));
    bench.client.reconfigure(times(5, 100), bench.now);
    bench.hears(V2, &[error(ErrorCode::InternalError)]);
    bench.client.reconfigure(times(5, 200), bench.now);
    assert_eq!(bench.client.poll_timeout(), Some(bench.now + seconds(100)));
    bench.client.reconfigure(times(5, 20), bench.now);
    assert_eq!(bench.wait(), (seconds(20), vec![Done::Connect]));
}
