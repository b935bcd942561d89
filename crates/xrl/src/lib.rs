//! XRL: typed, scriptable IPC; channels, Finder, text form
