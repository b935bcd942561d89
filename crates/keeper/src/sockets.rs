//! Listening sockets in the runtime directory, for protocols that others start.

use std::{
    fs, io,
    os::{
        fd::OwnedFd,
        unix::{fs::PermissionsExt, net::UnixListener},
    },
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use holdfast_api::keeper::v1::ListenRequest;

use crate::{
    service::Keeper,
    store::{Full, Kept, OnDeath},
};

/// Whose descriptors they are.
const OWNER: &str = "manager";

/// How a key begins under which the manager has such a socket, and the name of its file.
const KEY: &str = "protocol-";
const SUFFIX: &str = ".sock";

impl Keeper {
    /// The socket of a protocol: the one that is kept, or a new one.
    pub(crate) fn listen(&self, request: &ListenRequest) -> Result<OwnedFd> {
        ensure!(is_plain(&request.name), "{:?} is no name for a protocol", request.name);
        let key = format!("{KEY}{}", request.name);
        let user = id_of(&request.user, "/etc/passwd").context("the owner of a protocol's socket")?;
        let group = id_of(&request.group, "/etc/group").context("the group of a protocol's socket")?;
        let path = path(&self.options.runtime_directory, &request.name);
        if let Some(kept) = self.store.borrow_mut().get(OWNER, &key) {
            // The manager before may have been told of another owner.
            own(&path, user, group).with_context(|| path.display().to_string())?;
            return Ok(kept?);
        }
        let listener = bind(&path, user, group).with_context(|| path.display().to_string())?;
        let descriptor = listener.try_clone()?;
        let kept = Kept { descriptor, on_death: OnDeath::Keep(None), deadline: None, note: None };
        let kept = self.store.borrow_mut().put(OWNER, &key, kept);
        kept.map_err(|Full| anyhow::anyhow!("too many descriptors are kept already"))?;
        Ok(listener)
    }

    /// Closes the socket of a protocol, if there is one.
    pub(crate) fn unlisten(&self, name: &str) {
        if is_plain(name) && self.store.borrow_mut().drop_key(OWNER, &format!("{KEY}{name}")) {
            let _ = fs::remove_file(path(&self.options.runtime_directory, name));
        }
    }
}

/// Removes the files of all such sockets: the router ends.
pub(crate) fn remove_all(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(KEY) && name.ends_with(SUFFIX) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{KEY}{name}{SUFFIX}"))
}

/// Whether this may be part of a file's name.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

fn bind(path: &Path, user: Option<u32>, group: Option<u32>) -> io::Result<OwnedFd> {
    // What an earlier router left: the lock says that it is gone.
    let _ = fs::remove_file(path);
    let listener = UnixListener::bind(path)?;
    own(path, user, group)?;
    listener.set_nonblocking(true)?;
    Ok(listener.into())
}

/// Says who may connect; without a user or group, the router's own.
fn own(path: &Path, user: Option<u32>, group: Option<u32>) -> io::Result<()> {
    let user = user.unwrap_or_else(|| rustix::process::geteuid().as_raw());
    let group = group.unwrap_or_else(|| rustix::process::getegid().as_raw());
    std::os::unix::fs::chown(path, Some(user), Some(group))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o660))
}

/// The number of a user or group that is given as number or as name; `None` if none is given.
fn id_of(text: &str, file: &str) -> Result<Option<u32>> {
    if text.is_empty() {
        return Ok(None);
    }
    if let Ok(number) = text.parse() {
        return Ok(Some(number));
    }
    let table = fs::read_to_string(file).with_context(|| file.to_owned())?;
    let id = numbered(&table, text).with_context(|| format!("{file} does not know {text:?}"))?;
    Ok(Some(id))
}

/// `name:password:number:…` in lines.
fn numbered(table: &str, name: &str) -> Option<u32> {
    let mut lines = table.lines().map(|line| line.split(':'));
    let mut fields = lines.find_map(|mut fields| (fields.next() == Some(name)).then_some(fields))?;
    fields.nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_their_whole_name() {
        let table = "root:x:0:0:root:/root:/bin/sh\nrooty:x:17:18::/:/bin/false\nbroken\n";
        assert_eq!((numbered(table, "root"), numbered(table, "rooty")), (Some(0), Some(17)));
        assert_eq!((numbered(table, "roo"), numbered(table, "broken")), (None, None));
    }

    #[test]
    fn a_name_does_not_lead_out_of_the_directory() {
        assert!(is_plain("igp-2"));
        assert!(["", "..", "a/b", "a.b", "a b"].iter().all(|name| !is_plain(name)));
        assert_eq!(path(Path::new("/run"), "igp"), Path::new("/run/protocol-igp.sock"));
    }
}
