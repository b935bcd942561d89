//! Routers and caches, in memory.

mod caches;
mod client;
mod script;
mod slurm;
