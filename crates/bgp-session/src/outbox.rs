//! The queue of outputs.

use std::collections::VecDeque;

use holdfast_bgp_wire::MessageType;

use crate::{ConnId, Counters, Output, SessionEvent};

/// What waits to be polled. One input adds a handful at most, and a driver drains it after each.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    queue: VecDeque<Output>,
    pub(crate) counters: Counters,
}

impl Outbox {
    pub(crate) fn push(&mut self, output: Output) {
        self.queue.push_back(output);
    }

    pub(crate) fn pop(&mut self) -> Option<Output> {
        self.queue.pop_front()
    }

    pub(crate) fn send(&mut self, to: ConnId, kind: MessageType, message: Vec<u8>) {
        self.counters.sent.add(kind, 1);
        self.push(Output::Send(to, message));
    }

    pub(crate) fn log(&mut self, event: SessionEvent) {
        self.push(Output::Log(event));
    }
}
