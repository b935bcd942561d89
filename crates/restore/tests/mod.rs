mod damage;
mod log;
