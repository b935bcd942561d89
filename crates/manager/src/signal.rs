//! Signals to processes of the router, for the operator.

use holdfast_api::{
    keeper::v1::SignalRequest as KeeperSignal,
    manager::v1::{SignalReply, SignalRequest},
};
use holdfast_xrl::XrlError;
use rustix::process::Signal;
use tracing::info;

use crate::manager::Manager;

/// Signals that can be sent, by name.
const SIGNALS: [(&str, Signal); 10] = [
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("QUIT", Signal::QUIT),
    ("ABRT", Signal::ABORT),
    ("KILL", Signal::KILL),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
    ("TERM", Signal::TERM),
    ("CONT", Signal::CONT),
    ("STOP", Signal::STOP),
];

/// Has the keeper send a signal to the process of a class or instance.
pub(crate) async fn send(manager: &Manager, request: SignalRequest) -> Result<SignalReply, XrlError> {
    let SignalRequest { target, signal } = request;
    let number = number(&signal)?;
    if target == "keeper" || target.starts_with("keeper-") {
        let text = "the keeper is sent no signals: manager/manager.v1/Stop stops the router";
        return Err(XrlError::denied(text));
    }
    let instance = manager.finder.instance(&target)?;
    if instance.pid == 0 {
        let text = format!("{} is no process of this router", instance.name);
        return Err(XrlError::failed_precondition(text));
    }
    let order =
        KeeperSignal { pid: instance.pid, signal: number.as_raw().unsigned_abs(), reason: String::new() };
    manager.keeper.signal(order).await?;
    info!(event = "signal-sent", instance = instance.name, signal, "signal sent for an operator");
    Ok(SignalReply { instance: instance.name, pid: instance.pid })
}

/// The signal of a name, as in TERM or SIGTERM.
fn number(name: &str) -> Result<Signal, XrlError> {
    let plain = name.strip_prefix("SIG").unwrap_or(name);
    SIGNALS.iter().find(|(known, _)| *known == plain).map(|(_, signal)| *signal).ok_or_else(|| {
        let known = SIGNALS.map(|(name, _)| name).join(", ");
        XrlError::invalid_argument(format!("\"{name}\" is no signal that can be sent (these are: {known})"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_go_by_their_names() {
        assert_eq!((number("TERM"), number("SIGKILL")), (Ok(Signal::TERM), Ok(Signal::KILL)));
        for name in ["", "term", "15", "SIG", "SEGV"] {
            let error = number(name).expect_err(name);
            assert!(
                error.message().contains("is no signal that can be sent (these are: HUP, INT"),
                "{error}"
            );
        }
    }
}
