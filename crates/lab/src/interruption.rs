//! What an interruption (SIGINT, SIGTERM) leaves behind: nothing.

use std::{
    fs,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
};

use holdfast_lab::netns::{ip, output};
use tokio::signal::unix::{SignalKind, signal};

/// An interrupted program leaves no process and no namespace behind.
pub(crate) fn clean_up(name: &'static str) {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        if runtime.is_ok_and(|runtime| runtime.block_on(interruption()).is_ok()) {
            INTERRUPTED.store(true, Ordering::SeqCst);
            remove_all();
            println!("\n{name}: FAILED: interrupted");
            std::process::exit(130);
        }
    });
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

async fn interruption() -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        result = tokio::signal::ctrl_c() => result,
        _ = terminate.recv() => Ok(()),
    }
}

/// Waits for the end of this program if it is being cleaned up after: what else fails now is a consequence.
pub(crate) fn stay() {
    while INTERRUPTED.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

fn remove_all() {
    let ours = format!("hf{}-", std::process::id());
    for line in ip(&["netns", "list"]).unwrap_or_default().lines() {
        let Some(name) = line.split(' ').next().filter(|name| name.starts_with(&ours)) else { continue };
        for pid in ip(&["netns", "pids", name]).unwrap_or_default().lines() {
            // Threads of this very program are in there, too.
            if pid.trim() != std::process::id().to_string() {
                let _ = output(Command::new("kill").args(["-9", pid.trim()]));
            }
        }
        let _ = ip(&["netns", "del", name]);
    }
    let ours = ["lab", "bird", "frr"].map(|kind| format!("holdfast-{kind}-{}-", std::process::id()));
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if ours.iter().any(|ours| name.starts_with(ours)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
