//! The form of a line, which may change while a process runs.
//!
//! Both forms are there from the start, since what a span says is written down when it begins; events go to one of them.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tracing::{
    Event, Subscriber,
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{Layer, layer::Context};

/// How a line is written.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Format {
    Text,
    /// One object.
    Json,
}

impl Format {
    /// As the configuration says it; a word that nobody knows is text.
    pub(super) fn named(word: &str) -> Self {
        if word == "json" { Self::Json } else { Self::Text }
    }
}

/// The form that is used now.
#[derive(Clone)]
pub(super) struct Current(Arc<AtomicBool>);

impl Current {
    pub(super) fn new(format: Format) -> Self {
        Self(Arc::new((format == Format::Json).into()))
    }

    pub(super) fn set(&self, format: Format) {
        self.0.store(format == Format::Json, Ordering::Relaxed);
    }

    /// A layer that writes only while this form is used.
    pub(super) fn only<L>(&self, format: Format, layer: L) -> Only<L> {
        Only { layer, format, current: self.clone() }
    }

    fn is(&self, format: Format) -> bool {
        self.0.load(Ordering::Relaxed) == (format == Format::Json)
    }
}

/// A layer for one form.
pub(super) struct Only<L> {
    layer: L,
    format: Format,
    current: Current,
}

impl<S: Subscriber, L: Layer<S>> Layer<S> for Only<L> {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        self.layer.on_new_span(attributes, id, context);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        self.layer.on_record(id, values, context);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if self.current.is(self.format) {
            self.layer.on_event(event, context);
        }
    }
}
