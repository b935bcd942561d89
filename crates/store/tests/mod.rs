mod contents;
mod corpora;
mod file;
mod memory;
mod replies;
