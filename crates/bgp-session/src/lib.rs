//! The BGP session: finite state machine, both connections, negotiation, timers
