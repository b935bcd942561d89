mod authentication;
mod pair;
mod restarts;
mod states;
mod strangers;
mod times;
