//! Bodies of the fuzz targets, also run by tests over mutated seeds.

use std::time::{Duration, Instant};

use holdfast_rtr_wire::{Serial, Version};

use crate::{Cache, Client, ClientConfig, Connection, Dataset, Exceptions, Input, Output, Reply};

/// A router at a cache that says anything: pieces, each with its length in front; an empty one is a minute that passes.
/// What the client tells adds up to what it holds. Returns how often something new held.
pub fn client(data: &[u8]) -> usize {
    let Some((version, mut data)) = data.split_first() else { return 0 };
    let version = Version::from_octet(version % 3).expect("there are three");
    let mut now = Instant::now();
    let mut client = Client::new(ClientConfig { version, limit: 100, ..ClientConfig::default() }, now);
    let (mut consumer, mut told) = (Dataset::default(), 0);
    while let Some((length, rest)) = data.split_first() {
        let (piece, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        data = rest;
        if piece.is_empty() {
            now += Duration::from_secs(60);
            client.handle(Input::Timeout, now);
        } else {
            client.handle(Input::Received(piece), now);
        }
        while let Some(output) = client.poll_output() {
            if output == Output::Connect {
                client.handle(Input::Connected, now);
            }
        }
        while let Some(delta) = client.poll_delta() {
            consumer.apply(&delta);
            told += 1;
        }
        assert_eq!(client.data().unwrap_or(&Dataset::default()), &consumer);
    }
    told
}

/// A cache at a router that says anything. Returns how many replies it gets.
pub fn cache(data: &[u8]) -> usize {
    let now = Instant::now();
    let mut cache = Cache::new(crate::CacheConfig::default(), 1, Serial(1));
    cache.publish(Dataset::default());
    let mut connection = Connection::new(now);
    let mut replies = 0;
    for piece in data.chunks(7) {
        connection.received(&mut cache, piece, now);
        while let Some(reply) = connection.poll_reply(&mut cache, now) {
            if reply == Reply::Close {
                return replies;
            }
            replies += 1;
        }
    }
    replies
}

/// Anything as a SLURM file. Whether it is one.
pub fn slurm(data: &[u8]) -> bool {
    str::from_utf8(data).is_ok_and(|text| Exceptions::parse([("file", text)]).is_ok())
}
