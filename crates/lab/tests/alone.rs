//! Tables, kills and hostile input: each test has the machine to itself (`.config/nextest.toml`).

mod abuse;
mod hostile;
mod kills;
mod nonstop;
mod sandbox;
mod tables;
