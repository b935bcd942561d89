//! The log: lines of text or JSON on standard error.
//!
//! The keeper says by environment what the configuration says, so that a process logs its first line right.

mod format;
mod limit;
mod service;

use std::sync::OnceLock;

use tracing::{Span, Subscriber, error_span, subscriber::set_global_default};
use tracing_subscriber::{
    EnvFilter,
    filter::ParseError,
    fmt::{MakeWriter, layer},
    layer::SubscriberExt,
    registry, reload,
};

use self::format::{Current, Format};
pub use limit::{BURST, EVERY, Limits};
pub(crate) use service::LogService;

/// Names a level ("info") or a filter as tracing-subscriber reads it, with levels of single processes in between:
/// "info,bgp=debug".
pub const LEVEL: &str = "HOLDFAST_LOG";
/// "text" or "json".
pub const FORMAT: &str = "HOLDFAST_LOG_FORMAT";

/// Of libraries only errors, unless the filter names them: about each packet from outside they could have something to say.
const LIBRARIES: &str = "noq=error";

/// What names the process in each of its lines; to be entered once, at its beginning.
pub fn process(name: &'static str) -> Span {
    // Of the highest level, so that it is there whatever is filtered. A field called `name` would hide behind the
    // span's own name in JSON.
    error_span!("holdfast", process = name)
}

/// The same for the lines of what is done for a VRF.
pub fn vrf(process: &str, name: &str) -> Span {
    // Of spans in each other JSON has the innermost, which therefore names the process as well.
    error_span!(parent: None, "holdfast", process, vrf = name)
}

/// Starts logging as the environment says, and as given where it says nothing.
pub fn start(process: &str, level: &str, format: &str) {
    let said = std::env::var(LEVEL).unwrap_or_else(|_| level.to_owned());
    let filter = filter(&own(process, &said)).unwrap_or_else(|_| EnvFilter::new("info"));
    let format = Format::named(std::env::var(FORMAT).as_deref().unwrap_or(format));
    let (lines, set) = lines(filter, format, std::io::stderr);
    // Somebody else may have started it: a test, say.
    if set_global_default(lines).is_ok() {
        let _ = SET.set(set);
    }
}

/// Puts another filter, and another form, in the place of those that are used.
type Set = Box<dyn Fn(EnvFilter, Option<Format>) + Send + Sync>;

static SET: OnceLock<Set> = OnceLock::new();

/// Logs by another filter from now on: "info,bgp=debug". One that cannot be read changes nothing. `format` is "text", "json",
/// or empty: as before.
pub fn set(process: &str, said: &str, format: &str) {
    if let (Ok(filter), Some(set)) = (filter(&own(process, said)), SET.get()) {
        set(filter, (!format.is_empty()).then(|| Format::named(format)));
    }
}

/// Whether a filter can be read.
///
/// # Errors
/// What is wrong with it.
pub fn check(said: &str) -> Result<(), ParseError> {
    filter(said).map(drop)
}

fn filter(said: &str) -> Result<EnvFilter, ParseError> {
    EnvFilter::try_new(format!("{LIBRARIES},{said}"))
}

/// What a filter says to a process: its own level in place of the one for all, and nothing about other processes.
fn own(process: &str, filter: &str) -> String {
    let level = |directive: &str| Some(directive.trim().strip_prefix(process)?.strip_prefix('=')?.to_owned());
    let Some(level) = filter.split(',').find_map(level) else { return filter.to_owned() };
    let is_for_some = |directive: &&str| directive.contains(['=', ':', '[']);
    let others = filter.split(',').filter(is_for_some).map(str::to_owned);
    std::iter::once(level).chain(others).collect::<Vec<_>>().join(",")
}

fn lines<W>(filter: EnvFilter, format: Format, writer: W) -> (impl Subscriber + Send + Sync, Set)
where
    W: for<'a> MakeWriter<'a> + Clone + Send + Sync + 'static,
{
    let current = Current::new(format);
    let (filter, handle) = reload::Layer::new(filter);
    let text = layer().with_writer(writer.clone()).with_target(false).with_ansi(false);
    let json = layer().with_writer(writer).with_target(false).json();
    let json = json.flatten_event(true).with_span_list(false);
    let lines =
        registry().with(filter).with(current.only(Format::Text, text)).with(current.only(Format::Json, json));
    let set = move |filter, format: Option<Format>| {
        format.into_iter().for_each(|format| current.set(format));
        // It fails where nothing logs any more.
        drop(handle.reload(filter));
    };
    (lines, Box::new(set))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::{error, subscriber::with_default, warn};

    use super::*;

    fn form(json: bool) -> Format {
        Format::named(if json { "json" } else { "text" })
    }

    #[test]
    fn another_form_holds_for_what_has_begun_before_as_well() {
        let out = Arc::new(Mutex::new(Vec::new()));
        let writer = Arc::clone(&out);
        let info = || filter("info").expect("a filter");
        let (subscriber, set) = lines(info(), Format::Text, move || Shared(Arc::clone(&writer)));
        with_default(subscriber, || {
            let _named = process("bgp").entered();
            warn!(peer = "a", "first");
            set(info(), Some(Format::Json));
            warn!(peer = "a", "second");
            set(info(), None);
            warn!("third");
            set(info(), Some(Format::Text));
            warn!("fourth");
        });
        let out = out.lock().expect("nobody panicked");
        let text = String::from_utf8_lossy(&out);
        let lines: Vec<&str> = text.lines().collect();
        let text =
            |line: &str, word: &str| line.contains("holdfast{process=\"bgp\"}: ") && line.contains(word);
        let json = |line: &str, word: &str| {
            line.starts_with('{') && line.contains("\"process\":\"bgp\"") && line.contains(word)
        };
        assert!(text(lines[0], "first") && json(lines[1], "second"), "{lines:?}");
        assert!(json(lines[2], "third") && text(lines[3], "fourth") && lines.len() == 4, "{lines:?}");
    }

    /// What a process called `bgp` logs.
    fn logged(level: &str, json: bool) -> String {
        captured(level, json, || {
            let _named = process("bgp").entered();
            warn!(peer = "transit-1", "session down: received Cease");
        })
    }

    /// What is logged meanwhile.
    fn captured(level: &str, json: bool, act: impl FnOnce()) -> String {
        let out = Arc::new(Mutex::new(Vec::new()));
        let writer = Arc::clone(&out);
        let (subscriber, _) =
            lines(filter(level).expect("a filter"), form(json), move || Shared(Arc::clone(&writer)));
        with_default(subscriber, act);
        let out = out.lock().expect("nobody panicked");
        String::from_utf8_lossy(&out).into_owned()
    }

    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("nobody panicked").write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_about_a_vrf_names_it_with_the_process_in_both_forms() {
        for (json, parts) in [
            (false, &[r#"holdfast{process="bgp" vrf="blue"}: VRF lines"#][..]),
            (true, &[r#""process":"bgp""#, r#""vrf":"blue""#]),
        ] {
            let line = captured("info", json, || {
                let _named = process("bgp").entered();
                vrf("bgp", "blue").in_scope(|| warn!("VRF lines"));
            });
            assert!(parts.iter().all(|part| line.contains(part)), "{line}");
        }
    }

    #[test]
    fn a_process_may_have_a_level_of_its_own() {
        let filter = "info,bgp=debug,rib=warn,holdfast_xrl=trace";
        assert_eq!(own("bgp", filter), "debug,bgp=debug,rib=warn,holdfast_xrl=trace");
        assert_eq!(own("fea", filter), filter, "no crate is called like a process");
        assert_eq!(own("bgp", "warn"), "warn");
        let is_logged = |filter: &str| logged(&own("bgp", filter), false).contains("session down");
        assert!(is_logged("error,bgp=warn") && !is_logged("info,bgp=error") && is_logged("info,rib=error"));
    }

    #[test]
    fn another_filter_is_used_in_the_place_of_the_first() {
        for json in [false, true] {
            let out = Arc::new(Mutex::new(Vec::new()));
            let writer = Arc::clone(&out);
            let error = filter("error").expect("a filter");
            let (subscriber, set) = lines(error, form(json), move || Shared(Arc::clone(&writer)));
            with_default(subscriber, || {
                let _named = process("bgp").entered();
                warn!("too early");
                set(filter(&own("bgp", "error,bgp=warn")).expect("a filter"), None);
                warn!("heard");
                set(filter("error").expect("a filter"), None);
                warn!("too late");
            });
            let out = out.lock().expect("nobody panicked");
            let text = String::from_utf8_lossy(&out);
            assert!(text.contains("heard") && text.contains("bgp") && !text.contains("too "), "{text}");
        }
    }

    #[test]
    fn a_library_is_heard_if_it_fails_or_is_asked_for() {
        let logged = |level: &str| {
            captured(level, false, || {
                warn!(target: "noq_proto::connection", "discarding");
                error!(target: "noq_proto::connection", "failing");
            })
        };
        for (level, discarding) in [("info", false), ("debug", false), ("info,noq=debug", true)] {
            let lines = logged(level);
            assert!(
                lines.contains("failing") && lines.contains("discarding") == discarding,
                "{level}: {lines}"
            );
        }
    }

    #[test]
    fn every_line_names_its_process_at_any_level_and_in_both_forms() {
        for level in ["info", "warn"] {
            let text = logged(level, false);
            assert!(
                text.contains("holdfast{process=\"bgp\"}: session down: received Cease"),
                "{level}: {text}"
            );
            let json = logged(level, true);
            let object =
                [r#""message":"session down: received Cease","peer":"transit-1""#, r#""process":"bgp""#];
            assert!(object.iter().all(|part| json.contains(part)), "{level}: {json}");
            assert_eq!(json.lines().count(), 1);
        }
    }
}
