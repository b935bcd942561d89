//! What the process counts, for each of its tables.

use std::rc::Rc;

use holdfast_bfd::State;
use holdfast_process::metrics::{Metric, Metrics, Sheet};

use crate::table::{Discarded, Inner};

static UP: Metric = Metric::gauge("holdfast_bfd_session_up", "1 while the session to a neighbour is Up");
static SENT: Metric = Metric::counter("holdfast_bfd_packets_sent", "Packets sent to a neighbour");
static RECEIVED: Metric = Metric::counter("holdfast_bfd_packets_received", "Packets received of a neighbour");
static DOWNS: Metric = Metric::counter("holdfast_bfd_downs", "How often a session was Up no more");
static DISCARDED: Metric = Metric::counter("holdfast_bfd_packets_discarded", "Packets that were discarded");
static UNSENT: Metric =
    Metric::counter("holdfast_bfd_packets_unsent", "Packets that the kernel did not take");

/// From now on the numbers can be read.
pub(crate) fn register(metrics: &Metrics, table: &Rc<Inner>) {
    // Those of a table end with it.
    let table = Rc::downgrade(table);
    metrics.register(move |sheet| {
        [&UP, &SENT, &RECEIVED, &DOWNS, &DISCARDED, &UNSENT]
            .into_iter()
            .for_each(|metric| sheet.declare(metric));
        if let Some(table) = table.upgrade() {
            count(sheet, &table);
        }
    });
}

fn count(sheet: &mut Sheet, table: &Inner) {
    let sessions = table.sessions();
    for (_, session) in sessions.engine.sessions() {
        let (path, counters) = (session.path(), session.counters());
        let (peer, local) = (path.remote.to_string(), path.local.map(|local| local.to_string()));
        let labels = [
            ("peer", peer.as_str()),
            ("local", local.as_deref().unwrap_or("")),
            ("interface", sessions.interface(path.interface)),
        ];
        sheet.add(&UP, &labels, u64::from(session.state() == State::Up));
        sheet.add(&SENT, &labels, counters.sent);
        sheet.add(&RECEIVED, &labels, counters.received);
        sheet.add(&DOWNS, &labels, counters.downs);
    }
    let Discarded { malformed, no_session, misdirected, unauthentic, unsent } = table.discarded();
    let reasons = [
        ("malformed", malformed),
        ("no-session", no_session),
        ("misdirected", misdirected),
        ("not-authentic", unauthentic),
        ("dropped-by-kernel", table.dropped()),
    ];
    for (reason, number) in reasons {
        sheet.add(&DISCARDED, &[("reason", reason)], number);
    }
    sheet.add(&UNSENT, &[], unsent);
}
