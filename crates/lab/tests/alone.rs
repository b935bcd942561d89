//! Tables, kills and hostile input: each test has the machine to itself (`.config/nextest.toml`).

mod abuse;
mod bfd_deaths;
mod bfd_hostile;
mod hostile;
mod kills;
mod large;
mod members;
mod nonstop;
mod sandbox;
mod tables;
