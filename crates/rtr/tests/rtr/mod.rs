//! Routers and caches, in memory.

mod cache;
mod caches;
mod client;
mod script;
mod slurm;
