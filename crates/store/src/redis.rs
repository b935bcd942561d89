//! Requests as commands for Redis (7.0 and later) or Valkey, and its replies (RESP2) as answers.
//!
//! The caller writes what [`Keys::encode`] gives to a connection, gives what comes from it to [`Replies`], and takes each
//! reply with [`answer`]. Requests may follow each other without waiting (pipelining); replies come in the same order.
//! A reply [`Failure::NoScript`] means: send [`Script::load`] and the request again. After a batch that was not known, those
//! behind it were refused for their sequence at most, so it is safe to send all of them again.
//!
//! # Keys
//! All begin with `holdfast:{ROUTER}:`, so all are in one slot of a cluster, and every script names its keys.
//!
//! ```text
//! head     hash: i incarnation  e epoch  s sequence  l last  c counts  w writing  g generations
//! N:index  hash: name -> "v" octets | "r" start end last-chunk chunks       "" -> what generation N holds
//! N:data   hash: "v" name -> value | "c" offset ":" name -> chunk            "" -> incarnation
//! ```
//! The fields without a name are how a script sees that one of a generation's keys is gone, because it was evicted say.
//! `maxmemory-policy` should be `noeviction` all the same.
//!
//! # What a batch costs
//! Its octets, about 60 for each operation and 250 for the batch on the way. In the memory of Redis a chunk takes about 100
//! octets, and what the allocator rounds it up to: 4 KiB take 5.
//!
//! A script changes nothing before it has checked everything, because Redis does not roll back. Replication is
//! asynchronous: what a replica has confirmed is asked with [`wait()`] behind a batch.

mod command;
mod keys;
mod reply;
mod scripts;
mod sha1;

pub use command::{authenticate, ping, wait};
pub use keys::{BadRouter, Keys, LONGEST_ROUTER};
pub use reply::{
    LONGEST_BULK, LONGEST_LINE, LONGEST_SKIPPED, MOST_DEPTH, MOST_ELEMENTS, MOST_REPLY, MOST_UNREAD, Replies,
    Reply,
};
pub use scripts::{Script, answer, confirmed};

#[cfg(doc)]
use crate::Failure;
