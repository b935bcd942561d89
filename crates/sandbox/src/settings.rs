//! What the keeper tells a process about its sandbox.

use std::{
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

/// The variable that it is told by.
pub const ENVIRONMENT: &str = "HOLDFAST_SANDBOX";

/// How far a process is to be confined. As text: words, of which unknown ones are left to later builds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Landlock and seccomp.
    pub enforce: bool,
    /// User and group to become, where that is possible.
    pub user: Option<u32>,
    /// Most octets of private memory, where no cgroup counts them better.
    pub memory: Option<u64>,
    /// Where it may write files, if it is one that does.
    pub directories: Vec<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { enforce: true, user: None, memory: None, directories: Vec::new() }
    }
}

impl Settings {
    /// Those of the calling process; the default without any: an older keeper does not tell.
    pub(crate) fn from_environment() -> Self {
        std::env::var(ENVIRONMENT).map_or_else(|_| Self::default(), |text| Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let mut settings = Self::default();
        for word in text.split(' ') {
            match word.split_once('=') {
                None if word == "off" => settings.enforce = false,
                Some(("user", number)) => settings.user = number.parse().ok(),
                Some(("memory", octets)) => settings.memory = octets.parse().ok(),
                Some(("directory", text)) => settings.directories.extend(decode(text)),
                _ => {}
            }
        }
        settings
    }

    /// As text for [`ENVIRONMENT`].
    pub fn to_text(&self) -> String {
        let mut words = vec![if self.enforce { "enforce" } else { "off" }.to_owned()];
        words.extend(self.user.map(|user| format!("user={user}")));
        words.extend(self.memory.map(|octets| format!("memory={octets}")));
        words.extend(self.directories.iter().map(|path| format!("directory={}", encode(path))));
        words.join(" ")
    }
}

/// A path as one word: two hexadecimal digits for each octet.
fn encode(path: &Path) -> String {
    path.as_os_str().as_bytes().iter().map(|octet| format!("{octet:02x}")).collect()
}

fn decode(text: &str) -> Option<PathBuf> {
    let octet = |at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    let octets: Option<Vec<u8>> = (0..text.len()).step_by(2).map(octet).collect();
    Some(OsString::from_vec(octets?).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for settings in [
            Settings::default(),
            Settings { enforce: false, user: Some(60_700), ..Settings::default() },
            Settings {
                enforce: true,
                user: Some(1),
                memory: Some(u64::MAX),
                directories: vec!["/var/lib/a dir".into(), "/x=y".into()],
            },
        ] {
            assert_eq!(Settings::parse(&settings.to_text()), settings);
        }
    }

    #[test]
    fn what_is_not_understood_does_not_open_anything() {
        assert_eq!(Settings::parse("user=x later mode=off memory="), Settings::default());
        assert_eq!(Settings::parse(""), Settings::default());
    }
}
